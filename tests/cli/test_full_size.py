"""The shipped configurations as they are, on the real text: minutes each."""

from pathlib import Path

import pytest
from command_line import run
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from scalepod.callbacks import ScalePODCallback
from scalepod.training_cli import TrainingCLI

TEXT = Path(__file__).parents[3] / "shared" / "data" / "tinyshakespeare" / "input.txt"
QUANTITIES = [
    *("energy", "mean_lag", "band_fine", "band_medium", "band_coarse"),
    *("t_spec", "h_star_0.10", "lag_t_spec", "lag_h_star_0.10"),
]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not TEXT.is_file(), reason="needs the text of TinyShakespeare"),
]


def analyses_of(cli: TrainingCLI) -> dict[str, object]:
    (callback,) = [callback for callback in cli.trainer.callbacks if isinstance(callback, ScalePODCallback)]
    return dict(callback.analyses)


@pytest.mark.parametrize("name", ["baseline", "ega"])
def test_first_steps_at_full_size(name: str) -> None:
    cli = run("fit", "--config", name, f"--data.path={TEXT}", "--trainer.accelerator=cpu", "--trainer.max_steps=2")
    analyses = analyses_of(cli)
    assert list(analyses) == [f"{i + 1:02d}_model.blocks.{i}.attention" for i in range(6)]
    assert {(analysis.n_snapshots, analysis.n_tokens) for analysis in analyses.values()} == {(150, 256)}


def test_quickstart_learns_and_logs_everything_at_every_firing(folder: Path) -> None:
    cli = run("fit", "--config=quickstart", f"--data.path={TEXT}")
    assert cli.trainer.callback_metrics["val_loss"] < 2.0
    run_folder = folder / "runs" / "quickstart" / "version_0"
    events = EventAccumulator(str(run_folder), size_guidance={"images": 0, "scalars": 0}).Reload()
    tags = [f"scalepod_{quantity}/{layer}" for quantity in QUANTITIES for layer in analyses_of(cli)]
    pictures = [f"scalepod_{picture}/{layer}" for picture in ("modes", "scalogram") for layer in analyses_of(cli)]
    logged = {tag: [event.step for event in events.Scalars(tag)] for tag in [*tags, "scalepod_seconds"]}
    logged |= {tag: [event.step for event in events.Images(tag)] for tag in [*pictures, "scalepod_overview"]}
    steps = logged["scalepod_seconds"]
    assert len(steps) >= 6
    assert steps[0] == 0
    assert steps[-1] == cli.trainer.global_step - 1, "the x that self.log has at the last step"
    assert {tag: found for tag, found in logged.items() if found != steps} == {}
