"""nn.MultiheadAttention and nn.Transformer against float64, in every mode in which they take another path."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scalepod.capture import capture_attention

B, T, C, H = 3, 6, 8, 2
CAUSAL = torch.ones(T, T, dtype=torch.bool).triu(1)  # True = hidden, the convention of torch.nn
PADDING = torch.arange(T) >= torch.tensor([6, 4, 5]).view(B, 1)


def reference(layer: nn.MultiheadAttention, q: Tensor, k: Tensor, hidden: Any = None, bias: Any = None) -> Tensor:
    """Head-averaged softmax in float64 of q, k [B, T, C] (batch first)."""
    weights = (
        layer.in_proj_weight
        if layer.in_proj_weight is not None
        else torch.cat([layer.q_proj_weight, layer.k_proj_weight])
    )
    wq, wk = weights.double()[: 2 * C].chunk(2)
    bq, bk = layer.in_proj_bias.double()[: 2 * C].chunk(2)
    q, k = ((x.double() @ w.T + b).unflatten(-1, (H, -1)).transpose(1, 2) for x, w, b in ((q, wq, bq), (k, wk, bk)))
    scores = q @ k.mT / math.sqrt(C // H)
    if bias is not None:
        scores = scores + bias.double()
    if hidden is not None:
        scores = scores.masked_fill(hidden, -math.inf)
    return scores.softmax(-1).nan_to_num(0.0).mean(1)


@pytest.fixture
def x() -> Tensor:
    return torch.randn(B, T, C, generator=torch.Generator().manual_seed(0)) * 2


def attention(**kwargs: Any) -> nn.MultiheadAttention:
    torch.manual_seed(1)
    layer = nn.MultiheadAttention(C, H, **({"batch_first": True} | kwargs))
    nn.init.normal_(layer.in_proj_bias)
    return layer


MASKS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "none": ({}, {}),
    "bool": ({"attn_mask": CAUSAL}, {"hidden": CAUSAL}),
    "bias": ({"attn_mask": torch.eye(T)}, {"bias": torch.eye(T)}),
    "causal hint": ({"attn_mask": CAUSAL, "is_causal": True}, {"hidden": CAUSAL}),
    "a mask for each head": (
        {"attn_mask": torch.eye(T).expand(B * H, T, T) * torch.arange(B * H).view(-1, 1, 1)},
        {"bias": (torch.eye(T).expand(B * H, T, T) * torch.arange(B * H).view(-1, 1, 1)).view(B, H, T, T)},
    ),
    "padding": ({"key_padding_mask": PADDING}, {"hidden": PADDING[:, None, None]}),
    "causal and padding": (
        {"attn_mask": CAUSAL, "key_padding_mask": PADDING},
        {"hidden": CAUSAL | PADDING[:, None, None]},
    ),
}


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", MASKS)
def test_the_maps_are_the_same_on_every_path(
    x: Tensor, close: Any, name: str, training: bool, grad: bool, need_weights: bool
) -> None:
    given, expected = MASKS[name]
    layer = attention(dropout=0.5).train(training)
    torch.manual_seed(2)
    with torch.set_grad_enabled(grad), capture_attention(layer) as record:
        out, weights = layer(x, x, x, need_weights=need_weights, **given)
    drawn = torch.rand(())
    assert record.source == {"MultiheadAttention": "mha"}
    close(record.result()["MultiheadAttention"], reference(layer, x, x, **expected).detach())

    torch.manual_seed(2)
    fast_path = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # which a capture turns off by being there
    try:
        with torch.set_grad_enabled(grad):
            plain_out, plain_weights = layer(x, x, x, need_weights=need_weights, **given)
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)
    assert torch.equal(out, plain_out)
    assert torch.equal(drawn, torch.rand(()))
    assert (weights is None and plain_weights is None) or torch.equal(weights, plain_weights)


@pytest.mark.parametrize("need_weights", [True, False])
def test_a_causal_hint_counts_where_the_function_uses_it(x: Tensor, close: Any, need_weights: bool) -> None:
    """With weights to return the mask is applied, without them the hint is, even if they disagree."""
    layer, mask = attention().eval(), CAUSAL.T.contiguous()
    with torch.no_grad(), capture_attention(layer) as record:
        layer(x, x, x, attn_mask=mask, is_causal=True, need_weights=need_weights)
    expected = reference(layer, x, x, hidden=mask if need_weights else CAUSAL)
    close(record.result()["MultiheadAttention"], expected.detach())


@pytest.mark.parametrize("need_weights", [True, False])
def test_autocast(x: Tensor, close: Any, need_weights: bool) -> None:
    layer = attention().eval()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16), capture_attention(layer) as record:
        layer(x, x, x, need_weights=need_weights)
        projected = F.linear(x.transpose(0, 1), layer.in_proj_weight, layer.in_proj_bias).transpose(0, 1)
    assert projected.dtype == torch.bfloat16
    q, k, _ = (y.double().unflatten(-1, (H, -1)).transpose(1, 2) for y in projected.chunk(3, -1))
    close(record.result()["MultiheadAttention"], (q @ k.mT / math.sqrt(C // H)).softmax(-1).mean(1))


VARIANTS: dict[str, dict[str, Any]] = {
    "sequence first": {"batch_first": False},
    "other sizes": {"kdim": C, "vdim": C + 2},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_layouts(x: Tensor, close: Any, name: str) -> None:
    layer = attention(**VARIANTS[name]).eval()
    value = torch.randn(B, T, layer.vdim)
    inputs = [x, x, value] if layer.batch_first else [y.transpose(0, 1) for y in (x, x, value)]
    with torch.no_grad(), capture_attention(layer) as record:
        layer(*inputs)
    close(record.result()["MultiheadAttention"], reference(layer, x, x).detach())


def test_without_a_batch(x: Tensor, close: Any) -> None:
    layer = attention().eval()
    with torch.no_grad(), capture_attention(layer, batch_size=1) as record:
        layer(x[0], x[0], x[0])
    close(record.result()["MultiheadAttention"], reference(layer, x[:1], x[:1]).detach())


def test_appended_keys_are_cut_off(x: Tensor, close: Any) -> None:
    layer = attention(add_bias_kv=True, add_zero_attn=True).eval()
    with torch.no_grad(), capture_attention(layer) as record:
        layer(x, x, x)
    weights = layer.in_proj_weight.double()[: 2 * C].chunk(2)
    biases = layer.in_proj_bias.double()[: 2 * C].chunk(2)
    q, k = ((x.double() @ w.T + b) for w, b in zip(weights, biases, strict=True))
    k = torch.cat([k, layer.bias_k.double().expand(B, 1, C), torch.zeros(B, 1, C)], 1)
    q, k = (y.unflatten(-1, (H, -1)).transpose(1, 2) for y in (q, k))
    expected = (q @ k.mT / math.sqrt(C // H)).softmax(-1).mean(1)[..., :T]
    close(record.result()["MultiheadAttention"], expected.detach())
    assert record.notes[0].startswith("MultiheadAttention: rows do not sum to one")


@pytest.mark.parametrize("need_weights", [True, False])
def test_the_function_itself(run: Any, x: Tensor, close: Any, need_weights: bool) -> None:
    layer = attention()

    class Direct(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x.transpose(0, 1)
            parameters = layer.in_proj_weight, layer.in_proj_bias, None, None, False, 0.3
            out: Tensor = F.multi_head_attention_forward(
                y, y, y, C, H, *parameters, layer.out_proj.weight, layer.out_proj.bias, need_weights=need_weights
            )[0]
            return out

    close(run.maps(Direct(), x)["Direct"], reference(layer, x, x).detach())


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_encoder(x: Tensor, close: Any, training: bool, norm_first: bool) -> None:
    torch.manual_seed(3)
    layer = nn.TransformerEncoderLayer(C, H, 16, dropout=0.0, batch_first=True, norm_first=norm_first)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=not norm_first).train(training)
    inputs: list[Tensor] = []
    handles = [
        module.self_attn.register_forward_pre_hook(lambda _, args: inputs.append(args[0])) for module in encoder.layers
    ]
    with torch.no_grad(), capture_attention(encoder, batch={"src_key_padding_mask": PADDING}) as record:
        encoder(x, mask=CAUSAL, src_key_padding_mask=PADDING)
    assert list(record.result()) == ["layers.0.self_attn", "layers.1.self_attn"]
    assert record.notes == []
    for module, given, found in zip(encoder.layers, inputs, record.result().values(), strict=True):
        close(found, reference(module.self_attn, given, given, hidden=CAUSAL | PADDING[:, None, None]).detach())
    for handle in handles:
        handle.remove()


def test_cross_attention_of_a_decoder_is_left_out_by_name(run: Any, x: Tensor) -> None:
    torch.manual_seed(4)
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(C, H, 16, batch_first=True), 2)
    memory = torch.randn(B, T + 1, C)
    record = run(decoder, x, memory, tgt_mask=CAUSAL)
    assert list(record.result()) == ["layers.0.self_attn", "layers.1.self_attn"]
    reason = f"attention of {T} x {T + 1} is not square (cross attention, a cache, parts of a sequence)"
    assert record.notes == [f"layers.{i}.multihead_attn: {reason}" for i in range(2)]


def test_square_cross_attention_is_left_out_on_request(run: Any, x: Tensor) -> None:
    torch.manual_seed(4)
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(C, H, 16, batch_first=True), 2)
    both = run(decoder, x, x)
    assert len(both.result()) == 4
    record = run(decoder, x, x, options={"exclude": "*.multihead_attn"})
    assert list(record.result()) == ["layers.0.self_attn", "layers.1.self_attn"]
    assert record.notes == []
