import math

import numpy as np
import pytest
import torch
from scipy.stats import linregress

from scalepod.pod import field_pod
from scalepod.spectrum import effective_rank, spectral_concentration


def power_law(beta, n=40):
    return torch.arange(1, n + 1, dtype=torch.float64) ** -beta


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("beta", [0.5, 1.0, 1.5, 3.0])
def test_a_power_law_gives_its_exponent(beta, scale):
    fit = spectral_concentration(scale * power_law(beta))
    assert float(fit.beta) == pytest.approx(beta)
    assert float(fit.t_spec) == pytest.approx(1 / beta)
    assert float(fit.r2) == pytest.approx(1)
    assert float(fit.stderr) == pytest.approx(0, abs=1e-12)
    assert int(fit.n_points) == 30
    assert fit.reason() is None


@pytest.mark.parametrize("fit_range", [(1, 30), (2, 20), (5, 8), (1, 100)])
def test_agrees_with_scipy(fit_range):
    values = np.sort(np.random.default_rng(0).random(60))[::-1].copy()
    first, last = fit_range
    k = np.arange(first, min(last, 60) + 1)
    expected = linregress(np.log(k), np.log(values[k - 1]))
    fit = spectral_concentration(torch.from_numpy(values), fit_range)
    assert float(fit.beta) == pytest.approx(-expected.slope)
    assert float(fit.stderr) == pytest.approx(expected.stderr)
    assert float(fit.r2) == pytest.approx(expected.rvalue**2)
    assert int(fit.n_points) == len(k)


def test_a_batch_is_fitted_row_by_row():
    spectra = torch.stack([power_law(1.0), power_law(2.0) * 5, torch.zeros(40).double()]).unflatten(0, (3, 1))
    fit = spectral_concentration(spectra)
    assert all(part.shape == (3, 1) for part in fit)
    torch.testing.assert_close(fit.t_spec[:2, 0], torch.tensor([1.0, 0.5], dtype=torch.float64))
    assert fit.reason(0, 0) is None
    assert fit.reason(2, 0) == "0 eigenvalues above the numerical floor in the fit range, 3 needed"


