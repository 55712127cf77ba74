"""What the code published with arXiv 2606.06573 computes, written down again, to see where its numbers come from.

    python docs/study/published.py

prints its results for three sets of causal attention maps that look back by different lags and have their diagonals
in common. They are the same results: lags are counted forwards, tau = j - i, where a causal map has nothing but its
diagonal. docs/method.md defines what scalepod computes instead. Nothing here is imported from scalepod.

N snapshots, T tokens, S = 20 scales.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

OMEGA0 = 5.0
SCALES: Array = 2.0 ** np.linspace(1, 6, 20)
"""Wavelet scales in tokens, [S]: 2 to 64."""

FIT_RANGE = 30
"""Eigenvalues that enter the fit, at most."""

FLOOR = 1e-12
"""Eigenvalues up to this one do not enter it."""

EPSILONS = (0.10, 0.05, 0.01)


class Results(NamedTuple):
    """What the published code reports for one layer."""

    scalogram: Array
    """Energy at each scale and lag, [S, T]."""
    dominant_index: NDArray[np.int64]
    """The four scales of largest energy, largest first, as places in SCALES: [4]."""
    eigenvalues: Array
    """Of the field POD in the window of each of them, descending, [4, N]."""
    beta: float
    """Decay exponent of the first of the four spectra."""
    t_spec: float
    """1 / beta."""
    h_star: list[int]
    """Effective rank of that spectrum for each of EPSILONS."""


def analyse(attention: Array) -> Results:
    """Apply the published analysis to the attention of one layer, [N, T, T]."""
    attention = np.asarray(attention, np.float64)
    energy = scalogram(forward_profiles(attention))
    dominant = np.argsort(energy.sum(1))[::-1][:4]  # the largest of the grid, its edges included
    spectra = np.stack([spectrum(attention, scale) for scale in SCALES[dominant]])
    beta = decay(spectra[0])
    return Results(energy, dominant, spectra, beta, 1 / beta, [rank(spectra[0], epsilon) for epsilon in EPSILONS])


def forward_profiles(attention: Array) -> Array:
    """Profile of each row over lags counted forwards, A[b, min(b + tau, T - 1)]: [N, T, T] (row, lag).

    In a causal map A[b, b + tau] is 0 for tau > 0. Beyond the end the last column is repeated, which is 0 too, but for
    the last row: its profile is A[T - 1, T - 1] at every lag.
    """
    position = np.arange(attention.shape[1])
    return attention[:, position[:, None], np.minimum(position[:, None] + position, len(position) - 1)]


def scalogram(profiles: Array) -> Array:
    """Mean squared modulus of the Morlet transform over snapshots and rows, [S, T].

    The transform is the periodic one over 2 T points, the profiles filled up with zeros; the first T values are kept.
    """
    n_tokens = profiles.shape[-1]
    frequency = np.fft.fftfreq(2 * n_tokens)  # cycles a token
    transformed = np.fft.fft(profiles, 2 * n_tokens)
    energy = np.empty((len(SCALES), n_tokens))
    for row, scale in zip(energy, SCALES, strict=True):
        wavelet = np.sqrt(2 * np.pi * scale) * np.exp(-((2 * np.pi * frequency * scale - OMEGA0) ** 2) / 2)
        coefficients = np.fft.ifft(transformed * np.where(frequency > 0, wavelet, 0.0))[..., :n_tokens]
        row[:] = (np.abs(coefficients) ** 2).mean((0, 1))
    return energy


def spectrum(attention: Array, scale: float) -> Array:
    """Eigenvalues of the centred field POD in the low-pass window of a scale, descending, [N].

    The window exp(-tau^2 / (2 a^2)) covers lags tau = j - i >= 0. Of a causal map it leaves the diagonal, where it
    is 1 at every scale: the spectra of all scales are one.
    """
    n, n_tokens, _ = attention.shape
    lag = np.arange(n_tokens) - np.arange(n_tokens)[:, None]  # j - i
    window = np.where(lag >= 0, np.exp(-(lag**2) / (2 * scale**2)), 0.0)
    fields = (attention * window).reshape(n, -1)
    fluctuation = fields - fields.mean(0)
    return np.flip(np.linalg.eigvalsh(fluctuation @ fluctuation.T / n))


def decay(eigenvalues: Array) -> float:
    """Exponent beta of lambda_k ~ k^(-beta) by least squares in logarithms; 1 with fewer than three eigenvalues."""
    leading = eigenvalues[:FIT_RANGE]
    k = np.arange(1, len(leading) + 1)
    used = leading > FLOOR
    if used.sum() < 3:
        return 1.0
    return float(-np.polyfit(np.log(k[used]), np.log(leading[used]), 1)[0])


def rank(eigenvalues: Array, epsilon: float) -> int:
    """Number of modes that leave at most a share epsilon of the energy, and one more; at most N."""
    left = 1 - np.cumsum(eigenvalues) / eigenvalues.sum()
    needed = int(np.argmax(left <= epsilon)) + 1
    return min(needed + 1, len(eigenvalues))


def diagonal_alone(attention: Array) -> Array:
    """The maps with everything off the diagonal set to zero, [N, T, T]."""
    return np.asarray(attention * np.eye(attention.shape[1]), np.float64)


def looking_back(diagonal: Array, lag: float, rng: np.random.Generator) -> Array:
    """Causal maps [N, T, T] of a given diagonal [N, T] whose other weight lies around a lag, in tokens."""
    n, n_tokens = diagonal.shape
    back = np.arange(n_tokens)[:, None] - np.arange(n_tokens)  # i - j
    bump = np.where(back > 0, np.exp(-((back - lag) ** 2) / (0.1 * lag**2)) + 1e-3, 0.0)
    weights = bump * rng.uniform(0.5, 1.5, (n, n_tokens, n_tokens))
    total = weights.sum(-1, keepdims=True)
    weights = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0) * (1 - diagonal[..., None])
    return weights + diagonal[..., None] * np.eye(n_tokens)


def main() -> None:
    """Print the results for maps that have nothing but their diagonals in common."""
    rng = np.random.default_rng(0)
    diagonal = rng.uniform(0.1, 0.4, (40, 96))
    diagonal[:, 0] = 1.0  # the first token sees itself alone
    sets = {f"around {lag} tokens": looking_back(diagonal, lag, rng) for lag in (5, 30)}
    sets["nowhere (diagonal alone)"] = diagonal_alone(sets["around 5 tokens"])
    print("40 random causal maps of 96 tokens, three times with the same diagonal\n")
    print("| maps look back | mean lag i - j | energy | dominant scales | T_spec | H*(0.10) |\n|" + " --- |" * 6)
    for name, attention in sets.items():
        found = analyse(attention)
        back = np.arange(96)[:, None] - np.arange(96)
        mean_lag = (attention * back).sum() / attention.sum()
        scales = ", ".join(f"{scale:.1f}" for scale in SCALES[found.dominant_index])
        energy = f"{found.scalogram.sum():.6f}"
        print(f"| {name} | {mean_lag:.1f} | {energy} | {scales} | {found.t_spec:.6f} | {found.h_star[0]} |")
    spread = np.ptp(found.eigenvalues, axis=0).max() / found.eigenvalues.max()
    print(f"\nLargest difference between the spectra of the four scales, relatively: {spread:.1e}")


if __name__ == "__main__":
    main()
