"""Where the axes of a tensor go in an operation that keeps its elements: views, reshapes, elementwise functions."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

RESHAPES = frozenset({torch.reshape, Tensor.reshape, Tensor.reshape_as, torch.flatten, Tensor.flatten})
"""Operations that may copy, but keep the elements in their logical order."""

Origins = Sequence[frozenset[int]]
"""For each axis of the result, the axes of the operand that went into it (several when they were merged)."""


def origins(operand: Tensor, result: Tensor, *, reshaped: bool) -> Origins | None:
    """Trace the axes of ``result`` back to those of ``operand``.

    Args:
        operand: what went in.
        result: what came out.
        reshaped: the operation is one of ``RESHAPES``.

    Returns:
        The origins; None when the operation is not one that keeps the axes. An axis that is new, or of size one, has
        no origin. An axis that was split is the origin of both parts.
    """
    if operand.shape == result.shape and (operand.stride() == result.stride() or not _shares_memory(operand, result)):
        return [frozenset({axis}) for axis in range(operand.dim())]
    if _shares_memory(operand, result):
        return _by_stride(operand, result)
    if reshaped:
        return _by_order(operand.shape, result.shape)
    if _broadcasts(operand.shape, result.shape):
        new = result.dim() - operand.dim()
        return [frozenset({axis - new} if axis >= new else ()) for axis in range(result.dim())]
    if operand.dim() == result.dim():  # axes changed their size: a sum that keeps its axis, a mixing of heads
        same = [operand.size(axis) == result.size(axis) for axis in range(operand.dim())]
        return [frozenset({axis} if same[axis] else ()) for axis in range(operand.dim())]
    return None


def moved(axis: int | None, where: Origins) -> int | None:
    """The axis of the result that is ``axis`` of the operand; None when it is gone, was split or merged."""
    found = [i for i, origin in enumerate(where) if axis is not None and axis in origin]
    return found[0] if len(found) == 1 and len(where[found[0]]) == 1 else None


def moved_set(axes: frozenset[int], where: Origins) -> frozenset[int]:
    """The axes of the result that come from nothing but ``axes`` of the operand."""
    return frozenset(i for i, origin in enumerate(where) if origin and origin <= axes)


def _shares_memory(a: Tensor, b: Tensor) -> bool:
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def _broadcasts(small: Sequence[int], large: Sequence[int]) -> bool:
    if len(small) > len(large):
        return False
    return all(a in (1, b) for a, b in zip(reversed(small), reversed(large), strict=False))


def _by_stride(operand: Tensor, result: Tensor) -> Origins:
    """Axes of a view: those whose elements lie in the same range of memory offsets."""
    return _overlaps(_spans(operand.shape, operand.stride()), _spans(result.shape, result.stride()))


def _by_order(before: torch.Size, after: torch.Size) -> Origins:
    """Axes of a reshape: those that span the same range of the logical (row-major) order."""
    return _overlaps(
        *(_spans(shape, [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]) for shape in (before, after))
    )


def _spans(shape: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """The range of offsets [s, n s) that belongs to an axis of stride s and size n; empty when nothing is stepped."""
    return [(s, n * s) if n > 1 else (0, 0) for n, s in zip(shape, strides, strict=True)]


def _overlaps(before: list[tuple[int, int]], after: list[tuple[int, int]]) -> Origins:
    return [
        frozenset(axis for axis, (low, high) in enumerate(before) if low < end and start < high) for start, end in after
    ]
