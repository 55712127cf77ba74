"""Modes of one decomposition matched to those of an earlier one, so that pictures of them hold still."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ._checks import as_wide, numeric
from .pod import degenerate_pairs

_PREFER_OWN_PLACE = 1e-9  # what moving a mode by one place must gain in overlap: rounding gains less


class MatchedModes(NamedTuple):
    """K modes, each in the place of the earlier mode that it continues."""

    modes: Tensor
    """The modes, [K, D], in the dtype they came in; zeros beyond the rank."""
    energies: Tensor
    """Mean energy along each of them, [K]."""
    ranks: Tensor
    """Place of each in the descending order, from 0, int64 [K]; of a rotated group, the places are those of its modes
    in turn."""
    mixed: Tensor
    """Which were rotated within a group of modes that the sample cannot tell apart, bool [K]."""
    overlap: Tensor
    """Cosine between each and the earlier mode in its place, [K]; NaN where one of the two is missing."""
    rotation: Tensor
    """Orthogonal matrix that makes them of the modes as they came, [K, K]; it turns coefficients in the same way."""


@numeric
def match_modes(modes: Tensor, eigenvalues: Tensor, previous: Tensor, n_samples: int) -> MatchedModes:
    """Reorder modes, and turn them where they are free to turn, so that they continue earlier ones.

    The order and the sign of a mode are conventions, and among modes whose eigenvalues differ by less than their
    sampling error (`scalepod.pod.degenerate_pairs`) so is the choice of axes: only the subspace is determined. So

    1. neighbours that the sample cannot tell apart form groups;
    2. the earlier modes are dealt out to the groups, as many as each has modes, so that the sum of the lengths of their
       projections on the groups' subspaces is largest (a linear assignment; |overlap| where a mode stands alone);
    3. each group is turned onto its earlier modes by the orthogonal matrix with the largest sum of overlaps (for a mode
       that stands alone, its sign).

    A group that reaches beyond mode K is cut there. Modes of zeros stay zeros; they and modes without a counterpart
    move only to make room.

    Source: Kuhn (1955) for the assignment; Schoenemann (1966) for the orthogonal Procrustes problem.

    Args:
        modes: Orthonormal modes in descending order, [K, D] (fields flattened, or lag profiles); zeros beyond the rank.
        eigenvalues: Descending eigenvalues, [n]; those from K on are not looked at.
        previous: Earlier modes in the places they were shown in, [K, D].
        n_samples: Independent samples that the eigenvalues come from.

    Returns:
        The matched modes.

    Raises:
        ValueError: Modes that are not [K, D], or of another shape than the earlier ones; eigenvalues not [n]; values
            that are not finite; n_samples < 1.
    """
    new, old = _as_modes(modes, "modes"), _as_modes(previous, "previous")
    if new.shape != old.shape:
        raise ValueError(
            f"modes {tuple(new.shape)} and previous {tuple(old.shape)} must have the same shape; "
            "drop earlier modes of another size"
        )
    energy = _first(eigenvalues, len(new)).to(new)
    groups = _groups(energy, n_samples)
    overlap = new @ old.to(new).mT
    ranks = _assign(overlap, groups)
    rotation, mixed = _rotate(overlap, groups, ranks)
    matched = rotation @ new
    cosine = (matched * old).sum(-1)
    both = matched.any(-1) & old.any(-1)
    return MatchedModes(
        matched.to(modes.dtype),
        rotation.square() @ energy,
        ranks,
        mixed,
        torch.where(both, cosine, torch.nan),
        rotation,
    )


@numeric
def mode_stability(modes: Tensor, previous: Tensor) -> float:
    """Mean cosine of the principal angles between the subspaces that two sets of modes span.

    1 when one subspace holds the other, 0 when they have nothing in common, whatever the order, the signs or the axes
    within them. The cosines are the singular values of the matrix of overlaps.

    Source: Bjoerck & Golub (1973), Mathematics of Computation 27, 579.

    Args:
        modes: Orthonormal modes, [K, D]; rows of zeros do not count.
        previous: Earlier ones, [P, D].

    Returns:
        The mean over the angles, as many as the smaller subspace has dimensions; NaN when either has none.

    Raises:
        ValueError: Not [K, D] and [P, D], or values that are not finite.

    Example:
        >>> import torch
        >>> from scalepod.matching import mode_stability
        >>> mode_stability(torch.eye(4)[:2], torch.eye(4)[1:3])
        0.5
    """
    new, old = _as_modes(modes, "modes"), _as_modes(previous, "previous")
    if new.shape[1] != old.shape[1]:
        raise ValueError(f"modes {tuple(new.shape)} and previous {tuple(old.shape)} must have the same last dimension")
    overlap = new[new.any(-1)] @ old[old.any(-1)].to(new).mT
    if not overlap.numel():
        return float("nan")
    return float(torch.linalg.svdvals(overlap).clamp(max=1).mean())


def _as_modes(modes: Tensor, name: str) -> Tensor:
    wide = as_wide(modes, name)
    if wide.ndim != 2:
        raise ValueError(f"{name} must be [K, D], one mode a row, got shape {tuple(wide.shape)}")
    return wide


def _first(eigenvalues: Tensor, n_modes: int) -> Tensor:
    """The first K eigenvalues, filled up with zeros."""
    values = as_wide(eigenvalues, "eigenvalues")
    if values.ndim != 1:
        raise ValueError(f"eigenvalues must be [n], got shape {tuple(values.shape)}")
    return torch.nn.functional.pad(values[:n_modes], (0, max(0, n_modes - len(values))))


def _groups(energy: Tensor, n_samples: int) -> list[range]:
    """Runs of modes of which each is not separated from the next; modes without energy stand alone."""
    joined = degenerate_pairs(energy, n_samples) & (energy[1:] > 0)
    ends = [k + 1 for k, together in enumerate(joined.tolist()) if not together]
    starts = [0, *ends]
    return [range(start, end) for start, end in zip(starts, [*ends, len(energy)], strict=True)]


def _assign(overlap: Tensor, groups: list[range]) -> Tensor:
    """Which mode takes each place, int64 [K]: modes of a group are worth the same in a place."""
    from scipy.optimize import linear_sum_assignment

    n_modes = len(overlap)
    worth = torch.empty_like(overlap)
    for group in groups:
        worth[group.start : group.stop] = overlap[group.start : group.stop].norm(dim=0)
    place = torch.arange(n_modes, device=worth.device)
    worth -= _PREFER_OWN_PLACE * (place[:, None] - place).square()
    _, ranks = linear_sum_assignment(worth.mT.cpu().numpy(), maximize=True)
    return torch.as_tensor(ranks, dtype=torch.int64, device=worth.device)


def _rotate(overlap: Tensor, groups: list[range], ranks: Tensor) -> tuple[Tensor, Tensor]:
    """Rotation [K, K] of the modes into their places, and which of them it mixes, bool [K]."""
    rotation = torch.zeros_like(overlap)
    mixed = torch.zeros(len(overlap), dtype=torch.bool, device=overlap.device)
    for members, places in _places(groups, ranks):
        with_old = overlap[members][:, places].mT  # [place, member]
        if with_old.any():
            left, _, right = torch.linalg.svd(with_old)
            turn = left @ right
            mixed[places] = len(members) > 1
        else:
            turn = torch.eye(len(members), dtype=overlap.dtype, device=overlap.device)
        rotation[places[:, None], members] = turn
    return rotation, mixed


def _places(groups: list[range], ranks: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Of each group, its modes and the places they take, in the order of the modes."""
    place_of = ranks.argsort()
    for group in groups:
        members = torch.arange(group.start, group.stop, device=ranks.device)
        yield members, place_of[members]
