"""`fedlu report`, `plot` and `explore`: what a person looks at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedlu.display import screen, working


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="One or more runs, shown side by side.")],
    out: Annotated[Path, typer.Option(help="The HTML file to write.")] = Path("report.html"),
    no_map: Annotated[bool, typer.Option("--no-map", help="Leave out the map of the entities.")] = False,
    names: Annotated[bool, typer.Option("--names", help="Show the entities' names in the map.")] = False,
    seed: Annotated[int, typer.Option(help="Of the map: same seed, same map.")] = 0,
) -> None:
    """Write one HTML file that shows what the runs learned; it opens offline, on a laptop or a phone.

    It holds figures, charts and a map of the entities, but no triple, and no entity's name unless --names is given. The
    map is laid out once and kept in the run's folder.

    Examples:

    `fedlu report run --out report.html`

    `fedlu report run run-fede --out both.html`
    """
    from fedlu.results import report as reports

    with working(f"reporting on {len(runs)} run{'s' if len(runs) > 1 else ''}"):
        reports.report(list(runs), out, maps=not no_map, names=names, seed=seed)
    screen.print(f"wrote {out} ({out.stat().st_size / 1e3:,.0f} kB); open it in a browser")


def plot(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="One or more runs.")],
    what: Annotated[str, typer.Option(help="convergence, tsne, degrees or forgetting.")],
    out: Annotated[Path, typer.Option(help="The picture: .png, .svg or .pdf.")],
    metric: Annotated[str, typer.Option(help="mrr, hits@1, hits@3 or hits@10, of convergence and forgetting.")] = "mrr",
    seed: Annotated[int, typer.Option(help="Of tsne: same seed, same map.")] = 0,
) -> None:
    """Draw a figure of one or more runs, ready for a paper.

    convergence: the valid metric by round. tsne: the entities of each client in the plane, a panel per run. degrees:
    the degree distributions of the clients. forgetting: before, after, and trained again without, by `fedlu audit`.

    Examples:

    `fedlu plot run --what convergence --out convergence.svg`

    `fedlu plot run run-fede --what tsne --out tsne.png`
    """
    from fedlu.results import plots

    with working(f"drawing {what}"):
        plots.plot(list(runs), what, out, metric=metric, seed=seed)
    screen.print(f"wrote {out}")


def explore(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A finished run.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where to listen; 0 for any free port.")] = 8237,
    host: Annotated[str, typer.Option(help="Another address than this machine's own demands --token.")] = "127.0.0.1",
    token: Annotated[
        str | None, typer.Option(envvar="FEDLU_EXPLORE_TOKEN", help="A secret that every question must carry.")
    ] = None,
    allow_forget: Annotated[
        bool, typer.Option("--allow-forget", help="Let the page forget triples, into a new run beside this one.")
    ] = False,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
) -> None:
    """Look into a run from a page in your browser: predictions, evidence, neighbours, a map, quality by relation.

    It listens to this machine alone and changes nothing. Every answer is also there as JSON: see /docs there.

    Examples:

    `fedlu explore run`

    `fedlu explore run --port 0 --allow-forget`
    """
    from fedlu.errors import UnavailableError

    try:
        from fedlu.explorer.serving import serve
    except ImportError as missing:
        raise UnavailableError(f"{missing.name} is not installed", remedy="pip install 'fedlu[explore]'") from None
    serve(
        run,
        host=host,
        port=port,
        token=token,
        allow_forget=allow_forget,
        browser=not no_browser,
        tell=lambda address: screen.print(f"exploring {run} at {address} (Ctrl-C ends it)"),
    )
