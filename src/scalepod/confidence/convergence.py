"""Whether a spectrum has settled with the number of documents, or counts them."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .._checks import numeric
from ..spectrum import fractional_rank, spectral_concentration

_GROWTH_LIMIT = 1.1  # H*(N) over H*(N / 2) above which a spectrum is still growing; 2 is that of one that counts


class Convergence(NamedTuple):
    """T_spec and H* of a quarter, half and all of the documents; those of parts are means over the parts."""

    n: Tensor
    """Documents in a part (mean over the parts), in a half, and in all, [3]."""
    t_spec: Tensor
    """T_spec, [3]; NaN where undefined."""
    h_star: Tensor
    """H*(eps), [E, 3], for each residual energy eps; as real numbers (`scalepod.spectrum.fractional_rank`), since one
    mode more is a large step for an H* of 5."""

    @property
    def growth(self) -> Tensor:
        """H*(N) / H*(N / 2) for each residual energy, [E]; NaN without energy."""
        return self.h_star[:, 2] / self.h_star[:, 1]

    @property
    def settled(self) -> bool:
        """Whether the effective ranks stayed when the documents doubled; False when there are none to compare."""
        return bool((self.growth <= _GROWTH_LIMIT).all())

    def verdict(self, epsilon: int = 0) -> str:
        """What doubling the documents did to the effective rank, in plain words.

        Args:
            epsilon: Which of the residual energies, by place.
        """
        growth = float(self.growth[epsilon])
        if math.isnan(growth):
            return "undefined: no energy"
        change = f"H* {float(self.h_star[epsilon, 1]):.3g} to {float(self.h_star[epsilon, 2]):.3g} on doubling"
        if growth <= _GROWTH_LIMIT:
            return f"converged ({change})"
        return f"limited by the number of snapshots ({change})"


class Level(NamedTuple):
    """Spectra of disjoint parts of the documents that are equally large."""

    spectra: Tensor
    """Descending eigenvalues, [P, n]; the last ones may be missing."""
    total: Tensor
    """Sum of all eigenvalues, [P]."""


@numeric
def convergence(
    quarters: Level,
    halves: Level,
    whole: Level,
    n_snapshots: int,
    epsilons: Sequence[float],
    fit_range: tuple[int, int] | Tensor = (1, 30),
) -> Convergence:
    """T_spec and H* against the number of documents.

    Args:
        quarters: The quarters of the documents.
        halves: The halves.
        whole: All documents, P = 1.
        n_snapshots: Documents N.
        epsilons: Residual energies.
        fit_range: Range of the power-law fits (see `spectral_concentration`).

    Returns:
        The convergence; means over the parts, without those in which a value is undefined.
    """
    levels = (quarters, halves, whole)
    t_spec = torch.stack([spectral_concentration(level.spectra, fit_range).t_spec.nanmean() for level in levels])
    ranks = [
        [fractional_rank(level.spectra, epsilon, level.total).nanmean() for level in levels] for epsilon in epsilons
    ]
    h_star = torch.stack([torch.stack(row) for row in ranks]) if ranks else t_spec.new_zeros(0, len(levels))
    return Convergence(t_spec.new_tensor([n_snapshots / 4, n_snapshots / 2, n_snapshots]), t_spec, h_star)
