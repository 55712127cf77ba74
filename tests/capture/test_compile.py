"""Compiled models: captured, and the compiled code stays the one that was there."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend

from scalepod.capture import capture_attention, held_out, record_attention

B, T, C, H = 2, 6, 8, 2


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(C, 3 * C)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, H, -1).permute(2, 0, 3, 1, 4)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.1 if self.training else 0.0)
        return x + out.transpose(1, 2).reshape(x.shape)


class WrittenOut(Layer):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, H, -1).permute(2, 0, 3, 1, 4)
        scores = (q @ k.mT).masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), float("-inf"))
        return x + (scores.softmax(-1) @ v).transpose(1, 2).reshape(x.shape)


class Declared(WrittenOut):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, H, -1).permute(2, 0, 3, 1, 4)
        return x + (record_attention((q @ k.mT).softmax(-1)) @ v).transpose(1, 2).reshape(x.shape)


class Model(nn.Module):
    def __init__(self, kind: type[Layer] = Layer) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(kind() for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def whole(model: Model, backend: Any) -> Any:
    return torch.compile(model, backend=backend)


def in_place(model: Model, backend: Any) -> Model:
    model.compile(backend=backend)
    return model


def submodules(model: Model, backend: Any) -> Model:
    for i, layer in enumerate(model.layers):
        model.layers[i] = torch.compile(layer, backend=backend)
    return model


def submodules_in_place(model: Model, backend: Any) -> Model:
    for layer in model.layers:
        layer.compile(backend=backend)
    return model


def the_forward(model: Model, backend: Any) -> Model:
    model.forward = torch.compile(model.forward, backend=backend)
    return model


WAYS = [whole, in_place, submodules, submodules_in_place, the_forward]
INDUCTOR_WARNS = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of its own imports
BACKENDS = ["eager", "aot_eager", pytest.param("inductor", marks=[pytest.mark.slow, INDUCTOR_WARNS])]


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def train(model: Any, x: Tensor, capture: bool, counter: CompileCounterWithBackend) -> tuple[list[Tensor], list[int]]:
    """Losses and weights of a few steps, and the number of graphs after each; with a capture after each or not."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(1)
    values, graphs = [], []
    for _ in range(3):
        model.train()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        values.append(loss.detach())
        if capture:
            with held_out(model), capture_attention(model) as record:
                model(x)
            assert list(record.result()) == ["layers.0", "layers.1"]
            assert record.notes == []
        graphs.append(counter.frame_count)
    return [*values, *(p.detach().clone() for p in model.parameters())], graphs


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_training_stays_compiled_and_the_same(way: Callable[..., Any], backend: str) -> None:
    x = torch.randn(B, T, C, generator=torch.Generator().manual_seed(2))
    found = {}
    for capture in (False, True):
        torch.compiler.reset()
        counter = CompileCounterWithBackend(backend)
        found[capture] = train(way(Model(), counter), x, capture, counter)
    assert found[True][1] == found[False][1]
    assert found[True][1][0] == found[True][1][-1] >= 1
    assert all(torch.equal(a, b) for a, b in zip(found[True][0], found[False][0], strict=True))


@pytest.mark.parametrize("kind", [Layer, WrittenOut, Declared])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_the_maps_are_those_of_the_plain_model(way: Callable[..., Any], kind: type[Layer]) -> None:
    x = torch.randn(B, T, C, generator=torch.Generator().manual_seed(2))
    plain, compiled = Model(kind), way(Model(kind), "eager")
    maps = []
    for model in (plain, compiled):
        with held_out(model), capture_attention(model) as record:
            model(x)
        maps.append(record.result())
    assert list(maps[0]) == list(maps[1])
    assert all(torch.equal(a, b) for a, b in zip(maps[0].values(), maps[1].values(), strict=True))


def test_a_declaration_costs_no_graph_break() -> None:
    counter = CompileCounterWithBackend("eager")
    model = torch.compile(Model(Declared), backend=counter, fullgraph=True)
    model(torch.zeros(B, T, C))
    assert counter.frame_count == 1
