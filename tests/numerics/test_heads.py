import math

import numpy as np
import pytest
import torch

from scalepod.heads import HeadMoments, HeadRedundancy, head_gram, head_moments, head_redundancy
from scalepod.pod import lag_windows


@pytest.fixture
def heads(attention):
    """Random post-softmax attention by head, [N, H, T, T]."""

    def make(n, n_heads, n_tokens, *, causal=True):
        return attention(n * n_heads, n_tokens, causal=causal).view(n, n_heads, n_tokens, n_tokens)

    return make


def gram_by_loop(attn, valid, windows, burn_in):
    """Gram matrix by the definition: fluctuations about the mean over the documents where a query is valid."""
    n, n_heads, n_tokens, _ = attn.shape
    u = np.zeros(attn.shape)
    for i in range(burn_in, n_tokens):
        members = [s for s in range(n) if valid is None or valid[s, i]]
        for s in members:
            u[s, :, i] = attn[s, :, i] - sum(attn[r, :, i] for r in members) / len(members)
    distance = np.abs(np.arange(n_tokens)[:, None] - np.arange(n_tokens))
    gram = np.zeros((len(windows), n_heads, n_heads))
    for m, window in enumerate(windows):
        for h in range(n_heads):
            for g in range(n_heads):
                gram[m, h, g] = (window[distance] ** 2 * u[:, h] * u[:, g]).sum() / n
    return gram


def summed(parts: list[HeadMoments]) -> HeadMoments:
    n, counts, total, grams = (sum(part[1:], part[0]) for part in zip(*parts, strict=True))
    return HeadMoments(n, counts, total, grams)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("n", "n_heads", "n_tokens", "burn_in"), [(2, 1, 1, 0), (2, 2, 2, 0), (5, 3, 9, 0), (5, 3, 9, 4), (9, 2, 70, 3)]
)
def test_equals_the_definition(n, n_heads, n_tokens, burn_in, masked, causal, heads, documents):
    attn = heads(n, n_heads, n_tokens, causal=causal)
    valid = documents(n, n_tokens) if masked else None
    windows = torch.cat([torch.ones(1, n_tokens), lag_windows([2.0, 5.0], n_tokens)])
    gram = head_gram(head_moments(attn, valid, burn_in), windows)
    expected = gram_by_loop(attn.numpy(), valid, windows.numpy(), burn_in)
    np.testing.assert_allclose(gram, expected, atol=1e-13)
    torch.testing.assert_close(head_gram(head_moments(attn, valid, burn_in)), gram[:1], rtol=0, atol=1e-15)


def test_moments_add_over_batches(heads, documents):
    attn, valid = heads(12, 3, 14), documents(12, 14)
    parts = [head_moments(attn[b], valid[b], burn_in=2) for b in (slice(0, 1), slice(1, 7), slice(7, 12))]
    whole = head_moments(attn, valid, burn_in=2)
    assert whole.counts.tolist() == [0, 0, *valid[:, 2:].sum(0).tolist()]
    for found, expected in zip(summed(parts), whole, strict=True):
        torch.testing.assert_close(torch.as_tensor(found), torch.as_tensor(expected), rtol=0, atol=1e-13)


def test_a_map_that_lies_in_memory_head_by_head_gives_the_same(heads):
    attn = heads(4, 3, 10)
    turned = attn.permute(1, 0, 3, 2).contiguous().permute(1, 0, 3, 2)
    torch.testing.assert_close(head_moments(turned).grams, head_moments(attn).grams, rtol=0, atol=1e-14)


def test_single_precision_is_summed_in_double(heads):
    attn = heads(20, 2, 16).float()
    torch.testing.assert_close(
        head_gram(head_moments(attn)), head_gram(head_moments(attn.double())), rtol=0, atol=1e-14
    )
    half = head_moments(attn.bfloat16())
    assert torch.equal(half.grams, head_moments(attn.bfloat16().float()).grams)


def test_a_head_that_never_changes_has_exactly_no_energy(heads):
    attn = heads(30, 3, 20)
    attn[:, 1] = attn[0, 1]
    gram = head_gram(head_moments(attn))[0]
    assert not gram[1].any()
    assert (gram.diagonal()[[0, 2]] > 0).all()
    alike = head_redundancy(gram[None])
    assert alike.similarity[0].isnan().tolist() == [[False, True, False], [True, True, True], [False, True, False]]
    assert 1 < float(alike.distinct) <= 2


def test_heads_that_differ_by_a_factor_are_one(heads):
    attn = heads(8, 1, 12)
    alike = head_redundancy(head_gram(head_moments(torch.cat([attn, attn, -2 * attn], 1))))
    torch.testing.assert_close(alike.distinct, torch.ones(1, dtype=torch.float64))
    torch.testing.assert_close(alike.similarity[0, 0], torch.tensor([1.0, 1.0, -1.0], dtype=torch.float64))
    assert alike.needed(1e-9).tolist() == [1]
    assert float(alike.mean_share) == pytest.approx(0, abs=1e-12)  # 1 + 1 - 2


