"""What the figures say in words: what was analysed, names of windows, values with their errors."""

import math

from torch import Tensor

from ..analysis import LayerAnalysis
from ..spectrum import SpectralFit, effective_rank
from .page import shorten
from .style import DOMINANT_COLOR, INK, band_colors

EPSILON = 0.10
"""The residual energy of the effective rank that every figure shows: H*(0.10) modes hold 90 % of the energy."""
NO_ENERGY = "no energy: the same attention in every document"
NONE = "–"
"""Stands where there is no value."""


def subtitle(analysis: LayerAnalysis) -> str:
    """What was analysed: how many documents, how long, with which options."""
    parts = [f"{analysis.n_snapshots} documents of {analysis.n_tokens} tokens"]
    if analysis.n_skipped:
        parts.append(f"{analysis.n_skipped} left out (NaN, infinity, or no query)")
    if analysis.burn_in:
        parts.append(f"first {analysis.burn_in} queries left out")
    if analysis.n_queries < analysis.n_tokens - analysis.burn_in:
        parts.append(f"{analysis.n_queries:.3g} queries each on average, the rest padding")
    if analysis.signed:
        parts.append("looks both ways, in token or patch order")
    parts.append(f"energy of the fluctuation {analysis.energy:.3g}")
    if math.isfinite(analysis.mean_lag):
        parts.append(f"mean {'|lag|' if analysis.signed else 'lag'} {analysis.mean_lag:.3g} tokens")
    return "   ·   ".join(parts)


def band_windows(analysis: LayerAnalysis) -> range:
    """Indices of the windows that are fixed bands."""
    return range(1, len(analysis.window_names) - len(analysis.dominant_lags))


def dominant_windows(analysis: LayerAnalysis) -> range:
    """Indices of the windows at the dominant lags, highest peak of E(a) first."""
    count = len(analysis.window_names)
    return range(count - len(analysis.dominant_lags), count)


def window_color(analysis: LayerAnalysis, m: int) -> str:
    """Colour of window m wherever it is drawn."""
    if m in dominant_windows(analysis):
        return DOMINANT_COLOR
    bands = [analysis.window_names[i] for i in band_windows(analysis)]
    return INK if m == 0 else band_colors(bands)[analysis.window_names[m]]


def window_name(analysis: LayerAnalysis, m: int) -> tuple[str, str]:
    """Name of window m, shortened where it is long, and the lags around which it lets attention through."""
    if m == 0:
        return "whole", "all lags"
    name = "dominant" if m in dominant_windows(analysis) else analysis.window_names[m]
    return shorten(name, 9), f"lag {analysis.window_lags[m]:.3g}"


def window_share(analysis: LayerAnalysis, m: int) -> str:
    """Energy that passes window m, as a share of the whole fluctuation's."""
    whole = float(analysis.lag.eigenvalues[0].sum())
    return percent(float(analysis.lag.eigenvalues[m].sum()) / whole) if whole > 0 else NONE


def percent(share: float) -> str:
    """A share of the energy as it is printed.

    Example:
        >>> percent(0.3333), percent(0.0456), percent(0.0001)
        ('33 %', '4.6 %', '< 0.1 %')
    """
    value = 100 * share
    if value == 0 or value >= 9.95:
        return f"{value:.0f} %"
    return f"{value:.1f} %" if value >= 0.1 else "< 0.1 %"


def rank(eigenvalues: Tensor) -> str:
    """H*(0.10) of a spectrum as it is printed."""
    return str(int(effective_rank(eigenvalues, EPSILON)) or NONE)


def t_spec_error(fit: SpectralFit, m: int) -> float:
    """Standard error of T_spec = 1 / beta, which is stderr(beta) / beta^2."""
    return float(fit.stderr[m]) * float(fit.t_spec[m]) ** 2


def t_spec(fit: SpectralFit | None, m: int) -> str:
    """T_spec of window m as it is printed."""
    value = math.nan if fit is None else float(fit.t_spec[m])
    return f"{value:.2f}" if math.isfinite(value) else NONE
