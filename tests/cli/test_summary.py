"""The table that `scalepod analyze` prints: the numbers are those of the analyses, and a dash stands for none."""

import pytest
import torch

from scalepod import ScalePOD
from scalepod.figures.words import percent, with_error
from scalepod.summary import summary, verdict


def analysed(n=32, n_tokens=24, spread=1.0, **options):
    monitor = ScalePOD(**options)
    logits = spread * torch.randn(n, n_tokens, n_tokens, generator=torch.Generator().manual_seed(0))
    monitor.update(logits.masked_fill(~torch.ones(n_tokens, n_tokens).tril().bool(), -torch.inf).softmax(-1))
    return monitor.compute()


def rows(text):
    """The cells of both tables by the first of a row; cells are two spaces or more apart."""
    found = {}
    for line in filter(None, text.splitlines()):
        first, *others = [cell.strip() for cell in line.replace("  ", "\t").split("\t") if cell.strip()]
        found.setdefault(first, []).extend(others)
    return found


def test_numbers_and_errors_are_those_of_the_analysis():
    analysis = analysed()
    table, found = rows(summary({"01_a": analysis})), analysis.scalars()
    names = ("t_spec", "h_star_0.10", "lag_t_spec", "lag_h_star_0.10")
    expected = [with_error(found[name], found[f"{name}_se"]) for name in names]
    assert table["01_a"][:4] == expected
    assert all("±" in cell for cell in expected)
    assert table["complexity"] == ["T_spec", "H*(0.10)", "lag T_spec", "lag H*(0.10)", "H*: converged?"]
    assert table["lags, tokens"] == ["dominant", "mean", "fine", "medium", "coarse"]
    assert table["01_a"][-3:] == [percent(analysis.bands[name]) for name in ("fine", "medium", "coarse")]
    assert table["01_a"][-4] == with_error(found["mean_lag"], found["mean_lag_se"])


def test_what_is_undefined_is_a_dash():
    table = rows(summary({"01_a": analysed(spread=0.0), "02_b": analysed(field=False)}))
    assert table["01_a"] == ["–", "–", "–", "–", "no energy: all documents alike", *["–"] * 5]
    assert table["02_b"][:2] == ["–", "–"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "field limited, lag converged"),
        ({"field": False}, "lag converged"),
        ({"n": 8}, "not known: needs 16 documents"),
        ({"confidence": False}, "not known: confidence is off"),
        ({"spread": 0.0}, "no energy: all documents alike"),
        ({"epsilons": ()}, "–"),
    ],
)
def test_verdict(options, expected):
    assert verdict(analysed(**options)) == expected


def test_columns_are_aligned():
    lines = summary({"01_a": analysed(), "02_a_much_longer_name": analysed(n=8)}).splitlines()
    assert len({len(line) for line in lines[:3]}) == 1
    assert len({len(line) for line in lines[4:]}) == 1
