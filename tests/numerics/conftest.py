"""Ensembles that the tests of the numerics share, and plain references for what is done to them."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor


@pytest.fixture
def attention() -> Callable[..., Tensor]:
    """Random post-softmax attention [N, T, T], causal unless told otherwise."""

    def make(
        n: int, n_tokens: int, *, causal: bool = True, seed: int = 0, dtype: torch.dtype = torch.float64
    ) -> Tensor:
        logits = 2 * torch.randn(
            n, n_tokens, n_tokens, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
        )
        if causal:
            logits = logits.masked_fill(torch.ones(n_tokens, n_tokens, dtype=torch.bool).triu(1), -torch.inf)
        return logits.softmax(-1).to(dtype)

    return make


@pytest.fixture
def documents() -> Callable[[int, int], Tensor]:
    """Which tokens are real, bool [N, T]: documents of different lengths, the first whole, the last padded in front."""

    def make(n: int, n_tokens: int) -> Tensor:
        lengths = torch.linspace(n_tokens, 1, n).round().long()
        valid = torch.arange(n_tokens) < lengths[:, None]
        valid[-1] = valid[n // 2].flip(0)
        return valid

    return make


@pytest.fixture
def fluctuation_by_loop() -> Callable[..., np.ndarray]:
    """Fluctuation of each document about the mean over the documents in which a query is valid, by loops."""

    def make(attn: Tensor, valid: Tensor | None = None) -> np.ndarray:
        fields = attn.double().numpy()
        n, n_tokens, _ = fields.shape
        real = np.ones((n, n_tokens), bool) if valid is None else valid.numpy()
        u = np.zeros_like(fields)
        for i in range(n_tokens):
            members = [s for s in range(n) if real[s, i]]
            for s in members:
                u[s, i] = fields[s, i] - sum(fields[r, i] for r in members) / len(members)
        return u

    return make


@pytest.fixture
def lag_rows_by_loop() -> Callable[..., np.ndarray]:
    """Lag layout [N, T, L] of fields, by loops."""

    def make(fields: np.ndarray, signed: bool = False) -> np.ndarray:
        n_tokens = fields.shape[-1]
        rows = np.zeros((*fields.shape[:-1], 2 * n_tokens - 1 if signed else n_tokens))
        for i in range(n_tokens):
            for j in range(n_tokens):
                if signed:
                    rows[..., i, i - j + n_tokens - 1] = fields[..., i, j]
                elif j <= i:
                    rows[..., i, i - j] = fields[..., i, j]
        return rows

    return make
