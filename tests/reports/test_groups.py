"""Groups of trainings: means and errors equal plain loops, and what is no difference is seldom taken for one."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from run_folders import LAYERS, layers_of, write_run
from scipy.stats import t as student
from trainings_by_hand import SAME, by_hand, numbers, trainings

from scalepod.confidence.trainings import Sample, Spread, estimate
from scalepod.provenance import Provenance
from scalepod.reports.comparison import compare
from scalepod.reports.differences import incomparable
from scalepod.reports.group_notes import group_notes
from scalepod.reports.group_values import difference, mean, no_mean
from scalepod.reports.groups import compare_groups, open_groups
from scalepod.reports.runs import Firing
from scalepod.reports.significance import holm


def test_values_and_errors_are_those_of_plain_loops(comparison, models):
    checked = 0
    for entry in comparison.entries:
        if entry.quantity == "dominant_lag":
            continue
        value, documents, trained, _ = by_hand(models, {entry.run: 1.0}, entry.layer, entry.quantity)
        assert entry.value == pytest.approx(value)
        assert entry.parts == pytest.approx((documents, trained))
        assert entry.stderr == pytest.approx(math.sqrt(documents**2 + trained**2))
        assert entry.n_trainings == len(models[entry.run])
        checked += 1
    assert checked >= 3 * 2 * 8


def test_differences_are_those_of_plain_loops(comparison, models):
    checked = 0
    for entry in comparison.entries:
        if entry.quantity == "dominant_lag":
            continue
        if entry.run == "baseline":
            assert (entry.change.test, entry.change.significant) == ("", False)
            continue
        weights = {"baseline": -1.0, entry.run: 1.0}
        value, documents, trained, p_value = by_hand(models, weights, entry.layer, entry.quantity)
        assert entry.change.test == "trainings"
        assert entry.change.difference == pytest.approx(value)
        assert entry.change.parts == pytest.approx((documents, trained))
        assert entry.change.stderr == pytest.approx(math.sqrt(documents**2 + trained**2))
        assert entry.change.p_value == pytest.approx(p_value)
        checked += 1
    assert checked >= 2 * 2 * 8


def test_all_tests_are_corrected_together(comparison):
    p_values = torch.tensor([entry.change.p_value for entry in comparison.entries], dtype=torch.float64)
    adjusted = [entry.change.p_holm for entry in comparison.entries]
    assert adjusted == pytest.approx(holm(p_values).tolist(), nan_ok=True)
    assert comparison.n_tests == int(p_values.isfinite().sum()) >= 32


def test_documents_of_one_training_count_as_those_of_a_run(comparison, models):
    alone = compare([Firing("single", 10, models["single"][0], SAME)])
    of_group = {(e.layer, e.quantity): e for e in comparison.entries if e.run == "single"}
    for entry in alone.entries:
        assert of_group[entry.layer, entry.quantity].parts.documents == pytest.approx(entry.stderr, nan_ok=True)


def test_a_single_training_borrows_from_groups_in_which_the_value_means_the_same(models):
    """Another fit_range gives T_spec another scatter, so there is none to lend; the mean lag does not care."""
    other = [
        {name: dataclasses.replace(layer, fit_range=(1, 9)) for name, layer in each.items()} for each in models["gate"]
    ]
    row = [[each[LAYERS[0]] for each in found] for found in (models["single"], other, models["baseline"])]
    values = [numbers(layer, "lag_t_spec")[0] for layer in row[2]]
    assert mean("lag_t_spec", row, 0).seeds == pytest.approx(np.std(values, ddof=1))
    assert math.isnan(mean("lag_t_spec", row[:2], 0).seeds)
    assert mean("mean_lag", row[:2], 0).seeds > 0
    assert difference("lag_t_spec", row, 1).test == ""
    assert difference("lag_t_spec", row, 2).p_value > 0


def test_no_difference_is_seldom_taken_for_one(models):
    """Trainings that scatter about one value, on common documents: p-values below 0.05 come one time in 20."""
    template = models["baseline"][0][LAYERS[0]]
    k = template.confidence.quantities.index("mean_lag")
    rng = np.random.default_rng(0)

    def training(common):
        """One value with the documents' share that all trainings have in common, and one of its own."""
        groups = common + 0.2 * rng.standard_normal(8)
        value = 10 + 0.5 * rng.standard_normal() + groups.mean()
        values, replicates = template.confidence.values.clone(), template.confidence.replicates.clone()
        values[k] = value
        replicates[k] = torch.from_numpy(value + (groups.mean() - groups) / 7)
        sure = dataclasses.replace(
            template.confidence, values=values, replicates=replicates, group_sizes=torch.full((8,), 3)
        )
        return dataclasses.replace(template, confidence=sure)

    p_values, of_runs = [], []
    for _ in range(200):
        common = rng.standard_normal(8)
        row = [[training(common) for _ in range(3)] for _ in range(2)]
        p_values.append(difference("mean_lag", row, 1).p_value)
        of_runs.append(float(row[0][0].confidence.changes(row[1][0].confidence)["mean_lag"].p_value))
    assert 0.005 <= np.mean(np.array(p_values) < 0.05) <= 0.1
    assert 0.35 < np.mean(p_values) < 0.65
    assert np.mean(np.array(of_runs) < 0.05) > 0.5, "which errors over documents alone would call different"


