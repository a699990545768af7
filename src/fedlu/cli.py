"""The command line: the commands put together, and what every one of them has in common: refusals and exit codes.

A command imports what does its work only when it is called, so that `fedlu --help` answers at once.

Exit codes: 0 done; 1 failed; 2 wrong input or options; 3 something outside is missing; 4 unusable scores; 5 a message
that cannot be believed; 6 too few answers; 130 Ctrl-C; 143 SIGTERM.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from typing import Annotated, Any

import typer

import fedlu
from fedlu.commands import (
    checking,
    demo,
    exchange,
    federation,
    forgetting,
    graphs,
    learning,
    parties,
    predicting,
    reproducing,
    showing,
)
from fedlu.display import screen
from fedlu.errors import FedluError, InputError

ABOUT = """Federated knowledge-graph embeddings that learn together and forget on request.

Examples, from a graph to a prediction:

`fedlu partition umls --clients 3 --by random --out umls-r3`

`fedlu learn umls-r3 --out run`

`fedlu predict run --client client-0 --head antibiotic --relation treats`

Every command has examples of its own: add --help to it. The command doctor checks the installation.
"""

app = typer.Typer(
    name="fedlu",
    help=ABOUT,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
COMMANDS = (
    graphs.partition,
    graphs.describe,
    learning.learn,
    learning.evaluate,
    learning.recipes,
    forgetting.forget,
    forgetting.audit,
    predicting.predict,
    exchange.export,
    exchange.import_pykeen,
    showing.report,
    showing.plot,
    showing.explore,
    checking.doctor,
    demo.demo,
    reproducing.reproduce,
    reproducing.tune,
)
for command in COMMANDS:
    app.command()(command)
for group in (federation.app, parties.server, parties.site):
    app.add_typer(group)


@app.callback(invoke_without_command=True)
def main_options(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if version:
        screen.print(f"fedlu {fedlu.__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        screen.print(context.get_help())


def main(arguments: list[str] | None = None) -> None:
    """Run a command; every refusal is one line on stderr and an exit code, never a traceback."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as an exception, so that nothing half-written stays
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks a letter is no reason to fail
    try:
        code: Any = app(args=arguments, prog_name="fedlu", standalone_mode=False)
        sys.stdout.flush()
        if code == 130:
            raise KeyboardInterrupt
    except FedluError as refusal:
        fail(str(refusal), refusal.exit_code)
    except typer.TyperException as usage:  # a wrong option or argument
        context = getattr(usage, "ctx", None)
        command = "fedlu" if context is None else context.command_path
        message = " ".join(getattr(usage, "format_message", usage.__str__)().split()).rstrip(".")
        fail(f"{message}; see `{command} --help`", InputError.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        fail("interrupted", 130)
    except BrokenPipeError:  # the reader, `head` for one, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except MemoryError as trouble:
        fail(f"not enough memory ({' '.join(str(trouble).split())[:120]}); give smaller settings", 1)
    except OSError as trouble:
        remedy = "check the path, its rights and the space left"
        fail(f"{trouble.filename or 'system'}: {trouble.strerror or trouble}; {remedy}", InputError.exit_code)
    sys.exit(code if isinstance(code, int) else 0)


def fail(message: str, code: int) -> None:
    sys.stderr.write(f"fedlu: {' '.join(message.splitlines())}\n")
    sys.exit(code)
