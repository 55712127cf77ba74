"""A user's own model and data, which know nothing of scalepod, its vocab_size or its block_size."""

from typing import Any

import lightning as L
import torch
from tiny import TinyModule, tiny_loader
from torch import Tensor
from torch.utils.data import DataLoader


class OwnModel(TinyModule):
    def __init__(self, n_layers: int = 1) -> None:
        super().__init__(n_layers=n_layers)
        self.save_hyperparameters()


class GreedyModel(OwnModel):
    """Its context is its own business: data of less is welcome."""

    def __init__(self, block_size: int = 1024) -> None:
        super().__init__()
        self.save_hyperparameters()


class FailingModel(OwnModel):
    def __init__(self) -> None:
        raise ValueError("the reason lies deep in my own code")


class InterruptedModel(OwnModel):
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        raise KeyboardInterrupt


class OwnData(L.LightningDataModule):
    def train_dataloader(self) -> DataLoader[Any]:
        torch.manual_seed(0)
        return tiny_loader()

    def val_dataloader(self) -> DataLoader[Any]:
        return tiny_loader(seed=1)
