"""Softmaxes and products that are no attention over tokens, at sizes where they could be mistaken for it."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

B, T, C = 3, 7, 8


@pytest.fixture
def x() -> Tensor:
    return torch.randn(B, T, C, generator=torch.Generator().manual_seed(1)) * 2


class Experts(nn.Module):
    """A router: softmax over as many experts as there are tokens, and every expert's output weighted."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(C, T)
        self.experts = nn.Parameter(torch.randn(T, C, C))

    def forward(self, x: Tensor) -> Tensor:
        weights = self.router(x).softmax(-1)
        outputs = torch.einsum("btc,ecd->bted", x, self.experts)
        summed = torch.einsum("bte,bted->btd", weights, outputs)
        return summed + (weights @ outputs.mean(1)) + torch.matmul(weights.unsqueeze(2), outputs).squeeze(2)


class Vocabulary(nn.Module):
    """A language-model head whose probabilities are embedded again; the vocabulary is as large as the text is long."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(T, C)

    def forward(self, x: Tensor) -> Tensor:
        tied = torch.softmax(x @ self.embedding.weight.T, -1) @ self.embedding.weight
        return tied + F.linear(F.linear(x, self.embedding.weight).softmax(-1), self.embedding.weight.T)


class LinearAttention(nn.Module):
    """Softmax over features and over tokens, with as many features as tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(C, 3 * T)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        return q.softmax(-1) @ (k.softmax(-2).mT @ v)


class ChannelAttention(nn.Module):
    """Attention of channels to channels."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(C, 3 * T)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        return ((q.mT @ k).softmax(-1) @ v.mT).mT


class Retention(nn.Module):
    """Products of scores and values without a normalisation."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.tril(x @ x.mT) @ x


class NormalisedWeight(nn.Module):
    """Weight matrices with a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(C, C))
        self.norm, self.linear = nn.LayerNorm(C), nn.Linear(C, C)

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight.softmax(0)
        return F.linear(x, weight.T) + self.norm(x) @ weight + self.linear(x) @ weight


@pytest.mark.parametrize("kind", [Experts, Vocabulary, LinearAttention, ChannelAttention, Retention, NormalisedWeight])
def test_other_uses_of_a_softmax_are_not_attention(run: Any, x: Tensor, kind: Any) -> None:
    torch.manual_seed(0)
    record = run(kind(), x, options={"batch_size": B})
    assert record.result(strict=False) == {}
    assert record.notes == []


def test_attention_pooling_is_not_square(run: Any, x: Tensor) -> None:
    class Pooling(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x[:, :1] @ x.mT).softmax(-1) @ x

    assert run(Pooling(), x).notes == [
        f"Pooling: attention of 1 x {T} is not square (cross attention, a cache, parts of a sequence)"
    ]
