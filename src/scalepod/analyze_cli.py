"""`scalepod analyze`: the full analysis of a checkpoint, with the settings of the run that wrote it."""

import contextlib
import dataclasses
import json
import logging
import re
import sys
import warnings
from argparse import SUPPRESS, ArgumentParser
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from pydoc import locate
from typing import Any

from jsonargparse import Namespace
from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from lightning.pytorch.cli import LightningArgumentParser

from .analyzer import Analyzer
from .callbacks import ScalePODCallback
from .callbacks.documents import NoHeldOutData
from .callbacks.reporting import draw, log_images
from .capture import NoAttentionFound
from .checkpoint import classes_of, read_checkpoint
from .cli_errors import original, speaks_for_itself
from .provenance import plain
from .results import ANALYSIS
from .store import save_analyses
from .summary import summary
from .training_cli import CONFIG_OPTIONS, TrainingCLI, with_shipped_configs

DESCRIPTION = """\
scalepod analyze: analyse the attention of a checkpoint, layer by layer.

It gives the numbers that ScalePODCallback gave, or would have given, at that step of the training: the same documents,
precision and options. They are printed with their standard errors, and written to a folder: analysis.npz, for
scalepod.load, scalepod compare and scalepod report, and the pictures.

Model, data and options are those of the run: of --config, else of the config.yaml of the run's folder in which the
checkpoint lies, else of the hyperparameters in the checkpoint. What stands on the command line comes before them.

  scalepod analyze --ckpt_path runs/quickstart/version_0/checkpoints/last.ckpt
  scalepod analyze --config RUN/config.yaml --ckpt_path RUN/checkpoints/last.ckpt --out last
  scalepod analyze --ckpt_path last.ckpt --n_snapshots 300 --burn_in 32 --coherence true
  scalepod analyze --ckpt_path last.ckpt --data CharTextDataModule --data.path other.txt
  scalepod analyze --ckpt_path mine.ckpt --model my_package.MyModel --data my_package.MyData

Options of the callback that are not given (null) are those of the run. Of those of the trainer, accelerator, devices
(one is used), precision, plugins and the progress bar count, the others are left aside."""

FROM_RUN = ("n_snapshots", "include", "exclude", "heads", "omega0", "bands", "epsilons", "fit_range", "burn_in",
            "n_modes", "field", "confidence", "coherence", "prefix")  # fmt: skip
"""Options of the callback that can be given here; as in the run where they are not."""

TRAINER = ("accelerator", "precision", "plugins", "deterministic", "benchmark", "enable_progress_bar")
"""What the trainer of the run says of how a model is run."""


class Impossible(ValueError):  # noqa: N818 - it reads as what happened
    """What was given cannot be analysed; the message says why."""


def main(args: Sequence[str]) -> int:
    """Analyse a checkpoint.

    Args:
        args: The arguments behind `analyze`.

    Returns:
        Exit status: 0, or 1 when the checkpoint, the configuration or the data were at fault, which has been said on
        standard error.

    Raises:
        SystemExit: With status 2 for arguments that cannot be parsed, 0 after help.
        Exception: Any error of which what was given is not clearly the cause, with its traceback.
    """
    # about Lightning's use of torch, of which whoever runs a command can do nothing
    warnings.filterwarnings("ignore", ".*LeafSpec.*", FutureWarning)
    try:
        with _quiet_lightning():
            AnalysisCLI(_completed(args))
    except Exception as error:
        cause = original(error)
        if not (isinstance(cause, Impossible | NoAttentionFound | NoHeldOutData) or speaks_for_itself(cause)):
            raise cause from cause.__cause__
        print(f"error: {cause}", file=sys.stderr)
        return 1
    return 0


