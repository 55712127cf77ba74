import numpy as np
import pytest
import torch

from scalepod.pod import lag_windows


@pytest.mark.parametrize("bandwidth", [0.25, 0.5])
def test_bandpass_is_a_gaussian_around_its_lag(bandwidth):
    windows = lag_windows(torch.tensor([4.0, 12.5]), 40, bandwidth=bandwidth)
    tau = np.arange(40)
    for window, lag in zip(windows, (4.0, 12.5), strict=True):
        np.testing.assert_allclose(window, np.exp(-((tau - lag) ** 2) / (2 * (bandwidth * lag) ** 2)))


def test_lowpass_keeps_the_short_lags():
    (window,) = lag_windows([8.0], 40, kind="lowpass")
    np.testing.assert_allclose(window, np.exp(-(np.arange(40) ** 2) / (2 * 8**2)))


def test_no_lag_gives_no_window():
    assert lag_windows(torch.zeros(0), 7).shape == (0, 7)
    assert lag_windows([], 7).shape == (0, 7)


def test_lags_may_be_integers():
    assert torch.equal(lag_windows(torch.tensor([4, 12]), 9), lag_windows([4.0, 12.0], 9))


def test_wrong_input_is_named():
    for bad in ([4.0, 0.0], [-1.0]):
        with pytest.raises(ValueError, match="lags must be a vector of positive numbers"):
            lag_windows(bad, 8)
    with pytest.raises(ValueError, match=r"lags of shape .* holds 1 non-finite values"):
        lag_windows([float("nan")], 8)
    with pytest.raises(ValueError, match="bandwidth must be positive and finite, got 0"):
        lag_windows([4.0], 8, bandwidth=0)
    with pytest.raises(ValueError, match="n_lags must be positive and finite, got 0"):
        lag_windows([4.0], 0)
    with pytest.raises(ValueError, match="kind must be 'bandpass' or 'lowpass', got 'notch'"):
        lag_windows([4.0], 8, kind="notch")
