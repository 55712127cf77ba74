"""Axes through views and copies: an index along one axis must be an index along its image. And products as einsums."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from scalepod.capture.axes import RESHAPES, moved, moved_set, origins
from scalepod.capture.products import Product, product_of

SHAPE = (2, 3, 4, 6)
KEPT: dict[str, tuple[Callable[[Tensor], Tensor], list[int | None]]] = {
    "itself": (lambda x: x, [0, 1, 2, 3]),
    "elementwise": (lambda x: x + 1 - 1, [0, 1, 2, 3]),
    "transpose": (lambda x: x.transpose(1, 2), [0, 2, 1, 3]),
    "permute and copy": (lambda x: x.permute(3, 1, 0, 2).contiguous().permute(0, 2, 1, 3), [1, 2, 3, 0]),
    "mT": (lambda x: x.mT, [0, 1, 3, 2]),
    "slice": (lambda x: x[:, :, 1:, :-1], [0, 1, 2, 3]),
    "steps": (lambda x: x[:, :, ::2, ::3], [0, 1, 2, 3]),
    "select": (lambda x: x[:, 1], [0, None, 1, 2]),
    "one more axis": (lambda x: x.unsqueeze(2), [0, 1, 3, 4]),
    "expand": (lambda x: x.unsqueeze(0).expand(5, *SHAPE), [1, 2, 3, 4]),
    "merge": (lambda x: x.flatten(0, 1), [None, None, 1, 2]),
    "merge and split": (lambda x: x.reshape(6, 4, 6).reshape(2, 3, 4, 6), [None, None, 2, 3]),
    "split": (lambda x: x.unflatten(3, (2, 3)), [0, 1, 2, None]),
    "reshape that copies": (lambda x: x.transpose(0, 1).reshape(6, 4, 6), [None, None, 1, 2]),
    "another split": (lambda x: x.reshape(2, 3, 8, 3), [0, 1, None, None]),
    "diagonal": (lambda x: x[..., :4].diagonal(dim1=2, dim2=3), [0, None, None, None]),  # reaches over several axes
    "keepdim": (lambda x: x.amax(1, keepdim=True), [0, None, 2, 3]),
    "broadcast": (lambda x: x + torch.zeros(5, *SHAPE), [1, 2, 3, 4]),
}


def steps(operation: Callable[[Tensor], Tensor]) -> tuple[Tensor, Callable[[int], int | None]]:
    """The result of an operation, and where each axis goes, step by step as a capture sees them."""
    axes: dict[int, list[int | None]] = {}

    class Watch(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            if isinstance(out, Tensor) and args and id(args[0]) in axes and out is not args[0]:
                where = origins(args[0], out, reshaped=func in RESHAPES)
                axes[id(out)] = [None if where is None else moved(axis, where) for axis in axes[id(args[0])]]
                kept.append(out)
            return out

    kept: list[Tensor] = []
    x = torch.zeros(SHAPE)
    axes[id(x)] = [0, 1, 2, 3]
    with Watch():
        result = operation(x)
    return result, lambda axis: axes[id(result)][axis]


@pytest.mark.parametrize("name", KEPT)
def test_axes_go_where_their_elements_go(name: str) -> None:
    operation, expected = KEPT[name]
    result, image = steps(operation)
    assert [image(axis) for axis in range(4)] == expected
    for axis in range(4):
        index = torch.arange(SHAPE[axis]).view([-1 if i == axis else 1 for i in range(4)]).expand(SHAPE)
        found, target = operation(index.float().contiguous()), image(axis)
        if target is not None:  # the index is constant along every other axis
            others = [i for i in range(result.dim()) if i != target]
            assert torch.equal(found.amax(others), found.amin(others)) if others else True


def test_a_merged_axis_is_a_feature_only_if_all_its_parts_are() -> None:
    x = torch.zeros(SHAPE)
    where = origins(x, x.flatten(2), reshaped=True)
    assert where is not None
    assert moved_set(frozenset({2, 3}), where) == {2}
    assert moved_set(frozenset({3}), where) == frozenset()


A, B, W = torch.zeros(2, 3, 4, 5), torch.zeros(2, 1, 5, 6), torch.zeros(7, 5)
CALLS: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {
    "matmul": (torch.matmul, (A, B), {}),
    "keywords": (torch.matmul, (), {"input": A, "other": B}),
    "rmatmul": (Tensor.__rmatmul__, (B, A), {}),
    "bmm": (torch.bmm, (A[0], A[0].mT), {}),
    "baddbmm": (torch.baddbmm, (torch.zeros(1), A[0], A[0].mT), {}),
    "baddbmm, keywords": (torch.baddbmm, (torch.zeros(1),), {"batch1": A[0], "batch2": A[0].mT}),
    "linear": (torch.nn.functional.linear, (A, W), {"bias": None}),
    "einsum": (torch.einsum, ("abcd,aedf->abcf", A, B), {}),
    "einsum, ellipsis": (torch.einsum, ("...cd , ...df -> ...cf", A, B), {}),
    "einsum, no output": (torch.einsum, ("...cd,...df", A, B), {}),
    "einsum, a list": (torch.einsum, ("abcd,aedf->acf", [A, B]), {}),
    "einsum, three": (torch.einsum, ("abcd,aedf,f->ac", A, B, torch.zeros(6)), {}),
    "tensordot": (torch.tensordot, (A, W), {"dims": ([3], [1])}),
    "tensordot, a number": (torch.tensordot, (A, W.T, 1), {}),
}


@pytest.mark.parametrize("name", CALLS)
def test_every_spelling_of_a_product_is_the_same_einsum(name: str) -> None:
    func, args, kwargs = CALLS[name]
    generator = torch.Generator().manual_seed(0)

    def fill(thing: Any) -> Any:
        if isinstance(thing, list):
            return [fill(item) for item in thing]
        return torch.randn(thing.shape, generator=generator) if isinstance(thing, Tensor) else thing

    filled = tuple(fill(arg) for arg in args)
    keywords = {key: fill(value) for key, value in kwargs.items()}
    product = product_of(func, filled, keywords)
    assert product is not None
    names = {letter: chr(ord("a") + i) for i, letter in enumerate(dict.fromkeys("".join(product.axes)))}
    equation = ",".join("".join(names[c] for c in axes) for axes in product.axes)
    equation += "->" + "".join(names[c] for c in product.out)
    expected = func(*filled, **keywords) - (filled[0] if "baddbmm" in name else 0)
    assert torch.allclose(torch.einsum(equation, *product.operands), expected, atol=1e-5)


@pytest.mark.parametrize("func", [torch.add, torch.mul, torch.softmax])
def test_other_operations_are_no_products(func: Any) -> None:
    assert product_of(func, (A, A), {}) is None
    assert product_of(torch.matmul, (A, torch.zeros(5)), {}) is None


def test_the_longest_of_broadcast_axes_counts() -> None:
    product = Product((A, B), ("abcd", "abde"), "abce")
    assert [product.size(letter) for letter in "abcde"] == [2, 3, 4, 5, 6]
