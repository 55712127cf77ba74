"""Spectra of parts of the documents, from sums over groups of them and from their inner products.

The documents of an analysis are dealt into G groups; a part is a set of groups. Nothing here needs the model again.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from .._checks import numeric
from ..field import LagMoments, lag_covariance_from_moments, lag_moments
from ..field import lags as lag_axis
from ..pod import spectrum_of

N_GROUPS = 8
"""Groups into which documents are dealt: enough for a standard error, and halves and quarters are whole groups."""
_SOLVED = 64  # leading lag modes among which those of a part are looked for
MIN_DOCUMENTS = 2 * N_GROUPS
"""Documents without which the groups say nothing."""


def enough(sizes: Tensor) -> bool:
    """Whether groups of these sizes can say something: none empty, and two documents in every quarter of them."""
    n_groups = len(sizes)
    return n_groups == N_GROUPS and int(sizes.sum()) >= MIN_DOCUMENTS and bool((sizes > 0).all())


def all_but_one(n_groups: int) -> Tensor:
    """The parts that leave out one group each, bool [G, G]."""
    return ~torch.eye(n_groups, dtype=torch.bool)


def dealt(n_groups: int, n_parts: int) -> Tensor:
    """Disjoint parts of every `n_parts`-th group, bool [P, G].

    Raises:
        ValueError: The groups do not divide into so many equal parts.
    """
    if n_parts < 1 or n_groups % n_parts:
        raise ValueError(f"{n_groups} groups do not divide into {n_parts} equal parts")
    return torch.arange(n_groups) % n_parts == torch.arange(n_parts)[:, None]


@numeric
def group_moments(
    attn: Tensor,
    labels: Tensor,
    n_groups: int,
    *,
    valid: Tensor | None = None,
    burn_in: int = 0,
    signed: bool = False,
) -> LagMoments:
    """Moments of each group of snapshots.

    Args:
        attn: Snapshots, [B, T, T].
        labels: Group of each snapshot, [B], 0..G - 1.
        n_groups: Number of groups G; one of them may have no snapshot.
        valid: Bool [B, T], True at real tokens.
        burn_in: Leading queries that count nowhere.
        signed: Use both directions.

    Returns:
        n [G], counts [G, T], total [G, T, T], second [G, L, L].

    Raises:
        ValueError: See `lag_moments`.
    """
    groups = [labels == group for group in range(n_groups)]
    found = {
        g: lag_moments(attn[members], None if valid is None else valid[members], burn_in, signed)
        for g, members in enumerate(groups)
        if members.any()
    }
    some = next(iter(found.values()))
    none = LagMoments(0, *(torch.zeros_like(moment) for moment in some[1:]))
    n, *sums = zip(*(found.get(g, none) for g in range(n_groups)), strict=True)
    return LagMoments(torch.tensor(n, device=attn.device), *(torch.stack(moments) for moments in sums))


def all_groups(groups: LagMoments) -> LagMoments:
    """Moments of all snapshots, without the leading dimension of `group_moments`."""
    return LagMoments(*(torch.as_tensor(moment).sum(0) for moment in groups))


@numeric
def part_covariances(groups: LagMoments, parts: Tensor) -> Tensor:
    """Lag covariance of each part, about the mean of its own documents.

    Args:
        groups: Moments of the G groups (see `group_moments`).
        parts: Which groups each part holds, bool [P, G].

    Returns:
        [P, L, L].

    Raises:
        ValueError: A part of fewer than 2 documents, or shapes that do not fit.
    """
    n = torch.as_tensor(groups.n)
    if parts.ndim != 2 or parts.shape[1] != len(n):
        raise ValueError(f"parts must be [P, G] with G = {len(n)} groups, got shape {tuple(parts.shape)}")
    weight = parts.to(groups.second)
    sums = [(weight @ moment.to(weight).flatten(1)).view(-1, *moment.shape[1:]) for moment in groups[1:]]
    return lag_covariance_from_moments(LagMoments((parts.to(n) * n).sum(1), *sums))


@numeric
def lag_spectra(
    covariances: Tensor, windows: Tensor, bases: Sequence[Tensor | None] | None = None, rounding: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Lag-POD eigenvalues of each part in each window.

    Args:
        covariances: Lag covariance of each part, [P, L, L].
        windows: Windows over |tau|, [M, T]; L = T or 2T - 1.
        bases: For each window the leading lag modes of all documents, [K, L], or None to solve in full. In a window of
            few lags the parts differ little from the whole: they are solved in its first 64 modes (Rayleigh-Ritz), and
            for the others their energy along each of them is taken, which is right to first order in the difference.
        rounding: Error of the covariances (see `scalepod.field.covariance_rounding`); smaller eigenvalues are 0.

    Returns:
        Eigenvalues, descending, zeros behind where a window has fewer profiles, [P, M, K] (K = L where a window is
        solved in full), and the whole energy, the trace, [P, M].
    """
    n_tokens, n_lags = windows.shape[-1], covariances.shape[-1]
    weights = windows[:, lag_axis(n_tokens, n_lags != n_tokens, windows.device).abs()]
    each = []
    for weight, basis in zip(weights, [None] * len(weights) if bases is None else bases, strict=True):
        if basis is None:
            each.append(spectrum_of(weight[:, None] * covariances * weight, n_lags, n_lags, rounding))
        else:
            each.append(_spectra_near(covariances, basis.to(weight) * weight, rounding))
    longest = max(values.shape[-1] for values in each)
    spectra = torch.stack([F.pad(values, (0, longest - values.shape[-1])) for values in each], 1)
    total = covariances.diagonal(0, -2, -1) @ weights.square().mT
    return spectra, total.maximum(spectra.sum(-1))  # rounding can put the trace below the sum of what is positive


