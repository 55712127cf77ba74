import numpy as np
import pytest
import torch

from scalepod.field import (
    LagMoments,
    from_lag,
    lag_covariance,
    lag_covariance_from_moments,
    lag_moments,
    mean_profile,
    reynolds,
)


def summed(parts: list[LagMoments]) -> LagMoments:
    n, counts, total, second = (sum(part[1:], part[0]) for part in zip(*parts, strict=True))
    return LagMoments(n, counts, total, second)


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize(
    ("n", "n_tokens", "burn_in"), [(1, 1, 0), (2, 2, 0), (2, 2, 1), (5, 9, 0), (5, 9, 3), (3, 21, 13)]
)
def test_equals_the_sum_of_outer_products(n, n_tokens, burn_in, signed, attention, lag_rows_by_loop):
    u = attention(n, n_tokens, causal=not signed) - 0.2
    rows = lag_rows_by_loop(u.numpy(), signed)
    expected = sum(np.outer(row, row) for snapshot in rows for row in snapshot[burn_in:]) / n
    np.testing.assert_allclose(lag_covariance(u, signed, burn_in), expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("signed", [False, True])
def test_its_trace_is_the_mean_energy_and_it_is_a_covariance(signed, attention):
    u = reynolds(attention(6, 11, causal=not signed))[1]
    R = lag_covariance(u, signed)
    torch.testing.assert_close(R.trace(), u.square().sum() / 6)
    torch.testing.assert_close(R, R.mT)
    assert torch.linalg.eigvalsh(R).min() > -1e-15


def test_a_fluctuation_at_one_lag_gives_one_entry():
    rows = torch.zeros(4, 10, 10)
    rows[:, :, 3] = torch.tensor([1.0, -1.0, 2.0, -2.0])[:, None]
    R = lag_covariance(from_lag(rows))
    expected = torch.zeros(10, 10, dtype=torch.float64)
    expected[3, 3] = 7 * 2.5  # queries 3..9 have lag 3; the mean square is 2.5
    torch.testing.assert_close(R, expected)


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("burn_in", [0, 4])
def test_moments_over_batches_give_the_covariance_of_the_fluctuations(
    burn_in, masked, signed, attention, documents, fluctuation_by_loop, lag_rows_by_loop
):
    attn = attention(12, 14, causal=not signed)
    valid = documents(12, 14) if masked else None
    batches = [slice(0, 1), slice(1, 6), slice(6, 12)]
    moments = summed(
        [lag_moments(attn[b], valid[b] if masked else None, burn_in=burn_in, signed=signed) for b in batches]
    )
    R = lag_covariance_from_moments(moments)
    rows = lag_rows_by_loop(fluctuation_by_loop(attn, valid), signed)[:, burn_in:]
    np.testing.assert_allclose(R, np.einsum("sit,siv->tv", rows, rows) / 12, atol=1e-14)
    torch.testing.assert_close(R, lag_covariance(reynolds(attn, valid)[1], signed, burn_in), rtol=0, atol=1e-14)


def test_moments_of_single_precision_are_summed_in_double(attention):
    attn = attention(30, 16, dtype=torch.float32)
    R = lag_covariance_from_moments(lag_moments(attn))
    exact = lag_covariance(reynolds(attn.double())[1])
    assert R.dtype == torch.float64
    torch.testing.assert_close(R, exact, rtol=0, atol=1e-13)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("n", "n_tokens"), [(2, 8), (50, 8), (20, 96)])
def test_moments_of_identical_snapshots_leave_exactly_nothing(n, n_tokens, dtype, attention):
    attn = attention(1, n_tokens, dtype=dtype).expand(n, -1, -1)
    assert not lag_covariance_from_moments(summed([lag_moments(part) for part in attn.split(7)])).any()


def test_a_small_fluctuation_on_a_large_mean_survives_the_subtraction(attention):
    attn = attention(1, 12) + 1e-4 * (attention(40, 12, seed=1) - attention(40, 12, seed=2))
    R = lag_covariance_from_moments(lag_moments(attn))
    exact = lag_covariance(reynolds(attn)[1])
    torch.testing.assert_close(R, exact, rtol=0, atol=1e-6 * float(exact.max()))


@pytest.mark.parametrize("signed", [False, True])
def test_mean_profile_is_the_mean_row(signed, attention, documents, lag_rows_by_loop):
    attn, valid = attention(5, 8, causal=not signed), documents(5, 8)
    rows = lag_rows_by_loop(attn.numpy(), signed)[:, 2:][valid[:, 2:].numpy()]
    profile = mean_profile(lag_moments(attn, valid, burn_in=2, signed=signed))
    np.testing.assert_allclose(profile, rows.mean(0), atol=1e-15)
    assert float(profile.sum()) == pytest.approx(1)


def test_counts_are_those_of_the_queries_that_took_part(attention, documents):
    valid = documents(6, 9)
    moments = lag_moments(attention(6, 9), valid, burn_in=3)
    assert moments.n == 6
    assert moments.counts.tolist() == [0, 0, 0, *valid[:, 3:].sum(0).tolist()]


def test_wrong_input_is_named(attention):
    attn = attention(3, 4)
    with pytest.raises(ValueError, match=r"fluctuation must have 3 dimensions"):
        lag_covariance(attn[0])
    with pytest.raises(ValueError, match=r"fluctuation of shape \(3, 4, 4\) holds 48 non-finite values"):
        lag_covariance(attn * torch.nan)
    with pytest.raises(ValueError, match=r"burn_in must lie in 0\.\.3 for 4 queries, got 4"):
        lag_covariance(attn, burn_in=4)
    with pytest.raises(ValueError, match=r"burn_in must lie in 0\.\.3 for 4 queries, got -1"):
        lag_moments(attn, burn_in=-1)
    with pytest.raises(ValueError, match=r"holds 0 snapshots, at least 1 needed"):
        lag_moments(attn[:0])
    with pytest.raises(ValueError, match=r"the moments hold 1 snapshots; a fluctuation needs at least 2"):
        lag_covariance_from_moments(lag_moments(attn[:1]))
    with pytest.raises(
        ValueError, match=r"\[L, L\] with L = T or 2T - 1, got counts \(4,\), total \(4, 4\), second \(5, 5\)"
    ):
        mean_profile(lag_moments(attn)._replace(second=torch.zeros(5, 5)))
