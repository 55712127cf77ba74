import numpy as np
import pytest
import torch
from scipy.signal import argrelmax

from scalepod.field import from_lag, lag_covariance, reynolds
from scalepod.scalogram import dominant_scales, equivalent_lag, scale_grid, scalogram


def of(energy, scales=None, **options):
    """Dominant scales of the given E(a), which two lags share; the scales an octave apart unless given."""
    energy = torch.tensor(energy, dtype=torch.float64)
    scales = 2.0 ** torch.arange(len(energy)) if scales is None else torch.tensor(scales)
    return dominant_scales(torch.stack([energy, 2 * energy], 1), scales, **options).tolist()


def test_interior_maxima_come_highest_first():
    assert of([1, 3, 1, 5, 1, 4, 1]) == [8, 32, 2]


def test_a_maximum_on_the_edge_is_not_a_scale():
    assert of([9, 1, 2, 3]) == []
    assert of([1, 2, 3]) == []
    assert of([3, 3, 2, 1]) == []


@pytest.mark.parametrize("energy", [[0, 0, 0], [2, 2, 2], [1], [3, 1], [1, 2, 2, 3], [3, 2, 2, 1]])
def test_without_a_peak_there_is_none(energy):
    assert of(energy) == []


def test_of_a_flat_top_the_middle_is_taken():
    assert of([1, 3, 3, 3, 2]) == [4]


def test_rounding_makes_no_peaks():
    assert of([1.0, 1 + 1e-12, 1.0, 1 + 2e-12, 1.0]) == []


def test_at_most_max_scales_are_returned():
    energy = [1, 3, 1, 5, 1, 4, 1, 2, 1, 6, 1]
    assert of(energy) == [512, 8, 32, 2]
    assert of(energy, max_scales=1) == [512]


def test_peaks_within_half_an_octave_of_a_higher_one_are_dropped():
    quarter = [2 ** (k / 4) for k in range(7)]
    assert of([1, 3, 2, 4, 2, 3, 1], quarter) == pytest.approx([2 ** (3 / 4), 2 ** (1 / 4), 2 ** (5 / 4)])
    eighth = [2 ** (k / 8) for k in range(7)]
    assert of([1, 3, 2, 4, 2, 3, 1], eighth) == pytest.approx([2 ** (3 / 8)])
    assert of([1, 3, 2, 2, 4, 2, 1], eighth) == pytest.approx([2 ** (4 / 8)])


def test_a_dropped_peak_does_not_drop_others():
    eighth = [2 ** (k / 8) for k in range(9)]
    assert of([1, 5, 1, 4, 1, 3, 1, 2, 1], eighth) == pytest.approx([2 ** (1 / 8), 2 ** (5 / 8)])


def test_agrees_with_scipy_on_a_wide_grid():
    energy = np.random.default_rng(0).random(60)
    peaks = argrelmax(energy)[0]
    expected = peaks[np.argsort(-energy[peaks])]
    assert of(energy.tolist(), max_scales=60) == [2.0**k for k in expected]


@pytest.mark.parametrize("lag", [5, 12, 20])
def test_a_planted_lag_is_found(lag):
    # each document attends every multiple of the lag by its own amount
    n_tokens, generator = 160, torch.Generator().manual_seed(lag)
    comb = (torch.arange(n_tokens) % lag == 0) * torch.exp(-torch.arange(n_tokens) / (3.0 * lag))
    weights = torch.ones(n_tokens) + 20 * torch.rand(30, 1, 1, generator=generator) * comb
    attn = from_lag(weights.expand(30, n_tokens, n_tokens))
    R = lag_covariance(reynolds(attn / attn.sum(-1, keepdim=True))[1], burn_in=2 * lag)
    scales = scale_grid(2, 64, 8)
    found = equivalent_lag(dominant_scales(scalogram(R, scales), scales))
    assert any(abs(np.log2(float(each) / lag)) < 1 / 8 for each in found)


def test_a_decay_without_a_period_has_no_scale():
    profile = torch.exp(-torch.arange(128) / 20.0)
    scales = scale_grid(2, 32)
    assert dominant_scales(scalogram(torch.outer(profile, profile), scales), scales).numel() == 0


def test_wrong_input_is_named():
    energy, scales = torch.ones(3, 5), torch.tensor([2.0, 4.0, 8.0])
    with pytest.raises(ValueError, match=r"scalogram \(3, 5\) must have one row for each of the 2 scales"):
        dominant_scales(energy, scales[:2])
    with pytest.raises(ValueError, match=r"scalogram \(3,\) must have one row for each of the 3 scales"):
        dominant_scales(energy[:, 0], scales)
    with pytest.raises(ValueError, match=r"scalogram of shape \(3, 5\) holds 15 non-finite values"):
        dominant_scales(energy * torch.nan, scales)
    with pytest.raises(ValueError, match=r"scales must ascend, got \[8.0, 4.0, 2.0\]"):
        dominant_scales(energy, scales.flip(0))
    with pytest.raises(ValueError, match=r"max_scales must be at least 1, got 0"):
        dominant_scales(energy, scales, max_scales=0)
