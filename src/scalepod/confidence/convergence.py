"""Whether a spectrum has settled with the number of documents, or counts them."""

from typing import NamedTuple

import torch
from torch import Tensor

from .._checks import numeric
from ..spectrum import effective_rank, spectral_concentration

_GROWTH_LIMIT = 1.1  # H*(N) over H*(N / 2) above which a spectrum is still growing; 2 is that of one that counts


class Convergence(NamedTuple):
    """T_spec and H* of a quarter, half and all of the documents; those of parts are means over the parts."""

    n: Tensor
    """Documents in a part (mean over the parts), in a half, and in all, [3]."""
    t_spec: Tensor
    """T_spec, [3]; NaN where undefined."""
    h_star: Tensor
    """H*(eps), [E, 3], for each residual energy eps."""

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
        if growth != growth:
            return "undefined: no energy"
        change = f"H* {float(self.h_star[epsilon, 1]):.3g} to {float(self.h_star[epsilon, 2]):.3g} on doubling"
        if growth <= _GROWTH_LIMIT:
            return f"converged ({change})"
        return f"limited by the number of snapshots ({change})"


@numeric
def convergence(
    quarters: Tensor,
    halves: Tensor,
    whole: Tensor,
    n_snapshots: int,
    epsilons: tuple[float, ...],
    fit_range: tuple[int, int] | Tensor = (1, 30),
) -> Convergence:
    """T_spec and H* against the number of documents.

    Args:
        quarters: Spectra of the quarters of the documents, descending, [4, n].
        halves: Of the halves, [2, n].
        whole: Of all documents, [n].
        n_snapshots: Documents N.
        epsilons: Residual energies.
        fit_range: Range of the power-law fits (see `spectral_concentration`).

    Returns:
        The convergence; a value that is undefined in a part is left out of the mean over parts.
    """
    levels = (quarters, halves, whole[None])
    t_spec = [spectral_concentration(spectra, fit_range).t_spec.nanmean() for spectra in levels]
    ranks = [[effective_rank(spectra, eps).to(whole).mean() for spectra in levels] for eps in epsilons]
    n = torch.tensor([n_snapshots / 4, n_snapshots / 2, n_snapshots], dtype=whole.dtype, device=whole.device)
    h_star = torch.stack([torch.stack(row) for row in ranks]) if ranks else whole.new_zeros(0, 3)
    return Convergence(n, torch.stack(t_spec), h_star)
