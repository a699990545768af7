"""`fedlu federation ...`: make the kits and the key of a federation, and lead its runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from fedlu.display import Board, notes, screen, show_metrics, working

app = typer.Typer(name="federation", help="Make a federation between organisations, and lead its runs.")
Kit = Annotated[Path, typer.Argument(metavar="KIT", help="The lead's startup kit.")]


@app.command()
def init(
    plan: Annotated[Path, typer.Argument(metavar="FEDERATION.TOML", help="Name, server, sites and people.")],
    out: Annotated[Path, typer.Option(help="A new folder, for a kit per party and the authority's own key.")],
) -> None:
    """Make startup kits, one folder for each party, with certificates of a new authority; jobs can bring no code.

    Example:

    `fedlu federation init federation.toml --out kits`
    """
    from fedlu.flare import need_flare

    need_flare()
    from fedlu.flare import provisioning

    for name, folder in provisioning.init(provisioning.read_plan(plan), out).items():
        screen.print(f"{folder}  for {name}")
    screen.print(f"{out / 'authority'}  stays with you: it can make more kits")


@app.command("add-site")
def add_site(
    kits: Annotated[Path, typer.Argument(metavar="KITS", help="The folder that `init` made.")],
    name: Annotated[str, typer.Argument(help="The site's name.")],
    organisation: Annotated[str, typer.Option(help="Whose it is.")],
) -> None:
    """Make a kit for another site; the others go on with theirs.

    Example:

    `fedlu federation add-site kits east --organisation east_hospital`
    """
    from fedlu.flare import need_flare

    need_flare()
    from fedlu.flare import provisioning

    screen.print(f"{provisioning.add_site(kits, name, organisation)}  for {name}")


@app.command()
def key(
    out: Annotated[Path, typer.Option(help="The file to write; it must not exist.")],
) -> None:
    """Make the key by which the sites align their entities; give it to every site, and never to the server.

    Example:

    `fedlu federation key --out alignment.key`
    """
    from fedlu.flare.keys import new_key

    new_key(out)
    screen.print(f"{out}  for the sites, by a way of their own")


@app.command()
def learn(
    kit: Kit,
    run: Annotated[str, typer.Option("--run", help="The name of the run; a run that was stopped goes on.")],
    method: Annotated[str, typer.Option(help="independent, fede, fedprox, fedec or fedlu.")] = "fedlu",
    model: Annotated[
        str, typer.Option(help="TransE, TransE-L2, DistMult, ComplEx, RotatE, or pykeen:NAME.")
    ] = "TransE",
    recipe: Annotated[str, typer.Option(help="fast, paper or strong.")] = "fast",
    seed: Annotated[int, typer.Option(help="Same seed, key and data, same embeddings.")] = 0,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a setting; may be repeated.")
    ] = None,
    compress: Annotated[
        str | None, typer.Option(help="Rows on the wire: none, fp16 (half the bytes) or int8 (a quarter).")
    ] = None,
    quorum: Annotated[float, typer.Option(help="The share of sites that must answer well in a round.")] = 1.0,
    deadline: Annotated[int, typer.Option(help="Seconds that a site has for an answer.")] = 3600,
    silence: Annotated[int, typer.Option(help="Seconds without a sign of life after which a site is gone.")] = 60,
    aggregate: Annotated[str, typer.Option(help="mean, median or trimmed.")] = "mean",
    norm_bound: Annotated[float, typer.Option(help="Drop a site's answer if a row is longer than this.")] = 1000.0,
    sites: Annotated[str, typer.Option(help="Names with commas between them; all of the kit by default.")] = "",
    patience: Annotated[int, typer.Option(help="Seconds without a new round before giving up.")] = 3600,
) -> None:
    """Learn over the sites of a federation. Broken jobs are sent again, and go on where they were.

    Examples:

    `fedlu federation learn kits/lead@example.org --run first`

    `fedlu federation learn kits/lead@example.org --run second --quorum 0.6 --deadline 600 --aggregate median`
    """
    from fedlu.flare import need_flare

    need_flare()
    from fedlu.config import parse_overrides, resolve
    from fedlu.federated.arrivals import Rules
    from fedlu.federated.wire import check_name
    from fedlu.flare import lead

    check_name(run, "run")
    overrides = {**parse_overrides(settings or []), "seed": seed}
    if compress is not None:
        overrides["compress"] = compress
    values = resolve(recipe, method=method, model=model, overrides=overrides)
    order = lead.Order(run, dict(vars(values)), Rules(quorum, aggregate, norm_bound), deadline, silence, recipe)
    order.sites = [site.strip() for site in sites.split(",") if site.strip()]
    with Board() as board:
        metrics = lead.learn(kit, order, watch=board.show, say=notes.print, patience=patience)
    show_metrics(metrics["test"], f"{run}: test, after {metrics['rounds']} rounds")


@app.command()
def evaluate(
    kit: Kit,
    run: Annotated[str, typer.Option("--run", help="A finished run.")],
    split: Annotated[str, typer.Option(help="valid or test.")] = "test",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, by view, in fractions.")] = False,
) -> None:
    """Let the sites rank a split with the best tables they kept; only means come back.

    Example:

    `fedlu federation evaluate kits/lead@example.org --run first --split valid`
    """
    from fedlu.flare import need_flare

    need_flare()
    from fedlu.config import Settings
    from fedlu.federated.arrivals import Rules
    from fedlu.federated.wire import check_name
    from fedlu.flare import lead

    check_name(run, "run")
    order = lead.Order(run, dict(vars(Settings())), Rules(), evaluate=split)
    with working("ranking"):
        found = lead.learn(kit, order, say=notes.print, patience=600)
    if as_json:
        sys.stdout.write(json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    else:
        show_metrics(found, f"{run}: {split}")


@app.command()
def forget(
    kit: Kit,
    run: Annotated[str, typer.Option("--run", help="A finished run; it is not changed.")],
    into: Annotated[str, typer.Option("--into", help="The name of the run that has forgotten.")],
) -> None:
    """Carry out what the sites were asked to forget with `fedlu site forget`; who asked, and for what, is not said.

    Example:

    `fedlu federation forget kits/lead@example.org --run first --into second`
    """
    from fedlu.flare import need_flare

    need_flare()
    from fedlu.config import Settings
    from fedlu.federated.arrivals import Rules
    from fedlu.federated.wire import check_name
    from fedlu.flare import lead

    check_name(run, "run")
    check_name(into, "run")
    order = lead.Order(run, dict(vars(Settings())), Rules(), into=into)
    with working("forgetting"):
        metrics = lead.learn(kit, order, say=notes.print, patience=3600)
    show_metrics(metrics["test"], f"{into}: test, after {metrics['rounds']} cycles of forgetting")


@app.command()
def status(
    kit: Kit,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show which sites are connected, and what is being learned.

    Example:

    `fedlu federation status kits/lead@example.org`
    """
    from fedlu.flare import need_flare

    need_flare()
    from fedlu.flare import lead

    found = lead.status(kit)
    if as_json:
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
        return
    for site, seconds in found["sites"].items():
        screen.print(f"{site}: {'not connected' if seconds is None else f'heard {seconds:.0f} s ago'}")
    for job in found["jobs"]:
        screen.print(f"{job['name']}: {job['status']}")
    for progress in found["running"]:
        screen.print(f"at round {progress['round']} of {progress['rounds']}")


@app.command()
def stop(
    kit: Kit,
    run: Annotated[str, typer.Option("--run", help="The run to stop.")],
) -> None:
    """Stop a run; `learn` with the same name takes it up again.

    Example:

    `fedlu federation stop kits/lead@example.org --run first`
    """
    from fedlu.flare import need_flare

    need_flare()
    from fedlu.flare import lead

    number = lead.stop(kit, run)
    screen.print(f"{run}: {number} job{'' if number == 1 else 's'} stopped")
