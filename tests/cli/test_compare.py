"""`scalepod compare` and `scalepod report` on run folders, through the command line."""

import csv
from pathlib import Path

import pytest
from PIL import Image
from run_folders import layers_of, write_run

from scalepod.cli import main


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs on the same documents, and a file of one firing."""
    folder = tmp_path_factory.mktemp("runs")
    names = ("01_model.attn",)
    for label, sharpness in (("baseline", 0.5), ("ega", 1.5)):
        firings = {step: layers_of(sharpness, names=names) for step in (0, 10)}
        write_run(folder / label / "version_0", firings)
    (folder / "analysis.npz").write_bytes((folder / "ega/version_0/scalepod_results/step_00000010.npz").read_bytes())
    return folder


@pytest.fixture(autouse=True)
def there(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folders)


BOTH = ["baseline/version_0", "ega/version_0"]


def test_compare_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *BOTH]) == 0
    said = capsys.readouterr().out
    assert said.startswith("mean lag, tokens: ")
    assert "baseline" in said.splitlines()[1]
    assert "− baseline" in said.splitlines()[1]
    assert "ega: paired jackknife (the same documents)." in said


def test_compare_in_other_forms_and_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *BOTH, "analysis.npz", "--labels", "a", "b", "c", "--format=csv", "--step=10"]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert {(row["run"], row["step"]) for row in rows} == {("a", "10"), ("b", "10"), ("c", "10")}
    assert main(["compare", *BOTH, "--format=markdown", "--step=0"]) == 0
    assert capsys.readouterr().out.startswith("### mean lag, tokens\n")


def test_compare_writes_tables_and_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "comparison"
    assert main(["compare", *BOTH, "--out", str(out)]) == 0
    assert f"tables and figures are in {out}" in capsys.readouterr().err
    assert sorted(path.name for path in out.iterdir()) == [
        "compare.csv", "compare.md", "lag_modes.png", "scalograms.png", "training.png",
    ]  # fmt: skip
    for path in out.glob("*.png"):
        with Image.open(path) as image:
            assert image.size[0] == 1040


@pytest.fixture(scope="module")
def seeds(folders: Path) -> Path:
    """Two groups of trainings on the same documents."""
    names = ("01_model.attn",)
    for label, found in (("plain", (0.5, 0.55)), ("gated", (1.4, 1.5, 1.6))):
        for version, sharpness in enumerate(found):
            firings = {step: layers_of(sharpness, seed=version, names=names) for step in (0, 10)}
            write_run(folders / "seeds" / label / f"version_{version}", firings)
    return folders


GROUPS = [
    *("--group", "plain", "seeds/plain/version_0", "seeds/plain/version_1"),
    *("--group", "gated", "seeds/gated/version_0", "seeds/gated/version_1", "seeds/gated/version_2"),
]


@pytest.mark.usefixtures("seeds")
def test_groups_are_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *GROUPS]) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[1].split() == ["layer", "plain", "gated", "\N{MINUS SIGN}", "plain"]
    assert "(their scatter) together. Trainings: plain 2, gated 3." in said
    assert "another seed" not in said
    assert main(["compare", "--step=0", "--format=csv", *GROUPS]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert {(row["run"], row["step"], row["n_trainings"]) for row in rows} == {("plain", "0", "2"), ("gated", "0", "3")}
    assert {row["test"] for row in rows if row["run"] == "gated"} >= {"trainings"}


@pytest.mark.usefixtures("seeds")
def test_groups_are_written_with_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *GROUPS, "--out", str(tmp_path / "out")]) == 0
    assert "tables and figures are in " in capsys.readouterr().err
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "compare.csv", "compare.md", "lag_modes.png", "scalograms.png", "training.png",
    ]  # fmt: skip
    for path in (tmp_path / "out").glob("*.png"):
        with Image.open(path) as image:
            assert image.size[0] == 1040


@pytest.mark.usefixtures("seeds")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--group", "plain"], "the group 'plain' has no run: give at least one behind its name"),
        ([*GROUPS, "--group", "plain", BOTH[0]], "two groups are called 'plain'"),
        ([*GROUPS, "--group", "other", GROUPS[2]], f"{GROUPS[2]} is given twice"),
        (["--group", "a", BOTH[0], "--group", "b", BOTH[1]], "each group has one training"),
        (
            ["--group", *GROUPS[2:4]],
            f"a group begins with its name, --group NAME RUN [RUN ...]: got the run {GROUPS[2]}",
        ),
        ([*GROUPS, "--step=7"], "plain version_0 has no results of step 7, it has those of 0, 10"),
        (["--group", "a", "nowhere"], "there is no file or folder "),
    ],
)
def test_mistakes_with_groups_are_named(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *arguments]) == 1
    said = capsys.readouterr()
    assert said.err.startswith(f"error: {message}")
    assert said.out == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: RUN, or --group NAME RUN [RUN ...]"),
        ([BOTH[0], *GROUPS], f"give runs or groups of them, not both: {BOTH[0]} stands outside of every --group"),
        ([*GROUPS, "--labels", "a", "b"], "argument --labels: not allowed with --group"),
        (["--group"], "argument --group: expected at least one argument"),
    ],
)
def test_runs_and_groups_exclude_each_other(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["compare", *arguments])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_report_writes_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "report.html"
    assert main(["report", "analysis.npz", "--labels=mine", "--out", str(out)]) == 0
    assert capsys.readouterr().out.startswith(f"wrote {out} (")
    assert out.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert [path.name for path in out.parent.iterdir()] == ["report.html"]


def test_a_damaged_firing_is_left_out_and_told_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_run(tmp_path / "run", {0: layers_of(names=("01_a",)), 5: layers_of(names=("01_a",))})
    (broken,) = folder.rglob("step_00000005.npz")
    broken.write_bytes(broken.read_bytes()[:2000])
    assert main(["compare", str(folder)]) == 0
    said = capsys.readouterr()
    assert said.err.startswith("warning: left out of the results: ")
    assert "step_00000005.npz" in said.err
    assert "mean lag" in said.out


@pytest.mark.parametrize("command", ["compare", "report"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "there is no file or folder "),
        ([*BOTH, "--labels", "one"], "each run takes one label: got 1 labels for 2 runs"),
        ([*BOTH, "--step=7"], "baseline has no results of step 7, it has those of 0, 10"),
        ([BOTH[0], BOTH[0]], "two runs are called 'baseline/version_0': give"),
    ],
)
def test_mistakes_are_named(
    command: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, *arguments]) == 1
    said = capsys.readouterr()
    assert said.err.startswith(f"error: {message}")
    assert said.out == ""
    assert not Path("report.html").exists()


@pytest.mark.parametrize("command", ["compare", "report"])
def test_arguments_are_explained(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    for words in ("--labels", "--step", "--out", f"  scalepod {command} runs/"):
        assert words in shown
    assert max(map(len, shown.splitlines())) <= 120
    for wrong, message in (([], "the following arguments are required: RUN"), (["x", "--step=a"], "or last: got 'a'")):
        with pytest.raises(SystemExit) as stop:
            main([command, *wrong])
        assert stop.value.code == 2
        assert message in capsys.readouterr().err
