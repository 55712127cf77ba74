"""How fast a spectrum of eigenvalues decays: spectral concentration index and effective rank."""

from typing import NamedTuple

import torch
from torch import Tensor

from ._checks import as_wide, numeric

_MIN_POINTS = 3
_MIN_BETA = 1e-9  # a slope, or a spread of the logarithms, below this is the rounding of a flat spectrum


class SpectralFit(NamedTuple):
    """Power law `lambda_k ~ k^(-beta)` fitted to a spectrum; every field is a tensor of the batch shape."""

    t_spec: Tensor
    """Spectral concentration index 1 / beta; NaN when undefined (see `reason`)."""
    beta: Tensor
    """Decay exponent; NaN with fewer than 3 points."""
    stderr: Tensor
    """Standard error of beta."""
    r2: Tensor
    """Share of the variance of log lambda that the line explains; NaN for a flat spectrum."""
    n_points: Tensor
    """Eigenvalues in the fit, int64."""

    def reason(self, *index: int) -> str | None:
        """Why t_spec is undefined.

        Args:
            index: Place in the batch, as many numbers as the fields have dimensions.

        Returns:
            The reason in words; None when t_spec is defined.
        """
        if bool(torch.isfinite(self.t_spec[index])):
            return None
        points = int(self.n_points[index])
        if points < _MIN_POINTS:
            return f"{points} eigenvalues above the numerical floor in the fit range, {_MIN_POINTS} needed"
        return f"the spectrum does not decay (beta = {float(self.beta[index]):.3g})"


@numeric
def spectral_concentration(eigenvalues: Tensor, fit_range: tuple[int, int] = (1, 30)) -> SpectralFit:
    """Spectral concentration index `T_spec = 1 / beta`, beta from the least-squares line of log lambda_k on log k.

    Larger means slower decay: a more complex field. Only eigenvalues above the numerical floor,
    `lambda_k > n eps lambda_1` with n eigenvalues and the eps of their dtype (float32 at least), enter. With fewer than
    3 of them, or a spectrum that does not decay, T_spec is NaN and `SpectralFit.reason` says why.

    Source: arXiv 2606.06573.

    Args:
        eigenvalues: Descending eigenvalues, [..., n].
        fit_range: First and last k of the fit, counted from 1, both included.

    Returns:
        The fit, each field of shape [...].

    Raises:
        ValueError: Eigenvalues that are not finite or not descending, or a fit_range that is not 1 <= first < last.

    Example:
        >>> import torch
        >>> from scalepod.spectrum import spectral_concentration
        >>> fit = spectral_concentration(torch.arange(1, 41, dtype=torch.float64) ** -2.0)
        >>> round(float(fit.t_spec), 6), int(fit.n_points)
        (0.5, 30)
    """
    first, last = fit_range
    if not 1 <= first < last:
        raise ValueError(f"fit_range must be (first, last) with 1 <= first < last, got {fit_range}")
    spectrum = _descending(eigenvalues)
    length = spectrum.shape[-1]
    used = spectrum > length * _eps(eigenvalues) * spectrum[..., :1]
    used, spectrum = used[..., first - 1 : last], spectrum[..., first - 1 : last]
    rank = torch.arange(first, first + spectrum.shape[-1], device=spectrum.device, dtype=spectrum.dtype)
    return _fit_line(rank.log().expand_as(spectrum), torch.where(used, spectrum, 1.0).log(), used)


def _fit_line(x: Tensor, y: Tensor, used: Tensor) -> SpectralFit:
    """Least squares of y on x over the points in use, with slope -beta."""
    n = used.sum(-1)
    weight = used.to(x.dtype)
    count = n.clamp(min=1)[..., None]
    dx = (x - (x * weight).sum(-1, keepdim=True) / count) * weight
    dy = (y - (y * weight).sum(-1, keepdim=True) / count) * weight
    sxx, sxy, syy = (dx * dx).sum(-1), (dx * dy).sum(-1), (dy * dy).sum(-1)
    nan = torch.full_like(sxx, torch.nan)
    enough = n >= _MIN_POINTS
    beta = torch.where(enough, -sxy / sxx, nan)
    residual = (dy + beta[..., None] * dx).square().sum(-1)
    decays = beta > _MIN_BETA
    r2 = torch.where(enough & (syy > _MIN_BETA**2 * sxx), 1 - residual / syy, nan)
    stderr = torch.where(enough, (residual / (n - 2) / sxx).sqrt(), nan)
    return SpectralFit(torch.where(decays, 1 / beta, nan), beta, stderr, r2, n)


@numeric
def effective_rank(eigenvalues: Tensor, epsilon: float) -> Tensor:
    """Effective rank `H*(eps)`: the smallest n with `sum_{k > n} lambda_k <= eps * sum_k lambda_k`.

    That many modes leave at most the share eps of the energy unexplained; the total runs over all eigenvalues.

    Args:
        eigenvalues: All eigenvalues, descending, [..., n].
        epsilon: Residual energy, 0 <= epsilon < 1; 0.10 keeps 90 % of the energy.

    Returns:
        Int64 tensor [...]; 0 for a spectrum of zeros.

    Raises:
        ValueError: Eigenvalues that are not finite or not descending, or epsilon outside [0, 1).

    Example:
        >>> import torch
        >>> from scalepod.spectrum import effective_rank
        >>> effective_rank(torch.tensor([6.0, 3.0, 1.0]), 0.10)
        tensor(2)
    """
    if not 0 <= epsilon < 1:
        raise ValueError(f"epsilon must lie in [0, 1), got {epsilon}")
    spectrum = _descending(eigenvalues).clamp(min=0)
    from_n_on = spectrum.new_ones(spectrum.shape[-1], spectrum.shape[-1]).tril()
    residual = spectrum @ from_n_on  # what n = 0, 1, ... modes leave; cumsum is not deterministic on CUDA
    return (residual > epsilon * residual[..., :1]).sum(-1)


def _descending(eigenvalues: Tensor) -> Tensor:
    spectrum = as_wide(eigenvalues, "eigenvalues")
    if spectrum.ndim == 0 or spectrum.shape[-1] == 0:
        raise ValueError(f"eigenvalues must have a last dimension that is not empty, got {tuple(spectrum.shape)}")
    rounding = spectrum.shape[-1] * _eps(eigenvalues) * spectrum[..., :1].abs()
    if bool((spectrum.diff(dim=-1) > rounding).any()):
        raise ValueError(f"eigenvalues of shape {tuple(spectrum.shape)} must descend along the last dimension")
    return spectrum


def _eps(eigenvalues: Tensor) -> float:
    return torch.finfo(torch.promote_types(eigenvalues.dtype, torch.float32)).eps
