"""Groups of trainings: means and errors equal plain loops, and what is no difference is seldom taken for one."""

import csv
import dataclasses
import io
import math

import numpy as np
import pytest
import torch
from run_folders import LAYERS, layers_of, write_run
from scipy.stats import t as student

from scalepod.confidence.trainings import Sample, Spread, estimate
from scalepod.provenance import Provenance
from scalepod.reports.comparison import compare
from scalepod.reports.curves import group_curves
from scalepod.reports.differences import incomparable
from scalepod.reports.group_notes import group_notes
from scalepod.reports.group_values import difference, mean, no_mean
from scalepod.reports.groups import Trainings, compare_groups, open_groups
from scalepod.reports.pictures import group_figures
from scalepod.reports.runs import Firing
from scalepod.reports.significance import holm
from scalepod.reports.tables import COLUMNS, blocks, csv_table, terminal_table

SAME = Provenance(data_sha256="a")
N_SNAPSHOTS = 26  # groups of documents of 3 and of 4


def trainings(label, *analyses, step=10, provenance=SAME):
    firings = [Firing(f"{label} {k}", step, layers, provenance) for k, layers in enumerate(analyses)]
    return Trainings(label, tuple(firings))


@pytest.fixture(scope="module")
def models():
    """Analyses of trainings: the seed of the attention stands for that of the training, on documents of one name."""
    sharpness = {"baseline": (0.5, 0.6, 0.65), "gate": (1.5, 1.3), "single": (0.9,)}
    return {
        label: [layers_of(sharp, seed=k, n_snapshots=N_SNAPSHOTS) for k, sharp in enumerate(found)]
        for label, found in sharpness.items()
    }


@pytest.fixture(scope="module")
def comparison(models):
    return compare_groups([trainings(label, *found) for label, found in models.items()])


def numbers(layer, quantity):
    """A value of all documents, and without each group."""
    k = layer.confidence.quantities.index(quantity)
    return float(layer.confidence.values[k]), [float(value) for value in layer.confidence.replicates[k]]


def jackknife(replicates, sizes):
    n, n_groups = sum(sizes), len(sizes)
    centre = sum((1 - size / n) * value for size, value in zip(sizes, replicates, strict=True)) / (n_groups - 1)
    squares = [(n / size - 1) * (value - centre) ** 2 for size, value in zip(sizes, replicates, strict=True)]
    return math.sqrt(sum(squares) / n_groups)


def by_hand(models, weights, layer, quantity):
    """Value, errors over documents and trainings, and p-value of a weighted sum of models, in plain loops."""
    found = {label: [numbers(each[layer], quantity) for each in all_of] for label, all_of in models.items()}
    sizes = models["baseline"][0][layer].confidence.group_sizes.tolist()
    assert len(set(sizes)) == 2
    means = {label: sum(value for value, _ in rows) / len(rows) for label, rows in found.items()}
    squares = {label: sum((value - means[label]) ** 2 for value, _ in rows) for label, rows in found.items()}
    value = sum(weight * means[label] for label, weight in weights.items())
    replicates = [
        sum(weight * sum(row[1][g] for row in found[label]) / len(found[label]) for label, weight in weights.items())
        for g in range(len(sizes))
    ]
    documents = jackknife(replicates, sizes)
    shares, alone = [], False
    for label, weight in weights.items():
        n = len(found[label])
        if n > 1:
            variance, freedom = squares[label] / (n - 1), n - 1
        else:
            several = [other for other in found if len(found[other]) > 1]
            freedom = sum(len(found[other]) - 1 for other in several)
            variance, alone = sum(squares[other] for other in several) / freedom, True
        shares.append((weight**2 * variance / n, freedom))
    trained = math.sqrt(sum(share for share, _ in shares))
    if alone:
        slack = sum(share / math.sqrt(freedom) for share, freedom in shares) ** 2
    else:
        slack = sum(share**2 / freedom for share, freedom in shares)
    total = documents**2 + trained**2
    freedom = total**2 / (slack + documents**4 / (len(sizes) - 1))
    return value, documents, trained, 2 * student.sf(abs(value) / math.sqrt(total), freedom)


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
    run = write_run(tmp_path / "run", {0: fewer})
    with pytest.raises(ValueError, match="there is no group: give at least one"):
        open_groups([])
    with pytest.raises(ValueError, match="two groups are called 'x': give each a name of its own"):
        open_groups([("x", [run]), ("x", [run])])
    with pytest.raises(ValueError, match="the group 'y' has no run: give at least one behind its name"):
        open_groups([("x", [run]), ("y", [])])
    for again in (run, tmp_path / "." / "run", run / "scalepod_results"):
        for groups in ([("x", [run, again])], [("x", [run]), ("y", [again])]):
            with pytest.raises(ValueError, match="is given twice: every training counts once, in one group"):
                open_groups(groups)


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
    def at(lag, **changed):
        layer = dataclasses.replace(models["baseline"][0][LAYERS[0]], dominant_lags=torch.tensor([lag]), **changed)
        return {LAYERS[0]: layer}

    mixed = trainings("mixed", at(4.0), at(9.0))
    mixed = dataclasses.replace(mixed, firings=(mixed.firings[0], dataclasses.replace(mixed.firings[1], step=20)))
    found = compare_groups([
        trainings("first", at(4.0), at(4.5)), mixed, trainings("fits", *[at(4.0, fit_range=(1, 9))] * 2)
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
