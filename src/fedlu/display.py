"""What a person sees on the terminal: tables, bars and spinners; quiet where the output is not a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from fedlu.federated.rounds import ForgetEvent, Progress, RoundEvent
    from fedlu.graph.statistics import FederationStatistics

# No markup: names and paths may hold anything, brackets included.
screen = Console(soft_wrap=not sys.stdout.isatty(), highlight=False, markup=False)
notes = Console(stderr=True, highlight=False, markup=False)


@contextmanager
def working(what: str) -> Iterator[None]:
    """A spinner on a terminal, nothing elsewhere."""
    if not notes.is_terminal:
        yield
        return
    with notes.status(f"{what} ..."):
        yield


class Board:
    """A line that follows the rounds on a terminal, and silence elsewhere."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self.bar = Progress(
            *(TextColumn(column, markup=False) if isinstance(column, str) else column for column in columns),
            console=notes,
            disable=not notes.is_terminal,
        )
        self.task = self.bar.add_task("starting", total=None)
        self.valid = ""

    def __enter__(self) -> Board:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def show(self, event: RoundEvent, where: Progress) -> None:
        if event.valid:
            views = (f"{view} {found['weighted']['mrr']:.4f}" for view, found in event.valid.items())
            self.valid = " valid MRR " + " ".join(views)
        losses = [loss for tables in event.losses.values() for loss in tables.values()]
        words = f"loss {sum(losses) / len(losses):.3f}{self.valid}"
        self.bar.update(self.task, description=words, completed=event.round, total=where.rounds)


class ForgettingBoard:
    """A line that follows the cycles of forgetting on a terminal, and silence elsewhere."""

    def __enter__(self) -> ForgettingBoard:
        self.status = notes.status("forgetting ...")
        if notes.is_terminal:
            self.status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.status.stop()

    def show(self, event: ForgetEvent) -> None:
        valid = " ".join(f"{view} {mrr:.4f}" for view, mrr in (event.valid or {}).items())
        self.status.update(f"forgetting: cycle {event.cycle}" + f", valid MRR {valid}" * bool(valid))


def show_audit(result: dict[str, Any], title: str) -> None:
    """Before, after and re-trained side by side, in percent; then the verdicts."""
    models = [name for name in ("raw", "forgotten", "retrained") if name in result]
    table = Table(title=title, title_justify="left", caption="x 100, weighted by the number of triples")
    for name in ("view", "set"):
        table.add_column(name)
    for metric in ("hits@1", "mrr"):
        for model in models:
            table.add_column(f"{metric}\n{model}", justify="right")
    for view in result["verdict"]:
        for name in ("forget", "test", "retained", "neighbourhood"):
            cells = [result[model][view].get(name, {}).get(metric) for metric in ("hits@1", "mrr") for model in models]
            table.add_row(view, name, *("" if cell is None else f"{100 * cell:.2f}" for cell in cells))
    screen.print(table)
    for view, said in result["verdict"].items():
        found = result["membership"]["forgotten"][view]
        screen.print(f"{view}: {said} (membership AUC {found['auc']:.3f}, {found['low']:.3f} to {found['high']:.3f})")
    reach = ", ".join(f"{name}: {number:,}" for name, number in result["reach"].items())
    screen.print(f"{reach}\n{result['statement']}")


def show_metrics(views: dict[str, Any], title: str) -> None:
    """One row per view and client, in percent as the papers print them."""
    names = ("mrr", "hits@1", "hits@3", "hits@10")
    table = Table(title=title, title_justify="left", caption="x 100; weighted by the number of triples", min_width=50)
    table.add_column("view")
    table.add_column("client", overflow="fold")
    for name in names:
        table.add_column(name, justify="right")
    for view, found in views.items():
        rows = {"all, weighted": found["weighted"], "all, plain mean": found["mean"], **found["clients"]}
        for place, (client, metrics) in enumerate(rows.items()):
            numbers = (f"{100 * metrics[name]:.2f}" for name in names)
            table.add_row(view if not place else "", client, *numbers, end_section=place == len(rows) - 1)
    screen.print(table)


def show_statistics(statistics: FederationStatistics) -> None:
    sizes = Table(title=f"{statistics.name}: {len(statistics.clients)} clients", title_justify="left")
    shape = Table()
    for table in (sizes, shape):
        table.add_column("client", overflow="fold")
    for name in ("relations", "entities", "train", "valid", "test", "forget"):
        sizes.add_column(name, justify="right")
    for name in ("mean degree", "median", "largest", "clustering"):
        shape.add_column(name, justify="right")
    shape.add_column("entities of degree\n1, 2-3, 4-7, ...", no_wrap=True)
    for client in statistics.clients:
        counts = (client.relations, client.entities, *client.triples.values())
        sizes.add_row(client.name, *(f"{count:,}" for count in counts))
        shape.add_row(
            client.name,
            f"{client.average_degree:.2f}",
            f"{degree_quantile(client.degrees, 0.5):,}",
            f"{max(client.degrees):,}",
            f"{client.clustering_coefficient:.3f}",
            sparkline(client.degrees),
        )
    screen.print(sizes)
    screen.print(shape)
    screen.print(
        f"mean pairwise overlap: {statistics.mean_entity_overlap:,.0f} entities, "
        f"{statistics.mean_relation_overlap:,.0f} relations"
    )
    owners = ", ".join(f"{count:,} have {number}" for number, count in statistics.owners.items())
    screen.print(
        f"owners of the {statistics.entities:,} entities: {owners}; relations in all: {statistics.relations:,}"
    )
    for warning in statistics.warnings:
        screen.print(f"warning: {warning}", style="yellow")


def degree_quantile(degrees: dict[int, int], share: float) -> int:
    """The smallest degree that at least this share of the entities do not exceed."""
    left = share * sum(degrees.values())
    for degree, count in sorted(degrees.items()):
        left -= count
        if left <= 0:
            return degree
    return max(degrees)


def sparkline(degrees: dict[int, int]) -> str:
    """A bar for each doubling of the degree; the highest bar is the most common class."""
    classes = [0] * max(degree.bit_length() for degree in degrees)
    for degree, count in degrees.items():
        classes[degree.bit_length() - 1] += count
    return "".join(" " if not count else "▁▂▃▄▅▆▇█"[(8 * count - 1) // max(classes)] for count in classes)
