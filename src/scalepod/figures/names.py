"""Layer names short enough to stand beside a row."""

import re
from collections.abc import Sequence

from .page import shorten

MOST_ROWS = 12
"""Layers on a page that has a row of panels for each."""
_LENGTH = 21


def spread(n_layers: int) -> list[int]:
    """Places of the layers to draw where there is not room for all: 12 at most, evenly from the first to the last.

    Example:
        >>> spread(3), spread(24)
        ([0, 1, 2], [0, 2, 4, 6, 8, 10, 13, 15, 17, 19, 21, 23])
    """
    drawn = min(n_layers, MOST_ROWS)
    return [round(k * (n_layers - 1) / max(1, drawn - 1)) for k in range(drawn)]


def short_names(names: Sequence[str]) -> list[str]:
    """Shorten layer names by the parts of the module path that all of them share.

    Args:
        names: Names as they are logged, ``<number>_<module path>``; the number stays.

    Returns:
        Names of at most 21 characters.

    Example:
        >>> short_names(["01_model.transformer.h.0.attn", "02_model.transformer.h.1.attn"])
        ['01 h.0', '02 h.1']
        >>> short_names(["01_encoder.attn", "02_decoder.attn"])
        ['01 encoder', '02 decoder']
    """
    matches = [re.fullmatch(r"(\d+)_(.+)", name) for name in names]
    numbers = [f"{match[1]} " if match else "" for match in matches]
    paths = [(match[2] if match else name).split(".") for match, name in zip(matches, names, strict=True)]
    room = min(map(len, paths)) - 1  # something must be left of every path
    head = _shared(paths, room)
    tail = _shared([path[::-1] for path in paths], room - head)
    if head and any(path[head].isdigit() for path in paths):
        head -= 1  # "h.0" says more than "0"
    kept = [".".join(path[head : len(path) - tail]) for path in paths]
    return [shorten(number + path, _LENGTH) for number, path in zip(numbers, kept, strict=True)]


def _shared(paths: Sequence[Sequence[str]], room: int) -> int:
    """How many leading parts all paths share, at most room; a single path keeps its last two."""
    if len(paths) == 1:
        return max(0, room - 1)
    same = [len(set(parts)) == 1 for parts in zip(*paths, strict=False)]
    return min(room, [*same, False].index(False))
