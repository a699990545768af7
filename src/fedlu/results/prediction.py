"""What a run predicts: labels in, labels out.

    run = fedlu.load("run")
    run.predict("client-0", head="aspirin", relation="treats")          # the ten likeliest tails
    run.predict("client-0", tail="fever", relation="treats", top=3)     # the three likeliest heads
    run.predict_many("client-0", [("aspirin", "treats", None), (None, "causes", "fever")])

Answers come as polars frames, the frames that the rest of the package is built on.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from threading import Lock

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fedlu.config import Settings
from fedlu.embedding.installation import one_thread
from fedlu.embedding.kernels import Floats, Ids
from fedlu.embedding.ranking import SCORES_AT_ONCE, FilterIndex, Queries, Side
from fedlu.embedding.short_lists import Few, ShortLists
from fedlu.errors import InputError, ScoreError
from fedlu.federated.client import ALL_VIEWS, VIEWS, Client
from fedlu.federated.keepsakes import Snapshot
from fedlu.graph.federation import SPLITS, ClientGraph, Federation
from fedlu.graph.triples import Triples
from fedlu.learning.local_training import Learner
from fedlu.results.runs import data_of, go_on, how_far, saved_settings

Question = tuple[str | None, str, str | None]
"""(head, relation, None) asks for tails, (None, relation, tail) for heads."""

MOST_AT_ONCE = 1024
"""Questions that are scored together: enough to fill the cores."""


def load(run: str | Path, data: Federation | str | Path | None = None) -> LearnedRun:
    """A run, ready to predict by its best tables; `data` says where its federation is now, if it was moved."""
    folder = Path(run)
    how_far(folder)
    settings, federation = saved_settings(folder), data_of(folder, data)
    party, _, _ = go_on(folder, federation, settings)
    views = VIEWS.get(settings.method, ALL_VIEWS)
    if settings.method == "centralized":
        (all_of_them,) = party.clients
        desks = [_desk_of_part(federation, number, all_of_them) for number in range(len(federation.clients))]
    else:
        desks = [Desk(client.graph, client.learner, client.best) for client in party.clients]
    return LearnedRun(folder, settings, federation, views, {desk.graph.name: desk for desk in desks})


@dataclass(frozen=True)
class Desk:
    """One client's graph and best tables, in the client's own ids: all that a question to it needs."""

    graph: ClientGraph
    learner: Learner
    best: dict[str, Snapshot]  # by view, "local" and "global"

    def scores(self, queries: Queries, view: str) -> Floats:
        """(batch, entities): higher is likelier; a blend is the sum of local and global."""
        if view == "blend":
            return self.scores(queries, "local") + self.scores(queries, "global")
        best = self.best[view]
        scorer = self.learner.scorer
        if scorer.parameters is not None:
            scorer.parameters.values = best.model["parameters"]
        scorer.restore(best.model)
        anchors = best.entities[queries.anchors]
        return self.learner.score_all(best.entities, best.relations, anchors, queries.relations, queries.side)

    def best_few(self, queries: Queries, views: Sequence[str], top: int, new_only: NDArray[np.bool_]) -> Few:
        """The best by every view, without what is known where `new_only` (batch,); `places` are in `index.answers`."""
        starts, stops = self.index.find(queries)
        known = self.index.answers[queries.side]
        if self.short_lists is None:
            return self._best_of_all(queries, views, top, (starts, stops, known), new_only)
        with one_thread():
            made = [self._queries(queries, best) for best in self.best.values()]
        bits = {view: 1 << place for place, view in enumerate(self.best)} | {"blend": (1 << len(self.best)) - 1}
        return self.short_lists.best(made, [bits[view] for view in views], top, (starts, stops, known), new_only)

    def _queries(self, queries: Queries, best: Snapshot) -> Floats:
        assert self.short_lists is not None
        rows, side = self.learner.relation_rows(best.relations, queries.relations, queries.side)
        return self.short_lists.scorer.queries(best.entities[queries.anchors], rows, side)

    def _best_of_all(
        self,
        queries: Queries,
        views: Sequence[str],
        top: int,
        known: tuple[Ids, Ids, NDArray[np.int32]],
        new_only: NDArray[np.bool_],
    ) -> Few:
        """For models that have no short lists: every entity is scored."""
        parts = {view: self.scores(queries, view) for view in self.best}
        shape = (len(queries.anchors), len(views), min(top, len(self.graph.vocabulary.entities)))
        found = Few(np.full(shape, -1, np.int32), np.zeros(shape, np.float32), np.full(shape, -1, np.int64))
        for v, view in enumerate(views):
            scores = parts["local"] + parts["global"] if view == "blend" else parts[view]
            for b, (start, stop) in enumerate(zip(*known[:2], strict=True)):
                mine, answers = scores[b], known[2][start:stop]
                if new_only[b]:
                    mine = mine.copy()
                    mine[answers] = -np.inf
                ids = best_of(mine, top)
                found.ids[b, v, : len(ids)], found.scores[b, v, : len(ids)] = ids, mine[ids]
                place = np.searchsorted(answers, ids)
                is_known = np.append(answers, -1)[place] == ids
                found.places[b, v, : len(ids)] = np.where(is_known, start + place, -1)
        return found

    @cached_property
    def short_lists(self) -> ShortLists | None:
        return ShortLists.of(self.learner.scorer, [best.entities for best in self.best.values()])

    @cached_property
    def answer_splits(self) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
        """For each known answer of `index`, by side, the number of its split."""
        heads, tails = (self._answer_splits(side) for side in Side)
        return heads, tails

    def _answer_splits(self, side: Side) -> NDArray[np.int8]:
        answers, questions = self.index.answers[side], self.index.questions[side]
        anchors, relations = np.divmod(np.repeat(questions, np.diff(self.index.offsets[side])), self.index.relations)
        ends = (anchors, answers) if side == Side.TAIL else (answers, anchors)
        wanted = self.graph.vocabulary.keys(np.stack([ends[0], relations, ends[1]], axis=1))
        return self.splits[np.searchsorted(self._known_keys, wanted)]

    @cached_property
    def labels_as_json(self) -> list[str]:
        return [json.dumps(label, ensure_ascii=False) for label in self.graph.vocabulary.entities]

    def prepare(self) -> None:
        """Make now what the first question would have to wait for."""
        _ = self.answer_splits, self.labels_as_json
        nothing = np.zeros(1, dtype=np.int64)
        self.best_few(Queries(nothing, nothing, Side.TAIL), tuple(self.best), 1, np.zeros(1, dtype=np.bool_))

    @cached_property
    def index(self) -> FilterIndex:
        return FilterIndex.of(
            self.graph.known, len(self.graph.vocabulary.entities), len(self.graph.vocabulary.relations)
        )

    @cached_property
    def splits(self) -> NDArray[np.int8]:
        """(known,): for each known triple the number of its split; of two, the first."""
        keys = self.graph.vocabulary.keys
        found = np.zeros(len(self.graph.known), dtype=np.int8)
        for number, split in reversed(list(enumerate(SPLITS))):
            found[np.searchsorted(self._known_keys, keys(self.graph.split(split)))] = number
        return found

    @cached_property
    def _known_keys(self) -> NDArray[np.int64]:
        return self.graph.vocabulary.keys(self.graph.known)

    def split_of(self, triples: Triples) -> list[str | None]:
        """For each triple (n, 3) the split that it stands in, None for a new one."""
        wanted = self.graph.vocabulary.keys(triples)
        place = np.minimum(np.searchsorted(self._known_keys, wanted), len(self._known_keys) - 1)
        is_known = self._known_keys[place] == wanted
        return [SPLITS[self.splits[p]] if known else None for p, known in zip(place, is_known, strict=True)]


@dataclass(frozen=True)
class LearnedRun:
    """The best tables of a run in memory. Threads may share it: they are served one after another."""

    folder: Path
    settings: Settings
    federation: Federation = field(repr=False)
    views: tuple[str, ...]
    """What it can predict by: local, global, blend, or those of them that its method has."""
    desks: dict[str, Desk] = field(repr=False)
    _lock: Lock = field(default_factory=Lock, repr=False)
    """A model of PyKEEN's holds one table's parameters at a time."""

    @property
    def clients(self) -> tuple[str, ...]:
        return tuple(self.desks)

    @property
    def default_view(self) -> str:
        return self.views[-1]

    def desk(self, client: str) -> Desk:
        if client not in self.desks:
            raise InputError(f"no client {client!r}", where=self.folder, remedy=_suggest(client, self.clients))
        return self.desks[client]

    def predict(
        self,
        client: str,
        *,
        relation: str,
        head: str | None = None,
        tail: str | None = None,
        top: int = 10,
        view: str | None = None,
        new_only: bool = False,
    ) -> pl.DataFrame:
        """The likeliest tails of a head, or heads of a tail, among the client's entities: rank, label, score, known.

        `known` is the split in which the client has the triple already, null if it is new; with `new_only`, those that
        it has are left out. `view` is local, global or blend; by default blend, where the method has it.
        """
        found = self.predict_many(client, [(head, relation, tail)], top=top, view=view, new_only=new_only)
        return found.select("rank", "label", "score", "known")

    def predict_many(
        self,
        client: str,
        questions: Sequence[Question],
        *,
        top: int = 10,
        view: str | None = None,
        new_only: bool = False,
    ) -> pl.DataFrame:
        """Answers to many questions at once: query (a number), head, relation, tail, label, score, rank, known."""
        desk, view = self.desk(client), self.check_view(view)
        if top < 1:
            raise InputError(f"top = {top}", remedy="give at least 1")
        asked = [desk_ids(desk, question) for question in questions]
        pieces = []
        for side in Side:
            numbers = np.array([n for n, each in enumerate(asked) if each[0] == side], dtype=np.int64)
            ids = np.array([each[1:] for each in asked if each[0] == side], dtype=np.int64).reshape(-1, 2)
            size = max(1, min(MOST_AT_ONCE, SCORES_AT_ONCE // len(desk.graph.vocabulary.entities)))
            for at in range(0, len(numbers), size):
                queries = Queries(ids[at : at + size, 0], ids[at : at + size, 1], side)
                with self._lock:
                    scores = desk.scores(queries, view)
                pieces.append(_answers(desk, queries, numbers[at : at + size], scores, top, new_only))
        return pl.concat(pieces).sort("query", "rank") if pieces else pl.DataFrame(schema=SCHEMA)

    def check_view(self, view: str | None) -> str:
        if view is None:
            return self.default_view
        if view not in self.views:
            what = f"no view {view!r} (its method is {self.settings.method})"
            raise InputError(what, where=self.folder, remedy=f"choose {' or '.join(self.views)}")
        return view


SCHEMA = {
    "query": pl.Int64(),
    "head": pl.String(),
    "relation": pl.String(),
    "tail": pl.String(),
    "label": pl.String(),
    "score": pl.Float32(),
    "rank": pl.Int64(),
    "known": pl.String(),
}


def desk_ids(desk: Desk, question: Question) -> tuple[Side, int, int]:
    """The side asked for, and the ids of the anchor and the relation."""
    head, relation, tail = question
    if (head is None) == (tail is None):
        raise InputError("a question has either a head or a tail", remedy="give exactly one of the two")
    vocabulary, anchor = desk.graph.vocabulary, tail if head is None else head
    assert anchor is not None
    if anchor not in vocabulary.entity_ids:
        where, remedy = desk.graph.name, _suggest(anchor, vocabulary.entities)
        raise InputError(f"no entity {anchor!r}", where=where, remedy=remedy)
    if relation not in vocabulary.relation_ids:
        where, remedy = desk.graph.name, _suggest(relation, vocabulary.relations)
        raise InputError(f"no relation {relation!r}", where=where, remedy=remedy)
    side = Side.HEAD if head is None else Side.TAIL
    return side, vocabulary.entity_ids[anchor], vocabulary.relation_ids[relation]


def nearest(wanted: str, labels: Sequence[str], most: int = 3) -> list[str]:
    """Labels that a person may have meant, the likeliest first; small and capital letters count alike."""
    plain = wanted.casefold()
    by_plain: dict[str, str] = {}
    for label in labels:
        by_plain.setdefault(label.casefold(), label)
    near = difflib.get_close_matches(plain, by_plain, n=most)
    near.sort(key=lambda each: (-difflib.SequenceMatcher(None, each, plain).ratio(), each))
    within = sorted((each for each in by_plain if plain and plain in each), key=lambda each: (len(each), each))
    return [by_plain[each] for each in dict.fromkeys([*near, *within])][:most]


def _suggest(wanted: str, labels: Sequence[str]) -> str:
    near = nearest(wanted, labels)
    if near:
        return f"did you mean {' or '.join(repr(each) for each in near)}?"
    some = ", ".join(repr(each) for each in labels[:5])
    return f"it has {some}{', ...' if len(labels) > 5 else ''}"


def _desk_of_part(federation: Federation, number: int, everybody: Client) -> Desk:
    """Centralized: the rows of the one table that belong to one client, under the client's ids."""
    graph, rows, best = federation.clients[number], federation.rows[number], everybody.best["global"]
    ids = {label: place for place, label in enumerate(federation.relations)}
    chosen = np.array([ids[label] for label in graph.vocabulary.relations], dtype=np.int64)
    if everybody.learner.reciprocal:
        chosen = np.concatenate([chosen, chosen + len(federation.relations)])
    learner = replace(everybody.learner, relations=len(graph.vocabulary.relations))
    return Desk(graph, learner, {"global": Snapshot(best.entities[rows], best.relations[chosen], best.model)})


