"""A small GPT, in reading order: configuration, block, model."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .attention import CausalSelfAttention, EnergyGate, Normalization
from .positions import LearnedPositions, MorletPositions, RotaryPositions, SinusoidalPositions

Attention = Literal["standard", "energy_gated"]
Positions = Literal["learned", "sinusoidal", "rotary", "morlet"]

INIT_STD = 0.02
"""Standard deviation of the initial weights, as in GPT-2; with it the loss starts near log(vocab_size)."""


@dataclass(frozen=True)
class GPTConfig:
    """Shape of a GPT.

    Raises:
        ValueError: If a size is not a positive integer, `n_embd` is not a multiple of `n_head`, `dropout` is outside
            [0, 1), a name is unknown, the positions need an even width, or an option of the energy gate is set for
            standard attention.
    """

    vocab_size: int
    """Number of distinct tokens V."""
    block_size: int
    """Longest sequence, in tokens."""
    n_layer: int = 6
    """Number of blocks."""
    n_head: int = 8
    """Attention heads in a block."""
    n_embd: int = 256
    """Width C of the residual stream; a multiple of `n_head`."""
    dropout: float = 0.1
    """Probability of dropping an embedding, an attention weight or the output value of a branch."""
    attention: Attention = "standard"
    """"standard", or "energy_gated" for Energy-Gated Attention."""
    positions: Positions = "learned"
    """How positions are told: "learned" adds a learned vector per position, "sinusoidal" fixed sines and cosines
    (Vaswani et al.), "morlet" learned Morlet wavelets (MoPE); "rotary" turns queries and keys (RoPE)."""
    n_scales: int = 1
    """Gates mixed in each head ("energy_gated" only)."""
    normalization: Normalization = "causal"
    """Keys over which energies are standardised: "causal", or "sequence", which lets a token's logits depend on later
    tokens ("energy_gated" only)."""

    def __post_init__(self) -> None:
        for name in ("vocab_size", "block_size", "n_layer", "n_head", "n_embd", "n_scales"):
            size = getattr(self, name)
            if not isinstance(size, int) or size < 1:
                raise ValueError(f"{name} must be a positive integer, got {size!r}")
        for name, options in (("attention", Attention), ("positions", Positions), ("normalization", Normalization)):
            if getattr(self, name) not in get_args(options):
                raise ValueError(f"{name} must be one of {list(get_args(options))}, got {getattr(self, name)!r}")
        if self.n_embd % self.n_head:
            raise ValueError(f"n_embd must be a multiple of n_head, got n_embd={self.n_embd}, n_head={self.n_head}")
        width = self.n_embd // self.n_head if self.positions == "rotary" else self.n_embd
        if self.positions != "learned" and width % 2:
            name = "n_embd / n_head" if self.positions == "rotary" else "n_embd"
            raise ValueError(f"positions={self.positions!r} need pairs of dimensions: {name} must be even, got {width}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), got {self.dropout}")
        if self.attention == "standard" and (self.n_scales, self.normalization) != (1, "causal"):
            raise ValueError(
                f"n_scales={self.n_scales} and normalization={self.normalization!r} belong to the energy gate: "
                'set attention="energy_gated", or leave them out'
            )


class MLP(nn.Module):
    """Two-layer perceptron applied to every token, four times wider inside.

    Args:
        n_embd: Width C of input and output.
        dropout: Probability of dropping an output value.
    """

    def __init__(self, n_embd: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.expansion = nn.Linear(n_embd, 4 * n_embd, bias=False)
        self.projection = nn.Linear(4 * n_embd, n_embd, bias=False)
        self.output_dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Transform each token of `x` [B, T, C]; returns [B, T, C]."""
        output: Tensor = self.output_dropout(self.projection(F.gelu(self.expansion(x))))
        return output


