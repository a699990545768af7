"""What the explorer tells of a run, as plain values for JSON: one question, one function. Read-only.

Triples are told here: the explorer runs where the data is, for whoever may see it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedlu.embedding.ranking import Queries, Side, rank_views, summarize
from fedlu.embedding.short_lists import Few
from fedlu.graph.federation import SPLITS
from fedlu.results.prediction import Desk, LearnedRun, best_of, desk_ids, nearest

SAMPLE = 500
"""Test triples of one relation that are ranked at most: enough to tell a good relation from a bad one."""
NEEDED = 5
"""Relations with fewer test triples than this are not judged."""
MOST_ANSWERS = 100
PLAIN = frozenset({"client", "relation", "head", "tail", "top", "new_only"})
TOPS = frozenset(str(top) for top in range(1, MOST_ANSWERS + 1))
KNOWN = [*(json.dumps(split) for split in SPLITS), "null"]


@dataclass(frozen=True)
class Asked:
    """One end of a triple is missing: which, and what is known of the other."""

    client: str
    side: Side
    anchor: int
    relation: int
    top: int
    new_only: bool


def asked(
    run: LearnedRun, client: str, relation: str, head: str | None, tail: str | None, top: int, new_only: bool
) -> Asked:
    """The question in ids; a name that is unknown is refused, with what may have been meant."""
    side, anchor, number = desk_ids(run.desk(client), (head, relation, tail))
    return Asked(client, side, anchor, number, top, new_only)


def asked_plainly(run: LearnedRun, query: Mapping[str, str]) -> Asked | None:
    """The question of a request that has nothing unusual about it; None for all others, which need a closer look."""
    desk = run.desks.get(query.get("client", ""))
    if desk is None or not query.keys() <= PLAIN or ("head" in query) == ("tail" in query):
        return None
    vocabulary, side = desk.graph.vocabulary, Side.HEAD if "tail" in query else Side.TAIL
    anchor = vocabulary.entity_ids.get(query["head" if side == Side.TAIL else "tail"])
    relation = vocabulary.relation_ids.get(query.get("relation", ""))
    top, new_only = query.get("top", "10"), query.get("new_only", "false")
    if anchor is None or relation is None or top not in TOPS or new_only not in ("true", "false"):
        return None
    return Asked(query["client"], side, anchor, relation, int(top), new_only == "true")


@dataclass(frozen=True)
class Scored:
    """Questions of one kind, by their places, and the best of all entities for them."""

    places: list[int]
    client: str
    side: Side
    few: Few


def score_together(run: LearnedRun, questions: Sequence[Asked]) -> list[Scored]:
    """Those to one client and side are scored together."""
    kinds: dict[tuple[str, Side, int], list[int]] = {}
    for place, question in enumerate(questions):
        kinds.setdefault((question.client, question.side, question.top), []).append(place)
    scored = []
    for (client, side, top), places in kinds.items():
        chosen = [questions[place] for place in places]
        queries = Queries(
            np.array([each.anchor for each in chosen], dtype=np.int64),
            np.array([each.relation for each in chosen], dtype=np.int64),
            side,
        )
        few = run.desk(client).best_few(queries, run.views, top, np.array([each.new_only for each in chosen]))
        scored.append(Scored(places, client, side, few))
    return scored


def written(run: LearnedRun, scored: Sequence[Scored]) -> list[bytes]:
    """Answers as JSON, in the order of the questions."""
    answers = [b""] * sum(len(each.places) for each in scored)
    for each in scored:
        for place, answer in zip(each.places, _written(run, each), strict=True):
            answers[place] = answer
    return answers


def answer_together(run: LearnedRun, questions: Sequence[Asked]) -> list[bytes]:
    return written(run, score_together(run, questions))


def scores_of(run: LearnedRun, desk: Desk, queries: Queries) -> dict[str, NDArray[np.float32]]:
    """(batch, entities) by view; the blend is made of the other two."""
    found = {view: desk.scores(queries, view) for view in run.views if view != "blend"}
    if "blend" in run.views:
        found["blend"] = found["local"] + found["global"]
    return found


def _written(run: LearnedRun, scored: Scored) -> Iterator[bytes]:
    """JSON by filling in a form: thirty small objects for every answer would cost more than the scores."""
    desk, few = run.desk(scored.client), scored.few
    labels, splits = desk.labels_as_json, desk.answer_splits[scored.side]
    known = np.where(few.places < 0, len(SPLITS), splits[few.places] if len(splits) else 0)
    counts = (few.ids >= 0).sum(2)
    rows = zip(few.ids.tolist(), few.scores.tolist(), known.tolist(), counts.tolist(), strict=True)
    for ids, scores, places, lengths in rows:
        values: list[str | float] = []
        for of_view in zip(ids, scores, places, lengths, strict=True):
            for number, score, place in zip(*(each[: of_view[3]] for each in of_view[:3]), strict=True):
                values += labels[number], score, KNOWN[place]
        yield (_form(run.views, tuple(lengths)) % tuple(values)).encode()


@lru_cache(maxsize=256)
def _form(views: tuple[str, ...], lengths: tuple[int, ...]) -> str:
    """The answer with gaps for label, score and split."""
    row = '{{"rank":{},"label":%s,"score":%.4f,"known":%s}}'
    lists = [",".join(row.format(rank) for rank in range(1, length + 1)) for length in lengths]
    return "{" + ",".join(f'"{view}":[{each}]' for view, each in zip(views, lists, strict=True)) + "}"


# --- who is there -------------------------------------------------------------------------------------------------


def clients(run: LearnedRun) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "entities": len(desk.graph.vocabulary.entities),
            "relations": len(desk.graph.vocabulary.relations),
            "triples": len(desk.graph.known),
        }
        for name, desk in run.desks.items()
    ]


@dataclass(frozen=True)
class Names:
    """A client's entities, prepared for searching."""

    labels: tuple[str, ...]
    plain: tuple[str, ...]
    """In small letters."""
    degrees: tuple[int, ...]
    ids: dict[str, int]


