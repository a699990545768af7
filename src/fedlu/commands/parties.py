"""`fedlu server ...` and `fedlu site ...`: the two kinds of party of a federation, each in the foreground."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fedlu.display import screen

server = typer.Typer(name="server", help="Run the server of a federation.")
site = typer.Typer(name="site", help="Run a site of a federation, with its own data.")
Kit = Annotated[Path, typer.Argument(metavar="KIT", help="The startup kit of this party.")]


@server.command("start")
def start_server(
    kit: Kit,
    runs: Annotated[Path, typer.Option(help="Where the runs are kept: global tables and averaged metrics.")],
) -> None:
    """Serve until SIGTERM or Ctrl-C; a log is in the kit.

    Example:

    `fedlu server start kits/fed.example.org --runs runs`
    """
    from fedlu.flare import need_flare

    need_flare()
    from fedlu.flare.processes import run_server

    raise typer.Exit(run_server(kit, runs))


@server.command("status")
def server_status(
    kit: Kit,
    runs: Annotated[Path, typer.Option(help="Where the runs are kept.")],
) -> None:
    """Say whether the server runs, and how far its runs are.

    Example:

    `fedlu server status kits/fed.example.org --runs runs`
    """
    _status(kit, "server", runs, "state.json")


@site.command("start")
def start_site(
    kit: Kit,
    data: Annotated[Path, typer.Option(help="A folder with the site's train, valid and test files.")],
    key: Annotated[Path, typer.Option(help="The sites' alignment key.")],
    state: Annotated[Path, typer.Option(help="Where the site's own tables and events are kept.")],
) -> None:
    """Take part until SIGTERM or Ctrl-C; a log is in the kit.

    Example:

    `fedlu site start kits/north --data north --key alignment.key --state state`
    """
    from fedlu.flare import need_flare

    need_flare()
    from fedlu.flare.processes import SiteFiles, run_site

    raise typer.Exit(run_site(kit, SiteFiles(data, key, state)))


@site.command("status")
def site_status(
    kit: Kit,
    state: Annotated[Path, typer.Option(help="Where the site's own tables and events are kept.")],
) -> None:
    """Say whether the site runs, and which rounds it has trained.

    Example:

    `fedlu site status kits/north --state state`
    """
    _status(kit, "site", state, "rounds.json")


@site.command("forget")
def forget(
    kit: Kit,
    data: Annotated[Path, typer.Option(help="The folder with the site's train, valid and test files.")],
    state: Annotated[Path, typer.Option(help="Where the site's own tables and events are kept.")],
    run: Annotated[str, typer.Option("--run", help="The run that shall forget; it must be finished.")],
    triples: Annotated[Path | None, typer.Option(help="A file of triples.")] = None,
    entity: Annotated[str | None, typer.Option(help="Everything about this entity.")] = None,
    relation: Annotated[str | None, typer.Option(help="Every triple of this relation.")] = None,
    forget_sets: Annotated[bool, typer.Option("--forget-sets", help="The site's forget.txt.")] = False,
    goal: Annotated[str, typer.Option(help="indistinguishable or suppress.")] = "indistinguishable",
) -> None:
    """Ask for triples to be forgotten. The request stays here; the lead's next `fedlu federation forget` carries
    it out at every site, and leaves this one an audit.

    Example:

    `fedlu site forget kits/north --data north --state state --run first --entity "Ada Lovelace"`
    """
    from dataclasses import replace

    from fedlu.federated.wire import check_name
    from fedlu.flare.processes import kit_of
    from fedlu.graph.federation import load_client
    from fedlu.results.site_forgetting import ask

    name = kit_of(kit, "site")["name"]
    check_name(run, "run")
    wish = {"triples": triples, "entity": entity, "relation": relation, "forget_sets": forget_sets}
    number = ask(replace(load_client(data), name=name), state / run, goal=goal, **wish)
    screen.print(f"{number:,} triples will be forgotten at the next exchange; remove them from your data after that")


def _status(kit: Path, role: str, folder: Path, file: str) -> None:
    from fedlu.flare.processes import kit_of, who_runs

    party = kit_of(kit, role)
    running = who_runs(kit)
    screen.print(f"{party['name']}: " + (f"runs as process {running['pid']}" if running else "does not run"))
    for path in sorted(folder.glob(f"*/{file}")):
        state = json.loads(path.read_text(encoding="utf-8"))
        records = state.get("records") or [state.get("progress", {})]
        done = " (done)" if (path.parent / "metrics.json").is_file() else ""
        screen.print(f"{path.parent.name}: round {records[-1].get('round', 0)}{done}")
