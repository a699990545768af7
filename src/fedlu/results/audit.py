"""`audit`: was it forgotten? The run before, the run that forgot, and one re-trained without it, side by side.

Everything is measured in the ids of the retained data: triples with a name that vanished cannot be asked any more, and
are counted. The audit is given the request again and checks it against the ledger's hashes; it stores no triple.
"""

from __future__ import annotations

import importlib.metadata
import platform
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import fedlu
from fedlu.config import Settings
from fedlu.embedding.kernels import Ids
from fedlu.embedding.ranking import FilterIndex, average, rank_views, summarize
from fedlu.errors import FedluError, InputError
from fedlu.federated.client import Client
from fedlu.graph import federation as federations
from fedlu.graph.federation import ClientGraph, Federation
from fedlu.graph.ledger import Ledger
from fedlu.graph.triples import Triples
from fedlu.results import audit_words, evidence, files, runs
from fedlu.results.audit_requests import Labels, asked_for, check, check_whole, ends_of, in_ids, learned_of
from fedlu.results.forgetting import FORGETTING, carry_over
from fedlu.results.requests import Wish

SAMPLE = 5000
"""Retained triples of a client that are ranked, at most; and of the neighbourhood."""
CLOSE = 0.03
"""How far an attack on the forgotten may be from one on the re-trained model to be called indistinguishable."""
FEWEST = 20
"""Forgotten triples, matched with others of their relation, from which an attack can be judged at all."""
ERASED = "erased: what was asked about is no longer there to be asked"
"""The verdict where an entity or a relation went as a whole."""
STATEMENT = (
    "This is approximate unlearning: the evidence is empirical, and no proof. "
    "Re-training without the triples is the exact fallback."
)
METRICS = ("mrr", "hits@1", "hits@3", "hits@10")
Deducible = tuple[str, Labels, str]
"""A client, a triple that it forgot, and how one can still tell."""
Watch = runs.Watch


@dataclass(frozen=True)
class Exhibit:
    """A model to look at: clients of the retained data with its tables."""

    name: str
    clients: list[Client]


def audit(
    run: str | Path,
    *,
    retrain: bool = True,
    retrained: str | Path | None = None,
    data: str | Path | None = None,
    watch: Watch | None = None,
    **wish: Any,
) -> tuple[dict[str, Any], list[Deducible]]:
    """Write `audit.json` and `audit.md` into a run that forgot.

    Returns the first, and, for the screen alone, the forgotten triples that can still be deduced: client, triple, how.
    `wish` is the request as it was given to `forget`; without one, the federation's forget.txt. The re-trained run is
    kept in `retrained`, so that audits of the same request can share it; by default in the run itself. If that is
    finished it is used without `retrain`, too: an audit is never replaced by one that shows less. `data` says where the
    federation is now, if it was moved.
    """
    run, start = Path(run), time.perf_counter()
    again = _where_retrained(run, retrained, retrain=retrain)
    if not (run / FORGETTING).is_file():
        raise InputError("nothing was forgotten here", where=run, remedy="audit a run that `fedlu forget` wrote")
    facts, config = files.read_json(run / FORGETTING), runs.read_config(run)
    ledger, retained = Ledger.read(run), runs.data_of(run, data)
    federation, before = federations.load(data or config["data"]), Path(facts["from"])
    asked = asked_for(federation, before, Wish(**(wish or {"forget_sets": True})))
    listed = wish.get("triples") is not None
    check(ledger, asked, run)
    check_whole(ledger, asked, facts, run, listed=listed)
    if listed:
        asked = learned_of(federation, asked, facts)
    exhibits, absent = _exhibits(run, (before, data), retained, config, again, watch)
    forget = {client.name: in_ids(client, asked.get(client.name, [])) for client in retained.clients}
    ends = {client.name: ends_of(client, asked.get(client.name, [])) for client in retained.clients}
    views = [view for view in exhibits[0].clients[0].views if view != "blend"]
    shown = _deducible(retained, asked)
    result = {each.name: _ranks(each, forget, ends, views) for each in exhibits} | {
        "absent": absent,
        "membership": _membership(exhibits, forget, views),
        "relearning": _relearning(exhibits, forget, views),
        "reach": _reach(asked, forget, shown),
    }
    result["verdict"] = {view: _verdict(result, view) for view in views}
    result["cost"] = _cost(facts, again) | {"audit seconds": time.perf_counter() - start}
    result |= _provenance(facts, config)
    files.write_json(run / "audit.json", as_plain(result))
    (run / "audit.md").write_text(audit_words.in_words(result), encoding="utf-8")
    return result, shown


