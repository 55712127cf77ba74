"""The wheel holds every module and config and nothing else, and runs away from the repository."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LEFT_OUT = shutil.ignore_patterns(
    ".git", "build", "dist", "*.egg-info", "__pycache__", ".*_cache", "runs", "data", ".venv*"
)
PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy: building in place would leave a build folder that ends up in the next wheel."""
    source = tmp_path_factory.mktemp("source") / "scalepod"
    shutil.copytree(ROOT, source, symlinks=True, ignore=LEFT_OUT)
    target = tmp_path_factory.mktemp("wheel")
    build = [*PIP, "wheel", "--no-deps", "--no-index", "--no-build-isolation", "-w", target, source]
    subprocess.run(build, check=True)
    (built,) = target.glob("scalepod-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site-packages")
    subprocess.run([*PIP, "install", "--no-deps", "--no-index", "--target", target, wheel], check=True)
    return target


def run_installed(installed: Path, cwd: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Runs Python where only the installed wheel, not the checkout, can be found as `scalepod`."""
    environment = os.environ | {"PYTHONPATH": str(installed), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, *command], cwd=cwd, env=environment, capture_output=True, text=True, timeout=240
    )


def test_wheel_holds_every_module_and_config_and_nothing_else(wheel: Path) -> None:
    source = ROOT / "src"
    folders = [(Path(folder), names) for folder, _, names in os.walk(source / "scalepod", followlinks=True)]
    paths = [folder / name for folder, names in folders for name in names if name.endswith((".py", ".yaml", ".typed"))]
    expected = {path.relative_to(source).as_posix() for path in paths}
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == expected


def test_wheel_carries_the_licence_and_the_command(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (licence,) = [name for name in archive.namelist() if name.endswith("LICENSE")]
    assert archive.read(licence) == (ROOT / "LICENSE").read_bytes()
    (entry_points,) = [name for name in archive.namelist() if name.endswith("entry_points.txt")]
    assert "scalepod = scalepod.cli:main" in archive.read(entry_points).decode()


def test_installed_wheel_imports_every_module(installed: Path, tmp_path: Path) -> None:
    code = (
        "import importlib, pkgutil, scalepod\n"
        "for module in pkgutil.walk_packages(scalepod.__path__, 'scalepod.'):\n"
        "    print(importlib.import_module(module.name).__file__)\n"
    )
    run = run_installed(installed, tmp_path, "-c", code)
    assert run.returncode == 0, run.stderr
    files = [Path(line) for line in run.stdout.splitlines()]
    assert len(files) > 20
    assert all(path.is_relative_to(installed) for path in files)


def test_installed_wheel_trains_from_a_shipped_config(installed: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("to be or not to be, that is the question\n" * 200)
    run = run_installed(
        installed, tmp_path, "-m", "scalepod.cli", "fit", "--config", "quickstart", f"--data.path={text}",
        "--data=CharTextDataModule", "--data.block_size=16", "--model.n_embd=16", "--model.n_layer=1",
        "--trainer.max_steps=2", "--trainer.limit_val_batches=1", "--trainer.accelerator=cpu",
        "--trainer.callbacks.n_snapshots=4",
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert "tensorboard --logdir" in run.stdout
    assert list(tmp_path.rglob("events.out.tfevents.*"))
