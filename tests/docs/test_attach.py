"""The programs of docs/attach.md run as they stand."""

import re
import runpy
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "attach.md"
PROGRAMS = dict(re.findall(r"^## (.+?)\n.*?^```python\n(.*?)^```", PAGE.read_text(), flags=re.M | re.S))


def test_there_are_five():
    assert len(PROGRAMS) == 5


@pytest.mark.parametrize("title", PROGRAMS)
def test_program_runs_and_sees_every_layer(title, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").write_text(PROGRAMS[title])
    runpy.run_path("program.py", run_name="__main__")
    printed = capsys.readouterr().out
    lines = [line for line in printed.splitlines() if re.match(r"0\d_", line)]
    assert len(lines) == (4 if "each" in PROGRAMS[title] else 2), printed
    assert not any("nan" in line for line in lines)
    assert list(tmp_path.rglob("step_00000008.npz"))
