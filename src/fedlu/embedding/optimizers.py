"""Tables of rows, and optimizers that touch only the rows of a batch."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedlu.embedding import kernels
from fedlu.embedding.kernels import Floats, Ids
from fedlu.errors import InputError


@dataclass
class Table:
    """Rows that learn: their values, the optimizer's memory of each, and how many updates there were."""

    values: Floats  # (rows, width)
    memory: dict[str, Floats] = field(default_factory=dict)  # each (rows, width)
    updates: int = 0

    def copy(self) -> Table:
        return Table(self.values.copy(), {name: each.copy() for name, each in self.memory.items()}, self.updates)

    def forget_memory(self) -> None:
        self.memory, self.updates = {}, 0

    def remember(self, name: str) -> Floats:
        if name not in self.memory:
            self.memory[name] = np.zeros_like(self.values)
        return self.memory[name]


def adam(table: Table, rows: Ids, gradients: Floats, rate: float) -> None:
    """Adam, as Kingma and Ba; rows that are not in the batch keep value and moments ("lazy" Adam)."""
    mean, square = table.remember("mean"), table.remember("square")
    kernels.adam_step(table.values, mean, square, rows, gradients, rate, table.updates)


def adagrad(table: Table, rows: Ids, gradients: Floats, rate: float) -> None:
    kernels.adagrad_step(table.values, table.remember("square"), rows, gradients, rate)


OPTIMIZERS = {"adam": adam, "adagrad": adagrad}


@dataclass(frozen=True)
class Touched:
    """Which rows a batch touches, each once, and which of its gradients belong to each."""

    rows: Ids  # (touched,)
    order: Ids  # (gradients,)
    starts: Ids  # (touched + 1,)

    @classmethod
    def by(cls, ids: NDArray[np.int64]) -> Touched:
        order = np.argsort(ids, kind="stable")
        ordered = ids[order]
        first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
        return cls(ordered[first], order, np.append(first, len(ids)))

    def sum(self, first: Floats, *others: Floats) -> Floats:
        """(touched, width): from one gradient for each id, in up to three parts, to one for each row."""
        second, third = (*others, first[:0], first[:0])[:2]
        return kernels.sum_rows(first, second, third, self.order, self.starts)


def update(table: Table, touched: Touched, gradients: Floats, *, optimizer: str, rate: float) -> None:
    """One step on the touched rows; gradients (touched, width)."""
    if optimizer not in OPTIMIZERS:
        raise InputError(f"no optimizer {optimizer!r}", remedy=f"choose one of {', '.join(OPTIMIZERS)}")
    table.updates += 1
    OPTIMIZERS[optimizer](table, touched.rows, gradients, rate)
