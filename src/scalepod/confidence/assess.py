"""From groups of documents to what can be believed of the analysis of all of them."""

import math

import torch
from torch import Tensor

from .._checks import numeric
from ..analysis import LayerAnalysis
from ..field import LagMoments
from ..options import Options
from ..pod import Snapshots
from ..scalogram import scale_energy
from ..spectrum import SpectralFit, effective_rank
from .convergence import Convergence, Level, convergence
from .estimates import PartSpectra, estimates
from .groups import all_but_one, dealt, field_spectra, lag_spectra, part_covariances
from .held_out import field_captured, lag_captured
from .null import null_spectra
from .record import Confidence

_MIN_BASIS = 64  # lag modes along which the parts are looked at, at least


@numeric
def assess(
    analysis: LayerAnalysis,
    options: Options,
    groups: LagMoments,
    lag_modes: Tensor,
    rounding: float,
    snapshots: Snapshots | None,
    labels: Tensor | None,
) -> Confidence:
    """Tell how far the numbers of an analysis can be believed.

    Args:
        analysis: The analysis of all documents, on the device of what follows.
        options: What it did.
        groups: Moments of the G groups of documents.
        lag_modes: All lag modes of its windows, [M, L, L].
        rounding: Error of the lag covariance of all documents (see `scalepod.field.covariance_rounding`).
        snapshots: Fluctuations and inner products in its windows; None without field POD.
        labels: Group of each document, [N]; None without field POD.

    Returns:
        The confidence.
    """
    sizes = torch.as_tensor(groups.n)
    n_groups, n_windows = len(sizes), 1 + len(options.bands)
    all_of_them = torch.ones(1, n_groups, dtype=torch.bool)
    parts = torch.cat([all_of_them, all_but_one(n_groups), dealt(n_groups, 4), dealt(n_groups, 2)])
    parts, windows = parts.to(lag_modes.device), analysis.windows[:n_windows]
    covariances = part_covariances(groups, parts)
    lag = Level(*lag_spectra(covariances, windows, _bases(analysis, options, lag_modes[:n_windows]), rounding))
    field = field_convergence = field_held_out = null = None
    if snapshots is not None and labels is not None and analysis.field_fit is not None:
        spectra = field_spectra(snapshots.gram[:n_windows], labels, parts, analysis.n_tokens)
        field = Level(spectra, spectra.sum(-1))
        field_convergence = _convergence(analysis, options, field, analysis.field_fit)
        field_held_out = field_captured(snapshots.gram[0], parts[-1][labels], analysis.n_tokens)
        null = null_spectra(
            snapshots.fluctuation,
            analysis.scales,
            options.omega0,
            n_queries=analysis.n_queries,
            signed=analysis.signed,
        )
    found = _estimates(analysis, options, covariances[: 1 + n_groups], lag, field)
    return Confidence(
        quantities=tuple(found),
        values=torch.stack([value[0] for value in found.values()]),
        replicates=torch.stack([value[1 : 1 + n_groups] for value in found.values()]),
        group_sizes=sizes,
        lag_convergence=_convergence(analysis, options, lag, analysis.lag_fit),
        field_convergence=field_convergence,
        lag_held_out=lag_captured(covariances[-2], covariances[-1]),
        field_held_out=field_held_out,
        null=null,
    )


def _bases(analysis: LayerAnalysis, options: Options, modes: Tensor) -> list[Tensor | None]:
    """For each band the leading lag modes of all documents, enough for the effective ranks of the parts, [K, L].

    None for the window of all lags: it needs many modes, of which those of half the documents are not those of all.
    """
    needed = effective_rank(analysis.lag.eigenvalues[1 : len(modes)], min(options.epsilons, default=0.0))
    return [None, *(band[: max(_MIN_BASIS, math.ceil(1.25 * n))] for band, n in zip(modes[1:], needed, strict=True))]


def _estimates(
    analysis: LayerAnalysis, options: Options, covariances: Tensor, lag: Level, field: Level | None
) -> dict[str, Tensor]:
    """The logged values of all documents and without each group, by name, [1 + G]."""
    n_parts = len(covariances)
    near = float(analysis.dominant_scales[0]) if len(analysis.dominant_scales) else None
    energies = covariances.new_zeros(n_parts, len(analysis.scales))
    if near is not None:
        energies = scale_energy(covariances, analysis.scales, options.omega0)
    parts = PartSpectra(
        lag_energy=covariances.diagonal(0, -2, -1),
        scale_energy=energies,
        lag=lag.spectra[:n_parts],
        lag_total=lag.total[:n_parts],
        field=None if field is None else field.spectra[:n_parts],
    )
    n_windows = 1 + len(options.bands)
    return estimates(
        parts,
        bands=options.bands,
        epsilons=options.epsilons,
        scales=analysis.scales,
        near=near,
        omega0=options.omega0,
        signed=analysis.signed,
        lag_fit_range=_fit_range(analysis.lag_fit, options)[:n_windows],
        field_fit_range=_fit_range(analysis.field_fit or analysis.lag_fit, options)[:n_windows],
    )


def _fit_range(fit: SpectralFit, options: Options) -> Tensor:
    """First and last mode of each fit, [M, 2]; as it was chosen for all documents, so that parts do not choose."""
    if options.fit_range != "auto":
        return torch.tensor(options.fit_range, device=fit.first.device).expand(len(fit.first), 2)
    return torch.stack([fit.first, fit.first + fit.n_points - 1], -1) * (fit.n_points > 0)[:, None]


def _convergence(analysis: LayerAnalysis, options: Options, parts: Level, fit: SpectralFit) -> Convergence:
    """T_spec and H* of all lags in the four quarters, the two halves, and all documents."""
    quarters, halves, whole = (
        Level(parts.spectra[rows, 0], parts.total[rows, 0]) for rows in (slice(-6, -2), slice(-2, None), slice(1))
    )
    return convergence(quarters, halves, whole, analysis.n_snapshots, options.epsilons, _fit_range(fit, options)[0])
