"""The padding mask of a batch, by its customary names."""

from collections import UserDict, namedtuple
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from scalepod.capture import valid_tokens

KEEP = torch.tensor([[1, 1, 1], [1, 1, 0]])
REAL = KEEP.bool()


@dataclass
class Batch:
    attention_mask: Tensor


Named = namedtuple("Named", ["x", "key_padding_mask"])

BATCHES: dict[str, Any] = {
    "Hugging Face, integers": {"attention_mask": KEEP},
    "Hugging Face, floats": {"attention_mask": KEEP.float()},
    "Hugging Face, bool": {"attention_mask": REAL},
    "torch": {"key_padding_mask": ~REAL},
    "torch, integers": {"key_padding_mask": 1 - KEEP},
    "torch, encoder": {"src_key_padding_mask": ~REAL},
    "torch, bias": {"key_padding_mask": torch.zeros(2, 3).masked_fill(~REAL, -torch.inf)},
    "a mapping that is no dict": UserDict(attention_mask=KEEP),
    "dataclass": Batch(KEEP),
    "named tuple": Named(torch.zeros(2), ~REAL),
    "the first of two": {"key_padding_mask": REAL, "attention_mask": KEEP},
}


@pytest.mark.parametrize("name", BATCHES)
def test_the_mask_is_found(name: str) -> None:
    found = valid_tokens(BATCHES[name], 3)
    assert found is not None
    assert found.dtype == torch.bool
    assert torch.equal(found, REAL)


@pytest.mark.parametrize(
    "batch",
    [
        None,
        KEEP,
        (KEEP, KEEP),
        Batch,
        {"input_ids": KEEP},
        {"attention_mask": None},
        {"attention_mask": KEEP[:, :2]},
        {"attention_mask": torch.ones(2, 1, 3, 3)},
    ],
    ids=["nothing", "tensor", "tuple", "class", "no mask", "None", "another length", "four axes"],
)
def test_a_batch_that_does_not_say(batch: Any) -> None:
    assert valid_tokens(batch, 3) is None
