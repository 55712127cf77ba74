"""How the energy is spread over lags: its centre, and its shares in bands."""

import math
from collections.abc import Mapping
from itertools import pairwise

from torch import Tensor

from ._checks import as_wide, numeric
from .field import lags


@numeric
def mean_lag(lag_energy: Tensor, signed: bool = False) -> float:
    """Centre of the energy over lags, `sum |tau| e(tau) / sum e(tau)`, in tokens.

    Args:
        lag_energy: Energy at each lag, the diagonal of R, [L].
        signed: Whether the lags run from -(T - 1) to T - 1.

    Returns:
        The mean lag; NaN when there is no energy.

    Raises:
        ValueError: Not a vector of finite values of at least 0, or of even length though signed.

    Example:
        >>> import torch
        >>> from scalepod.bands import mean_lag
        >>> mean_lag(torch.tensor([1.0, 0.0, 1.0]))
        1.0
    """
    energy, distance = _lag_energy(lag_energy, signed)
    total = float(energy.sum())
    return float(energy @ distance) / total if total > 0 else math.nan


@numeric
def band_shares(lag_energy: Tensor, bands: Mapping[str, float], signed: bool = False) -> dict[str, float]:
    """Share of the energy that each band of lags holds; the shares add up to 1.

    The bands are cut at the geometric means of neighbouring centres, so they cover every lag once.

    Args:
        lag_energy: Energy at each lag, the diagonal of R, [L].
        bands: Centre of each band in tokens, by name.
        signed: Whether the lags run from -(T - 1) to T - 1; a band then holds both directions.

    Returns:
        Shares by name, in the order of `bands`; empty when there is no energy.

    Raises:
        ValueError: A centre that is not positive, two equal centres, or a bad `lag_energy` (see `mean_lag`).

    Example:
        >>> import torch
        >>> from scalepod.bands import band_shares
        >>> band_shares(torch.ones(40), {"fine": 4, "medium": 12, "coarse": 36})
        {'fine': 0.175, 'medium': 0.35, 'coarse': 0.475}
    """
    energy, distance = _lag_energy(lag_energy, signed)
    total = float(energy.sum())
    edges = band_edges(bands)
    if total <= 0:
        return {}
    return {
        name: float(energy[(distance >= low) & (distance < high)].sum()) / total for name, (low, high) in edges.items()
    }


def band_edges(bands: Mapping[str, float]) -> dict[str, tuple[float, float]]:
    """Where each band of lags begins (included) and ends (excluded): at the geometric means of neighbouring centres.

    Args:
        bands: Centre of each band in tokens, by name.

    Returns:
        Distances in tokens by name, in the order of `bands`; the first begins at 0, the last ends at infinity.

    Raises:
        ValueError: No band, a centre that is not positive, or two equal centres.
    """
    centres = sorted(bands.values())
    if not centres or centres[0] <= 0 or len(set(centres)) < len(centres):
        raise ValueError(f"bands need distinct positive centres, got {dict(bands)}")
    cuts = [0.0, *(math.sqrt(low * high) for low, high in pairwise(centres)), math.inf]
    edges = dict(zip(centres, pairwise(cuts), strict=True))
    return {name: edges[centre] for name, centre in bands.items()}


def _lag_energy(lag_energy: Tensor, signed: bool) -> tuple[Tensor, Tensor]:
    """Checked energy and |tau|, both float64 [L]."""
    energy = as_wide(lag_energy, "lag_energy")
    if energy.ndim != 1 or not len(energy) or (signed and len(energy) % 2 == 0) or bool((energy < 0).any()):
        raise ValueError(
            f"lag_energy must be a vector of values >= 0, of odd length if signed, got shape {tuple(energy.shape)}"
        )
    n_tokens = (len(energy) + 1) // 2 if signed else len(energy)
    return energy, lags(n_tokens, signed, energy.device).abs().to(energy.dtype)
