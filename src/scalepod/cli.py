"""The command line, `scalepod`: finds the command, and says in one message what was wrong with what it was given.

Each command is imported when it is called for, so that help and version do not wait for the training stack.
"""

import sys
import warnings
from argparse import ArgumentParser
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version

TRAINING_COMMANDS = {
    "fit": "train a model and watch its attention",
    "validate": "run the validation loop of a trained model",
    "test": "run the test loop of a trained model",
    "predict": "run the prediction loop of a trained model",
}

OTHER_COMMANDS = {
    "analyze": "analyse the attention of a checkpoint",
    "compare": "put runs side by side, and test their differences",
    "generate": "continue a text with a trained model",
    "report": "write one HTML file on what was run and found",
}
"""Commands of a module each, `<command>_cli`."""


def main(args: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        args: The command and its arguments; None for those of the process.

    Returns:
        Exit status: 0, or 1 when the configuration or the data were at fault, which has been said on standard error.

    Raises:
        SystemExit: With status 2 for arguments that cannot be parsed, 0 after help and version, 1 when training was
            interrupted from the keyboard.
        Exception: Any error of which the configuration is not clearly the cause, with its traceback.
    """
    args = list(sys.argv[1:] if args is None else args)
    if args and args[0] in OTHER_COMMANDS:
        status: int = import_module(f".{args[0]}_cli", __package__).main(args[1:])
        return status
    if not args or args[0] not in TRAINING_COMMANDS:
        _parser().parse_args(args or ["--help"])
    # about Lightning's use of torch, of which whoever runs a command can do nothing
    warnings.filterwarnings("ignore", ".*LeafSpec.*", FutureWarning)
    from .cli_errors import original, speaks_for_itself
    from .training_cli import TrainingCLI

    try:
        TrainingCLI(args)
    except Exception as error:
        cause = original(error)
        if not speaks_for_itself(cause):
            raise cause from cause.__cause__
        print(f"error: {cause}", file=sys.stderr)
        return 1
    return 0


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="scalepod", description="Watch the attention of a transformer while it trains.")
    parser.add_argument("--version", action="version", version=f"scalepod {version('scalepod')}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, text in (TRAINING_COMMANDS | OTHER_COMMANDS).items():
        commands.add_parser(name, help=text)
    return parser


if __name__ == "__main__":
    sys.exit(main())
