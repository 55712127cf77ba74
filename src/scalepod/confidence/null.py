"""What the spectra would be without coherent structure: surrogate documents with the same energy at every lag."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from .._checks import as_snapshots, check_positive, numeric, wide_dtype
from ..pod import spectrum_of
from ..scalogram import scale_energy

_QUERY_BLOCK = 8  # queries whose lag rows are handled together: a block of 150 documents stays in the cache
_GAIN_STEPS = 20  # leave an error of 5e-7 in the lag energies of a trained layer; each step divides it by 2 or more
_MAX_POWER = 100.0  # a squared gain beyond brings a lag no energy: the others bound it, and only rounding grows


class NullSpectra(NamedTuple):
    """Spectra of P surrogates of an ensemble of N documents, in the window of ones."""

    lag_eigenvalues: Tensor
    """Lag-POD eigenvalues of each surrogate, descending, [P, L]; their sum is the energy of the ensemble."""
    field_eigenvalues: Tensor
    """Field-POD eigenvalues of each surrogate, descending, [P, N]."""
    scale_energy: Tensor
    """E(a) of each surrogate, [P, S]."""


@numeric
def null_spectra(
    fluctuation: Tensor,
    scales: Tensor,
    omega0: float = 6.0,
    *,
    n_queries: float | None = None,
    signed: bool = False,
    n_surrogates: int = 1,
    seed: int = 0,
) -> NullSpectra:
    """Lag spectrum, field spectrum and wavelet spectrum of surrogates (see `surrogate`).

    An ensemble whose modes are coherent needs fewer of them than its surrogates do and its spectrum is steeper, so that
    H* and T_spec lie below theirs; a peak of E(a) is structure where it rises above their E(a).

    One surrogate averages over all documents and queries, so it is near the mean of many. On the layers of a trained
    character model (N = 150, T = 128) the standard deviation over surrogates is half a mode in H*, 0.1 % in the lag
    T_spec, 5 % in that of the field and 0.6 to 2 % in E(a).

    Products are in the dtype of the fluctuation, float32 at least, sums and eigenproblems in float64 where the device
    has it. Eigenvalues below the rounding of the products, `n eps lambda_1` for an n x n matrix, are zeros.

    Args:
        fluctuation: Fluctuations, [N, T, T], N >= 2; rows of padding and burn-in are 0.
        scales: Wavelet scales in tokens, [S].
        omega0: Centre frequency of the wavelet.
        n_queries: Mean number of queries of a document, for E(a); L unless given, as in `scalogram`.
        signed: Use both directions, for bidirectional attention.
        n_surrogates: Number P of surrogates; number p is `surrogate(fluctuation, seed + p)`.
        seed: Seed of the first.

    Returns:
        The spectra, in float64 where the device has it.

    Raises:
        ValueError: Not [N, T, T], non-finite values, N < 2, n_surrogates < 1, or bad scales, omega0 or n_queries.
    """
    u, _ = as_snapshots(fluctuation, name="fluctuation", minimum=2)
    check_positive(n_surrogates, "n_surrogates")
    recipe = _recipe(u, signed)
    lag, field, scale = [], [], []
    for p in range(n_surrogates):
        R, gram = _second_moments(u, recipe, seed + p)
        lag.append(_spectrum(R, len(R), u.dtype))
        field.append(_spectrum(gram, len(u) - 1, u.dtype))
        scale.append(scale_energy(R, scales, omega0, n_queries))
    return NullSpectra(torch.stack(lag), torch.stack(field), torch.stack(scale))


@numeric
def surrogate(fluctuation: Tensor, seed: int, *, signed: bool = False) -> Tensor:
    """Fluctuations with the same energy at every lag, and no coherence between lags or documents beyond chance.

    Entry (i, i - tau) of document s is multiplied by a random sign eps[s, tau], one for a document and lag: every
    diagonal keeps its energy and its course along the queries, and goes with no other diagonal, nor with the same one
    in another document. Two properties of the ensemble are then restored. The mean over documents is 0 again. And every
    row keeps its sum, 0 for attention that adds up to 1, without which the surrogate would have a freedom that the
    ensemble has not: x becomes `x - (sum_tau x - sum_tau u) q / sum_tau q` with q[i, tau] the variance of x over the
    documents, which is what independent lags of variance q are on average, given their sum. Both take energy, so each
    lag is first amplified by a gain g(tau) such that, in expectation over the signs, its energy is kept.

    No gain can keep the energy of a lag that holds more than all others together in the same rows: one lag can balance
    a row against independent others only up to their energy. It then has as much as that.

    Args:
        fluctuation: Fluctuations about the mean over documents, [N, T, T], N >= 2 (see `scalepod.field.reynolds`).
            Rows that are 0, those of padding, stay 0.
        seed: Seed of the signs, which are drawn on the CPU, whatever the device, and without the global generator.
        signed: Use both directions, for bidirectional attention; otherwise keys after the query are left out.

    Returns:
        The surrogate, [N, T, T], in the dtype of the fluctuation (float32 at least).

    Raises:
        ValueError: Not [N, T, T], non-finite values, or N < 2.
    """
    u, _ = as_snapshots(fluctuation, name="fluctuation", minimum=2)
    result = torch.zeros_like(u, memory_format=torch.contiguous_format)
    for block, rows in _draw(u, _recipe(u, signed), seed):
        block.fields(result).copy_(block.keys(rows))
    return result


def excess(spectrum: Tensor, null: Tensor, statistic: Callable[[Tensor], Tensor]) -> float:
    """What a statistic of a spectrum has beyond its mean over the surrogates.

    Args:
        spectrum: Eigenvalues of the ensemble, descending, [n].
        null: Those of P surrogates, [P, n].
        statistic: Function of eigenvalues [..., n] with one value for each spectrum, such as an effective rank.

    Returns:
        The difference; NaN where the statistic is undefined for the ensemble or for a surrogate.

    Example:
        >>> import torch
        >>> from scalepod.confidence.null import excess
        >>> from scalepod.spectrum import effective_rank
        >>> null = torch.tensor([[3.0, 3.0, 2.0, 2.0], [4.0, 3.0, 3.0, 0.0]])
        >>> excess(torch.tensor([9.0, 1.0, 0.0, 0.0]), null, lambda values: effective_rank(values, 0.1))
        -2.5
    """
    own, others = (statistic(values).to(wide_dtype(values.device)) for values in (spectrum, null))
    return float(own - others.mean())


class _Block(NamedTuple):
    """Queries low..high - 1 with their lags in descending order, so that a row of the field is copied as it stands.

    The first column of a block is lag high - 1. The lag axis runs from T - 1 down to -(T - 1); a causal field has
    nothing at the lags below 0.
    """

    low: int
    high: int
    n_keys: int

    def fields(self, x: Tensor) -> Tensor:
        """The part of the fields [N, T, T] that the block holds, [N, q, n_keys]."""
        return x[:, self.low : self.high, : self.n_keys]

    def keys(self, rows: Tensor) -> Tensor:
        """The same part of lag rows [N, q, width] by key instead of lag, a view [N, q, n_keys]."""
        n, n_queries, width = rows.shape
        return rows.as_strided((n, n_queries, self.n_keys), (n_queries * width, width - 1, 1), n_queries - 1)

    def lag_rows(self, x: Tensor) -> Tensor:
        """Lag rows of the fields, [N, q, width]; 0 at lags that a query has not."""
        n_queries = self.high - self.low
        rows = x.new_zeros(len(x), n_queries, self.n_keys + n_queries - 1)
        self.keys(rows).copy_(self.fields(x))
        return rows

    def lags(self, n_tokens: int) -> slice:
        """Where the columns of the block stand on the lag axis."""
        start = n_tokens - self.high
        return slice(start, start + self.n_keys + self.high - self.low - 1)


class _Recipe(NamedTuple):
    """What turns an ensemble and signs into a surrogate; D = 2T - 1 lags, descending."""

    blocks: list[_Block]
    gain: Tensor
    """g(tau), [D]; 0 at lags to leave out."""
    weight: Tensor
    """q / sum_tau q, the share of a deviation of the row sum that each entry takes, [T, D]."""
    row_sum: Tensor
    """sum_tau u, [N, T]."""
    present: Tensor
    """1 at rows that are not 0, in the dtype of the fluctuation, [N, T]."""
    n_lags: int
    """Lags L of the result, the first of the D."""


def _recipe(u: Tensor, signed: bool) -> _Recipe:
    n, n_tokens, _ = u.shape
    blocks = _blocks(n_tokens, signed)
    variance = u.new_zeros(n_tokens, 2 * n_tokens - 1, dtype=wide_dtype(u.device))
    row_sum, present = (u.new_zeros(n, n_tokens) for _ in range(2))
    for block in blocks:
        rows = block.lag_rows(u)
        queries = slice(block.low, block.high)
        row_sum[:, queries] = rows.sum(-1)
        rows.square_()
        present[:, queries] = (rows.sum(-1) > 0).to(u.dtype)
        variance[queries, block.lags(n_tokens)] = rows.mean(0).to(variance.dtype)
    n_lags = 2 * n_tokens - 1 if signed else n_tokens
    power, weight = _gain(variance[:, :n_lags], row_sum.to(variance.dtype).square().mean(0), present.sum(0))
    behind = (0, 2 * n_tokens - 1 - n_lags)
    gain, weight = (torch.nn.functional.pad(part, behind).to(u.dtype) for part in (power.sqrt(), weight))
    return _Recipe(blocks, gain, weight, row_sum, present, n_lags)


def _blocks(n_tokens: int, signed: bool) -> list[_Block]:
    ends = [(low, min(low + _QUERY_BLOCK, n_tokens)) for low in range(0, n_tokens, _QUERY_BLOCK)]
    return [_Block(low, high, n_tokens if signed else high) for low, high in ends]


def _gain(variance: Tensor, row_sum: Tensor, n_present: Tensor) -> tuple[Tensor, Tensor]:
    """Squared gain of each lag, [L], and the weights q / sum q, [T, L], that go with it.

    With variance v[i, tau], taking off the mean of n documents leaves `q = g^2 v (1 - 1 / n)`, and giving each row the
    mean squared sum rho leaves `q - q^2 / Q + rho (q / Q)^2` with Q = sum_tau q, in expectation over independent signs.
    Solved for g so that the sum over queries is that of v.
    """
    energy = variance.sum(0)
    centred = variance * (1 - 1 / n_present.clamp(min=1).to(variance.dtype))[:, None]
    power, whole, squared = torch.ones_like(energy), centred.sum(0), centred.square()
    for _ in range(_GAIN_STEPS):
        total = centred @ power
        inverse = torch.where(total > 0, 1 / total, 0.0)
        taken = squared.mT @ (inverse - row_sum * inverse.square())
        kept = power * whole - power.square() * taken
        power = torch.where(kept > 0, power * energy / kept, power).clamp(max=_MAX_POWER)
    q = power * centred
    total = q.sum(1, keepdim=True)
    return power, torch.where(total > 0, q / total, 0.0)


def _draw(u: Tensor, recipe: _Recipe, seed: int) -> Iterator[tuple[_Block, Tensor]]:
    """Lag rows of a surrogate, block by block."""
    n, n_tokens, _ = u.shape
    coin = torch.randint(0, 2, (n, 2 * n_tokens - 1), generator=torch.Generator().manual_seed(seed))
    factor = recipe.gain * (2 * coin - 1).to(u)
    n_present = recipe.present.sum(0).clamp(min=1)
    for block in recipe.blocks:
        queries, lags = slice(block.low, block.high), block.lags(n_tokens)
        rows = block.lag_rows(u).mul_(factor[:, None, lags])
        present = recipe.present[:, queries]
        mean = rows.sum(0) / n_present[queries, None]
        surplus = rows.sum(-1) - present * mean.sum(-1) - recipe.row_sum[:, queries]
        rows.addcmul_(present[..., None], mean, value=-1)
        rows.addcmul_(surplus[..., None], recipe.weight[queries, lags], value=-1)
        yield block, rows


def _second_moments(u: Tensor, recipe: _Recipe, seed: int) -> tuple[Tensor, Tensor]:
    """Lag covariance [L, L] and Gram matrix over N [N, N] of a surrogate that is not kept."""
    n, n_tokens, _ = u.shape
    wide = wide_dtype(u.device)
    R = u.new_zeros(2 * n_tokens - 1, 2 * n_tokens - 1, dtype=wide)
    gram = u.new_zeros(n, n, dtype=wide)
    for block, rows in _draw(u, recipe, seed):
        lags, queries = rows.flatten(0, 1), rows.flatten(1)
        R[block.lags(n_tokens), block.lags(n_tokens)] += lags.mT @ lags
        gram += queries @ queries.mT
    return R[: recipe.n_lags, : recipe.n_lags].flip(0, 1) / n, gram / n


def _spectrum(covariance: Tensor, rank: int, dtype: torch.dtype) -> Tensor:
    """Descending eigenvalues, zeros below the rounding of products in `dtype`."""
    size = len(covariance)
    values = spectrum_of(covariance, size, rank)
    return torch.where(values > size * torch.finfo(dtype).eps * values[:1], values, 0.0)
