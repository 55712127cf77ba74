"""Reading a text and turning its characters into integers."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor


def read_text(path: Path) -> str:
    r"""Read a UTF-8 file, without a byte order mark and with ``\n`` at the end of each line.

    Args:
        path: The file. Line ends of any kind (``\n``, ``\r\n``, ``\r``) are taken.

    Raises:
        FileNotFoundError: There is no file at ``path``.
        ValueError: The file is not UTF-8; the message names the first byte that is not, and its position.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no text file at {path.absolute()}: check the path")
    data = path.read_bytes()
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{path} is not UTF-8: byte 0x{data[error.start]:02x} at position {error.start} (line {line});"
            f" save it as UTF-8, or convert it, from Latin-1 for example with `iconv -f LATIN1 -t UTF-8 {path}`"
        ) from error
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


@dataclass(frozen=True, eq=False)
class Corpus:
    """A text as integers: each character is its place in the sorted list of the characters that occur.

    Example:
        >>> corpus = Corpus.from_text("hello", name="greeting")
        >>> corpus.vocabulary, corpus.tokens
        ('ehlo', tensor([1, 0, 2, 2, 3], dtype=torch.int32))
    """

    name: str
    """What the text is called in logs."""
    sha256: str
    """Checksum of the text in UTF-8, which tells one text from another whatever they are called."""
    vocabulary: str
    """The distinct characters of the whole text, sorted by code point."""
    tokens: Tensor
    """The text, [n], int32."""

    @classmethod
    def from_text(cls, text: str, name: str) -> "Corpus":
        """Build the vocabulary of a text and encode the text with it."""
        code_points = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
        characters, tokens = np.unique(code_points, return_inverse=True)
        checksum = hashlib.sha256(text.encode()).hexdigest()
        return cls(name, checksum, "".join(map(chr, characters)), torch.from_numpy(tokens.astype(np.int32)))

    def encode(self, text: str) -> Tensor:
        """Turn n characters of the vocabulary into tokens, [n], int64; see :meth:`CharDataModule.encode`."""
        token_of = {character: token for token, character in enumerate(self.vocabulary)}
        for position, character in enumerate(text):
            if character not in token_of:
                raise ValueError(
                    f"character {character!r} (U+{ord(character):04X}) at position {position} is not among"
                    f" the {len(self.vocabulary)} characters of {self.name}: leave it out or replace it"
                )
        return torch.tensor([token_of[character] for character in text], dtype=torch.int64)

    def decode(self, tokens: Tensor | Iterable[int]) -> str:
        """Turn one sequence of n tokens into n characters; see :meth:`CharDataModule.decode`."""
        if isinstance(tokens, Tensor):
            if tokens.ndim != 1:
                raise ValueError(f"decode takes one sequence [n], got shape {tuple(tokens.shape)}: pass one row")
            tokens = tokens.tolist()
        tokens = [int(token) for token in tokens]
        if wrong := [token for token in tokens if not 0 <= token < len(self.vocabulary)]:
            raise ValueError(f"token {wrong[0]} is outside the vocabulary, 0 to {len(self.vocabulary) - 1}")
        return "".join(self.vocabulary[token] for token in tokens)
