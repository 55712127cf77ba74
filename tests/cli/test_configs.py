"""Every shipped configuration: commented, known to the parser, and fit to run twice and again from what it saved.

Some change a few options of another one; the command at the head of each file says what it is run with.
"""

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from command_line import NO_LOGGER, SMALL, SMALL_CALLBACK, run

from scalepod.callbacks import ScalePODCallback
from scalepod.cli import main
from scalepod.models import BaselineGPT, EnergyGatedGPT
from scalepod.training_cli import shipped_configs

CONFIGS = shipped_configs()
KEY = re.compile(r"\s*(?:- )?[\w.]+:")


def command(name: str) -> list[str]:
    """The `--config` options of the command at the head of a configuration."""
    (found,) = re.findall(r"^#     scalepod fit (.+)$", CONFIGS[name].read_text(), flags=re.MULTILINE)
    return found.split()


def model_of(name: str) -> Any:
    return run("fit", command(name), SMALL, NO_LOGGER, SMALL_CALLBACK, "--trainer.max_steps=0").model


def test_the_configurations_are_shipped() -> None:
    kinds = ("baseline", "ega", "ega_published", "morlet", "ega_morlet")
    assert {"quickstart", *kinds, *(f"study_{kind}" for kind in kinds)} == CONFIGS.keys()


@pytest.mark.parametrize("name", CONFIGS)
def test_the_command_at_the_head_is_about_the_file(name: str) -> None:
    assert command(name)[-2:] == ["--config", f"configs/{name}.yaml"]


@pytest.mark.filterwarnings("ignore:Checkpoint directory")
@pytest.mark.parametrize("size", ["", "study_"])
def test_the_compared_models_differ_in_what_their_names_say_only(size: str) -> None:
    baseline, published = model_of(f"{size}baseline"), model_of(f"{size}ega_published")
    morlet, both = model_of(f"{size}morlet"), model_of(f"{size}ega_morlet")
    gated = model_of(f"{size}ega")
    assert [type(model) for model in (baseline, morlet)] == [BaselineGPT] * 2
    assert [type(model) for model in (gated, published, both)] == [EnergyGatedGPT] * 3
    common = {**baseline.hparams, "_class_path": None}
    gate = {"n_scales": 1, "normalization": "causal"}
    assert {**morlet.hparams, "_class_path": None} == {**common, "positions": "morlet"}
    assert {**gated.hparams, "_class_path": None} == {**common, **gate}
    assert {**published.hparams, "_class_path": None} == {**common, **gate, "normalization": "sequence"}
    assert {**both.hparams, "_class_path": None} == {**common, **gate, "positions": "morlet"}


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
        main(["fit", *command(name), "--print_config"])
    assert stop.value.code == 0
    printed = capsys.readouterr().out
    assert "class_path: scalepod.models." in printed
    assert "class_path: scalepod.callbacks.ScalePODCallback" in printed
    assert "vocab_size" not in printed, "what the data tell must not be saved"


@pytest.mark.filterwarnings("ignore:Checkpoint directory")
@pytest.mark.parametrize("name", CONFIGS)
def test_runs_twice_in_a_row_and_again_from_its_saved_config(name: str, folder: Path) -> None:
    first = run("fit", command(name), SMALL, SMALL_CALLBACK)
    assert first.trainer.global_step == 2
    run("fit", command(name), SMALL, SMALL_CALLBACK)
    saved = [folder / "runs" / name / f"version_{number}" / "config.yaml" for number in (0, 1)]
    assert saved[0].read_text() == saved[1].read_text()

    again = run("fit", "--config", str(saved[0]), "--trainer.logger.version=0", "--trainer.max_steps=3")
    assert again.trainer.global_step == 3
    assert "max_steps: 3" in saved[0].read_text()
    assert again.model.hparams == first.model.hparams
    (callback,) = [callback for callback in again.trainer.callbacks if isinstance(callback, ScalePODCallback)]
    assert callback.n_snapshots == 4
    assert list(callback.analyses) == ["01_model.blocks.0.attention"]
