"""The models as LightningModules: one training recipe, two kinds of attention."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from lightning import LightningModule
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR
from torchmetrics import MeanMetric, MetricCollection

from .attention import Normalization
from .gpt import GPT, GPTConfig, Positions
from .optim import decay_groups, warmup_cosine

Batch = tuple[Tensor, Tensor]
"""Tokens x and the tokens that follow them y, both int64 [B, T]."""


class Perplexity(MeanMetric):
    """The exponential of the mean loss, which is in nats a token."""

    def compute(self) -> Tensor:
        """Return exp of the mean of the losses seen."""
        return super().compute().exp()


class BitsPerCharacter(MeanMetric):
    """The mean loss (nats a token) in bits; a token of a character model is a character."""

    def compute(self) -> Tensor:
        """Return the mean of the losses seen over ln 2."""
        return super().compute() / math.log(2)


def _evaluation_metrics(prefix: str) -> MetricCollection:
    # NaN is let through: left out, it would make the mean of a diverged model look healthy.
    metrics = {"loss": MeanMetric, "perplexity": Perplexity, "bpc": BitsPerCharacter}
    return MetricCollection({name: metric(nan_strategy="disable") for name, metric in metrics.items()}, prefix=prefix)


class LanguageModel(LightningModule):
    """Train a GPT to predict the next token, on batches (x, y) of int64 tokens [B, T] and the tokens that follow them.

    The optimiser is AdamW with weight decay on matrices only; the learning rate warms up linearly and falls along half
    a cosine. Gradients are clipped by the Trainer (`gradient_clip_val`).

    Logged, in nats unless said otherwise:

    - `train_loss`: mean cross-entropy of the batch, at the Trainer's `log_every_n_steps`.
    - `val_loss`, `test_loss`: mean cross-entropy over all tokens of the epoch and all ranks.
    - `val_perplexity`, `test_perplexity`: its exponential.
    - `val_bpc`, `test_bpc`: the same in bits per character.

    `predict` gives the log-probability of each token of y, [B, T]: where the text surprises the model.

    Args:
        config: Shape of the model.
        learning_rate: Highest learning rate, reached at the end of the warm-up.
        min_learning_rate: Learning rate at the end of the decay and after it.
        warmup_steps: Optimiser steps of the linear warm-up; 0 for none.
        decay_steps: Optimiser steps until `min_learning_rate` is reached, warm-up included; None for the length of the
            run, as the Trainer estimates it.
        weight_decay: Weight decay of AdamW, on matrices only.
        betas: Decay rates of AdamW's two moments.

    Raises:
        ValueError: If the shape or an optimiser option is out of range.
    """

    # Without this, torch.compile of the module traces Lightning's logging too, at which torch 2.12 and 2.13 fail.
    log = torch.compiler.disable(LightningModule.log)  # type: ignore[no-untyped-call]

    def __init__(
        self,
        config: GPTConfig,
        learning_rate: float = 3e-4,
        min_learning_rate: float = 3e-5,
        warmup_steps: int = 100,
        decay_steps: int | None = None,
        weight_decay: float = 0.1,
        betas: tuple[float, float] = (0.9, 0.95),
    ) -> None:
        super().__init__()
        if not 0 <= min_learning_rate <= learning_rate or learning_rate == 0:
            raise ValueError(
                "need 0 <= min_learning_rate <= learning_rate and learning_rate > 0, "
                f"got min_learning_rate={min_learning_rate}, learning_rate={learning_rate}"
            )
        if warmup_steps < 0 or (decay_steps is not None and decay_steps <= warmup_steps):
            raise ValueError(
                "need 0 <= warmup_steps < decay_steps (the warm-up is part of it), "
                f"got warmup_steps={warmup_steps}, decay_steps={decay_steps}"
            )
        if weight_decay < 0:
            raise ValueError(f"weight_decay must not be negative, got {weight_decay}")
        self.save_hyperparameters(ignore=["config"])  # with the arguments of the subclass, which make up the config
        self.model = GPT(config)
        self.val_metrics = _evaluation_metrics("val_")
        self.test_metrics = _evaluation_metrics("test_")

    def forward(self, idx: Tensor) -> Tensor:
        """Logits of the next token after each token of `idx` [B, T]: [B, T, V]. Raises as `GPT.forward` does."""
        logits: Tensor = self.model(idx)
        return logits

    def generate(
        self,
        idx: Tensor,
        max_new_tokens: int,
        temperature: float = 1.0,
        top_k: int | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Continue the prompts `idx` [B, T] by `max_new_tokens` sampled tokens: see `GPT.generate`."""
        return self.model.generate(idx, max_new_tokens, temperature, top_k, generator)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Mean cross-entropy of the batch."""
        loss = -self._log_probabilities(batch).mean()
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Add the batch to `val_loss`, `val_perplexity` and `val_bpc`."""
        self._evaluate(batch, self.val_metrics)

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        """Add the batch to `test_loss`, `test_perplexity` and `test_bpc`."""
        self._evaluate(batch, self.test_metrics)

    def predict_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Log-probability of each token of y given the tokens of x up to it, [B, T], in nats."""
        return self._log_probabilities(batch)

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """AdamW and its schedule, stepped once an optimiser step."""
        options = self.hparams
        decay_steps = options["decay_steps"] or self.trainer.estimated_stepping_batches
        if not math.isfinite(decay_steps):
            raise ValueError("the length of the run is unknown: set decay_steps, or the Trainer's max_steps")
        optimizer = AdamW(
            decay_groups(self.model, options["weight_decay"]), lr=options["learning_rate"], betas=options["betas"]
        )
        floor = options["min_learning_rate"] / options["learning_rate"]
        schedule = LambdaLR(
            optimizer, lambda step: warmup_cosine(step, options["warmup_steps"], int(decay_steps), floor)
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def _log_probabilities(self, batch: Batch) -> Tensor:
        x, y = batch
        logits: Tensor = self(x)  # (B, T, V)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return -F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="none").view_as(y)  # (B, T)

    def _evaluate(self, batch: Batch, metrics: MetricCollection) -> None:
        metrics.update(-self._log_probabilities(batch))  # token by token: batches may differ in size
        self.log_dict(metrics, prog_bar=True)


class BaselineGPT(LanguageModel):
    """GPT with standard causal attention, and the training recipe of `LanguageModel`.

    Args:
        vocab_size: Number of distinct tokens.
        block_size: Longest sequence, in tokens.
        n_layer: Number of blocks.
        n_head: Attention heads in a block.
        n_embd: Width of the residual stream; a multiple of `n_head`.
        dropout: Probability of dropping an embedding, an attention weight or the output value of a branch.
        positions: How positions are told: "learned", "sinusoidal", "rotary" or "morlet" (see `GPTConfig`).
        **optimizer: The optimiser's options, as in `LanguageModel`.

    Raises:
        ValueError: If an argument is out of range.
    """

    def __init__(
        self,
        vocab_size: int,
        block_size: int,
        n_layer: int = 6,
        n_head: int = 8,
        n_embd: int = 256,
        dropout: float = 0.1,
        positions: Positions = "learned",
        **optimizer: Any,
    ) -> None:
        config = GPTConfig(vocab_size, block_size, n_layer, n_head, n_embd, dropout, positions=positions)
        super().__init__(config, **optimizer)


class EnergyGatedGPT(LanguageModel):
    """GPT with Energy-Gated Attention (arXiv 2605.21842), and the training recipe of `LanguageModel`.

    Args:
        vocab_size: Number of distinct tokens.
        block_size: Longest sequence, in tokens.
        n_layer: Number of blocks.
        n_head: Attention heads in a block.
        n_embd: Width of the residual stream; a multiple of `n_head`.
        dropout: Probability of dropping an embedding, an attention weight or the output value of a branch.
        positions: How positions are told: "learned", "sinusoidal", "rotary" or "morlet" (see `GPTConfig`).
        n_scales: Gates mixed in each head.
        normalization: Keys over which the energies are standardised: "causal", or "sequence", the published form, which
            lets a token's logits depend on later tokens (see `EnergyGate`).
        **optimizer: The optimiser's options, as in `LanguageModel`.

    Raises:
        ValueError: If an argument is out of range.
    """

    def __init__(
        self,
        vocab_size: int,
        block_size: int,
        n_layer: int = 6,
        n_head: int = 8,
        n_embd: int = 256,
        dropout: float = 0.1,
        positions: Positions = "learned",
        n_scales: int = 1,
        normalization: Normalization = "causal",
        **optimizer: Any,
    ) -> None:
        config = GPTConfig(
            vocab_size, block_size, n_layer, n_head, n_embd, dropout, "energy_gated", positions, n_scales, normalization
        )
        super().__init__(config, **optimizer)
