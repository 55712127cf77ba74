"""Analyses on disk: what comes back is what was written, and a file is whole or not there."""

import math

import numpy as np
import pytest
import torch

from scalepod import Provenance, ScalePOD, load_analyses, save_analyses
from scalepod._files import atomic_write
from scalepod.store import load_layer, read_header


@pytest.fixture
def analyses():
    found = {}
    for name, field in (("01_a.attn", True), ("02_b/attn#1", False)):
        monitor = ScalePOD(field=field)
        logits = torch.randn(6, 12, 12, generator=torch.Generator().manual_seed(0))
        monitor.update(logits.masked_fill(~torch.ones(12, 12).tril().bool(), -torch.inf).softmax(-1))
        found[name] = monitor.compute()
    return found


def same(one, other):
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one.nan_to_num(-1.0), other.nan_to_num(-1.0))
    if isinstance(one, tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return one == other or (isinstance(one, float) and math.isnan(one) and math.isnan(other))


@pytest.mark.parametrize("modes", [True, False])
def test_round_trip(tmp_path, analyses, modes):
    save_analyses(tmp_path / "new" / "a.npz", analyses, step=7, modes=modes)
    step, back = load_analyses(tmp_path / "new" / "a.npz")
    assert step == 7
    assert list(back) == list(analyses)
    for layer, analysis in analyses.items():
        for name, value in vars(analysis).items():
            found = getattr(back[layer], name)
            if name == "field" and value is not None and not modes:
                assert found.modes.shape == (*value.modes.shape[:1], 0, *value.modes.shape[2:])
                value, found = value._replace(modes=0), found._replace(modes=0)
            assert same(value, found), name


def test_loads_without_pickle(tmp_path, analyses):
    save_analyses(tmp_path / "a.npz", analyses, step=0)
    with np.load(tmp_path / "a.npz", allow_pickle=False) as file:
        assert all(file[name].dtype != object for name in file.files)


def test_an_interrupted_write_leaves_what_was_there(tmp_path):
    (tmp_path / "a.npz").write_bytes(b"before")

    def interrupted():
        with atomic_write(tmp_path / "a.npz") as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]
    assert (tmp_path / "a.npz").read_bytes() == b"before"


def test_errors(tmp_path, analyses, monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"there is no file .*nowhere"):
        load_analyses(tmp_path / "nowhere.npz")
    (tmp_path / "text.npz").write_text("no archive")
    with pytest.raises(ValueError, match=r"text.npz holds no scalepod results: it is no npz archive, or was cut off"):
        load_analyses(tmp_path / "text.npz")
    for name, arrays in {"other": {"x": np.zeros(2)}, "foreign": {"header": np.zeros(2)}}.items():
        np.savez(tmp_path / f"{name}.npz", **arrays)
        with pytest.raises(ValueError, match=f"{name}.npz holds no scalepod results: it has no header of theirs"):
            load_analyses(tmp_path / f"{name}.npz")
    for schema, message in ((99, "this scalepod reads 3: update"), (2, "of an earlier scalepod, and this one reads 3")):
        monkeypatch.setattr("scalepod.store.SCHEMA", schema)
        save_analyses(tmp_path / "layout.npz", analyses, step=0)
        monkeypatch.undo()
        with pytest.raises(ValueError, match=f"layout.npz has layout {schema}, {message}"):
            load_analyses(tmp_path / "layout.npz")


def test_one_layer_alone(tmp_path, analyses):
    save_analyses(tmp_path / "a.npz", analyses, step=7)
    (_, whole), name = load_analyses(tmp_path / "a.npz"), "02_b/attn#1"
    alone = load_layer(tmp_path / "a.npz", name)
    assert all(same(value, getattr(alone, field)) for field, value in vars(whole[name]).items())


def test_header_has_what_is_logged(tmp_path, analyses):
    origin = Provenance(model="my.Model", options={"bands": {"near": 3}})
    save_analyses(tmp_path / "a.npz", analyses, step=7, provenance=origin, more={"01_a.attn": {"mode_stability": 0.5}})
    header = read_header(tmp_path / "a.npz")
    assert (header.step, header.layers, header.provenance) == (7, tuple(analyses), origin)
    assert header.scalars["01_a.attn"] == analyses["01_a.attn"].scalars() | {"mode_stability": 0.5}
    assert header.scalars["02_b/attn#1"] == analyses["02_b/attn#1"].scalars()
