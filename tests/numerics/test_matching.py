import itertools
import math

import numpy as np
import pytest
import torch
from scipy.linalg import subspace_angles

from scalepod.matching import match_modes, mode_stability
from scalepod.pod import lag_pod

MANY = 10**8  # samples enough to separate any two modes


def orthonormal(n_modes, size, seed=0):
    noise = torch.randn(size, n_modes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.linalg.qr(noise).Q.mT


def halving(n_modes):
    return 0.5 ** torch.arange(n_modes, dtype=torch.float64)


def turned(angle):
    return torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]], dtype=torch.float64)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("n_modes", [1, 2, 3, 4])
def test_separated_modes_are_reordered_as_by_trying_everything(n_modes, seed):
    modes, previous = orthonormal(n_modes, 6, seed), orthonormal(n_modes, 6, seed + 100)
    energies = halving(n_modes)

    def worth(order, signs):
        return sum(s * float(modes[k] @ p) for k, s, p in zip(order, signs, previous, strict=True))

    choices = itertools.product(itertools.permutations(range(n_modes)), itertools.product([1, -1], repeat=n_modes))
    order, signs = max(choices, key=lambda choice: worth(*choice))
    found = match_modes(modes, energies, previous, MANY)
    assert tuple(found.ranks.tolist()) == order
    expected = torch.tensor(signs, dtype=torch.float64)[:, None] * modes[list(order)]
    torch.testing.assert_close(found.modes, expected, rtol=0, atol=1e-15)
    torch.testing.assert_close(found.energies, energies[list(order)])
    torch.testing.assert_close(found.overlap, (expected * previous).sum(-1), rtol=0, atol=1e-15)
    assert (found.overlap >= 0).all()
    assert not found.mixed.any()


@pytest.mark.parametrize("angle", [0.3, math.pi / 2, 2.5])
@pytest.mark.parametrize("mirrored", [False, True])
def test_a_pair_that_cannot_be_told_apart_is_turned_back(angle, mirrored):
    previous = orthonormal(4, 9)
    modes = previous.clone()
    modes[1:3] = turned(angle) @ previous[1:3]
    modes[2] *= -1 if mirrored else 1
    found = match_modes(modes, torch.tensor([8.0, 4.0, 3.9, 1.0, 0.5]), previous, 200)
    torch.testing.assert_close(found.modes, previous, rtol=0, atol=1e-14)
    torch.testing.assert_close(found.overlap, torch.ones(4, dtype=torch.float64))
    assert found.mixed.tolist() == [False, True, True, False]
    weights = turned(angle)[:, 0].square()
    torch.testing.assert_close(found.energies[1], 4.0 * weights[0] + 3.9 * weights[1])
    torch.testing.assert_close(found.energies.sum(), torch.tensor(16.9, dtype=torch.float64))


def test_a_pair_keeps_its_places_when_it_falls_behind_another_mode():
    previous = orthonormal(3, 8)
    modes = torch.stack([-previous[2], *(turned(0.7) @ previous[:2])])
    found = match_modes(modes, torch.tensor([8.0, 4.0, 3.9]), previous, 200)
    torch.testing.assert_close(found.modes, previous, rtol=0, atol=1e-14)
    assert found.ranks.tolist() == [1, 2, 0]
    assert found.mixed.tolist() == [True, True, False]
    torch.testing.assert_close(found.energies[2], torch.tensor(8.0, dtype=torch.float64))


def test_no_rotation_within_a_group_overlaps_more():
    previous, modes = orthonormal(3, 7), orthonormal(3, 7, seed=1)
    found = match_modes(modes, torch.tensor([4.0, 3.9, 3.8]), previous, 200)
    best = float(found.overlap.sum())
    assert best == pytest.approx(np.linalg.svd((modes @ previous.mT).numpy(), compute_uv=False).sum())
    for seed in range(200):
        assert float((orthonormal(3, 3, seed) @ modes * previous).sum()) <= best


