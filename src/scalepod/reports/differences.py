"""The difference of a layer between two runs: whether it can be told at all, and whether documents explain it."""

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

import torch

from ..analysis import LayerAnalysis
from ..confidence.jackknife import Change
from ..confidence.record import Confidence
from .runs import Firing
from .significance import unpaired_change

ALPHA = 0.05
"""Probability of even one false finding among all comparisons of a table."""

Test = Literal["paired", "unpaired", "trainings", ""]
"""How a difference was tested; empty where it was not."""


class Parts(NamedTuple):
    """The two errors of which a standard error is made; NaN where unknown."""

    documents: float = math.nan
    """Over the choice of documents."""
    trainings: float = math.nan
    """Over the trainings of a group; unknown of single runs."""


UNKNOWN = Parts()
"""Of a value without errors."""


class Difference(NamedTuple):
    """A later value less an earlier one, or the value of a run or group less that of the first."""

    difference: float
    """The difference; of effective ranks as real numbers (`scalepod.spectrum.fractional_rank`)."""
    stderr: float
    """Its standard error: over the choice of documents, between groups over their trainings too."""
    p_value: float
    """Probability of one so far from 0 where there is none: two-sided, Student's t."""
    p_holm: float
    """The same corrected for the number of comparisons (`scalepod.reports.significance.holm`)."""
    test: Test
    """Whether the error is that of the differences, group by group of the same documents."""
    parts: Parts = UNKNOWN
    """The error over documents and that over trainings."""

    @property
    def significant(self) -> bool:
        """Whether the corrected p-value is at most `ALPHA`."""
        return self.p_holm <= ALPHA


_HALF_OCTAVE = 0.5  # least distance of two dominant scales of one layer, in octaves

NO_DIFFERENCE = Difference(math.nan, math.nan, math.nan, math.nan, "")
"""Of the first run, and where nothing can be compared."""


def differences(first: Firing, other: Firing, a: LayerAnalysis, b: LayerAnalysis) -> dict[str, Difference]:
    """Test every value that both analyses of a layer have.

    Where the documents are the same, in the same groups, the error is that of the differences group by group, in which
    the choice of documents cancels (`Confidence.changes`). Elsewhere both errors add up (`unpaired_change`).

    Args:
        first: What is compared with.
        other: What is compared.
        a: The layer in the first.
        b: The layer in the other.

    Returns:
        Differences by name, not corrected for their number yet; without those that `incomparable` rules out, and none
        where an analysis has no confidence.
    """
    if a.confidence is None or b.confidence is None:
        return {}
    paired = is_paired(first, other, a.confidence, b.confidence)
    changes = a.confidence.changes(b.confidence) if paired else _unpaired_changes(a.confidence, b.confidence)
    test: Test = "paired" if paired else "unpaired"
    return {name: _difference(change, test) for name, change in changes.items() if not incomparable(name, a, b)}


def is_paired(first: Firing, other: Firing, a: Confidence, b: Confidence) -> bool:
    """Whether two analyses are of the same groups of documents.

    Where the documents of one are not on record, groups of the same sizes are enough: should the documents differ after
    all, the errors of paired differences are right too, only with fewer degrees of freedom than they could have.
    """
    if a.group_sizes.tolist() != b.group_sizes.tolist():
        return False
    one, two = first.provenance, other.provenance
    known = ((one.data_sha256, two.data_sha256), (one.processes, two.processes))
    return all(None in pair or pair[0] == pair[1] for pair in known)


def incomparable(quantity: str, a: LayerAnalysis, b: LayerAnalysis) -> str:
    """Why the values of two layers must not be compared, in words; empty where they may be."""
    asked: list[tuple[str, object, object]] = [
        ("another burn_in", a.burn_in, b.burn_in),
        ("lags of another kind (signed)", a.signed, b.signed),
    ]
    if quantity == "energy":
        asked.append(("documents of another length", a.n_tokens, b.n_tokens))
    if quantity == "dominant_lag":
        asked += [("another omega0", a.omega0, b.omega0), ("other scales", _grid(a), _grid(b))]
        if _another_peak(a, b):
            return "in some layers another peak of E(a) is the highest, of which the errors do not tell"
    if quantity.startswith("band_"):
        asked.append(("other bands", _bands(a), _bands(b)))
    if "t_spec" in quantity:
        asked.append(("another fit_range", a.fit_range, b.fit_range))
    if quantity.startswith(("t_spec", "h_star")):  # the field spectrum counts documents
        asked.append(("another number of documents", a.n_snapshots, b.n_snapshots))
    return next((f"{what}: {one} and {two}" for what, one, two in asked if one != two), "")


def _difference(change: Change, test: Test) -> Difference:
    error = float(change.stderr)
    return Difference(float(change.difference), error, float(change.p_value), math.nan, test, Parts(error))


def _unpaired_changes(a: Confidence, b: Confidence) -> Mapping[str, Change]:
    errors_a, errors_b = a.stderrs(), b.stderrs()
    values_a, values_b = (dict(zip(side.quantities, side.values, strict=True)) for side in (a, b))
    return {
        name: unpaired_change(
            value, torch.tensor(errors_a[name]), a.n_groups, values_b[name], torch.tensor(errors_b[name]), b.n_groups
        )
        for name, value in values_a.items()
        if name in values_b
    }


def _another_peak(a: LayerAnalysis, b: LayerAnalysis) -> bool:
    """Whether the highest peaks of E(a) lie more than half an octave apart, and so are not one that has moved."""
    if not len(a.dominant_lags) or not len(b.dominant_lags):
        return False
    return abs(math.log2(float(a.dominant_lags[0]) / float(b.dominant_lags[0]))) > _HALF_OCTAVE


def _grid(layer: LayerAnalysis) -> str:
    low, high = float(layer.scales[0]), float(layer.scales[-1])
    return f"{len(layer.scales)} from {low:.4g} to {high:.4g}"


def _bands(layer: LayerAnalysis) -> dict[str, float]:
    return {name: layer.window_lags[layer.window_names.index(name)] for name in layer.bands}
