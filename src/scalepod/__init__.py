"""Watch the attention of a transformer while it trains: wavelet scales, POD modes, spectral complexity."""

from importlib.metadata import version

from .analysis import LayerAnalysis
from .monitor import ScalePOD
from .provenance import Provenance
from .results import Results, ResultsWarning, load
from .store import Header, load_analyses, save_analyses

__version__ = version("scalepod")

__all__ = [
    "Header",
    "LayerAnalysis",
    "Provenance",
    "Results",
    "ResultsWarning",
    "ScalePOD",
    "__version__",
    "load",
    "load_analyses",
    "save_analyses",
]
