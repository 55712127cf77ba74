"""Whether values of two ensembles of documents differ, and what that is worth when many are compared."""

import torch
from torch import Tensor

from .._checks import numeric
from ..confidence.jackknife import Change


@numeric
def unpaired_change(
    value_a: Tensor, stderr_a: Tensor, n_groups_a: int, value_b: Tensor, stderr_b: Tensor, n_groups_b: int
) -> Change:
    """Change of a value between two analyses of different documents, from the standard error of each.

    The errors are independent, so their squares add up; Student's t has the degrees of freedom

        (s_a^2 + s_b^2)^2 / (s_a^4 / (G_a - 1) + s_b^4 / (G_b - 1))

    of Welch and Satterthwaite, each jackknife standard error having one less than its groups.

    Source: Welch (1947), Biometrika 34, 28; Satterthwaite (1946), Biometrics Bulletin 2, 110.

    Args:
        value_a: Value of the first analysis, [...].
        stderr_a: Its jackknife standard error, [...].
        n_groups_a: Groups of documents that it comes from.
        value_b: Value of the second analysis, [...].
        stderr_b: Its standard error, [...].
        n_groups_b: Groups of documents that it comes from.

    Returns:
        The change from the first to the second, each field [...]; NaN where an input is. Without any error t is
        infinite, and NaN where nothing changed.

    Raises:
        ValueError: Fewer than 2 groups.

    Example:
        >>> import torch
        >>> from scalepod.reports.significance import unpaired_change
        >>> one, error = torch.tensor(10.0), torch.tensor(1.0)
        >>> change = unpaired_change(one, error, 8, one + 3, error, 8)
        >>> round(float(change.t), 3), round(float(change.p_value), 3)
        (2.121, 0.052)
    """
    if min(n_groups_a, n_groups_b) < 2:
        raise ValueError(f"a standard error takes at least 2 groups of documents, got {n_groups_a} and {n_groups_b}")
    from scipy.stats import t as student

    a, b = stderr_a.double().square(), stderr_b.double().square()
    freedom = (a + b).square() / (a.square() / (n_groups_a - 1) + b.square() / (n_groups_b - 1))
    freedom = torch.where(a + b > 0, freedom, n_groups_a + n_groups_b - 2)
    difference, stderr = value_b.double() - value_a.double(), (a + b).sqrt()
    t = difference / stderr
    p_value = 2 * student.sf(t.abs().cpu().numpy(), freedom.cpu().numpy())
    return Change(difference, stderr, t, torch.as_tensor(p_value).to(t))


@numeric
def holm(p_values: Tensor) -> Tensor:
    """P-values adjusted for the number of comparisons by Holm's step-down method.

    Called significant where the adjusted value is at most alpha, all comparisons together have a probability of at most
    alpha of even one false finding, however they depend on each other. With the m values in ascending order,

        adjusted_(i) = max_{j <= i} min(1, (m - j + 1) p_(j)).

    Source: Holm (1979), Scandinavian Journal of Statistics 6, 65.

    Args:
        p_values: One value a comparison, [n]; NaN where there was none to make, which does not count.

    Returns:
        [n], float64; NaN where `p_values` is.

    Raises:
        ValueError: Not a vector, or values outside [0, 1].

    Example:
        >>> import torch
        >>> from scalepod.reports.significance import holm
        >>> holm(torch.tensor([0.01, 0.04, 0.03], dtype=torch.float64)).tolist()
        [0.03, 0.06, 0.06]
    """
    known = p_values.isfinite()
    found = p_values[known].double()
    if p_values.ndim != 1 or bool(((found < 0) | (found > 1)).any()):
        raise ValueError(f"p_values must be a vector of probabilities, got {p_values.tolist()}")
    ascending, order = found.sort()
    steps = torch.arange(len(found), 0, -1, dtype=torch.float64, device=found.device)
    adjusted = torch.full_like(p_values, torch.nan, dtype=torch.float64)
    if len(found):
        climbed = (ascending * steps).clamp(max=1).cummax(0).values
        adjusted[known] = torch.empty_like(climbed).scatter_(0, order, climbed)
    return adjusted
