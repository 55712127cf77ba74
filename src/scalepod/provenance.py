"""Where results come from: what goes into the header of a file of results."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Provenance:
    """What was analysed, on what, and how. What is not known, as for analyses saved by hand, is None."""

    model: str | None = None
    """Path of the model's class."""
    data: str | None = None
    """What the held-out documents are called: a text's name, or the path of a class of data."""
    data_sha256: str | None = None
    """Checksum of the held-out documents in their order; the same for the same documents."""
    n_documents: int | None = None
    """How many held-out documents the model was run on."""
    checkpoint: str | None = None
    """The checkpoint that was analysed; None for the model of a running training."""
    processes: int | None = None
    """Processes among which the documents were dealt."""
    device: str | None = None
    """Kind of device: "cpu", "cuda"."""
    precision: str | None = None
    """The trainer's precision, as "32-true" or "bf16-mixed"."""
    torch: str | None = None
    """Version of torch."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the callback or analysis by name, in plain values: an object is given by its path."""


def plain(value: Any) -> Any:
    """A value as JSON can write it: an object that is no number, text, list or mapping becomes its path.

    Example:
        >>> plain({"bands": (4, 12), "forward_fn": len, "save_dir": None})
        {'bands': [4, 12], 'forward_fn': 'builtins.len', 'save_dir': None}
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence | set | frozenset):
        return [plain(item) for item in value]
    return path_of(value)


def path_of(value: Any) -> str:
    """Path of a class or function, or of the class of any other object."""
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}"


def document_digests(tensors: Iterable[Tensor], n_documents: int, batch_size: int) -> list[bytes]:
    """Checksums of the leading documents of a batch.

    Args:
        tensors: All tensors of the batch. Of one with a leading size of ``batch_size`` each document has its row; any
            other belongs to every document.
        n_documents: Documents to take.
        batch_size: Documents in the batch.

    Returns:
        SHA-256 of the types, shapes and bytes of each document.
    """
    digests = [hashlib.sha256() for _ in range(n_documents)]
    for tensor in tensors:
        shared = tensor.ndim == 0 or tensor.size(0) != batch_size
        for i, digest in enumerate(digests):
            row = (tensor if shared else tensor[i]).detach().cpu().contiguous()
            digest.update(f"{row.dtype}{tuple(row.shape)}".encode())
            digest.update(row.flatten().view(torch.uint8).numpy().tobytes())
    return [digest.digest() for digest in digests]


def checksum(digests: Iterable[bytes]) -> str:
    """One checksum, in hexadecimal, of those of documents in their order."""
    return hashlib.sha256(b"".join(digests)).hexdigest()
