"""Wavelet coherence between what a query does at its own place and what it does at a key."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ._chance import rice_quantile
from ._checks import as_snapshots, check_positive, numeric, wide_dtype
from .field import reynolds
from .scalogram import wavelet

_QUERY_BLOCK = 16
_APART = 4  # scales between two places at which their wavelets overlap by exp(-4), 2 % of what they do at one place


class CoherenceMoments(NamedTuple):
    """Sums over documents of the transforms at one scale. Field by field they add over batches and ranks.

    X stands for W_i(i), what query i does at its own place, and Y for W_i(j); row i, column j.
    """

    counts: Tensor
    """Documents in which each query took part, int64 [T]."""
    transform: Tensor
    """Sums of Y, conj(X) Y, X Y and |X|^2 Y, complex [4, T, T]."""
    energy: Tensor
    """Sums of |Y|^2, Re(X) |Y|^2, Im(X) |Y|^2 and |X|^2 |Y|^2, [4, T, T]."""
    fourth: Tensor
    """Sum of |X|^4 |Y|^4, [T, T]."""


class Coherence(NamedTuple):
    """Cross-coherence at one scale, and what of it chance explains."""

    gamma: Tensor
    """|gamma| of the fluctuations, [T, T] in [0, 1]; 0 where a place holds no energy."""
    level: Tensor
    """What |gamma| exceeds with probability alpha where documents are independent, [T, T]; NaN where a place holds no
    energy or fewer than 3 documents took part."""
    documents: Tensor
    """Equally strong documents that the pair amounts to, [T, T]: by chance, |gamma|^2 is 1 / documents on average."""
    tested: Tensor
    """Pairs that could tell, bool [T, T]: they have a level, the query can see the key, and the wavelets at the two
    places do not overlap."""

    @property
    def significant_share(self) -> float:
        """Share of the tested pairs above their level: about alpha where nothing coheres; NaN when none was tested."""
        return float((self.gamma > self.level)[self.tested].double().mean())


@numeric
def cross_coherence(attn: Tensor, scale: float, omega0: float = 6.0) -> Tensor:
    """Cross-coherence `gamma_ij = |<W_i(i) conj W_i(j)>| / sqrt(<|W_i(i)|^2> <|W_i(j)|^2>)` at one scale.

    W_i(b) is the Morlet transform of row i along the keys, <.> the mean over snapshots. 1 means that the structure of
    this scale around key j goes with that around the query itself in every document. The fields are taken as they are:
    give the fluctuation (`reynolds`) to leave out what all documents share, without which coherence says little. Keys
    that a causal query cannot see get only what the wavelet, some 3 scales wide, brings over from those it can.

    Args:
        attn: Snapshots, [N, T, T].
        scale: Wavelet scale in tokens.
        omega0: Centre frequency of the wavelet.

    Returns:
        |gamma|, [T, T] in [0, 1], in the dtype of `attn` (float32 at least); 0 where a place holds no energy.

    Raises:
        ValueError: Not [N, T, T], non-finite values, or scale or omega0 not positive.
    """
    x, _ = as_snapshots(attn)
    blocks = [_coherence_with_query(own, transform) for own, transform in _transforms(x, scale, omega0)]
    return torch.cat(blocks).to(x.dtype)


@numeric
def coherence(
    attn: Tensor,
    scale: float,
    omega0: float = 6.0,
    alpha: float = 0.05,
    *,
    valid: Tensor | None = None,
    signed: bool = False,
) -> Coherence:
    """Cross-coherence of the fluctuations at one scale, with a level of significance for every pair.

    The same as `coherence_from_moments` of the moments of the fluctuations.

    Args:
        attn: Snapshots, [N, T, T], N >= 2.
        scale: Wavelet scale in tokens; at least 0.4 omega0 for the level to hold (see `coherence_from_moments`).
        omega0: Centre frequency of the wavelet.
        alpha: Probability of exceeding the level by chance.
        valid: Bool [N, T], True at real tokens (see `reynolds`).
        signed: Test keys after the query too, for bidirectional attention.

    Returns:
        Coherence, level and tested pairs, float64 where the device has it.

    Raises:
        ValueError: See `reynolds`; scale or omega0 not positive, or alpha outside (0, 1).

    Example:
        >>> import torch
        >>> from scalepod.coherence import coherence
        >>> noise = torch.randn(40, 32, 32, generator=torch.Generator().manual_seed(0))
        >>> coherence(noise, 3.0, signed=True).significant_share < 0.08
        True
    """
    _, u = reynolds(attn, valid)
    return coherence_from_moments(coherence_moments(u, scale, omega0, valid=valid), scale, alpha, signed)


@numeric
def coherence_moments(
    attn: Tensor, scale: float, omega0: float = 6.0, *, valid: Tensor | None = None
) -> CoherenceMoments:
    """Moments of a batch, from which `coherence_from_moments` makes coherence and level without keeping the snapshots.

    One field that is subtracted from every snapshot of every batch changes neither the coherence nor the number of
    documents that a pair amounts to. It changes the shape of the distribution behind the level, which is that of
    the fluctuations only for fluctuations: of the fields as they are, the level is a little high where documents are of
    unequal strength.

    Args:
        attn: Snapshots, [B, T, T], B >= 1.
        scale: Wavelet scale in tokens.
        omega0: Centre frequency of the wavelet.
        valid: Bool [B, T], True at real tokens; the other queries count nowhere.

    Returns:
        The moments, sums in float64 where the device has it.

    Raises:
        ValueError: Not [B, T, T], non-finite values, `valid` of another shape, or scale or omega0 not positive.
    """
    x, valid = as_snapshots(attn, valid)
    n, n_tokens, _ = x.shape
    counts = torch.full((n_tokens,), n, device=x.device) if valid is None else valid.sum(0)
    blocks = [_moments_with_query(own, transform) for own, transform in _transforms(x, scale, omega0)]
    return CoherenceMoments(counts, *(torch.cat(parts, -2) for parts in zip(*blocks, strict=True)))


@numeric
def coherence_from_moments(
    moments: CoherenceMoments, scale: float, alpha: float = 0.05, signed: bool = False
) -> Coherence:
    """Coherence of the fluctuations, and the level it reaches by chance, from summed `CoherenceMoments`.

    With X_s = W_i(i) and Y_s = W_i(j) in document s, `gamma = |S| / sqrt(A B)`, S = sum X_s conj Y_s, A = sum |X_s|^2,
    B = sum |Y_s|^2. Chance means that the phases of the products p_s = X_s conj Y_s are independent from document to
    document and uniform, whatever their strengths |p_s|: S is then a random walk with given steps, for which

        E |S|^2 = sum |p_s|^2,    Var |S|^2 = (sum |p_s|^2)^2 (1 - 1/m),    m = (sum |p_s|^2)^2 / sum |p_s|^4.

    The first says how many equally strong documents the pair amounts to, `A B / sum |p_s|^2`. Transforms about a sample
    mean are no longer independent; with what that does to the expectations of S, A, B and the products undone,

        1 / documents = N / (N - 2) sum |p_s|^2 / (A B) - 1 / ((N - 1) (N - 2)),

    which is 1 / (N - 1) for equal Gaussian documents, as in the textbook, and 1 when one document has all the energy.
    Both moments are those of one fixed step and a Gaussian rest, |S|^2 ~ Rice^2 with the share 1 / sqrt(m) of E |S|^2
    in the fixed step; the level is its quantile. For many documents of equal strength it is `coherence_threshold`.

    The phases are uniform if the wavelet keeps to positive frequencies. On a grid of whole tokens it does from scales
    of about 0.4 omega0 on (2.4 tokens at omega0 = 6); at 2 tokens 8 % of independent pairs exceed a level of 5 %.

    Args:
        moments: Moments of all documents.
        scale: Wavelet scale they were made at, in tokens: pairs nearer than 4 scales are not tested.
        alpha: Probability of exceeding the level by chance.
        signed: Test keys after the query too, for bidirectional attention.

    Returns:
        Coherence, level and tested pairs.

    Raises:
        ValueError: scale not positive, or alpha outside (0, 1).
    """
    check_positive(scale, "scale")
    if not 0 < alpha < 1:
        raise ValueError(f"alpha must lie in (0, 1), got {alpha}")
    n = moments.counts.to(moments.energy)[:, None]
    total, cross, _, _ = moments.transform.unbind()
    mean = total / n.clamp(min=1)
    energy = moments.energy[0] - n * mean.abs().square()
    rounding = len(n) * torch.finfo(energy.dtype).eps * moments.energy[0].amax(-1, keepdim=True)
    present = (energy > rounding) & (energy.diagonal()[:, None] > rounding)
    both = torch.where(present, energy.diagonal()[:, None] * energy, torch.nan)
    gamma = (cross - n * mean.diagonal().conj()[:, None] * mean).abs() / both.sqrt()
    chance = n / (n - 2) * _square_about_mean(moments, mean) / both - 1 / ((n - 1) * (n - 2))
    chance = torch.where(n >= 3, chance.clamp(0, 1), torch.nan)
    fixed = (moments.fourth.sqrt() / moments.energy[3]).clamp(max=1)
    level = (chance * rice_quantile(fixed, alpha)).sqrt().clamp(max=1)
    place = torch.arange(len(n), device=n.device)
    lag = place[:, None] - place
    tested = level.isfinite() & ((lag.abs() if signed else lag) >= _APART * scale)
    return Coherence(gamma.clamp(max=1).nan_to_num(0.0), level, 1 / chance, tested)


def coherence_threshold(n: int, alpha: float = 0.05) -> float:
    """Level of |gamma| that n independent documents exceed with probability alpha: `sqrt(1 - alpha^(1 / (n - 1)))`.

    Compare it with `cross_coherence`, which returns |gamma|, not |gamma|^2. It holds for zero-mean Gaussian transforms
    of equal strength in every document; `coherence_from_moments` has levels that need neither. Of the fluctuation about
    a sample mean one degree of freedom is gone, so give n - 1.

    Source: Carter, Knapp & Nuttall (1973), IEEE Transactions on Audio and Electroacoustics 21, 337.

    Args:
        n: Number of independent documents, at least 2.
        alpha: Probability of exceeding the level by chance, between 0 and 1.

    Returns:
        The level, between 0 and 1.

    Raises:
        ValueError: n < 2, or alpha outside (0, 1).

    Example:
        >>> from scalepod.coherence import coherence_threshold
        >>> round(coherence_threshold(150), 3)
        0.141
    """
    if n < 2 or not 0 < alpha < 1:
        raise ValueError(f"need n >= 2 and 0 < alpha < 1, got n = {n} and alpha = {alpha}")
    return math.sqrt(1 - alpha ** (1 / (n - 1)))


def _transforms(x: Tensor, scale: float, omega0: float) -> Iterator[tuple[Tensor, Tensor]]:
    """Of each block of queries, what they do at their own places, [q, N, 1], and at every key, [q, N, T]; complex."""
    check_positive(scale, "scale")
    n_tokens = x.shape[-1]
    wide = wide_dtype(x.device)
    real, imaginary = (
        part[0] for part in wavelet(torch.tensor([scale], device=x.device, dtype=wide), n_tokens, omega0)
    )
    places = torch.cat([real, -imaginary]).mT  # W = x conj(psi)
    for low in range(0, n_tokens, _QUERY_BLOCK):
        high = min(low + _QUERY_BLOCK, n_tokens)
        n_keys = n_tokens if bool(x[:, low:high, high:].any()) else high  # a causal query has no more
        rows = x[:, low:high, :n_keys].transpose(0, 1).to(wide)
        transform = torch.complex(*(rows @ places[:n_keys]).chunk(2, -1))
        query = torch.arange(len(rows), device=x.device)
        yield transform[query, :, low + query, None], transform


def _coherence_with_query(own: Tensor, transform: Tensor) -> Tensor:
    """Coherence of W_i(j) with W_i(i) for the queries i of one block, [q, T]."""
    energy = transform.abs().square().mean(1)
    own_energy = own.abs().square().mean(1)
    cross = (own * transform.conj()).mean(1).abs()
    rounding = torch.finfo(energy.dtype).eps * energy.amax(-1, keepdim=True)
    present = (energy > rounding) & (own_energy > rounding)
    return torch.where(present, (cross / (own_energy * energy).sqrt()).clamp(max=1), 0.0)


def _moments_with_query(own: Tensor, transform: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The sums of `CoherenceMoments` for the queries of one block, [4, q, T], [4, q, T] and [q, T]."""
    strength = own.abs().square()
    energy = transform.abs().square()
    one = torch.ones_like(strength)
    of_transform = torch.cat([one.to(own), own.conj(), own, strength.to(own)], -1).mT @ transform
    of_energy = torch.cat([one, own.real, own.imag, strength], -1).mT @ energy
    fourth = strength.square().mT @ energy.square()
    return of_transform.transpose(0, 1), of_energy.transpose(0, 1), fourth[:, 0]


def _square_about_mean(moments: CoherenceMoments, mean: Tensor) -> Tensor:
    """`sum_s |X_s - x|^2 |Y_s - y|^2` with x, y the means, [T, T], multiplied out."""
    total, cross, product, strong = moments.transform.unbind()
    energy, real, imaginary, square = moments.energy.unbind()
    own = mean.diagonal()[:, None]
    of_own = square - 2 * (own.real * real + own.imag * imaginary) + own.abs().square() * energy  # of |X - x|^2 |Y|^2
    along = strong - own.conj() * product - own * cross + own.abs().square() * total  # of |X - x|^2 Y
    own_energy = energy.diagonal()[:, None] - own.abs().square() * moments.counts[:, None]  # of |X - x|^2
    return of_own - 2 * (mean.conj() * along).real + mean.abs().square() * own_energy
