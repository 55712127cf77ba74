import math

import numpy as np
import pytest
import pywt
import torch
from scipy.integrate import quad

from scalepod.field import lag_covariance, reynolds
from scalepod.scalogram import cone_of_influence, equivalent_lag, scale_grid, scalogram


def morlet(t, omega0):
    return math.pi**-0.25 * np.exp(1j * omega0 * t - t**2 / 2)


def transform_every_row(rows, scales, omega0):
    """|W(a, b)|^2 of each row, [rows, S, L], by the definition."""
    n_lags = rows.shape[-1]
    tau = np.arange(n_lags)
    power = np.empty((len(rows), len(scales), n_lags))
    for k, a in enumerate(scales):
        for b in range(n_lags):
            power[:, k, b] = np.abs(rows @ (a**-0.5 * morlet((tau - b) / a, omega0).conj())) ** 2
    return power


def gaussian_rows(n, n_lags, seed=0):
    return np.random.default_rng(seed).standard_normal((n, n_lags))


def covariance_of(rows):
    return torch.from_numpy(rows.T @ rows / len(rows))


@pytest.mark.parametrize("omega0", [5.0, 6.0, 8.5])
@pytest.mark.parametrize("n_lags", [1, 2, 3, 16, 41])
def test_equals_the_mean_power_of_every_transformed_row(n_lags, omega0):
    rows, scales = gaussian_rows(30, n_lags), scale_grid(1.0, 50.0, 2)
    expected = transform_every_row(rows, scales.numpy(), omega0).mean(0)
    found = scalogram(covariance_of(rows), scales, omega0, n_queries=1)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-14 * expected.max())


@pytest.mark.parametrize("signed", [False, True])
def test_of_a_field_it_is_the_mean_over_documents_and_queries(signed, attention, lag_rows_by_loop):
    u = reynolds(attention(4, 10, causal=not signed))[1]
    rows = lag_rows_by_loop(u.numpy(), signed)
    expected = transform_every_row(rows.reshape(40, -1), [2.0, 3.0, 7.0], 6.0).mean(0)
    found = scalogram(lag_covariance(u, signed), torch.tensor([2.0, 3.0, 7.0]), n_queries=10)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-15)


def test_queries_are_as_many_as_lags_unless_given(attention):
    R = lag_covariance(attention(3, 8))
    torch.testing.assert_close(scalogram(R, scale_grid(2, 4)), scalogram(R, scale_grid(2, 4), n_queries=8))
    torch.testing.assert_close(scalogram(R, scale_grid(2, 4)) * 8 / 5.5, scalogram(R, scale_grid(2, 4), n_queries=5.5))


def test_agrees_with_pywavelets_after_its_half_sample_is_undone():
    # pywt integrates the wavelet over each sample: for a wave of angular frequency w that multiplies the transform by
    # sin(w / 2) / (w / 2) and moves it by half a sample, which the power of a stationary wave does not see.
    n_lags, periods = 512, np.array([6.0, 9.0, 14.5, 27.0, 60.0])
    rows = np.cos(2 * np.pi * np.arange(n_lags) / periods[:, None] + periods[:, None])
    scales = np.array([4.0, 6.0, 9.0, 16.0, 32.0, 64.0])
    coefficients, _ = pywt.cwt(rows, scales, "cmor2.0-0.9549", precision=18, method="fft")  # [S, rows, L]
    power = np.abs(coefficients) ** 2 * math.sqrt(2 * np.pi) ** 2 / math.sqrt(math.pi)  # to a wavelet of unit norm
    power = (power / np.sinc(1 / periods[:, None]) ** 2).mean(1)
    found = scalogram(covariance_of(rows), torch.from_numpy(scales), n_queries=1).numpy()
    for k, a in enumerate(scales):
        inside = slice(int(4 * a), n_lags - int(4 * a))
        if inside.start < inside.stop:
            np.testing.assert_allclose(found[k, inside], power[k, inside], rtol=1e-3)


def test_a_structureless_profile_is_flat_in_scale():
    found = scalogram(torch.eye(400), scale_grid(2, 32), n_queries=1)
    inside = torch.arange(400)[180:220]
    torch.testing.assert_close(found[:, inside], torch.ones_like(found[:, inside]), rtol=0, atol=1e-12)


