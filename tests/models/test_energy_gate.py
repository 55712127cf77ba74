"""The energy gate against the definition written with loops, in float64 and without any floor or shift."""

import math

import pytest
import torch
from torch import Tensor

from scalepod.models.attention import EnergyGate, running_moments


def loop_gate(
    energy: Tensor, alpha: Tensor, tau: Tensor, weights: Tensor, normalization: str, bias: float = 0.0
) -> Tensor:
    """Gate g of one head, [T, T] (query, key), from energies [S, T]; 0 where the key is later than the query."""
    n_tokens = energy.shape[1]
    gate = torch.zeros(n_tokens, n_tokens, dtype=torch.float64)
    scales = zip(*(values.detach().double().tolist() for values in (energy, alpha, tau, weights)), strict=True)
    for energies, a, t, weight in scales:
        e = [value + bias for value in energies]
        for i in range(n_tokens):
            seen = e[: i + 1] if normalization == "causal" else e
            mean = sum(seen) / len(seen)
            std = math.sqrt(sum((value - mean) ** 2 for value in seen) / len(seen))
            for j in range(i + 1):
                z = (e[j] - mean) / std if std > 0 else 0.0
                gate[i, j] += weight / (1 + math.exp(-a * (z - t)))
    return gate


def gate_of_energies(normalization: str = "causal") -> EnergyGate:
    """A gate of one head whose input is the energy itself, [B, T, 1]."""
    gate = EnergyGate(1, 1, normalization=normalization)
    torch.nn.init.ones_(gate.energy.weight)
    return gate


@pytest.mark.parametrize("normalization", ["causal", "sequence"])
@pytest.mark.parametrize(("n_tokens", "n_head", "n_scales"), [(1, 1, 1), (2, 2, 1), (7, 3, 1), (9, 2, 3), (6, 1, 2)])
@pytest.mark.parametrize("bias", [0.0, 3e4])  # the published bias of e, which standardisation cancels
def test_equals_the_definition_written_with_loops(normalization, n_tokens, n_head, n_scales, bias):
    torch.manual_seed(0)
    gate = EnergyGate(5, n_head, n_scales, normalization).double()
    for parameter in (gate.alpha, gate.tau, gate.mixing):
        if parameter is not None:
            torch.nn.init.normal_(parameter)
    x = 1e4 * torch.randn(2, n_tokens, 5, dtype=torch.float64)  # so large that the variance floor cannot be seen

    computed = gate(x).exp().expand(2, n_head, n_tokens, n_tokens).tril()

    w = gate.energy.weight.view(n_head, n_scales, 5)
    weights = torch.ones(n_head, 1) if gate.mixing is None else gate.mixing.softmax(-1)
    for b in range(2):
        for h in range(n_head):
            expected = loop_gate(w[h] @ x[b].T, gate.alpha[h], gate.tau[h], weights[h], normalization, bias)
            torch.testing.assert_close(computed[b, h], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("n_tokens", [2, 17, 300])
@pytest.mark.parametrize(("offset", "first"), [(0.0, 0.0), (1e6, 0.0), (-1e7, 0.0), (0.0, 1e5), (1e6, -1e6)])
def test_float32_survives_a_large_offset_and_an_outlying_first_token(n_tokens, offset, first):
    torch.manual_seed(1)
    x = 100 * torch.randn(1, n_tokens, 1) + offset  # large against the variance floor
    x[0, 0, 0] += first
    computed = gate_of_energies()(x)[0, 0].exp().tril()
    one = torch.ones(1)
    expected = loop_gate(x[0].T, 2 * one, 0 * one, one, "causal")
    torch.testing.assert_close(computed.double(), expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("n_tokens", [1, 2, 3, 50])
@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float32, 1e-3), (torch.float64, 1e-11)])
def test_running_moments_equal_those_of_every_prefix(n_tokens, dtype, rtol):
    torch.manual_seed(3)
    values = torch.randn(3, 2, n_tokens, dtype=dtype) + 1000  # mean(e^2) - mean(e)^2 would be off by several per cent
    mean, variance = running_moments(values)
    for i in range(n_tokens):
        prefix = values[..., : i + 1].double()
        torch.testing.assert_close(mean[..., i].double(), prefix.mean(-1), rtol=rtol, atol=0)
        torch.testing.assert_close(variance[..., i].double(), prefix.var(-1, correction=0), rtol=rtol, atol=1e-6)


@pytest.mark.parametrize("normalization", ["causal", "sequence"])
@pytest.mark.parametrize("n_tokens", [1, 6])
def test_equal_energies_have_z_zero_and_finite_gradients(normalization, n_tokens):
    gate = gate_of_energies(normalization)
    with torch.no_grad():
        gate.tau.fill_(0.25)
    x = torch.full((1, n_tokens, 1), 7.3, requires_grad=True)
    log_gate = gate(x).tril() if normalization == "causal" else gate(x)
    assert torch.equal(log_gate[0, 0, -1], torch.full((n_tokens,), -0.5).sigmoid().log())  # alpha (0 - tau) = -0.5
    log_gate.sum().backward()
    for gradient in (x.grad, gate.energy.weight.grad, gate.alpha.grad, gate.tau.grad):
        assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("normalization", ["causal", "sequence"])
@pytest.mark.parametrize("n_scales", [1, 2])
def test_gradients_equal_finite_differences(normalization, n_scales):
    torch.manual_seed(2)
    gate = EnergyGate(3, 2, n_scales, normalization).double()
    x = torch.randn(1, 5, 3, dtype=torch.float64, requires_grad=True)
    names, parameters = zip(*gate.named_parameters(), strict=True)

    def visible(x: Tensor, *values: Tensor) -> Tensor:
        log_gate = torch.func.functional_call(gate, dict(zip(names, values, strict=True)), (x,))
        return log_gate.expand(-1, -1, 5, -1).tril()

    assert torch.autograd.gradcheck(visible, (x, *parameters))


def test_a_saturated_gate_stays_finite():
    gate = gate_of_energies()
    with torch.no_grad():
        gate.alpha.fill_(1e3)
    x = torch.randn(1, 40, 1, requires_grad=True)
    log_gate = gate(x).tril()
    log_gate.sum().backward()
    assert log_gate.min() < -200  # exp of it underflows in float32: a gate multiplied in would be zero
    assert torch.isfinite(log_gate).all()
    assert torch.isfinite(x.grad).all()


def test_starts_as_published_with_energies_of_unit_variance():
    gate = EnergyGate(256, 8)
    assert torch.equal(gate.alpha, torch.full((8, 1), 2.0))
    assert torch.equal(gate.tau, torch.zeros(8, 1))
    energies = gate.energy(torch.randn(4000, 256))
    assert 0.9 < energies.std().item() < 1.1


def test_autocast_does_not_reach_the_statistics():
    gate, x = EnergyGate(16, 2), torch.randn(2, 12, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = gate(x)
    assert inside.dtype == torch.float32
    assert torch.equal(inside, gate(x))


def test_half_precision_modules_compute_in_float32():
    gate = gate_of_energies().to(torch.bfloat16)
    x = torch.randn(1, 30, 1).to(torch.bfloat16)
    computed = gate(x)
    assert computed.dtype == torch.float32
    torch.testing.assert_close(computed, gate.float()(x.float()))
