import math

import numpy as np
import pytest
import torch
from scipy.stats import linregress, theilslopes

from scalepod.pod import field_pod
from scalepod.spectrum import effective_rank, fractional_rank, power_law_range, spectral_concentration


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


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("n", [3, 8, 30])
def test_theil_sen_agrees_with_scipy(n, seed):
    values = np.sort(np.random.default_rng(seed).random(n) ** 3)[::-1].copy()
    x, y = np.log(np.arange(1, n + 1)), np.log(values)
    slope, intercept, low, high = theilslopes(y, x, alpha=0.6826894921, method="joint")
    fit = spectral_concentration(torch.from_numpy(values), method="theil_sen")
    assert float(fit.beta) == pytest.approx(-slope)
    assert float(fit.stderr) == pytest.approx((high - low) / 2)
    assert float(fit.r2) == pytest.approx(1 - ((y - intercept - slope * x) ** 2).sum() / ((y - y.mean()) ** 2).sum())


def test_theil_sen_shrugs_off_an_outlier():
    outlier = power_law(1.0)
    outlier[0] *= 1e6
    assert float(spectral_concentration(outlier).beta) > 2
    fit = spectral_concentration(outlier, method="theil_sen")
    assert float(fit.beta) == pytest.approx(1, abs=1e-9)
    assert float(fit.t_spec_stderr) == pytest.approx(0, abs=1e-9)


def test_the_error_of_t_spec_is_that_of_beta_carried_over():
    values = torch.from_numpy(np.sort(np.random.default_rng(1).random(30))[::-1].copy())
    fit = spectral_concentration(torch.stack([values, torch.zeros_like(values)]))
    assert float(fit.t_spec_stderr[0]) == pytest.approx(float(fit.stderr[0] / fit.beta[0] ** 2))
    assert math.isnan(float(fit.t_spec_stderr[1]))


@pytest.mark.parametrize("method", ["least_squares", "theil_sen"])
def test_every_spectrum_may_have_its_own_range(method):
    rng = np.random.default_rng(2)
    spectra = torch.from_numpy(np.sort(rng.random((2, 3, 40)), axis=-1)[..., ::-1].copy())
    ranges = torch.tensor([[1, 30], [4, 12], [0, 0]])
    fit = spectral_concentration(spectra, ranges, method)
    for a in range(2):
        for b, (first, last) in enumerate(ranges[:2].tolist()):
            alone = spectral_concentration(spectra[a, b], (first, last), method)
            torch.testing.assert_close(tuple(part[a, b] for part in fit), tuple(alone))
    assert fit.first.tolist() == [[1, 4, 0]] * 2
    assert fit.n_points.tolist() == [[30, 9, 0]] * 2
    assert all(torch.isnan(part[:, 2]).all() for part in fit[:4])
    assert fit.reason(0, 0) is None
    assert "no 8 or more neighbouring eigenvalues" in str(fit.reason(1, 2))


def straight_by_loop(values, min_r2=0.98):
    """First and last k of the widest straight stretch, by trying all."""
    y = np.log(values[values > 0])
    x = np.log(np.arange(1, len(y) + 1))
    straight = [(0.0, 0, 0)]
    for length in range(8, len(y) + 1):
        for first in range(len(y) - length + 1):
            part = slice(first, first + length)
            if linregress(x[part], y[part]).rvalue ** 2 >= min_r2:
                straight.append(((first + length) / (first + 1), first + 1, first + length))
    return list(max(straight, key=lambda each: each[0])[1:])


def test_the_power_law_range_is_the_widest_straight_stretch():
    k, rng = np.arange(1, 41), np.random.default_rng(3)
    spectra = [
        k**-1.0 * np.exp(-((k / 20) ** 6)),  # a power law that breaks off
        np.where(k < 4, 1e3 / k, k**-2.0),  # outliers in front
        np.exp(-k / 2.0),  # no power law
        np.where(k < 7, k**-1.0, 0.0),  # too few
        *np.sort(rng.random((4, 40)) ** 3, axis=-1)[:, ::-1],
    ]
    found = power_law_range(torch.from_numpy(np.stack(spectra)))
    assert found.tolist() == [straight_by_loop(values) for values in spectra]
    assert found[3].tolist() == [0, 0]
    assert len({tuple(each) for each in found.tolist()}) > 4
    assert power_law_range(torch.from_numpy(spectra[0]), 0.9999).tolist() == straight_by_loop(spectra[0], 0.9999)


