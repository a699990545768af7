"""What a client keeps of its tables besides those that learn: the best so far, and a mean over rounds."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fedlu.embedding.kernels import Floats


@dataclass
class Snapshot:
    """Values at a round that was the best so far."""

    entities: Floats
    relations: Floats
    model: dict[str, Floats]
    """What the model itself had learned by then; empty for most."""

    def arrays(self) -> dict[str, Floats]:
        own = {f"model.{name}": array for name, array in self.model.items()}
        return {"entities": self.entities, "relations": self.relations, **own}

    @classmethod
    def of(cls, arrays: dict[str, Floats]) -> Snapshot:
        return cls(arrays["entities"], arrays["relations"], under("model.", arrays))


@dataclass
class Mean:
    """Of rows and relations over rounds: what differs from round to round by chance is gone from it."""

    entities: Floats
    relations: Floats
    rounds: int

    def add(self, entities: Floats, relations: Floats) -> None:
        self.rounds += 1
        self.entities += (entities - self.entities) / np.float32(self.rounds)
        self.relations += (relations - self.relations) / np.float32(self.rounds)

    def arrays(self) -> dict[str, Floats]:
        return {"entities": self.entities, "relations": self.relations}


@dataclass
class Means:
    """What each view predicts by, once there is a round to remember."""

    first: int
    """The first round that is remembered."""
    of: dict[str, Mean] = field(default_factory=dict)

    def add(self, view: str, round_number: int, entities: Floats, relations: Floats) -> None:
        if round_number < self.first:
            return
        if view in self.of:
            self.of[view].add(entities, relations)
        else:
            self.of[view] = Mean(entities.copy(), relations.copy(), 1)

    def keep_if_whole(self, view: str, until: int) -> bool:
        """Whether there is a mean of every round from the first on, and none after; one with gaps is dropped."""
        number = self.of[view].rounds if view in self.of else 0
        whole = number == max(0, until - self.first + 1)
        if not whole:
            self.of.pop(view, None)
        return whole

    def state(self) -> tuple[dict[str, Floats], dict[str, int]]:
        arrays = {
            f"remembered.{view}.{name}": array
            for view, mean in self.of.items()
            for name, array in mean.arrays().items()
        }
        return arrays, {f"remembered.{view}.rounds": mean.rounds for view, mean in self.of.items()}

    def restore(self, arrays: dict[str, Floats], counters: dict[str, int]) -> None:
        self.of = {
            view: Mean(**under(f"remembered.{view}.", arrays), rounds=counters[f"remembered.{view}.rounds"])
            for view in ("local", "global")
            if f"remembered.{view}.rounds" in counters
        }


def under(prefix: str, arrays: dict[str, Floats]) -> dict[str, Floats]:
    """The arrays whose names begin so, by the rest of their names."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
