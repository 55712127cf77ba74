"""Matrix products of any spelling, as labelled axes: one letter an axis, the same letter where axes meet."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

MATMUL: frozenset[Callable[..., Any]] = frozenset(
    {
        torch.matmul,
        torch.linalg.matmul,
        torch.bmm,
        torch.mm,
        Tensor.matmul,
        Tensor.__matmul__,
        Tensor.bmm,
        Tensor.mm,
        torch.ops.aten.matmul.default,
        torch.ops.aten.bmm.default,
        torch.ops.aten.mm.default,
    }
)
ADDMM: frozenset[Callable[..., Any]] = frozenset(
    {torch.addmm, torch.baddbmm, Tensor.addmm, Tensor.baddbmm, Tensor.addmm_, Tensor.baddbmm_}
)


@dataclass(frozen=True)
class Product:
    """A sum of products of two or more tensors: an einsum."""

    operands: tuple[Tensor, ...]
    axes: tuple[str, ...]
    """One letter for each axis of each operand."""
    out: str
    """The letters of the result."""
    learned: int | None = None
    """Which operand is known to be a weight."""

    def is_learned(self, index: int) -> bool:
        """Whether an operand is a weight: said so, a parameter, or a matrix that a batch of matrices shares."""
        operand = self.operands[index]
        shared = operand.dim() <= 2 and any(other.dim() > 2 for other in self.operands)
        return index == self.learned or isinstance(operand, nn.Parameter) or shared

    def size(self, letter: str) -> int:
        """Length of the axes of this letter."""
        return max(t.size(s.index(letter)) for t, s in zip(self.operands, self.axes, strict=True) if letter in s)

    def partners(self, index: int, letter: str) -> list[int]:
        """The other operands that have an axis of this letter."""
        return [i for i, axes in enumerate(self.axes) if i != index and letter in axes]


def product_of(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Product | None:
    """The product that a call computes; None if it computes none, or one of vectors."""
    if func is torch.einsum:
        operands = args[1:] if len(args) != 2 or isinstance(args[1], Tensor) else tuple(args[1])
        return _of_einsum(args[0], operands)
    if func is torch.nn.functional.linear:
        x, weight = args[0], args[1] if len(args) > 1 else kwargs["weight"]
        lead, inner, column = _letters(x.dim() - 1, 2), _letters(1), _letters(1, 1)
        return Product((x, weight), (lead + inner, column + inner), lead + column, learned=1)
    if func is Tensor.__rmatmul__:
        return _of_matmul(args[1], args[0])
    if func in MATMUL:
        return _of_matmul(*_two(args, kwargs, "other", "mat2"))
    if func is torch.tensordot:
        return _of_tensordot(*_two(args, kwargs, "a", "b"), dims=kwargs.get("dims", args[2] if len(args) > 2 else 2))
    if func in ADDMM:
        return _of_matmul(*_two(args[1:], kwargs, "mat1", "batch1", "mat2", "batch2"))
    return None


def spread_product(a: Tensor, b: Tensor, result: Tensor) -> Product:
    """The elementwise product of two tensors that are broadcast against each other, before it is summed."""
    letters = _letters(result.dim())
    operands, axes = [], []
    for t in (a, b):
        own = letters[result.dim() - t.dim() :]
        wide = [axis for axis in range(t.dim()) if t.size(axis) == result.size(axis - t.dim())]
        operands.append(t.squeeze(tuple(axis for axis in range(t.dim()) if axis not in wide)))
        axes.append("".join(own[axis] for axis in wide))
    return Product(tuple(operands), tuple(axes), letters)


def _two(args: tuple[Any, ...], kwargs: dict[str, Any], *names: str) -> tuple[Tensor, Tensor]:
    """The two factors, given by position or by one of their names."""
    first, second = (*args, *(kwargs[name] for name in ("input", *names) if name in kwargs))[:2]
    return first, second


def _of_matmul(a: Tensor, b: Tensor) -> Product | None:
    if a.dim() < 2 or b.dim() < 2:
        return None
    lead = _letters(max(a.dim(), b.dim()) - 2, 3)
    row, inner, column = _letters(1), _letters(1, 1), _letters(1, 2)
    a_lead, b_lead = lead[len(lead) - a.dim() + 2 :], lead[len(lead) - b.dim() + 2 :]
    return Product((a, b), (a_lead + row + inner, b_lead + inner + column), lead + row + column)


def _of_einsum(equation: str, operands: tuple[Tensor, ...]) -> Product:
    inputs, arrow, out = equation.replace(" ", "").partition("->")
    axes = inputs.split(",")
    widths = [t.dim() - len(s.replace("...", "")) if "..." in s else 0 for s, t in zip(axes, operands, strict=True)]
    ellipsis = _letters(max(widths, default=0))
    if not arrow:  # the letters that occur once, in alphabetical order
        out = "..." + "".join(sorted(c for c in set(inputs) - set(",.") if inputs.count(c) == 1))
    axes = [s.replace("...", ellipsis[len(ellipsis) - width :]) for s, width in zip(axes, widths, strict=True)]
    return Product(operands, tuple(axes), out.replace("...", ellipsis))


def _of_tensordot(a: Tensor, b: Tensor, dims: Any) -> Product:
    if isinstance(dims, int):
        dims = range(a.dim() - dims, a.dim()), range(dims)
    first, second = _letters(a.dim()), list(_letters(b.dim(), a.dim()))
    for i, j in zip(*dims, strict=True):
        second[j] = first[i]
    shared = set(first) & set(second)
    out = "".join(letter for letter in (*first, *second) if letter not in shared)
    return Product((a, b), (first, "".join(second)), out)


def _letters(count: int, start: int = 0) -> str:
    """Letters that no equation uses."""
    return "".join(chr(0x3B1 + start + i) for i in range(count))
