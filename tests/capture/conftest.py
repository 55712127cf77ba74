"""Run a model with and without a capture: the outputs and the random states must be the same to the last bit."""

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from scalepod.capture import AttentionRecord, capture_attention


def random_states() -> tuple[Any, ...]:
    return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002


def flat_tensors(thing: Any) -> list[Tensor]:
    if isinstance(thing, Tensor):
        return [thing]
    if isinstance(thing, dict):
        return flat_tensors(list(thing.values()))
    if isinstance(thing, list | tuple):
        return [tensor for item in thing for tensor in flat_tensors(item)]
    return []


class Run:
    """Forward passes of a model that check that the capture changes nothing."""

    def __call__(self, model: nn.Module, *args: Any, forward: Any = None, options: Any = None, **kwargs: Any) -> Any:
        """The record of one captured forward pass."""
        forward = forward or model
        model.eval()
        torch.manual_seed(1)
        with torch.no_grad():
            expected = forward(*args, **kwargs)
        after = random_states()
        torch.manual_seed(1)
        with torch.no_grad(), capture_attention(model, **(options or {})) as record:
            found = forward(*args, **kwargs)
        assert random_states() == after
        pairs = zip(flat_tensors(expected), flat_tensors(found), strict=True)
        assert all(torch.equal(a, b) or torch.equal(a.isnan(), b.isnan()) for a, b in pairs)
        return record

    def maps(self, model: nn.Module, *args: Any, **kwargs: Any) -> dict[str, Tensor]:
        """The maps of one captured forward pass."""
        record: AttentionRecord = self(model, *args, **kwargs)
        return record.result()


@pytest.fixture
def run() -> Run:
    return Run()


def close(found: Tensor, expected: Tensor, tolerance: float = 1e-6) -> None:
    """Compare maps with a float64 reference."""
    assert found.dtype == torch.float32
    assert found.shape == expected.shape
    assert (found.double() - expected).abs().max() < tolerance


@pytest.fixture(name="close")
def close_fixture() -> Any:
    return close
