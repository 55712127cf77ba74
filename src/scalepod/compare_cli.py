"""`scalepod compare`: runs side by side, with the significance of their differences."""

import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from .reports.arguments import add_runs, named_groups, told_warnings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .reports.comparison import Comparison

DESCRIPTION = """Runs side by side: the values of every layer with their standard errors, and which of them differ from
those of the first run by more than the choice of documents explains.

A run is a folder that scalepod fit, or any training with the callback, has written, or an analysis.npz of scalepod
analyze. Where the documents are the same the test is a paired jackknife, else Welch's; all tests of the table are
corrected together by Holm's method. With --out come the figures: scalograms, lag modes, coherence maps, training.

Those errors say nothing of what another seed of the training would change. Where models were trained several times, on
the same held-out documents, --group puts the trainings of each together: values are means over them, errors and tests
are over documents and trainings.

examples:
  scalepod compare runs/baseline/version_0 runs/ega/version_0
  scalepod compare runs/*/version_0 --step 1000 --out comparison
  scalepod compare runs/ega/version_0 analysis.npz --labels trained published --format csv > table.csv
  scalepod compare --group baseline runs/baseline/version_* --group ega runs/ega/version_*"""


class _Compared(NamedTuple):
    """What is printed and drawn."""

    comparison: "Comparison"
    notes: list[str]
    figures: Callable[[], dict[str, "Figure"]]


def main(args: Sequence[str]) -> int:
    """Print a comparison of runs, or of groups of trainings, and write its tables and figures.

    Args:
        args: The arguments behind `compare`.

    Returns:
        Exit status: 0, or 1 when a run or an option was at fault, which has been said on standard error.

    Raises:
        SystemExit: With status 2 for arguments that cannot be parsed, 0 after help.
    """
    given = _parsed(args)
    from .figures import save_figure
    from .reports.tables import csv_table, markdown_table, terminal_table

    try:
        with told_warnings():
            comparison, said, figures = _groups(given) if given.group else _runs(given)
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
            for name, figure in figures().items():
                save_figure(figure, given.out / f"{name}.png")
            print(f"tables and figures are in {given.out}", file=sys.stderr)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _runs(given: Namespace) -> _Compared:
    """Runs side by side."""
    from .reports.comparison import compare
    from .reports.notes import later_common_step, notes
    from .reports.pictures import comparison_figures
    from .reports.runs import open_runs

    runs = open_runs(given.runs, given.labels)
    comparison = compare([run.at(given.step) for run in runs])
    said = [*notes(comparison), *later_common_step(runs, comparison.firings)]
    return _Compared(comparison, said, lambda: comparison_figures(runs, comparison))


def _groups(given: Namespace) -> _Compared:
    """Groups of trainings side by side."""
    from .reports.group_notes import group_notes
    from .reports.groups import compare_groups, open_groups
    from .reports.notes import later_common_step
    from .reports.pictures import group_figures

    groups = open_groups(named_groups(given.group))
    comparison = compare_groups([group.at(given.step) for group in groups])
    runs = [run for group in groups for run in group.runs]
    firings = [firing for group in comparison.groups for firing in group.firings]
    said = [*group_notes(comparison), *later_common_step(runs, firings)]
    return _Compared(comparison, said, lambda: group_figures(groups, comparison))


def _parsed(args: Sequence[str]) -> Namespace:
    """The arguments: runs or groups of them, not both."""
    parser = _parser()
    given = parser.parse_args(args)
    if not given.runs and not given.group:
        parser.error("the following arguments are required: RUN, or --group NAME RUN [RUN ...]")
    if given.runs and given.group:
        parser.error(f"give runs or groups of them, not both: {given.runs[0]} stands outside of every --group")
    if given.labels and given.group:
        parser.error("argument --labels: not allowed with --group, which names its runs together")
    return given


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="scalepod compare", description=DESCRIPTION, formatter_class=RawDescriptionHelpFormatter
    )
    add_runs(parser, "*")
    parser.add_argument(
        "--group",
        nargs="+",
        action="append",
        metavar=("NAME", "RUN"),
        help="trainings of one model under a name, compared by their mean; once for each model, instead of RUN",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for compare.csv, compare.md and the figures")
    formats = ("table", "csv", "markdown")
    parser.add_argument("--format", choices=formats, default="table", help="what is printed (default: table)")
    return parser
