import math

import numpy as np
import pytest
import torch

from scalepod.confidence.held_out import field_captured, lag_captured, modes_needed
from scalepod.spectrum import effective_rank


def ensemble(n, dimensions, rank=None, seed=0):
    """Flat snapshots [n, dimensions] about a mean that is not 0, of descending energies, of full or of given rank."""
    rng = np.random.default_rng(seed)
    rank = dimensions if rank is None else rank
    modes = np.linalg.qr(rng.standard_normal((dimensions, rank)))[0].T
    return rng.standard_normal((n, rank)) / np.arange(1, rank + 1) @ modes + rng.standard_normal(dimensions)


def gram_of(flat):
    u = flat - flat.mean(0)
    return torch.from_numpy(u @ u.T)


def captured_by_svd(train, test, n_modes):
    """Shares of the energy about their own means that the right singular vectors of `train` hold, mode by mode."""
    train, test = train - train.mean(0), test - test.mean(0)
    modes = np.linalg.svd(train, full_matrices=False)[2][: len(train) - 1]
    shares = np.zeros((2, n_modes + 1))
    for k in range(1, n_modes + 1):
        for share, flat in zip(shares, (train, test), strict=True):
            rest = sum(((x - sum((x @ phi) * phi for phi in modes[:k])) ** 2).sum() for x in flat)
            share[k] = 1 - rest / (flat**2).sum()
    return shares


@pytest.mark.parametrize(("n", "in_half"), [(12, 6), (13, 6), (9, 2), (8, 5)])
def test_field_curves_equal_the_svd_of_the_halves(n, in_half):
    flat = ensemble(n, 25)
    half = torch.zeros(n, dtype=torch.bool)
    half[torch.randperm(n, generator=torch.Generator().manual_seed(1))[:in_half]] = True
    curves = field_captured(gram_of(flat), half, n_tokens=5)
    a, b = flat[half.numpy()], flat[~half.numpy()]
    n_modes = max(in_half, n - in_half) - 1
    expected = (captured_by_svd(a, b, n_modes) + captured_by_svd(b, a, n_modes)) / 2
    np.testing.assert_allclose(curves.in_sample, expected[0], atol=1e-12)
    np.testing.assert_allclose(curves.held_out, expected[1], atol=1e-12)


def test_the_halves_are_centred_about_their_own_means():
    flat, half = ensemble(14, 30), torch.arange(14) % 2 == 0
    apart = flat + 5 * half.numpy()[:, None] * np.ones(30)  # the halves differ in their means as well
    for here, there in zip(
        field_captured(gram_of(flat), half, 6), field_captured(gram_of(apart), half, 6), strict=True
    ):
        torch.testing.assert_close(here, there)


def test_lag_curves_equal_projections_on_singular_vectors():
    rows = [ensemble(40, 9, seed=seed) for seed in (0, 1)]
    R = [torch.from_numpy((x - x.mean(0)).T @ (x - x.mean(0)) / 40) for x in rows]
    curves = lag_captured(*R)
    expected = (captured_by_svd(*rows, 9) + captured_by_svd(*rows[::-1], 9)) / 2
    np.testing.assert_allclose(curves.in_sample, expected[0], atol=1e-12)
    np.testing.assert_allclose(curves.held_out, expected[1], atol=1e-12)


def test_curves_ascend_from_0_and_all_modes_hold_their_own_half():
    gram = gram_of(ensemble(21, 16))
    for half in (torch.arange(21) < 10, torch.arange(21) % 3 == 0):
        for curve in field_captured(gram, half, 4):
            assert float(curve[0]) == 0
            assert bool((curve.diff() >= 0).all())
            assert float(curve[-1]) <= 1
        assert float(field_captured(gram, half, 4).in_sample[-1]) == 1


