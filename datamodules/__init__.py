"""Character-level text for Lightning: any file, TinyShakespeare, and synthetic text of known scales."""

from .planted import PlantedScales
from .shakespeare import TinyShakespeare
from .text import CharTextDataModule

__all__ = ["CharTextDataModule", "PlantedScales", "TinyShakespeare"]
