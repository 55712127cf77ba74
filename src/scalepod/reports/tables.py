"""A comparison as a table: for the terminal, in Markdown, as CSV."""

import csv
import io
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..figures.words import NONE, with_error
from .comparison import Comparison, Entry
from .quantities import UNITS, meaning_of, title_of
from .runs import layer_names

COLUMNS = (
    "quantity", "layer", "run", "run_layer", "step", "value", "stderr", "difference", "difference_stderr", "p_value",
    "p_holm", "test", "significant", "n_trainings", "stderr_documents", "stderr_trainings",
    "difference_stderr_documents", "difference_stderr_trainings",
)  # fmt: skip
"""Columns of the CSV table, one row a value."""


class Block(NamedTuple):
    """All values of one quantity, a row a layer."""

    title: str
    """Name of the quantity, with its unit."""
    meaning: str
    """What it says."""
    head: tuple[str, ...]
    """Heads of the columns: the layer, the value of each run, and the difference of each but the first."""
    rows: tuple[tuple[str, ...], ...]
    """Cells as they are printed."""


def blocks(comparison: Comparison) -> list[Block]:
    """The table of a comparison, quantity by quantity, in printed form: values and differences with standard errors."""
    first, *others = (firing.label for firing in comparison.firings)
    head = ("layer", first, *(word for label in others for word in (label, f"\N{MINUS SIGN} {first}")))
    names = layer_names(comparison.row_names)
    found = []
    for quantity in comparison.quantities:
        unit = f", {UNITS[quantity]}" if quantity in UNITS else ""
        rows = [
            (names[layer], *_cells([entry for entry in comparison.entries if (entry.quantity, entry.layer) == at]))
            for layer in names
            for at in [(quantity, layer)]
        ]
        found.append(Block(title_of(quantity) + unit, meaning_of(quantity), head, tuple(rows)))
    return found


def terminal_table(comparison: Comparison, notes: Sequence[str]) -> str:
    """Aligned columns, block by block, with the notes behind."""
    parts = []
    for block in blocks(comparison):
        lines = [block.head, *block.rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
        parts.append("\n".join([f"{block.title}: {block.meaning}", *(f"  {line}".rstrip() for line in table)]))
    return "\n\n".join([*parts, "\n".join(notes)]) + "\n"


def markdown_table(comparison: Comparison, notes: Sequence[str]) -> str:
    """One table a quantity under a heading each, with the notes as a list behind."""
    parts = []
    for block in blocks(comparison):
        lines = [block.head, ("---",) * len(block.head), *block.rows]
        table = "\n".join(f"| {' | '.join(map(_markdown, line))} |" for line in lines)
        parts.append(f"### {_markdown(block.title)}\n\n{_markdown(block.meaning)}\n\n{table}")
    return "\n\n".join([*parts, "\n".join(f"- {_markdown(note)}" for note in notes)]) + "\n"


def csv_table(comparison: Comparison) -> str:
    """One row a value, all digits, with the columns of `COLUMNS`; what is undefined or was not tested is empty."""
    steps = comparison.steps
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for entry in comparison.entries:
        change = entry.change
        tested = math.isfinite(change.p_value)
        numbers = (entry.value, entry.stderr, change.difference, change.stderr, change.p_value, change.p_holm)
        parts = (*entry.parts, *change.parts)
        writer.writerow([
            entry.quantity, entry.layer, entry.run, entry.run_layer, steps[entry.run],
            *map(_digits, numbers), change.test, str(change.significant).lower() if tested else "",
            entry.n_trainings, *map(_digits, parts),
        ])  # fmt: skip
    return text.getvalue()


def _digits(number: float) -> str:
    return "" if math.isnan(number) else repr(number)


def _cells(entries: Sequence[Entry]) -> Iterator[str]:
    """The values of one row, one entry a run, each but the first with its difference."""
    for place, entry in enumerate(entries):
        yield value_with_error(entry.value, entry.stderr)
        if place:
            yield signed_difference(entry)


def value_with_error(value: float, stderr: float) -> str:
    """A value as tables print it, with its standard error where that is known."""
    return with_error(value, stderr).replace("-", "\N{MINUS SIGN}") if math.isfinite(value) else NONE


def signed_difference(entry: Entry) -> str:
    """A difference with its sign and standard error, and a star where it is significant."""
    found = entry.change
    if not math.isfinite(found.difference):
        return NONE
    sign = "" if found.difference < 0 else "+"
    return sign + value_with_error(found.difference, found.stderr) + " *" * found.significant


def _markdown(text: str) -> str:
    """Text in which nothing is taken for Markdown's own signs, on one line."""
    return "".join(f"\\{sign}" if sign in "\\`*_|<>[]#" else sign for sign in " ".join(text.split()))
