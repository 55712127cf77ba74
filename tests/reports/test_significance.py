"""Differences between analyses of other documents, and of many at once: against scipy and by hand."""

import numpy as np
import pytest
import torch
from scipy import stats

from scalepod.reports.significance import holm, unpaired_change


def test_two_means_differ_as_in_welchs_test():
    """Of a mean, the jackknife over single documents is the textbook error, so the whole is Welch's t-test."""
    generator = np.random.default_rng(0)
    a, b = generator.normal(0, 1, 9), generator.normal(0.8, 3, 15)
    sides = [(torch.tensor(x.mean()), torch.tensor(x.std(ddof=1) / np.sqrt(len(x))), len(x)) for x in (a, b)]
    change = unpaired_change(*sides[0], *sides[1])
    expected = stats.ttest_ind(b, a, equal_var=False)
    assert float(change.difference) == pytest.approx(b.mean() - a.mean())
    assert float(change.t) == pytest.approx(expected.statistic)
    assert float(change.p_value) == pytest.approx(expected.pvalue)


def test_a_value_without_error_leaves_the_other_its_freedom():
    change = unpaired_change(torch.tensor(1.0), torch.tensor(0.0), 30, torch.tensor(3.0), torch.tensor(1.0), 8)
    assert float(change.p_value) == pytest.approx(2 * stats.t.sf(2, 7))


def test_undefined_and_errorless_values():
    nan, zero = torch.nan, torch.zeros(3, dtype=torch.float64)
    change = unpaired_change(torch.tensor([nan, 1, 1]), zero, 8, torch.tensor([1.0, 1, 2]), zero, 8)
    assert torch.equal(change.t.isnan(), torch.tensor([True, True, False]))
    assert float(change.t[2]) == torch.inf
    assert float(change.p_value[2]) == 0


def test_too_few_groups():
    one = torch.tensor(1.0)
    with pytest.raises(ValueError, match="takes at least 2 groups of documents, got 1 and 8"):
        unpaired_change(one, one, 1, one, one, 8)


def step_down(p_values, alpha):
    """Holm's procedure as he wrote it: which hypotheses are rejected."""
    rejected = np.zeros(len(p_values), dtype=bool)
    for i, place in enumerate(np.argsort(p_values, kind="stable")):
        if p_values[place] > alpha / (len(p_values) - i):
            break
        rejected[place] = True
    return rejected


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.2])
def test_adjusted_values_reject_what_the_step_down_procedure_rejects(seed, alpha):
    p_values = np.random.default_rng(seed).uniform(0, 0.1, 12) ** 2
    adjusted = holm(torch.from_numpy(p_values))
    assert ((adjusted.numpy() <= alpha) == step_down(p_values, alpha)).all()


def test_comparisons_that_could_not_be_made_do_not_count():
    nan = torch.nan
    p_values = torch.tensor([nan, 0.02, nan, 0.01, 0.9], dtype=torch.float64)
    torch.testing.assert_close(holm(p_values), torch.tensor([nan, 0.04, nan, 0.03, 0.9]).double(), equal_nan=True)
    assert holm(torch.tensor([nan])).isnan().all()
    assert holm(torch.tensor([])).tolist() == []


def test_never_above_one_and_in_the_order_of_the_values():
    p_values = torch.tensor([0.5, 0.4, 0.6, 0.0])
    assert holm(p_values).tolist() == [1, 1, 1, 0]


@pytest.mark.parametrize("p_values", [torch.tensor([0.5, 1.2]), torch.tensor([-0.1]), torch.tensor([[0.5]])])
def test_what_is_no_probability(p_values):
    with pytest.raises(ValueError, match="must be a vector of probabilities"):
        holm(p_values)
