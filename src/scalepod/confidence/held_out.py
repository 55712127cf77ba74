"""Do the modes of some documents hold the energy of others? Energy captured within a half and across halves."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from .._checks import as_covariance, as_wide, check_positive, numeric
from ..pod import eigen
from .groups import centred


class Captured(NamedTuple):
    """Share of the energy that the first 0, 1, ..., K modes hold; each half of the documents once gives the modes."""

    in_sample: Tensor
    """In the half that the modes come from, [K + 1]; ascends from 0 to 1. NaN where a half has no energy."""
    held_out: Tensor
    """In the other half, [K + 1]; ascends from 0, and reaches 1 only if the modes span it. NaN likewise."""


@numeric
def field_captured(gram: Tensor, half: Tensor, n_tokens: int) -> Captured:
    """Energy that the field modes of one half of the documents hold in either half, mean over both directions.

    With the Gram matrix in blocks, `K_aa v_k = mu_k v_k` gives the modes of half a, and in half b they hold
    `|K_ba v_k|^2 / mu_k` of the energy `tr K_bb`.

    Each half is centred about its own mean. What is captured is then `tr(P_K C_b) / tr C_b`, with P_K the projection on
    the modes and C_b the covariance of half b: what `lag_captured` has for lags, and on average that share of the
    population's covariance. About the mean of half a, every document of half b would carry the error of that mean too,
    one vector common to all, which is no fluctuation.

    Exact where every query is valid in every document; with padding, the mean of a half is that of all its documents
    rather than of those that have the query.

    Args:
        gram: Inner products of the fluctuations of all documents, windowed or not, [N, N] (about any common origin).
        half: Documents of the one half, bool [N]; the others are the other half.
        n_tokens: Tokens T, for the numerical floor (see `scalepod.pod.field_pod`).

    Returns:
        Curves of K = max(N_a, N_b) - 1 modes; the smaller half has none after its last, so its curve stays level.

    Raises:
        ValueError: gram not [N, N], symmetric and finite; half not bool [N]; fewer than 2 documents in a half.
    """
    wide = as_wide(gram, "gram")
    _check_halves(wide, half, n_tokens)
    members = [half.to(wide.device), ~half.to(wide.device)]
    n_modes = max(int(one.sum()) for one in members) - 1
    return _both(*(_across(wide, a, b, n_tokens, n_modes) for a, b in (members, members[::-1])))


@numeric
def lag_captured(R_a: Tensor, R_b: Tensor) -> Captured:
    """Energy that the lag modes of one half of the documents hold in either half, mean over both directions.

    Mode phi_k of half a holds `phi_k^T R_b phi_k` of the energy `tr R_b` of half b.

    Args:
        R_a: Lag covariance of the one half about its own mean, windowed or not, [L, L].
        R_b: Of the other half, [L, L].

    Returns:
        Curves of K = L modes.

    Raises:
        ValueError: Not square, symmetric and finite, or of different sizes.
    """
    halves = [as_covariance(R_a), as_covariance(R_b)]
    if halves[0].shape != halves[1].shape:
        raise ValueError(f"R_a and R_b must have the same lags, got shapes {tuple(R_a.shape)} and {tuple(R_b.shape)}")
    directions = []
    for train, test in (halves, halves[::-1]):
        values, modes = eigen(train[None], len(train), len(train))
        held = ((modes[0] @ test) * modes[0]).sum(1)
        directions.append(_curves(values[0], torch.where(values[0] > 0, held, 0.0), test.trace()))
    return _both(*directions)


@numeric
def modes_needed(captured: Tensor, epsilon: float) -> float:
    """Smallest number of modes that hold the share `1 - epsilon` of the energy.

    Of an in-sample curve this is the effective rank H*(eps). Of a held-out curve it is the number of modes of these
    documents that other documents need.

    Args:
        captured: Share held by the first 0, 1, ..., K modes, [K + 1] (see `Captured`).
        epsilon: Residual energy, 0 <= epsilon < 1.

    Returns:
        The number; infinity where even K modes hold less; NaN for a curve that is undefined.

    Raises:
        ValueError: Not a vector that ascends, or epsilon outside [0, 1).

    Example:
        >>> import torch
        >>> from scalepod.confidence.held_out import modes_needed
        >>> modes_needed(torch.tensor([0.0, 0.6, 0.92, 1.0]), 0.10)
        2.0
    """
    if not 0 <= epsilon < 1:
        raise ValueError(f"epsilon must lie in [0, 1), got {epsilon}")
    if captured.ndim != 1 or not len(captured) or bool((captured.diff() < 0).any()):
        raise ValueError(f"captured must be a vector that ascends with the modes, got shape {tuple(captured.shape)}")
    if bool(captured.isnan().any()):
        return math.nan
    rounding = len(captured) * torch.finfo(captured.dtype).eps
    enough = captured >= 1 - epsilon - rounding
    return float(enough.int().argmax()) if bool(enough.any()) else math.inf


def _across(gram: Tensor, a: Tensor, b: Tensor, n_tokens: int, n_modes: int) -> Captured:
    """Curves of the field modes of half a: in a, and in b."""
    n = int(a.sum())
    values, vectors = eigen(centred(gram[a][:, a])[None], max(n, n_tokens**2), n - 1)
    energy = values[0, : n - 1]
    projected = (vectors[0, : n - 1] @ centred(gram[a][:, b])).square().sum(1)
    held = torch.where(energy > 0, projected / energy, 0.0)
    level = n_modes - len(energy)
    energy, held = (torch.nn.functional.pad(part, (0, level)) for part in (energy, held))
    total = centred(gram[b][:, b]).trace()
    rounding = len(gram) * torch.finfo(gram.dtype).eps * gram.trace()  # is what centring leaves of equal documents
    return _curves(energy * (energy.sum() > rounding), held, total * (total > rounding))


def _curves(energy: Tensor, held: Tensor, total: Tensor) -> Captured:
    """Cumulative shares from the energy of each mode in its own half and in the other, whose energy is `total`."""
    up_to = energy.new_ones(len(energy), len(energy) + 1).triu(1)  # cumsum is not deterministic on CUDA
    sums = torch.stack([energy, held.clamp(min=0)]) @ up_to
    in_sample, held_out = sums.cummax(-1).values  # sums of nothing more may be a rounding lower
    undefined = (in_sample[-1] <= 0) | (total <= 0)
    shares = torch.stack([in_sample / in_sample[-1], (held_out / total).clamp(max=1)])
    return Captured(*torch.where(undefined, torch.nan, shares))


def _both(one: Captured, other: Captured) -> Captured:
    return Captured((one.in_sample + other.in_sample) / 2, (one.held_out + other.held_out) / 2)


def _check_halves(gram: Tensor, half: Tensor, n_tokens: int) -> None:
    if gram.ndim != 2 or gram.shape[0] != gram.shape[1]:
        raise ValueError(f"gram must be [N, N], document by document, got shape {tuple(gram.shape)}")
    if not torch.allclose(gram, gram.mT, rtol=1e-4, atol=1e-4 * float(gram.abs().max())):
        raise ValueError(f"gram of shape {tuple(gram.shape)} is not symmetric, so it holds no inner products")
    if half.dtype != torch.bool or half.shape != gram.shape[:1]:
        raise ValueError(
            f"half must be a bool tensor of shape ({len(gram)},), one value a document, "
            f"got {half.dtype} of shape {tuple(half.shape)}"
        )
    sizes = (int(half.sum()), int((~half).sum()))
    if min(sizes) < 2:
        raise ValueError(f"each half needs at least 2 documents, got {sizes[0]} and {sizes[1]}")
    check_positive(n_tokens, "n_tokens")
