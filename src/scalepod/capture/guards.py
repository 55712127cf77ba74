"""A forward pass that leaves no trace: whatever it changes in a module or in a random generator is put back."""

import random
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy


@contextmanager
def held_out(module: nn.Module, device: torch.device | str | None = None) -> Iterator[None]:
    """Run a forward pass as if it had not happened.

    Gradients are off (without inference mode: a cache built under it would break later training), every module is in
    eval mode, and on leaving, also by an exception, everything is as before: the random state, each module's own
    training flag, its buffers, metrics, attributes and lists.

    Args:
        module: the module that will run.
        device: where it runs; the random generator of this accelerator is kept too.

    Raises:
        ValueError: a parameter is not initialized yet, and the forward pass would do so.
    """
    with ExitStack() as stack:
        stack.enter_context(preserve_rng(device))
        stack.enter_context(preserve_state(module))
        stack.enter_context(eval_mode(module))
        stack.enter_context(torch.no_grad())
        yield


@contextmanager
def preserve_rng(device: torch.device | str | None = None) -> Iterator[None]:
    """Put back the random state of Python, NumPy and torch: the CPU's and that of the accelerator ``device``."""
    device = torch.device("cpu") if device is None else torch.device(device)
    # the legacy global generator is the one that user code and torch's workers draw from
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    accelerator = None
    if device.type == "cuda":
        accelerator = torch.cuda.get_rng_state(device)
    elif device.type == "mps":
        accelerator = torch.mps.get_rng_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        torch.set_rng_state(states[2])
        if accelerator is not None:
            if device.type == "cuda":
                torch.cuda.set_rng_state(accelerator, device)
            else:
                torch.mps.set_rng_state(accelerator)


@contextmanager
def eval_mode(module: nn.Module) -> Iterator[None]:
    """Put every module in eval mode, and give each its own flag back.

    The flag is set directly: ``train()`` may be overridden, and would thaw the parts that a user keeps in eval mode.
    """
    flags = [(part, part.training) for part in module.modules()]
    for part, _ in flags:
        part.training = False
    try:
        yield
    finally:
        for part, training in flags:
            part.training = training


@contextmanager
def preserve_state(module: nn.Module) -> Iterator[None]:
    """Put back what a forward pass changes in a module and in everything below it, parameters excepted.

    That is: attributes, buffers and hooks that were set, replaced, added or removed; the contents of lists,
    dictionaries, sets and deques (to any depth, and also modules and metrics kept in them); the values of tensors
    and arrays that changed in place, wherever they are kept; and the state of random generators. State inside other
    objects of one's own (a cache object, a file) is out of reach.

    Raises:
        ValueError: a parameter is not initialized yet (a lazy module), and the forward pass would do so.
    """
    snapshot = _Snapshot(module)
    try:
        yield
    finally:
        snapshot.restore()


class _Snapshot:
    """What is reachable from a module and can change in place, with a way back for each thing."""

    def __init__(self, module: nn.Module) -> None:
        self._ways_back: list[Callable[[], Any]] = []
        self._seen: set[int] = set()
        self._kept: list[Any] = []  # alive, so that no other thing takes the id of one that was seen
        pending: list[Any] = [module]
        while pending:
            pending.extend(self._visit(pending.pop()))

    def _visit(self, thing: Any) -> Iterable[Any]:
        """Keep what is in one thing; returns the things below it."""
        if isinstance(thing, Tensor) and is_lazy(thing):
            raise ValueError("the module has parameters that are not initialized: run it once on a batch first")
        if isinstance(thing, tuple):
            return thing
        if id(thing) in self._seen or isinstance(thing, nn.Parameter):
            return ()
        self._seen.add(id(thing))
        self._kept.append(thing)
        if isinstance(thing, nn.Module):
            return (vars(thing),)
        if isinstance(thing, _CONTAINERS):
            items = _items(thing)
            self._ways_back.append(partial(_refill, thing, items))
            return (value for _, value in items) if isinstance(thing, dict) else items
        if (way_back := _way_back(thing)) is not None:
            self._ways_back.append(way_back)
        return ()

    def restore(self) -> None:
        """Put everything back; what did not change is not touched.

        Raises:
            Exception: the first of the errors that came up, after everything else was put back.
        """
        errors: list[Exception] = []
        for way_back in self._ways_back:
            try:
                way_back()
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]


def _way_back(thing: Any) -> Callable[[], Any] | None:
    """How to give a tensor, an array or a random generator its present state again; None for anything else."""
    if isinstance(thing, Tensor):
        return None if thing.is_meta else partial(_reset_tensor, thing, thing.detach().clone(), _version(thing))
    if isinstance(thing, np.ndarray):
        return partial(np.copyto, thing, thing.copy()) if thing.flags.writeable else None
    if isinstance(thing, torch.Generator):
        return partial(thing.set_state, thing.get_state())
    if isinstance(thing, np.random.Generator):
        return partial(setattr, thing.bit_generator, "state", thing.bit_generator.state)
    if isinstance(thing, np.random.RandomState):
        return partial(thing.set_state, thing.get_state())
    if isinstance(thing, random.Random):
        return partial(thing.setstate, thing.getstate())
    return None


_CONTAINERS = (dict, list, set, deque)


def _items(container: Any) -> list[Any]:
    return list(container.items() if isinstance(container, dict) else container)


def _same(now: list[Any], before: list[Any]) -> bool:
    """Whether two lists hold the same objects; the pairs of a dictionary count as their two objects."""
    if len(now) != len(before):
        return False
    return all(
        a[0] is b[0] and a[1] is b[1] if type(a) is type(b) is tuple and len(a) == len(b) == 2 else a is b
        for a, b in zip(now, before, strict=True)
    )


def _refill(container: Any, before: list[Any]) -> None:
    """Give a container its contents back, if they are others now."""
    if _same(_items(container), before):
        return
    if isinstance(container, dict):
        kind: Any = OrderedDict if isinstance(container, OrderedDict) else dict  # past what a subclass may forbid
        kind.clear(container)
        for key, value in before:
            kind.__setitem__(container, key, value)
        return
    container.clear()
    (container.update if isinstance(container, set) else container.extend)(before)


def _version(tensor: Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version  # inference tensors do not count their versions


def _reset_tensor(tensor: Tensor, copy: Tensor, version: int) -> None:
    """Overwrite a tensor with its copy, if it changed."""
    if _version(tensor) == version and _equal(tensor, copy):
        return
    with torch.inference_mode(tensor.is_inference()), torch.no_grad():
        if tensor.shape == copy.shape:
            tensor.copy_(copy)
        else:  # resized in place
            tensor.data = copy


def _equal(tensor: Tensor, copy: Tensor) -> bool:
    """Whether the values are the same, NaN being the same as NaN; layouts that cannot be compared go by the version."""
    if tensor.layout != torch.strided or tensor.is_quantized:
        return True
    return torch.equal(tensor, copy) or bool(((tensor == copy) | (tensor.isnan() & copy.isnan())).all())
