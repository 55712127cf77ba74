"""Which lags and scales hold the energy: Morlet scalogram, and the scales that stand out in it."""

import math
from typing import overload

import torch
from torch import Tensor

from ._checks import as_covariance, as_float, as_wide, check_positive, check_square, numeric, positive_vector
from ._peaks import peaks, rises_and_falls, vertex


def scale_grid(min_scale: float = 2.0, max_scale: float = 64.0, per_octave: int = 4) -> Tensor:
    """Wavelet scales spaced evenly in octaves: `min_scale * 2^(k / per_octave)` up to `max_scale`.

    Args:
        min_scale: Smallest scale in tokens; below omega0 / pi, 1.9 at omega0 = 6, one token is too coarse a sampling.
        max_scale: Largest scale in tokens, on the grid when it is a whole number of steps away.
        per_octave: Scales in each octave.

    Returns:
        Ascending scales, float64 [S].

    Raises:
        ValueError: Scales not positive or in the wrong order, or per_octave < 1.

    Example:
        >>> from scalepod.scalogram import scale_grid
        >>> scale_grid(2, 8, per_octave=1)
        tensor([2., 4., 8.], dtype=torch.float64)
    """
    check_positive(min_scale, "min_scale")
    check_positive(max_scale, "max_scale")
    if max_scale < min_scale or per_octave < 1:
        raise ValueError(
            f"need min_scale <= max_scale and per_octave >= 1, got {min_scale}, {max_scale} and {per_octave}"
        )
    steps = math.floor(math.log2(max_scale / min_scale) * per_octave + 1e-9)
    return min_scale * 2.0 ** (torch.arange(steps + 1, dtype=torch.float64) / per_octave)


@overload
def equivalent_lag(scale: float, omega0: float = 6.0) -> float: ...
@overload
def equivalent_lag(scale: Tensor, omega0: float = 6.0) -> Tensor: ...
def equivalent_lag(scale: float | Tensor, omega0: float = 6.0) -> float | Tensor:
    """Lag a scale stands for: its Fourier period `4 pi a / (omega0 + sqrt(2 + omega0^2))`, in tokens.

    Source: Torrence & Compo (1998), table 1.

    Args:
        scale: Scale a, or a tensor of scales, in tokens.
        omega0: Centre frequency of the wavelet.

    Returns:
        The lag, of the type of `scale`.

    Raises:
        ValueError: omega0 is not positive.

    Example:
        >>> from scalepod.scalogram import equivalent_lag
        >>> round(equivalent_lag(1.0), 3)
        1.033
    """
    check_positive(omega0, "omega0")
    return scale * (4 * math.pi / (omega0 + math.sqrt(2 + omega0**2)))


@numeric
def scalogram(R: Tensor, scales: Tensor, omega0: float = 6.0, n_queries: float | None = None) -> Tensor:
    """Energy at scale a around lag b, `S(a, b) = psi_ab^H R psi_ab / n_queries`.

    With `psi_ab(tau) = a^(-1/2) pi^(-1/4) exp(i omega0 (tau - b) / a) exp(-((tau - b) / a)^2 / 2)`, sampled exactly,
    this equals the mean over snapshots and queries of |W(a, b)|^2, W being the wavelet transform of a lag row (taken as
    0 outside its lags), without transforming any row. The product of two Gaussians is one of their middle and one of
    their distance, so that with p = tau + tau' and d = tau - tau'

        S(a, b) = sum_p exp(-(p / 2 - b)^2 / a^2) sum_d cos(omega0 d / a) exp(-d^2 / (4 a^2)) R / (a sqrt(pi) n_queries)

    which takes S L^2 operations where the quadratic form takes S L^3.

    Args:
        R: Lag covariance, [L, L] (see `scalepod.field.lag_covariance`).
        scales: Scales in tokens, [S].
        omega0: Centre frequency of the wavelet; below about 5 it is no longer of zero mean.
        n_queries: Query rows in a snapshot; L unless given.

    Returns:
        [S, L], float64 where the device has it. Index b is a lag as in R.

    Raises:
        ValueError: R is not square, symmetric and finite, or a scale, omega0 or n_queries is not positive.
    """
    covariance = as_covariance(R)
    n_lags = len(covariance)
    a = positive_vector(scales, "scales").to(covariance)[:, None]
    n_queries = n_lags if n_queries is None else n_queries
    check_positive(n_queries, "n_queries")
    check_positive(omega0, "omega0")
    across = _by_middle(covariance, a, omega0)
    middle = torch.arange(2 - 2 * n_lags, 2 * n_lags - 1, device=a.device) / (2 * a)  # all p / 2 - b, in scales
    along = torch.exp(-(middle**2)) / (a * math.sqrt(math.pi))
    places = [kernel.unfold(0, 2 * n_lags - 1, 2).flip(0) @ row for kernel, row in zip(along, across, strict=True)]
    return torch.stack(places).clamp(min=0) / n_queries


