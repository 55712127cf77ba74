"""Eigenvalue spectra with the power laws fitted to them and their null, and a table of the values of every window."""

import math
import textwrap

import numpy as np
from matplotlib.axes import Axes
from torch import Tensor

from ..analysis import LayerAnalysis
from ..spectrum import SpectralFit, effective_rank
from .axes import Array, decade_axis, say
from .page import Page
from .style import FIELD_COLOR, INK, LAG_COLOR, MUTED, NULL_COLOR
from .words import (
    EPSILON,
    NO_ENERGY,
    NO_FIELD,
    NO_STRUCTURE,
    NONE,
    Kind,
    eigenvalues_of,
    fit_of,
    h_star_error,
    rank,
    t_spec,
    t_spec_error,
    window_color,
    window_name,
    window_share,
    with_error,
)

_LOWEST = 1e-8  # share of the energy below which eigenvalues are not shown
_HEIGHT = 250  # of the spectra, in pixels
_ROW_WITH_ERRORS = 32.0  # between the rows of the table, in pixels, where errors stand under the values


def draw_spectra(page: Page, analysis: LayerAnalysis, top: int) -> None:
    """Draw the spectra of field and lag POD of the whole fluctuation side by side, top at a place in pixels."""
    panels: tuple[tuple[int, Kind, str], ...] = ((64, "field", FIELD_COLOR), (378, "lag", LAG_COLOR))
    for left, kind, color in panels:
        ax = page.axes(left, top, 262, _HEIGHT)
        ax.set_title(f"{kind} POD spectrum, all lags", loc="left", color=color, fontweight="bold")
        ax.set_xlabel("mode number k")
        if left == 64:
            ax.set_ylabel("share of energy, λₖ / Σλ")
        eigenvalues = eigenvalues_of(analysis, kind)
        if eigenvalues is None:
            say(ax, NO_FIELD)
        elif float(eigenvalues[0].sum()) <= 0:
            say(ax, NO_ENERGY)
        else:
            _draw_spectrum(ax, analysis, kind, eigenvalues[0], color)


def _draw_spectrum(ax: Axes, analysis: LayerAnalysis, kind: Kind, eigenvalues: Tensor, color: str) -> None:
    """Share of the energy by mode number, log-log, before the null, with the fitted line and H*(0.10)."""
    _draw_null(ax, analysis, kind)
    share = (eigenvalues[eigenvalues > 0].double() / eigenvalues.double().sum()).numpy()
    ax.plot(np.arange(1, len(share) + 1), share, marker="o", markersize=2.5, linestyle="none", color=color,
            label="eigenvalues")  # fmt: skip
    fit = fit_of(analysis, kind)
    k, line = (np.empty(0), np.empty(0)) if fit is None else _fitted_line(share, fit)
    ax.plot(k, line, color=INK, linewidth=1.2, linestyle="-" if len(k) else "none", label=_fit_words(analysis, kind, k))
    h_star = int(effective_rank(eigenvalues, EPSILON))
    top = 1.5 * max(1.0, float(line.max(initial=0)))
    ax.vlines(h_star, share[h_star - 1], top, color=color, linestyle=(0, (1, 1)),
              label=f"H*(0.10) = {with_error(h_star, h_star_error(analysis, kind))}")  # fmt: skip
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(0.8, 1.25 * max(len(share), 10))
    middle = float(share[round(len(share) ** 0.6) - 1])  # kept high up: the legend stands below the curve
    ax.set_ylim(min(max(float(share[-1]) / 2, _LOWEST), middle * (middle / top) ** 1.4), top)
    decade_axis(ax.xaxis)
    decade_axis(ax.yaxis)
    ax.legend(loc="lower left", handlelength=1.4)


def _draw_null(ax: Axes, analysis: LayerAnalysis, kind: Kind) -> None:
    """The spectrum of every surrogate, a thin grey line each: as many as there are, no band made of one."""
    null = None if analysis.confidence is None else analysis.confidence.null
    if null is None:
        return
    spectra = null.field_eigenvalues if kind == "field" else null.lag_eigenvalues
    shares = (spectra / spectra.sum(-1, keepdim=True)).double().numpy()
    shares = np.where(shares > 0, shares, np.nan)
    lines = ax.plot(np.arange(1, shares.shape[1] + 1), shares.T, color=NULL_COLOR, linewidth=1.4, zorder=1)
    lines[0].set_label(NO_STRUCTURE)


