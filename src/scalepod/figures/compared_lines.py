"""Lag modes and training curves of runs in common panels: a row a layer, a line a run."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ..analysis import LayerAnalysis
from ..field import lags
from .axes import Array, lag_axis, plain, say
from .compared_maps import Rows, _present
from .grid import grid_page, run_styles
from .names import MOST_ROWS, spread
from .style import FAINT, own_style
from .words import NONE, percent

_N_MODES = 3
_PROFILES = (
    "How to read: a lag mode is a pattern by which the attention of documents differs: more where it is positive, "
    "less where it is negative. The overall sign is arbitrary and turned to agree with the first run. %: share of the "
    "energy."
)
_TRAINING = (
    "How to read: one line a run, over the optimizer steps taken. Band: one standard error over the choice of "
    "documents to either side. A gap: undefined at that step."
)

OVER_GROUPS = (
    "How to read: one line a group, the mean over its trainings at the steps that all of them have. Band: one standard "
    "error, over the choice of documents and over trainings together, to either side; none where nothing tells of the "
    "trainings. A gap: undefined at that step, be it in one of the trainings."
)
"""How to read the curves of groups of trainings."""


class Curve(NamedTuple):
    """A value over the training of one run, or its mean over those of a group."""

    steps: npt.NDArray[np.int64]
    """Optimizer steps taken, ascending, [F]."""
    values: Array
    """The value at each, [F]; NaN where undefined."""
    errors: Array
    """Its standard error, [F]; NaN where unknown."""


def profiles_figure(rows: Rows, names: Sequence[str], labels: Sequence[str], title: str) -> Figure:
    """Draw the leading lag modes of all layers, those of all runs in one panel.

    Args:
        rows: Layers, one row a layer and one line a run; None where a run has no such layer. Of more than 12 rows 12
            are drawn, evenly spread.
        names: Names of the rows.
        labels: Names of the runs.
        title: First line.

    Returns:
        A figure on an Agg canvas of its own, 1040 pixels wide; pyplot knows nothing of it.

    Raises:
        ValueError: There is no layer.
    """
    layers = _present(rows)
    n_modes = min(_N_MODES, max(layer.lag.modes.shape[1] for layer in layers))
    n_tokens, signed = max(layer.n_tokens for layer in layers), any(layer.signed for layer in layers)
    drawn = spread(len(rows))
    columns = [f"lag mode {k + 1}" for k in range(n_modes)]
    with own_style():
        heading = title, "lag modes of the whole fluctuation" + _how_many(drawn, rows)
        grid = grid_page(heading, [names[k] for k in drawn], columns, 104, (26, 22), labels)
        for place, k in enumerate(drawn):
            for mode in range(n_modes):
                ax = grid.axes(place, mode)
                _draw_profiles(ax, rows[k], mode)
                last = place == len(drawn) - 1
                lag_axis(ax, n_tokens, signed=signed, label="lag" if last else "")
                ax.tick_params(labelbottom=last)
        grid.page.caption(_PROFILES)
    return grid.page.figure


def training_figure(
    curves: Sequence[Sequence[Sequence[Curve]]],
    names: Sequence[str],
    quantities: Sequence[str],
    labels: Sequence[str],
    title: str,
    how_to_read: str = _TRAINING,
) -> Figure:
    """Draw values over training with bands of one standard error: a row a layer, a column a value, a line a run.

    Args:
        curves: ``curves[layer][quantity][run]``; a run without the layer has a curve of NaN. Of more than 12 layers 12
            are drawn, evenly spread.
        names: Names of the layers.
        quantities: Names of the values.
        labels: Names of the runs.
        title: First line.
        how_to_read: The lines at the foot.

    Returns:
        As `profiles_figure`.

    Raises:
        ValueError: There is no curve.
    """
    if not curves or not quantities:
        raise ValueError("there is no curve to draw: give layers and quantities")
    drawn = spread(len(curves))
    steps = np.concatenate([curve.steps for curve in curves[0][0]])
    margin = max(1.0, 0.03 * float(np.ptp(steps)))
    with own_style():
        heading = title, "values over training" + _how_many(drawn, curves)
        grid = grid_page(heading, [names[k] for k in drawn], quantities, 92, (48, 22), labels)
        for place, k in enumerate(drawn):
            for column in range(len(quantities)):
                ax = grid.axes(place, column)
                _draw_curves(ax, curves[k][column])
                ax.set_xlim(steps.min() - margin, steps.max() + margin)
                ax.tick_params(labelbottom=place == len(drawn) - 1)
                if place == len(drawn) - 1:
                    ax.set_xlabel("optimizer steps")
        grid.page.caption(how_to_read)
    return grid.page.figure


def _how_many(drawn: Sequence[int], rows: Sequence[object]) -> str:
    return f"   ·   {len(drawn)} of {len(rows)} layers" if len(rows) > MOST_ROWS else ""


def _draw_profiles(ax: Axes, row: Sequence[LayerAnalysis | None], mode: int) -> None:
    """Mode number `mode` of every run that has it, turned to the first, with its share of the energy."""
    ax.axhline(0, color=FAINT, linewidth=0.8)
    ax.set_yticks([])
    first: tuple[Array, Array] | None = None
    shares = []
    for layer, style in zip(row, run_styles(len(row)), strict=True):
        if layer is None or mode >= layer.lag.modes.shape[1] or not layer.energy > 0:
            continue
        lag, curve = lags(layer.n_tokens, layer.signed).numpy(), layer.lag.modes[0, mode].double().numpy()
        first = first or (lag, curve)
        ax.plot(lag, _turned(lag, curve, *first), linewidth=1.1, **style)
        spectrum = layer.lag.eigenvalues[0]
        shares.append((percent(float(spectrum[mode] / spectrum.sum())), style["color"]))
    most = 0.65 if len(shares) < 7 else 1.0  # of the width; as far as may be, beside the head of the column
    for place, (words, color) in enumerate(reversed(shares)):
        ax.text(
            1 - min(0.16, most / len(shares)) * place,
            1.02,
            words,
            transform=ax.transAxes,
            ha="right",
            color=color,
            fontsize=7.5,
        )
    if not shares:
        say(ax, NONE)


def _turned(lag: Array, curve: Array, first_lag: Array, first: Array) -> Array:
    """A mode with the sign in which it agrees with the first, at the lags that both have."""
    _, here, there = np.intersect1d(lag, first_lag, return_indices=True)
    return -curve if float(curve[here] @ first[there]) < 0 else curve


def _draw_curves(ax: Axes, curves: Sequence[Curve]) -> None:
    for curve, style in zip(curves, run_styles(len(curves)), strict=True):
        low, high = curve.values - curve.errors, curve.values + curve.errors
        if len(curve.steps) > 1:
            ax.fill_between(curve.steps, low, high, color=style["color"], alpha=0.22, linewidth=0)
            ax.plot(curve.steps, curve.values, linewidth=1.2, marker="o", markersize=2.2, **style)
        else:
            ax.errorbar(curve.steps, curve.values, curve.errors, marker="o", markersize=3.5, color=style["color"])
    ax.yaxis.set_major_locator(MaxNLocator(3))
    ax.yaxis.set_major_formatter(FuncFormatter(plain))
    ax.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    ax.xaxis.set_major_formatter(FuncFormatter(plain))
