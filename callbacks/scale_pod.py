"""The callback that shows what the attention of a model does while the model trains."""

import contextlib
import re
import time
import traceback
import warnings
from collections.abc import Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import Any, Literal

import lightning as L
import torch

from ..analysis import LayerAnalysis
from ..capture import NoAttentionFound
from ..capture.opaque import Adapter
from ..monitor import ScalePOD
from ..options import DEFAULT_BANDS, FitRange, Options
from ..provenance import Provenance
from ..store import save_analyses
from ..tracking import ModeTracker, Tracked
from .documents import HeldOutBatch, NoHeldOutData, find_source, held_out_batches
from .forward import Forward, default_forward, unnoticed
from .gather import gather
from .provenance import provenance
from .reporting import as_metrics, draw, layer_scalars, log_images, log_scalars


class ScalePODWarning(UserWarning):
    """Something the callback could not see or do; training goes on."""


class ScalePODCallback(L.Callback):
    r"""Capture the attention of every layer on held-out text, analyse it, and log how complex each layer is.

    It attaches to any LightningModule without edits. It fires once before the first step, then every ``every_n_steps``
    optimizer steps, and once at the end of training; training itself does not notice (the same losses and weights, bit
    for bit, as without it). Points land on the x that ``self.log`` of the same batch has: n - 1 after n steps.

    Logged for every layer, as ``scalepod_{quantity}/{layer}``, to every logger and to ``trainer.callback_metrics``;
    ``{layer}`` is ``01_<module path>`` and so on in the order of the calls, and an undefined value is left out:

    - ``energy``: mean energy of the fluctuation of the attention between documents.
    - ``mean_lag``: centre of that energy, tokens back.
    - ``dominant_lag``: lag of the highest peak of the scalogram; absent while no scale stands out.
    - ``band_fine``, ``band_medium``, ``band_coarse``: share of the energy at short, middle and long lags.
    - ``t_spec``, ``lag_t_spec``: spectral concentration index T_spec = 1 / beta of the field and the lag spectrum.
    - ``h_star_0.10``, ``lag_h_star_0.10`` and so on: effective rank, modes needed to leave 10 % of the energy.
    - the last four with ``_fine``, ``_medium``, ``_coarse`` behind: the same of that band alone.
    - all of these with ``_se`` behind: the standard error, from leaving out one eighth of the documents at a time.
    - ``t_spec_r2``, ``t_spec_theil_sen``, and with ``lag_`` in front: quality of the fit, and T_spec by a robust one.
    - ``h_star_growth``, ``lag_h_star_growth``: H* over that of half the documents; 1 if converged, 2 if it counts them.
    - ``h_star_heldout``, ``lag_h_star_heldout``: modes of half the documents that leave 10 % of the other half; absent
      when no number of them does.
    - ``t_spec_excess``, ``h_star_excess``, and with ``lag_`` in front: beyond those of documents that have the same
      energy at every lag and no coherent structure; ``dominant_lag_excess``: the same of the peak, as a share.
    - ``mode_stability``, ``lag_mode_stability``: how far the leading modes span what they did at the last firing.
    - ``distinct_heads``: how many heads the heads of the layer amount to.

    And ``scalepod_seconds``, what the firing took until there. Pictures: ``scalepod_modes/{layer}``,
    ``scalepod_scalogram/{layer}``, ``scalepod_overview``, ``scalepod_confidence``, ``scalepod_heads``, and on request
    ``scalepod_coherence/{layer}``; to the loggers that take pictures, else to files. Every firing also writes its
    numbers to ``scalepod_results/step_<step>.npz`` in the run's folder, for :func:`scalepod.load`.

    Attributes:
        analyses: The newest analysis of every layer, by layer name.
        tracked: The modes of every layer, matched to those of the firing before.
        notes: What the last capture skipped or found odd, in words.
        provenance: Where the analyses come from; None before the first firing of a run.

    Args:
        every_n_steps: Optimizer steps between two firings; None for only the first and the last.
        every_n_epochs: Fire at the end of every n-th epoch instead of counting steps.
        n_snapshots: Held-out documents; the same ones at every firing. The field spectrum has at most one less modes.
        dataloader: Held-out documents: a DataLoader, an iterable of batches, or one batch. By default the run's
            validation data, evenly spread windows of it where it can be indexed, else its first.
        forward_fn: Runs the module on a batch, ``forward_fn(module, batch)``. By default ``module.attention_forward``
            where defined, else ``forward`` by its signature, else ``validation_step``.
        include: Globs of layer names to look at; None for all.
        exclude: Globs of layer names to leave out.
        adapters: How to read the arguments of custom attention kernels, by operator name; see ``capture_attention``.
        heads: "mean" averages the heads of a layer; "each" analyses every head as a layer of its own, ``name/h3``.
        omega0: Centre frequency of the Morlet wavelet.
        bands: Centres of the fixed lag bands, in tokens, by name.
        epsilons: Residual energies for the effective ranks.
        fit_range: First and last mode of the power-law fits, or "auto".
        burn_in: Leading queries left out of the lag covariance and the field POD.
        n_modes: Modes kept and drawn.
        field: Whether to run the field POD, which keeps 4 N T^2 bytes a layer.
        confidence: Whether to tell how far the numbers can be believed; see ``docs/confidence.md``.
        coherence: Whether to compute and draw the cross-coherence at each dominant scale, some 0.2 s a scale and layer.
        images: Whether to draw.
        save_dir: Folder for results and pictures; by default ``scalepod_results`` in the run's folder.
        on_error: "warn" turns a failure into one warning with its traceback, puts everything back and tries again
            at the next firing; "raise" lets it end the training.
        prefix: First part of every logged name and of the results' folder; give each of two callbacks in one trainer
            its own.

    Raises:
        ValueError: From the constructor, for options that make no sense.

    Example::

        trainer = L.Trainer(callbacks=[ScalePODCallback(every_n_steps=500)])
        trainer.fit(model, datamodule=data)
    """

    def __init__(
        self,
        every_n_steps: int | None = 500,
        every_n_epochs: int | None = None,
        n_snapshots: int = 150,
        dataloader: Any = None,
        forward_fn: Forward | None = None,
        include: str | Sequence[str] | None = None,
        exclude: str | Sequence[str] = (),
        adapters: Mapping[str, Adapter] | None = None,
        heads: Literal["mean", "each"] = "mean",
        omega0: float = 6.0,
        bands: Mapping[str, float] = DEFAULT_BANDS,
        epsilons: Sequence[float] = (0.10, 0.05, 0.01),
        fit_range: FitRange = (1, 30),
        burn_in: int = 0,
        n_modes: int = 3,
        field: bool = True,
        confidence: bool = True,
        coherence: bool = False,
        images: bool = True,
        save_dir: str | Path | None = None,
        on_error: Literal["warn", "raise"] = "warn",
        prefix: str = "scalepod",
    ) -> None:
        super().__init__()
        for name, value in {"every_n_steps": every_n_steps, "every_n_epochs": every_n_epochs}.items():
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1 or None: got {value}")
        if n_snapshots < 2:
            raise ValueError(f"n_snapshots must be at least 2, fluctuations need two documents: got {n_snapshots}")
        for name, given, known in (("on_error", on_error, ("warn", "raise")), ("heads", heads, ("mean", "each"))):
            if given not in known:
                raise ValueError(f"{name} must be one of {known}: got {given!r}")
        self.every_n_steps = None if every_n_epochs else every_n_steps
        self.every_n_epochs = every_n_epochs
        self.n_snapshots, self.dataloader, self.forward_fn = n_snapshots, dataloader, forward_fn
        self.include, self.exclude, self.adapters, self.heads = include, exclude, adapters, heads
        self.images, self.save_dir, self.on_error, self.prefix = images, save_dir, on_error, prefix
        self.options: dict[str, Any] = {
            "n_modes": n_modes,
            "omega0": omega0,
            "bands": dict(bands),
            "epsilons": tuple(epsilons),
            "fit_range": fit_range,
            "burn_in": burn_in,
            "field": field,
            "confidence": confidence,
            "coherence": coherence,
        }
        Options(**self.options)  # complains now, not at the first firing
        self.analyses: dict[str, LayerAnalysis] = {}
        self.tracked: dict[str, Tracked] = {}
        self.notes: list[str] = []
        self.provenance: Provenance | None = None
        self._documents: list[HeldOutBatch] | None = None
        self._said: set[str] = set()
        self._reported: set[str] = set()
        self._last_step: int | None = None
        self._tracker = ModeTracker()
        self._resumed = False

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments with which this callback could be made again, by name."""
        names = signature(ScalePODCallback).parameters
        return {name: self.options[name] if name in self.options else getattr(self, name) for name in names}

    @property
    def n_documents(self) -> int:
        """Held-out documents of this process; 0 before they were fetched."""
        return sum(batch.n_documents for batch in self._documents or [])

    @property
    def state_key(self) -> str:
        """Where the state lies in a checkpoint: callbacks of different prefixes keep separate states."""
        return self._generate_state_key(prefix=self.prefix)

    def state_dict(self) -> dict[str, Any]:
        """The step of the last firing, so that a resumed run does not fire twice for one step, and its modes."""
        return {"last_step": self._last_step, "modes": self._tracker.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up the state of a checkpoint."""
        self._last_step = state_dict["last_step"]
        self._tracker.load_state_dict(state_dict.get("modes", {}))
        self._resumed = self._last_step is not None

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Forget the data of an earlier run; a checkpoint is loaded after this."""
        self._documents, self.provenance, self._resumed = None, None, False

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Fire before the first step; a resumed run has done that already, unless it was cut off just before."""
        if self._resumed:
            self._fire_if_due(trainer, pl_module, x=max(_stepped(trainer) - 1, 0))
            return
        if not 0 < (self._last_step or 0) <= trainer.global_step:  # another run than this callback has been through
            self._last_step = None
            self._tracker = ModeTracker()
        self._fire(trainer, pl_module, x=_stepped(trainer))

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Fire when the optimizer steps taken pass a multiple of ``every_n_steps``."""
        self._fire_if_due(trainer, pl_module, x=_stepped(trainer))

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Fire at the end of every n-th epoch."""
        if self.every_n_epochs and (trainer.current_epoch + 1) % self.every_n_epochs == 0:
            self._fire(trainer, pl_module, x=max(_stepped(trainer) - 1, 0))

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Fire for the trained model."""
        self._fire(trainer, pl_module, x=max(_stepped(trainer) - 1, 0))

    def _fire_if_due(self, trainer: L.Trainer, module: L.LightningModule, x: int) -> None:
        n, last = self.every_n_steps, self._last_step or 0
        if n is not None and trainer.global_step // n > last // n:
            self._fire(trainer, module, x)

    def _fire(self, trainer: L.Trainer, module: L.LightningModule, x: int) -> None:
        step = trainer.global_step
        if step == self._last_step:
            return
        self._last_step = step
        started = time.perf_counter()
        for name in self._reported:  # what is not measured now must not look current
            trainer.callback_metrics.pop(name, None)
        try:
            self.analyse(trainer, module)
            self._report(trainer, started, step, x)
        except Exception as error:
            if self.on_error == "raise":
                raise
            # Of what the model or the data lacks, the message says all; of anything else the traceback is needed.
            said = isinstance(error, NoAttentionFound | NoHeldOutData)
            warnings.warn(
                f"ScalePODCallback could not do its work at step {step}; training goes on, and it tries again next "
                f"time (on_error='raise' stops instead).\n{error if said else traceback.format_exc()}",
                ScalePODWarning,
                stacklevel=2,
            )

    def analyse(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """Analyse the attention as it is now, whatever the schedule; nothing is logged or written.

        Raises:
            Exception: Whatever went wrong, on every process.
        """
        failure: Exception | None = None
        monitors: dict[str, ScalePOD] = {}
        try:
            monitors = self._capture(trainer, module)
        except Exception as error:
            failure = error
        # No process may go on into the collectives below while another has left.
        if not trainer.strategy.reduce_boolean_decision(failure is None):
            raise failure or RuntimeError("the capture failed in another process, which says why")
        _agree(trainer, monitors)
        if self.provenance is None:
            self.provenance = provenance(trainer, module, self._fetch(trainer), self.arguments)
        analyses = {}
        for i, (name, monitor) in enumerate(monitors.items(), start=1):
            try:
                analyses[f"{i:02d}_{name}"] = monitor.compute()
            except ValueError as error:
                failure = error
                self._note([f"{name}: {error}"])
        if not analyses and failure is not None:
            raise failure
        self.analyses = analyses
        self.tracked = {name: self._tracker.follow(name, analysis) for name, analysis in analyses.items()}
        self._say_notes(trainer)

    def _note(self, notes: Sequence[str]) -> None:
        """Keep notes, one of those that differ in numbers only, as they do from batch to batch."""
        for note in notes:
            if _without_numbers(note) not in map(_without_numbers, self.notes):
                self.notes.append(note)

    def _say_notes(self, trainer: L.Trainer) -> None:
        """Warn of what was found odd, once for each oddity."""
        news = [note for note in self.notes if _without_numbers(note) not in self._said]
        self._said |= set(map(_without_numbers, news))
        if news and trainer.is_global_zero:
            warnings.warn("ScalePODCallback: " + "; ".join(news), ScalePODWarning, stacklevel=2)

    def _capture(self, trainer: L.Trainer, module: L.LightningModule) -> dict[str, ScalePOD]:
        """Run the held-out documents of this process; one monitor a layer, in the order of the calls."""
        self.notes = []
        forward = self.forward_fn or default_forward
        capture = {"include": self.include, "exclude": self.exclude, "adapters": self.adapters, "heads": self.heads}
        with unnoticed(trainer, module):
            monitors, notes = gather(trainer, module, self._fetch(trainer), forward, self.options, capture)
        self._note(notes)
        return monitors

    def _fetch(self, trainer: L.Trainer) -> list[HeldOutBatch]:
        if self._documents is None:
            source = find_source(trainer) if self.dataloader is None else self.dataloader
            self._documents = held_out_batches(source, self.n_snapshots, trainer.global_rank, trainer.world_size)
        return self._documents

    def _report(self, trainer: L.Trainer, started: float, step: int, x: int) -> None:
        folder = Path(self.save_dir or Path(trainer.log_dir or trainer.default_root_dir) / f"{self.prefix}_results")
        name = f"step_{step:08d}"
        to_disk = not getattr(trainer, "fast_dev_run", False)
        scalars = layer_scalars(self.analyses, self.tracked, self.prefix)
        scalars[f"{self.prefix}_seconds"] = time.perf_counter() - started
        trainer.callback_metrics.update(as_metrics(scalars))
        self._reported = set(scalars)
        if not trainer.is_global_zero:
            return
        with contextlib.ExitStack() as rest:  # runs all that was pushed, the last first, whatever fails
            if self.images:
                rest.callback(self._show, trainer, step, x, folder / name if to_disk else None)
            rest.callback(log_scalars, trainer.loggers, scalars, x)
            if to_disk:
                stability = {layer: tracked.scalars() for layer, tracked in self.tracked.items()}
                rest.callback(
                    save_analyses,
                    folder / f"{name}.npz",
                    self.analyses,
                    step=step,
                    provenance=self.provenance,
                    more=stability,
                )

    def _show(self, trainer: L.Trainer, step: int, x: int, folder: Path | None) -> None:
        log_images(trainer.loggers, draw(self.analyses, self.tracked, self.prefix, step), x, folder)


def _without_numbers(note: str) -> str:
    """A note with the numbers of its text, not of its layer's name, taken out."""
    layer, colon, text = note.partition(": ")
    return layer + colon + re.sub(r"\d[\d.e+-]*", "#", text)


def _stepped(trainer: L.Trainer) -> int:
    """The x at which Lightning would log now: batches that led to a step, whatever the number of optimizers."""
    return trainer.fit_loop.epoch_loop._batches_that_stepped


def _agree(trainer: L.Trainer, monitors: Mapping[str, ScalePOD]) -> None:
    """Give the monitors of a layer the same size on every process, so that their sums can be added.

    Raises:
        RuntimeError: If the processes saw different layers.
    """
    if trainer.world_size == 1:
        return
    mine = {name: (monitor.n_tokens, monitor.signed, monitor.n_heads) for name, monitor in monitors.items()}
    everyone: list[dict[str, tuple[int, bool, int]]] = [{} for _ in range(trainer.world_size)]
    torch.distributed.all_gather_object(everyone, mine)
    if any(list(other) != list(mine) for other in everyone):
        raise RuntimeError(f"the processes saw different layers: {[list(other) for other in everyone]}")
    for name, monitor in monitors.items():
        sizes, directions, heads = zip(*(other[name] for other in everyone), strict=True)
        monitor.grow(max(sizes), signed=any(directions), n_heads=max(heads))
