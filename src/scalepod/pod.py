"""Proper orthogonal decomposition of attention: of the fields themselves, and over lags."""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ._checks import (
    as_covariance,
    as_wide,
    check_burn_in,
    check_positive,
    numeric,
    positive_vector,
    wide_dtype,
)
from .field import lags as lag_axis
from .field import reynolds

_NoConvergence = torch.linalg.LinAlgError  # type: ignore[attr-defined]  # public, but not in the stubs
_LAG_BLOCK = 32  # Gram matrices held at a time
_QUERY_BLOCK = 32  # query rows held in float64 at a time
_TIE = 1e-3  # entries this close to the largest, relatively, count as equally large when the sign is chosen


class FieldPOD(NamedTuple):
    """Field POD of N snapshots in M windows, K modes kept."""

    eigenvalues: Tensor
    """Mean energy along each mode, descending, [M, N]; their sum is mean_s ||g_m u_s||^2."""
    modes: Tensor
    """Orthonormal fields, [M, K, T, T]; zeros beyond the rank."""
    coefficients: Tensor
    """Projection of each windowed fluctuation on each mode, [M, K, N]."""
    mean: Tensor
    """Mean field, [T, T]."""


class Snapshots(NamedTuple):
    """Fluctuations of N snapshots with their inner products, from which every spectrum of them follows."""

    mean: Tensor
    """Mean field, [T, T]."""
    fluctuation: Tensor
    """Fluctuations, [N, T, T]; the rows of burn-in and padding are 0."""
    windows: Tensor
    """Windows over |tau|, [M, T]."""
    gram: Tensor
    """Inner products of the windowed fluctuations, `<g_m u_s, g_m u_r>`, [M, N, N]."""


class LagPOD(NamedTuple):
    """Lag POD in M windows, K modes kept."""

    eigenvalues: Tensor
    """Energy along each mode, descending, [M, L]; their sum is the trace of the windowed R."""
    modes: Tensor
    """Orthonormal lag profiles, [M, K, L]; zeros beyond the rank."""


@numeric
def lag_windows(
    lags: Tensor | Sequence[float],
    n_lags: int,
    kind: Literal["bandpass", "lowpass"] = "bandpass",
    bandwidth: float = 0.5,
) -> Tensor:
    """Gaussian windows over the lag.

    `bandpass`: `exp(-(tau - l)^2 / (2 (bandwidth l)^2))`, around lag l. `lowpass`: `exp(-tau^2 / (2 l^2))`, all lags up
    to about l, as in the code published with arXiv 2606.06573.

    Args:
        lags: Lag l of each window in tokens, [M]; may be empty.
        n_lags: Lags 0..n_lags - 1 to sample.
        kind: Shape of the window.
        bandwidth: Relative width of a bandpass window.

    Returns:
        [M, n_lags], float64 where the device has it, largest value 1 where the centre is a lag on the grid.

    Raises:
        ValueError: A lag or bandwidth that is not positive, n_lags < 1, or an unknown kind.
    """
    given = lags if isinstance(lags, Tensor) else torch.tensor(list(lags), dtype=torch.float64)
    check_positive(bandwidth, "bandwidth")
    check_positive(n_lags, "n_lags")
    centre = positive_vector(given, "lags")[:, None]
    tau = lag_axis(n_lags, device=centre.device).to(centre.dtype)
    if kind == "bandpass":
        return torch.exp(-((tau - centre) ** 2) / (2 * (bandwidth * centre) ** 2))
    if kind == "lowpass":
        return torch.exp(-(tau**2) / (2 * centre**2))
    raise ValueError(f"kind must be 'bandpass' or 'lowpass', got {kind!r}")


