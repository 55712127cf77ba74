"""Sentences are made from the numbers, and say what the numbers do not."""

import dataclasses
import math

import pytest
import torch
from run_folders import LAYERS, analysed, attention

from scalepod.figures.words import convergence_of, with_error
from scalepod.provenance import Provenance
from scalepod.reports.comparison import compare
from scalepod.reports.differences import Difference
from scalepod.reports.findings import (
    BETWEEN_RUNS,
    OVER_TRAINING,
    differences_in_words,
    layer_findings,
    summary,
)
from scalepod.reports.limits import ALWAYS, limits
from scalepod.reports.runs import Firing

SAME = Provenance(data_sha256="a")


@pytest.fixture(scope="module")
def named(late):
    return {"near": dataclasses.replace(late[LAYERS[0]], mean_lag=2.0), "far": late[LAYERS[1]]}


def test_summary_names_the_extremes(named):
    said = summary(named)
    errors = {name: layer.confidence.stderrs()["mean_lag"] for name, layer in named.items()}
    far = with_error(named["far"].mean_lag, errors["far"])
    near = with_error(2.0, errors["near"])
    assert said[0] == (
        f"Documents differ nearest to the query in near (mean lag {near} tokens), farthest back in far ({far} tokens)."
    )
    assert said[1].startswith(f"near is the least complex layer: {named['near'].lag_h_star[0.10]} ± ")
    assert f"far is the most complex: {named['far'].lag_h_star[0.10]} ± " in said[1]
    assert said[1].count("90 % of its energy") == 1


@pytest.mark.parametrize(("growth", "sentence"), [(1.0, "has converged in all layers"), (2.0, "is limited by the")])
def test_summary_tells_what_counts_documents(late, growth, sentence):
    layer = late[LAYERS[0]]
    ranks = layer.confidence.lag_convergence.h_star.clone()
    ranks[:, 1] = ranks[:, 2] / growth
    found = layer.confidence.lag_convergence._replace(h_star=ranks)
    changed = dataclasses.replace(
        layer, confidence=dataclasses.replace(layer.confidence, lag_convergence=found, field_convergence=None)
    )
    said = summary({"one": changed})
    assert len(said) == 1, "no extremes among one layer"
    assert said[0].startswith("Lag H* ")
    assert sentence in said[0]


def test_a_layer_in_words(late):
    layer = late[LAYERS[0]]
    said = " ".join(layer_findings(layer))
    errors = layer.confidence.stderrs()
    name = max(layer.bands, key=layer.bands.get)
    assert name == "fine"
    share = with_error(100 * layer.bands[name], 100 * errors["band_fine"])
    assert f"Most of the energy, {share} %, is at lags up to 6 (fine)." in said
    assert f"The mean lag is {with_error(layer.mean_lag, errors['mean_lag'])} tokens." in said
    assert f"lag patterns hold 90 % of the energy: {convergence_of(layer, 'lag').verdict()}." in said
    assert f"T_spec of the lag spectrum is {with_error(layer.lag_t_spec, errors['lag_t_spec'])} (r² = " in said


@pytest.mark.parametrize(
    ("lags", "sentence"),
    [
        ([], "No scale stands out."),
        ([5.0], "A scale stands out at lag 5 tokens."),
        ([5.0, 9.0], "Scales stand out at lag 5, 9 tokens."),
    ],
)
def test_scales_that_stand_out(unsure, lags, sentence):
    scales = torch.tensor(lags)
    layer = dataclasses.replace(unsure[LAYERS[0]], dominant_lags=scales, dominant_scales=scales)
    assert sentence in layer_findings(layer)


def test_a_peak_that_the_null_has_too_does_not_stand_out(late):
    layer = late[LAYERS[0]]
    chosen = layer.scales[[2, 5]]
    layer = dataclasses.replace(layer, dominant_lags=chosen, dominant_scales=chosen)
    energy = layer.scale_energy.clone()
    energy[5] /= 1.5
    null = layer.confidence.null._replace(scale_energy=energy[None])
    layer = dataclasses.replace(layer, confidence=dataclasses.replace(layer.confidence, null=null))
    assert layer.dominant_excess().tolist() == pytest.approx([0, 0.5])
    assert any(f"A scale stands out at lag {float(chosen[1]):.3g}" in said for said in layer_findings(layer))


def test_the_largest_band_may_hold_less_than_half(late):
    layer = dataclasses.replace(late[LAYERS[0]], bands={"fine": 0.3, "medium": 0.45, "coarse": 0.25})
    assert layer_findings(layer)[0].startswith("The largest part of the energy, 45")
    assert "is at lags 7 to 20 (medium)." in layer_findings(layer)[0]
    layer = dataclasses.replace(layer, bands={"fine": 0.2, "medium": 0.2, "coarse": 0.6})
    assert "is at lags from 21 on (coarse)." in layer_findings(layer)[0]


@pytest.mark.parametrize(
    ("lag", "field", "sentence"),
    [
        (4.0, 9.0, "4 lag patterns or 9 attention maps of {}."),
        (4.0, math.inf, "4 lag patterns of {}; no number of attention maps does."),
        (math.inf, math.inf, "No number of lag patterns and no number of attention maps of {}."),
    ],
)
def test_held_out(late, monkeypatch, lag, field, sentence):
    monkeypatch.setattr(
        "scalepod.confidence.record.Confidence.heldout_ranks", lambda self, epsilon: {"lag": lag, "field": field}
    )
    holds = "holds" if math.isinf(lag) else "hold"
    said = sentence.format(f"half the documents {holds} 90 % of the energy of the other half")
    assert said in layer_findings(late[LAYERS[0]])


