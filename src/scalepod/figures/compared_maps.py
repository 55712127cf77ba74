"""Scalograms and coherence maps of runs side by side: a row a layer, a column a run."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure

from ..analysis import LayerAnalysis
from ..field import lags
from ..scalogram import equivalent_lag
from .axes import Array, lag_axis, say, scale_axis
from .grid import Grid, grid_page
from .names import MOST_ROWS, spread
from .scalogram import _edges, _hatch_cone
from .style import DOMINANT_COLOR, ENERGY_COLORMAP, MUTED, own_style
from .words import NO_ENERGY, percent

Rows = Sequence[Sequence[LayerAnalysis | None]]
"""Layers that belong together, one a run; None where a run has no such layer."""

_NO_LAYER = "no such layer"
_SCALOGRAMS = (
    "How to read: dark = the attention of documents differs by a pattern of this width (vertical, in tokens) around "
    "this lag (horizontal). Colours by the square root, in each panel up to its own maximum. Dashed: scales that stand "
    "out. Hatched: too near an end of the lags to be trusted."
)
_COHERENCE = (
    "How to read: |γ| between what a query does at its own place and at a key, at the first dominant scale of the "
    "layer, from 0 (pale) to 1 (dark). %: of the pairs far enough apart to tell, the share above the level that 5 % "
    "of unrelated pairs exceed; untested: none is far enough apart."
)


def scalograms_figure(rows: Rows, names: Sequence[str], labels: Sequence[str], title: str) -> Figure:
    """Draw the scalograms S(a, b) of all layers of all runs on one page, with common axes.

    Args:
        rows: Layers, one row a layer and one column a run. Of more than 12 rows 12 are drawn, evenly spread.
        names: Names of the rows.
        labels: Names of the runs.
        title: First line.

    Returns:
        A figure on an Agg canvas of its own, 1040 pixels wide; pyplot knows nothing of it.

    Raises:
        ValueError: There is no layer.
    """
    layers = _present(rows)
    edges = [_edges(equivalent_lag(layer.scales, layer.omega0).double().numpy()) for layer in layers]
    span = np.array([min(edge[0] for edge in edges), max(edge[-1] for edge in edges)])
    with own_style():
        grid = _page(title, "scalogram of the fluctuation, S(a, b)", names, labels, row_height=112)
        for ax, layer in _panels(grid, rows):
            lag_axis(ax, max(one.n_tokens for one in layers), signed=any(one.signed for one in layers))
            scale_axis(ax, span)
            if layer is None or not layer.energy > 0:
                say(ax, _NO_LAYER if layer is None else NO_ENERGY)
            else:
                _draw_scalogram(ax, layer)
        _label_outer(grid, len(spread(len(rows))), "lag b, tokens", "scale")
        grid.page.caption(_SCALOGRAMS)
    return grid.page.figure


def coherences_figure(rows: Rows, names: Sequence[str], labels: Sequence[str], title: str) -> Figure | None:
    """Draw the cross-coherence at the first dominant scale of each layer that has one, on one page.

    Args:
        rows: Layers, one row a layer and one column a run. Rows and columns without coherence are left out; of more
            than 12 rows with it 12 are drawn, evenly spread.
        names: Names of the rows.
        labels: Names of the runs.
        title: First line.

    Returns:
        As `scalograms_figure`; None where no layer has coherence.

    Raises:
        ValueError: There is no layer.
    """
    _present(rows)
    known = np.array([[layer is not None and layer.coherence is not None for layer in row] for row in rows])
    if not known.any():
        return None
    kept, runs = (np.flatnonzero(known.any(axis)).tolist() for axis in (1, 0))
    rows, names = [[rows[k][run] for run in runs] for k in kept], [names[k] for k in kept]
    labels = [labels[run] for run in runs]
    with own_style():
        grid = _page(title, "cross-coherence at the first dominant scale", names, labels, row_height=190)
        for ax, layer in _panels(grid, rows):
            if layer is None or layer.coherence is None:
                say(ax, _NO_LAYER if layer is None else "no dominant scale, or not computed")
            else:
                _draw_coherence(ax, layer)
        _label_outer(grid, len(spread(len(rows))), "key, tokens", "query")
        grid.page.caption(_COHERENCE)
    return grid.page.figure


def _present(rows: Rows) -> list[LayerAnalysis]:
    layers = [layer for row in rows for layer in row if layer is not None]
    if not layers:
        raise ValueError("there is no layer to draw: give rows of analyses, one a run")
    return layers


def _page(title: str, what: str, names: Sequence[str], labels: Sequence[str], row_height: int) -> Grid:
    drawn = spread(len(names))
    if len(names) > MOST_ROWS:
        what += f"   ·   {len(drawn)} of {len(names)} layers"
    return grid_page((title, what), [names[k] for k in drawn], labels, row_height, gap=(14, 12))


def _panels(grid: Grid, rows: Rows) -> Iterator[tuple[Axes, LayerAnalysis | None]]:
    """The axes of every panel with the layer that belongs there."""
    for row, k in enumerate(spread(len(rows))):
        for column, layer in enumerate(rows[k]):
            yield grid.axes(row, column), layer


def _label_outer(grid: Grid, n_rows: int, x: str, y: str) -> None:
    """Name the axes at the left and at the foot, and take the numbers off those within."""
    for place, ax in enumerate(grid.page.figure.axes):
        row, column = divmod(place, grid.n_columns)
        if row == n_rows - 1:
            ax.set_xlabel(x)
        else:
            ax.tick_params(labelbottom=False)
        if column == 0:
            ax.set_ylabel(y)
        else:
            ax.tick_params(labelleft=False)


def _draw_scalogram(ax: Axes, layer: LayerAnalysis) -> None:
    """One scalogram up to its own maximum, with its cone and its dominant scales."""
    lag = lags(layer.n_tokens, layer.signed).numpy()
    energy: Array = layer.scalogram.double().numpy()
    edges = _edges(equivalent_lag(layer.scales, layer.omega0).double().numpy())
    lag_edges = np.append(lag - 0.5, lag[-1] + 0.5)
    ax.pcolormesh(lag_edges, edges, energy, cmap=ENERGY_COLORMAP, norm=PowerNorm(0.5, 0, float(energy.max())))
    _hatch_cone(ax, layer, edges, float(lag[0]), float(lag[-1]))
    for dominant in layer.dominant_lags.tolist():
        ax.axhline(dominant, color=DOMINANT_COLOR, linewidth=1.2, linestyle=(0, (5, 2)))


def _draw_coherence(ax: Axes, layer: LayerAnalysis) -> None:
    found = layer.coherence_at(0)
    n = layer.n_tokens
    gamma = found.gamma.double().numpy()
    seen = np.ma.masked_array(gamma, np.zeros_like(gamma, bool) if layer.signed else ~np.tri(n, dtype=bool))
    ax.imshow(seen, cmap=ENERGY_COLORMAP, vmin=0, vmax=1, aspect="equal", extent=(-0.5, n - 0.5, n - 0.5, -0.5))
    ax.set_anchor("NW")
    share = found.significant_share
    told = percent(share) if math.isfinite(share) else "untested"
    words = f"lag {float(layer.dominant_lags[0]):.3g}: {told}"
    ax.text(0.98, 0.96, words, transform=ax.transAxes, ha="right", va="top", fontsize=8, color=MUTED)
