"""Runs side by side: numbers equal the analyses, and differences are found where they are."""

import csv
import dataclasses
import io
import math

import numpy as np
import pytest
import torch
from run_folders import LAYERS, analysed, attention

from scalepod.provenance import Provenance
from scalepod.reports.comparison import align_layers, compare
from scalepod.reports.differences import differences, incomparable, is_paired
from scalepod.reports.notes import later_common_step, notes
from scalepod.reports.runs import Firing, open_runs
from scalepod.reports.significance import holm, unpaired_change
from scalepod.reports.tables import COLUMNS, blocks, csv_table, markdown_table, terminal_table

SAME, OTHER = Provenance(data_sha256="a"), Provenance(data_sha256="b")


@pytest.fixture(scope="module")
def comparison(early, late):
    return compare([Firing("early", 0, early, SAME), Firing("late", 10, late, SAME)])


def test_values_and_errors_are_those_of_the_analyses(comparison, early, late):
    firings = {"early": early, "late": late}
    for entry in comparison.entries:
        layer = firings[entry.run][entry.run_layer]
        assert entry.value == pytest.approx(layer.scalars().get(entry.quantity, math.nan), nan_ok=True)
        assert entry.stderr == pytest.approx(layer.confidence.stderrs().get(entry.quantity, math.nan), nan_ok=True)
    assert len(comparison.entries) == 2 * 2 * len(comparison.quantities)
    assert comparison.quantities[:2] == ("mean_lag", "dominant_lag")
    assert {"band_fine", "lag_t_spec", "lag_h_star_0.10", "t_spec", "h_star_0.10"} < set(comparison.quantities)
    assert comparison.quantities[-1] == "energy"


def test_same_documents_are_compared_pair_by_pair(comparison, early, late):
    for name in LAYERS:
        changes = early[name].confidence.changes(late[name].confidence)
        for entry in comparison.entries:
            if (entry.run, entry.layer) == ("late", name) and entry.change.test:
                expected = changes[entry.quantity]
                assert entry.change.test == "paired"
                assert entry.change.difference == pytest.approx(float(expected.difference))
                assert entry.change.stderr == pytest.approx(float(expected.stderr), nan_ok=True)
                assert entry.change.p_value == pytest.approx(float(expected.p_value), nan_ok=True)
    assert all(entry.change.test == "" for entry in comparison.entries if entry.run == "early")


def test_other_documents_are_compared_by_both_errors(early, late):
    found = compare([Firing("early", 0, early, SAME), Firing("late", 10, late, OTHER)])
    (entry,) = [e for e in found.entries if (e.run, e.layer, e.quantity) == ("late", LAYERS[0], "mean_lag")]
    sides = [
        (torch.tensor(side[LAYERS[0]].mean_lag), torch.tensor(side[LAYERS[0]].confidence.stderrs()["mean_lag"]), 8)
        for side in (early, late)
    ]
    expected = unpaired_change(*sides[0], *sides[1])
    assert entry.change.test == "unpaired"
    assert entry.change.p_value == pytest.approx(float(expected.p_value), rel=1e-4)
    assert entry.change.stderr == pytest.approx(float(expected.stderr), rel=1e-4)


def test_all_tests_are_corrected_together(comparison):
    p_values = torch.tensor([entry.change.p_value for entry in comparison.entries], dtype=torch.float64)
    adjusted = [entry.change.p_holm for entry in comparison.entries]
    assert adjusted == pytest.approx(holm(p_values).tolist(), nan_ok=True)
    assert comparison.n_tests == int(p_values.isfinite().sum()) > 10
    found = comparison.significant()
    assert found == [entry for entry, p in zip(comparison.entries, adjusted, strict=True) if p <= 0.05]
    assert (LAYERS[0], "energy") in {(entry.layer, entry.quantity) for entry in found}, "three times as sharp"


def test_equal_runs_do_not_differ(early):
    found = compare([Firing("one", 0, early, SAME), Firing("other", 0, early, SAME)])
    assert found.significant() == []
    assert all(entry.change.difference in (0, pytest.approx(math.nan, nan_ok=True)) for entry in found.entries)


def test_independent_documents_of_one_kind_differ_as_rarely_as_promised():
    """Mean lags of layers that differ in their documents alone: p-values are uniform, to what 50 of them can tell."""
    sides = [analysed(attention(16, 8, 1.0, seed), field=False) for seed in range(100)]
    one, other = Firing("one", 0, {}, SAME), Firing("other", 0, {}, OTHER)
    p_values = [differences(one, other, a, b)["mean_lag"].p_value for a, b in zip(sides[::2], sides[1::2], strict=True)]
    assert np.mean(np.array(p_values) < 0.05) < 0.15
    assert 0.35 < np.mean(p_values) < 0.65


def test_documents_not_on_record_need_equal_groups(early, short):
    unknown = Firing("x", 0, early, Provenance())
    a, b = early[LAYERS[0]].confidence, next(iter(short.values())).confidence
    assert is_paired(Firing("x", 0, early, SAME), unknown, a, a)
    assert not is_paired(unknown, unknown, a, b)
    dealt = dataclasses.replace(SAME, processes=1), dataclasses.replace(SAME, processes=2)
    assert not is_paired(*(Firing("x", 0, early, known) for known in dealt), a, a)


