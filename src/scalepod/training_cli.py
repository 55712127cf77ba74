"""The commands that train and evaluate: a LightningCLI that knows our classes and watches every fit."""

from argparse import RawDescriptionHelpFormatter
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import resources
from inspect import Parameter, signature
from pathlib import Path
from pydoc import locate
from shlex import quote
from typing import Any, NoReturn

from jsonargparse import DefaultHelpFormatter, Namespace
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI, SaveConfigCallback
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.utilities import rank_zero_only

# The classes of an imported module can be given by their bare name, hence all three.
from . import callbacks, datamodules, models  # noqa: F401
from .callbacks import ScalePODCallback
from .cli import TRAINING_COMMANDS
from .cli_errors import explain

LINKED = ("vocab_size", "block_size")
"""What a model takes from its data: these attributes of the data become the model's arguments of the same name."""

CONFIG_OPTIONS = ("--config", "-c")

WATCH = (
    "Watch the attention during a fit, with the ScalePODCallback of trainer.callbacks or, if it has none, one with the "
    "defaults. False trains without."
)

DESCRIPTION = """\
scalepod {command}: {summary}.

Settings come from --config files, later ones over earlier ones, and from dotted names behind them. --model and --data
take the path of any LightningModule and LightningDataModule, or the bare name of one of scalepod's.

{examples}

Shipped configurations, by name or path: {shipped}.
"""

FIT_EXAMPLES = """\
  scalepod fit --config quickstart --trainer.max_steps 500
  scalepod fit --config baseline --config morlet                             what the second changes in the first
  scalepod fit --model BaselineGPT --data CharTextDataModule --data.path my_book.txt --trainer.max_steps 2000
  scalepod fit --model my_package.MyModel --data my_package.MyData --trainer.max_epochs 5
  scalepod fit --config quickstart --trainer.callbacks.every_n_steps 50      options of the last callback listed
  scalepod fit --model.help EnergyGatedGPT                                   what a class can be told
  scalepod fit --config ega --print_config                                   everything that would be used"""

EVALUATION_EXAMPLE = """\
  cd runs/quickstart/version_0
  scalepod {command} --config config.yaml --ckpt_path checkpoints/last.ckpt"""


def shipped_configs() -> dict[str, Path]:
    """The configurations that come with scalepod, by name."""
    folder = Path(str(resources.files("scalepod.configs")))
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def with_shipped_configs(args: Sequence[str]) -> Iterator[str]:
    """Replace a configuration that is no file by the shipped one of that name, as `quickstart` by its path."""
    shipped = shipped_configs()
    previous = ""
    for arg in args:
        option, equals, value = arg.partition("=") if arg.startswith("-") else ("", "", arg)
        if (previous in CONFIG_OPTIONS and not equals) or option in CONFIG_OPTIONS:
            path = Path(value)
            if not path.is_file() and path.parent.name in ("", "configs") and path.stem in shipped:
                value = str(shipped[path.stem])
        previous = arg
        yield option + equals + value


class HelpFormatter(RawDescriptionHelpFormatter, DefaultHelpFormatter):
    """Keeps the line breaks of a command's description."""


class Parser(LightningArgumentParser):
    """A parser whose errors are one short message: what is not known, and what there is instead."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Exit with status 2 after the explained message."""
        if self.exit_on_error:  # otherwise this parser is a step of another one, which will report it
            message = explain(message, getattr(ex, "subcommand_parser", None) or self, shipped_configs())
        super().error(message, ex)


