"""Axes of lags, scales and counts, with ticks that a reader can use."""

import math
import textwrap

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from .style import MUTED

Array = npt.NDArray[np.float64]

_CHARACTER = 7  # width of a character, rather more than less, in pixels


def lag_axis(ax: Axes, n_tokens: int, *, signed: bool, label: str = "", every: int = 1) -> None:
    """Make x a lag axis: near-logarithmic, with lag 0 on it, and the same on both sides when lags are signed.

    The position of lag tau is sign(tau) log2(1 + |tau|), so that 1, 2, 4, 8 tokens are about equally far apart.

    Args:
        ax: The axes to change.
        n_tokens: Tokens T; the axis runs to T - 1.
        signed: Whether the axis runs from -(T - 1), with negative lags looking ahead, and says so.
        label: Name of the axis, before its unit; empty for an axis without label.
        every: Label every power of two, every second, and so on; half as many when lags are signed.
    """
    ax.set_xscale("function", functions=(_compress, _expand))
    exponents = range(every if signed else 0, n_tokens.bit_length(), every * (1 + signed))
    ticks = [0, *(2**k for k in exponents if 2**k < n_tokens)]
    if signed:
        ticks = [-tick for tick in reversed(ticks[1:])] + ticks
    _plain_ticks(ax.xaxis, ticks)
    ax.set_xlim(-(n_tokens - 0.5) if signed else -0.5, n_tokens - 0.5)
    if label:
        ax.set_xlabel(f"{label}, tokens" + ("\n← ahead | back →" if signed else ""))


def scale_axis(ax: Axes, edges: Array) -> None:
    """Make y a logarithmic axis of scales, as equivalent lags, with the powers of two labelled."""
    ax.set_yscale("log", base=2)
    ax.set_ylim(edges[0], edges[-1])
    exponents = range(math.ceil(np.log2(edges[0])), math.floor(np.log2(edges[-1])) + 1)
    _plain_ticks(ax.yaxis, [2.0**k for k in exponents])


def count_axis(ax: Axes) -> None:
    """Make x a logarithmic axis of counts, labelled 1, 2, 5, 10, 20, ..., or 1, 10, 100, ... when it is long."""
    ax.set_xscale("log")
    low, high = ax.get_xlim()
    ax.set_xlim(min(low, 0.8), max(1.3 * high, 12))
    ticks = [digit * 10**k for k in range(7) for digit in (1, 2, 5) if digit * 10**k < 1.3 * high]
    _plain_ticks(ax.xaxis, ticks if len(ticks) < 6 else ticks[::3])


def decade_axis(axis: Axis) -> None:
    """Label the decades of a logarithmic axis without matplotlib's mathtext; minor ticks would take long to draw."""
    low, high = np.log10(axis.get_view_interval())
    axis.set_major_locator(FixedLocator([10.0**k for k in range(math.ceil(low), math.floor(high) + 1)]))
    axis.set_major_formatter(FuncFormatter(_power_of_ten))
    axis.set_minor_locator(NullLocator())


def say(ax: Axes, text: str) -> None:
    """Words in the middle of axes that have nothing else to show."""
    wrapped = textwrap.fill(text, min(34, max(8, int(ax.bbox.width / _CHARACTER))))
    ax.text(0.5, 0.5, wrapped, transform=ax.transAxes, ha="center", va="center", color=MUTED)
    ax.set_xticks([])
    ax.set_yticks([])


def plain(value: float, _: object = None) -> str:
    """A number as it stands on a tick: "0.5", "16", with a real minus sign."""
    return f"{value:g}".replace("-", "\N{MINUS SIGN}")


def _plain_ticks(axis: Axis, ticks: list[int] | list[float]) -> None:
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(FuncFormatter(plain))
    axis.set_minor_locator(NullLocator())


def _power_of_ten(value: float, _: object = None) -> str:
    exponent = round(float(np.log10(value)))
    if 0 <= exponent < 4:
        return f"{value:g}"
    return "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _compress(lag: npt.ArrayLike) -> Array:
    lag = np.asarray(lag, dtype=np.float64)
    return np.asarray(np.sign(lag) * np.log2(1 + np.abs(lag)), dtype=np.float64)


def _expand(position: npt.ArrayLike) -> Array:
    position = np.asarray(position, dtype=np.float64)
    return np.asarray(np.sign(position) * (np.exp2(np.abs(position)) - 1), dtype=np.float64)
