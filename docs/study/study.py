"""Train the models of the papers at study size, and measure what the papers claim of their attention.

    python docs/study/study.py [--runs runs/study] [--seeds 1 2 3 4] [--only baseline ega] [--path text] [--no-train]

trains what is missing (six to sixteen minutes a training on two cores; a complete one is kept, an interrupted one is
started again), writes tables to docs/study/results and figures to docs/study/images, and renews every table and verdict
of docs/study.md between the sentences written by hand. The verdicts follow from the numbers by the rule of `verdicts`.
With --out all that is written elsewhere, as it has to be when only a part of the trainings is there.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from claims import CLAIMS, Claim
from observed import Study, conventions, observe
from page import BANDS, COMPLEXITY, LAYERS, blocks, renewed
from pictures import layers_figure, modes_figure, training_figure
from tables import Row, claim_rows, convention_rows, layer_rows, loss_rows, training_rows, write_csv
from trainings import CHANGES, TrainingFailed, planned, train_missing

from scalepod.figures import save_figure

DOCS = Path(__file__).resolve().parents[1]


def main(args: Sequence[str] | None = None) -> int:
    """Run the study.

    Args:
        args: The arguments; None for those of the process.

    Returns:
        Exit status: 0, or 1 when a training failed or there is none to look at, which has been said.
    """
    given = _parser().parse_args(args)
    trainings = planned(given.only, given.seeds)
    if not given.no_train:
        try:
            train_missing(given.runs, trainings, given.path)
        except TrainingFailed as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    try:
        write_study(observe(given.runs, trainings, given.path), given.runs, given.path, given.out)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"written: {given.out / 'study.md'}, and its tables and figures to {given.out / 'study'}", file=sys.stderr)
    return 0


def write_study(study: Study, runs: Path, text: Path | None, out: Path) -> None:
    """Write the page, the tables and the figures of what was observed.

    Raises:
        ValueError: There is no training, or only a part of those of which the page of the documentation tells.
    """
    if not study.runs:
        raise ValueError(f"there is no complete training in {runs}: run without --no-train")
    if out.resolve() == DOCS and (missing := [model for model in CHANGES if not study.of(model)]):
        raise ValueError(f"docs/study.md tells of all models, and there is no {missing[0]}: write elsewhere with --out")
    claims = [claim(study) for claim in CLAIMS]
    beside = compared_conventions(study, text)
    page = renewed((DOCS / "study.md").read_text(encoding="utf-8"), blocks(study, claims, beside))
    write_results(study, claims, beside, out / "study")
    (out / "study.md").write_text(page, encoding="utf-8")


def compared_conventions(study: Study, text: Path | None) -> list[Row]:
    """The published analysis beside scalepod's, of the first training of the baseline; empty without one."""
    baseline = study.of("baseline")
    if not baseline:
        return []
    results = baseline[0].results
    return convention_rows(conventions(baseline[0], text), results.analyses[results.steps[-1]].values())


def write_results(study: Study, claims: Sequence[Claim], beside: Sequence[Row], out: Path) -> None:
    """Write every table and every figure."""
    found = {
        "claims": claim_rows(claims),
        "layers": layer_rows(study),
        "training": training_rows(study),
        "losses": loss_rows(study),
        "conventions": beside,
    }
    for name, rows in found.items():
        write_csv(out / "results" / f"{name}.csv", rows)
    figures = {
        "complexity": training_figure(study, COMPLEXITY, "How complex the attention is"),
        "bands": training_figure(study, BANDS, "How far back the attention looks"),
        "layers": layers_figure(study, LAYERS, "Layers at the end of the training"),
        "modes": modes_figure(study, "Where the leading modes look"),
    }
    for name, figure in figures.items():
        save_figure(figure, out / "images" / f"{name}.png")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs/study"), help="folder of the trainings")
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=[1, 2, 3, 4], help="of baseline and ega; the others have the first"
    )
    parser.add_argument("--path", type=Path, help="the text; by default the data module finds it")
    parser.add_argument(
        "--only", nargs="+", choices=list(CHANGES), default=list(CHANGES), help="models", metavar="NAME"
    )
    parser.add_argument("--no-train", action="store_true", help="use the complete trainings there are")
    parser.add_argument("--out", type=Path, default=DOCS, help="folder of the page, its tables and figures")
    return parser


if __name__ == "__main__":
    sys.exit(main())
