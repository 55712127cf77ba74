"""What tells the model where a token stands: four encodings, three added to the embedding and one turning q and k.

Attention by itself does not know the order of its keys. Positions count from 0 at the first token the model is given;
a sequence cropped to its last `block_size` tokens is counted anew.
"""

import math

import torch
from torch import Tensor, nn

ADMISSIBILITY = 5.0
"""Least product of frequency and width of a Morlet wavelet: from about here on its mean is negligible (exp(-12.5))."""

BASE = 10_000.0
"""Ratio of the longest wavelength to the shortest, in the sinusoidal and the rotary encoding, as published."""


def geometric_frequencies(n_dimensions: int) -> Tensor:
    """Angular frequencies `BASE^(-2 k / n)` in radians a token, one for each pair of n dimensions: [n / 2], float64."""
    return BASE ** (-torch.arange(0, n_dimensions, 2, dtype=torch.float64) / n_dimensions)


def _at_positions(rates: Tensor, n_tokens: int) -> Tensor:
    """Each rate times the positions 0..n_tokens - 1, [T, n]."""
    return torch.arange(n_tokens, device=rates.device, dtype=rates.dtype)[:, None] * rates


class LearnedPositions(nn.Module):
    """Add one learned vector per position to the token embeddings: `y_i = x_i + p_i`.

    Args:
        block_size: Longest sequence, in tokens: rows of the table.
        n_embd: Width of the embeddings.
    """

    def __init__(self, block_size: int, n_embd: int) -> None:
        super().__init__()
        self.table = nn.Embedding(block_size, n_embd)

    def forward(self, x: Tensor) -> Tensor:
        """Return the embeddings `x` [B, T, C] with their positions added, [B, T, C]; T is at most `block_size`."""
        positions: Tensor = self.table(torch.arange(x.shape[1], device=x.device))  # (T, C)
        return x + positions


class SinusoidalPositions(nn.Module):
    """Add fixed sines and cosines of geometrically spaced wavelengths: `y_i = sqrt(C) x_i + p_i`.

        p_i[2 k] = sin(w_k i),    p_i[2 k + 1] = cos(w_k i),    w_k = 10000^(-2 k / C)

    The embedding is multiplied by sqrt(C) as published (section 3.4): it starts small, and beside sines of amplitude 1
    the tokens would hardly be seen.

    Source: Vaswani et al. (2017), section 3.5.

    Args:
        block_size: Longest sequence, in tokens: rows of the table.
        n_embd: Width C of the embeddings; even.
    """

    table: Tensor

    def __init__(self, block_size: int, n_embd: int) -> None:
        super().__init__()
        phases = _at_positions(geometric_frequencies(n_embd), block_size)
        table = torch.stack([phases.sin(), phases.cos()], -1).flatten(1)  # (T, C)
        # A table, not frequencies: in a half-precision module these would be rounded before they meet the positions.
        self.register_buffer("table", table.to(torch.get_default_dtype()), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the embeddings `x` [B, T, C] with their positions added, [B, T, C]; T is at most `block_size`."""
        return math.sqrt(x.shape[2]) * x + self.table[: x.shape[1]]


class MorletPositions(nn.Module):
    """Add learned Morlet wavelets (MoPE): waves whose frequency and reach are learned, one for each pair of dimensions.

        p_i[2 k] = exp(-i^2 / (2 s_k^2)) cos(w_k i),    p_i[2 k + 1] = exp(-i^2 / (2 s_k^2)) sin(w_k i)

    with `y_i = x_i + p_i`. The embedding is not scaled, unlike that of `SinusoidalPositions`: most positions lie beyond
    the reach of the wavelets, and there it stands alone.

    The wavelets are admissible, `w_k s_k >= 5`, whatever the optimiser does: what is learned is log w and a number m of
    which `w s = 5 exp(|m|)`. At the start, m = 0 and w is spaced evenly in the logarithm from 1 to 0.99 pi radians a
    token, so s = 5 / w lies between 1.6 and 5 tokens: a new model can tell only the first fifteen or so positions
    apart, and its reach grows with s.

    Source: arXiv 2605.26355.

    Args:
        n_embd: Width C of the embeddings; even.
    """

    def __init__(self, n_embd: int) -> None:
        super().__init__()
        self.log_frequency = nn.Parameter(torch.linspace(0.0, math.log(0.99 * math.pi), n_embd // 2))
        self.margin = nn.Parameter(torch.zeros(n_embd // 2))

    def wavelets(self) -> tuple[Tensor, Tensor]:
        """Frequencies w in radians a token and widths s in tokens, each [C / 2], in float32 or better."""
        dtype = torch.promote_types(self.margin.dtype, torch.float32)
        frequency, margin = self.log_frequency.to(dtype).exp(), self.margin.to(dtype)
        # |m|, but at 0 with the slope 1 where abs has 0: every wavelet starts there and must be able to leave.
        product = ADMISSIBILITY * torch.where(margin < 0, -margin, margin).exp()
        return frequency, product / frequency

    def forward(self, x: Tensor) -> Tensor:
        """Return the embeddings `x` [B, T, C] with their positions added, [B, T, C]."""
        frequency, width = self.wavelets()
        phases = _at_positions(frequency, x.shape[1])  # (T, C / 2)
        envelope = (-0.5 * _at_positions(1 / width, x.shape[1]).square()).exp()
        positions = (envelope[..., None] * torch.stack([phases.cos(), phases.sin()], -1)).flatten(1)  # (T, C)
        return x + positions.to(x.dtype)


class RotaryPositions(nn.Module):
    """Turn queries and keys by angles that grow with the position (RoPE), so that q . k depends on i - j only.

    Dimensions 2 k and 2 k + 1 of a head are the coordinates of a plane, turned at position i by the angle `w_k i`,
    w_k = 10000^(-2 k / d) with d dimensions a head.

    Source: Su et al. (2021), arXiv 2104.09864, equation 34.

    Args:
        block_size: Longest sequence, in tokens: rows of the tables.
        head_size: Dimensions d of a head; even.
    """

    cosine: Tensor
    sine: Tensor

    def __init__(self, block_size: int, head_size: int) -> None:
        super().__init__()
        phases = _at_positions(geometric_frequencies(head_size), block_size)  # (T, d / 2)
        for name, table in (("cosine", phases.cos()), ("sine", phases.sin())):
            self.register_buffer(name, table.to(torch.get_default_dtype()), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the queries or keys `x` [..., T, d] turned, in their dtype; T is at most `block_size`."""
        n_tokens = x.shape[-2]
        cosine, sine = self.cosine[:n_tokens], self.sine[:n_tokens]
        first, second = x[..., 0::2], x[..., 1::2]  # each (..., T, d / 2)
        turned = torch.stack([first * cosine - second * sine, first * sine + second * cosine], -1)
        return turned.flatten(-2).to(x.dtype)  # inside autocast the tables are wider than x
