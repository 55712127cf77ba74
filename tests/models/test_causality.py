"""Whether the logits of a token depend on tokens after it: never, except in the published normalisation."""

import pytest
import torch
from torch import Tensor

from scalepod.models import GPT, GPTConfig

N_TOKENS = 12
CAUSAL = [
    {"attention": "standard"},
    {"attention": "energy_gated"},
    {"attention": "energy_gated", "n_scales": 3},
    {"attention": "standard", "positions": "sinusoidal"},
    {"attention": "standard", "positions": "rotary"},
    {"attention": "energy_gated", "positions": "rotary"},
    {"attention": "energy_gated", "positions": "morlet"},
]
PUBLISHED = {"attention": "energy_gated", "normalization": "sequence"}


def build(options: dict) -> GPT:
    torch.manual_seed(0)
    return GPT(GPTConfig(20, N_TOKENS, n_layer=2, n_head=2, n_embd=16, dropout=0.0, **options)).eval()


def change_after(model: GPT, position: int) -> Tensor:
    """Largest change of the logits up to `position` when every later token is replaced."""
    idx = torch.randint(20, (4, N_TOKENS))
    other = idx.clone()
    other[:, position + 1 :] = (idx[:, position + 1 :] + torch.randint(1, 20, (4, N_TOKENS - position - 1))) % 20
    return (model(idx) - model(other))[:, : position + 1].abs().amax()


def gradient_by_token(model: GPT, position: int) -> Tensor:
    """Norm of the gradient of the logits at `position` by the embedding of every token, [T]."""
    embedded = []
    model.embedding.register_forward_hook(lambda module, args, output: embedded.append(output))
    logits = model(torch.randint(20, (1, N_TOKENS)))
    weights = torch.randn(20)  # their plain sum hardly depends on anything: the gradient would prove little
    (gradient,) = torch.autograd.grad((logits[0, position] * weights).sum(), embedded[0])
    return gradient[0].norm(dim=-1)


@pytest.mark.parametrize("options", CAUSAL, ids=str)
@pytest.mark.parametrize("position", range(N_TOKENS - 1))
def test_logits_do_not_depend_on_later_tokens(options, position):
    model = build(options)
    assert change_after(model, position) < 1e-6
    gradient = gradient_by_token(model, position)
    assert torch.equal(gradient[position + 1 :], torch.zeros(N_TOKENS - position - 1))
    assert (gradient[: position + 1] > 0).all()


@pytest.mark.parametrize("options", CAUSAL, ids=str)
def test_a_prefix_has_the_logits_it_has_in_the_whole(options):
    model, idx = build(options), torch.randint(20, (2, N_TOKENS))
    whole = model(idx)
    for n_tokens in range(1, N_TOKENS):
        torch.testing.assert_close(model(idx[:, :n_tokens]), whole[:, :n_tokens])


def test_the_published_normalisation_sees_later_tokens():
    model = build(PUBLISHED)
    assert change_after(model, 5) > 1e-4
    assert (gradient_by_token(model, 5)[6:] > 0).all()
