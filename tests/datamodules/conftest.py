"""Texts, and a web server on the loopback interface that can misbehave."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

REAL_TEXT = Path(__file__).resolve().parents[3] / "shared" / "data" / "tinyshakespeare" / "input.txt"
HTML = b"<!DOCTYPE html><html><body>Please log in to the network.</body></html>"


@pytest.fixture
def real_text() -> Path:
    """The published TinyShakespeare."""
    if not REAL_TEXT.is_file():
        pytest.skip(f"the published text is not at {REAL_TEXT}")
    return REAL_TEXT


@pytest.fixture
def counting_text(tmp_path: Path) -> Path:
    """A text of 1000 different characters, so that the token at position i is i and a window tells where it starts."""
    path = tmp_path / "counting.txt"
    path.write_text("".join(chr(0x4E00 + i) for i in range(1000)), encoding="utf-8")
    return path


class Server(ThreadingHTTPServer):
    """Answers each request as the script says, and further ones as its last entry says.

    An entry is "ok", "html", "truncated" (the connection closes too early), "short" (complete, but not all of the
    file), "silent" (no answer), "dripping" (a byte now and then), or a status code.
    """

    daemon_threads = True

    def __init__(self, content: bytes, script: tuple[str | int, ...]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = content
        self.script = script
        self.n_requests = 0
        self.closing = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_address[1]}/input.txt"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        entry = self.server.script[min(self.server.n_requests, len(self.server.script) - 1)]
        self.server.n_requests += 1
        if entry == "silent":
            self.server.closing.wait()
        elif isinstance(entry, int):
            self.send_error(entry)
        else:
            body = {"html": HTML, "short": self.server.content[:-10]}.get(entry, self.server.content)
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.send_body(body[: len(body) // 2] if entry == "truncated" else body, slowly=entry == "dripping")

    def send_body(self, body: bytes, slowly: bool) -> None:
        time.sleep(0.1)  # long enough for another process to ask as well, if it were allowed to
        pieces = [body[i : i + 1] for i in range(len(body))] if slowly else [body]
        for piece in pieces:
            if slowly and self.server.closing.wait(0.05):
                return
            self.wfile.write(piece)

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def running(server: Server) -> Iterator[Server]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    """Start a server of some content: ``serve(content, "html", 500, "ok")``."""
    with ExitStack() as stack:
        yield lambda content, *script: stack.enter_context(running(Server(content, script)))
