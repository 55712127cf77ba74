"""FlexAttention with a score_mod and a block mask, plain and compiled, against float64."""

import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

B, H, T, D = 2, 4, 16, 8
SLOPES = torch.linspace(0.1, 0.7, H)
DOCUMENTS = torch.tensor([[0] * 6 + [1] * 10, [0] * 16])


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch.compiler.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # flex_attention warns of being slow without a compiler
        yield
    torch.compiler.reset()


def distance_penalty(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return score - SLOPES[h] * (i - j)


def same_document(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return (i >= j) & (DOCUMENTS[b, i] == DOCUMENTS[b, j])


def nothing_for_the_first(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return (i >= j) & (i > 0)


class Flex(nn.Module):
    def __init__(self, function: Callable[..., Any], mask: BlockMask | None, **kwargs: Any) -> None:
        super().__init__()
        self.function, self.mask, self.kwargs = function, mask, kwargs

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Any:
        return self.function(q, k, v, block_mask=self.mask, **self.kwargs)


def reference(q: Tensor, k: Tensor, *, penalty: bool, documents: bool, scale: float) -> Tensor:
    i, j = torch.arange(T).view(T, 1), torch.arange(T)
    scores = q.double() @ k.double().mT * scale
    if penalty:
        scores = scores - SLOPES.double().view(H, 1, 1) * (i - j)
    if documents:
        same = DOCUMENTS[:, :, None] == DOCUMENTS[:, None]
        scores = scores.masked_fill(~((i >= j) & same)[:, None], -math.inf)
    return scores.softmax(-1).mean(1)


@pytest.fixture
def qkv() -> Tensor:
    return torch.randn(3, B, H, T, D, generator=torch.Generator().manual_seed(0)) * 2


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("documents", [False, True])
@pytest.mark.parametrize("penalty", [False, True])
def test_score_mod_and_block_mask(
    run: Any, close: Any, qkv: Tensor, penalty: bool, documents: bool, compiled: bool
) -> None:
    mask = create_block_mask(same_document, B, None, T, T, device="cpu") if documents else None
    options = {"score_mod": distance_penalty} if penalty else {"scale": 0.3}
    function = torch.compile(flex_attention, backend="eager") if compiled else flex_attention
    record = run(Flex(function, mask, **options), *qkv)
    assert record.source == {"Flex": "flex"}
    scale = D**-0.5 if penalty else 0.3
    close(record.result()["Flex"], reference(*qkv[:2], penalty=penalty, documents=documents, scale=scale))


def test_grouped_queries(run: Any, close: Any, qkv: Tensor) -> None:
    q, k, v = qkv
    model = Flex(flex_attention, None, enable_gqa=True)
    expected = reference(q, k[:, [0, 0, 1, 1]], penalty=False, documents=False, scale=D**-0.5)
    close(run.maps(model, q, k[:, :2], v[:, :2])["Flex"], expected)


def test_dead_rows_are_zero(run: Any, qkv: Tensor) -> None:
    mask = create_block_mask(nothing_for_the_first, None, None, T, T, device="cpu")
    maps = run.maps(Flex(flex_attention, mask), *qkv)["Flex"]
    assert bool((maps[:, 0] == 0).all())
    assert torch.allclose(maps[:, 1:].sum(-1), torch.ones(()))


def test_one_sample_and_one_head_at_a_time(run: Any, close: Any, qkv: Tensor) -> None:
    mask = create_block_mask(same_document, B, None, T, T, device="cpu")
    model = Flex(flex_attention, mask, score_mod=distance_penalty)
    expected = reference(*qkv[:2], penalty=True, documents=True, scale=D**-0.5)
    close(run.maps(model, *qkv, options={"byte_budget": 1})["Flex"], expected)


def test_autocast(run: Any, close: Any, qkv: Tensor) -> None:
    def forward(*args: Tensor) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(*args)

    model = Flex(flex_attention, None)
    expected = reference(*qkv[:2].bfloat16(), penalty=False, documents=False, scale=D**-0.5)
    close(run.maps(model, *qkv, forward=forward)["Flex"], expected)


def test_not_square(run: Any, qkv: Tensor) -> None:
    q, k, v = qkv
    record = run(Flex(flex_attention, None), q[:, :, :3], k, v)
    assert record.result(strict=False) == {}
    assert record.notes == ["Flex: attention of 3 x 16 is not square (cross attention, a cache, parts of a sequence)"]
