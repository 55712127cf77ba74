"""What is shown of groups of trainings: tables, notes, curves, figures."""

import csv
import dataclasses
import io
import itertools
import math

import numpy as np
import pytest
import torch
from run_folders import LAYERS, write_run
from trainings_by_hand import SAME, by_hand, numbers, trainings

from scalepod.provenance import Provenance
from scalepod.reports.comparison import compare
from scalepod.reports.curves import group_curves
from scalepod.reports.group_notes import group_notes
from scalepod.reports.groups import compare_groups, open_groups
from scalepod.reports.pictures import group_figures
from scalepod.reports.runs import Firing
from scalepod.reports.tables import COLUMNS, blocks, csv_table, terminal_table


def test_csv_has_the_number_of_trainings_and_both_errors(comparison, models):
    rows = list(csv.DictReader(io.StringIO(csv_table(comparison))))
    assert tuple(rows[0]) == COLUMNS
    for row, entry in zip(rows, comparison.entries, strict=True):
        assert (row["run"], row["step"], row["n_trainings"]) == (entry.run, "10", str(entry.n_trainings))
        parts = {"": entry.parts, "difference_": entry.change.parts}
        for prefix, found in parts.items():
            for name, number in zip(("documents", "trainings"), found, strict=True):
                assert row[f"{prefix}stderr_{name}"] == ("" if math.isnan(number) else repr(number))
    assert {row["test"] for row in rows} == {"", "trainings"}
    single = compare([Firing("a", 0, models["single"][0], SAME), Firing("b", 0, models["gate"][0], SAME)])
    for row in csv.DictReader(io.StringIO(csv_table(single))):
        assert (row["n_trainings"], row["stderr_trainings"], row["difference_stderr_trainings"]) == ("1", "", "")
        assert row["stderr_documents"] == row["stderr"]
        assert row["difference_stderr_documents"] == row["difference_stderr"]


def test_a_group_is_a_column(comparison):
    block = blocks(comparison)[0]
    assert block.head == ("layer", "baseline", "gate", "− baseline", "single", "− baseline")
    assert block.rows[0][1] in terminal_table(comparison, [])


def test_notes_say_what_the_errors_hold(comparison, models):
    said = group_notes(comparison)
    assert f"*: differs from baseline, p <= 0.05 after Holm's correction for all {comparison.n_tests} comp" in said[0]
    assert "Tests: Student's t from the errors over documents, paired (the same documents), and over trainings." in said
    errors = next(note for note in said if note.startswith("Standard errors"))
    assert errors.endswith("(their scatter) together. Trainings: baseline 3, gate 2, single 1.")
    assert any(note.startswith("Trained once: single. The error over trainings is there") for note in said)
    assert any(note.startswith("Few trainings leave the tests few degrees of freedom") for note in said)
    assert any(note.startswith("Too few trainings: gate, single. By chance") for note in said)
    assert not any("do not hold what another seed" in note for note in said)
    assert not any("different steps" in note for note in said)
    three = compare_groups([trainings("alone", *models["baseline"], provenance=Provenance())])
    said = group_notes(three)
    assert three.n_tests == 0
    assert not any(note.startswith(("*", "Tests", "Trained once", "Too few")) for note in said)
    unknown = compare_groups([
        trainings("a", *models["baseline"], provenance=Provenance()), trainings("b", *models["gate"])
    ])  # fmt: skip
    assert any("paired (documents not on record, in groups of the same sizes)" in note for note in group_notes(unknown))


def test_notes_say_what_was_left_out(models):
    place = itertools.count(1)

    def at(lag, **changed):
        layer = models["baseline"][0][LAYERS[0]]
        own = dataclasses.replace(layer.confidence, values=layer.confidence.values + 1e-6 * next(place))
        changed |= {"dominant_lags": torch.tensor([lag]), "confidence": own}
        return {LAYERS[0]: dataclasses.replace(layer, **changed)}

    mixed = trainings("mixed", at(4.0), at(9.0))
    mixed = dataclasses.replace(mixed, firings=(mixed.firings[0], dataclasses.replace(mixed.firings[1], step=20)))
    found = compare_groups([
        trainings("first", at(4.0), at(4.5)), mixed, trainings("fits", *[at(4.0, fit_range=(1, 9)) for _ in "ab"])
    ])  # fmt: skip
    said = group_notes(found)
    peak = "(in some layers another peak of E(a) is the highest, of which the errors do not tell)"
    assert f"mixed: no mean over its trainings, dominant lag {peak}." in said
    assert not any(note.startswith("mixed: not compared, dominant lag") for note in said)
    assert any(note.startswith("fits: not compared, lag T_spec, field T_spec (another fit_range") for note in said)
    assert any("different steps: first 0 at 10, first 1 at 10, mixed 0 at 10, mixed 1 at 20" in note for note in said)
    assert found.steps == {"first": "10", "mixed": "10 20", "fits": "10"}
    entry = next(e for e in found.entries if (e.run, e.quantity) == ("mixed", "dominant_lag"))
    assert math.isnan(entry.value)
    nothing = compare_groups([trainings("first", at(4.0), at(4.5)), trainings("other", at(4.0, burn_in=2))])
    assert "other: no test, for want of common values." in group_notes(nothing)


