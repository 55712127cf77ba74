"""The modes of one layer: field modes as maps, their lag profiles, and the lag-POD modes, window by window."""

import math
import textwrap
from typing import Literal

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from ..analysis import LayerAnalysis
from ..field import lags, to_lag
from ..pod import degenerate_pairs
from ..tracking import DOMINANT, ShownModes, Tracked, colour_limit
from .axes import Array, lag_axis
from .page import Page
from .style import FAINT, FIELD_COLOR, LAG_COLOR, MODE_COLORMAP, MODE_GLYPHS, MODE_STYLES, MUTED, own_style
from .words import (
    NO_ENERGY,
    NONE,
    Kind,
    band_windows,
    dominant_windows,
    eigenvalues_of,
    percent,
    rank,
    subtitle,
    t_spec,
    window_color,
    window_name,
    window_share,
)

_MAX_ROWS = 5
_MAX_MODES = len(MODE_STYLES)
_MIN_BLOCK = 48  # fewest tokens of a map that are drawn, where the text has as many

# Places in pixels: top and distance of the rows; left edge of the columns; side of a map, gap, width of a curve panel.
_TOP, _ROW = 104, 212
_LEFT, _PROFILE, _LAG = 206, 746, 902
_MAP, _GAP, _PANEL = 164, 10, 124


def modes_figure(analysis: LayerAnalysis, title: str, tracked: Tracked | None = None) -> Figure:
    """Draw the POD modes of a layer: what the attention of documents differs by, and at which lags.

    One row a window: the whole fluctuation, the first dominant scale and the fixed bands, at most five rows. In a row
    stand the leading field modes as query x key maps, under a diverging map symmetric about zero; the mean over
    queries of each of them at every lag; and the leading lag-POD modes, before the shape of the window.

    Of a window of lags that are short beside the text, a map shows only the block of tokens in which the modes have
    most energy: elsewhere it would be empty but for a thin line along the diagonal.

    Args:
        analysis: The analysis of the layer. Without field POD only the lag modes are drawn.
        title: First line of the figure, such as the layer's name.
        tracked: The modes of the analysis in the order, with the signs and in the colours of earlier pictures, so that
            a series of pictures shows them evolve; the number over a mode is its place by energy all the same. None
            for the modes by energy.

    Returns:
        A figure on an Agg canvas of its own, 1040 pixels wide; pyplot knows nothing of it.

    Raises:
        ValueError: If a window that is drawn is not among the tracked ones.
    """
    rows = _rows(analysis)
    with own_style():
        page = Page(_TOP + _ROW * len(rows) + 86)
        page.heading(title, subtitle(analysis))
        _write_columns(page, analysis)
        for position, m in enumerate(rows):
            field = None if analysis.field is None else _shown(analysis, tracked, "field", m)
            lag = _shown(analysis, tracked, "lag", m)
            _draw_row(page, analysis, m, (field, lag), _TOP + _ROW * position, last=m == rows[-1])
        page.caption(_caption(analysis, tracked))
    return page.figure


def _shown(analysis: LayerAnalysis, tracked: Tracked | None, kind: Kind, m: int) -> ShownModes:
    """The modes to draw of a window: as they are tracked, else by energy, marked where the next is not apart."""
    pod, eigenvalues = analysis.field if kind == "field" else analysis.lag, eigenvalues_of(analysis, kind)
    if tracked is not None:
        name = DOMINANT if m in dominant_windows(analysis) else analysis.window_names[m]
        known = tracked.field if kind == "field" else tracked.lag
        if name not in known:
            raise ValueError(f"the {kind} modes of window {name!r} are not tracked, only those of {sorted(known)}")
        modes, energies, ranks, mixed, limit = known[name]
        return ShownModes(modes[:_MAX_MODES], energies[:_MAX_MODES], ranks[:_MAX_MODES], mixed[:_MAX_MODES], limit)
    if pod is None or eigenvalues is None:
        raise ValueError(f"the analysis has no {kind} modes")
    modes = pod.modes[m][:_MAX_MODES]
    missing = max(0, len(modes) - len(eigenvalues[m]))
    energies = torch.nn.functional.pad(eigenvalues[m][: len(modes)], (0, missing))
    mixed = torch.nn.functional.pad(degenerate_pairs(eigenvalues[m], analysis.n_snapshots), (0, missing + 1))
    return ShownModes(modes, energies, torch.arange(len(modes)), mixed[: len(modes)], colour_limit(modes))


