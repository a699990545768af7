"""`fedlu demo`: the whole story on a small medical graph, in about a minute."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedlu.display import Board, ForgettingBoard, screen, show_audit, show_deducible, show_gain, working

if TYPE_CHECKING:
    from fedlu.graph import Federation

ROUNDS: dict[str, Any] = {"rounds": 20, "warm_rounds": 8, "learning_rate": 0.01}
"""Enough for UMLS, which is small."""
NAMED = 5
"""Triples that are forgotten by name."""


def demo(
    out: Annotated[Path, typer.Option(help="The folder of all that the demo makes.")] = Path("demo"),
) -> None:
    """Partition UMLS, learn alone and together, forget, audit, and write a report: the whole story.

    Everything is made with the same functions as the other commands. Stopped at any moment, it goes on from there when
    it is run again.

    Example:

    `fedlu demo --out demo`
    """
    data = _partition(out / "umls")
    heading("2", "Learn: each client alone, then together as FedLU; no triple leaves its client")
    alone = _learn(out / "umls", out / "alone", "independent")
    together = _learn(out / "umls", out / "together", "fedlu")
    show_gain(alone["test"]["local"], together["test"]["blend"], "MRR x 100 on test triples, alone and together")
    _forget(data, out)
    heading("5", "A report: one page, offline")
    from fedlu.results.report import report

    with working("drawing the report"):
        report([out / "alone", out / "together", out / "forgotten"], out / "report.html")
    screen.print(f"wrote {out / 'report.html'}: open it in a browser")
    heading("Next", "with your own data")
    screen.print(
        "fedlu partition my-graph.tsv --clients 3 --out mine   # or a folder per owner with train, valid, test\n"
        "fedlu learn mine --out run\n"
        f"fedlu explore {out / 'together'}                        # ask it, in a browser\n"
        "fedlu --help"
    )


def heading(number: str, text: str) -> None:
    screen.print(f"\n{number}. {text}", style="bold")


def _partition(folder: Path) -> Federation:
    from fedlu import graph
    from fedlu.graph.federation import PROVENANCE

    heading("1", "A federation: UMLS, a medical graph, dealt out to three clients by relation")
    if not (folder / PROVENANCE).is_file():
        with working("partitioning"):
            made = graph.partition(graph.read("umls"), clients=3, by="random", seed=0)
        graph.save(made, folder, {"source": "umls", "clients": 3, "by": "random", "seed": 0})
    data = graph.load(folder)
    for client in data.clients:
        names = client.vocabulary
        screen.print(
            f"{client.name}: {len(client.known):,} triples, {len(names.entities)} entities, "
            f"{len(names.relations)} relations"
        )
    return data


def _learn(data: Path, out: Path, method: str) -> dict[str, Any]:
    from fedlu.results import runs

    settings = {key: value for key, value in ROUNDS.items() if method == "fedlu" or key != "warm_rounds"}
    with Board() as board:
        return runs.learn(
            data, method=method, out=out, resume=(out / "config.json").is_file(), watch=board.show, **settings
        )


def _forget(data: Federation, out: Path) -> None:
    from fedlu.results import audit, files, forgetting

    heading("3", "Forget: five triples by name, and everything about one entity")
    client = data.clients[0]
    triples = client.vocabulary.labels(client.train)
    named = [triples[place * len(triples) // NAMED] for place in range(NAMED)]
    asked = out / "erase.tsv"
    asked.write_text("".join("\t".join(triple) + "\n" for triple in named), encoding="utf-8")
    entity = client.vocabulary.entities[len(client.vocabulary.entities) // 2]
    for triple in named:
        screen.print(f"{client.name}: {' | '.join(triple)}")
    requests: list[tuple[Path, Path, dict[str, Any]]] = [
        (out / "together", out / "forgotten", {"triples": asked, "client": client.name}),
        (out / "forgotten", out / "erased", {"entity": entity}),
    ]
    for run, target, wish in requests:
        if not (target / "metrics.json").is_file():
            with ForgettingBoard() as board:
                forgetting.forget(run, target, watch=board.show, **wish)
        facts = files.read_json(target / forgetting.FORGETTING)
        what = f"everything about {entity}" if "entity" in wish else f"the {NAMED} triples"
        screen.print(f"forgot {what}: {facts['dropped']} triples, {facts['seconds']:.1f} s, in {target}")
    heading("4", "Audit: before, after, and re-trained without them")
    with Board() as progress:
        result, deducible = audit.audit(out / "forgotten", watch=progress.show, triples=asked, client=client.name)
    show_audit(result, f"{out / 'forgotten'}: what was forgotten")
    show_deducible(deducible)
