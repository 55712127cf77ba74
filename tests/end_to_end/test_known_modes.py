"""Ensembles of known patterns, through `ScalePOD.update` and `compute`: lags, spectra, modes, ranks, held-out energy.

Without noise, and with coefficients that have the planted variances in the sample itself, everything is known exactly.
With noise and random coefficients it is known up to sampling: `SIGMAS` standard deviations of that are allowed.
"""

import math

import numpy as np
import pytest
from end_to_end.ensembles import (
    PERIODS,
    SIGMAS,
    SIZES,
    analysed,
    cosine_profiles,
    gabor_profiles,
    lag_covariance,
    low_rank,
    plant,
)


def rank(spectrum, epsilon):
    """Effective rank by its definition."""
    return next(n for n in range(len(spectrum) + 1) if spectrum[n:].sum() <= epsilon * spectrum.sum() * (1 + 1e-12))


def period_of_most_energy(profile, near):
    """Fourier period at which a lag profile has most energy E(a), by direct transforms on a fine grid around `near`."""
    tau = np.arange(len(profile))
    periods = near * 2 ** np.linspace(-0.4, 0.4, 801)
    energy = []
    for a in periods * (6 + math.sqrt(38)) / (4 * math.pi):
        t = (tau - tau[:, None]) / a
        energy.append(np.sum(np.abs(np.exp(-(t**2) / 2 - 6j * t) @ profile) ** 2) / a)
    return periods[np.argmax(energy)]


def test_the_planted_maps_are_causal_attention():
    attn = low_rank(20, 32, noise=1e-3).attn.numpy()
    assert attn.min() >= 0
    assert not np.triu(attn, 1).any()
    np.testing.assert_allclose(attn.sum(-1), 1, rtol=1e-12)


@pytest.mark.parametrize(("n", "n_tokens"), SIZES)
def test_spectra_and_ranks_of_known_patterns_are_exact(n, n_tokens):
    known = low_rank(n, n_tokens, exact=True)
    found = analysed(known.attn)
    field, lag = np.sort(known.variances.ravel())[::-1], known.variances.sum(1)
    for spectrum, eigenvalues in ((field, found.field.eigenvalues[0]), (lag, found.lag.eigenvalues[0])):
        np.testing.assert_allclose(eigenvalues[: len(spectrum)], spectrum, rtol=1e-9)
        assert float(eigenvalues[len(spectrum) :].abs().max()) < 1e-9 * spectrum[0]
    assert found.energy == pytest.approx(lag.sum(), rel=1e-9)
    weight = (lag[:, None] * known.profiles**2).sum(0)
    assert found.mean_lag == pytest.approx(weight @ np.arange(n_tokens) / weight.sum(), rel=1e-9)
    assert found.h_star == {epsilon: rank(field, epsilon) for epsilon in found.epsilons}
    assert found.lag_h_star == {epsilon: rank(lag, epsilon) for epsilon in found.epsilons}


@pytest.mark.parametrize(("n", "n_tokens"), SIZES)
def test_modes_are_the_planted_patterns(n, n_tokens):
    known = low_rank(n, n_tokens, exact=True)
    found = analysed(known.attn, n_modes=known.variances.size)
    order = np.argsort(-known.variances.ravel())
    overlaps = np.einsum("kij,kij->k", found.field.modes[0].numpy(), known.patterns[order])
    np.testing.assert_allclose(np.abs(overlaps), 1, atol=1e-9)
    overlaps = np.einsum("kt,kt->k", found.lag.modes[0, : len(known.profiles)].numpy(), known.profiles)
    np.testing.assert_allclose(np.abs(overlaps), 1, atol=1e-9)


@pytest.mark.parametrize(("n", "n_tokens"), SIZES)
def test_dominant_lags_are_the_planted_periods(n, n_tokens):
    """As one peak of E(a) stands a little on the slope of the next, and by the parabola, they are known to 2 %."""
    found = analysed(low_rank(n, n_tokens, exact=True).attn).dominant_lags.sort().values.numpy()
    np.testing.assert_allclose(found, PERIODS[n_tokens], rtol=0.02)


