"""The training batches as a Trainer gets them: with workers, several processes, and after a resume."""

from pathlib import Path

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer, seed_everything
from lightning.pytorch.loggers import CSVLogger

from scalepod.datamodules import CharTextDataModule

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers:UserWarning")  # on larger machines

T, B, N_STEPS = 16, 8, 21
STEPS_PER_EPOCH = 8  # 900 characters train: ceil(900 / (16 * 8))
SAVED = (1, 5, 8, 10, 16)  # inside epochs, at their ends, and where validation runs


class Recorder(LightningModule):
    """Writes down where the windows start that it is given."""

    def __init__(self, block_size=T):
        super().__init__()
        self.save_hyperparameters()
        self.scale = torch.nn.Parameter(torch.ones(()))
        self.trained, self.evaluated = [], []

    def training_step(self, batch, batch_idx):
        self.trained.append(batch[0][:, 0].tolist())
        return self.scale**2

    def validation_step(self, batch, batch_idx):
        self.evaluated += batch[0][:, 0].tolist()

    def test_step(self, batch, batch_idx):
        self.evaluated += batch[0][:, 0].tolist()

    def predict_step(self, batch, batch_idx):
        self.evaluated += batch[0][:, 0].tolist()
        return batch[0]

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class SaveEverywhere(Callback):
    """Saves a checkpoint at every hook at which Lightning saves one."""

    def __init__(self, folder: Path):
        self.folder = folder

    def save(self, trainer, hook):
        if trainer.global_step in SAVED:
            trainer.save_checkpoint(self.folder / f"{trainer.global_step:02d}-{hook}.ckpt", weights_only=False)

    def on_train_batch_end(self, trainer, *args):
        self.save(trainer, "batch")

    def on_validation_end(self, trainer, *args):
        self.save(trainer, "validation")

    def on_train_epoch_end(self, trainer, *args):
        self.save(trainer, "epoch")


def make_trainer(**options) -> Trainer:
    quiet = {
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
    }
    return Trainer(accelerator="cpu", **(quiet | options))


def trained_on(path: Path, seed: int = 3, num_workers: int = 0, ckpt_path: Path | None = None, **options) -> list:
    """Train up to step 21 and return where the windows of each batch started."""
    seed_everything(seed, verbose=False)
    model = Recorder()
    data = CharTextDataModule(path, block_size=T, batch_size=B, num_workers=num_workers)
    trainer = make_trainer(max_steps=N_STEPS, max_epochs=-1, **options)
    trainer.fit(model, datamodule=data, ckpt_path=ckpt_path)
    return model.trained


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"limit_val_batches": 0},
        {"val_check_interval": 5, "check_val_every_n_epoch": None},
        {"limit_train_batches": 5},
        {"reload_dataloaders_every_n_epochs": 1},
    ],
    ids=["validate each epoch", "never validate", "validate by steps", "short epochs", "new loaders"],
)
def test_a_resumed_run_reads_what_it_would_have_read(counting_text, tmp_path, options):
    whole = trained_on(counting_text, callbacks=[SaveEverywhere(tmp_path)], **options)
    assert len(whole) == N_STEPS
    assert len({tuple(batch) for batch in whole}) == N_STEPS  # no batch is read twice
    checkpoints = sorted(tmp_path.glob("*.ckpt"))
    assert len(checkpoints) >= len(SAVED)
    for checkpoint in checkpoints:
        n_done = int(checkpoint.name[:2])
        assert trained_on(counting_text, ckpt_path=checkpoint, **options) == whole[n_done:], checkpoint.name


def test_the_seed_alone_decides_the_batches(counting_text):
    first = trained_on(counting_text)
    assert trained_on(counting_text) == first
    assert trained_on(counting_text, num_workers=2) == first
    assert trained_on(counting_text, num_workers=2, limit_train_batches=3) == first  # workers read ahead in vain
    assert trained_on(counting_text, accumulate_grad_batches=2)[:N_STEPS] == first
    assert trained_on(counting_text, seed=4) != first


def test_an_epoch_covers_the_training_split_once(counting_text):
    seed_everything(3, verbose=False)
    model = Recorder()
    trainer = make_trainer(max_epochs=2)
    trainer.fit(model, datamodule=CharTextDataModule(counting_text, block_size=T, batch_size=B))
    assert trainer.global_step == 2 * STEPS_PER_EPOCH
    assert all(len(batch) == B for batch in model.trained)


def test_a_second_fit_goes_on(counting_text):
    seed_everything(3, verbose=False)
    model = Recorder()
    data = CharTextDataModule(counting_text, block_size=T, batch_size=B)
    trainer = make_trainer(max_steps=10, max_epochs=-1)
    trainer.fit(model, datamodule=data)
    trainer.fit_loop.epoch_loop.max_steps = N_STEPS
    trainer.fit(model, datamodule=data)
    assert model.trained == trained_on(counting_text)


@pytest.mark.parametrize("command", ["validate", "test", "predict"])
def test_every_evaluation_reads_the_validation_windows(counting_text, command):
    model = Recorder()
    getattr(make_trainer(), command)(model, datamodule=CharTextDataModule(counting_text, block_size=T, batch_size=B))
    assert model.evaluated == [900 + i * T for i in range(6)]


def test_overfitting_repeats_the_first_batches_in_order(counting_text):
    seed_everything(3, verbose=False)
    model = Recorder()
    trainer = make_trainer(overfit_batches=2, max_epochs=2)
    trainer.fit(model, datamodule=CharTextDataModule(counting_text, block_size=T, batch_size=B))
    first, second = [list(range(start, start + B * T, T)) for start in (0, B * T)]
    assert model.trained == [first, second, first, second]


def test_windows_shorter_than_the_model_allows_can_be_logged(counting_text, tmp_path):
    logger = CSVLogger(tmp_path)
    data = CharTextDataModule(counting_text, block_size=T, batch_size=B)
    make_trainer(max_steps=1, max_epochs=-1, logger=logger, log_every_n_steps=1).fit(Recorder(block_size=64), data)
    assert logger.experiment.hparams["block_size"] == 64
    assert logger.experiment.hparams["data_block_size"] == T
    assert logger.experiment.hparams["data_name"] == "counting.txt"
    assert len(logger.experiment.hparams["data_sha256"]) == 64


def test_a_checkpoint_restores_the_data_module(counting_text, tmp_path):
    data = CharTextDataModule(counting_text, block_size=T, batch_size=B)  # given as a Path
    trainer = make_trainer(max_steps=1, max_epochs=-1)
    trainer.fit(Recorder(), datamodule=data)
    trainer.save_checkpoint(tmp_path / "run.ckpt", weights_only=False)
    restored = CharTextDataModule.load_from_checkpoint(tmp_path / "run.ckpt", weights_only=True)
    assert restored.hparams["path"] == str(counting_text)
    assert (restored.block_size, restored.batch_size) == (T, B)