def _reach(asked: dict[str, list[Labels]], forget: dict[str, Triples], shown: list[Deducible]) -> dict[str, int]:
    total = sum(map(len, asked.values()))
    return {
        "asked": total,
        "cannot be asked any more": total - sum(map(len, forget.values())),
        "deducible": len({(client, triple) for client, triple, _ in shown}),
    }


def _cost(facts: dict[str, Any], again: Path | None) -> dict[str, Any]:
    return {
        "forgetting seconds": facts["seconds"],
        "forgetting bytes": facts["bytes"],
        "cycles": facts["cycles"],
        "reached": facts["reached"],
        "restored": facts.get("restored"),
        "retraining seconds": runs.read_metrics(again)["seconds"]["learning"] if again else None,
    }


def _provenance(facts: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """What was audited, and with which software."""
    versions = {name: importlib.metadata.version(name) for name in ("numpy", "numba", "torch")}
    return {
        "goal": facts["goal"],
        "without": facts["without"],
        "model": config["settings"]["model"],
        "method": config["settings"]["method"],
        "federation": config["federation"],
        "hashes": facts["hashes"],
        "versions": {"fedlu": fedlu.__version__, "python": platform.python_version(), **versions},
        "statement": STATEMENT,
    }


# --- the models ----------------------------------------------------------------------------------------------------


def _where_retrained(run: Path, retrained: str | Path | None, *, retrain: bool) -> Path | None:
    """The run to compare with, made or to be made; None if there is none and none is wanted."""
    own = run / "retrained"
    if retrain or (own / "metrics.json").is_file():
        return Path(retrained or own)
    if (run / "audit.json").is_file() and "retrained" in files.read_json(run / "audit.json"):
        what = "holds an audit that compares with a re-trained run, which this one would replace"
        raise InputError(what, where=run, remedy="say where that run is with --retrained, or move audit.json away")
    return None


def _exhibits(
    run: Path,
    before: tuple[Path, str | Path | None],
    retained: Federation,
    config: dict[str, Any],
    again: Path | None,
    watch: Watch | None,
) -> tuple[list[Exhibit], dict[str, str]]:
    """The models that there are, and why the others are absent; `before` is the raw run, and where its data is now."""
    settings, found, absent = runs.saved_settings(run), [], {}
    try:
        found.append(Exhibit("raw", _raw(*before, retained, settings)))
    except FedluError as gone:
        absent["raw"] = str(gone)
    found.append(Exhibit("forgotten", _party(run, retained, settings)))
    if again is not None:
        _retrain(again, retained, config, watch)
        found.append(Exhibit("retrained", _party(again, retained, settings)))
    else:
        absent["retrained"] = "not asked for"
    return found, absent


def _party(run: Path, data: Federation, settings: Settings) -> list[Client]:
    return runs.go_on(run, data, settings)[0].clients


def _raw(run: Path, data: str | Path | None, retained: Federation, settings: Settings) -> list[Client]:
    """The tables of the run before, in the ids of what is retained."""
    before = _party(run, runs.data_of(run, data), settings)
    after = runs.gather(retained, settings).clients
    for new, old in zip(after, before, strict=True):
        carry_over(new, old)
    return after


def _retrain(out: Path, retained: Federation, config: dict[str, Any], watch: Watch | None) -> None:
    """From scratch, with the same settings, whatever the recipe says now; done once, and resumed if it was stopped."""
    begun = (out / "config.json").is_file()
    if begun and files.read_json(out / "config.json")["fingerprint"] != retained.fingerprint:
        what = "was re-trained without other triples than these"
        raise InputError(what, where=out, remedy="share a re-trained run between audits of one request only")
    settings = asdict(Settings(**config["settings"]))  # a run of before has not all the settings of today
    runs.learn(
        retained,
        method=settings.pop("method"),
        model=settings.pop("model"),
        recipe=config["recipe"],
        out=out,
        resume=begun,
        watch=watch,
        **settings,
    )


# --- measures ------------------------------------------------------------------------------------------------------


def _sets(graph: ClientGraph, forget: Triples, ends: Ids) -> dict[str, Triples]:
    random, train = np.random.default_rng(0), graph.train
    near = np.isin(train[:, 0], ends) | np.isin(train[:, 2], ends)
    samples = {"retained": train, "neighbourhood": train[near]}
    return {
        "forget": forget,
        "test": graph.test,
        **{name: rows[np.sort(random.permutation(len(rows))[:SAMPLE])] for name, rows in samples.items()},
    }


def _ranks(exhibit: Exhibit, forget: dict[str, Triples], ends: dict[str, Ids], views: list[str]) -> dict[str, Any]:
    """By view and set: the mean over the clients, weighted by the number of triples.

    The forgotten are ranked against each other, as strangers; elsewhere they are filtered like all true triples, so
    that the numbers can be compared with those of before.
    """
    found: dict[str, dict[str, dict[str, Any]]] = {view: {} for view in views}
    for client in exhibit.clients:
        graph = client.graph
        sizes = len(graph.vocabulary.entities), len(graph.vocabulary.relations)
        known = FilterIndex.of(graph.known, *sizes)
        with_forgotten = FilterIndex.of(np.concatenate([graph.known, forget[client.name]]), *sizes)
        for name, triples in _sets(graph, forget[client.name], ends[client.name]).items():
            if not len(triples):
                continue
            hidden = known if name == "forget" else with_forgotten
            score = partial(client.scores, best=True)
            ranks = rank_views(score, views, triples, hidden)
            for view in views:
                found[view].setdefault(name, {})[client.name] = summarize(ranks[view])
    return {
        view: {
            name: {metric: average(clients)["weighted"][metric] for metric in METRICS} for name, clients in sets.items()
        }
        for view, sets in found.items()
    }


def _membership(exhibits: list[Exhibit], forget: dict[str, Triples], views: list[str]) -> dict[str, Any]:
    """Forgotten against test triples of the same relations, by how well they are known; and by how much that fell."""
    known: dict[str, dict[str, list[Any]]] = {each.name: {} for each in exhibits}
    for each in exhibits:
        for view in views:
            members, others = [], []
            for client in each.clients:
                ours, theirs = evidence.matched(forget[client.name], client.graph.test)
                members.append(evidence.known_by(client, view, forget[client.name][ours]))
                others.append(evidence.known_by(client, view, client.graph.test[theirs]))
            known[each.name][view] = [np.concatenate(members), np.concatenate(others)]
    edges = {view: evidence.bins([each for by in known.values() for each in by[view]]) for view in views}
    result: dict[str, Any] = {
        name: {
            view: asdict(evidence.attack(*pair)) | {"shares": evidence.shares(pair, edges[view])}
            for view, pair in by_view.items()
        }
        for name, by_view in known.items()
    }
    if "raw" in known:
        result["before and after"] = {
            view: asdict(evidence.attack(*(a - b for a, b in zip(pair, known["forgotten"][view], strict=True))))
            for view, pair in known["raw"].items()
        }
    return result


def _relearning(exhibits: list[Exhibit], forget: dict[str, Triples], views: list[str]) -> dict[str, Any]:
    """Steps until the forgotten are known as well as in the run before; the mean over the clients that forgot."""
    by_name = {each.name: each for each in exhibits}
    if "raw" not in by_name:
        return {}
    result: dict[str, dict[str, float]] = {}
    for each in exhibits:
        if each.name == "raw":
            continue
        result[each.name] = {}
        for view in views:
            steps = []
            for client, raw in zip(each.clients, by_name["raw"].clients, strict=True):
                if len(forget[client.name]):
                    level = float(evidence.known_by(raw, view, forget[client.name]).mean())
                    steps.append(evidence.relearn_steps(client, view, forget[client.name], level))
            result[each.name][view] = float(np.mean(steps)) if steps else 0.0
    return result


def _deducible(retained: Federation, asked: dict[str, list[Labels]]) -> list[Deducible]:
    """Relations that were erased get numbers beyond those that are there."""
    found: list[Deducible] = []
    held = {client.name: set(client.vocabulary.labels(client.known)) for client in retained.clients}
    for client in retained.clients:
        entities, relations = client.vocabulary.entity_ids, dict(client.vocabulary.relation_ids)
        there = [(h, r, t) for h, r, t in asked.get(client.name, []) if h in entities and t in entities]
        rows = [(entities[h], relations.setdefault(r, len(relations)), entities[t]) for h, r, t in there]
        hit = evidence.deducible(client, np.array(rows, dtype=np.int32).reshape(-1, 3))
        found += [(client.name, there[number], "another relation") for number in np.flatnonzero(hit)]
        for triple in asked.get(client.name, []):
            if any(triple in triples for name, triples in held.items() if name != client.name):
                found.append((client.name, triple, "another client"))
    return found


def _verdict(result: dict[str, Any], view: str) -> str:
    reach = result["reach"]
    return ERASED if reach["asked"] == reach["cannot be asked any more"] else verdict(result["membership"], view)


def verdict(membership: dict[str, Any], view: str) -> str:
    """By comparison with re-training; without it, with a coin. What chance explains is no difference."""
    found = membership["forgotten"][view]
    mine = found["auc"]
    reference = membership["retrained"][view]["auc"] if "retrained" in membership else 0.5
    if not np.isfinite(mine) or not np.isfinite(reference) or found["members"] < FEWEST:
        return "not enough triples to tell"
    if abs(mine - reference) <= CLOSE or found["low"] <= reference <= found["high"]:
        return "indistinguishable"
    return "under-forgotten" if mine > reference else "over-forgotten"


# --- at a site -----------------------------------------------------------------------------------------------------


def audit_of_one(raw: Client, forgotten: Client, asked: list[Labels]) -> dict[str, Any]:
    """What a client can tell from its own data, before and after; it has no others to re-train with."""
    exhibits = [Exhibit("raw", [raw]), Exhibit("forgotten", [forgotten])]
    forget = {forgotten.name: in_ids(forgotten.graph, asked)}
    ends = {forgotten.name: ends_of(forgotten.graph, asked)}
    views = [view for view in forgotten.views if view != "blend"]
    found: dict[str, Any] = {each.name: _ranks(each, forget, ends, views) for each in exhibits}
    found["membership"] = _membership(exhibits, forget, views)
    found["relearning"] = _relearning(exhibits, forget, views)
    found["reach"] = {"asked": len(asked), "cannot be asked any more": len(asked) - len(forget[forgotten.name])}
    found["verdict"] = {view: _verdict(found, view) for view in views}
    plain: dict[str, Any] = as_plain({**found, "statement": STATEMENT})
    return plain


def as_plain(value: Any) -> Any:
    """JSON has no NaN."""
    if isinstance(value, dict):
        return {key: as_plain(each) for key, each in value.items()}
    return None if isinstance(value, float) and not np.isfinite(value) else value
