"""What is known of each training: what the callback wrote at every firing, and what its last checkpoint shows.

Measuring a checkpoint takes a minute or more, so the numbers are kept beside it and taken from there as long as the
checkpoint is the same.
"""

import hashlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from pydoc import locate
from typing import Any

import losses
import measures
import numpy as np
import published
import torch
from torch import Tensor, nn
from trainings import Training, checkpoint_of, complete_run

from scalepod import load
from scalepod._files import atomic_write
from scalepod.callbacks.documents import held_out_batches
from scalepod.capture import capture_attention
from scalepod.checkpoint import classes_of, read_checkpoint
from scalepod.confidence.groups import N_GROUPS
from scalepod.confidence.jackknife import standard_error
from scalepod.confidence.trainings import Array, Estimate, Sample, estimate, pooled
from scalepod.provenance import checksum, document_digests
from scalepod.results import Results

LIVE = (
    *("mean_lag", "band_fine", "band_medium", "band_coarse"),
    *("t_spec", "lag_t_spec", "h_star_0.10", "lag_h_star_0.10"),
)
"""Values of the callback that are followed over training."""

VERSION = 2
"""Of the numbers kept beside a checkpoint: another one makes them be measured again."""
STEPWISE = 32  # documents predicted left to right
HEADS_EVERY = 6  # documents of which the single heads are kept, as the callback does

Weights = Mapping[int, float]
"""Weight of each layer, counted from 1, in a value; {1: 1.0} for what is of the whole model."""


@dataclass(frozen=True)
class Run:
    """One training. Layers are in the order of the calls, G groups of documents."""

    training: Training
    results: Results
    """What the callback wrote."""
    history: Mapping[str, Array]
    """Values of `LIVE` at every firing, [F, layers, 1 + G]: of all documents, then without each group."""
    numbers: Mapping[str, Array]
    """Values after the last step, [layers, 1 + G], or [1, 1 + G] of the whole model."""
    profiles: Array
    """Energy of the leading field modes at each lag, as shares, [layers, T]."""


@dataclass(frozen=True)
class Study:
    """All runs, and estimates from them."""

    runs: tuple[Run, ...]

    def of(self, model: str) -> list[Run]:
        """The runs of a model, one a seed."""
        return [run for run in self.runs if run.training.model == model]

    def level(self, model: str, quantity: str, layers: Weights) -> Estimate:
        """A value of a model after the last step, summed over layers with weights."""
        return self._estimate({model: 1.0}, quantity, layers)

    def change(self, first: str, second: str, quantity: str, layers: Weights) -> Estimate:
        """The value of the second model less that of the first."""
        return self._estimate({first: -1.0, second: 1.0}, quantity, layers)

    def scatter(self, model: str, quantity: str, layer: int) -> float:
        """How much a value differs between trainings of a model, in units of the error over documents that one has.

        Returns:
            Standard deviation over trainings, over the root mean square of their standard errors over documents; NaN
            with a single training.
        """
        sample = _sample([run.numbers[quantity][layer - 1] for run in self.of(model)])
        documents = standard_error(torch.from_numpy(sample.replicates))
        return pooled([sample]).deviation / float(documents.square().mean().sqrt())

    def at_step(self, model: str, quantity: str, step: int, layer: int) -> Estimate:
        """A value of `LIVE` at a firing."""
        return self.between(model, quantity, None, step, layer)

    def between(self, model: str, quantity: str, earlier: int | None, later: int, layer: int) -> Estimate:
        """Change of a value of `LIVE` from an earlier firing (None for nothing) to a later one."""

        def sample(name: str) -> Sample:
            found = [_at(run, quantity, later) - (0.0 if earlier is None else _at(run, quantity, earlier))
                     for run in self.of(name)]  # fmt: skip
            return _sample([rows[layer - 1] for rows in found])

        return estimate([(1.0, sample(model))], pooled(map(sample, self.models)))

    @property
    def models(self) -> list[str]:
        """Models with at least one run, in the order of the runs."""
        return list(dict.fromkeys(run.training.model for run in self.runs))

    def _estimate(self, models: Mapping[str, float], quantity: str, layers: Weights) -> Estimate:
        """A weighted sum over models of a weighted sum over layers."""

        def sample(model: str) -> Sample:
            found = [run.numbers[quantity] for run in self.of(model)]
            return _sample([np.sum([weight * rows[layer - 1] for layer, weight in layers.items()], axis=0)
                            for rows in found])  # fmt: skip

        return estimate([(weight, sample(model)) for model, weight in models.items()], pooled(map(sample, self.models)))


