"""Attention as an ensemble of a stochastic field: lag layout, fluctuation, lag covariance and what follows from it."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ._checks import as_float, as_snapshots, check_burn_in, check_square, numeric, wide_dtype

_QUERY_BLOCK = 8  # queries whose lag rows share one matrix product: fewer products, little padding


@numeric
def to_lag(attn: Tensor, signed: bool = False) -> Tensor:
    """Lay attention out by lag: `X[..., i, tau] = A[..., i, i - tau]`, 0 where that key does not exist.

    The lag tau = i - j is how many tokens back query i looks.

    Args:
        attn: Fields, [..., T, T], query by key.
        signed: Keep both directions, for bidirectional attention: lag tau stands at index tau + T - 1. Otherwise only
            tau >= 0 is kept, which is all of a causal field.

    Returns:
        [..., T, L] with L = T, or L = 2T - 1 when signed.

    Raises:
        ValueError: The last two dimensions are not equal.

    Example:
        >>> import torch
        >>> from scalepod.field import to_lag
        >>> to_lag(torch.tensor([[1.0, 0.0], [0.3, 0.7]]))
        tensor([[1.0000, 0.0000],
                [0.7000, 0.3000]])
    """
    x = as_float(attn, "attn")
    check_square(x, "attn")
    n_tokens = x.shape[-1]
    query = torch.arange(n_tokens, device=x.device)[:, None]
    key = query - lags(n_tokens, signed, x.device)
    exists = (key >= 0) & (key < n_tokens)
    index = key.clamp(0, n_tokens - 1).expand(*x.shape[:-1], -1)
    return torch.where(exists, x.gather(-1, index), 0.0)


@numeric
def from_lag(x: Tensor, signed: bool = False) -> Tensor:
    """Undo `to_lag`: `A[..., i, j] = X[..., i, i - j]`; keys after the query are 0 unless signed.

    Args:
        x: Lag layout, [..., T, L] with L = T, or L = 2T - 1 when signed.
        signed: Whether `x` holds both directions.

    Returns:
        Fields, [..., T, T].

    Raises:
        ValueError: L does not fit T.
    """
    x = as_float(x, "x")
    n_tokens = x.shape[-2] if x.ndim >= 2 else 0
    n_lags = 2 * n_tokens - 1 if signed else n_tokens
    if n_tokens == 0 or x.shape[-1] != n_lags:
        layout = "[..., T, 2T - 1]" if signed else "[..., T, T]"
        raise ValueError(f"x must be a lag layout of shape {layout} for signed={signed}, got {tuple(x.shape)}")
    position = torch.arange(n_tokens, device=x.device)
    lag = position[:, None] - position
    index = (lag + n_tokens - 1 if signed else lag.clamp(min=0)).expand(*x.shape[:-2], -1, -1)
    field = x.gather(-1, index)
    return field if signed else field.tril()


def lags(n_tokens: int, signed: bool = False, device: torch.device | None = None) -> Tensor:
    """Lag at each index of the lag layout.

    Args:
        n_tokens: Tokens T.
        signed: Whether the layout holds both directions.
        device: Where to make the tensor.

    Returns:
        0..T-1, or -(T-1)..T-1 when signed, in tokens; int64 [L].
    """
    return torch.arange(-(n_tokens - 1) if signed else 0, n_tokens, device=device)


@numeric
def reynolds(attn: Tensor, valid: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Split an ensemble into its mean field and the fluctuations: `u_s = A_s - mean_s A`.

    Args:
        attn: Snapshots, [N, T, T], N >= 2.
        valid: Bool [N, T], True at real tokens. The mean of a query is taken over the snapshots where it is valid;
            the fluctuation of the others is 0.

    Returns:
        Mean field [T, T] and fluctuation [N, T, T], in the dtype of `attn` (float32 for half and bfloat16). The mean
        is summed in float64 about the first snapshot, so that identical snapshots fluctuate by exactly 0.

    Raises:
        ValueError: Not [N, T, T], fewer than 2 snapshots, non-finite values, or `valid` of another shape.
    """
    x, valid = as_snapshots(attn, valid, minimum=2)
    mean = _mean_field(x, valid)
    fluctuation = torch.empty_like(x, memory_format=torch.contiguous_format)
    difference = torch.empty_like(mean)
    for snapshot, out in zip(x, fluctuation, strict=True):
        out.copy_(torch.sub(snapshot, mean, out=difference))
    if valid is not None:
        fluctuation.mul_(valid[..., None])
    return mean.to(x.dtype), fluctuation


