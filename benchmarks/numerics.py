"""Cost of the numerics for one layer, N = 150 documents of T = 256 tokens, beside the plain ways to the same numbers.

Run with `python benchmarks/numerics.py`; all times come from one run, so compare rows, not machines.
"""

import time
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from scalepod.coherence import cross_coherence
from scalepod.field import lag_covariance, lag_covariance_from_moments, lag_moments, reynolds, to_lag
from scalepod.pod import field_pod, lag_pod, lag_windows
from scalepod.scalogram import scale_grid, scalogram
from scalepod.spectrum import effective_rank, spectral_concentration

DOCUMENTS, TOKENS, BATCH = 150, 256, 25
SCALES = scale_grid(2.0, 64.0, 4)[:20]
R = TypeVar("R")


def attention(n: int) -> Tensor:
    logits = 2 * torch.randn(n, TOKENS, TOKENS, generator=torch.Generator().manual_seed(0))
    return logits.masked_fill(torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1), -torch.inf).softmax(-1)


def analysis(attn: Tensor, windows: Tensor) -> None:
    """What a firing computes for one layer."""
    covariance = lag_covariance_from_moments(lag_moments(attn))
    scalogram(covariance, SCALES)
    for eigenvalues in (lag_pod(covariance, windows).eigenvalues, field_pod(attn, windows).eigenvalues):
        spectral_concentration(eigenvalues)
        effective_rank(eigenvalues, 0.1)


def moments_by_batch(attn: Tensor) -> None:
    for batch in attn.split(BATCH):
        lag_moments(batch)


def scalogram_by_quadratic_form(covariance: Tensor) -> Tensor:
    tau = torch.arange(TOKENS, dtype=torch.float64)
    t = (tau - tau[:, None]) / SCALES[:, None, None]
    envelope = torch.pi**-0.25 * torch.exp(-(t**2) / 2) / SCALES[:, None, None].sqrt()
    parts = (envelope * torch.cos(6 * t), envelope * torch.sin(6 * t))
    return sum(((part @ covariance) * part).sum(-1) for part in parts) / TOKENS


def scalogram_by_fft(u: Tensor) -> Tensor:
    """Transform every row at every scale, zero-padded, and average the power."""
    rows = to_lag(u).double().flatten(0, 1)
    spectrum = torch.fft.fft(rows, 2 * TOKENS)
    offset = torch.arange(2 * TOKENS, dtype=torch.float64)
    offset = torch.where(offset < TOKENS, offset, offset - 2 * TOKENS)
    power = []
    for scale in SCALES:
        t = offset / scale
        wavelet = torch.pi**-0.25 * torch.exp(-(t**2) / 2) * torch.exp(6j * t) / scale.sqrt()
        transform = torch.fft.ifft(spectrum * torch.fft.fft(wavelet))[:, :TOKENS]
        power.append(transform.abs().square().mean(0))
    return torch.stack(power)


def grams_by_window(u: Tensor, windows: Tensor) -> Tensor:
    """The Gram matrix of the windowed snapshots, window by window, in the dtype of the snapshots."""
    position = torch.arange(TOKENS)
    distance = (position[:, None] - position).abs()
    flat = [(u * window[distance].to(u.dtype)).flatten(1) for window in windows]
    return torch.stack([x @ x.mT / len(x) for x in flat])


def seconds(function: Callable[..., R], *args: object, repeats: int = 5) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function(*args)
        times.append(time.perf_counter() - start)
    return min(times)


def show(title: str, times: dict[str, float], unit: str) -> None:
    """Print times in milliseconds and as multiples of the row called `unit`."""
    print(f"\n{title:<58}{'ms':>9}{'ratio':>9}")
    for name, value in times.items():
        print(f"  {name:<56}{1e3 * value:>9.1f}{value / times[unit]:>9.2f}")


def main() -> None:
    attn = attention(DOCUMENTS)
    u = reynolds(attn)[1]
    covariance = lag_covariance(u)
    four, many = (lag_windows(torch.linspace(3, 60, m), TOKENS) for m in (4, 24))
    whole = seconds(analysis, attn, four)
    print(f"{DOCUMENTS} documents, {TOKENS} tokens, {len(SCALES)} scales, {torch.get_num_threads()} threads")
    product = torch.randn(1024, 1024)
    speed = {
        t: 2 * 1024**3 / seconds(torch.mm, product.to(t), product.to(t)) / 1e9 for t in (torch.float32, torch.float64)
    }
    print("matrix product: " + ", ".join(f"{value:.0f} GFLOP/s in {t}" for t, value in speed.items()))

    steps = {
        "whole analysis": whole,
        "moments": seconds(lag_moments, attn),
        f"moments, in batches of {BATCH}": seconds(moments_by_batch, attn),
        "fluctuation": seconds(reynolds, attn),
        "field POD (with the fluctuation)": seconds(field_pod, attn, four),
        "lag POD": seconds(lag_pod, covariance, four),
        "scalogram": seconds(scalogram, covariance, SCALES),
        "cross-coherence at one scale (not part of an analysis)": seconds(cross_coherence, u, 4.0, repeats=2),
    }
    show("One layer, 4 windows", steps, "whole analysis")

    one = seconds(field_pod, attn, four[:1])
    grams = grams_by_window(u, many).double()
    show(
        "Field POD by number of windows",
        {
            "1 window": one,
            "24 windows": seconds(field_pod, attn, many),
            f"24 eigenproblems of size {DOCUMENTS}, part of that": seconds(torch.linalg.eigh, grams),
            "24 windows, one Gram matrix (float32) after the other": seconds(grams_by_window, u, many, repeats=1),
        },
        "1 window",
    )

    few = u[:5]
    show(
        "Scalogram",
        {
            "Gaussians factored": steps["scalogram"],
            "quadratic form": seconds(scalogram_by_quadratic_form, covariance, repeats=2),
            "FFT of every row (5 documents, scaled to all)": seconds(scalogram_by_fft, few, repeats=1) * DOCUMENTS / 5,
        },
        "Gaussians factored",
    )
    steep = attn[:1] + torch.logspace(0, -5, DOCUMENTS)[:, None, None] * (attn - attn[:1])
    single = torch.linalg.eigvalsh(grams_by_window(reynolds(steep)[1], four[:1]))[0]
    double = field_pod(steep, four[:1]).eigenvalues[0]
    print(
        f"\nOf {DOCUMENTS} eigenvalues over ten decades {int((single < 0).sum())} are negative with float32 products, "
        f"{int((double < 0).sum())} with float64, and there {int((double > 0).sum())} are above the floor"
    )


if __name__ == "__main__":
    main()
