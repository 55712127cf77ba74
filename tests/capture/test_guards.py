"""A held-out forward pass leaves no trace in the module or in a random generator, also when it fails."""

import random
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torchmetrics
from torch import Tensor, nn

from scalepod.capture import held_out
from scalepod.capture.guards import eval_mode, preserve_rng, preserve_state


class Strict(OrderedDict[str, int]):
    """A dictionary that may not be updated, like the outputs of Hugging Face models."""

    def update(self, *args: Any, **kwargs: Any) -> None:
        raise TypeError("no updates")


class Busy(nn.Module):
    """Changes whatever a module can change while it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.dropout = nn.Dropout(0.5)
        self.accuracy = torchmetrics.MeanMetric()
        self.values = torchmetrics.CatMetric()
        self.metrics = torchmetrics.MetricCollection(
            [torchmetrics.MeanSquaredError(), torchmetrics.MeanAbsoluteError()]
        )
        self.hidden = {"metrics": [torchmetrics.SumMetric()], "model": (nn.BatchNorm1d(3),)}
        self.register_buffer("in_place", torch.zeros(3))
        self.register_buffer("replaced", torch.zeros(3))
        self.register_buffer("resized", torch.zeros(3))
        self.register_buffer("removed", torch.zeros(3))
        self.register_buffer("empty", None)
        self.plain = torch.zeros(3)
        self.step = 0
        self.outputs: list[Tensor] = [torch.zeros(1)]
        self.nested: dict[str, Any] = {"lists": [[1], [2]], "set": {1}, "deque": deque([1], maxlen=2)}
        self.ordered = OrderedDict(a=1, b=2)
        self.strict = Strict(a=1)
        self.to_delete = 1

    def forward(self, x: Tensor) -> Tensor:
        self.norm.train()
        y = self.dropout(self.norm(x))
        self.hidden["model"][0].train()(x)
        self.accuracy(x.mean())
        self.values.update(x)
        self.metrics(x, y)
        self.hidden["metrics"][0].update(x)
        self.in_place += 1
        self.replaced = self.replaced + 1
        self.resized.resize_(5).fill_(2)
        del self.removed
        self.empty = torch.ones(3)
        self.register_buffer("added", torch.ones(3))
        self.plain.data.add_(1)
        self.step += 1
        self.last = y
        self.outputs.append(y)
        self.nested["lists"][0].append(3)
        self.nested["new"] = y
        self.nested["set"].add(2)
        self.nested["deque"].extend([2, 3])
        self.ordered.move_to_end("a")
        OrderedDict.__setitem__(self.strict, "a", 2)
        del self.to_delete
        self.register_forward_hook(lambda *args: None)
        random.random()
        np.random.rand()  # noqa: NPY002
        return y


def picture(thing: Any) -> Any:
    """Everything in a module as plain values, in order, to be compared with ==."""
    if isinstance(thing, Tensor):
        return thing.tolist()
    if isinstance(thing, nn.Module):
        return picture(
            {name: value for name, value in vars(thing).items() if not callable(value) or isinstance(value, nn.Module)}
        )
    if isinstance(thing, dict):
        return [(key, picture(value)) for key, value in thing.items()]
    if isinstance(thing, list | tuple | deque):
        return [picture(item) for item in thing]
    return repr(thing) if not isinstance(thing, int | float | str | None) else thing


def states() -> list[Any]:
    return [random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()]  # noqa: NPY002


@pytest.fixture
def x() -> Tensor:
    return torch.randn(4, 3, generator=torch.Generator().manual_seed(0))


def test_the_module_is_as_it_was(x: Tensor) -> None:
    model = Busy()
    model.accuracy.update(x.mean())
    model.norm.eval()
    before, kept = picture(model), list(model.outputs)
    random_before = states()
    with held_out(model):
        model(x)
        assert picture(model) != before
    assert picture(model) == before
    assert states() == random_before
    assert all(a is b for a, b in zip(model.outputs, kept, strict=True))
    assert list(model.state_dict()) == list(Busy().state_dict())


def test_also_when_the_forward_pass_fails(x: Tensor) -> None:
    class Fails(Busy):
        def forward(self, x: Tensor) -> Tensor:
            super().forward(x)
            raise ZeroDivisionError("in the model")

    model = Fails()
    before, random_before = picture(model), states()
    with pytest.raises(ZeroDivisionError), held_out(model):
        model(x)
    assert picture(model) == before
    assert states() == random_before


def test_every_module_gets_its_own_flag_back(x: Tensor) -> None:
    class Stubborn(nn.Linear):
        def train(self, mode: bool = True) -> Any:
            raise AssertionError("not to be called")

    model = nn.Sequential(nn.Dropout(0.5), nn.Sequential(nn.BatchNorm1d(3).eval(), nn.Dropout(0.5)), Stubborn(3, 3))
    flags = [module.training for module in model.modules()]
    assert len(set(flags)) == 2
    with eval_mode(model):
        assert not any(module.training for module in model.modules())
        model(x)
    assert [module.training for module in model.modules()] == flags


def test_gradients_are_off_without_inference_mode(x: Tensor) -> None:
    model = nn.Linear(3, 3)
    with held_out(model):
        out = model(x)
    assert not out.requires_grad
    assert not out.is_inference()
    assert torch.is_grad_enabled()


def test_what_did_not_change_is_not_written_to(x: Tensor) -> None:
    """A buffer that autograd has saved for a backward pass may not count a new version."""
    model = nn.BatchNorm1d(3)
    saved = model.running_mean * torch.ones(3, requires_grad=True)
    version = model.running_mean._version
    with held_out(model):
        model(x)
    assert model.running_mean._version == version
    saved.sum().backward()


def test_buffers_made_in_inference_mode(x: Tensor) -> None:
    model = nn.Module()
    with torch.inference_mode():
        model.register_buffer("cache", torch.zeros(3))
    with preserve_state(model), torch.inference_mode():
        model.cache += 1
    assert model.cache.tolist() == [0, 0, 0]


def test_a_lazy_module_is_refused(x: Tensor) -> None:
    model = nn.Sequential(nn.LazyLinear(3))
    with (
        pytest.raises(ValueError, match="parameters that are not initialized: run it once on a batch first"),
        held_out(model),
    ):
        model(x)


def test_a_module_that_contains_itself(x: Tensor) -> None:
    model = nn.Linear(3, 3)
    model.__dict__["myself"] = [model]
    model.myself.append(model.myself)
    with held_out(model):
        model.myself.append(1)
    assert len(model.myself) == 2


@pytest.mark.parametrize("draw", [torch.rand, np.random.rand, lambda n: random.random()])
def test_random_states(draw: Callable[[int], Any]) -> None:
    torch.manual_seed(0)
    with preserve_rng():
        first = draw(1)
    assert first == draw(1)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_random_state_of_the_accelerator() -> None:
    with preserve_rng("cuda"):
        first = torch.rand(3, device="cuda")
    assert torch.equal(first, torch.rand(3, device="cuda"))


class Keeper(nn.Module):
    """Keeps state of its own of every kind, and changes all of it in each forward pass."""

    def __init__(self):
        super().__init__()
        self.cache, self.pair, self.table = [torch.zeros(3)], (torch.zeros(3),), {"w": torch.zeros(3)}
        self.generator = torch.Generator().manual_seed(0)
        self.rng, self.old_rng = np.random.default_rng(0), np.random.RandomState(0)
        self.python, self.array = random.Random(0), np.zeros(3)
        self.register_buffer("holes", torch.tensor([torch.nan, 1.0]))
        self.register_buffer("sparse", torch.eye(3).to_sparse())
        self.register_buffer("count", torch.zeros(()))

    def forward(self):
        for tensor in (self.cache[0], self.pair[0], self.table["w"], self.count):
            tensor.add_(1)
        self.array += 1
        self.sparse.mul_(2)

    def draws(self):
        return (
            torch.rand(2, generator=self.generator).tolist(),
            self.rng.random(),
            self.old_rng.random_sample(),
            self.python.random(),
        )


def test_tensors_in_containers_arrays_and_private_generators_are_put_back():
    keeper, untouched = Keeper(), Keeper()
    version = keeper.holes._version
    with held_out(keeper):
        keeper()
        keeper.draws()
    for tensor in (keeper.cache[0], keeper.pair[0], keeper.table["w"], keeper.count):
        assert not tensor.any()
    assert not keeper.array.any()
    assert torch.equal(keeper.sparse.to_dense(), torch.eye(3))
    assert keeper.draws() == untouched.draws()
    assert keeper.holes._version == version  # NaN is not a change


def test_one_thing_that_cannot_be_put_back_does_not_stop_the_rest():
    class Sealing(Keeper):
        def forward(self):
            super().forward()
            self.array.flags.writeable = False

    keeper = Sealing()
    with pytest.raises(ValueError, match="read-only"), held_out(keeper):
        keeper()
    assert not keeper.count.any()
    assert not keeper.cache[0].any()
