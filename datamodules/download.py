"""Fetch a small file once, whole and checked, however many processes ask for it."""

import hashlib
import http.client
import os
import socket
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

ANSWER_TIMEOUT = 5.0
"""Seconds to wait for a server to answer, and for each further piece of its answer."""

TOTAL_TIMEOUT = 60.0
"""Seconds a whole transfer may take."""

BACKOFF = 0.5
"""Seconds before the second attempt; twice as long before each further one."""

_MAX_BYTES = 64 * 2**20


class DownloadError(OSError):
    """A file could not be fetched, or what came is not that file."""


def download(url: str, sha256: str, attempts: int = 3) -> bytes:
    """Fetch a file and check that it is the right one.

    What may pass (a refused or broken connection, a server's error 5xx, a wrong checksum) is tried again; what will
    not (no such host, no such file, no answer in time) is not, so that a machine without a network does not wait long.

    Args:
        url: Where the file is.
        sha256: Its checksum, in hexadecimal.
        attempts: How often to try.

    Returns:
        The file's content.

    Raises:
        DownloadError: No attempt brought the file; the message says why the last one did not.
    """
    for attempt in range(attempts):
        if attempt:
            time.sleep(BACKOFF * 2 ** (attempt - 1))
        try:
            data = _fetch(url)
            check_sha256(data, sha256, url)
            return data
        except (OSError, http.client.HTTPException, ValueError) as error:
            failure = error
            if isinstance(error, HTTPError):
                error.close()  # it holds the connection
            if not _may_pass(error):
                break
    raise DownloadError(f"{url} could not be downloaded: {failure}") from failure


def check_sha256(data: bytes, sha256: str, source: str | Path) -> None:
    """Compare the checksum of a file with the one it must have.

    Args:
        data: The file's content.
        sha256: The checksum it must have, in hexadecimal.
        source: Where the content comes from, for the message.

    Raises:
        ValueError: They differ; the message names both.
    """
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        raise ValueError(f"{source} has sha256 {found} ({len(data)} bytes), expected {sha256}")


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that nobody ever sees a part of it: under a temporary name first, then renamed."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _fetch(url: str) -> bytes:
    deadline = time.monotonic() + TOTAL_TIMEOUT
    data = bytearray()
    with _open(url) as response:
        while chunk := response.read1(2**16):
            data += chunk
            if len(data) > _MAX_BYTES:
                raise DownloadError(f"more than {_MAX_BYTES} bytes came")
            if time.monotonic() > deadline:
                raise TimeoutError(f"not complete after {TOTAL_TIMEOUT:g} seconds")
    return bytes(data)


def _open(url: str) -> Any:
    """Open a URL in ``ANSWER_TIMEOUT`` seconds all in all.

    ``urlopen`` alone would wait that long for each address of the host, and as long as it takes for the look-up of its
    name: half a minute and more where a firewall drops packets.
    """
    answer: Future[Any] = Future()

    def ask() -> None:
        try:
            answer.set_result(urlopen(url, timeout=ANSWER_TIMEOUT))
        except Exception as error:
            answer.set_exception(error)

    threading.Thread(target=ask, daemon=True).start()
    try:
        return answer.result(ANSWER_TIMEOUT)
    except TimeoutError:
        raise TimeoutError(f"no answer within {ANSWER_TIMEOUT:g} seconds") from None


def _may_pass(error: Exception) -> bool:
    if isinstance(error, HTTPError):
        return error.code >= 500
    return not isinstance(getattr(error, "reason", error), TimeoutError | socket.gaierror)
