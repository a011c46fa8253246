"""The command line: `rhovec parse | check | robustness | compare | mine | embed | similarity | decode |
index | train | corpus | evaluate | bench | demo`.

Every command takes formulae as arguments, from files (-F), or from stdin, one per line, so that
commands pipe. A user's mistake is one line on stderr, in the words of the command line, and exit
code 2; a defect of rhovec is a traceback and exit code 3. Heavy libraries are imported by the commands
that need them, so that `rhovec --help` is quick.
"""

from __future__ import annotations

import io
import os
import sys
import traceback
import warnings
from collections.abc import Iterator
from typing import Annotated, Any, NoReturn, TextIO, cast

import typer
from typer.core import TyperGroup

from ..errors import RequirementError, RhovecError
from . import corpus, index, train
from .bench import bench
from .check import check
from .compare import compare
from .decode import decode
from .demo import demo
from .embed import embed
from .evaluate import evaluate
from .messages import in_options
from .mine import mine
from .output import TerminalStream, note
from .parse import parse
from .robustness import robustness
from .shared import grouped
from .similarity import similarity

HELP_OPTIONS = ["-h", "--help"]
CLOSED_PIPE = 141  # as a shell reports SIGPIPE; 1 would say that a requirement is violated


class _Commands(TyperGroup):
    """Runs a command, and turns what goes wrong into one line and an exit code."""

    def main(self, *args: Any, **extra: Any) -> Any:
        for command in _all_commands(self):
            context = typer.Context(command, help_option_names=HELP_OPTIONS)
            paragraphs = (command.help or "").split("\n\n")  # of which typer would keep the lines
            command.help = "\n\n".join(" ".join(one.split()) for one in paragraphs)
            for option in command.get_params(context):
                if getattr(option, "is_flag", False):
                    option.metavar = ""  # a flag takes no value, and the help need not say <bool>
                elif option.param_type_name == "argument":  # nor <list[str]> beside FORMULA
                    option.display_type_rich = lambda ctx: None
        try:
            code = super().main(*args, **{**extra, "standalone_mode": False})
            sys.stdout.flush()
        except RequirementError as error:
            fail(*map(in_options, error.lines()))
        except RhovecError as error:
            fail(in_options(str(error)))
        except typer.TyperException as error:
            where = getattr(error, "ctx", None)
            hint = f" (see {where.command_path} --help)" if where else ""
            fail(error.format_message() + hint)
        except MemoryError:
            fail("there is not enough memory for that; ask for fewer traces, points or formulae")
        except SystemError as error:
            # Ctrl-C while compiled code returns: CPython reports a result with an exception set.
            if not isinstance(error.__cause__, KeyboardInterrupt):
                raise
            sys.exit(130)
        except SystemExit as error:
            sys.exit(CLOSED_PIPE if isinstance(error.__context__, BrokenPipeError) else error.code)
        except OSError as error:
            if error.filename is not None:
                fail(f"{error.filename}: {error.strerror}")
            # Nobody reads stdout, or it is full: what is left must not be written again at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            if isinstance(error, BrokenPipeError):
                sys.exit(CLOSED_PIPE)
            fail(f"cannot write: {error.strerror or 'stdout is closed'}")
        sys.exit(code if isinstance(code, int) else 0)


def _all_commands(group: Any) -> Iterator[Any]:
    yield group
    for command in group.commands.values():
        yield from _all_commands(command) if hasattr(command, "commands") else [command]


app = typer.Typer(
    name="rhovec",
    cls=_Commands,
    pretty_exceptions_enable=False,
    help="Signal Temporal Logic formulae as values, as numbers on traces, and as vectors.",
    context_settings={"help_option_names": HELP_OPTIONS},
)


def main() -> None:
    """The `rhovec` command."""
    if sys.stdout is None:  # closed by the caller: whatever is written to it is an error
        sys.stdout = open(os.devnull)  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal or pipe that lacks a character gets its escape instead of a traceback.
        sys.stdout.reconfigure(errors="backslashreplace")
        if sys.stdout.isatty():
            sys.stdout = cast(TextIO, TerminalStream(sys.stdout))
    warnings.showwarning = lambda message, *_: note(f"warning: {in_options(str(message))}")
    try:
        app(prog_name="rhovec")
    except Exception:  # a defect of ours; the status 1 would say that a requirement is violated
        traceback.print_exc()
        note("this is a defect of rhovec; please report it with the lines above")
        sys.exit(3)


def fail(*lines: str) -> NoReturn:
    note(*lines)
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


app.command()(grouped(parse))
app.command()(grouped(check))
app.command()(grouped(robustness))
app.command()(grouped(compare))
app.command()(grouped(mine))
app.command()(grouped(embed))
app.command()(grouped(similarity))
app.command()(grouped(decode))
app.add_typer(index.app)
app.add_typer(train.app)
app.add_typer(corpus.app)
app.command()(evaluate)
app.command()(bench)
app.command()(grouped(demo))
