"""Files that are whole or not there at all."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4


@contextlib.contextmanager
def atomic_write(path: str | Path) -> Iterator[BinaryIO]:
    """A binary file that takes its name only when it was written to the end; its folder is made where missing.

    Args:
        path: The file; one that is there is replaced.

    Raises:
        OSError: If it cannot be written; nothing of it is left behind.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{uuid4().hex}.part")
    try:
        with part.open("wb") as file:
            yield file
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
