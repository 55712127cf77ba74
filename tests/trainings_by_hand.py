"""Trainings of models in groups, and their means with errors in plain loops: shared by the tests of groups."""

import math

from scipy.stats import t as student

from scalepod.provenance import Provenance
from scalepod.reports.groups import Trainings
from scalepod.reports.runs import Firing

SAME = Provenance(data_sha256="a")


def trainings(label, *analyses, step=10, provenance=SAME):
    firings = [Firing(f"{label} {k}", step, layers, provenance) for k, layers in enumerate(analyses)]
    return Trainings(label, tuple(firings))


def numbers(layer, quantity):
    """A value of all documents, and without each group."""
    k = layer.confidence.quantities.index(quantity)
    return float(layer.confidence.values[k]), [float(value) for value in layer.confidence.replicates[k]]


def jackknife(replicates, sizes):
    n, n_groups = sum(sizes), len(sizes)
    centre = sum((1 - size / n) * value for size, value in zip(sizes, replicates, strict=True)) / (n_groups - 1)
    squares = [(n / size - 1) * (value - centre) ** 2 for size, value in zip(sizes, replicates, strict=True)]
    return math.sqrt(sum(squares) / n_groups)


def by_hand(models, weights, layer, quantity):
    """Value, errors over documents and trainings, and p-value of a weighted sum of models, in plain loops."""
    found = {label: [numbers(each[layer], quantity) for each in all_of] for label, all_of in models.items()}
    sizes = models["baseline"][0][layer].confidence.group_sizes.tolist()
    assert len(set(sizes)) == 2
    means = {label: sum(value for value, _ in rows) / len(rows) for label, rows in found.items()}
    squares = {label: sum((value - means[label]) ** 2 for value, _ in rows) for label, rows in found.items()}
    value = sum(weight * means[label] for label, weight in weights.items())
    replicates = [
        sum(weight * sum(row[1][g] for row in found[label]) / len(found[label]) for label, weight in weights.items())
        for g in range(len(sizes))
    ]
    documents = jackknife(replicates, sizes)
    shares, alone = [], False
    for label, weight in weights.items():
        n = len(found[label])
        if n > 1:
            variance, freedom = squares[label] / (n - 1), n - 1
        else:
            several = [other for other in found if len(found[other]) > 1]
            freedom = sum(len(found[other]) - 1 for other in several)
            variance, alone = sum(squares[other] for other in several) / freedom, True
        shares.append((weight**2 * variance / n, freedom))
    trained = math.sqrt(sum(share for share, _ in shares))
    if alone:
        slack = sum(share / math.sqrt(freedom) for share, freedom in shares) ** 2
    else:
        slack = sum(share**2 / freedom for share, freedom in shares)
    total = documents**2 + trained**2
    freedom = total**2 / (slack + documents**4 / (len(sizes) - 1))
    return value, documents, trained, 2 * student.sf(abs(value) / math.sqrt(total), freedom)
