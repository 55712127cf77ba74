"""Whether the heads of a layer do the same: Gram matrix of their fluctuations, and how many heads it amounts to."""

from typing import NamedTuple

import torch
from torch import Tensor

from ._checks import as_float, as_wide, check_burn_in, check_finite, check_square, numeric, wide_dtype
from .spectrum import effective_rank

_QUERY_BLOCK = 32  # queries of one matrix product, and
_DOCUMENT_BLOCK = 4  # documents of one: together what a processor keeps in its second cache


class HeadMoments(NamedTuple):
    """Raw moments of the heads of a layer. Field by field they add over documents, so they reduce over ranks."""

    n: int
    """Number of documents N."""
    counts: Tensor
    """Documents in which each query took part, int64 [T]."""
    total: Tensor
    """Sum of each head's maps over documents, [H, T, T]."""
    grams: Tensor
    """Products of two heads at each distance, sum_s sum_{|i - j| = tau} A[s, h, i, j] A[s, h', i, j], [T, H, H]."""


class HeadRedundancy(NamedTuple):
    """How alike the H heads of a layer are, in M windows; NaN where there is no energy to compare."""

    energy: Tensor
    """Mean energy of each head's fluctuation, [M, H]."""
    similarity: Tensor
    """Cosine of the fluctuations of two heads, [M, H, H], in [-1, 1]; NaN in the rows of a head without energy."""
    eigenvalues: Tensor
    """Energy along each principal direction of the heads' fluctuations, descending, [M, H]; their sum is the energy."""
    distinct: Tensor
    """Heads that it amounts to, `exp(-sum p log p)` with p the eigenvalues' shares, [M]: 1 for heads that differ by a
    factor, H for heads of equal energy that have nothing in common."""
    mean_share: Tensor
    """Share of the heads' energy that their mean keeps, `1^T G 1 / (H tr G)`, [M]. It bounds what can be seen in
    anything that is computed from the mean over heads."""

    def needed(self, epsilon: float) -> Tensor:
        """Effective rank of the heads: principal directions that leave at most the share epsilon of their energy.

        Args:
            epsilon: Residual energy, 0 <= epsilon < 1.

        Returns:
            Int64 tensor [M]; 0 where there is no energy.

        Raises:
            ValueError: epsilon outside [0, 1).
        """
        return effective_rank(self.eigenvalues, epsilon)


@numeric
def head_moments(attn: Tensor, valid: Tensor | None = None, burn_in: int = 0) -> HeadMoments:
    """Moments of a batch of maps by head, from which `head_gram` makes the Gram matrix of the fluctuations.

    Args:
        attn: Attention of each head, [B, H, T, T], B >= 1; both directions count, by their distance.
        valid: Bool [B, T], True at real tokens; the other queries count nowhere.
        burn_in: Leading queries to leave out; they count nowhere either.

    Returns:
        The moments, products and sums in float64 where the device has it.

    Raises:
        ValueError: Not [B, H, T, T], non-finite values, `valid` of another shape, or burn_in that leaves no query.
    """
    x, taking_part = _as_heads(attn, valid, burn_in)
    total = x.new_zeros(x.shape[1:], dtype=wide_dtype(x.device))
    for document in x:
        total += document
    return HeadMoments(len(x), taking_part.sum(0), total, _distance_grams(x, total))


@numeric
def head_gram(moments: HeadMoments, windows: Tensor | None = None) -> Tensor:
    """Gram matrix of the heads' fluctuations in each lag window, each head about its own mean over documents.

    `G_m[h, h'] = mean_s sum_ij g_m(|i - j|)^2 u[s, h, i, j] u[s, h', i, j]`: the raw products less those of the mean
    fields. A head whose energy in a window is below the rounding of the raw products gets exact zeros there.

    Args:
        moments: Moments of at least 2 documents.
        windows: Windows over |tau|, [M, T]; None is one window of ones.

    Returns:
        [M, H, H]; the diagonal is the mean energy of each head.

    Raises:
        ValueError: Fewer than 2 documents, shapes that do not belong together, or windows not [M, T] or not finite.
    """
    n, n_tokens = _checked(moments)
    squared = _squared_windows(windows, n_tokens, moments.grams)
    weighted = moments.total / moments.counts.clamp(min=1).to(moments.total.dtype).sqrt()[:, None]
    raw = _in_windows(squared, moments.grams) / n
    gram = raw - _in_windows(squared, _distance_grams(weighted[None], weighted)) / n
    rounding = max(n, n_tokens) * torch.finfo(gram.dtype).eps * raw.diagonal(dim1=-2, dim2=-1)
    varies = gram.diagonal(dim1=-2, dim2=-1) > rounding
    return gram * varies[..., None] * varies[..., None, :]


@numeric
def head_redundancy(gram: Tensor) -> HeadRedundancy:
    """How alike the heads are, from the Gram matrix of their fluctuations.

    Eigenvalues below `H eps lambda_1` are exact zeros. The number of distinct heads is the effective rank of Roy &
    Vetterli (2007), taken of the energies.

    Args:
        gram: Gram matrices, [M, H, H] (see `head_gram`).

    Returns:
        The comparison, float64 where the device has it.

    Raises:
        ValueError: Not [M, H, H], not symmetric, or non-finite values.

    Example:
        >>> import torch
        >>> from scalepod.heads import head_redundancy
        >>> alike = head_redundancy(torch.tensor([[[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 2.0]]]))
        >>> round(float(alike.distinct), 3), int(alike.needed(0.1))
        (2.0, 2)
    """
    matrices = _as_gram(gram)
    n_heads = matrices.shape[-1]
    energy = matrices.diagonal(dim1=-2, dim2=-1)
    total = energy.sum(-1)
    norm = energy.sqrt()
    similarity = (matrices / (norm[..., None] * norm[..., None, :])).clamp(-1, 1)
    values = torch.linalg.eigvalsh(matrices).flip(-1)
    floor = n_heads * torch.finfo(values.dtype).eps * values[..., :1]
    values = torch.where(values > floor, values, 0.0)
    share = values / values.sum(-1, keepdim=True)
    distinct = torch.special.entr(share).sum(-1).exp()
    return HeadRedundancy(energy, similarity, values, distinct, matrices.sum((-2, -1)) / (n_heads * total))


