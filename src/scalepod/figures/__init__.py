"""Pictures of an analysis: pure functions from a LayerAnalysis to a matplotlib Figure, without pyplot."""

from .canvas import figure_to_array, save_array, save_figure
from .coherence import coherence_figure
from .confidence import confidence_figure
from .heads import heads_figure
from .modes import modes_figure
from .overview import overview_figure
from .scalogram import scalogram_figure

__all__ = [
    "coherence_figure",
    "confidence_figure",
    "figure_to_array",
    "heads_figure",
    "modes_figure",
    "overview_figure",
    "save_array",
    "save_figure",
    "scalogram_figure",
]