def _fitted_line(share: Array, fit: SpectralFit) -> tuple[Array, Array]:
    """The least-squares line over the modes that were fitted; it passes through the mean of their logarithms."""
    beta = float(fit.beta[0])
    if not math.isfinite(beta):
        return np.empty(0), np.empty(0)
    first = int(fit.first[0])
    k = np.arange(first, first + int(fit.n_points[0]), dtype=np.float64)
    x, y = np.log(k), np.log(share[first - 1 : first - 1 + len(k)])
    return k, np.asarray(np.exp(y.mean() - beta * (x - x.mean())))


def _fit_words(analysis: LayerAnalysis, kind: Kind, k: Array) -> str:
    """The legend of the fitted line: the range, T_spec with its error, and what the median of slopes gives."""
    fit, other = fit_of(analysis, kind), analysis.field_fit_theil_sen if kind == "field" else analysis.lag_fit_theil_sen
    if fit is None or other is None:
        return NO_FIELD
    reason = fit.reason(0)
    if reason is not None:
        return textwrap.fill(f"T_spec undefined: {reason}", 34)
    value = with_error(float(fit.t_spec[0]), t_spec_error(analysis, kind))
    return (
        f"fit to modes {k[0]:.0f} to {k[-1]:.0f}, r² = {float(fit.r2[0]):.2f}\n"
        f"T_spec = {value}\nTheil-Sen: {t_spec(other, 0)}"
    )


def write_table(page: Page, analysis: LayerAnalysis, left: int, top: int) -> None:
    """Write the share of the energy, T_spec and H*(0.10) in every window, from a place in pixels.

    Under each value stands its standard error over documents, where it is known and the rows leave room.
    """
    field, lag = analysis.field, analysis.lag
    windows = range(len(analysis.window_names))
    columns = [
        (182, "energy", INK, [window_share(analysis, m) for m in windows]),
        (230, "T_spec", FIELD_COLOR, [t_spec(analysis.field_fit, m) for m in windows]),
        (260, "H*", FIELD_COLOR, [NONE if field is None else rank(field.eigenvalues[m]) for m in windows]),
        (312, "T_spec", LAG_COLOR, [t_spec(analysis.lag_fit, m) for m in windows]),
        (342, "H*", LAG_COLOR, [rank(lag.eigenvalues[m]) for m in windows]),
    ]
    page.text(left, top, "window")
    page.text(left + 260, top - 18, "field POD", color=FIELD_COLOR, ha="right", fontweight="bold")
    page.text(left + 342, top - 18, "lag POD", color=LAG_COLOR, ha="right", fontweight="bold")
    step = min(_ROW_WITH_ERRORS if analysis.confidence else 22, 264 / len(windows))
    rows = [top + 22 + step * m for m in windows]
    for m, row in enumerate(rows):
        page.swatch(left, row + 2, window_color(analysis, m))
        page.text(left + 16, row, ": ".join(window_name(analysis, m)), fontsize=8.5)
    for right, head, color, cells in columns:
        page.text(left + right, top, head, color=color, ha="right")
        for row, cell in zip(rows, cells, strict=True):
            page.text(left + right, row, cell, ha="right", fontsize=8.5)
    if step == _ROW_WITH_ERRORS:
        _write_errors(page, analysis, left, rows)


def _write_errors(page: Page, analysis: LayerAnalysis, left: int, rows: list[float]) -> None:
    """Standard errors, small, under the values of the table and to their digits."""
    kinds: tuple[tuple[Kind, int], ...] = (("field", 230), ("lag", 312))
    for kind, right in kinds:
        for m, row in enumerate(rows):
            for shift, decimals, error in (
                (0, 2, t_spec_error(analysis, kind, m)),
                (30, 1, h_star_error(analysis, kind, m)),
            ):
                if math.isfinite(error):
                    least = 10.0**-decimals
                    words = f"±{error:.{decimals}f}" if error >= least / 2 else f"<{least:.{decimals}f}"
                    page.text(left + right + shift, row + 13, words, ha="right", fontsize=7, color=MUTED)
