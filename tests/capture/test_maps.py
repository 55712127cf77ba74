"""Maps made in pieces: how large the pieces are, and what the leading axes of a tensor stand for."""

import pytest
import torch
from torch import Tensor

from scalepod.capture.maps import HeadMaps, batch_first, maps_of_tensor

B, H, T = 5, 3, 4
PROBS = torch.rand(B, H, T, T, generator=torch.Generator().manual_seed(0))
ONE_SAMPLE = 3 * T * T * 4  # scores, mask and probabilities in float32


@pytest.mark.parametrize(
    ("byte_budget", "sizes"),
    [(0, [1, 1, 1, 1, 1]), (ONE_SAMPLE, [1, 1, 1, 1, 1]), (2 * ONE_SAMPLE, [2, 2, 1]), (10 * ONE_SAMPLE, [5])],
)
def test_the_pieces_stay_within_the_budget(byte_budget: int, sizes: list[int]) -> None:
    found: list[int] = []

    def compute(samples: slice, head: int) -> Tensor:
        found.append(len(PROBS[samples]))
        return PROBS[samples, head]

    maps = HeadMaps(B, H, T, T, torch.float32, PROBS.device, compute)
    assert torch.allclose(maps.mean(byte_budget), PROBS.mean(1))
    assert found == [size for size in sizes for _ in range(H)]
    assert torch.equal(torch.stack(list(maps.each(byte_budget)), 1), PROBS)


LAYOUTS: dict[str, tuple[tuple[int, ...], int | None, tuple[int, int]]] = {
    "no batch": ((T, T), None, (1, 1)),
    "no heads": ((B, T, T), None, (B, 1)),
    "no heads, known batch": ((B, T, T), B, (B, 1)),
    "merged": ((B * H, T, T), B, (B, H)),
    "merged, unknown batch": ((B * H, T, T), None, (B * H, 1)),
    "batch first": ((B, H, T, T), B, (B, H)),
    "heads first": ((H, B, T, T), B, (B, H)),
    "heads first, unknown batch": ((H, B, T, T), None, (H, B)),
    "windows": ((B * 2, H, T, T), B, (B * 2, H)),
    "groups of heads": ((B, 2, H, T, T), B, (B, 2 * H)),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_leading_axes(name: str) -> None:
    shape, batch_size, expected = LAYOUTS[name]
    assert batch_first(torch.zeros(shape), batch_size).shape == (*expected, T, T)


def test_heads_first_is_turned_round() -> None:
    assert torch.equal(batch_first(PROBS.transpose(0, 1), B), PROBS)
    assert torch.equal(batch_first(PROBS.flatten(0, 1), B), PROBS)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_result_is_in_float32_or_float64(dtype: torch.dtype) -> None:
    mean = maps_of_tensor(PROBS.to(dtype), B).mean(2**20)
    assert mean.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert torch.allclose(mean.double(), PROBS.to(dtype).double().mean(1), atol=1e-7)
