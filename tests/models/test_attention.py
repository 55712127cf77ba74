"""Self-attention against one that gates the probabilities and renormalises them, head by head in float64."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from scalepod.models.attention import CausalSelfAttention, EnergyGate


def plain_attention(attention: CausalSelfAttention, x: Tensor) -> tuple[Tensor, Tensor]:
    """Output [T, C] and probabilities [H, T, T] for one sequence [T, C], by softmax, gate and renormalisation."""
    n_tokens, C = x.shape
    d = C // attention.n_head
    q_weight, k_weight, v_weight = attention.qkv.weight.split(C)
    gates = torch.ones(attention.n_head, n_tokens, n_tokens, dtype=x.dtype)
    if attention.gate is not None:
        gates = attention.gate(x[None])[0].exp().expand(-1, n_tokens, -1)
    outputs, maps = [], []
    for h in range(attention.n_head):
        rows = slice(h * d, (h + 1) * d)
        q, k, v = x @ q_weight[rows].T, x @ k_weight[rows].T, x @ v_weight[rows].T
        probabilities = ((q @ k.T) / math.sqrt(d)).exp().tril()
        probabilities = probabilities / probabilities.sum(-1, keepdim=True)
        gated = probabilities * gates[h].tril()
        gated = gated / gated.sum(-1, keepdim=True)
        maps.append(gated)
        outputs.append(gated @ v)
    return torch.cat(outputs, -1) @ attention.projection.weight.T, torch.stack(maps)


class AttentionMaps(TorchFunctionMode):
    """Recompute softmax(q k / sqrt(d) + mask) from what `scaled_dot_product_attention` is given."""

    def __init__(self) -> None:
        super().__init__()
        self.maps: list[Tensor] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            q, k, _ = args
            mask = kwargs["attn_mask"]
            if kwargs["is_causal"]:
                mask = torch.full(q.shape[-2:-1] + k.shape[-2:-1], -math.inf).triu(1)
            self.maps.append((q @ k.mT / math.sqrt(q.shape[-1]) + mask).softmax(-1))
        return func(*args, **kwargs)


GATES = [None, *({"n_scales": n, "normalization": form} for n in (1, 3) for form in ("causal", "sequence"))]


@pytest.mark.parametrize("gate", GATES, ids=str)
@pytest.mark.parametrize("n_tokens", [1, 2, 11])
def test_equals_softmax_times_gate_renormalised(gate, n_tokens):
    torch.manual_seed(0)
    attention = CausalSelfAttention(12, 3, gate=None if gate is None else EnergyGate(12, 3, **gate)).double()
    x = 3 * torch.randn(2, n_tokens, 12, dtype=torch.float64)
    with AttentionMaps() as recorded:
        output = attention(x)
    for b in range(2):
        expected, maps = plain_attention(attention, x[b])
        torch.testing.assert_close(output[b], expected)
        torch.testing.assert_close(recorded.maps[0][b], maps)


def test_the_gate_moves_attention_towards_keys_of_high_energy():
    torch.manual_seed(0)
    attention = CausalSelfAttention(4, 1, gate=EnergyGate(4, 1))
    with torch.no_grad():
        attention.qkv.weight.zero_()  # equal logits: what is left is the gate
        attention.gate.energy.weight.copy_(torch.tensor([[1.0, 0.0, 0.0, 0.0]]))
    x = torch.zeros(1, 4, 4)
    x[0, :, 0] = torch.tensor([0.0, 5.0, 0.0, 0.0])
    with AttentionMaps() as recorded:
        attention(x)
    last = recorded.maps[0][0, 0, -1]
    sigmoid = [1 / (1 + math.exp(-2 * z)) for z in (-1 / math.sqrt(3), math.sqrt(3))]  # z of (0, 5, 0, 0)
    expected = torch.tensor([sigmoid[0], sigmoid[1], sigmoid[0], sigmoid[0]])
    torch.testing.assert_close(last, expected / expected.sum())


def test_dropout_acts_in_training_only():
    torch.manual_seed(0)
    attention = CausalSelfAttention(8, 2, dropout=0.5, gate=EnergyGate(8, 2))
    x = torch.randn(1, 6, 8)
    assert not torch.equal(attention(x), attention(x))
    attention.eval()
    torch.testing.assert_close(attention(x)[0], plain_attention(attention, x[0])[0])
