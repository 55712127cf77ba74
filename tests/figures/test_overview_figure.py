import dataclasses
from itertools import pairwise

import numpy as np
import pytest

from scalepod.figures import overview_figure
from scalepod.figures.style import DOMINANT_COLOR, FIELD_COLOR, LAG_COLOR

EDGES = [0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96]


@pytest.fixture(scope="module")
def layers(analysis, degenerate):
    names = ("two documents", "no energy", "no field")
    return {"01_model.h.0.attn": analysis} | {
        f"{k + 2:02d}_model.h.{k + 1}.attn": degenerate[name] for k, name in enumerate(names)
    }


@pytest.fixture(scope="module")
def figure(layers):
    return overview_figure(layers, "step 0")


def caption(figure):
    return figure.texts[-1].get_text().replace("\n", " ")


def test_share_of_the_energy_by_lag(figure, layers, analysis, labelled):
    (ax,) = labelled(figure, "lag, tokens")
    shares = ax.collections[0].get_array()
    energy = analysis.lag_energy.numpy()
    bins = pairwise(EDGES)
    assert np.allclose(shares[0], [energy[low:high].sum() / energy.sum() for low, high in bins])
    assert shares[0].sum() == pytest.approx(1)
    assert shares[1].sum() == pytest.approx(1)
    assert shares.mask[1].tolist() == [low >= 24 for low in EDGES[:-1]], "no lags beyond the text"
    assert shares.mask[2].all(), "no energy"
    assert np.allclose(ax.collections[0].get_coordinates()[0, :, 0], np.array(EDGES) - 0.5)


def test_mean_and_dominant_lags_are_marked(figure, layers, labelled):
    (ax,) = labelled(figure, "lag, tokens")
    others, first, mean = ax.lines
    dominant = [(row, layer.dominant_lags.tolist()) for row, layer in enumerate(layers.values())]
    assert first.get_color() == others.get_color() == DOMINANT_COLOR
    assert first.get_xydata().tolist() == [[lags[0], row] for row, lags in dominant if lags]
    assert others.get_xydata().tolist() == [[lag, row] for row, lags in dominant for lag in lags[1:]]
    assert np.allclose(mean.get_xdata().astype(float), [layer.mean_lag for layer in layers.values()], equal_nan=True)
    assert np.array_equal(mean.get_ydata(), range(4))


def test_bands_are_stacked(figure, layers, labelled):
    (ax,) = labelled(figure, "share of energy")
    shares = [list(layer.bands.values()) or [0, 0, 0] for layer in layers.values()]
    widths = np.array([[bar.get_width() for bar in bars] for bars in ax.containers])
    assert np.allclose(widths, 100 * np.array(shares).T)
    starts = np.array([[bar.get_x() for bar in bars] for bars in ax.containers])
    assert np.allclose(starts, np.cumsum(widths, 0) - widths)


def test_complexity_by_layer(figure, layers, labelled):
    (t_spec,), (h_star,) = labelled(figure, "T_spec = 1 / slope"), labelled(figure, "number of modes")
    field, lag = (container.lines[0] for container in t_spec.containers)
    assert (field.get_color(), lag.get_color()) == (FIELD_COLOR, LAG_COLOR)
    assert np.allclose(lag.get_xdata().astype(float), [layer.lag_t_spec for layer in layers.values()], equal_nan=True)
    assert np.allclose(field.get_xdata().astype(float), [layer.t_spec for layer in layers.values()], equal_nan=True)
    field, lag = (container.lines[0] for container in h_star.containers)
    expected = [layer.lag_h_star[0.10] or np.nan for layer in layers.values()]
    assert np.allclose(lag.get_xdata().astype(float), expected, equal_nan=True)
    expected = [layer.h_star.get(0.10) or np.nan for layer in layers.values()]
    assert np.allclose(field.get_xdata().astype(float), expected, equal_nan=True)


def bars(ax, row):
    """Half lengths of the error bars of field and lag in one row."""
    segments = [container.lines[2][0].get_segments()[row] for container in ax.containers]
    return [np.ptp(segment[:, 0]) / 2 if len(segment) else None for segment in segments]