def observe(runs: Path, trainings: Sequence[Training], text: Path | None) -> Study:
    """Read, and measure where that was not done yet, the complete runs among some trainings.

    Args:
        runs: Folder of the study.
        trainings: Which to look for.
        text: The text, where it lies elsewhere than at the training.

    Raises:
        ValueError: Results cannot be read or have no confidence, are of other steps than those of the first run, or the
            text is not that of the training.
    """
    found = []
    for training in trainings:
        folder = complete_run(runs, training)
        if folder is None:
            print(f"not complete, left out: {training.name}", file=sys.stderr)
            continue
        found.append(_observed(training, folder, text))
    for run in found[1:]:
        if run.results.steps != found[0].results.steps:
            raise ValueError(
                f"{run.training.name} was analysed at steps {run.results.steps}, {found[0].training.name} at "
                f"{found[0].results.steps}: train it anew, with the configurations of the study"
            )
    return Study(tuple(found))


def conventions(run: Run, text: Path | None) -> dict[str, Array]:
    """What the published code computes of a run's last attention, and of its diagonal alone.

    Returns:
        [layers] each: `t_spec`, `h_star`, and the four `scales` [layers, 4], with `diagonal_` before them for the maps
        in which everything off the diagonal is 0; `weight`, the attention that lies off the diagonal.
    """

    def compute() -> dict[str, Array]:
        model, tokens = _opened(run.results.path, text, run.results)
        rows = [_published(attn.double().numpy()) for attn in _maps(model, tokens).values()]
        return {name: np.array([row[name] for row in rows]) for name in rows[0]}

    return _kept(run.results.path, "study_conventions.npz", compute)


def _published(attn: Array) -> dict[str, Any]:
    """The published analysis of one layer's maps [N, T, T]."""
    row: dict[str, Any] = {"weight": 1 - np.trace(attn, axis1=1, axis2=2).mean() / attn.shape[1]}
    for prefix, maps in (("", attn), ("diagonal_", published.diagonal_alone(attn))):
        found = published.analyse(maps)
        row |= {f"{prefix}t_spec": found.t_spec, f"{prefix}h_star": found.h_star[0]}
        row[f"{prefix}scales"] = published.SCALES[found.dominant_index]
    return row


def _observed(training: Training, folder: Path, text: Path | None) -> Run:
    results = load(folder)
    history = _history(results)
    measured = _kept(folder, "study_measures.npz", lambda: _measured(folder, results, text))
    profiles = measured.pop("profiles")
    return Run(training, results, history, {name: rows[-1] for name, rows in history.items()} | measured, profiles)


def _history(results: Results) -> dict[str, Array]:
    """Values of all documents and without each group, [F, layers, 1 + G] by name."""
    rows: dict[str, list[list[Array]]] = {name: [[] for _ in results.steps] for name in LIVE}
    for place, step in enumerate(results.steps):
        for analysis in results.analyses[step].values():
            sure = analysis.confidence
            if sure is None:
                raise ValueError(f"the results in {results.path} have no confidence: train with confidence=true")
            for name in LIVE:
                k = sure.quantities.index(name)
                rows[name][place].append(np.append(sure.values[k].double(), sure.replicates[k].double()))
    return {name: np.array(found) for name, found in rows.items()}


def _measured(folder: Path, results: Results, text: Path | None) -> dict[str, Array]:
    """Everything that is measured of a checkpoint."""
    print(f"measuring {folder}", file=sys.stderr)
    model, documents = _opened(folder, text, results)
    maps = _maps(model, documents)
    rows = [measures.with_replicates(measures.of_maps, attn) for attn in maps.values()]
    found = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    found["profiles"] = np.stack([measures.leading_profile(attn) for attn in maps.values()])
    bases = [measures.reconstruction(attn) for attn in maps.values()]
    for name in measures.Reconstruction._fields:  # the same of any documents: an identity
        found[f"left_{name}"] = np.array([[getattr(basis, name)] for basis in bases]).repeat(1 + N_GROUPS, 1)
    del maps
    return found | _heads(model, documents[::HEADS_EVERY]) | _losses(model, documents, folder, text)


