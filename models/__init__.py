"""Transformers whose attention scalepod was made to compare, as plain modules and as LightningModules."""

# Fails unless imported as scalepod.models: a top-level `models` would hold a second copy of every class.
from .. import __name__ as _  # noqa: F401
from .gpt import GPT, GPTConfig
from .lit import BaselineGPT, EnergyGatedGPT, LanguageModel

__all__ = ["GPT", "BaselineGPT", "EnergyGatedGPT", "GPTConfig", "LanguageModel"]
