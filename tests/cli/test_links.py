"""What a model takes from its data, and models and data that know nothing of it."""

import pytest
from command_line import BARE, SMALL, run
from jsonargparse import Namespace
from own_model import GreedyModel, OwnModel

from scalepod.datamodules import CharTextDataModule, PlantedScales
from scalepod.training_cli import linked_value

NO_CALLBACK = "--watch=false"


@pytest.mark.parametrize("model", ["BaselineGPT", "scalepod.models.EnergyGatedGPT"])
def test_sizes_come_from_the_data(model: str) -> None:
    cli = run("fit", "--model", model, "--data=CharTextDataModule", SMALL[:6], BARE, NO_CALLBACK)
    assert isinstance(cli.datamodule, CharTextDataModule)
    assert (
        cli.model.hparams["vocab_size"]
        == cli.datamodule.vocab_size
        == len(set("to be or not to be, that is the question\n"))
    )
    assert cli.model.hparams["block_size"] == 16


def test_planted_scales() -> None:
    data = ["--data=PlantedScales", "--data.lag=5", "--data.n_characters=2000", *SMALL[1:3]]
    cli = run("fit", "--model=BaselineGPT", data, SMALL[3:6], BARE, NO_CALLBACK)
    assert isinstance(cli.datamodule, PlantedScales)
    assert cli.model.hparams["vocab_size"] == cli.datamodule.vocab_size <= 26


def test_a_value_of_ones_own_is_kept_when_it_is_enough() -> None:
    sizes = ["--model.vocab_size=64", "--model.block_size=32"]
    cli = run("fit", "--model=BaselineGPT", "--data=CharTextDataModule", SMALL[:6], sizes, BARE, NO_CALLBACK)
    assert (cli.model.hparams["vocab_size"], cli.model.hparams["block_size"]) == (64, 32)


@pytest.mark.parametrize("name", ["vocab_size", "block_size"])
def test_a_value_too_small_for_the_data_is_refused(name: str) -> None:
    data = Namespace(vocab_size=15, block_size=16)
    with pytest.raises(ValueError, match=rf"model.{name} is 3, too small for the data, whose {name} is 1[56]"):
        linked_value(name, {name: 3}, data)


def test_what_neither_side_tells_stays_open() -> None:
    assert linked_value("vocab_size", {"vocab_size": None}, data=None) is None
    assert linked_value("vocab_size", {"vocab_size": 5}, data=object()) == 5
    assert linked_value("vocab_size", {}, Namespace(vocab_size=15)) is None


def test_own_model_with_our_data(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Neither argument exists: nothing is passed, and a checkpoint does not remember any."""
    data = ["--data=PlantedScales", "--data.alphabet_size=5", "--data.n_characters=2000", *SMALL[1:3]]
    cli = run("fit", "--model=own_model.OwnModel", data, BARE, NO_CALLBACK)
    assert "vocab_size" not in cli.model.hparams
    cli.trainer.save_checkpoint("own.ckpt")
    OwnModel.load_from_checkpoint("own.ckpt")
    evaluated = run("validate", "--model=own_model.OwnModel", data, BARE, "--ckpt_path=own.ckpt")
    assert "val_loss" in evaluated.trainer.callback_metrics


def test_own_model_that_has_one_of_the_two() -> None:
    data = ["--data=PlantedScales", "--data.alphabet_size=5", "--data.n_characters=2000", *SMALL[1:3]]
    cli = run("fit", "--model=own_model.GreedyModel", data, BARE, NO_CALLBACK)
    assert cli.model.hparams["block_size"] == 1024
    cli.trainer.save_checkpoint("greedy.ckpt")
    assert GreedyModel.load_from_checkpoint("greedy.ckpt").hparams["block_size"] == 1024


def test_our_model_with_data_that_tell_nothing() -> None:
    sizes = ["--model.vocab_size=11", "--model.block_size=12"]
    cli = run("fit", "--model=BaselineGPT", sizes, SMALL[3:6], "--data=own_model.OwnData", BARE, NO_CALLBACK)
    assert cli.trainer.global_step == 2


def test_own_model_with_own_data() -> None:
    cli = run("fit", "--model=own_model.OwnModel", "--data=own_model.OwnData", BARE, NO_CALLBACK)
    assert cli.trainer.global_step == 2
