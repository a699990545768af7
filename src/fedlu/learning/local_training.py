"""One client's training: each batch is scored once per table, and the same scores serve student and teacher."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from fedlu.embedding import losses
from fedlu.embedding.kernels import Floats, Ids
from fedlu.embedding.losses import Mask
from fedlu.embedding.negatives import Batch
from fedlu.embedding.optimizers import Table, Touched, update
from fedlu.embedding.ranking import Side
from fedlu.embedding.row_kernels import take_rows
from fedlu.embedding.scorers import Rows, Scorer
from fedlu.learning.regularisers import Pull, add_cubic_gradients, add_dura_gradients


@dataclass(frozen=True)
class Learner:
    """How a batch becomes an update: the model, the loss and the optimizer. It holds no state."""

    scorer: Scorer
    loss: str
    adversarial: float
    optimizer: str
    rate: float
    n3: float
    reciprocal: bool
    complex_rows: bool
    relations_are_phases: bool
    relations: int
    dura: float = 0.0
    relation_prediction: float = 0.0
    """Weight of also asking for the relation of a head and a tail (Chen et al. 2021); for models of products."""

    def plain_step(self, table: Table, relations: Table, batch: Batch, pull: Pull | None = None) -> float:
        """Update one table and the relations; `pull` adds a rival's regulariser to the rows."""
        pass_ = self.forward(table, relations, batch)
        slopes, loss = self.predict(pass_.scores, batch)
        gradient = pass_.backward(slopes)
        self._apply_parameters(self.scorer.parameter_gradient())
        gradient, others = self.ask_for_relations(gradient, pass_.rows, relations, batch)
        self.apply(table, batch, gradient, pull)
        self._apply_relations(relations, batch, [gradient.relations], others)
        return loss

    def mutual_step(
        self,
        local: Table,
        avatar: Table,
        relations: Table,
        batch: Batch,
        teaching: Teaching,
        local_relations: Table | None = None,
    ) -> tuple[float, float]:
        """Update both tables from one forward each: Eq. (localloss) for the local, and its mirror for the global. They
        share the relations, unless the local table has some of its own."""
        apart = local_relations is not None
        my_relations = relations if local_relations is None else local_relations
        mine = self.forward(local, my_relations, batch)
        theirs = self.forward(avatar, relations, batch, None if apart else mine.rows.relations)
        slopes, loss = self.predict(mine.scores, batch)
        avatar_slopes, avatar_loss = self.predict(theirs.scores, batch)
        teaching.add(slopes, avatar_slopes, mine.scores, theirs.scores, batch)
        gradient, own = mine.backward(slopes), self.scorer.parameter_gradient()
        avatar_gradient, avatar_own = theirs.backward(avatar_slopes), self.scorer.parameter_gradient()
        if own is not None and avatar_own is not None and (apart or teaching.relations_from_both):
            own = own + avatar_own
        self._apply_parameters(own)
        gradient, others = self.ask_for_relations(gradient, mine.rows, my_relations, batch)
        avatar_gradient, avatar_others = self.ask_for_relations(avatar_gradient, theirs.rows, relations, batch)
        self.apply(local, batch, gradient, None)
        self.apply(avatar, batch, avatar_gradient, None)
        if apart:
            self._apply_relations(my_relations, batch, [gradient.relations], others)
            self._apply_relations(relations, batch, [avatar_gradient.relations], avatar_others)
            return loss, avatar_loss
        for_relations = [gradient.relations]
        if teaching.relations_from_both:
            for_relations, others = [*for_relations, avatar_gradient.relations], others + avatar_others
        self._apply_relations(relations, batch, for_relations, others)
        return loss, avatar_loss

    def score_all(self, entities: Floats, relations: Floats, anchors: Floats, numbers: Ids, side: Side) -> Floats:
        """(batch, entities): for ranking; anchors are rows, numbers the relations' ids."""
        rows, side = self.relation_rows(relations, numbers, side)
        return self.scorer.compare_all(anchors, rows, entities, side)

    def relation_rows(self, relations: Floats, numbers: Ids, side: Side) -> tuple[Floats, Side]:
        """The rows by which entities of a side are asked for, and the side as which the scorer compares them."""
        return relations[self._relation_rows(numbers, side)], self._compare_as(side)

    # --- inside

    def _relation_rows(self, numbers: Ids, side: Side) -> Ids:
        return numbers + self.relations if self.reciprocal and side == Side.HEAD else numbers

    def _compare_as(self, side: Side) -> Side:
        """With reciprocal relations, a head is the tail of the inverse."""
        return Side.TAIL if self.reciprocal else side

    def forward(self, table: Table, relations: Table, batch: Batch, relation_rows: Floats | None = None) -> Pass:
        """Give `relation_rows` if they were taken already."""
        queries, size = batch.queries, len(batch.answers)
        taken = take_rows(table.values, batch.entities)
        if relation_rows is None:
            relation_rows = take_rows(relations.values, self._relation_rows(queries.relations, queries.side))
        rows = Rows(
            anchors=taken[:size],
            relations=relation_rows,
            answers=taken[size : 2 * size],
            negatives=taken[2 * size :],
            picks=batch.picks,
        )
        return Pass(rows, *self.scorer.forward(rows, self._compare_as(queries.side)), self)

    def predict(self, scores: Floats, batch: Batch) -> tuple[Floats, float]:
        if self.loss == "cross_entropy":
            return losses.cross_entropy(scores, batch.masked, batch.weights)
        return losses.contrastive(scores, batch.masked, batch.weights, self.adversarial)

    def ask_for_relations(self, gradient: Rows, rows: Rows, relations: Table, batch: Batch) -> tuple[Rows, Floats]:
        """Add the gradient of a softmax over the relations of each pair; also give that of all relation rows.

        A product of three is linear in each: heads and tails make a query, and relations are what it is compared with.
        """
        if not self.relation_prediction:
            return gradient, np.zeros((0, rows.relations.shape[1]), dtype=np.float32)
        candidates = relations.values[self._relation_rows(np.arange(self.relations), batch.queries.side)]
        anchor_is_head = self._compare_as(batch.queries.side) == Side.TAIL
        heads, tails = (rows.anchors, rows.answers) if anchor_is_head else (rows.answers, rows.anchors)
        scores, backward = self.scorer.forward(Rows(tails, heads, rows.relations, candidates), Side.HEAD)
        masked = np.zeros(scores.shape, dtype=np.bool_)
        masked[np.arange(len(masked)), 1 + batch.queries.relations] = True  # the answer itself, which is in column 0
        slopes, _ = losses.cross_entropy(scores, masked, batch.weights)
        found = backward(np.float32(self.relation_prediction) * slopes)
        for_anchors, for_answers = (
            (found.relations, found.anchors) if anchor_is_head else (found.anchors, found.relations)
        )
        more = Rows(
            gradient.anchors + for_anchors,
            gradient.relations + found.answers,
            gradient.answers + for_answers,
            gradient.negatives,
        )
        return more, found.negatives

    def apply(self, table: Table, batch: Batch, gradient: Rows, pull: Pull | None, *, only: Mask | None = None) -> None:
        """Update the rows of a batch, or only those of them that are marked."""
        touched, parts = batch.touched, (gradient.anchors, gradient.answers, gradient.negatives)
        if only is not None or pull is not None:
            rows, summed = touched.rows, touched.sum(*parts)
            if only is not None:
                rows, summed = rows[only[rows]], summed[only[rows]]
            if pull is not None:
                summed += pull(rows, table.values[rows])
            touched, parts = Touched.each(rows), (summed, summed[:0], summed[:0])
        update(table, touched, *parts, optimizer=self.optimizer, rate=self.rate)

    def _apply_parameters(self, gradient: Floats | None) -> None:
        if gradient is not None and self.scorer.parameters is not None:
            only = Touched.by(np.zeros(1, dtype=np.int64))
            update(self.scorer.parameters, only, gradient, optimizer=self.optimizer, rate=self.rate)

    def _apply_relations(self, relations: Table, batch: Batch, gradients: list[Floats], others: Floats) -> None:
        """Gradients by one table or by two; `others` has a row for every relation, or none."""
        numbers = np.concatenate([*[batch.queries.relations] * len(gradients), np.arange(len(others))])
        touched = Touched.by(self._relation_rows(numbers, batch.queries.side))
        update(relations, touched, *gradients, others, optimizer=self.optimizer, rate=self.rate)


