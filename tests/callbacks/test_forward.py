"""How a module is run on a batch, by its own signature."""

from dataclasses import dataclass
from typing import Any

import lightning as L
import pytest
import torch

from scalepod.callbacks.forward import default_forward

X, Y, MASK = torch.zeros(2, 3), torch.ones(2, 3), torch.ones(2, 3).bool()


@dataclass
class Batch:
    x: torch.Tensor
    mask: torch.Tensor


def module(forward):
    """A LightningModule with this forward, which returns the arguments it got."""
    return type("Module", (L.LightningModule,), {"forward": forward})()


def one(self, x):
    return ("x", x)


def with_targets(self, x, targets=None):
    return ("x", x, targets)


def with_mask(self, x, mask):
    return ("x", x, mask)


def keywords(self, **batch):
    return ("batch", sorted(batch))


def spread(self, *items):
    return ("items", len(items))


@pytest.mark.parametrize(
    ("forward", "batch", "expected"),
    [
        (one, X, ("x", X)),
        (one, (X, Y), ("x", X)),
        (one, [X], ("x", X)),
        (with_targets, (X, Y), ("x", X, None)),
        (with_mask, (X, MASK, Y), ("x", X, MASK)),
        (with_mask, {"x": X, "mask": MASK, "labels": Y}, ("x", X, MASK)),
        (with_mask, Batch(X, MASK), ("x", X, MASK)),
        (keywords, {"a": X, "b": Y}, ("batch", ["a", "b"])),
        (spread, (X, Y), ("items", 2)),
    ],
)
def test_forward_takes_from_the_batch_what_its_signature_asks_for(forward, batch, expected):
    found = default_forward(module(forward), batch)
    assert len(found) == len(expected)
    assert all(a is b if isinstance(b, torch.Tensor) else a == b for a, b in zip(found, expected, strict=True))


def test_a_mapping_goes_whole_to_a_forward_of_one_unnamed_argument():
    batch = {"tokens": X}
    assert default_forward(module(one), batch)[1] is batch


def test_an_explicit_protocol_comes_first():
    model = module(one)
    type(model).attention_forward = lambda self, batch: "mine"
    assert default_forward(model, X) == "mine"


@pytest.mark.parametrize("names", ["batch", "batch, batch_idx", "batch, batch_idx, dataloader_idx=0"])
def test_validation_step_where_there_is_no_forward(names):
    step: Any = eval(f"lambda self, {names}: ('step', batch)")
    model = type("Module", (L.LightningModule,), {"validation_step": step})()
    assert default_forward(model, X)[0] == "step"


@pytest.mark.parametrize(
    ("forward", "batch", "problem"),
    [
        (with_mask, X, r"forward requires \['x', 'mask'\] and the batch is one Tensor"),
        (with_mask, (X,), r"forward requires \['x', 'mask'\] and the batch holds 1 items"),
        (with_mask, {"x": X, "y": Y}, r"forward requires \['mask'\] and the batch gives \['x', 'y'\]"),
        (lambda self, *, x: x, X, r"forward requires the keywords \['x'\]"),
    ],
)
def test_what_does_not_fit_is_named(forward, batch, problem):
    with pytest.raises(TypeError, match=problem):
        default_forward(module(forward), batch)


def test_nothing_to_run_asks_for_forward_fn():
    with pytest.raises(TypeError, match=r"it has no forward.*forward_fn="):
        default_forward(L.LightningModule(), X)
