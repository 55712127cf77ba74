"""What makes modes comparable from one analysis to the next: order, sign, separation, and a solver that may fail."""

import pytest
import torch

from scalepod.pod import degenerate_pairs, field_pod, lag_pod


def test_modes_do_not_depend_on_the_order_of_the_documents(attention):
    attn = attention(20, 12, dtype=torch.float32)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(3))
    first, second = field_pod(attn, n_modes=5), field_pod(attn[order], n_modes=5)
    torch.testing.assert_close(second.modes, first.modes, rtol=0, atol=1e-5)
    torch.testing.assert_close(second.coefficients, first.coefficients[..., order], rtol=0, atol=1e-5)


def test_modes_do_not_depend_on_the_sign_of_the_fluctuations(attention):
    attn = attention(20, 12)
    mirrored = 2 * attn.mean(0) - attn
    first, second = field_pod(attn), field_pod(mirrored)
    torch.testing.assert_close(second.modes, first.modes, rtol=0, atol=1e-9)
    torch.testing.assert_close(second.coefficients, -first.coefficients, rtol=0, atol=1e-9)


def test_the_largest_entry_of_a_mode_is_positive(attention):
    modes = field_pod(attention(20, 12), n_modes=10).modes.flatten(2)
    largest = modes.gather(-1, modes.abs().argmax(-1, keepdim=True))
    assert (largest > 0).all()


@pytest.mark.parametrize("noise", [0.0, 1e-7, -1e-7])
def test_of_nearly_equal_entries_the_first_decides(noise):
    profile = torch.tensor([0.1, -1.0, 0.3, 1.0 + noise], dtype=torch.float64)
    mode = lag_pod(torch.outer(profile, profile), n_modes=1).modes[0, 0]
    assert mode[1] > 0
    assert mode[3] < 0


def test_pairs_closer_than_their_sampling_error_are_flagged():
    # North et al. (1982): the error of lambda is lambda sqrt(2 / n), here 0.1 lambda
    pairs = degenerate_pairs(torch.tensor([10.0, 9.1, 5.0, 4.0, 0.0, 0.0]), n_samples=200)
    assert pairs.tolist() == [True, False, False, False, True]


def test_degenerate_pairs_refuses_an_empty_sample():
    with pytest.raises(ValueError, match="n_samples must be positive and finite, got 0"):
        degenerate_pairs(torch.ones(3), 0)


def test_a_solver_that_gives_up_is_replaced_by_the_svd(attention, monkeypatch):
    attn = attention(12, 9)
    expected = field_pod(attn)

    def no_convergence(*args, **kwargs):
        raise torch.linalg.LinAlgError("linalg.eigh: the algorithm failed to converge")

    monkeypatch.setattr(torch.linalg, "eigh", no_convergence)
    for found, wanted in zip(field_pod(attn), expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)
