"""Values with two standard errors: over the choice of documents, and over the trainings (seeds) of a model.

The errors are of different things. Other held-out documents are covered by the jackknife over groups of documents; a
model trained again, by the scatter of the seeds. All trainings look at the same documents, so what the documents do to
their mean is the jackknife of the mean over trainings, and the two errors add up in squares.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .jackknife import standard_error

Array = NDArray[np.float64]


class Sample(NamedTuple):
    """One value of R trainings of a model, with its value without each of G groups of documents."""

    values: Array
    """Of all documents, [R]; R = 0 for a model that was not trained."""
    replicates: Array
    """Without each group, [R, G]."""


class Spread(NamedTuple):
    """Scatter of a value over the trainings of a model, for models that were trained once."""

    deviation: float
    """Standard deviation; NaN when no model was trained several times."""
    freedom: int
    """Its degrees of freedom."""


class Estimate(NamedTuple):
    """A value with its standard errors."""

    value: float
    """NaN without a training."""
    documents: float
    """Standard error over the choice of documents."""
    seeds: float
    """Standard error over trainings; NaN when nothing tells of it."""
    freedom: float
    """Degrees of freedom of the two errors together."""

    @property
    def stderr(self) -> float:
        """Both errors together; NaN where one is unknown."""
        return math.hypot(self.documents, self.seeds)

    @property
    def p_value(self) -> float:
        """Probability of a value so far from 0 if it is 0: two-sided, Student's t; NaN where an error is unknown."""
        from scipy.stats import t as student

        if self.stderr == 0:
            return 0.0 if abs(self.value) > 0 else math.nan
        return 2 * float(student.sf(abs(self.value) / self.stderr, self.freedom))

    def interval(self, level: float) -> tuple[float, float]:
        """Two-sided interval of Student's t at a level; NaN where an error is unknown."""
        from scipy.stats import t as student

        if self.stderr == 0:
            return self.value, self.value
        reach = float(student.ppf((1 + level) / 2, self.freedom)) * self.stderr
        return self.value - reach, self.value + reach


def exact(value: float) -> Estimate:
    """A value without error, such as that of an identity."""
    return Estimate(value, 0.0, 0.0, math.inf)


def pooled(samples: Iterable[Sample]) -> Spread:
    """Standard deviation over trainings, pooled over the models that were trained several times."""
    several = [sample.values for sample in samples if len(sample.values) > 1]
    freedom = sum(len(values) - 1 for values in several)
    squares = sum(float(((values - values.mean()) ** 2).sum()) for values in several)
    return Spread(math.sqrt(squares / freedom) if freedom else math.nan, freedom)


def estimate(terms: Sequence[tuple[float, Sample]], spread: Spread, sizes: Tensor | None = None) -> Estimate:
    """A weighted sum of the values of models, such as the difference of two, with its errors.

    The error over documents is that of the sum, so what the choice of documents does to all models cancels in a
    difference. Trainings are independent: the squares of their errors add up. A model trained once has the `spread` of
    the others. Degrees of freedom after Satterthwaite (1946), Biometrics Bulletin 2, 110:

        (sum_i v_i)^2 / sum_i v_i^2 / f_i,    v_i = squared errors of documents and of the trainings of each model

    A borrowed scatter may be that of another model of the sum. Where there is one, the v_i of the trainings are taken
    to err together, so (sum_i v_i / sqrt(f_i))^2 stands for their part of the denominator: no more degrees of freedom
    than there are.

    Args:
        terms: Weight and value of each model.
        spread: Scatter over trainings of the models that have several.
        sizes: Documents in each group, [G] (see `standard_error`).

    Returns:
        The estimate; NaN throughout if a model was not trained.

    Example:
        >>> import numpy as np
        >>> from scalepod.confidence.trainings import Sample, Spread, estimate
        >>> three = Sample(np.array([1.0, 2.0, 3.0]), np.array([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]))
        >>> found = estimate([(1.0, three)], Spread(float("nan"), 0))
        >>> found.value, round(found.seeds, 3), found.documents, round(found.freedom, 3)
        (2.0, 0.577, 0.0, 2.0)
    """
    if any(len(sample.values) == 0 for _, sample in terms):
        return Estimate(math.nan, math.nan, math.nan, math.nan)
    value = sum(weight * float(sample.values.mean()) for weight, sample in terms)
    replicates = np.sum([weight * sample.replicates.mean(0) for weight, sample in terms], axis=0)
    documents = float(standard_error(torch.from_numpy(replicates), sizes))
    variances, slacks = [], []  # v_i and v_i / sqrt(f_i) of the trainings
    for weight, sample in terms:
        own = pooled([sample])
        deviation, freedom = own if own.freedom else spread
        variances.append(weight**2 * deviation**2 / len(sample.values))
        slacks.append(variances[-1] / math.sqrt(freedom) if freedom else math.nan)
    borrowed = any(len(sample.values) == 1 for _, sample in terms)
    seeds = math.sqrt(sum(variances))
    total = documents**2 + seeds**2
    slack = sum(slacks) ** 2 if borrowed else sum(each**2 for each in slacks)
    slack += documents**4 / (len(replicates) - 1)
    return Estimate(value, documents, seeds, math.inf if slack == 0 else total**2 / slack)
