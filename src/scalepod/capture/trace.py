"""What is known about the axes of a tensor between the scores of an attention and the product with its values."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from .axes import Origins, moved, moved_set
from .products import Product


@dataclass(frozen=True)
class Trace:
    """What is known about the axes of a tensor."""

    key: int | None = None
    """The axis over which a softmax was taken."""
    query: int | None = None
    """The axis of the queries, when the scores were seen to be a product of two sequences."""
    free: frozenset[int] = frozenset()
    """The two axes of scores which come from one of their factors each."""
    features: frozenset[int] = frozenset()
    """Axes that the last linear map, embedding or normalisation made: channels, experts, a vocabulary. Attention runs
    over none of them."""
    layer: str | None = None
    """Where the softmax was taken."""
    used_in: str | None = None
    """Where these very probabilities were multiplied with values already."""
    clean: Tensor | None = None
    """The same tensor without the dropout that was applied on the way."""
    spread: Product | None = None
    """The probabilities times the values, of which this is the elementwise product, not summed yet."""

    def moved(self, where: Origins) -> "Trace":
        """The trace of a result whose axes come from these."""
        free = frozenset(axis for axis in (moved(axis, where) for axis in self.free) if axis is not None)
        return replace(
            self,
            key=moved(self.key, where),
            query=moved(self.query, where),
            free=free if len(free) == 2 else frozenset(),
            features=moved_set(self.features, where),
            used_in=None,
            clean=None,
            spread=None,
        )

    @property
    def says_something(self) -> bool:
        """Whether anything is known."""
        return self.key is not None or bool(self.free or self.features)

    @property
    def may_be_keys(self) -> frozenset[int]:
        """The axes over which this may be multiplied with values."""
        return self.free if self.key is None else frozenset({self.key})

    def after_softmax(self, axis: int, layer: str | None) -> "Trace":
        """The trace of the softmax over an axis."""
        others = self.free - {axis}
        query = next(iter(others)) if len(others) == 1 and axis in self.free else None
        return Trace(key=axis, query=query, features=self.features, layer=layer)


def trace_of_product(product: Product, traces: Sequence[Trace | None]) -> Trace:
    """The trace of a product that is not the one with the values: scores, a linear map, a mixing of heads."""
    learned = {i for i in range(len(traces)) if product.is_learned(i)}
    key, query, layer = None, None, None
    for trace, axes in zip(traces, product.axes, strict=True):
        if key is None and trace is not None and trace.key is not None and axes[trace.key] in product.out:
            key, layer = product.out.index(axes[trace.key]), trace.layer
            query = None if trace.query is None else product.out.find(axes[trace.query])
    owners = {letter: [i for i, axes in enumerate(product.axes) if letter in axes] for letter in product.out}
    if learned:
        features = [letter for letter in product.out if learned.issuperset(owners[letter])]
    else:
        features = [
            letter for letter in product.out if all(_is_feature(product, traces, i, letter) for i in owners[letter])
        ]
    return Trace(
        key=key,
        query=None if query == -1 else query,
        free=frozenset() if learned else _free_axes(product, owners),
        features=frozenset(product.out.index(letter) for letter in features),
        layer=layer,
    )


def _is_feature(product: Product, traces: Sequence[Trace | None], operand: int, letter: str) -> bool:
    trace = traces[operand]
    return trace is not None and product.axes[operand].index(letter) in trace.features


def _free_axes(product: Product, owners: dict[str, list[int]]) -> frozenset[int]:
    """The axes of the result that make it scores: one from each of two factors, of the same length if in doubt."""
    own = [[c for c in product.out if owners[c] == [i]] for i in range(len(product.axes))]
    own = [letters for letters in own if letters]
    if len(own) != 2:
        return frozenset()
    pairs = [(a, b) for a in own[0] for b in own[1]]
    if len(pairs) > 1:
        pairs = [(a, b) for a, b in pairs if product.size(a) == product.size(b)]
    return frozenset(product.out.index(letter) for letter in pairs[0]) if len(pairs) == 1 else frozenset()
