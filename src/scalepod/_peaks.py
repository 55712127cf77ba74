"""Peaks of the energy E(a) over scales: where they are on the grid, and where between its points."""

import torch
from torch import Tensor

_RESOLUTION = 2.0**-30  # differences of E(a) below this share of its maximum are rounding, not structure


def peaks(energy: Tensor) -> list[int]:
    """Indices of the interior local maxima of E(a) [S], highest first; of a flat top the middle."""
    levels, lengths = torch.unique_consecutive(_levels(energy), return_counts=True)
    higher = levels.diff() > 0
    middles = lengths.cumsum(0) - (lengths + 1) // 2
    found = [k for k in range(1, len(levels) - 1) if higher[k - 1] and not higher[k]]
    return [int(middles[k]) for k in sorted(found, key=lambda k: -float(levels[k]))]


def rises_and_falls(energy: Tensor) -> tuple[Tensor, Tensor]:
    """Change of E(a) [..., S] on the way to each point and on the way from it, up to rounding; 0 at the edges."""
    change = _levels(energy).diff(dim=-1)
    return torch.nn.functional.pad(change, (1, 0)), torch.nn.functional.pad(change, (0, 1))


def vertex(energy: Tensor, scales: Tensor, place: Tensor) -> Tensor:
    """Top of the parabola through log E over log a at three neighbours on the grid.

    Args:
        energy: E(a), [P, S].
        scales: Ascending scales, [S].
        place: Index of the middle one, not lower than the others and not on the edge, [P].

    Returns:
        Its scale, [P]; the grid's own where the three are equal.
    """
    near = place[:, None] + torch.arange(-1, 2, device=place.device)
    x = scales.log()[near]
    y = energy.gather(-1, near).clamp(min=torch.finfo(energy.dtype).tiny).log()
    slope = y.diff(dim=-1) / x.diff(dim=-1)
    curvature = (slope[:, 1] - slope[:, 0]) / (x[:, 2] - x[:, 0])
    top = (x[:, 0] + x[:, 1]) / 2 - slope[:, 0] / (2 * curvature)
    top = torch.where(curvature < 0, top, x[:, 1])
    return top.maximum(x[:, 0]).minimum(x[:, 2]).exp()


def _levels(energy: Tensor) -> Tensor:
    """E(a) in whole steps of its resolution; zeros for a row without energy."""
    top = energy.amax(-1, keepdim=True) if energy.shape[-1] else energy
    return torch.where(top > 0, energy / (top * _RESOLUTION), 0.0).round()
