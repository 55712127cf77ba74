"""Straight lines through points: least squares, Theil-Sen, and the widest stretch of points that is straight.

Everything is batched over leading dimensions; `used`, bool [..., n], says which of the n points of each row take part.
"""

from typing import NamedTuple

import torch
from torch import Tensor

_FLAT = 1e-9  # a slope below this, of logarithms on logarithms, is the rounding of a flat line


class Line(NamedTuple):
    """Lines through the points of each row; NaN where the points do not determine them."""

    slope: Tensor
    stderr: Tensor
    """Standard error of the slope."""
    r2: Tensor
    """1 less the residual's share of the variance of y; NaN where y is flat."""


def least_squares(x: Tensor, y: Tensor, used: Tensor) -> Line:
    """Least-squares line of y on x, [..., n] each."""
    dx, dy = _centred(x, used), _centred(y, used)
    sxx = dx.square().sum(-1)
    slope = (dx * dy).sum(-1) / sxx
    residual = dy - slope[..., None] * dx
    stderr = (residual.square().sum(-1) / (used.sum(-1) - 2) / sxx).sqrt()
    return Line(slope, stderr, _explained(dx, dy, residual))


def theil_sen(x: Tensor, y: Tensor, used: Tensor) -> Line:
    """Line of the median slope over all pairs of points, x ascending, and of the median intercept.

    The standard error is half the width of the 68.3 % confidence interval of Sen (1968), Journal of the American
    Statistical Association 63, 1379: of the p = n (n - 1) / 2 ordered slopes, those at ranks (p - c) / 2 and
    (p + c) / 2 + 1 with c = sqrt(n (n - 1) (2 n + 5) / 18).
    """
    n = used.sum(-1)
    i, j = torch.triu_indices(x.shape[-1], x.shape[-1], offset=1, device=x.device)
    slopes = (y[..., j] - y[..., i]) / (x[..., j] - x[..., i])
    slopes = torch.where(used[..., i] & used[..., j], slopes, torch.inf).sort(-1).values
    pairs = n * (n - 1) // 2
    slope = _median(slopes, pairs)
    spread = (n * (n - 1) * (2 * n + 5) / 18).sqrt()
    low = ((pairs - spread) / 2).round().long() - 1
    high = ((pairs + spread) / 2).round().long().minimum(pairs - 1)
    stderr = (entry(slopes, high) - entry(slopes, low)) / 2
    left = _centred(y, used) - slope[..., None] * _centred(x, used)
    intercept = _median(torch.where(used, left, torch.inf).sort(-1).values, n)
    residual = torch.where(used, left - intercept[..., None], 0.0)
    return Line(slope, stderr, _explained(_centred(x, used), _centred(y, used), residual))


def widest_straight(x: Tensor, y: Tensor, used: Tensor, min_points: int, min_r2: float) -> Tensor:
    """First and last index of the run of used points, widest in x, whose line has r2 >= min_r2, the earliest of equals.

    Sums run from each first point on, about that point, so that nothing cancels on the way.

    Returns:
        Int64 [..., 2]; (-1, -1) where no run of `min_points` is straight.
    """
    n = y.shape[-1]
    found = torch.full((*y.shape[:-1], 2), -1, device=y.device)
    widest = y.new_zeros(*y.shape[:-1], 1)
    sums = y.new_zeros(5, *y.shape)  # of x, y, xx, xy, yy
    run = used
    for more in range(1, n):
        run = run[..., :-1] & used[..., more:]
        dx, dy = x[..., more:] - x[..., : n - more], y[..., more:] - y[..., : n - more]
        sums = sums[..., : n - more] + torch.stack([dx, dy, dx * dx, dx * dy, dy * dy])
        if more + 1 < min_points:
            continue
        sxx, sxy, syy = (sums[2:] - sums[[0, 0, 1]] * sums[[0, 1, 1]] / (more + 1)).unbind()
        straight = run & (syy > _FLAT**2 * sxx) & (sxy.square() >= min_r2 * sxx * syy)
        width, first = torch.where(straight, dx, 0.0).max(-1, keepdim=True)
        wider = width > widest
        found = torch.where(wider, torch.cat([first, first + more], -1), found)
        widest = torch.where(wider, width, widest)
    return found


def entry(rows: Tensor, index: Tensor) -> Tensor:
    """One entry of each row [..., n], at an index [...] that is clamped to 0..n - 1; NaN in rows of length 0."""
    if rows.shape[-1] == 0:
        return rows.new_full(rows.shape[:-1], torch.nan)
    return rows.gather(-1, index.clamp(0, rows.shape[-1] - 1)[..., None]).squeeze(-1)


def _median(ordered: Tensor, count: Tensor) -> Tensor:
    """Median of the first `count` of ascending values."""
    return (entry(ordered, (count - 1) // 2) + entry(ordered, count // 2)) / 2


def _centred(values: Tensor, used: Tensor) -> Tensor:
    """Values about the mean of those in use, 0 at the others."""
    weight = used.to(values.dtype)
    mean = (values * weight).sum(-1, keepdim=True) / weight.sum(-1, keepdim=True).clamp(min=1)
    return (values - mean) * weight


def _explained(dx: Tensor, dy: Tensor, residual: Tensor) -> Tensor:
    sxx, syy = dx.square().sum(-1), dy.square().sum(-1)
    return torch.where(syy > _FLAT**2 * sxx, 1 - residual.square().sum(-1) / syy, torch.nan)
