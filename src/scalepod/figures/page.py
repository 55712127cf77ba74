"""A page on which axes and words have fixed places."""

import textwrap
from functools import lru_cache
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font
from matplotlib.patches import Rectangle

from .style import DPI, INK, MUTED

WIDTH = 1040
"""Width of every figure in pixels."""
_MARGIN = 16
_LINE = 160  # characters of a caption line


class Page:
    """A white page of a given height, on which axes and text are placed in pixels from the top left corner.

    Fixed places draw several times faster than matplotlib's layout engines, and the picture keeps its shape from one
    step of the training to the next.

    Args:
        height: Height in pixels; the width is :data:`WIDTH`.
    """

    def __init__(self, height: int) -> None:
        self.height = height
        self.figure = Figure(figsize=(WIDTH / DPI, height / DPI), dpi=DPI)
        FigureCanvasAgg(self.figure)

    def axes(self, left: float, top: float, width: float, height: float) -> Axes:
        """Axes whose data area is the given rectangle."""
        bottom = 1 - (top + height) / self.height
        return self.figure.add_axes((left / WIDTH, bottom, width / WIDTH, height / self.height))

    def text(self, left: float, top: float, text: str, **style: Any) -> None:
        """Text whose top left corner, unless the style aligns it otherwise, is at the given place."""
        self.figure.text(left / WIDTH, 1 - top / self.height, printable(text), **({"va": "top"} | style))

    def swatch(self, left: float, top: float, color: str) -> None:
        """A small square of the colour of what is written beside it."""
        size = 11
        corner = (left / WIDTH, 1 - (top + size) / self.height)
        self.figure.add_artist(Rectangle(corner, size / WIDTH, size / self.height, facecolor=color, linewidth=0))

    def heading(self, title: str, subtitle: str) -> None:
        """The title, and under it what was analysed."""
        self.text(_MARGIN, 12, shorten(title, 80), fontsize=12, fontweight="bold")
        self.text(_MARGIN, 34, subtitle, color=MUTED)

    def caption(self, text: str) -> None:
        """The lines at the foot that say how to read the figure."""
        wrapped = textwrap.fill(text, _LINE)
        self.text(_MARGIN, self.height - 10, wrapped, va="bottom", color=INK, fontsize=8.5, linespacing=1.3)


def shorten(text: str, length: int) -> str:
    """The text, with its middle left out when it is longer than length.

    Example:
        >>> shorten("transformer", 7)
        'tra…mer'
    """
    if len(text) <= length:
        return text
    head = (length - 1) // 2
    return f"{text[:head]}…{text[len(text) - (length - 1 - head) :]}"


def printable(text: str) -> str:
    """The text with every character that the font lacks replaced: matplotlib warns of those while it draws."""
    return "".join(c if c == "\n" or _has_glyph(c) else "\N{REPLACEMENT CHARACTER}" for c in text)


@lru_cache(maxsize=1024)
def _has_glyph(character: str) -> bool:
    return character.isprintable() and get_font(findfont("DejaVu Sans")).get_char_index(ord(character)) != 0