@pytest.mark.parametrize("n_heads", [1, 2, 5])
def test_equal_heads_without_anything_in_common_all_count(n_heads):
    alike = head_redundancy(3 * torch.eye(n_heads)[None])
    assert float(alike.distinct) == pytest.approx(n_heads)
    assert float(alike.mean_share) == pytest.approx(1 / n_heads)
    assert alike.needed(0.0).tolist() == [n_heads]
    assert torch.equal(alike.similarity[0], torch.eye(n_heads, dtype=torch.float64))


def test_one_head_is_one(heads):
    alike = head_redundancy(head_gram(head_moments(heads(6, 1, 9)), lag_windows([2.0, 4.0], 9)))
    for found in (alike.distinct, alike.mean_share, alike.similarity.flatten()):
        torch.testing.assert_close(found, torch.ones(2, dtype=torch.float64))


def test_redundancy_is_that_of_the_singular_values(heads):
    attn = heads(7, 4, 11)
    u = (attn - attn.mean(0)).numpy()
    alike = head_redundancy(head_gram(head_moments(attn)))
    stacked = u.transpose(1, 0, 2, 3).reshape(4, -1)
    energies = np.linalg.svd(stacked, compute_uv=False) ** 2 / 7
    np.testing.assert_allclose(alike.eigenvalues[0], energies, rtol=1e-10)
    shares = energies / energies.sum()
    assert float(alike.distinct) == pytest.approx(math.exp(-(shares * np.log(shares)).sum()))
    np.testing.assert_allclose(alike.energy[0], (stacked**2).sum(1) / 7)
    np.testing.assert_allclose(alike.similarity[0], np.corrcoef(stacked), atol=1e-2)  # their means are nearly 0
    for epsilon in (0.05, 0.3):
        residual = [energies[k:].sum() / energies.sum() for k in range(5)]
        assert int(alike.needed(epsilon)) == next(k for k in range(5) if residual[k] <= epsilon)


def test_mean_share_is_the_energy_of_the_mean_over_heads(heads):
    attn = heads(7, 4, 11)
    windows = lag_windows([3.0], 11)
    alike = head_redundancy(head_gram(head_moments(attn), windows))
    kept = float(head_gram(head_moments(attn.mean(1, keepdim=True)), windows))
    assert float(alike.mean_share) == pytest.approx(kept / float(alike.energy.mean()))


def test_without_energy_nothing_is_defined(heads):
    alike = head_redundancy(head_gram(head_moments(heads(1, 3, 6).expand(4, -1, -1, -1))))
    assert isinstance(alike, HeadRedundancy)
    assert alike.distinct.isnan().all()
    assert alike.mean_share.isnan().all()
    assert alike.similarity.isnan().all()
    assert alike.needed(0.1).tolist() == [0]


def test_wrong_input_is_named(heads):
    attn = heads(3, 2, 4)
    moments = head_moments(attn)
    with pytest.raises(ValueError, match=r"attn must be \[B, H, T, T\], .* got shape \(2, 4, 4\)"):
        head_moments(attn[0])
    with pytest.raises(ValueError, match=r"attn must end in two equal dimensions, .* got shape \(3, 2, 4, 3\)"):
        head_moments(attn[..., :3])
    with pytest.raises(ValueError, match=r"attn of shape \(3, 2, 4, 4\) holds 96 non-finite values"):
        head_moments(attn * torch.nan)
    with pytest.raises(ValueError, match=r"valid must be a bool tensor of shape \(3, 4\), .* of shape \(3, 2\)"):
        head_moments(attn, torch.ones(3, 2, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"burn_in must lie in 0\.\.3 for 4 queries, got 4"):
        head_moments(attn, burn_in=4)
    with pytest.raises(ValueError, match="the moments hold 1 documents; a fluctuation needs at least 2"):
        head_gram(head_moments(attn[:1]))
    with pytest.raises(ValueError, match=r"\[T, H, H\], got counts \(4,\), total \(2, 4, 4\), grams \(4, 3, 3\)"):
        head_gram(moments._replace(grams=torch.zeros(4, 3, 3)))
    with pytest.raises(ValueError, match=r"windows must have shape \[M, 4\], one value a lag, got \(1, 3\)"):
        head_gram(moments, torch.ones(1, 3))
    with pytest.raises(ValueError, match=r"gram must be \[M, H, H\], window, head and head, got shape \(2, 2\)"):
        head_redundancy(torch.eye(2))
    with pytest.raises(ValueError, match=r"gram of shape \(1, 2, 2\) is not symmetric"):
        head_redundancy(torch.tensor([[[1.0, 0.5], [0.0, 1.0]]]))
