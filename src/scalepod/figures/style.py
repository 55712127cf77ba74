"""One visual language for all figures: what each colour means, and the style they are drawn in."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib
import numpy as np
from matplotlib.colors import Colormap, LinearSegmentedColormap, to_hex

# Hues after Okabe and Ito, which readers with any colour vision can tell apart.
FIELD_COLOR = "#0072B2"
"""Everything that belongs to the field POD."""
LAG_COLOR = "#D55E00"
"""Everything that belongs to the lag POD."""
DOMINANT_COLOR = "#B5438A"
"""Dominant scales and their windows."""
INK = "#222222"
"""Text, and what belongs to no decomposition."""
MUTED = "#666666"
"""Axes and remarks."""
NULL_COLOR = "#A6A6A6"
"""What there would be without coherent structure."""
FAINT = "#E4E4E4"
"""Backgrounds: windows, keys in the future."""

MODE_STYLES = ("-", (0, (4, 1.5)), (0, (1, 1.2)))
"""Lines of modes 1, 2, 3: solid, dashed, dotted."""
MODE_GLYPHS = "―╌┈"
"""The same lines as characters, for legends in titles."""
MODE_COLORMAP: Colormap = matplotlib.colormaps["RdBu_r"].resampled(31).with_extremes(bad=FAINT)
"""Signed values about zero: an odd number of steps, so that zero has a colour of its own in the middle."""
ENERGY_COLORMAP: Colormap = matplotlib.colormaps["YlGnBu"].resampled(32)
"""Energies, pale for none."""
CHANCE_COLORMAP = LinearSegmentedColormap.from_list("chance", ["#EBEBEB", "#6E6E6E"], 32)
"""The same for what may be chance."""
_BANDS = LinearSegmentedColormap.from_list("bands", ["#9BDCC4", "#2C9C79", "#0B4A3B"])

DPI = 100
_STYLE = {
    "font.size": 9.0,
    "axes.titlesize": 9.0,
    "axes.labelsize": 9.0,
    "axes.titlepad": 4.0,
    "axes.titley": 1.0,  # else matplotlib measures all tick labels to place a title
    "axes.labelpad": 2.0,
    "axes.linewidth": 0.7,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.major.pad": 2.0,
    "ytick.major.pad": 2.0,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "text.color": INK,
    "text.parse_math": False,  # a layer may be called "a$b$c"
    "hatch.linewidth": 0.5,
}
# What a style sheet of the user's could change in a figure goes back to matplotlib's defaults first.
_GROUPS = (
    "axes.", "errorbar.", "figure.", "font.", "grid.", "hatch.", "image.", "legend.", "lines.", "markers.", "patch.",
    "path.", "pcolor", "text.", "xaxis.", "xtick.", "yaxis.", "ytick.",
)  # fmt: skip
_RC: dict[Any, Any] = {k: v for k, v in matplotlib.rcParamsDefault.items() if k.startswith(_GROUPS)} | _STYLE
_LOCK = threading.RLock()


@contextmanager
def own_style() -> Iterator[None]:
    """Draw in the style of this package whatever the user's rcParams are, and leave those as they were.

    The parameters are global to matplotlib: the lock keeps two threads from restoring each other's style.
    """
    with _LOCK, matplotlib.rc_context(_RC):
        yield


def band_colors(names: Sequence[str]) -> dict[str, str]:
    """Colour of each band, pale for short lags and dark for long ones.

    Args:
        names: Names of the bands, by ascending lag.
    """
    positions = np.linspace(0, 1, len(names)) if len(names) > 1 else [0.5] * len(names)
    return {name: to_hex(_BANDS(float(x))) for name, x in zip(names, positions, strict=True)}
