"""What docs/study measures of attention and of losses, against loops, singular values and known answers."""

import math

import losses
import measures
import numpy as np
import pytest
import torch
from run_folders import attention
from torch import nn

from scalepod.scalogram import scale_energy, scale_grid

N, T = 20, 44


@pytest.fixture(scope="module")
def maps():
    return attention(N, T, 1.0, seed=3).double()


@pytest.fixture(scope="module")
def found(maps):
    return measures.of_maps(maps)


def by_lag(squares):
    """Sum of entries at each lag of lower triangular maps [..., T, T], by loops."""
    return np.array([sum(squares[i, i - tau] for i in range(tau, T)) for tau in range(T)])


def test_shares_of_the_attention_and_of_the_fluctuation(maps, found):
    for prefix, field in (("attention_", maps), ("", maps - maps.mean(0))):
        energy = by_lag((field.numpy() ** 2).sum(0))
        assert found[f"{prefix}share_to_7"] == pytest.approx(energy[:8].sum() / energy.sum())
        assert found[f"{prefix}share_from_20"] == pytest.approx(energy[20:].sum() / energy.sum())


def test_leading_modes_are_those_of_the_singular_value_decomposition(maps, found):
    u = (maps - maps.mean(0)).flatten(1).numpy()
    _, sigma, modes = np.linalg.svd(u, full_matrices=False)
    energy = sigma**2
    assert found["leading_share"] == pytest.approx(energy[:3].sum() / energy.sum())
    squares = (energy[:3, None] * modes[:3] ** 2).sum(0).reshape(T, T)
    profile = by_lag(squares) / energy[:3].sum()
    np.testing.assert_allclose(measures.leading_profile(maps), profile, atol=1e-12)
    assert found["mode_peak"] == profile.argmax()
    bands = []
    for mode in modes[:3]:
        by_mode = by_lag((mode**2).reshape(T, T))
        shares = np.array([by_mode[:7].sum(), by_mode[7:21].sum(), by_mode[21:].sum()])
        bands.append(np.exp(-(shares * np.log(shares)).sum()))
    assert found["bands_of_modes"] == pytest.approx(np.average(bands, weights=energy[:3]))


def test_scalogram_is_of_the_attention_itself_and_of_the_fluctuation(maps, found):
    for name, field in (("log_scalogram", maps), ("log_scalogram_fluctuation", maps - maps.mean(0))):
        covariance = torch.zeros(T, T, dtype=torch.float64)
        for snapshot in field:
            for i in range(T):
                row = torch.zeros(T, dtype=torch.float64)
                row[: i + 1] = snapshot[i, : i + 1].flip(0)
                covariance += torch.outer(row, row) / N
        assert found[name] == pytest.approx(float(scale_energy(covariance, scale_grid(per_octave=8)).sum().log()))


def test_windows_take_bands_away_from_modes_that_mix(found):
    lag = torch.arange(T)[:, None] - torch.arange(T)
    rng = torch.Generator().manual_seed(0)
    strength = torch.randn(N, 1, 1, generator=rng, dtype=torch.float64)
    mixing = strength * ((lag == 4) | (lag == 12) | (lag == 36)).double()  # one pattern at three scales
    mixed = measures.of_maps(mixing)
    assert mixed["bands_of_modes"] > 2.5
    assert mixed["bands_lost_by_windows"] > 0.5
    assert mixed["bands_of_energy"] == pytest.approx(mixed["bands_of_modes"])
    assert mixed["mode_peaks"] == 2, "at lags 12 and 36, not at 4"
    assert mixed["mode_peak"] == 4


def test_a_ripple_is_no_peak():
    profile = torch.full((60,), 0.5, dtype=torch.float64)
    profile[[15, 25, 35, 45]] = torch.tensor([1.0, 0.59, 0.61, 0.9], dtype=torch.float64)
    assert measures.n_peaks(profile, 10, 40) == 2


def test_replicates_leave_out_every_eighth_document():
    documents = torch.arange(20.0)
    values = measures.with_replicates(lambda part: {"mean": float(part.mean())}, documents)["mean"]
    expected = [np.delete(np.arange(20.0), np.arange(group, 20, 8)).mean() for group in range(8)]
    np.testing.assert_allclose(values, [9.5, *expected])


def test_no_basis_leaves_less_than_the_modes(maps):
    found = measures.reconstruction(maps, n_modes=4)
    sigma = np.linalg.svd((maps - maps.mean(0)).flatten(1).numpy(), compute_uv=False)
    assert found.identity < 1e-12
    assert found.modes == pytest.approx((sigma[4:] ** 2).sum() / (sigma**2).sum())
    assert found.modes < found.documents < 1
    assert found.modes < found.cosines < 1


def test_heads_that_do_the_same_are_one():
    one = attention(12, 10, 1.0, seed=0)
    other = attention(12, 10, 1.0, seed=1)
    assert measures.distinct_heads(torch.stack([one, one, one], 1))["distinct_heads"] == pytest.approx(1.0)
    assert measures.distinct_heads(torch.stack([one, other], 1))["distinct_heads"] > 1.9


class Counter(nn.Module):
    """Predicts from the running mean of the tokens, or of the whole sequence."""

    def __init__(self, causal):
        super().__init__()
        self.causal = causal

    def forward(self, idx):
        mean = idx.double().cumsum(1) / torch.arange(1, idx.shape[1] + 1)
        mean = mean if self.causal else mean[:, -1:].expand_as(mean)
        return torch.stack([mean, 1 - mean], -1)


def test_left_to_right_is_the_same_for_a_causal_model_alone():
    documents = torch.randint(2, (40, 13), generator=torch.Generator().manual_seed(0))
    causal, peeking = Counter(True), Counter(False)
    for every in (1, 4):
        both = [f(causal, documents, every) for f in (losses.in_one_pass, losses.left_to_right)]
        torch.testing.assert_close(*both)
    apart = losses.in_one_pass(peeking, documents, 4) - losses.left_to_right(peeking, documents, 4)
    assert apart.abs().max() > 0.01


def test_loss_of_every_second_position_by_loops():
    documents = torch.tensor([[0, 1, 1, 0, 1]])
    expected = []
    for t in (2, 4):  # the token at t from those before it
        mean = float(documents[0, :t].double().mean())
        logits = (mean, 1 - mean)
        expected.append(math.log(sum(map(math.exp, logits))) - logits[documents[0, t]])
    assert float(losses.left_to_right(Counter(True), documents, 2)) == pytest.approx(np.mean(expected))
