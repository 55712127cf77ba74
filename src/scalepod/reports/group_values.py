"""Values of a layer in groups of trainings: means, and differences to the first group, with both standard errors."""

import math
from collections.abc import Iterable, Sequence
from itertools import combinations, product

import numpy as np
from torch import Tensor

from ..analysis import LayerAnalysis
from ..confidence.trainings import Array, Estimate, Sample, Spread, estimate, pooled
from .differences import NO_DIFFERENCE, Difference, Parts, incomparable

Row = Sequence[Sequence[LayerAnalysis]]
"""A layer in every group, one analysis a training; none where a group has no such layer."""

_NOTHING = Sample(np.empty(0), np.empty((0, 0)))


def mean(quantity: str, row: Row, group: int) -> Estimate:
    """Mean of a value over the trainings of a group, with its errors over documents and over trainings.

    A group of one training has the scatter of the groups with several, as far as the value means the same in them.

    Args:
        quantity: Name of the value.
        row: The layer in every group, all trainings on the same groups of documents.
        group: Place of the group.

    Returns:
        The estimate (see `scalepod.confidence.trainings.estimate`). Its value is NaN where `no_mean` has a reason or no
        training has the value; its error over trainings is NaN where no group tells of it.
    """
    return estimate([(1.0, _sample(quantity, row[group]))], _scatter(quantity, row, group), _sizes(row))


def difference(quantity: str, row: Row, group: int) -> Difference:
    """Test the mean of a group against that of the first, as one value with its errors (see `mean`).

    Args:
        quantity: Name of the value.
        row: The layer in every group, all trainings on the same groups of documents.
        group: Place of the group.

    Returns:
        The difference, not corrected for the number of tests yet; `NO_DIFFERENCE` of the first group, where
        `no_difference` has a reason, and where a mean is undefined.
    """
    if group == 0 or no_difference(quantity, row, group):
        return NO_DIFFERENCE
    terms = [(-1.0, _sample(quantity, row[0])), (1.0, _sample(quantity, row[group]))]
    found = estimate(terms, _scatter(quantity, row, group), _sizes(row))
    if math.isnan(found.value):
        return NO_DIFFERENCE
    parts = Parts(found.documents, found.seeds)
    return Difference(found.value, found.stderr, found.p_value, math.nan, "trainings", parts)


def no_mean(quantity: str, layers: Sequence[LayerAnalysis]) -> str:
    """Why the values of the trainings of a group have no mean, in words; empty where they have, or there are none."""
    undefined = [_of_training(quantity, layer) is None for layer in layers]
    if any(undefined) and not all(undefined):
        return "in some layers undefined in some of the trainings"
    return _reason(quantity, combinations(layers, 2))


def no_difference(quantity: str, row: Row, group: int) -> str:
    """Why the mean of a group must not be compared with that of the first, in words; empty where it may be."""
    return _reason(quantity, product(row[0], row[group]))


def _reason(quantity: str, pairs: Iterable[tuple[LayerAnalysis, LayerAnalysis]]) -> str:
    """The first reason that rules out one of the pairs (see `incomparable`)."""
    return next(filter(None, (incomparable(quantity, a, b) for a, b in pairs)), "")


def _scatter(quantity: str, row: Row, group: int) -> Spread:
    """Scatter over trainings, pooled over the groups in which the value means the same as in one of them."""
    alike = [layers for layers in row if layers is row[group] or not _reason(quantity, product(row[group], layers))]
    return pooled(_sample(quantity, layers) for layers in alike)


def _sample(quantity: str, layers: Sequence[LayerAnalysis]) -> Sample:
    """A value of the trainings of a group; of no training where it has no mean."""
    rows = [found for layer in layers if (found := _of_training(quantity, layer)) is not None]
    if not rows or no_mean(quantity, layers):
        return _NOTHING
    stacked = np.stack(rows)
    return Sample(stacked[:, 0], stacked[:, 1:])


def _of_training(quantity: str, layer: LayerAnalysis) -> Array | None:
    """The value of all documents, then without each group of them, [1 + G]; None where it is undefined."""
    sure = layer.confidence
    if sure is None or quantity not in sure.quantities:
        return None
    k = sure.quantities.index(quantity)
    found = np.append(sure.values[k].double().numpy(), sure.replicates[k].double().numpy())
    return found if math.isfinite(found[0]) else None


def _sizes(row: Row) -> Tensor | None:
    """Documents in each group of documents, the same in all trainings, [G]."""
    known = (layer.confidence for layers in row for layer in layers)
    return next((sure.group_sizes for sure in known if sure is not None), None)
