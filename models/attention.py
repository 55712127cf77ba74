"""Causal self-attention: the standard form, and gated by the energy of its keys.

Energy-Gated Attention (arXiv 2605.21842) gives every token a scalar energy `e_j = w . x_j`, standardises it to `z`,
and multiplies the attention paid to key j by a gate `g = sigmoid(alpha (z - tau))` before renormalising. Since

    softmax(s) g / sum(softmax(s) g) = softmax(s + log g),

the gate is a bias on the attention logits, and the fused attention kernels take it as a float mask.
"""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .positions import RotaryPositions

Normalization = Literal["causal", "sequence"]
"""Over which keys energies are standardised: those the query can see, or the whole sequence."""

VARIANCE_FLOOR = 1e-5
"""Added to the variance of the energies, as LayerNorm adds it: equal energies give z = 0, and the gradient is bounded
where the few keys of an early query happen to have nearly equal energies. At unit variance it changes z by 5e-6."""


def running_moments(energy: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and population variance of the first i + 1 values, for every i.

    The squares are summed by Welford's update, `M_n = M_(n-1) + (n - 1) / n (e_n - mean_(n-1))^2`: a sum of
    non-negative terms, so unlike `mean(e^2) - mean(e)^2` it cannot cancel.

    Args:
        energy: Values along the last axis, [..., T], preferably near zero (the running mean rounds relative to their
            size).

    Returns:
        Mean and variance of `energy[..., : i + 1]` at index i, each [..., T]. The first variance is zero.

    Example:
        >>> mean, variance = running_moments(torch.tensor([1.0, 3.0, 8.0]))
        >>> mean.tolist(), [round(v, 4) for v in variance.tolist()]
        ([1.0, 2.0, 4.0], [0.0, 1.0, 8.6667])
    """
    count = torch.arange(1, energy.shape[-1] + 1, device=energy.device, dtype=energy.dtype)
    mean = energy.cumsum(-1) / count
    step = energy[..., 1:] - mean[..., :-1]
    squares = F.pad(count[:-1] / count[1:] * step.square(), (1, 0)).cumsum(-1)
    return mean, squares / count


class EnergyGate(nn.Module):
    """Logarithm of the energy gate of every head: what Energy-Gated Attention adds to its logits.

    For each head, with x the normalised input of the block,

        e_j  = w . x_j
        z_ij = (e_j - mean_k e_k) / std_k e_k
        g_ij = sum_s pi_s sigmoid(alpha_s (z_ij,s - tau_s)),    pi = softmax over the n_scales gates of the head.

    Mean and (population) standard deviation run over the keys k <= i when `normalization` is "causal": query i sees no
    later token. A query with one key, or with keys of equal energy, has z = 0.

    The published form, `normalization="sequence"`, takes them over the whole sequence. **It leaks the future**: the
    gate of every query then depends on tokens after it, so the training and validation losses of such a model are
    those of a model that has seen a summary of what it predicts. Generating text token by token, it has no such
    summary, and does worse than its loss says. Use it to reproduce published numbers only.

    Standardisation cancels the published bias of e, and with one scale the softmax over scales is 1, so neither is a
    parameter here. A head has `n_embd + 2` parameters with one scale and `n_scales (n_embd + 3)` with several. For 6
    layers of 8 heads, 256 wide, that is 12,384; the papers count 12,480, which is 260 a head: w, bias, alpha, tau and
    one mixing weight.

    Every w starts as N(0, 1 / n_embd), which gives a layer-normalised input energies of unit variance; z does not
    depend on the length of w, only the relative size of an optimiser step does. All alpha start at 2, all tau at 0 (as
    published), all mixing weights equal.

    Args:
        n_embd: Width of the input.
        n_head: Number of heads H.
        n_scales: Gates S mixed in each head.
        normalization: "causal" or "sequence" (leaks the future).
    """

    def __init__(self, n_embd: int, n_head: int, n_scales: int = 1, normalization: Normalization = "causal") -> None:
        super().__init__()
        self.normalization = normalization
        self.energy = nn.Linear(n_embd, n_head * n_scales, bias=False)  # one w a row
        self.alpha = nn.Parameter(torch.full((n_head, n_scales), 2.0))
        self.tau = nn.Parameter(torch.zeros(n_head, n_scales))
        self.mixing = nn.Parameter(torch.zeros(n_head, n_scales)) if n_scales > 1 else None
        nn.init.normal_(self.energy.weight, std=n_embd**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        """Compute log g for the block input `x`.

        It is computed in float32 or better, also inside autocast: of the 8 significant bits of a bfloat16 energy, an
        offset that all tokens share would take some before the mean is subtracted.

        Args:
            x: Normalised input of the block, [B, T, C].

        Returns:
            log g as [B, H, T, T] (query, key) for the causal form, whose entries with key > query have no meaning; as
            [B, H, 1, T], the same for every query, for the published form.
        """
        dtype = torch.promote_types(x.dtype, torch.float32)
        with torch.autocast(x.device.type, enabled=False):
            energy = F.linear(x.to(dtype), self.energy.weight.to(dtype))  # (B, T, H S)
            energy = energy.view(*x.shape[:2], *self.alpha.shape).permute(0, 2, 3, 1)  # (B, H, S, T)
            return self._log_gate(energy, self.alpha.to(dtype), self.tau.to(dtype))

    def _log_gate(self, energy: Tensor, alpha: Tensor, tau: Tensor) -> Tensor:
        # z does not depend on the origin of e, rounding does. The first key belongs to the keys of every query, so
        # seen from it the running mean is at most sqrt(n - 1) standard deviations away, whatever the offset was.
        energy = energy - energy[..., :1].detach()
        if self.normalization == "causal":
            mean, variance = running_moments(energy)  # (B, H, S, T), one a query
        else:
            variance, mean = torch.var_mean(energy, -1, correction=0, keepdim=True)  # (B, H, S, 1)
        # alpha (z - tau), with alpha / std as one factor: one tensor of queries by keys less to keep for backward.
        slope = alpha[..., None] * (variance + VARIANCE_FLOOR).rsqrt()
        logit = slope[..., None] * (energy[..., None, :] - mean[..., None]) - (alpha * tau)[..., None, None]
        log_gate = F.logsigmoid(logit)  # (B, H, S, T, T) or (B, H, S, 1, T)
        if self.mixing is None:
            return log_gate.squeeze(2)
        log_weight = self.mixing.to(log_gate.dtype).log_softmax(-1)
        return torch.logsumexp(log_gate + log_weight[..., None, None], 2)


class CausalSelfAttention(nn.Module):
    """Multi-head causal self-attention on `scaled_dot_product_attention`, gated and with rotary positions if told so.

    Args:
        n_embd: Width C of input and output; a multiple of `n_head`.
        n_head: Number of heads H.
        dropout: Probability of dropping an attention weight, and an output value.
        gate: Log gate added to the attention logits; None for standard attention.
        rotary: Turns queries and keys by their positions; None where positions are added to the embedding.
    """

    def __init__(
        self,
        n_embd: int,
        n_head: int,
        dropout: float = 0.0,
        gate: EnergyGate | None = None,
        rotary: RotaryPositions | None = None,
    ) -> None:
        super().__init__()
        self.n_head = n_head
        self.dropout = dropout
        self.qkv = nn.Linear(n_embd, 3 * n_embd, bias=False)
        self.gate = gate
        self.rotary = rotary
        self.projection = nn.Linear(n_embd, n_embd, bias=False)
        self.output_dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Attend from every token of `x` [B, T, C] to itself and those before it; returns [B, T, C]."""
        heads = self.qkv(x).unflatten(2, (3, self.n_head, -1))  # (B, T, 3, H, C / H)
        q, k, v = heads.permute(2, 0, 3, 1, 4)  # each (B, H, T, C / H)
        if self.rotary is not None:
            q, k = self.rotary(q), self.rotary(k)
        y = F.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=None if self.gate is None else self._mask(self.gate(x)).to(q.dtype),
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=self.gate is None,
        )
        y = self.projection(y.transpose(1, 2).flatten(2))  # heads side by side: (B, T, C)
        output: Tensor = self.output_dropout(y)
        return output

    @staticmethod
    def _mask(log_gate: Tensor) -> Tensor:
        """Put -inf where the key is later than the query: the kernel takes a float mask or `is_causal`, not both."""
        n_tokens = log_gate.shape[-1]
        later = torch.ones(n_tokens, n_tokens, dtype=torch.bool, device=log_gate.device).triu(1)
        return log_gate.masked_fill(later, -math.inf)  # (B, H, T, T)
