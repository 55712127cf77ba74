"""Attention that a model writes out itself: the softmax is followed to the product with the values.

Between the two anything may happen: gates, renormalisation, thresholds, sinks, views, dropout. What is recorded is the
operand that is multiplied with the values in the end. To know it when it comes, a trace travels with every tensor on
the way and says what its axes are.
"""

from collections.abc import Callable, Iterable, Iterator, MutableMapping
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from .axes import RESHAPES, Origins, origins
from .guards import preserve_rng
from .products import Product, product_of, spread_product
from .record import AttentionRecord
from .trace import Trace, trace_of_product

SOFTMAX: frozenset[Callable[..., Any]] = frozenset(
    {
        F.softmax,
        F.softmin,
        torch.softmax,
        torch.special.softmax,
        Tensor.softmax,
        torch.ops.aten.softmax.int,
        torch.ops.aten._softmax.default,
    }
)
DROPOUT: frozenset[Callable[..., Any]] = frozenset({F.dropout, torch.dropout, torch.dropout_})
MULTIPLY: frozenset[Callable[..., Any]] = frozenset({torch.mul, Tensor.mul, Tensor.__mul__, Tensor.__rmul__})
REDUCE: frozenset[Callable[..., Any]] = frozenset({torch.sum, torch.mean, Tensor.sum, Tensor.mean})
FEATURES: frozenset[Callable[..., Any]] = frozenset({F.embedding, F.layer_norm, F.rms_norm})
"""Operations whose result has features along its last axis."""
UNRELATED: frozenset[Callable[..., Any]] = frozenset({torch.ones_like, torch.rand_like, torch.randn_like})
"""Operations that take nothing but the shape of their operand."""

Function = Callable[..., Any]


