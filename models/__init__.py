"""Transformers whose attention scalepod was made to compare, as plain modules and as LightningModules."""

from .gpt import GPT, GPTConfig
from .lit import BaselineGPT, EnergyGatedGPT, LanguageModel

__all__ = ["GPT", "BaselineGPT", "EnergyGatedGPT", "GPTConfig", "LanguageModel"]
