"""The programs of docs/study stand beside each other in a folder; and a small study made without a training."""

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

STUDY = Path(__file__).parents[2] / "docs" / "study"
if str(STUDY) not in sys.path:
    sys.path.insert(0, str(STUDY))

from observed import LIVE, Run, Study  # noqa: E402 - found in the folder above
from tables import LOSSES, MEASURED  # noqa: E402
from trainings import Training  # noqa: E402

LEFT = ("left_identity", "left_modes", "left_documents", "left_cosines")


def run_of(model, seed, numbers=None, noise=1e-3, steps=(0, 10, 20)):
    """A run with values by layer, or one for all layers; others are 1. Seeds 1 and 3 lie `noise` below and above."""
    rng = np.random.default_rng([seed, *model.encode()])
    found = {}
    for name in (*LIVE, *MEASURED, *LOSSES, *LEFT):
        given = (numbers or {}).get(name, 1.0)
        by_layer = np.broadcast_to(np.asarray(given, float), 1 if name in LOSSES else 6)
        scatter = 0.0 if name in LEFT else noise
        # of signs by layer that cancel neither in means of layers nor in differences of neighbours
        seeds = scatter * (seed - 2) * np.array([1, 1, -1, -1, 1, 1])[: len(by_layer), None]
        found[name] = by_layer[:, None] + seeds + scatter / 8 * rng.standard_normal((1, 9))
    growth = np.linspace(0, 1, len(steps))[:, None, None]
    history = {name: found[name] * growth for name in LIVE}
    return Run(Training(model, seed), SimpleNamespace(steps=steps), history, found, np.full((6, 32), 1 / 32))


def study_of(numbers, noise=1e-3, seeds=(1, 2, 3)):
    """Runs of models with their numbers: baseline and ega with every seed, others with the first."""
    several = ("baseline", "ega")
    runs = [run_of(model, seed, given, noise) for model, given in numbers.items()
            for seed in (seeds if model in several else seeds[:1])]  # fmt: skip
    return Study(tuple(runs))


@pytest.fixture(scope="session")
def make_study():
    return study_of
