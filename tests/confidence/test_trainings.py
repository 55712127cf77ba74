"""Errors over the choice of documents and over trainings, together."""

import math

import numpy as np
import pytest
import torch

from scalepod.confidence.jackknife import standard_error
from scalepod.confidence.trainings import Sample, Spread, estimate, pooled

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