@pytest.fixture(scope="module")
def groups(models, tmp_path_factory):
    """Trainings with firings at other steps each."""
    folder = tmp_path_factory.mktemp("groups")
    steps = {"baseline": [(0, 10, 20), (0, 20), (0, 10, 20)], "gate": [(0, 10), (0, 10)], "single": [(10, 15, 20)]}
    paths = {
        label: [
            write_run(folder / f"{label}_{k}", dict.fromkeys(each, models[label][k])) for k, each in enumerate(found)
        ]
        for label, found in steps.items()
    }
    return open_groups(list(paths.items()))


def test_groups_are_opened_under_names(groups):
    assert [[run.label for run in group.runs] for group in groups] == [
        ["baseline baseline_0", "baseline baseline_1", "baseline baseline_2"],
        ["gate gate_0", "gate gate_1"],
        ["single"],
    ]
    assert [group.steps for group in groups] == [[0, 20], [0, 10], [10, 15, 20]]
    assert [firing.step for firing in groups[0].at("last").firings] == [20, 20, 20]
    with pytest.raises(ValueError, match="baseline baseline_1 has no results of step 10, it has those of 0, 20"):
        groups[0].at(10)


def test_curves_are_means_at_common_steps(groups, comparison, models):
    curves = group_curves(groups, comparison, ["mean_lag", "lag_t_spec"])
    for layer, row in zip(LAYERS, curves, strict=True):
        for quantity, (baseline, gate, single) in zip(("mean_lag", "lag_t_spec"), row, strict=True):
            assert [curve.steps.tolist() for curve in (baseline, gate, single)] == [[0, 20], [0, 10], [10, 15, 20]]
            for label, curve in (("baseline", baseline), ("gate", gate)):
                value, documents, trained, _ = by_hand(models, {label: 1.0}, layer, quantity)
                assert curve.values == pytest.approx([value] * 2)
                assert curve.errors == pytest.approx([math.hypot(documents, trained)] * 2)
            assert single.values == pytest.approx([numbers(models["single"][0][layer], quantity)[0]] * 3)
            values = {label: [numbers(e[layer], quantity)[0] for e in models[label]] for label in ("baseline", "gate")}
            documents = models["single"][0][layer].confidence.stderrs()[quantity]
            of_gate, of_baseline = (np.std(values[label], ddof=1) for label in ("gate", "baseline"))
            expected = [math.hypot(documents, of_gate), math.nan, math.hypot(documents, of_baseline)]
            assert single.errors == pytest.approx(expected, nan_ok=True), "from the groups that have the step"


def test_figures_say_whose_they_are(groups):
    comparison = compare_groups([group.at("last") for group in groups])
    figures = group_figures(groups, comparison)
    assert list(figures) == ["scalograms", "lag_modes", "training"]
    written = {name: " ".join(text.get_text() for text in figure.texts) for name, figure in figures.items()}
    for name in ("scalograms", "lag_modes"):
        assert "first training of each group, at different steps" in written[name]
    assert "means of groups" in written["training"]
    assert "one line a group, the mean over its trainings" in " ".join(written["training"].split())
    panel = figures["scalograms"].axes[0].collections[0].get_array()
    assert np.allclose(panel, comparison.firings[0].analyses[LAYERS[0]].scalogram.numpy())
    assert "each group, at step 0" in " ".join(
        text.get_text() for text in group_figures(groups[:2], compare_groups([g.at(0) for g in groups[:2]]))[
            "scalograms"
        ].texts
    )  # fmt: skip
