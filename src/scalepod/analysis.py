"""What the analysis of one layer found: a plain record, with the scalars that are logged from it."""

import math
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor

from ._records import map_tensors
from .coherence import Coherence
from .confidence.null import excess
from .confidence.record import Confidence
from .heads import HeadRedundancy
from .pod import FieldPOD, LagPOD
from .spectrum import FitRange, SpectralFit, effective_rank, spectral_concentration

WHOLE = "whole"
"""Name of the window of ones: the fluctuation as it is."""


@dataclass(frozen=True, eq=False, repr=False)
class LayerAnalysis:
    """Spectral and modal analysis of the attention of one layer (or one head) over N documents.

    Shapes: N documents, T tokens, L lags (T for causal attention, 2T - 1 signed lags for bidirectional attention),
    S wavelet scales, M windows, K modes. All tensors are on the CPU. Lags and scales are in tokens.
    """

    n_snapshots: int
    """Documents N that entered the analysis."""
    n_skipped: int
    """Documents left out: their attention held NaN or infinity, or they had no query after padding and burn-in."""
    n_tokens: int
    """Tokens T of a document."""
    n_queries: float
    """Mean number of query rows a document brought in: T without padding and burn-in."""
    signed: bool
    """Whether the field looks both ways, so that lags run from -(T - 1) to T - 1."""
    omega0: float
    """Centre frequency of the Morlet wavelet."""
    fit_range: FitRange
    """First and last mode of the power-law fits, counted from 1, or "auto"."""
    burn_in: int
    """Leading queries left out of R and of the field POD."""
    epsilons: tuple[float, ...]
    """Residual energies for which effective ranks are reported."""

    energy: float
    """Mean energy of the fluctuation, mean_s ||u_s||^2 = tr R."""
    mean_lag: float
    """sum |tau| R[tau, tau] / sum R[tau, tau]: the centre of the energy, in tokens. NaN for a zero fluctuation."""
    bands: dict[str, float]
    """Share of the energy in each fixed band of lags; the shares add up to 1. Empty for a zero fluctuation."""
    mean_profile: Tensor
    """Mean attention paid at each lag, [L]: averaged over documents and their queries; it adds up to 1."""
    lag_energy: Tensor
    """Fluctuation energy at each lag, diag R, [L]."""

    scales: Tensor
    """Wavelet scales, [S]."""
    scalogram: Tensor
    """S(a, b), energy at scale a around lag b, mean over documents and queries, [S, L]."""
    dominant_scales: Tensor
    """Interior maxima of E(a), highest first, [m] with m <= 4; empty when no scale stands out."""
    dominant_lags: Tensor
    """Fourier periods of the dominant scales in tokens, [m]."""

    window_names: tuple[str, ...]
    """Names of the M lag windows: "whole", the fixed bands, then the dominant lags."""
    window_lags: tuple[float, ...]
    """Centre of each window in tokens; NaN for "whole"."""
    windows: Tensor
    """The windows over |tau|, [M, T]."""
    lag: LagPOD
    """Lag POD in every window."""
    lag_fit: SpectralFit
    """Power-law fits of the lag spectra by least squares, each field [M]."""
    lag_fit_theil_sen: SpectralFit
    """The same by the median of slopes, which one outlier does not move."""
    field: FieldPOD | None
    """Field POD in every window; None when it was switched off."""
    field_fit: SpectralFit | None
    """Power-law fits of the field spectra, each field [M]; None when the field POD was switched off."""
    field_fit_theil_sen: SpectralFit | None
    """The same by the median of slopes."""
    heads: HeadRedundancy | None
    """How alike the heads are in each window, from every sixth document; None for one head, fewer than 16 documents, or
    where heads were not looked at."""
    coherence: Coherence | None
    """Cross-coherence at each dominant scale, every field with a leading dimension [m]; None unless asked for, or
    without a dominant scale."""
    confidence: Confidence | None
    """How far the numbers can be believed; None when that was switched off or there are fewer than 16 documents."""

    def __repr__(self) -> str:
        """One line; the numbers are in :meth:`scalars` and the fields."""
        return (
            f"LayerAnalysis({self.n_snapshots} documents of {self.n_tokens} tokens, energy {self.energy:.3g}, "
            f"mean lag {self.mean_lag:.3g}, lag H* {self.lag_h_star}, lag T_spec {self.lag_t_spec:.3g})"
        )

    @property
    def scale_energy(self) -> Tensor:
        """E(a) = sum_b S(a, b), [S]."""
        return self.scalogram.sum(-1)

    @property
    def t_spec(self) -> float:
        """T_spec of the field spectrum of the whole fluctuation; NaN when undefined or switched off."""
        return math.nan if self.field_fit is None else float(self.field_fit.t_spec[0])

    @property
    def lag_t_spec(self) -> float:
        """T_spec of the lag spectrum of the whole fluctuation; NaN when undefined."""
        return float(self.lag_fit.t_spec[0])

    @property
    def h_star(self) -> dict[float, int]:
        """Effective rank H*(eps) of the field spectrum, by eps; empty when the field POD was switched off."""
        return {} if self.field is None else self._ranks(self.field.eigenvalues, WHOLE)

    @property
    def lag_h_star(self) -> dict[float, int]:
        """Effective rank H*(eps) of the lag spectrum, by eps."""
        return self._ranks(self.lag.eigenvalues, WHOLE)

    def cpu(self) -> "LayerAnalysis":
        """The same analysis with every tensor on the CPU."""
        return map_tensors(self, lambda tensor: tensor.cpu())

    def scalars(self) -> dict[str, float]:
        """The values that are logged, by name; an undefined value is left out, not logged as NaN."""
        return dict(self._scalars)

    @cached_property
    def _scalars(self) -> dict[str, float]:
        """Computed once: loggers, results on disk and reports ask for them."""
        found = {"energy": self.energy, "mean_lag": self.mean_lag}
        if len(self.dominant_lags):
            found["dominant_lag"] = float(self.dominant_lags[0])
        found |= {f"band_{name}": share for name, share in self.bands.items()}
        for name in (WHOLE, *self.bands):
            suffix = "" if name == WHOLE else f"_{name}"
            m = self.window_names.index(name)
            found[f"lag_t_spec{suffix}"] = float(self.lag_fit.t_spec[m])
            for epsilon, rank in self._ranks(self.lag.eigenvalues, name).items():
                found[f"lag_h_star_{epsilon_name(epsilon)}{suffix}"] = rank
            if self.field is not None and self.field_fit is not None:
                found[f"t_spec{suffix}"] = float(self.field_fit.t_spec[m])
                for epsilon, rank in self._ranks(self.field.eigenvalues, name).items():
                    found[f"h_star_{epsilon_name(epsilon)}{suffix}"] = rank
        if self.heads is not None:
            found["distinct_heads"] = float(self.heads.distinct[0])
        if self.coherence is not None:
            found["coherent_share"] = self.coherence_at(0).significant_share
        found |= self._fit_scalars() | self.excess()
        if self.confidence is not None:
            found |= self.confidence.scalars(self.epsilons)
        return {name: value for name, value in found.items() if math.isfinite(value)}

    def coherence_at(self, k: int) -> Coherence:
        """Cross-coherence at the k-th dominant scale, counted from 0.

        Raises:
            ValueError: If it was not computed.
        """
        if self.coherence is None:
            raise ValueError("no coherence was computed: it takes coherence=True, and a dominant scale")
        return Coherence(*(field[k] for field in self.coherence))

    def dominant_excess(self) -> Tensor:
        """Energy at each dominant scale beyond that of the null, as a share of the null's, [m]; NaN without a null.

        Noise has peaks too: one whose excess is not well above 0 (E(a) of a null scatters by 1 or 2 %) is no structure.
        """
        null = None if self.confidence is None else self.confidence.null
        if null is None:
            return torch.full_like(self.dominant_scales, torch.nan)
        nearest = (self.scales - self.dominant_scales[:, None]).abs().argmin(-1)
        return self.scale_energy[nearest] / null.scale_energy.mean(0)[nearest] - 1

    def excess(self) -> dict[str, float]:
        """What the spectra of the whole fluctuation have beyond those of the null, by name; NaN where undefined.

        T_spec and H* of structure lie below those of documents without it: their excess is negative.
        """
        null = None if self.confidence is None else self.confidence.null
        if null is None or self.field is None:
            return {}
        found = {}
        if len(self.dominant_scales):
            found["dominant_lag_excess"] = float(self.dominant_excess()[0])
        for kind, pod, others in (("lag_", self.lag, null.lag_eigenvalues), ("", self.field, null.field_eigenvalues)):
            spectrum = pod.eigenvalues[0]
            found[f"{kind}t_spec_excess"] = excess(spectrum, others, partial(_t_spec, fit_range=self.fit_range))
            for epsilon in self.epsilons[:1]:
                found[f"{kind}h_star_excess"] = excess(spectrum, others, partial(effective_rank, epsilon=epsilon))
        return found

    def _fit_scalars(self) -> dict[str, float]:
        """Quality of the fits to the spectra of the whole fluctuation, and T_spec by the other method."""
        found = {}
        for kind, fit, other in (
            ("lag_", self.lag_fit, self.lag_fit_theil_sen),
            ("", self.field_fit, self.field_fit_theil_sen),
        ):
            if fit is not None and other is not None:
                found[f"{kind}t_spec_r2"] = float(fit.r2[0])
                found[f"{kind}t_spec_theil_sen"] = float(other.t_spec[0])
        return found

    def _ranks(self, eigenvalues: Tensor, window: str) -> dict[float, int]:
        spectrum = eigenvalues[self.window_names.index(window)]
        return {epsilon: int(effective_rank(spectrum, epsilon)) for epsilon in self.epsilons}


def _t_spec(eigenvalues: Tensor, fit_range: FitRange) -> Tensor:
    return spectral_concentration(eigenvalues, fit_range).t_spec


def epsilon_name(epsilon: float) -> str:
    """How a residual energy is written in a logged name: two decimals where they suffice ("0.10"), else all."""
    return f"{epsilon:.2f}" if round(epsilon, 2) == epsilon else f"{epsilon:g}"
