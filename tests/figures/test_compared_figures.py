"""Figures of several runs: every curve and map is that of the analysis it stands for."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch

from scalepod.coherence import Coherence
from scalepod.figures import figure_to_array
from scalepod.figures.compared_lines import Curve, profiles_figure, training_figure
from scalepod.figures.compared_maps import coherences_figure, scalograms_figure
from scalepod.figures.grid import RUN_COLORS, run_styles
from scalepod.figures.words import percent

NAMES, LABELS = ["01 h.0", "02 h.1"], ["one", "two"]


@pytest.fixture(scope="module")
def rows(analysis, degenerate):
    """Two layers of two runs, one of which has the first only, on shorter documents."""
    return [[analysis, degenerate["two documents"]], [analysis, None]]


def words(ax):
    return " ".join(text.get_text() for text in ax.texts)


def written(figure):
    return " ".join(text.get_text() for text in figure.texts)


def test_scalograms_stand_by_layer_and_run(rows, analysis, degenerate):
    figure = scalograms_figure(rows, NAMES, LABELS, "title")
    panels = figure.axes
    assert len(panels) == 4
    for ax, layer in zip(panels, (analysis, degenerate["two documents"], analysis), strict=False):
        assert np.allclose(ax.collections[0].get_array(), layer.scalogram.numpy())
        marked = [line.get_ydata()[0] for line in ax.lines if len(line.get_ydata()) == 2]
        assert marked == layer.dominant_lags.tolist()
        assert ax.get_xlim() == (-0.5, 95.5), "one lag axis for all"
    assert words(panels[3]) == "no such layer"
    for name in (*NAMES, *LABELS, "title"):
        assert name in written(figure)


def test_layers_without_energy_say_so(degenerate):
    figure = scalograms_figure([[degenerate["no energy"]]], ["01"], ["one"], "title")
    assert "no energy" in words(figure.axes[0]).replace("\n", " ")


def test_lag_modes_are_turned_to_those_of_the_first_run(analysis, degenerate):
    turned = analysis.lag._replace(modes=-analysis.lag.modes)
    other = dataclasses.replace(analysis, lag=turned)
    figure = profiles_figure([[analysis, other, degenerate["two documents"], None]], ["01"], list("abcd"), "title")
    assert len(figure.axes) == 3
    for mode, ax in enumerate(figure.axes):
        _, first, second, *third = ax.lines
        expected = analysis.lag.modes[0, mode].numpy()
        assert np.allclose(first.get_ydata(), expected)
        assert np.allclose(second.get_ydata(), expected)
        assert np.array_equal(first.get_xdata(), np.arange(96))
        assert [line.get_color() for line in (first, second)] == list(RUN_COLORS[:2])
        shorter = degenerate["two documents"].lag.modes[0, mode].numpy()
        assert float(third[0].get_ydata() @ expected[:24]) >= 0
        assert np.allclose(np.abs(third[0].get_ydata()), np.abs(shorter))
    share = float(analysis.lag.eigenvalues[0, 0] / analysis.lag.eigenvalues[0].sum())
    assert percent(share) in [text.get_text() for text in figure.axes[0].texts]


def test_fewer_modes_and_no_energy(degenerate):
    figure = profiles_figure([[degenerate["no energy"]], [degenerate["one mode"]]], NAMES, ["one"], "title")
    assert words(figure.axes[0]) == "–", "no energy"
    assert words(figure.axes[4]) == "–", "no second mode"
    assert len(profiles_figure([[degenerate["one mode"]]], ["01"], ["one"], "title").axes) == 1


def test_curves_have_bands_of_one_error():
    steps = np.array([0, 100, 200])
    first = Curve(steps, np.array([1.0, np.nan, 3.0]), np.array([0.1, np.nan, 0.2]))
    second = Curve(steps[:2], np.array([2.0, 2.5]), np.array([np.nan, np.nan]))
    figure = training_figure([[[first, second]]], ["01"], ["mean lag"], LABELS, "title")
    (ax,) = figure.axes
    assert [line.get_xydata().tolist() for line in ax.lines][1] == [[0, 2], [100, 2.5]]
    assert np.array_equal(ax.lines[0].get_ydata(), first.values, equal_nan=True)
    outline = ax.collections[0].get_paths()[0].vertices
    assert {(0.0, 0.9), (0.0, 1.1)} <= {tuple(point) for point in outline.round(6).tolist()}
    assert ax.get_xlim() == (-6, 206)


def test_one_firing_is_a_point_with_its_error():
    curve = Curve(np.array([5]), np.array([1.0]), np.array([0.25]))
    figure = training_figure([[[curve]]], ["01"], ["mean lag"], ["one"], "title")
    (container,) = figure.axes[0].containers
    assert container.lines[0].get_xydata().tolist() == [[5, 1]]
    assert np.ptp(container.lines[2][0].get_segments()[0][:, 1]) == pytest.approx(0.5)


def test_coherence_is_drawn_where_it_is(analysis):
    gamma = torch.rand(1, 96, 96, generator=torch.Generator().manual_seed(0))
    tested = torch.ones(96, 96).tril(-8).bool()[None]
    found = Coherence(gamma, torch.full_like(gamma, 0.75), torch.full_like(gamma, 40.0), tested)
    layer = dataclasses.replace(analysis, coherence=found, dominant_lags=torch.tensor([5.0]))
    untested = dataclasses.replace(layer, coherence=found._replace(tested=torch.zeros_like(tested)))
    rows = [[analysis, analysis, analysis], [analysis, layer, untested], [None, None, layer]]
    figure = coherences_figure(rows, ["01", "02", "03"], list("abc"), "title")
    assert len(figure.axes) == 4, "the first row and the first column have none"
    drawn = figure.axes[0].images[0].get_array()
    assert np.allclose(drawn.filled(0), gamma[0].tril())
    share = float((gamma[0] > 0.75)[tested[0]].double().mean())
    assert words(figure.axes[0]) == f"lag 5: {100 * share:.0f} %"
    assert words(figure.axes[1]) == "lag 5: untested"
    assert words(figure.axes[2]) == "no such layer"
    assert "01" not in written(figure).split()
    assert coherences_figure([[analysis]], ["01"], ["one"], "title") is None


def test_of_many_layers_twelve_are_drawn(analysis):
    names = [f"{k:02d}" for k in range(30)]
    figure = scalograms_figure([[analysis]] * 30, names, ["one"], "title")
    assert len(figure.axes) == 12
    assert "12 of 30 layers" in written(figure)
    curve = Curve(np.arange(2), np.ones(2), np.ones(2))
    figure = training_figure([[[curve]]] * 30, names, ["mean lag"], ["one"], "title")
    assert len(figure.axes) == 12
    assert "12 of 30 layers" in written(figure)


def test_runs_beyond_the_colours_have_other_lines():
    styles = run_styles(15)
    assert len({(style["color"], str(style["linestyle"])) for style in styles}) == 15


def test_both_directions(signed_analysis, analysis):
    figure = profiles_figure([[signed_analysis, analysis]], ["01"], LABELS, "title")
    assert figure.axes[0].get_xlabel() == "lag, tokens\n← ahead | back →"
    assert np.array_equal(figure.axes[0].lines[1].get_xdata(), np.arange(-47, 48))


def test_drawing_is_deterministic(rows):
    one, other = (figure_to_array(scalograms_figure(rows, NAMES, LABELS, "title")) for _ in range(2))
    assert np.array_equal(one, other)


def test_nothing_to_draw():
    for draw in (scalograms_figure, coherences_figure, profiles_figure):
        with pytest.raises(ValueError, match="there is no layer to draw"):
            draw([[None]], ["01"], ["one"], "title")
    with pytest.raises(ValueError, match="there is no curve to draw"):
        training_figure([], [], [], [], "title")


def extent(figure, text):
    return text.get_window_extent(figure.canvas.get_renderer())


def test_words_stay_in_narrow_panels(analysis):
    gamma = torch.rand(1, 96, 96, generator=torch.Generator().manual_seed(0))
    found = Coherence(gamma, gamma, gamma, torch.ones(1, 96, 96).tril(-8).bool())
    layer = dataclasses.replace(analysis, coherence=found, dominant_lags=torch.tensor([5.0]))
    rows = [[layer] * 5, [layer, analysis, analysis, analysis, layer]]
    figure = coherences_figure(rows, NAMES, list("abcde"), "title")
    for ax in figure.axes[6:9]:
        (text,) = ax.texts
        assert " ".join(text.get_text().split()) == "no dominant scale, or not computed"
        box = extent(figure, text)
        assert ax.bbox.x0 <= box.x0
        assert box.x1 <= ax.bbox.x1


def test_shares_of_several_runs_stand_beside_the_head_of_their_column(analysis):
    figure = profiles_figure([[analysis] * 5], ["01"], list("abcde"), "title")
    heads = {text.get_text(): extent(figure, text) for text in figure.texts}
    for mode, ax in enumerate(figure.axes[:3], start=1):
        head = heads[f"lag mode {mode}"]
        places = sorted((extent(figure, text) for text in ax.texts), key=lambda box: box.x0)
        assert len(places) == 5
        assert places[0].x0 > head.x1
        assert all(one.x1 < other.x0 for one, other in itertools.pairwise(places))
