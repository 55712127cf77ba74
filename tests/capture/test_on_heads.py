"""The heads of a layer, looked at while they are averaged."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tiny import Chain
from torch import Tensor, nn

from scalepod.capture import capture_attention, record_attention
from scalepod.capture.maps import HeadMaps

B, H, T, D = 5, 3, 4, 2
ONE_SAMPLE = 3 * T * T * 4  # bytes of scratch memory for one head of one sample


class Attention(nn.Module):
    """Attention over the last two axes, by the kernel or written out, without projections."""

    def __init__(self, written_out: bool = False) -> None:
        super().__init__()
        self.written_out = written_out

    def forward(self, x: Tensor) -> Tensor:
        if self.written_out:
            return (x @ x.mT / D**0.5).softmax(-1) @ x
        return F.scaled_dot_product_attention(x, x, x)


@pytest.fixture
def x() -> Tensor:
    return torch.randn(B, H, T, D, generator=torch.Generator().manual_seed(0))


def keep(maps: Tensor, samples: list[int]) -> tuple[Tensor, list[int]]:
    return maps, samples


def options(on_heads: Any = keep, **more: Any) -> dict[str, Any]:
    return {"batch_size": B, "on_heads": on_heads, **more}


@pytest.mark.parametrize("written_out", [False, True])
@pytest.mark.parametrize("chosen", [None, [0, 3], range(0, B, 3), [4, 1]])
@pytest.mark.parametrize("fit", [1, 2, B])
def test_every_head_of_the_chosen_samples_is_handed_over_once(
    run: Any, x: Tensor, written_out: bool, chosen: Any, fit: int
) -> None:
    given = options(head_samples=chosen, byte_budget=fit * ONE_SAMPLE)
    record = run(Chain(Attention(written_out), Attention(written_out)), x, options=given)
    each = run.maps(Chain(Attention(written_out), Attention(written_out)), x, options={"heads": "each"})
    assert list(record.heads) == list(record.result()) == ["layers.0", "layers.1"]
    for layer, found in record.heads.items():
        samples = [sample for _, group in found for sample in group]
        assert sorted(samples) == sorted(range(B) if chosen is None else chosen)
        assert all(1 <= len(group) <= fit for _, group in found)
        heads = torch.stack([each[f"{layer}/h{h}"] for h in range(H)], 1)
        assert torch.equal(torch.cat([maps for maps, _ in found]), heads[samples])
    plain = run.maps(Chain(Attention(written_out), Attention(written_out)), x)
    assert all(torch.equal(record.result()[layer], plain[layer]) for layer in plain)


def test_no_head_is_computed_twice() -> None:
    computed = []
    probs = torch.rand(B, H, T, T)

    def compute(samples: slice, head: int) -> Tensor:
        computed.append(head)
        return probs[samples, head]

    maps = HeadMaps(B, H, T, T, torch.float32, probs.device, compute)
    maps.mean(10 * ONE_SAMPLE, [0, 2], lambda heads, samples: None)
    assert computed == [0, 1, 2]


def test_the_maps_belong_to_whoever_is_given_them(run: Any, x: Tensor) -> None:
    def spoil(maps: Tensor, samples: list[int]) -> Tensor:
        return maps.zero_()

    plain = run.maps(Attention(written_out=True), x)
    record = run(Attention(written_out=True), x, options=options(spoil))
    assert torch.equal(record.result()["Attention"], plain["Attention"])


def test_calls_are_numbered_and_outranked_layers_left_out(run: Any, x: Tensor) -> None:
    class Declares(Attention):
        def forward(self, x: Tensor) -> Tensor:
            out = super().forward(x)
            record_attention(torch.full((B, H, T, T), 0.25))
            return out

    shared = Attention()
    record = run(Chain(shared, shared, Declares()), x, options=options())
    assert list(record.heads) == list(record.result()) == ["layers.0#0", "layers.0#1", "layers.2"]
    [(maps, _)] = record.heads["layers.2"]
    assert (maps == 0.25).all()


def test_one_head_or_windows_are_left_out(run: Any, x: Tensor) -> None:
    assert run(Attention(), x[:, 0], options=options()).heads == {}
    windows = run(Attention(), x.repeat(2, 1, 1, 1), options=options())
    assert windows.heads == {}
    assert len(windows.result()["Attention"]) == 2 * B


def test_an_error_leaves_a_note_and_the_mean(run: Any, x: Tensor) -> None:
    def fail(maps: Tensor, samples: list[int]) -> None:
        raise ZeroDivisionError("no such head")

    record = run(Chain(Attention()), x, options=options(fail, byte_budget=ONE_SAMPLE))
    assert record.notes == ["layers.0: on_heads failed (ZeroDivisionError: no such head)"]
    assert record.heads == {}
    assert list(record.result()) == ["layers.0"]


def test_without_it_there_is_nothing(run: Any, x: Tensor) -> None:
    assert run(Attention(), x).heads == {}


def test_heads_that_are_not_averaged_are_refused() -> None:
    with (
        pytest.raises(ValueError, match='it needs heads="mean", got "each"'),
        capture_attention(Attention(), heads="each", on_heads=keep),
    ):
        pass
