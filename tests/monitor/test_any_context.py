"""A whole analysis, errors and heads and all, is the same in whatever context the caller is."""

import pytest
import torch

import scalepod
from scalepod import ScalePOD
from scalepod.heads import head_moments


def by_head(device="cpu"):
    logits = 2 * torch.randn(24, 2, 20, 20, generator=torch.Generator().manual_seed(0))
    return logits.masked_fill(torch.ones(20, 20).triu(1).bool(), -torch.inf).softmax(-1).to(device)


def analysed(heads, **options):
    monitor = ScalePOD(coherence=True, **options).to(heads.device)
    for batch in heads.split(10):
        monitor.update(batch.mean(1))
    monitor.add_heads(head_moments(heads[::6]))
    return monitor.compute()


def under_autocast(heads):
    with torch.autocast(heads.device.type, torch.bfloat16):
        return analysed(heads)


def under_inference_mode(heads):
    with torch.inference_mode():
        return analysed(heads)


def with_float64_as_default(heads):
    torch.set_default_dtype(torch.float64)
    try:
        return analysed(heads)
    finally:
        torch.set_default_dtype(torch.float32)


def check_same(found, expected, rel):
    scalars = found.scalars()
    assert scalars.keys() == expected.scalars().keys()
    assert {"t_spec_se", "distinct_heads", "h_star_growth", "t_spec_excess"} <= scalars.keys()
    for name, value in expected.scalars().items():
        assert scalars[name] == pytest.approx(value, rel=rel, abs=rel), name


@pytest.mark.parametrize("caller", [under_autocast, under_inference_mode, with_float64_as_default])
def test_the_numbers_are_the_same(caller):
    check_same(caller(by_head()), analysed(by_head()), rel=1e-6)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("caller", [analysed, under_autocast])
def test_the_numbers_are_the_same_on_a_gpu(caller):
    check_same(caller(by_head("cuda")), analysed(by_head()), rel=1e-4)


def test_without_float64(monkeypatch):
    """The CPU stands in for a device like Apple's, where single precision is the widest."""
    modules = [scalepod._checks, scalepod.field, scalepod.pod, scalepod.coherence, scalepod.heads, scalepod.monitor]
    for module in (*modules, scalepod.confidence.null):
        monkeypatch.setattr(module, "wide_dtype", lambda device: torch.float32)
    found = analysed(by_head())
    assert found.confidence.replicates.dtype == found.lag.eigenvalues.dtype == torch.float32
    monkeypatch.undo()
    expected = analysed(by_head())
    for name in ("energy", "mean_lag", "band_fine", "distinct_heads", "lag_h_star_growth", "mean_lag_se"):
        assert found.scalars()[name] == pytest.approx(expected.scalars()[name], rel=0.01), name