def _as_heads(attn: Tensor, valid: Tensor | None, burn_in: int) -> tuple[Tensor, Tensor]:
    """Check maps by head [B, H, T, T]; also which queries take part, bool [B, T]: the rows of the others become 0."""
    x = as_float(attn, "attn")
    if x.ndim != 4 or 0 in x.shape:
        raise ValueError(f"attn must be [B, H, T, T], document, head, query and key, got shape {tuple(x.shape)}")
    check_square(x, "attn")
    queries = torch.ones(len(x), x.shape[-1], dtype=torch.bool, device=x.device)
    check_burn_in(burn_in, x.shape[-1])
    if valid is not None:
        if valid.dtype != torch.bool or valid.shape != queries.shape:
            raise ValueError(
                f"valid must be a bool tensor of shape {tuple(queries.shape)}, document and query, "
                f"got {valid.dtype} of shape {tuple(valid.shape)}"
            )
        queries &= valid
    queries[:, :burn_in] = False
    if not bool(queries.all()):
        x = torch.where(queries[:, None, :, None], x, 0.0)
    check_finite(x, "attn")
    return x, queries


def _distance_grams(x: Tensor, total: Tensor) -> Tensor:
    """`sum_s sum_{|i - j| = tau} x[s, h, i, j] x[s, h', i, j]`, [T, H, H], in the dtype of the sum over s."""
    n_heads, n_tokens = total.shape[:2]
    grams = total.new_zeros(n_tokens, n_heads, n_heads)
    own = x.diagonal(dim1=-2, dim2=-1).transpose(0, 1).flatten(1).to(grams.dtype)
    grams[0] = own @ own.mT
    causal = bool(x.min() >= 0) and not bool(total.triu(1).any())  # a sum of 0 over values >= 0: all are 0
    for documents in torch.split(x, _DOCUMENT_BLOCK):
        if causal:
            _add_past(documents, grams)
        else:
            _add_past(documents.tril(), grams)
            _add_past(documents.mT.tril(), grams)
    return grams


def _add_past(x: Tensor, grams: Tensor) -> None:
    """Add the products at the distances 1..T-1 of lower triangular maps [B, H, T, T].

    Read in rows of T + 1, memory holds lag tau of query i, i >= tau, at row i - 1 and column T + 1 - tau, where every
    diagonal is a column. The diagonals are copied out a block of queries at a time, while their memory is at hand.
    """
    n, n_heads, n_tokens, _ = x.shape
    skew = x.flatten(2)[..., :-1].view(n, n_heads, n_tokens - 1, n_tokens + 1)
    for low in range(0, n_tokens - 1, _QUERY_BLOCK):
        high = min(low + _QUERY_BLOCK, n_tokens - 1)
        block = skew[:, :, low:high, n_tokens + 1 - high :]  # lags high..1 of the queries low + 1..high
        rows = torch.empty(high, n_heads, n, high - low, dtype=grams.dtype, device=x.device)
        for s, document in enumerate(block):
            rows[:, :, s] = document.permute(2, 0, 1)
        flat = rows.flatten(2)
        grams[1 : high + 1] += (flat @ flat.mT).flip(0)


def _checked(moments: HeadMoments) -> tuple[int, int]:
    """Documents N and tokens T of moments that fit together."""
    n, shape = int(moments.n), moments.total.shape
    if n < 2:
        raise ValueError(f"the moments hold {n} documents; a fluctuation needs at least 2")
    n_heads, n_tokens = (shape[0], shape[-1]) if len(shape) == 3 else (0, 0)
    expected = ((n_tokens,), (n_heads, n_tokens, n_tokens), (n_tokens, n_heads, n_heads))
    found = tuple(tuple(getattr(moments, name).shape) for name in ("counts", "total", "grams"))
    if found != expected:
        raise ValueError(
            f"moments must have shapes [T], [H, T, T] and [T, H, H], got counts {found[0]}, total {found[1]}, "
            f"grams {found[2]}"
        )
    return n, n_tokens


def _squared_windows(windows: Tensor | None, n_tokens: int, like: Tensor) -> Tensor:
    """g_m(|tau|)^2, [M, T]."""
    if windows is None:
        return like.new_ones(1, n_tokens)
    window = as_wide(windows, "windows").to(like)
    if window.ndim != 2 or window.shape[1] != n_tokens:
        raise ValueError(f"windows must have shape [M, {n_tokens}], one value a lag, got {tuple(window.shape)}")
    return window.square()


def _in_windows(squared: Tensor, grams: Tensor) -> Tensor:
    """`sum_tau g_m(tau)^2 grams[tau]`, [M, H, H]."""
    return (squared @ grams.flatten(1)).view(-1, *grams.shape[1:])


def _as_gram(gram: Tensor) -> Tensor:
    wide = as_wide(gram, "gram")
    if wide.ndim != 3:
        raise ValueError(f"gram must be [M, H, H], window, head and head, got shape {tuple(wide.shape)}")
    check_square(wide, "gram")
    if not torch.allclose(wide, wide.mT, rtol=1e-6, atol=1e-6 * float(wide.abs().max()) if wide.numel() else 0.0):
        raise ValueError(f"gram of shape {tuple(wide.shape)} is not symmetric, so it is not a Gram matrix")
    return wide
