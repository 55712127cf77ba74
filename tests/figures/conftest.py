from collections.abc import Callable
from typing import Any

import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from scalepod import ScalePOD
from scalepod.analysis import LayerAnalysis


def attention(n_snapshots: int, n_tokens: int, *, signed: bool = False, seed: int = 0) -> Tensor:
    """Random attention that prefers near keys, and those five tokens away."""
    generator = torch.Generator().manual_seed(seed)
    lag = torch.arange(n_tokens)[:, None] - torch.arange(n_tokens)
    logits = 1.5 * torch.randn(n_snapshots, n_tokens, n_tokens, generator=generator) - 0.15 * lag.abs()
    logits += 2.0 * (lag.abs() == 5)
    return (logits if signed else logits.masked_fill(lag < 0, -torch.inf)).softmax(-1)


def analysed(attn: Tensor, **options: Any) -> LayerAnalysis:
    monitor = ScalePOD(**options)
    monitor.update(attn)
    analysis: LayerAnalysis = monitor.compute()
    return analysis


@pytest.fixture(scope="session")
def random_attention() -> Callable[..., Tensor]:
    """The attention of which the analyses are."""
    return attention


@pytest.fixture(scope="session")
def analysis() -> LayerAnalysis:
    return analysed(attention(40, 96))


@pytest.fixture(scope="session")
def signed_analysis() -> LayerAnalysis:
    return analysed(attention(20, 48, signed=True), signed=True)


@pytest.fixture(scope="session")
def degenerate() -> dict[str, LayerAnalysis]:
    """Analyses in which something that a figure wants to show is missing."""
    return {
        "no field": analysed(attention(6, 24), field=False),
        "no energy": analysed(attention(1, 24).expand(4, -1, -1)),
        "two documents": analysed(attention(2, 24)),
        "one token": analysed(attention(4, 1)),
        "two tokens": analysed(attention(4, 2)),
        "three tokens": analysed(attention(4, 3)),
        "flat spectrum": analysed(torch.eye(4)[:, :, None].expand(-1, -1, 4)),
        "one mode": analysed(attention(5, 24), n_modes=1),
        "many modes": analysed(attention(5, 24), n_modes=8),
        "one band": analysed(attention(5, 24), bands={"all": 10}),
        "many bands": analysed(attention(5, 64), bands={f"band number {k}": 2.0 + 3 * k for k in range(14)}),
        "both ways, two tokens": analysed(attention(3, 2, signed=True), signed=True),
        "burn-in": analysed(attention(5, 24), burn_in=8),
    }


@pytest.fixture(scope="session")
def labelled() -> Callable[[Figure, str], list[Axes]]:
    """Find the axes of a figure by what their labels and titles begin with."""

    def find(figure: Figure, start: str) -> list[Axes]:
        return [
            ax
            for ax in figure.axes
            if any(text.startswith(start) for text in (ax.get_xlabel(), ax.get_ylabel(), ax.get_title("left")))
        ]

    return find
