import numpy as np
import pytest
import torch

from scalepod.pod import field_pod, lag_windows

RANK_TOLERANCE = 1e-9  # far above the rounding of an eigenvalue, far below any planted one


def windowed(u, window):
    """g(|i - j|) u, by the definition."""
    position = np.arange(u.shape[-1])
    return u * np.asarray(window)[np.abs(position[:, None] - position)]


def eigenvalues_by_svd(u):
    return np.linalg.svd(u.reshape(len(u), -1), compute_uv=False) ** 2 / len(u)


def planted(amplitudes, n, n_tokens, seed=0):
    """Ensemble with the given eigenvalues, and its modes [r, T, T]."""
    rng = np.random.default_rng(seed)
    modes = np.linalg.qr(rng.standard_normal((n_tokens**2, len(amplitudes))))[0].T
    scores = rng.standard_normal((n, len(amplitudes)))
    scores = np.linalg.qr(scores - scores.mean(0))[0] * np.sqrt(n * np.asarray(amplitudes))
    fields = (scores @ modes + rng.standard_normal(n_tokens**2)).reshape(n, n_tokens, n_tokens)
    return torch.from_numpy(fields), modes.reshape(-1, n_tokens, n_tokens)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("n", "n_tokens"), [(2, 2), (2, 5), (7, 4), (40, 3), (12, 37)])
def test_equals_the_svd_of_the_windowed_fluctuations(n, n_tokens, causal, attention, fluctuation_by_loop):
    attn = attention(n, n_tokens, causal=causal)
    windows = torch.cat([torch.ones(1, n_tokens), lag_windows([1.0, 2.5], n_tokens)])
    pod = field_pod(attn, windows, n_modes=n - 1)
    u = fluctuation_by_loop(attn)
    for m, window in enumerate(windows):
        g_u = windowed(u, window)
        expected = eigenvalues_by_svd(g_u)
        np.testing.assert_allclose(pod.eigenvalues[m, : len(expected)], expected, atol=1e-13)
        rank = int((pod.eigenvalues[m] > RANK_TOLERANCE).sum())
        modes, coefficients = pod.modes[m, :rank].flatten(1), pod.coefficients[m, :rank]
        np.testing.assert_allclose(modes @ modes.T, np.eye(rank), atol=1e-7)
        np.testing.assert_allclose(coefficients.T @ modes, g_u.reshape(n, -1), atol=1e-7)
        np.testing.assert_allclose(g_u.reshape(n, -1) @ modes.numpy().T, coefficients.T, atol=1e-7)
    np.testing.assert_allclose(pod.mean, attn.mean(0), atol=1e-15)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("burn_in", [0, 5])
def test_padding_and_burn_in_leave_their_queries_out(burn_in, masked, attention, documents, fluctuation_by_loop):
    attn, valid = attention(9, 12), documents(9, 12) if masked else None
    pod = field_pod(attn, lag_windows([3.0], 12), n_modes=8, valid=valid, burn_in=burn_in)
    u = fluctuation_by_loop(attn, valid)
    u[:, :burn_in] = 0
    u = windowed(u, lag_windows([3.0], 12)[0])
    np.testing.assert_allclose(pod.eigenvalues[0], eigenvalues_by_svd(u), atol=1e-14)
    assert not pod.modes[0, :, :burn_in].any()
    np.testing.assert_allclose(np.einsum("ks,kij->sij", pod.coefficients[0], pod.modes[0]), u, atol=1e-9)


def test_eigenvalues_add_up_to_the_mean_energy(attention, fluctuation_by_loop):
    attn, windows = attention(11, 9), lag_windows([2.0, 4.0], 9)
    u = fluctuation_by_loop(attn)
    for window, values in zip(windows, field_pod(attn, windows).eigenvalues, strict=True):
        assert float(values.sum()) == pytest.approx((windowed(u, window) ** 2).sum() / 11)


def test_what_the_first_modes_leave_is_the_sum_of_the_other_eigenvalues(attention, fluctuation_by_loop):
    # Theorem 1 of arXiv 2606.06573: the mean squared error of the best K-mode reconstruction is sum_{k>K} lambda_k
    attn = attention(10, 8)
    u = fluctuation_by_loop(attn)
    pod = field_pod(attn, n_modes=9)
    for kept in range(10):
        rebuilt = np.einsum("ks,kij->sij", pod.coefficients[0, :kept], pod.modes[0, :kept])
        error = ((u - rebuilt) ** 2).sum() / 10
        assert error == pytest.approx(float(pod.eigenvalues[0, kept:].sum()), abs=1e-13)


def test_no_other_modes_leave_less(attention, fluctuation_by_loop):
    attn = attention(10, 8)
    u = fluctuation_by_loop(attn).reshape(10, -1)
    best = float(field_pod(attn).eigenvalues[0, 3:].sum())
    rng = np.random.default_rng(0)
    for _ in range(20):
        basis = np.linalg.qr(u.T @ rng.standard_normal((10, 3)))[0]
        assert ((u - u @ basis @ basis.T) ** 2).sum() / 10 > best


