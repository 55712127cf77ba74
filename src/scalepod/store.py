"""Results on disk: the analyses of one firing in one npz file, whole or not there at all, with their origin."""

import contextlib
import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import numpy as np
import torch
from torch import Tensor

from ._files import atomic_write
from ._records import field_names, is_record
from .analysis import LayerAnalysis
from .provenance import Provenance

SCHEMA = 3
"""Version of the file layout.

A file is an npz archive of plain arrays: `header`, JSON in UTF-8 (the fields of :class:`Header`, and under `plain` the
values of each analysis that are no arrays), and one array `<layer>|<field>` for each tensor of each analysis.
"""

R = TypeVar("R")


@dataclass(frozen=True)
class Header:
    """What a file of results says of itself."""

    schema: int
    """Version of the file layout."""
    scalepod: str
    """Version of scalepod that wrote it."""
    step: int
    """Optimizer steps taken."""
    layers: tuple[str, ...]
    """Layer names, in the order of the calls."""
    provenance: Provenance
    """Model, data and options."""
    scalars: Mapping[str, Mapping[str, float]]
    """The values that are logged, by layer and name; undefined ones are left out."""


def save_analyses(
    path: str | Path,
    analyses: Mapping[str, LayerAnalysis],
    step: int,
    modes: bool = False,
    provenance: Provenance | None = None,
    more: Mapping[str, Mapping[str, float]] | None = None,
) -> None:
    """Write analyses to an npz file that loads without pickle; an interrupted write leaves no file.

    Args:
        path: The file; its folder is made where it is missing.
        analyses: Analyses by layer name.
        step: Optimizer steps taken.
        modes: Whether to keep the field modes [M, K, T, T], by far the largest part.
        provenance: Where the analyses come from.
        more: Values of each layer to keep beside ``LayerAnalysis.scalars()``, such as the stability of its modes.
    """
    header: dict[str, Any] = {
        "schema": SCHEMA,
        "scalepod": version("scalepod"),
        "step": step,
        "layers": list(analyses),
        "provenance": asdict(provenance or Provenance()),
        "scalars": {layer: found.scalars() | dict((more or {}).get(layer, {})) for layer, found in analyses.items()},
        "plain": {},
    }
    arrays: dict[str, Any] = {}
    for layer, analysis in analyses.items():
        header["plain"][layer], tensors = _split(analysis)
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
        FileNotFoundError: If there is no such file.
        ValueError: If the file is no such file, damaged, or of another layout.
    """
    with _opened(path) as file:
        found = _header(path, file)
        analyses = {layer: _analysis(file, layer, plain) for layer, plain in found["plain"].items()}
    return found["step"], analyses


def load_layer(path: str | Path, layer: str) -> LayerAnalysis:
    """Read the analysis of one layer, without the arrays of the others.

    Raises:
        FileNotFoundError: If there is no such file.
        KeyError: If it holds no such layer.
        ValueError: If the file is no file of results, damaged, or of another layout.
    """
    with _opened(path) as file:
        return _analysis(file, layer, _header(path, file)["plain"][layer])


def read_header(path: str | Path) -> Header:
    """Read what a file says of itself, without its arrays.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is no file of results, damaged, or of another layout.
    """
    with _opened(path) as file:
        found = _header(path, file)
    return Header(
        schema=found["schema"],
        scalepod=found["scalepod"],
        step=found["step"],
        layers=tuple(found["layers"]),
        provenance=Provenance(**found["provenance"]),
        scalars=found["scalars"],
    )


@contextlib.contextmanager
def _opened(path: str | Path) -> Iterator[Any]:
    """The archive; what is wrong with its bytes, also while they are read, is said in one message."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path.absolute()}: check the path")
    if not zipfile.is_zipfile(path):
        raise ValueError(
            f"{path} holds no scalepod results: it is no npz archive, or was cut off. Delete it, or copy it again from "
            "where it was written"
        )
    try:
        with np.load(path, allow_pickle=False) as file:
            yield file
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise ValueError(
            f"{path} is damaged ({error}): delete it, or copy it again from where it was written"
        ) from error


def _header(path: str | Path, file: Any) -> dict[str, Any]:
    try:
        header: dict[str, Any] = json.loads(file["header"].tobytes())
        found, writer = header["schema"], header["scalepod"]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} holds no scalepod results: it has no header of theirs. Give a file that scalepod wrote"
        ) from error
    if found > SCHEMA:
        raise ValueError(
            f"{path} has layout {found}, this scalepod reads {SCHEMA}: update scalepod to {writer} or later"
        )
    if found < SCHEMA:
        raise ValueError(
            f"{path} has layout {found}, of an earlier scalepod, and this one reads {SCHEMA}: analyse the checkpoint "
            "again with `scalepod analyze`"
        )
    return header


def _analysis(file: Any, layer: str, plain: Mapping[str, Any]) -> LayerAnalysis:
    prefix = f"{layer}|"
    names = [key.removeprefix(prefix) for key in file.files if key.startswith(prefix)]
    return _join(LayerAnalysis, plain, {name: torch.from_numpy(file[prefix + name]) for name in names})


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
