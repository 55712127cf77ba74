"""Training with the callback is the training without it, bit for bit."""

import copy
import pickle
import random

import lightning as L
import numpy as np
import pytest
import torch
from tiny import TinyModule, tiny_loader, tiny_trainer

from scalepod.callbacks import ScalePODCallback


def trained(tmp_path, callbacks, module=TinyModule, compiled=False, loader=None, **kwargs):
    L.seed_everything(3, workers=True, verbose=False)
    model = module(dropout=0.2)
    fitted = torch.compile(model, backend="eager") if compiled else model
    trainer = tiny_trainer(tmp_path, max_steps=6, callbacks=callbacks, **kwargs)
    train = tiny_loader(n=32, shuffle=True, **(loader or {}))
    trainer.fit(fitted, train, tiny_loader(seed=1))
    draws = (torch.rand(2), np.random.rand(2), random.random())  # noqa: NPY002 the global state is the point
    return model.losses, copy.deepcopy(model.state_dict()), draws


def assert_same(one, other):
    assert one[0] == other[0]
    assert list(one[1]) == list(other[1])
    assert all(torch.equal(one[1][name], other[1][name]) for name in one[1])
    assert torch.equal(one[2][0], other[2][0])
    assert np.array_equal(one[2][1], other[2][1])
    assert one[2][2] == other[2][2]


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "bf16-true"])
@pytest.mark.parametrize("options", [{}, {"accumulate_grad_batches": 3}, {"gradient_clip_val": 0.1}])
def test_bit_identical(tmp_path, precision, options):
    callback = ScalePODCallback(every_n_steps=2, n_snapshots=16, images=False, on_error="raise")
    watched = trained(tmp_path, [callback], precision=precision, **options)
    assert all(found.confidence and found.heads for found in callback.analyses.values())
    assert_same(watched, trained(tmp_path, [], precision=precision, **options))


def test_bit_identical_with_worker_processes(tmp_path):
    callback = ScalePODCallback(every_n_steps=3, n_snapshots=6, images=False, on_error="raise")
    loader = {"num_workers": 1, "multiprocessing_context": "fork"}
    assert_same(trained(tmp_path, [callback], loader=loader), trained(tmp_path, [], loader=loader))


class WithoutLog(TinyModule):
    """Lightning's log cannot be compiled by every version of torch, with or without a callback."""

    def log(self, *args, **kwargs):
        pass


def test_bit_identical_compiled(tmp_path):
    callback = ScalePODCallback(every_n_steps=2, n_snapshots=6, images=False, on_error="raise")
    watched = trained(tmp_path, [callback], module=WithoutLog, compiled=True)
    assert_same(watched, trained(tmp_path, [], module=WithoutLog, compiled=True))
    assert callback.analyses


def test_bit_identical_when_the_forward_fails(tmp_path):
    def explode(module, batch):
        torch.rand(3)
        module(batch[0])
        raise RuntimeError("no luck")

    callback = ScalePODCallback(every_n_steps=2, n_snapshots=6, forward_fn=explode)
    with pytest.warns(UserWarning, match="no luck"):
        watched = trained(tmp_path, [callback])
    assert_same(watched, trained(tmp_path, []))


class Noisy(TinyModule):
    """Draws random numbers in its forward, whatever the mode, and has a submodule that must stay in eval mode."""

    def __init__(self, dropout):
        super().__init__(dropout)
        self.layers[0].eval()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, idx):
        self.calls += 1
        return super().forward(idx) + torch.randn(1) * 1e-3


def test_bit_identical_with_buffers_that_change_and_frozen_modes(tmp_path):
    modes = []

    class Watch(L.Callback):
        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            modes.append([m.training for m in pl_module.modules()])

    callback = ScalePODCallback(every_n_steps=1, n_snapshots=6, images=False, on_error="raise")
    watched = trained(tmp_path, [callback, Watch()], module=Noisy)
    seen = list(modes)
    modes.clear()
    assert_same(watched, trained(tmp_path, [Watch()], module=Noisy))
    assert seen == modes


def test_nothing_is_left_on_the_module_or_grows(tmp_path):
    callback = ScalePODCallback(every_n_steps=1, n_snapshots=4, images=False, field=False, on_error="raise")
    model = TinyModule()
    before = {name: set(vars(module)) for name, module in model.named_modules()}
    tiny_trainer(tmp_path, max_steps=20, callbacks=[callback]).fit(model, tiny_loader(n=80), tiny_loader(seed=1))
    for name, module in model.named_modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
        assert set(vars(module)) <= before[name] | {"_trainer", "_hparams"}
    assert pickle.dumps(copy.deepcopy(callback))
    assert len(callback.analyses) == 2


def test_silenced_logging_comes_back(tmp_path):
    """A module with a validation step only: its self.log, lists and the loggers see nothing of the firing."""

    class StepOnly(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.inner, self.seen = TinyModule(), []

        def training_step(self, batch, batch_idx):
            return self.inner.training_step(batch, batch_idx)

        def validation_step(self, batch, batch_idx):
            self.seen.append(batch_idx)
            self.log("val_loss", self.inner(batch[0]).mean())
            self.logger.experiment.add_scalar("x", 1.0, 0)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    model = StepOnly()
    model.inner.log = lambda *args: None
    callback = ScalePODCallback(every_n_steps=1, n_snapshots=6, images=False, on_error="raise")
    trainer = tiny_trainer(
        tmp_path, max_steps=2, callbacks=[callback], limit_val_batches=0, logger=L.pytorch.loggers.CSVLogger(tmp_path)
    )
    trainer.fit(model, tiny_loader(), tiny_loader(seed=1))
    assert list(callback.analyses) == ["01_inner.layers.0", "02_inner.layers.1"]
    assert model.seen == []
    assert "log" not in vars(model)
    assert isinstance(trainer.logger, L.pytorch.loggers.CSVLogger)
