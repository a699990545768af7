"""Forgetting at one client: retroactive interference confuses what has to go, passive decay rehearses what stays.

A triple that was never learned is known to some degree, too, so what has to go is not driven down without end: each
forgotten triple is given a place among triples that no training has seen (`knowledge.py`), and interference stops when
it stands there. Its rows move so that all others change least (`bystanders.py`); and what those others lost all the
same is given back to them in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np

from fedlu.embedding import losses
from fedlu.embedding.installation import one_thread
from fedlu.embedding.kernels import Floats, Ids
from fedlu.embedding.losses import Mask
from fedlu.embedding.negatives import Batch, Sampler
from fedlu.embedding.optimizers import Table, Touched
from fedlu.embedding.ranking import FilterIndex, Side
from fedlu.graph.triples import Triples
from fedlu.learning.bystanders import Bystanders, bystanders
from fedlu.learning.knowledge import (
    CANDIDATES,
    ENOUGH,
    Knowledge,
    Memory,
    Questions,
    evenly,
    family,
    knowledge,
    places_of,
    questions_about,
    shares_to_fill,
    targets_of,
)
from fedlu.learning.local_training import Learner, Pass, Teaching

GOALS = ("indistinguishable", "suppress")
UNSEEN = 8192
"""Valid triples of the relations concerned, that stand for all of them."""
STEP = 0.25
"""The part of its gap that a step of interference moves the score of a triple."""
FAR = 4.0
"""Where a gap is wider, a step takes it for as wide."""
EPOCHS = 48
"""Of interference, at most, before the server is told."""
LOOK_EVERY = 4
"""Epochs after which it is seen where the unseen stand now."""
REHEARSED_AT_LEAST = 2048
RESTORED_AT_LEAST = 8192
"""Retained triples that are rehearsed in a round, and given their scores back, however few have to go."""
HOLD_EVERY = 6
"""Batches of rehearsal after which what has to go is pushed back to its place: what stays brings some of it back ..."""
HOLD_AFTER = 20
"""... and batches of restoring."""
OWN = 10.0
"""The weight of a forgotten triple's own term in hard confusion, against its negatives, as in the paper's release."""
CLOSE = 0.05
"""How far forgotten triples may be from their places, in the mean, for the client to be content: as a part of how far
they were before."""
NOTHING = 0.01
"""A gap that a triple is left alone with."""
AT_BEST = 0.01
"""Nearer than this nobody need be: what is known by chance alone differs more."""


@dataclass(frozen=True)
class Manner:
    """How a client forgets: what weighs in a move of rows, and how much is rehearsed after it."""

    soft: float
    """The weight of soft confusion."""
    seen: int
    """Retained triples by whose gradients directions are chosen that spare all."""
    ridge: float
    """What every direction costs at least, as in `bystanders`."""
    rehearsed: int
    """Retained triples rehearsed in a round, for each forgotten one ..."""
    restored: int
    """... and retained triples that are given their scores back, which takes no negatives."""


USUALLY = Manner(soft=0.1, seen=8192, ridge=0.01, rehearsed=16, restored=64)
"""The weight is the paper's."""
WHEN_SUPPRESSING = {
    "translations": Manner(soft=0.1, seen=8192, ridge=0.01, rehearsed=4, restored=64),
    "products": Manner(soft=0.03, seen=65536, ridge=0.005, rehearsed=16, restored=64),
    "rotations": Manner(soft=0.03, seen=65536, ridge=0.01, rehearsed=4, restored=128),
}
"""Where triples are suppressed, rows go far: it pays to know well whom to spare, and soft confusion costs others more
than it brings. Translations are no better for that; distances get back by restoring what rehearsal would take much
longer for."""


@dataclass(frozen=True)
class Request:
    """What a client has to forget, what it keeps, and how: all in its own ids."""

    forget: Triples
    retained: Triples
    valid: Triples
    known: FilterIndex
    """Of what is kept, all splits."""
    goal: str = "indistinguishable"
    hard: bool = True
    soft: bool = True


