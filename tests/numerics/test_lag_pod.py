import numpy as np
import pytest
import torch

from scalepod.field import from_lag, lag_covariance, reynolds
from scalepod.pod import field_pod, lag_pod, lag_windows
from scalepod.spectrum import effective_rank


def homogeneous(profiles, n, n_tokens, seed):
    """Fluctuations that every query draws anew from the given lag profiles."""
    amplitudes = torch.randn(n, n_tokens, len(profiles), generator=torch.Generator().manual_seed(seed)).double()
    return from_lag(amplitudes @ profiles)


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("n_tokens", [2, 3, 17])
def test_equals_the_svd_of_the_windowed_lag_rows(n_tokens, signed, attention, lag_rows_by_loop):
    u = reynolds(attention(30, n_tokens, causal=not signed))[1]
    windows = torch.cat([torch.ones(1, n_tokens), lag_windows([1.5, 4.0], n_tokens)])
    pod = lag_pod(lag_covariance(u, signed), windows, n_modes=3)
    rows = lag_rows_by_loop(u.numpy(), signed).reshape(30 * n_tokens, -1)
    distance = np.abs(np.arange(rows.shape[1]) - (n_tokens - 1 if signed else 0))
    for m, window in enumerate(windows.numpy()):
        _, sigma, profiles = np.linalg.svd(rows * window[distance], full_matrices=False)
        np.testing.assert_allclose(pod.eigenvalues[m], sigma**2 / 30, atol=1e-13)
        for k in range(min(3, n_tokens - 1)):
            assert abs(pod.modes[m, k].numpy() @ profiles[k]) == pytest.approx(1, abs=1e-8)


def test_eigenvalues_add_up_to_the_windowed_energy_and_modes_are_orthonormal(attention):
    R = lag_covariance(reynolds(attention(12, 10))[1])
    windows = lag_windows([2.0, 6.0], 10)
    pod = lag_pod(R, windows, n_modes=5)
    torch.testing.assert_close(pod.eigenvalues.sum(1), (windows**2 * R.diagonal()).sum(1))
    torch.testing.assert_close(pod.modes @ pod.modes.mT, torch.eye(5).double().expand(2, -1, -1), rtol=0, atol=1e-12)


def test_planted_profiles_are_found():
    profiles = torch.zeros(2, 8, dtype=torch.float64)
    profiles[0, 1], profiles[1, 5] = 3.0, 2.0
    pod = lag_pod(lag_covariance(homogeneous(profiles, 400, 8, seed=0)), n_modes=4)
    assert pod.modes[0, :2].abs().argmax(-1).tolist() == [1, 5]
    assert not pod.eigenvalues[0, 2:].any()
    assert not pod.modes[0, 2:].any()
    np.testing.assert_allclose(pod.eigenvalues[0, :2], [9 * 7, 4 * 3], rtol=0.1)  # queries that reach lags 1 and 5


def test_over_lags_the_rank_is_that_of_the_structure_where_the_field_counts_documents():
    profiles = torch.eye(16, dtype=torch.float64)[2:6]
    lag_ranks, field_ranks = [], []
    for n in (20, 40, 80):
        u = homogeneous(profiles, n, 16, seed=n)
        lag_ranks.append(int(effective_rank(lag_pod(lag_covariance(u)).eigenvalues, 0.1)))
        field_ranks.append(int(effective_rank(field_pod(u).eigenvalues, 0.1)))
    assert lag_ranks == [4, 4, 4]
    assert field_ranks[0] < field_ranks[1] < field_ranks[2]


def test_more_modes_than_lags_are_zeros():
    pod = lag_pod(torch.eye(3), n_modes=5)
    assert pod.modes.shape == (1, 5, 3)
    assert not pod.modes[0, 3:].any()
    assert pod.eigenvalues.tolist() == [[1, 1, 1]]


def test_without_windows_there_are_no_results():
    pod = lag_pod(torch.eye(4), torch.zeros(0, 4))
    assert pod.eigenvalues.shape == (0, 4)
    assert pod.modes.shape == (0, 3, 4)


def test_nothing_comes_of_nothing():
    pod = lag_pod(torch.zeros(4, 4))
    assert not pod.eigenvalues.any()
    assert not pod.modes.any()


def test_rounding_below_zero_is_floored():
    profile = torch.ones(6, dtype=torch.float64) / 6**0.5
    R = torch.outer(profile, profile) - 1e-16 * torch.eye(6)
    assert lag_pod(R).eigenvalues[0, 1:].tolist() == [0] * 5


def test_wrong_input_is_named():
    with pytest.raises(ValueError, match=r"windows \(1, 4\) fit R \(5, 5\) neither as \[M, L\] nor as"):
        lag_pod(torch.eye(5), torch.ones(1, 4))
    with pytest.raises(ValueError, match=r"windows must have shape \[M, 5\], .* got \(5,\)"):
        lag_pod(torch.eye(5), torch.ones(5))
    with pytest.raises(ValueError, match=r"R of shape \(2, 2\) is not symmetric"):
        lag_pod(torch.tensor([[1.0, 0.5], [0.2, 1.0]]))
    with pytest.raises(ValueError, match="n_modes must be at least 0, got -2"):
        lag_pod(torch.eye(5), n_modes=-2)
