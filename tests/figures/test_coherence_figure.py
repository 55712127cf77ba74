import numpy as np
import pytest
import torch

from scalepod.coherence import Coherence, coherence
from scalepod.figures import coherence_figure, figure_to_array
from scalepod.figures.style import CHANCE_COLORMAP, ENERGY_COLORMAP, INK, NULL_COLOR


@pytest.fixture(scope="module", params=[False, True], ids=["causal", "signed"])
def signed(request):
    return request.param


@pytest.fixture(scope="module")
def found(random_attention, signed):
    attn = random_attention(20, 40, signed=signed)
    attn[:, :, :12] += (
        0.5
        * torch.randn(20, 40, 1, generator=torch.Generator().manual_seed(1))
        * torch.cos(2 * torch.pi * torch.arange(12) / 4)
    )  # the same wave at the first keys of a query, its strength another in every document
    return {4.1: coherence(attn if signed else attn.tril(), 4.0, signed=signed),
            2.6: coherence(random_attention(20, 40, signed=signed), 2.5, signed=signed)}  # fmt: skip


@pytest.fixture(scope="module")
def figure(found):
    return coherence_figure(found, "layer")


def test_significant_pairs_are_coloured_and_the_others_grey(figure, found, labelled):
    maps = labelled(figure, "key, tokens")
    assert len(maps) == 2
    for ax, one in zip(maps, found.values(), strict=True):
        chance, significant = ax.images
        above = (one.gamma > one.level) & one.tested
        assert above.any()
        assert (one.tested & ~above).any()
        for image, colormap, shown in (
            (chance, CHANCE_COLORMAP, one.tested & ~above),
            (significant, ENERGY_COLORMAP, above),
        ):
            assert image.get_cmap() == colormap
            assert image.get_clim() == (0, 1)
            drawn = image.get_array()
            assert np.array_equal(~drawn.mask, shown.numpy())
            assert np.array_equal(drawn.data[~drawn.mask], one.gamma[shown].double().numpy())


def test_pairs_that_were_not_tested_are_hatched(figure, found, labelled, signed):
    for ax, one in zip(labelled(figure, "key, tokens"), found.values(), strict=True):
        (hatched,) = ax.collections
        assert hatched.hatches == ["////"]
        query, key = np.meshgrid(range(40), range(40), indexing="ij")
        inside = np.any([path.contains_points(np.stack([key, query], -1).reshape(-1, 2)) for path in
                         hatched.get_paths()], axis=0).reshape(40, 40)  # fmt: skip
        visible = np.ones((40, 40), dtype=bool) if signed else key <= query
        expected = visible & ~one.tested.numpy()
        inner = slice(1, -1)
        assert np.array_equal(inside[inner, inner], expected[inner, inner])


def test_means_by_lag(figure, found, labelled, signed):
    for ax, one in zip(labelled(figure, "lag"), found.values(), strict=True):
        lines = {line.get_color(): line for line in ax.lines}
        first = -39 if signed else 0
        for color, values in ((INK, one.gamma), (NULL_COLOR, one.level)):
            expected = []
            for lag in range(first, 40):
                pairs = [float(values[i, i - lag]) for i in range(40) if 0 <= i - lag < 40 and one.tested[i, i - lag]]
                expected.append(np.mean(pairs) if pairs else np.nan)
            assert np.array_equal(lines[color].get_xdata(), range(first, 40))
            assert np.allclose(lines[color].get_ydata(), expected, equal_nan=True)
        assert ax.get_ylim() == (0, 1)


def test_share_of_significant_pairs_is_written(figure, found):
    words = [text.get_text() for text in figure.texts]
    for lag, one in found.items():
        assert f"scale of {lag} tokens" in words
        share = 100 * one.significant_share
        assert (
            f"{share:.0f} % of tested pairs significant" in words
            or f"{share:.1f} % of tested pairs significant" in words
        )
    assert words[1] == "cross-coherence at 2 dominant scales"


def test_nothing_is_cut_off(figure):
    pixels = figure_to_array(figure)
    for edge in (pixels[:2], pixels[-2:], pixels[:, :2], pixels[:, -2:]):
        assert (edge == 255).all()


@pytest.mark.parametrize("n_tokens", [1, 2, 6, 300])
def test_text_too_short_to_test_and_long(n_tokens):
    generator = torch.Generator().manual_seed(0)
    attn = torch.rand(6, n_tokens, n_tokens, generator=generator).tril()
    figure = coherence_figure({4.1: coherence(attn, 4.0)}, "layer")
    figure_to_array(figure)
    untested = any(text.get_text() == "no pair far enough apart to test" for text in figure.texts)
    assert untested == (n_tokens < 300)


def test_of_many_scales_four_are_drawn_and_of_none_it_is_said(found, labelled):
    one = next(iter(found.values()))
    figure = coherence_figure({float(lag): one for lag in (3, 5, 8, 13, 21)}, "layer")
    assert len(labelled(figure, "key, tokens")) == 4
    assert figure.texts[1].get_text() == "cross-coherence at 5 dominant scales, the first 4 shown"
    none = coherence_figure({}, "layer")
    assert not none.axes
    assert "no scale stands out" in none.texts[2].get_text()
    assert figure_to_array(none).std() > 5


def test_a_pair_without_a_level_is_not_significant(labelled):
    gamma = torch.full((8, 8), 0.9)
    level = torch.full((8, 8), torch.nan)
    tested = torch.ones(8, 8, dtype=torch.bool).tril(-4)
    level[tested] = 0.5
    figure = coherence_figure({2.0: Coherence(gamma, level, level, tested)}, "layer")
    assert np.array_equal(~labelled(figure, "key, tokens")[0].images[1].get_array().mask, tested.numpy())
