"""All layers on one page: at which lags the energy is, and how complex each layer is."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ..analysis import LayerAnalysis
from ..field import lags
from ..spectrum import effective_rank
from .axes import Array, count_axis, lag_axis, plain
from .names import short_names
from .page import Page, shorten
from .style import DOMINANT_COLOR, ENERGY_COLORMAP, FAINT, FIELD_COLOR, INK, LAG_COLOR, MUTED, band_colors, own_style
from .words import (
    EPSILON,
    NO_ENERGY,
    Kind,
    convergence_of,
    document_error,
    eigenvalues_of,
    fit_of,
    h_star_error,
    layers_drawn,
    t_spec_error,
    what_errors_mean,
)

Layers = Sequence[LayerAnalysis]

# Places in pixels: top of the panels, left edges of the four.
_TOP = 112
_LAG, _BANDS, _T_SPEC, _H_STAR = 160, 536, 724, 890

_CAPTION = (
    "How to read: one row a layer, the first at the top. Dark = documents differ much in the attention paid at this "
    "lag (how many tokens back a query looks). T_spec and H*(0.10) say how many patterns it takes to describe the "
    "differences: farther right = more, a more complex layer. No dot: undefined. Numbers before the names are those of "
    "the logged tags. Bars: "
)
_LIMITED_CAPTION = (
    " Hollow: limited by the number of documents, H* of all of them is more than 1.1 times that of half of them."
)


def overview_figure(analyses: Mapping[str, LayerAnalysis], title: str) -> Figure:
    """Draw all layers of a model, one row a layer.

    From the left: the share of the fluctuation's energy in half-octave bins of lag, with the mean lag and the dominant
    lags marked; the shares of the fixed bands; T_spec and H*(0.10) of field and lag POD, hollow where H* still grows
    with the number of documents. Standard errors are those over documents, or without confidence those of the fits.

    Args:
        analyses: Analyses by layer name, in the order in which the rows shall stand.
        title: First line of the figure.

    Returns:
        A figure on an Agg canvas of its own, 1040 pixels wide; pyplot knows nothing of it.

    Raises:
        ValueError: If there is no layer.
    """
    if not analyses:
        raise ValueError("analyses is empty: an overview needs at least one layer")
    layers = list(analyses.values())
    height = min(max(120, 46 * len(layers)), max(420, 15 * len(layers)))
    with own_style():
        page = Page(_TOP + height + 122)
        page.heading(title, layers_drawn(layers, len(layers)))
        _draw_lag_energy(page, layers, short_names(list(analyses)), height)
        _draw_bands(page, layers, height)
        _draw_complexity(page, layers, height)
        page.caption(_caption(layers))
    return page.figure


def _caption(layers: Layers) -> str:
    kinds: tuple[Kind, ...] = ("field", "lag")
    limited = any(_limited(layer, kind) for layer in layers for kind in kinds)
    return _CAPTION + what_errors_mean(layers) + "." + _LIMITED_CAPTION * limited


def _lag_edges(n_tokens: int, *, signed: bool) -> npt.NDArray[np.int64]:
    """First lag of each bin and the end of the last: 0, 1, 2, 3, 4, 6, 8, 12, ..., T, mirrored for signed lags."""
    octaves = range(n_tokens.bit_length())
    starts = sorted({0, *(2**k for k in octaves), *(3 * 2**k for k in octaves)})
    edges = [start for start in starts if start < n_tokens] + [n_tokens]
    return np.array([1 - edge for edge in reversed(edges[1:])] + edges[1:] if signed else edges)


def _lag_shares(layer: LayerAnalysis, edges: npt.NDArray[np.int64]) -> Array:
    """Share of a layer's energy in each bin; NaN in bins beyond its lags, and everywhere when it has no energy."""
    lag = lags(layer.n_tokens, layer.signed).numpy()
    energy = layer.lag_energy.double().numpy()
    if energy.sum() <= 0:
        return np.full(len(edges) - 1, np.nan)
    shares = np.histogram(lag, edges, weights=energy)[0] / energy.sum()
    return np.where((edges[:-1] <= lag[-1]) & (edges[1:] > lag[0]), shares, np.nan)