class SoftmaxFollower:
    """Runs the operations of a forward pass as they are, and follows softmax outputs through them."""

    def __init__(self, record: AttentionRecord) -> None:
        self._record = record
        self._traces: MutableMapping[Tensor, Trace] = WeakTensorKeyDictionary()

    def run(self, func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of ``func(*args, **kwargs)``, which does not change, and does not fail, for being followed."""
        undropped = self._before_dropout(*args, **kwargs) if func in DROPOUT else None
        result = func(*args, **kwargs)
        try:
            if undropped is not None:
                self._traces[result] = replace(self._traces[args[0]], clean=undropped)
            else:
                self._follow(func, args, kwargs, result)
        except Exception as error:
            name = getattr(func, "__name__", str(func))
            self._record.note(f"a softmax could not be followed through {name} ({type(error).__name__}: {error})")
        return result

    def _follow(self, func: Function, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        if func in SOFTMAX:
            self._softmax(args[0] if args else kwargs["input"], kwargs.get("dim", *args[1:2]), result)
            return
        operands = [] if func in UNRELATED else [t for t in _tensors((*args, *kwargs.values())) if t in self._traces]
        clean = self._without_dropout(func, args, kwargs, operands)
        outs = list(_tensors((result,)))
        product = product_of(func, args, kwargs)
        if product is not None:
            self._product(product, result)
        elif func is Tensor.__setitem__ and operands:
            self._assigned(*args)
        elif func in FEATURES and not any(self._traces[t].may_be_keys for t in operands):
            self._traces[result] = Trace(features=frozenset({result.dim() - 1}))
        elif operands:
            for out in outs:
                self._elementwise(func, args, kwargs, operands, out)
        for out, undropped in zip(outs, clean, strict=False):
            if out in self._traces:
                self._traces[out] = replace(self._traces[out], clean=undropped)

    # ------------------------------------------------------------------ the softmax, and the product with the values

    def _softmax(self, scores: Tensor, axis: int | None, result: Tensor) -> None:
        if axis is None:
            return
        trace = self._traces.get(scores, Trace()).after_softmax(axis % scores.dim(), self._record.running())
        self._traces[result] = trace
        self._record.met_softmax(trace.layer, used=False)

    def _product(self, product: Product, result: Tensor) -> None:
        traces = [self._traces.get(t) for t in product.operands]
        candidates = [(i, axis) for i, trace in enumerate(traces) if trace is not None for axis in trace.may_be_keys]
        for i, axis in candidates:
            if product.axes[i][axis] not in product.out and self._applied(product, traces, i, axis):
                return
        trace = trace_of_product(product, traces)
        if trace.says_something:
            self._traces[result] = trace

    def _applied(self, product: Product, traces: list[Trace | None], i: int, axis: int) -> bool:
        """Whether operand i holds probabilities that are multiplied with values along an axis; if so, take them."""
        trace, axes = traces[i], product.axes[i]
        partners = product.partners(i, axes[axis])
        if trace is None or not partners or i == product.learned:
            return False
        if not all(_is_value(product, traces[j], j, axes[axis]) for j in partners):
            return False
        query = _query_axis(product, trace, i, axis)
        if query is None or not trace.features.isdisjoint((axis, query)):
            return False
        lead = [other for other in range(len(axes)) if other not in (axis, query)]
        weights = product.operands[i] if trace.clean is None else trace.clean
        probs = weights.detach().permute(*lead, query, axis)
        if trace.key is None and not _is_stochastic(probs):
            return False
        own = [letter for letter in product.out if letter not in axes]
        if len(own) > 1 and product.out[0] in own:  # the samples share a map and have their own values
            probs = probs.expand(product.size(own[0]), *probs.shape)
        layer = self._record.running()
        if layer is None or trace.used_in != layer:
            self._record.take("softmax", probs)
            self._traces[product.operands[i]] = replace(trace, used_in=layer)
        self._record.met_softmax(trace.layer, used=True)
        return True

    # ------------------------------------------------------------------ everything on the way

    def _elementwise(
        self, func: Function, args: tuple[Any, ...], kwargs: dict[str, Any], operands: list[Tensor], out: Tensor
    ) -> None:
        """Hand a trace on to a result: of probabilities, else of scores, else of anything."""
        if not out.is_floating_point():
            return
        best = max(operands, key=lambda t: (self._traces[t].key is not None, bool(self._traces[t].free)))
        trace = self._traces[best]
        if func in REDUCE and trace.spread is not None and trace.key in _axes_of_reduction(args, kwargs, best.dim()):
            gone = _axes_of_reduction(args, kwargs, best.dim())
            rest = "".join(letter for axis, letter in enumerate(trace.spread.out) if axis not in gone)
            self._product(replace(trace.spread, out=rest), out)
            return
        where = _where(func, args, kwargs, best, out)
        moved = None if where is None else trace.moved(where)
        if moved is None or not moved.says_something:
            return
        if func in MULTIPLY and moved.key is not None and best.shape != out.shape:
            moved = replace(moved, spread=self._spread(best, trace, args, out))
        self._traces[out] = moved

    def _spread(self, weights: Tensor, trace: Trace, args: tuple[Any, ...], out: Tensor) -> Product | None:
        values = [t for t in _tensors(args) if t is not weights]
        if len(values) != 1:
            return None
        product = spread_product(weights, values[0], out)
        narrow = product.operands[0]
        where = origins(weights, narrow, reshaped=False)
        if where is not None:
            self._traces[narrow] = replace(trace.moved(where), clean=trace.clean)
        return product

    def _assigned(self, buffer: Tensor, index: Any, value: Any) -> None:
        """Follow ``buffer[index] = value``: a map that is put together from parts, say from its heads."""
        if not isinstance(value, Tensor) or value not in self._traces or buffer in self._traces:
            return
        part = buffer[index]
        where = origins(buffer, part, reshaped=False)
        if where is not None and part.shape == value.shape:
            back = [frozenset(i for i, origin in enumerate(where) if origin == {axis}) for axis in range(buffer.dim())]
            self._traces[buffer] = self._traces[value].moved(back)

    # ------------------------------------------------------------------ dropout

    def _before_dropout(
        self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False, train: bool = True
    ) -> Tensor | None:
        """Probabilities as they are before a dropout that is on; the arguments are those of either dropout function."""
        trace = self._traces.get(input)
        if trace is None or trace.key is None or not (training and train):
            return None
        return input.clone() if trace.clean is None else trace.clean

    def _without_dropout(
        self, func: Function, args: tuple[Any, ...], kwargs: dict[str, Any], operands: list[Tensor]
    ) -> list[Tensor]:
        """What the operation gives for operands without the dropout they went through; empty if none did.

        Nothing that belongs to the model is written to, and the random state stays what it is.
        """
        if all(self._traces[t].clean is None for t in operands):
            return []

        def swap(thing: Any) -> Any:
            if isinstance(thing, tuple | list):
                return type(thing)(swap(item) for item in thing)
            trace = self._traces.get(thing) if isinstance(thing, Tensor) else None
            return thing if trace is None or trace.clean is None else trace.clean

        name = getattr(func, "__name__", "")
        writes = (name.endswith("_") and not name.endswith("__")) or name.startswith(("__i", "__setitem__"))
        if "out" in kwargs or (writes and swap(args[0]) is args[0]):
            return []
        with preserve_rng(operands[0].device):
            return list(_tensors((func(*swap(args), **{name: swap(value) for name, value in kwargs.items()}),)))


def _tensors(things: Iterable[Any]) -> Iterator[Tensor]:
    """The tensors among some arguments or results, also those in a list."""
    for thing in things:
        if isinstance(thing, Tensor):
            yield thing
        elif isinstance(thing, tuple | list):
            yield from (item for item in thing if isinstance(item, Tensor))


def _is_value(product: Product, trace: Trace | None, operand: int, letter: str) -> bool:
    """Whether an operand can be the values of an attention over the keys of this letter.

    Features cannot (a router), nor can a map, whose keys stay keys in the result: then the product of both is a map
    that is still to be used.
    """
    if trace is None:
        return True
    axes = product.axes[operand]
    is_map = trace.key is not None and trace.key not in trace.features and axes[trace.key] in product.out
    return not is_map and axes.index(letter) not in trace.features


def _query_axis(product: Product, trace: Trace, i: int, key: int) -> int | None:
    """The axis of operand i that runs over queries: it stays in the result, and the values do not have it."""
    axes = product.axes[i]
    values = "".join(product.axes[j] for j in product.partners(i, axes[key]))
    found = [axis for axis, letter in enumerate(axes) if letter in product.out and letter not in values]
    known = trace.query if trace.key is not None else next(iter(trace.free - {key}), None)
    if known is not None:
        return known if known in found else None
    if len(found) > 1:
        found = [axis for axis in found if product.size(axes[axis]) == product.size(axes[key])]
    return found[-1] if found else None


def _is_stochastic(maps: Tensor) -> bool:
    """Whether square matrices have rows of non-negative weights that sum to one, or to zero."""
    if maps.size(-1) != maps.size(-2) or bool((maps < 0).any()):
        return False
    sums = maps.sum(-1, dtype=torch.float32)
    return bool(((sums - 1).abs() < 1e-2).logical_or(sums == 0).all()) and bool(sums.any())


def _axes_of_reduction(args: tuple[Any, ...], kwargs: dict[str, Any], n_axes: int) -> frozenset[int]:
    axes = kwargs.get("dim", *args[1:2])
    if axes is None:
        return frozenset(range(n_axes))
    return frozenset(axis % n_axes for axis in ((axes,) if isinstance(axes, int) else axes))


def _where(
    func: Function, args: tuple[Any, ...], kwargs: dict[str, Any], operand: Tensor, out: Tensor
) -> Origins | None:
    """The origins of the axes of a result."""
    if func in REDUCE and out.dim() < operand.dim():
        gone = _axes_of_reduction(args, kwargs, operand.dim())
        return [frozenset({axis}) for axis in range(operand.dim()) if axis not in gone]
    if func is torch.stack:
        new = kwargs.get("dim", args[1] if len(args) > 1 else 0) % out.dim()
        return [frozenset() if axis == new else frozenset({axis - (axis > new)}) for axis in range(out.dim())]
    return origins(operand, out, reshaped=func in RESHAPES)
