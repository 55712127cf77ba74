"""The observer: sees every torch operation of a forward pass, runs it unchanged, and looks at the attention in it."""

from collections.abc import Callable, Mapping
from typing import Any

from torch.overrides import TorchFunctionMode

from .flex import FLEX, observe_flex
from .mha import MHA, observe_mha
from .opaque import Adapter, kernel_name, observe_kernel
from .record import AttentionRecord
from .sdpa import SDPA, observe_sdpa
from .softmax import SoftmaxFollower


class AttentionMode(TorchFunctionMode):
    """While active, every torch function of this thread passes through here; its result is never changed.

    A function mode stands above autograd, autocast and the choice of a kernel, so it meets an operation under the
    name the model called it by, on every device, with the arguments as they were given. It is off while it looks.
    """

    def __init__(self, record: AttentionRecord, adapters: Mapping[str, Adapter]) -> None:
        super().__init__()
        self._record = record
        self._adapters = adapters
        self._follower = SoftmaxFollower(record)

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run ``func`` as it is, and report the attention it computed to the record."""
        kwargs = kwargs or {}
        if func in SDPA:
            result = func(*args, **kwargs)
            observe_sdpa(self._record, args, kwargs)
        elif func is MHA:
            result = func(*args, **kwargs)
            observe_mha(self._record, args, kwargs)
        elif func is FLEX:
            result = func(*args, **kwargs)
            observe_flex(self._record, args, kwargs)
        elif (kernel := kernel_name(func)) is not None:
            result = func(*args, **kwargs)
            observe_kernel(self._record, kernel, self._adapters.get(kernel), args, kwargs)
        else:
            result = self._follower.run(func, args, kwargs)
        return result
