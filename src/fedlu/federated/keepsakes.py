"""What a client keeps of its tables besides those that learn: the best so far, and a mean over rounds."""

from __future__ import annotations

from dataclasses import dataclass

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


def under(prefix: str, arrays: dict[str, Floats]) -> dict[str, Floats]:
    """The arrays whose names begin so, by the rest of their names."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
