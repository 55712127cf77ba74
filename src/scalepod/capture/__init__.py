"""Attention of any torch module, captured from an unmodified forward pass."""

from .context import capture_attention
from .declared import AttentionProbe, record_attention
from .guards import held_out
from .padding import valid_tokens
from .record import AttentionRecord, NoAttentionFound

__all__ = [
    "AttentionProbe",
    "AttentionRecord",
    "NoAttentionFound",
    "capture_attention",
    "held_out",
    "record_attention",
    "valid_tokens",
]
