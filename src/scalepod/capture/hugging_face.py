"""Hugging Face models that run an opaque attention kernel: switched to one that can be looked into, and back."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any

from torch import nn

TRANSPARENT = frozenset({None, "eager", "sdpa", "flex_attention", "paged|eager"})
"""Implementations whose probabilities can be captured."""

_SEEN_INSIDE = frozenset({"scaled_dot_product_attention", "softmax", "flex_attention", "record_attention"})
_IMPLEMENTATION = "_attn_implementation_internal"


@contextmanager
def transparent_attention(model: nn.Module, note: Callable[[str], None]) -> Iterator[None]:
    """Let the Hugging Face models within a model use sdpa, or else eager attention, where theirs cannot be looked into.

    Their own switch is used, so that masks and sliding windows follow. Implementations that a user registered are kept
    when their code, or a function it calls, computes attention in a way that can be seen.

    Args:
        model: any module.
        note: takes a remark on each switch.
    """
    models = [module for module in model.modules() if callable(getattr(module, "set_attn_implementation", None))]
    saved = [(config, vars(config).get(_IMPLEMENTATION)) for module in models for config in _configs(module.config)]
    try:
        for module in models:
            _switch(module, note)
        yield
    finally:
        for config, implementation in saved:
            if vars(config).get(_IMPLEMENTATION) != implementation:
                setattr(config, _IMPLEMENTATION, implementation)


def _configs(config: Any) -> Iterator[Any]:
    yield config
    for name in getattr(config, "sub_configs", ()):
        if getattr(config, name, None) is not None:
            yield from _configs(getattr(config, name))


def _switch(module: Any, note: Callable[[str], None]) -> None:
    name = getattr(module.config, "_attn_implementation", None)
    # an attention sink is applied after flex attention, out of sight
    hidden_sink = name == "flex_attention" and any(hasattr(part, "sinks") for part in module.modules())
    if not isinstance(name, str | None) or (_is_transparent(name) and not hidden_sink):
        return
    kind = type(module).__name__
    for replacement in ("sdpa", "eager"):
        try:
            module.set_attn_implementation(replacement)
        except (ValueError, ImportError):
            continue
        if module.config._attn_implementation == replacement:
            note(f"{kind}: attention implementation {name!r} switched to {replacement!r} for the capture")
            return
    note(f"{kind}: attention implementation {name!r} can neither be looked into nor be switched")


def _is_transparent(name: str | None) -> bool:
    if name in TRANSPARENT:
        return True
    registry = getattr(sys.modules.get("transformers.modeling_utils"), "ALL_ATTENTION_FUNCTIONS", {})
    function = registry.get(name)
    return "flash" not in str(name) and "/" not in str(name) and _computes_visibly(function, depth=3)


def _computes_visibly(function: Any, depth: int) -> bool:
    """Whether the code of a function, or of functions it calls, mentions an attention that can be seen."""
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType) or depth == 0:
        return False
    names = set(code.co_names)
    called = (function.__globals__.get(name) for name in names)
    return not names.isdisjoint(_SEEN_INSIDE) or any(_computes_visibly(other, depth - 1) for other in called)
