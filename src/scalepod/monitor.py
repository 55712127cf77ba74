"""The analysis engine without a trainer: a torchmetrics metric that takes attention maps and gives a LayerAnalysis."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from .analysis import WHOLE, LayerAnalysis
from .field import LagMoments, lag_covariance_from_moments, lag_moments, mean_profile
from .pod import FieldPOD, field_pod, lag_pod, lag_windows
from .scalogram import band_shares, dominant_scales, equivalent_lag, mean_lag, scale_grid, scalogram
from .spectrum import spectral_concentration

DEFAULT_BANDS: Mapping[str, float] = MappingProxyType({"fine": 4, "medium": 12, "coarse": 36})
"""Centres of the fixed lag bands in tokens: short enough for spelling, words, and lines of text."""


class ScalePOD(Metric):
    r"""Multiscale POD of the attention of one layer, over batches of documents.

    ``update`` adds the attention maps of some documents, ``compute`` analyses all that were added. States are sums
    (moments of the lag layout) and, for the field POD, the maps themselves; both reduce over processes, so that in a
    distributed run every process may bring its share of the documents.

    Memory: the field POD keeps 4 N T^2 bytes; with ``field=False`` the states take about 16 T^2 bytes.

    Args:
        n_modes: Modes kept of each decomposition.
        omega0: Centre frequency of the Morlet wavelet.
        bands: Centres of the fixed lag bands, in tokens, by name.
        epsilons: Residual energies for which effective ranks H*(eps) are reported.
        fit_range: First and last mode of the power-law fits, counted from 1.
        burn_in: Leading queries left out of R and the field POD; they share their attention among few keys.
        field: Whether to run the field POD.
        scales: Wavelet scales; by default eight an octave from 2 to half a document, 64 at most.
        signed: Whether the field looks both ways (bidirectional attention). By default the maps tell: a field with
            anything above a diagonal does.
        kwargs: Passed to :class:`torchmetrics.Metric`.

    Raises:
        ValueError: From the constructor for options that make no sense, from ``update`` for maps of the wrong shape,
            from ``compute`` for fewer than two documents.

    Example:
        >>> import torch
        >>> from scalepod import ScalePOD
        >>> monitor = ScalePOD()
        >>> logits = torch.randn(8, 32, 32, generator=torch.Generator().manual_seed(0))
        >>> causal = torch.ones(32, 32).tril().bool()
        >>> monitor.update(logits.masked_fill(~causal, -torch.inf).softmax(-1))
        >>> analysis = monitor.compute()
        >>> analysis.n_snapshots, list(analysis.bands)
        (8, ['fine', 'medium', 'coarse'])
    """

    is_differentiable = False
    higher_is_better = None
    full_state_update = True  # a batch alone may be shorter than the documents before it

    attention: list[Tensor]
    valid: list[Tensor]
    n_snapshots: Tensor
    n_skipped: Tensor
    counts: Tensor
    total: Tensor
    second: Tensor

    def __init__(
        self,
        n_modes: int = 3,
        omega0: float = 6.0,
        bands: Mapping[str, float] = DEFAULT_BANDS,
        epsilons: Sequence[float] = (0.10, 0.05, 0.01),
        fit_range: tuple[int, int] = (1, 30),
        burn_in: int = 0,
        field: bool = True,
        scales: Sequence[float] | Tensor | None = None,
        signed: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_options(n_modes, omega0, bands, epsilons, fit_range, burn_in)
        self.n_modes, self.omega0, self.burn_in, self.field = n_modes, omega0, burn_in, field
        self.bands = {name: float(lag) for name, lag in bands.items()}
        self.epsilons, self.fit_range = tuple(epsilons), (fit_range[0], fit_range[1])
        self.scales = None if scales is None else torch.as_tensor(scales, dtype=torch.float64)
        self.signed = self._signed_given = signed
        for name in ("attention", "valid"):
            self.add_state(name, default=[], dist_reduce_fx="cat")
        for name in ("n_snapshots", "n_skipped", "counts", "total", "second"):
            self.add_state(name, default=torch.tensor(0), dist_reduce_fx="sum")

    @property
    def n_tokens(self) -> int:
        """Tokens T of the longest document so far; 0 before the first."""
        return self.total.size(-1) if self.total.ndim else 0

    def update(self, attn: Tensor, valid: Tensor | None = None) -> None:
        """Add the attention maps of a batch of documents.

        Documents of different lengths may come one after the other; the analysis then is of the longest length, and
        what a shorter one lacks is missing from the sums, not zero in them.

        Args:
            attn: Post-softmax attention [B, T, T], query by key, averaged over heads; any float dtype.
            valid: Which tokens are text and which are padding, bool [B, T]; None where there is no padding.
                Documents padded on the left are aligned at their first token.

        Raises:
            ValueError: If the maps are not square or do not match ``valid``, or if they look ahead although the field
                was declared causal.
        """
        attn = attn.detach()
        attn = attn if attn.dtype in (torch.float32, torch.float64) else attn.float()
        attn, valid = _checked(attn, valid)
        attn, valid = _align(attn, valid)
        usable = torch.isfinite(attn.flatten(1)).all(1) & valid[:, self.burn_in :].any(1)
        self.n_skipped = self.n_skipped + (~usable).sum()
        if not usable.any():
            return
        attn, valid = attn[usable], valid[usable]
        self._settle_direction(attn)
        self.grow(attn.size(-1))
        attn, valid = _pad(attn, self.n_tokens), _pad_tokens(valid, self.n_tokens)
        moments = lag_moments(attn, valid=_padding(valid), burn_in=self.burn_in, signed=self._is_signed())
        self.n_snapshots = self.n_snapshots + moments.n
        self.counts = self.counts + moments.counts
        self.total = self.total + moments.total
        self.second = self.second + moments.second
        if self.field:
            self.attention.append(attn)
            self.valid.append(valid.to(torch.uint8))

    def reset(self) -> None:
        """Forget all documents, and with them whether the field looked both ways."""
        super().reset()
        self.signed = self._signed_given

    def grow(self, n_tokens: int, signed: bool | None = None) -> None:
        """Make room for documents of ``n_tokens`` tokens; nothing changes where there is room already.

        Processes that saw documents of different lengths, or none, call it with what the others saw before ``compute``.

        Args:
            n_tokens: Tokens of the longest document.
            signed: Whether the field looks both ways, for a monitor whose documents do not show it.
        """
        if not self.total.ndim:
            self.signed = bool(self.signed or signed)
            n_lags = 2 * n_tokens - 1 if self.signed else n_tokens
            wide = torch.float32 if self.total.device.type == "mps" else torch.float64
            self.counts = self.counts.new_zeros(n_tokens)
            self.total = self.total.new_zeros(n_tokens, n_tokens, dtype=wide)
            self.second = self.second.new_zeros(n_lags, n_lags, dtype=wide)
            if self.field:
                self.attention = [self.total.new_zeros(0, n_tokens, n_tokens, dtype=torch.float32)]
                self.valid = [self.counts.new_zeros(0, n_tokens, dtype=torch.uint8)]
        elif signed and not self._is_signed():
            self._look_both_ways()
        more = n_tokens - self.n_tokens
        if more <= 0:
            return
        front = more if self._is_signed() else 0
        self.counts = F.pad(self.counts, (0, more))
        self.total = _pad(self.total, n_tokens)
        self.second = F.pad(self.second, (front, more, front, more))
        self.attention = [_pad(attn, n_tokens) for attn in self.attention]
        self.valid = [_pad_tokens(valid, n_tokens) for valid in self.valid]

    def compute(self) -> LayerAnalysis:
        """Analyse the documents added so far.

        Returns:
            The analysis; see :class:`LayerAnalysis`.

        Raises:
            ValueError: If fewer than two documents with finite attention were added.
        """
        n, skipped = int(self.n_snapshots), int(self.n_skipped)
        if n < 2:
            raise ValueError(
                f"the analysis needs at least 2 documents with finite attention: got {n}, and left out {skipped} that "
                "held NaN or infinity, or no query after padding and burn-in"
            )
        signed = self._is_signed()
        moments = LagMoments(n, self.counts, self.total, self.second)
        covariance = lag_covariance_from_moments(moments)
        n_queries = float(self.counts.sum()) / n
        scales = self._scales().to(covariance.device)
        energies = scalogram(covariance, scales, self.omega0, n_queries=n_queries)
        found = dominant_scales(energies, scales)
        lags = equivalent_lag(found, self.omega0)
        names, centres, windows = self._windows(lags)
        lag = lag_pod(covariance, windows, self.n_modes)
        field = self._field_pod(windows)
        lag_energy = covariance.diagonal()
        return LayerAnalysis(
            n_snapshots=n,
            n_skipped=skipped,
            n_tokens=self.n_tokens,
            n_queries=n_queries,
            signed=signed,
            omega0=self.omega0,
            fit_range=self.fit_range,
            burn_in=self.burn_in,
            epsilons=self.epsilons,
            energy=float(lag_energy.sum()),
            mean_lag=mean_lag(lag_energy, signed=signed),
            bands=band_shares(lag_energy, self.bands, signed=signed) if self.bands else {},
            mean_profile=mean_profile(moments),
            lag_energy=lag_energy,
            scales=scales,
            scalogram=energies,
            dominant_scales=found,
            dominant_lags=lags,
            window_names=names,
            window_lags=centres,
            windows=windows,
            lag=lag,
            lag_fit=spectral_concentration(lag.eigenvalues, self.fit_range),
            field=field,
            field_fit=None if field is None else spectral_concentration(field.eigenvalues, self.fit_range),
        ).cpu()

    def _wrap_compute(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        """Keep the record whole: torchmetrics goes through what compute returns and squeezes tensors of one element."""
        wrapped = super()._wrap_compute(lambda *args, **kwargs: _Sealed(compute(*args, **kwargs)))

        @functools.wraps(compute)
        def unsealed(*args: Any, **kwargs: Any) -> LayerAnalysis:
            sealed: _Sealed = wrapped(*args, **kwargs)
            return sealed.analysis

        return unsealed

    def _settle_direction(self, attn: Tensor) -> None:
        """Take the field as one that looks both ways as soon as one of its maps does."""
        looks_ahead = bool(attn.triu(1).any())
        if looks_ahead and self._signed_given is False:
            raise ValueError("attention above the diagonal in a field that was declared causal: leave out signed=False")
        if looks_ahead and not self._is_signed():
            self._look_both_ways()
        self.signed = self._is_signed() or looks_ahead

    def _is_signed(self) -> bool:
        """Whether the moments hold both directions, which their shapes tell (also after a state was loaded)."""
        if self.total.ndim and self.n_tokens > 1:
            return self.second.size(-1) != self.n_tokens
        return bool(self.signed)

    def _look_both_ways(self) -> None:
        """Make room for lags ahead, at which the documents so far had nothing."""
        self.signed = True
        if self.n_tokens > 1:
            ahead = self.n_tokens - 1
            self.second = F.pad(self.second, (ahead, 0, ahead, 0))

    def _scales(self) -> Tensor:
        if self.scales is not None:
            return self.scales
        return scale_grid(2.0, min(64.0, max(4.0, self.n_tokens / 2)), per_octave=8)

    def _windows(self, dominant_lags: Tensor) -> tuple[tuple[str, ...], tuple[float, ...], Tensor]:
        """Names, centres and shapes [M, T] of the windows: all, the bands, the dominant lags."""
        dominant = {f"lag {lag:.1f}": lag for lag in dominant_lags.tolist()}
        centres = {**self.bands, **dominant}
        ones = torch.ones(1, self.n_tokens, dtype=dominant_lags.dtype, device=dominant_lags.device)
        lags = torch.tensor(list(centres.values()), dtype=ones.dtype, device=ones.device)
        windows = torch.cat([ones, lag_windows(lags, self.n_tokens)]) if centres else ones
        return (WHOLE, *centres), (math.nan, *centres.values()), windows

    def _field_pod(self, windows: Tensor) -> FieldPOD | None:
        if not self.field:
            return None
        attention, valid = dim_zero_cat(self.attention), dim_zero_cat(self.valid).bool()
        return field_pod(attention, windows, self.n_modes, valid=_padding(valid), burn_in=self.burn_in)


class _Sealed:
    """Hides an analysis from code that walks through collections."""

    def __init__(self, analysis: LayerAnalysis) -> None:
        self.analysis = analysis


def check_options(
    n_modes: int,
    omega0: float,
    bands: Mapping[str, float],
    epsilons: Sequence[float],
    fit_range: tuple[int, int],
    burn_in: int,
) -> None:
    """Refuse options of an analysis that make no sense, before any data is seen.

    Raises:
        ValueError: Naming the option, what it may be and what it was.
    """
    problems = {
        f"n_modes must be at least 1: got {n_modes}": n_modes < 1,
        f"omega0 must be at least 5, below it the Morlet wavelet is no wavelet: got {omega0}": not omega0 >= 5,
        f"bands must be distinct positive lags in tokens: got {dict(bands)}": (
            not all(0 < lag < math.inf for lag in bands.values()) or len(set(bands.values())) < len(bands)
        ),
        f"no band may be called {WHOLE!r} or 'lag ...', those are names of other windows": any(
            name == WHOLE or name.startswith("lag ") for name in bands
        ),
        f"epsilons must lie in [0, 1): got {tuple(epsilons)}": not all(0 <= epsilon < 1 for epsilon in epsilons),
        f"fit_range must be two modes (first, last), 1 <= first < last: got {fit_range}": not (
            len(fit_range) == 2 and 1 <= fit_range[0] < fit_range[1]
        ),
        f"burn_in must not be negative: got {burn_in}": burn_in < 0,
    }
    for problem, found in problems.items():
        if found:
            raise ValueError(problem)


def _checked(attn: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
    """The maps with padded queries and keys zeroed (models leave anything there, NaN included), and their tokens."""
    if attn.ndim != 3 or attn.size(-1) != attn.size(-2):
        hint = "; average over heads first, attn.mean(1)" if attn.ndim == 4 else ""
        raise ValueError(f"attn must be [B, T, T], query by key: got shape {tuple(attn.shape)}{hint}")
    if valid is None:
        return attn, torch.ones(attn.shape[:2], dtype=torch.bool, device=attn.device)
    if valid.shape != attn.shape[:2]:
        raise ValueError(f"valid must be [B, T] = {tuple(attn.shape[:2])} like attn: got shape {tuple(valid.shape)}")
    valid = valid.to(attn.device, torch.bool)
    return attn.masked_fill(~(valid[:, :, None] & valid[:, None, :]), 0.0), valid


def _align(attn: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """Roll documents that are padded on the left so that each starts at its first token."""
    first = valid.to(torch.uint8).argmax(-1, keepdim=True)  # [B, 1]
    if not first.any():
        return attn, valid
    order = (torch.arange(attn.size(-1), device=attn.device) + first) % attn.size(-1)  # [B, T]
    rows = attn.gather(1, order[:, :, None].expand_as(attn))
    return rows.gather(2, order[:, None, :].expand_as(attn)), valid.gather(1, order)


def _padding(valid: Tensor) -> Tensor | None:
    """The tokens for the numerics: None, which spares them a masked copy of every map, where there is no padding."""
    return None if valid.all() else valid


def _pad(attn: Tensor, n_tokens: int) -> Tensor:
    more = n_tokens - attn.size(-1)
    return F.pad(attn, (0, more, 0, more)) if more else attn


def _pad_tokens(valid: Tensor, n_tokens: int) -> Tensor:
    more = n_tokens - valid.size(-1)
    return F.pad(valid, (0, more)) if more else valid
