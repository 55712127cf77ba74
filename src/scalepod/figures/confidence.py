"""How far the numbers of every layer can be believed: more documents, other documents, other ranges of the fit."""

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from torch import Tensor

from ..analysis import LayerAnalysis
from ..confidence.groups import MIN_DOCUMENTS
from ..confidence.held_out import Captured
from ..spectrum import SpectralFit, effective_rank, spectral_concentration
from .axes import Array, count_axis
from .names import short_names, spread
from .page import Page
from .panels import ROW, Column, limits
from .style import FIELD_COLOR, LAG_COLOR, MUTED, own_style
from .words import (
    EPSILON,
    NO_ENERGY,
    NO_FIELD,
    Kind,
    convergence_of,
    eigenvalues_of,
    fit_of,
    h_star_error,
    layers_drawn,
    t_spec_error,
    what_errors_mean,
    with_error,
)

KINDS: tuple[tuple[Kind, str], ...] = (("field", FIELD_COLOR), ("lag", LAG_COLOR))
"""The two decompositions with their colours."""

_SHARES = np.array([0.25, 0.5, 1.0])  # of the documents
_FEWEST = 5  # modes in the shortest fit that is tried

# Places in pixels: top of the panels; left edges and widths of the four columns; width of the words in characters.
_TOP = 116
_H_STAR, _T_SPEC, _CAPTURED, _RANGES = (320, 106), (472, 106), (626, 168), (838, 178)
_WORDS = 44

_CAPTION = (
    "How to read: a number that describes the layer stays when the documents double; one that still grows counts them "
    "(dotted: as many patterns as documents). Held out: modes of one half of the documents, and the energy they hold "
    "in the other half; what only the dashed curve reaches is peculiar to its documents. Other ranges: where T_spec "
    "depends on the modes that are fitted, the spectrum is no power law; dot: the range that was used. Bars and ±: "
)


class FitRanges(NamedTuple):
    """T_spec of the fits that move one end of the range that was used."""

    last: Array
    """Last modes tried, with the first one as it was, [n]."""
    t_spec_last: Array
    """T_spec of these, [n]; NaN where undefined."""
    first: Array
    """First modes tried, with the last one as it was, [m]."""
    t_spec_first: Array
    """T_spec of these, [m]."""


def confidence_figure(analyses: Mapping[str, LayerAnalysis], title: str) -> Figure:
    """Draw how far the numbers of all layers can be believed, one row a layer.

    From the left: T_spec and H*(0.10) of field and lag POD with their standard errors, and in words what became of H*
    when the documents doubled, and how many modes other documents need; both values against the number of documents;
    the energy that the modes of one half of the documents hold in that half and in the other; T_spec against either end
    of the range of the power-law fit, with the range that was used.

    Args:
        analyses: Analyses by layer name, in the order in which the rows shall stand. Of more than 12 layers, 12 from
            the first to the last are drawn, and the figure says so.
        title: First line of the figure.

    Returns:
        A figure on an Agg canvas of its own, 1040 pixels wide; pyplot knows nothing of it.

    Raises:
        ValueError: If there is no layer.
    """
    if not analyses:
        raise ValueError("analyses is empty: a page of confidence needs at least one layer")
    places = spread(len(analyses))
    names = [short_names(list(analyses))[place] for place in places]
    layers = [list(analyses.values())[place] for place in places]
    with own_style():
        page = Page(_TOP + ROW * len(layers) + 96)
        page.heading(title, layers_drawn(list(analyses.values()), len(layers)))
        _write_heads(page)
        for row, (name, layer) in enumerate(zip(names, layers, strict=True)):
            _write_words(page, name, layer, _TOP + ROW * row)
        _draw_convergence(page, layers)
        _draw_captured(page, layers)
        _draw_fit_ranges(page, layers)
        page.caption(_CAPTION + what_errors_mean(layers) + ".")
    return page.figure


