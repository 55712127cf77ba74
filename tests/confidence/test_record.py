"""The confidence of an analysis: the values of parts are those that an analysis of the parts alone gives."""

import dataclasses
import math

import pytest
import torch

from scalepod import ScalePOD, load_analyses, save_analyses
from scalepod.confidence.groups import N_GROUPS
from scalepod.confidence.jackknife import standard_error
from scalepod.spectrum import fractional_rank

N, T = 40, 36


def attention(n=N, seed=0, signed=False):
    generator = torch.Generator().manual_seed(seed)
    lag = torch.arange(T)[:, None] - torch.arange(T)
    logits = torch.randn(n, T, T, generator=generator, dtype=torch.float64)
    logits += 3 * torch.rand(n, 1, 1, generator=generator, dtype=torch.float64) * torch.cos(2 * torch.pi * lag / 6)
    return (logits if signed else logits.masked_fill(lag < 0, -torch.inf)).softmax(-1)


def analysed(attn, maps_per_document=1, **options):
    monitor = ScalePOD(**options)
    monitor.update(attn, maps_per_document=maps_per_document)
    return monitor.compute()


@pytest.fixture(scope="module")
def analysis():
    return analysed(attention())


def test_every_logged_value_has_an_error(analysis):
    names = {name for name in analysis.scalars() if name in analysis.confidence.quantities}
    plain = analysed(attention(), confidence=False)
    assert plain.confidence is None
    assert names == {name for name in plain.scalars() if not name.endswith(("r2", "theil_sen"))}
    scalars = analysis.scalars()
    assert {f"{name}_se" for name in names} <= scalars.keys()
    assert all(scalars[f"{name}_se"] > 0 for name in names)
    assert {name: scalars[name] for name in plain.scalars()} == pytest.approx(plain.scalars(), rel=1e-9)


@pytest.mark.parametrize("options", [{}, {"burn_in": 4}, {"signed": True}, {"field": False}])
def test_replicates_are_the_values_without_a_group(options):
    attn = attention(signed=options.get("signed", False))
    confidence = analysed(attn, **options).confidence
    group = torch.arange(N) % N_GROUPS
    assert confidence.group_sizes.tolist() == [5] * 8
    for g in (0, 5):
        part = analysed(attn[group != g], **options)
        expected = part.scalars()
        for name, found in zip(confidence.quantities, confidence.replicates[:, g].tolist(), strict=True):
            if "h_star" in name:
                assert math.ceil(found - 1e-9) == expected[name], name
            elif "t_spec" in name:
                assert found == pytest.approx(expected[name], rel=1e-4), name
            elif name != "dominant_lag" or len(part.dominant_lags):
                assert found == pytest.approx(expected[name], rel=1e-6), name


def test_values_are_those_of_all_documents(analysis):
    scalars = analysis.scalars()
    for name, value in zip(analysis.confidence.quantities, analysis.confidence.values.tolist(), strict=True):
        assert (math.ceil(value) if "h_star" in name else value) == pytest.approx(scalars[name], rel=1e-6), name


def test_errors_are_those_of_the_jackknife(analysis):
    confidence = analysis.confidence
    place = confidence.quantities.index("mean_lag")
    expected = float(standard_error(confidence.replicates[place], confidence.group_sizes))
    assert analysis.scalars()["mean_lag_se"] == confidence.stderrs()["mean_lag"] == expected


def test_replicates_of_many_lags():
    """Documents that look back at lags of their own, so that modes of some of them are not those of all."""
    generator, tau = torch.Generator().manual_seed(0), torch.arange(100)
    lags = torch.randint(0, 100, (32, 4), generator=generator)
    at = (tau[:, None] - tau == lags[:, :, None, None]).any(1)
    logits = torch.randn(32, 100, 100, generator=generator, dtype=torch.float64) + 4 * at
    attn = logits.masked_fill(torch.ones(100, 100).triu(1).bool(), -torch.inf).softmax(-1)
    analysis = analysed(attn)
    part = analysed(attn[torch.arange(32) % N_GROUPS != 2])
    confidence = analysis.confidence
    for name, found in zip(confidence.quantities, confidence.replicates[:, 2].tolist(), strict=True):
        if "lag_h_star" in name:
            _, _, _, epsilon, *window = name.split("_")
            spectrum = part.lag.eigenvalues[part.window_names.index(window[0] if window else "whole")]
            exact = float(fractional_rank(spectrum, float(epsilon)))
            assert found == pytest.approx(exact, rel=0.01 if "_coarse" in name or "_medium" in name else 1e-6), name
    halves = [analysed(attn[start::2]).lag.eigenvalues[0] for start in (0, 1)]
    expected = sum(float(fractional_rank(spectrum, 0.10)) for spectrum in halves) / 2
    assert float(confidence.lag_convergence.h_star[0, 1]) == pytest.approx(expected, rel=1e-6)


def test_groups_that_say_nothing():
    attn = attention(n=24)
    attn[::8] = torch.nan
    assert analysed(attn).confidence is None  # an empty group
    windows = attention(n=32)
    assert analysed(windows, maps_per_document=8).confidence is None  # four documents
    analysed(windows, maps_per_document=8).scalars()


