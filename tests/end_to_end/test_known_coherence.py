"""A pattern that queries have at their place and c tokens back: coherent there, as far as noise lets it; only there."""

import math

import numpy as np
import pytest
import torch
from end_to_end.ensembles import SIGMAS, FloatArray, plant

from scalepod.coherence import coherence

PERIOD, APART, N_LAGS, N_TOKENS = 4.0, 24, 36, 64
SCALE = PERIOD * (6 + math.sqrt(38)) / (4 * math.pi)
NEAR = 4 * PERIOD  # from where on what a wavelet sees of the pattern is below a thousandth of its noise


def two_places() -> FloatArray:
    """One lag profile of sum 0: a modulation around lag 0 and the same around lag c, [1, L]."""
    tau = np.arange(N_LAGS)
    profile = sum(np.exp(-(((tau - c) / PERIOD) ** 2) / 2) * np.cos(2 * np.pi * (tau - c) / PERIOD) for c in (0, APART))
    profile -= profile.mean()
    return profile[None] / np.linalg.norm(profile)


def energies(known, query, lag):
    """Energy of the wavelet transform of a row around a lag: the pattern's, and the noise's that keeps the row sum."""
    tau = np.arange(query + 1)
    t = (tau - lag) / SCALE
    wavelet = math.pi**-0.25 * np.exp(-(t**2) / 2 + 6j * t) / math.sqrt(SCALE)
    row = known.patterns[0, query, query - tau]
    pattern = known.variances[0, 0] * abs(wavelet @ row) ** 2
    return pattern, known.noise * (np.sum(np.abs(wavelet) ** 2) - abs(wavelet.sum()) ** 2 / len(tau))


def expected(known, query, lag):
    """|gamma| of the population: how much of the energy at either place is the pattern's, which is coherent."""
    shares = [pattern / (pattern + noise) for pattern, noise in (energies(known, query, at) for at in (0, lag))]
    return math.sqrt(shares[0] * shares[1])


def planted_pairs(found):
    """Tested pairs of queries that hold the pattern with keys c tokens back."""
    place = torch.arange(N_TOKENS)
    rows = (place >= N_LAGS - 1)[:, None]
    return found.tested & rows & (place[:, None] - place == APART), found.tested & (
        ~rows | ((place[:, None] - place - APART).abs() > NEAR)
    )


@pytest.mark.parametrize("noise", [0.02, 0.05])
@pytest.mark.parametrize("n", [20, 50, 150])
def test_coherence_is_that_of_the_shares_of_the_pattern_and_above_its_level(n, noise):
    """|gamma| of n real pairs of numbers varies by `(1 - gamma^2) / sqrt(n)` and is up to 1 / n too high."""
    known = plant(two_places(), np.array([[29.0]]), n, N_TOKENS, noise=noise)
    found = coherence(known.attn, SCALE)
    planted, _ = planted_pairs(found)
    assert int(planted.sum()) == N_TOKENS - N_LAGS + 1
    assert bool((found.gamma > found.level)[planted].all())
    true = np.array([expected(known, query, APART) for query in range(N_LAGS - 1, N_TOKENS)])
    error = SIGMAS * (1 - true**2) / math.sqrt(n) + 1 / n
    assert (np.abs(found.gamma[planted].numpy() - true) < error).all()


@pytest.mark.parametrize("n", [20, 50, 150])
def test_elsewhere_as_many_pairs_are_above_their_level_as_chance_has_it(n):
    """5 %, as an average over pairs, of which those within two scales along the keys go together."""
    shares, pairs = [], 0.0
    for seed in range(16):
        known = plant(two_places(), np.array([[29.0]]), n, N_TOKENS, noise=0.3, seed=seed)
        found = coherence(known.attn, SCALE)
        _, elsewhere = planted_pairs(found)
        shares.append(float((found.gamma > found.level)[elsewhere].double().mean()))
        pairs += float(elsewhere.sum()) / (2 * SCALE)
    assert np.mean(shares) == pytest.approx(0.05, abs=SIGMAS * math.sqrt(0.05 * 0.95 / pairs))
