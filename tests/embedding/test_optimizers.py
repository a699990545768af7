"""Optimizers: on the touched rows equal to torch's, and no other row is touched."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedlu.embedding.optimizers import Table, Touched, update
from fedlu.errors import InputError


@pytest.mark.parametrize(("name", "torch_class"), [("adam", torch.optim.Adam), ("adagrad", torch.optim.Adagrad)])
def test_steps_equal_torchs(name: str, torch_class: type, random: np.random.Generator) -> None:
    start = random.normal(size=(5, 4)).astype(np.float32)
    table, weight = Table(start.copy()), torch.from_numpy(start.copy()).requires_grad_()
    theirs = torch_class([weight], lr=0.05)
    for _ in range(10):
        ids = np.array([0, 1, 2, 3, 4, 2, 2])
        gradients = random.normal(size=(7, 4)).astype(np.float32)
        touched = Touched.by(ids)
        update(table, touched, gradients[:3], gradients[3:4], gradients[4:], optimizer=name, rate=0.05)
        weight.grad = torch.zeros(5, 4).index_add_(0, torch.from_numpy(ids), torch.from_numpy(gradients))
        theirs.step()
    np.testing.assert_allclose(table.values, weight.detach().numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["adam", "adagrad"])
def test_other_rows_keep_value_and_memory(name: str, random: np.random.Generator) -> None:
    table = Table(random.normal(size=(6, 4)).astype(np.float32))
    everything = Touched.by(np.arange(6))
    update(table, everything, random.normal(size=(6, 4)).astype(np.float32), optimizer=name, rate=0.1)
    before = table.copy()
    touched = Touched.by(np.array([4, 1, 4]))
    update(table, touched, np.ones((3, 4), np.float32), optimizer=name, rate=0.1)
    still = [0, 2, 3, 5]
    assert (table.values[still] == before.values[still]).all()
    assert all((table.memory[part][still] == before.memory[part][still]).all() for part in table.memory)
    assert (table.values[[1, 4]] != before.values[[1, 4]]).all()


def test_gradients_of_a_row_are_summed(random: np.random.Generator) -> None:
    ids, gradients = random.integers(0, 9, size=40), random.normal(size=(40, 3)).astype(np.float32)
    touched = Touched.by(ids)
    assert touched.rows.tolist() == sorted(set(ids.tolist()))
    expected = np.stack([gradients[ids == row].sum(0) for row in touched.rows])
    np.testing.assert_allclose(touched.sum(gradients), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["adam", "adagrad"])
def test_a_sum_of_gradients_is_as_good_as_its_parts(name: str, random: np.random.Generator) -> None:
    ids, gradients = random.integers(0, 9, size=40), random.normal(size=(40, 3)).astype(np.float32)
    whole, parts = (Table(np.ones((9, 3), np.float32)) for _ in range(2))
    touched = Touched.by(ids)
    update(parts, touched, gradients[:10], gradients[10:], optimizer=name, rate=0.1)
    update(whole, Touched.each(touched.rows), touched.sum(gradients), optimizer=name, rate=0.1)
    assert (whole.values == parts.values).all()
    assert all((whole.memory[part] == parts.memory[part]).all() for part in whole.memory)


def test_an_unknown_optimizer_is_refused() -> None:
    with pytest.raises(InputError, match="no optimizer 'sgdd'; choose one of adam, adagrad"):
        update(
            Table(np.zeros((1, 1), np.float32)),
            Touched.by(np.array([0])),
            np.zeros((1, 1), np.float32),
            optimizer="sgdd",
            rate=1,
        )


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_gradients_of_a_row_are_found_in_the_order_they_came(kind: type, random: np.random.Generator) -> None:
    """Sums of floats depend on their order, and runs have to end with the same bits."""
    ids = random.integers(0, 9, size=40).astype(kind)
    ids[7] = 2**31 - 1  # the largest that a table of ids can hold
    touched = Touched.by(ids)
    assert touched.rows.tolist() == sorted(set(ids.tolist()))
    for row, start, stop in zip(touched.rows, touched.starts[:-1], touched.starts[1:], strict=True):
        assert touched.order[start:stop].tolist() == np.flatnonzero(ids == row).tolist()
