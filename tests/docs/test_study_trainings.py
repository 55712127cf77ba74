"""docs/study trains what is missing: complete trainings are kept, interrupted ones started again."""

import contextlib

import pytest
import torch
import trainings
import yaml
from run_folders import layers_of, write_run
from trainings import Training, TrainingFailed, complete_run, planned, train_missing

from scalepod.cli import main

STEPS = 4


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(trainings, "last_step", lambda: STEPS)


@pytest.fixture(scope="module")
def layers():
    return layers_of(n_snapshots=4, n_tokens=8)


def leave_run(folder, layers, steps=STEPS, checkpoint=STEPS):
    """What a training leaves that got so far."""
    write_run(folder, dict.fromkeys(range(0, steps + 1, 2), layers))
    if checkpoint is not None:
        (folder / "checkpoints").mkdir()
        torch.save({"state_dict": {}, "global_step": checkpoint}, folder / "checkpoints" / "last.ckpt")


class Trainer:
    """Stands for the command line: leaves complete runs, counts its calls, and is interrupted when told so."""

    def __init__(self, layers, interrupted=()):
        self.layers, self.interrupted, self.called = layers, set(interrupted), []

    def __call__(self, arguments, log):
        folder = log.parent
        self.called.append(folder.name)
        runs = folder / "study"
        version = runs / f"version_{len(list(runs.glob('*')))}"
        if folder.name in self.interrupted:
            self.interrupted.remove(folder.name)
            leave_run(version, self.layers, steps=2, checkpoint=None)
            return 1
        leave_run(version, self.layers)
        return 0


def test_every_model_once_and_two_with_every_seed():
    names = [training.name for training in planned(list(trainings.CHANGES), [1, 2, 3])]
    assert names == ["baseline_1", "ega_1", "ega_published_1", "morlet_1", "ega_morlet_1",
                     "baseline_2", "ega_2", "baseline_3", "ega_3"]  # fmt: skip


def test_complete_trainings_are_kept(tmp_path, layers):
    todo = planned(["baseline", "ega"], [1, 2])
    first, second = Trainer(layers), Trainer(layers)
    train_missing(tmp_path, todo, None, first)
    train_missing(tmp_path, todo, None, second)
    assert first.called == ["baseline_1", "ega_1", "baseline_2", "ega_2"]
    assert second.called == []


def test_an_interrupted_training_is_started_again(tmp_path, layers):
    todo = planned(["baseline", "morlet"], [1])
    trainer = Trainer(layers, interrupted=["morlet_1"])
    with pytest.raises(TrainingFailed, match=r"morlet_1 ended without its results, with exit status 1: see .*log\.txt"):
        train_missing(tmp_path, todo, None, trainer)
    train_missing(tmp_path, todo, None, trainer)
    assert trainer.called == ["baseline_1", "morlet_1", "morlet_1"]
    assert complete_run(tmp_path, todo[1]).name == "version_1"


def test_success_without_results_is_a_failure(tmp_path):
    with pytest.raises(TrainingFailed, match="ended without its results, with exit status 0"):
        train_missing(tmp_path, planned(["ega"], [1]), None, lambda arguments, log: 0)


@pytest.mark.parametrize(("steps", "checkpoint"), [(2, STEPS), (STEPS, 2), (STEPS, None)])
def test_incomplete_runs_are_recognised(tmp_path, layers, steps, checkpoint):
    leave_run(tmp_path / "ega_1" / "study_ega" / "version_0", layers, steps, checkpoint)
    assert complete_run(tmp_path, Training("ega", 1)) is None


def test_a_damaged_checkpoint_is_none(tmp_path, layers):
    folder = tmp_path / "ega_1" / "version_0"
    leave_run(folder, layers)
    (folder / "checkpoints" / "last.ckpt").write_bytes(b"cut off")
    assert complete_run(tmp_path, Training("ega", 1)) is None


@pytest.mark.parametrize("model", trainings.CHANGES)
def test_the_command_line_takes_the_shipped_configurations(model, tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("abc" * 1000)
    arguments = trainings.command(Training(model, 7), tmp_path / "out", text)[3:]
    assert arguments[0] == "fit"
    with contextlib.suppress(SystemExit):
        main([*arguments, "--print_config"])
    config = yaml.safe_load(capsys.readouterr().out)
    assert config["seed_everything"] == 7
    assert config["data"]["init_args"]["path"] == str(text)
    assert config["trainer"]["logger"]["init_args"]["save_dir"] == str(tmp_path / "out")
    assert config["trainer"]["logger"]["init_args"]["name"] == f"study_{model}"
    assert [c["init_args"].get("images") for c in config["trainer"]["callbacks"]] == [None, False]
    assert ("Gated" in config["model"]["class_path"]) == model.startswith("ega")
