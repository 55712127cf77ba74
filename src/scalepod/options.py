"""Options of an analysis, checked before any data is seen."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from torch import Tensor

from .analysis import WHOLE

DEFAULT_BANDS: Mapping[str, float] = MappingProxyType({"fine": 4, "medium": 12, "coarse": 36})
"""Centres of the fixed lag bands in tokens: short enough for spelling, words, and lines of text."""

FitRange = tuple[int, int] | Literal["auto"]
"""First and last mode of a power-law fit, counted from 1; or "auto", the widest range that is straight enough."""


@dataclass(frozen=True)
class Options:
    """What an analysis does; see :class:`scalepod.ScalePOD` for each option.

    Raises:
        ValueError: Naming the option, what it may be and what it was.
    """

    n_modes: int
    omega0: float
    bands: Mapping[str, float]
    epsilons: Sequence[float]
    fit_range: FitRange
    burn_in: int
    field: bool
    confidence: bool
    coherence: bool = False
    scales: Tensor | None = None

    def __post_init__(self) -> None:
        """Refuse options that make no sense."""
        for problem, found in self._problems().items():
            if found:
                raise ValueError(problem)

    def _problems(self) -> dict[str, bool]:
        bands, fit_range = self.bands, self.fit_range
        return {
            f"n_modes must be at least 1: got {self.n_modes}": self.n_modes < 1,
            f"omega0 must be at least 5, below it the Morlet wavelet is no wavelet: got {self.omega0}": (
                not self.omega0 >= 5
            ),
            f"bands must be distinct positive lags in tokens: got {dict(bands)}": (
                not all(0 < lag < math.inf for lag in bands.values()) or len(set(bands.values())) < len(bands)
            ),
            f"no band may be called {WHOLE!r} or 'lag ...', those are names of other windows": any(
                name == WHOLE or name.startswith("lag ") for name in bands
            ),
            f"epsilons must lie in [0, 1): got {tuple(self.epsilons)}": (
                not all(0 <= epsilon < 1 for epsilon in self.epsilons)
            ),
            f"fit_range must be two modes (first, last), 1 <= first < last, or 'auto': got {fit_range!r}": (
                fit_range != "auto"
                and (isinstance(fit_range, str) or len(fit_range) != 2 or not 1 <= fit_range[0] < fit_range[1])
            ),
            f"burn_in must not be negative: got {self.burn_in}": self.burn_in < 0,
            "coherence=True needs the documents, which field=False does not keep: leave out one of the two": (
                self.coherence and not self.field
            ),
        }