def names_of(desk: Desk) -> Names:
    vocabulary = desk.graph.vocabulary
    degrees = np.bincount(desk.graph.known[:, [0, 2]].ravel(), minlength=len(vocabulary.entities))
    plain = tuple(label.casefold() for label in vocabulary.entities)
    return Names(vocabulary.entities, plain, tuple(degrees.tolist()), vocabulary.entity_ids)


def find_entities(names: Names, text: str, limit: int) -> list[dict[str, Any]]:
    """Entities whose names begin with the text, then those that hold it, well-connected first; or what is like it."""
    wanted = text.casefold()
    matches = [number for number, plain in enumerate(names.plain) if wanted in plain]
    matches.sort(key=lambda number: (not names.plain[number].startswith(wanted), -names.degrees[number], number))
    if not matches:
        matches = [names.ids[label] for label in nearest(text, names.labels, most=limit)]
    return [{"label": names.labels[number], "degree": names.degrees[number]} for number in matches[:limit]]


def relations(run: LearnedRun, client: str) -> list[dict[str, Any]]:
    graph = run.desk(client).graph
    counts = np.bincount(graph.known[:, 1], minlength=len(graph.vocabulary.relations))
    return [{"label": label, "triples": int(counts[n])} for n, label in enumerate(graph.vocabulary.relations)]


def neighbours(run: LearnedRun, client: str, entity: str, limit: int) -> dict[str, Any]:
    """What the client knows of an entity, and the entities whose rows are most like its own."""
    desk = run.desk(client)
    number = entity_id(desk, entity)
    known = desk.graph.known
    about = known[(known[:, 0] == number) | (known[:, 2] == number)]
    view = next(iter(desk.best))
    rows = desk.best[view].entities
    sizes = np.linalg.norm(rows, axis=1)
    likeness = (rows @ rows[number]) / np.maximum(sizes * sizes[number], 1e-12)
    likeness[number] = -np.inf
    names = desk.graph.vocabulary.entities
    alike = best_of(likeness.astype(np.float32), min(limit, 10))
    return {
        "entity": entity,
        "triples": told(desk, about[:limit]),
        "count": len(about),
        "alike": [{"label": names[n], "cosine": round(float(likeness[n]), 4)} for n in alike.tolist()],
        "view": view,
    }