def _spectra_near(covariances: Tensor, modes: Tensor, rounding: float) -> Tensor:
    """Eigenvalues of covariances [P, L, L] that are nearly diagonal in the given modes [K, L], [P, K]."""
    n_lags = covariances.shape[-1]
    images = modes @ covariances
    leading = images[:, :_SOLVED] @ modes[:_SOLVED].mT
    others = (images[:, _SOLVED:] * modes[_SOLVED:]).sum(-1)
    values = torch.cat([spectrum_of(leading, n_lags, n_lags, rounding), others], -1)
    return torch.where(values > rounding, values, 0.0).sort(-1, descending=True).values


@numeric
def field_spectra(grams: Tensor, labels: Tensor, parts: Tensor, n_tokens: int) -> Tensor:
    """Field-POD eigenvalues of each part in each window, about the mean of its own documents.

    Exact where every query is valid in every document; with padding, the mean of a part is that of all its documents
    rather than of those that have the query.

    Args:
        grams: Inner products of the windowed fluctuations of all documents, [M, N, N].
        labels: Group of each document, [N].
        parts: Which groups each part holds, bool [P, G].
        n_tokens: Tokens T, for the numerical floor.

    Returns:
        Descending eigenvalues with zeros behind, [P, M, N].

    Raises:
        ValueError: A part without documents.
    """
    found = grams.new_zeros(len(parts), *grams.shape[:2])
    for part, out in zip(parts.to(labels.device), found, strict=True):
        members = part[labels].nonzero().squeeze(-1)
        n = len(members)
        if not n:
            raise ValueError("a part holds no documents")
        out[:, :n] = spectrum_of(centred(grams[:, members[:, None], members]) / n, max(n, n_tokens**2), n - 1)
    return found


def centred(block: Tensor) -> Tensor:
    """Inner products [..., N, N'] about the mean of the snapshots of the rows and about that of the columns."""
    return block - block.mean(-2, keepdim=True) - block.mean(-1, keepdim=True) + block.mean((-2, -1), keepdim=True)
