"""Synthetic text whose structure has a known lag."""

import numpy as np

from .text import CharDataModule

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


class PlantedScales(CharDataModule):
    """Text that repeats random words of ``lag`` letters, to see whether an analysis finds the lag.

    Each word is drawn letter by letter and written ``repeats`` times in a row, with nothing in between, before the
    next one begins; so from the second time on every letter is the one ``lag`` places before it, and nothing else
    tells which it will be. With ``lag=3`` and ``repeats=4``::

        wqnwqnwqnwqnhibhibhibhib...

    A model that has learned it looks where the word was before. A GPT of 2 layers (64 wide, 4 heads, T = 128) after 300
    steps of 32 windows (AdamW, 3e-3) did this: its first layer pays most attention to lags P - 1 and 2 P - 1, where the
    letter to come stood the last times, and its second layer to lags 0, P and 2 P. The highest peak of the second
    layer's scalogram then stands within 2 % of P for P = 5, 8, 13 and 21 (``python benchmarks/planted.py``).

    Args:
        lag: Letters P in a word, in characters.
        repeats: How often a word is written before the next one.
        n_characters: Length of the text.
        alphabet_size: Distinct letters, at most 26.
        seed: Seed of the text. The same options give the same text everywhere, whatever ``seed_everything`` says.
        block_size: Characters T in a window.
        batch_size: Windows B in a batch, on each device.
        val_fraction: Share of the text, at its end, that validates.
        num_workers: Processes that load batches; 0 loads them in the main process, which is fast enough for text.

    Raises:
        ValueError: An option is out of range.

    Example:
        >>> data = PlantedScales(lag=3, block_size=32)
        >>> tokens = data.corpus.tokens
        >>> data.decode(tokens[:24])
        'wqnwqnwqnwqnhibhibhibhib'
    """

    def __init__(
        self,
        lag: int = 12,
        repeats: int = 4,
        n_characters: int = 200_000,
        alphabet_size: int = 26,
        seed: int = 0,
        block_size: int = 256,
        batch_size: int = 64,
        val_fraction: float = 0.1,
        num_workers: int = 0,
    ) -> None:
        super().__init__(block_size, batch_size, val_fraction, num_workers)
        for name, value, least in (("lag", lag, 1), ("repeats", repeats, 2), ("n_characters", n_characters, 1)):
            if value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}")
        if not 2 <= alphabet_size <= len(_LETTERS):
            raise ValueError(f"alphabet_size must be from 2 to {len(_LETTERS)}, got {alphabet_size}")
        self.lag = lag
        self.repeats = repeats
        self.n_characters = n_characters
        self.alphabet_size = alphabet_size
        self.seed = seed

    def load_text(self) -> tuple[str, str]:
        """Write the text; its name in logs holds the lag."""
        draw = np.random.default_rng(self.seed)
        n_words = -(-self.n_characters // (self.lag * self.repeats))
        words = draw.integers(self.alphabet_size, size=(n_words, self.lag))
        letters = np.tile(words, self.repeats).ravel()[: self.n_characters]
        return "".join(np.array(list(_LETTERS))[letters]), f"planted-lag-{self.lag}"