def _draw_lag_energy(page: Page, layers: Layers, names: Sequence[str], height: int) -> None:
    """Energy by layer and lag, with the mean and the dominant lags."""
    ax = page.axes(_LAG, _TOP, 350, height)
    n_tokens, signed = max(layer.n_tokens for layer in layers), any(layer.signed for layer in layers)
    edges = _lag_edges(n_tokens, signed=signed)
    shares = np.ma.masked_invalid(np.stack([_lag_shares(layer, edges) for layer in layers]))
    peak = float(shares.max()) if shares.count() else 1.0
    rows = np.arange(len(layers) + 1) - 0.5
    mesh = ax.pcolormesh(edges - 0.5, rows, shares, cmap=ENERGY_COLORMAP, norm=PowerNorm(0.5, 0, peak))
    bar = page.figure.colorbar(mesh, cax=page.axes(_LAG + 240, 78, 110, 8), orientation="horizontal")
    bar.ax.xaxis.set_ticks_position("top")
    bar.set_ticks([0, peak / 4, peak], labels=[f"{100 * share:.0f} %" for share in (0, peak / 4, peak)])
    _mark_lags(ax, layers)
    page.text(_LAG, 76, "○ mean |lag|" if signed else "○ mean lag", fontsize=8.5)
    page.text(_LAG + 84, 76, "◆ dominant lags", fontsize=8.5, color=DOMINANT_COLOR)
    ax.set_title("energy by lag", loc="left", fontweight="bold")
    lag_axis(ax, n_tokens, signed=signed, label="lag")
    _layer_axis(ax, len(layers))
    ax.set_yticks(range(len(layers)), labels=list(names))


def _mark_lags(ax: Axes, layers: Layers) -> None:
    """A large diamond at the first dominant lag of a layer, small ones at the others, a ring at the mean lag."""
    first, others = [], []
    for row, layer in enumerate(layers):
        dominant = [(lag, row) for lag in layer.dominant_lags.tolist()]
        first += dominant[:1]
        others += dominant[1:]
        if not layer.energy > 0:
            ax.annotate(NO_ENERGY, (0.5, row), xycoords=("axes fraction", "data"), ha="center", va="center",
                        color=MUTED)  # fmt: skip
    for places, size in ((others, 3.5), (first, 6.0)):
        ax.plot([lag for lag, _ in places], [row for _, row in places], marker="D", markersize=size,
                color=DOMINANT_COLOR, markeredgecolor="white", markeredgewidth=0.8, linestyle="none")  # fmt: skip
    errors = [document_error(layer, "mean_lag") for layer in layers]
    ax.errorbar([layer.mean_lag for layer in layers], range(len(layers)), xerr=errors, marker="o", markersize=6,
                linestyle="none", color=INK, markerfacecolor="white", markeredgewidth=1.3)  # fmt: skip


def _draw_bands(page: Page, layers: Layers, height: int) -> None:
    """Shares of the fixed bands, stacked to 100 %."""
    ax = page.axes(_BANDS, _TOP, 156, height)
    names = list(dict.fromkeys(name for layer in layers for name in layer.bands))
    start = np.zeros(len(layers))
    for name, color in band_colors(names).items():
        shares = np.array([100 * layer.bands.get(name, 0.0) for layer in layers])
        ax.barh(range(len(layers)), shares, left=start, height=0.72, color=color)
        start += shares
    _write_bands(page, names)
    ax.set_title("by band", loc="left", fontweight="bold")
    ax.set_xlim(0, 100)
    ax.set_xticks([0, 50, 100])
    ax.set_xlabel("share of energy, %")
    _layer_axis(ax, len(layers))


