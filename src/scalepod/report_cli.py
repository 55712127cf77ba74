"""`scalepod report`: what was run and found, in one HTML file to send around."""

import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from pathlib import Path

from .reports.arguments import add_runs, told_warnings

DESCRIPTION = """Write one HTML file on runs: what was run, what was found in plain words with standard errors, what
changed over training and differs between the runs, the figures, and what not to conclude. It needs no network and no
other file, and can be read on a phone.

A run is a folder that scalepod fit, or any training with the callback, has written, or an analysis.npz of scalepod
analyze.

examples:
  scalepod report runs/quickstart/version_0
  scalepod report runs/baseline/version_0 runs/ega/version_0 --out report.html"""


def main(args: Sequence[str]) -> int:
    """Write a report on runs.

    Args:
        args: The arguments behind `report`.

    Returns:
        Exit status: 0, or 1 when a run or an option was at fault, which has been said on standard error.

    Raises:
        SystemExit: With status 2 for arguments that cannot be parsed, 0 after help.
    """
    given = _parser().parse_args(args)
    from ._files import atomic_write
    from .reports.document import report
    from .reports.runs import open_runs

    try:
        with told_warnings():
            page = report(open_runs(given.runs, given.labels), given.step)
        with atomic_write(given.out) as file:
            file.write(page.encode())
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"wrote {given.out} ({len(page.encode()) / 1e6:.1f} MB)")
    return 0


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="scalepod report", description=DESCRIPTION, formatter_class=RawDescriptionHelpFormatter
    )
    add_runs(parser)
    default = Path("report.html")
    parser.add_argument("--out", type=Path, default=default, metavar="FILE", help=f"the file (default: {default})")
    return parser