@pytest.mark.parametrize("period", [4.0, 5.3, 9.1, 16.0, 23.0])
def test_the_dominant_lag_of_one_profile_is_where_its_energy_peaks(period):
    profiles = gabor_profiles([period], 96)
    found = analysed(plant(profiles, np.ones((1, 2)), 20, 128).attn, confidence=False)
    assert float(found.dominant_lags[0]) == pytest.approx(period_of_most_energy(profiles[0], period), rel=0.003)


@pytest.mark.parametrize("beta", [0.8, 1.5, 3.0])
@pytest.mark.parametrize(("n", "n_tokens"), SIZES)
def test_t_spec_of_a_planted_power_law(n, n_tokens, beta):
    n_profiles = min(n - 1, n_tokens // 2 - 1, 30)
    law = np.arange(1, n_profiles + 1.0) ** -beta
    known = plant(cosine_profiles(n_profiles, n_tokens // 2), law[:, None], n, n_tokens, exact=True)
    found = analysed(known.attn, fit_range=(1, n_profiles))
    for fit, t_spec in ((found.field_fit, found.t_spec), (found.lag_fit, found.lag_t_spec)):
        assert t_spec == pytest.approx(1 / beta, rel=1e-6)
        assert int(fit.n_points[0]) == n_profiles
        assert float(fit.r2[0]) == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize(("n", "n_tokens"), SIZES)
def test_the_lag_spectrum_in_noise_is_that_of_the_expected_covariance(n, n_tokens):
    """Eigenvalues move to first order by phi' (R_sample - R) phi, the variance of which is a sum over queries.

    Query i gives the square of `sum_k a_k c(i) + noise`. Of Gaussian coefficients, that of the planted part varies by
    `2 sum_q lambda_q^2 / n`, of the noise by `2 n_queries noise^2 / n`, and of their product by `4 noise lambda / n`.
    """
    known = low_rank(n, n_tokens, noise=2e-3)
    found = analysed(known.attn)
    covariance = (1 - 1 / n) * lag_covariance(known)
    expected = np.linalg.eigvalsh(covariance)[::-1]
    for k, variances in enumerate(known.variances):
        noise = known.noise
        spread = 2 * (variances**2).sum() + 2 * n_tokens * noise**2 + 4 * noise * variances.sum()
        assert abs(float(found.lag.eigenvalues[0, k]) - expected[k]) < SIGMAS * math.sqrt(spread / n), k


@pytest.mark.parametrize(("n", "n_tokens"), SIZES)
def test_the_field_spectrum_and_modes_in_noise_are_those_of_a_spiked_covariance(n, n_tokens):
    """Spikes l far above D = T (T - 1) / 2 directions of noise s, with gamma = D / N.

    A spike is seen at `(l + s) (1 + gamma s / l)`, and the square of its mode's overlap with the planted one is
    `(1 - gamma s^2 / l^2) / (1 + gamma s / l)`: Baik & Silverstein (2006), Journal of Multivariate Analysis 97, 1382;
    Paul (2007), Statistica Sinica 17, 1617. A variance l is that of n numbers, so its error is `sqrt(2 / n)`, and moves
    gamma s / l by as much. The two spikes are a factor 4 apart: coefficients correlated by 1 / sqrt(n) turn one mode
    towards the other by `sqrt(l l') / (l - l') / sqrt(n)` = 0.67 / sqrt(n).
    """
    profiles = gabor_profiles(PERIODS[n_tokens], 3 * n_tokens // 4)[:2]
    known = plant(profiles, np.array([[16.0], [4.0]]), n, n_tokens, noise=40 / n_tokens**2)
    found = analysed(known.attn)
    gamma = n_tokens * (n_tokens - 1) / 2 / n
    for k, spike in enumerate(known.variances.ravel()):
        ratio = known.noise / spike
        seen = spike * (1 + ratio) * (1 + gamma * ratio)
        error = SIGMAS * math.sqrt(2 / n)
        assert abs(float(found.field.eigenvalues[0, k]) / seen - 1) < error, k
        overlap = float(np.sum(found.field.modes[0, k].numpy() * known.patterns[k])) ** 2
        expected = (1 - gamma * ratio**2) / (1 + gamma * ratio)
        turned = (SIGMAS * 0.67) ** 2 / n
        assert expected * (1 - turned) - error * gamma * ratio < overlap < expected + error * gamma * ratio, k
