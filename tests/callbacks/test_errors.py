"""What goes wrong is said, and does not end the training."""

import pytest
import torch
from tiny import TinyModule, tiny_loader, tiny_trainer

from scalepod.callbacks import ScalePODCallback, ScalePODWarning, scale_pod


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every_n_steps": 0}, "every_n_steps must be at least 1 or None: got 0"),
        ({"every_n_epochs": -1}, "every_n_epochs must be at least 1 or None: got -1"),
        ({"n_snapshots": 1}, "n_snapshots must be at least 2"),
        ({"on_error": "ignore"}, "on_error must be one of"),
        ({"heads": "all"}, "heads must be one of"),
        ({"n_modes": 0}, "n_modes must be at least 1: got 0"),
        ({"omega0": 2.0}, "omega0 must be at least 5"),
        ({"bands": {"fine": -4}}, "bands must be distinct positive lags"),
        ({"bands": {"whole": 4}}, "no band may be called 'whole'"),
        ({"epsilons": (1.0,)}, r"epsilons must lie in \[0, 1\)"),
        ({"fit_range": (30, 1)}, "fit_range must be two modes"),
        ({"burn_in": -1}, "burn_in must not be negative: got -1"),
    ],
)
def test_options_that_make_no_sense(options, message):
    with pytest.raises(ValueError, match=message):
        ScalePODCallback(**options)


class NoAttention(TinyModule):
    def __init__(self):
        super().__init__(n_layers=0)


def refuse(*args, **kwargs):
    raise OSError("the disk is full")


@pytest.mark.parametrize("where", ["attention", "data", "forward", "drawing", "disk"])
def test_each_failure_is_one_warning_and_training_goes_on(tmp_path, monkeypatch, where):
    model = NoAttention() if where == "attention" else TinyModule()
    options = {"forward_fn": refuse} if where == "forward" else {}
    if where in ("drawing", "disk"):
        monkeypatch.setattr(scale_pod, "draw" if where == "drawing" else "save_analyses", refuse)
    callback = ScalePODCallback(every_n_steps=2, n_snapshots=6, field=False, **options)
    loaders = (tiny_loader(),) if where == "data" else (tiny_loader(), tiny_loader(seed=1))
    trainer = tiny_trainer(tmp_path, max_steps=3, callbacks=[callback])
    with pytest.warns(ScalePODWarning) as caught:
        trainer.fit(model, *loaders)
    said = {"attention": "no attention probabilities were seen", "data": "no validation data"}.get(
        where, "the disk is full"
    )
    ours = [str(w.message) for w in caught if w.category is ScalePODWarning]
    for step, text in zip((0, 2, 3), ours, strict=True):
        assert f"at step {step};" in text
        assert said in text
        assert ("Traceback" in text) == (where not in ("attention", "data"))
    assert trainer.global_step == 3
    assert model.training
    assert ("scalepod_seconds" in trainer.callback_metrics) == (where in ("drawing", "disk"))


def test_on_error_raise_ends_the_training(tmp_path):
    callback = ScalePODCallback(forward_fn=refuse, on_error="raise")
    with pytest.raises(OSError, match="the disk is full"):
        tiny_trainer(tmp_path, callbacks=[callback]).fit(TinyModule(), tiny_loader(), tiny_loader(seed=1))


class Poisoned(TinyModule):
    """Gives NaN for documents that start with token 0, and in the second layer for all."""

    def forward(self, idx):
        x = self.embed(idx)
        x = torch.where((idx[:, :1] == 0)[..., None], torch.nan, x)
        self.layers[0](x)
        self.layers[1](x * torch.nan)
        return super().forward(idx)


def test_documents_with_nan_are_left_out_and_counted(tmp_path):
    loader = tiny_loader(seed=1, n=40)
    poisoned = int((loader.dataset.tensors[0][:, 0] == 0).sum())
    assert poisoned > 0
    callback = ScalePODCallback(every_n_steps=None, n_snapshots=40, images=False, on_error="raise", dataloader=loader)
    trainer = tiny_trainer(tmp_path, max_steps=1, callbacks=[callback])
    with pytest.warns(
        ScalePODWarning, match=r"layers.0: holds NaN or infinity; .*layers.1#0: the analysis needs"
    ) as said:
        trainer.fit(Poisoned(), tiny_loader())
    assert [w.category for w in said].count(ScalePODWarning) == 1  # not at every firing
    first = callback.analyses["01_layers.0#0"]
    assert (first.n_snapshots, first.n_skipped) == (40 - poisoned, poisoned)
    assert torch.isfinite(first.scalogram).all()
    assert all(torch.isfinite(torch.tensor(v)) for v in first.scalars().values())
    assert not any(name.endswith("layers.1#0") for name in callback.analyses)
    assert any("layers.1#0: the analysis needs at least 2 documents" in note for note in callback.notes)


def test_n_snapshots_larger_than_the_data(tmp_path):
    callback = ScalePODCallback(every_n_steps=None, n_snapshots=500, images=False, on_error="raise")
    trainer = tiny_trainer(tmp_path, max_steps=1, callbacks=[callback])
    trainer.fit(TinyModule(), tiny_loader(), tiny_loader(n=10, seed=1))
    assert {a.n_snapshots for a in callback.analyses.values()} == {10}
