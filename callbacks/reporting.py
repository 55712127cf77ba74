"""Scalars and pictures to every logger of a run, whatever it is; pictures that no logger takes go to a folder."""

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch.loggers import Logger
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ..analysis import LayerAnalysis
from ..figures import (
    coherence_figure,
    confidence_figure,
    figure_to_array,
    heads_figure,
    modes_figure,
    overview_figure,
    save_array,
    scalogram_figure,
)
from ..tracking import Tracked

Image = NDArray[np.uint8]


def layer_scalars(
    analyses: Mapping[str, LayerAnalysis], tracked: Mapping[str, Tracked], prefix: str
) -> dict[str, float]:
    """Every defined scalar of every layer as ``{prefix}_{quantity}/{layer}``."""
    return {
        f"{prefix}_{quantity}/{layer}": float(value)
        for layer, analysis in analyses.items()
        for quantity, value in (analysis.scalars() | tracked[layer].scalars()).items()
    }


def log_scalars(loggers: Sequence[Logger], scalars: Mapping[str, float], step: int) -> None:
    """Write scalars to every logger at the given step; one that fails does so after the others were served."""
    with contextlib.ExitStack() as rest:
        for logger in loggers:
            rest.callback(logger.save)
            rest.callback(logger.log_metrics, dict(scalars), step=step)


def draw(
    analyses: Mapping[str, LayerAnalysis], tracked: Mapping[str, Tracked], prefix: str, step: int
) -> dict[str, Image]:
    """The pictures of one firing by tag, RGB [height, width, 3].

    Two a layer, an overview, and, where that was computed, a page on how far the numbers can be believed, one on the
    single heads, and the coherence of every layer.

    Args:
        analyses: Analyses by layer name.
        tracked: Their modes, matched to those of the last pictures.
        prefix: First part of the tags.
        step: Optimizer steps taken, for the titles.
    """
    return {tag: figure_to_array(figure) for tag, figure in _figures(analyses, tracked, prefix, f"step {step}")}


def _figures(
    analyses: Mapping[str, LayerAnalysis], tracked: Mapping[str, Tracked], prefix: str, when: str
) -> Iterator[tuple[str, Figure]]:
    for layer, analysis in analyses.items():
        title = f"{layer}, {when}"
        yield f"{prefix}_modes/{layer}", modes_figure(analysis, title, tracked[layer])
        yield f"{prefix}_scalogram/{layer}", scalogram_figure(analysis, title)
        if analysis.coherence is not None:
            by_lag = {lag: analysis.coherence_at(k) for k, lag in enumerate(analysis.dominant_lags.tolist())}
            yield f"{prefix}_coherence/{layer}", coherence_figure(by_lag, title)
    yield f"{prefix}_overview", overview_figure(analyses, when)
    if any(analysis.confidence is not None for analysis in analyses.values()):
        yield f"{prefix}_confidence", confidence_figure(analyses, when)
    heads = {layer: analysis.heads for layer, analysis in analyses.items() if analysis.heads is not None}
    if heads:
        yield f"{prefix}_heads", heads_figure(heads, analyses, when)


def log_images(loggers: Sequence[Logger], images: Mapping[str, Image], step: int, folder: Path | None) -> None:
    """Give pictures to the loggers that take them; where one does not, or there is none, write PNG files.

    Args:
        loggers: The loggers of the run.
        images: RGB pictures by tag.
        step: The x of the loggers.
        folder: Where the files go; None for no files. A tag's slashes become dots of the file name; of a tag that is
            too long for one the end is kept.
    """
    writers = [_image_writer(logger) for logger in loggers]
    for writer in writers:
        if writer is not None:
            for tag, image in images.items():
                writer(tag, image, step)
    if folder is not None and (not writers or None in writers):
        for tag, image in images.items():
            save_array(image, folder / f"{_file_name(tag)}.png")


def _file_name(tag: str) -> str:
    """A tag as a file name of at most 200 bytes; a cut one begins with a digest, so that it stays unique."""
    name = tag.replace("/", ".").encode()
    if len(name) > 200:
        name = hashlib.sha256(name).hexdigest()[:12].encode() + b"." + name[-180:]
    return name.decode(errors="ignore")


def _image_writer(logger: Logger) -> Callable[[str, Image, int], Any] | None:
    if hasattr(logger, "log_image"):  # Weights & Biases and those that follow it
        return lambda tag, image, step: logger.log_image(key=tag, images=[image], step=step)
    experiment: Any = getattr(logger, "experiment", None)
    if hasattr(experiment, "add_image"):  # TensorBoard and those that follow it
        return lambda tag, image, step: experiment.add_image(tag, image, step, dataformats="HWC")
    return None


def as_metrics(scalars: Mapping[str, float]) -> dict[str, torch.Tensor]:
    """Scalars in the form of ``trainer.callback_metrics``."""
    return {name: torch.tensor(value) for name, value in scalars.items()}
