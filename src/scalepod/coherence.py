"""Wavelet coherence between what a query does at its own place and what it does at a key."""

import math

import torch
from torch import Tensor

from ._checks import as_snapshots, check_positive, numeric, wide_dtype
from .scalogram import wavelet

_QUERY_BLOCK = 16


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
    check_positive(scale, "scale")
    n_tokens = x.shape[-1]
    wide = wide_dtype(x.device)
    real, imaginary = (
        part[0] for part in wavelet(torch.tensor([scale], device=x.device, dtype=wide), n_tokens, omega0)
    )
    places = torch.cat([real, -imaginary]).mT  # W = x conj(psi)
    blocks = []
    for low in range(0, n_tokens, _QUERY_BLOCK):
        rows = x[:, low : low + _QUERY_BLOCK].to(wide)
        transform = torch.complex(*(rows @ places).chunk(2, -1))  # [N, q, T]
        blocks.append(_coherence_with_query(transform, low))
    return torch.cat(blocks).to(x.dtype)


def _coherence_with_query(transform: Tensor, first_query: int) -> Tensor:
    """Coherence of W_i(j) with W_i(i) for the queries i of one block, [q, T]."""
    query = torch.arange(transform.shape[1], device=transform.device)
    own = transform[:, query, first_query + query, None]
    energy = transform.abs().square().mean(0)
    own_energy = own.abs().square().mean(0)
    cross = (own * transform.conj()).mean(0).abs()
    rounding = torch.finfo(energy.dtype).eps * energy.amax(-1, keepdim=True)
    present = (energy > rounding) & (own_energy > rounding)
    return torch.where(present, (cross / (own_energy * energy).sqrt()).clamp(max=1), 0.0)


def coherence_threshold(n: int, alpha: float = 0.05) -> float:
    """Level of |gamma| that n independent documents exceed with probability alpha: `sqrt(1 - alpha^(1 / (n - 1)))`.

    Compare it with `cross_coherence`, which returns |gamma|, not |gamma|^2. It holds for zero-mean transforms; of the
    fluctuation about a sample mean one degree of freedom is gone, so give n - 1.

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
