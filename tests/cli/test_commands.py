"""The commands: help, version, what a fit says and writes, and the evaluation of what it left."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from command_line import BARE, NO_LOGGER, SMALL, SMALL_CALLBACK, run
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from scalepod.callbacks import ScalePODCallback
from scalepod.cli import OTHER_COMMANDS, TRAINING_COMMANDS, main
from scalepod.training_cli import TrainingCLI, shipped_configs, with_shipped_configs

OWN = ["--model=own_model.OwnModel", "--data=own_model.OwnData"]


@pytest.fixture
def interrupt_handler() -> Iterator[None]:
    """Lightning ignores further interrupts once it has seen one."""
    handler = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, handler)


def watching(cli: TrainingCLI) -> list[ScalePODCallback]:
    return [callback for callback in cli.trainer.callbacks if isinstance(callback, ScalePODCallback)]


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"scalepod {version('scalepod')}\n"


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_lists_the_commands(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    for command, text in (TRAINING_COMMANDS | OTHER_COMMANDS).items():
        assert command in shown
        assert text in shown


def test_help_does_not_import_the_training_stack() -> None:
    code = (
        "import sys, scalepod.cli as cli\ntry: cli.main(['--help'])\nfinally: print('lightning.pytorch' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines()[-1] == "False"


@pytest.mark.parametrize("command", TRAINING_COMMANDS)
def test_help_of_a_command_begins_with_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    beginning = capsys.readouterr().out[:2500]
    assert f"  scalepod {command} --config " in beginning
    for name in shipped_configs():
        assert name in beginning
    assert "--watch" in beginning


def test_unknown_command_is_told_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["train"])
    assert stop.value.code == 2
    known = ", ".join(map(repr, TRAINING_COMMANDS | OTHER_COMMANDS))
    assert f"invalid choice: 'train' (choose from {known})" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "path"),
    [
        (["--config", "ega"], shipped_configs()["ega"]),
        (["-c", "ega"], shipped_configs()["ega"]),
        (["--config=ega.yaml"], shipped_configs()["ega"]),
        (["--config=configs/ega.yaml"], shipped_configs()["ega"]),
        (["--config=mine.yaml"], "mine.yaml"),
        (["--config=elsewhere/ega.yaml"], "elsewhere/ega.yaml"),
    ],
)
def test_a_configuration_that_is_no_file_may_be_a_shipped_one(given: list[str], path: Path | str) -> None:
    (found,) = [arg.removeprefix("--config=") for arg in with_shipped_configs(given) if arg not in ("--config", "-c")]
    assert found == str(path)


def test_a_file_comes_before_a_shipped_configuration_and_other_options_are_left_alone(folder: Path) -> None:
    (folder / "ega").write_text("trainer: {max_steps: 7}")
    arguments = ["--config", "ega", "--data.path", "ega.yaml", "--ckpt_path=a=b.ckpt", "quickstart"]
    assert list(with_shipped_configs(arguments)) == arguments


def test_fit_says_where_to_look_and_logs_there(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "--config=quickstart", *SMALL, "--trainer.callbacks.n_snapshots=4"]) == 0
    said = capsys.readouterr().out
    assert "Trained 2 steps, val_loss " in said
    (line,) = [line for line in said.splitlines() if "tensorboard" in line]
    *_, flag, logdir, samples, value = line.split()
    assert (flag, samples, value) == ("--logdir", "--samples_per_plugin", "images=1000")
    events = EventAccumulator(str(folder / logdir / "version_0"), size_guidance={"images": 0}).Reload()
    assert [image.step for image in events.Images("scalepod_overview")] == [0, 1]
    assert [scalar.step for scalar in events.Scalars("scalepod_seconds")] == [0, 1]
    (best,) = [line.split(maxsplit=2)[2] for line in said.splitlines() if line.startswith("Best model")]
    assert Path(best).is_file()


def test_fit_says_where_results_are_when_there_is_no_tensorboard(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli = run("fit", "--config=quickstart", SMALL, SMALL_CALLBACK, NO_LOGGER, "--trainer.default_root_dir=results")
    said = capsys.readouterr().out
    assert "tensorboard" not in said
    (line,) = [line for line in said.splitlines() if line.startswith("Results")]
    (callback,) = watching(cli)
    assert callback.analyses
    assert len(list(Path(line.split()[1]).glob("scalepod_results/step_*.npz"))) == 2


@pytest.mark.filterwarnings("ignore:Checkpoint directory")
def test_fit_is_watched_unless_told_otherwise() -> None:
    no_step = "--trainer.max_steps=0"
    small = ["--config=quickstart", *SMALL, NO_LOGGER, *SMALL_CALLBACK, no_step]
    assert [callback.n_snapshots for callback in watching(run("fit", small))] == [4]
    assert watching(run("fit", small, "--watch=false")) == []
    assert [callback.n_snapshots for callback in watching(run("fit", OWN, BARE, no_step))] == [150]
    assert watching(run("validate", OWN, BARE)) == []


@pytest.mark.usefixtures("interrupt_handler")
def test_interrupt_ends_with_a_word_and_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["fit", "--model=own_model.InterruptedModel", "--data=own_model.OwnData", *BARE, "--watch=false"])
    assert stop.value.code == 1
    assert "Trained 0 steps" in capsys.readouterr().out


def test_saved_model_is_evaluated_by_its_saved_config(folder: Path) -> None:
    trained = run("fit", "--config=quickstart", SMALL, SMALL_CALLBACK)
    run_folder = folder / "runs" / "quickstart" / "version_0"
    saved = (run_folder / "config.yaml").read_text()
    where = ["--config", str(run_folder / "config.yaml"), "--ckpt_path", str(run_folder / "checkpoints" / "last.ckpt")]
    where.append("--trainer.logger.version=0")
    evaluated = {command: run(command, where).trainer for command in ("validate", "test", "predict")}
    assert evaluated["validate"].callback_metrics["val_loss"] == trained.trainer.callback_metrics["val_loss"]
    assert evaluated["test"].callback_metrics["test_loss"].isfinite()
    assert evaluated["predict"].predict_loop.predictions[0].shape == (4, 16)
    assert (run_folder / "config.yaml").read_text() == saved, "an evaluation must leave the record of the fit alone"


@pytest.mark.filterwarnings("ignore:The dirpath has changed")
def test_resume_from_the_last_checkpoint(folder: Path) -> None:
    run("fit", "--config=quickstart", SMALL, SMALL_CALLBACK)
    last = folder / "runs" / "quickstart" / "version_0" / "checkpoints" / "last.ckpt"
    resumed = run(
        "fit", "--config=quickstart", SMALL, SMALL_CALLBACK, "--trainer.max_steps=3", "--ckpt_path", str(last)
    )
    assert resumed.trainer.global_step == 3
