"""How often the 95 % intervals of the logged values cover the truth, on ensembles whose truth is known.

Run with `python benchmarks/coverage.py`; about a minute on one core. Two ensembles of N = 150 documents:

- homogeneous: along the query axis a document is a stationary process of known lag profiles, louder in some documents
  than in others. The truth of the lag quantities is that of the analytic R.
- modes: a document is a sum of fixed orthonormal fields with variances k^-1.5, so that the truth of T_spec is 2 / 3.

The field H*, and T_spec of a field without fixed modes, depend on the number of documents (they count them). What their
intervals can cover is the mean over ensembles of this size, and that is taken as their truth. Where clearly less than
95 % is covered, the value is biased at this N (sampling spreads eigenvalues apart): see the bias column.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from scalepod.confidence.estimates import PartSpectra, estimates
from scalepod.confidence.groups import (
    N_GROUPS,
    all_but_one,
    field_spectra,
    group_moments,
    part_covariances,
)
from scalepod.confidence.jackknife import interval, standard_error
from scalepod.field import from_lag, lags
from scalepod.pod import lag_pod, lag_windows, windowed_snapshots
from scalepod.scalogram import dominant_scales, refine_scales, scale_grid, scalogram

DOCUMENTS, TOKENS = 150, 40
BANDS = {"fine": 4.0, "medium": 12.0}
EPSILONS = (0.10, 0.05, 0.01)
SCALES = scale_grid(2.0, 20.0, 8)
WINDOWS = torch.cat([torch.ones(1, TOKENS, dtype=torch.float64), lag_windows(list(BANDS.values()), TOKENS)])
MEMORY = 0.7  # correlation of a profile's strength at neighbouring queries
Values = dict[str, Tensor]
Ensemble = Callable[[torch.Generator], Tensor]


def lag_profiles() -> Tensor:
    """Lag profiles [J, T] in the order of their variances: one that returns every 8 tokens, then smooth ones."""
    tau = torch.arange(TOKENS, dtype=torch.float64)
    comb = torch.exp(-tau / 16) * torch.cos(2 * math.pi * tau / 8)
    smooth = [torch.exp(-tau / 10) * torch.cos(math.pi * j * (tau + 0.5) / TOKENS) for j in range(24)]
    strength = 1.3 / (1 + torch.arange(25, dtype=torch.float64)) ** 0.75
    return strength[:, None] * torch.linalg.qr(torch.stack([comb, *smooth]).mT).Q.mT


def homogeneous(generator: torch.Generator) -> Tensor:
    """Documents [N, T, T]: every profile's strength is an autoregressive process along the queries."""
    profiles = lag_profiles()
    steps = torch.randn(DOCUMENTS, TOKENS, len(profiles), generator=generator, dtype=torch.float64)
    strength = [steps[:, 0]]
    for step in steps[:, 1:].unbind(1):
        strength.append(MEMORY * strength[-1] + math.sqrt(1 - MEMORY**2) * step)
    loud = torch.exp(0.3 * torch.randn(DOCUMENTS, 1, 1, generator=generator, dtype=torch.float64) - 0.09)
    return from_lag(loud * torch.stack(strength, 1) @ profiles)


def homogeneous_covariance() -> Tensor:
    """R of the homogeneous ensemble: lag tau exists at T - tau queries, and N documents lose 1 / N to their mean."""
    tau = lags(TOKENS)
    profiles = lag_profiles()
    return (1 - 1 / DOCUMENTS) * (TOKENS - torch.maximum(tau[:, None], tau)) * (profiles.mT @ profiles)


def modes(generator: torch.Generator) -> Tensor:
    """Documents [N, T, T]: 200 fixed orthonormal causal fields with variances k^-1.5."""
    fixed = torch.Generator().manual_seed(1)
    causal = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
    fields = torch.linalg.qr(torch.randn(int(causal.sum()), 200, generator=fixed, dtype=torch.float64)).Q
    amplitude = torch.arange(1, 201, dtype=torch.float64) ** -0.75
    found = torch.zeros(DOCUMENTS, TOKENS, TOKENS, dtype=torch.float64)
    found[:, causal] = torch.randn(DOCUMENTS, 200, generator=generator, dtype=torch.float64) * amplitude @ fields.mT
    return found


