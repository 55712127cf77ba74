"""Plain records, dataclasses and named tuples, taken apart field by field."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from torch import Tensor

R = TypeVar("R")


def is_record(kind: Any) -> bool:
    """Whether a type is a dataclass or a named tuple."""
    return isinstance(kind, type) and (is_dataclass(kind) or hasattr(kind, "_fields"))


def field_names(kind: Any) -> tuple[str, ...]:
    """Fields of a dataclass or a named tuple, in order."""
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else kind._fields


def map_tensors(record: R, change: Callable[[Tensor], Tensor]) -> R:
    """The same record with every tensor in it, and in the records in it, changed."""
    values: dict[str, Any] = {name: getattr(record, name) for name in field_names(type(record))}
    for name, value in values.items():
        if isinstance(value, Tensor):
            values[name] = change(value)
        elif is_record(type(value)):
            values[name] = map_tensors(value, change)
    return type(record)(**values)
