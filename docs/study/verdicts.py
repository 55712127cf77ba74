"""From numbers with errors to a verdict on a claim, by one rule for all claims.

A claim is read as a list of checks: each requires a value to lie inside (or outside) a range.

- *holds*: every value lies where it has to with its whole 95 % interval. All must pass, so none is counted twice.
- *does not hold*: at least one value lies elsewhere with its whole interval. One failure among m checks is enough, so
  the interval is that of 1 - 0.05 / m (Bonferroni): at most 5 % of true claims are called false.
- *cannot be told from this*: anything else; also where an error is unknown, as with a single training.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from scalepod.confidence.trainings import Estimate
from scalepod.figures.words import with_error

Outcome = Literal["yes", "no", "open"]
Verdict = Literal["holds", "does not hold", "cannot be told from this"]
LEVEL = 0.95
_TOLD = 2  # checks that a sentence names


class Check(NamedTuple):
    """A value, and where a claim requires it to lie."""

    name: str
    """What it is, with its unit, as the head of a sentence."""
    found: Estimate
    low: float
    """Lower end of the range; minus infinity for none."""
    high: float
    """Upper end; infinity for none."""
    inside: bool = True
    """Whether the claim requires the value inside the range, or outside of it."""


class Reading(NamedTuple):
    """A way to read a claim: all checks have to pass."""

    name: str
    """What is measured, with which definitions."""
    checks: tuple[Check, ...]


def outcome(check: Check, n_checks: int = 1) -> Outcome:
    """Whether a value certainly lies where it has to ("yes"), certainly elsewhere ("no"), or neither ("open").

    Args:
        check: The value and its range.
        n_checks: Checks of the claim, for the error of a "no".
    """
    sure, surer = check.found.interval(LEVEL), check.found.interval(1 - (1 - LEVEL) / n_checks)
    if check.inside:
        passed, failed = _within(sure, check), _without(surer, check)
    else:
        passed, failed = _without(sure, check), _within(surer, check)
    return "yes" if passed else "no" if failed else "open"


def verdict(checks: Sequence[Check]) -> Verdict:
    """The verdict on a claim from its checks.

    Raises:
        ValueError: There is no check.
    """
    if not checks:
        raise ValueError("a claim without checks has no verdict: give at least one")
    outcomes = [outcome(check, len(checks)) for check in checks]
    if "no" in outcomes:
        return "does not hold"
    return "holds" if set(outcomes) == {"yes"} else "cannot be told from this"


def sentence(checks: Sequence[Check]) -> str:
    """The verdict with what decides it: the checks that failed, or those that stay open, and why."""
    found = verdict(checks)
    if found == "holds":
        return f"Holds: {_count(len(checks))} where the claim puts it."
    if found == "does not hold":
        failed = [check for check in checks if outcome(check, len(checks)) == "no"]
        return f"Does not hold: {_listed(failed)}."
    if any(math.isnan(check.found.value) for check in checks):
        return "Cannot be told from this: a model was not trained."
    if any(math.isnan(check.found.stderr) for check in checks):
        return "Cannot be told from this: one training says nothing of others."
    unsure = [check for check in checks if outcome(check, len(checks)) == "open"]
    return f"Cannot be told from this: {_listed(unsure)}."


def range_of(check: Check) -> str:
    """The range of a check.

    Example:
        >>> from scalepod.confidence.trainings import exact
        >>> range_of(Check("lag", exact(1.0), 0.5, math.inf))
        'more than 0.5'
        >>> range_of(Check("lag", exact(1.0), 0.9, 1.1, inside=False))
        'not 0.9 to 1.1'
    """
    if math.isinf(check.high):
        text = f"more than {check.low:g}"
    elif math.isinf(check.low):
        text = f"less than {check.high:g}"
    else:
        text = f"{check.low:g} to {check.high:g}"
    return (text if check.inside else f"not {text}").replace("-", "\N{MINUS SIGN}")


def shown(found: Estimate) -> str:
    """A value with both errors together; with that over documents alone where nothing tells of other trainings."""
    if math.isnan(found.value):
        return "not known"
    if found.freedom == math.inf:
        return f"{found.value:.3g}"
    error = found.documents if math.isnan(found.seeds) else found.stderr
    return with_error(found.value, error).replace("-", "\N{MINUS SIGN}")


def _listed(checks: Sequence[Check]) -> str:
    """The first checks with their values, and how many more there are: the table has them all."""
    more = [f"and {len(checks) - _TOLD} more"] if len(checks) > _TOLD else []
    return "; ".join([*map(_against, checks[:_TOLD]), *more])


def _against(check: Check) -> str:
    return f"{check.name} = {shown(check.found)}, where the claim needs {range_of(check)}"


def _count(n: int) -> str:
    return "the value lies" if n == 1 else f"each of {n} values lies"


def _within(interval: tuple[float, float], check: Check) -> bool:
    return check.low <= interval[0] and interval[1] <= check.high


def _without(interval: tuple[float, float], check: Check) -> bool:
    return interval[1] < check.low or interval[0] > check.high