class AnalysisCLI(TrainingCLI):
    """`scalepod analyze`, with the settings of a fit and options of the callback that come before those in them.

    Args:
        args: Arguments, as behind `scalepod analyze`.
    """

    watch_help = SUPPRESS  # part of the configuration of a fit, and without meaning here

    def __init__(self, args: Sequence[str]) -> None:
        super().__init__(["analyze", *args], trainer_class=Analyzer)

    @staticmethod
    def subcommands() -> dict[str, set[str]]:
        """The one command, and what it takes from elsewhere."""
        return {"analyze": {"model", "callback", "datamodule"}}

    @classmethod
    def descriptions(cls) -> dict[str, str]:
        """What the help begins with."""
        return {"analyze": DESCRIPTION}

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add `--out`, the options of the callback, and what a configuration of a fit has beside them."""
        super().add_arguments_to_parser(parser)
        parser.add_argument(
            "--out", type=Path | None, help="Folder of the results. By default NAME_analysis beside NAME.ckpt."
        )
        parser.add_argument("--weights_only", type=bool | None, help=SUPPRESS)  # in the configurations of fits
        skipped = set(ScalePODCallback().arguments) - {*FROM_RUN, "images"}
        parser.add_class_arguments(ScalePODCallback, skip=skipped)
        parser.set_defaults(dict.fromkeys(FROM_RUN))

    def _parse_ckpt_path(self) -> None:
        """Take the model's options from the checkpoint as a fit does; without a class they were taken already."""
        saved = read_checkpoint(self.config["analyze"]["ckpt_path"]).get("hyper_parameters", {})
        if "_class_path" in saved:
            super()._parse_ckpt_path()

    def before_instantiate_classes(self) -> None:
        """Keep of the trainer what says how a model is run, and of its callbacks the one that watched."""
        trainer = self._settings["trainer"]
        given = trainer["callbacks"] or []
        found = [entry for entry in (given if isinstance(given, list) else [given]) if _watches(entry)]
        wanted = self._settings["prefix"]
        named = [entry for entry in found if wanted is None or entry.get("init_args", {}).get("prefix") == wanted]
        trainer["callbacks"], trainer["logger"], trainer["profiler"] = (named or found)[:1], False, None

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Make a trainer for one device."""
        given = self.config_init[self.subcommand]["trainer"]
        devices = given["devices"]
        kept = {name: given[name] for name in TRAINER}
        one = devices[:1] if isinstance(devices, list) else 1
        return Analyzer(
            **kept, devices=one, logger=False, enable_checkpointing=False, enable_model_summary=False, **kwargs
        )

    def analyze(
        self, model: LightningModule, ckpt_path: str | Path, datamodule: LightningDataModule | None = None
    ) -> None:
        """Analyse, write and print."""
        callback = self._callback()
        assert isinstance(self.trainer, Analyzer)
        step = self.trainer.analyze(model, callback, ckpt_path, datamodule)
        out = self._settings["out"] or Path(ckpt_path).with_name(f"{Path(ckpt_path).stem}_analysis")
        assert callback.provenance is not None
        provenance = dataclasses.replace(
            callback.provenance, checkpoint=str(ckpt_path), options=plain(callback.arguments)
        )
        save_analyses(out / ANALYSIS, callback.analyses, step, provenance=provenance)
        if callback.images:
            log_images([], draw(callback.analyses, callback.tracked, callback.prefix, step), step, out)
        print(f"{provenance.model} after {step} steps, {callback.n_documents} documents of {provenance.data}\n")
        print(summary(callback.analyses))
        print(f"\nResults: {out}")

    def _callback(self) -> ScalePODCallback:
        """The callback of the run, or one with the defaults, with the options given here."""
        (watched,) = self.config_init[self.subcommand]["trainer"]["callbacks"] or [ScalePODCallback()]
        given = {name: self._settings[name] for name in FROM_RUN if self._settings[name] is not None}
        options = {**watched.arguments, **given, "images": self._settings["images"]}
        try:
            return ScalePODCallback(**options)
        except ValueError as error:
            raise Impossible(str(error)) from error


@contextlib.contextmanager
def _quiet_lightning() -> Iterator[None]:
    """Leave out what a trainer says of devices and seeds before it trains: here it does not."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.WARNING)
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _watches(entry: Namespace | Mapping[str, Any]) -> bool:
    kind = locate(entry["class_path"])
    return isinstance(kind, type) and issubclass(kind, ScalePODCallback)


def _completed(args: Sequence[str]) -> list[str]:
    """The arguments, with the run's configuration or what the checkpoint tells for what they leave open.

    Raises:
        SystemExit: If no checkpoint is given.
        Impossible: If it cannot be read, or nothing tells of its model.
    """
    parser = ArgumentParser(prog="scalepod analyze", usage=SUPPRESS, add_help=False, allow_abbrev=False)
    parser.add_argument("--ckpt_path", type=Path)
    for names in (CONFIG_OPTIONS, ("--model",), ("--data",)):
        parser.add_argument(*names, action="append", default=[])
    given, others = parser.parse_known_args(args)
    if any(arg in ("-h", "--help") or ".help" in arg or arg.startswith("--print_config") for arg in others):
        return list(args)
    if given.ckpt_path is None:
        parser.error("give the checkpoint: --ckpt_path FILE")
    try:
        checkpoint = read_checkpoint(given.ckpt_path)
    except (ValueError, OSError) as error:
        raise Impossible(str(error)) from error
    # again at the end: a configuration of a fit has a ckpt_path, null, and what comes later counts
    args = [*args, f"--ckpt_path={given.ckpt_path}"]
    if not given.config and not given.model and (config := _config_of_run(given.ckpt_path)):
        print(f"Settings: {config}", file=sys.stderr)
        return [f"--config={config}", *args]
    told = _keys_of(given.config) | {name for name in ("model", "data") if getattr(given, name)}
    found = {name: value for name, value in classes_of(checkpoint).items() if name not in told}
    if "model" not in told | found.keys():
        raise Impossible(
            f"nothing tells of which model {given.ckpt_path} is, neither it nor a configuration: give --config of the "
            "run, or --model and --data by the paths of their classes"
        )
    return [*(f"--{name}={json.dumps(value)}" for name, value in found.items()), *args]


def _config_of_run(checkpoint: Path) -> Path | None:
    """The configuration in the run's folder, in which or one below which checkpoints lie."""
    folder = checkpoint.absolute().parent
    return next((path for path in (folder / "config.yaml", folder.parent / "config.yaml") if path.is_file()), None)


def _keys_of(configs: Iterable[str]) -> set[str]:
    """What configurations are about; one that cannot be read will be complained of when it is parsed."""
    keys: set[str] = set()
    for config in with_shipped_configs([f"--config={config}" for config in configs]):
        path = Path(config.removeprefix("--config="))
        with contextlib.suppress(OSError, ValueError):
            keys |= set(re.findall(r"^(\w+):", path.read_text(encoding="utf-8"), re.MULTILINE))
    return keys
