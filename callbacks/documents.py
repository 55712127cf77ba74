"""Which held-out documents a callback looks at: the same ones at every firing, chosen once and kept on the CPU."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import lightning as L
import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler


class NoHeldOutData(ValueError):  # noqa: N818 - it reads as what happened
    """There is nothing to run the model on; the message says what to do."""


@dataclass(frozen=True)
class HeldOutBatch:
    """A collated batch, and how many of its leading documents are to be used (none in one that only keeps step)."""

    batch: Any
    n_documents: int


def held_out_batches(source: Any, n_documents: int, rank: int = 0, world_size: int = 1) -> list[HeldOutBatch]:
    """Fetch the documents of this process.

    A map-style data set gives documents spread evenly over it, dealt out to the processes in turn; anything else gives
    its first documents. Iterating a DataLoader draws from the global random number generator, so the caller guards it.

    Args:
        source: A DataLoader, an iterable of batches, or one batch (a tensor, or a mapping or dataclass of tensors).
        n_documents: How many documents all processes together use; fewer where there are not as many.
        rank: This process.
        world_size: Number of processes.

    Returns:
        Batches, as many on each process.

    Raises:
        NoHeldOutData: If there are no documents.
        ValueError: If a batch holds no tensor to tell its size from.
    """
    if isinstance(source, DataLoader) and (indices := _document_indices(source)) is not None:
        return _from_dataset(source, indices, n_documents, rank, world_size)
    batches = [source] if _is_batch(source) else source
    share = n_documents // world_size + (rank < n_documents % world_size)
    with _generators_kept(batches):
        found = list(_first(batches, share))
    if not found:
        raise NoHeldOutData("there are no held-out documents: the data loader given or found yields no batch")
    return found


def find_source(trainer: L.Trainer) -> Any:
    """The validation data of a run: of the trainer, of the validation loop, or of the data module or module.

    Raises:
        NoHeldOutData: If the run has no validation data.
    """
    loader = _first_loader(trainer.val_dataloaders)
    if loader is None:
        # With limit_val_batches=0 the trainer sets up no loader; what it would have set up is known to the loop only.
        data_source = getattr(trainer.fit_loop.epoch_loop.val_loop, "_data_source", None)
        if data_source is not None and data_source.instance is not None and data_source.is_defined():
            loader = _first_loader(data_source.dataloader())
    if loader is None:
        raise NoHeldOutData(
            "there is nothing to run on: this run has no validation data. Pass ScalePODCallback(dataloader=...), a "
            "DataLoader or a batch of held-out documents, or give fit a validation loader"
        )
    return loader


def batch_size(batch: Any) -> int:
    """Number of documents of a collated batch: the leading size of the first tensor that has one.

    Raises:
        ValueError: If the batch holds no such tensor.
    """
    for tensor in tensors(batch):
        if tensor.ndim:
            return tensor.size(0)
    raise ValueError(f"cannot tell how many documents a batch of type {type(batch).__name__} holds: no tensor in it")


def tensors(batch: Any) -> Iterator[Tensor]:
    """All tensors of a collated batch, whatever it is made of."""
    if isinstance(batch, Tensor):
        yield batch
    elif isinstance(batch, Mapping):
        for value in batch.values():
            yield from tensors(value)
    elif is_dataclass(batch):
        for field in fields(batch):
            yield from tensors(getattr(batch, field.name))
    elif isinstance(batch, list | tuple):
        for value in batch:
            yield from tensors(value)


def _is_batch(source: Any) -> bool:
    return isinstance(source, Tensor | Mapping) or is_dataclass(source)


def _first_loader(loaders: Any) -> Any:
    if isinstance(loaders, Mapping):
        loaders = list(loaders.values())
    if isinstance(loaders, list | tuple):
        return _first_loader(loaders[0]) if loaders else None
    flattened = getattr(loaders, "flattened", None)  # Lightning's CombinedLoader
    return loaders if flattened is None else _first_loader(flattened)


def _document_indices(loader: DataLoader[Any]) -> list[int] | range | None:
    """The data set indices a loader draws from; None when it cannot be told and the loader has to be iterated."""
    dataset, batches = loader.dataset, loader.batch_sampler
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__") or type(batches) is not BatchSampler:
        return None
    sampler = batches.sampler  # that of the loader itself means nothing where a batch sampler was given
    if isinstance(sampler, SubsetRandomSampler):
        return sorted(sampler.indices)
    if isinstance(sampler, DistributedSampler):
        # Lightning wraps a user's own sampler in a distributed one whose data set is that sampler.
        return range(len(dataset)) if sampler.dataset is dataset else None
    if isinstance(sampler, RandomSampler | SequentialSampler):
        return range(len(dataset))
    return None


def _from_dataset(
    loader: DataLoader[Any], indices: list[int] | range, n_documents: int, rank: int, world_size: int
) -> list[HeldOutBatch]:
    if not len(indices):
        raise NoHeldOutData("there are no held-out documents: the validation data set is empty")
    n_documents = min(n_documents, len(indices))
    chosen = [indices[i * len(indices) // n_documents] for i in range(n_documents)]
    assert isinstance(loader.batch_sampler, BatchSampler)
    size = loader.batch_sampler.batch_size
    # Each process takes every world_size-th document; one that has none left repeats the first and uses none of it.
    longest = -(-n_documents // world_size)
    mine = chosen[rank::world_size]
    batches = []
    for start in range(0, longest, size):
        group = mine[start : start + size]
        batch = loader.collate_fn([loader.dataset[i] for i in group or chosen[:1]])
        batches.append(HeldOutBatch(batch, len(group)))
    return batches


@contextlib.contextmanager
def _generators_kept(loader: Any) -> Iterator[None]:
    """Put back the random generators of a loader, which training may share, after iterating it."""
    batches = getattr(loader, "batch_sampler", None)
    owners = (loader, getattr(loader, "sampler", None), batches, getattr(batches, "sampler", None))
    generators = [getattr(owner, "generator", None) for owner in owners]
    states = [(g, g.get_state()) for g in generators if isinstance(g, torch.Generator)]
    try:
        yield
    finally:
        for generator, state in states:
            generator.set_state(state)


def _first(batches: Iterable[Any], n_documents: int) -> Iterator[HeldOutBatch]:
    left = n_documents
    for batch in batches:
        used = min(left, batch_size(batch))
        yield HeldOutBatch(batch, used)
        left -= used
        if left <= 0:
            return
