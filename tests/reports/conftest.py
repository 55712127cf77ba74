from pathlib import Path

import pytest
from run_folders import layers_of, write_run

from scalepod.analysis import LayerAnalysis


@pytest.fixture(scope="session")
def early() -> dict[str, LayerAnalysis]:
    return layers_of(0.5)


@pytest.fixture(scope="session")
def late() -> dict[str, LayerAnalysis]:
    """The same documents, sharper attention."""
    return layers_of(1.5)


@pytest.fixture(scope="session")
def short() -> dict[str, LayerAnalysis]:
    """One layer of another name on other, shorter documents, and fewer of them."""
    return layers_of(1.0, seed=7, names=("01_body.attn",), n_snapshots=17, n_tokens=16)


@pytest.fixture(scope="session")
def unsure() -> dict[str, LayerAnalysis]:
    """Too few documents for standard errors."""
    return layers_of(1.0, n_snapshots=6)


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory, early, late, short) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    known = {"model": "my.Model", "data": "text.txt", "options": {"n_snapshots": 24, "bands": {"fine": 4.0}}}
    return {
        "first": write_run(folder / "first" / "version_0", {0: early, 10: late}, **known),
        "second": write_run(folder / "second" / "version_0", {0: late, 10: early}, **known),
        "short": write_run(folder / "short" / "version_0", {5: short}, documents="others"),
    }
