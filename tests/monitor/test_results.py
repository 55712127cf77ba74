"""`scalepod.load`: the results of a run as arrays over steps and layers."""

import shutil

import numpy as np
import pytest
import torch

import scalepod
from scalepod import Provenance, ResultsWarning, ScalePOD, load, save_analyses

STEPS = (0, 5, 10, 100)


def analysed(seed, scale=1.0):
    monitor = ScalePOD()
    logits = scale * torch.randn(6, 12, 12, generator=torch.Generator().manual_seed(seed))
    monitor.update(logits.masked_fill(~torch.ones(12, 12).tril().bool(), -torch.inf).softmax(-1))
    return monitor.compute()


@pytest.fixture(scope="module")
def firings():
    """Two layers at every step, of which the second comes later and has no energy at first."""
    found = {step: {"01_a": analysed(step), "02_b": analysed(step + 1, float(step > 5))} for step in STEPS}
    del found[0]["02_b"]
    return found


@pytest.fixture
def run(tmp_path, firings):
    """A run's folder."""
    for step, analyses in firings.items():
        origin = Provenance(model="my.Model", data="text.txt", data_sha256="0a", options={"burn_in": 0})
        more = {"01_a": {"mode_stability": 0.5}} if step == 100 else None
        save_analyses(
            tmp_path / "scalepod_results" / f"step_{step:08d}.npz", analyses, step, provenance=origin, more=more
        )
    return tmp_path


def test_values_are_those_of_the_analyses_and_nan_where_there_are_none(run, firings):
    loaded = load(run)
    assert loaded.steps == STEPS
    assert loaded.layers == ("01_a", "02_b")
    for name, values in loaded.values.items():
        assert values.shape == (4, 2)
        for i, step in enumerate(STEPS):
            for j, layer in enumerate(loaded.layers):
                analysis = firings[step].get(layer)
                expected = {} if analysis is None else analysis.scalars()
                if name != "mode_stability":
                    assert values[i, j] == pytest.approx(expected.get(name, np.nan), rel=0, nan_ok=True), (name, step)
    assert np.isnan(loaded.values["mean_lag"][0, 1])  # not seen
    assert np.isnan(loaded.values["mean_lag"][1, 1])  # no energy
    assert loaded.values["mode_stability"][3].tolist()[0] == 0.5


def test_analyses_come_from_their_files(run, firings):
    loaded = load(run)
    assert {step: list(layers) for step, layers in loaded.analyses.items()} == {s: list(f) for s, f in firings.items()}
    found = loaded.analyses[10]["02_b"]
    assert torch.equal(found.lag.eigenvalues, firings[10]["02_b"].lag.eigenvalues)
    with pytest.raises(KeyError, match=r"no results of step 7, there are those of \[0, 5, 10, 100\]"):
        loaded.analyses[7]
    with pytest.raises(KeyError, match=r"no layer '02_b' in .*step_00000000.npz, there are"):
        loaded.analyses[0]["02_b"]


def test_header_says_where_results_are_from(run):
    header = load(run).header
    assert (header.step, header.layers, header.scalepod) == (100, ("01_a", "02_b"), scalepod.__version__)
    assert header.provenance == Provenance("my.Model", "text.txt", "0a", options={"burn_in": 0})
    expected = {"model": "my.Model", "data": "text.txt", "data_sha256": "0a", "scalepod": scalepod.__version__}
    assert load(run).attrs() == expected


def test_arrays_fit_their_dimensions_as_xarray_wants(run):
    loaded = load(run)
    coords = loaded.coords()
    assert coords["step"][1].tolist() == list(STEPS)
    assert coords["layer"][1].tolist() == list(loaded.layers)
    sizes = {name: len(array) for name, ((name_of_dimension,), array) in coords.items() if name == name_of_dimension}
    for name, (dims, array) in loaded.data_vars().items():
        assert name not in coords
        assert array.shape == tuple(sizes[dim] for dim in dims)


@pytest.mark.parametrize("place", ["scalepod_results", "scalepod_results/step_00000005.npz", "moved", "out"])
def test_a_file_or_a_folder_of_files_is_loaded(run, place):
    shutil.copytree(run / "scalepod_results", run / "moved" / "deep")
    (run / "moved" / "deep").rename(run / "moved" / "other_results")
    (run / "out").mkdir()
    shutil.copy(run / "scalepod_results" / "step_00000005.npz", run / "out" / "analysis.npz")
    assert load(run / place).steps == ((5,) if place.endswith("npz") or place == "out" else STEPS)


def test_listing_and_values_read_no_arrays(run, monkeypatch):
    read = []
    original = np.lib.npyio.NpzFile.__getitem__
    monkeypatch.setattr(np.lib.npyio.NpzFile, "__getitem__", lambda file, key: read.append(key) or original(file, key))
    loaded = load(run)
    assert loaded.steps == STEPS
    assert loaded.values
    assert read == ["header"] * 4
    _ = loaded.analyses[5]["02_b"]
    assert {key.split("|")[0] for key in read} == {"header", "02_b"}


def test_a_broken_file_among_good_ones_is_named_and_left_out(run):
    broken = run / "scalepod_results" / "step_00000010.npz"
    broken.write_bytes(broken.read_bytes()[:5000])
    with pytest.warns(ResultsWarning, match=r"left out of the results: .*step_00000010.npz holds no scalepod results"):
        loaded = load(run)
    assert loaded.steps == (0, 5, 100)
    with pytest.raises(ValueError, match=r"step_00000010.npz .* no npz archive, or was cut off. Delete it, or copy"):
        load(broken)


def test_only_broken_files_are_an_error(run):
    for file in (run / "scalepod_results").iterdir():
        file.write_bytes(b"")
    with (
        pytest.warns(ResultsWarning),
        pytest.raises(ValueError, match=r"none of the 4 files in .*scalepod_results can be"),
    ):
        load(run)


def test_damage_behind_the_header_is_named_when_it_is_met(run):
    file = run / "scalepod_results" / "step_00000005.npz"
    data = bytearray(file.read_bytes())
    start = data.index(b"01_a|lag_energy.npy") + 100
    data[start : start + 60] = bytes(60)
    file.write_bytes(data)
    loaded = load(run)
    with pytest.raises(ValueError, match=r"step_00000005.npz is damaged \(.*\): delete it, or copy it again"):
        loaded.analyses[5]["01_a"]


def test_what_is_not_there_is_said(tmp_path, run):
    with pytest.raises(FileNotFoundError, match=r"there is no file or folder .*nowhere: give a run's folder"):
        load(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        FileNotFoundError, match=r"no step_\*.npz or analysis.npz in .* A watched run writes scalepod_res"
    ):
        load(tmp_path / "empty")
    runs = tmp_path / "runs"
    shutil.copytree(run / "scalepod_results", runs / "version_0" / "scalepod_results")
    with pytest.raises(FileNotFoundError, match=r"There are runs in .*version_0"):
        load(runs)
    shutil.copytree(run / "scalepod_results", runs / "version_0" / "second_results")
    with pytest.raises(ValueError, match=r"version_0 has several folders of results, give one: .*scalepod_results"):
        load(runs / "version_0")
