"""Reading a checkpoint that Lightning wrote, and what it says of its model and data."""

from collections.abc import Mapping
from inspect import Parameter, signature
from pathlib import Path
from pydoc import locate
from typing import Any

import torch

from . import datamodules
from .provenance import path_of

PREFIX = "model."
"""Where a LanguageModel keeps its GPT, in the names of its weights."""


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """Read a checkpoint onto the CPU.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is no checkpoint of a LightningModule.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no checkpoint at {path.absolute()}: check the path")
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # what unpickling raises depends on the bytes it is given
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ValueError(f"{path} cannot be read as a checkpoint: {reason}") from error
    if not isinstance(checkpoint, dict) or "state_dict" not in checkpoint:
        raise ValueError(f"{path} is no checkpoint of a Lightning trainer: it has no state_dict")
    return checkpoint


def is_language_model(checkpoint: Mapping[str, Any]) -> bool:
    """Whether a checkpoint is of one of scalepod's models, with its hyperparameters."""
    return "hyper_parameters" in checkpoint and f"{PREFIX}embedding.weight" in checkpoint["state_dict"]


def is_gated(checkpoint: Mapping[str, Any]) -> bool:
    """Whether a checkpoint of one of scalepod's models has energy gates."""
    return any(".gate." in name for name in checkpoint["state_dict"])


def vocabulary_of(checkpoint: Mapping[str, Any]) -> str | None:
    """The vocabulary that the data of a checkpoint had, character by token; None where they had none."""
    states = (value for value in checkpoint.values() if isinstance(value, dict))
    return next((state["vocabulary"] for state in states if "vocabulary" in state), None)


def classes_of(checkpoint: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Model and data of a checkpoint as the command line takes them, as far as it tells.

    Returns:
        ``class_path`` and ``init_args`` under "model" and "data". A checkpoint of a fit from the command line holds
        them where the class saves its hyperparameters; of others, scalepod's own classes are recognised.
    """
    found = {}
    for key, place in (("model", "hyper_parameters"), ("data", "datamodule_hyper_parameters")):
        saved = checkpoint.get(place, {})
        path = saved.get("_class_path") or _own_class(key, checkpoint)
        if isinstance(path, str):
            found[key] = {"class_path": path, "init_args": _taken_by(path, saved)}
    return found


def _own_class(key: str, checkpoint: Mapping[str, Any]) -> str | None:
    if key == "model":
        if not is_language_model(checkpoint):
            return None
        return "scalepod.models.EnergyGatedGPT" if is_gated(checkpoint) else "scalepod.models.BaselineGPT"
    # a data module keeps its state under the name of its class
    return next((path_of(getattr(datamodules, name)) for name in datamodules.__all__ if name in checkpoint), None)


def _taken_by(path: str, saved: Mapping[str, Any]) -> dict[str, Any]:
    """The hyperparameters that are arguments of the class; others were added later, as the checksum of a text."""
    cls: Any = locate(path)
    parameters = {} if cls is None else signature(cls).parameters
    others = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values())
    return {name: value for name, value in saved.items() if name in parameters or (others and name[0] != "_")}
