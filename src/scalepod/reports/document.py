"""A report on runs: what was run, what was found, in words, tables and figures, and what must not be concluded."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from ..figures import confidence_figure, overview_figure, scalogram_figure
from ..figures.words import NONE
from . import html
from .comparison import Comparison, compare
from .findings import BETWEEN_RUNS, OVER_TRAINING, Wording, differences_in_words, layer_findings, summary
from .html import Markup, element
from .limits import limits
from .notes import later_common_step, notes
from .pictures import comparison_figures
from .runs import Firing, Run, layer_names
from .tables import blocks

_CAPTIONS = {
    "scalograms": "Scalograms by layer and run",
    "lag_modes": "Leading lag modes by layer",
    "coherence": "Cross-coherence by layer and run",
    "training": "Values over training with bands of one standard error",
}


def report(runs: Sequence[Run], step: int | Literal["last"] = "last") -> str:
    """Write a report on runs as one HTML page that needs no other file and no network.

    Args:
        runs: The runs; the others are compared with the first.
        step: The firing that is reported: optimizer steps taken, or the last of each run.

    Returns:
        The page; the same for the same files.

    Raises:
        ValueError: No run, or one without that step.
    """
    comparison = compare([run.at(step) for run in runs])
    firings = comparison.firings
    names = {firing.label: layer_names(firing.analyses) for firing in firings}
    title = f"Attention of {', '.join(firing.label for firing in firings)}"
    return html.page(
        title,
        element("h1", title),
        element("h2", "What was run"),
        *_what_was_run(firings),
        element("h2", "What was found"),
        *(part for run, firing in zip(runs, firings, strict=True) for part in _found(run, firing, names[firing.label])),
        *_side_by_side(runs, comparison),
        element("h2", "Figures"),
        *(html.picture(figure, _CAPTIONS[name]) for name, figure in comparison_figures(runs, comparison).items()),
        *(part for firing in firings for part in _figures(firing, names[firing.label])),
        element("h2", "What not to conclude"),
        html.paragraphs(limits(firings, names)),
        _written_by(runs),
    )


def _what_was_run(firings: Sequence[Firing]) -> Iterator[Markup]:
    """Model, data and, behind a title, the options of the analysis, a column a run."""
    head = ("", *(firing.label for firing in firings)) if len(firings) > 1 else ()
    yield html.table(head, _columns([_facts(firing) for firing in firings]), kind="facts")
    options = [{name: _plain(value) for name, value in firing.provenance.options.items()} for firing in firings]
    if any(options):
        yield html.details("Options of the analysis", html.table(head, _columns(options), kind="facts"))


def _facts(firing: Firing) -> dict[str, str]:
    found = firing.provenance
    documents = {f"{layer.n_snapshots} of {layer.n_tokens} tokens" for layer in firing.analyses.values()}
    facts = {
        "model": found.model,
        "data": found.data,
        "checksum of the documents": found.data_sha256 and found.data_sha256[:16],
        "held-out documents": ", ".join(sorted(documents)),
        "optimizer steps": str(firing.step),
        "layers": str(len(firing.analyses)),
        "device, precision": ", ".join(filter(None, (found.device, found.precision))),
    }
    return {name: value or "not on record" for name, value in facts.items()}


def _columns(facts: Sequence[Mapping[str, str]]) -> list[tuple[str, ...]]:
    """A row a fact, a column a run."""
    names = dict.fromkeys(name for column in facts for name in column)
    return [(name, *(column.get(name, NONE) for column in facts)) for name in names]


def _plain(value: object) -> str:
    """An option as it is read rather than written in a program.

    Example:
        >>> _plain({"fine": 4.0, "coarse": 36.0}), _plain([0.1, 0.05]), _plain(None), _plain(False)
        ('fine 4, coarse 36', '0.1, 0.05', '–', 'no')
    """
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_plain(item)}" for name, item in value.items()) or NONE
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value)) or NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    return NONE if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _found(run: Run, firing: Firing, names: Mapping[str, str]) -> Iterator[Markup]:
    """Sentences on one run: all layers, each layer, and what changed since its first firing."""
    layers = {names[name]: layer for name, layer in firing.analyses.items()}
    yield element("h3", f"{firing.label}, step {firing.step}")
    yield html.paragraphs(summary(layers))
    each = [element("li", element("b", f"{name}: "), " ".join(layer_findings(layer))) for name, layer in layers.items()]
    yield html.details("Layer by layer", element("ul", *each))
    first = run.results.steps[0]
    if first < firing.step:
        sides = [replace(side, label=f"step {side.step}") for side in (run.at(first), firing)]
        yield element("p", f"From step {first} to step {firing.step}:")
        yield from _differences(compare(sides), OVER_TRAINING, names)


def _side_by_side(runs: Sequence[Run], comparison: Comparison) -> Iterator[Markup]:
    """The differences between the runs in words, and the tables; of a single run its values."""
    first, *others = (firing.label for firing in comparison.firings)
    names = layer_names(comparison.row_names)
    if not others:
        yield element("h2", "Values")
        yield _values_of_one(comparison, names)
        return
    yield element("h2", f"Compared with {first}")
    yield from _differences(comparison, BETWEEN_RUNS, names)
    yield html.paragraphs([*notes(comparison), *later_common_step(list(runs), comparison.firings)])
    for block in blocks(comparison):
        yield element("h3", block.title)
        yield html.table(block.head, block.rows, block.meaning)


def _differences(comparison: Comparison, wording: Wording, names: Mapping[str, str]) -> Iterator[Markup]:
    """Sentences on significant differences by run, under the run's name where there are several."""
    by_run: dict[str, list[str]] = {}
    for run, sentence in differences_in_words(comparison, wording, names):
        by_run.setdefault(run, []).append(sentence)
    if not by_run:
        yield element("p", "Nothing could be tested: that takes standard errors, and so at least 16 documents.")
    for run, sentences in by_run.items():
        if wording is BETWEEN_RUNS:
            yield element("h3", run)
        yield html.paragraphs(sentences)
    if by_run:
        found, n_tests = len(comparison.significant()), comparison.n_tests
        told = f"{found} of {n_tests} tests are significant: at most 5 % for even one false finding in all (Holm)."
        yield element("p", told, class_="muted")


def _values_of_one(comparison: Comparison, names: Mapping[str, str]) -> Markup:
    """Values of one run, a row a layer."""
    found = blocks(comparison)
    rows = [(name, *(block.rows[k][1] for block in found)) for k, name in enumerate(names.values())]
    return html.table(("layer", *(block.title for block in found)), rows, "± one standard error over documents")


def _figures(firing: Firing, names: Mapping[str, str]) -> Iterator[Markup]:
    """All layers of a run on a page each, and every layer behind a title."""
    title = f"{firing.label}, step {firing.step}"
    yield html.picture(overview_figure(firing.analyses, title), f"Overview of {title}")
    yield html.picture(confidence_figure(firing.analyses, title), f"Confidence in {title}")
    for name, layer in firing.analyses.items():
        figure = scalogram_figure(layer, f"{name}, {title}")
        yield html.details(
            f"{firing.label}, {names[name]}: scalogram and spectra", html.picture(figure, f"{name}, {title}")
        )


def _written_by(runs: Sequence[Run]) -> Markup:
    versions = ", ".join(sorted({run.results.header.scalepod for run in runs}))
    return element("p", f"The results were written by scalepod {versions}.", class_="muted")
