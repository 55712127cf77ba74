import dataclasses

import numpy as np
import pytest
import torch

from scalepod.figures import figure_to_array, modes_figure
from scalepod.figures.modes import _block
from scalepod.tracking import ModeTracker, ShownModes, Tracked


@pytest.fixture(scope="module")
def figure(analysis):
    return modes_figure(analysis, "layer")


def drawn_rows(analysis):
    """Windows from the top: the whole, the bands by lag, the first dominant lag."""
    n_bands = len(analysis.bands)
    return [0, *range(1, 1 + n_bands), *range(1 + n_bands, 2 + n_bands)[: len(analysis.dominant_lags)]]


def test_the_whole_modes_are_drawn_as_they_are(figure, analysis, labelled):
    whole = labelled(figure, "query, tokens")[0]
    assert len(whole.images) == 3
    for k, image in enumerate(whole.images):
        drawn = image.get_array()
        assert np.array_equal(drawn.data, analysis.field.modes[0, k].numpy())
        assert np.array_equal(drawn.mask, np.triu(np.ones((96, 96), dtype=bool), 1)), "only the future is hidden"


def test_a_short_window_shows_the_block_with_most_energy(figure, analysis, labelled):
    maps = labelled(figure, "query, tokens")
    for ax, m in zip(maps, drawn_rows(analysis), strict=True):
        first, last = (int(label.get_text()) for label in ax.get_yticklabels())
        modes = analysis.field.modes[m].numpy()
        for image, mode in zip(ax.images, modes, strict=True):
            assert np.array_equal(image.get_array().data, mode[first : last + 1, first : last + 1])
        size = last + 1 - first
        energies = [np.square(modes[:, s : s + size, s : s + size]).sum() for s in range(96 - size + 1)]
        assert np.isclose(energies[first], max(energies), rtol=1e-5)
    sizes = [len(ax.images[0].get_array()) for ax in maps]
    assert sizes[0] == 96
    assert min(sizes) == 48


@pytest.mark.parametrize(
    ("n_tokens", "lag", "size"), [(256, 4.0, 48), (256, 36.0, 144), (256, np.nan, 256), (50, 4.0, 50)]
)
def test_size_of_the_block(n_tokens, lag, size):
    modes = np.zeros((2, n_tokens, n_tokens))
    modes[:, 40:45, 40:45] = 1
    first, drawn = _block(modes, n_tokens, lag)
    assert drawn == size
    assert first <= 40
    assert first + drawn >= 45


def test_colours_are_symmetric_about_zero_and_the_limit_is_written(figure, analysis, labelled):
    words = "\n".join(text.get_text() for text in figure.texts)
    for ax in labelled(figure, "query, tokens"):
        limits = {image.get_clim() for image in ax.images}
        assert len(limits) == 1, "one scale for the modes of a row"
        low, high = limits.pop()
        assert low == -high < 0
        assert f"colour limit ±{high:.2g}" in words
        saturated = [np.mean(np.abs(image.get_array().compressed()) > high) for image in ax.images]
        assert max(saturated) <= 0.01


def test_both_signs_reach_the_pixels(analysis, labelled):
    modes = torch.zeros_like(analysis.field.modes)
    modes[:, :, 60:, :20] = 0.05
    modes[:, :, 60:, 20:40] = -0.05
    figure = modes_figure(dataclasses.replace(analysis, field=analysis.field._replace(modes=modes)), "layer")
    pixels = figure_to_array(figure)
    corner = labelled(figure, "query, tokens")[0].transData.transform([[10, 80], [30, 80]])
    (red, _, blue_of_red), (red_of_blue, _, blue) = (
        pixels[len(pixels) - 1 - int(y), int(x)].astype(int) for x, y in corner
    )
    assert red - blue_of_red > 50
    assert blue - red_of_blue > 50


def test_lag_profile_is_the_mean_over_queries(figure, analysis, labelled):
    profiles = labelled(figure, "mean over queries")
    for ax, m in zip(profiles, drawn_rows(analysis), strict=True):
        for k, line in enumerate(ax.lines[1:]):
            mode = analysis.field.modes[m, k].double().numpy()
            expected = [sum(mode[i, i - lag] for i in range(lag, 96)) / 96 for lag in range(96)]
            assert np.allclose(line.get_ydata(), expected, atol=1e-12)
            assert np.array_equal(line.get_xdata(), np.arange(96))


def test_lag_modes_and_shape_of_the_window(figure, analysis, labelled):
    panels = labelled(figure, "lag mode")
    for ax, m in zip(panels, drawn_rows(analysis), strict=True):
        lines = np.stack([line.get_ydata() for line in ax.lines[1:]])
        assert np.array_equal(lines, analysis.lag.modes[m].double().numpy())
        if m > 0:
            low, high = ax.get_ylim()
            outline = {x: y for x, y in ax.collections[0].get_paths()[0].vertices if y > low}
            heights = [(outline.get(lag, low) - low) / (high - low) for lag in range(96)]
            assert np.allclose(heights, analysis.windows[m].numpy(), atol=1e-6)


def test_shares_of_the_energy_are_written(figure, analysis):
    words = [text.get_text() for text in figure.texts]
    eigenvalues = analysis.field.eigenvalues[0]
    for k in range(3):
        share = 100 * float(eigenvalues[k] / eigenvalues.sum())
        assert any(word.startswith(f"mode {k + 1}: {share:.1f} %") for word in words)


