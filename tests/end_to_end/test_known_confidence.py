"""What an analysis says of its own numbers, on ensembles of which it is known: few patterns, noise, or both."""

import math

import numpy as np
import pytest
from end_to_end.ensembles import SIGMAS, SIZES, analysed, lag_covariance, low_rank, only_noise
from scipy.stats import binom

from scalepod.confidence.jackknife import interval


@pytest.mark.parametrize(("n", "n_tokens"), SIZES)
def test_the_patterns_of_one_half_hold_all_of_the_other(n, n_tokens):
    known = low_rank(n, n_tokens)
    confidence = analysed(known.attn).confidence
    for captured, n_modes in (
        (confidence.field_held_out, known.variances.size),
        (confidence.lag_held_out, len(known.profiles)),
    ):
        assert float(captured.held_out[n_modes]) == pytest.approx(1, abs=1e-8)
        assert float(captured.held_out[n_modes - 1]) < 1 - 1e-3
    ranks = confidence.heldout_ranks(0.10)
    assert ranks["field"] <= known.variances.size
    assert ranks["lag"] <= len(known.profiles)


@pytest.mark.parametrize(("n", "n_tokens"), SIZES)
def test_the_field_modes_of_noise_hold_chance_shares_of_other_noise(n, n_tokens):
    """Any m directions hold m / D of white noise in D = T (T - 1) / 2; here as the mean of m n / 2 squares."""
    confidence = analysed(only_noise(n, n_tokens).attn).confidence
    found = confidence.field_held_out.held_out
    m, n_directions = np.arange(1, n // 2), n_tokens * (n_tokens - 1) / 2
    error = SIGMAS * np.sqrt(2 / (m * n / 2))
    assert (np.abs(found[m].numpy() / (m / n_directions) - 1) < error + 2 / n).all()
    assert math.isinf(confidence.heldout_ranks(0.10)["field"])


@pytest.mark.parametrize(("n", "n_tokens"), SIZES)
def test_more_documents_make_more_field_modes_of_noise_but_no_more_lag_modes(n, n_tokens):
    confidence = analysed(only_noise(n, n_tokens).attn).confidence
    assert confidence.field_convergence.verdict().startswith("limited by the number of snapshots")
    assert float(confidence.field_convergence.growth[0]) > 1.8
    assert confidence.lag_convergence.verdict().startswith("converged")


@pytest.mark.parametrize("n_tokens", [32, pytest.param(128, marks=pytest.mark.slow)])
@pytest.mark.parametrize("seed", range(3))
def test_few_patterns_have_converged(n_tokens, seed):
    """Six or nine patterns in 150 documents; with few documents a spectrum is steeper than it will be."""
    confidence = analysed(low_rank(150, n_tokens, seed=seed).attn).confidence
    assert confidence.field_convergence.verdict().startswith("converged")
    assert confidence.lag_convergence.verdict().startswith("converged")


@pytest.mark.parametrize(("n", "n_tokens"), SIZES)
def test_patterns_need_less_than_half_the_modes_of_their_null(n, n_tokens):
    found = analysed(low_rank(n, n_tokens).attn)
    excess = found.excess()
    assert found.h_star[0.10] + excess["h_star_excess"] < 0
    assert found.lag_h_star[0.10] + excess["lag_h_star_excess"] < 0


@pytest.mark.parametrize(("n", "n_tokens"), SIZES)
def test_noise_is_its_own_null(n, n_tokens):
    """H* of white noise varies by about one mode whatever the size: sums over its eigenvalues vary by O(1)."""
    found = analysed(only_noise(n, n_tokens).attn)
    assert abs(found.excess()["h_star_excess"]) <= 2
    independent = n * n_tokens * n_tokens / (2 * found.scales.numpy())  # places of wavelets in all rows
    ratio = found.scale_energy / found.confidence.null.scale_energy[0]
    assert (np.abs(ratio.log().numpy()) < SIGMAS * np.sqrt(2 * 2 / independent)).all()


def test_the_lag_spectrum_of_noise_is_its_own_null():
    excess = [analysed(only_noise(20, 128, seed=seed).attn).excess() for seed in range(4)]
    assert abs(np.mean([each["lag_h_star_excess"] for each in excess])) <= 1


@pytest.mark.parametrize(("n", "n_tokens"), [(50, 32), (150, 32), *SIZES[-2:]])
def test_planted_lags_stand_out_of_the_energy_of_the_null(n, n_tokens):
    """By more than the energy of so many documents varies in which every lag has a random sign.

    Of 20 documents that is a factor of 2 at the longer lag, as much as it stands out.
    """
    found = analysed(low_rank(n, n_tokens, exact=True).attn)
    ratio = found.scale_energy / found.confidence.null.scale_energy[0]
    for scale in found.dominant_scales:
        independent = n * (3 * n_tokens // 4) / (2 * scale)
        assert float(ratio[(found.scales / scale).log().abs().argmin()]) > 1 + SIGMAS * math.sqrt(2 / independent)


def test_the_intervals_cover_the_truth_of_the_whole_chain():
    """At least as often as intervals of 90 % would, but for one set of draws in a thousand."""
    draws, covered = 24, {}
    for seed in range(draws):
        known = low_rank(50, 32, noise=1e-3, seed=seed)
        confidence = analysed(known.attn).confidence
        errors = confidence.stderrs()
        values = dict(zip(confidence.quantities, confidence.values.tolist(), strict=True))
        for name, true in lag_truths(known, 50).items():
            low, high = interval(values[name], errors[name], confidence.n_groups)
            covered[name] = covered.get(name, 0) + (low <= true <= high)
    assert min(covered.values()) >= binom.ppf(1e-3, draws, 0.90), covered


def lag_truths(known, n):
    """Values of the lags that the expected R of n documents has."""
    energy = (1 - 1 / n) * np.diag(lag_covariance(known))
    lags = np.arange(len(energy))
    fine, coarse = (math.sqrt(4 * 12), math.sqrt(12 * 36))
    return {
        "energy": energy.sum(),
        "mean_lag": energy @ lags / energy.sum(),
        "band_fine": energy[lags < fine].sum() / energy.sum(),
        "band_medium": energy[(lags >= fine) & (lags < coarse)].sum() / energy.sum(),
        "band_coarse": energy[lags >= coarse].sum() / energy.sum(),
    }