def values(covariances: Tensor, field: Tensor | None, near: float | None) -> Values:
    """The logged values of parts with the given R, [P, L, L], and field spectra."""
    eigenvalues = torch.stack([lag_pod(each, WINDOWS, n_modes=0).eigenvalues for each in covariances])
    energy = torch.stack([scalogram(each, SCALES).sum(-1) for each in covariances])
    parts = PartSpectra(covariances.diagonal(0, -2, -1), energy, eigenvalues, eigenvalues.sum(-1), field)
    return estimates(parts, bands=BANDS, epsilons=EPSILONS, scales=SCALES, near=near)


def top_scale(covariance: Tensor) -> float | None:
    energies = scalogram(covariance, SCALES)
    found = refine_scales(energies, SCALES, dominant_scales(energies, SCALES))
    return float(found[0]) if len(found) else None


def draw(ensemble: Ensemble, generator: torch.Generator, field: bool) -> tuple[Values, Values]:
    """Values of all documents of one draw, and their standard errors."""
    documents = ensemble(generator)
    labels = torch.arange(DOCUMENTS) % N_GROUPS
    groups = group_moments(documents, labels, N_GROUPS)
    parts = torch.cat([torch.ones(1, N_GROUPS, dtype=torch.bool), all_but_one(N_GROUPS)])
    covariances = part_covariances(groups, parts)
    spectra = field_spectra(windowed_snapshots(documents, WINDOWS).gram, labels, parts, TOKENS) if field else None
    found = values(covariances, spectra, top_scale(covariances[0]))
    sizes = labels.bincount()
    errors = {name: standard_error(value[1:], sizes) for name, value in found.items()}
    return {name: value[0] for name, value in found.items()}, errors


def coverage(
    ensemble: Ensemble, truth: Values, draws: int, *, field: bool = True, seed: int = 0
) -> dict[str, tuple[float, float, float, float]]:
    """Of each value: its truth (mean over the draws where none is given), bias, error and coverage.

    The bias is the mean value less the truth, the error the root mean square of the standard errors, both over the
    standard deviation of the value between draws. A draw in which the value or its error is undefined is left out.
    """
    generator = torch.Generator().manual_seed(seed)
    drawn = [draw(ensemble, generator, field) for _ in range(draws)]
    found = {}
    for name in drawn[0][0]:
        pairs = [(value[name], error[name]) for value, error in drawn if name in value]
        value, error = (torch.stack(each) for each in zip(*pairs, strict=True))
        defined = torch.isfinite(value) & torch.isfinite(error)
        value, error = value[defined], error[defined]
        true = truth.get(name, value.mean())
        low, high = interval(value, error, N_GROUPS)
        covered = ((low <= true) & (true <= high)).double().mean()
        spread = value.std()
        ratio = error.square().mean().sqrt() / spread
        found[name] = (float(true), float((value.mean() - true) / spread), float(ratio), float(covered))
    return found


def homogeneous_truth() -> Values:
    """The values that the analytic R has."""
    covariance = homogeneous_covariance()
    return {name: value[0] for name, value in values(covariance[None], None, top_scale(covariance)).items()}


def modes_truth() -> Values:
    """T_spec of the variances k^-1.5."""
    return {"t_spec": torch.tensor(2 / 3, dtype=torch.float64)}


def show(title: str, found: dict[str, tuple[float, float, float, float]]) -> None:
    print(f"\n{title}\n\n| value | truth | bias / sd | error / sd | coverage |\n| --- | --- | --- | --- | --- |")
    for name, (true, bias, ratio, covered) in found.items():
        print(f"| {name} | {true:.3f} | {bias:+.2f} | {ratio:.2f} | {covered:.3f} |")


def main() -> None:
    draws = 400
    print(f"{DOCUMENTS} documents of {TOKENS} tokens, {N_GROUPS} groups, {draws} draws")
    show("homogeneous", coverage(homogeneous, homogeneous_truth(), draws))
    found = coverage(modes, modes_truth(), draws)
    show("modes", {name: row for name, row in found.items() if name.startswith(("t_spec", "h_star"))})


if __name__ == "__main__":
    main()
