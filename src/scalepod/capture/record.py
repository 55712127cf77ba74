"""What a capture found: attention maps by layer, where they came from, and what could not be had."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal

import torch
from torch import Tensor, nn

from .checks import oddities
from .maps import HeadMaps, NotCaptured, maps_of_tensor
from .naming import ModuleNames
from .padding import valid_tokens

Heads = Literal["mean", "each"]
OnHeads = Callable[[Tensor, list[int]], Any]
"""Given the maps by head [b, H, T, T] of some samples and which samples they are; what it returns is kept."""
Source = Literal["declared", "sdpa", "mha", "flex", "adapter", "softmax"]

_WAYS_OUT = (
    "Ways out: let the model use scaled_dot_product_attention or an eager implementation; give an adapter for the "
    "kernel; take the model out of nn.DataParallel (other threads are not seen); or pass the probabilities through "
    "scalepod.capture.AttentionProbe or record_attention."
)


class NoAttentionFound(RuntimeError):  # noqa: N818 - it reads as what happened
    """No attention probabilities were seen in a forward pass; the message says why and what can be done."""


@dataclass(frozen=True)
class _Call:
    """The attention of one call of a layer."""

    source: Source
    maps: list[Tensor]
    """One for each head, or their one mean."""
    by_head: list[Any] = field(default_factory=list)
    """What ``on_heads`` made of the heads."""


class AttentionRecord:
    """Attention maps of one forward pass, by layer.

    Made by :func:`scalepod.capture.capture_attention`; ask it for the :meth:`result` after the forward pass.
    """

    notes: list[str]
    """What was skipped or looks odd, and why; each note once."""
    opaque: dict[str, list[str]]
    """Attention kernels that cannot be looked into, each with the layers that called it."""

    def __init__(
        self,
        model: nn.Module,
        *,
        batch_size: int | None = None,
        reduce: Callable[[Tensor], Tensor] | None = None,
        include: str | Sequence[str] | None = None,
        exclude: str | Sequence[str] = (),
        heads: Heads = "mean",
        on_heads: OnHeads | None = None,
        head_samples: Sequence[int] | None = None,
        byte_budget: int = 64 * 2**20,
        batch: Any = None,
    ) -> None:
        self.batch_size = batch_size
        self.notes, self.opaque = [], {}
        self._names = ModuleNames(model)
        self._reduce = reduce
        self._include = None if include is None else _globs(include)
        self._exclude = _globs(exclude)
        self._heads = heads
        self._on_heads = on_heads
        self._head_samples = head_samples
        self._byte_budget = byte_budget
        self._batch = batch
        self._calls: dict[str, list[_Call]] = {}  # by layer, in the order of the first call
        self._left_out: dict[str, None] = {}  # layers with an attention that was seen but not kept, in order
        self._outranked: dict[str, None] = {}  # layers with an attention that a declaration replaced, in order
        self._softmax: dict[str, bool] = {}  # layers with a softmax, and whether it met values

    # ------------------------------------------------------------------ what the sources report

    def running(self) -> str | None:
        """Name of the module that is computing; None outside the model."""
        return self._names.running()

    def declare(self, probs: Tensor) -> None:
        """Take probabilities [..., T, T] that the running module declared."""
        self.take("declared", probs)

    def take(self, source: Source, probs: Tensor) -> None:
        """Take probabilities [..., T, T] that exist as a tensor."""
        if probs.dim() > 4:
            self.note(f"{self.running()}: all of the axes {list(probs.shape[1:-2])} were taken for heads")
        self.recompute(source, lambda: maps_of_tensor(probs, self.batch_size))

    def recompute(self, source: Source, recipe: Callable[[], HeadMaps]) -> None:
        """Take the attention of the running module, given as a recipe that is followed only if the layer is wanted.

        The forward pass never fails for it: a recipe that cannot be followed leaves a note.
        """
        layer = self.running()
        if layer is None:
            self.note("an attention outside of the model's modules was left out")
        elif not self._wanted(layer):
            self._left_out[layer] = None
        elif source != "declared" and self._is_outranked(layer):
            self._outranked[layer] = None
        else:
            try:
                self._keep(layer, source, recipe())
            except NotCaptured as reason:
                self._skip(layer, str(reason))
            except Exception as error:
                self._skip(layer, f"the {source} attention could not be computed ({type(error).__name__}: {error})")

    def met_opaque(self, kernel: str) -> None:
        """Take notice of a kernel that cannot be looked into."""
        layer = self.running()
        if layer is not None and layer not in self.opaque.setdefault(kernel, []):
            self.opaque[kernel].append(layer)

    def met_softmax(self, layer: str | None, *, used: bool) -> None:
        """Take notice of a softmax in a layer, and of its product with values."""
        if layer is not None:
            self._softmax[layer] = used

    def note(self, text: str) -> None:
        """Keep a remark, once."""
        if text not in self.notes:
            self.notes.append(text)

    def close(self) -> None:
        """End the capture: let go of the batch, and note what is missing."""
        self._batch = None
        for kernel, layers in self.opaque.items():
            self.note(f"the kernel {kernel} cannot be looked into; it was called by {_listing(layers)}")
        for layer in self._calls:
            others = dict.fromkeys((*self._calls, *self._outranked))
            below = [other for other in others if self._outranks(layer, other) and other != layer]
            if below:
                self.note(f"{layer}: its declared attention takes the place of what was found in {_listing(below)}")
        for alike in dict.fromkeys(tuple(self._names.alike(layer)) for layer in self._calls):
            captured = [layer for layer in alike if layer in self._calls]
            missing = [layer for layer in alike if layer not in self._calls and self._is_missed(layer)]
            if missing:
                share = f"{len(captured)} of {len(alike)} layers like {captured[0]} were captured"
                self.note(f"{share}; of {_listing(missing)} nothing was seen")

    # ------------------------------------------------------------------ what the caller asks for

    @property
    def source(self) -> dict[str, str]:
        """Where each map of the result came from: "declared", "sdpa", "mha", "flex", "adapter" or "softmax"."""
        return {name: source for name, source, _ in self._entries()}

    @property
    def heads(self) -> dict[str, list[Any]]:
        """What ``on_heads`` returned, by the names of the result: a list, one item for every group of samples.

        Layers whose heads were not handed over, because there is one only or the maps are not those of the samples of
        the batch, are missing.
        """
        return {name: call.by_head for name, call in self._kept() if call.by_head}

    def result(self, strict: bool = True) -> dict[str, Tensor]:
        """The maps by name, in the order of the first call.

        Args:
            strict: raise when nothing was found, instead of returning an empty dictionary.

        Returns:
            Layer name -> attention [B, T, T], averaged over heads (or whatever ``reduce`` made of it). A layer that
            was called several times has the entries "name#0", "name#1", ...; with ``heads="each"`` there is an entry
            "name/h0", "name/h1", ... for each head.

        Raises:
            NoAttentionFound: nothing was found.
        """
        found = {name: maps for name, _, maps in self._entries()}
        if strict and not found:
            raise NoAttentionFound(self._explanation())
        return found

    # ------------------------------------------------------------------ inside

    def _wanted(self, layer: str) -> bool:
        included = self._include is None or any(fnmatchcase(layer, glob) for glob in self._include)
        return included and not any(fnmatchcase(layer, glob) for glob in self._exclude)

    def _is_missed(self, layer: str) -> bool:
        """Whether it is no choice that nothing was captured in a layer."""
        return self._wanted(layer) and layer not in self._left_out and not self._is_outranked(layer)

    def _is_outranked(self, layer: str) -> bool:
        return any(self._outranks(other, layer) for other in self._calls)

    def _outranks(self, layer: str, other: str) -> bool:
        """Whether what a layer declared replaces what was found in another one: in itself, or below it."""
        declares = any(call.source == "declared" for call in self._calls[layer])
        return declares and (other == layer or layer == self._names.root or other.startswith(f"{layer}."))

    def _skip(self, layer: str, reason: str) -> None:
        self._left_out[layer] = None
        self.note(f"{layer}: {reason}")

    def _keep(self, layer: str, source: Source, maps: HeadMaps) -> None:
        if maps.queries != maps.keys:
            shape = f"{maps.queries} x {maps.keys}"
            raise NotCaptured(f"attention of {shape} is not square (cross attention, a cache, parts of a sequence)")
        with torch.no_grad(), torch.autocast(maps.device.type, enabled=False):
            by_head: list[Any] = []
            heads = maps.each(self._byte_budget) if self._heads == "each" else [self._mean(layer, maps, by_head)]
            call = _Call(source, [self._finished(layer, head) for head in heads], by_head)
        self._calls.setdefault(layer, []).append(call)

    def _mean(self, layer: str, maps: HeadMaps, by_head: list[Any]) -> Tensor:
        """Average over the heads; what ``on_heads`` makes of them on the way is appended to a list."""
        on_heads = self._on_heads
        if on_heads is None or maps.heads == 1 or (self.batch_size and maps.batch != self.batch_size):
            return maps.mean(self._byte_budget)

        def hand_over(heads: Tensor, samples: list[int]) -> None:
            try:
                by_head.append(on_heads(heads, samples))
            except Exception as error:
                self.note(f"{layer}: on_heads failed ({type(error).__name__}: {error})")

        chosen = range(maps.batch) if self._head_samples is None else self._head_samples
        return maps.mean(self._byte_budget, chosen, hand_over)

    def _finished(self, layer: str, maps: Tensor) -> Tensor:
        if self.batch_size and len(maps) != self.batch_size:
            self.note(f"{layer}: {len(maps)} maps for a batch of {self.batch_size} (windows, or one sample at a time?)")
        for oddity in oddities(maps, padding_known=valid_tokens(self._batch, maps.size(-1)) is not None):
            self.note(f"{layer}: {oddity}")
        return maps if self._reduce is None else self._reduce(maps)

    def _entries(self) -> Iterator[tuple[str, Source, Tensor]]:
        """(name in the result, source, maps) of everything that no declaration outranks."""
        for name, call in self._kept():
            for h, maps in enumerate(call.maps):
                yield f"{name}/h{h}" if self._heads == "each" else name, call.source, maps

    def _kept(self) -> Iterator[tuple[str, _Call]]:
        """The calls that no declaration outranks, each with the name of its layer, numbered where there are several."""
        for layer, calls in self._calls.items():
            outranked = self._is_outranked(layer)
            kept = [call for call in calls if call.source == "declared" or not outranked]
            for i, call in enumerate(kept):
                yield f"{layer}#{i}" if len(kept) > 1 else layer, call

    def _explanation(self) -> str:
        lines = ["no attention probabilities were seen in the forward pass."]
        for kernel, layers in self.opaque.items():
            lines.append(f"The kernel {kernel} cannot be looked into; it was called by {_listing(layers)}.")
        if self._names.scripted:
            lines.append(f"Scripted modules cannot be looked into: {_listing(self._names.scripted)}.")
        unused = [layer for layer, used in self._softmax.items() if not used]
        if unused:
            lines.append(f"A softmax was seen in {_listing(unused)}, but no product of it with values over tokens.")
        if self._left_out:
            lines.append(f"Attention was seen but left out in: {_listing(list(self._left_out))}.")
        if self.notes:
            lines.append("Notes: " + "; ".join(self.notes) + ".")
        return " ".join([*lines, _WAYS_OUT])


def _globs(patterns: str | Sequence[str]) -> tuple[str, ...]:
    return (patterns,) if isinstance(patterns, str) else tuple(patterns)


def _listing(names: Sequence[str], most: int = 8) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
