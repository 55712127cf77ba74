"""Runs side by side: the values of every layer, and which of their differences are more than the documents' doing."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch

from ..analysis import LayerAnalysis, epsilon_name
from .differences import NO_DIFFERENCE, UNKNOWN, Difference, Parts, differences
from .runs import Firing
from .significance import holm


@dataclass(frozen=True)
class Entry:
    """One value of the table."""

    layer: str
    """Name of the row: the layer of the first run that has it."""
    quantity: str
    """Name of the value, as in `LayerAnalysis.scalars`."""
    run: str
    """Label of the run or group."""
    run_layer: str
    """What the run, or the first training of the group, calls the layer; empty where it has none."""
    value: float
    """The value, NaN where undefined; effective ranks of runs are int. Of a group, the mean over its trainings."""
    stderr: float
    """Its standard error over the choice of documents, of a group over its trainings too; NaN where unknown."""
    change: Difference = NO_DIFFERENCE
    """Against the first run or group."""
    parts: Parts = UNKNOWN
    """The error over documents and that over trainings."""
    n_trainings: int = 1
    """Trainings of the group; 1 for a run."""


@dataclass(frozen=True)
class Comparison:
    """A table of values by quantity, layer and run."""

    firings: tuple[Firing, ...]
    """What is compared, the first being what the others are compared with."""
    quantities: tuple[str, ...]
    """Names of the values, in the order of the table."""
    layers: tuple[tuple[str, ...], ...]
    """Layers that belong together, one a run; empty where a run has none."""
    entries: tuple[Entry, ...]
    """All values, by quantity, then layer, then run."""

    @property
    def row_names(self) -> list[str]:
        """Names of the rows: of the layers that belong together, that of the first run that has one."""
        return [next(filter(None, row)) for row in self.layers]

    @property
    def steps(self) -> dict[str, str]:
        """Optimizer steps taken, by label."""
        return {firing.label: str(firing.step) for firing in self.firings}

    @property
    def n_tests(self) -> int:
        """Differences that were tested."""
        return sum(math.isfinite(entry.change.p_value) for entry in self.entries)

    def significant(self) -> list[Entry]:
        """The values that differ significantly from those of the first run."""
        return [entry for entry in self.entries if entry.change.significant]


def compare(firings: Sequence[Firing]) -> Comparison:
    """Put firings side by side, and test the differences to the first of them (see `differences`).

    All tests of the table are corrected together: the probability of even one false finding is at most `ALPHA`.

    Args:
        firings: At least one; labels differ.

    Returns:
        The comparison; without differences for a single firing.

    Raises:
        ValueError: No firing, or one without layers.
    """
    if not firings or not all(firing.analyses for firing in firings):
        raise ValueError("a comparison takes at least one run, each with at least one layer")
    layers = align_layers([list(firing.analyses) for firing in firings])
    quantities = headline_quantities(layer for firing in firings for layer in firing.analyses.values())
    rows = [_row(firings, names, quantities) for names in layers]
    entries = [entry for quantity in quantities for row in rows for entry in row if entry.quantity == quantity]
    return Comparison(tuple(firings), quantities, layers, corrected(entries))


def corrected(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """The same entries with the p-values of all of them corrected together."""
    adjusted = holm(torch.tensor([entry.change.p_value for entry in entries], dtype=torch.float64)).tolist()
    return tuple(
        replace(entry, change=entry.change._replace(p_holm=p)) for entry, p in zip(entries, adjusted, strict=True)
    )


def headline_quantities(layers: Iterable[LayerAnalysis]) -> tuple[str, ...]:
    """Names of the values that tell where the energy is and how complex a layer is, as far as a layer has them."""
    found = list(layers)
    bands = dict.fromkeys(f"band_{name}" for layer in found for name in layer.bands)
    ranks = dict.fromkeys(f"h_star_{epsilon_name(epsilon)}" for layer in found for epsilon in layer.epsilons[:1])
    spectral = ["t_spec", *ranks]
    names = ["mean_lag", "dominant_lag", *bands, *(f"lag_{name}" for name in spectral), *spectral, "energy"]
    defined = {name for layer in found for name in layer.scalars()}
    return tuple(name for name in names if name in defined)


def align_layers(layers: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """Put layers that belong together into one row: by name where a run shares names with the first, else by order.

    Args:
        layers: Layer names of each run, at least one run.

    Returns:
        Rows of one name a run, empty where a run has no such layer: those of the first run, then the others'.

    Example:
        >>> align_layers([["01_a", "02_b"], ["01_a", "02_b", "03_c"]])
        (('01_a', '01_a'), ('02_b', '02_b'), ('', '03_c'))
        >>> align_layers([["01_x", "02_y"], ["01_attn"]])
        (('01_x', '01_attn'), ('02_y', ''))
    """
    n_first = len(layers[0])
    rows = [[name] for name in layers[0]]
    for place, names in enumerate(layers[1:], start=1):
        by_name = bool(set(names) & set(layers[0]))
        for order, name in enumerate(names):
            if not by_name and order < n_first:
                rows[order].append(name)
                continue
            same = (row for i, row in enumerate(rows) if name in (row[:1] if i < n_first else row))
            row = next(same, None) or [""] * place
            if not any(row is other for other in rows):
                rows.append(row)
            row.append(name)
        for row in rows:
            row.extend([""] * (place + 1 - len(row)))
    return tuple(map(tuple, rows))


def _row(firings: Sequence[Firing], names: Sequence[str], quantities: Sequence[str]) -> list[Entry]:
    """All values of the layers that belong together."""
    first = firings[0].analyses.get(names[0])
    found = []
    for firing, name in zip(firings, names, strict=True):
        layer = firing.analyses.get(name)
        values = {} if layer is None else layer.scalars()
        errors = {} if layer is None or layer.confidence is None else layer.confidence.stderrs()
        changes: dict[str, Difference] = {}
        if first is not None and layer is not None and firing is not firings[0]:
            changes = differences(firings[0], firing, first, layer)
        found += [
            Entry(
                layer=next(filter(None, names)),
                quantity=quantity,
                run=firing.label,
                run_layer=name,
                value=values.get(quantity, math.nan),
                stderr=errors.get(quantity, math.nan),
                change=changes.get(quantity, NO_DIFFERENCE),
                parts=Parts(errors.get(quantity, math.nan)),
            )
            for quantity in quantities
        ]
    return found