def told(desk: Desk, triples: NDArray[np.int32]) -> list[dict[str, Any]]:
    """Triples by name, with the split that each stands in."""
    labels, splits = desk.graph.vocabulary.labels(triples), desk.split_of(triples)
    return [{"head": h, "relation": r, "tail": t, "known": s} for (h, r, t), s in zip(labels, splits, strict=True)]


def entity_id(desk: Desk, entity: str) -> int:
    relation = desk.graph.vocabulary.relations[0]
    return desk_ids(desk, (entity, relation, None))[1]


# --- why ----------------------------------------------------------------------------------------------------------


def evidence(run: LearnedRun, client: str, head: str, relation: str, tail: str, limit: int) -> dict[str, Any]:
    """Known triples that may speak for a prediction: direct links of the two, paths of two steps, like cases."""
    desk = run.desk(client)
    _, h, r = desk_ids(desk, (head, relation, None))
    t = entity_id(desk, tail)
    known = desk.graph.known
    itself = (known[:, 0] == h) & (known[:, 1] == r) & (known[:, 2] == t)
    known = known[~itself]
    direct = known[((known[:, 0] == h) & (known[:, 2] == t)) | ((known[:, 0] == t) & (known[:, 2] == h))]
    return {
        "direct": told(desk, direct[:limit]),
        "paths": [told(desk, np.stack(path)) for path in _paths(known, h, t, limit)],
        "same_tail": told(desk, known[(known[:, 1] == r) & (known[:, 2] == t)][:limit]),
        "same_head": told(desk, known[(known[:, 1] == r) & (known[:, 0] == h)][:limit]),
    }


def _paths(known: NDArray[np.int32], h: int, t: int, limit: int) -> list[list[NDArray[np.int32]]]:
    """Two triples that lead from h over a third entity to t, whichever way they point; over rare entities first."""

    def around(end: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        triples = known[(known[:, 0] == end) | (known[:, 2] == end)]
        return triples, np.where(triples[:, 0] == end, triples[:, 2], triples[:, 0])

    if h == t:
        return []
    first, over = around(h)
    second, back = around(t)
    middle = np.setdiff1d(np.intersect1d(over, back), [h, t])
    if not len(middle):
        return []
    degree = np.bincount(known[:, [0, 2]].ravel())
    middle = middle[np.argsort(degree[middle], kind="stable")]
    return [[first[over == m][0], second[back == m][0]] for m in middle[:limit].tolist()]


# --- how good -----------------------------------------------------------------------------------------------------


def rank_of(run: LearnedRun, client: str, head: str, relation: str, tail: str) -> dict[str, Any]:
    """Where each view ranks the two ends of a triple, other known answers left out; None if a name is not there."""
    desk = run.desk(client)
    vocabulary = desk.graph.vocabulary
    if not {head, tail} <= vocabulary.entity_ids.keys() or relation not in vocabulary.relation_ids:
        return {"known": None, "views": None, "entities": len(vocabulary.entities)}
    ids = (vocabulary.entity_ids[head], vocabulary.relation_ids[relation], vocabulary.entity_ids[tail])
    triple = np.array([ids], dtype=np.int32)
    ranks = rank_views(lambda queries: scores_of(run, desk, queries), run.views, triple, desk.index)
    views = {}
    for view, found in ranks.items():
        head_rank, tail_rank = found.values()[0].tolist()
        views[view] = {"head": head_rank, "tail": tail_rank}
    return {"known": desk.split_of(triple)[0], "views": views, "entities": len(vocabulary.entities)}


def quality_of(run: LearnedRun, client: str, number: int) -> dict[str, Any] | None:
    """How well a relation's test triples are ranked, by view; None if there are too few to tell."""
    desk = run.desk(client)
    test = desk.graph.test[desk.graph.test[:, 1] == number]
    if len(test) < NEEDED:
        return None
    step = -(-len(test) // SAMPLE)  # every so manyth, if there are many
    ranks = rank_views(lambda queries: scores_of(run, desk, queries), run.views, test[::step], desk.index)
    metrics = {view: summarize(found) for view, found in ranks.items()}
    views = {
        view: {name: round(each[name], 4) for name in ("mrr", "hits@1", "hits@10")} for view, each in metrics.items()
    }
    label = desk.graph.vocabulary.relations[number]
    return {"relation": label, "test": len(test), "ranked": len(test[::step]), "views": views}
