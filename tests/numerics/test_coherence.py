import cmath
import math

import numpy as np
import pytest
import torch
from scipy.stats import ncx2

from scalepod._chance import rice_quantile
from scalepod.coherence import (
    CoherenceMoments,
    coherence,
    coherence_from_moments,
    coherence_moments,
    coherence_threshold,
    cross_coherence,
)
from scalepod.field import reynolds


def transform(row, place, scale, omega0=6.0):
    """W(place) of one row by the definition."""
    steps = [(tau - place) / scale for tau in range(len(row))]
    wavelet = [scale**-0.5 * math.pi**-0.25 * cmath.exp(1j * omega0 * t - t**2 / 2) for t in steps]
    return sum(value * psi.conjugate() for value, psi in zip(row, wavelet, strict=True))


def coherence_by_loop(fields, scale, omega0=6.0):
    """gamma by the definition, one pair of places at a time."""
    n, n_tokens, _ = fields.shape
    gamma = np.zeros((n_tokens, n_tokens))
    for i in range(n_tokens):
        own = [transform(row[i], i, scale, omega0) for row in fields]
        for j in range(n_tokens):
            other = [transform(row[i], j, scale, omega0) for row in fields]
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


def chance_by_loop(fields, valid, scale, alpha, i, j):
    """Number of documents and level of one pair, from the products of single documents."""
    rows = [row[i] for row, real in zip(fields, valid, strict=True) if real[i]]
    n = len(rows)
    x, y = (np.array([transform(row, place, scale) for row in rows]) for place in (i, j))
    x, y = x - x.mean(), y - y.mean()
    square = np.abs(x * y) ** 2
    inverse = n / (n - 2) * square.sum() / (np.abs(x) ** 2).sum() / (np.abs(y) ** 2).sum() - 1 / ((n - 1) * (n - 2))
    fixed = math.sqrt((square**2).sum()) / square.sum()
    rest = 1 - fixed
    return 1 / inverse, math.sqrt(inverse * rest / 2 * ncx2.ppf(1 - alpha, 2, 2 * fixed / rest))


@pytest.mark.parametrize("alpha", [0.05, 0.3])
@pytest.mark.parametrize("masked", [False, True])
def test_documents_and_level_are_those_of_the_products(masked, alpha, documents):
    fields = noise(12, 9)
    valid = documents(12, 9) if masked else torch.ones(12, 9, dtype=torch.bool)
    found = coherence(fields, 2.5, alpha=alpha, valid=valid)
    gamma = cross_coherence(reynolds(fields, valid)[1], 2.5)
    torch.testing.assert_close(found.gamma, gamma, rtol=0, atol=1e-12)
    for i in range(9):
        if valid[:, i].sum() < 3:
            assert found.level[i].isnan().all()
            continue
        for j in range(9):
            n, level = chance_by_loop(fields.numpy(), valid.numpy(), 2.5, alpha, i, j)
            assert float(found.documents[i, j]) == pytest.approx(max(n, 1))
            assert float(found.level[i, j]) == pytest.approx(min(level, 1), rel=1e-4)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("size", [4, 40])
def test_moments_add_over_batches_and_know_the_mean_only_in_the_end(size, causal):
    fields = noise(40, 48).tril() if causal else noise(40, 48)
    fields = fields * strengths("lognormal", 40)[:, None, None]
    whole = coherence(fields, 3.0, signed=not causal)
    parts = [coherence_moments(batch, 3.0) for batch in (fields + 2 * noise(1, 48, seed=9)).split(size)]
    moments = CoherenceMoments(*(sum(field) for field in zip(*parts, strict=True)))
    found = coherence_from_moments(moments, 3.0, signed=not causal)
    seen = whole.tested
    assert torch.equal(found.tested, seen)
    torch.testing.assert_close(found.gamma[seen], whole.gamma[seen], rtol=0, atol=1e-10)
    torch.testing.assert_close(found.documents[seen], whole.documents[seen], rtol=1e-9, atol=0)
    torch.testing.assert_close(found.level[seen], whole.level[seen], rtol=0.35, atol=0)
    u = reynolds(fields)[1]
    parts = [coherence_moments(batch, 3.0) for batch in u.split(size)]
    again = coherence_from_moments(CoherenceMoments(*(sum(field) for field in zip(*parts, strict=True))), 3.0)
    torch.testing.assert_close(again.level[seen.tril()], whole.level[seen.tril()], rtol=1e-10, atol=0)


