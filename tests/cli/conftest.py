"""Every command runs in a folder of its own, with a small text in it."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    # seed_everything leaves these behind; set here, they go with the test
    monkeypatch.setenv("PL_GLOBAL_SEED", "0")
    monkeypatch.setenv("PL_SEED_WORKERS", "0")
    # what is deprecated is called by LightningCLI, not by us
    monkeypatch.setenv("JSONARGPARSE_DEPRECATION_WARNINGS", "off")
    (tmp_path / "text.txt").write_text("to be or not to be, that is the question\n" * 100)
    return tmp_path
