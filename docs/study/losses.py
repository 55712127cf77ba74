"""Losses of a model on held-out text: in one parallel pass, and truly left to right."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

EVERY = 4
"""Left to right, every fourth position is predicted: each takes a pass of its own."""
BATCH = 32


@torch.no_grad()
def in_one_pass(model: nn.Module, documents: Tensor, every: int = 1) -> Tensor:
    """Mean cross-entropy of each document, all positions predicted in one pass.

    Args:
        model: Gives logits [B, T, V] of tokens [B, T].
        documents: Tokens, int64 [N, T + 1].
        every: Positions that count: every one, every second, and so on.

    Returns:
        Nats a character, [N], float64.
    """
    parts = torch.split(documents, BATCH)
    found = torch.cat([_losses(model(part[:, :-1]), part[:, 1:]) for part in parts])
    return found[:, every - 1 :: every].mean(1)


@torch.no_grad()
def left_to_right(model: nn.Module, documents: Tensor, every: int = EVERY) -> Tensor:
    """The same with each position predicted from the tokens before it alone, as when the model writes."""
    found = []
    for t in range(every, documents.shape[1], every):
        logits = model(documents[:, :t])[:, -1:]
        found.append(_losses(logits, documents[:, t : t + 1]))
    return torch.cat(found, 1).mean(1)


def _losses(logits: Tensor, tokens: Tensor) -> Tensor:
    """Cross-entropy of each position, [B, T]."""
    return F.cross_entropy(logits.mT.double(), tokens, reduction="none")
