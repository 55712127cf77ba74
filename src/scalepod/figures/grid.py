"""A page of small panels, a row a layer, on which runs are told apart by colour."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes

from .page import WIDTH, Page, shorten

RUN_COLORS = ("#222222", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Runs in their order, the first, with which the others are compared, in black; after Okabe and Ito."""
_DASHES = ("-", (0, (4, 1.5)), (0, (1, 1.2)))  # for the runs after the seventh, and after those

# In pixels: room for the heading and the heads of the columns, for the legend of the runs, for the last axis and the
# caption, and at the sides.
_TOP, _LEGEND, _BOTTOM, _LEFT, _RIGHT = 80, 24, 76, 168, 20

_BOLD = 7.8  # width of a bold character, rather more than less, in pixels


class Grid(NamedTuple):
    """Places of panels on a page, in pixels."""

    page: Page
    top: int
    n_columns: int
    row_height: int
    """From the top of a panel to the top of the one below."""
    panel: tuple[float, float]
    """Width and height of a panel."""

    def axes(self, row: int, column: int) -> Axes:
        """Axes of a panel."""
        width, height = self.panel
        step = (WIDTH - _LEFT - _RIGHT) / self.n_columns
        return self.page.axes(_LEFT + column * step, self.top + row * self.row_height, width, height)


def grid_page(
    heading: tuple[str, str],
    rows: Sequence[str],
    columns: Sequence[str],
    row_height: int,
    gap: tuple[int, int],
    runs: Sequence[str] = (),
) -> Grid:
    """A page with a heading, the names of the rows at the left and those of the columns at the top.

    Args:
        heading: First and second line.
        rows: Names of the rows, at least one.
        columns: Names of the columns, at least one.
        row_height: Height of a row in pixels.
        gap: Room between panels in a row and between rows, for ticks, in pixels.
        runs: Names of the runs that the panels tell apart by colour, for a legend; empty where they do not.
    """
    top = _TOP + _LEGEND * bool(runs)
    page = Page(top + row_height * len(rows) + _BOTTOM)
    page.heading(*heading)
    if runs:
        _write_runs(page, runs)
    step = (WIDTH - _LEFT - _RIGHT) / len(columns)
    for column, name in enumerate(columns):
        page.text(_LEFT + column * step, top - 18, shorten(name, max(6, int(step / _BOLD) - 1)), fontweight="bold")
    for row, name in enumerate(rows):
        page.text(16, top + row * row_height + 4, name, fontweight="bold")
    return Grid(page, top, len(columns), row_height, (step - gap[0], row_height - gap[1]))


def run_styles(n_runs: int) -> list[dict[str, Any]]:
    """Colour and line of each run, as keywords of ``Axes.plot``."""
    n_colors = len(RUN_COLORS)
    return [{"color": RUN_COLORS[k % n_colors], "linestyle": _DASHES[k // n_colors % 3]} for k in range(n_runs)]


def _write_runs(page: Page, labels: Sequence[str]) -> None:
    """Legend of the runs, above the panels."""
    room = (WIDTH - 2 * 16) / len(labels)
    length = max(5, int(room / _BOLD) - 4)
    left = 16.0
    for label, style in zip(labels, run_styles(len(labels)), strict=True):
        glyph = "―" if style["linestyle"] == "-" else "╌" if style["linestyle"] == _DASHES[1] else "┈"
        text = f"{glyph} {shorten(label, length)}"
        page.text(left, 58, text, color=style["color"], fontweight="bold")
        left += min(room, _BOLD * (len(text) + 2))
