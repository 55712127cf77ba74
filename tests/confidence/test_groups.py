"""Parts of the documents, from sums and inner products: what the parts alone would give."""

import pytest
import torch

from scalepod.confidence.groups import (
    all_but_one,
    all_groups,
    dealt,
    field_spectra,
    group_moments,
    lag_spectra,
    part_covariances,
)
from scalepod.field import lag_covariance, lag_moments, reynolds
from scalepod.pod import field_pod, lag_pod, lag_windows, windowed_snapshots

N_GROUPS = 4


def attention(n=18, n_tokens=10, signed=False, seed=0):
    logits = 2 * torch.randn(n, n_tokens, n_tokens, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    causal = torch.ones(n_tokens, n_tokens).tril().bool()
    return (logits if signed else logits.masked_fill(~causal, -torch.inf)).softmax(-1)


@pytest.fixture
def labels():
    return torch.arange(18) % N_GROUPS


@pytest.fixture
def parts():
    return torch.cat([all_but_one(N_GROUPS), dealt(N_GROUPS, 2)])


def members(labels, part):
    return torch.tensor([bool(part[label]) for label in labels])


def test_parts():
    assert all_but_one(3).tolist() == [[False, True, True], [True, False, True], [True, True, False]]
    assert dealt(4, 2).tolist() == [[True, False, True, False], [False, True, False, True]]
    assert bool((dealt(8, 4).sum(0) == 1).all())
    with pytest.raises(ValueError, match="8 groups do not divide into 3 equal parts"):
        dealt(8, 3)


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("burn_in", [0, 3])
def test_covariance_of_a_part_is_that_of_its_documents(labels, parts, signed, burn_in):
    attn = attention(signed=signed)
    groups = group_moments(attn, labels, N_GROUPS, burn_in=burn_in, signed=signed)
    for part, found in zip(parts, part_covariances(groups, parts), strict=True):
        _, u = reynolds(attn[members(labels, part)])
        torch.testing.assert_close(found, lag_covariance(u, signed, burn_in), rtol=1e-9, atol=1e-14)


def test_groups_add_up_to_all_documents_with_padding_and_an_empty_group():
    attn = attention()
    valid = torch.arange(10) < torch.linspace(10, 3, 18).round()[:, None]
    attn = torch.where(valid[:, :, None] & valid[:, None], attn, 0.0)
    groups = group_moments(attn, torch.arange(18) % 3, 4, valid=valid)
    assert groups.n.tolist() == [6, 6, 6, 0]
    for found, expected in zip(all_groups(groups), lag_moments(attn, valid), strict=True):
        torch.testing.assert_close(torch.as_tensor(found).double(), torch.as_tensor(expected).double())


def test_lag_spectra_of_parts(labels, parts):
    groups = group_moments(attention(), labels, N_GROUPS)
    covariances = part_covariances(groups, parts)
    windows = torch.cat([torch.ones(1, 10), lag_windows([3.0], 10)]).double()
    expected = torch.stack([lag_pod(R, windows).eigenvalues for R in covariances])
    spectra, total = lag_spectra(covariances, windows)
    torch.testing.assert_close(spectra, expected, rtol=1e-9, atol=1e-14)
    torch.testing.assert_close(total, expected.sum(-1))
    # In the modes of all documents: all of them lose nothing, the leading ones little of the leading eigenvalues.
    whole = lag_pod(part_covariances(groups, torch.ones(1, N_GROUPS).bool())[0], windows, 10).modes
    exact, _ = lag_spectra(covariances, windows, [whole[0], whole[1]])
    torch.testing.assert_close(exact, expected, rtol=1e-9, atol=1e-13)
    few, same_total = lag_spectra(covariances, windows, [whole[0, :8], whole[1, :6]])
    assert few.shape == (6, 2, 8)
    assert (few[:, 1, 6:] == 0).all()
    torch.testing.assert_close(few[:, :, :2], expected[:, :, :2], rtol=0.02, atol=0)
    assert (few <= expected[:, :, :8] * (1 + 1e-9) + 1e-14).all()  # Cauchy's interlacing
    torch.testing.assert_close(same_total, total)


def test_field_spectra_of_parts(labels, parts):
    attn = attention()
    windows = torch.cat([torch.ones(1, 10), lag_windows([3.0], 10)]).double()
    found = field_spectra(windowed_snapshots(attn, windows).gram, labels, parts, 10)
    for part, spectra in zip(parts, found, strict=True):
        expected = field_pod(attn[members(labels, part)], windows).eigenvalues
        torch.testing.assert_close(spectra[:, : expected.shape[1]], expected, rtol=1e-9, atol=1e-13)
        assert (spectra[:, expected.shape[1] :] == 0).all()


def test_errors(labels):
    groups = group_moments(attention(), labels, N_GROUPS)
    with pytest.raises(ValueError, match=r"parts must be \[P, G\] with G = 4 groups, got shape \(3, 5\)"):
        part_covariances(groups, torch.ones(3, 5).bool())
    with pytest.raises(ValueError, match="a part holds no documents"):
        field_spectra(torch.eye(18)[None], labels, torch.zeros(1, 4).bool(), 10)
