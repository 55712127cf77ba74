"""The rule of docs/study that turns values with errors into verdicts, and the errors themselves."""

import doctest
import math

import estimates
import numpy as np
import pytest
import torch
import trainings
import verdicts
from estimates import Estimate, Sample, Spread, estimate, exact, pooled
from scipy.stats import t as student
from verdicts import Check, outcome, sentence, verdict

from scalepod.confidence.jackknife import standard_error

UNKNOWN = Spread(math.nan, 0)


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
    unsure = check(0.0, -1, 1, name="it")
    assert sentence([passing, unsure]) == "Cannot be told from this: it = 0.0 ± 1.0, where the claim needs −1 to 1."


def test_sentence_says_why_an_error_is_not_known():
    alone = Check("it", Estimate(5.0, 0.1, math.nan, math.nan), 0, 10)
    assert sentence([alone]) == "Cannot be told from this: one training says nothing of others."
    missing = Check("it", Estimate(*[math.nan] * 4), 0, 10)
    assert sentence([missing, alone]) == "Cannot be told from this: a model was not trained."


@pytest.mark.parametrize("module", [estimates, verdicts, trainings])
def test_examples(module):
    found = doctest.testmod(module)
    assert found.attempted
    assert not found.failed


def sample(rng, n_seeds, n_groups=8):
    return Sample(rng.standard_normal(n_seeds), rng.standard_normal((n_seeds, n_groups)))


def test_errors_are_the_jackknife_of_the_mean_and_the_scatter_of_the_seeds():
    one = sample(np.random.default_rng(0), 3)
    found = estimate([(1.0, one)], UNKNOWN)
    assert found.value == pytest.approx(one.values.mean())
    assert found.documents == pytest.approx(float(standard_error(torch.from_numpy(one.replicates.mean(0)))))
    assert found.seeds == pytest.approx(one.values.std(ddof=1) / math.sqrt(3))
    a, b = found.documents**2, found.seeds**2
    assert found.freedom == pytest.approx((a + b) ** 2 / (a**2 / 7 + b**2 / 2))


def test_documents_cancel_in_a_difference_and_seeds_do_not():
    rng = np.random.default_rng(1)
    one = sample(rng, 3)
    other = Sample(one.values + 2.0, one.replicates + 2.0)
    found = estimate([(-1.0, one), (1.0, other)], UNKNOWN)
    assert found.value == pytest.approx(2.0)
    assert found.documents == pytest.approx(0.0, abs=1e-12)
    assert found.seeds == pytest.approx(math.sqrt(2 / 3) * one.values.std(ddof=1))


def test_a_single_training_borrows_the_scatter_of_the_others():
    rng = np.random.default_rng(2)
    several, single = [sample(rng, 3), sample(rng, 2)], sample(rng, 1)
    spread = pooled([*several, single])
    squares = sum(((each.values - each.values.mean()) ** 2).sum() for each in several)
    assert spread == pytest.approx((math.sqrt(squares / 3), 3))
    assert estimate([(1.0, single)], spread).seeds == pytest.approx(spread.deviation)
    assert math.isnan(estimate([(1.0, single)], UNKNOWN).seeds)


def test_a_model_that_was_not_trained_makes_nothing_known():
    nothing = Sample(np.empty(0), np.empty((0, 0)))
    found = estimate([(-1.0, sample(np.random.default_rng(3), 3)), (1.0, nothing)], Spread(1.0, 2))
    assert all(math.isnan(number) for number in found)


def test_intervals_cover_over_documents_and_seeds():
    rng = np.random.default_rng(4)
    covered, draws = 0, 1500
    for _ in range(draws):
        groups = 0.5 * rng.standard_normal(8)  # what the groups of documents add, in all trainings
        seeds = 0.3 * rng.standard_normal(3)
        replicates = seeds[:, None] + (groups.sum() - groups) / 7
        low, high = estimate([(1.0, Sample(seeds + groups.mean(), replicates))], UNKNOWN).interval(0.95)
        covered += low <= 0 <= high
    assert 0.93 <= covered / draws <= 0.99