def fit_ranges(eigenvalues: Tensor, fit: SpectralFit, m: int = 0) -> FitRanges:
    """T_spec of a spectrum for ranges of the fit of which one end is moved, to twice the last mode at most.

    Args:
        eigenvalues: Descending eigenvalues, [n].
        fit: The fits of which one is that of the spectrum; its first and last mode are the range that was used.
        m: Its place.

    Returns:
        The values; empty for a fit without a range.
    """
    first, n_points = int(fit.first[m]), int(fit.n_points[m])
    last = first + n_points - 1
    reach = min(2 * last, int((eigenvalues > 0).sum()))
    lasts = np.arange(first + _FEWEST - 1, reach + 1 if n_points else 0)
    firsts = np.arange(1, last - _FEWEST + 2 if n_points else 0)
    ranges = [(first, int(end)) for end in lasts] + [(int(start), last) for start in firsts]
    if not ranges:
        return FitRanges(*(np.empty(0) for _ in range(4)))
    values = spectral_concentration(eigenvalues.expand(len(ranges), -1), torch.tensor(ranges)).t_spec.numpy()
    return FitRanges(lasts.astype(float), values[: len(lasts)], firsts.astype(float), values[len(lasts) :])


def _write_heads(page: Page) -> None:
    """What stands in which column, and what the lines mean."""
    page.text(16, 88, "field POD", color=FIELD_COLOR, fontweight="bold")
    page.text(92, 88, "lag POD", color=LAG_COLOR, fontweight="bold")
    page.text(_H_STAR[0], 68, "more documents", fontweight="bold")
    page.text(_CAPTURED[0], 68, "other documents", fontweight="bold")
    page.text(_RANGES[0], 68, "other ranges of the fit", fontweight="bold")
    page.text(_H_STAR[0], 88, "H*(0.10)")
    page.text(_T_SPEC[0], 88, "T_spec")
    page.text(_CAPTURED[0], 88, "energy, %: ― held out, ╌ in sample", fontsize=8)
    page.text(_RANGES[0], 88, "T_spec:  end ― or start ╌ moved", fontsize=8)


def _write_words(page: Page, name: str, layer: LayerAnalysis, top: int) -> None:
    """Name of a layer, and of each decomposition the main values and what can be said of them."""
    page.text(16, top - 4, name, fontweight="bold", fontsize=9.5)
    for (kind, color), below in zip(KINDS, (14, 78), strict=True):
        page.text(16, top + below, "\n".join(_words(layer, kind)), color=color, fontsize=8, linespacing=1.25)


def _words(layer: LayerAnalysis, kind: Kind) -> list[str]:
    """What is known of one decomposition of a layer: its values in a line of their own, then sentences, wrapped."""
    eigenvalues, fit = eigenvalues_of(layer, kind), fit_of(layer, kind)
    if eigenvalues is None or fit is None:
        return [NO_FIELD]
    if not float(eigenvalues[0].sum()) > 0:
        return [textwrap.fill(NO_ENERGY, _WORDS)]
    value = "undefined"
    if math.isfinite(float(fit.t_spec[0])):
        value = f"{with_error(float(fit.t_spec[0]), t_spec_error(layer, kind))} (r² {float(fit.r2[0]):.2f})"
    h_star = int(effective_rank(eigenvalues[0], EPSILON))
    lines = [f"T_spec {value}, H* {with_error(h_star, h_star_error(layer, kind))}"]
    if layer.confidence is None:
        said = [f"no confidence: switched off, or fewer than {MIN_DOCUMENTS} documents"]
    else:
        settled = convergence_of(layer, kind)
        said = ["H*(0.10) was not asked for" if settled is None else settled.verdict()]
        said.append(_held_out_words(layer.confidence.heldout_ranks(EPSILON)[kind]))
    return lines + [textwrap.fill(line, _WORDS) for line in said]


def _held_out_words(needed: float) -> str:
    """How many modes of one half of the documents the other half needs."""
    if math.isnan(needed):
        return "held out: undefined, a half has no energy"
    if math.isinf(needed):
        return "held out: even all modes hold less than 90 %"
    return f"held out: {needed:.0f} modes hold 90 %"


