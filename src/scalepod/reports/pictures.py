"""The figures of a comparison, by the name of their file."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from ..figures.compared_lines import profiles_figure, training_figure
from ..figures.compared_maps import coherences_figure, scalograms_figure
from .comparison import Comparison
from .curves import training_curves
from .quantities import title_of
from .runs import Run, layer_names


def comparison_figures(runs: Sequence[Run], comparison: Comparison) -> dict[str, Figure]:
    """Draw scalograms, lag modes and, where there are any, coherence maps and curves over training.

    Args:
        runs: The runs that are compared, for their other firings.
        comparison: The firings that are compared.

    Returns:
        Figures by name: "scalograms", "lag_modes", "coherence", "training".
    """
    firings = comparison.firings
    rows = [[firing.analyses.get(name) for firing, name in zip(firings, row, strict=True)] for row in comparison.layers]
    names = list(layer_names(comparison.row_names).values())
    labels = [firing.label for firing in firings]
    at = ", ".join(f"{firing.label} at step {firing.step}" for firing in firings)
    figures = {
        "scalograms": scalograms_figure(rows, names, labels, f"Where the energy is: {at}"),
        "lag_modes": profiles_figure(rows, names, labels, f"By which lags documents differ: {at}"),
        "coherence": coherences_figure(rows, names, labels, f"What goes with what: {at}"),
    }
    if max(len(run.results.steps) for run in runs) > 1:
        shown = [name for name in comparison.quantities if name.startswith(("lag_t_spec", "lag_h_star", "mean_lag"))]
        shown += [name for name in comparison.quantities if name == "t_spec"]
        curves = training_curves(runs, comparison.layers, shown)
        figures["training"] = training_figure(curves, names, list(map(title_of, shown)), labels, "Over training")
    return {name: figure for name, figure in figures.items() if figure is not None}
