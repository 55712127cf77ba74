"""The logged values of a layer, for many sets of documents at once."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from torch import Tensor

from .._checks import numeric
from ..analysis import WHOLE, epsilon_name
from ..bands import band_edges
from ..field import lags
from ..scalogram import equivalent_lag, peak_near
from ..spectrum import fractional_rank, spectral_concentration


class PartSpectra(NamedTuple):
    """What the logged values of a layer are made of, for P parts of its documents.

    The M windows are "whole", then the fixed bands.
    """

    lag_energy: Tensor
    """Fluctuation energy at each lag, the diagonal of R, [P, L]."""
    scale_energy: Tensor
    """E(a) = sum_b S(a, b), [P, S]."""
    lag: Tensor
    """Lag-POD eigenvalues, descending, [P, M, n]; the last ones may be missing."""
    lag_total: Tensor
    """Sum of all lag-POD eigenvalues, [P, M]."""
    field: Tensor | None
    """Field-POD eigenvalues, descending, [P, M, N]; None without the field POD."""


@numeric
def estimates(
    parts: PartSpectra,
    *,
    bands: Mapping[str, float],
    epsilons: Sequence[float],
    scales: Tensor,
    near: float | None,
    omega0: float = 6.0,
    signed: bool = False,
    lag_fit_range: tuple[int, int] | Tensor = (1, 30),
    field_fit_range: tuple[int, int] | Tensor = (1, 30),
) -> dict[str, Tensor]:
    """The measured values of `LayerAnalysis.scalars`, under the same names, for each part.

    They differ from those in three things, so that they change smoothly with the documents: effective ranks are
    `fractional_rank`; the dominant lag is that of the peak of E(a) near the one of all documents; and the ranges of the
    power-law fits are given, not chosen part by part.

    Args:
        parts: Spectra of the parts.
        bands: Centres of the fixed lag bands, in tokens, by name.
        epsilons: Residual energies of the effective ranks.
        scales: Wavelet scales, [S].
        near: Dominant scale of all documents; None when they have none, and then there is no dominant lag.
        omega0: Centre frequency of the Morlet wavelet.
        signed: Whether lags run from -(T - 1) to T - 1.
        lag_fit_range: Modes of the fits to the lag spectra: one range, or [M, 2].
        field_fit_range: Modes of the fits to the field spectra: one range, or [M, 2].

    Returns:
        Values by name, [P] each; NaN in a part in which a value is undefined.

    Raises:
        ValueError: Shapes that do not fit each other or the bands.
    """
    names = ["", *(f"_{name}" for name in bands)]
    _check(parts, len(names))
    found = _lag_values(parts.lag_energy, bands, signed)
    if near is not None:
        found["dominant_lag"] = equivalent_lag(peak_near(parts.scale_energy, scales, near), omega0)
    found |= _spectrum_values("lag_", parts.lag, parts.lag_total, names, epsilons, lag_fit_range)
    if parts.field is not None:
        found |= _spectrum_values("", parts.field, None, names, epsilons, field_fit_range)
    return found


def _check(parts: PartSpectra, n_windows: int) -> None:
    n_parts = len(parts.lag_energy)
    for name, tensor in parts._asdict().items():
        middle = () if name in ("lag_energy", "scale_energy") else (n_windows,)
        if tensor is not None and tensor.shape[: 1 + len(middle)] != (n_parts, *middle):
            raise ValueError(
                f"{name} of {n_parts} parts in {n_windows} windows ({WHOLE!r} and the bands) must have shape "
                f"{(n_parts, *middle)} in front, got {tuple(tensor.shape)}"
            )


def _lag_values(lag_energy: Tensor, bands: Mapping[str, float], signed: bool) -> dict[str, Tensor]:
    """Energy, mean lag and shares of the bands (see `scalepod.bands.mean_lag` and `band_shares`)."""
    n_lags = lag_energy.shape[-1]
    distance = lags((n_lags + 1) // 2 if signed else n_lags, signed, lag_energy.device).abs()
    energy = lag_energy.sum(-1)
    found = {"energy": energy, "mean_lag": lag_energy @ distance.to(energy) / energy}
    for name, (low, high) in band_edges(bands).items() if bands else ():
        found[f"band_{name}"] = lag_energy[:, (distance >= low) & (distance < high)].sum(-1) / energy
    return found


def _spectrum_values(
    kind: str,
    eigenvalues: Tensor,
    total: Tensor | None,
    windows: Sequence[str],
    epsilons: Sequence[float],
    fit_range: tuple[int, int] | Tensor,
) -> dict[str, Tensor]:
    """T_spec and H* of the spectra in every window."""
    by_window = {f"{kind}t_spec": spectral_concentration(eigenvalues, fit_range).t_spec}
    by_window |= {f"{kind}h_star_{epsilon_name(eps)}": fractional_rank(eigenvalues, eps, total) for eps in epsilons}
    return {f"{name}{window}": value[:, m] for name, value in by_window.items() for m, window in enumerate(windows)}
