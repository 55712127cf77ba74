"""Every shipped configuration: commented, known to the parser, and fit to run twice and again from what it saved."""

import re
from itertools import pairwise
from pathlib import Path

import pytest
from command_line import SMALL, SMALL_CALLBACK, run

from scalepod.callbacks import ScalePODCallback
from scalepod.cli import main
from scalepod.training_cli import shipped_configs

CONFIGS = shipped_configs()
KEY = re.compile(r"\s*(?:- )?[\w.]+:")


def test_the_three_configurations_are_shipped() -> None:
    assert {"quickstart", "baseline", "ega"} <= CONFIGS.keys()


@pytest.mark.parametrize("path", CONFIGS.values(), ids=CONFIGS)
def test_every_value_has_a_comment(path: Path) -> None:
    """A comment stands above each key or behind it; keys that only open a group of commented keys need none."""
    lines = path.read_text().splitlines()
    for above, line in pairwise(lines):
        if KEY.match(line) and not line.rstrip().endswith(":"):
            assert above.lstrip().startswith("#") or " # " in line, f"{path.name}: no comment at {line!r}"


@pytest.mark.parametrize("name", CONFIGS)
def test_parser_accepts_it_and_prints_the_whole(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["fit", "--config", name, "--print_config"])
    assert stop.value.code == 0
    printed = capsys.readouterr().out
    assert "class_path: scalepod.models." in printed
    assert "class_path: scalepod.callbacks.ScalePODCallback" in printed
    assert "vocab_size" not in printed, "what the data tell must not be saved"


@pytest.mark.filterwarnings("ignore:Checkpoint directory")
@pytest.mark.parametrize("name", CONFIGS)
def test_runs_twice_in_a_row_and_again_from_its_saved_config(name: str, folder: Path) -> None:
    first = run("fit", "--config", name, SMALL, SMALL_CALLBACK)
    assert first.trainer.global_step == 2
    run("fit", "--config", name, SMALL, SMALL_CALLBACK)
    saved = [folder / "runs" / name / f"version_{number}" / "config.yaml" for number in (0, 1)]
    assert saved[0].read_text() == saved[1].read_text()

    again = run("fit", "--config", str(saved[0]), "--trainer.logger.version=0", "--trainer.max_steps=3")
    assert again.trainer.global_step == 3
    assert "max_steps: 3" in saved[0].read_text()
    assert again.model.hparams == first.model.hparams
    (callback,) = [callback for callback in again.trainer.callbacks if isinstance(callback, ScalePODCallback)]
    assert callback.n_snapshots == 4
    assert list(callback.analyses) == ["01_model.blocks.0.attention"]
