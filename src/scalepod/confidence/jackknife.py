"""Standard errors from leaving out one group of documents at a time, and what they say about values and changes."""

from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from .._checks import numeric

Number = TypeVar("Number", float, Tensor)


class Change(NamedTuple):
    """Change of a value between two firings, each field [...]."""

    difference: Tensor
    """Later less earlier value."""
    stderr: Tensor
    """Standard error of the difference; NaN where the value is undefined in a part."""
    t: Tensor
    """Difference over standard error."""
    p_value: Tensor
    """Probability of a t at least so far from 0 where nothing has changed: two-sided, Student's t."""


@numeric
def standard_error(replicates: Tensor, sizes: Tensor | None = None) -> Tensor:
    """Delete-a-group jackknife standard error of a value.

    With `theta_g` the value without group g, m_g of all n documents in that group and h_g = n / m_g,

        stderr^2 = (1 / G) sum_g (h_g - 1) (theta_g - theta)^2,    theta = sum_g (1 - 1 / h_g) theta_g / (G - 1)

    which for groups of one size is `(G - 1) / G sum_g (theta_g - mean theta_g)^2`. This is the delete-m_j form with the
    value of all documents replaced by the weighted mean of the replicates; for a mean over documents the two are equal.

    Source: Quenouille (1956), Tukey (1958); Kott (2001), Journal of Official Statistics 17, 521, for groups; Busing,
    Meijer & Van der Leeden (1999), Statistics and Computing 9, 3, for groups of unequal size.

    Args:
        replicates: Value without each group, [..., G], G >= 2; NaN where it is undefined.
        sizes: Documents in each group, [G]; None where all groups have the same number.

    Returns:
        [...], NaN where a replicate is.

    Raises:
        ValueError: Fewer than 2 groups, sizes of another shape, or a group without documents.

    Example:
        >>> import torch
        >>> from scalepod.confidence.jackknife import standard_error
        >>> documents = torch.tensor([1.0, 2.0, 4.0, 5.0])
        >>> without = (documents.sum() - documents) / 3
        >>> bool(torch.isclose(standard_error(without), documents.std() / 2))
        True
    """
    n_groups = replicates.shape[-1] if replicates.ndim else 0
    if n_groups < 2:
        raise ValueError(f"replicates must end in at least 2 groups, got shape {tuple(replicates.shape)}")
    size = torch.ones(n_groups) if sizes is None else sizes
    if size.shape != (n_groups,) or not bool((size > 0).all()):
        raise ValueError(f"sizes must hold the documents, at least 1, of {n_groups} groups, got {size.tolist()}")
    share = size.to(replicates) / size.sum().to(replicates)
    centre = (replicates * (1 - share)).sum(-1, keepdim=True) / (n_groups - 1)
    return ((replicates - centre).square() * (1 / share - 1)).mean(-1).sqrt()


def interval(value: Number, stderr: Number, n_groups: int, level: float = 0.95) -> tuple[Number, Number]:
    """Confidence interval `value -+ t stderr` of a value with a jackknife standard error.

    t is the quantile of Student's distribution with G - 1 degrees of freedom: G groups give a standard error that is
    itself known to about 1 / sqrt(2 (G - 1)) only, 27 % for 8 groups.

    Args:
        value: Value of all documents, a number or [...].
        stderr: Its standard error, of the same type.
        n_groups: Groups G from which the standard error comes.
        level: Probability that the interval covers the truth.

    Returns:
        Lower and upper end, NaN where an input is.

    Raises:
        ValueError: Fewer than 2 groups, or a level that is not between 0 and 1.

    Example:
        >>> from scalepod.confidence.jackknife import interval
        >>> low, high = interval(10.0, 1.0, n_groups=8)
        >>> round(low, 3), round(high, 3)
        (7.635, 12.365)
    """
    if n_groups < 2 or not 0 < level < 1:
        raise ValueError(f"need at least 2 groups and a level between 0 and 1, got {n_groups} and {level}")
    from scipy.stats import t

    reach = float(t.ppf((1 + level) / 2, n_groups - 1)) * stderr
    return value - reach, value + reach


@numeric
def paired_change(
    value_a: Tensor, replicates_a: Tensor, value_b: Tensor, replicates_b: Tensor, sizes: Tensor | None = None
) -> Change:
    """Change of a value from one firing to a later one, both on the same documents in the same groups.

    The error is that of the difference, group by group: what the choice of documents does to both firings cancels. So a
    change can be certain that is smaller than the error of either value.

    Args:
        value_a: Value of all documents at the earlier firing, [...].
        replicates_a: The same without each group, [..., G].
        value_b: Value at the later firing, [...].
        replicates_b: The same without each group, [..., G].
        sizes: Documents in each group, [G] (see `standard_error`).

    Returns:
        The change, each field [...]. Without any error (the same documents all over) t is infinite, and NaN where
        nothing changed.

    Raises:
        ValueError: Replicates of different shapes, or see `standard_error`.
    """
    if replicates_a.shape != replicates_b.shape:
        raise ValueError(
            "replicates of the two firings must have one shape, those of the same groups of documents: got "
            f"{tuple(replicates_a.shape)} and {tuple(replicates_b.shape)}"
        )
    from scipy.stats import t as student

    difference = value_b - value_a
    stderr = standard_error(replicates_b - replicates_a, sizes)
    t = difference / stderr
    p_value = 2 * student.sf(t.abs().cpu().numpy(), replicates_a.shape[-1] - 1)
    return Change(difference, stderr, t, torch.as_tensor(p_value).to(t))
