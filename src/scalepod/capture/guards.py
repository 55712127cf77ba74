"""A forward pass that leaves no trace: whatever it changes in a module or in a random generator is put back."""

import random
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
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
    dictionaries, sets and deques (to any depth, and also modules and metrics kept in them); and the values of
    tensors that changed in place: buffers, plain tensor attributes and the states of metrics. State inside other
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
    """The containers and tensors that are reachable from a module, with what was in them."""

    def __init__(self, module: nn.Module) -> None:
        self._containers: list[tuple[Any, list[Any]]] = []
        self._tensors: list[tuple[Tensor, Tensor, int]] = []  # with a copy, and the version it was taken of
        self._seen: set[int] = set()
        pending: list[Any] = [module]
        while pending:
            pending.extend(self._visit(pending.pop()))

    def _visit(self, thing: Any) -> Iterable[Any]:
        """Keep what is in one thing; returns the things below it."""
        if isinstance(thing, Tensor) and is_lazy(thing):
            raise ValueError("the module has parameters that are not initialized: run it once on a batch first")
        if isinstance(thing, tuple):
            return thing
        if id(thing) in self._seen or not isinstance(thing, (nn.Module, *_CONTAINERS)):
            return ()
        self._seen.add(id(thing))
        if isinstance(thing, nn.Module):
            for value in (*vars(thing).values(), *thing._buffers.values()):
                self._keep_tensor(value)
            return (vars(thing),)
        items = _items(thing)
        self._containers.append((thing, items))
        return (value for _, value in items) if isinstance(thing, dict) else items

    def _keep_tensor(self, value: Any) -> None:
        if isinstance(value, Tensor) and not isinstance(value, nn.Parameter) and id(value) not in self._seen:
            self._seen.add(id(value))
            if not is_lazy(value) and not value.is_meta:
                self._tensors.append((value, value.detach().clone(), _version(value)))

    def restore(self) -> None:
        """Put everything back; what did not change is not touched."""
        for container, before in self._containers:
            if not _same(_items(container), before):
                _refill(container, before)
        for tensor, copy, version in self._tensors:
            if _version(tensor) != version or not torch.equal(tensor, copy):
                _overwrite(tensor, copy)


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


def _overwrite(tensor: Tensor, copy: Tensor) -> None:
    with torch.inference_mode(tensor.is_inference()), torch.no_grad():
        if tensor.shape == copy.shape:
            tensor.copy_(copy)
        else:  # resized in place
            tensor.data = copy
