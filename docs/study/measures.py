"""What the study measures of the attention of a trained model, beyond what the callback wrote during the training.

Everything is a function of the maps of some documents. It is computed of all documents and without each of eight
groups, dealt as the callback deals them, which gives the jackknife error of anything.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import torch
from scipy.signal import find_peaks
from torch import Tensor

from scalepod.bands import band_shares
from scalepod.confidence.groups import N_GROUPS
from scalepod.confidence.trainings import Array
from scalepod.field import lag_covariance, reynolds, to_lag
from scalepod.heads import head_gram, head_moments, head_redundancy
from scalepod.pod import FieldPOD, field_pod, lag_pod, lag_windows
from scalepod.scalogram import scale_energy, scale_grid

BANDS = {"fine": 4.0, "medium": 12.0, "coarse": 36.0}
LEADING = 3
"""Modes that are called leading."""
MANY_PEAKS = (10, 40)
"""Lags in which the peaks of the leading modes are counted, in tokens."""
_PROMINENCE = 0.1  # of the highest value of a profile, below which a maximum is no peak
_COSINES = 8  # cosines along queries and along keys, from which the fields of lowest frequency are taken


def parts_of(n_documents: int) -> list[Tensor]:
    """Indices of all documents, then of those without each group (document n is in group n mod 8): 1 + G tensors."""
    every = torch.arange(n_documents)
    return [every, *(every[every % N_GROUPS != group] for group in range(N_GROUPS))]


def with_replicates(function: Callable[[Tensor], Mapping[str, float]], documents: Tensor) -> dict[str, Array]:
    """Values of all documents and without each group, [1 + G] by name."""
    found = [function(documents[part]) for part in parts_of(len(documents))]
    return {name: np.array([values[name] for values in found]) for name in found[0]}


def of_maps(attn: Tensor) -> dict[str, float]:
    """Everything that the claims need of the attention of a layer, averaged over heads.

    Args:
        attn: Causal attention, [N, T, T].

    Returns:
        By name: shares of the energy by lag, of the attention itself (the sum of its squares) and of the fluctuation;
        logarithms of the scalogram's energy of both; what the leading modes hold, where they look, and how many bands
        they amount to.
    """
    _, u = reynolds(attn)
    R, whole = lag_covariance(u), lag_covariance(attn)
    energy, scales = R.diagonal(), scale_grid(per_octave=8)
    n_tokens = len(R)
    windows = torch.cat([torch.ones(1, n_tokens, dtype=R.dtype), lag_windows(list(BANDS.values()), n_tokens)])
    pod = field_pod(attn, windows, LEADING)
    profiles = mode_profiles(pod)
    bands = mode_bands(pod)
    spectrum, lag_spectrum = pod.eigenvalues[0], lag_pod(R, n_modes=0).eigenvalues[0]
    return {
        "share_to_7": _share(energy, slice(8)),
        "share_from_20": _share(energy, slice(20, None)),
        "attention_share_to_7": _share(whole.diagonal(), slice(8)),
        "attention_share_from_20": _share(whole.diagonal(), slice(20, None)),
        "log_scalogram": float(scale_energy(whole, scales).sum().log()),
        "log_scalogram_fluctuation": float(scale_energy(R, scales).sum().log()),
        "leading_share": _share(spectrum, slice(LEADING)),
        "lag_leading_share": _share(lag_spectrum, slice(LEADING)),
        "mode_peak": float(profiles[0].argmax()),
        "mode_peaks": float(n_peaks(profiles[0], *MANY_PEAKS)),
        "bands_of_energy": n_bands(energy),
        "bands_of_modes": float(bands[0]),
        "bands_lost_by_windows": float(bands[0] - bands[1:].mean()),
    }


def mode_profiles(pod: FieldPOD) -> Tensor:
    """Energy of the leading modes at each lag, `sum_k lambda_k sum_i phi_k[i, i - tau]^2`, as shares, [M, T]."""
    profile = (_kept(pod)[..., None] * _by_lag(pod)).sum(1)
    return profile / profile.sum(-1, keepdim=True)


def mode_bands(pod: FieldPOD) -> Tensor:
    """Bands that a leading mode amounts to (see `n_bands`): mean weighted by the eigenvalues, in each window, [M]."""
    found = torch.tensor([[n_bands(mode) for mode in modes] for modes in _by_lag(pod)], dtype=torch.float64)
    return (_kept(pod) * found).sum(-1) / _kept(pod).sum(-1)


def leading_profile(attn: Tensor) -> Array:
    """Energy of the leading field modes of maps [N, T, T] at each lag, as shares, [T]."""
    profile: Array = mode_profiles(field_pod(attn, n_modes=LEADING))[0].numpy()
    return profile


def n_peaks(profile: Tensor, low: int, high: int) -> int:
    """Local maxima of a profile over lags between two lags, that rise over their surroundings by a tenth of its top."""
    found, _ = find_peaks(profile.numpy(), prominence=_PROMINENCE * float(profile.max()))
    return int(((found >= low) & (found <= high)).sum())


def n_bands(energy: Tensor) -> float:
    """Bands that the energy over lags amounts to: exponential of the entropy of the shares, 1 to 3.

    Example:
        >>> round(n_bands(torch.eye(40, dtype=torch.float64)[5]), 3)
        1.0
    """
    shares = torch.tensor(list(band_shares(energy, BANDS).values()), dtype=torch.float64)
    return float(torch.special.entr(shares).sum().exp())


def distinct_heads(maps: Tensor) -> dict[str, float]:
    """Heads that the H heads of a layer amount to, from their maps [N, H, T, T] (see `scalepod.heads`)."""
    return {"distinct_heads": float(head_redundancy(head_gram(head_moments(maps))).distinct[0])}


class Reconstruction(NamedTuple):
    """Share of the energy that a basis of K fields leaves, for Theorem 1 of arXiv 2606.06573."""

    identity: float
    """Difference between what the first K modes leave and sum_{k > K} lambda_k, as a share of the energy."""
    modes: float
    """Left by the first K modes."""
    documents: float
    """Left by the span of K of the fluctuations themselves."""
    cosines: float
    """Left by the K cosines of lowest frequency along queries and keys, of causal fields."""


def reconstruction(attn: Tensor, n_modes: int = 10) -> Reconstruction:
    """What bases of K fields leave of the fluctuations of N documents, [N, T, T]."""
    u = reynolds(attn.double())[1]
    pod = field_pod(attn.double(), n_modes=n_modes)
    n_tokens, energy = u.shape[-1], float(u.square().sum() / len(u))
    some = u[torch.linspace(0, len(u) - 1, n_modes).round().long()]
    angle = torch.arange(_COSINES)[:, None] * (torch.arange(n_tokens) + 0.5) * torch.pi / n_tokens
    order = sorted(((i, j) for i in range(_COSINES) for j in range(_COSINES)), key=sum)[:n_modes]
    waves = torch.stack([angle[i].cos()[:, None] * angle[j].cos() for i, j in order]).double().tril()
    left = [_left(u, basis.flatten(1)) for basis in (pod.modes[0], some, waves)]
    expected = float(pod.eigenvalues[0, n_modes:].sum())
    return Reconstruction(abs(left[0] - expected) / energy, *(share / energy for share in left))


def _by_lag(pod: FieldPOD) -> Tensor:
    """Squares of each mode summed at each lag, [M, K, T]."""
    return to_lag(pod.modes.double()).square().sum(-2)


def _kept(pod: FieldPOD) -> Tensor:
    """Eigenvalues of the modes that are kept, [M, K]."""
    return pod.eigenvalues[:, : pod.modes.shape[1]]


def _share(energy: Tensor, part: slice) -> float:
    return float(energy[part].sum() / energy.sum())


def _left(u: Tensor, basis: Tensor) -> float:
    """Mean squared error of the best reconstruction of [N, T, T] from the span of [K, T^2]."""
    orthonormal, _ = torch.linalg.qr(basis.mT)
    flat = u.flatten(1)
    return float((flat - flat @ orthonormal @ orthonormal.mT).square().sum() / len(u))
