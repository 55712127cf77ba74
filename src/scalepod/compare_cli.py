"""`scalepod compare`: runs side by side, with the significance of their differences."""

import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from pathlib import Path

from .reports.arguments import add_runs, told_warnings

DESCRIPTION = """Runs side by side: the values of every layer with their standard errors, and which of them differ from
those of the first run by more than the choice of documents explains.

A run is a folder that scalepod fit, or any training with the callback, has written, or an analysis.npz of scalepod
analyze. Where the documents are the same the test is a paired jackknife, else Welch's; all tests of the table are
corrected together by Holm's method. With --out come the figures: scalograms, lag modes, coherence maps, training.

examples:
  scalepod compare runs/baseline/version_0 runs/ega/version_0
  scalepod compare runs/*/version_0 --step 1000 --out comparison
  scalepod compare runs/ega/version_0 analysis.npz --labels trained published --format csv > table.csv"""


def main(args: Sequence[str]) -> int:
    """Print a comparison of runs, and write its tables and figures.

    Args:
        args: The arguments behind `compare`.

    Returns:
        Exit status: 0, or 1 when a run or an option was at fault, which has been said on standard error.

    Raises:
        SystemExit: With status 2 for arguments that cannot be parsed, 0 after help.
    """
    given = _parser().parse_args(args)
    from .figures import save_figure
    from .reports.comparison import compare
    from .reports.notes import later_common_step, notes
    from .reports.pictures import comparison_figures
    from .reports.runs import open_runs
    from .reports.tables import csv_table, markdown_table, terminal_table

    try:
        with told_warnings():
            runs = open_runs(given.runs, given.labels)
            comparison = compare([run.at(given.step) for run in runs])
        said = [*notes(comparison), *later_common_step(runs, comparison.firings)]
        written: dict[str, Callable[[], str]] = {
            "table": lambda: terminal_table(comparison, said),
            "csv": lambda: csv_table(comparison),
            "markdown": lambda: markdown_table(comparison, said),
        }
        print(written[given.format](), end="")
        if given.out is not None:
            given.out.mkdir(parents=True, exist_ok=True)
            (given.out / "compare.csv").write_text(written["csv"](), encoding="utf-8")
            (given.out / "compare.md").write_text(written["markdown"](), encoding="utf-8")
            for name, figure in comparison_figures(runs, comparison).items():
                save_figure(figure, given.out / f"{name}.png")
            print(f"tables and figures are in {given.out}", file=sys.stderr)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="scalepod compare", description=DESCRIPTION, formatter_class=RawDescriptionHelpFormatter
    )
    add_runs(parser)
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for compare.csv, compare.md and the figures")
    formats = ("table", "csv", "markdown")
    parser.add_argument("--format", choices=formats, default="table", help="what is printed (default: table)")
    return parser
