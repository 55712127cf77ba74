"""Quantiles of what chance gives."""

import torch
from torch import Tensor

_STEPS = 256  # of the table; interpolation between them errs by less than 1e-4


def rice_quantile(fixed: Tensor, alpha: float) -> Tensor:
    """Level that the squared length of one fixed step and a Gaussian rest exceeds with probability alpha.

    The squared length |f + z|^2, z complex Gaussian, has mean 1: `fixed` of it is |f|^2. It follows the square of a
    Rice distribution, a noncentral chi-squared of two degrees of freedom. Read from a table over t = sqrt(1 - fixed),
    in which the quantile is smooth: -log(alpha) at t = 1, where nothing is fixed, and 1 at t = 0, where all is.

    Args:
        fixed: Share in the fixed step, in [0, 1], any shape; NaN gives NaN.
        alpha: Probability, in (0, 1).

    Returns:
        The level, like `fixed`.
    """
    from scipy.stats import ncx2

    rest = torch.linspace(0, 1, _STEPS + 1, dtype=torch.float64)[1:].square().numpy()
    quantiles = rest / 2 * ncx2.ppf(1 - alpha, 2, 2 * (1 - rest) / rest)
    table = torch.tensor([1.0, *quantiles], dtype=torch.float64).to(fixed)
    at = (1 - fixed).sqrt() * _STEPS
    low = at.nan_to_num(0.0).long().clamp(max=_STEPS - 1)
    return table[low] + (at - low) * (table[low + 1] - table[low])