@numeric
def field_pod(
    attn: Tensor,
    windows: Tensor | None = None,
    n_modes: int = 3,
    *,
    valid: Tensor | None = None,
    burn_in: int = 0,
) -> FieldPOD:
    """POD of the fluctuations of N snapshots, in each lag window, by the method of snapshots.

    Entry (i, j) of a fluctuation is weighted by g_m(|i - j|). The eigenvalues are those of the N x N matrix
    `C_m = (1/N) sum_tau g_m(tau)^2 G_tau`, where G_tau is the Gram matrix of the entries at distance tau: computed once
    for all windows. The mean squared error of the best reconstruction with K modes is `sum_{k > K} lambda_k`.

    Products, sums and eigenproblems are float64 where the device has it. Eigenvalues below the numerical floor
    `max(N, T^2) eps lambda_1`, and the one that centring annihilates, are exact zeros, and so are the modes that would
    belong to them. The sign of a mode makes its entry of largest magnitude positive; of entries within 0.1 % of the
    largest the first in reading order decides.

    Source: Sirovich (1987) for the method of snapshots; arXiv 2606.06573 for the windows.

    Args:
        attn: Snapshots, [N, T, T], N >= 2.
        windows: Windows over |tau|, [M, T]; None is one window of ones.
        n_modes: Modes K to return.
        valid: Bool [N, T], True at real tokens (see `reynolds`).
        burn_in: Leading queries to leave out of the decomposition; their rows are 0 in the modes.

    Returns:
        Eigenvalues in float64 where the device has it; modes, coefficients and mean in the dtype of `attn` (float32 at
        least).

    Raises:
        ValueError: See `reynolds`; windows not [M, T] or not finite; n_modes < 0; burn_in that leaves no query.
    """
    return pod_of_snapshots(windowed_snapshots(attn, windows, valid=valid, burn_in=burn_in), n_modes)


@numeric
def windowed_snapshots(
    attn: Tensor, windows: Tensor | None = None, *, valid: Tensor | None = None, burn_in: int = 0
) -> Snapshots:
    """The first stage of `field_pod`: fluctuations and their Gram matrix in each window.

    Args:
        attn: Snapshots, [N, T, T], N >= 2.
        windows: Windows over |tau|, [M, T]; None is one window of ones.
        valid: Bool [N, T], True at real tokens (see `reynolds`).
        burn_in: Leading queries to leave out.

    Returns:
        Mean and fluctuation in the dtype of `attn` (float32 at least), windows and Gram matrix in float64 where the
        device has it.

    Raises:
        ValueError: See `field_pod`.
    """
    mean, u = reynolds(attn, valid)
    causal = bool(attn.min() >= 0) and not bool(mean.triu(1).any())  # a mean of 0 over values >= 0: all are 0
    n_tokens = u.shape[-1]
    check_burn_in(burn_in, n_tokens)
    u[:, :burn_in] = 0
    window = _as_windows(windows, n_tokens, u.device)
    return Snapshots(mean, u, window, _windowed_gram(u, window, causal))


@numeric
def pod_of_snapshots(snapshots: Snapshots, n_modes: int = 3) -> FieldPOD:
    """The second stage of `field_pod`: eigenvalues and modes from the Gram matrix.

    Args:
        snapshots: What `windowed_snapshots` gives.
        n_modes: Modes K to return.

    Returns:
        See `field_pod`.

    Raises:
        ValueError: n_modes < 0.
    """
    mean, u, window, gram = snapshots
    _check_n_modes(n_modes)
    n, n_tokens, _ = u.shape
    values, vectors = eigen(gram / n, max(n, n_tokens**2), n - 1)
    kept, vectors = _leading(values, vectors, n_modes)
    amplitude = (n * kept).sqrt()
    weight = torch.where(amplitude > 0, 1 / amplitude, 0.0)[..., None] * vectors
    modes = (_combine(u, weight) * _field_window(window)[:, None]).to(u.dtype)
    sign = _signs(modes.flatten(2))
    modes *= sign[..., None, None]
    coefficients = ((sign * amplitude)[..., None] * vectors).to(u.dtype)
    return FieldPOD(values, modes, coefficients, mean)


