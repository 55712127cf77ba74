"""What the figures say in words: what was analysed, names of windows, values with their errors."""

import math
from collections.abc import Iterable, Sequence
from typing import Literal

from torch import Tensor

from ..analysis import LayerAnalysis, epsilon_name
from ..confidence.convergence import Convergence
from ..spectrum import SpectralFit, effective_rank
from .page import shorten
from .style import DOMINANT_COLOR, INK, band_colors

EPSILON = 0.10
"""The residual energy of the effective rank that every figure shows: H*(0.10) modes hold 90 % of the energy."""
NO_ENERGY = "no energy: the same attention in every document"
NONE = "–"
"""Stands where there is no value."""
NO_FIELD = "the field POD was switched off"
NO_STRUCTURE = "no coherent structure"
"""What the surrogates of `scalepod.confidence.null` are called in the legends."""

Kind = Literal["field", "lag"]
"""Which of the two decompositions."""


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
    energy = with_error(analysis.energy, document_error(analysis, "energy"))
    parts.append(f"energy of the fluctuation {energy}")
    if math.isfinite(analysis.mean_lag):
        lag = with_error(analysis.mean_lag, document_error(analysis, "mean_lag"))
        parts.append(f"mean {'|lag|' if analysis.signed else 'lag'} {lag} tokens")
    return "   ·   ".join(parts)


def layers_drawn(layers: Sequence[LayerAnalysis], drawn: int) -> str:
    """How many layers, how many of them on the page, and the documents they were analysed with."""
    spans = []
    for counts in ({layer.n_snapshots for layer in layers}, {layer.n_tokens for layer in layers}):
        low, high = min(counts), max(counts)
        spans.append(f"{low} to {high}" if low < high else str(low))
    which = f"{len(layers)} layer{'s' * (len(layers) > 1)}"
    if drawn < len(layers):
        which = f"{drawn} of {which}, evenly spread"
    return f"{which}   ·   {spans[0]} documents of {spans[1]} tokens"


def what_errors_mean(layers: Iterable[LayerAnalysis]) -> str:
    """Which standard errors the figures of these layers give: of the documents, of the fit, or some of each."""
    known = {layer.confidence is not None for layer in layers}
    of_documents = "one standard error over the choice of documents (jackknife)"
    of_fit = "the standard error of the line alone, which says nothing of other documents"
    if known == {True}:
        return of_documents
    return of_fit if known == {False} else f"{of_documents}; of layers without confidence {of_fit}"


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


def t_spec(fit: SpectralFit | None, m: int) -> str:
    """T_spec of window m as it is printed."""
    value = math.nan if fit is None else float(fit.t_spec[m])
    return f"{value:.2f}" if math.isfinite(value) else NONE


def fit_of(analysis: LayerAnalysis, kind: Kind) -> SpectralFit | None:
    """The power-law fits of one decomposition; None when it was switched off."""
    return analysis.field_fit if kind == "field" else analysis.lag_fit


def eigenvalues_of(analysis: LayerAnalysis, kind: Kind) -> Tensor | None:
    """The spectra of one decomposition, [M, n]; None when it was switched off."""
    pod = analysis.field if kind == "field" else analysis.lag
    return None if pod is None else pod.eigenvalues


def convergence_of(analysis: LayerAnalysis, kind: Kind) -> Convergence | None:
    """T_spec and H*(0.10) of one decomposition against the number of documents; None when that is not known."""
    if analysis.confidence is None or EPSILON not in analysis.epsilons:
        return None
    found = analysis.confidence.field_convergence if kind == "field" else analysis.confidence.lag_convergence
    place = analysis.epsilons.index(EPSILON)
    return None if found is None else found._replace(h_star=found.h_star[place : place + 1])


def document_error(analysis: LayerAnalysis, quantity: str) -> float:
    """Jackknife standard error of a logged value; NaN where it is not known."""
    return math.nan if analysis.confidence is None else analysis.confidence.stderrs().get(quantity, math.nan)


def t_spec_error(analysis: LayerAnalysis, kind: Kind, m: int = 0) -> float:
    """Standard error of T_spec of window m: over documents, or without confidence that of the fit; NaN if undefined."""
    fit = fit_of(analysis, kind)
    if analysis.confidence is None:
        return math.nan if fit is None else float(fit.t_spec_stderr[m])
    return document_error(analysis, _quantity(analysis, kind, "t_spec", m))


def h_star_error(analysis: LayerAnalysis, kind: Kind, m: int = 0) -> float:
    """Standard error over documents of H*(0.10) of window m; NaN where it is not known."""
    return document_error(analysis, _quantity(analysis, kind, f"h_star_{epsilon_name(EPSILON)}", m))


def with_error(value: float, error: float) -> str:
    """A value to the digits that its standard error leaves it; whole numbers stay whole. Without an error three digits.

    Example:
        >>> with_error(3.2267, 0.1977), with_error(0.2417, 0.0063), with_error(48, 0.92)
        ('3.23 ± 0.20', '0.242 ± 0.006', '48 ± 0.9')
    """
    if not math.isfinite(error):
        return f"{value:.3g}"
    if not error > 0:
        return f"{value:.3g} ± 0"
    mantissa, exponent = f"{error:.1e}".split("e")
    decimals = max(0, (mantissa[0] in "12") - int(exponent))  # two digits of an error that begins with 1 or 2, else one
    return f"{value:.{0 if isinstance(value, int) else decimals}f} ± {error:.{decimals}f}"


def _quantity(analysis: LayerAnalysis, kind: Kind, name: str, m: int) -> str:
    """The logged name of a value of window m; one of a dominant scale is not logged, and its name finds nothing."""
    return f"{'lag_' if kind == 'lag' else ''}{name}" + (f"_{analysis.window_names[m]}" if m else "")
