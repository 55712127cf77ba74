"""The rule of docs/study that turns values with errors into verdicts."""

import doctest
import math

import pytest
import trainings
import verdicts
from scipy.stats import t as student
from verdicts import Check, outcome, sentence, verdict

from scalepod.confidence.trainings import Estimate, exact


def check(value, low, high, error=1.0, freedom=1e6, inside=True, name="it"):
    return Check(name, Estimate(value, error, 0.0, freedom), low, high, inside)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(5.0, "yes"), (1.9, "open"), (2.1, "yes"), (-1.9, "open"), (-2.1, "no"), (8.1, "open"), (12.1, "no")],
)
def test_inside_a_range_only_with_the_whole_interval(value, expected):
    assert outcome(check(value, 0.0, 10.0)) == expected


@pytest.mark.parametrize(("value", "expected"), [(5.0, "no"), (-1.9, "open"), (-2.1, "yes"), (12.1, "yes")])
def test_outside_a_range_is_the_reverse(value, expected):
    assert outcome(check(value, 0.0, 10.0, inside=False)) == expected


def test_few_degrees_of_freedom_widen_the_interval():
    reach = student.ppf(0.975, 2)
    assert outcome(check(reach + 0.01, 0.0, math.inf, freedom=2.0)) == "yes"
    assert outcome(check(reach - 0.01, 0.0, math.inf, freedom=2.0)) == "open"


def test_a_no_among_many_checks_takes_more():
    failing = check(-2.2, 0.0, math.inf)
    assert outcome(failing) == "no"
    assert outcome(failing, 6) == "open"
    assert outcome(check(2.2, 0.0, math.inf), 6) == "yes", "all have to pass, so a pass is not counted twice"


def test_verdict_takes_all_to_hold_and_one_to_fail():
    passing, failing, either = check(5.0, 0, 10), check(-9.0, 0, 10), check(0.0, 0, 10)
    assert verdict([passing, passing]) == "holds"
    assert verdict([passing, failing, either]) == "does not hold"
    assert verdict([passing, either]) == "cannot be told from this"
    with pytest.raises(ValueError, match="a claim without checks has no verdict: give at least one"):
        verdict([])


def test_an_exact_value_on_the_bound_counts_as_inside():
    assert outcome(Check("it", exact(0.0), 0.0, 1.0)) == "yes"
    assert outcome(Check("it", exact(1.5), 0.0, 1.0)) == "no"


def test_sentence_names_what_decides():
    passing, failing = check(5.0, 0, 10, name="this"), check(-9.0, 0, 10, name="that")
    assert sentence([passing]) == "Holds: the value lies where the claim puts it."
    assert sentence([passing, passing]) == "Holds: each of 2 values lies where the claim puts it."
    assert sentence([passing, failing]) == "Does not hold: that = −9.0 ± 1.0, where the claim needs 0 to 10."
    assert sentence([failing] * 5).endswith("needs 0 to 10; and 3 more.")
    unsure = check(0.0, -1, 1, name="it")
    assert sentence([passing, unsure]) == "Cannot be told from this: it = 0.0 ± 1.0, where the claim needs −1 to 1."


def test_sentence_says_why_an_error_is_not_known():
    alone = Check("it", Estimate(5.0, 0.1, math.nan, math.nan), 0, 10)
    assert sentence([alone]) == "Cannot be told from this: one training says nothing of others."
    missing = Check("it", Estimate(*[math.nan] * 4), 0, 10)
    assert sentence([missing, alone]) == "Cannot be told from this: a model was not trained."


@pytest.mark.parametrize("module", [verdicts, trainings])
def test_examples(module):
    found = doctest.testmod(module)
    assert found.attempted
    assert not found.failed
