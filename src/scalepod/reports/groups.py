"""Models that were trained several times side by side: groups of runs, compared by the means over their trainings."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice
from pathlib import Path
from typing import Literal

from ..confidence.groups import MIN_DOCUMENTS
from ..results import load
from .comparison import Comparison, Entry, align_layers, corrected, headline_quantities
from .differences import Parts, is_paired
from .group_values import Row, difference, mean
from .runs import Firing, Run, default_labels


@dataclass(frozen=True)
class Trainings:
    """One firing of every training of a group."""

    label: str
    """Name of the group."""
    firings: tuple[Firing, ...]
    """One a training, under names of their own."""


@dataclass(frozen=True)
class Group:
    """Trainings of one model under the name that tables and figures give them."""

    label: str
    """The name."""
    runs: tuple[Run, ...]
    """One a training."""

    @property
    def steps(self) -> list[int]:
        """Steps that all trainings have, ascending."""
        return sorted(set.intersection(*(set(run.results.steps) for run in self.runs)))

    def at(self, step: int | Literal["last"]) -> Trainings:
        """The firings at a step, or the last of each training.

        Raises:
            ValueError: A training has no such step.
        """
        return Trainings(self.label, tuple(run.at(step) for run in self.runs))


@dataclass(frozen=True)
class GroupComparison(Comparison):
    """A table of means over trainings by quantity, layer and group.

    Its `firings` are those of the first training of each group, under the name of the group.
    """

    groups: tuple[Trainings, ...]
    """What is compared, the first being what the others are compared with."""
    members: tuple[tuple[tuple[str, ...], ...], ...]
    """Layers that belong together, ``[row][group][training]``; empty where a group has none."""

    @property
    def steps(self) -> dict[str, str]:
        """Optimizer steps taken, by label; all of them where those of the trainings differ."""
        found = {group.label: sorted({firing.step for firing in group.firings}) for group in self.groups}
        return {label: " ".join(map(str, steps)) for label, steps in found.items()}

    @property
    def rows(self) -> list[Row]:
        """Analyses of the layers that belong together."""
        return [_analyses(self.groups, names) for names in self.members]


def open_groups(groups: Sequence[tuple[str, Sequence[str | Path]]]) -> list[Group]:
    """Load the trainings of groups.

    Args:
        groups: Name of each group, and the run folders or files of results of its trainings.

    Returns:
        The groups, in the order given.

    Raises:
        FileNotFoundError: There are no results at a path.
        ValueError: No group, one without a run, twice the same name or the same run, or a file that cannot be read.
    """
    if not groups:
        raise ValueError("there is no group: give at least one, with its name and its runs")
    names = [name for name, _ in groups]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise ValueError(f"two groups are called {twice[0]!r}: give each a name of its own, and all its runs at once")
    if not all(name.strip() for name in names):
        raise ValueError("a group has an empty name: give each a name, and its runs behind it")
    if empty := [name for name, paths in groups if not paths]:
        raise ValueError(f"the group {empty[0]!r} has no run: give at least one behind its name")
    found = [Group(name, tuple(_opened(name, paths))) for name, paths in groups]
    _check_runs_differ(run for group in found for run in group.runs)
    return found


def compare_groups(groups: Sequence[Trainings]) -> GroupComparison:
    """Put the means of groups side by side, and test the differences to the first of them (see `difference`).

    All tests of the table are corrected together: the probability of even one false finding is at most `ALPHA`.

    Args:
        groups: At least one, all trainings on the same documents; labels differ.

    Returns:
        The comparison; without differences for a single group.

    Raises:
        ValueError: No group, no group of several trainings, a training without layers or with other layers than the
            rest of its group, without standard errors, on other documents, or given twice.
    """
    firings = [firing for group in groups for firing in group.firings]
    if not firings or not all(firing.analyses for firing in firings):
        raise ValueError("a comparison takes at least one group of trainings, each with at least one layer")
    if len(firings) == len(groups):
        raise ValueError(
            "each group has one training, so nothing tells how far trainings scatter: give several to a group, or the "
            "runs without --group"
        )
    aligned = align_layers([list(firing.analyses) for firing in firings])
    _check_trainings_differ(firings)
    members = tuple(_by_group(names, groups) for names in aligned)
    for names in members:
        _check_layers(groups, names)
        _check_documents(groups, names)
    quantities = headline_quantities(layer for firing in firings for layer in firing.analyses.values())
    rows = [(names, _analyses(groups, names)) for names in members]
    entries = [
        _entry(quantity, groups, names, row, k)
        for quantity in quantities
        for names, row in rows
        for k in range(len(groups))
    ]
    return GroupComparison(
        firings=tuple(replace(group.firings[0], label=group.label) for group in groups),
        quantities=quantities,
        layers=tuple(tuple(own[0] for own in names) for names in members),
        entries=corrected(entries),
        groups=tuple(groups),
        members=members,
    )


def _opened(name: str, paths: Sequence[str | Path]) -> list[Run]:
    """The runs of a group, under its name and, of several, what tells them apart."""
    labels = [f"{name} {label}" for label in default_labels(paths)] if len(paths) > 1 else [name]
    return [Run(label, load(path)) for label, path in zip(labels, paths, strict=True)]


def _check_runs_differ(runs: Iterable[Run]) -> None:
    """Raise if results are given twice, be it under another path."""
    seen: set[Path] = set()
    for run in runs:
        files = {file.resolve() for file in run.results.files.values()}
        if files & seen:
            raise ValueError(f"{run.results.path} is given twice: every training counts once, in one group")
        seen |= files


def _check_trainings_differ(firings: Sequence[Firing]) -> None:
    """Raise if two runs have the very same values: a copy, or a training that was repeated with the same seed."""
    seen: dict[tuple[bytes, ...], str] = {}
    for firing in firings:
        sure = [layer.confidence for layer in firing.analyses.values()]
        values = tuple(found.values.double().numpy().tobytes() for found in sure if found is not None)
        if values and values in seen:
            raise ValueError(
                f"{seen[values]} and {firing.label} have the same values in every layer, so they are one training: "
                "give trainings of different seeds"
            )
        seen[values] = firing.label


def _by_group(names: Sequence[str], groups: Sequence[Trainings]) -> tuple[tuple[str, ...], ...]:
    """A name a training, put together by group."""
    rest = iter(names)
    return tuple(tuple(islice(rest, len(group.firings))) for group in groups)


def _analyses(groups: Sequence[Trainings], names: Sequence[Sequence[str]]) -> Row:
    return [
        [firing.analyses[name] for firing, name in zip(group.firings, own, strict=True) if name]
        for group, own in zip(groups, names, strict=True)
    ]


def _check_layers(groups: Sequence[Trainings], names: Sequence[Sequence[str]]) -> None:
    """Raise if some trainings of a group have a layer and others have not."""
    for group, own in zip(groups, names, strict=True):
        if any(own) and not all(own):
            there, here = group.firings[own.index(next(filter(None, own)))], group.firings[own.index("")]
            raise ValueError(
                f"{here.label} has no counterpart of {next(filter(None, own))} of {there.label}: give a group the "
                "trainings of one model, analysed in the same layers"
            )


def _check_documents(groups: Sequence[Trainings], names: Sequence[Sequence[str]]) -> None:
    """Raise if the analyses of a layer are not all of the same groups of documents."""
    present = [
        (firing, firing.analyses[name].confidence)
        for group, own in zip(groups, names, strict=True)
        for firing, name in zip(group.firings, own, strict=True)
        if name
    ]
    if unsure := [firing.label for firing, sure in present if sure is None]:
        raise ValueError(
            f"{unsure[0]} has no standard errors over documents, which groups take: analyse it with confidence=True "
            f"and at least {MIN_DOCUMENTS} documents, or give the runs without --group"
        )
    for (first, a), (other, b) in combinations(present, 2):
        if a is not None and b is not None and not is_paired(first, other, a, b):
            raise ValueError(
                f"{other.label} is not of the same documents, dealt into the same groups, as {first.label}: analyse "
                "all trainings on the same held-out documents, or give the runs without --group"
            )


def _entry(quantity: str, groups: Sequence[Trainings], names: Sequence[Sequence[str]], row: Row, k: int) -> Entry:
    """The cell of one group."""
    found = mean(quantity, row, k)
    return Entry(
        layer=next(name for own in names for name in own if name),
        quantity=quantity,
        run=groups[k].label,
        run_layer=names[k][0],
        value=found.value,
        stderr=found.stderr,
        change=difference(quantity, row, k),
        parts=Parts(found.documents, found.seeds),
        n_trainings=len(groups[k].firings),
    )