def _heads(model: nn.Module, documents: Tensor) -> dict[str, Array]:
    """Distinct heads of every layer, [layers, 1 + G]."""
    by_layer: dict[str, list[Tensor]] = {}
    for name, maps in _maps(model, documents, heads="each").items():
        by_layer.setdefault(name.rpartition("/")[0], []).append(maps)
    rows = [measures.with_replicates(measures.distinct_heads, torch.stack(maps, 1)) for maps in by_layer.values()]
    return {"distinct_heads": np.stack([row["distinct_heads"] for row in rows])}


def _losses(model: nn.Module, documents: Tensor, folder: Path, text: Path | None) -> dict[str, Array]:
    """Losses of the whole held-out text in one pass, and of some documents both ways, [1, 1 + G]."""
    whole = _documents(_data(folder, text), None)
    some = documents[torch.linspace(0, len(documents) - 1, STEPWISE).round().long()]
    found = {
        "loss": losses.in_one_pass(model, whole),
        "loss_one_pass": losses.in_one_pass(model, some, losses.EVERY),
        "loss_left_to_right": losses.left_to_right(model, some),
    }
    found["loss_gap"] = found["loss_left_to_right"] - found["loss_one_pass"]
    return {name: np.array([[float(each[part].mean()) for part in measures.parts_of(len(each))]])
            for name, each in found.items()}  # fmt: skip


def _opened(folder: Path, text: Path | None, results: Results) -> tuple[nn.Module, Tensor]:
    """The model of the last checkpoint, and the documents that the callback looked at, tokens [N, T + 1].

    Raises:
        ValueError: The text is not that of the training.
    """
    path = checkpoint_of(folder)
    kind: Any = locate(classes_of(read_checkpoint(path))["model"]["class_path"])
    model: nn.Module = kind.load_from_checkpoint(path, map_location="cpu").eval()
    tokens = _documents(_data(folder, text), results.header.provenance.n_documents)
    digests = document_digests([tokens[:, :-1], tokens[:, 1:]], len(tokens), len(tokens))
    if checksum(digests) != results.header.provenance.data_sha256:
        raise ValueError(f"the held-out documents are not those of the training in {folder}: give its text with --path")
    return model, tokens


def _data(folder: Path, text: Path | None) -> Any:
    """The data module of a run."""
    found = classes_of(read_checkpoint(checkpoint_of(folder)))["data"]
    kind: Any = locate(found["class_path"])
    data = kind(**(found["init_args"] | ({"path": str(text)} if text else {})))
    data.prepare_data()
    data.setup("fit")
    return data


def _documents(data: Any, n: int | None) -> Tensor:
    """Held-out documents as the callback chooses them, tokens [n, T + 1]; None for all there are."""
    loader = data.val_dataloader()
    batches = [given.batch for given in held_out_batches(loader, n or len(loader.dataset))]
    return torch.cat([torch.cat([x, y[:, -1:]], 1) for x, y in batches])


@torch.no_grad()
def _maps(model: nn.Module, documents: Tensor, **options: Any) -> dict[str, Tensor]:
    """Attention of every layer on the documents, [N, T, T]."""
    with capture_attention(model, batch_size=len(documents), **options) as record:
        model(documents[:, :-1])
    return record.result()


def _kept(folder: Path, name: str, compute: Callable[[], dict[str, Array]]) -> dict[str, Array]:
    """Numbers kept beside the checkpoint that they are of, or computed."""
    weights = hashlib.sha256(checkpoint_of(folder).read_bytes()).hexdigest()
    key = np.array(f"{VERSION} {weights}")
    file = folder / name
    if file.is_file():
        with np.load(file) as kept:
            if str(kept["key"]) == str(key):
                return {name: kept[name] for name in kept.files if name != "key"}
    found = compute()
    with atomic_write(file) as stream:
        arrays: dict[str, Any] = {"key": key, **found}
        np.savez_compressed(stream, **arrays)
    return found


def _at(run: Run, quantity: str, step: int) -> Array:
    """Values at a step, [layers, 1 + G]."""
    found: Array = run.history[quantity][run.results.steps.index(step)]
    return found


def _sample(rows: Sequence[Array]) -> Sample:
    """Values of trainings, [1 + G] each."""
    if not rows:
        return Sample(np.empty(0), np.empty((0, 0)))
    stacked = np.stack(rows)
    return Sample(stacked[:, 0], stacked[:, 1:])
