"""Modes followed from firing to firing: order, signs and colours stay while the modes do."""

import dataclasses
import io
import math

import pytest
import torch

from scalepod import ScalePOD
from scalepod.tracking import DOMINANT, ModeTracker, colour_limit

N_TOKENS = 24


def attention(n=20, n_tokens=N_TOKENS, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, n_tokens, n_tokens, generator=generator, dtype=torch.float64)
    return logits.masked_fill(torch.ones(n_tokens, n_tokens).triu(1).bool(), -torch.inf).softmax(-1)


def analysed(attn, **options):
    monitor = ScalePOD(**options)
    monitor.update(attn)
    return monitor.compute()


def with_modes(analysis, modes, eigenvalues):
    """The analysis with other field modes in the window of ones."""
    pod = analysis.field
    every = pod.modes.clone()
    every[0] = modes
    values = pod.eigenvalues.clone()
    values[0, : len(eigenvalues)] = torch.tensor(eigenvalues, dtype=values.dtype)
    values[0, len(eigenvalues) :] = 0
    return dataclasses.replace(analysis, field=pod._replace(modes=every, eigenvalues=values))


@pytest.fixture(scope="module")
def analysis():
    return analysed(attention())


@pytest.fixture(scope="module")
def modes(analysis):
    return analysis.field.modes[0]


def test_the_first_time_modes_are_shown_as_they_are(analysis):
    tracked = ModeTracker().follow("a", analysis)
    for kind in ("field", "lag"):
        pod, shown = getattr(analysis, kind), getattr(tracked, kind)
        assert list(shown) == [
            "whole",
            "fine",
            "medium",
            "coarse",
            *([DOMINANT] if len(analysis.dominant_lags) else []),
        ]
        for m, found in enumerate(shown.values()):
            assert torch.equal(found.modes, pod.modes[m])
            assert torch.equal(found.energies, pod.eigenvalues[m, :3])
            assert found.ranks.tolist() == [0, 1, 2]
            assert not found.mixed.any()
            assert found.limit == colour_limit(pod.modes[m])
        assert math.isnan(getattr(tracked, f"{kind}_stability"))


def test_modes_that_changed_place_and_sign_stay_where_they_were(analysis, modes):
    tracker = ModeTracker()
    tracker.follow("a", with_modes(analysis, modes, [9.0, 3.0, 1.0]))
    later = with_modes(analysis, torch.stack([-modes[1], modes[0], -modes[2]]), [9.0, 3.0, 1.0])
    tracked = tracker.follow("a", later)
    shown = tracked.field["whole"]
    torch.testing.assert_close(shown.modes, modes)
    assert shown.ranks.tolist() == [1, 0, 2]
    torch.testing.assert_close(shown.energies, torch.tensor([3.0, 9.0, 1.0], dtype=torch.float64))
    assert tracked.field_stability == pytest.approx(1, abs=1e-3)


def test_stability_is_that_of_the_last_firing_and_of_its_layer(analysis, modes):
    tracker = ModeTracker()
    tracker.follow("a", with_modes(analysis, modes, [9.0, 3.0, 1.0]))
    other = torch.linalg.qr(torch.cat([modes, attention(3, seed=5)]).flatten(1).mT).Q.mT[3:].view_as(modes)
    assert math.isnan(tracker.follow("b", analysis).field_stability)
    assert tracker.follow("a", with_modes(analysis, other, [9.0, 3.0, 1.0])).field_stability < 0.01
    assert tracker.follow("a", with_modes(analysis, other, [9.0, 3.0, 1.0])).field_stability == pytest.approx(
        1, abs=1e-3
    )


def test_colours_stay_until_the_modes_are_twice_as_large(analysis, modes):
    tracker = ModeTracker()
    first = tracker.follow("a", analysis).field["whole"].limit
    assert tracker.follow("a", with_modes(analysis, 1.5 * modes, [9.0, 3.0, 1.0])).field["whole"].limit == first
    larger = tracker.follow("a", with_modes(analysis, 3 * modes, [9.0, 3.0, 1.0])).field["whole"].limit
    assert larger == pytest.approx(3 * first)


def test_a_resumed_tracker_goes_on_as_if_it_had_not_stopped(analysis):
    later = analysed(attention(seed=1))
    tracker, resumed = ModeTracker(), ModeTracker()
    tracker.follow("a", analysis)
    file = io.BytesIO()
    torch.save(tracker.state_dict(), file)
    file.seek(0)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    one, other = tracker.follow("a", later), resumed.follow("a", later)
    for kind in ("field", "lag"):
        assert getattr(one, f"{kind}_stability") == getattr(other, f"{kind}_stability")
        for name, shown in getattr(one, kind).items():
            found = getattr(other, kind)[name]
            assert all(torch.equal(a, b) for a, b in zip(shown[:4], found[:4], strict=True))
            assert shown.limit == found.limit


def test_large_modes_are_remembered_by_their_overlaps():
    first = analysed(attention(20, 160))
    tracker = ModeTracker()
    tracker.follow("a", first)
    size = tracker.state_dict()["a"]["field|whole"]["sketch"]
    assert size.shape == (3, 2**14)
    torch.testing.assert_close(size.float() @ size.float().mT, torch.eye(3), atol=0.04, rtol=0)
    flipped = dataclasses.replace(first, field=first.field._replace(modes=-first.field.modes))
    shown = tracker.follow("a", flipped)
    assert shown.field_stability == pytest.approx(1, abs=0.03)
    overlap = (shown.field["fine"].modes * first.field.modes[1]).flatten(1).sum(1)
    assert (overlap > 0.9).all()


def test_a_window_that_moved_or_documents_of_another_length_begin_anew(analysis):
    tracker = ModeTracker()
    tracker.follow("a", analysis)
    moved = dataclasses.replace(analysis, window_lags=tuple(2 * lag for lag in analysis.window_lags))
    assert tracker.follow("a", moved).field["fine"].ranks.tolist() == [0, 1, 2]
    longer = tracker.follow("a", analysed(attention(20, 30)))
    assert math.isnan(longer.field_stability)
    assert math.isnan(longer.lag_stability)


def test_sketches_of_documents_of_another_length_are_not_compared():
    tracker = ModeTracker()
    tracker.follow("a", analysed(attention(20, 130)))
    tracked = tracker.follow("a", analysed(attention(20, 140)))
    assert math.isnan(tracked.field_stability)
    assert tracked.field["whole"].ranks.tolist() == [0, 1, 2]


def test_without_field_modes(analysis):
    tracked = ModeTracker().follow("a", dataclasses.replace(analysis, field=None))
    assert tracked.field == {}
    assert math.isnan(tracked.field_stability)
    assert "whole" in tracked.lag
