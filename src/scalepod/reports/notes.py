"""How a comparison was made and what it leaves out, in sentences."""

from collections.abc import Iterator, Sequence

from .comparison import Comparison
from .differences import ALPHA, incomparable
from .quantities import title_of
from .runs import Firing, Run, layer_names

SEEDS = (
    "Standard errors are over the choice of held-out documents (jackknife). They do not hold what another seed of the "
    "training would change: two trainings of one configuration may differ significantly. Where each model was trained "
    "several times, scalepod compare --group holds that too."
)


def notes(comparison: Comparison) -> list[str]:
    """What a reader of the table has to know: the tests, and what was not or not safely compared."""
    return [
        *_tests(comparison),
        *steps_and_lengths(comparison.firings),
        *alignment(comparison),
        *_left_out(comparison),
        SEEDS,
    ]


def later_common_step(runs: Sequence[Run], firings: Sequence[Firing]) -> list[str]:
    """Which step all runs have, where the compared ones differ."""
    if len({firing.step for firing in firings}) == 1:
        return []
    common = set(runs[0].results.steps).intersection(*(run.results.steps for run in runs))
    if not common:
        return ["The runs have no step in common."]
    return [f"The last step that all runs have is {max(common)}: --step {max(common)} compares them there."]


def _tests(comparison: Comparison) -> Iterator[str]:
    first, *others = comparison.firings
    if not others:
        return
    yield (
        f"*: differs from {first.label}, p <= {ALPHA} after Holm's correction for all {comparison.n_tests} comparisons "
        "of this table. Differences of H* are of its smooth form, so they need not be whole."
    )
    for other in others:
        tests = {entry.change.test for entry in comparison.entries if entry.run == other.label}
        if "paired" in tests:
            known = None not in (first.provenance.data_sha256, other.provenance.data_sha256)
            why = "the same documents" if known else "documents not on record, in groups of the same sizes"
            yield f"{other.label}: paired jackknife ({why})."
        if "unpaired" in tests:
            yield f"{other.label}: unpaired, Welch's t from both standard errors (other documents or other groups)."
        if not tests & {"paired", "unpaired"}:
            yield f"{other.label}: no test, for want of standard errors (they take 16 documents) or of common values."


def steps_and_lengths(firings: Sequence[Firing]) -> Iterator[str]:
    """Where steps or the length of documents differ."""
    if len({firing.step for firing in firings}) > 1:
        steps = ", ".join(f"{firing.label} at {firing.step}" for firing in firings)
        yield f"The runs are compared at different steps: {steps}."
    lengths = {firing.label: max(layer.n_tokens for layer in firing.analyses.values()) for firing in firings}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{label} {length}" for label, length in lengths.items())
        yield f"The documents differ in length ({found} tokens): longer ones have longer lags, which moves every value."


def alignment(comparison: Comparison) -> Iterator[str]:
    """Which layers are put side by side under different names, and which stand alone."""
    first, *others = comparison.firings
    for place, other in enumerate(others, start=1):
        pairs = [(row[0], row[place]) for row in comparison.layers]
        if any(one and two and one != two for one, two in pairs):
            yield f"The layers of {other.label} have other names; they are put beside those of {first.label} in order."
        for here, there, lonely in (
            (other, first, [one for one, two in pairs if one and not two]),
            (first, other, [two for one, two in pairs if two and not one]),
        ):
            if lonely:
                short = layer_names(there.analyses)
                names = ", ".join(short[name] for name in lonely)
                yield f"{here.label} has no counterpart of {names} of {there.label}."


def _left_out(comparison: Comparison) -> Iterator[str]:
    """Values that two runs have and that mean different things in them."""
    first, *others = comparison.firings
    for place, other in enumerate(others, start=1):
        reasons: dict[str, list[str]] = {}
        for quantity in comparison.quantities:
            for row in comparison.layers:
                if row[0] and row[place]:
                    reason = incomparable(quantity, first.analyses[row[0]], other.analyses[row[place]])
                    reasons.setdefault(reason, []).append(title_of(quantity))
        for reason, names in reasons.items():
            if reason:
                yield f"{other.label}: not compared, {', '.join(dict.fromkeys(names))} ({reason})."
