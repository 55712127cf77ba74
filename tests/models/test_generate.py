"""Sampling text from the model."""

import pytest
import torch

from scalepod.models import GPT, BaselineGPT, GPTConfig

PROMPT = torch.tensor([[1, 2, 3], [4, 5, 6]])


@pytest.fixture
def model() -> GPT:
    torch.manual_seed(0)
    model = GPT(GPTConfig(11, 8, n_layer=1, n_head=2, n_embd=16, dropout=0.5))
    with torch.no_grad():
        model.embedding.weight.mul_(20)  # far from uniform, so that every draw depends on what came before
    return model


def test_the_likeliest_token_each_time_and_no_more_context_than_fits(model):
    generated = model.generate(PROMPT, 12, top_k=1)
    expected = PROMPT
    model.eval()
    for _ in range(12):
        expected = torch.cat([expected, model(expected[:, -8:])[:, -1:].argmax(-1)], dim=1)
    assert torch.equal(generated, expected)


def test_a_generator_decides_the_draw(model):
    def draw(seed: int) -> torch.Tensor:
        return model.generate(PROMPT, 20, generator=torch.Generator().manual_seed(seed))

    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))
    state = torch.get_rng_state()
    draw(1)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(("temperature", "top_k"), [(1.0, None), (0.5, None), (2.0, 3), (1.0, 100)])
def test_frequencies_follow_the_distribution(model, temperature, top_k):
    prompt = PROMPT[:1].expand(4000, -1)
    drawn = model.generate(prompt, 1, temperature, top_k, torch.Generator().manual_seed(0))[:, -1]
    logits = model.eval()(PROMPT[:1])[0, -1] / temperature
    kept = logits.argsort(descending=True)[: top_k or 11]
    expected = torch.zeros(11)
    expected[kept] = logits[kept].softmax(0)
    assert (drawn.bincount(minlength=11) / 4000 - expected).abs().max() < 0.03  # four standard deviations
    assert (drawn.bincount(minlength=11) == 0)[expected == 0].all()


def test_every_module_gets_its_own_mode_back(model):
    model.train()
    model.blocks[0].mlp.eval()
    before = {name: module.training for name, module in model.named_modules()}
    model.generate(PROMPT, 2)
    assert {name: module.training for name, module in model.named_modules()} == before

    def fail(*args: object) -> None:
        raise RuntimeError("no")

    model.norm.register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="no"):
        model.generate(PROMPT, 2)
    assert {name: module.training for name, module in model.named_modules()} == before


def test_nothing_to_add_and_a_lightning_module():
    torch.manual_seed(0)
    module = BaselineGPT(11, 8, n_layer=1, n_head=2, n_embd=16)
    assert torch.equal(module.generate(PROMPT, 0), PROMPT)
    assert torch.equal(module.generate(PROMPT, 5, top_k=1), module.model.generate(PROMPT, 5, top_k=1))
    assert not module.generate(PROMPT, 1).requires_grad


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_new_tokens": -1}, r"max_new_tokens must not be negative, got -1"),
        ({"temperature": 0.0}, r"temperature must be positive, got 0\.0; for the likeliest token use top_k=1"),
        ({"temperature": float("nan")}, r"temperature must be positive, got nan"),
        ({"top_k": 0}, r"top_k must be at least 1, or None for all tokens, got 0"),
        ({"idx": torch.tensor([[11]])}, r"idx holds token 11, but vocab_size is 11"),
        ({"idx": torch.tensor([1])}, r"idx must have shape \[B, T\] with T >= 1, got \[1\]"),
    ],
)
def test_wrong_arguments_are_named(model, options, message):
    with pytest.raises(ValueError, match=message):
        model.generate(**{"idx": PROMPT, "max_new_tokens": 1, **options})


def test_text_is_not_tokens(model):
    with pytest.raises(TypeError, match=r"token numbers as int64 or int32, got torch\.float32"):
        model.generate(torch.zeros(1, 2), 1)
