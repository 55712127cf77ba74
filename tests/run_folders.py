"""Run folders made without a training: shared by the tests of what is done with results."""

from pathlib import Path

import torch
from torch import Tensor

from scalepod import ScalePOD, save_analyses
from scalepod.analysis import LayerAnalysis
from scalepod.provenance import Provenance

LAYERS = ("01_model.h.0.attn", "02_model.h.1.attn")


def attention(n_snapshots: int, n_tokens: int, sharpness: float, seed: int, peak: int = 5) -> Tensor:
    """Random causal attention that prefers near keys, and those `peak` tokens back.

    The documents of a seed are the same whatever the sharpness.
    """
    generator = torch.Generator().manual_seed(seed)
    lag = torch.arange(n_tokens)[:, None] - torch.arange(n_tokens)
    logits = sharpness * torch.randn(n_snapshots, n_tokens, n_tokens, generator=generator) - 0.15 * lag.abs()
    return (logits + 2.0 * (lag == peak)).masked_fill(lag < 0, -torch.inf).softmax(-1)


def analysed(attn: Tensor, **options: object) -> LayerAnalysis:
    monitor = ScalePOD(**options)
    monitor.update(attn)
    analysis: LayerAnalysis = monitor.compute()
    return analysis


def layers_of(
    sharpness: float = 1.0,
    seed: int = 0,
    names: tuple[str, ...] = LAYERS,
    n_snapshots: int = 24,
    n_tokens: int = 24,
    **options: object,
) -> dict[str, LayerAnalysis]:
    """Analyses of layers that are sharper the deeper they are."""
    return {
        name: analysed(attention(n_snapshots, n_tokens, sharpness + 0.3 * k, seed + 100 * k), **options)
        for k, name in enumerate(names)
    }


def write_run(
    folder: Path, firings: dict[int, dict[str, LayerAnalysis]], documents: str | None = "documents", **known: object
) -> Path:
    """A run's folder with results by step, on documents of a checksum."""
    provenance = Provenance(data_sha256=documents, **known)
    for step, analyses in firings.items():
        save_analyses(folder / "scalepod_results" / f"step_{step:08d}.npz", analyses, step, provenance=provenance)
    return folder