def _answers(
    desk: Desk, queries: Queries, numbers: NDArray[np.int64], scores: Floats, top: int, new_only: bool
) -> pl.DataFrame:
    """A frame of the best of each row of scores (batch, entities)."""
    if np.isnan(scores).any():
        raise ScoreError("the model scores some triples NaN", where=desk.graph.name, remedy="learn again, more slowly")
    if new_only:
        for row, (start, stop) in enumerate(zip(*desk.index.find(queries), strict=True)):
            scores[row, desk.index.answers[queries.side][start:stop]] = -np.inf
    chosen = [best_of(row, top) for row in scores]
    lengths = [len(each) for each in chosen]
    rows, answers = np.repeat(np.arange(len(chosen)), lengths), np.concatenate(chosen)
    anchors, relations = queries.anchors[rows], queries.relations[rows]
    ends = (anchors, answers) if queries.side == Side.TAIL else (answers, anchors)
    triples = np.stack([ends[0], relations, ends[1]], axis=1).astype(np.int32)
    heads, names, tails = zip(*desk.graph.vocabulary.labels(triples), strict=True) if len(triples) else ((), (), ())
    columns = {
        "query": numbers[rows],
        "head": heads,
        "relation": names,
        "tail": tails,
        "label": tails if queries.side == Side.TAIL else heads,
        "score": scores[rows, answers],
        "rank": np.concatenate([np.arange(1, length + 1) for length in lengths]),
        "known": desk.split_of(triples),
    }
    return pl.DataFrame(columns, schema=SCHEMA)


def best_of(scores: Floats, top: int) -> NDArray[np.int64]:
    """The ids of the highest scores, best first; of equals, the lower id. What is left out (-inf) never comes."""
    if top < len(scores):
        bar = np.partition(scores, len(scores) - top)[len(scores) - top]
        ids = np.flatnonzero(scores >= bar)
    else:
        ids = np.arange(len(scores))
    ids = ids[np.argsort(-scores[ids], kind="stable")][:top]
    return ids[scores[ids] > -np.inf]
