"""A client: its triples, its relations, its local table, and its avatar of the global table. Only messages leave it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedlu.config import Settings
from fedlu.embedding.kernels import Floats, Ids
from fedlu.embedding.models import Model, model_of
from fedlu.embedding.negatives import Batch, Sampler
from fedlu.embedding.optimizers import Table
from fedlu.embedding.ranking import FilterIndex, Queries, rank_views, summarize
from fedlu.errors import InputError
from fedlu.federated.alignment import tokens
from fedlu.federated.compression import Sender, unpack
from fedlu.federated.exams import Exam, own_exam
from fedlu.federated.keepsakes import Means, Snapshot, under
from fedlu.federated.messages import (
    Keep,
    Measure,
    Measured,
    Recall,
    Registration,
    Rows,
    Train,
    Trained,
    Unlearn,
    Unlearned,
    Welcome,
    check_rows,
)
from fedlu.graph.federation import ClientGraph
from fedlu.learning.knowledge import Memory
from fedlu.learning.local_training import Learner, Teaching, losses_if_finite
from fedlu.learning.regularisers import Pull, contrastive_pull, proximal_pull
from fedlu.learning.unlearning import Request, Unlearner
from fedlu.seeds import generator

VIEWS = {"independent": ("local",), "centralized": ("global",)}
"""Which predictions a method has; the others have all three."""
ALL_VIEWS = ("local", "global", "blend")
REHEARSAL = {"adam": 0.9, "adagrad": 0.0}
"""What is rehearsed while forgetting is learned at the rate of this part of the rounds: that of the last is too low.
Adagrad's steps are small enough after so many."""
AVERAGED = 3.0
"""How many times as far from their places as after its own interference forgotten triples may be, for a client to be
content, once the server has averaged."""
LOOKS = 3
"""While it forgets, the server may come back to any of so many last looks; more than it waits for a gain."""


