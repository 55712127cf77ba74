"""Measure again the numbers of docs/method.md: train small models on TinyShakespeare and print Markdown tables.

python benchmarks/evidence.py [--path input.txt] [--steps 1000] [--models DIR]

With --models, trained models are kept in a folder and taken from there the next time.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import lightning as L
import torch
import torch.nn.functional as F
from torch import Tensor

from scalepod import LayerAnalysis, ScalePOD
from scalepod.capture import capture_attention
from scalepod.datamodules import TinyShakespeare
from scalepod.models import BaselineGPT, EnergyGatedGPT

SHAPE: dict[str, Any] = {
    "block_size": 128,
    "n_layer": 4,
    "n_head": 4,
    "n_embd": 128,
    "dropout": 0.1,
    "learning_rate": 1e-3,
}
DOCUMENTS = (50, 100, 200, 400)


def main() -> None:
    """Train the three models, then print every table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--path", default=None, help="the text; by default the data module finds it")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--models", type=Path, default=None, help="folder in which trained models are kept")
    arguments = parser.parse_args()
    L.seed_everything(0, verbose=False)
    data = TinyShakespeare(path=arguments.path, block_size=SHAPE["block_size"], batch_size=16)
    vocab_size = data.vocab_size
    models = {
        "baseline": BaselineGPT(vocab_size, **SHAPE),
        "gate, causal normalisation": EnergyGatedGPT(vocab_size, **SHAPE),
        "gate, published normalisation": EnergyGatedGPT(vocab_size, normalization="sequence", **SHAPE),
    }
    for name, model in models.items():
        train(model, data, arguments.steps, name, arguments.models)
    documents = held_out_documents(data, max(DOCUMENTS))
    print_losses(models, documents)
    maps = captured(models["baseline"], documents)
    print_convergence(maps)
    print_burn_in(maps)
    print_scales(maps)
    print_forward_lags(maps)


def train(
    model: L.LightningModule,
    data: TinyShakespeare,
    steps: int,
    name: str,
    folder: Path | None = None,
    callbacks: Sequence[L.Callback] = (),
) -> None:
    """Train a model without logs or checkpoints, or take it from a folder, where it is put otherwise."""
    kept = None if folder is None else folder / f"{name.replace(' ', '_')}_{steps}.pt"
    if kept is not None and kept.exists():
        model.load_state_dict(torch.load(kept, weights_only=True))
        model.eval()
        return
    L.seed_everything(0, verbose=False)
    trainer = L.Trainer(
        max_steps=steps, logger=False, enable_checkpointing=False, limit_val_batches=0, enable_model_summary=False,
        gradient_clip_val=1.0, accelerator="auto", devices=1, callbacks=list(callbacks),
    )  # fmt: skip
    print(f"training: {name}", flush=True)
    trainer.fit(model, datamodule=data)
    model.eval()
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        torch.save(model.state_dict(), kept)


def held_out_documents(data: TinyShakespeare, n: int) -> Tensor:
    """Validation windows spread evenly over the held-out text, [n, T + 1]."""
    dataset = data.val_dataloader().dataset
    chosen = [dataset[i * len(dataset) // n] for i in range(n)]
    return torch.stack([torch.cat([x, y[-1:]]) for x, y in chosen])


@torch.no_grad()
def captured(model: L.LightningModule, documents: Tensor) -> dict[str, Tensor]:
    """Attention of every layer on the documents, [N, T, T]."""
    with capture_attention(model, batch_size=len(documents)) as record:
        model(documents[:, :-1])
    return record.result()


def analysed(attn: Tensor, **options: object) -> LayerAnalysis:
    """The analysis of one layer's maps."""
    monitor = ScalePOD(**options)
    monitor.update(attn)
    return monitor.compute()


@torch.no_grad()
def losses(model: L.LightningModule, documents: Tensor) -> tuple[float, float]:
    """Mean cross-entropy of all positions in one pass, and of each position given its past alone."""
    x, y = documents[:, :-1], documents[:, 1:]
    at_once = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
    stepwise = [F.cross_entropy(model(x[:, : t + 1])[:, -1], y[:, t]) for t in range(x.size(1))]
    return float(at_once), float(torch.stack(stepwise).mean())


def print_losses(models: dict[str, L.LightningModule], documents: Tensor) -> None:
    """What a gate that sees the whole sequence gains by it, and loses when it has to predict."""
    rows = [(name, *losses(model, documents[:64])) for name, model in models.items()]
    table(("model", "loss, one pass", "loss, left to right"), rows)


def print_convergence(maps: dict[str, Tensor]) -> None:
    """H*(0.10) of both decompositions against the number of documents."""
    rows = []
    for layer, attn in maps.items():
        found = [analysed(attn[:: len(attn) // n]) for n in DOCUMENTS]
        rows.append((layer, *(a.h_star[0.10] for a in found), *(a.lag_h_star[0.10] for a in found)))
    table(("layer", *(f"field, N = {n}" for n in DOCUMENTS), *(f"lag, N = {n}" for n in DOCUMENTS)), rows)


def print_burn_in(maps: dict[str, Tensor], burn_in: int = 32) -> None:
    """What the first queries, which share their attention among few keys, do to the result."""
    rows = []
    for layer, attn in maps.items():
        whole, rest = analysed(attn), analysed(attn, burn_in=burn_in)
        share = 1 - rest.energy / whole.energy
        rows.append((layer, share, whole.lag_h_star[0.10], rest.lag_h_star[0.10], whole.mean_lag, rest.mean_lag))
    first = f"share of the first {burn_in} queries"
    table(("layer", first, "lag H*(0.10)", "without them", "mean lag", "without them"), rows)


def print_scales(maps: dict[str, Tensor]) -> None:
    """Dominant lags and the decay of the lag spectrum."""
    rows = []
    for layer, attn in maps.items():
        a = analysed(attn)
        lags = ", ".join(f"{lag:.1f}" for lag in a.dominant_lags.tolist()) or "none"
        shares = ", ".join(f"{share:.2f}" for share in a.bands.values())
        rows.append((layer, lags, shares, a.lag_t_spec, float(a.lag_fit.r2[0]), a.t_spec, float(a.field_fit.r2[0])))
    header = ("layer", "dominant lags", "energy fine, medium, coarse", "lag T_spec", "r2", "field T_spec", "r2")
    table(header, rows)


def print_forward_lags(maps: dict[str, Tensor]) -> None:
    """Attention at A[b, b + tau]: what an analysis with lags counted forwards would work on."""
    rows = [
        (layer, float(attn.triu(1).abs().max()), float(attn.tril(-1).sum(-1).mean())) for layer, attn in maps.items()
    ]
    table(("layer", "largest weight at lags tau = j - i > 0", "mean weight at lags tau = i - j > 0"), rows)


def table(header: tuple[str, ...], rows: list[tuple[object, ...]]) -> None:
    """Print a Markdown table."""

    def cells(row: tuple[object, ...]) -> Iterator[str]:
        return (f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in row)

    print("\n| " + " | ".join(header) + " |\n|" + " --- |" * len(header))
    for row in rows:
        print("| " + " | ".join(cells(row)) + " |")


if __name__ == "__main__":
    main()
