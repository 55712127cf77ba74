"""Watch the attention of a transformer while it trains: wavelet scales, POD modes, spectral complexity."""

from importlib.metadata import version

from .analysis import LayerAnalysis
from .monitor import ScalePOD
from .store import load_analyses, save_analyses

__version__ = version("scalepod")

__all__ = ["LayerAnalysis", "ScalePOD", "__version__", "load_analyses", "save_analyses"]
