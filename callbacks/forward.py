"""How to run any LightningModule on a held-out batch, and leave no trace of it."""

import contextlib
import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import lightning as L
from lightning.pytorch.loggers.logger import DummyLogger
from lightning.pytorch.trainer.states import RunningStage
from lightning.pytorch.utilities.model_helpers import is_overridden

from ..capture.guards import held_out

Forward = Callable[[L.LightningModule, Any], Any]
"""Runs a module on a batch that is on the module's device already; what it returns is not looked at."""


@contextlib.contextmanager
def unnoticed(trainer: L.Trainer, module: L.LightningModule) -> Iterator[None]:
    """Evaluation mode, validation stage, no gradients, no logging, and everything put back at the end."""
    loggers, stage = trainer.loggers, trainer.state.stage
    with held_out(module, module.device):
        trainer.loggers = [DummyLogger() for _ in loggers]
        trainer.state.stage = RunningStage.VALIDATING  # modules that augment while training look there
        for name in ("log", "log_dict"):  # held_out takes them off again, like every attribute that was set inside
            object.__setattr__(module, name, lambda *args, **kwargs: None)
        try:
            yield
        finally:
            trainer.loggers, trainer.state.stage = loggers, stage


def default_forward(module: L.LightningModule, batch: Any) -> Any:
    """Run a module on a batch the way its own signature asks for.

    In this order: ``module.attention_forward(batch)`` where it is defined; ``forward`` with what its signature takes
    from the batch (a mapping or dataclass: the keywords it knows; a tuple: as many as it requires; a tensor: itself);
    ``validation_step``.

    Args:
        module: The module, in evaluation mode.
        batch: A batch on its device.

    Raises:
        TypeError: If none of them fits; the message names what is missing.
    """
    explicit: Forward | None = getattr(type(module), "attention_forward", None)
    if explicit is not None:
        return explicit(module, batch)
    problem = "it has no forward"
    if is_overridden("forward", module):
        bound = _bind(module.forward, batch)
        if not isinstance(bound, str):
            return module(*bound[0], **bound[1])
        problem = bound
    if is_overridden("validation_step", module):
        names = list(inspect.signature(module.validation_step).parameters)
        return module.validation_step(*(batch, 0, 0)[: len(names)])
    raise TypeError(
        f"cannot tell how to run {type(module).__name__} on a held-out batch of type {type(batch).__name__}: "
        f"{problem}. Pass ScalePODCallback(forward_fn=lambda module, batch: ...)"
    )


def _bind(forward: Callable[..., Any], batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]] | str:
    """Arguments for forward out of a batch, or a sentence that says why there are none."""
    parameters = list(inspect.signature(forward).parameters.values())
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p.name for p in positional if p.default is p.empty]
    keyword_only = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    spread = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type | Mapping):
        named: Mapping[str, Any] | None = {f.name: getattr(batch, f.name) for f in dataclasses.fields(batch)}
    else:
        named = batch if isinstance(batch, Mapping) else None
    if named is not None:
        return _bind_names(named, batch, parameters, required + keyword_only)
    if keyword_only:
        return f"forward requires the keywords {keyword_only}, and the batch names nothing"
    if not isinstance(batch, list | tuple):
        fits = len(required) <= 1 and (positional or spread)
        return ((batch,), {}) if fits else f"forward requires {required} and the batch is one {type(batch).__name__}"
    if len(required) > len(batch):
        return f"forward requires {required} and the batch holds {len(batch)} items"
    if spread and not required:
        return tuple(batch), {}
    return tuple(batch[: max(len(required), 1)]), {}


def _bind_names(
    named: Mapping[str, Any], batch: Any, parameters: list[inspect.Parameter], required: list[str]
) -> tuple[tuple[Any, ...], dict[str, Any]] | str:
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
    known = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    keywords = {name: value for name, value in named.items() if takes_all or name in known}
    missing = [name for name in required if name not in keywords]
    if keywords and not missing:
        return (), keywords
    if len(required) == 1 and not keywords:
        return (batch,), {}
    return f"forward requires {missing or required} and the batch gives {sorted(map(str, named))}"
