"""Attention inside ``F.multi_head_attention_forward``, the function behind nn.MultiheadAttention and nn.Transformer."""

import inspect
from dataclasses import replace
from types import FunctionType
from typing import Any, cast

import torch.nn.functional as F
from torch import Tensor

from .maps import HeadMaps
from .record import AttentionRecord
from .sdpa import sdpa_maps

MHA = cast("FunctionType", F.multi_head_attention_forward)
_SIGNATURE = inspect.signature(MHA)


def observe_mha(record: AttentionRecord, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Record the probabilities behind a call of ``F.multi_head_attention_forward(*args, **kwargs)``."""
    call = _SIGNATURE.bind(*args, **kwargs)
    call.apply_defaults()
    record.recompute("mha", lambda: _mha_maps(call))


def _mha_maps(call: inspect.BoundArguments) -> HeadMaps:
    """The maps, of real keys only: the ones that ``add_bias_kv`` and ``add_zero_attn`` append are cut off."""
    maps = sdpa_maps(None, *_attention_inputs(call))
    appended = (call.arguments["bias_k"] is not None) + bool(call.arguments["add_zero_attn"])
    keys = maps.keys - appended

    def compute(samples: slice, head: int) -> Tensor:
        return maps.compute(samples, head)[..., :keys]

    return replace(maps, keys=keys, compute=compute)


def _attention_inputs(call: inspect.BoundArguments) -> tuple[Any, ...]:
    """Query, key, value, mask, ... as the function gives them to ``scaled_dot_product_attention``.

    The function is a composite whose inside no mode can see. So it is run once more, up to that point: a copy of it
    whose globals hold a ``scaled_dot_product_attention`` that keeps its arguments and goes no further. Without
    weights to return it always gets there, and no dropout has been drawn by then.
    """

    def stop(*args: Any) -> None:
        raise _Reached(args)

    copy = FunctionType(MHA.__code__, {**vars(F), "scaled_dot_product_attention": stop}, MHA.__name__, MHA.__defaults__)
    hint = call.arguments["is_causal"] and not call.arguments["need_weights"]  # not used where weights are returned
    arguments = call.arguments | {"need_weights": False, "is_causal": hint}
    try:
        copy(**arguments)
    except _Reached as reached:
        return reached.inputs
    raise RuntimeError("multi_head_attention_forward did not call scaled_dot_product_attention")


class _Reached(Exception):  # noqa: N818 - a signal
    def __init__(self, inputs: tuple[Any, ...]) -> None:
        self.inputs = inputs
