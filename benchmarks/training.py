"""What the callback costs a training run: seconds a step with and without it, and seconds a firing.

    python benchmarks/training.py [--path input.txt] [--full]

Runs alternate within one process, so that ratios hold on a busy machine.
"""

import argparse
import tempfile
import time
from typing import Any

import lightning as L
from lightning.pytorch.loggers import TensorBoardLogger

from scalepod.callbacks import ScalePODCallback
from scalepod.datamodules import TinyShakespeare
from scalepod.models import EnergyGatedGPT

QUICKSTART = {"block_size": 128, "n_layer": 4, "n_head": 4, "n_embd": 128, "dropout": 0.0}
FULL = {"block_size": 256, "n_layer": 6, "n_head": 8, "n_embd": 256, "dropout": 0.1}


class Timed(ScalePODCallback):
    """Counts the seconds spent in firings, and in their capture and analysis alone."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.seconds, self.analysis_seconds, self.firings = 0.0, 0.0, 0

    def _fire(self, *args: Any, **kwargs: Any) -> None:
        before = time.perf_counter()
        super()._fire(*args, **kwargs)
        self.seconds += time.perf_counter() - before

    def analyse(self, *args: Any) -> None:
        """Analyse as the callback does, on the clock."""
        before = time.perf_counter()
        super().analyse(*args)
        self.analysis_seconds += time.perf_counter() - before
        self.firings += 1


def run(data: L.LightningDataModule, shape: dict[str, Any], steps: int, callback: Timed | None) -> float:
    """Train for some steps; seconds a step, firings left out."""
    L.seed_everything(0, verbose=False)
    model = EnergyGatedGPT(data.vocab_size, **shape)
    with tempfile.TemporaryDirectory() as folder:
        trainer = L.Trainer(
            max_steps=steps, accelerator="auto", devices=1, limit_val_batches=0, num_sanity_val_steps=0,
            enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
            logger=TensorBoardLogger(folder), callbacks=[] if callback is None else [callback],
        )  # fmt: skip
        before = time.perf_counter()
        trainer.fit(model, datamodule=data)
        spent = time.perf_counter() - before
    return (spent - (0.0 if callback is None else callback.seconds)) / steps


def main() -> None:
    """Alternate runs without and with the callback, and print what each costs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--path", default=None, help="the text; by default the data module finds it")
    parser.add_argument("--full", action="store_true", help="the size of configs/ega.yaml instead of quickstart's")
    arguments = parser.parse_args()
    shape, batch_size, steps = (FULL, 64, 2) if arguments.full else (QUICKSTART, 16, 60)
    data = TinyShakespeare(path=arguments.path, block_size=shape["block_size"], batch_size=batch_size)
    off, on, firing, analysis, plain = [], [], [], [], []
    for _ in range(3):
        off.append(run(data, shape, steps, None))
        callback = Timed(every_n_steps=steps // 2, on_error="raise")
        on.append(run(data, shape, steps, callback))
        firing.append(callback.seconds / callback.firings)
        analysis.append(callback.analysis_seconds / callback.firings)
        bare = Timed(every_n_steps=steps // 2, on_error="raise", confidence=False, images=False)
        run(data, shape, steps, bare)
        plain.append(bare.analysis_seconds / bare.firings)
    step, watched, fired, analysed, bare_analysis = (sorted(each)[1] for each in (off, on, firing, analysis, plain))
    print(f"seconds a step: {step:.3f} without the callback, {watched:.3f} with it between firings")
    print(f"seconds a firing: {fired:.2f}, of which capture and analysis {analysed:.2f}; {fired / step:.1f} steps")
    print(f"capture and analysis with confidence=False: {bare_analysis:.2f}")
    for every in (200, 500):
        print(f"fired every {every} steps: {fired / step / every:.1%} of the training time")


if __name__ == "__main__":
    main()
