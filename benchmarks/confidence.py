"""What telling how far the numbers can be believed costs beside the plain analysis, layer by layer.

python benchmarks/confidence.py [--path input.txt] [--steps 200]

trains a four-layer GPT for a moment on TinyShakespeare, captures N = 150 held-out documents of T = 256 tokens, and
times both analyses in turn. All times come from one run, so compare columns, not machines.
"""

import argparse
import time
from collections.abc import Callable

import lightning as L
import torch
from torch import Tensor

from scalepod import ScalePOD
from scalepod.capture import capture_attention
from scalepod.coherence import coherence
from scalepod.datamodules import TinyShakespeare
from scalepod.heads import HeadMoments, head_moments
from scalepod.models import BaselineGPT
from scalepod.tracking import ModeTracker

DOCUMENTS, TOKENS, BATCH, HEADS_EVERY = 150, 256, 25, 6


def main() -> None:
    """Train, capture, time, print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--path", default=None, help="the text; by default the data module finds it")
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()
    L.seed_everything(0, verbose=False)
    data = TinyShakespeare(path=arguments.path, block_size=TOKENS, batch_size=8)
    model = BaselineGPT(data.vocab_size, block_size=TOKENS, n_layer=4, n_head=4, n_embd=128)
    trainer = L.Trainer(
        max_steps=arguments.steps, logger=False, enable_checkpointing=False, limit_val_batches=0,
        enable_model_summary=False, enable_progress_bar=False, accelerator="cpu", devices=1,
    )  # fmt: skip
    trainer.fit(model, datamodule=data)
    maps, heads = captured(model.eval(), data)
    columns = ("layer", "plain", "with confidence", "heads", "following modes", "all over plain", "coherence, a scale")
    print("\n| " + " | ".join(columns) + " |\n|" + " --- |" * len(columns))
    for layer, attn in maps.items():
        print(f"| {layer} | " + " | ".join(times(attn, heads[layer])) + " |")


@torch.no_grad()
def captured(model: L.LightningModule, data: TinyShakespeare) -> tuple[dict[str, Tensor], dict[str, list[Tensor]]]:
    """Attention of every layer, [N, T, T], and that of the single heads of every third document, batch by batch."""
    dataset = data.val_dataloader().dataset
    documents = torch.stack([dataset[i * len(dataset) // DOCUMENTS][0] for i in range(DOCUMENTS)])
    maps: dict[str, list[Tensor]] = {}
    heads: dict[str, list[Tensor]] = {}
    for batch in documents.split(BATCH):
        with capture_attention(
            model, batch_size=len(batch), on_heads=lambda by_head, _: by_head,
            head_samples=range(0, len(batch), HEADS_EVERY),
        ) as record:  # fmt: skip
            model(batch)
        for layer, attn in record.result().items():
            maps.setdefault(layer, []).append(attn)
            heads.setdefault(layer, []).extend(record.heads[layer])
    return {layer: torch.cat(parts) for layer, parts in maps.items()}, heads


def times(attn: Tensor, heads: list[Tensor]) -> list[str]:
    """Every cell of the row of a layer."""
    plain, confident = both(lambda: analysed(attn, [], False), lambda: analysed(attn, [], True))
    moments = [head_moments(by_head) for by_head in heads]
    of_heads = seconds(lambda: [head_moments(by_head) for by_head in heads])
    analysis, tracker = analysed(attn, moments, True), ModeTracker()
    tracker.follow("layer", analysis)
    follow, cohere = seconds(lambda: tracker.follow("layer", analysis)), seconds(lambda: coherence(attn, 8.0), 1)
    ratio = (confident + of_heads + follow) / plain
    milliseconds = [f"{1e3 * time:.0f} ms" for time in (plain, confident, of_heads, follow, cohere)]
    return [*milliseconds[:4], f"{ratio:.2f}", milliseconds[4]]


def analysed(attn: Tensor, heads: list[HeadMoments], confidence: bool) -> object:
    """One firing's analysis of a layer."""
    monitor = ScalePOD(confidence=confidence)
    for batch in attn.split(BATCH):
        monitor.update(batch)
    for moments in heads:
        monitor.add_heads(moments)
    return monitor.compute()


def both(one: Callable[[], object], other: Callable[[], object], repeats: int = 7) -> tuple[float, float]:
    """Best times of two functions that take turns, so that what else the machine does meets both."""
    found = [(seconds(one, 1), seconds(other, 1)) for _ in range(repeats)]
    return min(a for a, _ in found), min(b for _, b in found)


def seconds(function: Callable[[], object], repeats: int = 3) -> float:
    """Best time of a function."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - start)
    return best


if __name__ == "__main__":
    main()
