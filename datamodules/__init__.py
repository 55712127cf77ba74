"""Character-level text for Lightning: any file, TinyShakespeare, and synthetic text of known scales."""

# Fails unless imported as scalepod.datamodules: a top-level `datamodules` would hold a second copy of every class.
from .. import __name__ as _  # noqa: F401
from .planted import PlantedScales
from .shakespeare import TinyShakespeare
from .text import CharTextDataModule

__all__ = ["CharTextDataModule", "PlantedScales", "TinyShakespeare"]
