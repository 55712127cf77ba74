"""Attention of ``scaled_dot_product_attention``: recomputed exactly from the queries and keys it was given."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .maps import HeadMaps, batch_first, observable, working_dtype
from .record import AttentionRecord

SDPA: frozenset[Callable[..., Any]] = frozenset(
    {
        F.scaled_dot_product_attention,
        torch._C._nn.scaled_dot_product_attention,
        torch.ops.aten.scaled_dot_product_attention,
        torch.ops.aten.scaled_dot_product_attention.default,
    }
)
"""Every spelling of the operation."""


def observe_sdpa(record: AttentionRecord, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Record the probabilities behind a call of ``scaled_dot_product_attention(*args, **kwargs)``."""
    record.recompute("sdpa", lambda: sdpa_maps(record.batch_size, *args, **kwargs))


def sdpa_maps(
    batch_size: int | None,
    query: Tensor,
    key: Tensor,
    value: Tensor | None,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> HeadMaps:
    """Softmax(q k^T scale + mask) as a recipe; the arguments are those of ``scaled_dot_product_attention``.

    The softmax is taken in float32 (float64 for float64) of the queries and keys that the kernel really received:
    under autocast, those cast down. Dropout is left out. A query that may look at nothing has a row of zeros.

    Args:
        batch_size: number of samples B; tells [B * H, T, D] from [B, T, D].
        query: [..., Tq, D].
        key: [..., Tk, D], with fewer heads than the query under ``enable_gqa``.
        value: [..., Tk, Dv]; only its batch size matters.
        attn_mask: boolean (True = may be looked at) or a bias, broadcast to [..., Tq, Tk]; also a ``CausalBias``.
        dropout_p: not used.
        is_causal: query i sees the keys 0..i.
        scale: factor of the scores, 1 / sqrt(D) by default.
        enable_gqa: repeat the heads of the key to match the query's.
    """
    query, key = (as_the_kernel_sees(observable(x)) for x in (query, key))
    scale = 1.0 / math.sqrt(query.size(-1)) if scale is None else scale
    if attn_mask is not None and hasattr(attn_mask, "_materialize"):  # torch.nn.attention.bias.CausalBias
        attn_mask = attn_mask._materialize(query.device)
    if value is not None and 2 < query.dim() == value.dim():  # the samples may share a map and have their own values
        query = query.expand(max(query.size(0), value.size(0)), *query.shape[1:])
    query, key, attn_mask = _aligned(query, key, attn_mask, batch_size, enable_gqa)
    batch, heads, n_queries, n_keys = *query.shape[:-1], key.size(-2)
    dtype = working_dtype(query)
    future = None
    if is_causal:
        future = torch.ones(n_queries, n_keys, dtype=torch.bool, device=query.device).triu(1)

    def compute(samples: slice, head: int) -> Tensor:
        scores = query[samples, head].to(dtype) @ key[samples, head].to(dtype).transpose(-2, -1)
        scores *= scale
        if future is not None:
            scores.masked_fill_(future, -math.inf)
        if attn_mask is not None:
            mask = attn_mask[samples, head]
            scores = scores.masked_fill_(~mask, -math.inf) if mask.dtype == torch.bool else scores.add_(mask)
        return torch.softmax(scores, -1) if attn_mask is None else safe_softmax(scores)

    return HeadMaps(batch, heads, n_queries, n_keys, dtype, query.device, compute)


def safe_softmax(scores: Tensor) -> Tensor:
    """Softmax over the last axis; a row of nothing but -inf gives zeros, as in the fused kernels."""
    dead = torch.isneginf(scores.amax(-1, keepdim=True))
    return torch.softmax(scores, -1).masked_fill_(dead, 0.0)


def as_the_kernel_sees(tensor: Tensor) -> Tensor:
    """The tensor in the type that autocast hands to an attention kernel."""
    device = tensor.device.type
    if torch.is_autocast_enabled(device) and tensor.dtype != torch.float64:
        return tensor.to(torch.get_autocast_dtype(device))
    return tensor


def _aligned(
    query: Tensor, key: Tensor, mask: Tensor | None, batch_size: int | None, enable_gqa: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Query, key and mask as [B, H, T, D], [B, H, T, D] and [B, H, Tq, Tk], by views where possible."""
    if query.dim() > 2 and enable_gqa and query.size(-3) != key.size(-3):
        key = key.repeat_interleave(query.size(-3) // key.size(-3), -3)
    lead = torch.Size(np.broadcast_shapes(query.shape[:-2], key.shape[:-2]))
    query, key = query.expand(*lead, -1, -1), key.expand(*lead, -1, -1)
    if mask is not None:
        mask = mask.expand(*lead, query.size(-2), key.size(-2))

    def arrange(tensor: Tensor) -> Tensor:
        if tensor.dim() > 4:  # [B, W, H, T, D], attention within W parts of each sample: every part is a sample
            return tensor.flatten(0, -4)
        return batch_first(tensor, batch_size)

    return arrange(query), arrange(key), None if mask is None else arrange(mask)