def _mean_field(x: Tensor, valid: Tensor | None) -> Tensor:
    """Mean over the valid snapshots of each query, summed about the first of them, in the widest dtype."""
    n, n_tokens, _ = x.shape
    total = x.new_zeros(n_tokens, n_tokens, dtype=wide_dtype(x.device))
    if valid is None:
        origin = x[0].to(total.dtype)
        for snapshot in x[1:]:
            total += snapshot - origin
        return origin + total / n
    first = valid.int().argmax(0)  # of each query, its first valid snapshot
    origin = x[first, torch.arange(n_tokens, device=x.device)].to(total.dtype)
    for snapshot, real in zip(x, valid, strict=True):
        total += torch.where(real[:, None], snapshot - origin, 0.0)
    return origin + total / valid.sum(0).clamp(min=1)[:, None]


@numeric
def lag_covariance(fluctuation: Tensor, signed: bool = False, burn_in: int = 0) -> Tensor:
    """Lag covariance `R[tau, tau'] = mean_s sum_i u[s, i, i - tau] u[s, i, i - tau']`.

    The sufficient statistic of the lag POD and of the scalogram. Its trace is the mean energy `mean_s ||u_s||^2`.
    Products and sums are float64 where the device has it.

    Args:
        fluctuation: Fluctuations, [N, T, T], N >= 1 (see `reynolds`).
        signed: Use both directions, for bidirectional attention.
        burn_in: Leading queries to leave out.

    Returns:
        R, [L, L] with L = T, or L = 2T - 1 when signed.

    Raises:
        ValueError: Not [N, T, T], non-finite values, or burn_in that leaves no query.
    """
    u, _ = as_snapshots(fluctuation, name="fluctuation")
    return _second_moment(u, signed, burn_in) / len(u)


class LagMoments(NamedTuple):
    """Raw moments of a set of snapshots. Field by field they add over sets, so they reduce over batches and ranks."""

    n: int | Tensor
    """Number of snapshots N."""
    counts: Tensor
    """Snapshots in which each query took part, int64 [T]."""
    total: Tensor
    """Sum of the fields over snapshots, [T, T]."""
    second: Tensor
    """Raw second moment sum_s sum_i A[s, i, i - tau] A[s, i, i - tau'], [L, L]."""


@numeric
def lag_moments(attn: Tensor, valid: Tensor | None = None, burn_in: int = 0, signed: bool = False) -> LagMoments:
    """Moments of a batch, from which `lag_covariance_from_moments` makes R without keeping the snapshots.

    Args:
        attn: Snapshots, [B, T, T], B >= 1.
        valid: Bool [B, T], True at real tokens; the other queries count nowhere.
        burn_in: Leading queries to leave out; they count nowhere either.
        signed: Use both directions, for bidirectional attention.

    Returns:
        The moments, sums in float64 where the device has it.

    Raises:
        ValueError: Not [B, T, T], non-finite values, `valid` of another shape, or burn_in that leaves no query.
    """
    x, valid = as_snapshots(attn, valid)
    n, n_tokens, _ = x.shape
    second = _second_moment(x, signed, burn_in)
    total = second.new_zeros(n_tokens, n_tokens)
    for snapshot in x:
        total += snapshot
    counts = torch.full((n_tokens,), n, device=x.device) if valid is None else valid.sum(0)
    total[:burn_in] = 0
    counts[:burn_in] = 0
    return LagMoments(n, counts, total, second)


@numeric
def lag_covariance_from_moments(moments: LagMoments) -> Tensor:
    """Lag covariance of the fluctuations from summed `LagMoments`: raw second moment less that of the mean field.

    Equal to `lag_covariance(reynolds(attn)[1])` to float64 rounding of the raw moment. A lag whose variance is below
    that rounding has none that could be told from 0, and gets exact zeros.

    Args:
        moments: Moments of all snapshots, at least 2; or of several sets of snapshots, every field with the same
            leading dimensions and n a tensor of them.

    Returns:
        R, [..., L, L], each of the mean over its own set.

    Raises:
        ValueError: Fewer than 2 snapshots in a set, or shapes that do not belong together.
    """
    counts, total, second = moments.counts, moments.total, moments.second
    n = torch.as_tensor(moments.n, device=second.device)
    if bool((n < 2).any()):
        raise ValueError(f"the moments hold {int(n.min())} snapshots; a fluctuation needs at least 2")
    signed = _is_signed(moments)
    weighted = total / counts.clamp(min=1).to(total.dtype).sqrt()[..., None]
    n = n[..., None, None].to(second.dtype)
    R = (second - _second_moment_of_each(weighted, signed)) / n
    floor = n[..., 0].clamp(min=total.shape[-1]) * torch.finfo(R.dtype).eps
    varies = R.diagonal(0, -2, -1) > floor * second.diagonal(0, -2, -1) / n[..., 0]
    return R * varies[..., None, :] * varies[..., None]


