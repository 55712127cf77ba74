"""What the command line says when something is wrong: the key or class at fault, what there is instead, no more."""

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from pathlib import Path
from pydoc import locate
from traceback import walk_tb

import lightning.pytorch.callbacks
import lightning.pytorch.loggers
from jsonargparse import ArgumentParser
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import LightningModule

from . import datamodules, models

CLASSES = {
    "model": {name for name in models.__all__ if issubclass(getattr(models, name), LightningModule)},
    "data": set(datamodules.__all__),
    "trainer.callbacks": {"ScalePODCallback", *lightning.pytorch.callbacks.__all__},
    "trainer.logger": set(lightning.pytorch.loggers.__all__),
}
"""The keys that hold a class, and the classes that a bare name stands for."""

# How jsonargparse says it. Where it says it in other words, its message is passed on, less the noise.
KEY = re.compile(r'Parser key "([^"]+)":')
PROBLEM = re.compile(
    r"Problem with given class_path '(?P<path>[^']+)':\s+"
    r"(?:Option '(?P<option>[^']+)' is not accepted|Parser key \"(?P<key>[^\"]+)\":\s+(?P<value>.+)"
    r"|(?P<missing>module .+|No module .+))"
)
UNKNOWN_NAME = re.compile(r"Expected a dot import path string: (\S+)")
WRONG_KIND = re.compile(
    r"Expected a path but (\S+) either[\s\S]*Import path does not correspond to (a subclass of \w+)"
)
UNKNOWN_KEY = re.compile(r"(?:does not accept option '|unrecognized arguments: --)([\w.]+)")
NO_CLASS = re.compile(r"Given value: \{'init_args'|class_path 'lightning\.pytorch\.\S*LightningModule'")
NO_CONFIG = re.compile(r"File does not exist: '?([^']+)")
NOISE = re.compile(r"(Does not validate against any of the Union subtypes|Subtypes: .*|Errors:|Given value type: .*|)")


def explain(message: str, parser: ArgumentParser, configs: Iterable[str] = ()) -> str:
    """Put an error message of jsonargparse into the words of the configuration.

    Args:
        message: What jsonargparse reports; often nested, with the key at fault somewhere inside.
        parser: The parser that raised it, to say which keys there are.
        configs: Names of the shipped configurations, for a configuration that was not found.

    Returns:
        One or two lines that name the key and what it can be; a message of another kind with its noise taken out.
    """
    where = found[1] if (found := KEY.search(message)) else ""
    if NO_CLASS.search(message):
        return (
            f"{where}: options, but no class that takes them: put the --config that names it before, or give --{where}"
        )
    if found := PROBLEM.search(message):
        if found["option"]:
            return _unknown_option(where, found["path"], found["option"])
        if found["key"]:
            return f"{where}.{found['key']}: {found['value']}"
        return _no_class(where, found["path"], found["missing"])
    if found := UNKNOWN_NAME.search(message):
        return _no_class(where, found[1])
    if found := WRONG_KIND.search(message):
        return _no_class(where, found[1], f"not {found[2]}")
    if found := UNKNOWN_KEY.search(message):
        return _unknown_key(found[1], parser.get_defaults().keys())
    if where == "config" and (found := NO_CONFIG.search(message)):
        return f"there is no file {found[1]}, and no shipped configuration {_instead(Path(found[1]).name, configs)}"
    lines = [line.strip(" -") for line in KEY.sub("", message).splitlines()]
    lines = [line for line in lines if not NOISE.fullmatch(line)]
    return f"{where}: {'; '.join(lines)}" if where else "\n".join(lines)


def original(error: BaseException) -> BaseException:
    """The error that a class raised while it was built, out of those that jsonargparse wraps around it."""
    while error.__cause__ is not None and list(_modules(error))[-1].startswith("jsonargparse."):
        error = error.__cause__
    return error


def speaks_for_itself(error: BaseException) -> bool:
    """Whether the message says all that the user needs, so that a traceback would only bury it.

    That is so for what Lightning calls a misconfiguration, for values that our classes or the Trainer refuse when they
    are built, for what is wrong with the text that our datamodules read, and for a checkpoint that is not there.
    """
    if isinstance(error, MisconfigurationException):
        return True
    modules = list(_modules(error))
    built = any(name.startswith("jsonargparse.") for name in modules)
    ours = ("scalepod.datamodules.", "scalepod.models.", "scalepod.callbacks.") if built else ("scalepod.datamodules.",)
    theirs = ("lightning.pytorch.trainer.connectors.", "lightning.fabric.plugins.io.")
    return isinstance(error, ValueError | OSError) and (
        any(name.startswith(ours) for name in modules)
        or modules[-1].startswith((*theirs, "scalepod.training_cli", "scalepod.analyzer"))
    )


def _modules(error: BaseException) -> Iterator[str]:
    """Names of the modules on the way from where an error was caught to where it was raised."""
    for frame, _ in walk_tb(error.__traceback__):
        yield frame.f_globals.get("__name__", "")


def _unknown_option(where: str, path: str, option: str) -> str:
    if get_close_matches(option.partition(".")[0], ["class_path", "init_args"]):
        return f"{where}: a class is written as class_path, its options under init_args, and nothing beside the two"
    cls = locate(path)
    known = ArgumentParser().add_class_arguments(cls, fail_untyped=False) if isinstance(cls, type) else []
    return f"{where}: {path.rpartition('.')[2]} has no option {_instead(option, known)}"


def _unknown_key(key: str, known: Iterable[str]) -> str:
    """Name the first part of a dotted key that leads nowhere, and what there is at that place."""
    names, prefix = list(known), ""
    for part in key.split("."):
        level = {name[len(prefix) :].partition(".")[0] for name in names if name.startswith(prefix)}
        if part not in level:
            break
        prefix += f"{part}."
    return f"there is no {_instead(prefix + part, sorted(prefix + name for name in level))}"


def _no_class(where: str, name: str, why: str = "no class has that name") -> str:
    known = sorted(CLASSES.get(where, ()))
    return f"{where}: {why}: {_instead(name, known)}; any other by its path, as my_package.MyClass"


def _instead(wrong: str, known: Iterable[str]) -> str:
    known = list(known)
    near = get_close_matches(wrong, known, n=1)
    guess = f'; did you mean "{near[0]}"?' if near else ""
    return f'"{wrong}"{guess}\nthere are: {", ".join(known)}'
