"""What looks odd about a captured map, in words."""

from collections.abc import Iterator

import torch
from torch import Tensor


def oddities(maps: Tensor, *, padding_known: bool) -> Iterator[str]:
    """Describe whatever in the maps [B, T, T] a reader of the result should know.

    Args:
        maps: captured attention; a query that looks at nothing has a row of zeros.
        padding_known: whether the batch says which tokens are padding.
    """
    if not bool(torch.isfinite(maps).all()):
        yield "holds NaN or infinity"
        return
    sums = maps.sum(-1)
    dead = sums == 0
    if bool((maps < 0).any()):
        yield "has negative weights"
    worst = float(torch.where(dead, 0.0, (sums - 1).abs()).max())
    if worst > 1e-2:
        low, high = float(sums[~dead].min()), float(sums.max())
        yield f"rows do not sum to one (sums from {low:.3g} to {high:.3g}: a gate, a sink, or not a softmax)"
    if not padding_known and maps.size(-1) > 1:
        unseen = (maps == 0).all(-2)
        padded = int((dead | unseen).any(-1).sum())
        if padded:
            yield (
                f"{padded} of {len(maps)} samples look padded (tokens that see or are seen by nobody), "
                "but which tokens are padding is not known: give the mask of the batch, unless the attention is sparse"
            )
