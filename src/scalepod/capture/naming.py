"""Which module of a model is computing: found on the Python stack, so that no hook is needed."""

import sys

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
        self._names: dict[int, str] = {}
        self._kinds: dict[str, str] = {}
        self.scripted: list[str] = []
        """Modules that TorchScript runs outside of Python, where nothing can be seen."""
        for path, module in model.named_modules():
            parts = [part for part in path.split(".") if part and part not in WRAPPERS]
            if isinstance(module, AttentionProbe):
                parts = parts[:-1]
            name = ".".join(parts) or type(_unwrapped(model)).__name__
            self._names[id(module)] = name
            if not isinstance(module, AttentionProbe):
                self._kinds[name] = type(module).__name__  # of a wrapper and what it wraps, the inner one stays
            if isinstance(module, torch.jit.ScriptModule):
                self.scripted.append(name)

    def running(self) -> str | None:
        """Name of the innermost module of the model whose method is on the stack; None outside the model.

        That is the nearest frame whose first argument is such a module, which also finds a ``forward`` that was called
        directly and a function like ``attention(module, query, key, value)``.
        """
        frame = sys._getframe(1)
        while True:
            if frame.f_code.co_argcount:
                first = frame.f_locals.get(frame.f_code.co_varnames[0])
                if isinstance(first, nn.Module) and id(first) in self._names:
                    return self._names[id(first)]
            if frame.f_back is None:
                return None
            frame = frame.f_back

    def kind(self, name: str) -> str:
        """Class name of the module of this name."""
        return self._kinds[name]

    def of_kind(self, kind: str) -> list[str]:
        """Names of all modules of a class, in the order of the model."""
        return [name for name, other in self._kinds.items() if other == kind]


def _unwrapped(module: nn.Module) -> nn.Module:
    for part, child in module.named_children():
        if part in WRAPPERS:
            return _unwrapped(child)
    return module
