"""What we compare ourselves with computes the same thing; and every benchmark can be loaded."""

from __future__ import annotations

import importlib
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import plainly, profile
from fedlu.embedding.formulas import Formulas
from fedlu.embedding.losses import contrastive_formula, distillation_formula
from fedlu.embedding.ranking import Side
from fedlu.graph import partition, read, save
from fedlu.results import checkpoints

FOLDER = Path(plainly.__file__).parent


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.py")))
def test_it_can_be_loaded(name: str) -> None:
    module = importlib.import_module(f"benchmarks.{name}" if name != "__init__" else "benchmarks")
    assert name == "__init__" or module.__doc__


@pytest.mark.parametrize("model", sorted(plainly.WIDTHS))
def test_the_plain_step_has_our_scores_and_our_loss(model: str) -> None:
    torch.manual_seed(0)
    entity, relation = (4 * width for width in plainly.WIDTHS[model])
    heads, tails = torch.randn(3, 1, entity), torch.randn(3, 1 + 5, entity)
    relations = torch.randn(3, 1, relation)
    mine = plainly.score(model, heads, relations, tails)
    leaves = [heads[:, 0], relations[:, 0], tails[:, 0], tails[:, 1:]]
    torch.testing.assert_close(mine, Formulas(model, plainly.MARGIN).scores(leaves, Side.TAIL), rtol=1e-4, atol=1e-4)
    teacher, masked, weights = torch.randn(3, 6), torch.zeros(3, 6, dtype=torch.bool), torch.ones(3)
    ours = contrastive_formula(mine, masked, weights, 1.0)
    ours = ours + plainly.TEACH * distillation_formula(mine, teacher, masked, weights)
    assert float(plainly.loss_of(mine, teacher)) == pytest.approx(float(ours), rel=1e-5)


def test_a_plain_step_can_be_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"BATCH": 8, "NEGATIVES": 4, "DIMENSION": 4, "ENTITIES": 50}.items():
        monkeypatch.setattr(plainly, name, value)
    speed = plainly.triples_per_second("RotatE", steps=2)
    assert np.isfinite(speed)
    assert speed > 0


def test_a_profile_has_all_parts_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is found by name, so a name that moved would be missed; and they never sum up to more than the whole,
    however slow the disk is: a checkpoint is of the run, though of no round."""

    def slowly(*given: object) -> None:
        time.sleep(0.3)
        quickly(*given)

    quickly = checkpoints.save
    monkeypatch.setattr(checkpoints, "save", slowly)
    before = [getattr(owner, name) for _, owner, name in profile.PARTS]
    save(partition(read("nations"), clients=2, by="random"), tmp_path / "nations", {})
    found = profile.seconds_by_part(tmp_path / "nations", rounds=4, warm_rounds=2, dimension=8, evaluate_every=2)
    assert set(found) == {part for part, _, _ in profile.PARTS} | {"all else"}
    assert min(found.values()) > 0, found
    assert found["checkpoint"] > 2 * 0.3
    assert [getattr(owner, name) for _, owner, name in profile.PARTS] == before  # as it was