@pytest.mark.parametrize("beta", [0.5, 1.0, 1.5, 3.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_planted_spectrum_comes_through_the_decomposition(beta, dtype):
    # the eigenvalue that centring annihilates would bend the line: 2.03 for 1.50
    n, rng = 25, np.random.default_rng(0)
    scores = rng.standard_normal((n, n - 1))
    scores = np.linalg.qr(scores - scores.mean(0))[0] * np.sqrt(n * power_law(beta, n - 1).numpy())
    modes = np.linalg.qr(rng.standard_normal((144, n - 1)))[0].T
    fields = torch.from_numpy(scores @ modes).to(dtype).view(n, 12, 12)
    fit = spectral_concentration(field_pod(fields).eigenvalues)
    assert float(fit.beta[0]) == pytest.approx(beta, rel=1e-5)
    assert int(fit.n_points[0]) == n - 1


def test_rounding_noise_below_the_floor_is_not_fitted():
    noise = torch.tensor([3e-17, 1e-17, -2e-17], dtype=torch.float64)
    fit = spectral_concentration(torch.cat([power_law(1.5, 20), noise]))
    assert float(fit.beta) == pytest.approx(1.5)
    assert int(fit.n_points) == 20
    single = spectral_concentration(torch.cat([power_law(1.5, 20), 1e9 * noise]).float())
    assert int(single.n_points) == 20


@pytest.mark.parametrize("points", [0, 1, 2])
def test_too_few_points_are_no_fit(points):
    values = torch.zeros(10)
    values[:points] = torch.tensor([4.0, 1.0])[:points]
    fit = spectral_concentration(values)
    assert all(math.isnan(float(part)) for part in fit[:4])
    assert int(fit.n_points) == points
    assert fit.reason() == f"{points} eigenvalues above the numerical floor in the fit range, 3 needed"


def test_a_fit_range_beyond_the_spectrum_holds_no_points():
    assert int(spectral_concentration(power_law(1.0, 5), (10, 20)).n_points) == 0


@pytest.mark.parametrize("level", [1.0, 0.1, 7e-5])
def test_a_flat_spectrum_does_not_decay(level):
    fit = spectral_concentration(torch.full((30,), level, dtype=torch.float64))
    assert math.isnan(float(fit.t_spec))
    assert math.isnan(float(fit.r2))
    assert float(fit.beta) == pytest.approx(0, abs=1e-12)
    assert "the spectrum does not decay (beta = " in str(fit.reason())


def test_r2_tells_a_power_law_from_other_decays():
    exponential = torch.exp(-torch.arange(30, dtype=torch.float64))
    outlier = power_law(1.0)
    outlier[0] *= 1e6
    for other in (exponential, outlier):
        fit = spectral_concentration(other)
        assert float(fit.r2) < 0.9
        assert float(fit.stderr) > 0.05


def test_wrong_spectra_and_ranges_are_named():
    values = power_law(1.0)
    for bad in ((0, 30), (5, 5), (7, 3)):
        with pytest.raises(ValueError, match=r"fit_range must be \(first, last\) with 1 <= first < last, got \("):
            spectral_concentration(values, bad)
    with pytest.raises(ValueError, match=r"eigenvalues of shape \(40,\) must descend along the last dimension"):
        spectral_concentration(values.flip(0))
    with pytest.raises(ValueError, match=r"eigenvalues of shape \(40,\) holds 40 non-finite values"):
        spectral_concentration(values * torch.nan)
    with pytest.raises(ValueError, match=r"must have a last dimension that is not empty, got \(3, 0\)"):
        effective_rank(torch.zeros(3, 0), 0.1)
    with pytest.raises(TypeError, match=r"eigenvalues must be real, got torch.complex64"):
        effective_rank(torch.zeros(3, dtype=torch.complex64), 0.1)
    for bad in (-0.1, 1.0, math.nan):
        with pytest.raises(ValueError, match=r"epsilon must lie in \[0, 1\), got"):
            effective_rank(values, bad)


@pytest.mark.parametrize("epsilon", [0.0, 0.01, 0.05, 0.1, 0.5, 0.99])
def test_effective_rank_equals_the_definition(epsilon):
    for seed in range(20):
        values = np.sort(np.random.default_rng(seed).random(25) ** 4)[::-1].copy()
        expected = next(n for n in range(26) if values[n:].sum() <= epsilon * values.sum())
        assert int(effective_rank(torch.from_numpy(values), epsilon)) == expected


@pytest.mark.parametrize("epsilon", [0.1, 0.05, 0.01])
def test_effective_rank_is_what_reconstruction_needs(epsilon, attention, fluctuation_by_loop):
    attn = attention(14, 8)
    u = fluctuation_by_loop(attn).reshape(14, -1)
    left, sigma, right = np.linalg.svd(u, full_matrices=False)
    errors = [((u - (left[:, :n] * sigma[:n]) @ right[:n]) ** 2).sum() / (u**2).sum() for n in range(15)]
    expected = next(n for n, error in enumerate(errors) if error <= epsilon)
    assert int(effective_rank(field_pod(attn).eigenvalues, epsilon)) == expected


def test_effective_rank_of_known_spectra():
    assert int(effective_rank(torch.tensor([6, 3, 1]), 0.1)) == 2
    assert int(effective_rank(torch.tensor([6, 3, 1]), 0.09)) == 3
    assert int(effective_rank(torch.ones(10), 0.5)) == 5
    assert int(effective_rank(torch.tensor([1.0, 0, 0]), 0.0)) == 1
    assert int(effective_rank(torch.zeros(4), 0.1)) == 0
    assert effective_rank(torch.tensor([[1.0, 1.0], [1.0, 0.0]]), 0.1).tolist() == [2, 1]
