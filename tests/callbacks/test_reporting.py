"""Scalars reach every logger and callback_metrics; pictures reach who takes them, and the disk for the rest."""

import csv
import math

import pytest
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny import TinyModule, tiny_loader, tiny_trainer

from scalepod import load_analyses
from scalepod.callbacks import ScalePODCallback, ScalePODWarning

LAYERS = ("01_layers.0", "02_layers.1")
QUANTITIES = {
    "energy", "mean_lag", "band_fine", "band_medium", "band_coarse",
    *(f"{lag}h_star_{eps}{band}" for lag in ("", "lag_") for eps in ("0.10", "0.05", "0.01")
      for band in ("", "_fine", "_medium", "_coarse")),
}  # fmt: skip


def watch(tmp_path, logger, max_steps=4, callbacks=(), **kwargs):
    callback = ScalePODCallback(every_n_steps=2, n_snapshots=16, on_error="raise", **kwargs)
    trainer = tiny_trainer(
        tmp_path,
        max_steps=max_steps,
        callbacks=[callback, *callbacks],
        logger=logger,
        log_every_n_steps=1,
        enable_checkpointing=bool(callbacks),
    )
    trainer.fit(TinyModule(), tiny_loader(), tiny_loader(seed=1))
    return callback, trainer


def events(folder):
    found = EventAccumulator(str(folder), size_guidance={"images": 0, "scalars": 0})
    found.Reload()
    return found


def test_tensorboard_gets_every_scalar_and_picture_at_every_firing(tmp_path):
    logger = TensorBoardLogger(tmp_path, name="run", version=0)
    callback, _ = watch(tmp_path, logger)
    board = events(tmp_path / "run" / "version_0")
    scalars = set(board.Tags()["scalars"])
    for layer in LAYERS:
        assert {f"scalepod_{quantity}/{layer}" for quantity in QUANTITIES} <= scalars
        assert callback.analyses[layer].scalars().keys() >= QUANTITIES
    for tag in ("scalepod_energy/01_layers.0", "scalepod_seconds"):
        assert [event.step for event in board.Scalars(tag)] == [0, 1, 3]
    images = {f"scalepod_{kind}/{layer}" for kind in ("modes", "scalogram") for layer in LAYERS}
    assert set(board.Tags()["images"]) == images | {f"scalepod_{page}" for page in ("overview", "confidence", "heads")}
    for tag in images:
        assert [event.step for event in board.Images(tag)] == [0, 1, 3]
    assert not list(tmp_path.rglob("*.png"))
    last = board.Scalars("scalepod_energy/02_layers.1")[-1].value
    assert last == pytest.approx(callback.analyses["02_layers.1"].energy, rel=1e-6)


def test_a_logger_without_pictures_gets_the_scalars_and_the_folder_the_pictures(tmp_path):
    _, trainer = watch(tmp_path, [CSVLogger(tmp_path, name="csv", version=0), TensorBoardLogger(tmp_path, "tb")])
    with (tmp_path / "csv" / "version_0" / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows if row["scalepod_seconds"]] == [0, 1, 3]
    assert len(list((tmp_path / "csv" / "version_0" / "scalepod_results" / "step_00000004").glob("*.png"))) == 7
    assert events(trainer.loggers[1].log_dir).Tags()["images"]


@pytest.mark.parametrize("save_dir", [None, "mine"])
def test_without_a_logger_results_are_in_memory_and_on_disk(tmp_path, save_dir):
    options = {} if save_dir is None else {"save_dir": tmp_path / save_dir}
    callback, trainer = watch(tmp_path, False, images=False, **options)
    folder = tmp_path / (save_dir or "scalepod_results")
    assert sorted(path.name for path in folder.iterdir()) == [f"step_{n:08d}.npz" for n in (0, 2, 4)]
    step, analyses = load_analyses(folder / "step_00000004.npz")
    assert step == 4
    assert tuple(analyses) == tuple(callback.analyses) == LAYERS
    for layer in LAYERS:
        assert analyses[layer].scalars() == callback.analyses[layer].scalars()
    shown = {name: float(value) for name, value in trainer.callback_metrics.items() if name.startswith("scalepod_")}
    assert shown["scalepod_mean_lag/01_layers.0"] == pytest.approx(callback.analyses["01_layers.0"].mean_lag)


def test_fast_dev_run_writes_nothing(tmp_path):
    callback = ScalePODCallback(n_snapshots=8, on_error="raise")
    trainer = tiny_trainer(tmp_path, callbacks=[callback], fast_dev_run=True, max_steps=-1)
    trainer.fit(TinyModule(), tiny_loader(), tiny_loader(seed=1))
    assert tuple(callback.analyses) == LAYERS
    assert not list(tmp_path.iterdir())