@dataclass(frozen=True)
class Teaching:
    """How strongly each table is taught by the other in a step."""

    local: float
    avatar: float
    temperature: float
    relations_from_both: bool

    def add(self, slopes: Floats, avatar_slopes: Floats, local: Floats, avatar: Floats, batch: Batch) -> None:
        """Add the slopes of mutual distillation, Eq. (localdistillloss) and its mirror, given the scores of both."""
        if self.local or self.avatar:
            losses.add_mutual_distillation(
                slopes,
                avatar_slopes,
                local,
                avatar,
                batch.masked,
                batch.weights,
                self.temperature,
                to_local=self.local,
                to_avatar=self.avatar,
            )


@dataclass(frozen=True)
class Pass:
    """A forward pass that can go back; regularisers are added on the way."""

    rows: Rows
    scores: Floats
    _backward: Callable[[Floats], Rows]
    learner: Learner

    def gradient(self, slopes: Floats) -> Rows:
        """Without the regulariser."""
        return self._backward(slopes)

    def backward(self, slopes: Floats) -> Rows:
        found, learner = self.gradient(slopes), self.learner
        if learner.n3:
            found = add_cubic_gradients(
                found,
                self.rows,
                learner.n3,
                complex_rows=learner.complex_rows,
                relations_are_phases=learner.relations_are_phases,
            )
        if learner.dura:
            found = add_dura_gradients(found, self.rows, learner.dura, complex_rows=learner.complex_rows)
        return found


def losses_if_finite(losses: dict[str, float], tables: Iterable[Table]) -> dict[str, float]:
    """No numbers where a table has become none: the next batch's loss would tell, but by then it may have been kept."""
    finite = all(np.isfinite(table.values).all() for table in tables)
    return losses if finite else dict.fromkeys(losses, math.nan)
