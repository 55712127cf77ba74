import pytest
from run_folders import layers_of, write_run

from scalepod.reports.runs import default_labels, layer_names, open_runs


def test_runs_are_named_by_what_tells_them_apart(runs):
    assert [run.label for run in open_runs(list(runs.values()))] == ["first", "second", "short"]
    assert [run.label for run in open_runs([runs["first"]], ["mine"])] == ["mine"]
    assert default_labels(["/runs/x/version_0/"]) == ["x"]
    assert default_labels(["a/step_1.npz", "b/step_1.npz"]) == ["a/step_1.npz", "b/step_1.npz"]
    assert default_labels(["analysis.npz"]) == ["analysis.npz"]
    assert default_labels(["."]) == ["."]


def test_short_names_that_would_be_the_same_stay_long():
    names = ["model.encoder.layers.a.self_attention", "model.encoder.layers.b.self_attention"]
    assert list(layer_names(names).values()) == ["a", "b"]
    alike = [f"{'x' * 20}{letter}{'y' * 20}" for letter in "ab"]
    assert layer_names(alike) == {name: name for name in alike}


def test_files_and_folders_mix(runs):
    file = runs["first"] / "scalepod_results" / "step_00000000.npz"
    one, other = open_runs([file, runs["second"]], ["file", "folder"])
    assert (one.results.steps, other.results.steps) == ((0,), (0, 10))


def test_a_firing_is_read_with_its_origin(runs, late):
    (run,) = open_runs([runs["first"]])
    firing = run.at("last")
    assert (firing.label, firing.step) == ("first", 10)
    assert firing.provenance.data_sha256 == "documents"
    assert {name: layer.mean_lag for name, layer in firing.analyses.items()} == {
        name: layer.mean_lag for name, layer in late.items()
    }
    assert run.at(0).step == 0


def test_mistakes_are_named(runs, tmp_path):
    path = runs["first"]
    with pytest.raises(ValueError, match="there is no run: give at least one folder or file"):
        open_runs([])
    with pytest.raises(ValueError, match="got 1 labels for 2 runs"):
        open_runs([path, path], ["one"])
    with pytest.raises(ValueError, match="two runs are called 'x': give a label of its own to each with --labels"):
        open_runs([path, path], ["x", "x"])
    with pytest.raises(ValueError, match="two runs are called"):
        open_runs([path, path])
    (run,) = open_runs([path])
    with pytest.raises(ValueError, match="first has no results of step 7, it has those of 0, 10"):
        run.at(7)
    layers = layers_of(n_snapshots=3, n_tokens=4, names=("01_a",))
    (long,) = open_runs([write_run(tmp_path / "long", dict.fromkeys(range(20), layers))])
    with pytest.raises(ValueError, match=r"those of 0, 1, 2, 3, 4, 5, \.\.\., 18, 19$"):
        long.at(99)
