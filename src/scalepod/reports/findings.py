"""What an analysis found, in sentences made from its numbers."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ..analysis import LayerAnalysis, epsilon_name
from ..bands import band_edges
from ..figures.words import NO_ENERGY, Kind, convergence_of, document_error, t_spec_error
from .comparison import Comparison, Entry
from .quantities import title_of
from .tables import value_with_error

_MIN_EXCESS = 0.1  # of a peak over the null; the null itself scatters by 1 or 2 %


class Wording(NamedTuple):
    """How a difference is put into words."""

    larger: str
    smaller: str
    neither: str


OVER_TRAINING = Wording("rose in", "fell in", "no significant change in")
BETWEEN_RUNS = Wording("larger in", "smaller in", "no significant difference in")


def summary(layers: Mapping[str, LayerAnalysis]) -> list[str]:
    """The extremes among the layers, where they look and how complex they are, and whether the documents suffice.

    Args:
        layers: Analyses by the names under which the layers are told of.

    Returns:
        Sentences; none of extremes for a single layer.
    """
    found = []
    if ends := _ends(layers, "mean_lag"):
        (near, lag), (far, other) = ends
        found.append(
            f"Documents differ nearest to the query in {near} (mean lag {lag} tokens), farthest back in {far} "
            f"({other} tokens)."
        )
    rank = next((f"lag_h_star_{epsilon_name(epsilon)}" for layer in layers.values() for epsilon in layer.epsilons), "")
    if ends := _ends(layers, rank):
        (low, few), (high, many) = ends
        found.append(
            f"{low} is the least complex layer: {few} lag patterns hold {_held(rank)} of its energy; {high} is the "
            f"most complex: {many}."
        )
    return [*found, *_convergence(layers)]


def layer_findings(layer: LayerAnalysis) -> list[str]:
    """Where the energy of a layer is, how complex it is, and how far that can be believed.

    Args:
        layer: The analysis.

    Returns:
        Sentences; what is undefined or was not computed is left to `limits`.
    """
    if not layer.energy > 0:
        return [f"There is {NO_ENERGY}."]
    return [*_where(layer), *_complexity(layer), *_beyond_chance(layer)]


def differences_in_words(
    comparison: Comparison, wording: Wording, names: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """In which layers a value differs significantly from the first run's, by quantity and run.

    Args:
        comparison: The comparison.
        wording: Words for larger, smaller and neither.
        names: What layers are called, by the name of their row.

    Yields:
        Label of the run, and the sentence.
    """
    for firing in comparison.firings[1:]:
        for quantity in comparison.quantities:
            tested = [
                entry
                for entry in comparison.entries
                if (entry.run, entry.quantity) == (firing.label, quantity) and math.isfinite(entry.change.p_value)
            ]
            if said := _ways(tested, wording, names):
                yield firing.label, f"{title_of(quantity)}: {'; '.join(said)}."


def _ways(tested: Sequence[Entry], wording: Wording, names: Mapping[str, str]) -> list[str]:
    """In which layers a value is larger, smaller, or neither, and by how much."""
    changed = [entry for entry in tested if entry.change.significant]
    ways = {
        wording.larger: [entry for entry in changed if entry.change.difference > 0],
        wording.smaller: [entry for entry in changed if entry.change.difference < 0],
        wording.neither: [entry for entry in tested if not entry.change.significant],
    }
    return [
        f"{way} {_layers(entries, tested, names)}{_by(entries) if way != wording.neither else ''}"
        for way, entries in ways.items()
        if entries
    ]


def _layers(entries: Sequence[Entry], tested: Sequence[Entry], names: Mapping[str, str]) -> str:
    return "all layers" if len(entries) == len(tested) > 1 else ", ".join(names[entry.layer] for entry in entries)


def _by(entries: Sequence[Entry]) -> str:
    """By how much values differ: the smallest and the largest difference with their standard errors."""
    changes = sorted((entry.change for entry in entries), key=lambda change: abs(change.difference))
    ends = [value_with_error(abs(change.difference), change.stderr) for change in (changes[0], changes[-1])]
    return f" (by {' to '.join(dict.fromkeys(ends))})"


def _ends(layers: Mapping[str, LayerAnalysis], quantity: str) -> list[tuple[str, str]]:
    """Layers of the smallest and the largest value, with the value in print; none where they do not differ."""
    values = {name: found[quantity] for name, layer in layers.items() if quantity in (found := layer.scalars())}
    if not values or min(values.values()) == max(values.values()):
        return []
    ends = min(values, key=values.__getitem__), max(values, key=values.__getitem__)
    return [(name, value_with_error(values[name], document_error(layers[name], quantity))) for name in ends]


def _convergence(layers: Mapping[str, LayerAnalysis]) -> Iterator[str]:
    """Which spectra count documents rather than structure."""
    kinds: tuple[Kind, ...] = ("lag", "field")
    for kind in kinds:
        known = {name: found for name, layer in layers.items() if (found := convergence_of(layer, kind))}
        limited = [name for name, found in known.items() if not found.settled]
        if known and not limited:
            yield f"{kind.capitalize()} H* has converged in all layers: half the documents give the same within 10 %."
        elif limited:
            where = "all layers" if len(limited) == len(known) else ", ".join(limited)
            yield f"{kind.capitalize()} H* is limited by the number of documents in {where}: it grows with them."


def _where(layer: LayerAnalysis) -> Iterator[str]:
    """At which lags the energy is, and which scales stand out."""
    if layer.bands:
        centres = {name: layer.window_lags[layer.window_names.index(name)] for name in layer.bands}
        name = max(layer.bands, key=layer.bands.__getitem__)
        share, error = layer.bands[name], document_error(layer, f"band_{name}")
        how = "Most of the energy" if share > 0.5 else "The largest part of the energy"
        percentage = value_with_error(100 * share, 100 * error)
        yield f"{how}, {percentage} %, is at {_lags(*band_edges(centres)[name])} ({name})."
    yield f"The mean lag is {value_with_error(layer.mean_lag, document_error(layer, 'mean_lag'))} tokens."
    yield from _scales(layer)


def _scales(layer: LayerAnalysis) -> Iterator[str]:
    """Scales that stand out from documents without coherent structure; without that null, all peaks."""
    lags, excess = layer.dominant_lags.tolist(), layer.dominant_excess().tolist()
    errors = [document_error(layer, "dominant_lag"), *[math.nan] * len(lags)]
    shown = [
        value_with_error(lag, error)
        for lag, error, above in zip(lags, errors[: len(lags)], excess, strict=True)
        if not above <= _MIN_EXCESS
    ]
    if shown:
        yield f"{'A scale stands' if len(shown) == 1 else 'Scales stand'} out at lag {', '.join(shown)} tokens."
    else:
        yield "No scale stands out."


def _complexity(layer: LayerAnalysis) -> Iterator[str]:
    """How many lag patterns it takes, whether more documents would change that, and how the spectrum decays."""
    values = layer.scalars()
    settled = convergence_of(layer, "lag")
    for epsilon in layer.epsilons[:1]:
        quantity = f"lag_h_star_{epsilon_name(epsilon)}"
        rank = value_with_error(values[quantity], document_error(layer, quantity))
        verdict = f": {settled.verdict()}" if settled else ""
        yield f"{rank} lag patterns hold {_held(quantity)} of the energy{verdict}."
    if "lag_t_spec" in values:
        t_spec = value_with_error(values["lag_t_spec"], t_spec_error(layer, "lag"))
        yield f"T_spec of the lag spectrum is {t_spec} (r² = {values['lag_t_spec_r2']:.2f})."


def _beyond_chance(layer: LayerAnalysis) -> Iterator[str]:
    """What patterns of half the documents are worth in the other half, and how many fewer it takes than without any."""
    if layer.confidence is None or not layer.epsilons:
        return
    ranks = layer.confidence.heldout_ranks(layer.epsilons[0])
    enough = [f"{rank:.0f} {_PATTERNS[kind]}" for kind, rank in ranks.items() if math.isfinite(rank)]
    never = [f"no number of {_PATTERNS[kind]}" for kind, rank in ranks.items() if math.isinf(rank)]
    held = f"{_held(f'h_star_{epsilon_name(layer.epsilons[0])}')} of the energy of the other half"
    if enough:
        also = f"; {' and '.join(never)} does" if never else ""
        yield f"{' or '.join(enough)} of half the documents hold {held}{also}."
    elif never:
        yield f"{' and '.join(never).capitalize()} of half the documents holds {held}."
    excess = layer.excess()
    numbers = {kind: excess.get(f"{'lag_' * (kind == 'lag')}h_star_excess", math.nan) for kind in _PATTERNS}
    fewer = [
        f"{abs(n):.3g} {'fewer' if n < 0 else 'more'} {_PATTERNS[kind]}" if n else f"no fewer {_PATTERNS[kind]}"
        for kind, n in numbers.items()
        if not math.isnan(n)
    ]
    if fewer:
        yield (
            f"It takes {' and '.join(fewer)} than documents of the same energy at every lag and without coherent "
            "structure would."
        )


_PATTERNS = {"lag": "lag patterns", "field": "attention maps"}


def _held(quantity: str) -> str:
    """The share of the energy of which an effective rank tells."""
    return f"{100 * (1 - float(quantity.rpartition('_')[2])):.4g} %"


def _lags(low: float, high: float) -> str:
    """The whole lags of a band in words."""
    first, last = math.ceil(low), math.ceil(high) - 1 if math.isfinite(high) else math.inf
    if first == 0:
        return f"lags up to {last}" if math.isfinite(last) else "all lags"
    return f"lags {first} to {last}" if math.isfinite(last) else f"lags from {first} on"
