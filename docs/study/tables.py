"""The numbers of the study as tables: CSV files that are kept, and Markdown for the page."""

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from claims import ALL, MODEL, Claim
from observed import LIVE, Study
from verdicts import outcome, range_of, shown, verdict

from scalepod.analysis import LayerAnalysis
from scalepod.confidence.trainings import Array, Estimate

Row = dict[str, object]

MEASURED = (
    *("share_to_7", "share_from_20", "attention_share_to_7", "attention_share_from_20"),
    *("log_scalogram", "log_scalogram_fluctuation"),
    *("leading_share", "lag_leading_share", "mode_peak", "mode_peaks"),
    *("bands_of_energy", "bands_of_modes", "bands_lost_by_windows", "distinct_heads"),
)
"""Values of a layer that are measured of the checkpoint, beside those of the callback."""

LOSSES = ("loss", "loss_one_pass", "loss_left_to_right", "loss_gap")


def claim_rows(claims: Sequence[Claim]) -> list[Row]:
    """A row a check, with its verdict."""
    return [
        {
            "claim": number,
            "reading": reading.name,
            "check": check.name,
            **_cells("", check.found),
            "low": check.low,
            "high": check.high,
            "inside": str(check.inside).lower(),
            "passes": outcome(check, len(reading.checks)),
            "verdict": verdict(reading.checks),
        }
        for number, claim in enumerate(claims, 1)
        for reading in claim.readings
        for check in reading.checks
    ]


def layer_rows(study: Study) -> list[Row]:
    """A row a model and layer after the last step: every value with both errors."""
    return [
        {"model": model, "layer": layer}
        | {
            key: cell
            for name in (*LIVE, *MEASURED)
            for key, cell in _cells(name, study.level(model, name, {layer: 1.0})).items()
        }
        for model in study.models
        for layer in ALL
    ]


def training_rows(study: Study) -> list[Row]:
    """A row a model, firing and layer: the values of the callback with both errors."""
    return [
        {"model": model, "step": step, "layer": layer}
        | {key: cell for name in LIVE for key, cell in _cells(name, study.at_step(model, name, step, layer)).items()}
        for model in study.models
        for step in study.of(model)[0].results.steps
        for layer in ALL
    ]


def loss_rows(study: Study) -> list[Row]:
    """A row a model: losses in nats a character, and the first one less that of the baseline."""
    rows: list[Row] = []
    for model in study.models:
        row: Row = {"model": model, "trainings": len(study.of(model))}
        for name in LOSSES:
            row |= _cells(name, study.level(model, name, MODEL))
        if model != "baseline" and "baseline" in study.models:
            for name in ("loss", "loss_left_to_right"):
                row |= _cells(f"{name}_change", study.change("baseline", model, name, MODEL))
        rows.append(row)
    return rows


def convention_rows(found: Mapping[str, Array], ours: Iterable[LayerAnalysis]) -> list[Row]:
    """A row a layer: what the published code computes, the same of the diagonal alone, and what scalepod computes."""
    return [
        {
            "layer": k + 1,
            "weight_off_diagonal": float(found["weight"][k]),
            "published_t_spec": float(found["t_spec"][k]),
            "diagonal_t_spec": float(found["diagonal_t_spec"][k]),
            "published_h_star": int(found["h_star"][k]),
            "diagonal_h_star": int(found["diagonal_h_star"][k]),
            "published_scales": _lags(found["scales"][k].tolist()),
            "diagonal_scales": _lags(found["diagonal_scales"][k].tolist()),
            "field_t_spec": analysis.t_spec,
            "field_h_star": analysis.h_star[0.10],
            "lag_t_spec": analysis.lag_t_spec,
            "lag_h_star": analysis.lag_h_star[0.10],
            "dominant_lags": _lags(analysis.dominant_lags.tolist()),
        }
        for k, analysis in enumerate(ours)
    ]


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """Write rows, numbers to six digits; what is not known is empty."""
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: _plain(cell) for name, cell in row.items()} for row in rows)


