"""The tables of the study, and how they get into docs/study.md between sentences written by hand."""

import math
import re
import textwrap
from collections.abc import Mapping, Sequence

from claims import ALL, Claim
from observed import Study
from tables import (
    Row,
    check_table,
    convention_table,
    layer_table,
    loss_table,
    scatter_table,
    summary_table,
    training_table,
)
from verdicts import Check, outcome, sentence

COMPLEXITY = {
    "t_spec": "field T_spec",
    "h_star_0.10": "field H*(0.10)",
    "lag_t_spec": "lag T_spec",
    "lag_h_star_0.10": "lag H*(0.10)",
}
"""Values of complexity that are drawn over training, with their names."""

BANDS = {
    "mean_lag": "mean lag, tokens",
    "band_fine": "share, lags to 6",
    "band_coarse": "share, lags from 21",
}
"""Values of distance that are drawn over training; the share of the band between follows from the two."""

LAYERS: Sequence[dict[str, str]] = (
    {
        "t_spec": "field T_spec",
        "lag_t_spec": "lag T_spec",
        "h_star_0.10": "field H*(0.10)",
        "mean_lag": "mean lag, tokens",
    },
    {
        "leading_share": "share of 3 field modes",
        "lag_h_star_0.10": "lag H*(0.10)",
        "distinct_heads": "distinct heads of 8",
        "log_scalogram_fluctuation": "log energy, fluctuation",
    },
)
"""Values drawn by layer, a mapping a row of panels."""

_VALUES = {name: words for row in LAYERS for name, words in row.items()}

FOLLOWED = {"lag_t_spec": "lag T_spec", "t_spec": "field T_spec", "mean_lag": "mean lag, tokens"}
"""Values of which the page has tables over the training."""

_BLOCK = re.compile(r"(<!-- table: (\S+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


class PageError(ValueError):
    """The page lacks the place of a table, or has one for a table that there is not."""


def blocks(study: Study, claims: Sequence[Claim], beside: Sequence[Row]) -> dict[str, str]:
    """Everything on the page that follows from the trainings, in Markdown.

    Args:
        study: The study.
        claims: Its claims.
        beside: The published conventions beside scalepod's; empty without a training of the baseline.

    Returns:
        Tables, and sentences made from numbers, by name.
    """
    found = {"trainings": _trainings(study), "verdicts": summary_table(claims)}
    found |= {f"claim-{number}": _claim(claim) for number, claim in enumerate(claims, 1)}
    found |= {"losses": loss_table(study), "layers": _end(study), "scatter": scatter_table(study, _VALUES)}
    found |= {"training": _training(study)}
    return found | {"settled": settled(study), "conventions": _conventions(beside)}


def renewed(text: str, found: Mapping[str, str]) -> str:
    r"""A page with its tables renewed; every word outside of them stays.

    The place of a table is between the lines ``<!-- table: NAME -->`` and ``<!-- end -->``.

    Args:
        text: The page.
        found: Tables by name.

    Returns:
        The page with each of the tables in its place.

    Raises:
        PageError: A table has no place, or more than one, or a place has no table.

    Example:
        >>> renewed("Words.\n<!-- table: sums -->\nold\n<!-- end -->\n", {"sums": "new"})
        'Words.\n<!-- table: sums -->\nnew\n<!-- end -->\n'
    """
    places = [name for _, name, *_ in _BLOCK.findall(text)]
    if text.count("<!-- table:") != len(places):
        raise PageError("a table of the page has no end: write <!-- end --> on the line behind it")
    if unknown := [name for name in places if name not in found]:
        raise PageError(f"the page has a place for {unknown[0]!r}, which is none of {', '.join(found)}")
    if amiss := [name for name in found if places.count(name) != 1]:
        raise PageError(f"the table {amiss[0]!r} has {places.count(amiss[0])} places on the page, and takes one")
    return _BLOCK.sub(lambda match: f"{match[1]}{found[match[2]]}\n{match[4]}", text)


def settled(study: Study) -> str:
    """In which layers values still change over the second half of the training, in a sentence a value."""
    model = study.models[0]
    steps = study.of(model)[0].results.steps
    half = min(steps, key=lambda step: abs(step - steps[-1] / 2))
    found = []
    for name, words in (COMPLEXITY | BANDS).items():
        checks = [Check(words, study.between(model, name, half, steps[-1], layer), 0, 0, inside=False) for layer in ALL]
        moving = [str(layer) for layer, check in zip(ALL, checks, strict=True) if outcome(check) == "yes"]
        where = f"layer{'s' * (len(moving) > 1)} {', '.join(moving)}"
        text = f"changes in {where}" if moving else "changes in no layer by more than its error"
        if any(math.isnan(check.found.stderr) for check in checks):
            text = "cannot be told from one training"
        found.append(f"- {words}: {text}")
    return (
        f"From step {half} to step {steps[-1]} of the {model} (95 % intervals, each layer by itself):\n\n"
        + "\n".join(found)
    )


def same_of_diagonal(beside: Sequence[Row]) -> str:
    """Whether the published numbers are those of the diagonal, in words."""
    pairs = (("published_h_star", "diagonal_h_star"), ("published_scales", "diagonal_scales"))
    same = all(row[a] == row[b] for row in beside for a, b in pairs)
    apart = max(abs(1 - float(str(row["diagonal_t_spec"])) / float(str(row["published_t_spec"]))) for row in beside)
    if same and apart < 1e-6:
        return "the numbers are the same, in every layer"
    return f"the numbers differ, T_spec by up to {100 * apart:.2g} %"


def _trainings(study: Study) -> str:
    counts = ", ".join(f"{model} {len(study.of(model))}" for model in study.models)
    return f"Trainings, a seed each: {counts}."


def _claim(claim: Claim) -> str:
    lines = [_wrapped(f"- *{reading.name}*: {sentence(reading.checks)}") for reading in claim.readings]
    return "\n\n".join([_wrapped(claim.measured), "\n".join(lines), check_table(claim)])


def _conventions(beside: Sequence[Row]) -> str:
    if not beside:
        return "There is no training of the baseline."
    said = f"With everything off the diagonal set to zero {same_of_diagonal(beside)}."
    return f"{said}\n\n{convention_table(beside)}"


def _wrapped(text: str) -> str:
    indent = "  " if text.startswith("- ") else ""
    return textwrap.fill(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _end(study: Study) -> str:
    return "\n\n".join(f"**{model}**\n\n{layer_table(study, model, _VALUES)}" for model in study.models)


def _training(study: Study) -> str:
    model = study.models[0]
    tables = (f"{words}, {model}, by step:\n\n{training_table(study, model, name)}" for name, words in FOLLOWED.items())
    return "\n\n".join(tables)
