"""The command of docs/study from run folders to tables, figures and the page, on tiny models."""

import csv
import re

import lightning as L
import numpy as np
import observed
import pytest
import study
import trainings
from lightning.pytorch.callbacks import ModelCheckpoint

import scalepod
from scalepod.callbacks import ScalePODCallback
from scalepod.datamodules import CharTextDataModule
from scalepod.models import BaselineGPT, EnergyGatedGPT

pytestmark = pytest.mark.slow  # trains three models, and analyses them twice

STEPS, T = 2, 32
KINDS = {"baseline_1": BaselineGPT, "baseline_2": BaselineGPT, "ega_1": EnergyGatedGPT}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Three complete trainings, and a text."""
    root = tmp_path_factory.mktemp("study")
    rng = np.random.default_rng(0)
    (root / "text.txt").write_text("".join(rng.choice(list("abcd "), 12000)))
    for seed, (name, kind) in enumerate(KINDS.items()):
        L.seed_everything(seed, verbose=False)
        folder = root / name / "study" / "version_0"
        data = CharTextDataModule(str(root / "text.txt"), block_size=T, batch_size=4)
        callbacks = [
            ModelCheckpoint(folder / "checkpoints", save_last=True, save_top_k=0, every_n_train_steps=STEPS),
            ScalePODCallback(STEPS, n_snapshots=16, images=False, save_dir=folder / "scalepod_results"),
        ]
        trainer = L.Trainer(
            max_steps=STEPS, accelerator="cpu", devices=1, logger=False, limit_val_batches=0, callbacks=callbacks,
            enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        model = kind(data.vocab_size, block_size=T, n_layer=6, n_head=2, n_embd=8, dropout=0.0)
        trainer.fit(model, datamodule=data)
    return root


@pytest.fixture(scope="module")
def written(runs, tmp_path_factory):
    """The study, where the command wrote, and what it printed."""
    out = tmp_path_factory.mktemp("out")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainings, "last_step", lambda: STEPS)
        patch.setattr(observed.published, "SCALES", observed.published.SCALES[:4])
        found = observed.observe(runs, trainings.planned(["baseline", "ega"], [1, 2]), None)
        printed = []
        patch.setattr("builtins.print", lambda *words, **_: printed.append(" ".join(map(str, words))))
        assert study.main(["--no-train", "--runs", str(runs), "--seeds", "1", "2", "--out", str(out)]) == 0
    return found, out, "\n".join(printed)


def rows_of(out, name):
    with (out / "study" / "results" / f"{name}.csv").open() as file:
        return list(csv.DictReader(file))


def test_incomplete_trainings_are_named_and_left_out(written):
    found, _, printed = written
    assert [run.training.name for run in found.runs] == ["baseline_1", "ega_1", "baseline_2"]
    assert "not complete, left out: ega_2" in printed
    assert "not complete, left out: morlet_1" in printed


def test_tables_equal_the_analyses(written, runs):
    _, out, _ = written
    results = [scalepod.load(runs / name / "study" / "version_0") for name in ("baseline_1", "baseline_2")]
    for row in rows_of(out, "training"):
        if row["model"] != "baseline":
            continue
        place = results[0].steps.index(int(row["step"])), int(row["layer"]) - 1
        values = [float(each.values["mean_lag"][place]) for each in results]
        assert float(row["mean_lag"]) == pytest.approx(np.mean(values), rel=1e-5)
        assert float(row["mean_lag_se_seeds"]) == pytest.approx(np.std(values, ddof=1) / 2**0.5, rel=1e-4)


def test_last_step_is_that_of_the_last_firing(written):
    _, out, _ = written
    last = {(row["model"], row["layer"]): row for row in rows_of(out, "training") if int(row["step"]) == STEPS}
    for row in rows_of(out, "layers"):
        assert row["t_spec"] == last[row["model"], row["layer"]]["t_spec"]


def test_measures_are_of_the_documents_that_were_watched(written):
    found, _, _ = written
    for run in found.runs:
        for layer, analysis in enumerate(run.results.analyses[STEPS].values()):
            share = float(analysis.lag_energy[:8].sum() / analysis.lag_energy.sum())
            assert run.numbers["share_to_7"][layer, 0] == pytest.approx(share, rel=1e-5)
            leading = analysis.field.eigenvalues[0]
            assert run.numbers["leading_share"][layer, 0] == pytest.approx(
                float(leading[:3].sum() / leading.sum()), rel=1e-4
            )


def test_a_causal_model_predicts_the_same_both_ways(written):
    found, out, _ = written
    for run in found.runs:
        assert abs(run.numbers["loss_gap"][0, 0]) < 1e-6
    (baseline, ega) = rows_of(out, "losses")
    change = float(ega["loss"]) - float(baseline["loss"])
    assert float(ega["loss_change"]) == pytest.approx(change, abs=1e-5)


def test_measures_are_kept_until_the_checkpoint_changes(written, runs, monkeypatch):
    found, _, _ = written
    folder = found.runs[0].results.path

    def again():
        raise AssertionError("measured again")

    kept = observed._kept(folder, "study_measures.npz", again)
    np.testing.assert_array_equal(kept["share_to_7"], found.runs[0].numbers["share_to_7"])
    monkeypatch.setattr(observed, "VERSION", observed.VERSION + 1)
    with pytest.raises(AssertionError, match="measured again"):
        observed._kept(folder, "study_measures.npz", again)


def test_another_text_is_refused(written, tmp_path, runs):
    found, _, _ = written
    other = tmp_path / "other.txt"
    other.write_text((runs / "text.txt").read_text()[::-1])
    with pytest.raises(ValueError, match=r"are not those of the training in .*: give its text with --path"):
        observed._opened(found.runs[0].results.path, other, found.runs[0].results)


def test_conventions_hold_both_and_say_that_only_the_diagonal_counts(written):
    _, out, _ = written
    rows = rows_of(out, "conventions")
    assert len(rows) == 6
    assert all(row["published_h_star"] == row["diagonal_h_star"] for row in rows)
    assert all(float(row["weight_off_diagonal"]) > 0.5 for row in rows)
    assert "With everything off the diagonal set to zero the numbers are the same" in (out / "study.md").read_text()


def test_every_check_of_every_claim_is_in_the_table_and_on_the_page(written):
    _, out, _ = written
    rows = rows_of(out, "claims")
    assert {int(row["claim"]) for row in rows} == set(range(1, 12))
    page = (out / "study.md").read_text()
    for row in rows:
        assert f"| {row['check']} |" in page
        assert f"*{row['reading']}*: {row['verdict'].capitalize()}" in page
    assert "a model was not trained" in page


def test_words_of_the_page_are_those_of_the_documentation(written):
    _, out, _ = written
    blocks = re.compile(r"(<!-- table: \S+ -->).*?<!-- end -->", re.DOTALL)
    there, here = (blocks.sub(r"\1", file.read_text()) for file in (study.DOCS / "study.md", out / "study.md"))
    assert there == here


def test_figures_are_small(written):
    _, out, _ = written
    sizes = {file.name: file.stat().st_size for file in (out / "study" / "images").iterdir()}
    assert set(sizes) == {"complexity.png", "bands.png", "layers.png", "modes.png"}
    assert all(size < 150_000 for size in sizes.values()), sizes
