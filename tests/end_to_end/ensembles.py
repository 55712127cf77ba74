"""Attention whose structure is known: planted patterns at known lags, of known energies, in noise of a known level."""

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from scalepod import LayerAnalysis, ScalePOD

FloatArray = NDArray[np.float64]
SIGMAS = 4.0
"""Standard deviations of sampling that results may be off: exceeded by chance once in 16 000."""
SIZES = [
    *[(n, 32) for n in (20, 50, 150)],
    (20, 128),
    *[pytest.param(n, 128, marks=pytest.mark.slow) for n in (50, 150)],
]
"""Numbers of maps N and of tokens T."""
PERIODS = {32: [4.0, 8.0], 128: [6.0, 12.0, 24.0]}
"""Periods of the patterns of `low_rank`, by T."""

_VARIANCES = np.array([[4.0, 1.0, 0.3], [2.0, 0.7, 0.2], [1.5, 0.5, 0.15]])  # by profile and course
_ROOM = 0.9  # share of the mean attention that fluctuations may take away, so that no entry gets negative


class Planted(NamedTuple):
    """N attention maps of T tokens and what they are made of, in units of the patterns' energies times `unit`."""

    attn: Tensor
    """Maps [N, T, T], float64: causal, not negative, rows adding up to 1."""
    profiles: FloatArray
    """Orthonormal lag profiles [K, T], each adding up to 0."""
    patterns: FloatArray
    """Orthonormal fields [K * Q, T, T], profile by profile: profile k, times course q along the queries."""
    variances: FloatArray
    """Variances lambda of the patterns' coefficients as drawn, [K, Q]."""
    noise: float
    """Variance of the noise in every direction that keeps the row sums."""


def analysed(attn: Tensor, **options: Any) -> LayerAnalysis:
    """What the monitor, given the maps in batches, says of them."""
    monitor = ScalePOD(**options)
    for batch in attn.split(16):
        monitor.update(batch)
    return monitor.compute()


