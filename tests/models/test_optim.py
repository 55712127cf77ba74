"""Decay groups and the learning rate schedule."""

from itertools import pairwise

import pytest
import torch

from scalepod.models import GPT, GPTConfig
from scalepod.models.optim import decay_groups, warmup_cosine


def test_matrices_decay_and_nothing_else():
    model = GPT(GPTConfig(30, 16, 2, 2, 16, attention="energy_gated", n_scales=2))
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    decayed, spared = ({names[id(p)] for p in group["params"]} for group in decay_groups(model, 0.1))
    ends = ("embedding.weight", "table.weight", "qkv.weight", "projection.weight", "expansion.weight", "energy.weight")
    assert all(name.endswith(ends) for name in decayed)
    assert all(name.endswith(("norm.weight", "norm.bias", "alpha", "tau", "mixing")) for name in spared)
    assert decayed | spared == set(names.values())
    assert not decayed & spared
    assert [group["weight_decay"] for group in decay_groups(model, 0.1)] == [0.1, 0.0]


def test_frozen_parameters_are_left_out():
    model = GPT(GPTConfig(30, 16, 1, 2, 16))
    model.positions.requires_grad_(False)
    listed = {id(p) for group in decay_groups(model, 0.1) for p in group["params"]}
    assert listed == {id(p) for p in model.parameters() if p.requires_grad}


def test_alpha_does_not_shrink_without_a_gradient():
    model = GPT(GPTConfig(30, 16, 1, 2, 16, attention="energy_gated"))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    before = model.blocks[0].attention.qkv.weight.abs().sum()
    torch.optim.AdamW(decay_groups(model, 0.1), lr=1.0).step()
    assert torch.equal(model.blocks[0].attention.gate.alpha, torch.full((2, 1), 2.0))
    torch.testing.assert_close(model.blocks[0].attention.qkv.weight.abs().sum(), 0.9 * before)


@pytest.mark.parametrize(
    ("number", "fraction"),
    [(1, 0.01), (50, 0.5), (100, 1.0), (325, 0.1 + 0.9 * (1 + 0.5**0.5) / 2), (550, 0.55), (1000, 0.1), (5000, 0.1)],
)
def test_schedule_at_known_steps(number, fraction):
    assert warmup_cosine(number - 1, warmup_steps=100, decay_steps=1000, floor=0.1) == pytest.approx(fraction)


def test_schedule_falls_without_a_jump_after_the_warm_up():
    rates = [warmup_cosine(step, 10, 200, 0.1) for step in range(220)]
    assert rates[:10] == pytest.approx([n / 10 for n in range(1, 11)])
    assert all(0 <= before - after < 0.01 for before, after in pairwise(rates[9:]))
    assert rates[199:] == [0.1] * 21


def test_schedule_without_warm_up_or_in_a_run_shorter_than_it():
    assert warmup_cosine(0, 0, 4, 0.0) == pytest.approx((1 + 0.5**0.5) / 2)
    assert [warmup_cosine(step, 100, 2, 0.1) for step in range(2)] == [0.01, 0.02]