def _rows(analysis: LayerAnalysis) -> list[int]:
    """The windows to draw: the whole, as many bands as there is room for, by lag, and the first dominant scale.

    The bands have the same rows in every picture of a series; the dominant scale moves, and comes and goes.
    """
    dominant = dominant_windows(analysis)[:1]
    bands = sorted(band_windows(analysis)[: _MAX_ROWS - 1 - len(dominant)], key=lambda m: analysis.window_lags[m])
    return [0, *bands, *dominant]


def _caption(analysis: LayerAnalysis, tracked: Tracked | None) -> str:
    text = (
        "How to read: a mode is a pattern by which documents differ from their mean attention. Where a document has "
        "more of it, the red (or positive) places get more attention and the blue ones less; the overall sign is "
        "arbitrary. %: share of the energy that the row's window (grey shape) lets through. "
    )
    if analysis.field is None:
        return text + "The field POD was switched off."
    return text + (
        "Field modes tell where in the text (of short lags, the part with most energy is shown); lag modes only how "
        "far back. ≈: the documents are too few to tell this mode from "
        + ("the next." if tracked is None else "others; they were turned together towards the last picture's.")
    )


def _write_columns(page: Page, analysis: LayerAnalysis) -> None:
    """What stands in which column, above the first row, and the colours of the maps."""
    if analysis.field is not None:
        page.text(_LEFT, 66, "field POD modes: query × key", color=FIELD_COLOR, fontweight="bold")
        page.text(_PROFILE, 66, "their lag profiles", color=FIELD_COLOR, fontweight="bold")
        colors = ScalarMappable(Normalize(-1, 1), MODE_COLORMAP)
        bar = page.figure.colorbar(colors, cax=page.axes(536, 68, 128, 9), orientation="horizontal", ticks=[])
        bar.outline.set_visible(False)
        page.text(530, 66, "\N{MINUS SIGN}limit", ha="right", fontsize=8)
        page.text(670, 66, "+limit", fontsize=8)
    page.text(_LEFT if analysis.field is None else _LAG, 66, "lag POD modes", color=LAG_COLOR, fontweight="bold")


def _draw_row(
    page: Page, analysis: LayerAnalysis, m: int, shown: tuple[ShownModes | None, ShownModes], top: int, *, last: bool
) -> None:
    """One window: values, maps, lag profiles, lag modes."""
    page.swatch(16, top, window_color(analysis, m))
    page.text(32, top - 2, "\n".join(window_name(analysis, m)), fontsize=9.5, fontweight="bold")
    values = _values(analysis, m)
    field, lag = shown
    if field is not None:
        modes = field.modes.double()
        if field.limit:
            values.append(f"colour limit ±{field.limit:.2g}")
        _draw_maps(page, analysis, m, modes.numpy(), field.limit or 1.0, top, last=last)
        _write_shares(page, field, _energy(analysis, "field", m), top)
        ax = page.axes(_PROFILE, top, _PANEL, _MAP)
        _draw_curves(ax, analysis, m, to_lag(modes, analysis.signed).mean(-2).numpy(), FIELD_COLOR, last=last)
        ax.set_ylabel("mean over queries")
        numbers = zip(MODE_GLYPHS, field.ranks.tolist(), strict=False)
        ax.set_title("   ".join(f"{glyph} {place + 1}" for glyph, place in numbers), color=FIELD_COLOR)
    page.text(16, top + 40, "\n".join(values), fontsize=8, linespacing=1.5)
    ax = page.axes(_LEFT, top, 818, _MAP) if field is None else page.axes(_LAG, top, _PANEL, _MAP)
    _draw_curves(ax, analysis, m, lag.modes.double().numpy(), LAG_COLOR, last=last)
    ax.set_ylabel("lag mode")
    ax.set_title(_lag_shares(lag, _energy(analysis, "lag", m)), color=LAG_COLOR)


def _energy(analysis: LayerAnalysis, kind: Kind, m: int) -> float:
    """Energy in a window, of all modes."""
    eigenvalues = eigenvalues_of(analysis, kind)
    return 0.0 if eigenvalues is None else float(eigenvalues[m].sum())


def _values(analysis: LayerAnalysis, m: int) -> list[str]:
    """Energy and complexity of a window, for the margin."""
    share = window_share(analysis, m)
    if share == NONE:
        return [textwrap.fill(NO_ENERGY, 22)]
    lines = [f"{share} of the energy"]
    for name, pod, fit in (("field", analysis.field, analysis.field_fit), ("lag", analysis.lag, analysis.lag_fit)):
        if pod is not None:
            lines += [f"{name} T_spec {t_spec(fit, m)}", f"{name} H*(0.10) {rank(pod.eigenvalues[m])}"]
    return lines


