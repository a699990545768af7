"""Tables of rows, and optimizers that touch only the rows of a batch."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedlu.embedding import row_kernels
from fedlu.embedding.kernels import Floats, Ids
from fedlu.errors import InputError


@dataclass
class Table:
    """Rows that learn: their values, the optimizer's memory of each, and how many updates there were."""

    values: Floats  # (rows, width)
    memory: dict[str, Floats] = field(default_factory=dict)  # each (rows, width)
    updates: int = 0
    changes: int = 0
    """As `updates`, but never forgotten: whoever keeps a copy of the values can tell whether it is that of now."""

    def copy(self) -> Table:
        return Table(self.values.copy(), {name: each.copy() for name, each in self.memory.items()}, self.updates)

    def forget_memory(self) -> None:
        self.memory, self.updates = {}, 0

    def remember(self, name: str) -> Floats:
        if name not in self.memory:
            self.memory[name] = np.zeros_like(self.values)
        return self.memory[name]


@dataclass(frozen=True)
class Touched:
    """Which rows a batch touches, each once, and which of its gradients belong to each."""

    rows: Ids  # (touched,)
    order: Ids  # (gradients,)
    starts: Ids  # (touched + 1,)

    @classmethod
    def by(cls, ids: NDArray[np.int64]) -> Touched:
        # id, then place, in one number: half the time of a stable argsort
        keys = np.sort(np.left_shift(ids, 32, dtype=np.int64) | np.arange(len(ids)))
        ordered, order = keys >> 32, keys & 0xFFFFFFFF
        first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
        return cls(ordered[first], order, np.append(first, len(ids)))

    @classmethod
    def each(cls, rows: Ids) -> Touched:
        """Of rows that are different, with a gradient each."""
        numbers = np.arange(len(rows) + 1)
        return cls(rows, numbers[:-1], numbers)

    def sum(self, first: Floats, *others: Floats) -> Floats:
        """(touched, width): from one gradient for each id, in up to three parts, to one for each row."""
        return row_kernels.sum_rows(*_three(first, *others), self.order, self.starts)


def _three(first: Floats, *others: Floats) -> tuple[Floats, Floats, Floats]:
    second, third = (*others, first[:0], first[:0])[:2]
    return first, second, third


def adam(table: Table, touched: Touched, gradients: tuple[Floats, Floats, Floats], rate: float) -> None:
    """Adam, as Kingma and Ba; rows that are not in the batch keep value and moments ("lazy" Adam)."""
    row_kernels.adam_step(
        table.values,
        table.remember("mean"),
        table.remember("square"),
        touched.rows,
        *gradients,
        touched.order,
        touched.starts,
        rate,
        table.updates,
    )


def adagrad(table: Table, touched: Touched, gradients: tuple[Floats, Floats, Floats], rate: float) -> None:
    square = table.remember("square")
    row_kernels.adagrad_step(table.values, square, touched.rows, *gradients, touched.order, touched.starts, rate)


OPTIMIZERS = {"adam": adam, "adagrad": adagrad}


def update(table: Table, touched: Touched, *gradients: Floats, optimizer: str, rate: float) -> None:
    """One step on the touched rows; gradients as for `Touched.sum`, one for each id, in up to three parts."""
    if optimizer not in OPTIMIZERS:
        raise InputError(f"no optimizer {optimizer!r}", remedy=f"choose one of {', '.join(OPTIMIZERS)}")
    table.updates += 1
    table.changes += 1
    OPTIMIZERS[optimizer](table, touched, _three(*gradients), rate)
