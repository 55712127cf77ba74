"""Values over the training of several runs, as figures draw them."""

import math
from collections.abc import Sequence

import numpy as np

from ..figures.compared_lines import Curve
from .runs import Run


def training_curves(
    runs: Sequence[Run], layers: Sequence[Sequence[str]], quantities: Sequence[str]
) -> list[list[list[Curve]]]:
    """Values with their standard errors at every firing.

    Args:
        runs: The runs.
        layers: Layers that belong together, one a run; empty where a run has none (see `align_layers`).
        quantities: Names of logged values.

    Returns:
        ``[layer][quantity][run]``; a value that a run does not have is NaN at all its steps.
    """
    return [
        [[_curve(run, layer, quantity) for run, layer in zip(runs, row, strict=True)] for quantity in quantities]
        for row in layers
    ]


def _curve(run: Run, layer: str, quantity: str) -> Curve:
    results = run.results
    steps = np.array(results.steps)
    undefined = np.full(len(steps), math.nan)
    if layer not in results.layers:
        return Curve(steps, undefined, undefined)
    column = results.layers.index(layer)
    found = [
        results.values[name][:, column] if name in results.values else undefined
        for name in (quantity, f"{quantity}_se")
    ]
    return Curve(steps, *found)