@pytest.mark.parametrize(
    ("excess", "sentence"),
    [
        ({"lag_h_star_excess": -3.0, "h_star_excess": 0.0}, "It takes 3 fewer lag patterns and no fewer "),
        ({"lag_h_star_excess": 2.0, "h_star_excess": math.nan}, "It takes 2 more lag patterns than documents"),
        ({}, ""),
    ],
)  # fmt: skip
def test_beyond_documents_without_structure(late, monkeypatch, excess, sentence):
    monkeypatch.setattr("scalepod.analysis.LayerAnalysis.excess", lambda self: excess)
    said = " ".join(layer_findings(late[LAYERS[0]]))
    assert sentence in said
    assert ("coherent structure" in said) == bool(sentence)


def test_what_is_missing_is_not_told_of(unsure):
    layer = analysed(attention(1, 12, 1.0, 0).expand(4, -1, -1))
    assert layer_findings(layer) == ["There is no energy: the same attention in every document."]
    said = " ".join(layer_findings(unsure[LAYERS[0]]))
    assert "half the documents" not in said
    assert "±" not in said.partition("T_spec")[0], "that of T_spec is of the line"


def test_differences_in_words_are_those_that_are_significant(early, late):
    found = compare([Firing("early", 0, early, SAME), Firing("late", 10, late, SAME)])
    names = {LAYERS[0]: "first", LAYERS[1]: "second"}
    said = dict(sentence.split(": ", 1) for _, sentence in differences_in_words(found, OVER_TRAINING, names))
    energies = [entry.change for entry in found.entries if (entry.run, entry.quantity) == ("late", "energy")]
    low, high = sorted(energies, key=lambda change: change.difference)
    ends = [with_error(change.difference, change.stderr) for change in (low, high)]
    assert said["energy of the fluctuation"] == f"rose in all layers (by {ends[0]} to {ends[1]})."
    reverse = compare([Firing("late", 10, late, SAME), Firing("early", 0, early, SAME)])
    told = list(differences_in_words(reverse, BETWEEN_RUNS, names))
    assert {run for run, _ in told} == {"early"}
    assert any(sentence.startswith("energy of the fluctuation: smaller in all layers") for _, sentence in told)


def test_layers_are_told_by_what_became_of_them(early, late):
    found = compare([Firing("early", 0, early, SAME), Firing("late", 10, late, SAME)])
    changes = {LAYERS[0]: (-1.0, 0.1, 0.001), LAYERS[1]: (2.0, 3.0, 0.9)}
    entries = [
        dataclasses.replace(entry, change=Difference(*changes[entry.layer], changes[entry.layer][2], "paired"))
        for entry in found.entries
        if entry.run == "late" and entry.quantity == "mean_lag"
    ]
    found = dataclasses.replace(found, entries=tuple(entries))
    names = {LAYERS[0]: "first", LAYERS[1]: "second"}
    assert list(differences_in_words(found, OVER_TRAINING, names)) == [
        ("late", "mean lag: fell in first (by 1.00 ± 0.10); no significant change in second.")
    ]


def of_run(firing):
    """The limits that the numbers of a run have, its layers told of by their names."""
    names = {name: name for name in firing.analyses}
    both = limits([firing, dataclasses.replace(firing, label="other")], {firing.label: names, "other": names})
    before = f"{firing.label}: "
    return [sentence.removeprefix(before) for sentence in both if sentence.startswith(before)]


def test_limits_of_every_report(late):
    found = limits([Firing("a", 0, late), Firing("b", 0, late)], {"a": {n: n for n in late}, "b": {n: n for n in late}})
    assert tuple(found[: len(ALWAYS)]) == ALWAYS
    assert all(sentence.startswith(("a: ", "b: ")) for sentence in found[len(ALWAYS) :])
    alone = limits([Firing("a", 0, late)], {"a": {name: name for name in late}})
    assert alone[len(ALWAYS)].startswith("The first queries share"), "of one run there is no need of its name"


def test_limits_that_the_numbers_have(late, unsure):
    layer = late[LAYERS[0]]
    assert any("burn_in leaves them out, and here was 0" in sentence for sentence in of_run(Firing("x", 0, late)))
    assert not any("burn_in" in s for s in of_run(Firing("x", 0, {"a": dataclasses.replace(layer, burn_in=4)})))
    low = layer.lag_fit._replace(r2=torch.full_like(layer.lag_fit.r2, 0.71))
    bent = dataclasses.replace(layer, lag_fit=low)
    assert "the lag spectrum is no power law, and T_spec a bad summary of it, where r² < 0.9: a (0.71)." in of_run(
        Firing("x", 0, {"a": bent, "b": dataclasses.replace(layer, lag_fit=low._replace(r2=low.r2 + 0.25))})
    )
    skipped = of_run(Firing("x", 0, {"a": dataclasses.replace(layer, n_skipped=3), "b": layer}))
    assert any(s.startswith("documents were left out") and s.endswith("had no query: 3 in a.") for s in skipped)
    assert any(s.startswith("no standard errors and no test of all layers") for s in of_run(Firing("x", 0, unsure)))


def test_undefined_values_come_with_their_reason(late):
    layer = dataclasses.replace(late[LAYERS[0]], dominant_lags=torch.tensor([]))
    said = of_run(Firing("x", 0, {"a": layer}))
    assert "no dominant lag in a: E(a) has no maximum inside the range of scales." in said
    without = analysed(attention(4, 2, 1.0, 0), field=False)
    said = of_run(Firing("x", 0, {"a": without}))
    assert f"lag T_spec of a is undefined: {without.lag_fit.reason(0)}." in said
    assert "no field values of a: the field POD was switched off." in said
    same = analysed(attention(1, 12, 1.0, 0).expand(4, -1, -1))
    said = of_run(Firing("x", 0, {"a": same}))
    assert "nothing is defined in a: the attention is the same in every document." in said
