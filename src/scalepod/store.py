"""Results on disk: the analyses of one firing in one npz file, whole or not there at all."""

import json
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import numpy as np
import torch
from torch import Tensor

from ._files import atomic_write
from ._records import field_names, is_record
from .analysis import LayerAnalysis

SCHEMA = 2
"""Version of the file layout."""

R = TypeVar("R")


def save_analyses(path: str | Path, analyses: Mapping[str, LayerAnalysis], step: int, modes: bool = False) -> None:
    """Write analyses to an npz file that loads without pickle; an interrupted write leaves no file.

    Args:
        path: The file; its folder is made where it is missing.
        analyses: Analyses by layer name.
        step: Optimizer steps taken.
        modes: Whether to keep the field modes [M, K, T, T], by far the largest part.
    """
    header: dict[str, Any] = {"schema": SCHEMA, "scalepod": version("scalepod"), "step": step, "layers": {}}
    arrays: dict[str, Any] = {}
    for layer, analysis in analyses.items():
        plain, tensors = _split(analysis)
        header["layers"][layer] = plain
        if not modes and "field.modes" in tensors:
            tensors["field.modes"] = tensors["field.modes"][:, :0]
        arrays |= {f"{layer}|{name}": tensor.numpy() for name, tensor in tensors.items()}
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    with atomic_write(path) as file:
        np.savez_compressed(file, **arrays)


def load_analyses(path: str | Path) -> tuple[int, dict[str, LayerAnalysis]]:
    """Read what :func:`save_analyses` wrote.

    Returns:
        The optimizer steps taken, and the analyses by layer name. Field modes that were not kept come back as
        [M, 0, T, T].

    Raises:
        ValueError: If the file is no such file, or of a newer layout.
    """
    with np.load(path, allow_pickle=False) as file:
        if "header" not in file:
            raise ValueError(f"{path} holds no scalepod analyses: it has no header")
        header = json.loads(file["header"].tobytes())
        if header["schema"] > SCHEMA:
            found = header["schema"]
            raise ValueError(f"{path} has layout {found}, this scalepod reads up to {SCHEMA}: update scalepod")
        tensors: dict[str, dict[str, Tensor]] = {layer: {} for layer in header["layers"]}
        for key in file.files:
            layer, bar, name = key.rpartition("|")
            if bar:
                tensors[layer][name] = torch.from_numpy(file[key])
    analyses = {layer: _join(LayerAnalysis, plain, tensors[layer]) for layer, plain in header["layers"].items()}
    return header["step"], analyses


def _split(record: Any, prefix: str = "") -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The plain values of a record and of the records in it, and their tensors, by dotted name."""
    plain: dict[str, Any] = {}
    tensors: dict[str, Tensor] = {}
    for name in field_names(type(record)):
        value, path = getattr(record, name), prefix + name
        if isinstance(value, Tensor):
            tensors[path] = value
        elif is_record(type(value)):
            inner = _split(value, f"{path}.")
            plain, tensors = plain | inner[0], tensors | inner[1]
        else:
            plain[path] = value
    return plain, tensors


def _join(kind: type[R], plain: Mapping[str, Any], tensors: Mapping[str, Tensor], prefix: str = "") -> R:
    """The record that :func:`_split` took apart; a record within it that the file lacks is None."""
    values: dict[str, Any] = {}
    hints = get_type_hints(kind)
    for name in field_names(kind):
        path = prefix + name
        inner = next((part for part in (hints[name], *get_args(hints[name])) if is_record(part)), None)
        if path in tensors:
            values[name] = tensors[path]
        elif path in plain:
            values[name] = tuple(plain[path]) if isinstance(plain[path], list) else plain[path]
        elif inner is not None and any(other.startswith(f"{path}.") for other in (*plain, *tensors)):
            values[name] = _join(inner, plain, tensors, f"{path}.")
        else:
            values[name] = None
    return kind(**values)
