import math

import pytest
import torch

from scalepod.bands import band_edges, band_shares, mean_lag

BANDS = {"fine": 4, "medium": 12, "coarse": 36}


def at(*lags, n_lags=64):
    energy = torch.zeros(n_lags)
    energy[list(lags)] = 1
    return energy


def test_mean_lag_is_the_centre_of_the_energy():
    assert mean_lag(at(3, 9)) == pytest.approx(6)
    assert mean_lag(torch.tensor([3.0, 0, 1])) == pytest.approx(0.5)


def test_mean_lag_counts_both_directions_alike():
    assert mean_lag(torch.tensor([1.0, 0, 0, 0, 1.0]), signed=True) == pytest.approx(2)
    assert mean_lag(torch.tensor([0.0, 0, 1, 1, 0]), signed=True) == pytest.approx(0.5)


def test_without_energy_there_is_no_mean_lag_and_there_are_no_shares():
    assert math.isnan(mean_lag(torch.zeros(5)))
    assert band_shares(torch.zeros(5), BANDS) == {}


@pytest.mark.parametrize(
    ("lag", "band"), [(0, "fine"), (6, "fine"), (7, "medium"), (20, "medium"), (21, "coarse"), (63, "coarse")]
)
def test_bands_are_cut_at_the_geometric_means(lag, band):
    assert band_shares(at(lag), BANDS) == {name: float(name == band) for name in BANDS}


def test_a_lag_on_the_cut_is_counted_once():
    assert band_shares(at(6), {"near": 4, "far": 9}) == {"near": 0, "far": 1}  # sqrt(4 * 9) = 6


def test_shares_add_up_to_one_in_the_order_given():
    energy = torch.rand(100, generator=torch.Generator().manual_seed(0))
    bands = {"coarse": 30.0, "fine": 2.5, "medium": 9.0}
    shares = band_shares(energy, bands)
    assert list(shares) == ["coarse", "fine", "medium"]
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["fine"] == pytest.approx(float(energy[:5].sum() / energy.sum()))  # sqrt(2.5 * 9) = 4.7


def test_a_band_holds_both_directions():
    energy = torch.arange(1.0, 82.0)  # lags -40..40
    folded = energy[40:].clone()
    folded[1:] += energy[:40].flip(0)
    assert band_shares(energy, BANDS, signed=True) == pytest.approx(band_shares(folded, BANDS))


def test_one_band_holds_all():
    assert band_shares(torch.ones(9), {"all": 3}) == {"all": 1}


@pytest.mark.parametrize("bands", [{}, {"a": 0}, {"a": -4, "b": 2}, {"a": 4, "b": 4.0}])
def test_bands_without_distinct_positive_centres_are_refused(bands):
    with pytest.raises(ValueError, match=r"bands need distinct positive centres, got \{"):
        band_shares(torch.ones(9), bands)


@pytest.mark.parametrize(
    ("energy", "signed"), [(torch.ones(3, 3), False), (torch.ones(0), False), (torch.ones(4), True), (-at(1), False)]
)
def test_energy_that_is_none_is_refused(energy, signed):
    with pytest.raises(ValueError, match=r"lag_energy must be a vector of values >= 0, of odd length if signed, got"):
        mean_lag(energy, signed)


def test_bands_meet_at_the_geometric_means_of_their_centres():
    edges = band_edges({"b": 16, "a": 4})
    assert list(edges) == ["b", "a"]
    assert edges == {"a": (0, 8), "b": (8, math.inf)}
