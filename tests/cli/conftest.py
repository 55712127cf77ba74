"""Every command runs in a folder of its own, with a small text in it."""

from pathlib import Path

import pytest
from command_line import ENVIRONMENT


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "text.txt").write_text("to be or not to be, that is the question\n" * 100)
    return tmp_path
