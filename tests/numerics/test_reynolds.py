import numpy as np
import pytest
import torch

from scalepod.field import reynolds


@pytest.mark.parametrize(("n", "n_tokens"), [(2, 1), (2, 2), (3, 7), (20, 12)])
def test_equals_the_definition(n, n_tokens, attention, fluctuation_by_loop):
    attn = attention(n, n_tokens)
    mean, fluctuation = reynolds(attn)
    np.testing.assert_allclose(fluctuation, fluctuation_by_loop(attn), atol=1e-15)
    np.testing.assert_allclose(mean, attn.mean(0), atol=1e-15)


def test_mean_and_fluctuation_restore_the_ensemble_and_the_fluctuations_cancel(attention):
    attn = attention(9, 6)
    mean, fluctuation = reynolds(attn)
    torch.testing.assert_close(mean + fluctuation, attn)
    assert fluctuation.sum(0).abs().max() < 1e-14


def test_padded_queries_carry_nothing(attention, documents, fluctuation_by_loop):
    attn, valid = attention(8, 10), documents(8, 10)
    mean, fluctuation = reynolds(attn, valid)
    np.testing.assert_allclose(fluctuation, fluctuation_by_loop(attn, valid), atol=1e-15)
    assert not fluctuation[~valid].any()
    for i in range(10):
        torch.testing.assert_close(mean[i], attn[valid[:, i], i].mean(0))


def test_what_padded_queries_hold_does_not_matter(attention, documents):
    attn, valid = attention(8, 10), documents(8, 10)
    poisoned = attn.clone()
    poisoned[~valid] = torch.nan
    for clean, other in zip(reynolds(attn, valid), reynolds(poisoned, valid), strict=True):
        assert torch.equal(clean, other)


def test_a_query_that_is_valid_nowhere_has_mean_zero(attention):
    valid = torch.ones(4, 5, dtype=torch.bool)
    valid[:, 3] = False
    mean, fluctuation = reynolds(attention(4, 5), valid)
    assert not mean[3].any()
    assert not fluctuation[:, 3].any()


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [2, 3, 150])
def test_identical_snapshots_do_not_fluctuate_at_all(n, dtype, masked, attention, documents):
    attn = attention(1, 16, dtype=dtype).expand(n, -1, -1)
    assert not reynolds(attn, documents(n, 16) if masked else None)[1].any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_promoted(dtype, attention):
    attn = attention(5, 6, dtype=dtype)
    mean, fluctuation = reynolds(attn)
    assert mean.dtype == fluctuation.dtype == torch.float32
    torch.testing.assert_close(mean, attn.float().mean(0))


def test_the_ensemble_is_left_as_it_was(attention, documents):
    attn = attention(4, 5)
    before = attn.clone()
    reynolds(attn, documents(4, 5))
    assert torch.equal(attn, before)


def test_wrong_input_is_named(attention):
    attn = attention(3, 4)
    with pytest.raises(ValueError, match=r"attn must have 3 dimensions, .* got shape \(4, 4\)"):
        reynolds(attn[0])
    with pytest.raises(ValueError, match=r"two equal dimensions, query and key, got shape \(3, 4, 3\)"):
        reynolds(attn[..., :3])
    with pytest.raises(ValueError, match=r"holds 1 snapshots, at least 2 needed"):
        reynolds(attn[:1])
    with pytest.raises(ValueError, match=r"valid must be a bool tensor of shape \(3, 4\), .* \(3, 5\)"):
        reynolds(attn, torch.ones(3, 5, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"valid must be a bool tensor of shape \(3, 4\), .* torch.int64"):
        reynolds(attn, torch.ones(3, 4, dtype=torch.int64))
    with pytest.raises(TypeError, match=r"attn must be real floating point, got torch.int64"):
        reynolds(attn.long())
    with pytest.raises(TypeError, match=r"attn must be a torch.Tensor, got ndarray"):
        reynolds(attn.numpy())


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_values_that_are_not_finite_are_counted(bad, attention):
    attn = attention(3, 4)
    attn[1, 2, :2] = bad
    with pytest.raises(ValueError, match=r"attn of shape \(3, 4, 4\) holds 2 non-finite values"):
        reynolds(attn)
