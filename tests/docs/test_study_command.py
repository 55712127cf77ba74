"""What the command of docs/study says when there is nothing to look at, and how it writes numbers and words."""

import dataclasses
import doctest
from types import SimpleNamespace

import numpy as np
import observed
import page
import pytest
import study
import tables
import trainings
from page import PageError, renewed


def test_nothing_trained_is_an_error(tmp_path, capsys):
    assert study.main(["--no-train", "--runs", str(tmp_path)]) == 1
    assert "there is no complete training in" in capsys.readouterr().err


def test_the_page_of_the_documentation_is_not_overwritten_by_a_part(make_study, tmp_path):
    part = make_study({"baseline": {}, "ega": {}})
    before = (study.DOCS / "study.md").read_bytes()
    with pytest.raises(ValueError, match="tells of all models, and there is no ega_published: write elsewhere with"):
        study.write_study(part, tmp_path, None, study.DOCS)
    assert (study.DOCS / "study.md").read_bytes() == before


def test_runs_analysed_at_other_steps_are_refused(make_study, tmp_path, monkeypatch):
    runs = {run.training: run for run in make_study({"baseline": {}}, seeds=(1, 2)).runs}
    odd = trainings.Training("baseline", 2)
    runs[odd] = dataclasses.replace(runs[odd], results=SimpleNamespace(steps=(0, 20)))
    monkeypatch.setattr(observed, "complete_run", lambda *_: tmp_path)
    monkeypatch.setattr(observed, "_observed", lambda training, *_: runs[training])
    said = r"baseline_2 was analysed at steps \(0, 20\), baseline_1 at \(0, 10, 20\): train it anew"
    with pytest.raises(ValueError, match=said):
        observed.observe(tmp_path, trainings.planned(["baseline"], [1, 2]), None)


def test_a_seed_given_twice_counts_once():
    assert [each.seed for each in trainings.planned(["baseline"], [1, 1, 2])] == [1, 2]


def test_results_that_cannot_be_read_are_an_error(tmp_path, capsys, monkeypatch):
    def broken(*_):
        raise ValueError("step_1500.npz is no file of results")

    monkeypatch.setattr(study, "observe", broken)
    assert study.main(["--no-train", "--runs", str(tmp_path), "--out", str(tmp_path)]) == 1
    assert "error: step_1500.npz is no file of results" in capsys.readouterr().err


def test_a_failed_training_ends_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(trainings, "run_process", lambda arguments, log: 3)
    assert study.main(["--runs", str(tmp_path), "--only", "morlet"]) == 1
    assert "morlet_1 ended without its results, with exit status 3" in capsys.readouterr().err


def test_unknown_numbers_are_empty_in_csv_and_digits_are_few(tmp_path):
    tables.write_csv(tmp_path / "t.csv", [{"a": float("nan"), "b": 1 / 3}, {"a": 2, "c": "x"}])
    assert (tmp_path / "t.csv").read_text() == "a,b,c\n,0.333333,\n2,,x\n"


def test_settled_values_and_moving_ones_are_told_apart(make_study):
    numbers = dict.fromkeys(observed.LIVE, 1.0) | {"mean_lag": 0.0, "t_spec": [5, 0, 0, 0, 0, 0]}
    said = page.settled(make_study({"baseline": numbers}, noise=0.0))
    assert "- field T_spec: changes in layer 1\n" in said
    assert "- mean lag, tokens: changes in no layer by more than its error" in said
    assert "- lag T_spec: changes in layers 1, 2, 3, 4, 5, 6" in said
    said = page.settled(make_study({"baseline": numbers}, seeds=(1,)))
    assert "- lag T_spec: cannot be told from one training" in said


def test_scatter_of_trainings_is_told_in_errors_over_documents(make_study):
    study = make_study({"baseline": {"mean_lag": 5.0}})
    rows = np.stack([run.numbers["mean_lag"] for run in study.of("baseline")])  # (3, 6, 9)
    errors = np.sqrt(7 / 8 * ((rows[..., 1:] - rows[..., 1:].mean(-1, keepdims=True)) ** 2).sum(-1))
    ratio = rows[..., 0].std(0, ddof=1) / np.sqrt((errors**2).mean(0))
    expected = " | ".join(f"{value:.2g}" for value in ratio)
    table = tables.scatter_table(study, {"mean_lag": "mean lag"})
    assert table.splitlines()[-1] == f"| mean lag | {expected} |"
    assert tables.scatter_table(make_study({"baseline": {}}, seeds=(1,)), {"mean_lag": "mean lag"}) == (
        "This takes several trainings of the baseline."
    )


def test_a_page_keeps_its_words_and_gets_its_tables():
    before = "# Title\n\n<!-- table: a -->\n<!-- end -->\nwords\n<!-- table: b -->\nold | \\1\n<!-- end -->\nlast"
    after = renewed(before, {"a": "x\n\ny", "b": "z \\1"})
    expected = "# Title\n\n<!-- table: a -->\nx\n\ny\n<!-- end -->\nwords\n<!-- table: b -->\nz \\1\n<!-- end -->\nlast"
    assert after == expected
    assert renewed(after, {"a": "x\n\ny", "b": "z \\1"}) == after


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<!-- table: a -->\n", "a table of the page has no end: write <!-- end --> on the line behind it"),
        ("<!-- table: a -->\n<!-- table: a -->\n<!-- end -->\n", "has no end"),
        ("<!-- table: a -->\n<!-- end -->\n" * 2, "the table 'a' has 2 places on the page, and takes one"),
        ("words", "the table 'a' has 0 places on the page, and takes one"),
        ("<!-- table: b -->\n<!-- end -->\n", "the page has a place for 'b', which is none of a"),
    ],
)
def test_a_page_that_does_not_fit_is_refused(text, said):
    with pytest.raises(PageError, match=said):
        renewed(text, {"a": "1"})


def test_examples_of_the_page():
    found = doctest.testmod(page)
    assert found.attempted
    assert not found.failed
