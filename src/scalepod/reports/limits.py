"""What must not be concluded from analyses, in sentences: what always holds, and what these numbers show."""

import math
from collections.abc import Iterator, Mapping, Sequence

from ..analysis import LayerAnalysis
from ..confidence.groups import MIN_DOCUMENTS
from ..figures.words import Kind, eigenvalues_of, fit_of
from .notes import SEEDS
from .runs import Firing

LOW_R2 = 0.9
"""Share of the variance below which a spectrum is called no power law."""

ALWAYS = (
    SEEDS,
    "Attention that differs between documents is not thereby what the model's predictions rest on.",
    "Where no significant difference is told of there may still be one, too small for so many documents.",
    "The values are of the mean over the heads of a layer, unless single heads were analysed: heads that do different "
    "things can cancel in it.",
    "The field H* and T_spec describe these documents: they grow with their number. Compare them at the same number "
    "only; the lag values are those that describe the layer.",
    "The energy grows with the length of the documents: it compares layers and steps of one length.",
)
"""Limits of every report."""


def limits(firings: Sequence[Firing], names: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Limits of every report, and those that the numbers of these runs have.

    Args:
        firings: The runs.
        names: What layers are called, by label of the run and name of the layer.

    Returns:
        Sentences.
    """
    found = list(ALWAYS)
    for firing in firings:
        layers = {names[firing.label][name]: layer for name, layer in firing.analyses.items()}
        if len(firings) > 1:
            found += [f"{firing.label}: {sentence}" for sentence in _of_run(layers)]
        else:
            found += [sentence[0].upper() + sentence[1:] for sentence in _of_run(layers)]
    return found


def _of_run(layers: Mapping[str, LayerAnalysis]) -> Iterator[str]:
    if skipped := {name: layer.n_skipped for name, layer in layers.items() if layer.n_skipped}:
        listed = ", ".join(f"{count} in {name}" for name, count in skipped.items())
        yield f"documents were left out, their attention held NaN or infinity or they had no query: {listed}."
    if without := [name for name, layer in layers.items() if layer.confidence is None]:
        few = f"they were switched off or there are fewer than {MIN_DOCUMENTS} documents"
        yield f"no standard errors and no test of {_listed(without, layers)}: {few}."
    if any(layer.burn_in == 0 and not layer.signed for layer in layers.values()):
        yield (
            "the first queries share their attention among few keys, so they weigh much in every value; burn_in leaves "
            "them out, and here was 0."
        )
    if same := [name for name, layer in layers.items() if not layer.energy > 0]:
        yield f"nothing is defined in {_listed(same, layers)}: the attention is the same in every document."
    yield from _undefined(layers)
    yield from _no_power_laws(layers)


def _undefined(layers: Mapping[str, LayerAnalysis]) -> Iterator[str]:
    """Values that are undefined, with the reason."""
    alive = {name: layer for name, layer in layers.items() if layer.energy > 0}
    if flat := [name for name, layer in alive.items() if not len(layer.dominant_lags)]:
        yield f"no dominant lag in {_listed(flat, alive)}: E(a) has no maximum inside the range of scales."
    for kind in _KINDS:
        if off := [name for name, layer in layers.items() if eigenvalues_of(layer, kind) is None]:
            yield f"no {kind} values of {_listed(off, layers)}: the {kind} POD was switched off."
        for name, layer in alive.items():
            fit = fit_of(layer, kind)
            if fit is not None and (reason := fit.reason(0)):
                yield f"{kind} T_spec of {name} is undefined: {reason}."


def _no_power_laws(layers: Mapping[str, LayerAnalysis]) -> Iterator[str]:
    """T_spec that stands for a spectrum which is no straight line."""
    for kind in _KINDS:
        found = {name: float(fit.r2[0]) for name, layer in layers.items() if (fit := fit_of(layer, kind)) is not None}
        low = {name: r2 for name, r2 in found.items() if math.isfinite(r2) and r2 < LOW_R2}
        if low:
            listed = ", ".join(f"{name} ({r2:.2f})" for name, r2 in low.items())
            yield f"the {kind} spectrum is no power law, and T_spec a bad summary of it, where r² < {LOW_R2}: {listed}."


_KINDS: tuple[Kind, ...] = ("lag", "field")


def _listed(names: Sequence[str], of: Mapping[str, LayerAnalysis]) -> str:
    return "all layers" if len(names) == len(of) > 1 else ", ".join(names)
