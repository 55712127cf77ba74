"""Is a known lag found? Train models on text that repeats words of P letters, and see how far back they look.

    python benchmarks/planted.py [--steps 300] [--seeds 1] [--figure docs/images/planted.png]

Prints a Markdown table and draws E(a) of every layer for each P; half a minute a model on one core.
"""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import lightning as L
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from scalepod import LayerAnalysis, load_analyses
from scalepod.callbacks import ScalePODCallback
from scalepod.confidence.jackknife import interval
from scalepod.datamodules import PlantedScales
from scalepod.figures.axes import lag_axis
from scalepod.figures.canvas import save_figure
from scalepod.figures.style import DOMINANT_COLOR, INK, MUTED, own_style
from scalepod.models import BaselineGPT
from scalepod.scalogram import equivalent_lag

PERIODS = (5, 8, 13, 21)
STEPS = 300
DOCUMENTS, TOKENS = 64, 128
_COLORS = ("#9A9A9A", INK)  # of the layers


class Watched(NamedTuple):
    """What was seen of one model: the analyses of its layers, in order."""

    untrained: list[LayerAnalysis]
    trained: list[LayerAnalysis]


def watch(period: int, seed: int, steps: int, folder: str | Path) -> Watched:
    """Train two layers on words of `period` letters; the bands of the analysis are an octave, the middle one at P."""
    L.seed_everything(seed, verbose=False)
    data = PlantedScales(lag=period, block_size=TOKENS, batch_size=32)
    model = BaselineGPT(
        data.vocab_size, block_size=TOKENS, n_layer=2, n_head=4, n_embd=64, dropout=0.0,
        learning_rate=3e-3, min_learning_rate=3e-4, warmup_steps=20,
    )  # fmt: skip
    callback = ScalePODCallback(
        every_n_steps=None, n_snapshots=DOCUMENTS, bands={"below": period / 2, "period": period, "beyond": 2 * period},
        images=False, save_dir=folder, on_error="raise",
    )  # fmt: skip
    trainer = L.Trainer(
        max_steps=steps, max_epochs=-1, accelerator="cpu", devices=1, limit_val_batches=0, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder,
        callbacks=[callback],
    )  # fmt: skip
    trainer.fit(model, datamodule=data)
    _, untrained = load_analyses(Path(folder) / "step_00000000.npz")
    return Watched(list(untrained.values()), list(callback.analyses.values()))


def dominant(analysis: LayerAnalysis) -> tuple[float, float, float]:
    """The dominant lag with its 95 % interval, which is NaN where a part of the documents has no such peak."""
    assert analysis.confidence is not None
    lag = float(analysis.dominant_lags[0])
    return lag, *interval(lag, analysis.confidence.stderrs()["dominant_lag"], analysis.confidence.n_groups)


def figure(watched: dict[int, Watched]) -> Figure:
    """E(a) of every layer over the lag, one panel for each P; the untrained model pale."""
    with own_style():
        drawn = Figure(figsize=(8.4, 5.2), dpi=100, layout="constrained")
        FigureCanvasAgg(drawn)
        for ax, (period, models) in zip(drawn.subplots(2, 2).flat, watched.items(), strict=True):
            _panel(ax, period, models)
        drawn.legend(*drawn.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=6)
    return drawn


def _panel(ax: Axes, period: int, models: Watched) -> None:
    pairs = zip(models.untrained, models.trained, _COLORS, strict=True)
    for number, (before, after, color) in enumerate(pairs, start=1):
        for analysis, line, width, remark in ((before, ":", 0.8, ", untrained"), (after, "-", 1.8, "")):
            lags, energy = equivalent_lag(analysis.scales, analysis.omega0), analysis.scale_energy
            ax.plot(lags, energy / energy.max(), line, color=color, lw=width, label=f"layer {number}{remark}")
    lag, low, high = dominant(models.trained[-1])
    ax.axvline(period, color=MUTED, lw=0.8, ls="--", label="P")
    error = [[lag - low], [high - lag]]
    ax.errorbar(lag, 1.1, xerr=error, color=DOMINANT_COLOR, marker=".", capsize=4, lw=1.2, label="dominant lag, 95 %")
    ax.set_title(f"P = {period}: dominant lag of layer 2 is {lag:.2f} ± {high - lag:.2f}", loc="left")
    lag_axis(ax, TOKENS // 2 + 3, signed=False, label="equivalent lag of the scale")
    ax.set_xlim(1.9, TOKENS / 2 + 3)
    ax.set_ylim(0, 1.2)
    ax.set_ylabel("E(a) / max")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seeds", type=int, default=1, help="models of each P; the first is drawn")
    parser.add_argument("--figure", type=Path, default=Path(__file__).parents[1] / "docs" / "images" / "planted.png")
    given = parser.parse_args(arguments)
    drawn = {}
    print("| P | seed | layer 1 | layer 2 | layer 2, untrained | energy of layer 2, before, after |")
    print("| --- | --- | --- | --- | --- | --- |")
    for period in PERIODS:
        for seed in range(given.seeds):
            with tempfile.TemporaryDirectory() as folder:
                found = watch(period, seed, given.steps, folder)
            lags = [", ".join(f"{lag:.2f}" for lag in each.dominant_lags.tolist()) for each in found.trained]
            before, after = found.untrained[-1], found.trained[-1]
            first = f"{float(before.dominant_lags[0]):.2f}" if len(before.dominant_lags) else "none"
            cells = (period, seed, *lags, first, f"{before.energy:.2g}, {after.energy:.2g}")
            print("| " + " | ".join(map(str, cells)) + " |", flush=True)
            drawn.setdefault(period, found)
    save_figure(figure(drawn), given.figure)


if __name__ == "__main__":
    main()
