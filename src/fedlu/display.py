"""What a person sees on the terminal: tables, bars and spinners; quiet where the output is not a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from fedlu.federated.rounds import ForgetEvent, Progress, RoundEvent
    from fedlu.graph.statistics import FederationStatistics
    from fedlu.results.checkup import Finding
    from fedlu.results.comparison import Comparison
    from fedlu.results.matrix import Cell, States

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
            speed_estimate_period=24 * 3600,  # rounds may take minutes: Rich would forget one before the next
        )
        self.task = self.bar.add_task("starting", total=None)
        self.valid = ""

    def __enter__(self) -> Board:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def show(self, event: RoundEvent, where: Progress) -> None:
        if mrr := event.valid_mrr:
            self.valid = " valid MRR " + " ".join(f"{view} {value:.4f}" for view, value in mrr.items())
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
        again = result["membership"].get("retrained", {}).get(view)
        against = f"re-trained {again['auc']:.3f}" if again else "judged by a coin, since no model was re-trained"
        auc = f"membership AUC {found['auc']:.3f}, {found['low']:.3f} to {found['high']:.3f}; {against}"
        screen.print(f"{view}: {said}" + f" ({auc})" * bool(found["members"]), soft_wrap=True)
    reach = ", ".join(f"{name}: {number:,}" for name, number in result["reach"].items())
    screen.print(f"{reach}\n{result['statement']}")


def show_deducible(found: list[tuple[str, tuple[str, str, str], str]]) -> None:
    """Forgotten triples by name: on a terminal alone, so that no log comes to hold them."""
    if found and not notes.is_terminal:
        notes.print(f"still deducible: {len(found):,}; on a terminal they are named")
        return
    for client, labels, how in found:
        notes.print(f"still deducible ({how}): {client}: {' | '.join(labels)}", soft_wrap=True)


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
            numbers = (f"{100 * metrics[name]:.2f}" if name in metrics else "" for name in names)
            table.add_row(view if not place else "", client, *numbers, end_section=place == len(rows) - 1)
    screen.print(table)


def show_predictions(answers: list[dict[str, Any]], title: str) -> None:
    """Best first; what the client knows already is marked with its split, what is new stands out."""
    table = Table(title=title, title_justify="left", caption="new is what the client does not have", min_width=40)
    table.add_column("rank", justify="right")
    table.add_column("label", overflow="fold")
    table.add_column("score", justify="right")
    table.add_column("known")
    for each in answers:
        known = each["known"]
        style = None if known else "bold"
        table.add_row(str(each["rank"]), each["label"], f"{each['score']:.3f}", known or "new", style=style)
    screen.print(table)


def show_findings(findings: list[Finding]) -> None:
    """What `fedlu doctor` found; below a finding that is not well, what to do."""
    marks = {"ok": ("ok  ", "green"), "warn": ("look", "yellow"), "fail": ("FAIL", "red")}
    for each in findings:
        mark, style = marks[each.status]
        screen.print(mark, style=style, end=" ")
        screen.print(f"{each.name}: {each.found}")
        if each.fix:
            screen.print(f"     {each.fix}", style="dim" if each.status == "ok" else style)


def show_gain(alone: dict[str, Any], together: dict[str, Any], title: str) -> None:
    """What each client gains by learning with the others."""
    table = Table(title=title, title_justify="left", min_width=50)
    for name in ("client", "alone", "together", "gain"):
        table.add_column(name, justify="left" if name == "client" else "right", overflow="fold")
    rows = {name: (alone["clients"][name]["mrr"], together["clients"][name]["mrr"]) for name in alone["clients"]}
    rows["all, weighted"] = alone["weighted"]["mrr"], together["weighted"]["mrr"]
    for name, (before, after) in rows.items():
        table.add_row(name, f"{100 * before:.1f}", f"{100 * after:.1f}", f"{100 * (after - before):+.1f}")
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


class MatrixBoard:
    """The cells of a matrix, live on a terminal; elsewhere, a line for each cell that has ended."""

    SIGNS: ClassVar = {"waiting": "·", "running": "▶", "done": "✓", "failed": "✗", "left out": "–"}

    def __init__(self) -> None:
        from rich.live import Live

        self.live = Live(console=notes, auto_refresh=False, transient=True)
        self.told: set[Cell] = set()

    def __enter__(self) -> MatrixBoard:
        if notes.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.live.stop()

    def show(self, states: States) -> None:
        if notes.is_terminal:
            self.live.update(self.table(states), refresh=True)
            return
        for cell, state in states.items():
            if state.what not in ("waiting", "running") and cell not in self.told:
                self.told.add(cell)
                said = state.detail or (f"{state.seconds:.1f} s" if state.seconds else "was there")
                notes.print(f"{cell.name}: {state.what}, {said}")

    def table(self, states: States) -> Table:
        """A row for each model, a column for each method; of the seed that is at work, since a screen holds no more."""
        done = sum(state.what == "done" for state in states.values())
        title = f"{done} of {len(states)} cells done"
        seed = min((cell.seed for cell, each in states.items() if each.what in ("waiting", "running")), default=0)
        states = {cell: state for cell, state in states.items() if cell.seed == seed}
        kinds = list(dict.fromkeys((cell.method, cell.variant) for cell in states))
        table = Table(title=title)
        table.add_column("")
        for method, variant in kinds:
            table.add_column(f"{method}: {variant}" if variant else method)
        for model in dict.fromkeys(cell.model for cell in states):
            mine = {(cell.method, cell.variant): each for cell, each in states.items() if cell.model == model}
            cells = []
            for kind in kinds:
                state = mine[kind]
                said = f"{state.seconds:.0f} s" if state.seconds else "" if state.what == "failed" else state.detail
                cells.append(f"{self.SIGNS[state.what]} {said}")
            table.add_row(f"{model}, seed {seed}", *cells)
        return table


def show_comparison(comparison: Comparison) -> None:
    """The last column of each row against the paper's; the files have them all."""
    column = comparison.columns[-1] if comparison.table == "link-prediction" else comparison.columns[0]
    table = Table(title=f"{comparison.table}: {column} x 100", title_justify="left")
    for name in ("model", "row"):
        table.add_column(name)
    for name in ("paper", "ours", "difference", "seconds"):
        table.add_column(name, justify="right")
    model = ""
    for line in (line for line in comparison.lines if line.shown):
        figure = line.figures[column]
        cells = ["" if each is None else f"{each:.2f}" for each in (figure.paper, figure.mean)]
        if figure.deviation is not None:
            cells[1] += f" ± {figure.deviation:.2f}"
        cells.append("" if figure.difference is None else f"{figure.difference:+.2f}")
        if line.model != model and model:
            table.add_section()
        seconds = sum(line.seconds) / len(line.seconds)
        table.add_row("" if line.model == model else line.model, line.label, *cells, f"{seconds:.1f}")
        model = line.model
    screen.print(table)