def _draw_maps(
    page: Page, analysis: LayerAnalysis, m: int, modes: Array, limit: float, top: int, *, last: bool
) -> None:
    """Field modes side by side in one pair of axes, which draws faster than a pair for each."""
    first, size = _block(modes, analysis.n_tokens, analysis.window_lags[m])
    hidden = np.zeros((size, size), dtype=bool) if analysis.signed else ~np.tri(size, dtype=bool)
    step = size * (1 + _GAP / _MAP)
    ax = page.axes(_LEFT, top, 3 * _MAP + 2 * _GAP, _MAP)
    for k, mode in enumerate(modes[:, first : first + size, first : first + size]):
        extent = (k * step - 0.5, k * step + size - 0.5, size - 0.5, -0.5)
        ax.imshow(np.ma.masked_array(mode, hidden), cmap=MODE_COLORMAP, vmin=-limit, vmax=limit, extent=extent,
                  interpolation="nearest" if size <= _MAP else "antialiased", aspect="auto")  # fmt: skip
    ax.set_xlim(-0.5, 2 * step + size - 0.5)
    ax.set_ylabel("query, tokens")
    ax.set_xlabel("key, tokens" if last else "")
    _token_ticks(ax, first, size, [k * step for k in range(len(modes))])
    ax.spines[["left", "bottom"]].set_visible(False)


def _token_ticks(ax: Axes, first: int, size: int, starts: list[float]) -> None:
    """Number the first and the last token of every map."""
    ends = sorted({0, size - 1})
    sides: list[Literal["left", "right"]] = ["left", "right"]
    ax.set_yticks(ends, labels=[str(first + end) for end in ends])
    ax.set_xticks(
        [start + end for start in starts for end in ends], labels=[str(first + e) for e in ends] * len(starts)
    )
    for label, side in zip(ax.get_xticklabels(), sides[: len(ends)] * len(starts), strict=True):
        label.set_horizontalalignment(side)


def _block(modes: Array, n_tokens: int, lag: float) -> tuple[int, int]:
    """First token and size of the block on the diagonal that is drawn of a window around a lag (NaN: of all lags)."""
    size = max(_MIN_BLOCK, math.ceil(4 * lag)) if math.isfinite(lag) else n_tokens
    if size >= 0.75 * n_tokens:
        return 0, n_tokens
    total = np.pad(np.square(modes).sum(0).cumsum(0).cumsum(1), ((1, 0), (1, 0)))  # energy of [:i, :j]
    start = np.arange(n_tokens - size + 1)
    end = start + size
    energy = total[end, end] - total[start, end] - total[end, start] + total[start, start]
    return int(energy.argmax()), size


def _write_shares(page: Page, shown: ShownModes, total: float, top: int) -> None:
    """Over each map, the number of the mode and its share of the energy."""
    modes = zip(shown.ranks.tolist(), shown.energies.tolist(), shown.mixed.tolist(), strict=True)
    for k, (place, energy, mixed) in enumerate(modes):
        share = percent(energy / total) + " ≈" * mixed if energy > 0 else "no energy"
        center = _LEFT + k * (_MAP + _GAP) + _MAP / 2
        page.text(center, top - 4, f"mode {place + 1}: {share}", color=FIELD_COLOR, ha="center", va="bottom")


def _lag_shares(shown: ShownModes, total: float) -> str:
    """Share of the energy of each lag mode drawn, behind a piece of its line."""
    if total <= 0:
        return "no energy"
    shares = [percent(energy / total).removesuffix(" %") for energy in shown.energies.tolist()]
    return "  ".join(f"{glyph} {share}" for glyph, share in zip(MODE_GLYPHS, shares, strict=False)) + " %"


def _draw_curves(ax: Axes, analysis: LayerAnalysis, m: int, curves: Array, color: str, *, last: bool) -> None:
    """Curves over the lag, before the shape of the window."""
    lag = lags(analysis.n_tokens, analysis.signed).numpy()
    bound = 1.08 * float(np.abs(curves).max(initial=0)) or 1.0
    if m > 0:
        window = analysis.windows[m].double().numpy()[np.abs(lag)]
        ax.fill_between(lag, -bound, bound * (2 * window - 1), color=FAINT, linewidth=0)
    ax.axhline(0, color=MUTED, linewidth=0.6)
    for curve, style in zip(curves, MODE_STYLES, strict=False):
        ax.plot(lag, curve, color=color, linestyle=style, linewidth=1.3)
    ax.set_ylim(-bound, bound)
    ax.set_yticks([])
    lag_axis(ax, analysis.n_tokens, signed=analysis.signed, label="lag" if last else "", every=2)
