"""What `scalepod compare` and `scalepod report` have in common on the command line."""

import sys
import warnings
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from ..results import ResultsWarning, load


def add_runs(parser: ArgumentParser, nargs: Literal["+", "*"] = "+") -> None:
    """Add the arguments that say which runs (with "*" perhaps none), under which names, at which step."""
    parser.add_argument("runs", nargs=nargs, type=Path, metavar="RUN", help="run folder, or file of results")
    parser.add_argument("--labels", nargs="+", metavar="NAME", help="a name for each run (default: from their paths)")
    parser.add_argument(
        "--step", type=step, default="last", metavar="N", help="optimizer steps taken, or last (default: last of each)"
    )


def step(text: str) -> int | Literal["last"]:
    """A number of optimizer steps, or "last".

    Raises:
        ArgumentTypeError: It is neither.
    """
    if text == "last":
        return "last"
    if not text.isdecimal():
        raise ArgumentTypeError(f"a step is a number of optimizer steps taken, or last: got {text!r}")
    return int(text)


def named_groups(given: Sequence[Sequence[str]]) -> list[tuple[str, list[str]]]:
    """Names of groups and their runs, from the words behind each `--group`.

    Raises:
        ValueError: A group begins with a run, which would be lost as its name.
    """
    for name, *runs in given:
        if name not in runs and _is_run(name):
            raise ValueError(f"a group begins with its name, --group NAME RUN [RUN ...]: got the run {name}")
    return [(name, runs) for name, *runs in given]


def _is_run(path: str) -> bool:
    try:
        load(path)
    except (ValueError, OSError):
        return False
    return True


@contextmanager
def told_warnings() -> Iterator[None]:
    """Say on standard error, one line each, which files of results were left out."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResultsWarning)
        try:
            yield
        finally:
            for found in caught:
                if issubclass(found.category, ResultsWarning):
                    print(f"warning: {found.message}", file=sys.stderr)
    for found in caught:
        if not issubclass(found.category, ResultsWarning):
            warnings.warn_explicit(found.message, found.category, found.filename, found.lineno)