def test_the_rotation_makes_the_modes_and_keeps_what_they_add_up_to():
    modes, previous = orthonormal(5, 12), orthonormal(5, 12, seed=1)
    found = match_modes(modes, torch.tensor([9.0, 5.0, 4.9, 1.0, 0.2]), previous, 200)
    identity = torch.eye(5, dtype=torch.float64)
    torch.testing.assert_close(found.rotation @ found.rotation.mT, identity, rtol=0, atol=1e-14)
    torch.testing.assert_close(found.rotation @ modes, found.modes, rtol=0, atol=1e-14)
    coefficients = torch.randn(5, 30, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    torch.testing.assert_close(found.modes.mT @ (found.rotation @ coefficients), modes.mT @ coefficients)


def test_modes_of_a_slightly_changed_ensemble_stay_where_they_were():
    # energies 1 : 0.5 : 0.495 : 0.1; a small change turns the pair in the middle a lot, and nothing else
    energies = torch.tensor([1.0, 0.5, 0.495, 0.1], dtype=torch.float64)
    axes = orthonormal(4, 16)
    covariance = axes.mT * energies @ axes
    change = orthonormal(16, 16, seed=3) - orthonormal(16, 16, seed=4)
    earlier, later = (lag_pod(matrix, n_modes=4) for matrix in (covariance, covariance + 0.01 * (change + change.mT)))
    turned_pair = (later.modes[0] * earlier.modes[0]).sum(-1).abs()[1:3]
    found = match_modes(later.modes[0], later.eigenvalues[0], earlier.modes[0], 400)
    assert (turned_pair < 0.9).all()
    assert found.mixed.tolist() == [False, True, True, False]
    assert (found.overlap > 0.98).all()


def test_modes_of_zeros_stay_zeros_and_match_nothing():
    previous, modes = orthonormal(4, 9), orthonormal(4, 9)[[2, 0, 1, 3]]
    modes[2:] = 0
    previous[1] = 0
    found = match_modes(modes, torch.tensor([2.0, 1.0, 0.0, 0.0]), previous, MANY)
    assert found.ranks.tolist() == [1, 2, 0, 3]
    assert not found.modes[[1, 3]].any()
    assert found.overlap.isnan().tolist() == [False, True, False, True]
    assert found.energies.tolist() == [1.0, 0.0, 2.0, 0.0]


@pytest.mark.parametrize("energies", [[3.0, 2.0, 1.0], [3.0, 2.99, 2.98]])
def test_without_earlier_modes_nothing_changes(energies):
    modes = orthonormal(3, 5)
    found = match_modes(modes, torch.tensor(energies), torch.zeros(3, 5), 50)
    assert torch.equal(found.modes, modes)
    assert found.ranks.tolist() == [0, 1, 2]
    assert not found.mixed.any()
    assert found.overlap.isnan().all()


@pytest.mark.parametrize("n_modes", [0, 1, 3])
def test_modes_are_their_own_match(n_modes):
    modes = orthonormal(n_modes, 5).float()
    found = match_modes(modes, torch.ones(1), modes, 50)
    torch.testing.assert_close(found.modes, modes)
    assert found.modes.dtype == torch.float32
    assert found.energies.tolist() == [1.0, 0.0, 0.0][:n_modes]
    assert found.ranks.tolist() == list(range(n_modes))


@pytest.mark.parametrize(("n", "m"), [(1, 1), (3, 3), (2, 5)])
def test_stability_is_the_mean_cosine_of_the_principal_angles(n, m):
    modes, previous = orthonormal(n, 8), orthonormal(m, 8, seed=1)
    expected = np.cos(subspace_angles(modes.mT.numpy(), previous.mT.numpy())).mean()
    assert mode_stability(modes, previous) == pytest.approx(expected)
    padded = torch.cat([modes, torch.zeros(2, 8)])
    assert mode_stability(padded, previous) == pytest.approx(expected)


def test_stability_of_known_subspaces():
    modes = orthonormal(3, 8)
    assert mode_stability(modes, -modes[[2, 0, 1]]) == pytest.approx(1)
    assert mode_stability(modes.float(), modes[:2]) == pytest.approx(1)
    assert mode_stability(torch.eye(6)[:3], torch.eye(6)[3:]) == 0
    assert math.isnan(mode_stability(torch.zeros(2, 4), torch.eye(4)))


def test_wrong_input_is_named():
    modes = orthonormal(2, 4)
    with pytest.raises(ValueError, match=r"modes must be \[K, D\], one mode a row, got shape \(1, 2, 4\)"):
        match_modes(modes[None], torch.ones(2), modes, 9)
    with pytest.raises(ValueError, match=r"modes \(2, 4\) and previous \(2, 3\) must have the same shape; drop"):
        match_modes(modes, torch.ones(2), modes[:, :3], 9)
    with pytest.raises(ValueError, match=r"eigenvalues must be \[n\], got shape \(1, 2\)"):
        match_modes(modes, torch.ones(1, 2), modes, 9)
    with pytest.raises(ValueError, match="n_samples must be positive and finite, got 0"):
        match_modes(modes, torch.ones(2), modes, 0)
    with pytest.raises(ValueError, match=r"previous of shape \(2, 4\) holds 8 non-finite values"):
        mode_stability(modes, modes * torch.nan)
    with pytest.raises(ValueError, match=r"modes \(2, 4\) and previous \(2, 3\) must have the same last dimension"):
        mode_stability(modes, modes[:, :3])