def strengths(kind, n, seed=0):
    generator = torch.Generator().manual_seed(1000 + seed)
    if kind == "equal":
        return torch.ones(n, dtype=torch.float64)
    if kind == "few":
        return torch.where(torch.rand(n, generator=generator) < 0.1, 10.0, 1.0).double()
    return torch.randn(n, generator=generator, dtype=torch.float64).exp()


@pytest.mark.parametrize("kind", ["equal", "few", "lognormal"])
@pytest.mark.parametrize("n", [40, 150])
def test_independent_documents_of_any_strength_exceed_the_level_as_often_as_it_says(n, kind):
    shares, naive = [], []
    for seed in range(8):
        fields = noise(n, 64, seed).tril() * strengths(kind, n, seed)[:, None, None]
        found = coherence(fields, 3.0)
        shares.append(found.significant_share)
        naive.append(float((found.gamma > coherence_threshold(n - 1))[found.tested].double().mean()))
    assert 0.03 < np.mean(shares) < 0.07
    assert (np.mean(naive) > 0.4) == (kind != "equal")  # the textbook level is for documents of equal strength


def test_of_fields_as_they_are_the_level_is_not_too_low():
    shares = []
    for seed in range(8):
        fields = 3 * noise(1, 64, 99) + noise(150, 64, seed) * strengths("lognormal", 150, seed)[:, None, None]
        shares.append(coherence_from_moments(coherence_moments(fields.tril(), 3.0), 3.0).significant_share)
    assert 0.02 < np.mean(shares) < 0.07


def test_planted_coherence_is_found_and_nothing_else():
    n, n_tokens = 60, 64
    position = torch.arange(n_tokens, dtype=torch.float64)
    amplitude = torch.randn(n, 1, 1, generator=torch.Generator().manual_seed(5)).double()
    fields = noise(n, n_tokens)
    for centre in (position, position - 20):
        offset = position - centre[:, None]
        fields = fields + amplitude * torch.cos(2 * offset) * torch.exp(-(offset**2) / 18)
    found = coherence(fields.tril(), 3.0)
    place = torch.arange(n_tokens)
    planted = found.tested & ((place[:, None] - place - 20).abs() <= 2)
    elsewhere = found.tested & ((place[:, None] - place - 20).abs() > 10)
    above = found.gamma > found.level
    assert above[planted].double().mean() > 0.95
    assert above[elsewhere].double().mean() < 0.08
    assert found.significant_share == pytest.approx(float(above[found.tested].double().mean()))


def test_pairs_that_overlap_or_lie_ahead_are_not_tested():
    place = torch.arange(30)
    lag = place[:, None] - place
    fields = noise(5, 30)
    assert torch.equal(coherence(fields, 2.5).tested, lag >= 10)
    assert torch.equal(coherence(fields, 2.5, signed=True).tested, lag.abs() >= 10)
    assert math.isnan(coherence(fields, 8.0).significant_share)


def test_one_document_with_all_the_energy_shows_nothing():
    fields = torch.zeros(20, 30, 30, dtype=torch.float64)
    fields[7] = noise(1, 30)[0]
    found = coherence(fields, 2.5)
    ones = torch.ones(20 * 21 // 2, dtype=torch.float64)
    for value in (found.gamma, found.documents, found.level):
        torch.testing.assert_close(value[found.tested], ones)
    assert found.significant_share == 0


@pytest.mark.parametrize("n", [2, 5])
def test_without_energy_or_with_two_documents_there_is_no_level(n):
    for fields in (noise(1, 30).expand(n, -1, -1), noise(2, 30)):
        found = coherence(fields, 2.5)
        assert found.level.isnan().all()
        assert not found.tested.any()


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.5])
def test_quantile_of_a_fixed_step_and_a_gaussian_rest(alpha):
    fixed = torch.linspace(0, 1, 41, dtype=torch.float64)
    found = rice_quantile(fixed, alpha)
    assert float(found[0]) == pytest.approx(-math.log(alpha))
    assert float(found[-1]) == 1
    for share, level in zip(fixed[1:-1].tolist(), found[1:-1].tolist(), strict=True):
        survival = ncx2.sf(2 * level / (1 - share), 2, 2 * share / (1 - share))
        assert survival == pytest.approx(alpha, rel=1e-3)
    assert rice_quantile(torch.tensor([torch.nan]), alpha).isnan().all()


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
    moments = coherence_moments(fields, 2.0)
    with pytest.raises(ValueError, match="scale must be positive and finite, got -1"):
        coherence_from_moments(moments, -1)
    with pytest.raises(ValueError, match=r"alpha must lie in \(0, 1\), got 1"):
        coherence_from_moments(moments, 2.0, 1)
