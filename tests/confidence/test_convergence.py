"""Whether a spectrum has settled: means over quarters and halves, and the words for it."""

import math

import pytest
import torch

from scalepod.confidence.convergence import Convergence, Level, convergence
from scalepod.spectrum import fractional_rank, spectral_concentration


def level(*spectra):
    tensor = torch.tensor(spectra, dtype=torch.float64)
    return Level(tensor, tensor.sum(-1))


def power_law(n, beta, length=40):
    return [k**-beta if k <= n else 0.0 for k in range(1, length + 1)]


def test_means_over_parts():
    quarters = [power_law(5 + p, 1.0) for p in range(4)]
    halves = [power_law(12, 1.0), power_law(14, 2.0)]
    whole = power_law(30, 0.5)
    found = convergence(level(*quarters), level(*halves), level(whole), 80, (0.1, 0.01), (1, 30))
    assert found.n.tolist() == [20, 40, 80]
    for place, spectra in enumerate((quarters, halves, [whole])):
        values = torch.tensor(spectra, dtype=torch.float64)
        assert float(found.t_spec[place]) == pytest.approx(float(spectral_concentration(values).t_spec.mean()))
        for row, epsilon in enumerate((0.1, 0.01)):
            assert float(found.h_star[row, place]) == pytest.approx(float(fractional_rank(values, epsilon).mean()))


def test_a_part_without_a_fit_is_left_out():
    found = convergence(level(*[power_law(2, 1.0)] * 3, power_law(9, 1.0)), *[level(power_law(9, 1.0))] * 2, 8, (0.1,))
    assert float(found.t_spec[0]) == pytest.approx(1)


def test_eigenvalues_that_were_cut_off_count():
    spectrum = torch.tensor([power_law(40, 1.0)], dtype=torch.float64)
    cut = Level(spectrum[:, :35], spectrum.sum(-1))
    found = convergence(cut, cut, cut, 8, (0.1,))
    assert float(found.h_star[0, 2]) == pytest.approx(float(fractional_rank(spectrum[0], 0.1)))


@pytest.mark.parametrize(
    ("ranks", "growth", "settled", "words"),
    [
        ([10.0, 20.0, 40.0], 2.0, False, "limited by the number of snapshots (H* 20 to 40 on doubling)"),
        ([12.0, 12.5, 13.0], 1.04, True, "converged (H* 12.5 to 13 on doubling)"),
        ([0.0, 0.0, 0.0], math.nan, False, "undefined: no energy"),
    ],
)
def test_verdict(ranks, growth, settled, words):
    found = Convergence(torch.tensor([5.0, 10.0, 20.0]), torch.ones(3), torch.tensor([ranks]))
    assert float(found.growth[0]) == pytest.approx(growth, nan_ok=True)
    assert found.settled == settled
    assert found.verdict() == words