def low_rank(n: int, n_tokens: int, **options: Any) -> Planted:
    """Two profiles for 32 tokens or three for 128, each with three courses: six or nine patterns; see `plant`."""
    profiles = gabor_profiles(PERIODS[n_tokens], 3 * n_tokens // 4)
    return plant(profiles, _VARIANCES[: len(profiles)], n, n_tokens, **options)


def only_noise(n: int, n_tokens: int, **options: Any) -> Planted:
    """White noise without patterns; see `plant`."""
    return plant(gabor_profiles([4.0], 24), np.zeros((1, 1)), n, n_tokens, noise=1.0, **options)


def gabor_profiles(periods: list[float], n_lags: int) -> FloatArray:
    """Modulations of the given periods under Gaussians as wide as a period, [K, n_lags]; orthonormal, of sum 0."""
    tau = np.arange(n_lags)
    waves = [np.exp(-(((tau - n_lags / 2) / p) ** 2) / 2) * np.cos(2 * np.pi * (tau - n_lags / 2) / p) for p in periods]
    return _orthonormal([np.ones(n_lags), *waves])[1:]


def cosine_profiles(n_profiles: int, n_lags: int) -> FloatArray:
    """Half-sample cosines j = 1..K of periods 2 n_lags / j, [K, n_lags]; orthonormal, of sum 0."""
    tau, j = np.arange(n_lags) + 0.5, np.arange(1, n_profiles + 1)[:, None]
    return np.sqrt(2 / n_lags) * np.cos(np.pi * j * tau / n_lags)


def plant(
    profiles: FloatArray,
    variances: FloatArray,
    n: int,
    n_tokens: int,
    *,
    noise: float = 0.0,
    exact: bool = False,
    seed: int = 0,
) -> Planted:
    """Draw an ensemble `A_s = mean + sum_kq a_skq phi_kq + noise`.

    The patterns stand in the queries that see all lags of the profiles, so that each query repeats the same profile:
    `phi_kq[i, i - tau] = c_q(i) f_k(tau)`, with orthonormal courses c_q, cosines along the queries.

    Args:
        profiles: Orthonormal lag profiles f_k of sum 0, [K, L] with L <= T.
        variances: Variances of the coefficients, [K, Q], Q <= T - L + 1.
        n: Maps N.
        n_tokens: Tokens T.
        noise: Variance of white Gaussian noise in each of the T (T - 1) / 2 directions that keep the row sums.
        exact: Coefficients that are uncorrelated, of mean 0 and of the variances in the sample itself, not only in
            expectation; N > K Q.
        seed: Seed of coefficients and noise.
    """
    draw = np.random.default_rng(seed)
    n_profiles, n_courses = variances.shape
    n_lags = profiles.shape[1]
    lag_rows = np.pad(profiles, ((0, 0), (0, n_tokens - n_lags)))
    courses = np.zeros((n_courses, n_tokens))
    courses[:, n_lags - 1 :] = _cosines(n_courses, n_tokens - n_lags + 1)
    patterns = np.zeros((n_profiles, n_courses, n_tokens, n_tokens))
    for i in range(n_lags - 1, n_tokens):
        keys = i - np.arange(n_lags)
        patterns[:, :, i, keys] = courses[None, :, i, None] * profiles[:, None]
    coefficients = draw.standard_normal((n, n_profiles * n_courses))
    if exact:
        centred = np.linalg.qr(np.column_stack([np.ones(n), coefficients])).Q[:, 1:]
        coefficients = np.sqrt(n) * centred
    amplitudes = np.sqrt(variances).ravel()
    u = (coefficients * amplitudes) @ patterns.reshape(len(amplitudes), -1)
    u = u.reshape(n, n_tokens, n_tokens) + np.sqrt(noise) * _white(n, n_tokens, draw)
    mean = np.tril(np.ones((n_tokens, n_tokens))) / np.arange(1, n_tokens + 1)[:, None]
    unit = _ROOM * np.min(np.divide(mean, np.abs(u).max(0), where=np.abs(u).max(0) > 0, out=np.full_like(mean, np.inf)))
    attn = torch.from_numpy(mean + unit * u)
    return Planted(attn, lag_rows, patterns.reshape(-1, n_tokens, n_tokens), unit**2 * variances, unit**2 * noise)


def lag_covariance(planted: Planted) -> FloatArray:
    """Expected R about the true mean, [T, T]: the patterns', and the noise's, which is white but for its row sums."""
    n_tokens = planted.profiles.shape[1]
    found = np.einsum("kt,kr,k->tr", planted.profiles, planted.profiles, planted.variances.sum(1))
    for n_keys in range(1, n_tokens + 1):
        found[:n_keys, :n_keys] += planted.noise * (np.eye(n_keys) - 1 / n_keys)
    return found


def _white(n: int, n_tokens: int, draw: np.random.Generator) -> FloatArray:
    """Causal white noise without its part that would change the sums of the rows, [N, T, T]."""
    noise = np.tril(draw.standard_normal((n, n_tokens, n_tokens)))
    surplus = noise.sum(-1, keepdims=True) / np.arange(1, n_tokens + 1)[:, None]
    return noise - np.tril(np.broadcast_to(surplus, noise.shape))


def _cosines(n_courses: int, n_queries: int) -> FloatArray:
    """Orthonormal cosines along the queries, the first constant, [Q, n_queries]."""
    i, q = np.arange(n_queries) + 0.5, np.arange(n_courses)[:, None]
    found = np.sqrt(2 / n_queries) * np.cos(np.pi * q * i / n_queries)
    found[0] = n_queries**-0.5
    return found


def _orthonormal(rows: list[FloatArray]) -> FloatArray:
    q, r = np.linalg.qr(np.stack(rows).T)
    return (q * np.sign(np.diag(r))).T
