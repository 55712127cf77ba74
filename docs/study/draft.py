"""The study in words: tables for docs/study.md, and a draft of it."""

import math
import textwrap
from collections.abc import Sequence

from claims import ALL, Claim
from observed import Study
from tables import (
    Row,
    check_table,
    convention_table,
    layer_table,
    loss_table,
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
    "band_medium": "share, lags 7-20",
    "band_coarse": "share, lags from 21",
}
"""Values of distance that are drawn over training."""

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

_INTRO = """\
# The claims of the papers, measured

```
python docs/study/study.py
```

trains the models of arXiv 2606.06573, 2605.21842 and 2605.26355 on TinyShakespeare with the callback watching: six
layers of eight heads as published, 128 wide instead of 256, 1500 steps of 8 windows of 256 characters, 150 held-out
documents. {trainings}.

Every number has two errors: over the choice of documents (jackknife), and over trainings. A model trained once is taken
to scatter as those trained several times. A claim *holds* when every value lies with its whole 95 % interval where the
claim puts it; it *does not hold* when one lies with its whole interval elsewhere (5 % over all values of the claim);
otherwise it *cannot be told from this*. The ranges that stand for "about" and "several" are given with each claim.
All tables are in [study/results](study/results)."""

_CONVENTIONS = """\
## The published conventions on the same attention

The published code counts lags forwards, where causal attention is zero, so that what it computes is of the diagonal
alone ([method.md](method.md)). Here on the attention of the trained baseline, and again with everything off the
diagonal set to zero: {same}."""

_LIMITS = """\
## What this does not say

- The models have a quarter of the published parameters, and are trained for minutes. A claim that does not hold here
  may hold there.
- One text, one length of documents, N = 150. Field T_spec and field H* change with N ([confidence.md](confidence.md)).
- Ranges for words such as "about" are ours. The tables hold the values, so that others can be tried."""


def tables(study: Study, claims: Sequence[Claim], beside: Sequence[Row]) -> str:
    """All tables in Markdown, without words."""
    parts = [summary_table(claims), *(f"{claim.title}\n\n{check_table(claim)}" for claim in claims)]
    parts += [loss_table(study), *_end(study), *_training(study)]
    return "\n\n".join([*parts, *([convention_table(beside)] if beside else [])])


def page(study: Study, claims: Sequence[Claim], beside: Sequence[Row]) -> str:
    """A draft of docs/study.md."""
    counts = [f"{model}: {len(study.of(model))}" for model in study.models]
    parts = [_INTRO.format(trainings=f"Trainings, a seed each: {', '.join(counts)}"), summary_table(claims)]
    parts += [_claim(number, claim) for number, claim in enumerate(claims, 1)]
    parts += ["## Losses\n\nIn nats a character.", loss_table(study)]
    parts += ["## Layer by layer", "![Values by layer](study/images/layers.png)", *_end(study)]
    parts += ["## Over the training", "![Complexity over the training](study/images/complexity.png)"]
    parts += ["![Distance over the training](study/images/bands.png)", settled(study), *_training(study)]
    if beside:
        parts += [_CONVENTIONS.format(same=same_of_diagonal(beside)), convention_table(beside)]
    return "\n\n".join([*parts, _LIMITS])


def settled(study: Study) -> str:
    """In which layers values still change over the second half of the training, in a sentence a value."""
    model = study.models[0]
    steps = study.of(model)[0].results.steps
    half = min(steps, key=lambda step: abs(step - steps[-1] / 2))
    found = []
    for name, words in (COMPLEXITY | BANDS).items():
        checks = [Check(words, study.between(model, name, half, steps[-1], layer), 0, 0, inside=False) for layer in ALL]
        moving = [str(layer) for layer, check in zip(ALL, checks, strict=True) if outcome(check) == "yes"]
        text = f"changes in layers {', '.join(moving)}" if moving else "changes in no layer by more than its error"
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


def _claim(number: int, claim: Claim) -> str:
    lines = [_wrapped(f"- *{reading.name}*: {sentence(reading.checks)}") for reading in claim.readings]
    heading = f"## {number}. {claim.title.removesuffix('.')}"
    parts = [heading, _wrapped(claim.measured), "\n".join(lines), check_table(claim)]
    picture = ["![Energy of the leading modes by lag](study/images/modes.png)"] if number == 4 else []
    return "\n\n".join([*parts, *picture])


def _wrapped(text: str) -> str:
    indent = "  " if text.startswith("- ") else ""
    return textwrap.fill(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _end(study: Study) -> list[str]:
    names = {name: words for row in LAYERS for name, words in row.items()}
    return [f"**{model}**\n\n{layer_table(study, model, names)}" for model in study.models]


def _training(study: Study) -> list[str]:
    names = {"lag_t_spec": "lag T_spec", "t_spec": "field T_spec", "mean_lag": "mean lag, tokens"}
    model = study.models[0]
    return [f"{words}, {model}, by step:\n\n{training_table(study, model, name)}" for name, words in names.items()]
