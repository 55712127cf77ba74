"""The same numbers whatever context, dtype, layout or device the caller works in."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import scalepod
from scalepod.bands import band_shares, mean_lag
from scalepod.coherence import cross_coherence
from scalepod.field import (
    from_lag,
    lag_covariance,
    lag_covariance_from_moments,
    lag_moments,
    mean_profile,
    reynolds,
    to_lag,
)
from scalepod.pod import degenerate_pairs, field_pod, lag_pod, lag_windows
from scalepod.scalogram import dominant_scales, scale_grid, scalogram
from scalepod.spectrum import SpectralFit, effective_rank, spectral_concentration

Analysis = Callable[[Tensor], dict[str, Tensor]]
NOT_OF_THE_DEVICE = ("mean lag", "near", "dominant")  # Python numbers, and a choice of the scales given


def everything(attn: Tensor) -> dict[str, Tensor]:
    """Every tensor the numerics make of an ensemble [N, 12, 12]."""
    mean, u = reynolds(attn)
    moments = lag_moments(attn)
    R = lag_covariance(u)
    scales = scale_grid(2, 8).to(attn.device)
    windows = lag_windows(torch.tensor([2.0, 5.0], device=attn.device), 12)
    field, lag = field_pod(attn, windows), lag_pod(R, windows)
    energies = scalogram(R, scales)
    results = {
        "to_lag": to_lag(attn),
        "from_lag": from_lag(attn),
        "mean": mean,
        "fluctuation": u,
        "moments": lag_covariance_from_moments(moments),
        "profile": mean_profile(moments),
        "R": R,
        "windows": windows,
        "scalogram": energies,
        "dominant": dominant_scales(energies, scales),
        "coherence": cross_coherence(u, 3.0),
        "lag values": lag.eigenvalues,
        "lag modes": lag.modes,
        "rank": effective_rank(field.eigenvalues, 0.1),
        "pairs": degenerate_pairs(field.eigenvalues, 20),
        "mean lag": torch.tensor(mean_lag(R.diagonal()), dtype=torch.float64),
        "near": torch.tensor(band_shares(R.diagonal(), {"near": 2, "far": 8})["near"], dtype=torch.float64),
    }
    results |= {f"field {name}": value for name, value in field._asdict().items()}
    return results | spectral_concentration(lag.eigenvalues)._asdict()


def under_autocast(attn: Tensor) -> dict[str, Tensor]:
    with torch.autocast(attn.device.type, torch.bfloat16):
        return everything(attn)


def under_inference_mode(attn: Tensor) -> dict[str, Tensor]:
    with torch.inference_mode():
        return everything(attn)


def with_float64_as_default(attn: Tensor) -> dict[str, Tensor]:
    torch.set_default_dtype(torch.float64)
    try:
        return everything(attn)
    finally:
        torch.set_default_dtype(torch.float32)


def with_gradient(attn: Tensor) -> dict[str, Tensor]:
    results = everything(attn.clone().requires_grad_())
    assert not any(result.requires_grad for result in results.values())
    return results


def transposed_in_memory(attn: Tensor) -> dict[str, Tensor]:
    return everything(attn.permute(2, 1, 0).contiguous().permute(2, 1, 0))


def as_a_slice(attn: Tensor) -> dict[str, Tensor]:
    padded = torch.full((*attn.shape[:2], 2 * attn.shape[2]), torch.nan, device=attn.device)
    padded[..., ::2] = attn
    return everything(padded[..., ::2])


def check_same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    for name, value in expected.items():
        torch.testing.assert_close(found[name].cpu(), value, rtol=1e-6, atol=1e-6, equal_nan=True, msg=name)


@pytest.mark.parametrize(
    "caller",
    [
        under_autocast,
        under_inference_mode,
        with_float64_as_default,
        with_gradient,
        transposed_in_memory,
        as_a_slice,
    ],
)
def test_the_numbers_are_the_same(caller: Analysis, attention):
    attn = attention(20, 12, dtype=torch.float32)
    check_same(caller(attn), everything(attn))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("caller", [everything, under_autocast])
def test_the_numbers_are_the_same_on_a_gpu(caller: Analysis, attention):
    attn = attention(20, 12, dtype=torch.float32)
    found = caller(attn.cuda())
    assert all(found[name].is_cuda for name in ("fluctuation", "R", "scalogram", "field modes", "lag modes"))
    check_same(found, everything(attn))


@pytest.fixture
def device_without_float64(monkeypatch):
    """Let the CPU stand in for a device like Apple's, where single precision is the widest."""
    for module in (scalepod._checks, scalepod.field, scalepod.pod, scalepod.coherence):
        monkeypatch.setattr(module, "wide_dtype", lambda device: torch.float32)


@pytest.mark.usefixtures("device_without_float64")
@pytest.mark.parametrize("caller", [everything, under_autocast])
def test_without_float64_the_numbers_are_those_of_single_precision(caller: Analysis, attention, monkeypatch):
    attn = attention(20, 12, dtype=torch.float32)
    found = caller(attn)
    assert not any(value.dtype == torch.float64 for name, value in found.items() if name not in NOT_OF_THE_DEVICE)
    monkeypatch.undo()
    for name, value in everything(attn).items():
        if name not in SpectralFit._fields:  # the floor is higher, so fewer eigenvalues are fitted
            torch.testing.assert_close(found[name].to(value), value, rtol=1e-3, atol=1e-4, msg=name)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_analysed_in_single(dtype, attention):
    attn = attention(20, 12).to(dtype)
    expected = everything(attn.float())
    for name, value in everything(attn).items():
        assert value.dtype == expected[name].dtype
        assert torch.equal(value, expected[name]), name


def test_the_callers_autocast_is_on_again_afterwards(attention):
    with torch.autocast("cpu", torch.bfloat16):
        lag_pod(torch.eye(3))
        with pytest.raises(ValueError, match="must have 3 dimensions"):
            reynolds(attention(2, 3)[0])
        assert (torch.eye(3) @ torch.eye(3)).dtype == torch.bfloat16
    assert torch.is_grad_enabled()
