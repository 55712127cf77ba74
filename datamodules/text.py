"""Character-level text as a LightningDataModule."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.utilities.data import AttributeDict
from lightning.pytorch import LightningDataModule
from torch import Tensor
from torch.utils.data import DataLoader

from .corpus import Corpus, read_text
from .windows import Batch, TrainingLoader, Windows, WindowSampler


class CharDataModule(LightningDataModule, ABC):
    """What all character-level texts share: vocabulary, splits, windows and batches.

    A batch is a pair (x, y) of int64 tensors, [B, T]: T characters, and at each place the character that follows. The
    vocabulary is that of the whole text, so that validation cannot meet an unknown character, as is the custom for this
    kind of data. The text is read when it is first asked for: ``vocab_size`` needs neither ``setup`` nor a trainer.

    - Training draws windows at random from all places of the first part of the text. An epoch is as many as would
      cover it once, rounded up to full batches: ``ceil(n / (T * B * processes))`` batches for n characters. Which
      windows a batch holds depends on its number and on the seed (``seed_everything``) alone, so a run resumed from a
      checkpoint, even one from the middle of an epoch, goes on with the windows it would have read.
    - Validation reads the last part in consecutive windows that do not overlap; fewer than T + 1 characters are left.
    - There is no third part: ``test`` and ``predict`` read the validation windows.

    Reading batches draws nothing from the global random number generators.

    Args:
        block_size: Characters T in a window.
        batch_size: Windows B in a batch, on each device.
        val_fraction: Share of the text, at its end, that validates.
        num_workers: Processes that load batches; 0 loads them in the main process, which is fast enough for text.

    Raises:
        ValueError: An option is out of range.
    """

    def __init__(
        self,
        block_size: int = 256,
        batch_size: int = 64,
        val_fraction: float = 0.1,
        num_workers: int = 0,
    ) -> None:
        super().__init__()
        for name, value in (("block_size", block_size), ("batch_size", batch_size)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if not 0 < val_fraction < 1:
            raise ValueError(f"val_fraction must lie between 0 and 1, both excluded, got {val_fraction}")
        self.save_hyperparameters()
        self.block_size = block_size
        self.batch_size = batch_size
        self.val_fraction = val_fraction
        self.num_workers = num_workers
        self._corpus: Corpus | None = None

    @abstractmethod
    def load_text(self) -> tuple[str, str]:
        """Get the text.

        Returns:
            The text, its line ends newline characters, and its name in logs.
        """

    @property
    def corpus(self) -> Corpus:
        """The encoded text; read at the first access, when its name and checksum join the hyperparameters."""
        if self._corpus is None:
            self._corpus = Corpus.from_text(*self.load_text())
            self.save_hyperparameters({"data_name": self._corpus.name, "data_sha256": self._corpus.sha256})
        return self._corpus

    @property
    def hparams_initial(self) -> AttributeDict:
        """What loggers are given.

        ``block_size`` appears as ``data_block_size``: models have a ``block_size`` of their own, and Lightning ends a
        run whose model and data log different values under one name, although windows shorter than a model allows
        are in order.
        """
        logged = super().hparams_initial
        if "block_size" in logged:
            logged["data_block_size"] = logged.pop("block_size")
        return logged

    @property
    def vocabulary(self) -> str:
        """The distinct characters of the text, sorted: token i is ``vocabulary[i]``."""
        return self.corpus.vocabulary

    @property
    def vocab_size(self) -> int:
        """Number of distinct characters in the text."""
        return len(self.vocabulary)

    def encode(self, text: str) -> Tensor:
        """Turn characters into tokens.

        Args:
            text: n characters of the vocabulary.

        Returns:
            Tokens, [n], int64. A model takes a batch of them: ``encode(text)[None]``.

        Raises:
            ValueError: A character is not in the vocabulary; the message names it and its position.
        """
        return self.corpus.encode(text)

    def decode(self, tokens: Tensor | Iterable[int]) -> str:
        """Turn tokens into characters.

        Args:
            tokens: One sequence of n tokens: a tensor of shape [n], or any iterable of integers.

        Returns:
            n characters.

        Raises:
            ValueError: The tensor is not one-dimensional, or a token is not in the vocabulary.
        """
        return self.corpus.decode(tokens)

    def state_dict(self) -> dict[str, Any]:
        """What checkpoints keep: the vocabulary, without which the tokens of a trained model mean nothing."""
        return {"vocabulary": self.vocabulary}

    def split(self) -> tuple[Tensor, Tensor]:
        """Cut the text in two.

        Returns:
            Training tokens, and validation tokens, the last ``ceil(val_fraction * n)`` of n; both int32.

        Raises:
            ValueError: One of them is too short for a single window.
        """
        tokens = self.corpus.tokens
        n_val = math.ceil(round(self.val_fraction * len(tokens), 6))  # 0.07 * 100 is 7.000000000000001
        parts = tokens[:-n_val], tokens[-n_val:]
        for name, part in zip(("training", "validation"), parts, strict=True):
            if len(part) <= self.block_size:
                raise ValueError(
                    f"the {name} split of {self.corpus.name} has {len(part)} characters, but one window takes"
                    f" block_size + 1 = {self.block_size + 1}: use a longer text, a smaller block_size or another"
                    f" val_fraction"
                )
        return parts

    def setup(self, stage: str) -> None:
        """Read the text and check that both splits hold a window."""
        self.split()

    def train_dataloader(self) -> DataLoader[Batch]:
        """Batches from random places of the training split."""
        tokens, _ = self.split()
        trainer = self.trainer
        if getattr(trainer, "overfit_batches", 0):  # the same batches again and again, in order
            return self._consecutive(tokens)
        rank, world_size = (0, 1) if trainer is None else (trainer.global_rank, trainer.world_size)
        n_batches = math.ceil(len(tokens) / (self.block_size * self.batch_size * world_size))
        windows = Windows(tokens, self.block_size)
        # The seed of seed_everything or torch.manual_seed, else a random one; asking for it changes nothing.
        sampler = WindowSampler(windows, self.batch_size, n_batches, torch.initial_seed(), rank, world_size)
        if trainer is not None:
            sampler.position = trainer.fit_loop.total_batch_idx + 1  # this may not be the first loader of the run
        return TrainingLoader(windows, sampler=sampler, **self._loader_options())

    def val_dataloader(self) -> DataLoader[Batch]:
        """Batches of consecutive windows of the validation split, in order."""
        _, tokens = self.split()
        return self._consecutive(tokens)

    def test_dataloader(self) -> DataLoader[Batch]:
        """The validation windows again: there is no third split."""
        return self.val_dataloader()

    def predict_dataloader(self) -> DataLoader[Batch]:
        """The validation windows again: there is no third split."""
        return self.val_dataloader()

    def _consecutive(self, tokens: Tensor) -> DataLoader[Batch]:
        return DataLoader(Windows(tokens, self.block_size, stride=self.block_size), **self._loader_options())

    def _loader_options(self) -> dict[str, Any]:
        # With a generator of its own, a loader's iterator does not draw from the global one.
        return {
            "batch_size": self.batch_size,
            "num_workers": self.num_workers,
            "persistent_workers": self.num_workers > 0,
            "generator": torch.Generator(),
        }


class CharTextDataModule(CharDataModule):
    r"""Any UTF-8 text file, character by character.

    The first ``1 - val_fraction`` of the text trains, the rest validates. Line ends become ``\n`` and a byte order
    mark is dropped; nothing else is changed.

    Args:
        path: The text file.
        block_size: Characters T in a window.
        batch_size: Windows B in a batch, on each device.
        val_fraction: Share of the text, at its end, that validates.
        num_workers: Processes that load batches; 0 loads them in the main process, which is fast enough for text.

    Raises:
        FileNotFoundError: When the text is read, and there is no such file.
        ValueError: An option is out of range, the file is not UTF-8, or a split is shorter than block_size + 1.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import mkdtemp
        >>> path = Path(mkdtemp()) / "abc.txt"
        >>> _ = path.write_text("abc " * 100)
        >>> data = CharTextDataModule(path, block_size=8, batch_size=2)
        >>> data.vocab_size, data.decode(data.encode("cab"))
        (4, 'cab')
        >>> x, y = next(iter(data.val_dataloader()))
        >>> x.shape, data.decode(x[0]), data.decode(y[0])
        (torch.Size([2, 8]), 'abc abc ', 'bc abc a')
    """

    def __init__(
        self,
        path: str | Path,
        block_size: int = 256,
        batch_size: int = 64,
        val_fraction: float = 0.1,
        num_workers: int = 0,
    ) -> None:
        path = str(path)  # as a hyperparameter it must load from a checkpoint, where a Path is refused
        super().__init__(block_size, batch_size, val_fraction, num_workers)
        self.path = path

    def load_text(self) -> tuple[str, str]:
        """Read the file; its name is the text's name in logs."""
        path = Path(self.path)
        return read_text(path), path.name
