import hashlib
import pickle
from collections import Counter

import pytest
import torch

from scalepod.datamodules import CharTextDataModule, PlantedScales, TinyShakespeare
from scalepod.datamodules.corpus import Corpus, read_text

TEXT = "To be, or not to be:\nthat is the question.\n"


def small(path, text=TEXT * 20, **options):
    path.write_text(text, encoding="utf-8")
    return CharTextDataModule(path, **({"block_size": 8, "batch_size": 4} | options))


@pytest.mark.parametrize(
    "data",
    [b"a\nb\n\nc", b"a\r\nb\r\n\r\nc", b"a\rb\r\rc", b"\xef\xbb\xbfa\nb\n\nc", b"\xef\xbb\xbfa\r\nb\n\rc"],
    ids=["LF", "CRLF", "CR", "byte order mark", "mixed"],
)
def test_line_ends_and_byte_order_marks_are_normalised(tmp_path, data):
    path = tmp_path / "a.txt"
    path.write_bytes(data)
    assert read_text(path) == "a\nb\n\nc"


def test_characters_beyond_ascii_are_kept(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("née 𝄞 日本", encoding="utf-8")
    assert read_text(path) == "née 𝄞 日本"


def test_bytes_that_are_not_utf8_are_named(tmp_path):
    path = tmp_path / "latin.txt"
    path.write_bytes("one\ntwo: né".encode("latin-1"))
    with pytest.raises(ValueError, match=r"latin\.txt is not UTF-8: byte 0xe9 at position 10 \(line 2\); .*iconv"):
        read_text(path)


def test_a_byte_order_mark_does_not_shift_the_position(tmp_path):
    path = tmp_path / "latin.txt"
    path.write_bytes(b"\xef\xbb\xbfab\xe9")
    with pytest.raises(ValueError, match="byte 0xe9 at position 5"):
        read_text(path)


def test_missing_file(tmp_path):
    data = CharTextDataModule(tmp_path / "none.txt")
    with pytest.raises(FileNotFoundError, match=r"there is no text file at .*none\.txt"):
        data.setup("fit")


def test_vocabulary_is_the_sorted_characters_of_the_whole_text(tmp_path):
    data = small(tmp_path / "a.txt", text="b" * 50 + "a" * 40 + "\nc日𝄞" * 5)  # the last four occur in validation only
    assert data.vocabulary == "\nabc日𝄞"
    assert data.vocab_size == 6


def test_vocab_size_needs_no_setup(tmp_path):
    assert small(tmp_path / "a.txt").vocab_size == len(Counter(TEXT))


def test_tokens_are_places_in_the_vocabulary(tmp_path):
    corpus = Corpus.from_text(TEXT, "text")
    assert corpus.tokens.tolist() == [sorted(set(TEXT)).index(character) for character in TEXT]


def test_encode_and_decode_are_inverse(tmp_path):
    data = small(tmp_path / "a.txt")
    tokens = data.encode("be that\n")
    assert tokens.dtype == torch.int64
    assert tokens.shape == (8,)
    assert data.decode(tokens) == data.decode(tokens.tolist()) == data.decode(iter(tokens)) == "be that\n"
    assert data.decode(data.encode("")) == ""


def test_encode_names_an_unknown_character_and_its_position(tmp_path):
    data = small(tmp_path / "a.txt")
    with pytest.raises(
        ValueError, match=r"character 'é' \(U\+00E9\) at position 3 is not among the 18 characters of a\.txt"
    ):
        data.encode("be é")


@pytest.mark.parametrize("token", [18, -1])
def test_decode_names_an_unknown_token(tmp_path, token):
    with pytest.raises(ValueError, match=f"token {token} is outside the vocabulary, 0 to 17"):
        small(tmp_path / "a.txt").decode([0, token])


def test_decode_takes_one_sequence(tmp_path):
    with pytest.raises(ValueError, match=r"one sequence \[n\], got shape \(1, 3\)"):
        small(tmp_path / "a.txt").decode(torch.zeros(1, 3, dtype=torch.int64))


@pytest.mark.parametrize(
    ("n", "val_fraction", "n_train"), [(1000, 0.1, 900), (1001, 0.1, 900), (1000, 0.25, 750), (100, 0.07, 93)]
)
def test_split_sizes(tmp_path, n, val_fraction, n_train):
    text = (TEXT * 30)[:n]
    data = small(tmp_path / "a.txt", text=text, val_fraction=val_fraction, block_size=4)
    train, validation = data.split()
    assert len(train) == n_train
    assert data.decode(train) + data.decode(validation) == text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"block_size": 10}, "the validation split of a.txt has 10 characters, .* block_size \\+ 1 = 11"),
        ({"block_size": 80, "val_fraction": 0.9}, "the training split of a.txt has 10 characters, .* = 81"),
    ],
)
def test_a_split_shorter_than_a_window(tmp_path, options, message):
    data = small(tmp_path / "a.txt", text="ab" * 50, **options)
    with pytest.raises(ValueError, match=message):
        data.setup("fit")


def test_the_shortest_split_holds_one_window(tmp_path):
    data = small(tmp_path / "a.txt", text="ab" * 50, block_size=9)
    data.setup("fit")
    assert [x.shape for x, _ in data.val_dataloader()] == [(1, 9)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"block_size": 0}, "block_size must be at least 1, got 0"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"val_fraction": 0.0}, "val_fraction must lie between 0 and 1, both excluded, got 0.0"),
        ({"val_fraction": 1.0}, "both excluded, got 1.0"),
    ],
)
def test_options_out_of_range(options, message):
    with pytest.raises(ValueError, match=message):
        CharTextDataModule("a.txt", **options)


@pytest.mark.parametrize("make", [lambda path: CharTextDataModule(path), lambda path: TinyShakespeare(path=path)])
def test_the_checksum_is_that_of_the_text_whatever_its_line_ends(tmp_path, make):
    checksums = set()
    for name, data in (("a.txt", b"one\ntwo\n"), ("b.txt", b"\xef\xbb\xbfone\r\ntwo\r\n")):
        (tmp_path / name).write_bytes(data)
        data_module = make(tmp_path / name)
        assert data_module.vocab_size == 6
        assert data_module.hparams["data_name"] == name
        checksums.add(data_module.hparams["data_sha256"])
    assert checksums == {hashlib.sha256(b"one\ntwo\n").hexdigest()}


def test_hyperparameters_are_plain_values(tmp_path):
    (tmp_path / "a.txt").write_text(TEXT)
    for data in (
        CharTextDataModule(tmp_path / "a.txt"),
        TinyShakespeare(tmp_path, tmp_path / "a.txt"),
        PlantedScales(),
    ):
        assert data.vocab_size > 0
        assert all(isinstance(value, str | int | float) for value in data.hparams.values()), data.hparams
        assert data.hparams["block_size"] == 256
        assert "vocab_size" not in data.hparams  # models have it


@pytest.mark.parametrize("read_first", [False, True])
def test_data_modules_can_be_pickled(tmp_path, read_first):
    data = small(tmp_path / "a.txt")
    if read_first:
        data.setup("fit")
    copy = pickle.loads(pickle.dumps(data))
    assert copy.vocabulary == data.vocabulary
    assert torch.equal(next(iter(copy.val_dataloader()))[0], next(iter(data.val_dataloader()))[0])


def test_making_a_data_module_reads_nothing(tmp_path):
    before = torch.get_rng_state()
    CharTextDataModule(tmp_path / "none.txt")
    TinyShakespeare(tmp_path / "none")
    PlantedScales()
    assert list(tmp_path.iterdir()) == []
    assert torch.equal(torch.get_rng_state(), before)
