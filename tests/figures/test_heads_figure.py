from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from scalepod.figures import figure_to_array, heads_figure
from scalepod.figures.style import FIELD_COLOR, LAG_COLOR
from scalepod.heads import HeadRedundancy, head_gram, head_moments, head_redundancy


@pytest.fixture(scope="module")
def compared(random_attention) -> Callable[..., HeadRedundancy]:
    """Two heads that are alike, and one that is not; that may pay the same attention in every document."""

    def compare(windows: Tensor, *, still: bool = False) -> HeadRedundancy:
        maps = torch.stack([random_attention(10, windows.shape[1], seed=seed) for seed in range(3)], 1)
        maps[:, 1] = 0.5 * maps[:, 0] + 0.5 * maps[:, 1]
        if still:
            maps[:, -1] = maps[:1, -1]
        return head_redundancy(head_gram(head_moments(maps), windows))

    return compare


@pytest.fixture(scope="module")
def pages(compared, analysis, degenerate):
    analyses = {"01_m.h.0.attn": analysis, "02_m.h.1.attn": degenerate["no field"], "03_m.h.2.attn": analysis}
    redundancies = {
        "01_m.h.0.attn": compared(analysis.windows[:4]),
        "02_m.h.1.attn": compared(degenerate["no field"].windows[:3], still=True),
    }
    return redundancies, analyses


@pytest.fixture(scope="module")
def figure(pages):
    return heads_figure(*pages, "step 0")


def words(figure, color=None):
    return [text.get_text() for text in figure.texts if color is None or text.get_color() == color]


def test_similarity_of_all_lags_and_in_the_bands(figure, pages):
    (ax,) = (ax for ax in figure.axes if ax.images)
    redundancies = list(pages[0].values())
    expected = [matrix for r in redundancies for matrix in r.similarity]
    assert len(ax.images) == len(expected) == 4 + 3
    for image, matrix in zip(ax.images, expected, strict=True):
        assert np.array_equal(np.ma.filled(image.get_array(), np.nan), matrix.numpy(), equal_nan=True)
        assert image.get_clim() == (-1, 1)
    assert ax.images[4].get_array().mask[2].all(), "the head that never varies"
    titles = [w for w in words(figure) if ": lag" in w or "all lags" in w]
    assert titles == ["whole: all lags", "fine: lag 4", "medium: lag 12", "coarse: lag 36", *titles[:3]]


def test_maps_do_not_overlap_and_stay_in_their_axes(figure):
    (ax,) = (ax for ax in figure.axes if ax.images)
    left, right = ax.get_xlim()
    low, high = sorted(ax.get_ylim())
    boxes = [(*sorted(e[:2]), *sorted(e[2:])) for e in (image.get_extent() for image in ax.images)]
    for k, (x0, x1, y0, y1) in enumerate(boxes):
        assert left <= x0 < x1 <= right
        assert low <= y0 < y1 <= high
        for a0, a1, b0, b1 in boxes[:k]:
            assert x0 >= a1 or x1 <= a0 or y0 >= b1 or y1 <= b0


def test_numbers_of_heads(figure, pages):
    said = words(figure)
    for redundancy in pages[0].values():
        assert f"{float(redundancy.distinct[0]):.1f} distinct heads" in said
        assert any(f"keeps {100 * float(redundancy.mean_share[0]):.0f} %" in text for text in said)
        for m in range(1, len(redundancy.distinct)):
            assert f"{float(redundancy.distinct[m]):.1f} distinct" in said


def test_table_has_heads_beside_the_ranks_of_the_layer(figure, pages, analysis, degenerate):
    said = words(figure)
    for name, redundancy, place in zip(pages[0], pages[0].values(), (0, 1), strict=True):
        start = [k for k, text in enumerate(said) if text == "heads"][place]
        layer = pages[1][name]
        needed = [int(redundancy.needed(eps)[0]) for eps in (0.10, 0.05, 0.01)]
        lag = list(layer.lag_h_star.values())
        field = list(layer.h_star.values()) or ["–"] * 3
        cells = ["heads", *needed, "lag H*", *lag, "field H*", *field]
        assert said[start : start + 12] == [str(cell) for cell in cells]
    assert str(analysis.lag_h_star[0.10]) in words(figure, LAG_COLOR)
    assert str(analysis.h_star[0.10]) in words(figure, FIELD_COLOR)


def test_caption_says_what_ranks_do_not_say(figure):
    assert "H* does not say how many heads can be pruned" in figure.texts[-1].get_text().replace("\n", " ")


@pytest.mark.parametrize("case", ["no energy", "one token", "many bands", "both ways, two tokens"])
def test_any_layer(random_attention, degenerate, case):
    layer = degenerate[case]
    n_heads = 1 if case == "one token" else 40
    maps = random_attention(1, layer.n_tokens).expand(4, -1, -1)[:, None].expand(-1, n_heads, -1, -1)
    pixels = figure_to_array(
        heads_figure({"x": head_redundancy(head_gram(head_moments(maps), layer.windows))}, {"x": layer}, case)
    )
    for edge in (pixels[:2], pixels[-2:], pixels[:, :2], pixels[:, -2:]):
        assert (edge == 255).all()


def test_nothing_is_cut_off(figure):
    pixels = figure_to_array(figure)
    for edge in (pixels[:2], pixels[-2:], pixels[:, :2], pixels[:, -2:]):
        assert (edge == 255).all()


def test_of_many_layers_twelve_are_drawn(compared, analysis):
    names = [f"{k:02d}_m.h.{k}.attn" for k in range(20)]
    redundancy = compared(analysis.windows[:1])
    figure = heads_figure(dict.fromkeys(names, redundancy), dict.fromkeys(names, analysis), "x")
    assert words(figure)[1].startswith("12 of 20 layers, evenly spread")
    assert words(figure).count("heads") == 12


def test_what_does_not_belong_together(compared, pages, analysis):
    redundancies, analyses = pages
    with pytest.raises(ValueError, match="redundancies is empty"):
        heads_figure({}, analyses, "x")
    with pytest.raises(ValueError, match=r"analyses has no layer '01_m\.h\.0\.attn'"):
        heads_figure(redundancies, {}, "x")
    known = len(analysis.window_names)
    with pytest.raises(ValueError, match=f"compared in {known + 1} windows, but its analysis has {known}"):
        heads_figure({"x": compared(torch.ones(known + 1, 96))}, {"x": analysis}, "x")