@numeric
def lag_pod(R: Tensor, windows: Tensor | None = None, n_modes: int = 3, rounding: float = 0.0) -> LagPOD:
    """POD over lags: eigenvalues and eigenvectors of `g_m(tau) R[tau, tau'] g_m(tau')`.

    Text is homogeneous along the query axis, so this decomposition converges with the number of documents where the
    field POD counts them. Zeros and signs as in `field_pod`, with the floor `L eps lambda_1`, or `rounding` where that
    is higher: rows of attention add up to 1, so that R has an eigenvalue of 0, of which rounding makes a small one.

    Args:
        R: Lag covariance, [L, L], L = T or, with signed lags, L = 2T - 1.
        windows: Windows over |tau|, [M, T]; None is one window of ones.
        n_modes: Modes K to return.
        rounding: Error of R (see `scalepod.field.covariance_rounding`).

    Returns:
        Eigenvalues and modes, float64 where the device has it.

    Raises:
        ValueError: R is not square, symmetric and finite; windows that fit neither L = T nor L = 2T - 1; n_modes < 0.
    """
    covariance = as_covariance(R)
    n_lags = len(covariance)
    n_tokens = n_lags if windows is None else windows.shape[-1] if windows.ndim else 0
    _check_n_modes(n_modes)
    window = _as_windows(windows, n_tokens, covariance.device)
    if n_lags not in (n_tokens, 2 * n_tokens - 1):
        raise ValueError(
            f"windows {tuple(window.shape)} fit R {tuple(R.shape)} neither as [M, L] nor as [M, (L + 1) / 2]"
        )
    if n_lags != n_tokens:
        window = window[:, lag_axis(n_tokens, True, window.device).abs()]
    values, vectors = eigen(window[:, :, None] * covariance * window[:, None, :], n_lags, n_lags, rounding)
    kept, modes = _leading(values, vectors, n_modes)
    return LagPOD(values, modes * torch.where(kept > 0, _signs(modes), 0.0)[..., None])


@numeric
def degenerate_pairs(eigenvalues: Tensor, n_samples: int) -> Tensor:
    """Neighbouring modes that the sample cannot tell apart, so that their order and shape mean little.

    North's rule of thumb: the sampling error of an eigenvalue is `lambda_k sqrt(2 / n_samples)`; two modes whose
    eigenvalues are closer than that mix freely. Only the plane they span is then determined.

    Source: North, Bell, Cahalan & Moeng (1982), Monthly Weather Review 110, 699.

    Args:
        eigenvalues: Descending eigenvalues, [..., n].
        n_samples: Independent samples they come from.

    Returns:
        Bool [..., n - 1], True where modes k and k + 1 are not separated (zeros never are).

    Raises:
        ValueError: n_samples < 1.
    """
    check_positive(n_samples, "n_samples")
    values = as_wide(eigenvalues, "eigenvalues")
    return values[..., :-1] - values[..., 1:] <= values[..., :-1] * math.sqrt(2 / n_samples)


def _check_n_modes(n_modes: int) -> None:
    if n_modes < 0:
        raise ValueError(f"n_modes must be at least 0, got {n_modes}")


def _as_windows(windows: Tensor | None, n_tokens: int, device: torch.device) -> Tensor:
    if windows is None:
        return torch.ones(1, n_tokens, device=device, dtype=wide_dtype(device))
    window = as_wide(windows.to(device, wide_dtype(device)), "windows")
    if window.ndim != 2 or window.shape[1] != n_tokens:
        raise ValueError(f"windows must have shape [M, {n_tokens}], one value a lag, got {tuple(window.shape)}")
    return window


