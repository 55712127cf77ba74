"""How fast a spectrum of eigenvalues decays: spectral concentration index and effective rank."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ._checks import as_wide, numeric
from ._lines import entry, least_squares, theil_sen, widest_straight

FitRange = tuple[int, int] | Tensor | Literal["auto"]
"""Modes of a power-law fit: (first, last) for all spectra, int64 [..., 2] for each, or "auto" (`power_law_range`)."""
FitMethod = Literal["least_squares", "theil_sen"]
"""How a line is fitted to the logarithms of a spectrum."""

_MIN_POINTS = 3
_MIN_BETA = 1e-9  # a slope below this is the rounding of a flat spectrum
_ROUNDING = 1e3  # in eps, the share of a total below which energy is not missing but rounded away
_MIN_STRETCH = 8  # modes in the shortest range that is called a power law


class SpectralFit(NamedTuple):
    """Power law `lambda_k ~ k^(-beta)` fitted to a spectrum; every field is a tensor of the batch shape.

    The standard errors are of the line: the scatter of the eigenvalues about it. What another sample of documents would
    give is another matter (see `scalepod.confidence`).
    """

    t_spec: Tensor
    """Spectral concentration index 1 / beta; NaN when undefined (see `reason`)."""
    beta: Tensor
    """Decay exponent; NaN with fewer than 3 points."""
    stderr: Tensor
    """Standard error of beta."""
    r2: Tensor
    """Share of the variance of log lambda that the line explains; NaN for a flat spectrum."""
    n_points: Tensor
    """Eigenvalues in the fit, int64: modes first to first + n_points - 1."""
    first: Tensor
    """First mode k of the fit range, counted from 1, int64; 0 where the range is empty (see `power_law_range`)."""

    @property
    def t_spec_stderr(self) -> Tensor:
        """Standard error of T_spec = 1 / beta, `stderr / beta^2`; NaN where T_spec is undefined."""
        return self.stderr * self.t_spec.square()

    def reason(self, *index: int) -> str | None:
        """Why t_spec is undefined.

        Args:
            index: Place in the batch, as many numbers as the fields have dimensions.

        Returns:
            The reason in words; None when t_spec is defined.
        """
        if bool(torch.isfinite(self.t_spec[index])):
            return None
        if int(self.first[index]) == 0:
            return f"no {_MIN_STRETCH} or more neighbouring eigenvalues above the numerical floor follow a power law"
        points = int(self.n_points[index])
        if points < _MIN_POINTS:
            return f"{points} eigenvalues above the numerical floor in the fit range, {_MIN_POINTS} needed"
        return f"the spectrum does not decay (beta = {float(self.beta[index]):.3g})"


@numeric
def spectral_concentration(
    eigenvalues: Tensor, fit_range: FitRange = (1, 30), method: FitMethod = "least_squares"
) -> SpectralFit:
    """Spectral concentration index `T_spec = 1 / beta`, beta from a straight line through log lambda_k over log k.

    Larger means slower decay: a more complex field. Only eigenvalues above the numerical floor,
    `lambda_k > n eps lambda_1` with n eigenvalues and the eps of their dtype (float32 at least), enter. With fewer than
    3 of them, or a spectrum that does not decay, T_spec is NaN and `SpectralFit.reason` says why.

    `least_squares` is the line of the paper. `theil_sen` takes the median of the slopes between all pairs of points,
    which one outlier (a dominant first mode) hardly moves; its intercept is the median of what the slope leaves, its
    standard error half the width of Sen's 68.3 % confidence interval. r2 is 1 less the residual's share of the
    variance for both; it can be negative with `theil_sen`.

    Source: arXiv 2606.06573; Sen (1968), Journal of the American Statistical Association 63, 1379.

    Args:
        eigenvalues: Descending eigenvalues, [..., n].
        fit_range: First and last k of the fit, counted from 1, both included: for all spectra; for each, int64 that
            broadcasts to [..., 2], (0, 0) being the empty range; or "auto" for those of `power_law_range`.
        method: How the line is fitted.

    Returns:
        The fit, each field of shape [...].

    Raises:
        ValueError: Eigenvalues that are not finite or not descending, a fit_range that is not 1 <= first < last or does
            not fit the batch, or an unknown method.

    Example:
        >>> import torch
        >>> from scalepod.spectrum import spectral_concentration
        >>> fit = spectral_concentration(torch.arange(1, 41, dtype=torch.float64) ** -2.0)
        >>> round(float(fit.t_spec), 6), int(fit.n_points)
        (0.5, 30)
    """
    if method not in ("least_squares", "theil_sen"):
        raise ValueError(f"method must be 'least_squares' or 'theil_sen', got {method!r}")
    spectrum = _descending(eigenvalues)
    above = _above_floor(eigenvalues, spectrum)
    if isinstance(fit_range, str):
        if fit_range != "auto":
            raise ValueError(f"fit_range must be (first, last), int64 [..., 2] or 'auto', got {fit_range!r}")
        fit_range = power_law_range(eigenvalues)
    first, last = _checked_range(fit_range, spectrum)
    reach = min(spectrum.shape[-1], int(last.max()) if last.numel() else 0)
    rank = torch.arange(1, reach + 1, device=spectrum.device)
    used = above[..., :reach] & (rank >= first[..., None]) & (rank <= last[..., None])
    x, y = rank.to(spectrum.dtype).log(), torch.where(used, spectrum[..., :reach], 1.0).log()
    n_points = used.sum(-1)
    slope, stderr, r2 = (theil_sen if method == "theil_sen" else least_squares)(x.expand_as(y), y, used)
    beta, stderr, r2 = (torch.where(n_points >= _MIN_POINTS, value, torch.nan) for value in (-slope, stderr, r2))
    return SpectralFit(torch.where(beta > _MIN_BETA, 1 / beta, torch.nan), beta, stderr, r2, n_points, first)


@numeric
def power_law_range(eigenvalues: Tensor, min_r2: float = 0.98) -> Tensor:
    """Widest stretch of modes over which the spectrum is a power law: a straight line in log lambda_k over log k.

    Widest in log k, by last / first: at the end of a spectrum many modes lie so close in log k that every curve
    through them is straight. Only eigenvalues above the numerical floor count (see `spectral_concentration`), and a
    stretch holds at least 8 of them. Of equally wide stretches the earliest is taken.

    Args:
        eigenvalues: Descending eigenvalues, [..., n].
        min_r2: Share of the variance of log lambda that the least-squares line must explain.

    Returns:
        First and last k, counted from 1, int64 [..., 2]; (0, 0), the empty range, where no stretch is straight.

    Raises:
        ValueError: Eigenvalues that are not finite or not descending, or min_r2 not between 0 and 1.

    Example:
        >>> import torch
        >>> from scalepod.spectrum import power_law_range
        >>> k = torch.arange(1, 61, dtype=torch.float64)
        >>> power_law_range(k**-1.0 * torch.exp(-((k / 30) ** 8)))
        tensor([ 1, 28])
    """
    if not 0 < min_r2 < 1:
        raise ValueError(f"min_r2 must lie between 0 and 1, got {min_r2}")
    spectrum = _descending(eigenvalues)
    above = _above_floor(eigenvalues, spectrum)
    y = torch.where(above, spectrum, 1.0).log()
    x = torch.arange(1, y.shape[-1] + 1, device=y.device, dtype=y.dtype).log()
    return widest_straight(x.expand_as(y), y, above, _MIN_STRETCH, min_r2) + 1


def _checked_range(fit_range: tuple[int, int] | Tensor, spectrum: Tensor) -> tuple[Tensor, Tensor]:
    """First and last k of the fit to each spectrum, int64 [...]."""
    batch = spectrum.shape[:-1]
    given = torch.as_tensor(fit_range, device=spectrum.device)
    try:
        if given.is_floating_point() or given.shape[-1:] != (2,):
            raise RuntimeError
        first, last = given.to(torch.int64).expand(*batch, 2).unbind(-1)
    except RuntimeError:
        raise ValueError(
            f"fit_range must hold whole numbers, (first, last) or one pair a spectrum, {(*batch, 2)}, got {fit_range}"
        ) from None
    empty = (last == 0) & (first == 0) & isinstance(fit_range, Tensor)
    if not bool((((first >= 1) & (first < last)) | empty).all()):
        raise ValueError(f"fit_range must be (first, last) with 1 <= first < last, got {fit_range}")
    return first, last


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
    residual = _residual(eigenvalues, epsilon)
    return (residual > epsilon * residual[..., :1]).sum(-1)


@numeric
def fractional_rank(eigenvalues: Tensor, epsilon: float, total: Tensor | None = None) -> Tensor:
    """Effective rank as a smooth number: n - 1 modes and the share of mode n that leaves `eps * total`.

    The residual energy `r_n = sum_{k > n} lambda_k` is interpolated linearly between n - 1 and n modes. The next whole
    number is `effective_rank`. An effective rank that is whole hardly ever moves when documents are left out, and then
    jumps: no standard error can be had from it.

    Args:
        eigenvalues: Leading eigenvalues, descending, [..., n].
        epsilon: Residual energy, 0 <= epsilon < 1.
        total: Sum of all eigenvalues, [...], where `eigenvalues` lack the last ones; by default they lack none.

    Returns:
        [...], float64 where the device has it; 0 for a spectrum of zeros, NaN where more modes are needed than given.

    Raises:
        ValueError: See `effective_rank`; a total that is not finite, of another shape or below the sum.

    Example:
        >>> import torch
        >>> from scalepod.spectrum import fractional_rank
        >>> round(float(fractional_rank(torch.tensor([6.0, 3.0, 1.0, 0.0]), 0.25)), 4)  # 6 of 10, and half of 3
        1.5
    """
    residual = _residual(eigenvalues, epsilon)
    residual = torch.cat([residual, torch.zeros_like(residual[..., :1])], -1) + _missing(residual[..., 0], total)
    allowed = epsilon * residual[..., 0]
    n = (residual > allowed[..., None]).sum(-1)
    before, after = entry(residual, n - 1), entry(residual, n)
    rank = torch.where(n > 0, n - (allowed - after) / (before - after), 0.0)
    return torch.where(n < residual.shape[-1], rank, torch.nan)


def _missing(found: Tensor, total: Tensor | None) -> Tensor:
    """Energy of the eigenvalues that were not given, [..., 1]."""
    if total is None:
        return torch.zeros_like(found)[..., None]
    whole = as_wide(total, "total").to(found)
    if whole.shape != found.shape or bool((whole < found * (1 - 1e-6)).any()):
        raise ValueError(
            f"total must hold one sum of all eigenvalues a spectrum, {tuple(found.shape)}, at least that of the "
            f"eigenvalues given: got shape {tuple(whole.shape)}"
        )
    missing = whole - found
    return torch.where(missing > _ROUNDING * torch.finfo(whole.dtype).eps * whole, missing, 0.0)[..., None]


def _residual(eigenvalues: Tensor, epsilon: float) -> Tensor:
    """What the first n = 0, 1, ... modes leave of the energy, [..., n]."""
    if not 0 <= epsilon < 1:
        raise ValueError(f"epsilon must lie in [0, 1), got {epsilon}")
    spectrum = _descending(eigenvalues).clamp(min=0)
    from_n_on = spectrum.new_ones(spectrum.shape[-1], spectrum.shape[-1]).tril()
    return spectrum @ from_n_on  # cumsum is not deterministic on CUDA


def _descending(eigenvalues: Tensor) -> Tensor:
    spectrum = as_wide(eigenvalues, "eigenvalues")
    if spectrum.ndim == 0 or spectrum.shape[-1] == 0:
        raise ValueError(f"eigenvalues must have a last dimension that is not empty, got {tuple(spectrum.shape)}")
    rounding = spectrum.shape[-1] * _eps(eigenvalues) * spectrum[..., :1].abs()
    if bool((spectrum.diff(dim=-1) > rounding).any()):
        raise ValueError(f"eigenvalues of shape {tuple(spectrum.shape)} must descend along the last dimension")
    return spectrum


def _above_floor(eigenvalues: Tensor, spectrum: Tensor) -> Tensor:
    return spectrum > spectrum.shape[-1] * _eps(eigenvalues) * spectrum[..., :1]


def _eps(eigenvalues: Tensor) -> float:
    return torch.finfo(torch.promote_types(eigenvalues.dtype, torch.float32)).eps
