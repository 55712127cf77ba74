"""The trainings of the study: which there are, where their folders lie, and how one that is missing is run."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from scalepod.checkpoint import read_checkpoint

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "configs"
BASE = "study_baseline.yaml"

CHANGES = {
    "baseline": (),
    "ega": ("study_ega.yaml",),
    "ega_published": ("study_ega_published.yaml",),
    "morlet": ("study_morlet.yaml",),
    "ega_morlet": ("study_ega_morlet.yaml",),
}
"""Models by name, with the configurations that change the baseline's."""

SEVERAL_SEEDS = ("baseline", "ega")
"""Models trained once with every seed; the others are trained with the first one."""

Command = Callable[[Sequence[str], Path], int]
"""Runs a command, its output going to a file, and gives its exit status."""


class Training(NamedTuple):
    """One model trained with one seed."""

    model: str
    seed: int

    @property
    def name(self) -> str:
        """What its folder is called."""
        return f"{self.model}_{self.seed}"


class TrainingFailed(RuntimeError):  # noqa: N818 - it reads as what happened
    """A training ended without its results; the message names its log."""


def planned(models: Sequence[str], seeds: Sequence[int]) -> list[Training]:
    """The trainings of a study, each once: every model with the first seed, then the further seeds.

    Example:
        >>> [training.name for training in planned(["ega", "morlet"], [1, 2])]
        ['ega_1', 'morlet_1', 'ega_2']
    """
    once = [Training(model, seeds[0]) for model in models]
    further = [Training(model, seed) for seed in seeds[1:] for model in models if model in SEVERAL_SEEDS]
    return list(dict.fromkeys([*once, *further]))


def complete_run(runs: Path, training: Training) -> Path | None:
    """The run's folder of a training that reached its last step, the newest of several; None if there is none.

    A run is complete when the callback wrote its results at the configured last step, and the last checkpoint is of
    that step. A folder of an interrupted run, or of one in progress, is not.
    """
    steps = last_step()
    results = (runs / training.name).rglob(f"scalepod_results/step_{steps:08d}.npz")
    by_age = sorted(results, key=lambda file: file.stat().st_mtime)
    folders = [file.parent.parent for file in by_age]
    return next((folder for folder in reversed(folders) if _checkpoint_step(folder) == steps), None)


def last_step() -> int:
    """Optimizer steps of every training of the study, as configured."""
    config = yaml.safe_load((CONFIGS / BASE).read_text(encoding="utf-8"))
    return int(config["trainer"]["max_steps"])


def checkpoint_of(folder: Path) -> Path:
    """The last checkpoint of a run."""
    return folder / "checkpoints" / "last.ckpt"


def train_missing(runs: Path, trainings: Sequence[Training], text: Path | None, run: Command | None = None) -> None:
    """Train what is not complete, one after the other; an interrupted training is started again in a new folder.

    Args:
        runs: Folder of the study, with one folder a training.
        trainings: What to train.
        text: The text; None for the one that the data module finds.
        run: Runs a command; by default a process.

    Raises:
        TrainingFailed: A training ended without its results.
    """
    for training in trainings:
        if complete_run(runs, training) is not None:
            print(f"complete: {training.name}", file=sys.stderr)
            continue
        folder = runs / training.name
        folder.mkdir(parents=True, exist_ok=True)
        log = folder / "log.txt"
        print(f"training: {training.name} (progress: {log})", file=sys.stderr)
        status = (run or run_process)(command(training, folder, text), log)
        if status or complete_run(runs, training) is None:
            raise TrainingFailed(f"{training.name} ended without its results, with exit status {status}: see {log}")


def command(training: Training, folder: Path, text: Path | None) -> list[str]:
    """The command line of a training, with the shipped configurations and its seed."""
    configs = [BASE, *CHANGES[training.model]]
    return [
        *(sys.executable, "-m", "scalepod.cli", "fit"),
        *(f"--config={CONFIGS / name}" for name in configs),
        f"--seed_everything={training.seed}",
        f"--trainer.logger.init_args.save_dir={folder}",
        *(["--data.init_args.path=" + str(text.absolute())] if text else []),
        # the study draws its own pictures
        *("--trainer.callbacks.images=false", "--trainer.enable_progress_bar=false"),
    ]


def run_process(arguments: Sequence[str], log: Path) -> int:
    """Run a command, what it prints going to a file."""
    with log.open("w", encoding="utf-8") as file:
        return subprocess.run(arguments, stdout=file, stderr=subprocess.STDOUT, check=False).returncode


def _checkpoint_step(folder: Path) -> int | None:
    """Step of the last checkpoint; None where there is none that can be read."""
    try:
        return int(read_checkpoint(checkpoint_of(folder)).get("global_step", 0))
    except (FileNotFoundError, ValueError):
        return None