def test_bars_are_errors_over_documents(figure, analysis, labelled):
    (t_spec,), (h_star,) = labelled(figure, "T_spec = 1 / slope"), labelled(figure, "number of modes")
    errors = analysis.confidence.stderrs()
    assert bars(t_spec, 0) == pytest.approx([errors["t_spec"], errors["lag_t_spec"]])
    assert bars(h_star, 0) == pytest.approx([errors["h_star_0.10"], errors["lag_h_star_0.10"]])
    (lag,) = labelled(figure, "lag, tokens")
    assert bars(lag, 0) == pytest.approx([errors["mean_lag"]])
    assert "of layers without confidence the standard error of the line alone" in caption(figure)


def test_without_confidence_bars_are_errors_of_the_fit(analysis, labelled):
    figure = overview_figure({"01_x": dataclasses.replace(analysis, confidence=None)}, "step 0")
    (t_spec,), (h_star,) = labelled(figure, "T_spec = 1 / slope"), labelled(figure, "number of modes")
    fits = analysis.field_fit, analysis.lag_fit
    assert bars(t_spec, 0) == pytest.approx([float(fit.stderr[0] / fit.beta[0] ** 2) for fit in fits])
    assert bars(h_star, 0) == [None, None]
    assert len(h_star.lines) == 2, "no rings"
    assert "Bars: the standard error of the line alone" in caption(figure)
    assert "Hollow" not in caption(figure)


@pytest.mark.parametrize(("growth", "hollow"), [(1.05, False), (1.5, True)])
def test_ranks_that_count_documents_are_hollow(analysis, labelled, growth, hollow):
    settled = analysis.confidence.lag_convergence
    ranks = settled.h_star.clone()
    ranks[:, 1] = ranks[:, 2] / 1.05
    ranks[0, 1] = ranks[0, 2] / growth
    confidence = dataclasses.replace(
        analysis.confidence, field_convergence=None, lag_convergence=settled._replace(h_star=ranks)
    )
    figure = overview_figure({"01_x": dataclasses.replace(analysis, confidence=confidence)}, "step 0")
    (ax,) = labelled(figure, "number of modes")
    rings = [line.get_xdata().tolist() for line in ax.lines if line.get_markerfacecolor() == "white"]
    assert rings == ([[analysis.lag_h_star[0.10]]] if hollow else [])
    assert ("Hollow: limited by the number of documents" in caption(figure)) == hollow


def test_first_layer_is_at_the_top(figure, layers, labelled):
    (ax,) = labelled(figure, "lag, tokens")
    assert [label.get_text() for label in ax.get_yticklabels()] == ["01 h.0", "02 h.1", "03 h.2", "04 h.3"]
    for panel in figure.axes:
        if panel.get_xlabel():
            assert panel.get_ylim() == (3.5, -0.5)


def test_signed_and_causal_layers_share_a_lag_axis(analysis, signed_analysis, labelled):
    figure = overview_figure({"01_encoder": signed_analysis, "02_decoder": analysis}, "step 0")
    (ax,) = labelled(figure, "lag, tokens")
    assert ax.get_xlabel() == "lag, tokens\n← ahead | back →"
    shares = ax.collections[0].get_array()
    lag, energy = np.arange(-47, 48), signed_analysis.lag_energy.numpy()
    edges = [1 - edge for edge in reversed(EDGES[1:])] + EDGES[1:]
    for column, (low, high) in enumerate(pairwise(edges)):
        expected = energy[(lag >= low) & (lag < high)].sum() / energy.sum()
        assert shares[0].filled(0)[column] == pytest.approx(expected)
        assert bool(shares.mask[1, column]) == (high <= 0), "a causal layer has no lags ahead"


@pytest.mark.parametrize("count", [1, 2, 12, 48])
def test_rows_leave_room_for_names(analysis, labelled, count):
    figure = overview_figure({f"{k:02d}_model.h.{k}.attn": analysis for k in range(count)}, "step 0")
    figure.canvas.draw()
    (ax,) = labelled(figure, "lag, tokens")
    boxes = [label.get_window_extent().extents.tolist() for label in reversed(ax.get_yticklabels())]
    assert all(lower[3] <= upper[1] for lower, upper in pairwise(boxes))
    assert all(box[0] >= 0 for box in boxes)


def test_no_layers():
    with pytest.raises(ValueError, match="analyses is empty"):
        overview_figure({}, "step 0")
