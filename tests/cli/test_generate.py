"""`scalepod generate` on checkpoints of fits through the real command line."""

from contextlib import chdir
from pathlib import Path
from shutil import copytree

import pytest
import torch
from command_line import BARE, ENVIRONMENT, SMALL, run

from scalepod.cli import main
from scalepod.datamodules import CharTextDataModule
from scalepod.training_cli import TrainingCLI

NEW = "--max_new_tokens=30"
TEXT = "to be or not to be, that is the question\n" * 100


def fit(model: str, *options: str) -> TrainingCLI:
    """Train two steps and save `model.ckpt`."""
    data = ["--data=CharTextDataModule", *SMALL[:3]]
    trained = run("fit", f"--model={model}", data, SMALL[3:6], list(options), BARE, "--watch=false")
    trained.trainer.save_checkpoint("model.ckpt")
    return trained


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, its text, and files that are no such model."""
    folder = tmp_path_factory.mktemp("checkpoints")
    with chdir(folder), pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        Path("text.txt").write_text(TEXT)
        fit("BaselineGPT")
        other = run("fit", "--model=own_model.OwnModel", "--data=own_model.OwnData", BARE, "--watch=false")
        other.trainer.save_checkpoint("other.ckpt")
        checkpoint = torch.load("model.ckpt", weights_only=True)
        torch.save({key: checkpoint[key] for key in checkpoint if key != "CharTextDataModule"}, "old.ckpt")
        torch.save({**checkpoint, "hyper_parameters": {**checkpoint["hyper_parameters"], "n_embd": 32}}, "wrong.ckpt")
        torch.save([1, 2], "list.ckpt")
        Path("cut.ckpt").write_bytes(Path("model.ckpt").read_bytes()[:2000])
        Path("empty.ckpt").touch()
    return folder


@pytest.fixture
def trained(checkpoints: Path, folder: Path) -> Path:
    """The folder that the test runs in, with what is in `checkpoints`."""
    return Path(copytree(checkpoints, folder, dirs_exist_ok=True))


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("BaselineGPT", []),
        ("BaselineGPT", ["--model.positions=rotary"]),
        ("EnergyGatedGPT", ["--model.n_scales=2", "--model.normalization=sequence", "--model.positions=morlet"]),
    ],
)
def test_prints_what_the_model_generates(model: str, options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    cli = fit(model, *options)
    capsys.readouterr()
    arguments = ["generate", "--ckpt_path=model.ckpt", "--prompt=to be or not to be", NEW]
    assert main([*arguments, "--temperature=0.8", "--top_k=5", "--seed=3"]) == 0
    printed = capsys.readouterr().out
    data, generator = cli.datamodule, torch.Generator().manual_seed(3)
    expected = cli.model.generate(data.encode("to be or not to be")[None], 30, 0.8, 5, generator)
    assert printed == data.decode(expected[0]) + "\n"
    assert len(printed) == len("to be or not to be") + 30 + 1


@pytest.mark.usefixtures("trained")
def test_the_seed_decides(capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for seed in (1, 1, 2):
        assert main(["generate", "--ckpt_path=model.ckpt", "--prompt=be", f"--seed={seed}"]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] != texts[2]
    assert len(texts[0]) == 2 + 500 + 1


def test_the_vocabulary_is_that_of_the_training_wherever_the_text_is(trained: Path) -> None:
    vocabulary = CharTextDataModule(trained / "text.txt").vocabulary
    (trained / "text.txt").unlink()
    assert main(["generate", "--ckpt_path=model.ckpt", f"--prompt={vocabulary}", NEW]) == 0


def test_a_checkpoint_without_vocabulary_asks_for_the_text(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["generate", "--ckpt_path=old.ckpt", "--prompt=to be", NEW]
    assert main(arguments) == 1
    assert "Give the text it was trained on: --text FILE" in capsys.readouterr().err
    assert main([*arguments, "--text=text.txt"]) == 0
    assert capsys.readouterr().out.startswith("to be")
    (trained / "other.txt").write_text(TEXT + TEXT)
    assert main([*arguments, "--text=other.txt"]) == 1
    message = capsys.readouterr().err
    assert "error: other.txt has the sha256 " in message
    assert "was trained on text.txt with " in message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--prompt=to bé"], "character 'é' (U+00E9) at position 4 is not among the 15 characters of text.txt"),
        (["--prompt="], "the prompt is empty: give at least one character"),
        (["--temperature=0"], "temperature must be positive, got 0.0"),
        (["--top_k=0"], "top_k must be at least 1, or None for all tokens, got 0"),
        (["--max_new_tokens=-1"], "max_new_tokens must not be negative, got -1"),
        (["--text=nowhere.txt"], "there is no text file at "),
        (["--ckpt_path=nowhere.ckpt"], "there is no checkpoint at "),
        (["--ckpt_path=text.txt"], "text.txt cannot be read as a checkpoint: "),
        (["--ckpt_path=cut.ckpt"], "cut.ckpt cannot be read as a checkpoint: "),
        (["--ckpt_path=empty.ckpt"], "empty.ckpt cannot be read as a checkpoint: "),
        (["--ckpt_path=other.ckpt"], "other.ckpt is no checkpoint of BaselineGPT or EnergyGatedGPT"),
        (["--ckpt_path=list.ckpt"], "list.ckpt is no checkpoint of a Lightning trainer: it has no state_dict"),
        (["--ckpt_path=wrong.ckpt"], "the weights in wrong.ckpt do not fit its hyperparameters {"),
    ],
)
@pytest.mark.usefixtures("trained")
def test_mistakes_are_named(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "--ckpt_path=model.ckpt", "--prompt=to be", NEW, *arguments]) == 1
    said = capsys.readouterr()
    assert said.err.startswith(f"error: {message}")
    assert said.out == ""


def test_arguments_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["generate", "--help"])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    for option in ("--ckpt_path", "--prompt", "--max_new_tokens", "--temperature", "--top_k", "--seed", "--text"):
        assert option in shown
    with pytest.raises(SystemExit) as stop:
        main(["generate", "--prompt=to be"])
    assert stop.value.code == 2
    assert "the following arguments are required: --ckpt_path" in capsys.readouterr().err
