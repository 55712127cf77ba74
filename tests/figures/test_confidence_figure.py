import dataclasses
import math

import numpy as np
import pytest
import torch

from scalepod.figures import confidence_figure
from scalepod.figures.confidence import fit_ranges
from scalepod.figures.names import spread
from scalepod.figures.panels import PANEL, ROW, limits, round_ticks
from scalepod.figures.style import FIELD_COLOR, LAG_COLOR
from scalepod.spectrum import spectral_concentration

KINDS = (("field", FIELD_COLOR), ("lag", LAG_COLOR))


@pytest.fixture(scope="module")
def layers(analysis, signed_analysis, degenerate):
    names = ("no field", "no energy", "two documents")
    layers = {"01_m.h.0.attn": analysis, "02_m.h.1.attn": signed_analysis}
    return layers | {f"{k + 3:02d}_m.h.{k + 2}.attn": degenerate[name] for k, name in enumerate(names)}


@pytest.fixture(scope="module")
def figure(layers):
    return confidence_figure(layers, "step 0")


@pytest.fixture(scope="module")
def columns(figure):
    by_label = {ax.get_xlabel(): ax for ax in figure.axes}
    h_star, t_spec = (ax for ax in figure.axes if ax.get_xlabel() == "documents")
    return {
        "h_star": h_star, "t_spec": t_spec, "captured": by_label["number of modes"],
        "ranges": by_label["mode it is moved to"],
    }  # fmt: skip


def read(ax, row, y, *, log):
    """Values at places on the y axis, as a reader has them from the numbers beside the panel."""
    ticks = [(text.get_position()[1], float(text.get_text())) for text in ax.texts]
    inside = [(place, np.log(value) if log else value) for place, value in ticks if 0 <= place - ROW * row <= PANEL]
    (y0, v0), (y1, v1) = inside[0], inside[-1]
    value = v0 + (np.asarray(y) - y0) * (v1 - v0) / (y1 - y0)
    return np.exp(value) if log else value


def curves(ax, row, color, *, log=True):
    """(x, values, line) of each line of a colour in the panel of a row."""
    found = []
    for line in ax.lines:
        y = line.get_ydata()
        if (
            len(y)
            and line.get_color() == color
            and np.nanmin(y) >= ROW * row - 1e-6
            and np.nanmax(y) <= ROW * row + PANEL + 1e-6
        ):
            found.append((line.get_xdata(), read(ax, row, y, log=log), line))
    return found


@pytest.mark.parametrize(("row", "layer"), [(0, "01_m.h.0.attn"), (1, "02_m.h.1.attn")])
@pytest.mark.parametrize(("kind", "color"), KINDS)
def test_values_against_the_number_of_documents(columns, layers, row, layer, kind, color):
    confidence = layers[layer].confidence
    level = getattr(confidence, f"{kind}_convergence")
    for column, expected in (("h_star", level.h_star[0]), ("t_spec", level.t_spec)):
        ((x, values, _),) = curves(columns[column], row, color)
        assert x.tolist() == [0.25, 0.5, 1.0]
        assert np.allclose(values, expected)
    error = confidence.stderrs()[f"{'lag_' * (kind == 'lag')}t_spec"]
    bars = [c for c in columns["t_spec"].collections if tuple(c.get_color()[0][:3]) == rgb(color)]
    low, high = read(columns["t_spec"], row, bars[row].get_segments()[0][:, 1], log=True)
    assert high - low == pytest.approx(2 * error)
    assert (high + low) / 2 == pytest.approx(float(level.t_spec[2]))


def rgb(color):
    return tuple(int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))


def test_as_many_patterns_as_documents_is_dotted(columns):
    dotted = [line for line in columns["h_star"].lines if line.get_color() not in (FIELD_COLOR, LAG_COLOR)]
    assert len(dotted) == 2, "where the number of documents was varied"
    seen = ~np.isnan(dotted[0].get_ydata())
    values = read(columns["h_star"], 0, dotted[0].get_ydata()[seen], log=True)
    assert seen.sum() > 5
    assert np.allclose(values, 40 * dotted[0].get_xdata()[seen])


@pytest.mark.parametrize(("kind", "color"), KINDS)
def test_captured_energy(columns, analysis, kind, color):
    curve = getattr(analysis.confidence, f"{kind}_held_out")
    in_sample, held_out, *mark = curves(columns["captured"], 0, color, log=False)
    modes = np.arange(1, len(curve.in_sample))
    for (x, values, line), expected, solid in ((in_sample, curve.in_sample, False), (held_out, curve.held_out, True)):
        assert np.array_equal(x, modes)
        assert np.allclose(values, 100 * expected[1:])
        assert line.is_dashed() is not solid
    enough = [k for k, share in enumerate(curve.held_out.tolist()) if share >= 0.9 - 1e-9]
    assert [(x.tolist(), values.tolist()) for x, values, _ in mark] == ([([enough[0]], [90])] if enough else [])