@pytest.mark.parametrize("period", [12.0, 40.0])
@pytest.mark.parametrize("omega0", [6.0, 8.0])
def test_energy_is_conserved(period, omega0):
    # Parseval: int |W|^2 db da / a^2 = C |x|^2 / 2 for a real signal, C = int |psi^(w)|^2 / w dw
    tau = np.arange(400)
    row = np.cos(2 * np.pi * tau / period) * np.exp(-(((tau - 200) / 50) ** 2))
    scales = scale_grid(period / 4, period * 4, 16)
    found = scalogram(covariance_of(row[None]), scales, omega0, n_queries=1)
    constant, _ = quad(lambda w: 2 * math.sqrt(math.pi) * math.exp(-((w - omega0) ** 2)) / w, 0.1, 20)
    total = float((found.sum(1) / scales).sum()) * math.log(2) / 16
    assert total == pytest.approx(constant / 2 * float((row**2).sum()), rel=1e-4)


@pytest.mark.parametrize("omega0", [6.0, 10.0])
@pytest.mark.parametrize("period", [4.0, 9.0, 25.0])
def test_a_wave_answers_strongest_at_the_scale_that_stands_for_its_period(period, omega0):
    row = np.cos(2 * np.pi * np.arange(401) / period)
    scales = scale_grid(period / 1.5, period * 2.5, 32)
    middle = scalogram(covariance_of(row[None]), scales, omega0)[:, 200]
    assert equivalent_lag(float(scales[middle.argmax()]), omega0) == pytest.approx(period, rel=0.012)


def test_equivalent_lag_of_torrence_and_compo():
    assert equivalent_lag(1.0) == pytest.approx(1.033, abs=5e-4)  # their table 1
    torch.testing.assert_close(equivalent_lag(torch.tensor([2.0, 4.0])), torch.tensor([2.0, 4.0]) * equivalent_lag(1.0))


def test_the_cone_ends_where_the_power_of_an_edge_has_fallen_by_e_squared():
    n_lags, scales = 101, scale_grid(2, 20, 3)
    edges = torch.zeros(n_lags, n_lags)
    edges[0, 0] = edges[-1, -1] = 1
    power = scalogram(edges, scales)
    trusted = power <= math.exp(-2) * power[:, :1]
    assert torch.equal(cone_of_influence(scales, n_lags), trusted)
    assert not cone_of_influence(torch.tensor([40.0]), n_lags).any()


def test_scale_grid():
    np.testing.assert_allclose(scale_grid(2, 64, 4), np.geomspace(2, 64, 21))
    np.testing.assert_allclose(scale_grid(3, 7, 1), [3, 6])
    assert scale_grid(5, 5).tolist() == [5]


def test_a_zero_field_has_a_zero_scalogram():
    assert torch.equal(scalogram(torch.zeros(9, 9), scale_grid(2, 4, 1)), torch.zeros(2, 9, dtype=torch.float64))


def test_no_energy_is_negative_for_a_signal_the_wavelet_cannot_see():
    assert (scalogram(torch.ones(128, 128), scale_grid(2, 8), omega0=8) >= 0).all()


def test_wrong_input_is_named():
    R, scales = torch.eye(4), torch.tensor([2.0])
    with pytest.raises(ValueError, match=r"R must have 2 dimensions, lag and lag, got shape \(1, 4, 4\)"):
        scalogram(R[None], scales)
    with pytest.raises(ValueError, match=r"R must end in two equal dimensions, .* got shape \(4, 3\)"):
        scalogram(R[:, :3], scales)
    with pytest.raises(ValueError, match=r"R of shape \(4, 4\) is not symmetric"):
        scalogram(R + torch.ones(4, 4).triu(1), scales)
    with pytest.raises(ValueError, match=r"R of shape \(4, 4\) holds 4 non-finite values"):
        scalogram(R / torch.tensor([0.0, 1, 1, 1]), scales)
    for bad in (torch.tensor([2.0, 0.0]), torch.tensor([-1.0]), torch.tensor([[2.0]])):
        with pytest.raises(ValueError, match="scales must be a vector of positive numbers"):
            scalogram(R, bad)
    with pytest.raises(ValueError, match="omega0 must be positive and finite, got 0"):
        scalogram(R, scales, omega0=0)
    with pytest.raises(ValueError, match="n_queries must be positive and finite, got 0"):
        scalogram(R, scales, n_queries=0)
    with pytest.raises(ValueError, match="omega0 must be positive and finite, got -6"):
        equivalent_lag(2.0, -6)
    with pytest.raises(ValueError, match="n_lags must be positive and finite, got 0"):
        cone_of_influence(scales, 0)
    with pytest.raises(ValueError, match="min_scale must be positive and finite, got 0"):
        scale_grid(0)
    with pytest.raises(ValueError, match="max_scale must be positive and finite, got inf"):
        scale_grid(2, math.inf)
    with pytest.raises(ValueError, match="need min_scale <= max_scale and per_octave >= 1, got 4, 2 and 4"):
        scale_grid(4, 2)