def test_many_modes_at_the_end_do_not_outweigh_a_power_law_in_front():
    k = np.arange(1, 101)
    values = np.where(k < 21, k**-1.0, 1e-6 * k**-1.0)  # 20 modes over a factor of 20, then 80 over one of 5
    assert power_law_range(torch.from_numpy(values), 0.999).tolist() == straight_by_loop(values, 0.999) == [1, 20]


def test_an_automatic_fit_says_where_it_is_and_why_there_is_none():
    k = torch.arange(1, 41, dtype=torch.float64)
    spectra = torch.stack([k**-1.5 * torch.exp(-((k / 20) ** 8)), torch.zeros(40).double(), torch.full_like(k, 0.1)])
    fit = spectral_concentration(spectra, "auto")
    first, last = power_law_range(spectra)[0].tolist()
    assert (int(fit.first[0]), int(fit.n_points[0])) == (first, last - first + 1)
    torch.testing.assert_close(fit.beta[0], spectral_concentration(spectra[0], (first, last)).beta)
    for undefined in (1, 2):
        assert math.isnan(float(fit.t_spec[undefined]))
        expected = "no 8 or more neighbouring eigenvalues above the numerical floor follow a power law"
        assert fit.reason(undefined) == expected


def test_wrong_options_of_a_fit_are_named():
    values = power_law(1.0).expand(3, 40)
    with pytest.raises(ValueError, match=r"method must be 'least_squares' or 'theil_sen', got 'ransac'"):
        spectral_concentration(values, method="ransac")
    with pytest.raises(ValueError, match=r"fit_range must be \(first, last\), int64 \[..., 2\] or 'auto', got 'all'"):
        spectral_concentration(values, "all")
    for bad in (torch.ones(2, 2).long(), torch.ones(3, 2), torch.tensor(3), (1, 2, 3)):
        with pytest.raises(ValueError, match=r"one pair a spectrum, \(3, 2\), got"):
            spectral_concentration(values, bad)
    for bad in ((0, 0), torch.tensor([3, 3]), torch.tensor([0, 3])):
        with pytest.raises(ValueError, match=r"fit_range must be \(first, last\) with 1 <= first < last, got"):
            spectral_concentration(values, bad)
    for bad in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match=r"min_r2 must lie between 0 and 1, got"):
            power_law_range(values, bad)


@pytest.mark.parametrize("epsilon", [0.0, 0.01, 0.05, 0.1, 0.5, 0.99])
def test_the_whole_number_after_a_fractional_rank_is_the_effective_rank(epsilon):
    values = np.sort(np.random.default_rng(4).random((50, 25)) ** 4, axis=-1)[:, ::-1].copy()
    values[25:, 15:] = 0
    spectra = torch.from_numpy(values)
    assert torch.equal(fractional_rank(spectra, epsilon).ceil().long(), effective_rank(spectra, epsilon))


def test_fractional_rank_is_where_the_residual_energy_crosses_the_bound():
    spectrum = np.exp(-np.arange(40) / 5)
    residual = spectrum.sum() - np.concatenate([[0.0], spectrum.cumsum()])
    for epsilon in (0.3, 0.1, 0.01):
        expected = np.interp(-epsilon * spectrum.sum(), -residual, np.arange(41))
        assert float(fractional_rank(torch.from_numpy(spectrum), epsilon)) == pytest.approx(expected)


def test_fractional_rank_of_known_spectra():
    assert float(fractional_rank(torch.tensor([6, 3, 1]), 0.1)) == pytest.approx(2)
    assert float(fractional_rank(torch.tensor([6, 3, 1]), 0.2)) == pytest.approx(1 + 2 / 3)
    assert float(fractional_rank(torch.tensor([6, 3, 1]), 0.05)) == pytest.approx(2.5)
    assert float(fractional_rank(torch.tensor([1.0, 0, 0]), 0.0)) == 1
    assert fractional_rank(torch.zeros(2, 4), 0.1).tolist() == [0, 0]


def test_a_total_makes_up_for_eigenvalues_left_out():
    values = power_law(1.2, 60).expand(2, 60)
    total = values.sum(-1)
    whole = fractional_rank(values, 0.3)
    torch.testing.assert_close(fractional_rank(values[:, :20], 0.3, total), whole)
    torch.testing.assert_close(fractional_rank(values, 0.3, total), whole)
    assert torch.isnan(fractional_rank(values[:, :3], 0.3, total)).all()
    assert float(fractional_rank(torch.zeros(3), 0.3, torch.tensor(0.0))) == 0
    for bad in (total[:1], total / 2):
        with pytest.raises(
            ValueError, match=r"total must hold one sum of all eigenvalues a spectrum, \(2,\), at least"
        ):
            fractional_rank(values, 0.3, bad)