def _windowed_gram(u: Tensor, window: Tensor, causal: bool) -> Tensor:
    """`sum_tau g_m(tau)^2 G_tau`, [M, N, N], lag by lag, in the dtype of `window`."""
    n, n_tokens, _ = u.shape
    squared = window.square()
    total = window.new_zeros(len(window), n * n)
    grams = window.new_empty(min(_LAG_BLOCK, n_tokens), n, n)
    for low in range(0, n_tokens, _LAG_BLOCK):
        taus = range(low, min(low + _LAG_BLOCK, n_tokens))
        for out, tau in zip(grams, taus, strict=False):
            rows = u.diagonal(-tau, 1, 2)
            if tau and not causal:
                rows = torch.cat([rows, u.diagonal(tau, 1, 2)], 1)
            rows = rows.to(window.dtype)
            torch.mm(rows, rows.mT, out=out)
        total += squared[:, low : low + len(taus)] @ grams[: len(taus)].flatten(1)
    return total.view(-1, n, n)


def eigen(matrices: Tensor, size: int, rank: int, rounding: float = 0.0) -> tuple[Tensor, Tensor]:
    """Descending eigenvalues [M, n], zeros below the floor and from `rank` on, and eigenvectors as rows [M, n, n]."""
    try:
        values, vectors = torch.linalg.eigh(matrices)
        values, vectors = values.flip(-1), vectors.flip(-1)
    except _NoConvergence:  # the singular values of a covariance are its eigenvalues
        vectors, values, _ = torch.linalg.svd(matrices)
    return _above_floor(values, size, rank, rounding), vectors.mT


def spectrum_of(matrices: Tensor, size: int, rank: int, rounding: float = 0.0) -> Tensor:
    """Eigenvalues of covariances [..., n, n] as the decompositions here give them, without eigenvectors.

    Args:
        matrices: Symmetric positive semi-definite matrices.
        size: Larger dimension of the problem behind them, for the floor `size eps lambda_1`.
        rank: Eigenvalues that can differ from 0.
        rounding: Error of the matrices, where that is known: a higher floor.

    Returns:
        Descending, [..., n]; exact zeros below the floor and from `rank` on.
    """
    try:
        values = torch.linalg.eigvalsh(matrices).flip(-1)
    except _NoConvergence:
        values = torch.linalg.svdvals(matrices)
    return _above_floor(values, size, rank, rounding)


def _above_floor(values: Tensor, size: int, rank: int, rounding: float) -> Tensor:
    floor = (size * torch.finfo(values.dtype).eps * values[..., :1]).clamp(min=rounding)
    values = torch.where(values > floor, values, 0.0)
    values[..., rank:] = 0
    return values


def _leading(values: Tensor, vectors: Tensor, n_modes: int) -> tuple[Tensor, Tensor]:
    """The first `n_modes` of each, filled up with zeros."""
    missing = max(0, n_modes - values.shape[-1])
    values = torch.nn.functional.pad(values[:, :n_modes], (0, missing))
    vectors = torch.nn.functional.pad(vectors[:, :n_modes], (0, 0, 0, missing))
    return values, vectors


def _combine(u: Tensor, weight: Tensor) -> Tensor:
    """`sum_s weight[m, k, s] u[s]`, [M, K, T, T], in the dtype of `weight`."""
    flat = weight.flatten(0, 1)
    rows = [flat @ block.to(flat.dtype).flatten(1) for block in torch.split(u, _QUERY_BLOCK, dim=1)]
    return torch.cat(rows, 1).view(*weight.shape[:2], *u.shape[1:])


def _field_window(window: Tensor) -> Tensor:
    """g(|i - j|), [M, T, T]."""
    position = lag_axis(window.shape[1], device=window.device)
    return window[:, (position[:, None] - position).abs()]


def _signs(modes: Tensor) -> Tensor:
    """+1 or -1 for each mode [..., D], making the first of its largest entries positive."""
    size = modes.abs()
    largest = size >= (1 - _TIE) * size.amax(-1, keepdim=True)
    first = largest.to(torch.uint8).argmax(-1, keepdim=True)
    return torch.where(modes.gather(-1, first).squeeze(-1) < 0, -1.0, 1.0).to(modes.dtype)
