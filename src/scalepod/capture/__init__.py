"""Attention of any torch module, captured from an unmodified forward pass."""
