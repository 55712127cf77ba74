"""Attention maps that are made one head and a few samples at a time, so that little memory is needed."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


class NotCaptured(Exception):  # noqa: N818 - a reason rather than an error
    """An attention that cannot be captured; the message says why."""


@dataclass(frozen=True)
class HeadMaps:
    """The attention of one call, [B, H, Tq, Tk], as a recipe."""

    batch: int
    heads: int
    queries: int
    keys: int
    dtype: torch.dtype
    """float64 when the model computes in it, else float32."""
    device: torch.device
    compute: Callable[[slice, int], Tensor]
    """Probabilities [b, Tq, Tk] of a slice of the samples and one head."""

    def mean(
        self,
        byte_budget: int,
        chosen: Sequence[int] = (),
        on_heads: Callable[[Tensor, list[int]], None] | None = None,
    ) -> Tensor:
        """Average over the heads, [B, Tq, Tk].

        Args:
            byte_budget: scratch memory of one head; samples that fit in it are computed together.
            chosen: samples whose heads are wanted.
            on_heads: given the heads [b, H, Tq, Tk] of those of the chosen samples that were computed together, and
                which samples they are.
        """
        total = torch.zeros(self.batch, self.queries, self.keys, dtype=self.dtype, device=self.device)
        for samples in self._chunks(byte_budget):
            here = [i for i in chosen if samples.start <= i < samples.stop] if on_heads else []
            by_head = total.new_empty(len(here), self.heads, self.queries, self.keys)
            for head in range(self.heads):
                maps = self.compute(samples, head)
                total[samples].add_(maps, alpha=1.0 / self.heads)
                for i, copy in zip(here, by_head, strict=True):
                    copy[head] = maps[i - samples.start]
            if on_heads and here:
                on_heads(by_head, here)
        return total

    def each(self, byte_budget: int) -> Iterator[Tensor]:
        """The heads one after the other, each [B, Tq, Tk]."""
        for head in range(self.heads):
            yield torch.cat([self.compute(samples, head) for samples in self._chunks(byte_budget)])

    def _chunks(self, byte_budget: int) -> Iterator[slice]:
        """Slices of the samples whose scratch memory (scores, mask, probabilities) stays within the budget."""
        one_sample = 3 * self.queries * self.keys * self.dtype.itemsize
        step = max(1, byte_budget // max(one_sample, 1))
        for start in range(0, self.batch, step):
            yield slice(start, min(start + step, self.batch))


def maps_of_tensor(probs: Tensor, batch_size: int | None) -> HeadMaps:
    """Probabilities that exist as a tensor [..., Tq, Tk], whatever the layout of their leading axes."""
    probs = batch_first(observable(probs), batch_size)
    dtype = working_dtype(probs)

    def compute(samples: slice, head: int) -> Tensor:
        return without_dead_rows(probs[samples, head].to(dtype))

    batch, heads, queries, keys = probs.shape
    return HeadMaps(batch, heads, queries, keys, dtype, probs.device, compute)


def without_dead_rows(maps: Tensor) -> Tensor:
    """Zeros where a written-out softmax gave NaN: rows of NaN in a map whose other rows are fine.

    That is what a query that may look at nothing gives there. A map with no good row is left as it is.
    """
    dead = maps.isnan().all(-1, keepdim=True)
    masked = dead & ~dead.all(-2, keepdim=True)
    return maps.masked_fill(masked, 0.0) if bool(masked.any()) else maps


def observable(tensor: Tensor) -> Tensor:
    """The tensor itself, detached.

    Raises:
        NotCaptured: it is a nested tensor, or stands for many under ``torch.func.vmap``.
    """
    if tensor.is_nested:
        raise NotCaptured("nested tensors are not supported; give padded ones and a mask")
    if torch._C._functorch.is_batchedtensor(tensor):
        raise NotCaptured("it was computed under torch.func.vmap, where the samples cannot be told apart")
    return tensor.detach()


def batch_first(tensor: Tensor, batch_size: int | None) -> Tensor:
    """View of [..., X, Y] as [B, H, X, Y].

    The batch is the first axis, or, if that has another size than ``batch_size``, the first one that has it. A
    three-dimensional [B * H, X, Y] is taken apart when the batch size is known; all other leading axes are heads.
    """
    while tensor.dim() < 3:
        tensor = tensor.unsqueeze(0)
    lead = list(tensor.shape[:-2])
    if batch_size and lead[0] != batch_size:
        if batch_size in lead:
            tensor = tensor.movedim(lead.index(batch_size), 0)
        elif len(lead) == 1 and lead[0] % batch_size == 0:
            tensor = tensor.reshape(batch_size, -1, *tensor.shape[1:])
    return tensor.unsqueeze(1) if tensor.dim() == 3 else tensor.flatten(1, -3)


def working_dtype(tensor: Tensor) -> torch.dtype:
    """The type in which probabilities are computed: float64 for float64, float32 for everything else."""
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32
