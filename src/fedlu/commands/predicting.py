"""`fedlu predict`: questions to a run, one on the command line or many in a file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedlu.display import notes, show_predictions, working
from fedlu.errors import InputError

if TYPE_CHECKING:
    from fedlu.results.prediction import LearnedRun, Question

HOLES = ("", "?")
"""What stands in a file for the end that is asked for."""
VIEWS = ("local", "global", "blend")


def clients_of_run(context: typer.Context) -> list[str]:
    """For shells that complete --client: the names in the run that was typed before it."""
    typed = context.params.get("run") or next(iter(context.args), None)  # half a command is not parsed to the end
    try:
        names = json.loads((Path(str(typed)) / "state.json").read_text(encoding="utf-8"))["counters"]
    except (OSError, ValueError, KeyError):
        return []
    return sorted(names)


def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run, finished or not.")],
    client: Annotated[
        str | None,
        typer.Option(help="Whose tables; may be left out if there is one client.", autocompletion=clients_of_run),
    ] = None,
    head: Annotated[str | None, typer.Option(help="Ask for tails of this head ...")] = None,
    tail: Annotated[str | None, typer.Option(help="... or for heads of this tail.")] = None,
    relation: Annotated[str | None, typer.Option(help="The relation between the two.")] = None,
    questions: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="Many questions: a TSV of triples with one end `?`.")
    ] = None,
    top: Annotated[int, typer.Option(help="How many answers.")] = 10,
    view: Annotated[
        str | None,
        typer.Option(help="local, global or blend.  [default: blend]", autocompletion=lambda: list(VIEWS)),
    ] = None,
    global_view: Annotated[bool, typer.Option("--global", help="The same as --view global.")] = False,
    new_only: Annotated[bool, typer.Option("--new-only", help="Leave out what the client knows already.")] = False,
    data: Annotated[Path | None, typer.Option(help="Where the federation is now, if it was moved.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Predict missing links: the likeliest tails of a head and a relation, or the likeliest heads of a tail.

    Labels in, labels out, among the client's own entities. An answer is marked if the client has that triple already,
    with the split it is in. A file of questions (head, relation, tail; the end that is asked for empty or `?`) gives
    a table in columns, for other programs.

    Examples:

    `fedlu predict run --client client-0 --head antibiotic --relation treats --top 5`

    `fedlu predict run --client client-0 --tail disease_or_syndrome --relation treats --new-only --json`

    `fedlu predict run --client client-0 --from questions.tsv --top 3`
    """
    if global_view and view not in (None, "global"):
        raise InputError(f"--global and --view {view}", remedy="give one of the two")
    chosen = "global" if global_view else view
    if questions is None and relation is None:
        raise InputError("no question", remedy="give --relation with --head or --tail, or --from FILE")
    if questions is not None and any(each is not None for each in (head, tail, relation)):
        raise InputError("a question and a file of questions", remedy="give one of the two")
    from fedlu.results.prediction import load
    from fedlu.results.runs import how_far

    with working("reading the run"):
        learned = load(run, data)
    if said := how_far(run):
        notes.print(said)
    name = _the_client(learned, client)
    if questions is not None:
        _answer_file(learned, name, questions, top=top, view=chosen, new_only=new_only, as_json=as_json)
        return
    assert relation is not None
    found = learned.predict(
        name, head=head, relation=relation, tail=tail, top=top, view=chosen, new_only=new_only
    ).to_dicts()
    asked = {"client": name, "view": learned.check_view(chosen), "head": head, "relation": relation, "tail": tail}
    if as_json:
        sys.stdout.write(json.dumps({**asked, "answers": found}, indent=2, ensure_ascii=False) + "\n")
    else:
        title = (
            f"{name}, {asked['view']}: {'?' if head is None else head} - {relation} - {'?' if tail is None else tail}"
        )
        show_predictions(found, title)


def _the_client(learned: LearnedRun, client: str | None) -> str:
    if client is not None:
        return client
    if len(learned.clients) > 1:
        raise InputError("which client?", remedy=f"give --client, one of {', '.join(learned.clients)}")
    return learned.clients[0]


def _answer_file(learned: LearnedRun, client: str, path: Path, *, as_json: bool, **options: Any) -> None:
    from fedlu.results.prediction import desk_ids

    read, desk = _read_questions(path), learned.desk(client)
    for line, question in read.items():  # all of them before any is answered: a fault is named with its line
        try:
            desk_ids(desk, question)
        except InputError as bad:
            raise InputError(bad.what, where=path, line=line, remedy=bad.remedy) from None
    found = learned.predict_many(client, list(read.values()), **options)
    if as_json:
        sys.stdout.write(json.dumps(found.to_dicts(), indent=2, ensure_ascii=False) + "\n")
    else:
        table = found.select("query", "rank", "head", "relation", "tail", "score", "known")
        sys.stdout.write(table.write_csv(separator="\t"))


def _read_questions(path: Path) -> dict[int, Question]:
    """By line number; empty lines are passed over."""
    if not path.is_file():
        raise InputError("no such file", where=path, remedy="give a TSV of head, relation and tail, one end `?`")
    found: dict[int, Question] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").splitlines(), start=1):
        if not line.strip():
            continue
        cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) != 3:
            raise InputError(
                f"{len(cells)} columns, expected 3", where=path, line=number, remedy="head, relation, tail"
            )
        head, tail = (None if cell in HOLES else cell for cell in (cells[0], cells[2]))
        found[number] = (head, cells[1], tail)
    if not found:
        raise InputError("no questions", where=path, remedy="give a TSV of head, relation and tail, one end `?`")
    return found
