"""What analyses found as a table for the terminal."""

import math
from collections.abc import Mapping, Sequence

from .analysis import LayerAnalysis, epsilon_name
from .figures.words import NONE, percent, with_error


def summary(analyses: Mapping[str, LayerAnalysis]) -> str:
    """The leading numbers of every layer, with standard errors over the choice of documents.

    Two tables: complexity (T_spec and H* of both decompositions, and whether H* has settled with the number of
    documents), then lags in tokens (dominant and mean lag, shares of the bands).

    Args:
        analyses: Analyses by layer name.

    Returns:
        Lines of text; a dash stands where there is no value.
    """
    layers = analyses.values()
    epsilon = epsilon_name(next((some.epsilons[0] for some in layers if some.epsilons), 0.10))
    bands = list(dict.fromkeys(name for some in layers for name in some.bands))
    ranks = [f"h_star_{epsilon}", f"lag_h_star_{epsilon}"]
    complexity = [["complexity", "T_spec", f"H*({epsilon})", "lag T_spec", f"lag H*({epsilon})", "H*: converged?"]]
    lags = [["lags, tokens", "dominant", "mean", *bands]]
    for name, analysis in analyses.items():
        found = analysis.scalars() if analysis.energy > 0 else {}
        values = [_value(found, quantity) for quantity in ("t_spec", ranks[0], "lag_t_spec", ranks[1])]
        complexity.append([name, *values, verdict(analysis)])
        shares = [percent(analysis.bands[band]) if band in analysis.bands else NONE for band in bands]
        lags.append([name, _value(found, "dominant_lag"), _value(found, "mean_lag"), *shares])
    return f"{_table(complexity)}\n\n{_table(lags)}"


def verdict(analysis: LayerAnalysis) -> str:
    """Whether the effective ranks have converged or are limited by the number of documents, in a few words."""
    if not analysis.energy > 0:
        return "no energy: all documents alike"
    confidence = analysis.confidence
    if confidence is None:
        return "not known: needs 16 documents" if analysis.n_snapshots < 16 else "not known: confidence is off"
    said = []
    for kind, found in (("field", confidence.field_convergence), ("lag", confidence.lag_convergence)):
        if found is not None and len(found.h_star):
            said.append(f"{kind} {'converged' if found._replace(h_star=found.h_star[:1]).settled else 'limited'}")
    return ", ".join(said) or NONE


def _value(found: Mapping[str, float], name: str) -> str:
    return with_error(found[name], found.get(f"{name}_se", math.nan)) if name in found else NONE


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they need to be; the first to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        first, *others = (cell.ljust(width) if i == 0 else cell.rjust(width)
                          for i, (cell, width) in enumerate(zip(row, widths, strict=True)))  # fmt: skip
        lines.append("  ".join([first, *others]).rstrip())
    return "\n".join(lines)
