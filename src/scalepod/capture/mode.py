"""The observer: sees every torch operation of a forward pass, runs it unchanged, and looks at the attention in it."""

from collections.abc import Callable
from typing import Any

from torch.overrides import TorchFunctionMode

from .record import AttentionRecord
from .sdpa import SDPA, observe_sdpa


class AttentionMode(TorchFunctionMode):
    """While active, every torch function of this thread passes through here; its result is never changed.

    A function mode stands above autograd, autocast and the choice of a kernel, so it meets an operation under the
    name the model called it by, on every device, with the arguments as they were given.
    """

    def __init__(self, record: AttentionRecord) -> None:
        super().__init__()
        self._record = record

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run ``func`` as it is, and report the attention it computed to the record."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if func in SDPA:
            observe_sdpa(self._record, args, kwargs)
        return result
