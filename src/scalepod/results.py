"""The results of a run as one object: arrays over steps and layers, ready for xarray, and the analyses behind them."""

import warnings
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .analysis import LayerAnalysis
from .store import Header, load_layer, read_header

Dimensions = tuple[str, ...]

DIMENSIONS = ("step", "layer")
"""Names of the two dimensions of every array of :attr:`Results.values`."""

FIRINGS = "step_*.npz"
"""Files that a callback writes, one a firing."""

ANALYSIS = "analysis.npz"
"""File that `scalepod analyze` writes."""


class ResultsWarning(UserWarning):
    """A file among the results of a run could not be read; the others were."""


class Results:
    """What a run left on disk, or a part of it. Made by :func:`load`.

    Of every file the header is read at once, with the logged values in it; analyses are read when they are asked for,
    one layer at a time, and not kept.

    Args:
        files: Files of results by the step of their header, in ascending order.
        headers: Their headers.
        path: Where they are from, for messages.
    """

    def __init__(self, files: Mapping[int, Path], headers: Mapping[int, Header], path: Path) -> None:
        self.path = path
        """The file or folder that was loaded."""
        self.files = dict(files)
        """The file of each step."""
        self.headers = dict(headers)
        """The header of each step's file."""
        self.analyses: Mapping[int, Mapping[str, LayerAnalysis]] = _Firings(self.files, self.headers)
        """``analyses[step][layer]``, read from the file when asked for: keep what you need twice."""

    def __repr__(self) -> str:
        """How much there is."""
        return f"Results({str(self.path)!r}, {len(self.steps)} steps, {len(self.layers)} layers)"

    @property
    def steps(self) -> tuple[int, ...]:
        """Optimizer steps taken at each firing, ascending."""
        return tuple(self.headers)

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of all layers, in the order of the calls."""
        return tuple(dict.fromkeys(layer for header in self.headers.values() for layer in header.layers))

    @property
    def header(self) -> Header:
        """The header of the last step."""
        return self.headers[self.steps[-1]]

    @cached_property
    def values(self) -> dict[str, NDArray[np.float64]]:
        """Every logged value by name, [step, layer]; NaN where it is undefined or the layer was not seen.

        The names are those of the logged scalars without prefix and layer: "lag_t_spec", "h_star_0.10", "mean_lag";
        standard errors end in "_se".
        """
        rows = [[header.scalars.get(layer, {}) for layer in self.layers] for header in self.headers.values()]
        names = dict.fromkeys(name for row in rows for scalars in row for name in scalars)
        return {
            name: np.array([[scalars.get(name, np.nan) for scalars in row] for row in rows], dtype=np.float64)
            for name in names
        }

    def data_vars(self) -> dict[str, tuple[Dimensions, NDArray[np.float64]]]:
        """:attr:`values` with the names of their dimensions, as ``xarray.Dataset`` takes them.

        Example::

            run = scalepod.load("runs/quickstart/version_0")
            data = xarray.Dataset(run.data_vars(), coords=run.coords(), attrs=run.attrs())
            data.mean_lag.plot.line(x="step")
        """
        return {name: (DIMENSIONS, array) for name, array in self.values.items()}

    def coords(self) -> dict[str, tuple[Dimensions, NDArray[Any]]]:
        """Steps [step] and layer names [layer], as ``xarray.Dataset`` takes them."""
        step, layer = DIMENSIONS
        return {step: ((step,), np.array(self.steps)), layer: ((layer,), np.array(self.layers))}

    def attrs(self) -> dict[str, str]:
        """Where the results come from, as ``xarray.Dataset`` takes it: what the last header says of model and data."""
        found, header = self.header.provenance, self.header
        named = {
            "scalepod": header.scalepod,
            "model": found.model,
            "data": found.data,
            "data_sha256": found.data_sha256,
        }
        return {name: value for name, value in named.items() if value is not None}


def load(path: str | Path) -> Results:
    """Load the results of a run.

    Args:
        path: One of: a file that the callback, `scalepod analyze` or :func:`scalepod.save_analyses` wrote; a folder
            with the files ``step_*.npz`` of a callback, or with an ``analysis.npz``; a run's folder, in which one
            folder is of the first kind (``scalepod_results``).

    Returns:
        The results, by ascending step. A file of a folder that cannot be read is left out, with a
        :class:`ResultsWarning` that names it.

    Raises:
        FileNotFoundError: If there are no results at ``path``; the message says where it looked.
        ValueError: If no file can be read, or a run's folder has the results of several callbacks.

    Example::

        run = scalepod.load("runs/quickstart/version_0")
        run.steps, run.layers  # (0, 200, ...), ("01_model.blocks.0.attention", ...)
        run.values["lag_h_star_0.10"]  # [step, layer]
        run.analyses[run.steps[-1]][run.layers[0]].scalogram
    """
    path = Path(path)
    files = [path] if path.is_file() else _find(path)
    headers: dict[Path, Header] = {}
    for file in files:
        try:
            headers[file] = read_header(file)
        except (ValueError, OSError) as error:
            if len(files) == 1:
                raise
            warnings.warn(f"left out of the results: {error}", ResultsWarning, stacklevel=2)
    if not headers:
        raise ValueError(f"none of the {len(files)} files in {files[0].parent} can be read: see the warnings")
    by_step = {header.step: file for file, header in sorted(headers.items(), key=lambda item: item[1].step)}
    return Results(by_step, {step: headers[file] for step, file in by_step.items()}, path)


def _find(folder: Path) -> list[Path]:
    """The files of results in a folder, or in the one folder in it that has some."""
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no file or folder {folder.absolute()}: give a run's folder or a file of it")
    if files := _results_in(folder):
        return files
    holders = [inner for inner in sorted(folder.iterdir()) if inner.is_dir() and list(inner.glob(FIRINGS))]
    if len(holders) > 1:
        raise ValueError(f"{folder} has several folders of results, give one: {', '.join(map(str, holders))}")
    if holders:
        return _results_in(holders[0])
    runs = sorted({str(file.parent.parent) for file in folder.glob(f"*/*/{FIRINGS}")})
    hint = f"There are runs in {', '.join(runs)}" if runs else "A watched run writes scalepod_results into its folder"
    raise FileNotFoundError(f"there is no {FIRINGS} or {ANALYSIS} in {folder.absolute()} or a folder of it. {hint}")


def _results_in(folder: Path) -> list[Path]:
    return sorted(folder.glob(FIRINGS)) or [file for file in [folder / ANALYSIS] if file.is_file()]


class _Firings(Mapping[int, Mapping[str, LayerAnalysis]]):
    """Analyses by step."""

    def __init__(self, files: Mapping[int, Path], headers: Mapping[int, Header]) -> None:
        self._files, self._headers = files, headers

    def __getitem__(self, step: int) -> Mapping[str, LayerAnalysis]:
        if step not in self._files:
            raise KeyError(f"no results of step {step}, there are those of {list(self._files)}")
        return _Layers(self._files[step], self._headers[step].layers)

    def __iter__(self) -> Iterator[int]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


class _Layers(Mapping[str, LayerAnalysis]):
    """Analyses of one file by layer, read when asked for."""

    def __init__(self, file: Path, layers: tuple[str, ...]) -> None:
        self._file, self._layers = file, layers

    def __getitem__(self, layer: str) -> LayerAnalysis:
        if layer not in self._layers:
            raise KeyError(f"no layer {layer!r} in {self._file}, there are {list(self._layers)}")
        return load_layer(self._file, layer)

    def __iter__(self) -> Iterator[str]:
        return iter(self._layers)

    def __len__(self) -> int:
        return len(self._layers)