class SaveFitConfig(SaveConfigCallback):
    """Writes the configuration of a fit into the run's folder, from where it can be run again.

    Only of a fit: an evaluation into the same folder must not replace the record of how the model came about.
    """

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Write the file when training starts."""
        if stage == "fit":
            super().setup(trainer, pl_module, stage)


class TrainingCLI(LightningCLI):
    """`scalepod fit|validate|test|predict`, for any LightningModule and LightningDataModule.

    `vocab_size` and `block_size` go from the data to the model where both know them (see `LINKED`). A fit gets a
    `ScalePODCallback` with its defaults unless `trainer.callbacks` holds one or `--watch=false` turns watching off.

    Args:
        args: Command and arguments, as on the command line. A `--config` that is no file may be the name of one that
            is shipped with scalepod.
        trainer_class: Has the methods that the commands call.
    """

    watch_help = WATCH
    """What the help says of `--watch`."""

    def __init__(self, args: Sequence[str], trainer_class: type[Trainer] = Trainer) -> None:
        super().__init__(
            args=list(with_shipped_configs(args)),
            trainer_class=trainer_class,
            parser_class=Parser,
            parser_kwargs=_parser_settings(self.descriptions()),
            save_config_callback=SaveFitConfig,
            save_config_kwargs={"overwrite": True},
            seed_everything_default=0,
            auto_configure_optimizers=False,
        )

    @classmethod
    def descriptions(cls) -> dict[str, str]:
        """What the help of each command begins with."""
        return {command: _description(command) for command in cls.subcommands()}

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add `--watch` and the links from the data to the model."""
        parser.add_argument("--watch", type=bool, default=True, help=self.watch_help)
        for name in LINKED:
            target = f"model.init_args.{name}"
            parser.link_arguments("data", target, compute_fn=self._link(name), apply_on="instantiate")

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parse `args` without looking at `sys.argv`, which is somebody else's when called from Python."""
        self.config = parser.parse_args(args)

    def after_instantiate_classes(self) -> None:
        """Keep what a model does not take out of its hyperparameters, so that its checkpoints can be loaded."""
        taken = _arguments(self._settings["model"])
        for name in LINKED:
            if name not in taken:
                self.model.hparams.pop(name, None)

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Make the trainer, with the callback that watches, or without any if `--watch=false`."""
        given = self.config_init[self.subcommand]["trainer"]["callbacks"] or []
        found = given if isinstance(given, list) else [given]
        if not self._settings["watch"]:
            found = [callback for callback in found if not isinstance(callback, ScalePODCallback)]
        elif self.subcommand == "fit" and not any(isinstance(callback, ScalePODCallback) for callback in found):
            found = [*found, ScalePODCallback()]
        return super().instantiate_trainer(callbacks=found, **kwargs)

    def fit(self, **kwargs: Any) -> None:
        """Train, then say where to look, also when training was interrupted from the keyboard."""
        try:
            self.trainer.fit(**kwargs)
        except SystemExit:
            self._say_where_to_look()
            raise
        self._say_where_to_look()

    @property
    def _settings(self) -> Namespace:
        """The parsed configuration of the command that runs."""
        settings: Namespace = self.config[self.subcommand]
        return settings

    def _link(self, name: str) -> Callable[[Any], Any]:
        def from_data(data: Any) -> Any:
            model = self._settings["model"]
            return linked_value(name, _arguments(model), data, required=_is_required(name, model["class_path"]))

        from_data.__name__ = f"{name}_of"  # what the help shows
        return from_data

    @rank_zero_only
    def _say_where_to_look(self) -> None:
        trainer = self.trainer
        loss = trainer.callback_metrics.get("val_loss")
        print(f"\nTrained {trainer.global_step} steps" + ("" if loss is None else f", val_loss {loss:.4f}") + ".")
        if checkpoint := getattr(trainer.checkpoint_callback, "best_model_path", ""):
            print(f"Best model:  {checkpoint}")
        print(f"Results:     {trainer.log_dir or trainer.default_root_dir}")
        for logger in trainer.loggers:
            if isinstance(logger, TensorBoardLogger):
                # TensorBoard shows a random ten of a tag's pictures unless told to keep them all.
                print(f"Look at it:  tensorboard --logdir {quote(logger.root_dir)} --samples_per_plugin images=1000")


def linked_value(name: str, arguments: Mapping[str, Any], data: Any, required: bool = False) -> Any:
    """What a model gets for an argument that its data may know.

    Args:
        name: Name of the argument, and of the attribute of the data.
        arguments: The model's arguments as configured, None where left open.
        data: The datamodule, or None.
        required: Whether the model cannot be built without it.

    Returns:
        The model's own value where it was given one, else that of the data; None where neither has it.

    Raises:
        ValueError: If the model's own value is too small for the data, or a required one is nowhere to be had.
    """
    if name not in arguments:
        return None
    given, found = arguments[name], getattr(data, name, None)
    if given is not None and found is not None and given < found:
        raise ValueError(
            f"model.{name} is {given}, too small for the data, whose {name} is {found}: leave it out and it is taken "
            "from the data"
        )
    if required and given is None and found is None:
        source = "there are no data" if data is None else f"{type(data).__name__} has no {name}"
        raise ValueError(f"the model needs {name}, and {source} to take it from: give --model.{name}")
    return found if given is None else given


def _is_required(name: str, class_path: str) -> bool:
    cls: Any = locate(class_path)
    parameter = signature(cls).parameters.get(name)
    return parameter is not None and parameter.default is Parameter.empty


def _arguments(model: Namespace) -> dict[str, Any]:
    """The arguments a model was configured with, those behind its **kwargs included."""
    return {**model.get("init_args", {}), **model.get("dict_kwargs", {})}


def _description(command: str) -> str:
    return DESCRIPTION.format(
        command=command,
        summary=TRAINING_COMMANDS[command],
        examples=FIT_EXAMPLES if command == "fit" else EVALUATION_EXAMPLE.format(command=command),
        shipped=", ".join(shipped_configs()),
    )


def _parser_settings(descriptions: Mapping[str, str]) -> dict[str, Any]:
    """Options of the parser, and under each command's name those of its own."""
    settings: dict[str, Any] = {"prog": "scalepod", "formatter_class": HelpFormatter}
    for command, description in descriptions.items():
        settings[command] = {
            "usage": f"scalepod {command} [--config FILE] [--NAME VALUE ...]",
            "description": description,
        }
    return settings
