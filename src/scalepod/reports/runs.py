"""Runs under the names they go by, and one firing of each to be looked at side by side."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..analysis import LayerAnalysis
from ..figures.names import short_names
from ..provenance import Provenance
from ..results import Results, load

_NAMELESS_BUT_VERSION = re.compile(r"/|\.\.?|scalepod_results|analysis\.npz")
_NAMELESS = re.compile(rf"{_NAMELESS_BUT_VERSION.pattern}|version_\d+")


@dataclass(frozen=True)
class Run:
    """Results under the name that tables and figures give them."""

    label: str
    """The name."""
    results: Results
    """All firings."""

    def at(self, step: int | Literal["last"]) -> "Firing":
        """The firing at a step, its analyses read from the file.

        Raises:
            ValueError: The run has no such step.
        """
        steps = self.results.steps
        found = steps[-1] if step == "last" else step
        if found not in steps:
            raise ValueError(f"{self.label} has no results of step {found}, it has those of {_listed(steps)}")
        provenance = self.results.headers[found].provenance
        return Firing(self.label, found, dict(self.results.analyses[found]), provenance)


@dataclass(frozen=True)
class Firing:
    """All layers of a run at one step."""

    label: str
    """Name of the run."""
    step: int
    """Optimizer steps taken."""
    analyses: Mapping[str, LayerAnalysis]
    """Analyses by layer name, in the order of the calls."""
    provenance: Provenance = Provenance()  # noqa: RUF009 - frozen, so that one serves all
    """Model, data and options, as far as they are known."""


def open_runs(paths: Sequence[str | Path], labels: Sequence[str] | None = None) -> list[Run]:
    """Load runs and name them.

    Args:
        paths: Run folders or files of results, in any mix (see `scalepod.load`).
        labels: Names of the runs; by default the shortest ends of their paths that differ.

    Returns:
        The runs, in the order given.

    Raises:
        FileNotFoundError: There are no results at a path.
        ValueError: No path, a file that cannot be read, labels of another number, or twice the same label.
    """
    if not paths:
        raise ValueError("there is no run: give at least one folder or file")
    if labels is not None and len(labels) != len(paths):
        raise ValueError(f"each run takes one label: got {len(labels)} labels for {len(paths)} runs")
    names = default_labels(paths) if labels is None else list(labels)
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise ValueError(f"two runs are called {twice[0]!r}: give a label of its own to each with --labels")
    return [Run(name, load(path)) for name, path in zip(names, paths, strict=True)]


def layer_names(layers: Iterable[str]) -> dict[str, str]:
    """What layers are called where people read of them: short, but for names that would then be the same.

    Args:
        layers: Names as they are logged.

    Returns:
        The short names, by name.

    Example:
        >>> layer_names(["01_model.h.0.attn", "02_model.h.1.attn"])
        {'01_model.h.0.attn': '01 h.0', '02_model.h.1.attn': '02 h.1'}
    """
    names = list(layers)
    short = short_names(names)
    return dict(zip(names, short if len(set(short)) == len(names) else names, strict=True))


def default_labels(paths: Sequence[str | Path]) -> list[str]:
    """The shortest ends of the paths that tell the runs apart.

    Names that say nothing of a run are left out, and ``version_0`` and so on where the runs differ in more than that.

    Example:
        >>> default_labels(["runs/baseline/version_0", "runs/ega/version_3", "out/ega/analysis.npz"])
        ['runs/baseline', 'runs/ega', 'out/ega']
        >>> default_labels(["runs/ega/version_0", "runs/ega/version_1"])
        ['version_0', 'version_1']
    """
    for nameless in (_NAMELESS, _NAMELESS_BUT_VERSION):
        parts = [[part for part in Path(path).parts if not nameless.fullmatch(part)] or [str(path)] for path in paths]
        for length in range(1, max(map(len, parts)) + 1):
            labels = ["/".join(part[-length:]) for part in parts]
            if len(set(labels)) == len(labels):
                return labels
    return labels


def _listed(steps: Sequence[int], most: int = 12) -> str:
    """Steps in words, of many the first and the last ones."""
    if len(steps) <= most:
        return ", ".join(map(str, steps))
    return f"{', '.join(map(str, steps[: most // 2]))}, ..., {', '.join(map(str, steps[-2:]))}"
