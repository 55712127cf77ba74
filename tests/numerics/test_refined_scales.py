import math

import pytest
import torch

from scalepod.scalogram import dominant_scales, peak_near, refine_scales, scale_grid

SCALES = scale_grid(2, 64, 8)
UNEVEN = torch.tensor([2.0, 2.5, 3.5, 5.0, 6.0, 9.0, 12.0, 20.0], dtype=torch.float64)


def bump(top, scales, width=0.5, height=1.0):
    """E(a) whose logarithm is a parabola in log a, highest at `top`."""
    return height * torch.exp(-(((scales / top).log() / width) ** 2))


@pytest.mark.parametrize("scales", [SCALES, SCALES[::4], UNEVEN])
@pytest.mark.parametrize("top", [2.6, 4.0, 5.4, 8.7, 11.0])
def test_a_parabola_gives_its_top(top, scales):
    energy = bump(top, scales)
    profile = torch.stack([energy, 3 * energy], 1)
    refined = refine_scales(profile, scales, dominant_scales(profile, scales))
    torch.testing.assert_close(refined, torch.tensor([top], dtype=torch.float64))
    torch.testing.assert_close(peak_near(energy[None], scales, top * 1.2), refined)


def test_refined_scales_keep_their_order_and_stay_between_their_neighbours():
    energy = torch.rand(1, 41, generator=torch.Generator().manual_seed(0), dtype=torch.float64).mT
    found = dominant_scales(energy, SCALES, max_scales=20)
    refined = refine_scales(energy, SCALES, found)
    steps = (refined / found).log2().abs()
    assert len(found) > 5
    assert (steps <= 1 / 16 + 1e-9).all()  # half a step of the grid
    assert (steps > 0).any()


def test_a_flat_top_and_a_lone_peak_stay_in_the_middle():
    grid = 2.0 ** torch.arange(5)
    for energy in ([1, 3, 3, 3, 2], [0, 0, 1, 0, 0]):
        profile = torch.tensor(energy, dtype=torch.float32)[:, None]
        found = dominant_scales(profile, grid)
        torch.testing.assert_close(refine_scales(profile, grid, found), torch.tensor([4.0]))


def test_no_scale_is_refined_to_none():
    assert refine_scales(torch.ones(41, 3), SCALES, torch.empty(0)).shape == (0,)


def test_each_set_gets_its_own_peak_near_the_given_scale():
    sets = torch.stack(
        [
            bump(9.0, SCALES),
            bump(11.0, SCALES) + bump(30.0, SCALES, 0.2, 5.0),  # a higher peak elsewhere
            bump(10.0, SCALES, 0.03, 0.5) + bump(8.0, SCALES, 0.03),  # two inside: the higher
            bump(20.0, SCALES),  # too far
            1 / SCALES,  # falls all the way
            torch.zeros(41, dtype=torch.float64),
            torch.ones(41, dtype=torch.float64),
        ]
    )
    found = peak_near(sets, SCALES, near=10.0).tolist()
    assert found[0] == pytest.approx(9.0)
    assert found[1] == pytest.approx(11.0, rel=0.01)
    assert found[2] == pytest.approx(8.0, rel=0.01)
    assert all(math.isnan(value) for value in found[3:])


def test_the_edge_of_the_grid_is_no_peak():
    assert torch.isnan(peak_near(SCALES[None], SCALES, near=64.0)).all()
    assert torch.isnan(peak_near(1 / SCALES[None], SCALES, near=2.0)).all()
    assert torch.isnan(peak_near(torch.ones(3, 1), torch.tensor([2.0]), near=2.0)).all()


def test_wrong_input_is_named():
    energy = bump(8.0, SCALES)[:, None]
    for bad in (8.1, 16.0, 2.0, 64.0):
        with pytest.raises(
            ValueError, match=r"found must hold interior maxima of E\(a\) on the grid of scales, got \["
        ):
            refine_scales(energy, SCALES, torch.tensor([bad]))
    with pytest.raises(ValueError, match=r"scalogram \(41, 1\) must have one row for each of the 40 scales"):
        refine_scales(energy, SCALES[1:], SCALES[:1])
    with pytest.raises(ValueError, match=r"energy \(41, 1\) must have one column for each of the 41 scales"):
        peak_near(energy, SCALES, 8.0)
    with pytest.raises(ValueError, match=r"scales must ascend, got \[64.0"):
        peak_near(energy.mT, SCALES.flip(0), 8.0)
    with pytest.raises(ValueError, match=r"near must be positive and finite, got 0"):
        peak_near(energy.mT, SCALES, 0)