def test_modes_that_the_documents_cannot_tell_apart_are_marked(analysis):
    eigenvalues = analysis.field.eigenvalues.clone()
    eigenvalues[0, :4] = torch.tensor([100.0, 99.0, 50.0, 10.0])  # North's rule for 40 documents: 22 % apart
    figure = modes_figure(
        dataclasses.replace(analysis, field=analysis.field._replace(eigenvalues=eigenvalues)), "layer"
    )
    marks = [t.get_text().endswith("≈") for t in figure.texts if t.get_text().startswith("mode ")][:3]
    assert marks == [True, False, False]


def test_signed_modes_show_both_directions(signed_analysis, labelled):
    figure = modes_figure(signed_analysis, "layer")
    whole = labelled(figure, "query, tokens")[0].images[0].get_array()
    assert np.array_equal(whole.data, signed_analysis.field.modes[0, 0].numpy())
    assert not whole.mask.any()
    profile = labelled(figure, "mean over queries")[0]
    mode = signed_analysis.field.modes[0, 0].double().numpy()
    expected = [np.trace(mode, -lag) / 48 for lag in range(-47, 48)]
    assert np.allclose(profile.lines[1].get_ydata(), expected, atol=1e-12)
    assert profile.get_xlim() == (-47.5, 47.5)
    bottom = labelled(figure, "lag mode")[-1]
    assert bottom.get_xlabel() == "lag, tokens\n← ahead | back →"


def test_axes_say_tokens(figure, analysis, labelled):
    assert len(labelled(figure, "key, tokens")) == 1
    assert len(labelled(figure, "lag, tokens")) == 2
    assert len(labelled(figure, "query, tokens")) == 5


@pytest.fixture(scope="module")
def tracked(analysis):
    """The modes of the analysis as a tracker may order them: turned over, the first and the third exchanged."""

    def reordered(pod, m):
        order = torch.tensor([2, 1, 0])
        return ShownModes(-pod.modes[m, order], pod.eigenvalues[m, order], order, torch.tensor([True, False, False]),
                          0.01 * (m + 1))  # fmt: skip

    n_fixed = len(analysis.window_names) - len(analysis.dominant_lags)
    windows = {name: m for m, name in enumerate(analysis.window_names[:n_fixed])} | {"dominant": n_fixed}
    field, lag = ({name: reordered(pod, m) for name, m in windows.items()} for pod in (analysis.field, analysis.lag))
    return Tracked(field, lag, float("nan"), float("nan"))


def test_tracked_modes_are_drawn_in_their_order(analysis, tracked, labelled):
    figure = modes_figure(analysis, "layer", tracked)
    rows = drawn_rows(analysis)
    for ax, m in zip(labelled(figure, "query, tokens"), rows, strict=True):
        first, last = (int(label.get_text()) for label in ax.get_yticklabels())
        for image, k in zip(ax.images, (2, 1, 0), strict=True):
            mode = analysis.field.modes[m, k].numpy()
            assert np.array_equal(image.get_array().data, -mode[first : last + 1, first : last + 1])
            assert image.get_clim() == (-0.01 * (m + 1), 0.01 * (m + 1))
    for ax, m in zip(labelled(figure, "lag mode"), rows, strict=True):
        lines = np.stack([line.get_ydata() for line in ax.lines[1:]])
        assert np.array_equal(lines, -analysis.lag.modes[m, [2, 1, 0]].double().numpy())
    assert all(ax.get_title().split()[1::2] == ["3", "2", "1"] for ax in labelled(figure, "mean over queries"))


def test_tracked_modes_keep_the_number_of_their_energy(analysis, tracked, labelled):
    figure = modes_figure(analysis, "layer", tracked)
    words = [text.get_text() for text in figure.texts if text.get_text().startswith("mode ")][:3]
    shares = 100 * analysis.field.eigenvalues[0] / analysis.field.eigenvalues[0].sum()
    assert words == [f"mode 3: {shares[2]:.1f} % ≈", f"mode 2: {shares[1]:.1f} %", f"mode 1: {shares[0]:.1f} %"]
    shares = 100 * analysis.lag.eigenvalues[0] / analysis.lag.eigenvalues[0].sum()
    title = labelled(figure, "lag mode")[0].get_title()
    assert [float(share) for share in title.split()[1:-1:2]] == [float(f"{shares[k]:.2g}") for k in (2, 1, 0)]
    assert "turned together towards the last picture's" in figure.texts[-1].get_text().replace("\n", " ")


def test_untracked_is_what_a_tracker_shows_first(analysis):
    first = modes_figure(analysis, "layer", ModeTracker().follow("layer", analysis))
    plain = modes_figure(analysis, "layer")
    assert [[image.get_clim() for image in ax.images] for ax in first.axes] == [
        [image.get_clim() for image in ax.images] for ax in plain.axes
    ]
    words = [[text.get_text().removesuffix(" ≈") for text in figure.texts[:-1]] for figure in (first, plain)]
    assert words[0] == words[1]


def test_a_window_that_is_not_tracked(analysis, tracked):
    few = dataclasses.replace(tracked, lag={name: tracked.lag[name] for name in ("whole", "dominant")})
    with pytest.raises(ValueError, match=r"lag modes of window 'fine' .* only those of \['dominant', 'whole'\]"):
        modes_figure(analysis, "layer", few)
