"""docs/study/published.py against values of the published code, and the reason why they do not depend on any lag."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
VALUES = ROOT.parent / "shared" / "data" / "published_code" / "values.npz"


def load():
    spec = importlib.util.spec_from_file_location("published", ROOT / "docs" / "study" / "published.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


published = load()


def causal_maps(n=10, n_tokens=24, seed=0):
    weights = np.tril(np.random.default_rng(seed).random((n, n_tokens, n_tokens)))
    return weights / weights.sum(-1, keepdims=True)


@pytest.mark.skipif(not VALUES.is_file(), reason="needs the values of the published code")
@pytest.mark.parametrize("name", ["small", "wide", "few"])
def test_equals_the_values_of_the_published_code(name):
    with np.load(VALUES) as values:
        expected = {key.partition("/")[2]: values[key] for key in values if key.startswith(f"{name}/")}
    found = published.analyse(expected["attention"])
    np.testing.assert_allclose(published.SCALES, expected["scales"])
    np.testing.assert_allclose(found.scalogram, expected["scalogram"], rtol=1e-10)
    np.testing.assert_array_equal(found.dominant_index, expected["dominant_index"])
    np.testing.assert_allclose(found.eigenvalues, expected["eigenvalues"], rtol=1e-10, atol=1e-14)
    assert found.beta == pytest.approx(float(expected["beta"]), rel=1e-10)
    assert found.t_spec == pytest.approx(float(expected["t_spec"]), rel=1e-10)
    assert found.h_star == expected["h_star"].tolist()


def assert_same_results(found, expected):
    np.testing.assert_allclose(found.scalogram, expected.scalogram, rtol=1e-12)
    np.testing.assert_array_equal(found.dominant_index, expected.dominant_index)
    np.testing.assert_allclose(found.eigenvalues, expected.eigenvalues, rtol=1e-12, atol=1e-16)
    assert found[3:5] == pytest.approx(expected[3:5], rel=1e-12)
    assert found.h_star == expected.h_star


def test_nothing_off_the_diagonal_enters_any_result():
    attention = causal_maps()
    alone = published.diagonal_alone(attention)
    assert np.abs(attention - alone).sum() > 0.8 * attention.sum(), "most of the attention is gone"
    assert_same_results(published.analyse(alone), published.analyse(attention))


def test_the_diagonal_does_enter():
    attention = causal_maps()
    attention[:, 5, 5] *= np.linspace(0.1, 2, 10)
    changed, kept = published.analyse(attention), published.analyse(causal_maps())
    assert abs(changed.t_spec / kept.t_spec - 1) > 1e-3


def test_the_spectra_of_all_scales_are_one():
    spectra = published.analyse(causal_maps()).eigenvalues
    np.testing.assert_allclose(spectra, spectra[:1].repeat(4, 0), rtol=1e-12, atol=1e-16)


def test_rank_is_one_too_large_and_at_most_the_number_of_snapshots():
    eigenvalues = np.array([60.0, 31.0, 8.0, 1.0])
    assert [published.rank(eigenvalues, epsilon) for epsilon in (0.4, 0.10, 0.05, 0.01)] == [2, 3, 4, 4]


def test_exponent_is_that_of_a_power_law_and_one_when_there_is_none():
    k = np.arange(1.0, 51)
    assert published.decay(k**-1.7) == pytest.approx(1.7)
    assert published.decay(np.array([1.0, 0.5, 1e-13])) == 1.0


def test_the_program_prints_the_same_results_for_all_maps(capsys):
    published.main()
    printed = capsys.readouterr().out
    rows = [line.split(" | ")[1:] for line in printed.splitlines() if line.startswith(("| around", "| nowhere"))]
    lags = [float(row[0]) for row in rows]
    assert lags[1] > 2 * lags[0] > 2 * lags[2] == 0, "they do look back by different lags"
    assert rows[0][1:] == rows[1][1:] == rows[2][1:]