class Client:
    def __init__(self, graph: ClientGraph, settings: Settings, exams: list[Exam] | None = None):
        self.name, self.graph, self.settings = graph.name, graph, settings
        entities, relations = len(graph.vocabulary.entities), len(graph.vocabulary.relations)
        seed = int(generator(settings.seed, "model", graph.name).integers(2**31))
        model = model_of(
            settings.model, dimension=settings.dimension, margin=settings.margin, seed=seed, device=settings.device
        )
        self.width = model.entity_width
        self.views = VIEWS.get(settings.method, ALL_VIEWS)
        self.learner = learner_of(settings, model, relations)
        self.sampler = Sampler.of(
            graph.train, entities, relations, weighted=settings.weighted, private=settings.private_negatives
        )
        self.exams = exams if exams is not None else [own_exam(graph)]
        random, limit = generator(settings.seed, "entities", graph.name), settings.start_range
        self.avatar = Table(random.uniform(-limit, limit, size=(entities, self.width)).astype(np.float32))
        self.local = Table(self.avatar.values.copy())
        height = relations * (2 if settings.reciprocal else 1)
        self.relations = Table(model.start_relations(random, height, limit))
        self.local_relations: Table | None = None
        """FedLU: the local table's own, if the two begin apart; else they share them."""
        if settings.begins_apart:
            own = generator(settings.seed, "own entities", graph.name)
            self.local = Table(own.uniform(-limit, limit, size=(entities, self.width)).astype(np.float32))
            self.local_relations = Table(model.start_relations(own, height, limit))
        self.shared: Ids = np.empty(0, dtype=np.int64)
        self.sender = Sender.of(settings.compress, 0, self.width)
        self.best: dict[str, Snapshot] = {}
        self.remembered = Means(settings.first_remembered)
        self.parted = False
        """FedLU: whether local and global have gone separate ways after the warm rounds."""
        self.request: Request | None = None
        """What it has to forget; said to nobody."""
        self.unlearner: Unlearner | None = None
        self.looked: dict[int, dict[str, Floats]] = {}
        """While it forgets: its tables, by view, when they were measured last."""
        self.disturbed: NDArray[np.bool_] = np.zeros(entities, dtype=np.bool_)

    # --- what a server may ask

    def register(self, key: bytes) -> Registration:
        """An independent client takes no part: it has nothing to share."""
        labels = () if self.settings.method == "independent" else self.graph.vocabulary.entities
        return Registration(self.name, tokens(labels, key))

    def welcome(self, message: Welcome) -> None:
        self.shared = message.shared
        self.sender = self.sender.of_rows(len(self.shared))

    def train(self, message: Train) -> Trained:
        """A round: take the global rows, train, give them back."""
        start = self._install(message.rows)
        self._remember_global(message.round - 1)  # what came of the round before, once it was averaged
        self.learner = replace(self.learner, rate=self.settings.rate_in(message.round))
        if not self.settings.keep_optimizer:
            for table in self._tables().values():
                table.forget_memory()
        self.learner.scorer.begin(int(generator(self.settings.seed, "model", message.round, self.name).integers(2**31)))
        with np.errstate(over="ignore", invalid="ignore"):  # a loss that diverges is reported as such
            losses = losses_if_finite(self._learn(message.round), self._tables().values())
        if "local" in self.views:
            self.remembered.add("local", message.round, self.local.values, self._relations_of("local").values)
        rows = self.sender.pack_change(self.avatar.values[self.shared], start)
        return Trained(self.name, message.round, rows, losses)

    def measure(self, message: Measure) -> Measured:
        if message.rows is not None:
            self._install(message.rows)
            self.remembered.keep_if_whole("global", message.round - 1)
        if self.unlearner is not None:
            looked = {name: memory.table.values.copy() for name, memory in self.unlearner.memories.items()}
            self.looked = {**dict(list(self.looked.items())[1 - LOOKS :]), message.round: looked}
        found = {exam.name: self._take(exam, message.split, best=message.rows is None) for exam in self.exams}
        return Measured(self.name, message.round, found)

    def keep(self, message: Keep) -> None:
        for view, values in self.looked.get(message.round, {}).items():
            self._memory(view).table.values = values
        for view in message.views:
            memory = self._memory(view)
            model = self.best[view].model if self.unlearner else self._model_arrays()
            self.best[view] = Snapshot(memory.table.values.copy(), memory.relations.values.copy(), model)

    def recall(self, message: Recall) -> Unlearned:
        """Take up the best tables, with the optimizer's memory of the last round."""
        memories = {}
        for view, snapshot in self.best.items():
            last = self.local if view == "local" and self.local.memory else self.avatar
            table = Table(snapshot.entities.copy(), {name: each.copy() for name, each in last.memory.items()})
            shared = self.shared if view == "global" else np.empty(0, dtype=np.int64)
            memories[view] = Memory(replace(table, updates=last.updates), Table(snapshot.relations), shared)
        request = self.request or nothing_to_forget(self.graph)
        self.disturbed[np.unique(request.forget[:, [0, 2]])] = True
        settings = self.settings
        self.unlearner = Unlearner(
            replace(
                self.learner, rate=settings.rate_in(max(1, round(REHEARSAL[settings.optimizer] * settings.rounds)))
            ),
            memories,
            request,
            self._teaching(since=settings.rounds),
            weighted=settings.weighted,
            batch_size=settings.batch_size,
            negatives=settings.negatives,
        )
        return self._changed(message.round, np.arange(len(self.shared)), content=False)

    def unlearn(self, message: Unlearn) -> Unlearned:
        """A step of forgetting: where nothing has to go, too, what others disturbed may be rehearsed.

        What the server has averaged may bring back what was forgotten: so the client looks at that, before it counts.
        """
        assert self.unlearner is not None  # recalled before
        rows = self._avatar().values[self.shared]
        check_rows(message.rows, rows.shape, "server")
        self.disturbed[self.shared[(rows != message.rows).any(1)]] = True
        self._avatar().values[self.shared] = message.rows
        random = generator(self.settings.seed, message.step, message.round, self.name)
        content = True
        if message.step == "interference":
            content = self.unlearner.interfere(random)
        elif message.step == "look":
            content = self.unlearner.is_content(within=AVERAGED)
        else:
            self.unlearner.decay(random, np.flatnonzero(self.disturbed))
        changed = (self._avatar().values[self.shared] != message.rows).any(1)
        return self._changed(message.round, np.flatnonzero(changed), content=content)

    def _changed(self, round_number: int, places: Ids, *, content: bool) -> Unlearned:
        return Unlearned(self.name, round_number, places, self._avatar().values[self.shared[places]], content)

    def _avatar(self) -> Table:
        """The table that travels; a client without any has nothing shared either."""
        memories = self.unlearner.memories if self.unlearner else {}
        return memories["global"].table if "global" in memories else self.avatar

    def _memory(self, view: str) -> Memory:
        if self.unlearner is not None:
            return self.unlearner.memories[view]
        if mean := self.remembered.of.get(view):
            return Memory(Table(mean.entities), Table(mean.relations))
        return Memory(self.local if view == "local" else self.avatar, self._relations_of(view))

    def _relations_of(self, view: str) -> Table:
        return self.local_relations if view == "local" and self.local_relations is not None else self.relations

    # --- learning

    def _install(self, message: Rows) -> Floats:
        # while forgetting, rows travel as they are
        kind = "none" if self.unlearner else self.settings.compress
        rows = unpack(message, kind, (len(self.shared), self.width), "server")
        self._avatar().values[self.shared] = rows
        return rows

    def _learn(self, round_number: int) -> dict[str, float]:
        method, settings = self.settings.method, self.settings
        warm = settings.warm_rounds
        if method == "independent":
            return {"local": self._plain_epochs(round_number, self.local)}
        if method == "fedlu" and round_number > warm:
            if warm and not self.parted:
                self.local, self.parted = self.avatar.copy(), True
            if round_number > warm + 1 and not settings.begins_apart:
                self._rejoin(1 - (1 - settings.rejoin) ** (1 / settings.rounds_an_epoch))
            return self._mutual_epochs(round_number, round_number - warm)
        loss = self._plain_epochs(round_number, self.avatar, self._pull())
        self.local = Table(self.avatar.values.copy())  # what the client has before the server averages
        return {"global": loss}

    def _remember_global(self, round_number: int) -> None:
        """Owners must not predict by different rows of what they share: who missed a round has no mean."""
        if "global" in self.views and self.remembered.keep_if_whole("global", round_number - 1):
            self.remembered.add("global", round_number, self.avatar.values, self.relations.values)

    def _rejoin(self, share: float) -> None:
        """What the others learned reaches the local table through scores alone, and it would overfit its own triples:
        so its shared rows go a part of the way back to the global ones."""
        rows = self.shared
        if share and len(rows):
            self.local.values[rows] += np.float32(share) * (self.avatar.values[rows] - self.local.values[rows])

    def _pull(self) -> Pull | None:
        """What keeps a rival's rows near the global ones."""
        settings = self.settings
        if settings.method == "fedprox":
            return proximal_pull(settings.proximal, self.avatar.values.copy())
        if settings.method == "fedec":
            current, previous = self.avatar.values.copy(), self.local.values
            return contrastive_pull(settings.contrast, settings.contrast_temperature, current, previous)
        return None

    def _plain_epochs(self, round_number: int, table: Table, pull: Pull | None = None) -> float:
        steps = [self.learner.plain_step(table, self.relations, batch, pull) for batch in self._batches(round_number)]
        return float(np.mean(steps))

    def _mutual_epochs(self, round_number: int, since: int) -> dict[str, float]:
        teaching = self._teaching(since)
        steps = [
            self.learner.mutual_step(self.local, self.avatar, self.relations, batch, teaching, self.local_relations)
            for batch in self._batches(round_number)
        ]
        local, avatar = np.mean(steps, axis=0)
        return {"local": float(local), "global": float(avatar)}

    def _teaching(self, since: int) -> Teaching:
        """How strongly the tables teach each other, this many rounds after they parted; FedLU's alone do."""
        settings = self.settings
        taught = settings.method == "fedlu"
        return Teaching(
            local=settings.teach_local if taught and since > settings.teach_local_after else 0.0,
            avatar=settings.teach_global if taught and since > settings.teach_global_after else 0.0,
            temperature=settings.temperature,
            relations_from_both=settings.relations_from == "both",
        )

    def _batches(self, round_number: int) -> Iterator[Batch]:
        settings, size = self.settings, (self.settings.batch_size, self.settings.negatives)
        random = generator(settings.seed, "round", round_number, self.name)
        if settings.epochs < 1:
            epoch, part = divmod(round_number - 1, settings.rounds_an_epoch)
            order = generator(settings.seed, "epoch", epoch, self.name)
            yield from self.sampler.part(part, settings.rounds_an_epoch, order, random, *size)
        for _ in range(int(settings.epochs)):
            yield from self.sampler.epoch(random, *size)

    # --- ranking

    def _take(self, exam: Exam, split: str, *, best: bool) -> dict[str, dict[str, Any]]:
        triples = exam.splits[split]
        ranks = rank_views(
            lambda queries: self.scores(queries, best=best), self.views, triples, exam.known, candidates=exam.candidates
        )
        return {view: summarize(found) for view, found in ranks.items()}

    def scores(self, queries: Queries, *, best: bool) -> dict[str, Floats]:
        """(batch, entities) by view."""
        found: dict[str, Floats] = {}
        for view in self.views:
            if view == "blend":
                found["blend"] = found["local"] + found["global"]
                continue
            memory = self._memory(view)
            entities, relations = memory.table.values, memory.relations.values
            if best:
                entities, relations = self.best[view].entities, self.best[view].relations
                self._set_model(self.best[view].model)
            anchors = entities[queries.anchors]
            found[view] = self.learner.score_all(entities, relations, anchors, queries.relations, queries.side)
        return found

    # --- state

    def _tables(self) -> dict[str, Table]:
        own = self.learner.scorer.parameters
        tables = {"local": self.local, "avatar": self.avatar, "relations": self.relations}
        if self.local_relations is not None:
            tables["local_relations"] = self.local_relations
        return tables if own is None else {**tables, "parameters": own}

    def _model_arrays(self) -> dict[str, Floats]:
        """What the model learned besides rows, for a snapshot."""
        own = self.learner.scorer.parameters
        mine = {} if own is None else {"parameters": own.values.copy()}
        return {**mine, **self.learner.scorer.state()}

    def _set_model(self, arrays: dict[str, Floats]) -> None:
        own = self.learner.scorer.parameters
        if own is not None:
            own.values = arrays["parameters"]
        self.learner.scorer.restore(arrays)

    def state(self) -> tuple[dict[str, Floats], dict[str, int]]:
        """Every array and counter that the future of this client depends on."""
        arrays, counters = {}, {}
        for name, table in self._tables().items():
            arrays[f"{name}.values"] = table.values
            counters[f"{name}.updates"] = table.updates
            for part, memory in table.memory.items():
                arrays[f"{name}.memory.{part}"] = memory
        for name, array in self.learner.scorer.state().items():
            arrays[f"model.{name}"] = array
        for view, snapshot in self.best.items():
            arrays |= {f"best.{view}.{name}": array for name, array in snapshot.arrays().items()}
        arrays |= self.sender.state()
        counters["parted"] = int(self.parted)
        means, rounds = self.remembered.state()
        return arrays | means, counters | rounds

    def restore(self, arrays: dict[str, Floats], counters: dict[str, int]) -> None:
        for name, table in self._tables().items():
            table.values, table.updates = arrays[f"{name}.values"], counters[f"{name}.updates"]
            table.memory = under(f"{name}.memory.", arrays)
        self.learner.scorer.restore(under("model.", arrays))
        self.sender.restore(arrays)
        self.parted = bool(counters["parted"])
        self.remembered.restore(arrays, counters)
        found = {view: under(f"best.{view}.", arrays) for view in ("local", "global")}
        self.best = {view: Snapshot.of(mine) for view, mine in found.items() if mine}


def learner_of(settings: Settings, model: Model, relations: int) -> Learner:
    for name in ("dura", "relation_prediction"):
        if getattr(settings, name) and not model.is_product:
            what = f"{name} = {getattr(settings, name)} with {settings.model}"
            raise InputError(what, remedy="give 0, or take a model of products: ComplEx or DistMult")
    if settings.remember and model.scorer.parameters is not None:
        what = f"remember = {settings.remember} with {settings.model}, which learns more than rows"
        raise InputError(what, remedy="give 0: only rows are averaged")
    return Learner(
        scorer=model.scorer,
        loss=settings.loss,
        adversarial=settings.adversarial,
        optimizer=settings.optimizer,
        rate=settings.learning_rate,
        n3=settings.n3,
        dura=settings.dura,
        reciprocal=settings.reciprocal,
        complex_rows=model.complex_rows,
        relations_are_phases=model.relations_are_phases,
        relations=relations,
        relation_prediction=settings.relation_prediction,
    )


def nothing_to_forget(graph: ClientGraph) -> Request:
    known = FilterIndex.of(graph.known, len(graph.vocabulary.entities), len(graph.vocabulary.relations))
    return Request(np.empty((0, 3), dtype=np.int32), graph.train, graph.valid, known)
