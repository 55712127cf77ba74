"""The smallest model and data that a real Trainer runs with: shared by the tests of everything that needs one."""

from typing import Any

import lightning as L
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

VOCABULARY, TOKENS, WIDTH = 11, 12, 16


class Chain(nn.Module):
    """Layers one after the other, by the names "layers.0", "layers.1" and so on."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class TinyAttention(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.qkv, self.out, self.dropout = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH), dropout

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (2, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout)
        return self.out(y.transpose(1, 2).flatten(-2))


class TinyModule(L.LightningModule):
    """A two-layer causal transformer that keeps the losses of its training steps."""

    def __init__(self, dropout: float = 0.0, n_layers: int = 2) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(TinyAttention(dropout) for _ in range(n_layers))
        self.dropout, self.head = nn.Dropout(dropout), nn.Linear(WIDTH, VOCABULARY)
        self.losses: list[float] = []

    def forward(self, idx: Tensor) -> Tensor:
        x = self.embed(idx)
        for layer in self.layers:
            x = x + self.dropout(layer(x))
        return self.head(x)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss = F.cross_entropy(self(batch[0]).flatten(0, 1), batch[1].flatten())
        self.log("train_loss", loss)
        return loss

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        if outputs:
            self.losses.append(outputs["loss"].item())

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        self.log("val_loss", F.cross_entropy(self(batch[0]).flatten(0, 1), batch[1].flatten()))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def tiny_loader(n: int = 16, batch_size: int = 4, seed: int = 0, **kwargs: Any) -> DataLoader[Any]:
    tokens = torch.randint(VOCABULARY, (n, TOKENS + 1), generator=torch.Generator().manual_seed(seed))
    return DataLoader(TensorDataset(tokens[:, :-1], tokens[:, 1:]), batch_size=batch_size, **kwargs)


def tiny_trainer(folder: Any, **kwargs: Any) -> L.Trainer:
    options: dict[str, Any] = {
        "max_steps": 4,
        "accelerator": "cpu",
        "devices": 1,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "default_root_dir": folder,
    }
    return L.Trainer(**{**options, **kwargs})