def test_planted_modes_and_energies_are_found():
    energies = [4.0, 2.0, 0.5, 0.1]
    attn, modes = planted(energies, n=30, n_tokens=6)
    pod = field_pod(attn, n_modes=6)
    np.testing.assert_allclose(pod.eigenvalues[0, :4], energies)
    overlap = np.abs(np.einsum("kij,lij->kl", pod.modes[0, :4], modes))
    np.testing.assert_allclose(overlap, np.eye(4), atol=1e-12)


def test_beyond_the_rank_everything_is_exactly_zero():
    attn, _ = planted([4.0, 2.0, 0.5], n=10, n_tokens=5)
    pod = field_pod(attn, n_modes=12)
    assert pod.modes.shape == (1, 12, 5, 5)
    assert pod.coefficients.shape == (1, 12, 10)
    assert not pod.eigenvalues[0, 3:].any()
    assert not pod.modes[0, 3:].any()
    assert not pod.coefficients[0, 3:].any()
    assert field_pod(attn, n_modes=0).modes.shape == (1, 0, 5, 5)


def test_centring_leaves_no_eigenvalue_of_its_own(attention):
    values = field_pod(attention(20, 16, dtype=torch.float32)).eigenvalues[0]
    assert values[-1] == 0
    assert (values[:-1] > 0).all()
    for seed in range(100):  # so small that single precision leaves more than the floor takes
        fields = torch.rand(4, 2, 2, generator=torch.Generator().manual_seed(seed))
        assert field_pod(fields).eigenvalues[0, 3] == 0


@pytest.mark.parametrize("decades", [4, 8])
def test_a_steep_spectrum_keeps_its_tail_and_its_sign(decades):
    energies = 10 ** -np.linspace(0, decades, 31)
    attn, _ = planted(energies, n=32, n_tokens=12)
    np.testing.assert_allclose(field_pod(attn).eigenvalues[0, :31], energies, rtol=1e-6)
    single = field_pod(attn.float()).eigenvalues[0]
    assert (single >= 0).all()
    np.testing.assert_allclose(single[:31], energies, rtol=1e-2)  # what rounding the fields themselves costs


@pytest.mark.parametrize("n_windows", [0, 1, 24])
def test_a_window_does_not_know_of_the_others(n_windows, attention):
    attn, windows = attention(6, 9), lag_windows(torch.linspace(1, 8, n_windows), 9)
    together = field_pod(attn, windows)
    assert together.eigenvalues.shape == (n_windows, 6)
    assert together.modes.shape == (n_windows, 3, 9, 9)
    for m in range(n_windows):
        alone = field_pod(attn, windows[m : m + 1])
        torch.testing.assert_close(together.eigenvalues[m], alone.eigenvalues[0])
        torch.testing.assert_close(together.modes[m], alone.modes[0])


def test_negative_values_above_the_diagonal_are_seen():
    # the mean above the diagonal is 0 although the fields there are not
    signs = torch.tensor([1.0, -1.0, 1.0, -1.0])[:, None, None]
    pod = field_pod(signs * torch.ones(3, 3).triu(1))
    assert float(pod.eigenvalues[0, 0]) == pytest.approx(3)


def test_a_window_of_zeros_keeps_nothing(attention):
    pod = field_pod(attention(5, 6), torch.zeros(1, 6))
    assert not any(part.any() for part in (pod.eigenvalues, pod.modes, pod.coefficients))


@pytest.mark.parametrize("n", [2, 9])
def test_identical_snapshots_have_no_modes(n, attention):
    pod = field_pod(attention(1, 7, dtype=torch.float32).expand(n, -1, -1))
    assert not any(part.any() for part in (pod.eigenvalues, pod.modes, pod.coefficients))


def test_single_precision_agrees_with_double(attention):
    attn = attention(20, 16)
    double, single = field_pod(attn), field_pod(attn.float())
    torch.testing.assert_close(single.eigenvalues, double.eigenvalues, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(single.modes.double(), double.modes, rtol=0, atol=1e-5)
    assert (single.modes.dtype, single.coefficients.dtype, single.mean.dtype) == (torch.float32,) * 3
    assert single.eigenvalues.dtype == torch.float64


def test_wrong_input_is_named(attention):
    attn = attention(3, 4)
    with pytest.raises(ValueError, match=r"windows must have shape \[M, 4\], one value a lag, got \(2, 5\)"):
        field_pod(attn, torch.ones(2, 5))
    with pytest.raises(ValueError, match=r"windows must have shape \[M, 4\], one value a lag, got \(4,\)"):
        field_pod(attn, torch.ones(4))
    with pytest.raises(ValueError, match=r"windows of shape \(1, 4\) holds 4 non-finite values"):
        field_pod(attn, torch.full((1, 4), torch.inf))
    with pytest.raises(ValueError, match="n_modes must be at least 0, got -1"):
        field_pod(attn, n_modes=-1)
    with pytest.raises(ValueError, match=r"burn_in must lie in 0\.\.3 for 4 queries, got 4"):
        field_pod(attn, burn_in=4)
    with pytest.raises(ValueError, match="holds 1 snapshots, at least 2 needed"):
        field_pod(attn[:1])