def _write_bands(page: Page, names: Sequence[str]) -> None:
    """Legend of the bands: every name where there is room, else the first and the last."""
    few = len(names) <= 3
    left = float(_BANDS)
    for name, color in band_colors(names).items():
        page.swatch(left, 79, color)
        if few:
            page.text(left + 14, 78, shorten(name, 7), fontsize=7.5)
        left += 24 + 5.5 * min(len(name), 7) if few else 12
    if not few:
        page.text(left + 4, 78, shorten(f"{names[0]} … {names[-1]}", max(7, 26 - 2 * len(names))), fontsize=7.5)


def _draw_complexity(page: Page, layers: Layers, height: int) -> None:
    """T_spec and H*(0.10) of field and lag POD, with their standard errors."""
    t_spec, h_star = page.axes(_T_SPEC, _TOP, 134, height), page.axes(_H_STAR, _TOP, 134, height)
    kinds: tuple[tuple[int, Kind, str], ...] = ((0, "field", FIELD_COLOR), (76, "lag", LAG_COLOR))
    for shift, kind, color in kinds:
        page.text(_T_SPEC + shift, 76, f"{kind} POD", color=color, fontweight="bold")
        limited = [_limited(layer, kind) for layer in layers]
        _draw_by_layer(t_spec, [_t_spec(layer, kind) for layer in layers], [False] * len(layers), color)
        _draw_by_layer(h_star, [_h_star(layer, kind) for layer in layers], limited, color)
    t_spec.set_title("T_spec", loc="left", fontweight="bold")
    t_spec.set_xlabel("T_spec = 1 / slope")
    t_spec.set_xlim(0, max(1.0, t_spec.get_xlim()[1]))
    t_spec.xaxis.set_major_locator(MaxNLocator(4))
    t_spec.xaxis.set_major_formatter(FuncFormatter(plain))
    h_star.set_title("H*(0.10)", loc="left", fontweight="bold")
    h_star.set_xlabel("number of modes")
    count_axis(h_star)
    for ax in (t_spec, h_star):
        ax.grid(axis="x", color=FAINT, linewidth=0.6)
        _layer_axis(ax, len(layers))


def _draw_by_layer(ax: Axes, values: Sequence[tuple[float, float]], hollow: Sequence[bool], color: str) -> None:
    """Values with their standard errors, joined from layer to layer; rings instead of dots where hollow."""
    rows = np.arange(len(values))
    at, errors = zip(*values, strict=True)
    ax.errorbar(at, rows, xerr=errors, color=color, marker="o", markersize=4.5, linewidth=0.9)
    if any(hollow):
        ax.plot(np.where(hollow, at, np.nan), rows, marker="o", markersize=4.5, linestyle="none", color=color,
                markerfacecolor="white", zorder=3)  # fmt: skip


def _t_spec(layer: LayerAnalysis, kind: Kind) -> tuple[float, float]:
    """T_spec of the whole fluctuation and its standard error; NaN when undefined."""
    fit = fit_of(layer, kind)
    return (math.nan, math.nan) if fit is None else (float(fit.t_spec[0]), t_spec_error(layer, kind))


def _h_star(layer: LayerAnalysis, kind: Kind) -> tuple[float, float]:
    """H*(0.10) of the whole fluctuation and its standard error; NaN without energy, and for an error not known."""
    eigenvalues = eigenvalues_of(layer, kind)
    if eigenvalues is None or not (found := int(effective_rank(eigenvalues[0], EPSILON))):
        return math.nan, math.nan
    return found, h_star_error(layer, kind)


def _limited(layer: LayerAnalysis, kind: Kind) -> bool:
    """Whether the number of documents limits H*(0.10), as far as that is known."""
    found = convergence_of(layer, kind)
    return found is not None and math.isfinite(float(found.growth)) and not found.settled


def _layer_axis(ax: Axes, n_layers: int) -> None:
    """One row a layer, the first at the top, without labels."""
    ax.set_ylim(n_layers - 0.5, -0.5)
    ax.set_yticks([])
