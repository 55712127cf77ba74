from pathlib import Path

import pytest
from run_folders import layers_of, write_run
from trainings_by_hand import trainings

from scalepod.analysis import LayerAnalysis
from scalepod.reports.groups import compare_groups


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


@pytest.fixture(scope="session")
def models() -> dict[str, list[dict[str, LayerAnalysis]]]:
    """Analyses of trainings: the seed of the attention stands for that of the training, on documents of one name, in
    groups of 3 and of 4.
    """
    sharpness = {"baseline": (0.5, 0.6, 0.65), "gate": (1.5, 1.3), "single": (0.9,)}
    return {
        label: [layers_of(sharp, seed=k, n_snapshots=26) for k, sharp in enumerate(found)]
        for label, found in sharpness.items()
    }


@pytest.fixture(scope="session")
def comparison(models):
    return compare_groups([trainings(label, *found) for label, found in models.items()])
