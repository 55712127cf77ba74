"""Errors over the choice of documents and over trainings, together."""

import math

import numpy as np
import pytest
import torch

from scalepod.confidence.jackknife import standard_error
from scalepod.confidence.trainings import Estimate, Sample, Spread, estimate, exact, pooled

UNKNOWN = Spread(math.nan, 0)


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


def test_p_values_without_errors_or_with_unknown_ones():
    assert exact(0.3).p_value == 0
    assert math.isnan(exact(0.0).p_value)
    single = sample(np.random.default_rng(5), 1)
    assert math.isnan(estimate([(1.0, single)], UNKNOWN).p_value)
    assert math.isnan(estimate([(1.0, single)], UNKNOWN).freedom)
    assert math.isnan(Estimate(*[math.nan] * 4).p_value)


def test_p_values_are_those_of_the_intervals():
    found = estimate([(1.0, sample(np.random.default_rng(6), 3))], UNKNOWN)
    low, high = found.interval(1 - found.p_value)
    assert min(abs(low), abs(high)) == pytest.approx(0, abs=1e-9)
    assert found._replace(value=-found.value).p_value == found.p_value


def test_groups_of_documents_weigh_by_their_size():
    one, sizes = sample(np.random.default_rng(7), 3), torch.tensor([2, 3, 3, 3, 4, 4, 5, 6])
    found = estimate([(1.0, one)], UNKNOWN, sizes)
    assert found.documents == pytest.approx(float(standard_error(torch.from_numpy(one.replicates.mean(0)), sizes)))
    assert found.documents != pytest.approx(estimate([(1.0, one)], UNKNOWN).documents)


def test_borrowed_scatter_brings_no_degrees_of_freedom():
    rng = np.random.default_rng(8)
    single, pair = (Sample(rng.standard_normal(n), np.zeros((n, 8))) for n in (1, 2))
    assert estimate([(-1.0, single), (1.0, pair)], pooled([single, pair])).freedom == pytest.approx(1)
    assert estimate([(-1.0, single), (1.0, single)], Spread(0.5, 3)).freedom == pytest.approx(3)


def test_a_borrowed_scatter_calls_nothing_different_too_often():
    rng = np.random.default_rng(9)
    p_values = []
    for _ in range(1000):
        single, pair = (Sample(rng.standard_normal(n), np.zeros((n, 8))) for n in (1, 2))
        p_values.append(estimate([(-1.0, single), (1.0, pair)], pooled([single, pair])).p_value)
    assert 0.03 <= np.mean(np.array(p_values) < 0.05) <= 0.07
