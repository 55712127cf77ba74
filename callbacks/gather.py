"""The attention of held-out documents, gathered layer by layer."""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import lightning as L
import torch
from torch import Tensor

from ..alignment import aligned_heads, padding
from ..capture import capture_attention, valid_tokens
from ..heads import HeadMoments, head_moments
from ..monitor import ScalePOD
from .documents import HeldOutBatch, batch_size
from .forward import Forward

_HEADS_EVERY = 6
"""The single heads are looked at in every sixth document: it takes long, and tells how alike they are well enough."""


def gather(
    trainer: L.Trainer,
    module: L.LightningModule,
    documents: Sequence[HeldOutBatch],
    forward: Forward,
    options: Mapping[str, Any],
    capture: Mapping[str, Any],
) -> tuple[dict[str, ScalePOD], list[str]]:
    """Run the held-out documents of this process through the model.

    Args:
        trainer: The running trainer, for its devices and precision.
        module: The model.
        documents: Held-out batches.
        forward: Runs the module on a batch.
        options: Options of the analysis.
        capture: Options of :func:`scalepod.capture.capture_attention`.

    Returns:
        One monitor a layer, in the order of the calls, and what the captures skipped or found odd.
    """
    monitors: dict[str, ScalePOD] = {}
    notes: list[str] = []
    process, seen = (trainer.global_rank, trainer.world_size), 0
    for held_out in documents:
        # A copy: a model may change its input in place, and these documents are used again.
        batch = trainer.precision_plugin.convert_input(copy.deepcopy(held_out.batch))
        batch = trainer.strategy.batch_to_device(batch)
        size = batch_size(batch)
        with (
            trainer.precision_plugin.forward_context(),
            capture_attention(
                module, batch_size=size, batch=batch, **capture, **_heads(batch, held_out, seen, options, capture)
            ) as record,
        ):
            forward(module, batch)
        _add(monitors, record.result(strict=True), batch, size, held_out.n_documents, options, process)
        for name, moments in record.heads.items():
            for some in moments:
                if some is not None:
                    monitors[name].add_heads(some)
        notes += record.notes
        seen += held_out.n_documents
    return monitors, notes


def _add(
    monitors: dict[str, ScalePOD],
    maps: Mapping[str, Tensor],
    batch: Any,
    size: int,
    n_documents: int,
    options: Mapping[str, Any],
    process: tuple[int, int],
) -> None:
    for name, attn in maps.items():
        if name not in monitors:
            monitors[name] = ScalePOD(**options, process=process).to(attn.device)
        # A layer that cuts a document into windows brings several maps a document.
        each = attn.size(0) // size
        used = n_documents * each
        valid = valid_tokens(batch, attn.size(-1)) if attn.size(0) == size else None
        monitors[name].update(attn[:used], None if valid is None else valid[:used], maps_per_document=each)


def _heads(
    batch: Any, held_out: HeldOutBatch, seen: int, options: Mapping[str, Any], capture: Mapping[str, Any]
) -> dict[str, Any]:
    """How the capture hands over the single heads of every sixth document; nothing where they are not wanted."""
    if not options["confidence"] or capture["heads"] != "mean":
        return {}
    chosen = [i for i in range(held_out.n_documents) if (seen + i) % _HEADS_EVERY == 0]
    return {"on_heads": _moments(batch, options["burn_in"]), "head_samples": chosen}


def _moments(batch: Any, burn_in: int) -> Callable[[Tensor, list[int]], HeadMoments | None]:
    """What is kept of the heads of some samples; None where no document is left."""

    def moments(attn: Tensor, samples: list[int]) -> HeadMoments | None:
        valid = valid_tokens(batch, attn.size(-1))
        if valid is not None:
            valid = valid[torch.tensor(samples, device=valid.device)]
        maps, tokens = aligned_heads(attn, valid)
        return head_moments(maps, padding(tokens), burn_in) if len(maps) and burn_in < maps.size(-1) else None

    return moments
