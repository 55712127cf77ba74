"""Input checks and working precision shared by the numerical modules."""

import functools
from collections.abc import Callable
from contextlib import ExitStack
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

P = ParamSpec("P")
R = TypeVar("R")


def numeric(function: Callable[P, R]) -> Callable[P, R]:
    """Run `function` without gradients and with autocast off, whatever context the caller is in.

    Inside `torch.autocast` even a product of float32 matrices comes back as bfloat16, with 8 bits of a value.
    """

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        with ExitStack() as contexts:
            contexts.enter_context(torch.no_grad())
            for device in _device_types((*args, *kwargs.values())):
                contexts.enter_context(torch.autocast(device, enabled=False))
            return function(*args, **kwargs)

    return wrapped


def _device_types(values: tuple[object, ...]) -> set[str]:
    """Kinds of device that the tensors among the values, and in the tuples among them, are on."""
    flat = [item for value in values for item in (value if isinstance(value, tuple) else (value,))]
    return {item.device.type for item in flat if isinstance(item, Tensor)}


def wide_dtype(device: torch.device) -> torch.dtype:
    """Float64, or float32 on devices that have no float64."""
    return torch.float32 if device.type == "mps" else torch.float64


def as_float(tensor: Tensor, name: str) -> Tensor:
    """Promote half and bfloat16 to float32; refuse what is not real floating point."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(tensor).__name__}")
    if not tensor.is_floating_point():
        raise TypeError(f"{name} must be real floating point, got {tensor.dtype}")
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def as_wide(tensor: Tensor, name: str) -> Tensor:
    """Convert to the widest dtype of the device, integers too, and check that every value is finite."""
    if tensor.is_complex():
        raise TypeError(f"{name} must be real, got {tensor.dtype}")
    wide = tensor.to(wide_dtype(tensor.device))
    check_finite(wide, name)
    return wide


def check_finite(tensor: Tensor, name: str) -> None:
    """Raise ValueError with the count when a value is NaN or infinite."""
    if tensor.numel() and not all(torch.isfinite(bound) for bound in torch.aminmax(tensor)):
        bad = tensor.numel() - int(torch.isfinite(tensor).sum())
        raise ValueError(f"{name} of shape {tuple(tensor.shape)} holds {bad} non-finite values; drop or mask them")


def check_square(tensor: Tensor, name: str) -> None:
    """Raise ValueError unless the last two dimensions are equal and not empty."""
    if tensor.ndim < 2 or tensor.shape[-1] != tensor.shape[-2] or tensor.shape[-1] == 0:
        raise ValueError(f"{name} must end in two equal dimensions, query and key, got shape {tuple(tensor.shape)}")


def as_snapshots(
    attn: Tensor, valid: Tensor | None = None, name: str = "attn", minimum: int = 1
) -> tuple[Tensor, Tensor | None]:
    """Check a stack of square fields [N, T, T]; rows that are not valid become 0, and `valid` None where all are."""
    x = as_float(attn, name)
    if x.ndim != 3:
        raise ValueError(f"{name} must have 3 dimensions, snapshot, query and key, got shape {tuple(x.shape)}")
    check_square(x, name)
    if len(x) < minimum:
        raise ValueError(f"{name} of shape {tuple(x.shape)} holds {len(x)} snapshots, at least {minimum} needed")
    if valid is not None:
        if valid.dtype != torch.bool or valid.shape != x.shape[:2]:
            raise ValueError(
                f"valid must be a bool tensor of shape {tuple(x.shape[:2])}, snapshot and query, "
                f"got {valid.dtype} of shape {tuple(valid.shape)}"
            )
        valid = None if bool(valid.all()) else valid
    if valid is not None:
        x = torch.where(valid[..., None], x, 0.0)
    check_finite(x, name)
    return x, valid


def check_burn_in(burn_in: int, n_tokens: int) -> None:
    """Raise ValueError unless at least one query is left."""
    if not 0 <= burn_in < n_tokens:
        raise ValueError(f"burn_in must lie in 0..{n_tokens - 1} for {n_tokens} queries, got {burn_in}")


def check_positive(value: float, name: str) -> None:
    """Raise ValueError unless `value` is a finite number above zero."""
    if not 0 < value < float("inf"):
        raise ValueError(f"{name} must be positive and finite, got {value}")


def positive_vector(values: Tensor, name: str) -> Tensor:
    """Check a vector of finite positive numbers (it may be empty) and widen it."""
    wide = as_wide(values, name)
    if wide.ndim != 1 or not bool((wide > 0).all()):
        raise ValueError(f"{name} must be a vector of positive numbers, got shape {tuple(wide.shape)}: {wide.tolist()}")
    return wide


def as_covariance(R: Tensor) -> Tensor:
    """Check a symmetric lag covariance [L, L] and widen it."""
    wide = as_wide(R, "R")
    if wide.ndim != 2:
        raise ValueError(f"R must have 2 dimensions, lag and lag, got shape {tuple(wide.shape)}")
    check_square(wide, "R")
    if not torch.allclose(wide, wide.mT, rtol=1e-4, atol=1e-4 * float(wide.abs().max())):
        raise ValueError(f"R of shape {tuple(wide.shape)} is not symmetric, so it is not a lag covariance")
    return wide