class Unlearner:
    """Forgets a request in one or two memories, `local` and `global`, which teach each other if both are there."""

    def __init__(
        self,
        learner: Learner,
        memories: dict[str, Memory],
        request: Request,
        teaching: Teaching,
        *,
        weighted: bool,
        batch_size: int,
        negatives: int,
    ):
        self.learner, self.memories, self.request, self.teaching = learner, memories, request, teaching
        self.batch_size, self.negatives = batch_size, negatives
        self.few = len(request.forget) < ENOUGH
        self.manner = USUALLY if request.goal != "suppress" else WHEN_SUPPRESSING[family(learner)]
        self.forgotten = evenly(request.forget, request.known)
        alike = request.valid[np.isin(request.valid[:, 1], request.forget[:, 1])]
        alike = alike if len(alike) >= ENOUGH else request.valid
        some = np.random.default_rng(0).permutation(len(alike))[: UNSEEN if len(request.forget) else 0]
        candidates = CANDIDATES[family(learner)]
        self.unseen = questions_about(evenly(alike[np.sort(some)], request.known), candidates)
        self.asked = questions_about(self.forgotten, candidates)
        known = request.known
        self.retained = Sampler.of(request.retained, known.entities, known.relations, weighted=weighted)
        self.before = {name: Table(memory.table.values.copy()) for name, memory in memories.items()}
        self.bystanders: dict[str, Bystanders] = {}
        self.found: dict[str, tuple[Floats, Knowledge]] = {}
        known_well = {name: self._known(name) for name in memories}
        self.places = places_of(request.forget[:, 1], known_well, shares_to_fill(learner, request.goal))
        before = self.gaps(self.targets()) if len(request.forget) else {}
        self.close = {name: max(CLOSE * _excess(gap), AT_BEST) for name, gap in before.items()}

    def _others(self, name: str) -> Bystanders:
        """Found when they are needed first: not every client has something to move."""
        if name not in self.bystanders:
            memory = self.memories[name]
            self.bystanders[name] = bystanders(
                self.learner,
                self.before[name],
                memory.relations,
                self.retained,
                memory.shared,
                seen=self.manner.seen,
                ridge=self.manner.ridge,
            )
        return self.bystanders[name]

    # --- how well it is known

    def targets(self) -> dict[str, Knowledge]:
        """By memory (forgotten, 2): how well each should be known. A table that is as it was is not asked again."""
        for name, places in self.places.items():
            table = self.memories[name].table.values
            if name not in self.found or not np.array_equal(self.found[name][0], table):
                target = targets_of(self._known(name, self.unseen), self.unseen, self.request.forget, places)
                self.found[name] = table.copy(), target
        return {name: target for name, (_, target) in self.found.items()}

    def gaps(self, targets: dict[str, Knowledge]) -> dict[str, Knowledge]:
        """By memory (forgotten, 2): how much better each is known than it should be.

        Of a few, that were named, an end that stands too low does not hold up the other, which moves with it.
        """
        found = {name: self._known(name) - target for name, target in targets.items()}
        for name, gap in found.items():
            if self.request.goal == "suppress":  # there is no such thing as too low
                found[name] = np.maximum(gap, 0)
            elif self.few:
                found[name] = np.where((gap > 0).any(1, keepdims=True), np.maximum(gap, 0), gap)
        return found

    def _known(self, name: str, questions: Questions | None = None) -> Knowledge:
        return knowledge(self.learner, self.memories[name], questions or self.asked, odds=self.few)

    # --- interference

    def interfere(self, random: np.random.Generator) -> bool:
        """Confuse what has to go until it stands where it should; whether it does."""
        with one_thread() if self.few else nullcontext():
            return self._interfere(random)

    def _interfere(self, random: np.random.Generator) -> bool:
        if not len(self.request.forget):
            return True
        furthest = np.inf
        for _ in range(0, EPOCHS, LOOK_EVERY):
            targets = self.targets()  # the unseen are disturbed, too
            gaps = self.gaps(targets)
            before, furthest = furthest, max(abs(_excess(gap)) / self.close[name] for name, gap in gaps.items())
            nobody = not any(len(each) for each in _concerned(gaps))
            if nobody or furthest <= 0.5 or (furthest > 0.9 * before and not self.few):  # there, or as near as it gets
                return self._are_small(gaps)
            for epoch in range(LOOK_EVERY):
                self._confuse_all(self.gaps(targets) if epoch else gaps, random)
        return self.is_content()

    def is_content(self, within: float = 1.0) -> bool:
        """Whether what has to go stands where it should, or so many times as far from it."""
        return not len(self.request.forget) or self._are_small(self.gaps(self.targets()), within)

    def _are_small(self, gaps: dict[str, Knowledge], within: float = 1.0) -> bool:
        return all(_excess(gap) <= within * self.close[name] for name, gap in gaps.items())

    def _confuse_all(self, gaps: dict[str, Knowledge], random: np.random.Generator) -> None:
        """An epoch over the forgotten that are not where they should be; who is, does not hold back a row of others."""
        for chosen, side in _pieces(random, _concerned(gaps), self.batch_size):
            batch = self.forgotten.batch(chosen, side, random, self.negatives)
            self._confuse(batch, {name: gap[chosen, side] for name, gap in gaps.items()})

    def _confuse(self, batch: Batch, gaps: dict[str, Knowledge]) -> None:
        """A step on the rows of the forgotten triples alone, by the interference loss, Eq. (localunlearn)."""
        passes = {
            name: self.learner.forward(memory.table, memory.relations, batch) for name, memory in self.memories.items()
        }
        slopes = {name: self._interference(each.scores, batch) for name, each in passes.items()}
        if len(passes) == 2:
            local, avatar = passes["local"].scores, passes["global"].scores
            self.teaching.add(slopes["local"], slopes["global"], local, avatar, batch)
        for name, each in passes.items():
            strength = np.clip(gaps[name], -1, FAR).astype(np.float32)  # no step goes further than the gap
            wanted = slopes[name] * len(batch.answers) * np.maximum(strength, 0)[:, None]
            wanted[:, 0] = np.maximum(wanted[:, 0], 0)  # a teacher that knows it better is not listened to
            wanted[:, 0] += np.minimum(strength, 0)  # known worse than what was never learned: that betrays it, too
            _move(self.memories[name].table, batch, each, wanted, self._others(name))

    def _interference(self, scores: Floats, batch: Batch) -> Floats:
        slopes = np.zeros_like(scores)
        if self.request.hard:
            slopes += losses.hard_confusion(scores, batch.masked, batch.weights, self.learner.loss)[0]
            slopes[:, 0] = np.minimum(OWN * slopes[:, 0], batch.weights / batch.weights.sum())  # at most the whole gap
        if self.request.soft:
            weight = np.float32(self.manner.soft)
            slopes += weight * losses.soft_confusion(scores, batch.masked, batch.weights)[0]
        return slopes

    # --- decay

    def decay(self, random: np.random.Generator, disturbed: Ids) -> None:
        """Rehearse retained triples around the disturbed entities, and a sample of the others; then give those around
        the scores back that they had.

        Only rows that were disturbed are mended: all others are as good as they were, and an owner who changed them
        would dilute what the server averages. In softmax models only who disturbed a row mends it: with the help of
        its other owners, the shared table came back less far (docs/results.md).
        """
        triples = self.request.retained
        if self.learner.loss == "cross_entropy":
            disturbed = np.unique(self.request.forget[:, [0, 2]])
        if not len(disturbed):
            return
        near = np.flatnonzero(np.isin(triples[:, 0], disturbed) | np.isin(triples[:, 2], disturbed))
        rehearsed = max(REHEARSED_AT_LEAST, self.manner.rehearsed * len(self.request.forget))
        restored = max(RESTORED_AT_LEAST, self.manner.restored * len(self.request.forget))
        around = _some(random, near, rehearsed)
        chosen = np.union1d(around, _some(random, np.arange(len(triples)), rehearsed // 4))
        mended = np.zeros(self.request.known.entities, dtype=np.bool_)
        mended[disturbed] = True
        for batch in self._held(random, chosen, self.negatives, HOLD_EVERY):
            self._rehearse(batch, mended)
        for batch in self._held(random, _some(random, near, restored), 1, HOLD_AFTER):
            self._restore(batch, mended)

    def _held(self, random: np.random.Generator, chosen: Ids, negatives: int, every: int) -> Iterator[Batch]:
        """Batches of retained triples; now and then, what has to go is pushed back to its place."""
        targets = self.targets() if len(self.request.forget) else {}
        pieces = list(_pieces(random, [chosen, chosen], self.batch_size))
        for number, at in enumerate(random.permutation(len(pieces)), start=1):
            some, side = pieces[at]
            yield self.retained.batch(some, side, random, negatives)
            if targets and number % every == 0:
                self._confuse_all(self.gaps(targets), random)

    def _rehearse(self, batch: Batch, mended: Mask) -> None:
        """Mutual distillation on what is kept, as in learning, the relations left alone."""
        passes = {
            name: self.learner.forward(memory.table, memory.relations, batch) for name, memory in self.memories.items()
        }
        slopes = {name: self._lesson(name, each.scores, batch) for name, each in passes.items()}
        if len(passes) == 2:
            local, avatar = passes["local"].scores, passes["global"].scores
            self.teaching.add(slopes["local"], slopes["global"], local, avatar, batch)
        for name, each in passes.items():
            self.learner.apply(self.memories[name].table, batch, each.gradient(slopes[name]), None, only=mended)

    def _lesson(self, name: str, scores: Floats, batch: Batch) -> Floats:
        """By the prediction loss; or, where that is a softmax, as the table knew it before: to learn on would go beyond
        that, at the cost of others."""
        if self.learner.loss != "cross_entropy":
            return self.learner.predict(scores, batch)[0]
        had = self.learner.forward(self.before[name], self.memories[name].relations, batch).scores
        return losses.distillation(scores, had, batch.masked, batch.weights, 1.0)

    def _restore(self, batch: Batch, mended: Mask) -> None:
        """Move the mended rows of retained triples towards the scores that they had before, all others changing least.

        Not learning but undoing: whatever a table knew, also of triples that nobody has seen, comes back with them.
        """
        for name, memory in self.memories.items():
            each = self.learner.forward(memory.table, memory.relations, batch)
            had = self.learner.forward(self.before[name], memory.relations, batch).scores
            wanted = np.zeros_like(each.scores)
            wanted[:, 0] = np.clip(each.scores[:, 0] - had[:, 0], -FAR, FAR)
            _move(memory.table, batch, each, wanted, self._others(name), only=mended)


def _excess(gap: Knowledge) -> float:
    """How much too well the forgotten are known, in the mean; a few, that were named, do not make up for each other.

    What chance explains of a mean is none; below zero, they are known less than they should be.
    """
    mean = float(np.maximum(gap, 0).mean()) if len(gap) < ENOUGH else float(gap.mean())
    chance = 0.0 if len(gap) < ENOUGH else float(gap.std() / np.sqrt(gap.size))
    return float(np.sign(mean) * max(0.0, abs(mean) - chance))


def _concerned(gaps: dict[str, Knowledge]) -> list[Ids]:
    """By side: the forgotten triples that have a gap in one of the memories."""
    return [np.flatnonzero(np.any([np.abs(gap[:, side]) > NOTHING for gap in gaps.values()], axis=0)) for side in Side]


def _some(random: np.random.Generator, numbers: Ids, most: int) -> Ids:
    found: Ids = random.choice(numbers, size=min(most, len(numbers)), replace=False)
    return found


def _pieces(random: np.random.Generator, numbers: list[Ids], size: int) -> Iterator[tuple[Ids, Side]]:
    """In random order, those given for each side."""
    for side in Side:
        order = random.permutation(numbers[side])
        for start in range(0, len(order), size):
            yield order[start : start + size], side


def _move(table: Table, batch: Batch, each: Pass, wanted: Floats, others: Bystanders, only: Mask | None = None) -> None:
    """Move head and tail of each triple so that its score falls by STEP times the slope wanted, whatever the model; if
    only marked rows may move, those.

    Along a direction d a score of gradient g changes by g * d for a unit; dividing by that gives the same change for
    all models.
    """
    gradient = each.gradient(wanted)
    anchors = others.spare(batch.queries.anchors, gradient.anchors)
    answers = others.spare(batch.answers, gradient.answers)
    if only is not None:
        anchors *= only[batch.queries.anchors, None]
        answers *= only[batch.answers, None]
    size = np.einsum("bk,bk->b", gradient.anchors, anchors) + np.einsum("bk,bk->b", gradient.answers, answers)
    scale = STEP * wanted[:, 0] ** 2 / np.maximum(size, 1e-20)
    scale = np.where(np.abs(wanted[:, 0]) > 0, scale, 0).astype(np.float32)[:, None]
    touched = Touched.by(np.concatenate([batch.queries.anchors, batch.answers]))
    anchors *= scale
    answers *= scale
    summed = touched.sum(anchors, answers)
    often = np.diff(touched.starts)  # a row of many triples is not to be thrown about
    table.values[touched.rows] -= summed / np.sqrt(often, dtype=np.float32)[:, None]
