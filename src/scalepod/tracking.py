"""Modes of a layer followed from firing to firing, so that a series of pictures shows them evolve."""

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ._checks import numeric
from .analysis import LayerAnalysis
from .matching import match_modes, mode_stability

DOMINANT = "dominant"
"""Name under which the window of the first dominant scale is followed, wherever that scale is."""

_SKETCH = 2**14  # numbers kept of a mode; overlaps are then known to 1 / sqrt of it, 0.8 %
_QUANTILE = 0.998  # share of a mode's entries whose colours do not saturate
_KEEP_LIMIT = 2.0  # a colour limit stays until the modes call for one this many times larger or smaller
_HALF_OCTAVE = 2**0.5


class ShownModes(NamedTuple):
    """The modes of one window in the order, with the signs and in the colours of the last picture."""

    modes: Tensor
    """[K, T, T] or [K, L]; zeros beyond the rank."""
    energies: Tensor
    """Mean energy along each, [K]."""
    ranks: Tensor
    """Place of each in the descending order, from 0, int64 [K]."""
    mixed: Tensor
    """Which were turned among modes that the documents cannot tell apart, bool [K]."""
    limit: float
    """Where the colours end: -limit and +limit."""


@dataclass(frozen=True)
class Tracked:
    """The modes of a layer in each window that is followed, by its name: "whole", the bands, "dominant"."""

    field: dict[str, ShownModes]
    """Field modes; empty without field POD."""
    lag: dict[str, ShownModes]
    """Lag modes."""
    field_stability: float
    """How far the leading field modes of all lags span what they did at the last firing (`matching.mode_stability`);
    NaN at the first."""
    lag_stability: float
    """The same of the lag modes."""

    def scalars(self) -> dict[str, float]:
        """The values that are logged; undefined ones are left out."""
        found = {"mode_stability": self.field_stability, "lag_mode_stability": self.lag_stability}
        return {name: value for name, value in found.items() if math.isfinite(value)}


@dataclass
class _Window:
    """What is remembered of a window."""

    sketch: Tensor
    size: int
    limit: float
    lag: float


@dataclass
class ModeTracker:
    """Remembers the modes of every layer, and matches the next ones to them.

    Of a field mode only a sketch is kept: its entries with random signs, folded into 16384 numbers, whose inner
    products are those of the modes to about 1 %. A state is then small enough for every checkpoint, and a run that is
    resumed from one shows the same pictures as one that was not stopped.
    """

    _layers: dict[str, dict[str, _Window]] = field(default_factory=dict)

    def follow(self, layer: str, analysis: LayerAnalysis) -> Tracked:
        """Match the modes of a layer to those of its last analysis, and remember them.

        Args:
            layer: Name of the layer.
            analysis: Its newest analysis.

        Returns:
            The matched modes; those of a window that was not there the last time, or of another size, as they are.
        """
        known = self._layers.get(layer, {})
        remembered: dict[str, _Window] = {}
        shown: dict[str, dict[str, ShownModes]] = {"field": {}, "lag": {}}
        stability = {"field": math.nan, "lag": math.nan}
        for kind, pod in (("field", analysis.field), ("lag", analysis.lag)):
            if pod is None:
                continue
            for name, m in _followed(analysis).items():
                key = f"{kind}|{name}"
                last = known.get(key)
                modes, eigenvalues, lag = pod.modes[m], pod.eigenvalues[m], analysis.window_lags[m]
                found, window, alike = _match(modes, eigenvalues, lag, last, analysis.n_snapshots)
                shown[kind][name], remembered[key] = found, window
                if m == 0:
                    stability[kind] = alike
        self._layers[layer] = remembered
        return Tracked(shown["field"], shown["lag"], stability["field"], stability["lag"])

    def state_dict(self) -> dict[str, Any]:
        """Plain values and tensors for a checkpoint."""
        return {
            layer: {
                key: {"sketch": w.sketch, "size": w.size, "limit": w.limit, "lag": w.lag} for key, w in windows.items()
            }
            for layer, windows in self._layers.items()
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up the state of a checkpoint."""
        self._layers = {
            layer: {key: _Window(**values) for key, values in windows.items()} for layer, windows in state.items()
        }


def colour_limit(modes: Tensor) -> float:
    """Where the colours of modes [K, ...] should end: the largest over them of a high quantile of |value|; 0 of zeros.

    Entries that are 0 do not count: outside its window a mode is 0 nearly everywhere.
    """
    sizes = [mode[mode != 0].abs().double().cpu().numpy() for mode in modes]
    return max((float(np.quantile(size, _QUANTILE)) for size in sizes if size.size), default=0.0)


def _followed(analysis: LayerAnalysis) -> dict[str, int]:
    """Windows that are followed, with their places: the whole, the bands, and the first dominant scale."""
    n_fixed = len(analysis.window_names) - len(analysis.dominant_lags)
    found = {name: m for m, name in enumerate(analysis.window_names[:n_fixed])}
    return found | ({DOMINANT: n_fixed} if len(analysis.dominant_lags) else {})


def _match(
    modes: Tensor, eigenvalues: Tensor, lag: float, last: _Window | None, n_snapshots: int
) -> tuple[ShownModes, _Window, float]:
    """The modes to show, what to remember of them, and their stability since the last time."""
    sketch, size, limit, alike = _sketch(modes), modes[0].numel(), colour_limit(modes), math.nan
    shown = ShownModes(
        modes,
        F.pad(eigenvalues[: len(modes)], (0, max(0, len(modes) - len(eigenvalues)))),
        torch.arange(len(modes)),
        torch.zeros(len(modes), dtype=torch.bool),
        limit,
    )
    if last is not None and (last.size, last.sketch.shape) == (size, sketch.shape) and not _moved(lag, last.lag):
        alike = mode_stability(sketch, last.sketch)
        matched = match_modes(sketch, eigenvalues, last.sketch, n_snapshots)
        turned = (matched.rotation.to(modes) @ modes.flatten(1)).view_as(modes)
        if limit and last.limit / _KEEP_LIMIT <= limit <= last.limit * _KEEP_LIMIT:
            limit = last.limit
        shown = ShownModes(turned, matched.energies, matched.ranks, matched.mixed, limit)
        sketch = _sketch(turned)
    return shown, _Window(sketch, size, limit, lag), alike


def _moved(lag: float, last: float) -> bool:
    """Whether a window stands elsewhere now; that of all lags (NaN) never does."""
    return not (math.isnan(lag) or 1 / _HALF_OCTAVE <= lag / last <= _HALF_OCTAVE)


@numeric
def _sketch(modes: Tensor) -> Tensor:
    """At most 16384 numbers for each mode, with the inner products of the modes, in half precision, [K, d]."""
    flat = modes.flatten(1).float().cpu()
    if flat.shape[1] > _SKETCH:
        flat = F.pad(flat * _signs(flat.shape[1]), (0, -flat.shape[1] % _SKETCH)).view(len(flat), -1, _SKETCH).sum(1)
    return flat.half()


@functools.lru_cache(maxsize=4)
def _signs(n: int) -> Tensor:
    """Random signs that depend on their number alone, [n]."""
    return torch.randint(0, 2, (n,), generator=torch.Generator().manual_seed(n)) * 2 - 1
