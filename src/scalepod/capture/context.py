"""The door to the capture: a context around one forward pass."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from .declared import LISTENERS
from .hugging_face import transparent_attention
from .mode import AttentionMode
from .opaque import Adapter
from .record import AttentionRecord, Heads, OnHeads


@contextmanager
def capture_attention(
    model: nn.Module,
    *,
    batch_size: int | None = None,
    reduce: Callable[[Tensor], Tensor] | None = None,
    include: str | Sequence[str] | None = None,
    exclude: str | Sequence[str] = (),
    adapters: Mapping[str, Adapter] | None = None,
    heads: Heads = "mean",
    on_heads: OnHeads | None = None,
    head_samples: Sequence[int] | None = None,
    byte_budget: int = 64 * 2**20,
    batch: Any = None,
) -> Iterator[AttentionRecord]:
    """Capture the attention of every layer of a model during one forward pass.

    The model is not touched: no hook, no patched function, and every operation gives the result it would have given.
    Compiled parts run as plain Python inside the context and stay compiled outside of it. Attention is seen in the
    thread that entered the context.

    Run the forward pass under ``torch.no_grad()`` and in eval mode, or use :func:`scalepod.capture.held_out`, which
    also puts back whatever the pass changes.

    Args:
        model: any module. Layers are named by their path in it, the model itself by its class name.
        batch_size: number of samples B of the batch; needed to tell merged [B * H, T, T] probabilities apart.
        reduce: applied to each map [B, T, T] as soon as it exists, for instance ``lambda maps: maps.mean(0)``.
        include: glob patterns of the layer names to keep; None keeps all.
        exclude: glob patterns of the layer names to leave out.
        adapters: for kernels that cannot be looked into, by operator name, like "flash_attn::_flash_attn_forward":
            a function of its arguments that gives the probabilities [B, H, T, T], or a mapping with "query" and "key"
            [B, H, T, D] and whatever else of the arguments of ``scaled_dot_product_attention`` applies.
        heads: "mean" averages over heads, "each" keeps every head as an entry of its own, "name/h0", "name/h1", ...
        on_heads: while the heads of a layer are averaged, called with the maps by head [b, H, T, T] of some of the
            samples and the list of those samples; :attr:`AttentionRecord.heads` keeps what it returns, and nothing else
            stays of them. Samples that do not fit into ``byte_budget`` together come in several calls. An error in it
            leaves a note. Layers with one head, or with another number of maps than the batch has samples, are left
            out.
        head_samples: the samples whose heads are handed to ``on_heads``, as indices into the batch; None means all.
        byte_budget: scratch memory, in bytes, that recomputing a map may take on top of the map itself. At least one
            head of one sample is computed at a time. ``on_heads`` takes as much again for every three heads.
        batch: the batch that will run, if it holds a padding mask (:func:`scalepod.capture.valid_tokens`). The maps
            are the same with and without it: it only says that padding is no surprise, so that there is no note of it.

    Yields:
        The record. After the forward pass, :meth:`AttentionRecord.result` gives the maps.

    Raises:
        ValueError: ``heads`` is neither "mean" nor "each", or ``on_heads`` is given where heads are not averaged.

    Example:
        >>> import torch
        >>> from scalepod.capture import capture_attention
        >>> layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
        >>> with torch.no_grad(), capture_attention(layer, batch_size=3) as record:
        ...     out = layer(torch.zeros(3, 5, 8))
        >>> {name: tuple(maps.shape) for name, maps in record.result().items()}
        {'self_attn': (3, 5, 5)}
    """
    if heads not in ("mean", "each"):
        raise ValueError(f'heads must be "mean" or "each", got {heads!r}')
    if on_heads is not None and heads != "mean":
        raise ValueError('on_heads looks at the heads while they are averaged: it needs heads="mean", got "each"')
    record = AttentionRecord(
        model,
        batch_size=batch_size,
        reduce=reduce,
        include=include,
        exclude=exclude,
        heads=heads,
        on_heads=on_heads,
        head_samples=head_samples,
        byte_budget=byte_budget,
        batch=batch,
    )
    token = LISTENERS.set((*LISTENERS.get(), record))
    try:
        with (
            transparent_attention(model, record.note),
            torch.compiler.set_stance("force_eager"),
            AttentionMode(record, adapters or {}),
        ):
            yield record
        record.close()
    finally:
        LISTENERS.reset(token)
