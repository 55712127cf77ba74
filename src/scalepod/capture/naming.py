"""Which module of a model is computing: found on the Python stack, so that no hook is needed."""

import re
import sys
from types import FrameType

import torch
from torch import nn

from .declared import AttentionProbe

WRAPPERS = frozenset({"_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module"})
"""Parts of a module path that torch.compile, activation checkpointing and FSDP insert."""


class ModuleNames:
    """Paths of the modules of a model, and the module that is running now.

    A path is the one of ``named_modules`` without the parts that wrappers insert; the model itself goes by its class
    name. A module with several parents has the first of its paths, and a probe the path of the module that owns it.
    """

    def __init__(self, model: nn.Module) -> None:
        self.root = type(_unwrapped(model)).__name__
        """Name of the model itself."""
        self.scripted: list[str] = []
        """Modules that TorchScript runs outside of Python, where nothing can be seen."""
        self._names: dict[int, str] = {}
        self._kinds: dict[str, tuple[type[nn.Module], str]] = {}
        for path, module in model.named_modules():
            parts = [part for part in path.split(".") if part and part not in WRAPPERS]
            is_probe = isinstance(module, AttentionProbe)
            name = ".".join(parts[:-1] if is_probe else parts) or self.root
            self._names[id(module)] = name
            if not is_probe:  # of a wrapper and what it wraps, which share a name, the inner one stays
                self._kinds[name] = type(module), re.sub(r"\d+", "*", name)
            if isinstance(module, torch.jit.ScriptModule):
                self.scripted.append(name)

    def running(self) -> str | None:
        """Name of the innermost module of the model whose method is on the stack; None outside the model.

        That is the nearest frame whose first argument is such a module, which also finds a ``forward`` that was called
        directly and a function like ``attention(module, query, key, value)``.
        """
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_argcount:
                first = frame.f_locals.get(frame.f_code.co_varnames[0])
                if isinstance(first, nn.Module) and id(first) in self._names:
                    return self._names[id(first)]
            frame = frame.f_back
        return None

    def alike(self, name: str) -> list[str]:
        """Names of the modules of the same class whose path differs in nothing but its numbers, in their order."""
        return [other for other, kind in self._kinds.items() if kind == self._kinds[name]]


def _unwrapped(module: nn.Module) -> nn.Module:
    for part, child in module.named_children():
        if part in WRAPPERS:
            return _unwrapped(child)
    return module
