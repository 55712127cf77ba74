"""The figures of the study."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from claims import ALL, CLAIMED_PEAKS
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from observed import Study

from scalepod.confidence.trainings import Estimate
from scalepod.figures.axes import decade_axis, lag_axis, plain
from scalepod.figures.grid import grid_page, run_styles
from scalepod.figures.style import FAINT, own_style

_ERRORS = (
    "one standard error, over the choice of documents and over trainings together; models trained once take the "
    "scatter of those trained several times"
)
_OVER_DECADES = ("lag_t_spec", "lag_h_star_0.10", "mean_lag")  # values of layers that differ by factors


def training_figure(study: Study, names: Mapping[str, str], title: str) -> Figure:
    """Values over training with their errors: a row a layer, a column a value, a line a model.

    Args:
        study: The study.
        names: Heads of the columns by value.
        title: First line.
    """
    models = study.models
    with own_style():
        heading = (
            title,
            "over the training: a line a model, the mean of its trainings; each panel has its own scale",
        )
        grid = grid_page(heading, [f"layer {k}" for k in ALL], list(names.values()), 92, (48, 22), models)
        for row, layer in enumerate(ALL):
            for column, name in enumerate(names):
                ax = grid.axes(row, column)
                for model, style in zip(models, run_styles(len(models)), strict=True):
                    steps = study.of(model)[0].results.steps
                    _band(ax, steps, [study.at_step(model, name, step, layer) for step in steps], style)
                _ticks(ax)
                ax.tick_params(labelbottom=layer == ALL[-1])
                if layer == ALL[-1]:
                    ax.set_xlabel("optimizer steps")
        grid.page.caption(f"Line: the value; band: {_ERRORS}.")
    return grid.page.figure


def layers_figure(study: Study, rows: Sequence[Mapping[str, str]], title: str) -> Figure:
    """Values after the last step against the layer, a line a model.

    Args:
        study: The study.
        rows: For each row of panels the titles of its values, by value.
        title: First line.
    """
    models = study.models
    with own_style():
        grid = grid_page((title, "after the last step, layer by layer"), [""] * len(rows), [""], 186, (0, 52), models)
        width = 230
        for row, names in enumerate(rows):
            for column, (name, words) in enumerate(names.items()):
                ax = grid.page.axes(60 + column * 250, grid.top + row * grid.row_height, width - 30, grid.panel[1])
                ax.set_title(words, fontweight="bold", loc="left")
                for k, (model, style) in enumerate(zip(models, run_styles(len(models)), strict=True)):
                    found = [study.level(model, name, {layer: 1.0}) for layer in ALL]
                    place = np.array(ALL) + 0.06 * (k - (len(models) - 1) / 2)
                    values = [each.value for each in found]
                    ax.errorbar(place, values, [_error(each) for each in found], marker="o", markersize=3,
                                linewidth=1, **style)  # fmt: skip
                if name in _OVER_DECADES:
                    ax.set_yscale("log")
                    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
                    ax.yaxis.set_minor_locator(NullLocator())
                    ax.yaxis.set_major_formatter(FuncFormatter(plain))
                else:
                    _ticks(ax)
                ax.set_xticks(ALL)
                if row == len(rows) - 1:
                    ax.set_xlabel("layer")
        grid.page.caption(f"Bars: {_ERRORS}.")
    return grid.page.figure


def modes_figure(study: Study, title: str) -> Figure:
    """Energy of the leading field modes by lag in layers 2, 4 and 6, a line a training; the claimed lags are shaded."""
    models = [model for model in ("baseline", "ega") if study.of(model)]
    n_tokens = study.runs[0].profiles.shape[-1]
    with own_style():
        heading = title, "three leading field modes, weighted by their eigenvalues: share of their energy at each lag"
        grid = grid_page(heading, [""], [""], 200, (40, 40), models)
        for column, (layer, (low, high)) in enumerate(CLAIMED_PEAKS.items()):
            ax = grid.page.axes(60 + column * 330, grid.top, 280, 190)
            ax.axvspan(low, high, color=FAINT, linewidth=0)
            for model, style in zip(models, run_styles(len(models)), strict=True):
                for run in study.of(model):
                    ax.plot(run.profiles[layer - 1], linewidth=1, **style)
            lag_axis(ax, n_tokens, signed=False, label="lag")
            ax.set_yscale("log")
            ax.set_ylim(1e-4, 1)
            decade_axis(ax.yaxis)
            ax.set_title(f"layer {layer}: claimed {low}-{high}", loc="left", fontweight="bold")
        grid.page.caption(
            "A line a training, down to a share of 0.0001. Shaded: lags at which the modes of the layer are claimed to "
            "peak. Lags 0 and 1 stand apart by as much as 1 and 2."
        )
    return grid.page.figure


def _band(ax: Axes, steps: Sequence[int], found: Sequence[Estimate], style: dict[str, Any]) -> None:
    values, errors = np.array([each.value for each in found]), np.array([_error(each) for each in found])
    ax.fill_between(steps, values - errors, values + errors, color=style["color"], alpha=0.22, linewidth=0)
    ax.plot(steps, values, linewidth=1.2, marker="o", markersize=2.2, **style)


def _ticks(ax: Axes) -> None:
    ax.yaxis.set_major_locator(MaxNLocator(3))
    ax.yaxis.set_major_formatter(FuncFormatter(plain))


def _error(found: Estimate) -> float:
    return found.documents if np.isnan(found.seeds) else found.stderr
