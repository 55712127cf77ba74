"""Measure again the numbers and figures of docs/confidence.md, on the baseline of evidence.py.

python benchmarks/evidence_confidence.py [--path input.txt] [--steps 1000] [--images docs/images]
"""

import argparse
import math
import tempfile
from pathlib import Path

import lightning as L
from evidence import DOCUMENTS, SHAPE, analysed, held_out_documents, table, train
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from scalepod import LayerAnalysis
from scalepod.callbacks import ScalePODCallback
from scalepod.capture import capture_attention
from scalepod.datamodules import TinyShakespeare
from scalepod.figures import confidence_figure, heads_figure, save_figure
from scalepod.models import BaselineGPT
from scalepod.spectrum import spectral_concentration

N, EPSILONS = 150, (0.10, 0.05, 0.01)
MANY = (25, *DOCUMENTS)


def main() -> None:
    """Train the baseline with the callback watching, then print every table and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--path", default=None, help="the text; by default the data module finds it")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--images", type=Path, default=Path("docs/images"), help="folder of the figures")
    arguments = parser.parse_args()
    L.seed_everything(0, verbose=False)
    data = TinyShakespeare(path=arguments.path, block_size=SHAPE["block_size"], batch_size=16)
    model = BaselineGPT(data.vocab_size, **SHAPE)
    watcher = Watcher(every_n_steps=arguments.steps // 4, n_snapshots=N, images=False, save_dir=tempfile.mkdtemp())
    train(model, data, arguments.steps, "baseline", callbacks=[watcher])
    analyses = watcher.history[-1]
    print_errors(analyses)
    print_change(*watcher.history[-2:])
    print_held_out(analyses)
    print_null(analyses)
    print_fits(analyses)
    print_heads(analyses)
    print_stability(watcher)
    documents = held_out_documents(data, max(MANY))
    with capture_attention(model, batch_size=len(documents)) as record:
        model(documents[:, :-1])
    grown = {layer: [analysed(attn[:: len(attn) // n]) for n in MANY] for layer, attn in record.result().items()}
    print_growth(grown)
    title = f"baseline, {arguments.steps} steps"
    save_figure(growth_figure(grown), arguments.images / "convergence.png")
    save_figure(confidence_figure(analyses, title), arguments.images / "confidence.png")
    heads = {layer: found.heads for layer, found in analyses.items() if found.heads is not None}
    save_figure(heads_figure(heads, analyses, title), arguments.images / "heads.png")


class Watcher(ScalePODCallback):
    """Keeps the analyses and the stability of the modes of every firing."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        self.history: list[dict[str, LayerAnalysis]] = []
        self.stability: list[dict[str, tuple[float, float]]] = []

    def _report(self, *arguments: object) -> None:
        super()._report(*arguments)
        self.history.append(self.analyses)
        self.stability.append({name: (t.field_stability, t.lag_stability) for name, t in self.tracked.items()})


def print_errors(analyses: dict[str, LayerAnalysis]) -> None:
    """Values with their standard errors over documents."""
    names = ("mean_lag", "dominant_lag", "lag_t_spec", "lag_h_star_0.10", "t_spec", "h_star_0.10")
    rows = []
    for layer, found in analyses.items():
        values, errors = found.scalars(), found.confidence.stderrs()
        rows.append((layer, *(f"{values[n]:.3g} ± {errors[n]:.2g}" if n in values else "none" for n in names)))
    table(("layer", *names), rows)


def print_change(earlier: dict[str, LayerAnalysis], later: dict[str, LayerAnalysis]) -> None:
    """What changed between the last two firings: the error of the difference beside that of two values."""
    rows = []
    for layer, found in earlier.items():
        for name in ("lag_t_spec", "mean_lag"):
            change = found.confidence.changes(later[layer].confidence)[name]
            apart = math.hypot(found.confidence.stderrs()[name], later[layer].confidence.stderrs()[name])
            cells = (f"{float(change.difference):+.3f}", float(change.stderr), apart, f"{float(change.p_value):.2g}")
            rows.append((layer, name, *cells))
    table(("layer", "value", "change", "its error, paired", "error if unpaired", "p"), rows)


def print_held_out(analyses: dict[str, LayerAnalysis]) -> None:
    """Energy that the modes of one half hold in the other."""
    rows = []
    for layer, found in analyses.items():
        sure = found.confidence
        ranks = sure.heldout_ranks(0.10)
        rows.append((
            layer, found.h_star[0.10], ranks["field"], float(sure.field_held_out.held_out[-1]),
            found.lag_h_star[0.10], ranks["lag"], float(sure.lag_held_out.held_out[-1]),
        ))  # fmt: skip
    header = ("field H*(0.10)", "held out", "all modes hold", "lag H*(0.10)", "held out", "all modes hold")
    table(("layer", *header), rows)


