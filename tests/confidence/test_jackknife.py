import math

import numpy as np
import pytest
import torch
from scipy import stats

from scalepod.confidence.jackknife import interval, paired_change, standard_error


def without_each(documents, sizes, statistic=np.mean):
    """The statistic of the documents without each group; consecutive documents make a group."""
    groups = np.split(np.arange(len(documents)), np.cumsum(sizes)[:-1])
    return np.array([statistic(np.delete(documents, group, 0)) for group in groups])


def busing(value, replicates, sizes):
    """Delete-m_j standard error by its pseudo-values, equations 5 and 6 of Busing, Meijer & Van der Leeden (1999)."""
    n, n_groups = sum(sizes), len(sizes)
    h = n / np.asarray(sizes)
    estimate = n_groups * value - ((1 - 1 / h) * replicates).sum()
    pseudo = h * value - (h - 1) * replicates
    return math.sqrt(((pseudo - estimate) ** 2 / (h - 1)).sum() / n_groups)


@pytest.mark.parametrize("sizes", [[5] * 8, [19] * 6 + [18] * 2, [3, 10, 6, 1]])
def test_a_mean_has_the_error_of_the_delete_group_jackknife(sizes):
    documents = np.random.default_rng(0).standard_normal(sum(sizes))
    replicates = without_each(documents, sizes)
    found = standard_error(torch.from_numpy(replicates), torch.tensor(sizes))
    assert float(found) == pytest.approx(busing(documents.mean(), replicates, sizes))


def test_of_a_curved_statistic_the_error_is_close_to_that_form():
    sizes = [19] * 6 + [18] * 2
    documents = np.random.default_rng(1).lognormal(size=sum(sizes))
    replicates = without_each(documents, sizes, lambda x: np.log(x.mean()))
    found = standard_error(torch.from_numpy(replicates), torch.tensor(sizes))
    assert float(found) == pytest.approx(busing(math.log(documents.mean()), replicates, sizes), rel=0.01)


def test_single_documents_give_the_textbook_error_of_a_mean():
    documents = np.random.default_rng(2).standard_normal((3, 40))
    replicates = np.stack([without_each(row, [1] * 40) for row in documents])
    found = standard_error(torch.from_numpy(replicates))
    assert found.numpy() == pytest.approx(documents.std(-1, ddof=1) / math.sqrt(40))


def test_equal_sizes_need_not_be_given():
    replicates = torch.rand(2, 3, 8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(standard_error(replicates), standard_error(replicates, torch.full((8,), 5)))
    expected = ((7 / 8) * (replicates - replicates.mean(-1, keepdim=True)).square().sum(-1)).sqrt()
    torch.testing.assert_close(standard_error(replicates), expected)


def test_undefined_in_a_part_is_undefined():
    replicates = torch.ones(2, 8)
    replicates[1, 3] = torch.nan
    found = standard_error(replicates)
    assert float(found[0]) == 0
    assert math.isnan(float(found[1]))


@pytest.mark.parametrize("level", [0.5, 0.95, 0.99])
def test_the_interval_is_students(level):
    expected = stats.t(7, loc=3.0, scale=0.5).interval(level)
    assert interval(3.0, 0.5, 8, level) == pytest.approx(expected)
    low, high = interval(torch.tensor([3.0, math.nan]), torch.tensor([0.5, 0.5]), 8, level)
    assert (float(low[0]), float(high[0])) == pytest.approx(expected)
    assert math.isnan(float(low[1]))
    assert math.isnan(float(high[1]))


def test_a_change_is_tested_like_paired_means():
    rng = np.random.default_rng(3)
    before = 10 * rng.standard_normal(40)
    after = before + 0.3 + rng.standard_normal(40)
    expected = stats.ttest_rel(after, before)
    replicates = [torch.from_numpy(without_each(values, [1] * 40)) for values in (before, after)]
    change = paired_change(torch.tensor(before.mean()), replicates[0], torch.tensor(after.mean()), replicates[1])
    assert float(change.difference) == pytest.approx(after.mean() - before.mean())
    assert float(change.t) == pytest.approx(expected.statistic)
    assert float(change.p_value) == pytest.approx(expected.pvalue)
    # the documents differ far more than the firings do: without pairing nothing would be seen
    apart = torch.hypot(*(standard_error(each) for each in replicates))
    assert float(change.stderr) < float(apart) / 5


def test_unequal_groups_count_by_their_size():
    sizes = torch.tensor([3, 10, 6, 1])
    a, b = torch.rand(2, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    change = paired_change(torch.tensor(0.0), a, torch.tensor(1.0), b, sizes)
    torch.testing.assert_close(change.stderr, standard_error(b - a, sizes))


def test_a_change_without_error_is_certain_and_no_change_undefined():
    same = torch.ones(3, 8)
    same[2, 0] = torch.nan
    change = paired_change(torch.ones(3), same, torch.tensor([2.0, 1.0, 2.0]), same)
    assert change.p_value[0] == 0
    assert torch.isnan(change.p_value[1:]).all()
    assert torch.isnan(change.stderr).tolist() == [False, False, True]


def test_wrong_input_is_named():
    for bad in (torch.ones(3, 1), torch.tensor(1.0)):
        with pytest.raises(ValueError, match=r"replicates must end in at least 2 groups, got shape"):
            standard_error(bad)
    for bad in (torch.ones(4), torch.tensor([1, 0, 3])):
        with pytest.raises(ValueError, match=r"sizes must hold the documents, at least 1, of 3 groups, got \["):
            standard_error(torch.ones(3), bad)
    for n_groups, level in ((1, 0.95), (8, 1.0), (8, math.nan)):
        with pytest.raises(ValueError, match=r"need at least 2 groups and a level between 0 and 1, got"):
            interval(1.0, 1.0, n_groups, level)
    with pytest.raises(ValueError, match=r"of the same groups of documents: got \(8,\) and \(4,\)"):
        paired_change(torch.tensor(1.0), torch.ones(8), torch.tensor(1.0), torch.ones(4))
