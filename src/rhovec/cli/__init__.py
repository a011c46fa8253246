"""The command line: `rhovec parse | robustness | kernel | embed | similarity | decode | compare |
index | corpus | train | evaluate | bench | demo`.

Every command takes formulae as arguments, from files (-F), or from stdin, one a line, so that
commands pipe. A mistake of the user's is one line on stderr and exit code 2. Heavy libraries are
imported by the commands that need them, so that `rhovec --help` is quick.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from ..errors import RhovecError
from . import corpus, index, train
from .bench import bench
from .compare import compare
from .decode import decode
from .demo import demo
from .embed import embed, similarity
from .evaluate import evaluate
from .formulae import parse_command, robustness
from .kernel import kernel


class _Commands(TyperGroup):
    """Runs a command and turns what goes wrong into one line and an exit code."""

    def main(self, *args: Any, **extra: Any) -> Any:
        try:
            code = super().main(*args, **{**extra, "standalone_mode": False})
            print(end="", flush=True)
        except RhovecError as error:
            fail(str(error))
        except typer.TyperException as error:
            context = getattr(error, "ctx", None)
            hint = f" (see {context.command_path} --help)" if context else ""
            fail(error.format_message() + hint)
        except MemoryError:
            fail("there is not enough memory for that; ask for fewer signals, points or formulae")
        except OSError as error:
            if error.filename is not None:
                fail(f"{error.filename}: {error.strerror}")
            # Nobody reads stdout, or it is full: what is left must not be written again at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            if isinstance(error, BrokenPipeError):
                sys.exit(1)
            fail(f"cannot write: {error.strerror}")
        sys.exit(code if isinstance(code, int) else 0)


app = typer.Typer(
    name="rhovec",
    cls=_Commands,
    pretty_exceptions_enable=False,
    help="Signal Temporal Logic formulae as values, as numbers on signals, and as vectors.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """The `rhovec` command."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal or pipe that lacks a character gets its escape instead of a traceback.
        sys.stdout.reconfigure(errors="backslashreplace")
    app(prog_name="rhovec")


def fail(message: str) -> NoReturn:
    print(f"rhovec: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(2)


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        from .. import __version__

        print(f"rhovec {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help(), end="")


app.command("parse")(parse_command)
app.command()(robustness)
app.command()(kernel)
app.command()(embed)
app.command()(similarity)
app.command()(decode)
app.command()(compare)
app.add_typer(index.app, name="index")
app.add_typer(corpus.app, name="corpus")
app.add_typer(train.app, name="train")
app.command()(evaluate)
app.command()(bench)
app.command()(demo)
