"""Attention maps of documents of different lengths, made ready to be added up."""

import torch
import torch.nn.functional as F
from torch import Tensor


def checked(attn: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
    """The maps with padded queries and keys zeroed (models leave anything there, NaN included), and their tokens."""
    if attn.ndim != 3 or attn.size(-1) != attn.size(-2):
        hint = "; average over heads first, attn.mean(1)" if attn.ndim == 4 else ""
        raise ValueError(f"attn must be [B, T, T], query by key: got shape {tuple(attn.shape)}{hint}")
    if valid is None:
        return attn, torch.ones(attn.shape[:2], dtype=torch.bool, device=attn.device)
    if valid.shape != attn.shape[:2]:
        raise ValueError(f"valid must be [B, T] = {tuple(attn.shape[:2])} like attn: got shape {tuple(valid.shape)}")
    valid = valid.to(attn.device, torch.bool)
    return attn.masked_fill(~(valid[:, :, None] & valid[:, None, :]), 0.0), valid


def align(attn: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """Roll documents that are padded on the left so that each starts at its first token."""
    first = valid.to(torch.uint8).argmax(-1, keepdim=True)  # [B, 1]
    if not first.any():
        return attn, valid
    order = (torch.arange(attn.size(-1), device=attn.device) + first) % attn.size(-1)  # [B, T]
    rows = attn.gather(1, order[:, :, None].expand_as(attn))
    return rows.gather(2, order[:, None, :].expand_as(attn)), valid.gather(1, order)


def aligned_heads(attn: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
    """The same for maps by head [B, H, T, T]; documents that hold NaN or infinity are left out."""
    by_head = attn.flatten(0, 1)
    valid = None if valid is None else valid.repeat_interleave(attn.size(1), 0)
    maps, tokens = (one.view(*attn.shape[:2], *one.shape[1:]) for one in align(*checked(by_head, valid)))
    finite = torch.isfinite(maps.flatten(1)).all(1)
    return maps[finite], tokens[finite, 0]


def padding(valid: Tensor) -> Tensor | None:
    """The tokens for the numerics: None, which spares them a masked copy of every map, where there is no padding."""
    return None if valid.all() else valid


def pad(attn: Tensor, n_tokens: int) -> Tensor:
    """Zero queries and keys up to ``n_tokens``, [B, T, T]."""
    more = n_tokens - attn.size(-1)
    return F.pad(attn, (0, more, 0, more)) if more else attn


def pad_tokens(valid: Tensor, n_tokens: int) -> Tensor:
    """Padding up to ``n_tokens``, [B, T]."""
    more = n_tokens - valid.size(-1)
    return F.pad(valid, (0, more)) if more else valid
