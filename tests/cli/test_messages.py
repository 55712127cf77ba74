"""A mistake is named, with what there is instead, in a line or two; no usage page, no traceback."""

from pathlib import Path

import pytest
from command_line import BARE, NO_LOGGER, SMALL, SMALL_CALLBACK

from scalepod.cli import main

FIT = ["fit", "--config=quickstart", *SMALL, NO_LOGGER, *SMALL_CALLBACK]


def said(capsys: pytest.CaptureFixture[str]) -> str:
    """What stands behind `error:`; the lines before it are one of usage and one tip."""
    before, _, message = capsys.readouterr().err.partition("error: ")
    assert len([line for line in before.splitlines() if line.startswith(("usage", " "))]) <= 1
    assert "Traceback" not in before + message
    return message


@pytest.mark.parametrize(
    ("yaml", "message"),
    [
        ("modle: {class_path: BaselineGPT}", 'there is no "modle"; did you mean "model"?'),
        ("trainer: {max_step: 3}", 'there is no "trainer.max_step"; did you mean "trainer.max_steps"?'),
        (
            "model: {class_path: BaselineGPT, init_args: {n_layr: 3}}",
            'model: BaselineGPT has no option "n_layr"; did you mean "n_layer"?\nthere are: vocab_size, bl',
        ),
        (
            "data: {class_path: PlantedScales, init_args: {leg: 3}}",
            'data: PlantedScales has no option "leg"; did you mean "lag"?\nthere are: lag, repeats',
        ),
        (
            "trainer: {callbacks: [{class_path: ScalePODCallback, init_args: {every_n_step: 3}}]}",
            'trainer.callbacks: ScalePODCallback has no option "every_n_step"; did you mean "every_n_steps"?',
        ),
        (
            "trainer: {logger: {class_path: TensorBoardLogger, init_args: {save_dri: runs}}}",
            'trainer.logger: TensorBoardLogger has no option "save_dri"; did you mean "save_dir"?',
        ),
        ("model: {class_path: BaselineGPT, n_layer: 3}", "model: a class is written as class_path, its options under"),
        ("model: {class_path: BaselineGPT, init_arg: {n_layer: 3}}", "model: a class is written as class_path, its"),
        (
            "model: {class_path: BaselineGTP}",
            'model: no class has that name: "BaselineGTP"; did you mean "BaselineGPT"?\nthere are: BaselineGPT, Energy',
        ),
        ("data: {class_path: Shakespeare}", 'data: no class has that name: "Shakespeare"; did you mean "TinyShakesp'),
        (
            "trainer: {callbacks: [{class_path: ScalePODCalback}]}",
            'trainer.callbacks: no class has that name: "ScalePODCalback"; did you mean "ScalePODCallback"?',
        ),
        ("model: {class_path: scalepod.models.GTP}", "model: module 'scalepod.models' has no attribute 'GTP'"),
        ("model: {class_path: no_such_package.Model}", "model: No module named 'no_such_package'"),
        (
            "model: {class_path: BaselineGPT, init_args: {n_layer: many}}",
            "model.n_layer: Expected a <class 'int'>. Got",
        ),
        (
            "trainer: {callbacks: [{class_path: ScalePODCallback, init_args: {on_error: ignore}}]}",
            "trainer.callbacks.on_error: Expected a typing.Literal['warn', 'raise']. Got value: ignore",
        ),
        ("trainer: {max_steps: many}", "trainer.max_steps: Expected a <class 'int'>. Got value: many"),
        ("trainer: {max_steps: 3\n", "Problems parsing config: while parsing a flow mapping"),
    ],
)
def test_wrong_config(yaml: str, message: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "wrong.yaml").write_text(yaml)
    with pytest.raises(SystemExit) as stop:
        main([*FIT, "--config=wrong.yaml"])
    assert stop.value.code == 2
    assert said(capsys).startswith(message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--modle.n_layer=3"],
            'there is no "modle"; did you mean "model"?\nthere are: ckpt_path, config, data, model',
        ),
        (["--trainer.max_stps=3"], 'there is no "trainer.max_stps"; did you mean "trainer.max_steps"?'),
        (["--model.n_layr=3"], 'model: EnergyGatedGPT has no option "n_layr"; did you mean "n_layer"?'),
        (["--trainer.callbacks.on_error=ignore"], "trainer.callbacks.on_error: Expected a typing.Literal['warn', 'rai"),
        (["--model=torch.nn.Linear"], 'model: not a subclass of LightningModule: "torch.nn.Linear"'),
        (
            ["--seed_everything=x"],
            "seed_everything: Expected a <class 'bool'>; Expected a <class 'int'>; Given value: x",
        ),
        (["--config=quikstart"], "there is no file "),
        (["more"], "unrecognized arguments: more"),
    ],
)
def test_wrong_argument(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([*FIT, *arguments])
    assert stop.value.code == 2
    assert said(capsys).startswith(message)


def test_an_unknown_configuration_is_told_the_shipped_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["fit", "--config", "quikstart"])
    assert 'no shipped configuration "quikstart"; did you mean "quickstart"?\nthere are: baseline, ega' in said(capsys)


@pytest.mark.parametrize(("name", "key"), [("morlet", "model"), ("study_ega", "trainer.logger")])
def test_a_configuration_that_changes_another_one_needs_it(
    name: str, key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["fit", "--config", name])
    assert stop.value.code == 2
    expected = f"{key}: options, but no class that takes them: put the --config that names it before, or give --{key}"
    assert said(capsys).startswith(expected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data.path=nowhere.txt"], "there is no text file at "),
        (["--data.block_size=5000"], "the training split of text.txt has "),
        (["--data.block_size=0"], "block_size must be at least 1, got 0"),
        (["--model.n_head=3"], "n_embd must be a multiple of n_head, got n_embd=16, n_head=3"),
        (["--model.vocab_size=3"], "model.vocab_size is 3, too small for the data, whose vocab_size is"),
        (["--trainer.callbacks.n_snapshots=1"], "n_snapshots must be at least 2"),
        (["--trainer.accelerator=abacus"], "You selected an invalid accelerator name: `accelerator='abacus'`"),
        (["--ckpt_path=nowhere.ckpt"], "Checkpoint file not found: nowhere.ckpt"),
    ],
)
def test_wrong_value(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*FIT, *arguments]) == 1
    assert said(capsys).startswith(message)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "the model needs vocab_size, and there are no data to take it from: give --model.vocab_size"),
        (["--data=own_model.OwnData"], "the model needs vocab_size, and OwnData has no vocab_size to take it from"),
    ],
)
def test_data_that_do_not_tell_what_the_model_needs(
    data: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", "--model=BaselineGPT", *data, *BARE]) == 1
    assert said(capsys).startswith(message)


def test_an_error_in_a_users_own_class_keeps_its_traceback() -> None:
    arguments = ["fit", "--model=own_model.FailingModel", "--data=own_model.OwnData", *BARE]
    with pytest.raises(ValueError, match="deep in my own code") as raised:
        main(arguments)
    assert any(entry.name == "__init__" and entry.path.name == "own_model.py" for entry in raised.traceback)
