"""The figures of a comparison of runs or of groups, by the name of their file."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from ..figures.compared_lines import OVER_GROUPS, profiles_figure, training_figure
from ..figures.compared_maps import coherences_figure, scalograms_figure
from .comparison import Comparison
from .curves import group_curves, training_curves
from .groups import Group, GroupComparison
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
    at = ", ".join(f"{firing.label} at step {firing.step}" for firing in comparison.firings)
    figures = _layers_figures(comparison, at)
    if max(len(run.results.steps) for run in runs) > 1:
        shown = _over_training(comparison)
        curves = training_curves(runs, comparison.layers, shown)
        figures["training"] = training_figure(curves, *_names(comparison, shown), "Over training")
    return figures


def group_figures(groups: Sequence[Group], comparison: GroupComparison) -> dict[str, Figure]:
    """Draw the same of groups: means over training, and the maps of the first training of each.

    Args:
        groups: The groups that are compared, for the other firings of their trainings.
        comparison: Their comparison.

    Returns:
        Figures by name, as `comparison_figures`.
    """
    steps = {firing.step for firing in comparison.firings}
    at = f"at step {steps.pop()}" if len(steps) == 1 else "at different steps"
    figures = _layers_figures(comparison, f"first training of each group, {at}")
    if max(len(group.steps) for group in groups) > 1:
        shown = _over_training(comparison)
        curves = group_curves(groups, comparison, shown)
        title = "Over training: means of groups"
        figures["training"] = training_figure(curves, *_names(comparison, shown), title, OVER_GROUPS)
    return figures


def _layers_figures(comparison: Comparison, at: str) -> dict[str, Figure]:
    """The figures of single firings, which `at` tells of."""
    firings = comparison.firings
    rows = [[firing.analyses.get(name) for firing, name in zip(firings, row, strict=True)] for row in comparison.layers]
    names = list(layer_names(comparison.row_names).values())
    labels = [firing.label for firing in firings]
    figures = {
        "scalograms": scalograms_figure(rows, names, labels, f"Where the energy is: {at}"),
        "lag_modes": profiles_figure(rows, names, labels, f"By which lags documents differ: {at}"),
        "coherence": coherences_figure(rows, names, labels, f"What goes with what: {at}"),
    }
    return {name: figure for name, figure in figures.items() if figure is not None}


def _over_training(comparison: Comparison) -> list[str]:
    """Values that are drawn over training."""
    shown = [name for name in comparison.quantities if name.startswith(("lag_t_spec", "lag_h_star", "mean_lag"))]
    return shown + [name for name in comparison.quantities if name == "t_spec"]


def _names(comparison: Comparison, quantities: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
    """What layers, values and runs are called in a figure."""
    layers = list(layer_names(comparison.row_names).values())
    return layers, list(map(title_of, quantities)), [firing.label for firing in comparison.firings]
