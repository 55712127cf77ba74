"""What a callback writes into the header of its results: whose attention, on which documents, with which options."""

from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest
from typing import Any

import lightning as L
import torch

from ..provenance import Provenance, checksum, document_digests, path_of, plain
from .documents import HeldOutBatch, batch_size, find_source, tensors


def provenance(
    trainer: L.Trainer, module: L.LightningModule, documents: Sequence[HeldOutBatch], arguments: Mapping[str, Any]
) -> Provenance:
    """Say where the analyses of a run come from. All processes take part.

    Args:
        trainer: The running trainer.
        module: The model.
        documents: The held-out documents of this process.
        arguments: Arguments of the callback.

    Returns:
        The provenance; without checksum where the documents hold tensors that have no plain bytes.
    """
    digests = _digests_of_all(trainer, documents)
    return Provenance(
        model=path_of(type(module)),
        data=_data_name(trainer, arguments["dataloader"]),
        data_sha256=None if digests is None else checksum(digests),
        n_documents=None if digests is None else len(digests),
        processes=trainer.world_size,
        device=module.device.type,
        precision=str(trainer.precision),
        torch=torch.__version__,
        options=plain(arguments),
    )


def _digests_of_all(trainer: L.Trainer, documents: Sequence[HeldOutBatch]) -> list[bytes] | None:
    """Checksums of the documents of all processes, in the order in which they were dealt out."""
    everyone: list[list[bytes] | None] = [_digests(documents)]
    if trainer.world_size > 1:
        mine, everyone = everyone[0], [None] * trainer.world_size
        torch.distributed.all_gather_object(everyone, mine)
    known = [digests for digests in everyone if digests is not None]
    if len(known) < len(everyone):
        return None
    return [digest for digest in chain.from_iterable(zip_longest(*known)) if digest is not None]


def _digests(documents: Sequence[HeldOutBatch]) -> list[bytes] | None:
    try:
        return [
            digest
            for some in documents
            for digest in document_digests(tensors(some.batch), some.n_documents, batch_size(some.batch))
        ]
    except (RuntimeError, TypeError):  # sparse, quantised and such: results without a checksum are better than none
        return None


def _data_name(trainer: L.Trainer, given: Any) -> str:
    """The text's name where it has one, else the path of the data module or set, or of whatever was given."""
    datamodule = getattr(trainer, "datamodule", None)
    if given is None and datamodule is not None:
        return str(datamodule.hparams.get("data_name", path_of(type(datamodule))))
    source = find_source(trainer) if given is None else given
    return path_of(type(getattr(source, "dataset", source)))
