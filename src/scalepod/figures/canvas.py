"""From a figure to pixels and to a file."""

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from .._files import atomic_write
from .style import own_style

Pixels = npt.NDArray[np.uint8]

_LEVELS = np.round(np.round(np.arange(256) * 31 / 255) * 255 / 31).astype(np.uint8)
"""Colours are rounded to 32 levels a channel: the eye sees no difference, and a PNG of them is a third smaller."""


def figure_to_array(figure: Figure) -> Pixels:
    """Draw a figure and return its pixels.

    A figure that did not change since it was last drawn is not drawn again.

    Args:
        figure: A figure on an Agg canvas, such as those of this package.

    Returns:
        RGB pixels, uint8 [height, width, 3], as ``SummaryWriter.add_image(..., dataformats="HWC")`` takes them.

    Raises:
        TypeError: If the figure stands on another canvas.
    """
    canvas = figure.canvas
    if not isinstance(canvas, FigureCanvasAgg):
        raise TypeError(f"the figure is on a {type(canvas).__name__}: only one on a FigureCanvasAgg has pixels")
    if figure.stale:
        with own_style():
            canvas.draw()  # type: ignore[no-untyped-call]
    return _LEVELS[np.asarray(canvas.buffer_rgba())[..., :3]]  # type: ignore[no-untyped-call]


def save_figure(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Write a figure as a PNG file, whole or not at all: :func:`save_array` of :func:`figure_to_array`."""
    return save_array(figure_to_array(figure), path)


def save_array(pixels: Pixels, path: str | os.PathLike[str]) -> Path:
    """Write pixels as a PNG file, whole or not at all.

    The file is written under a temporary name in the same folder and then renamed, so that no reader meets half of
    it, and an older file of that name survives a failure.

    Args:
        pixels: RGB pixels, uint8 [height, width, 3].
        path: Where to; missing folders are made.

    Returns:
        The path.

    Raises:
        OSError: If the file cannot be written; nothing of it is left behind.
    """
    target = Path(path)
    with atomic_write(target) as file:
        Image.fromarray(pixels).save(file, format="PNG")
    return target
