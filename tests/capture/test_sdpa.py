"""The maps of scaled_dot_product_attention in every spelling and with every mask, against float64 loops over rows."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.bias import causal_lower_right, causal_upper_left

B, H, T, D = 3, 4, 7, 5
imported_before = F.scaled_dot_product_attention


class Call(nn.Module):
    """A module that makes one call."""

    def __init__(self, function: Any = F.scaled_dot_product_attention, **kwargs: Any) -> None:
        super().__init__()
        self.function, self.kwargs = function, kwargs

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Any:
        return self.function(q, k, v, **self.kwargs)


def reference(q: Tensor, k: Tensor, allowed: Any = None, bias: Any = None, scale: float | None = None) -> Tensor:
    """Rows of exp(s - max) / sum in float64, one after the other; [B, T, T], mean over heads."""
    q, k = q.double(), k.double()
    maps = torch.zeros(q.size(0), q.size(1), q.size(2), k.size(2), dtype=torch.float64)
    for b, h, i in torch.cartesian_prod(*(torch.arange(n) for n in q.shape[:3])).tolist():
        scores = (k[b, h] * q[b, h, i]).sum(-1) * (q.size(-1) ** -0.5 if scale is None else scale)
        if bias is not None:
            scores = scores + bias.double().expand(B, H, T, T)[b, h, i]
        seen = [j for j in range(len(scores)) if allowed is None or bool(allowed.expand(B, H, T, T)[b, h, i, j])]
        seen = [j for j in seen if scores[j] > -math.inf]
        if seen:
            weights = (scores[seen] - scores[seen].max()).exp()
            maps[b, h, i, seen] = weights / weights.sum()
    return maps.mean(1)


@pytest.fixture
def qkv() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, B, H, T, D, generator=generator) * 2
    return q, k, v


SPELLINGS = {
    "functional": lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
    "imported before": lambda q, k, v: imported_before(q, k, v),
    "builtin": lambda q, k, v: torch._C._nn.scaled_dot_product_attention(q, k, v),
    "packet": lambda q, k, v: torch.ops.aten.scaled_dot_product_attention(q, k, v),
    "overload": lambda q, k, v: torch.ops.aten.scaled_dot_product_attention.default(q, k, v),
    "keywords": lambda q, k, v: F.scaled_dot_product_attention(value=v, key=k, query=q),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_is_seen(run: Any, close: Any, qkv: Any, spelling: str) -> None:
    record = run(Call(SPELLINGS[spelling]), *qkv)
    assert record.source == {"Call": "sdpa"}
    assert record.notes == []
    close(record.result()["Call"], reference(*qkv[:2]))


CAUSAL = torch.ones(T, T, dtype=torch.bool).tril()
BIAS = torch.linspace(-2, 2, B * H * T * T).view(B, H, T, T).sin()
DEAD = torch.ones(B, 1, T, T, dtype=torch.bool)
DEAD[0, :, 2] = False
DEAD[1, :, :, 3] = False
MASKS = {
    "bool [T, T]": CAUSAL,
    "bool [H, T, T]": CAUSAL.expand(H, T, T).clone(),
    "bool [B, 1, 1, T]": torch.arange(T).ge(2).expand(B, 1, 1, T),
    "bool with dead rows": DEAD,
    "bias [T, T]": BIAS[0, 0],
    "bias [1, H, T, T]": BIAS[:1],
    "bias [B, H, T, T]": BIAS,
    "bias of -inf, dead rows": torch.zeros(B, 1, T, T).masked_fill(~DEAD, -math.inf),
}


@pytest.mark.parametrize("name", MASKS)
def test_every_mask_is_applied(run: Any, close: Any, qkv: Any, name: str) -> None:
    mask = MASKS[name]
    kind = "allowed" if mask.dtype == torch.bool else "bias"
    record = run(Call(attn_mask=mask), *qkv, options={"batch": {"attention_mask": torch.ones(B, T)}})
    close(record.result()["Call"], reference(*qkv[:2], **{kind: mask}))
    assert record.notes == []


@pytest.mark.parametrize("bias", [causal_upper_left, causal_lower_right])
def test_causal_bias_objects(run: Any, close: Any, qkv: Any, bias: Any) -> None:
    close(run.maps(Call(attn_mask=bias(T, T)), *qkv)["Call"], reference(*qkv[:2], allowed=CAUSAL))


@pytest.mark.parametrize("scale", [None, 0.3])
def test_causal_flag_scale_and_a_dropout_that_is_always_on(run: Any, close: Any, qkv: Any, scale: Any) -> None:
    model = Call(is_causal=True, scale=scale, dropout_p=0.5)
    close(run.maps(model, *qkv)["Call"], reference(*qkv[:2], allowed=CAUSAL, scale=scale))


def test_grouped_queries_repeat_the_heads_of_the_keys(run: Any, close: Any, qkv: Any) -> None:
    q, k, v = qkv
    expected = reference(q, k[:, [0, 0, 1, 1]])
    close(run.maps(Call(enable_gqa=True), q, k[:, :2], v[:, :2])["Call"], expected)


@pytest.mark.parametrize("batch_size", [None, B])
def test_one_head_without_a_head_axis(run: Any, close: Any, qkv: Any, batch_size: int | None) -> None:
    q, k, v = (x[:, 0] for x in qkv)
    maps = run.maps(Call(attn_mask=BIAS[:, 0]), q, k, v, options={"batch_size": batch_size})
    close(maps["Call"], reference(q[:, None], k[:, None], bias=BIAS[:, :1].expand(B, H, T, T)))


def test_merged_batch_and_heads_are_told_apart_by_the_batch_size(run: Any, close: Any, qkv: Any) -> None:
    q, k, v = (x.flatten(0, 1) for x in qkv)
    close(run.maps(Call(), q, k, v, options={"batch_size": B})["Call"], reference(*qkv[:2]))


def test_operands_are_broadcast(run: Any, close: Any, qkv: Any) -> None:
    q, k, v = qkv
    expected = reference(q, k[:1, :1].expand(B, H, T, D))
    close(run.maps(Call(), q, k[:1, :1], v)["Call"], expected)
    shared = run.maps(Call(), q[:1], k[:1], v, options={"batch_size": B})["Call"]
    close(shared, reference(q[:1], k[:1]).expand(B, T, T))


def test_parts_of_a_sample_are_samples_of_their_own(run: Any, close: Any, qkv: Any) -> None:
    q, k, v = (torch.stack([x, x.flip(2)], 1) for x in qkv)  # [B, 2, H, T, D]
    record = run(Call(), q, k, v, options={"batch_size": B})
    close(record.result()["Call"], reference(q.flatten(0, 1), k.flatten(0, 1)))
    assert record.notes == [f"Call: {2 * B} maps for a batch of {B} (windows, or one sample at a time?)"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_uses_the_operands_that_the_kernel_got(run: Any, close: Any, qkv: Any, dtype: torch.dtype) -> None:
    def forward(*args: Tensor) -> Any:
        with torch.autocast("cpu", dtype=dtype):
            return model(*args)

    model = Call()
    rounded = [x.to(dtype) for x in qkv[:2]]
    close(run.maps(model, *qkv, forward=forward)["Call"], reference(*rounded))
    assert (reference(*rounded) - reference(*qkv[:2])).abs().max() > 1e-4  # the rounding would have been noticed


def test_low_precision_model_gets_a_float32_softmax(run: Any, close: Any, qkv: Any) -> None:
    low = [x.bfloat16() for x in qkv]
    close(run.maps(Call(), *low)["Call"], reference(*low[:2]))


def test_float64_stays_float64(run: Any, qkv: Any) -> None:
    maps = run.maps(Call(), *(x.double() for x in qkv))["Call"]
    assert maps.dtype == torch.float64
    assert (maps - reference(*qkv[:2])).abs().max() < 1e-14


@pytest.mark.parametrize("byte_budget", [1, 3 * T * T * 4 * 2, 2**20])
def test_the_byte_budget_does_not_change_the_result(run: Any, close: Any, qkv: Any, byte_budget: int) -> None:
    close(run.maps(Call(), *qkv, options={"byte_budget": byte_budget})["Call"], reference(*qkv[:2]))


def test_each_head_as_an_entry_of_its_own(run: Any, close: Any, qkv: Any) -> None:
    record = run(Call(is_causal=True), *qkv, options={"heads": "each"})
    assert list(record.result()) == [f"Call/h{h}" for h in range(H)]
    assert set(record.source) == set(record.result())
    for h in range(H):
        expected = reference(qkv[0][:, h : h + 1], qkv[1][:, h : h + 1], allowed=CAUSAL)
        close(record.result()[f"Call/h{h}"], expected)
