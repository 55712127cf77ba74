"""E(a) without the scalogram: the same sums, for one covariance or many."""

import pytest
import torch

from scalepod.field import lag_covariance, reynolds
from scalepod.scalogram import scale_energy, scale_grid, scalogram


@pytest.mark.parametrize("n_tokens", [1, 2, 7, 40])
@pytest.mark.parametrize("omega0", [6.0, 7.5])
def test_it_is_the_scalogram_summed_over_places(attention, n_tokens, omega0):
    scales = scale_grid(2, 16, per_octave=3)
    R = torch.stack([lag_covariance(reynolds(attention(6, n_tokens, seed=seed))[1]) for seed in range(3)])
    expected = torch.stack([scalogram(one, scales, omega0, n_queries=5).sum(-1) for one in R])
    torch.testing.assert_close(scale_energy(R, scales, omega0, n_queries=5), expected, rtol=1e-10, atol=1e-16)
    torch.testing.assert_close(scale_energy(R[0], scales, omega0), expected[0] * 5 / n_tokens, rtol=1e-10, atol=1e-16)


def test_signed_lags(attention):
    scales = scale_grid(2, 8)
    R = lag_covariance(reynolds(attention(6, 12, causal=False))[1], signed=True)
    torch.testing.assert_close(scale_energy(R, scales), scalogram(R, scales).sum(-1), rtol=1e-10, atol=1e-16)


def test_errors():
    with pytest.raises(ValueError, match="R must end in two equal dimensions"):
        scale_energy(torch.zeros(3, 4), scale_grid(2, 8))
