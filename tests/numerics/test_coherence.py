import cmath
import math

import numpy as np
import pytest
import torch

from scalepod.coherence import coherence_threshold, cross_coherence
from scalepod.field import reynolds


def coherence_by_loop(fields, scale, omega0=6.0):
    """gamma by the definition, one pair of places at a time."""
    n, n_tokens, _ = fields.shape

    def transform(row, place):
        steps = [(tau - place) / scale for tau in range(n_tokens)]
        wavelet = [scale**-0.5 * math.pi**-0.25 * cmath.exp(1j * omega0 * t - t**2 / 2) for t in steps]
        return sum(value * psi.conjugate() for value, psi in zip(row, wavelet, strict=True))

    gamma = np.zeros((n_tokens, n_tokens))
    for i in range(n_tokens):
        own = [transform(row[i], i) for row in fields]
        for j in range(n_tokens):
            other = [transform(row[i], j) for row in fields]
            cross = abs(sum(a * b.conjugate() for a, b in zip(own, other, strict=True)) / n)
            powers = [sum(abs(w) ** 2 for w in ws) / n for ws in (own, other)]
            gamma[i, j] = cross / math.sqrt(powers[0] * powers[1])
    return gamma


def noise(n, n_tokens, seed=0):
    return torch.randn(n, n_tokens, n_tokens, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("omega0", [6.0, 8.0])
@pytest.mark.parametrize(("n", "n_tokens", "scale"), [(1, 2, 2.0), (2, 5, 3.0), (6, 19, 2.5)])
def test_equals_the_definition(n, n_tokens, scale, omega0):
    fields = noise(n, n_tokens)
    expected = coherence_by_loop(fields.numpy(), scale, omega0)
    np.testing.assert_allclose(cross_coherence(fields, scale, omega0), expected, atol=1e-12)


def test_lies_between_zero_and_one_and_a_place_coheres_with_itself(attention):
    gamma = cross_coherence(reynolds(attention(8, 20, causal=False, dtype=torch.float32))[1], 3.0)
    assert gamma.dtype == torch.float32
    assert gamma.min() >= 0
    assert gamma.max() <= 1
    torch.testing.assert_close(gamma.diagonal(), torch.ones(20))


def test_documents_that_differ_by_a_factor_cohere_everywhere():
    factors = torch.tensor([1.0, -2.0, 0.3])[:, None, None]
    gamma = cross_coherence(factors * noise(1, 30), 2.0)
    torch.testing.assert_close(gamma, torch.ones_like(gamma))
    assert gamma.max() == 1


def test_a_structure_shared_by_two_places_stands_out():
    # a wave packet at the query and 20 keys before it with one random amplitude, and noise
    n, n_tokens = 60, 48
    position = torch.arange(n_tokens, dtype=torch.float64)
    amplitude = 3 * torch.randn(n, 1, 1, generator=torch.Generator().manual_seed(5)).double()
    fields = noise(n, n_tokens)
    for centre in (position, position - 20):
        offset = position - centre[:, None]
        fields = fields + amplitude * torch.cos(2 * offset) * torch.exp(-(offset**2) / 18)
    gamma = cross_coherence(fields, 3.0)
    places = torch.arange(26, 42)
    assert (gamma[places, places - 20] > 0.9).all()
    assert gamma[places, places - 10].mean() < 0.3


@pytest.mark.parametrize("alpha", [0.05, 0.3])
@pytest.mark.parametrize("centred", [False, True])
def test_independent_documents_exceed_the_threshold_as_often_as_it_says(centred, alpha):
    n, n_tokens, scale = 12, 80, 2.5
    rates = []
    for seed in range(4):
        fields = noise(n, n_tokens, seed)
        gamma = cross_coherence(reynolds(fields)[1] if centred else fields, scale)
        level = coherence_threshold(n - 1 if centred else n, alpha)
        row, column = np.indices((n_tokens, n_tokens))
        inside = (np.minimum(row, column) >= 10) & (np.maximum(row, column) < 70) & (np.abs(row - column) > 12)
        rates.append((gamma.numpy()[inside] > level).mean())
    assert np.mean(rates) == pytest.approx(alpha, rel=0.15)


def test_threshold_is_the_square_root_of_the_level_of_the_square():
    assert coherence_threshold(11, 0.05) ** 2 == pytest.approx(1 - 0.05 ** (1 / 10))
    assert coherence_threshold(2, 0.25) == pytest.approx(math.sqrt(0.75))


def test_places_without_energy_do_not_cohere():
    assert not cross_coherence(torch.zeros(4, 6, 6), 2.0).any()
    fields = torch.zeros(4, 60, 60)
    fields[:, :, 0] = 1
    assert not cross_coherence(fields, 2.0)[:, 40:].any()


def test_wrong_input_is_named():
    fields = noise(3, 4)
    with pytest.raises(ValueError, match=r"attn must have 3 dimensions, .* got shape \(4, 4\)"):
        cross_coherence(fields[0], 2.0)
    with pytest.raises(ValueError, match=r"attn of shape \(3, 4, 4\) holds 48 non-finite values"):
        cross_coherence(fields * torch.nan, 2.0)
    with pytest.raises(ValueError, match="scale must be positive and finite, got 0"):
        cross_coherence(fields, 0)
    with pytest.raises(ValueError, match="omega0 must be positive and finite, got -1"):
        cross_coherence(fields, 2.0, -1)
    for n, alpha in ((1, 0.05), (5, 0.0), (5, 1.0)):
        with pytest.raises(ValueError, match=f"need n >= 2 and 0 < alpha < 1, got n = {n} and alpha = {alpha}"):
            coherence_threshold(n, alpha)
