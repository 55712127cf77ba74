"""The model as a whole: its size, its start, what it can learn, what it refuses."""

import math
from dataclasses import FrozenInstanceError

import pytest
import torch
import torch.nn.functional as F

from scalepod.models import GPT, GPTConfig

SMALL = {"vocab_size": 30, "block_size": 16, "n_layer": 2, "n_head": 2, "n_embd": 16, "dropout": 0.0}
KINDS = [
    {"attention": "standard"},
    {"attention": "energy_gated"},
    {"attention": "energy_gated", "n_scales": 2},
    {"attention": "energy_gated", "normalization": "sequence"},
    {"attention": "standard", "positions": "sinusoidal"},
    {"attention": "energy_gated", "positions": "rotary"},
    {"attention": "energy_gated", "positions": "morlet"},
]


def count(model: GPT) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_parameter_count_of_the_baseline():
    V, T, L, C = 65, 256, 6, 256
    norms = (2 * L + 1) * 2 * C
    matrices = 4 * C * C + 8 * C * C  # q, k, v, projection; two layers of the perceptron
    assert count(GPT(GPTConfig(V, T))) == V * C + T * C + L * matrices + norms


@pytest.mark.parametrize(("n_scales", "per_gate"), [(1, 256 + 2), (3, 256 + 3)])
def test_parameter_count_of_the_gates(n_scales, per_gate):
    """w, alpha and tau a gate, and a mixing weight when there are several; the papers also count a bias."""
    gated = GPT(GPTConfig(65, 256, attention="energy_gated", n_scales=n_scales))
    assert count(gated) - count(GPT(GPTConfig(65, 256))) == 6 * 8 * n_scales * per_gate
    assert 6 * 8 * (256 + 2) == 12_384  # as the docstring of EnergyGate says
    assert 6 * 8 * (256 + 4) == 12_480


def test_the_token_embedding_is_the_output_layer():
    model = GPT(GPTConfig(**SMALL)).eval()
    idx = torch.randint(7, (1, 4))
    before = model(idx)
    with torch.no_grad():
        model.embedding.weight[7] += torch.randn(16)  # not a token of the input
    assert (model(idx) != before).any(1).nonzero().tolist() == [[0, 7]]
    assert [name for name, p in model.named_parameters() if p.shape == (30, 16)] == ["embedding.weight"]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_loss_starts_near_that_of_a_uniform_guess(kind):
    torch.manual_seed(0)
    model = GPT(GPTConfig(65, 32, **kind)).eval()
    loss = F.cross_entropy(model(torch.randint(65, (8, 32))).flatten(0, 1), torch.randint(65, (8 * 32,)))
    assert abs(loss.item() - math.log(65)) < 0.2


def test_writers_to_the_residual_stream_start_smaller():
    model = GPT(GPTConfig(65, 32, n_layer=8))
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2 and ".gate." not in name:
            expected = 0.02 / math.sqrt(16) if name.endswith("projection.weight") else 0.02
            assert abs(parameter.std().item() / expected - 1) < 0.05, name


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_one_batch_can_be_learned_by_heart(kind):
    torch.manual_seed(0)
    model = GPT(GPTConfig(**SMALL, **kind))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    text = torch.randint(30, (4, 17))
    for _ in range(120):
        loss = F.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.1


@pytest.mark.parametrize("kind", KINDS[1:], ids=str)
def test_every_parameter_has_a_gradient(kind):
    torch.manual_seed(0)
    model = GPT(GPTConfig(**SMALL, **kind))
    F.cross_entropy(model(torch.randint(30, (4, 16))).flatten(0, 1), torch.randint(30, (64,))).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_bfloat16_autocast_stays_close_to_float32(kind):
    torch.manual_seed(0)
    model, idx = GPT(GPTConfig(**SMALL, **kind)), torch.randint(30, (3, 16))
    exact = model(idx)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = model(idx)
    assert rounded.dtype == torch.bfloat16
    assert (rounded.float() - exact).norm() / exact.norm() < 0.02


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_compiled_in_place_it_computes_the_same_under_the_same_names(kind):
    torch.manual_seed(0)
    model, idx = GPT(GPTConfig(**SMALL, **kind)), torch.randint(30, (2, 16))
    names, expected = list(model.state_dict()), model(idx)
    model.compile(backend="eager", fullgraph=True)
    torch.testing.assert_close(model(idx), expected)
    assert list(model.state_dict()) == names


def test_attention_layers_carry_readable_names():
    model = GPT(GPTConfig(**SMALL))
    assert [name for name, _ in model.named_modules() if name.endswith(".attention")] == [
        "blocks.0.attention",
        "blocks.1.attention",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vocab_size": 0}, r"vocab_size must be a positive integer, got 0"),
        ({"n_layer": 2.5}, r"n_layer must be a positive integer, got 2\.5"),
        ({"n_head": 3}, r"n_embd must be a multiple of n_head, got n_embd=16, n_head=3"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\), got 1\.0"),
        ({"attention": "linear"}, r"attention must be one of \['standard', 'energy_gated'\], got 'linear'"),
        (
            {"positions": "none"},
            r"positions must be one of \['learned', 'sinusoidal', 'rotary', 'morlet'\], got 'none'",
        ),
        (
            {"positions": "rotary", "n_embd": 18, "n_head": 6},
            r"positions='rotary' need pairs of dimensions: n_embd / n_head must be even, got 3",
        ),
        (
            {"positions": "sinusoidal", "n_embd": 15, "n_head": 3},
            r"positions='sinusoidal' need pairs of dimensions: n_embd must be even, got 15",
        ),
        (
            {"attention": "energy_gated", "normalization": "batch"},
            r"normalization must be one of \['causal', 'sequence'\], got 'batch'",
        ),
        ({"n_scales": 2}, r"n_scales=2 and normalization='causal' belong to the energy gate"),
        ({"normalization": "sequence"}, r"n_scales=1 and normalization='sequence' belong to the energy gate"),
    ],
)
def test_a_wrong_shape_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        GPTConfig(**{**SMALL, **options})


def test_the_configuration_cannot_change():
    with pytest.raises(FrozenInstanceError):
        GPTConfig(**SMALL).n_layer = 3


@pytest.mark.parametrize(
    ("idx", "error", "message"),
    [
        (torch.zeros(2, 17, dtype=torch.int64), ValueError, r"idx holds 17 tokens a row, but block_size is 16"),
        (torch.zeros(5, dtype=torch.int64), ValueError, r"shape \[B, T\] with T >= 1, got \[5\]"),
        (torch.zeros(5, 0, dtype=torch.int64), ValueError, r"shape \[B, T\] with T >= 1, got \[5, 0\]"),
        (torch.tensor([[1, 30]]), ValueError, r"idx holds token 30, but vocab_size is 30"),
        (torch.tensor([[-1, 2]]), ValueError, r"idx holds token -1, but vocab_size is 30"),
        (torch.zeros(2, 4), TypeError, r"token numbers as int64 or int32, got torch\.float32"),
    ],
)
def test_wrong_tokens_are_named(idx, error, message):
    with pytest.raises(error, match=message):
        GPT(GPTConfig(**SMALL))(idx)