def print_null(analyses: dict[str, LayerAnalysis]) -> None:
    """Values beside those of documents with the same energy at every lag and no coherent structure."""
    rows = []
    for layer, found in analyses.items():
        excess, values = found.excess(), found.scalars()
        cells = []
        for kind in ("", "lag_"):
            for name, of_null in (("t_spec", "t_spec"), ("h_star_0.10", "h_star")):
                cells += [values[f"{kind}{name}"], values[f"{kind}{name}"] - excess[f"{kind}{of_null}_excess"]]
        rows.append((layer, *cells))
    names = ("field T_spec", "field H*(0.10)", "lag T_spec", "lag H*(0.10)")
    table(("layer", *(header for name in names for header in (name, "null"))), rows)


def print_fits(analyses: dict[str, LayerAnalysis]) -> None:
    """T_spec by least squares, by the median of slopes, and over the longest straight range."""
    rows = []
    for layer, found in analyses.items():
        for kind, pod, fit, robust in (
            ("lag", found.lag, found.lag_fit, found.lag_fit_theil_sen),
            ("field", found.field, found.field_fit, found.field_fit_theil_sen),
        ):
            auto = spectral_concentration(pod.eigenvalues[0], "auto")
            first, last = int(auto.first), int(auto.first + auto.n_points) - 1
            cells = [float(value[0]) for value in (fit.t_spec, fit.r2, robust.t_spec)]
            rows.append((layer, kind, *cells, float(auto.t_spec), f"{first} to {last}", float(auto.r2)))
    table(("layer", "POD", "T_spec, modes 1 to 30", "r2", "Theil-Sen", "auto", "its modes", "its r2"), rows)


def print_heads(analyses: dict[str, LayerAnalysis]) -> None:
    """How many heads the heads amount to, beside the effective ranks."""
    rows = []
    for layer, found in analyses.items():
        needed = [int(found.heads.needed(epsilon)[0]) for epsilon in EPSILONS]
        cells = (float(found.heads.distinct[0]), *needed, float(found.heads.mean_share[0]))
        rows.append((layer, *cells, found.lag_h_star[0.10], found.h_star[0.10]))
    header = ("distinct heads", "needed at 10 %", "at 5 %", "at 1 %", "share kept by the mean", "lag H*", "field H*")
    table(("layer", *header), rows)


def print_stability(watcher: Watcher) -> None:
    """How far the leading modes span what they did at the firing before."""
    rows = []
    for layer in watcher.history[-1]:
        firings = [found[layer] for found in watcher.stability[1:]]
        rows.append((layer, *(cell for firing in firings for cell in firing)))
    table(("layer", *(f"{kind}, firing {i}" for i in range(2, 6) for kind in ("field", "lag"))), rows)


def print_growth(grown: dict[str, list[LayerAnalysis]]) -> None:
    """H*(0.10) of both decompositions against the number of documents, and the verdicts at the usual number."""
    rows = [
        (layer, *(a.h_star[0.10] for a in found), *(a.lag_h_star[0.10] for a in found))
        for layer, found in grown.items()
    ]
    table(("layer", *(f"field, N = {n}" for n in MANY), *(f"lag, N = {n}" for n in MANY)), rows)
    rows = [
        (layer, found[-1].confidence.field_convergence.verdict(), found[-1].confidence.lag_convergence.verdict())
        for layer, found in grown.items()
    ]
    table(("layer", f"field, N = {MANY[-1]}", f"lag, N = {MANY[-1]}"), rows)


def growth_figure(grown: dict[str, list[LayerAnalysis]]) -> Figure:
    """H*(0.10) against the number of documents, field and lag side by side."""
    figure = Figure(figsize=(9.0, 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    field, lag = figure.subplots(1, 2)
    for layer, found in grown.items():
        for ax, ranks in ((field, [a.h_star[0.10] for a in found]), (lag, [a.lag_h_star[0.10] for a in found])):
            ax.plot(MANY, ranks, marker="o", label=layer.removeprefix("model."))
    field.plot(MANY, MANY, color="0.6", linestyle=":", label="as many as documents")
    for ax, name in ((field, "field POD: counts documents"), (lag, "lag POD: settles")):
        axis(ax, name)
    lag.set_ylim(1, field.get_ylim()[1])
    field.legend(frameon=False, fontsize=8)
    return figure


def axis(ax: Axes, name: str) -> None:
    """Number of documents against H*, both logarithmic and with plain numbers."""
    ax.set(xscale="log", yscale="log", xlabel="documents N", ylabel="H*(0.10)", title=name)
    ax.xaxis.set_major_locator(FixedLocator(list(MANY)))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xticklabels([str(n) for n in MANY])
    ticks = [1, 3, 10, 30, 100, 300]
    ax.yaxis.set_major_locator(FixedLocator(ticks))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.set_yticklabels([str(n) for n in ticks])


if __name__ == "__main__":
    main()
