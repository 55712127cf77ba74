"""From the sums and the documents of one layer to its analysis."""

import math
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from .analysis import WHOLE, LayerAnalysis
from .bands import band_shares, mean_lag
from .coherence import Coherence, coherence
from .confidence.assess import assess
from .confidence.groups import MIN_DOCUMENTS, all_groups, enough
from .field import LagMoments, covariance_rounding, lag_covariance_from_moments, mean_profile
from .heads import HeadMoments, HeadRedundancy, head_gram, head_redundancy
from .options import Options
from .pod import LagPOD, lag_pod, lag_windows, pod_of_snapshots, windowed_snapshots
from .scalogram import dominant_scales, equivalent_lag, refine_scales, scale_grid, scalogram
from .spectrum import spectral_concentration


class Documents(NamedTuple):
    """The attention of documents of one length."""

    attn: Tensor
    """[N, T, T]."""
    valid: Tensor | None
    """Bool [N, T], True at real tokens; None without padding."""
    group: Tensor
    """Group of each document, [N]."""


def analyse(
    groups: LagMoments,
    documents: Documents | None,
    options: Options,
    heads: HeadMoments | None = None,
    n_skipped: int = 0,
) -> LayerAnalysis:
    """Analyse the attention of a layer.

    Args:
        groups: Moments of the groups of documents.
        documents: The documents themselves, for the field POD.
        options: What to do.
        heads: Moments of the single heads, where there are several.
        n_skipped: Documents that were left out.

    Returns:
        The analysis, on the CPU.
    """
    moments = all_groups(groups)
    n, n_tokens = int(moments.n), moments.total.shape[-1]
    signed = n_tokens > 1 and moments.second.shape[-1] != n_tokens
    covariance = lag_covariance_from_moments(moments)
    n_queries = float(moments.counts.sum()) / n
    scales = _scales(options, n_tokens).to(covariance)  # a device may have no float64
    energies = scalogram(covariance, scales, options.omega0, n_queries=n_queries)
    found = refine_scales(energies, scales, dominant_scales(energies, scales))
    lags = equivalent_lag(found, options.omega0)
    names, centres, windows = _windows(options, lags, n_tokens)
    rounding = covariance_rounding(moments)
    lag = lag_pod(covariance, windows, max(len(covariance), options.n_modes), rounding)
    snapshots = field = None
    if documents is not None:
        snapshots = windowed_snapshots(documents.attn, windows, valid=documents.valid, burn_in=options.burn_in)
        field = pod_of_snapshots(snapshots, options.n_modes)
    lag_energy = covariance.diagonal()
    analysis = LayerAnalysis(
        n_snapshots=n,
        n_skipped=n_skipped,
        n_tokens=n_tokens,
        n_queries=n_queries,
        signed=signed,
        omega0=options.omega0,
        fit_range=options.fit_range,
        burn_in=options.burn_in,
        epsilons=tuple(options.epsilons),
        energy=float(lag_energy.sum()),
        mean_lag=mean_lag(lag_energy, signed=signed),
        bands=band_shares(lag_energy, options.bands, signed=signed) if options.bands else {},
        mean_profile=mean_profile(moments),
        lag_energy=lag_energy,
        scales=scales,
        scalogram=energies,
        dominant_scales=found,
        dominant_lags=lags,
        window_names=names,
        window_lags=centres,
        windows=windows,
        lag=LagPOD(lag.eigenvalues, lag.modes[:, : options.n_modes]),
        lag_fit=spectral_concentration(lag.eigenvalues, options.fit_range),
        lag_fit_theil_sen=spectral_concentration(lag.eigenvalues, options.fit_range, "theil_sen"),
        field=field,
        field_fit=None if field is None else spectral_concentration(field.eigenvalues, options.fit_range),
        field_fit_theil_sen=(
            None if field is None else spectral_concentration(field.eigenvalues, options.fit_range, "theil_sen")
        ),
        heads=None if heads is None or n < MIN_DOCUMENTS else _redundancy(heads, windows),
        coherence=None if documents is None or not options.coherence else _coherence(documents, found, options, signed),
        confidence=None,
    )
    if options.confidence and enough(torch.as_tensor(groups.n)):
        labels = None if documents is None else documents.group
        confidence = assess(analysis, options, groups, lag.modes, rounding, snapshots, labels)
        analysis = replace(analysis, confidence=confidence)
    return analysis.cpu()


def _coherence(documents: Documents, scales: Tensor, options: Options, signed: bool) -> Coherence | None:
    """Cross-coherence at each dominant scale, every field with a leading dimension over them; None without any."""
    found = [
        coherence(documents.attn, scale, options.omega0, valid=documents.valid, signed=signed)
        for scale in scales.tolist()
    ]
    return Coherence(*map(torch.stack, zip(*found, strict=True))) if found else None


def _redundancy(heads: HeadMoments, windows: Tensor) -> HeadRedundancy:
    """How alike the heads are; the documents that were looked at may all be shorter than the longest one."""
    return head_redundancy(head_gram(heads, windows[:, : heads.counts.size(-1)]))


def _scales(options: Options, n_tokens: int) -> Tensor:
    if options.scales is not None:
        return options.scales
    return scale_grid(2.0, min(64.0, max(4.0, n_tokens / 2)), per_octave=8)


def _windows(
    options: Options, dominant_lags: Tensor, n_tokens: int
) -> tuple[tuple[str, ...], tuple[float, ...], Tensor]:
    """Names, centres and shapes [M, T] of the windows: all, the bands, the dominant lags."""
    centres = {name: float(lag) for name, lag in options.bands.items()}
    centres |= {f"lag {lag:.1f}": lag for lag in dominant_lags.tolist()}
    ones = torch.ones(1, n_tokens, dtype=dominant_lags.dtype, device=dominant_lags.device)
    lags = torch.tensor(list(centres.values()), dtype=ones.dtype, device=ones.device)
    windows = torch.cat([ones, lag_windows(lags, n_tokens)]) if centres else ones
    return (WHOLE, *centres), (math.nan, *centres.values()), windows
