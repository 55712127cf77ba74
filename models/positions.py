"""What tells the model where a token stands."""

import torch
from torch import Tensor, nn


class LearnedPositions(nn.Module):
    """Add one learned vector per position to the token embeddings: `y_i = x_i + p_i`.

    Args:
        block_size: Longest sequence, in tokens: rows of the table.
        n_embd: Width of the embeddings.
    """

    def __init__(self, block_size: int, n_embd: int) -> None:
        super().__init__()
        self.table = nn.Embedding(block_size, n_embd)

    def forward(self, x: Tensor) -> Tensor:
        """Return the embeddings `x` [B, T, C] with their positions added, [B, T, C]; T is at most `block_size`."""
        positions: Tensor = self.table(torch.arange(x.shape[1], device=x.device))  # (T, C)
        return x + positions
