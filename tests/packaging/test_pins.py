"""The version has one source, every direct dependency one pin, and CI runs what the README says."""

import ast
import os
import re
import sys
import tomllib
from importlib.metadata import packages_distributions, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import scalepod

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = [entry for extra in PROJECT["optional-dependencies"].values() for entry in extra]
REQUIREMENTS = {canonicalize_name(need.name): need for need in map(Requirement, [*PROJECT["dependencies"], *EXTRAS])}
REQUIREMENTS.pop("scalepod")  # an extra that names another extra


def pins() -> dict[str, str]:
    lines = (line.partition("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines())
    pairs = (line.split("==") for line in lines if line)
    return {canonicalize_name(name): pin for name, pin in pairs}


def readme_commands() -> list[str]:
    """Every shell command of the README's fenced and indented blocks."""
    text = (ROOT / "README.md").read_text()
    lines = re.findall(r"^\s*(?:\$ )?((?:pip|scalepod|pytest)\b.*)$", text, flags=re.MULTILINE)
    return [part.strip() for line in lines for part in line.split("&&")]


def imported_distributions() -> set[str]:
    """What the package imports, by the name under which it is installed."""
    modules = set()
    for folder, _, files in os.walk(ROOT / "src" / "scalepod", followlinks=True):
        for path in (Path(folder, name) for name in files if name.endswith(".py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import):
                    modules |= {alias.name.partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    modules.add(node.module.partition(".")[0])
    installed = packages_distributions()
    return {canonicalize_name(installed[module][0]) for module in modules - sys.stdlib_module_names}


def test_whatever_is_imported_is_a_dependency() -> None:
    assert imported_distributions() <= {canonicalize_name(Requirement(need).name) for need in PROJECT["dependencies"]}


def test_version_is_the_same_everywhere() -> None:
    number = PROJECT["version"]
    assert scalepod.__version__ == version("scalepod") == number
    assert re.findall(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), flags=re.MULTILINE) == [number]
    assert re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[0] == number


def test_every_direct_dependency_is_pinned_and_nothing_else() -> None:
    assert pins().keys() == REQUIREMENTS.keys()


def test_pins_lie_in_the_ranges_of_pyproject_and_these_have_a_lower_end() -> None:
    found = pins()
    for name, need in REQUIREMENTS.items():
        assert need.specifier.contains(found[name]), f"{name}=={found[name]} does not satisfy {need}"
        assert any(bound.operator == ">=" for bound in need.specifier), f"{need} has no lower bound"


@pytest.mark.parametrize("release", ["2.6.2", "2.6.3"])
def test_compromised_lightning_is_excluded(release: str) -> None:
    assert not REQUIREMENTS["lightning"].specifier.contains(release)


def test_ci_runs_the_commands_of_the_readme() -> None:
    script = [line.strip().removeprefix("check ") for line in (ROOT / ".ci" / "run").read_text().splitlines()]
    commands = readme_commands()
    assert 'pip install -c constraints.txt -e ".[test]"' in commands
    assert "pytest" in commands
    for command in ('pip install -c constraints.txt -e ".[test]"', "pytest"):
        assert command in script, f"the README says {command!r}, .ci/run does not run it"
