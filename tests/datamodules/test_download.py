import hashlib
import socket
import threading
import time

import pytest

from scalepod.datamodules import download
from scalepod.datamodules.download import DownloadError, write_atomically

CONTENT = b"All the world's a stage.\n" * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(download, "BACKOFF", 0.01)


def test_the_file_arrives(serve):
    server = serve(CONTENT, "ok")
    assert download.download(server.url, SHA256) == CONTENT
    assert server.n_requests == 1


@pytest.mark.parametrize("trouble", ["truncated", "short", "html", 500, 503])
def test_what_may_pass_is_tried_again(serve, trouble):
    server = serve(CONTENT, trouble, trouble, "ok")
    assert download.download(server.url, SHA256) == CONTENT
    assert server.n_requests == 3


@pytest.mark.parametrize(
    ("trouble", "n_requests", "reason"),
    [
        ("truncated", 3, rf"has sha256 [0-9a-f]{{64}} \({len(CONTENT) // 2} bytes\), expected {SHA256}"),
        ("short", 3, rf"has sha256 [0-9a-f]{{64}} \({len(CONTENT) - 10} bytes\), expected {SHA256}"),
        ("html", 3, rf"has sha256 [0-9a-f]{{64}} \(70 bytes\), expected {SHA256}"),
        (500, 3, "HTTP Error 500"),
        (404, 1, "HTTP Error 404"),
    ],
)
def test_the_reason_of_a_failure_is_told(serve, trouble, n_requests, reason):
    server = serve(CONTENT, trouble)
    with pytest.raises(DownloadError, match=f"{server.url} could not be downloaded: .*{reason}"):
        download.download(server.url, SHA256)
    assert server.n_requests == n_requests


@pytest.mark.parametrize(
    ("trouble", "limit", "reason"),
    [("silent", "ANSWER_TIMEOUT", "no answer within"), ("dripping", "TOTAL_TIMEOUT", "not complete after")],
)
def test_waits_are_bounded(serve, monkeypatch, trouble, limit, reason):
    monkeypatch.setattr(download, limit, 0.3)
    server = serve(CONTENT, trouble)
    with pytest.raises(DownloadError, match=rf"{reason} 0\.3 seconds"):
        download.download(server.url, SHA256)
    assert server.n_requests == 1


def test_nobody_listens():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/input.txt"
        with pytest.raises(DownloadError, match="refused"):
            download.download(url, SHA256)


def test_no_such_host_is_asked_once(monkeypatch):
    asked = []

    def fail(*args, **kwargs):
        asked.append(args)
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(DownloadError, match="Name or service not known"):
        download.download("http://host.invalid/input.txt", SHA256)
    assert len(asked) == 1


def test_a_slow_look_up_of_the_name_does_not_hold_up(monkeypatch):
    monkeypatch.setattr(download, "ANSWER_TIMEOUT", 0.3)
    looked_up = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: looked_up.wait(10) and [])
    start = time.monotonic()
    with pytest.raises(DownloadError, match=r"no answer within 0\.3 seconds"):
        download.download("http://host.invalid/input.txt", SHA256)
    assert time.monotonic() - start < 3
    looked_up.set()


def test_too_much_content(serve, monkeypatch):
    monkeypatch.setattr(download, "_MAX_BYTES", 1000)
    with pytest.raises(DownloadError, match="more than 1000 bytes"):
        download.download(serve(CONTENT, "ok").url, SHA256)


def test_attempts_are_spaced(serve, monkeypatch):
    waits = []
    monkeypatch.setattr(time, "sleep", waits.append)
    with pytest.raises(DownloadError):
        download.download(serve(CONTENT, 500).url, SHA256, attempts=4)
    assert [wait for wait in waits if wait != 0.1] == [0.01, 0.02, 0.04]  # 0.1 is the server's own


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "input.txt"
    write_atomically(path, b"old")
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"

    def full_disk(self, data):
        self.touch()
        raise OSError("No space left on device")

    monkeypatch.setattr(type(path), "write_bytes", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"newer")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]