def wavelet(scales: Tensor, n_lags: int, omega0: float) -> tuple[Tensor, Tensor]:
    """Morlet wavelets `psi_ab(tau)` at every place b (see `scalogram`).

    A wavelet depends on tau - b alone, so 2L - 1 samples of it fill its whole matrix.

    Args:
        scales: Scales in tokens, [S].
        n_lags: Number of lags (or keys) L.
        omega0: Centre frequency of the wavelet.

    Returns:
        Real and imaginary part, each [S, L, L]: scale, place b, lag tau.

    Raises:
        ValueError: omega0 is not positive.
    """
    check_positive(omega0, "omega0")
    offset = torch.arange(1 - n_lags, n_lags, device=scales.device, dtype=scales.dtype)
    t = offset / scales[:, None]
    envelope = math.pi**-0.25 * torch.exp(-(t**2) / 2) / scales[:, None].sqrt()
    parts = (envelope * torch.cos(omega0 * t), envelope * torch.sin(omega0 * t))
    real, imaginary = (part.unfold(-1, n_lags, 1).flip(1) for part in parts)
    return real, imaginary


@numeric
def scale_energy(R: Tensor, scales: Tensor, omega0: float = 6.0, n_queries: float | None = None) -> Tensor:
    """Energy at each scale, `E(a) = sum_b S(a, b)`, without S(a, b) itself; for many covariances at once.

    Args:
        R: Lag covariances, [..., L, L].
        scales: Scales in tokens, [S].
        omega0: Centre frequency of the wavelet.
        n_queries: Query rows in a snapshot; L unless given.

    Returns:
        [..., S], float64 where the device has it.

    Raises:
        ValueError: R does not end in two equal dimensions or is not finite; a scale, omega0 or n_queries not positive.
    """
    covariance = as_wide(R, "R")
    check_square(covariance, "R")
    n_lags = covariance.shape[-1]
    n_queries = n_lags if n_queries is None else n_queries
    check_positive(n_queries, "n_queries")
    check_positive(omega0, "omega0")
    a = positive_vector(scales, "scales").to(covariance)[:, None]
    middle = torch.arange(2 - 2 * n_lags, 2 * n_lags - 1, device=a.device) / (2 * a)  # all p / 2 - b, in scales
    along = torch.exp(-(middle**2)).unfold(-1, 2 * n_lags - 1, 2).sum(-2)  # [S, 2L - 1]
    total = (_by_middle(covariance, a, omega0) * along).sum(-1) / (a[:, 0] * math.sqrt(math.pi))
    return total.clamp(min=0) / n_queries


def _by_middle(covariance: Tensor, a: Tensor, omega0: float) -> Tensor:
    """`sum_d cos(omega0 d / a) exp(-d^2 / (4 a^2)) R` for each scale and sum p of two lags, [..., S, 2L - 1]."""
    n_lags = covariance.shape[-1]
    later, earlier = torch.tril_indices(n_lags, n_lags, device=a.device)
    pairs = covariance.new_zeros(*covariance.shape[:-2], 2 * n_lags - 1, n_lags)  # by p and |d|
    pairs[..., later + earlier, later - earlier] = covariance[..., later, earlier]
    pairs[..., 1:] *= 2
    distance = torch.arange(n_lags, device=a.device) / a
    return (torch.cos(omega0 * distance) * torch.exp(-((distance / 2) ** 2))) @ pairs.mT


@numeric
def cone_of_influence(scales: Tensor, n_lags: int) -> Tensor:
    """Where a scalogram can be trusted: at least `sqrt(2) a`, the e-folding distance, from either edge.

    Source: Torrence & Compo (1998), section 3g.

    Args:
        scales: Scales in tokens, [S].
        n_lags: Number of lags L.

    Returns:
        Bool [S, L], True where trusted.

    Raises:
        ValueError: A scale is not positive, or n_lags < 1.
    """
    check_positive(n_lags, "n_lags")
    reach = math.sqrt(2) * positive_vector(scales, "scales")
    place = torch.arange(n_lags, device=reach.device)
    return torch.minimum(place, n_lags - 1 - place) >= reach[:, None]


