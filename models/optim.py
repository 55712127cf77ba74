"""Which parameters decay, and how the learning rate runs."""

import math
from typing import Any

from torch import nn


def decay_groups(module: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Split the trainable parameters for AdamW: weight decay on matrices only.

    Matrices are the weights of linear layers and embedding tables. Left alone are the norms, the alpha, tau and mixing
    weights of energy gates, and the frequencies and margins of Morlet positions: decay would pull a gate's slope alpha
    to zero, which is to switch the gate off, and all frequencies to 1.

    Args:
        module: The model.
        weight_decay: Decay of the matrices.

    Returns:
        Two parameter groups: the matrices, and the rest with a decay of zero.
    """
    matrices = {id(m.weight) for m in module.modules() if isinstance(m, (nn.Linear, nn.Embedding))}
    trainable = [parameter for parameter in module.parameters() if parameter.requires_grad]
    return [
        {"params": [p for p in trainable if id(p) in matrices], "weight_decay": weight_decay},
        {"params": [p for p in trainable if id(p) not in matrices], "weight_decay": 0.0},
    ]


def warmup_cosine(step: int, warmup_steps: int, decay_steps: int, floor: float) -> float:
    """Learning rate of a step as a fraction of the highest: linear warm-up, then half a cosine down to `floor`.

    The n-th step (n = step + 1) has n / warmup_steps while n <= warmup_steps, then
    `floor + (1 - floor) (1 + cos(pi (n - warmup_steps) / (decay_steps - warmup_steps))) / 2`, which is `floor` on step
    number `decay_steps`, and stays there.

    Args:
        step: Optimiser steps made so far.
        warmup_steps: Steps of the warm-up; 0 for none.
        decay_steps: Steps until the floor is reached, those of the warm-up included.
        floor: Lowest learning rate as a fraction of the highest.

    Returns:
        The fraction, in (0, 1].

    Example:
        >>> [round(warmup_cosine(step, 2, 6, 0.1), 3) for step in range(8)]
        [0.5, 1.0, 0.868, 0.55, 0.232, 0.1, 0.1, 0.1]
    """
    number = step + 1
    if number <= warmup_steps:
        return number / warmup_steps
    if number >= decay_steps:
        return floor
    progress = (number - warmup_steps) / (decay_steps - warmup_steps)
    return floor + (1 - floor) * (1 + math.cos(math.pi * progress)) / 2
