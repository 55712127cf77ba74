from pathlib import Path

import pytest

REAL_TEXT = Path(__file__).resolve().parents[3] / "shared" / "data" / "tinyshakespeare" / "input.txt"


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