@pytest.mark.parametrize("rank", [1, 4])
def test_a_few_modes_that_all_documents_share_hold_the_other_half(rank):
    flat, half = ensemble(20, 36, rank), torch.arange(20) < 10
    curves = field_captured(gram_of(flat), half, 6)
    assert modes_needed(curves.held_out, 0.0) == modes_needed(curves.in_sample, 0.0) == rank
    assert float(curves.held_out[rank - 1]) < 1 - 1e-4
    u = torch.from_numpy(flat - flat.mean(0))
    lag = lag_captured(u[:10].mT @ u[:10], u[10:].mT @ u[10:])
    assert modes_needed(lag.held_out, 1e-9) == rank


def test_modes_of_noise_hold_no_more_of_other_noise_than_their_share_of_the_dimensions():
    dimensions, n = 400, 60
    noise = np.random.default_rng(0).standard_normal((n, dimensions))
    curves = field_captured(gram_of(noise), torch.arange(n) < n // 2, 20)
    share = torch.arange(n // 2, dtype=torch.float64) / dimensions
    torch.testing.assert_close(curves.held_out, share, atol=6e-3, rtol=0)
    assert float(curves.in_sample[-1]) == 1
    assert modes_needed(curves.held_out, 0.10) == math.inf


def test_modes_needed_in_sample_is_the_effective_rank():
    R = torch.diag(torch.tensor([8.0, 4.0, 2.0, 1.0, 0.5], dtype=torch.float64))
    curve = lag_captured(R, R)
    assert curve.in_sample.equal(curve.held_out)
    for epsilon in (0.0, 0.01, 0.1, 0.3, 0.9):
        assert modes_needed(curve.in_sample, epsilon) == int(effective_rank(R.diagonal(), epsilon))


@pytest.mark.parametrize("first", [True, False])
def test_a_half_without_energy_leaves_the_curves_undefined(first):
    flat, half = ensemble(15, 9), torch.arange(15) < 7
    flat[:7] = flat[0]  # about the mean of all this half fluctuates, about its own it does not
    for curve in field_captured(gram_of(flat), half if first else ~half, 3):
        assert bool(curve.isnan().all())
        assert math.isnan(modes_needed(curve, 0.1))
    assert bool(field_captured(torch.zeros(5, 5), torch.arange(5) < 2, 3).in_sample.isnan().all())
    assert bool(lag_captured(torch.zeros(3, 3), torch.eye(3)).held_out.isnan().all())


def test_wrong_input_is_named():
    gram, half = gram_of(ensemble(6, 5)), torch.arange(6) < 3
    with pytest.raises(ValueError, match=r"gram must be \[N, N\], document by document, got shape \(6, 5\)"):
        field_captured(gram[:, :5], half, 3)
    with pytest.raises(ValueError, match=r"gram of shape \(6, 6\) is not symmetric, so it holds no inner products"):
        field_captured(gram + torch.ones(6, 6).triu(1), half, 3)
    with pytest.raises(ValueError, match=r"gram of shape .* holds 36 non-finite values"):
        field_captured(gram * torch.nan, half, 3)
    with pytest.raises(
        ValueError, match=r"half must be a bool tensor of shape \(6,\), .* got torch.bool of shape \(5,"
    ):
        field_captured(gram, half[:5], 3)
    with pytest.raises(ValueError, match=r"half must be a bool tensor of shape \(6,\), .* got torch.int64"):
        field_captured(gram, half.long(), 3)
    with pytest.raises(ValueError, match="each half needs at least 2 documents, got 1 and 5"):
        field_captured(gram, torch.arange(6) < 1, 3)
    with pytest.raises(ValueError, match="n_tokens must be positive and finite, got 0"):
        field_captured(gram, half, 0)
    with pytest.raises(ValueError, match=r"must have the same lags, got shapes \(3, 3\) and \(4, 4\)"):
        lag_captured(torch.eye(3), torch.eye(4))
    with pytest.raises(ValueError, match=r"epsilon must lie in \[0, 1\), got 1"):
        modes_needed(torch.tensor([0.0, 1.0]), 1.0)
    for bad in (torch.zeros(2, 2), torch.zeros(0), torch.tensor([0.0, 0.5, 0.4])):
        with pytest.raises(ValueError, match="captured must be a vector that ascends with the modes, got shape"):
            modes_needed(bad, 0.1)