@pytest.mark.parametrize(("kind", "color"), KINDS)
def test_fit_ranges_are_drawn(columns, analysis, kind, color):
    eigenvalues, fit = getattr(analysis, kind).eigenvalues[0], getattr(analysis, f"{kind}_fit")
    ranges = fit_ranges(eigenvalues, fit)
    firsts, lasts, used = curves(columns["ranges"], 0, color)
    for (x, values, _), places, expected in (
        (firsts, ranges.first, ranges.t_spec_first),
        (lasts, ranges.last, ranges.t_spec_last),
    ):
        assert np.array_equal(x, places)
        assert np.allclose(values, expected)
    assert used[0].tolist() == [30]
    assert used[1] == pytest.approx(float(fit.t_spec[0]))


@pytest.mark.parametrize("used", [(1, 30), (3, 12)])
def test_fit_ranges_are_fits(used):
    eigenvalues = torch.arange(1, 41, dtype=torch.float64) ** -1.5 * torch.linspace(1, 0.2, 40, dtype=torch.float64)
    ranges = fit_ranges(eigenvalues, spectral_concentration(eigenvalues[None], used))
    first, last = used
    assert ranges.last.tolist() == list(range(first + 4, min(2 * last, 40) + 1))
    assert ranges.first.tolist() == list(range(1, last - 3))
    pairs = [(first, int(end)) for end in ranges.last] + [(int(start), last) for start in ranges.first]
    for (low, high), found in zip(pairs, [*ranges.t_spec_last, *ranges.t_spec_first], strict=True):
        k = np.arange(low, high + 1)
        slope = np.polyfit(np.log(k), np.log(eigenvalues[low - 1 : high].numpy()), 1)[0]
        assert found == pytest.approx(-1 / slope)


def test_a_fit_without_a_range_has_no_others():
    exponential = torch.exp(-(torch.arange(60, dtype=torch.float64) ** 2))[None, :6]
    assert all(len(part) == 0 for part in fit_ranges(exponential[0], spectral_concentration(exponential, "auto")))


def words(figure):
    return [" ".join(text.get_text().split()) for text in figure.texts]


def test_words_say_what_is_known(figure, layers, analysis):
    said = words(figure)
    for kind in ("field", "lag"):
        verdict = getattr(analysis.confidence, f"{kind}_convergence").verdict()
        assert any(verdict in text for text in said)
    assert any(text.startswith(f"T_spec {analysis.lag_t_spec:.3f} ±") for text in said)
    assert sum(text == "no energy: the same attention in every document" for text in said) == 2
    assert "the field POD was switched off" in said
    assert sum("no confidence: switched off, or fewer than 16 documents" in text for text in said) == 3
    assert [name for name in said if name.startswith("0")] == [f"0{k + 1} h.{k}" for k in range(5)]


@pytest.mark.parametrize(
    ("held_out", "expected"),
    [
        ([0.0, 0.5, 0.95], "held out: 2 modes hold 90 %"),
        ([0.0, 0.5, 0.8], "held out: even all modes hold less than 90 %"),
        ([math.nan] * 3, "held out: undefined, a half has no energy"),
    ],
)
def test_modes_that_other_documents_need_are_said(analysis, held_out, expected):
    curve = analysis.confidence.lag_held_out._replace(
        in_sample=torch.tensor([0.0, 0.6, 1.0]), held_out=torch.tensor(held_out)
    )
    confidence = dataclasses.replace(analysis.confidence, lag_held_out=curve)
    figure = confidence_figure({"01_x": dataclasses.replace(analysis, confidence=confidence)}, "x")
    assert any(text.endswith(expected) for text in words(figure))


def test_rank_of_another_residual_is_not_taken_for_it(analysis):
    figure = confidence_figure({"01_x": dataclasses.replace(analysis, epsilons=(0.05,))}, "x")
    assert sum("H*(0.10) was not asked for" in text for text in words(figure)) == 2


def test_of_many_layers_twelve_are_drawn(analysis):
    figure = confidence_figure({f"{k:02d}_m.h.{k}.attn": analysis for k in range(30)}, "x")
    assert words(figure)[1].startswith("12 of 30 layers, evenly spread")
    assert [text[:2] for text in words(figure) if " h." in text] == [f"{k:02d}" for k in spread(30)]
    assert spread(30)[::11] == [0, 29]


def test_no_layers():
    with pytest.raises(ValueError, match="analyses is empty"):
        confidence_figure({}, "step 0")


def test_limits_leave_room():
    low, high = limits([2.0, math.nan, math.inf, 0.0, 20.0], 4.0)
    assert low < 2
    assert 20 < high < 25
    assert np.divide(*limits([3.0], 4.0)) == pytest.approx(1 / 4)
    assert limits([math.nan], 4.0) == (1.0, 4.0)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.4, 6, [0.5, 1, 2, 5]),
        (0.9, 60, [1, 3, 10, 30]),
        (0.9, 150, [1, 10, 100]),
        (0.15, 0.45, [0.2]),
        (1e-4, 1e4, [1e-4, 1e-1, 1e2]),
    ],
)
def test_ticks_are_round_and_few(low, high, expected):
    assert round_ticks(low, high) == pytest.approx(expected)