def test_early_stopping_and_checkpoints_can_watch_a_scalar(tmp_path):
    stop = EarlyStopping("scalepod_lag_h_star_0.10/01_layers.0", mode="max", patience=1, min_delta=1e9)
    keep = ModelCheckpoint(
        tmp_path / "best", monitor="scalepod_energy/02_layers.1", every_n_train_steps=2, filename="{step}"
    )
    _, trainer = watch(tmp_path, False, max_steps=40, callbacks=[stop, keep], images=False)
    assert trainer.global_step < 40
    assert keep.best_model_score is not None


class Still(TinyModule):
    """Attends in the same way in every document: no fluctuation, nothing but energies of zero is defined."""

    def forward(self, idx):
        return super().forward(torch.zeros_like(idx)) + self.embed(idx).sum()


def test_an_undefined_value_is_not_logged(tmp_path):
    callback = ScalePODCallback(every_n_steps=None, n_snapshots=8, on_error="raise")
    trainer = tiny_trainer(tmp_path, max_steps=1, callbacks=[callback])
    trainer.fit(Still(), tiny_loader(), tiny_loader(seed=1))
    assert math.isnan(callback.analyses["01_layers.0"].t_spec)
    ours = {name: value for name, value in trainer.callback_metrics.items() if name.startswith("scalepod_")}
    assert ours["scalepod_energy/01_layers.0"] == 0
    assert not any("t_spec" in name or "mean_lag" in name for name in ours)
    assert all(torch.isfinite(value) for value in ours.values())


def test_two_callbacks_in_one_trainer_keep_apart_and_resume(tmp_path):
    def pair():
        return [
            ScalePODCallback(every_n_steps=n, n_snapshots=8, images=False, prefix=prefix, on_error="raise")
            for n, prefix in ((2, "short"), (3, "long"))
        ]

    first = pair()
    trainer = tiny_trainer(tmp_path, max_steps=4, callbacks=first)
    trainer.fit(TinyModule(), tiny_loader(n=40), tiny_loader(seed=1))
    assert {name.split("_")[0] for name in trainer.callback_metrics if "mean_lag" in name} == {"short", "long"}
    trainer.save_checkpoint(tmp_path / "c.ckpt")
    stored = torch.load(tmp_path / "c.ckpt", weights_only=True)["callbacks"]
    assert [stored[callback.state_key]["last_step"] for callback in first] == [4, 4]
    again = pair()
    resumed = tiny_trainer(tmp_path, max_steps=5, callbacks=again)
    resumed.fit(TinyModule(), tiny_loader(n=40), tiny_loader(seed=1), ckpt_path=tmp_path / "c.ckpt")
    assert resumed.global_step == 5
    assert all(callback.analyses for callback in again)


class Broken(CSVLogger):
    def log_metrics(self, *args, **kwargs):
        raise OSError("the server is away")


def test_a_logger_that_fails_takes_nothing_from_the_others(tmp_path):
    loggers = [Broken(tmp_path, name="broken"), CSVLogger(tmp_path, name="csv", version=0)]
    callback = ScalePODCallback(every_n_steps=None, n_snapshots=8)
    trainer = tiny_trainer(tmp_path, max_steps=1, callbacks=[callback], logger=loggers, log_every_n_steps=50)
    with pytest.warns(ScalePODWarning, match="the server is away"):
        trainer.fit(TinyModule(), tiny_loader(), tiny_loader(seed=1))
    assert "scalepod_seconds" in (tmp_path / "csv" / "version_0" / "metrics.csv").read_text()
    assert len(list(tmp_path.rglob("step_*.npz"))) == 2
    assert len(list(tmp_path.rglob("*.png"))) == 10


def test_a_layer_of_a_very_long_name(tmp_path):
    class Long(TinyModule):
        def __init__(self):
            super().__init__()
            for end, layer in zip("ab", self.layers, strict=True):
                self.add_module("x" * 300 + end, layer)
            del self.layers

        def forward(self, idx):
            x = self.embed(idx)
            for end in "ab":
                x = x + getattr(self, "x" * 300 + end)(x)
            return self.head(x)

    callback = ScalePODCallback(every_n_steps=None, n_snapshots=8, on_error="raise")
    trainer = tiny_trainer(tmp_path, max_steps=1, callbacks=[callback])
    trainer.fit(Long(), tiny_loader(), tiny_loader(seed=1))
    assert len(list(tmp_path.rglob("*.png"))) == 10


def test_a_value_that_is_no_longer_measured_is_taken_back(tmp_path):
    class Fades(TinyModule):
        """Holds no attention after the first step."""

        def forward(self, idx):
            return super().forward(idx) if self.global_step == 0 else self.head(self.embed(idx))

    callback = ScalePODCallback(every_n_steps=None, n_snapshots=8, images=False)
    trainer = tiny_trainer(tmp_path, max_steps=1, callbacks=[callback])
    with pytest.warns(ScalePODWarning, match="no attention probabilities"):
        trainer.fit(Fades(), tiny_loader(), tiny_loader(seed=1))
    assert not any(name.startswith("scalepod_") for name in trainer.callback_metrics)
