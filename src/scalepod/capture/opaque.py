"""Attention kernels that take queries and keys and give no probabilities: named, or read by an adapter."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor
from torch._ops import OpOverload, OpOverloadPacket

from .maps import maps_of_tensor
from .record import AttentionRecord
from .sdpa import sdpa_maps

Adapter = Callable[..., Tensor | Mapping[str, Any]]
"""Takes the arguments of a kernel. Gives the probabilities [B, H, T, T], or a mapping with "query" and "key"
[B, H, T, D], and if need be "attn_mask", "is_causal", "scale", "enable_gqa" as in ``scaled_dot_product_attention``."""

_ATTENTION = re.compile(r"attn|attention|flash|fmha", re.IGNORECASE)


def kernel_name(func: Callable[..., Any]) -> str | None:
    """Name, like "flash_attn::_flash_attn_forward", of a registered operator that computes attention by its name."""
    if isinstance(func, OpOverload):
        name = func._schema.name
    elif isinstance(func, OpOverloadPacket):
        name = func._qualified_op_name
    else:
        return None
    return name if _ATTENTION.search(name) else None


def observe_kernel(
    record: AttentionRecord, name: str, adapter: Adapter | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Record the probabilities behind a call of a kernel if there is an adapter for it, else its name."""
    if adapter is None:
        record.met_opaque(name)
        return

    def recipe() -> Any:
        given = adapter(*args, **kwargs)
        if isinstance(given, Tensor):
            return maps_of_tensor(given, record.batch_size)
        return sdpa_maps(record.batch_size, **({"value": None} | dict(given)))

    record.recompute("adapter", recipe)
