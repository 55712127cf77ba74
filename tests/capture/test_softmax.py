"""Attention that a model writes out itself, in many styles, against float64."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

B, H, T, D = 3, 2, 7, 4
C = H * D
CAUSAL = torch.ones(T, T).tril() == 1


class Attention(nn.Module):
    """Projections around ``mix(q, k, v)``, each [B, T, H, D], which gives [B, T, H, D]."""

    def __init__(self, mix: Callable[..., Tensor]) -> None:
        super().__init__()
        self.qkv = nn.Linear(C, 3 * C)
        self.out = nn.Linear(C, C)
        self.mix = mix

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.view(*x.shape[:2], H, D) for part in self.qkv(x).split(C, dim=2))
        return self.out(self.mix(q, k, v).reshape(x.shape))


class Model(nn.Module):
    """Two layers and a head."""

    def __init__(self, mix: Callable[..., Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(Attention(mix) for _ in range(2))
        self.head = nn.Linear(C, 11)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x).softmax(-1)


def expected(model: Model, x: Tensor, probabilities: Callable[[Tensor, Tensor], Tensor]) -> list[Tensor]:
    """The maps of both layers in float64, head-averaged, from ``probabilities(q, k)`` of [B, H, T, D]."""
    found, x = [], x.double()
    for layer in model.layers:
        weight, bias = layer.qkv.weight.double(), layer.qkv.bias.double()
        q, k, v = (x @ weight.T + bias).view(B, T, 3, H, D).permute(2, 0, 3, 1, 4)
        maps = probabilities(q, k)
        mixed = (maps @ v).transpose(1, 2).reshape(B, T, C)
        x = x + mixed @ layer.out.weight.double().T + layer.out.bias.double()
        found.append(maps.mean(1))
    return found


def plain(q: Tensor, k: Tensor) -> Tensor:
    weights = (torch.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(D)).exp()
    return weights / weights.sum(-1, keepdim=True)


def normalised(q: Tensor, k: Tensor) -> Tensor:
    scores = torch.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(D)
    scores = scores - scores.mean(-1, keepdim=True)
    weights = (scores / (scores.var(-1, keepdim=True, unbiased=False) + 1e-5).sqrt()).exp()
    return weights / weights.sum(-1, keepdim=True)


def causal(q: Tensor, k: Tensor) -> Tensor:
    weights = (torch.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(D)).exp() * CAUSAL
    return weights / weights.sum(-1, keepdim=True)


def heads_first(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)


def nanogpt(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = heads_first(q, k, v)
    att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
    att = att.masked_fill(~CAUSAL, float("-inf"))
    att = F.dropout(F.softmax(att, dim=-1), 0.1, training=False)
    return (att @ v).transpose(1, 2).contiguous()


def with_softmax(softmax: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    def mix(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = heads_first(q, k, v)
        return torch.matmul(softmax(torch.matmul(q, k.mT) / math.sqrt(D)), v).transpose(1, 2)

    return mix


def with_product(product: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    def mix(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = heads_first(q, k, v)
        return product((q @ k.mT / math.sqrt(D)).softmax(-1), v).transpose(1, 2)

    return mix


def merged_bmm(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (x.transpose(1, 2).reshape(-1, T, D) for x in (q, k, v))
    att = torch.baddbmm(torch.zeros(1, T, T), q, k.transpose(1, 2), alpha=D**-0.5).softmax(dim=-1)
    return torch.bmm(att, v).view(-1, H, T, D).transpose(1, 2)


def einsum_heads_first(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    att = torch.einsum("bqhd,bkhd->hbqk", q, k).mul(D**-0.5).softmax(-1)
    return torch.einsum("hbqk,bkhd->bqhd", att, v)


def einsum_middle_axis(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    att = torch.einsum("b i h d, b j h d -> b j i h", q, k).mul(D**-0.5).softmax(1)
    return torch.einsum("bjih,bjhd->bihd", att, v)


def einsum_keys_before_heads(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    att = torch.softmax(torch.einsum("...qhd,...khd->...qkh", q, k) / math.sqrt(D), dim=-2)
    return torch.einsum("...qkh,...khd->...qhd", [att, v])


def einsum_implicit_output(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    att = torch.einsum("zhid,zhjd->zhij", q.transpose(1, 2), k.transpose(1, 2)).mul(D**-0.5).softmax(-1)
    return torch.einsum("bcij,bcjx->bcix", att, v.transpose(1, 2)).transpose(1, 2)


def elementwise_and_sum(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = heads_first(q, k, v)
    scores = (q.unsqueeze(-2) * k.unsqueeze(-3)).sum(-1) / math.sqrt(D)
    return (scores.softmax(-1).unsqueeze(-1) * v.unsqueeze(-3)).sum(-2).transpose(1, 2)


def head_after_head(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    att = torch.empty(len(q), H, T, T)
    for h in range(H):
        att[:, h] = torch.softmax(q[:, :, h] @ k[:, :, h].mT / math.sqrt(D), -1)
    return (att @ v.transpose(1, 2)).transpose(1, 2)


def stacked_heads(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    att = torch.stack([torch.softmax(q[:, :, h] @ k[:, :, h].mT / math.sqrt(D), -1) for h in range(H)], dim=1)
    return (att @ v.transpose(1, 2)).transpose(1, 2)


def exponential(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = heads_first(q, k, v)
    scores = q @ k.mT / math.sqrt(D)
    weights = torch.exp(scores - scores.amax(-1, keepdim=True))
    return ((weights / weights.sum(-1, keepdim=True)) @ v).transpose(1, 2)


STYLES: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor]]] = {
    "nanoGPT": (nanogpt, causal),
    "F.softmax": (with_softmax(lambda s: F.softmax(s, dim=-1)), plain),
    "F.softmax in float32": (with_softmax(lambda s: F.softmax(s, -1, dtype=torch.float32).to(s.dtype)), plain),
    "torch.softmax": (with_softmax(lambda s: torch.softmax(s, -1)), plain),
    "torch.softmax dim=3": (with_softmax(lambda s: torch.softmax(s, dim=3)), plain),
    "Tensor.softmax": (with_softmax(lambda s: s.softmax(dim=-1)), plain),
    "nn.Softmax": (with_softmax(nn.Softmax(dim=-1)), plain),
    "F.softmin": (with_softmax(lambda s: F.softmin(-s, dim=-1)), plain),
    "normalised scores": (with_softmax(lambda s: F.layer_norm(s, (T,)).softmax(-1)), normalised),
    "exp of log_softmax": (with_softmax(lambda s: F.log_softmax(s, -1).exp()), plain),
    "@": (with_product(lambda p, v: p @ v), plain),
    "Tensor.matmul": (with_product(lambda p, v: p.matmul(v)), plain),
    "torch.matmul(input=, other=)": (with_product(lambda p, v: torch.matmul(input=p, other=v)), plain),
    "v^T @ p^T": (with_product(lambda p, v: (v.mT @ p.mT).mT), plain),
    "v^T @ p^T, permuted": (with_product(lambda p, v: (v.transpose(2, 3) @ p.permute(0, 1, 3, 2)).mT), plain),
    "merged bmm": (merged_bmm, plain),
    "einsum, heads first": (einsum_heads_first, plain),
    "einsum, softmax over a middle axis": (einsum_middle_axis, plain),
    "einsum, keys before heads": (einsum_keys_before_heads, plain),
    "einsum, own letters": (einsum_implicit_output, plain),
    "elementwise product and sum": (elementwise_and_sum, plain),
    "head after head": (head_after_head, plain),
    "stacked heads": (stacked_heads, plain),
    "exp and sum": (exponential, plain),
}


@pytest.fixture
def x() -> Tensor:
    return torch.randn(B, T, C, generator=torch.Generator().manual_seed(1)) * 2


@pytest.mark.parametrize("style", STYLES)
def test_every_style_is_followed(run: Any, close: Any, x: Tensor, style: str) -> None:
    mix, probabilities = STYLES[style]
    model = Model(mix)
    record = run(model, x, options={"batch_size": B})
    assert record.source == {"layers.0": "softmax", "layers.1": "softmax"}
    assert record.notes == []
    for found, reference in zip(record.result().values(), expected(model, x, probabilities), strict=True):
        close(found, reference)


# ---------------------------------------------------------------------- what happens between softmax and values


def changed_by(change: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    return with_product(lambda p, v: change(p) @ v)


def gate(p: Tensor) -> Tensor:
    gated = p * torch.linspace(0.2, 1, T, dtype=p.dtype)
    return gated / gated.sum(-1, keepdim=True)


def gate_in_place(p: Tensor) -> Tensor:
    p *= torch.linspace(0.2, 1, T, dtype=p.dtype)
    return p.div_(p.sum(-1, keepdim=True))


def threshold(p: Tensor) -> Tensor:
    return torch.where(p > 0.1, p, torch.zeros_like(p))


def only_the_first_keys(p: Tensor) -> Tensor:
    p[..., 3:] = 0
    return p / p.sum(-1, keepdim=True)


def mix_heads(p: Tensor) -> Tensor:
    return torch.einsum("bhqk,hg->bgqk", p, torch.tensor([[0.7, 0.2], [0.3, 0.8]], dtype=p.dtype))


def twice(p: Tensor) -> Tensor:
    return p @ p


def top_keys(p: Tensor) -> Tensor:
    values, keys = p.topk(3, dim=-1)
    return torch.zeros_like(p).scatter_(-1, keys, values)


def merge_and_split(p: Tensor) -> Tensor:
    return p.reshape(-1, T, T).clone().view(p.shape).contiguous()


CHANGES = [gate, gate_in_place, threshold, only_the_first_keys, mix_heads, twice, top_keys, merge_and_split]


@pytest.mark.parametrize("change", CHANGES)
def test_what_multiplies_the_values_is_recorded(run: Any, close: Any, x: Tensor, change: Any) -> None:
    model = Model(changed_by(change))
    record = run(model, x, options={"batch_size": B})
    references = expected(model, x, lambda q, k: change(plain(q, k)))
    assert len(references) == len(record.result())
    for found, reference in zip(record.result().values(), references, strict=True):
        close(found, reference)


def test_a_sink_is_a_column_that_is_cut_off(run: Any, close: Any, x: Tensor) -> None:
    def mix(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = heads_first(q, k, v)
        scores = torch.cat([q @ k.mT / math.sqrt(D), torch.full((B, H, T, 1), 0.5)], -1)
        return (scores.softmax(-1)[..., :-1] @ v).transpose(1, 2)

    def with_sink(q: Tensor, k: Tensor) -> Tensor:
        weights = (q @ k.mT / math.sqrt(D)).exp()
        return weights / (weights.sum(-1, keepdim=True) + math.exp(0.5))

    model = Model(mix)
    record = run(model, x)
    for found, reference in zip(record.result().values(), expected(model, x, with_sink), strict=True):
        close(found, reference)
    assert any(note.startswith("layers.0: rows do not sum to one") for note in record.notes)


DROPOUTS = {
    "F.dropout": lambda p: F.dropout(p, 0.5),
    "in place": lambda p: F.dropout(p, 0.5, inplace=True),
    "before the gate": lambda p: gate(F.dropout(p, 0.5)),
    "before a mixing of heads": lambda p: mix_heads(F.dropout(p, 0.5)),
    "before a gate in place": lambda p: gate_in_place(F.dropout(p, 0.5)),
    "twice, and views": lambda p: F.dropout(torch.dropout(p.flatten(0, 1), 0.5, True), 0.3).view(-1, H, T, T),
}


@pytest.mark.parametrize("name", DROPOUTS)
def test_dropout_that_is_always_on_is_left_out(run: Any, close: Any, x: Tensor, name: str) -> None:
    model = Model(changed_by(DROPOUTS[name]))
    record = run(model, x)  # also compares outputs and random states
    change = gate if "gate" in name else mix_heads if "heads" in name else lambda p: p
    close(record.result()["layers.0"], expected(model, x, lambda q, k: change(plain(q, k)))[0])
    assert record.notes == []


def test_looking_at_a_map_without_dropout_draws_no_random_numbers(run: Any, x: Tensor) -> None:
    run(Model(changed_by(lambda p: torch.bernoulli(F.dropout(p, 0.5).clamp(max=1)))), x)


def test_queries_that_may_look_at_nothing_are_zero_rows(run: Any, x: Tensor) -> None:
    def mix(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = heads_first(q, k, v)
        scores = (q @ k.mT).masked_fill(torch.arange(T).view(T, 1) < 2, -math.inf)
        return scores.softmax(-1).matmul(v).nan_to_num().transpose(1, 2)

    maps = run.maps(Model(mix), x)["layers.0"]
    assert bool((maps[:, :2] == 0).all())
    assert torch.allclose(maps[:, 2:].sum(-1), torch.ones(()))


def test_a_model_that_computes_nothing_but_nan_stays_so(run: Any, x: Tensor) -> None:
    record = run(Model(nanogpt), x.mul(math.nan), options={"include": "layers.0"})
    assert bool(record.result()["layers.0"].isnan().all())
    assert record.notes == ["layers.0: holds NaN or infinity"]


def test_scores_that_are_no_product(run: Any, close: Any, x: Tensor) -> None:
    """Additive attention: the scores are a function of query plus key."""
    direction = torch.linspace(-1, 1, D)

    def mix(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = torch.tanh(q.unsqueeze(2) + k.unsqueeze(1)) @ direction  # [B, Tq, Tk, H]
        return torch.einsum("bqkh,bkhd->bqhd", scores.softmax(2), v)

    def additive(q: Tensor, k: Tensor) -> Tensor:
        return (torch.tanh(q.unsqueeze(3) + k.unsqueeze(2)) @ direction.double()).softmax(-1)

    model = Model(mix)
    for found, reference in zip(run.maps(model, x).values(), expected(model, x, additive), strict=True):
        close(found, reference)


@pytest.mark.parametrize("equation", ["bqhd,bkd->bqhk", "bqhd,bkd->bhqk", "bqhd,bkd->hqbk"])
def test_keys_and_values_shared_by_all_heads(run: Any, close: Any, equation: str) -> None:
    """As many heads as samples, and a head axis that only the queries have."""
    generator = torch.Generator().manual_seed(2)
    q, (k, v) = torch.randn(3, 5, 3, D, generator=generator), torch.randn(2, 3, 5, D, generator=generator)
    out = equation.partition("->")[2]

    class Shared(nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return torch.einsum(f"{out},bkd->bqhd", torch.einsum(equation, q, k).softmax(-1), v)

    heads = torch.einsum("bqhd,bkd->bhqk", q.double(), k.double()).softmax(-1)
    if out == "hqbk":  # both leading axes have the size of the batch: the first one is taken for it
        heads = heads.transpose(0, 1)
    close(run.maps(Shared(), q, k, v, options={"batch_size": 3})["Shared"], heads.mean(1))


def test_without_a_batch(run: Any, close: Any) -> None:
    class Unbatched(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.softmax(x @ x.T, -1) @ x

    x = torch.randn(T, D, generator=torch.Generator().manual_seed(3))
    close(run.maps(Unbatched(), x)["Unbatched"], (x.double() @ x.double().T).softmax(-1)[None])


def test_a_positional_attention_is_shared_by_all_samples(run: Any, close: Any, x: Tensor) -> None:
    class Positional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scores = nn.Parameter(torch.linspace(-1, 1, T * T).view(T, T).sin())

        def forward(self, x: Tensor) -> Tensor:
            return self.scores.softmax(-1) @ x

    model = Positional()
    maps = run.maps(model, x, options={"batch_size": B})["Positional"]
    close(maps, model.scores.detach().double().softmax(-1).expand(B, T, T))


@pytest.mark.parametrize("autocast", [True, False])
def test_half_precision_is_recorded_as_the_model_has_it(run: Any, close: Any, x: Tensor, autocast: bool) -> None:
    seen: list[Tensor] = []

    def softmax(scores: Tensor) -> Tensor:
        seen.append(scores.softmax(-1))
        return seen[-1]

    def forward(x: Tensor) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            return model(x)

    model = Model(with_softmax(softmax))
    if not autocast:
        model, x = model.bfloat16(), x.bfloat16()
    maps = run.maps(model, x, forward=forward)
    for found, probabilities in zip(maps.values(), seen[-2:], strict=True):
        assert probabilities.dtype == torch.bfloat16
        close(found, probabilities.double().mean(1))