def markdown(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table; numbers that are no text yet to three digits."""
    lines = [head, ["---"] * len(head), *([_short(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def check_table(claim: Claim) -> str:
    """The checks of a claim: value, required range, whether it passes."""
    rows = [
        (
            reading.name if place == 0 else "",
            *(check.name, shown(check.found), range_of(check), outcome(check, len(reading.checks))),
        )
        for reading in claim.readings
        for place, check in enumerate(reading.checks)
    ]
    return markdown(("read as", "value", "measured", "claimed", "passes"), rows)


def summary_table(claims: Sequence[Claim]) -> str:
    """The verdict on every reading of every claim."""
    rows = [
        (f"{number}. {claim.title}" if place == 0 else "", reading.name, f"**{verdict(reading.checks)}**")
        for number, claim in enumerate(claims, 1)
        for place, reading in enumerate(claim.readings)
    ]
    return markdown(("claim", "read as", "verdict"), rows)


def layer_table(study: Study, model: str, names: Mapping[str, str]) -> str:
    """Values of a model after the last step, a row a layer.

    Args:
        study: The study.
        model: The model.
        names: Heads of the columns by value.
    """
    rows = [(layer, *(shown(study.level(model, name, {layer: 1.0})) for name in names)) for layer in ALL]
    return markdown(("layer", *names.values()), rows)


def training_table(study: Study, model: str, name: str) -> str:
    """A value at every firing, a row a layer, and its change over the second half of the training."""
    steps = study.of(model)[0].results.steps
    half = min(steps, key=lambda step: abs(step - steps[-1] / 2))
    rows = [
        (
            layer,
            *(shown(study.at_step(model, name, step, layer)) for step in steps),
            shown(study.between(model, name, half, steps[-1], layer)),
        )
        for layer in ALL
    ]
    return markdown(("layer", *map(str, steps), f"change since {half}"), rows)


def loss_table(study: Study) -> str:
    """Losses of every model, and their changes against the baseline."""
    rows = []
    for model in study.models:
        cells = [shown(study.level(model, name, MODEL)) for name in LOSSES[:3]]
        changes = ["", ""]
        if model != "baseline" and "baseline" in study.models:
            changes = [shown(study.change("baseline", model, name, MODEL)) for name in ("loss", LOSSES[2])]
        rows.append((model, len(study.of(model)), *cells, *changes))
    head = ("model", "trainings", "whole text, one pass", "32 documents, one pass", "left to right",
            "against the baseline, one pass", "left to right")  # fmt: skip
    return markdown(head, rows)


def scatter_table(study: Study, names: Mapping[str, str]) -> str:
    """Standard deviation over the trainings of the baseline in units of a training's standard error over documents.

    Args:
        study: The study.
        names: Heads of the rows by value.
    """
    if len(study.of("baseline")) < 2:
        return "This takes several trainings of the baseline."
    rows = [(words, *(f"{study.scatter('baseline', name, k):.2g}" for k in ALL)) for name, words in names.items()]
    return markdown(("value", *(f"layer {k}" for k in ALL)), rows)


def convention_table(rows: Sequence[Row]) -> str:
    """The published numbers, and the same of the diagonal alone, beside scalepod's."""
    names = {
        "layer": "layer",
        "weight_off_diagonal": "attention off the diagonal",
        "published_t_spec": "published T_spec",
        "diagonal_t_spec": "of the diagonal",
        "published_h_star": "published H*",
        "diagonal_h_star": "of the diagonal",
        "published_scales": "published scales",
        "field_t_spec": "field T_spec",
        "field_h_star": "field H*",
        "lag_t_spec": "lag T_spec",
        "lag_h_star": "lag H*",
        "dominant_lags": "dominant lags",
    }
    return markdown(tuple(names.values()), [[row[name] for name in names] for row in rows])


def _cells(name: str, found: Estimate) -> Row:
    """A value and its errors, under names that begin with its own."""
    prefix = f"{name}_" if name else ""
    return {name or "value": found.value, f"{prefix}se_documents": found.documents, f"{prefix}se_seeds": found.seeds}


def _plain(cell: object) -> object:
    if isinstance(cell, float):
        return "" if math.isnan(cell) else f"{cell:.6g}"
    return cell


def _short(cell: object) -> object:
    return f"{cell:.3g}" if isinstance(cell, float) else cell


def _lags(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.3g}" for value in values) or "none"
