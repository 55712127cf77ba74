"""Each way of telling positions against loops written from its formula, and what it does inside a model that trains."""

import math

import pytest
import torch
from tiny import tiny_loader, tiny_trainer
from torch import Tensor

from scalepod.capture import capture_attention
from scalepod.models import GPT, BaselineGPT, EnergyGatedGPT, GPTConfig
from scalepod.models.attention import CausalSelfAttention, EnergyGate
from scalepod.models.optim import decay_groups
from scalepod.models.positions import MorletPositions, RotaryPositions, SinusoidalPositions

KINDS = ["learned", "sinusoidal", "rotary", "morlet"]
ATTENTIONS = ["standard", "energy_gated"]
SMALL = {"vocab_size": 11, "block_size": 12, "n_layer": 2, "n_head": 2, "n_embd": 16, "dropout": 0.0}


def count(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def turned(vector: list[float], position: int) -> list[float]:
    """A query or key turned plane by plane."""
    d, out = len(vector), []
    for k in range(d // 2):
        angle = position * 10000 ** (-2 * k / d)
        a, b = vector[2 * k], vector[2 * k + 1]
        out += [a * math.cos(angle) - b * math.sin(angle), a * math.sin(angle) + b * math.cos(angle)]
    return out


def wavelet(position: int, frequency: float, width: float) -> tuple[float, float]:
    envelope = math.exp(-(position**2) / (2 * width**2))
    return envelope * math.cos(frequency * position), envelope * math.sin(frequency * position)


def test_sinusoids_are_the_published_ones():
    found = SinusoidalPositions(20, 10)(torch.zeros(2, 13, 10))
    for i in range(13):
        angles = [i / 10000 ** (2 * k / 10) for k in range(5)]
        expected = [wave(angle) for angle in angles for wave in (math.sin, math.cos)]
        assert found[1, i].tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("positions", "scale"), [(SinusoidalPositions(8, 6), math.sqrt(6)), (MorletPositions(6), 1)])
def test_waves_are_added_to_the_embedding(positions, scale):
    x = torch.randn(2, 8, 6)
    added = positions(torch.zeros(1, 8, 6))
    torch.testing.assert_close(positions(x), scale * x + added)


def test_queries_and_keys_are_turned_plane_by_plane():
    x = torch.randn(2, 3, 9, 8, dtype=torch.float64)
    found = RotaryPositions(16, 8).double()(x)
    for i in range(9):
        assert found[1, 2, i].tolist() == pytest.approx(turned(x[1, 2, i].tolist(), i), abs=1e-6)


def test_rotary_scores_depend_on_the_distance_only():
    torch.manual_seed(0)
    q, k = (torch.randn(8).expand(40, 8) for _ in range(2))  # one query and one key, at every position
    rotary = RotaryPositions(40, 8)
    scores = rotary(q) @ rotary(k).mT
    for lag in range(-39, 40):
        along = scores.diagonal(lag)
        torch.testing.assert_close(along, along[:1].expand_as(along), atol=1e-4, rtol=0)
    assert scores[0].std() > 0.1, "they do depend on it"


def test_morlet_wavelets_at_the_start():
    positions = MorletPositions(8)
    found = positions(torch.zeros(1, 30, 8))[0]
    for k in range(4):
        frequency = (0.99 * math.pi) ** (k / 3)  # from 1, evenly in the logarithm
        for i in range(30):
            expected = wavelet(i, frequency, 5 / frequency)
            assert found[i, 2 * k : 2 * k + 2].tolist() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("margin", [-0.7, 0.3])
def test_morlet_wavelets_of_any_parameters(margin):
    positions = MorletPositions(2)
    with torch.no_grad():
        positions.log_frequency.fill_(math.log(0.4))
        positions.margin.fill_(margin)
    found = positions(torch.zeros(1, 50, 2))[0]
    for i in range(50):
        expected = wavelet(i, 0.4, 5 * math.exp(abs(margin)) / 0.4)
        assert found[i].tolist() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("direction", [-1.0, 1.0])
def test_wavelets_stay_admissible_and_can_leave_the_bound(direction):
    """Driven to narrow wavelets they stop at the bound, driven to wide ones they grow."""
    positions = MorletPositions(16)
    start = positions.wavelets()[1].detach()
    optimizer = torch.optim.Adam(positions.parameters(), lr=0.3)
    for _ in range(25):
        frequency, width = positions.wavelets()
        optimizer.zero_grad()
        (-direction * (frequency * width).log().sum()).backward()
        optimizer.step()
        frequency, width = positions.wavelets()
        assert (frequency * width >= 5 * (1 - 1e-6)).all()
    if direction > 0:
        assert (width > 10 * start).all()
    else:
        assert (frequency * width < 20).all()


def test_morlet_gradients_equal_finite_differences():
    positions, x = MorletPositions(6).double(), torch.zeros(1, 7, 6, dtype=torch.float64)
    names, parameters = zip(*positions.named_parameters(), strict=True)
    moved = [(p.detach() + torch.tensor([0.3, -0.2, 0.1])).requires_grad_() for p in parameters]  # margins off 0

    def table(*values: Tensor) -> Tensor:
        return torch.func.functional_call(positions, dict(zip(names, values, strict=True)), (x,))

    assert torch.autograd.gradcheck(table, moved)


def test_every_parameter_of_a_new_wavelet_has_a_gradient():
    positions = MorletPositions(12)
    (positions(torch.zeros(1, 9, 12)) * torch.randn(9, 12)).sum().backward()
    for name, parameter in positions.named_parameters():
        assert (parameter.grad != 0).all(), name


@pytest.mark.parametrize(("kind", "added"), [("learned", 256 * 256), ("sinusoidal", 0), ("rotary", 0), ("morlet", 256)])
def test_parameters_of_the_positions(kind, added):
    norms, blocks = 13 * 2 * 256, 6 * 12 * 256**2
    assert count(GPT(GPTConfig(65, 256, positions=kind))) == 65 * 256 + blocks + norms + added


def test_initialisation_and_decay_leave_wavelets_alone():
    model, fresh = GPT(GPTConfig(**SMALL, positions="morlet")), MorletPositions(16)
    assert all(map(torch.equal, model.positions.state_dict().values(), fresh.state_dict().values()))
    spared = [id(parameter) for parameter in decay_groups(model, 0.1)[1]["params"]]
    assert all(id(parameter) in spared for parameter in model.positions.parameters())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_state_dict_brings_the_model_back_and_holds_what_is_learned_only(kind, dtype):
    model = GPT(GPTConfig(**SMALL, positions=kind)).to(dtype).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    other = GPT(GPTConfig(**SMALL, positions=kind)).to(dtype).eval()
    other.load_state_dict(model.state_dict())
    idx = torch.randint(11, (2, 12))
    assert torch.equal(other(idx), model(idx))
    assert model.state_dict().keys() == dict(model.named_parameters()).keys()


@pytest.mark.parametrize("kind", ["sinusoidal", "rotary"])
def test_far_positions_survive_half_precision(kind):
    """Frequencies rounded to bfloat16 would be off by whole radians at position 1000."""
    if kind == "rotary":
        exact, x = RotaryPositions(1024, 8), torch.ones(1, 1024, 8)
    else:
        exact, x = SinusoidalPositions(1024, 8), torch.zeros(1, 1024, 8)
    expected = exact(x)
    rounded = exact.to(torch.bfloat16)(x.to(torch.bfloat16))
    assert rounded.dtype == torch.bfloat16
    torch.testing.assert_close(rounded.float(), expected, atol=0.02, rtol=0)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_model_trains_and_its_checkpoint_comes_back(kind, gated, tmp_path):
    torch.manual_seed(0)
    module_class = EnergyGatedGPT if gated else BaselineGPT
    module = module_class(**SMALL, positions=kind, learning_rate=1e-2, warmup_steps=2)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    run = tiny_trainer(tmp_path, max_steps=8)
    run.fit(module, tiny_loader(), tiny_loader())
    assert run.callback_metrics["train_loss"] < math.log(11)
    still = [name for name, value in module.state_dict().items() if torch.equal(value, before[name])]
    assert still == []
    run.save_checkpoint(tmp_path / "last.ckpt")
    loaded = module_class.load_from_checkpoint(tmp_path / "last.ckpt", weights_only=True)
    idx = torch.randint(11, (2, 12))
    assert torch.equal(loaded.eval()(idx), module.eval()(idx))
    assert loaded.model.config.positions == kind


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_captured_rotary_maps_equal_those_computed_by_hand(attention):
    torch.manual_seed(0)
    gate = EnergyGate(16, 2) if attention == "energy_gated" else None
    module = CausalSelfAttention(16, 2, gate=gate, rotary=RotaryPositions(12, 8)).double()
    x = 2 * torch.randn(3, 12, 16, dtype=torch.float64)
    with torch.no_grad(), capture_attention(module) as record:
        module(x)
        (found,) = record.result().values()
        q_weight, k_weight, _ = module.qkv.weight.split(16)
        gates = torch.ones(3, 2, 12, 12) if gate is None else gate(x).exp()
    for b in range(3):
        expected = torch.zeros(12, 12, dtype=torch.float64)
        for h in range(2):
            rows = slice(8 * h, 8 * h + 8)
            for i in range(12):
                q = turned((q_weight[rows] @ x[b, i]).tolist(), i)
                keys = [turned((k_weight[rows] @ x[b, j]).tolist(), j) for j in range(i + 1)]
                weights = [math.exp(sum(map(math.prod, zip(q, k, strict=True))) / math.sqrt(8)) for k in keys]
                weights = [weight * float(gates[b, h, i, j]) for j, weight in enumerate(weights)]
                expected[i, : i + 1] += torch.tensor(weights, dtype=torch.float64) / sum(weights) / 2
        torch.testing.assert_close(found[b].double(), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_beyond_the_block_positions_count_from_the_start_of_what_is_seen(kind):
    torch.manual_seed(0)
    model = GPT(GPTConfig(**SMALL, positions=kind)).eval()
    prompt = torch.randint(11, (1, 30))
    generated = model.generate(prompt, 1, top_k=1)
    assert generated[0, -1] == model(prompt[:, -12:])[0, -1].argmax()


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_the_tokens_matters(kind):
    """Without positions, the last token of a one-layer model could not tell in which order the others stand."""
    torch.manual_seed(0)
    model = GPT(GPTConfig(**{**SMALL, "n_layer": 1}, positions=kind)).eval()
    with torch.no_grad():
        for parameter in model.blocks.parameters():
            parameter.mul_(10)
    idx = torch.tensor([[1, 2, 3, 4, 5]])
    shuffled = torch.tensor([[3, 1, 4, 2, 5]])
    assert (model(idx)[0, -1] - model(shuffled)[0, -1]).abs().max() > 1e-4
