"""Trainer and callback find P in models trained on text that repeats words of P letters: see benchmarks/planted.py.

With three seeds each, the second layer's dominant lag after 300 steps was 4.96 to 4.98 for P = 5, 7.97 to 7.98 for 8,
12.88 to 12.92 for 13, and 20.6 to 21.0 for 21. That of an untrained model is P too for 5 and 8, where the same letters
return so often that any attention does: what training adds is energy there, not always a larger share of it.
"""

import runpy
from pathlib import Path

import pytest

from scalepod.confidence.jackknife import paired_change

BENCHMARK = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "planted.py"))

pytestmark = pytest.mark.slow


def energy_around_period(confidence):
    """Energy at the lags around P, of all documents and without each group: the whole times the share of the band."""
    whole, share = (confidence.quantities.index(name) for name in ("energy", "band_period"))
    return (each[whole] * each[share] for each in (confidence.values, confidence.replicates))


@pytest.mark.parametrize("period", BENCHMARK["PERIODS"])
def test_the_dominant_lag_is_that_of_the_text_and_its_energy_was_learned(period, tmp_path):
    models = BENCHMARK["watch"](period, 0, BENCHMARK["STEPS"], tmp_path)
    untrained, trained = (layers[-1].confidence for layers in models)
    lag, low, high = BENCHMARK["dominant"](models.trained[-1])
    assert lag == pytest.approx(period, rel=0.10)
    assert high - low < 0.1 * period
    before, after = energy_around_period(untrained), energy_around_period(trained)
    there = paired_change(*before, *after, untrained.group_sizes)
    for change in (untrained.changes(trained)["energy"], there):
        assert change.difference > 0
        assert change.p_value < 0.001