def covariance_rounding(moments: LagMoments) -> float:
    """Rounding error of the eigenvalues of `lag_covariance_from_moments`: `max(N, L) eps` of the raw energy.

    Args:
        moments: Moments of at least 1 snapshot.
    """
    n, n_lags = int(moments.n), moments.second.shape[-1]
    return max(n, n_lags) * torch.finfo(moments.second.dtype).eps * float(moments.second.trace()) / n


@numeric
def mean_profile(moments: LagMoments) -> Tensor:
    """Mean attention paid at each lag, over snapshots and query rows: `sum_s sum_i A[s, i, i - tau] / sum_s sum_i 1`.

    Args:
        moments: Moments of at least 1 snapshot.

    Returns:
        [L]; adds up to 1 where rows do.

    Raises:
        ValueError: Shapes that do not belong together.
    """
    return to_lag(moments.total, _is_signed(moments)).sum(0) / moments.counts.sum().clamp(min=1)


def _is_signed(moments: LagMoments) -> bool:
    """Whether the moments hold both directions, which their shapes tell."""
    check_square(moments.total, "total")
    n_tokens, n_lags = moments.total.shape[-1], moments.second.shape[-1]
    if moments.counts.shape[-1] != n_tokens or n_lags not in (n_tokens, 2 * n_tokens - 1):
        shapes = ", ".join(f"{name} {tuple(getattr(moments, name).shape)}" for name in ("counts", "total", "second"))
        raise ValueError(f"moments must have shapes [T], [T, T] and [L, L] with L = T or 2T - 1, got {shapes}")
    return n_lags != n_tokens


def _second_moment(x: Tensor, signed: bool, burn_in: int = 0) -> Tensor:
    """Sum over snapshots and queries of the outer products of the lag rows, [L, L].

    Rows are aligned at their last lag, so that a row of the field is copied as it stands; the result is then turned.
    Causal query i has i + 1 lags: blocks of queries need a third of the work of the full product.
    """
    n_tokens = x.shape[-1]
    check_burn_in(burn_in, n_tokens)
    n_lags = _n_lags(n_tokens, signed)
    moment = x.new_zeros(n_lags, n_lags, dtype=wide_dtype(x.device))
    for rows, block in _reversed_lag_rows(x, signed, burn_in):
        flat = rows.flatten(0, 1)
        moment[block, block].addmm_(flat.mT, flat)
    return moment.flip(0, 1)


def _second_moment_of_each(x: Tensor, signed: bool) -> Tensor:
    """The same of every snapshot alone, [..., L, L]; one product of all rows takes less time than many small ones."""
    rows = [to_lag(snapshot, signed).to(wide_dtype(x.device)) for snapshot in x.reshape(-1, *x.shape[-2:])]
    moments = torch.stack([each.mT @ each for each in rows])
    return moments.view(*x.shape[:-2], *moments.shape[-2:])


def _n_lags(n_tokens: int, signed: bool) -> int:
    return 2 * n_tokens - 1 if signed else n_tokens


def _reversed_lag_rows(x: Tensor, signed: bool, burn_in: int) -> Iterator[tuple[Tensor, slice]]:
    """Blocks of lag rows [N, q, width] with lags descending, and the lags of each block, counted from the last."""
    n, n_tokens, _ = x.shape
    for low in range(burn_in, n_tokens, _QUERY_BLOCK):
        high = min(low + _QUERY_BLOCK, n_tokens)
        width = n_tokens + high - low - 1 if signed else high
        rows = x.new_zeros(n, high - low, width, dtype=wide_dtype(x.device))
        for query in range(low, high):
            first = high - 1 - query
            n_keys = n_tokens if signed else query + 1
            rows[:, query - low, first : first + n_keys] = x[:, query, :n_keys]
        yield rows, slice(n_tokens - high, n_tokens - high + width)