def _draw_convergence(page: Page, layers: Sequence[LayerAnalysis]) -> None:
    """H*(0.10) and T_spec of a quarter, half and all of the documents."""
    found = [(row, kind, color, convergence_of(layer, kind)) for row, kind, color, layer in _each(layers)]
    ranks = [n for *_, level in found if level is not None for n in level.h_star[0].tolist()]
    slopes = [value for *_, level in found if level is not None for value in level.t_spec.tolist()]
    h_star = Column(page, _H_STAR[0], _TOP, _H_STAR[1], len(layers), *limits(ranks, 4.0))
    slope = Column(page, _T_SPEC[0], _TOP, _T_SPEC[1], len(layers), *limits(slopes, 4.0))
    for row in {row for row, *_, level in found if level is not None}:
        share = np.geomspace(0.25, 1, 40)
        n = share * layers[row].n_snapshots
        inside = (n >= h_star.low) & (n <= h_star.high)
        h_star.plot(row, share, np.where(inside, n, np.nan), color=MUTED, linewidth=0.9, linestyle=(0, (1, 1.2)))
    for row, kind, color, level in found:
        if level is not None:
            style = {"color": color, "marker": "o", "markersize": 3.5, "linewidth": 1.2}
            h_star.plot(row, _SHARES, level.h_star[0].numpy(), **style)
            slope.plot(row, _SHARES, level.t_spec.numpy(), **style)
            h_star.bar(row, 1.0, float(level.h_star[0, 2]), h_star_error(layers[row], kind), color)
            slope.bar(row, 1.0, float(level.t_spec[2]), t_spec_error(layers[row], kind), color)
    for column in (h_star, slope):
        column.ax.set_xscale("log", base=2)
        column.ax.set_xlim(0.22, 1.14)
        column.ax.set_xticks(_SHARES.tolist(), labels=["N/4", "N/2", "N"])
        column.ax.xaxis.set_minor_locator(NullLocator())
        column.ax.set_xlabel("documents")


def _draw_captured(page: Page, layers: Sequence[LayerAnalysis]) -> None:
    """Energy that the modes of half the documents hold in it and in the other half, with H*(0.10) of the latter."""
    column = Column(page, _CAPTURED[0], _TOP, _CAPTURED[1], len(layers), 0, 105, log=False, ticks=(0, 50, 90))
    for row, kind, color, layer in _each(layers):
        curves = _captured(layer, kind)
        if layer.confidence is None or curves is None:
            continue
        modes = np.arange(1, len(curves.held_out))
        column.plot(row, modes, 100 * curves.in_sample[1:].numpy(), color=color, linestyle=(0, (4, 1.5)), linewidth=1)
        column.plot(row, modes, 100 * curves.held_out[1:].numpy(), color=color, linewidth=1.3)
        needed = layer.confidence.heldout_ranks(EPSILON)[kind]
        if math.isfinite(needed):
            column.plot(row, [needed], [90.0], color=color, marker="o", markersize=4.5, linestyle="none")
    count_axis(column.ax)
    column.ax.set_xlabel("number of modes")


def _captured(layer: LayerAnalysis, kind: Kind) -> Captured | None:
    if layer.confidence is None:
        return None
    return layer.confidence.field_held_out if kind == "field" else layer.confidence.lag_held_out


def _draw_fit_ranges(page: Page, layers: Sequence[LayerAnalysis]) -> None:
    """T_spec against either end of the range of the fit; a dot at the range that was used."""
    found = []
    for row, kind, color, layer in _each(layers):
        eigenvalues, fit = eigenvalues_of(layer, kind), fit_of(layer, kind)
        if eigenvalues is not None and fit is not None:
            found.append((row, color, fit, fit_ranges(eigenvalues[0], fit)))
    values = [value for *_, ranges in found for part in (ranges.t_spec_last, ranges.t_spec_first) for value in part]
    column = Column(page, _RANGES[0], _TOP, _RANGES[1], len(layers), *limits(values, 4.0))
    for row, color, fit, ranges in found:
        column.plot(row, ranges.first, ranges.t_spec_first, color=color, linewidth=1, linestyle=(0, (4, 1.5)))
        column.plot(row, ranges.last, ranges.t_spec_last, color=color, linewidth=1.3)
        used = float(fit.t_spec[0])
        if math.isfinite(used):
            column.plot(row, [float(fit.first[0] + fit.n_points[0] - 1)], [used], color=color, marker="o",
                        markersize=4.5, linestyle="none")  # fmt: skip
    count_axis(column.ax)
    column.ax.set_xlabel("mode it is moved to")


def _each(layers: Sequence[LayerAnalysis]) -> Iterator[tuple[int, Kind, str, LayerAnalysis]]:
    """Row, decomposition, its colour, and layer."""
    for row, layer in enumerate(layers):
        for kind, color in KINDS:
            yield row, kind, color, layer
