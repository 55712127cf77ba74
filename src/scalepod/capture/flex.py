"""Attention of FlexAttention: recomputed from its queries, keys, score_mod and block mask."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
from torch._higher_order_ops.flex_attention import flex_attention

from .maps import HeadMaps, observable, working_dtype
from .record import AttentionRecord
from .sdpa import as_the_kernel_sees, safe_softmax

FLEX = flex_attention
"""The operation that ``torch.nn.attention.flex_attention`` ends in, compiled or not."""


def observe_flex(record: AttentionRecord, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Record the probabilities behind a call of the operation."""
    record.recompute("flex", lambda: _flex_maps(*args, **kwargs))


def _flex_maps(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Callable[..., Tensor],
    block_mask: tuple[Any, ...],
    scale: float,
    kernel_options: dict[str, Any],
    score_buffers: tuple[Tensor, ...] = (),
    mask_buffers: tuple[Tensor, ...] = (),
) -> HeadMaps:
    """Softmax of score_mod(q k^T scale) over the keys where mask_mod holds; q [B, H, Tq, D], k [B or 1, G, Tk, D]."""
    query, key = (as_the_kernel_sees(observable(x)) for x in (query, key))
    dtype, device = working_dtype(query), query.device
    batch, heads, n_queries, n_keys = *query.shape[:-1], key.size(-2)
    key = key.expand(batch, -1, -1, -1)
    repeats = heads // key.size(1)
    modify = _over_all_positions(score_mod, with_score=True, n_buffers=len(score_buffers))
    allowed = _over_all_positions(block_mask[-1], with_score=False, n_buffers=len(mask_buffers))

    def compute(samples: slice, head: int) -> Tensor:
        scores = query[samples, head].to(dtype) @ key[samples, head // repeats].to(dtype).mT * scale
        positions = (
            torch.arange(batch, device=device)[samples],
            torch.tensor(head, device=device),
            torch.arange(n_queries, device=device),
            torch.arange(n_keys, device=device),
        )
        with TransformGetItemToIndex():  # lets the functions index tensors by positions, as they are allowed to
            scores = modify(scores, *positions, *score_buffers).to(dtype)
            mask = allowed(*positions, *mask_buffers)
        return safe_softmax(scores.masked_fill(~mask, -math.inf))

    return HeadMaps(batch, heads, n_queries, n_keys, dtype, device, compute)


def _over_all_positions(function: Callable[..., Tensor], *, with_score: bool, n_buffers: int) -> Callable[..., Tensor]:
    """A function of (score,) batch, head, query, key as one of (scores [b, Tq, Tk],) b, head, queries, keys."""
    for mapped in ((None, None, None, 0), (None, None, 0, None), (0, None, None, None)):
        function = torch.vmap(function, in_dims=(*(0,) * with_score, *mapped, *(None,) * n_buffers))
    return function
