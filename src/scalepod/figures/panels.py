"""A column of equal panels, one a row of the page, in a single pair of axes: dozens of axes would take long to draw."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .axes import Array, plain
from .page import Page
from .style import FAINT, MUTED

ROW = 152
"""From the top of a panel to that of the next, in pixels."""
PANEL = 118
"""Height of a panel, in pixels."""


class Column:
    """Panels under each other with one x axis and one range of values, so that rows can be compared.

    Args:
        page: The page.
        left: Left edge in pixels.
        top: Top of the first panel in pixels.
        width: Width in pixels.
        n_rows: Panels.
        low: Value at the foot of every panel.
        high: Value at its head.
        log: Whether values stand by their logarithm; low is then positive.
        ticks: Values to label; by default a few round ones.
    """

    def __init__(
        self,
        page: Page,
        left: float,
        top: float,
        width: float,
        n_rows: int,
        low: float,
        high: float,
        *,
        log: bool = True,
        ticks: Sequence[float] | None = None,
    ) -> None:
        self.low, self.high, self._log = low, high, log
        height = ROW * (n_rows - 1) + PANEL
        self.ax = page.axes(left, top, width, height)
        self.ax.set_ylim(height, 0)
        self.ax.spines["left"].set_visible(False)
        self.ax.set_yticks([])
        across = self.ax.get_yaxis_transform()  # x as a share of the width
        marks = round_ticks(low, high) if ticks is None else list(ticks)
        places = [self.places(row, marks) for row in range(n_rows)]
        for mark, place in zip(
            marks * n_rows, np.concatenate(places), strict=True
        ):  # a tick each takes 10 times longer
            self.ax.text(-4 / width, place, plain(mark), transform=across, ha="right", va="center", fontsize=8)
        self.ax.hlines(np.concatenate(places), 0, 1, transform=across, color=FAINT, linewidth=0.6, zorder=0)
        feet = [ROW * row + PANEL for row in range(n_rows)]
        self.ax.hlines(feet[:-1], 0, 1, transform=across, color=MUTED, linewidth=0.7)
        self.ax.vlines([0] * n_rows, [foot - PANEL for foot in feet], feet, transform=across, color=MUTED,
                       linewidth=1.4)  # fmt: skip

    def places(self, row: int, values: npt.ArrayLike) -> Array:
        """Where values stand on the y axis in the panel of a row; beyond its ends at its ends."""
        value = np.clip(np.asarray(values, dtype=np.float64), self.low, self.high)
        if self._log:
            share = np.log(value / self.low) / np.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return np.asarray(ROW * row + PANEL * (1 - share), dtype=np.float64)

    def plot(self, row: int, x: npt.ArrayLike, values: npt.ArrayLike, **style: Any) -> None:
        """A curve in the panel of a row."""
        self.ax.plot(np.asarray(x, dtype=np.float64), self.places(row, values), **style)

    def bar(self, row: int, x: float, value: float, error: float, color: str) -> None:
        """A standard error in the panel of a row; nothing where it is not known."""
        if np.isfinite(value) and np.isfinite(error):
            self.ax.vlines(x, *self.places(row, [value - error, value + error]), color=color, linewidth=1.2)


def limits(values: Sequence[float], least: float) -> tuple[float, float]:
    """A range about the positive finite values, with some room, of at least the given ratio; (1, least) of none."""
    found = np.array([value for value in values if 0 < value < np.inf])
    if not len(found):
        return 1.0, least
    low, high = 0.88 * float(found.min()), float(found.max()) / 0.88
    wider = max(1.0, np.sqrt(least / (high / low)))
    return low / wider, high * wider


def round_ticks(low: float, high: float) -> list[float]:
    """Round values on a logarithmic axis from low to high: 1, 2, 5, 10, ..., or powers of ten where there are many."""
    decades = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    for digits in ((1, 2, 5), (1, 3), (1,)):
        found = [digit * 10.0**k for k in decades for digit in digits if low <= digit * 10.0**k <= high]
        if len(found) <= 4:
            return found
    return found[:: -(-len(found) // 4)]
