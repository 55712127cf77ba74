"""A run on two processes: both take part, results equal those of one, logs and files are written once."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from scalepod import load_analyses

SCRIPT = """
import json, sys
import torch
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.strategies import DDPStrategy
from tiny import TinyModule, tiny_loader, tiny_trainer
from scalepod.callbacks import ScalePODCallback

folder, devices, fail = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "fail"

def forward(module, batch):
    if fail and module.global_rank == 1 and module.global_step == 2:
        raise RuntimeError("rank one has no luck")
    if fail and module.global_rank == 1 and module.global_step == 3:
        for layer in module.layers:  # nothing that could be used on this process
            layer(module.embed(batch[0]) * torch.nan)
        return
    counted.append(batch[0].size(0))
    return module(batch[0])

counted = []
torch.manual_seed(0)
model = TinyModule()
callback = ScalePODCallback(every_n_steps=2, n_snapshots=11, forward_fn=forward)
strategy = DDPStrategy(process_group_backend="gloo") if devices > 1 else "auto"
trainer = tiny_trainer(folder, devices=devices, strategy=strategy, callbacks=[callback], max_steps=3,
                       logger=CSVLogger(folder, name="", version=0))
trainer.fit(model, tiny_loader(n=48), tiny_loader(n=30, seed=1))
print(json.dumps({"rank": trainer.global_rank, "forwards": len(counted), "fired": callback._last_step,
                  "documents": [a.n_snapshots for a in callback.analyses.values()],
                  "skipped": [a.n_skipped for a in callback.analyses.values()],
                  "energy": [a.energy for a in callback.analyses.values()]}))
"""


def run(folder: Path, devices: int, fail: str = "no") -> list[dict]:
    folder.mkdir()
    script = folder / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(script), str(folder), str(devices), fail],
        env=environment, capture_output=True, text=True, timeout=150,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (folder / "stderr").write_text(done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.mark.timeout(300)
@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch was built without torch.distributed")
def test_two_processes_share_the_documents_and_write_once(tmp_path):
    ranks = run(tmp_path / "two", devices=2)
    assert sorted(rank["rank"] for rank in ranks) == [0, 1]
    assert ranks[0]["forwards"] == ranks[1]["forwards"] == 3 * 2  # three firings, two batches each
    assert ranks[0]["energy"] == ranks[1]["energy"]
    single = run(tmp_path / "one", devices=1)
    names = sorted(path.name for path in (tmp_path / "two" / "version_0" / "scalepod_results").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "one" / "version_0" / "scalepod_results").iterdir())
    assert sum(name.endswith(".npz") for name in names) == 3
    # Before the first step both runs have the same weights, so the same documents give the same numbers.
    _, two = load_analyses(tmp_path / "two" / "version_0" / "scalepod_results" / "step_00000000.npz")
    _, one = load_analyses(tmp_path / "one" / "version_0" / "scalepod_results" / "step_00000000.npz")
    assert single[0]["fired"] == 3
    for layer in one:
        assert two[layer].n_snapshots == one[layer].n_snapshots == 11
        assert two[layer].energy == pytest.approx(one[layer].energy, rel=1e-9)
        torch.testing.assert_close(two[layer].field.eigenvalues, one[layer].field.eigenvalues, rtol=1e-6, atol=1e-9)
        torch.testing.assert_close(two[layer].scalogram, one[layer].scalogram, rtol=1e-9, atol=1e-12)


@pytest.mark.timeout(300)
def test_a_failure_in_one_process_is_no_hang_and_no_end(tmp_path):
    ranks = run(tmp_path / "run", devices=2, fail="fail")
    assert [rank["fired"] for rank in ranks] == [3, 3]
    said = (tmp_path / "run" / "stderr").read_text()
    assert "rank one has no luck" in said
    assert "the capture failed in another process" in said
    for rank in ranks:  # at the last firing, half of the documents held NaN
        assert rank["documents"] == [6, 6]
        assert rank["skipped"] == [5, 5]
