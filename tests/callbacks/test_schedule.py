"""When the callback fires, and at which x its points land."""

from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.loggers.logger import Logger
from tiny import TinyModule, tiny_loader, tiny_trainer

from scalepod.callbacks import ScalePODCallback


class Recorder(Logger):
    """Keeps every call of log_metrics."""

    def __init__(self) -> None:
        super().__init__()
        self.points: list[tuple[int, dict[str, float]]] = []

    name = "recorder"
    version = 0

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        pass

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.points.append((step, dict(metrics)))

    def at(self, name: str) -> list[int]:
        return [step for step, metrics in self.points if name in metrics]


class Counted(ScalePODCallback):
    """Keeps the optimizer steps at which it fired."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(n_snapshots=4, images=False, field=False, on_error="raise", **kwargs)
        self.steps: list[int] = []

    def analyse(self, trainer: Any, module: Any) -> None:
        self.steps.append(trainer.global_step)
        super().analyse(trainer, module)


@pytest.fixture
def fit(tmp_path):
    def run(callback, max_steps, module=None, ckpt=None, **kwargs):
        logger = Recorder()
        trainer = tiny_trainer(
            tmp_path, max_steps=max_steps, callbacks=[callback], logger=logger, log_every_n_steps=1, **kwargs
        )
        trainer.fit(module or TinyModule(), tiny_loader(n=40), tiny_loader(seed=1), ckpt_path=ckpt)
        return trainer, logger

    return run


SOMETIMES = {"num_sanity_val_steps": 2, "val_check_interval": 3}


@pytest.mark.parametrize("accumulate", [1, 4])
@pytest.mark.parametrize("validation", [{}, {"limit_val_batches": 0}, SOMETIMES])
def test_fires_at_start_then_every_n_optimizer_steps_then_at_the_end(fit, accumulate, validation):
    callback = Counted(every_n_steps=2)
    fit(callback, 5, accumulate_grad_batches=accumulate, **validation)
    assert callback.steps == [0, 2, 4, 5]


def test_does_not_fire_twice_when_the_last_step_is_a_multiple(fit):
    callback = Counted(every_n_steps=2)
    fit(callback, 4)
    assert callback.steps == [0, 2, 4]


def test_only_first_and_last_without_a_step_count(fit):
    callback = Counted(every_n_steps=None)
    fit(callback, 3)
    assert callback.steps == [0, 3]


def test_epochs_instead_of_steps(fit):
    callback = Counted(every_n_epochs=2)
    fit(callback, -1, max_epochs=5)  # ten batches an epoch
    assert callback.steps == [0, 20, 40, 50]


def test_works_without_a_validation_loop_of_its_own_data(fit, tmp_path):
    callback = Counted(every_n_steps=2, dataloader=tiny_loader(seed=2))
    tiny_trainer(tmp_path, callbacks=[callback]).fit(TinyModule(), tiny_loader())
    assert callback.steps == [0, 2, 4]


@pytest.mark.parametrize("accumulate", [1, 4])
def test_a_resumed_run_goes_on_where_it_was(fit, tmp_path, accumulate):
    trainer, _ = fit(Counted(every_n_steps=2), 3, accumulate_grad_batches=accumulate)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    resumed = Counted(every_n_steps=2)
    fit(resumed, 6, ckpt=tmp_path / "last.ckpt", accumulate_grad_batches=accumulate)
    assert resumed.steps == [4, 6]


def test_a_callback_new_to_a_resumed_run_fires_before_its_first_step(fit, tmp_path):
    trainer = tiny_trainer(tmp_path, max_steps=3)
    trainer.fit(TinyModule(), tiny_loader(n=40))
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    fresh = Counted(every_n_steps=2)
    fit(fresh, 5, ckpt=tmp_path / "last.ckpt")
    assert fresh.steps == [3, 4, 5]


def test_a_second_fit_is_a_new_run(fit):
    callback = Counted(every_n_steps=2)
    fit(callback, 3)
    documents = callback._documents
    fit(callback, 2)
    assert callback.steps == [0, 2, 3, 0, 2]
    assert callback._documents is not documents


@pytest.mark.parametrize("accumulate", [1, 4])
def test_points_land_on_the_x_of_self_log(fit, accumulate):
    _, logger = fit(Counted(every_n_steps=2), 5, accumulate_grad_batches=accumulate)
    losses = logger.at("train_loss")
    assert losses == [0, 1, 2, 3, 4]
    assert logger.at("scalepod_seconds") == [0, *losses[1::2], losses[-1]]


class TwoOptimizers(TinyModule):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx):
        for optimizer in self.optimizers():
            optimizer.zero_grad()
            self.manual_backward(super().training_step(batch, batch_idx))
            optimizer.step()

    def configure_optimizers(self):
        return [torch.optim.SGD(self.embed.parameters(), lr=0.1), torch.optim.SGD(self.head.parameters(), lr=0.1)]


def test_two_optimizers_share_the_x_of_self_log(fit):
    callback = Counted(every_n_steps=4)  # two optimizer steps a batch: every second batch
    _, logger = fit(callback, 10, module=TwoOptimizers())
    assert callback.steps == [0, 4, 8, 10]
    assert logger.at("scalepod_seconds") == [0, 1, 3, 4]
    assert logger.at("train_loss") == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("every", [1, 7])
def test_every_firing_arrives_whatever_log_every_n_steps_is(tmp_path, every):
    logger, callback = Recorder(), Counted(every_n_steps=3)
    trainer = tiny_trainer(tmp_path, max_steps=6, callbacks=[callback], logger=logger, log_every_n_steps=every)
    trainer.fit(TinyModule(), tiny_loader(n=40), tiny_loader(seed=1))
    assert logger.at("scalepod_mean_lag/01_layers.0") == [0, 2, 5]


class Restores(L.Callback):
    """Loads a checkpoint of the untrained model at the start, as the learning rate finder does."""

    def on_fit_start(self, trainer, pl_module):
        for callback in trainer.callbacks:
            if isinstance(callback, Counted):
                callback.load_state_dict(callback.state_dict())


def test_a_state_from_before_the_first_firing_is_no_resumed_run(tmp_path):
    callback = Counted(every_n_steps=2)
    trainer = tiny_trainer(tmp_path, max_steps=3, callbacks=[callback, Restores()])
    trainer.fit(TinyModule(), tiny_loader(), tiny_loader(seed=1))
    assert callback.steps == [0, 2, 3]


def test_a_run_cut_off_just_before_a_firing_makes_up_for_it(fit, tmp_path):
    class SaveFirst(L.Callback):
        def on_train_batch_end(self, trainer, *args):
            if trainer.global_step == 2:
                trainer.save_checkpoint(tmp_path / "before.ckpt")

    saved = Counted(every_n_steps=2)
    trainer = tiny_trainer(tmp_path, max_steps=3, callbacks=[SaveFirst(), saved])
    trainer.fit(TinyModule(), tiny_loader(n=40), tiny_loader(seed=1))
    resumed = Counted(every_n_steps=2)
    fit(resumed, 5, ckpt=tmp_path / "before.ckpt")
    assert resumed.steps == [2, 4, 5]
