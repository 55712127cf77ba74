import dataclasses

import numpy as np
import pytest
import torch
from scipy.stats import theilslopes

from scalepod.confidence.null import NullSpectra
from scalepod.figures import scalogram_figure
from scalepod.figures.style import DOMINANT_COLOR
from scalepod.figures.words import with_error
from scalepod.scalogram import cone_of_influence, equivalent_lag
from scalepod.spectrum import spectral_concentration


@pytest.fixture(params=["analysis", "signed_analysis"])
def either(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def figure(analysis):
    return scalogram_figure(analysis, "layer")


@pytest.fixture(scope="module")
def signed_figure(signed_analysis):
    return scalogram_figure(signed_analysis, "layer")


@pytest.fixture
def either_figure(either, figure, signed_figure):
    return signed_figure if either.signed else figure


def test_scalogram_is_drawn_as_it_is(either, either_figure, labelled):
    (ax,) = labelled(either_figure, "scale a")
    mesh = ax.collections[0]
    assert np.array_equal(mesh.get_array(), either.scalogram.double().numpy())
    assert mesh.get_clim() == (0, float(either.scalogram.max()))
    corners = mesh.get_coordinates()
    first = -(either.n_tokens - 1) if either.signed else 0
    assert np.allclose(corners[0, :, 0], np.arange(first, either.n_tokens + 1) - 0.5)
    period = equivalent_lag(either.scales, either.omega0).numpy()
    assert (corners[:-1, 0, 1] < period).all()
    assert (corners[1:, 0, 1] > period).all()


def test_cone_of_influence_is_hatched(either, either_figure, labelled):
    (ax,) = labelled(either_figure, "scale a")
    hatched = [c for c in ax.collections[1:] if c.get_hatch()]
    lag = np.arange(-(either.n_tokens - 1) if either.signed else 0, either.n_tokens)
    period = equivalent_lag(either.scales, either.omega0).numpy()
    trusted = cone_of_influence(either.scales, len(lag)).numpy()
    places = np.stack(np.meshgrid(lag, period), -1).reshape(-1, 2)
    inside = np.any([path.contains_points(places) for c in hatched for path in c.get_paths()], axis=0)
    wrong = inside.reshape(trusted.shape) == trusted
    reach = np.sqrt(2) * either.scales.numpy()[:, None]
    on_the_edge = np.abs(np.minimum(lag - lag[0], lag[-1] - lag) - reach) < 0.05
    assert not (wrong & ~on_the_edge).any()


def test_dominant_scales_are_marked(either, either_figure, labelled):
    assert len(either.dominant_lags) > 0
    (ax,) = labelled(either_figure, "scale a")
    lines = [line.get_ydata()[0] for line in ax.lines if line.get_color() == DOMINANT_COLOR]
    assert np.allclose(lines, either.dominant_lags)
    (beside,) = labelled(either_figure, "E(a)")
    marks = [line.get_xydata()[0] for line in beside.lines if line.get_color() == DOMINANT_COLOR]
    period, energy = equivalent_lag(either.scales).numpy(), either.scale_energy.numpy()
    for (at, lag), expected in zip(marks, lines, strict=True):
        assert lag == expected
        after = int(np.searchsorted(period, lag))
        way = np.log(lag / period[after - 1]) / np.log(period[after] / period[after - 1])
        assert at == pytest.approx(energy[after - 1] + way * (energy[after] - energy[after - 1])), "on the line"
    error = either.confidence.stderrs()["dominant_lag"]
    first, *others = [text.get_text() for text in beside.texts]
    assert first == with_error(lines[0], error)
    assert others == [f"{lag:.3g}" for lag in lines[1:]]


def test_energy_by_scale(figure, analysis, labelled):
    (ax,) = labelled(figure, "E(a)")
    assert np.allclose(ax.lines[0].get_xdata(), analysis.scalogram.sum(1))
    assert np.allclose(ax.lines[0].get_ydata(), equivalent_lag(analysis.scales))
    assert ax.get_ylim() == labelled(ax.figure, "scale a")[0].get_ylim()


@pytest.mark.parametrize(("name", "pod"), [("field", "field"), ("lag", "lag")])
def test_spectrum_and_fitted_line(figure, analysis, labelled, name, pod):
    (ax,) = labelled(figure, f"{name} POD")
    eigenvalues = getattr(analysis, pod).eigenvalues[0].numpy()
    _, points, line = ax.lines
    share = eigenvalues[eigenvalues > 0] / eigenvalues.sum()
    assert np.allclose(points.get_ydata(), share)
    assert np.array_equal(line.get_xdata(), np.arange(1, 31))
    slope, intercept = np.polyfit(np.log(np.arange(1, 31)), np.log(share[:30]), 1)
    assert np.allclose(np.log(line.get_ydata()), intercept + slope * np.log(np.arange(1, 31)))


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


@pytest.mark.parametrize(("name", "prefix"), [("field", ""), ("lag", "lag_")])
def test_legend_gives_the_values_with_their_errors(figure, analysis, labelled, name, prefix):
    (ax,) = labelled(figure, f"{name} POD")
    eigenvalues = getattr(analysis, name).eigenvalues[0].numpy()
    x, y = np.log(np.arange(1, 31)), np.log(eigenvalues[:30])
    slope = np.polyfit(x, y, 1)[0]
    median = theilslopes(y, x).slope
    errors = analysis.confidence.stderrs()
    share = np.cumsum(eigenvalues) / eigenvalues.sum()
    h_star = int((share < 0.9).sum()) + 1
    words = "\n".join(legend(ax))
    assert f"fit to modes 1 to 30, r² = {np.corrcoef(x, y)[0, 1] ** 2:.2f}" in words
    assert f"T_spec = {with_error(-1 / slope, errors[f'{prefix}t_spec'])}\n" in words
    assert f"Theil-Sen: {-1 / median:.2f}" in words
    assert f"H*(0.10) = {with_error(h_star, errors[f'{prefix}h_star_0.10'])}" in words
    (marker,) = (c for c in ax.collections if c.get_label().startswith("H*"))
    assert marker.get_segments()[0][0].tolist() == pytest.approx([h_star, eigenvalues[h_star - 1] / eigenvalues.sum()])


@pytest.mark.parametrize("name", ["field", "lag"])
def test_without_confidence_the_error_is_that_of_the_fit(analysis, labelled, name):
    figure = scalogram_figure(dataclasses.replace(analysis, confidence=None), "layer")
    (ax,) = labelled(figure, f"{name} POD")
    eigenvalues = getattr(analysis, name).eigenvalues[0].numpy()
    (slope, _), covariance = np.polyfit(np.log(np.arange(1, 31)), np.log(eigenvalues[:30]), 1, cov=True)
    error = np.sqrt(covariance[0, 0]) / slope**2
    assert f"T_spec = {with_error(-1 / slope, error)}\n" in "\n".join(legend(ax))
    caption = figure.texts[-1].get_text().replace("\n", " ")
    assert "±: the standard error of the line alone" in caption
    assert "surrogates" not in caption


def test_caption_says_which_error(figure):
    caption = figure.texts[-1].get_text().replace("\n", " ")
    assert "±: one standard error over the choice of documents (jackknife)" in caption
    assert "surrogates" in caption


@pytest.mark.parametrize("surrogates", [1, 3])
def test_null_is_drawn_behind_the_spectra(analysis, labelled, surrogates):
    null = NullSpectra(*(part.repeat(surrogates, 1) for part in analysis.confidence.null))
    confidence = dataclasses.replace(analysis.confidence, null=null)
    figure = scalogram_figure(dataclasses.replace(analysis, confidence=confidence), "layer")
    for name, spectra in (("field", null.field_eigenvalues), ("lag", null.lag_eigenvalues)):
        (ax,) = labelled(figure, f"{name} POD")
        grey, eigenvalues = ax.lines[:surrogates], ax.lines[surrogates]
        shares = spectra[0].double() / spectra[0].double().sum()
        for line in grey:
            assert np.allclose(np.nan_to_num(line.get_ydata()), shares)
            assert line.get_zorder() < eigenvalues.get_zorder()
        assert legend(ax)[:2] == ["no coherent structure", "eigenvalues"]
    (beside,) = labelled(figure, "E(a)")
    for line in beside.lines[1 : 1 + surrogates]:
        assert np.allclose(line.get_xdata(), null.scale_energy[0])
        assert line.get_zorder() < beside.lines[0].get_zorder()
    assert "― no coherent structure" in [text.get_text() for text in figure.texts]
    assert beside.get_xlim()[1] > float(null.scale_energy.max())


def test_fit_range_that_starts_later(analysis, labelled):
    fit = spectral_concentration(analysis.lag.eigenvalues, (5, 15))
    (ax,) = labelled(scalogram_figure(dataclasses.replace(analysis, lag_fit=fit), "layer"), "lag POD")
    assert np.array_equal(ax.lines[2].get_xdata(), np.arange(5, 16))
    assert "fit to modes 5 to 15" in legend(ax)[2]


def test_undefined_fit_gives_its_reason(degenerate, labelled):
    (ax,) = labelled(scalogram_figure(degenerate["two documents"], "layer"), "field POD")
    words = ax.get_legend().get_texts()[1].get_text().replace("\n", " ")
    assert words == f"T_spec undefined: {degenerate['two documents'].field_fit.reason(0)}"
    assert len(ax.lines[1].get_xdata()) == 0


def test_errors_stand_in_the_table(figure, analysis):
    errors = analysis.confidence.stderrs()
    expected = []
    for prefix in ("", "lag_"):
        for window in ("", "_fine", "_medium", "_coarse"):
            for name, decimals in (("t_spec", 2), ("h_star_0.10", 1)):
                words = f"±{errors[f'{prefix}{name}{window}']:.{decimals}f}"
                expected.append({"±0.00": "<0.01", "±0.0": "<0.1"}.get(words, words))
    assert [t.get_text() for t in figure.texts if t.get_text().startswith(("±", "<"))] == expected
    bare = scalogram_figure(dataclasses.replace(analysis, confidence=None), "layer")
    assert not [text for text in bare.texts if text.get_text().startswith(("±", "<"))]


def test_no_dominant_scale_is_said(analysis, labelled):
    none = torch.empty(0)
    quiet = dataclasses.replace(
        analysis,
        dominant_scales=none,
        dominant_lags=none,
        window_names=analysis.window_names[:4],
        window_lags=analysis.window_lags[:4],
    )
    figure = scalogram_figure(quiet, "layer")
    (beside,) = labelled(figure, "E(a)")
    assert beside.get_title("right") == "no scale stands out"
    assert not [line for line in labelled(figure, "scale a")[0].lines if line.get_color() == DOMINANT_COLOR]


def test_table_has_the_values_of_every_window(figure, analysis):
    words = [text.get_text() for text in figure.texts]
    for m, t_spec in enumerate(analysis.lag_fit.t_spec.tolist()):
        assert f"{t_spec:.2f}" in words
        assert f"{float(analysis.field_fit.t_spec[m]):.2f}" in words
    assert "whole: all lags" in words
    assert "fine: lag 4" in words
    assert [w for w in words if w.startswith("dominant")] == [
        f"dominant: lag {lag:.3g}" for lag in analysis.dominant_lags
    ]


def test_axes_say_tokens(either, either_figure, labelled):
    (ax,) = labelled(either_figure, "scale a")
    assert ax.get_ylabel() == "scale a as equivalent lag, tokens"
    assert ax.get_xlabel() == ("lag b, tokens\n← ahead | back →" if either.signed else "lag b, tokens")


def test_heading_says_what_was_analysed(figure, analysis, signed_figure):
    odd = dataclasses.replace(analysis, n_skipped=3, burn_in=8, n_queries=61.5)
    words = scalogram_figure(odd, "layer").texts[1].get_text()
    for part in ("40 documents of 96 tokens", "3 left out", "first 8 queries left out", "61.5 queries each"):
        assert part in words
    assert "padding" not in figure.texts[1].get_text()
    assert "looks both ways, in token or patch order" in signed_figure.texts[1].get_text()