def test_processes_deal_into_groups_of_one_size():
    attn = attention(n=36)
    monitors = [ScalePOD(process=(rank, 2)) for rank in range(2)]
    for rank, monitor in enumerate(monitors):
        monitor.update(attn[rank::2])
    labels = torch.cat([torch.cat(monitor.group) for monitor in monitors])
    assert labels.bincount().tolist() == [5, 5, 5, 5, 4, 4, 4, 4]


def test_errors_of_ranks_that_leave_nothing():
    scalars = analysed(attention(), epsilons=(0.0,)).scalars()
    assert scalars["lag_h_star_0.00_se"] >= 0


def test_maps_of_one_document_stay_together():
    attn = attention(n=64)
    apart, together = analysed(attn).confidence, analysed(attn, maps_per_document=2).confidence
    assert together.group_sizes.tolist() == apart.group_sizes.tolist() == [8] * 8
    group = torch.arange(64) // 2 % N_GROUPS
    place = together.quantities.index("energy")
    assert float(together.replicates[place, 3]) == pytest.approx(analysed(attn[group != 3]).energy)


def test_convergence_is_that_of_an_analysis_of_the_parts(analysis):
    attn = attention()
    for found, kind in ((analysis.confidence.lag_convergence, "lag_"), (analysis.confidence.field_convergence, "")):
        assert found.n.tolist() == [10, 20, 40]
        for place, stride in enumerate((4, 2, 1)):
            analyses = [analysed(attn[start::stride]) for start in range(stride)]
            spectra = [(part.lag if kind else part.field).eigenvalues[0] for part in analyses]
            ranks = [float(fractional_rank(spectrum, 0.10)) for spectrum in spectra]
            assert float(found.h_star[0, place]) == pytest.approx(sum(ranks) / len(ranks), rel=1e-3)
            parts = [part.scalars() for part in analyses]
            slopes = [part[f"{kind}t_spec"] for part in parts]
            assert float(found.t_spec[place]) == pytest.approx(sum(slopes) / len(slopes), rel=0.01)
        assert analysis.scalars()[f"{kind}h_star_growth"] == float(found.growth[0])


def test_a_change_is_certain_that_is_smaller_than_the_errors(analysis):
    """A change that all documents share: the errors of both analyses hide it, that of the difference does not."""
    attn = attention()
    fields = attn.mean(0) + 1.01 * (attn - attn.mean(0))  # the energy grows by 2 %
    later = analysed(fields)
    change = analysis.confidence.changes(later.confidence)["energy"]
    assert float(change.difference) == pytest.approx(later.energy - analysis.energy)
    assert analysis.confidence.stderrs()["energy"] > float(change.difference)
    assert float(change.p_value) < 1e-6
    assert change.stderr < 0.05 * analysis.confidence.stderrs()["energy"]


def test_changes_need_the_same_documents(analysis):
    with pytest.raises(ValueError, match="same documents in the same groups at both firings"):
        analysis.confidence.changes(analysed(attention(n=41)).confidence)


def test_heldout_ranks_are_logged_where_they_exist(analysis):
    ranks = analysis.confidence.heldout_ranks(0.10)
    assert ranks["field"] == math.inf
    assert "h_star_heldout" not in analysis.scalars()
    assert analysis.scalars()["lag_h_star_heldout"] == ranks["lag"] < T


def test_excess_over_the_null(analysis):
    scalars = analysis.scalars()
    null = analysis.confidence.null
    assert scalars["h_star_excess"] == analysis.h_star[0.10] - int(
        (null.field_eigenvalues[0].cumsum(0) < 0.9 * null.field_eigenvalues.sum()).sum() + 1
    )
    assert {"t_spec_excess", "lag_t_spec_excess", "lag_h_star_excess"} <= scalars.keys()


def test_few_documents_have_no_confidence():
    assert analysed(attention(n=15)).confidence is None
    assert analysed(attention(n=16)).confidence is not None


def test_automatic_fit_range_is_that_of_all_documents():
    analysis = analysed(attention(), fit_range="auto")
    fit = analysis.field_fit
    assert int(fit.n_points[0]) >= 8
    assert float(fit.r2[0]) >= 0.98
    assert analysis.scalars()["t_spec_se"] > 0


def test_identical_documents_have_undefined_errors_and_are_not_logged():
    scalars = analysed(attention(n=1).expand(20, -1, -1)).scalars()
    assert all(math.isfinite(value) for value in scalars.values())
    assert "t_spec_se" not in scalars


def test_round_trip_to_disk(tmp_path, analysis):
    save_analyses(tmp_path / "a.npz", {"01_a": analysis}, step=3)
    _, back = load_analyses(tmp_path / "a.npz")
    assert back["01_a"].scalars() == analysis.scalars()
    found, expected = back["01_a"].confidence, analysis.confidence
    assert found.quantities == expected.quantities
    assert float(found.changes(expected)["energy"].difference) == 0
    assert dataclasses.asdict(found).keys() == dataclasses.asdict(expected).keys()
    assert torch.equal(found.field_held_out.held_out, expected.field_held_out.held_out)
