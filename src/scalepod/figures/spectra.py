"""Eigenvalue spectra with the power laws fitted to them, and a table of the values of every window."""

import math
import textwrap

import numpy as np
from matplotlib.axes import Axes
from torch import Tensor

from ..analysis import LayerAnalysis
from ..spectrum import SpectralFit, effective_rank
from .axes import Array, decade_axis, say
from .page import Page
from .style import FIELD_COLOR, INK, LAG_COLOR
from .words import (
    EPSILON,
    NO_ENERGY,
    NONE,
    rank,
    t_spec,
    t_spec_error,
    window_color,
    window_name,
    window_share,
)

_LOWEST = 1e-8  # share of the energy below which eigenvalues are not shown


def draw_spectra(page: Page, analysis: LayerAnalysis, top: int) -> None:
    """Draw the spectra of field and lag POD of the whole fluctuation side by side, top at a place in pixels."""
    for left, name, color, pod, fit in (
        (64, "field", FIELD_COLOR, analysis.field, analysis.field_fit),
        (378, "lag", LAG_COLOR, analysis.lag, analysis.lag_fit),
    ):
        ax = page.axes(left, top, 262, 250)
        ax.set_title(f"{name} POD spectrum, all lags", loc="left", color=color, fontweight="bold")
        ax.set_xlabel("mode number k")
        if left == 64:
            ax.set_ylabel("share of energy, λₖ / Σλ")
        if pod is None or fit is None:
            say(ax, "the field POD was switched off")
        elif float(pod.eigenvalues[0].sum()) <= 0:
            say(ax, NO_ENERGY)
        else:
            _draw_spectrum(ax, pod.eigenvalues[0], fit, color)


def _draw_spectrum(ax: Axes, eigenvalues: Tensor, fit: SpectralFit, color: str) -> None:
    """Share of the energy by mode number, log-log, with the fitted line and H*(0.10)."""
    share = (eigenvalues[eigenvalues > 0].double() / eigenvalues.double().sum()).numpy()
    ax.plot(np.arange(1, len(share) + 1), share, marker="o", markersize=2.5, linestyle="none", color=color,
            label="eigenvalues")  # fmt: skip
    k, line = _fitted_line(share, fit)
    ax.plot(k, line, color=INK, linewidth=1.2, linestyle="-" if len(k) else "none", label=_fit_words(fit, k))
    h_star = int(effective_rank(eigenvalues, EPSILON))
    top = 1.5 * max(1.0, float(line.max(initial=0)))
    ax.vlines(h_star, share[h_star - 1], top, color=color, linestyle=(0, (1, 1)), label=f"H*(0.10) = {h_star}")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(0.8, 1.25 * max(len(share), 10))
    middle = float(share[round(len(share) ** 0.6) - 1])  # kept in the upper half: the legend stands below the curve
    ax.set_ylim(min(max(float(share[-1]) / 2, _LOWEST), middle**2 / top), top)
    decade_axis(ax.xaxis)
    decade_axis(ax.yaxis)
    ax.legend(loc="lower left", handlelength=1.4)


def _fitted_line(share: Array, fit: SpectralFit) -> tuple[Array, Array]:
    """The least-squares line over the modes that were fitted; it passes through the mean of their logarithms."""
    beta = float(fit.beta[0])
    if not math.isfinite(beta):
        return np.empty(0), np.empty(0)
    first = int(fit.first[0])
    k = np.arange(first, first + int(fit.n_points[0]), dtype=np.float64)
    x, y = np.log(k), np.log(share[first - 1 : first - 1 + len(k)])
    return k, np.asarray(np.exp(y.mean() - beta * (x - x.mean())))


def _fit_words(fit: SpectralFit, k: Array) -> str:
    """The legend of the fitted line."""
    reason = fit.reason(0)
    if reason is not None:
        return textwrap.fill(f"T_spec undefined: {reason}", 34)
    value = f"T_spec = {t_spec(fit, 0)} ± {t_spec_error(fit, 0):.2f}"
    return f"fit to modes {k[0]:.0f} to {k[-1]:.0f}:\n{value}\nr² = {float(fit.r2[0]):.2f}"


def write_table(page: Page, analysis: LayerAnalysis, left: int, top: int) -> None:
    """Write the share of the energy, T_spec and H*(0.10) in every window, from a place in pixels."""
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
    rows = [top + 22 + min(22, 264 / len(windows)) * m for m in windows]
    for m, row in enumerate(rows):
        page.swatch(left, row + 2, window_color(analysis, m))
        page.text(left + 16, row, ": ".join(window_name(analysis, m)), fontsize=8.5)
    for right, head, color, cells in columns:
        page.text(left + right, top, head, color=color, ha="right")
        for row, cell in zip(rows, cells, strict=True):
            page.text(left + right, row, cell, ha="right", fontsize=8.5)
