"""Results on disk: the analyses of one firing in one npz file, whole or not there at all."""

import json
from collections.abc import Mapping
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ._files import atomic_write
from .analysis import LayerAnalysis
from .pod import FieldPOD, LagPOD
from .spectrum import SpectralFit

SCHEMA = 1
"""Version of the file layout."""

_RECORDS: dict[str, Any] = {"lag": LagPOD, "lag_fit": SpectralFit, "field": FieldPOD, "field_fit": SpectralFit}


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
        arrays = {name: torch.from_numpy(file[name]) for name in file.files if name != "header"}
    return header["step"], {layer: _join(layer, plain, arrays) for layer, plain in header["layers"].items()}


def _split(analysis: LayerAnalysis) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The plain values of an analysis, and its tensors by dotted name."""
    plain: dict[str, Any] = {}
    tensors: dict[str, Tensor] = {}
    for field in fields(analysis):
        value = getattr(analysis, field.name)
        if isinstance(value, Tensor):
            tensors[field.name] = value
        elif field.name in _RECORDS and value is not None:
            tensors |= {f"{field.name}.{name}": tensor for name, tensor in value._asdict().items()}
        else:
            plain[field.name] = value
    return plain, tensors


def _join(layer: str, plain: dict[str, Any], arrays: dict[str, Tensor]) -> LayerAnalysis:
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in plain.items()}
    for field in fields(LayerAnalysis):
        if field.name in _RECORDS and field.name not in values:
            record = _RECORDS[field.name]
            values[field.name] = record(*(arrays[f"{layer}|{field.name}.{name}"] for name in record._fields))
        elif field.name not in values:
            values[field.name] = arrays[f"{layer}|{field.name}"]
    return LayerAnalysis(**values)
