import pytest
import torch

from scalepod.field import from_lag, lags, to_lag


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (5, 5), (3, 4, 4), (2, 3, 6, 6)])
def test_every_entry_stands_at_its_lag(shape, signed, lag_rows_by_loop):
    fields = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = torch.from_numpy(lag_rows_by_loop(fields.numpy(), signed))
    assert torch.equal(to_lag(fields, signed), expected)


def test_attention_to_itself_is_lag_zero_and_to_the_first_token_lag_i():
    profile = to_lag(torch.eye(4))
    assert torch.equal(profile, torch.tensor([[1.0, 0, 0, 0]] * 4))
    first = torch.zeros(4, 4)
    first[:, 0] = 1
    assert torch.equal(to_lag(first), torch.eye(4))


@pytest.mark.parametrize("n_tokens", [1, 2, 7])
def test_from_lag_undoes_to_lag(n_tokens, attention):
    causal = attention(3, n_tokens)
    assert torch.equal(from_lag(to_lag(causal)), causal)
    both = attention(3, n_tokens, causal=False)
    assert torch.equal(from_lag(to_lag(both, signed=True), signed=True), both)


def test_without_sign_keys_after_the_query_are_dropped(attention):
    both = attention(2, 5, causal=False)
    assert torch.equal(from_lag(to_lag(both)), both.tril())


def test_lags_name_the_index():
    assert lags(3).tolist() == [0, 1, 2]
    assert lags(3, signed=True).tolist() == [-2, -1, 0, 1, 2]


@pytest.mark.parametrize("shape", [(3,), (2, 3), (4, 2, 3), (0, 0)])
def test_fields_that_are_not_square_are_refused(shape):
    with pytest.raises(ValueError, match=r"two equal dimensions, query and key, got shape"):
        to_lag(torch.zeros(shape))


@pytest.mark.parametrize(("shape", "signed"), [((4,), False), ((3, 4), False), ((3, 3), True), ((0, 0), False)])
def test_a_lag_layout_of_the_wrong_width_is_refused(shape, signed):
    with pytest.raises(ValueError, match=r"x must be a lag layout of shape \[\.\.\., T, (T|2T - 1)\]"):
        from_lag(torch.zeros(shape), signed)
