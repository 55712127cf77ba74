"""Where what a query does at a key goes with what it does at its own place, beyond what chance explains."""

import math
from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from torch import Tensor

from ..coherence import Coherence
from ..field import lags, to_lag
from .axes import Array, lag_axis
from .page import Page
from .style import CHANCE_COLORMAP, DOMINANT_COLOR, ENERGY_COLORMAP, FAINT, INK, NULL_COLOR, own_style
from .words import percent

_MOST = 4

# Places in pixels: top and side of the maps, their left edges; top and height of the curves below.
_TOP, _MAP, _LEFT, _STEP = 128, 214, 58, 248
_CURVES, _HEIGHT = 396, 112

_CAPTION = (
    "How to read: colour = in document after document, what a query does around this key goes with what it does around "
    "its own place, at this scale, more than chance explains. Shades of grey: not above the level that independent "
    "documents exceed with the probability of the test. Hatched: not tested, for the key is so near that both places "
    "see the same tokens, or nothing varies there. Below, means over the tested pairs at each lag: where the line runs "
    "above the grey one, coherence is above its level."
)


def coherence_figure(coherences: Mapping[float, Coherence], title: str) -> Figure:
    """Draw the cross-coherence at each dominant scale of a layer, with what of it is significant.

    One column a scale: |gamma| by query and key, in colour where it exceeds its level and in grey where it does not,
    hatched where no test was possible; below it, |gamma| and its level by lag, means over the tested pairs.

    Args:
        coherences: Coherence at each scale, by the lag in tokens for which the scale stands; the first four are drawn.
            None of them is a page that says so.
        title: First line of the figure, such as the layer's name.

    Returns:
        A figure on an Agg canvas of its own, 1040 pixels wide; pyplot knows nothing of it.
    """
    drawn = dict(list(coherences.items())[:_MOST])
    with own_style():
        page = Page(_CURVES + _HEIGHT + 134 if drawn else 110)
        page.heading(title, _subtitle(coherences, len(drawn)))
        if not drawn:
            page.text(16, 66, "no scale stands out in this layer: there is nothing whose coherence could be shown")
            return page.figure
        _write_colors(page)
        for column, (lag, found) in enumerate(drawn.items()):
            _draw_column(page, lag, found, _LEFT + _STEP * column, first=column == 0)
        page.caption(_CAPTION)
    return page.figure


def _subtitle(coherences: Mapping[float, Coherence], drawn: int) -> str:
    which = f"cross-coherence at {len(coherences) or 'no'} dominant scale{'s' * (len(coherences) > 1)}"
    return f"{which}, the first {drawn} shown" if drawn < len(coherences) else which


def _write_colors(page: Page) -> None:
    """The two scales of colour, of pairs above and not above their level."""
    for left, words, colormap in (
        (_LEFT, "significant", ENERGY_COLORMAP),
        (_LEFT + 290, "within chance", CHANCE_COLORMAP),
    ):
        bar = page.figure.colorbar(ScalarMappable(Normalize(0, 1), colormap), ticks=[], orientation="horizontal",
                                   cax=page.axes(left + 116, 68, 120, 9))  # fmt: skip
        bar.outline.set_visible(False)
        page.text(left, 66, words)
        page.text(left + 110, 66, "0", ha="right", fontsize=8)
        page.text(left + 242, 66, "1", fontsize=8)
    page.text(_LEFT + 580, 66, "|gamma|")


def _draw_column(page: Page, lag: float, found: Coherence, left: int, *, first: bool) -> None:
    """One scale: the map, and the means by lag below it."""
    share = found.significant_share
    page.text(left, _TOP - 36, f"scale of {lag:.3g} tokens", color=DOMINANT_COLOR, fontweight="bold")
    words = "no pair far enough apart to test" if math.isnan(share) else f"{percent(share)} of tested pairs significant"
    page.text(left, _TOP - 19, words, fontsize=8.5)
    signed = bool(found.tested.triu(1).any())
    ax = page.axes(left, _TOP, _MAP, _MAP)
    _draw_map(ax, found, signed=signed)
    ax.set_xlabel("key, tokens")
    ax.set_ylabel("query, tokens" if first else "")
    ax.tick_params(labelleft=first)
    below = page.axes(left, _CURVES, _MAP, _HEIGHT)
    _draw_by_lag(below, found, signed=signed)
    below.set_ylabel("mean |gamma|" if first else "", labelpad=7)
    below.tick_params(labelleft=first)


def _draw_map(ax: Axes, found: Coherence, *, signed: bool) -> None:
    """|gamma| in colour where significant and in grey where not; what was not tested is hatched."""
    gamma, tested = found.gamma.double().numpy(), found.tested.numpy()
    above = tested & (gamma > found.level.double().nan_to_num(math.inf).numpy())
    size = len(gamma)
    for hidden, colormap in ((above | ~tested, CHANCE_COLORMAP), (~above, ENERGY_COLORMAP)):
        ax.imshow(np.ma.masked_array(gamma, hidden), cmap=colormap, vmin=0, vmax=1,
                  interpolation="nearest" if size <= _MAP else "antialiased")  # fmt: skip
    visible = np.ones_like(tested) if signed else np.tri(size, dtype=bool)
    if size > 1 and (visible & ~tested).any():
        ax.contourf((visible & ~tested).astype(float), levels=[0.5, 1.5], colors="none", hatches=["////"])
    ends = sorted({0, size - 1})
    ax.set_xticks(ends)
    ax.set_yticks(ends)
    ax.set_xlim(-0.5, size - 0.5)
    ax.set_ylim(size - 0.5, -0.5)


def _draw_by_lag(ax: Axes, found: Coherence, *, signed: bool) -> None:
    """Coherence and its level at each lag, means over the tested pairs."""
    lag = lags(len(found.gamma), signed).numpy()
    tested = to_lag(found.tested.double(), signed)
    for values, color, width in ((found.level, NULL_COLOR, 1.4), (found.gamma, INK, 1.4)):
        ax.plot(lag, _mean_by_lag(values, tested, signed=signed), color=color, linewidth=width)
    ax.set_ylim(0, 1)
    ax.set_yticks([0, 0.5, 1], labels=["0", "0.5", "1"])
    ax.grid(axis="y", color=FAINT, linewidth=0.6)
    lag_axis(ax, len(found.gamma), signed=signed, label="lag", every=2)


def _mean_by_lag(values: Tensor, tested: Tensor, *, signed: bool) -> Array:
    """Mean over the tested queries at each lag, [L]; NaN where there is none."""
    total = (to_lag(values.double().nan_to_num(0.0), signed) * tested).sum(-2)
    count = tested.sum(-2)
    mean: Array = (total / count.where(count > 0, math.nan)).numpy()
    return mean
