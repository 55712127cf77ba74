"""Windows of a token sequence, and the reproducible order in which training reads them."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

Batch = tuple[Tensor, Tensor]
"""Tokens x and the tokens y that follow them, both int64."""


class Windows(Dataset[Batch]):
    """Pairs (x, y) of T consecutive tokens x and the T tokens y that lie one further on.

    Window i starts at token ``i * stride``. With stride 1 there is one for every place in the text; with stride T they
    follow each other without overlap, and what is left behind the last one, fewer than T tokens, is not used.

    Args:
        tokens: The text as integers, [n].
        block_size: Tokens T in a window, at most n - 1.
        stride: Tokens from one window's start to the next one's.

    Example:
        >>> import torch
        >>> windows = Windows(torch.arange(8), block_size=3, stride=3)
        >>> len(windows), windows[1]
        (2, (tensor([3, 4, 5]), tensor([4, 5, 6])))
    """

    def __init__(self, tokens: Tensor, block_size: int, stride: int = 1) -> None:
        self.tokens = tokens
        self.block_size = block_size
        self.starts = range(0, len(tokens) - block_size, stride)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: int) -> Batch:
        start = self.starts[index]
        window = self.tokens[start : start + self.block_size + 1].long()
        return window[:-1], window[1:]


class WindowSampler(DistributedSampler[int]):
    """Draws the windows of training batches, uniformly over all places in the text.

    Batches are numbered through the whole run, and which windows batch number n holds depends on the seed and n alone.
    An epoch is only a stretch of this sequence, so it makes no difference where epochs begin or whether a run was
    interrupted. Every process draws the same batches for all of them and takes each ``world_size``-th window: together
    they read what one process with as many times the batch would read. Being a ``DistributedSampler``, it is left in
    place by Lightning.

    Args:
        windows: The windows to draw from.
        batch_size: Windows in a batch of one process.
        n_batches: Batches of one epoch.
        seed: Seed of the draw, a non-negative integer, the same in all processes.
        rank: This process.
        world_size: Processes that train together.
    """

    def __init__(
        self, windows: Windows, batch_size: int, n_batches: int, seed: int, rank: int = 0, world_size: int = 1
    ) -> None:
        super().__init__(windows, num_replicas=world_size, rank=rank, seed=seed)
        self.n_windows = len(windows)
        self.batch_size = batch_size
        self.n_batches = n_batches
        self.position = 0
        """Number of the batch with which the next epoch starts."""

    def __len__(self) -> int:
        return self.n_batches * self.batch_size

    def __iter__(self) -> Iterator[int]:
        for number in range(self.position, self.position + self.n_batches):
            draw = np.random.default_rng([self.seed, number])
            indices = draw.integers(self.n_windows, size=self.batch_size * self.num_replicas)
            yield from indices[self.rank :: self.num_replicas].tolist()


class TrainingLoader(DataLoader[Batch]):
    """A loader of a :class:`WindowSampler` that keeps count of the batches it handed out.

    The count goes into Lightning's checkpoints, so that a resumed run, even one that stopped in the middle of an epoch,
    goes on with the batches it would have read without the interruption.
    """

    sampler: WindowSampler

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # torch names its private iterator class here
        for batch in super().__iter__():
            self.sampler.position += 1  # now, and not when a worker process fetches the batch in advance
            yield batch

    def state_dict(self) -> dict[str, int]:
        """Return the seed and the number of the next batch."""
        return {"seed": self.sampler.seed, "batch": self.sampler.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on where :meth:`state_dict` was taken."""
        self.sampler.seed = state["seed"]
        self.sampler.position = state["batch"]
