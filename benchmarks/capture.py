"""What a capture costs: time and peak memory of a forward pass with it, over one without it, for every source.

    python benchmarks/capture.py                     # on the CPU, a minute or two
    python benchmarks/capture.py --device cuda --batch 8 --layers 12

All passes run in turns in one process. "watching" is a capture that keeps nothing (``exclude="*"``): what the observer
itself costs. Memory is the most that torch held at once on top of the model and its input; "maps alone" are the
maps [B, T, T] that the capture is there to give.
"""

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.flex_attention import flex_attention

from scalepod.capture import capture_attention, held_out, record_attention


class Attention(nn.Module):
    """Multi-head attention around one way to compute it."""

    def __init__(self, width: int, heads: int, attend: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads, self.attend = heads, attend

    def forward(self, x: Tensor) -> Tensor:
        """Attend in [B, T, width]."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.out(self.attend(q, k, v).transpose(1, 2).reshape(x.shape))


class Builtin(nn.Module):
    """nn.MultiheadAttention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """Attend in [B, T, width], causally."""
        mask = torch.ones(x.size(1), x.size(1), dtype=torch.bool, device=x.device).triu(1)
        return self.attention(x, x, x, attn_mask=mask, is_causal=True, need_weights=False)[0]


class Model(nn.Module):
    """Pre-norm blocks."""

    def __init__(self, layers: int, width: int, attention: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.attention = nn.ModuleList(attention() for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers))
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(layers)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Run all blocks on [B, T, width]."""
        for i, (attention, mlp) in enumerate(zip(self.attention, self.mlps, strict=True)):
            x = x + attention(self.norms[2 * i](x))
            x = x + mlp(self.norms[2 * i + 1](x))
        return x


def sdpa(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def probabilities(q: Tensor, k: Tensor) -> Tensor:
    future = torch.ones(q.size(-2), q.size(-2), dtype=torch.bool, device=q.device).triu(1)
    return (q @ k.mT * q.size(-1) ** -0.5).masked_fill(future, -torch.inf).softmax(-1)


def written_out(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return probabilities(q, k) @ v


def declared(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return record_attention(probabilities(q, k)) @ v


def flex(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return flex_attention(q, k, v, score_mod=lambda score, b, h, i, j: torch.where(i >= j, score, -torch.inf))


def run(model: nn.Module, x: Tensor, options: dict[str, Any] | None) -> None:
    """One forward pass, with a capture if there are options for one."""
    with held_out(model):
        if options is None:
            model(x)
            return
        with capture_attention(model, batch_size=len(x), **options) as record:
            model(x)
    record.result(strict="exclude" not in options)


def seconds(model: nn.Module, x: Tensor, options: dict[str, Any] | None) -> float:
    """Time of one pass: of the processor, which others that use it do not change, or on the clock for a GPU."""
    clock = time.perf_counter if x.is_cuda else time.process_time
    started = clock()
    run(model, x, options)
    if x.is_cuda:
        torch.cuda.synchronize()
    return clock() - started


def peak_bytes(model: nn.Module, x: Tensor, options: dict[str, Any] | None) -> int:
    """The most memory that torch held at once, over what it held before."""
    if x.is_cuda:
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run(model, x, options)
        return torch.cuda.max_memory_allocated() - before
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        run(model, x, options)
    held = peak = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in {"tokens": 256, "long": 2048, "batch": 8, "heads": 8, "width": 256, "layers": 4}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message="flex_attention called without")
    torch.manual_seed(0)

    def builder(attend: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Callable[[], nn.Module]:
        return lambda: Attention(options.width, options.heads, attend)

    sources: dict[str, Callable[[], nn.Module]] = {
        "sdpa": builder(sdpa),
        "mha": lambda: Builtin(options.width, options.heads),
        "flex": builder(flex),
        "softmax": builder(written_out),
        "declared": builder(declared),
    }
    print(f"{options.layers} layers, {options.heads} heads, width {options.width}, {options.device}")
    print(f"time at B = {options.batch}, T = {options.tokens}; memory at B = 1, T = {options.long}\n")
    print(f"{'source':<10}{'plain':>10}{'capture':>10}{'watching':>10}{'plain':>12}{'capture':>10}{'maps alone':>12}")
    for name, attention in sources.items():
        model = Model(options.layers, options.width, attention).to(options.device)
        x = torch.randn(options.batch, options.tokens, options.width, device=options.device)
        ways: list[dict[str, Any] | None] = [None, {}, {"exclude": "*"}]
        times: list[list[float]] = [[] for _ in ways]
        for repeat in range(options.repeats + 1):
            for way, found in zip(ways, times, strict=True):
                took = seconds(model, x, way)
                if repeat:  # the first round warms up
                    found.append(took)
        plain, capture, watching = (statistics.median(found) for found in times)
        x = torch.randn(1, options.long, options.width, device=options.device)
        plain_peak, capture_peak = (peak_bytes(model, x, way) for way in ways[:2])
        maps = 4 * options.long**2 * options.layers
        print(
            f"{name:<10}{plain * 1e3:>7.1f} ms{capture / plain:>9.2f}x{watching / plain:>9.2f}x"
            f"{plain_peak / 2**20:>8.0f} MiB{capture_peak / plain_peak:>9.2f}x{maps / plain_peak:>11.2f}x",
            flush=True,
        )


if __name__ == "__main__":
    main()