@numeric
def dominant_scales(scalogram: Tensor, scales: Tensor, max_scales: int = 4) -> Tensor:
    """Scales at which `E(a) = sum_b S(a, b)` has an interior local maximum, highest first.

    Peaks closer than half an octave to a higher one are dropped. A maximum on the edge of the grid is not a scale:
    it only says that the energy lies outside. Of a flat top the middle is taken.

    Args:
        scalogram: S(a, b), [S, L].
        scales: Ascending scales in tokens, [S].
        max_scales: How many to return at most.

    Returns:
        [m] with 0 <= m <= max_scales; empty when no scale stands out.

    Raises:
        ValueError: Shapes that do not fit, scales not ascending, non-finite values, or max_scales < 1.
    """
    energy, grid = _on_grid(scalogram, scales, "scalogram", 0)
    if max_scales < 1:
        raise ValueError(f"max_scales must be at least 1, got {max_scales}")
    chosen: list[int] = []
    for peak in peaks(energy.sum(-1)):
        if all(abs(math.log2(float(grid[peak] / grid[other]))) >= 0.5 - 1e-6 for other in chosen):
            chosen.append(peak)
    return as_float(scales, "scales")[chosen[:max_scales]]


@numeric
def refine_scales(scalogram: Tensor, scales: Tensor, found: Tensor) -> Tensor:
    """Move scales off the grid: to the top of the parabola through log E(a) over log a at a peak and its neighbours.

    The result lies between the neighbours on the grid, and is exact where log E(a) is a parabola.

    Args:
        scalogram: S(a, b), [S, L].
        scales: Ascending scales in tokens, [S].
        found: Scales of interior local maxima of E(a), taken from `scales` (see `dominant_scales`), [m].

    Returns:
        Refined scales, [m], in the dtype of `found`.

    Raises:
        ValueError: Shapes that do not fit, scales not ascending, non-finite values, or a scale in `found` that is no
            interior local maximum on the grid.

    Example:
        >>> import torch
        >>> from scalepod.scalogram import refine_scales, scale_grid
        >>> scales = scale_grid(2, 32, per_octave=2)
        >>> energy = torch.exp(-(torch.log2(scales / 7) ** 2))[:, None]
        >>> refine_scales(energy, scales, scales[4:5])
        tensor([7.0000], dtype=torch.float64)
    """
    energy, grid = _on_grid(scalogram, scales, "scalogram", 0)
    wanted = positive_vector(found, "found").to(grid)
    if not len(wanted):
        return found
    place = (grid - wanted[:, None]).abs().argmin(-1)
    rise, fall = rises_and_falls(energy.sum(-1))
    inside = (place > 0) & (place < len(grid) - 1) & (rise[place] >= 0) & (fall[place] <= 0)
    if not bool((inside & torch.isclose(grid[place], wanted, rtol=1e-6, atol=0)).all()):
        raise ValueError(f"found must hold interior maxima of E(a) on the grid of scales, got {wanted.tolist()}")
    return vertex(energy.sum(-1).expand(len(place), -1), grid, place).to(found.dtype)


@numeric
def peak_near(energy: Tensor, scales: Tensor, near: float) -> Tensor:
    """Scale of the highest local maximum of E(a) within half an octave of a given scale, refined as by `refine_scales`.

    Finds one peak again in the energies of many sets of documents, whatever other peaks they have.

    Args:
        energy: E(a) of each set, [P, S].
        scales: Ascending scales in tokens, [S].
        near: Scale at which to look, in tokens.

    Returns:
        [P], float64 where the device has it; NaN where there is no local maximum.

    Raises:
        ValueError: Shapes that do not fit, scales not ascending, non-finite values, or near not positive.
    """
    tops, grid = _on_grid(energy, scales, "energy", 1)
    check_positive(near, "near")
    rise, fall = rises_and_falls(tops)
    eligible = (rise > 0) & (fall <= 0) & ((grid / near).log2().abs() <= 0.5 + 1e-6)
    eligible[:, -1:] = False
    found = tops.new_full((len(tops),), torch.nan)
    some = eligible.any(-1)
    place = torch.where(eligible, tops, -torch.inf)[some].argmax(-1)
    found[some] = vertex(tops[some], grid, place)
    return found


def _on_grid(energy: Tensor, scales: Tensor, name: str, dim: int) -> tuple[Tensor, Tensor]:
    """Check a matrix of energies with one row (dim 0) or column (dim 1) for each ascending scale; widen both."""
    wide = as_wide(energy, name)
    grid = positive_vector(scales, "scales").to(wide)
    if wide.ndim != 2 or wide.shape[dim] != len(grid):
        line = ("row", "column")[dim]
        raise ValueError(f"{name} {tuple(wide.shape)} must have one {line} for each of the {len(grid)} scales")
    if bool((grid.diff() <= 0).any()):
        raise ValueError(f"scales must ascend, got {grid.tolist()}")
    return wide, grid
