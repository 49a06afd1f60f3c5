"""The command line: one subcommand per verb."""

from __future__ import annotations

import errno
import gc
import os
import sys
from importlib import import_module
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from layerscout.cli.clock import begin
from layerscout.cli.threads import wait_passively
from layerscout.errors import InputError, LayerscoutError

# In the order of --help; each is the name of its module and of what that offers.
VERBS = (
    *("scan", "plan", "tune", "compare", "evaluate", "predict", "truncate", "study", "report"),
    *("demo", "cache"),
)


class Verbs(TyperGroup):
    """The commands by name; the module of one is imported when the command is read."""

    def __init__(self, **options: Any) -> None:
        """Take the options of `TyperGroup`."""
        super().__init__(**options)
        self.commands = dict.fromkeys(VERBS)  # type: ignore[assignment]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, or None if there is none of this name."""
        if self.commands.get(cmd_name, True) is None:
            from layerscout.cli.options import flatten

            verb = getattr(import_module(f"layerscout.cli.{cmd_name}"), cmd_name)
            if not isinstance(verb, typer.Typer):
                command, verb = flatten(verb), typer.Typer(add_completion=False)
                verb.command(cmd_name)(command)
            self.commands[cmd_name] = get_command(verb)
        return self.commands.get(cmd_name)


app = typer.Typer(
    cls=Verbs,
    name="layerscout",
    help="Find out which layers of a pretrained text model are worth tuning, before you tune.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Run the command line: exit 2 on input that cannot be used, 1 else, 130 on Ctrl-C."""
    if not os.environ.get("COLUMNS", "80").strip("0"):
        del os.environ["COLUMNS"]  # some shells say 0 for a width that they do not know
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # names from the data may not fit the encoding
            stream.reconfigure(errors="replace")
    begin()
    wait_passively()
    try:
        _check_arguments()
        app()
    except OSError as error:  # such as a full disk behind standard output
        if error.errno == errno.ENAMETOOLONG:
            name = f"{error.filename!s:.60}..."
            _tell(InputError(f"cannot use the name {name}: {error.strerror}; give another"))
            sys.exit(2)
        of_a_stream = error.errno is not None and error.filename is None
        _tell(OSError(f"cannot write the output: {error.strerror}") if of_a_stream else error)
        sys.exit(1)
    except LayerscoutError as error:
        _tell(error)
        sys.exit(2 if isinstance(error, InputError) else 1)
    finally:
        gc.freeze()  # or the interpreter, as it ends, goes through all of it: 0.8 s of a processor


def _check_arguments() -> None:
    """Raise for names that no file written here could hold, before any work is done."""
    for argument in sys.argv[1:]:
        try:
            argument.encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"names of files must be UTF-8, got {argument}; rename it, or set PYTHONUTF8=1 if "
                "the name looks right to you"
            ) from error


def _tell(error: Exception) -> None:
    # Of several processes the first one speaks.
    if os.environ.get("RANK", "0") == "0" or os.environ.get("WORLD_SIZE", "1") == "1":
        typer.echo(f"layerscout: {error}", err=True)


def _show_version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version

        typer.echo(f"layerscout {version('layerscout')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, metavar="", help="Show the version."
        ),
    ] = False,
) -> None:
    """Take the options that belong to no verb."""
