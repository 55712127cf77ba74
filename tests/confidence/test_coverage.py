"""On ensembles of known truth the 95 % intervals cover it as often as they say: see benchmarks/coverage.py."""

import runpy
from pathlib import Path

import pytest

BENCHMARK = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "coverage.py"))

pytestmark = pytest.mark.slow


def check(found, names, draws):
    """Coverage of 90 to 99 %, give or take what so many draws leave open, and errors of the right size.

    Errors are too wide rather than too narrow: where H* comes near the number of documents, each of which adds a mode
    of its own, leaving out a group moves it further than another sample of as many would.
    """
    slack = 2 * (0.95 * 0.05 / draws) ** 0.5
    assert names <= found.keys()
    for name in names:
        _, bias, error, covered = found[name]
        assert abs(bias) < 1, name
        assert 0.9 < error < 1.35, name
        assert 0.90 - slack <= covered < 0.995, name


def test_lag_values_and_the_field_spectrum_at_this_number_of_documents():
    found = BENCHMARK["coverage"](BENCHMARK["homogeneous"], BENCHMARK["homogeneous_truth"](), 250)
    check(found, set(found), 250)
    assert found["dominant_lag"][0] == pytest.approx(8, rel=0.01)  # the period of the profile that returns
    assert {name for name in found if not name.startswith(("t_spec", "h_star"))} == BENCHMARK[
        "homogeneous_truth"
    ]().keys()


def test_the_field_spectrum_of_known_modes():
    found = BENCHMARK["coverage"](BENCHMARK["modes"], BENCHMARK["modes_truth"](), 150)
    check(found, {name for name in found if name.startswith(("t_spec", "h_star"))}, 150)
