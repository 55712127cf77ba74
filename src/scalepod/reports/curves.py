"""Values over the training of several runs, or of groups of them, as figures draw them."""

import math
from collections.abc import Sequence

import numpy as np

from ..figures.compared_lines import Curve
from .group_values import Row, mean
from .groups import Group, GroupComparison
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


def group_curves(
    groups: Sequence[Group], comparison: GroupComparison, quantities: Sequence[str]
) -> list[list[list[Curve]]]:
    """Means over trainings with their standard errors over documents and trainings together.

    Every firing of every training is read from its file.

    Args:
        groups: The groups.
        comparison: Their comparison at one step, for the layers that belong together.
        quantities: Names of logged values.

    Returns:
        ``[layer][quantity][group]``, at the steps that all trainings of the group have; a mean that is undefined at a
        step is NaN there, and so is an error of which no group tells at that step.
    """
    found = [
        [[np.full((2, len(group.steps)), math.nan) for group in groups] for _ in quantities] for _ in comparison.members
    ]
    for step in sorted({step for group in groups for step in group.steps}):
        for names, rows in zip(comparison.members, found, strict=True):
            row = _row_at(groups, names, step)
            for quantity, means in zip(quantities, rows, strict=True):
                for k, group in enumerate(groups):
                    if step in group.steps:
                        estimate = mean(quantity, row, k)
                        means[k][:, group.steps.index(step)] = estimate.value, estimate.stderr
    return [
        [[Curve(np.array(group.steps), *means) for group, means in zip(groups, row, strict=True)] for row in rows]
        for rows in found
    ]


def _row_at(groups: Sequence[Group], names: Sequence[Sequence[str]], step: int) -> Row:
    """A layer in every group at a step; none in a group of which a training lacks it or the step."""
    row = []
    for group, own in zip(groups, names, strict=True):
        firings = [run.results.analyses.get(step, {}) for run in group.runs]
        known = all(name in firing for firing, name in zip(firings, own, strict=True))
        row.append([firing[name] for firing, name in zip(firings, own, strict=True)] if known else [])
    return row


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