@pytest.mark.parametrize(
    ("quantity", "changed", "reason"),
    [
        ("energy", {"n_tokens": 12}, "documents of another length: 24 and 12"),
        ("mean_lag", {"burn_in": 3}, "another burn_in: 0 and 3"),
        ("mean_lag", {"signed": True}, "lags of another kind (signed): False and True"),
        ("dominant_lag", {"omega0": 8.0}, "another omega0: 6.0 and 8.0"),
        ("dominant_lag", {"scales": torch.tensor([2.0, 4.0])}, "other scales: 21 from 2 to 11.31 and 2 from 2 to 4"),
        ("lag_t_spec", {"fit_range": (1, 10)}, "another fit_range: (1, 30) and (1, 10)"),
        ("h_star_0.10", {"n_snapshots": 30}, "another number of documents: 24 and 30"),
    ],
)
def test_what_means_something_else_is_not_compared(early, quantity, changed, reason):
    layer = early[LAYERS[0]]
    assert incomparable(quantity, layer, layer) == ""
    assert incomparable(quantity, layer, dataclasses.replace(layer, **changed)) == reason
    assert incomparable("lag_h_star_0.10", layer, dataclasses.replace(layer, n_tokens=12, n_snapshots=30)) == ""


def test_other_bands_and_other_peaks_are_not_compared(early):
    layer = early[LAYERS[0]]
    other = analysed(attention(24, 24, 0.5, 0), bands={"fine": 3.0, "coarse": 9.0})
    assert incomparable("band_fine", layer, other).startswith("other bands: {'fine': 4.0, ")
    near, far = (dataclasses.replace(layer, dominant_lags=torch.tensor([lag])) for lag in (5.0, 8.0))
    assert "another peak of E(a) is the highest" in incomparable("dominant_lag", near, far)
    assert incomparable("dominant_lag", near, near) == ""


def test_layers_of_other_numbers_and_names():
    assert align_layers([["a", "b"], ["b", "c"], ["c", "a"]]) == (("a", "", "a"), ("b", "b", ""), ("", "c", "c"))
    assert align_layers([["a", "b"], ["x", "y", "z"], ["z"]]) == (("a", "x", "z"), ("b", "y", ""), ("", "z", ""))


def test_nothing_to_compare(early):
    for firings in ([], [Firing("empty", 0, {})]):
        with pytest.raises(ValueError, match="at least one run, each with at least one layer"):
            compare(firings)
    alone = compare([Firing("alone", 0, early)])
    assert alone.n_tests == 0
    assert blocks(alone)[0].head == ("layer", "alone")


def test_the_csv_table_has_every_digit(comparison):
    rows = list(csv.DictReader(io.StringIO(csv_table(comparison))))
    assert tuple(rows[0]) == COLUMNS
    assert len(rows) == len(comparison.entries)
    for row, entry in zip(rows, comparison.entries, strict=True):
        assert (row["quantity"], row["layer"], row["run"], row["test"]) == (
            entry.quantity, entry.layer, entry.run, entry.change.test,
        )  # fmt: skip
        for name, number in (("value", entry.value), ("stderr", entry.stderr), ("p_holm", entry.change.p_holm)):
            assert row[name] == ("" if math.isnan(number) else repr(number))
        assert row["significant"] in (("true",) if entry.change.significant else ("false", ""))


def test_printed_tables_hold_the_same_cells(comparison):
    block = next(block for block in blocks(comparison) if block.title == "mean lag, tokens")
    assert block.head == ("layer", "early", "late", "− early")
    entries = [e for e in comparison.entries if e.quantity == "mean_lag" and e.layer == LAYERS[0]]
    name, before, after, change = block.rows[0]
    assert name == "01 h.0"
    assert float(before.split(" ± ")[0]) == pytest.approx(entries[0].value, rel=0.01)
    assert float(before.split(" ± ")[1]) == pytest.approx(entries[0].stderr, rel=0.1)
    assert float(after.split(" ± ")[0]) == pytest.approx(entries[1].value, rel=0.01)
    assert change.endswith("*") == entries[1].change.significant
    assert (change[0] == "+") == (entries[1].change.difference > 0)
    for cell in block.rows[0]:
        assert cell in terminal_table(comparison, [])
        assert cell.replace("*", "\\*") in markdown_table(comparison, [])


def test_markdown_and_names(late):
    found = compare([Firing("a|b", 0, {"01_<x>": late[LAYERS[0]]})])
    text = markdown_table(found, ["first *note*"])
    assert "| layer | a\\|b |" in text
    assert "| 01 \\<x\\> |" in text
    assert text.endswith("- first \\*note\\*\n")


def test_notes_say_how_it_was_tested_and_what_is_left_out(early, late, short, unsure):
    found = compare([
        Firing("first", 10, late, SAME),
        Firing("paired", 10, early, SAME),
        Firing("unknown", 10, early),
        Firing("short", 5, short, OTHER),
        Firing("unsure", 10, unsure, OTHER),
    ])  # fmt: skip
    said = notes(found)
    assert f"for all {found.n_tests} comparisons" in said[0]
    assert "paired: paired jackknife (the same documents)." in said
    assert "unknown: paired jackknife (documents not on record, in groups of the same sizes)." in said
    assert "short: unpaired, Welch's t from both standard errors (other documents or other groups)." in said
    assert any(note.startswith("unsure: no test, for want of standard errors") for note in said)
    assert any(note.startswith("The runs are compared at different steps: first at 10") for note in said)
    assert any(note.startswith("The documents differ in length (first 24") for note in said)
    assert "The layers of short have other names; they are put beside those of first in order." in said
    assert "short has no counterpart of 02 h.1 of first." in said
    assert any("short: not compared, energy of the fluctuation (documents of another length" in n for n in said)
    assert "another seed of the training" in said[-1]


def test_the_last_common_step_is_told_of(runs):
    first, second, short = open_runs(runs.values())
    assert later_common_step([first, second], (first.at("last"), second.at("last"))) == []
    assert later_common_step([first, second], (first.at(0), second.at(10))) == [
        "The last step that all runs have is 10: --step 10 compares them there."
    ]
    assert later_common_step([first, short], (first.at(10), short.at(5))) == ["The runs have no step in common."]
