"""One importable name over the top-level folders: what pyproject says against what lies on the disk."""

import os
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
FOLDERS = {name: ROOT / folder for name, folder in SETUPTOOLS["package-dir"].items()}


def packages_on_disk() -> list[str]:
    """Dotted names of every folder with Python files, seen through the links of src/scalepod."""
    source = ROOT / "src"
    walked = os.walk(source / "scalepod", followlinks=True)
    found = [Path(folder) for folder, _, files in walked if any(name.endswith(".py") for name in files)]
    return sorted(".".join(folder.relative_to(source).parts) for folder in found)


def test_packages_list_every_folder_with_python_files() -> None:
    assert sorted(SETUPTOOLS["packages"]) == packages_on_disk()


def test_every_package_has_an_init() -> None:
    folders = [ROOT / "src" / name.replace(".", "/") for name in SETUPTOOLS["packages"]]
    assert [folder for folder in folders if not (folder / "__init__.py").is_file()] == []


def test_links_lead_to_the_folders_that_are_built() -> None:
    links = {f"scalepod.{path.name}": path for path in (ROOT / "src" / "scalepod").iterdir() if path.is_symlink()}
    assert links.keys() == FOLDERS.keys() - {"scalepod"}
    for name, link in links.items():
        assert link.resolve() == FOLDERS[name]
        assert not link.readlink().is_absolute()


def test_every_yaml_is_package_data() -> None:
    data = SETUPTOOLS["package-data"]
    for package in SETUPTOOLS["packages"]:
        folder = ROOT / "src" / package.replace(".", "/")
        for path in [*folder.glob("*.yaml"), *folder.glob("*.yml")]:
            assert any(fnmatch(path.name, pattern) for pattern in data.get(package, [])), f"{path} is left out"


def test_top_level_folders_are_no_second_packages() -> None:
    """A second copy of every class under another name would break isinstance: the imports have to fail."""
    code = (
        "for name in ('models', 'callbacks', 'datamodules'):\n"
        "    try: __import__(name)\n"
        "    except ImportError as error: print(name, error)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    reason = "attempted relative import beyond top-level package"
    assert run.stdout.splitlines() == [f"{name} {reason}" for name in ("models", "callbacks", "datamodules")]


def test_no_large_file() -> None:
    """Nothing over 1 MB among the files under version control."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    large = {str(path): path.stat().st_size for path in paths if path.is_file() and path.stat().st_size > 1_000_000}
    assert large == {}
