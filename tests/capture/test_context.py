"""Names, choice of layers, declared attention, repeated calls, and what a capture leaves behind: nothing."""

import copy
import gc
import pickle
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tiny import Chain
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from scalepod.capture import AttentionProbe, capture_attention, held_out, record_attention

B, T, C = 2, 5, 4


class Layer(nn.Module):
    """Attention without projections: easy to know."""

    def forward(self, x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(x, x, x)


class Declared(nn.Module):
    """Computes two maps and declares a third; what it calls below is not its attention either."""

    def __init__(self, probe: bool) -> None:
        super().__init__()
        self.probe = AttentionProbe() if probe else record_attention
        self.below = Layer()

    def forward(self, x: Tensor) -> Tensor:
        F.scaled_dot_product_attention(x, x, x)
        self.below(x)
        self.probe(torch.full((B, 3, T, T), 1 / T))
        return (x @ x.mT).softmax(-1) @ x


@pytest.fixture
def x() -> Tensor:
    return torch.randn(B, T, C, generator=torch.Generator().manual_seed(0))


def test_layers_are_named_by_their_path_in_the_order_of_the_calls(run: Any, x: Tensor) -> None:
    class Backwards(Chain):
        def forward(self, x: Tensor) -> Tensor:
            for layer in reversed(self.layers):
                x = layer.forward(x)  # which runs no hooks
            return x

    assert list(run.maps(Backwards(Layer(), Layer()), x)) == ["layers.1", "layers.0"]


def test_the_model_itself_goes_by_its_class_name(run: Any, x: Tensor) -> None:
    assert list(run.maps(Layer(), x)) == ["Layer"]
    compiled = torch.compile(Layer(), backend="eager")
    with torch.no_grad(), capture_attention(compiled) as record:
        compiled(x)
    assert list(record.result()) == ["Layer"]


def test_a_function_that_is_given_a_module_belongs_to_it(run: Any, x: Tensor) -> None:
    def attend(module: nn.Module, x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(x, x, x)

    class Outer(Chain):
        def forward(self, x: Tensor) -> Tensor:
            return attend(self.layers[0], x)

    assert list(run.maps(Outer(nn.Identity()), x)) == ["layers.0"]


def test_shared_weights_are_numbered(run: Any, close: Any, x: Tensor) -> None:
    layer = Layer()
    maps = run.maps(Chain(layer, layer, Layer()), x)
    assert list(maps) == ["layers.0#0", "layers.0#1", "layers.2"]
    y = x.double()
    for found in maps.values():
        expected = (y @ y.mT / C**0.5).softmax(-1)
        close(found, expected)
        y = expected @ y


@pytest.mark.parametrize("probe", [False, True])
def test_a_declared_map_outranks_what_was_found_there_and_below(run: Any, x: Tensor, probe: bool) -> None:
    record = run(Chain(Layer(), Declared(probe)), x)
    assert record.source == {"layers.0": "sdpa", "layers.1": "declared"}
    assert torch.allclose(record.result()["layers.1"], torch.full((B, T, T), 1 / T))
    assert record.notes == ["layers.1: its declared attention takes the place of what was found in layers.1.below"]


def test_what_the_model_itself_declares_outranks_everything(run: Any, x: Tensor) -> None:
    class Outer(Chain):
        def forward(self, x: Tensor) -> Tensor:
            return record_attention(torch.eye(T).expand(B, T, T)) @ super().forward(x)

    assert list(run.maps(Outer(Layer()), x)) == ["Outer"]


def test_a_declaration_outside_of_a_capture_does_nothing() -> None:
    probs = torch.zeros(3)
    assert record_attention(probs) is probs
    assert AttentionProbe()(probs) is probs


@pytest.mark.parametrize(
    ("include", "exclude", "kept"),
    [
        (None, (), ["layers.0", "layers.1", "layers.2"]),
        ("*.1", (), ["layers.1"]),
        (["*.0", "layers.2"], (), ["layers.0", "layers.2"]),
        (None, "*.0", ["layers.1", "layers.2"]),
        ("layers.*", ["*.0", "*.1"], ["layers.2"]),
    ],
)
def test_include_and_exclude(run: Any, x: Tensor, include: Any, exclude: Any, kept: list[str]) -> None:
    model = Chain(Layer(), Layer(), Layer())
    record = run(model, x, options={"include": include, "exclude": exclude})
    assert list(record.result()) == kept
    assert record.notes == []


@pytest.mark.parametrize("heads", ["mean", "each"])
def test_reduce_is_applied_to_every_map(run: Any, x: Tensor, heads: str) -> None:
    x = torch.stack([x, 2 * x], 1)  # two heads
    full = run.maps(Chain(Layer(), Layer()), x, options={"heads": heads})
    reduced = run.maps(Chain(Layer(), Layer()), x, options={"heads": heads, "reduce": lambda maps: maps.mean(0)})
    assert list(full) == list(reduced)
    assert len(full) == (2 if heads == "mean" else 4)
    assert all(torch.equal(full[name].mean(0), reduced[name]) for name in full)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("use_reentrant", [False, True])
def test_activation_checkpointing(run: Any, x: Tensor, use_reentrant: bool) -> None:
    class Checkpointed(Chain):
        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = checkpoint(layer, x, use_reentrant=use_reentrant)
            return x

    plain = run.maps(Chain(Layer(), Layer()), x)
    maps = run.maps(Checkpointed(Layer(), Layer()), x)
    assert list(maps) == ["layers.0", "layers.1"]
    assert all(torch.equal(maps[name], plain[name]) for name in plain)


def test_functional_call(run: Any, close: Any, x: Tensor) -> None:
    class Scaled(Layer):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x * self.scale)

    model = Scaled()
    y = 2 * x.double()
    parameters = {"scale": torch.tensor(2.0)}
    maps = run.maps(model, x, forward=lambda x: torch.func.functional_call(model, parameters, (x,)))
    close(maps["Scaled"], (y @ y.mT / C**0.5).softmax(-1))


def test_a_training_step_can_be_captured_too(x: Tensor) -> None:
    x.requires_grad_()
    with capture_attention(Layer()) as record:
        out = record_attention(F.scaled_dot_product_attention(x, x, x))
        out = Layer()(x)
    out.sum().backward()
    assert x.grad is not None
    assert record.notes == ["an attention outside of the model's modules was left out"]

    model = Chain(Layer())
    with capture_attention(model) as record:
        model(x)
    assert not record.result()["layers.0"].requires_grad


def test_two_captures_of_two_models_at_once(x: Tensor) -> None:
    teacher, student = Chain(Layer()), Chain(Layer(), Layer())
    with torch.no_grad(), capture_attention(teacher) as first, capture_attention(student) as second:
        teacher(x)
        student(x)
    assert list(first.result()) == ["layers.0"]
    assert list(second.result()) == ["layers.0", "layers.1"]


def attributes(model: nn.Module) -> list[list[str]]:
    return [sorted(vars(module)) for module in model.modules()]


def test_nothing_is_left_behind(x: Tensor) -> None:
    model = Chain(Layer(), Declared(probe=True), nn.TransformerEncoderLayer(C, 2, 8, batch_first=True))
    before, pickled = attributes(model), pickle.dumps(model)
    sdpa = F.scaled_dot_product_attention
    for _ in range(3):
        with held_out(model), capture_attention(model) as record:
            model(x)
    assert attributes(model) == before
    assert all(not module._forward_hooks and not module._forward_pre_hooks for module in model.modules())
    assert pickle.dumps(model) == pickled
    assert F.scaled_dot_product_attention is sdpa
    copy.deepcopy(model)(x)
    pickle.loads(pickle.dumps(record))


def test_memory_stays_flat(x: Tensor) -> None:
    model = Chain(Layer(), Declared(probe=True), nn.TransformerEncoderLayer(C, 2, 8, batch_first=True))

    def capture() -> None:
        with held_out(model), capture_attention(model) as record:
            model(x)
        assert len(record.result()) == 3

    counts = []
    for _ in range(4):
        for _ in range(20):
            capture()
        gc.collect()
        counts.append(sum(Tensor in type(thing).__mro__ for thing in gc.get_objects()))
    assert counts[1] == counts[2] == counts[3]


def test_a_failing_forward_ends_the_capture(x: Tensor) -> None:
    class Fails(Chain):
        def forward(self, x: Tensor) -> Tensor:
            super().forward(x)
            raise ZeroDivisionError("in the model")

    model = Fails(Layer())
    with pytest.raises(ZeroDivisionError, match="in the model"), capture_attention(model) as record:
        model(x)
    assert len(record.result()) == 1
    with torch.no_grad():
        model.layers[0](x)
        record_attention(torch.eye(T))
    assert len(record.result()) == 1
