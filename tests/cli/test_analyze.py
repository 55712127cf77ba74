"""`scalepod analyze`: the numbers of the live callback, bit for bit, out of the checkpoints of fits."""

import json
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from typing import Any

import lightning as L
import pytest
import torch
from command_line import BARE, ENVIRONMENT, NO_LOGGER, SMALL, run

import scalepod
from scalepod.checkpoint import classes_of, read_checkpoint
from scalepod.cli import main
from scalepod.datamodules import CharTextDataModule
from scalepod.models import BaselineGPT, EnergyGatedGPT
from scalepod.summary import summary

RUN = Path("runs/quickstart/version_0")
LAST = f"--ckpt_path={RUN}/checkpoints/last.ckpt"
CALLBACK = ["--trainer.callbacks.n_snapshots=20", "--trainer.callbacks.images=false"]
NO_IMAGES = "--images=false"


OPTIONS = ["--trainer.callbacks.burn_in=3", "--trainer.callbacks.bands={near: 2, far: 9}"]


def fit(*options: str) -> None:
    """Train two steps with quickstart, watched at the first and the last, and save the last."""
    fitted = run("fit", "--config=quickstart", SMALL, CALLBACK, list(options))
    fitted.trainer.save_checkpoint(RUN / "checkpoints" / "last.ckpt")  # whether it is the best or not


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a text and a run with options of its own."""
    folder = tmp_path_factory.mktemp("fitted")
    with chdir(folder), pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        Path("text.txt").write_text("to be or not to be, that is the question\n" * 100)
        fit(*OPTIONS)
    return folder


@pytest.fixture
def trained(fitted: Path, folder: Path) -> Path:
    """The folder that the test runs in, with what is in `fitted`."""
    return Path(copytree(fitted, folder, dirs_exist_ok=True))


def same_numbers(live: scalepod.Results, found: scalepod.Results) -> None:
    """Every scalar and array that both firings have is the same to the last bit."""
    (step,) = found.steps
    assert found.layers == live.layers
    for layer in found.layers:
        expected = dict(live.headers[step].scalars[layer])
        for of_two_firings in ("mode_stability", "lag_mode_stability"):
            expected.pop(of_two_firings)
        assert found.header.scalars[layer] == expected
        one, other = live.analyses[step][layer], found.analyses[step][layer]
        assert torch.equal(one.lag.eigenvalues, other.lag.eigenvalues)
        assert torch.equal(one.field.eigenvalues, other.field.eigenvalues)
        assert torch.equal(one.scalogram, other.scalogram)


@pytest.mark.usefixtures("trained")
def test_gives_the_numbers_of_the_live_callback_and_the_pictures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", LAST]) == 0
    said = capsys.readouterr()
    assert said.err == f"Settings: {RUN.absolute()}/config.yaml\n"
    assert said.out.startswith("scalepod.models.lit.EnergyGatedGPT after 2 steps, 20 documents of text.txt\n")
    live, found = scalepod.load(RUN), scalepod.load(RUN / "checkpoints" / "last_analysis")
    assert live.steps == (0, 2)
    same_numbers(live, found)
    assert summary(found.analyses[2]) in said.out
    expected, origin = live.header.provenance, found.header.provenance
    assert origin == replace(
        expected, checkpoint=str(RUN / "checkpoints" / "last.ckpt"), options={**expected.options, "images": True}
    )
    (layer,) = found.layers
    pictures = {path.name for path in (RUN / "checkpoints" / "last_analysis").glob("*.png")}
    assert {f"scalepod_modes.{layer}.png", f"scalepod_scalogram.{layer}.png", "scalepod_overview.png"} <= pictures


@pytest.mark.parametrize("precision", ["bf16-mixed", pytest.param("bf16-true", marks=pytest.mark.slow)])
def test_gives_the_numbers_of_the_live_callback_in_half_precision(precision: str) -> None:
    fit(f"--trainer.precision={precision}")
    assert main(["analyze", LAST, NO_IMAGES]) == 0
    found = scalepod.load(RUN / "checkpoints" / "last_analysis")
    same_numbers(scalepod.load(RUN), found)
    assert found.header.provenance.precision == precision


def test_analyses_any_model_on_any_data_without_a_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    own = ["--model=own_model.OwnModel", "--data=own_model.OwnData"]
    trained = run("fit", own, BARE, "--trainer.callbacks=ScalePODCallback", "--trainer.callbacks.images=false")
    trained.trainer.save_checkpoint("own.ckpt")
    Path("config.yaml").unlink()
    assert main(["analyze", "--ckpt_path=own.ckpt", own[1], "--trainer.accelerator=cpu", NO_IMAGES]) == 0
    live, found = scalepod.load("."), scalepod.load("own_analysis")
    same_numbers(live, found)
    assert found.header.provenance.data == "own_model.OwnData"
    assert sorted(path.name for path in Path("own_analysis").iterdir()) == ["analysis.npz"]
    torch.save({**torch.load("own.ckpt", weights_only=True), "hyper_parameters": {}}, "mute.ckpt")
    capsys.readouterr()
    assert main(["analyze", "--ckpt_path=mute.ckpt"]) == 1
    assert capsys.readouterr().err.startswith(
        "error: nothing tells of which model mute.ckpt is, neither it nor a config"
    )


@pytest.mark.usefixtures("trained")
def test_a_checkpoint_away_from_its_run_tells_model_and_data() -> None:
    (RUN / "checkpoints" / "last.ckpt").rename("moved.ckpt")
    given = ["--n_snapshots=20", "--burn_in=3", "--bands={near: 2, far: 9}"]
    assert main(["analyze", "--ckpt_path=moved.ckpt", "--out=here", *given, NO_IMAGES]) == 0
    same_numbers(scalepod.load(RUN), scalepod.load("here"))


@pytest.mark.parametrize("model", [EnergyGatedGPT, BaselineGPT])
def test_classes_of_a_checkpoint_that_was_not_trained_from_the_command_line(model: Any, folder: Path) -> None:
    data = CharTextDataModule("text.txt", block_size=16, batch_size=4)
    trainer = L.Trainer(
        max_steps=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, limit_val_batches=0,
    )  # fmt: skip
    trainer.fit(model(data.vocab_size, 16, n_layer=1, n_head=2, n_embd=16), data)
    trainer.save_checkpoint("plain.ckpt")
    found = classes_of(read_checkpoint("plain.ckpt"))
    assert found["model"]["class_path"] == f"scalepod.models.{model.__name__}"
    assert (
        found["model"]["init_args"].items()
        >= {"vocab_size": data.vocab_size, "n_layer": 1, "warmup_steps": 100}.items()
    )
    assert found["data"]["init_args"] == {
        "path": "text.txt", "block_size": 16, "batch_size": 4, "val_fraction": 0.1, "num_workers": 0,
    }  # fmt: skip
    assert main(["analyze", "--ckpt_path=plain.ckpt", "--n_snapshots=4", NO_IMAGES]) == 0
    assert scalepod.load("plain_analysis").header.provenance.n_documents == 4


@pytest.mark.usefixtures("trained")
def test_options_come_from_the_run_and_can_be_given() -> None:
    given = ["--n_snapshots=6", "--fit_range=auto", NO_IMAGES, "--out=out"]
    assert main(["analyze", f"--config={RUN}/config.yaml", LAST, *given]) == 0
    options = scalepod.load("out").header.provenance.options
    expected = {"burn_in": 3, "bands": {"near": 2.0, "far": 9.0}, "n_snapshots": 6, "fit_range": "auto"}
    assert options.items() >= expected.items()
    analyses = scalepod.load("out").analyses[2]
    assert {(found.n_snapshots, found.burn_in, *found.bands) for found in analyses.values()} == {(6, 3, "near", "far")}


def test_of_two_callbacks_the_prefix_chooses_and_a_configuration_without_model_is_no_obstacle(folder: Path) -> None:
    callbacks = [
        {"class_path": "ScalePODCallback", "init_args": {"prefix": name, "n_snapshots": n, "images": False}}
        for name, n in (("one", 5), ("two", 6))
    ]
    config = {"trainer": {"callbacks": callbacks}}
    (folder / "two.yaml").write_text(json.dumps(config))
    fitted = run(
        "fit", "--config=quickstart", "--config=two.yaml", SMALL, NO_LOGGER, "--trainer.enable_checkpointing=false"
    )
    fitted.trainer.save_checkpoint("two.ckpt")
    for options, n in (([], 5), (["--prefix=two"], 6)):
        assert main(["analyze", "--config=two.yaml", "--ckpt_path=two.ckpt", *options, NO_IMAGES]) == 0
        assert scalepod.load("two_analysis").header.provenance.n_documents == n


@pytest.fixture
def mistakes(trained: Path) -> Path:
    """A checkpoint away from its run, its configuration, and files that are neither."""
    (RUN / "config.yaml").rename("config.yaml")
    (RUN / "checkpoints" / "last.ckpt").rename("last.ckpt")
    torch.save({**torch.load("last.ckpt", weights_only=True), "hyper_parameters": {}}, "bare.ckpt")
    torch.save([1], "list.ckpt")
    (trained / "other.txt").write_text("TO BE OR NOT TO BE?\n" * 200)
    (trained / "wrong.yaml").write_text("modle: {class_path: BaselineGPT}")
    return trained


@pytest.mark.usefixtures("mistakes")
def test_mistakes_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    own = ["--model=own_model.OwnModel", "--data=own_model.OwnData"]
    cases = [
        (["--ckpt_path=nowhere.ckpt"], "there is no checkpoint at "),
        (["--ckpt_path=text.txt"], "text.txt cannot be read as a checkpoint: "),
        (["--ckpt_path=list.ckpt"], "list.ckpt is no checkpoint of a Lightning trainer"),
        (["--ckpt_path=last.ckpt", "--config=config.yaml", "--n_snapshots=1"], "n_snapshots must be at least 2"),
        (["--ckpt_path=last.ckpt", "--config=config.yaml", "--include=nothing*"], "no attention"),
        (["--ckpt_path=last.ckpt", "--config=config.yaml", "--data.path=nowhere.txt"], "there is no text file at "),
        (
            ["--ckpt_path=last.ckpt", "--config=config.yaml", "--data.path=other.txt"],
            "the model was trained on 15 char",
        ),
        (["--ckpt_path=bare.ckpt", *own], "the weights in bare.ckpt are not those of this OwnModel: "),
    ]
    capsys.readouterr()
    for arguments, message in cases:
        assert main(["analyze", *arguments, "--trainer.accelerator=cpu", NO_IMAGES]) == 1, arguments
        said = capsys.readouterr()
        assert said.err.startswith(f"error: {message}"), said.err
        assert said.out == ""


@pytest.mark.usefixtures("mistakes")
def test_wrong_arguments_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    cases = [
        ([], "give the checkpoint: --ckpt_path FILE"),
        (["--ckpt_path=last.ckpt", "--config=wrong.yaml"], 'there is no "modle"; did you mean "model"?'),
        (
            ["--ckpt_path=last.ckpt", "--config=config.yaml", "--burnin=3"],
            'there is no "burnin"; did you mean "burn_in"?',
        ),
        (["--ckpt_path=last.ckpt", "--config=config.yaml", "--heads=some"], "heads: Expected a typing.Literal"),
    ]
    for arguments, message in cases:
        with pytest.raises(SystemExit) as stop:
            main(["analyze", *arguments])
        assert stop.value.code == 2
        assert capsys.readouterr().err.partition("error: ")[2].startswith(message)


def test_help_begins_with_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["analyze", "--help"])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert "  scalepod analyze --ckpt_path runs/" in shown[:2500]
    for option in ("--out", "--n_snapshots", "--burn_in", "--prefix", "--images", "--ckpt_path"):
        assert f"\n  {option} " in shown
    assert "--watch" not in shown
    assert "--every_n_steps" not in shown