class Block(nn.Module):
    """Attention and a perceptron, each on a normalised input and added to the residual stream.

    Args:
        config: Shape of the model.
    """

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        C = config.n_embd
        self.attention_norm = nn.LayerNorm(C)
        self.attention = CausalSelfAttention(C, config.n_head, config.dropout, _gate(config), _rotary(config))
        self.mlp_norm = nn.LayerNorm(C)
        self.mlp = MLP(C, config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Transform the residual stream `x` [B, T, C]; returns [B, T, C]."""
        x = x + self.attention(self.attention_norm(x))
        y: Tensor = self.mlp(self.mlp_norm(x))
        return x + y


def _gate(config: GPTConfig) -> EnergyGate | None:
    if config.attention == "standard":
        return None
    return EnergyGate(config.n_embd, config.n_head, config.n_scales, config.normalization)


def _rotary(config: GPTConfig) -> RotaryPositions | None:
    if config.positions != "rotary":
        return None
    return RotaryPositions(config.block_size, config.n_embd // config.n_head)


def _added_positions(config: GPTConfig) -> nn.Module:
    """What adds positions to the embedding; the identity if the attention sees to them."""
    if config.positions == "learned":
        return LearnedPositions(config.block_size, config.n_embd)
    if config.positions == "sinusoidal":
        return SinusoidalPositions(config.block_size, config.n_embd)
    return MorletPositions(config.n_embd) if config.positions == "morlet" else nn.Identity()


class GPT(nn.Module):
    """Pre-norm decoder-only transformer whose token embedding is also its output layer (Radford et al. 2019).

    Linear layers have no bias. They start as N(0, 0.02^2), those that write to the residual stream smaller by
    sqrt(2 n_layer), so that its variance at the start does not grow with depth.

    Args:
        config: Shape of the model.

    Example:
        >>> model = GPT(GPTConfig(vocab_size=65, block_size=32, n_layer=2, n_head=2, n_embd=16))
        >>> model(torch.zeros(3, 32, dtype=torch.int64)).shape
        torch.Size([3, 32, 65])
    """

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.n_embd)
        self.positions = _added_positions(config)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.norm = nn.LayerNorm(config.n_embd)
        self._initialize()

    def _initialize(self) -> None:
        residual_std = INIT_STD / math.sqrt(2 * self.config.n_layer)
        for name, parameter in self.named_parameters():
            if name.endswith("projection.weight"):
                nn.init.normal_(parameter, std=residual_std)
            elif parameter.ndim == 2 and ".gate." not in name:  # the gate and the norms start as they were built
                nn.init.normal_(parameter, std=INIT_STD)

    def forward(self, idx: Tensor) -> Tensor:
        """Predict the token after each token.

        Args:
            idx: Token numbers, integers in [0, V), [B, T] with 1 <= T <= block_size. The range is checked on the CPU
                only: on an accelerator the check would wait for the device at every step. Compiled code does not check.

        Returns:
            Logits of the next token, [B, T, V].

        Raises:
            TypeError: If `idx` does not hold integers.
            ValueError: If it has another shape, is too long, or holds a token outside the vocabulary.
        """
        self._check_shape(idx)
        if idx.shape[1] > self.config.block_size:
            raise ValueError(f"idx holds {idx.shape[1]} tokens a row, but block_size is {self.config.block_size}")
        if idx.device.type == "cpu" and not torch.compiler.is_compiling():
            self._check_range(idx)
        x = self.dropout(self.positions(self.embedding(idx)))  # (B, T, C)
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.embedding.weight)  # (B, T, V)

    @torch.no_grad()
    def generate(
        self,
        idx: Tensor,
        max_new_tokens: int,
        temperature: float = 1.0,
        top_k: int | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Continue each row of `idx`, drawing one token at a time from softmax(logits / temperature).

        The model sees the last `block_size` tokens, whose positions count from 0 again: beyond `block_size` the text
        moves past the positions step by step, which only rotary ones do not notice. It runs in eval mode; each
        submodule's own mode is put back.

        Args:
            idx: Prompts, [B, T] with T >= 1; may be longer than `block_size`.
            max_new_tokens: Tokens to append.
            temperature: Below 1 sharpens the distribution, above 1 flattens it.
            top_k: Draw among the k most likely tokens only; None for all.
            generator: Source of randomness, on the device of `idx`; None for the global one.

        Returns:
            Prompts and continuations, [B, T + max_new_tokens].

        Raises:
            TypeError: If `idx` does not hold integers.
            ValueError: If `idx` has another shape or holds a token outside the vocabulary, or if `max_new_tokens`,
                `temperature` or `top_k` is out of range.
        """
        self._check_shape(idx)
        self._check_range(idx)
        if max_new_tokens < 0:
            raise ValueError(f"max_new_tokens must not be negative, got {max_new_tokens}")
        if not temperature > 0:
            raise ValueError(f"temperature must be positive, got {temperature}; for the likeliest token use top_k=1")
        if top_k is not None and top_k < 1:
            raise ValueError(f"top_k must be at least 1, or None for all tokens, got {top_k}")
        with _eval_mode(self):
            for _ in range(max_new_tokens):
                logits = self(idx[:, -self.config.block_size :])[:, -1].float() / temperature  # (B, V)
                if top_k is not None:
                    weakest = logits.topk(min(top_k, logits.shape[-1])).values[:, -1:]
                    logits = logits.masked_fill(logits < weakest, -math.inf)
                token = torch.multinomial(logits.softmax(-1), 1, generator=generator)  # (B, 1)
                idx = torch.cat([idx, token.to(idx.dtype)], dim=1)
        return idx

    def _check_shape(self, idx: Tensor) -> None:
        if idx.dtype not in (torch.int64, torch.int32):
            raise TypeError(f"idx must hold token numbers as int64 or int32, got {idx.dtype}")
        if idx.ndim != 2 or idx.shape[1] < 1:
            raise ValueError(f"idx must have shape [B, T] with T >= 1, got {list(idx.shape)}")

    def _check_range(self, idx: Tensor) -> None:
        outside = idx[(idx < 0) | (idx >= self.config.vocab_size)]
        if len(outside):
            raise ValueError(f"idx holds token {int(outside[0])}, but vocab_size is {self.config.vocab_size}")


@contextmanager
def _eval_mode(module: nn.Module) -> Iterator[None]:
    """Switch every submodule to eval mode and back, leaving alone those that were frozen in it before."""
    training = [submodule for submodule in module.modules() if submodule.training]
    for submodule in training:
        submodule.training = False
    try:
        yield
    finally:
        for submodule in training:
            submodule.training = True
