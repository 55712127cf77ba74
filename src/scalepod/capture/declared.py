"""Attention that a model declares itself: the one source that needs a line in the model, and is never wrong."""

from contextvars import ContextVar
from typing import Protocol

import torch
from torch import Tensor, nn


class Listener(Protocol):
    """What takes the declared probabilities."""

    def declare(self, probs: Tensor) -> None:
        """Take the probabilities of the module that is running."""


LISTENERS: ContextVar[tuple[Listener, ...]] = ContextVar("scalepod_listeners", default=())
"""Records of the captures that are active in this thread."""


def record_attention(probs: Tensor) -> Tensor:
    """Declare attention probabilities, and give them back.

    Call it where the final probabilities exist: after masks, gates and renormalisation, before dropout. The map is
    filed under the module whose method is running and takes precedence over everything else that is found in that
    module and below it. Outside of :func:`capture_attention`, and in compiled code, it does nothing.

    Args:
        probs: [B, H, T, T] or [B, T, T]; any other leading axes as described in :func:`capture_attention`.

    Returns:
        ``probs``, the same tensor.
    """
    if not torch.compiler.is_compiling():
        for listener in LISTENERS.get():
            listener.declare(probs)
    return probs


class AttentionProbe(nn.Identity):
    """The identity as a module: pass the final attention probabilities through it to declare them.

    The map is filed under the module that owns the probe. See :func:`record_attention`.

    Example:
        >>> from scalepod.capture import AttentionProbe
        >>> class Attention(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.probe = AttentionProbe()
        ...
        ...     def forward(self, x):
        ...         return self.probe(torch.softmax(x @ x.mT, -1)) @ x
    """

    def forward(self, input: Tensor) -> Tensor:
        """Declare the probabilities [B, H, T, T] or [B, T, T] and return them unchanged."""
        return record_attention(input)
