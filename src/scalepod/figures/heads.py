"""Whether the heads of every layer do the same, beside what the effective ranks of the layer say."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from torch import Tensor

from ..analysis import LayerAnalysis
from ..heads import HeadRedundancy
from ..spectrum import effective_rank
from .names import short_names, spread
from .page import Page
from .panels import PANEL, ROW
from .style import FIELD_COLOR, INK, LAG_COLOR, MODE_COLORMAP, MUTED, own_style
from .words import NO_ENERGY, NONE, band_windows, eigenvalues_of, layers_drawn, percent, window_name

_EPSILONS = (0.10, 0.05, 0.01)
_MOST_BANDS = 3

# Places in pixels: top of the first row; left edges of the maps, and the side of the small ones; the table.
_TOP = 120
_WHOLE, _BANDS, _SMALL = 216, 374, 92
_TABLE, _CELL = 832, 62

_CAPTION = (
    "How to read: red = two heads vary together from document to document, white = nothing in common, blue = one has "
    "more where the other has less; grey = a head that does not vary. Distinct: equally strong heads without anything "
    "in common that it amounts to. H* counts patterns of the mean over heads by which documents differ, not heads: a "
    "layer may have an H* of 100 and heads that all do the same, or an H* of 1 and no two heads alike. So H* does not "
    "say how many heads can be pruned; nor are alike heads enough: where they look is compared, not what they pass on."
)


def heads_figure(
    redundancies: Mapping[str, HeadRedundancy], analyses: Mapping[str, LayerAnalysis], title: str
) -> Figure:
    """Draw how alike the heads of all layers are, one row a layer.

    From the left: the number of distinct heads, and the share of the heads' energy that their mean keeps; the cosine
    between the fluctuations of every two heads, of all lags and in up to three bands; how many principal directions of
    the heads hold 90, 95 and 99 % of their energy, beside the effective ranks of the layer.

    Args:
        redundancies: The comparison of the heads by layer name, in the order in which the rows shall stand, in the
            windows of the layer's analysis (the last may be missing). Of more than 12 layers, 12 from the first to the
            last are drawn, and the figure says so.
        analyses: Analyses by layer name, of these layers at least.
        title: First line of the figure.

    Returns:
        A figure on an Agg canvas of its own, 1040 pixels wide; pyplot knows nothing of it.

    Raises:
        ValueError: If there is no layer, a layer has no analysis, or fewer windows than the comparison of its heads.
    """
    _check(redundancies, analyses)
    places = spread(len(redundancies))
    names = [list(redundancies)[place] for place in places]
    short = short_names(list(redundancies))
    with own_style():
        page = Page(_TOP + ROW * len(names) + 104)
        page.heading(title, layers_drawn([analyses[name] for name in redundancies], len(names)))
        _write_heads(page)
        maps = _map_axes(page, len(names))
        for row, (place, name) in enumerate(zip(places, names, strict=True)):
            top = _TOP + ROW * row
            _write_words(page, short[place], redundancies[name], top)
            _draw_maps(page, maps, redundancies[name], analyses[name], top)
            _write_table(page, redundancies[name], analyses[name], top)
        page.caption(_CAPTION)
    return page.figure


def _check(redundancies: Mapping[str, HeadRedundancy], analyses: Mapping[str, LayerAnalysis]) -> None:
    if not redundancies:
        raise ValueError("redundancies is empty: a page of heads needs at least one layer")
    for name, redundancy in redundancies.items():
        if name not in analyses:
            raise ValueError(f"analyses has no layer {name!r}, whose heads are compared: give both for the same layers")
        found, known = len(redundancy.distinct), len(analyses[name].window_names)
        if not 0 < found <= known:
            raise ValueError(
                f"the heads of {name!r} are compared in {found} windows, but its analysis has {known}: compare them in "
                "the windows of the analysis"
            )


def _write_heads(page: Page) -> None:
    """What stands in which column, and the colours of the maps."""
    page.text(_WHOLE, 74, "heads × heads: cosine of fluctuations", fontweight="bold")
    bar = page.figure.colorbar(ScalarMappable(Normalize(-1, 1), MODE_COLORMAP), ticks=[], orientation="horizontal",
                               cax=page.axes(554, 77, 92, 9))  # fmt: skip
    bar.outline.set_visible(False)
    page.text(548, 75, "\N{MINUS SIGN}1", ha="right", fontsize=8)
    page.text(652, 75, "1", fontsize=8)
    page.text(_TABLE - 118, 58, "needed for this share of the energy", fontweight="bold")
    for k, epsilon in enumerate(_EPSILONS):
        page.text(_TABLE + _CELL * (k + 1), 76, f"{100 * (1 - epsilon):.0f} %", ha="right")


def _write_words(page: Page, name: str, redundancy: HeadRedundancy, top: int) -> None:
    """Name of a layer, its distinct heads, and what their mean keeps."""
    page.text(16, top - 4, name, fontweight="bold", fontsize=9.5)
    n_heads = redundancy.energy.shape[-1]
    distinct, kept = float(redundancy.distinct[0]), float(redundancy.mean_share[0])
    if not float(redundancy.energy[0].sum()) > 0:
        page.text(16, top + 18, NO_ENERGY.replace(": ", ":\n"), fontsize=8, linespacing=1.4)
        return
    page.text(16, top + 18, f"{distinct:.1f} distinct heads", fontsize=11)
    page.text(16, top + 36, f"of {n_heads}", color=MUTED)
    kept_words = f"their mean keeps {percent(kept)} of\ntheir energy ({percent(1 / n_heads)} if unrelated);"
    page.text(16, top + 62, f"{kept_words}\nall other figures show that", fontsize=8, linespacing=1.4)


def _map_axes(page: Page, n_rows: int) -> Axes:
    """One pair of axes, in the pixels of the page, for the maps of all rows."""
    height = ROW * n_rows
    ax = page.axes(0, _TOP, _TABLE - 130, height)
    ax.set_xlim(0, _TABLE - 130)
    ax.set_ylim(_TOP + height, _TOP)
    ax.set_axis_off()
    return ax


def _draw_maps(page: Page, ax: Axes, redundancy: HeadRedundancy, analysis: LayerAnalysis, top: int) -> None:
    """Similarity of the heads in all lags, and smaller in the bands."""
    bands = [m for m in band_windows(analysis) if m < len(redundancy.distinct)][:_MOST_BANDS]
    _draw_map(ax, redundancy.similarity[0], _WHOLE, top, PANEL)
    last = redundancy.energy.shape[-1] - 1
    for number, place in {0: 0.5, last: last + 0.5}.items():
        page.text(_WHOLE - 5, top + PANEL * place / (last + 1), str(number), ha="right", va="center", fontsize=8)
        page.text(_WHOLE + PANEL * place / (last + 1), top + PANEL + 3, str(number), ha="center", fontsize=8)
    page.text(_WHOLE, top - 4, "whole: all lags", fontsize=8.5, va="bottom")
    for k, m in enumerate(bands):
        left = _BANDS + k * (_SMALL + 16)
        _draw_map(ax, redundancy.similarity[m], left, top, _SMALL)
        page.text(left, top - 4, ": ".join(window_name(analysis, m)), fontsize=8.5, va="bottom")
        distinct = float(redundancy.distinct[m])
        page.text(left, top + _SMALL + 4, f"{distinct:.1f} distinct" if np.isfinite(distinct) else "no energy",
                  fontsize=8)  # fmt: skip


def _draw_map(ax: Axes, similarity: Tensor, left: float, top: float, size: float) -> None:
    """One matrix at a place in pixels; a pair of axes for each would take longer to draw than all of them."""
    values = np.ma.masked_invalid(similarity.double().numpy())
    limits = ax.get_xlim(), ax.get_ylim()
    ax.imshow(values, cmap=MODE_COLORMAP, vmin=-1, vmax=1, extent=(left, left + size, top + size, top), aspect="auto",
              interpolation="nearest")  # fmt: skip
    ax.set_xlim(limits[0])
    ax.set_ylim(limits[1])


def _write_table(page: Page, redundancy: HeadRedundancy, analysis: LayerAnalysis, top: int) -> None:
    """Heads needed beside the effective ranks of the layer, by share of the energy."""
    heads: Sequence[int] = [int(redundancy.needed(epsilon)[0]) for epsilon in _EPSILONS]
    lines: list[tuple[str, str, list[str]]] = [("heads", INK, [str(n or NONE) for n in heads])]
    for name, color, eigenvalues in (
        ("lag H*", LAG_COLOR, eigenvalues_of(analysis, "lag")),
        ("field H*", FIELD_COLOR, eigenvalues_of(analysis, "field")),
    ):
        ranks = [0 if eigenvalues is None else int(effective_rank(eigenvalues[0], epsilon)) for epsilon in _EPSILONS]
        lines.append((name, color, [str(n or NONE) for n in ranks]))
    for row, (name, color, cells) in enumerate(lines):
        page.text(_TABLE - 118, top + 24 * row, name, color=color)
        for k, cell in enumerate(cells):
            page.text(_TABLE + _CELL * (k + 1), top + 24 * row, cell, color=color, ha="right")
