import dataclasses

import numpy as np
import pytest

from scalepod.figures import confidence_figure, figure_to_array, modes_figure, overview_figure, scalogram_figure

CASES = [
    "no field", "no energy", "two documents", "one token", "two tokens", "three tokens", "flat spectrum", "one mode",
    "many modes", "one band", "many bands", "both ways, two tokens", "burn-in",
]  # fmt: skip


def assert_drawn(figure):
    """Draws without a warning (they are errors here), and nothing is cut off at the edge of the page."""
    pixels = figure_to_array(figure)
    assert pixels.std() > 5
    for edge in (pixels[:2], pixels[-2:], pixels[:, :2], pixels[:, -2:]):
        assert (edge == 255).all()


def test_every_case_is_tried(degenerate):
    assert list(degenerate) == CASES


@pytest.mark.parametrize("draw", [modes_figure, scalogram_figure])
@pytest.mark.parametrize("case", CASES)
def test_layer_figures(degenerate, case, draw):
    assert_drawn(draw(degenerate[case], case))


@pytest.mark.parametrize("draw", [modes_figure, scalogram_figure])
@pytest.mark.parametrize("fixture", ["analysis", "signed_analysis"])
def test_ordinary_layers(request, fixture, draw):
    assert_drawn(draw(request.getfixturevalue(fixture), "layer"))


@pytest.mark.parametrize("draw", [overview_figure, confidence_figure])
@pytest.mark.parametrize("case", ["no field", "no energy", "one token", "many bands", "both ways, two tokens"])
def test_pages_of_one_layer(degenerate, case, draw):
    assert_drawn(draw({f"01_{case}": degenerate[case]}, case))


@pytest.mark.parametrize("draw", [overview_figure, confidence_figure])
def test_pages_of_all(degenerate, analysis, signed_analysis, draw):
    assert_drawn(draw({"long": analysis, "both ways": signed_analysis} | degenerate, "all"))


def test_words_say_what_is_missing(degenerate):
    def words(figure):
        return " ".join(t.get_text() for part in (figure, *figure.axes) for t in part.texts).replace("\n", " ")

    assert "The field POD was switched off" in words(modes_figure(degenerate["no field"], "x"))
    assert "the field POD was switched off" in words(scalogram_figure(degenerate["no field"], "x"))
    for figure in (
        modes_figure(degenerate["no energy"], "x"),
        scalogram_figure(degenerate["no energy"], "x"),
        overview_figure({"01_x": degenerate["no energy"]}, "x"),
    ):
        assert "no energy: the same attention in every document" in words(figure)
    few = words(modes_figure(degenerate["two documents"], "x"))
    assert "mode 1: 100 %" in few
    assert "mode 2: no energy" in few
    assert "mode 3: no energy" in few


@pytest.mark.parametrize("title", ["", "a$b_$c^{d", "层 attention\t\x00", "x" * 300, "two\nlines"])
def test_any_title(degenerate, title):
    assert_drawn(modes_figure(degenerate["no field"], title))


def test_figures_leave_the_analysis_alone(analysis):
    before = {
        field.name: value.clone()
        for field in dataclasses.fields(analysis)
        if hasattr(value := getattr(analysis, field.name), "clone")
    }
    modes = analysis.field.modes.clone()
    modes_figure(analysis, "x")
    scalogram_figure(analysis, "x")
    overview_figure({"01_x": analysis}, "x")
    confidence_figure({"01_x": analysis}, "x")
    assert all(np.array_equal(getattr(analysis, name), value, equal_nan=True) for name, value in before.items())
    assert np.array_equal(analysis.field.modes, modes)
