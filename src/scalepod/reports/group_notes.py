"""How a comparison of groups of trainings was made and what it leaves out, in sentences."""

from collections.abc import Iterator

from .differences import ALPHA
from .group_values import no_difference, no_mean
from .groups import GroupComparison
from .notes import alignment, steps_and_lengths
from .quantities import title_of

_ENOUGH = 4  # degrees of freedom of a scatter that is borrowed: those of two groups of three trainings
_H_STAR = "Values and differences of H* are of its smooth form, so they need not be whole."


def group_notes(comparison: GroupComparison) -> list[str]:
    """What a reader of the table has to know: the tests, what was left out, and what the errors hold."""
    return [
        *_tests(comparison),
        _H_STAR,
        *steps_and_lengths([firing for group in comparison.groups for firing in group.firings]),
        *alignment(comparison),
        *_left_out(comparison),
        *_errors(comparison),
    ]


def _tests(comparison: GroupComparison) -> Iterator[str]:
    first, *others = comparison.groups
    if not others:
        return
    yield (
        f"*: differs from {first.label}, p <= {ALPHA} after Holm's correction for all {comparison.n_tests} comparisons "
        "of this table."
    )
    known = all(firing.provenance.data_sha256 is not None for group in comparison.groups for firing in group.firings)
    why = "the same documents" if known else "documents not on record, in groups of the same sizes"
    yield f"Tests: Student's t from the errors over documents, paired ({why}), and over trainings."
    for other in others:
        if not any(entry.change.test for entry in comparison.entries if entry.run == other.label):
            yield f"{other.label}: no test, for want of common values."


def _left_out(comparison: GroupComparison) -> Iterator[str]:
    """Values that mean different things in the trainings of a group, or in two groups that have them."""
    for k, group in enumerate(comparison.groups):
        within: dict[str, list[str]] = {}
        between: dict[str, list[str]] = {}
        for quantity in comparison.quantities:
            for row in comparison.rows:
                undefined = no_mean(quantity, row[k])
                within.setdefault(undefined, []).append(title_of(quantity))
                if not undefined and not no_mean(quantity, row[0]):
                    between.setdefault(no_difference(quantity, row, k) if k else "", []).append(title_of(quantity))
        for what, reasons in (("no mean over its trainings", within), ("not compared", between)):
            for reason, names in reasons.items():
                if reason:
                    yield f"{group.label}: {what}, {', '.join(dict.fromkeys(names))} ({reason})."


def _errors(comparison: GroupComparison) -> Iterator[str]:
    """What the errors hold, and how far they can be trusted."""
    counts = {group.label: len(group.firings) for group in comparison.groups}
    listed = ", ".join(f"{label} {count}" for label, count in counts.items())
    yield (
        "Standard errors are over the choice of held-out documents (jackknife of the mean over trainings) and over the "
        f"trainings (their scatter) together. Trainings: {listed}."
    )
    once = [label for label, count in counts.items() if count == 1]
    if once:
        yield (
            f"Trained once: {', '.join(once)}. The error over trainings is there the scatter in the groups of several, "
            "pooled, as if all models scattered alike, and unknown where no such group has the value."
        )
    yield (
        "Few trainings leave the tests few degrees of freedom: a difference without a star may be one that they cannot "
        "tell from the scatter."
    )
    freedom = sum(count - 1 for count in counts.values())
    if few := [label for label, count in counts.items() if count == 2 or (count == 1 and freedom < _ENOUGH)]:
        yield (
            f"Too few trainings: {', '.join(few)}. By chance they can scatter far less than others would, so stars are "
            "false several times as often as Holm's correction promises. Give three or more to each group."
        )
