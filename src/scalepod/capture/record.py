"""What a capture found: attention maps by layer, where they came from, and what could not be had."""

from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal

import torch
from torch import Tensor, nn

from .checks import oddities
from .maps import HeadMaps, NotCaptured, maps_of_tensor
from .naming import ModuleNames
from .padding import valid_tokens

RANKS = {"declared": 3, "sdpa": 2, "mha": 2, "flex": 2, "adapter": 2, "softmax": 1}
"""The sources, and which of them takes precedence within one module."""

Heads = Literal["mean", "each"]

_WAYS_OUT = (
    "Ways out: let the model use scaled_dot_product_attention or an eager implementation; give an adapter for the "
    "kernel; take the model out of nn.DataParallel (other threads are not seen); or pass the probabilities through "
    "scalepod.capture.AttentionProbe or record_attention."
)


class NoAttentionFound(RuntimeError):  # noqa: N818 - it reads as what happened
    """No attention probabilities were seen in a forward pass; the message says why and what can be done."""


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
        self._byte_budget = byte_budget
        self._batch = batch
        self._sources: dict[str, str] = {}  # layer -> source
        self._calls: dict[str, list[list[Tensor]]] = {}  # layer -> calls -> heads (or the one mean over them)
        self.softmax_layers: dict[str, bool] = {}
        """Layers that take a softmax over what may be keys, and whether it was seen to be multiplied with values."""
        self._left_out: dict[str, None] = {}  # layers with an attention that was seen but not kept, in order

    # ------------------------------------------------------------------ what the sources report

    def declare(self, probs: Tensor) -> None:
        """Take probabilities [..., T, T] that the running module declared."""
        self.take("declared", probs)

    def take(self, source: str, probs: Tensor) -> None:
        """Take probabilities [..., T, T] that exist as a tensor."""
        self.recompute(source, lambda: maps_of_tensor(probs, self.batch_size))

    def recompute(self, source: str, recipe: Callable[[], HeadMaps]) -> None:
        """Take the attention of the running module, given as a recipe that is followed only if the layer is wanted.

        The forward pass never fails for it: a recipe that cannot be followed leaves a note.
        """
        layer = self._names.running()
        if layer is None:
            self.note("an attention outside of the model's modules was left out")
        elif not self._wanted(layer):
            self._left_out[layer] = None
        elif RANKS[source] >= RANKS.get(self._sources.get(layer, ""), 0):
            try:
                self._keep(layer, source, recipe())
            except NotCaptured as reason:
                self.skip(layer, str(reason))
            except Exception as error:
                self.skip(layer, f"the {source} attention could not be computed ({type(error).__name__}: {error})")

    def running(self) -> str | None:
        """Name of the module that is computing; None outside the model."""
        return self._names.running()

    def met_opaque(self, kernel: str) -> None:
        """Take notice of a kernel that cannot be looked into."""
        layer = self._names.running()
        if layer is not None and layer not in self.opaque.setdefault(kernel, []):
            self.opaque[kernel].append(layer)

    def skip(self, layer: str, reason: str) -> None:
        """Note why an attention of a layer was left out."""
        self._left_out[layer] = None
        self.note(f"{layer}: {reason}")

    def close(self) -> None:
        """End the capture: note the layers of which nothing was seen although others of their kind were captured."""
        for kernel, layers in self.opaque.items():
            self.note(f"the kernel {kernel} cannot be looked into; it was called by {_listing(layers)}")
        declared = tuple(f"{layer}." for layer, source in self._sources.items() if source == "declared")
        for kind in dict.fromkeys(self._names.kind(layer) for layer in self._calls):
            alike = self._names.of_kind(kind)
            seen = {layer for layer in alike if layer in self._calls or layer in self._left_out}
            missing = [x for x in alike if x not in seen and self._wanted(x) and not x.startswith(declared)]
            if missing:
                captured = sum(layer in self._calls for layer in alike)
                self.note(
                    f"{captured} of {len(alike)} {kind} modules were captured; of {_listing(missing)} nothing was seen"
                )

    def note(self, text: str) -> None:
        """Keep a remark, once."""
        if text not in self.notes:
            self.notes.append(text)

    # ------------------------------------------------------------------ what the caller asks for

    @property
    def source(self) -> dict[str, str]:
        """Where each map of the result came from: "declared", "sdpa", "mha", "flex", "adapter" or "softmax"."""
        return {name: self._sources[layer] for layer, name, _ in self._entries()}

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
        found = {name: maps for _, name, maps in self._entries()}
        if strict and not found:
            raise NoAttentionFound(self._explanation())
        return found

    # ------------------------------------------------------------------ inside

    def _wanted(self, layer: str) -> bool:
        included = self._include is None or any(fnmatchcase(layer, glob) for glob in self._include)
        return included and not any(fnmatchcase(layer, glob) for glob in self._exclude)

    def _keep(self, layer: str, source: str, maps: HeadMaps) -> None:
        if maps.queries != maps.keys:
            shape = f"{maps.queries} x {maps.keys}"
            self.skip(layer, f"{shape} attention is not square (cross attention or a cache) and was left out")
            return
        with torch.no_grad(), torch.autocast(maps.device.type, enabled=False):
            heads = maps.each(self._byte_budget) if self._heads == "each" else [maps.mean(self._byte_budget)]
            call = [self._finished(layer, head) for head in heads]
        if self._sources.get(layer) != source and RANKS[source] > RANKS.get(self._sources.get(layer, ""), 0):
            self._calls[layer] = []
        self._sources[layer] = source
        self._calls.setdefault(layer, []).append(call)

    def _finished(self, layer: str, maps: Tensor) -> Tensor:
        if self.batch_size and len(maps) == 1:  # the same for every sample, such as a purely positional attention
            maps = maps.expand(self.batch_size, -1, -1)
        if self.batch_size and len(maps) != self.batch_size:
            self.note(f"{layer}: {len(maps)} maps for a batch of {self.batch_size} (windows within a sample?)")
        for oddity in oddities(maps, padding_known=valid_tokens(self._batch, maps.size(-1)) is not None):
            self.note(f"{layer}: {oddity}")
        return maps if self._reduce is None else self._reduce(maps)

    def _entries(self) -> Iterator[tuple[str, str, Tensor]]:
        """(layer, name in the result, maps), without what a declaration in the same module or above it outranks."""
        declared = [f"{layer}." for layer, source in self._sources.items() if source == "declared"]
        for layer, calls in self._calls.items():
            if self._sources[layer] != "declared" and layer.startswith(tuple(declared)):
                continue
            for i, heads in enumerate(calls):
                name = f"{layer}#{i}" if len(calls) > 1 else layer
                for h, maps in enumerate(heads):
                    yield layer, f"{name}/h{h}" if self._heads == "each" else name, maps

    def _explanation(self) -> str:
        lines = ["no attention probabilities were seen in the forward pass."]
        for kernel, layers in self.opaque.items():
            lines.append(f"The kernel {kernel} cannot be looked into; it was called by {_listing(layers)}.")
        if self._names.scripted:
            lines.append(f"Scripted modules cannot be looked into: {_listing(self._names.scripted)}.")
        unused = [layer for layer, used in self.softmax_layers.items() if not used]
        if unused:
            lines.append(f"A softmax was seen in {_listing(unused)}, but no product of it with values.")
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
