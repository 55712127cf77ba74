"""At which scales and lags a layer's attention varies, and how fast its spectra decay."""

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ..analysis import LayerAnalysis
from ..field import lags
from ..scalogram import equivalent_lag
from .axes import Array, lag_axis, plain, say, scale_axis
from .page import Page
from .spectra import draw_spectra, write_table
from .style import DOMINANT_COLOR, ENERGY_COLORMAP, INK, MUTED, NULL_COLOR, own_style
from .words import NO_ENERGY, NO_STRUCTURE, document_error, subtitle, what_errors_mean, with_error

_TOP, _HEIGHT = 92, 290  # of the scalogram and of E(a), in pixels

_CAPTION = (
    "How to read: dark = the attention of documents differs by a pattern of this width (vertical) around this lag "
    "(horizontal; how many tokens back a query looks). Hatched: too near an end of the lag axis to be trusted. A peak "
    "of E(a) is a scale that stands out (dashed line). Spectra: a steep line (small T_spec) = few patterns explain the "
    "layer, a flat one (large T_spec) = many; H*(0.10) = patterns needed for 90 % of the energy. ±: "
)
_NULL_CAPTION = (
    "Grey: surrogates with the same energy at every lag but no coherent structure; "
    "a spectrum that lies on it shows none."
)


def scalogram_figure(analysis: LayerAnalysis, title: str) -> Figure:
    """Draw at which scales and lags a layer's attention varies, and how fast its spectra decay.

    Above, the scalogram S(a, b): equivalent lag of the scale against lag, the cone of influence hatched, dominant
    scales marked; beside it E(a) = sum_b S(a, b). Below, the eigenvalue spectra of field and lag POD with the power
    laws fitted to them, and the values of every window.

    Args:
        analysis: The analysis of the layer.
        title: First line of the figure, such as the layer's name.

    Returns:
        A figure on an Agg canvas of its own, 1040 pixels wide; pyplot knows nothing of it.
    """
    period = equivalent_lag(analysis.scales, analysis.omega0).double().numpy()
    edges = _edges(period)
    with own_style():
        page = Page(832)
        page.heading(title, subtitle(analysis))
        _draw_scalogram(page, analysis, edges)
        _draw_scale_energy(page, analysis, period, edges)
        draw_spectra(page, analysis, top=456)
        write_table(page, analysis, left=680, top=456)
        page.caption(_caption(analysis))
    return page.figure


def _caption(analysis: LayerAnalysis) -> str:
    null = analysis.confidence is not None and analysis.confidence.null is not None
    return _CAPTION + what_errors_mean([analysis]) + ". " + _NULL_CAPTION * null


def _edges(period: Array) -> Array:
    """Edges of the scale cells: half way between neighbours on the logarithmic axis."""
    x = np.log(period)
    step = np.diff(x) if len(x) > 1 else np.array([0.2])
    ends = x[0] - step[0] / 2, x[-1] + step[-1] / 2
    return np.asarray(np.exp([ends[0], *(x[1:] + x[:-1]) / 2, ends[1]]))


def _draw_scalogram(page: Page, analysis: LayerAnalysis, edges: Array) -> None:
    """S(a, b) under colours by its square root, with the lines of the dominant scales."""
    ax = page.axes(64, _TOP, 640, _HEIGHT)
    lag = lags(analysis.n_tokens, analysis.signed).numpy()
    energy = analysis.scalogram.double().numpy()
    peak = float(energy.max())
    ax.set_title("scalogram of the fluctuation: energy S(a, b), colours by square root", loc="left")
    scale_axis(ax, edges)
    ax.set_ylabel("scale a as equivalent lag, tokens")
    lag_axis(ax, analysis.n_tokens, signed=analysis.signed, label="lag b")
    if peak <= 0:
        return say(ax, NO_ENERGY)
    lag_edges = np.append(lag - 0.5, lag[-1] + 0.5)
    mesh = ax.pcolormesh(lag_edges, edges, energy, cmap=ENERGY_COLORMAP, norm=PowerNorm(0.5, 0, peak))
    bar = page.figure.colorbar(mesh, cax=page.axes(524, 74, 180, 9), orientation="horizontal")
    bar.ax.xaxis.set_ticks_position("top")
    bar.set_ticks([0, peak / 4, peak], labels=["0", f"{peak / 4:.2g}", f"{peak:.2g}"])
    _hatch_cone(ax, analysis, edges, float(lag[0]), float(lag[-1]))
    for dominant in analysis.dominant_lags.tolist():
        ax.axhline(dominant, color=DOMINANT_COLOR, linewidth=1.4, linestyle=(0, (5, 2)))
    return None


def _hatch_cone(ax: Axes, analysis: LayerAnalysis, edges: Array, first: float, last: float) -> None:
    """Hatch what is nearer than sqrt(2) a, the e-folding distance, to either end of the lag axis."""
    period = np.geomspace(edges[0], edges[-1], 400)
    reach = math.sqrt(2) * period / equivalent_lag(1.0, analysis.omega0)
    middle = (first + last) / 2
    for end, limit in ((first - 0.5, first + reach), (last + 0.5, last - reach)):
        inner = np.clip(limit, end, middle) if end < middle else np.clip(limit, middle, end)
        ax.fill_betweenx(period, end, inner, facecolor="none", edgecolor=(0.35, 0.35, 0.35, 0.6), hatch="//",
                         linewidth=0)  # fmt: skip
        ax.plot(np.where(inner == limit, limit, np.nan), period, color=MUTED, linewidth=1)


def _draw_scale_energy(page: Page, analysis: LayerAnalysis, period: Array, edges: Array) -> None:
    """E(a), beside the scalogram and on the same scale axis, before its null, with its peaks."""
    ax = page.axes(772, _TOP, 244, _HEIGHT)
    energy = analysis.scale_energy.double().numpy()
    ax.plot(energy, period, color=INK, linewidth=1.5)
    highest = max(float(energy.max()), _draw_null(page, ax, analysis, period))
    first_error = document_error(analysis, "dominant_lag")
    for k, lag in enumerate(analysis.dominant_lags.tolist()):
        at = float(np.interp(math.log(lag), np.log(period), energy))
        ax.plot([at], [lag], marker="D", markersize=6, color=DOMINANT_COLOR, linestyle="none")
        words = with_error(lag, first_error if k == 0 else math.nan)
        ax.annotate(words, (at, lag), (7, 0), textcoords="offset points", va="center", color=DOMINANT_COLOR)
    if not len(analysis.dominant_lags):
        ax.set_title("no scale stands out", loc="right", color=DOMINANT_COLOR)
    scale_axis(ax, edges)
    ax.set_xlim(0, 1.6 * highest or 1.0)  # room for the words beside a peak
    ax.xaxis.set_major_locator(MaxNLocator(3))
    ax.xaxis.set_major_formatter(FuncFormatter(plain))
    ax.set_xlabel("E(a), energy summed over lags")
    ax.set_title("energy by scale", loc="left")


def _draw_null(page: Page, ax: Axes, analysis: LayerAnalysis, period: Array) -> float:
    """E(a) of every surrogate, with a legend above the axes; the highest energy, 0 without surrogates."""
    null = None if analysis.confidence is None else analysis.confidence.null
    if null is None:
        return 0.0
    energies = null.scale_energy.double().numpy()
    ax.plot(energies.T, period, color=NULL_COLOR, linewidth=1.4, zorder=1)
    page.text(1016, 58, f"― {NO_STRUCTURE}", ha="right", color=NULL_COLOR)
    return float(energies.max())
