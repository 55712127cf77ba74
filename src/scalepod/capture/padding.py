"""Which tokens of a batch are real, as the batch itself says it."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

KEEP = ("attention_mask",)
"""Names of masks that are one, or True, for real tokens (the Hugging Face convention)."""

PAD = ("key_padding_mask", "src_key_padding_mask")
"""Names of masks that are True for padding (the convention of ``torch.nn``)."""


def valid_tokens(batch: Any, n_tokens: int) -> Tensor | None:
    """Find the padding mask of a batch by its customary name.

    Args:
        batch: a mapping (a ``BatchEncoding`` is one), dataclass or named tuple of tensors; anything else says nothing.
        n_tokens: tokens T of the attention. A mask of another length does not speak of them.

    Returns:
        [B, T], True for real tokens, or None when the batch does not say.

    Example:
        >>> valid_tokens({"input_ids": torch.zeros(1, 3), "attention_mask": torch.tensor([[1, 1, 0]])}, 3)
        tensor([[ True,  True, False]])
    """
    entries = _entries(batch)
    for name in (*KEEP, *PAD):
        mask = entries.get(name)
        if not isinstance(mask, Tensor) or mask.dim() != 2 or mask.size(1) != n_tokens:
            continue
        if name in KEEP:
            return mask != 0
        # torch.nn also takes a bias of 0 and -inf for a padding mask
        return torch.isneginf(mask).logical_not() if mask.is_floating_point() else mask == 0
    return None


def _entries(batch: Any) -> Mapping[str, Any]:
    if isinstance(batch, Mapping):
        return batch
    if is_dataclass(batch) and not isinstance(batch, type):
        return {field.name: getattr(batch, field.name) for field in fields(batch)}
    if isinstance(batch, tuple) and hasattr(batch, "_asdict"):
        found: dict[str, Any] = batch._asdict()
        return found
    return {}