def test_p_values_are_two_sided():
    several = Sample(np.array([1.0, 2.0, 3.0]), np.ones((3, 8)) * [[1.0], [2.0], [3.0]])
    found = estimate([(1.0, several)], Spread(math.nan, 0))
    assert found.p_value == pytest.approx(2 * student.sf(2 / math.sqrt(1 / 3), 2))
    assert estimate([(-1.0, several)], Spread(math.nan, 0)).p_value == found.p_value
    low, high = found.interval(1 - found.p_value)
    assert (low, high) == (pytest.approx(0, abs=1e-9), pytest.approx(4))


def test_a_mean_takes_the_value_in_every_training_and_at_one_peak(models):
    def peak(lag):
        layer = models["baseline"][0][LAYERS[0]]
        return dataclasses.replace(layer, dominant_lags=torch.tensor([lag] if lag else []))

    near = [peak(5.0), peak(5.5)]
    assert no_mean("dominant_lag", near) == ""
    apart = [peak(5.0), peak(6.5), peak(8.0)]
    assert incomparable("dominant_lag", *apart[:2]) == incomparable("dominant_lag", *apart[1:]) == ""
    assert "another peak of E(a) is the highest" in no_mean("dominant_lag", apart), "first and last"
    layer = models["baseline"][0][LAYERS[0]]
    without = dataclasses.replace(
        layer, confidence=dataclasses.replace(layer.confidence, quantities=("?",) * len(layer.confidence.quantities))
    )
    assert no_mean("mean_lag", [layer, without]) == "in some layers undefined in some of the trainings"
    assert no_mean("mean_lag", [without, without]) == ""
    for layers in (apart, [layer, without], [without, without]):
        quantity = "dominant_lag" if layers is apart else "mean_lag"
        assert math.isnan(mean(quantity, [layers, near], 0).value)
        assert difference(quantity, [near, layers], 1).test == ""
        assert math.isfinite(mean(quantity, [layers, near], 1).stderr), "it does not spoil the others"


def test_layers_stand_beside_each_other_by_order(models):
    renamed = [dict(zip(("01_x", "02_y"), each.values(), strict=True)) for each in models["gate"]]
    found = compare_groups([trainings("baseline", *models["baseline"]), trainings("gate", *renamed)])
    assert found.layers == ((LAYERS[0], "01_x"), (LAYERS[1], "02_y"))
    assert found.members[0] == ((LAYERS[0],) * 3, ("01_x",) * 2)
    assert found.rows[1][1] == [each["02_y"] for each in renamed]
    assert any("The layers of gate have other names" in note for note in group_notes(found))
    only = [{"03_z": each[LAYERS[0]]} for each in models["gate"]]
    found = compare_groups([
        trainings("baseline", *models["baseline"]),
        trainings("gate", *[each | more for each, more in zip(models["gate"], only, strict=True)]),
    ])  # fmt: skip
    assert found.layers[2] == ("", "03_z")
    assert {e.value > 0 for e in found.entries if (e.layer, e.quantity) == ("03_z", "mean_lag")} == {True, False}


def test_mistakes_are_named(models, tmp_path):
    baseline = trainings("baseline", *models["baseline"])
    with pytest.raises(ValueError, match="at least one group of trainings, each with at least one layer"):
        compare_groups([])
    with pytest.raises(ValueError, match="each group has one training, so nothing tells how far trainings scatter"):
        compare_groups([trainings("one", *models["single"]), trainings("two", *models["single"])])
    half = {LAYERS[0]: models["gate"][1][LAYERS[0]]}
    with pytest.raises(ValueError, match=r"gate 1 has no counterpart of 02_model.h.1.attn of gate 0: give a group the"):
        compare_groups([baseline, trainings("gate", models["gate"][0], half)])
    elsewhere = trainings("gate", *models["gate"], provenance=Provenance(data_sha256="b"))
    with pytest.raises(
        ValueError, match="gate 0 is not of the same documents, dealt into the same groups, as baseline"
    ):
        compare_groups([baseline, elsewhere])
    fewer = layers_of(1.0, n_snapshots=24)
    with pytest.raises(
        ValueError, match="gate 1 is not of the same documents, dealt into the same groups, as baseline"
    ):
        compare_groups([baseline, trainings("gate", models["gate"][0], fewer)])
    unsure = layers_of(1.0, n_snapshots=6)
    with pytest.raises(ValueError, match="gate 1 has no standard errors over documents, which groups take"):
        compare_groups([baseline, trainings("gate", models["gate"][0], unsure)])
    twice = trainings("gate", models["gate"][0], models["gate"][0])
    with pytest.raises(ValueError, match="gate 0 and gate 1 have the same values in every layer, so they are one"):
        compare_groups([baseline, twice])
    run = write_run(tmp_path / "run", {0: fewer})
    with pytest.raises(ValueError, match="there is no group: give at least one"):
        open_groups([])
    with pytest.raises(ValueError, match="two groups are called 'x': give each a name of its own"):
        open_groups([("x", [run]), ("x", [run])])
    with pytest.raises(ValueError, match="a group has an empty name: give each a name, and its runs behind it"):
        open_groups([(" ", [run])])
    with pytest.raises(ValueError, match="the group 'y' has no run: give at least one behind its name"):
        open_groups([("x", [run]), ("y", [])])
    for again in (run, tmp_path / "." / "run", run / "scalepod_results"):
        for groups in ([("x", [run, again])], [("x", [run]), ("y", [again])]):
            with pytest.raises(ValueError, match="is given twice: every training counts once, in one group"):
                open_groups(groups)
