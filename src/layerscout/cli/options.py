"""Options of the command line and of YAML files, made from the fields of requests."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from layerscout.errors import InputError, make_unknown_error
from layerscout.files import write_files
from layerscout.plans import (
    METHODS,
    Declaration,
    Settings,
    explain_options,
    make_request,
    options_of,
    types_of,
)
from layerscout.yaml import read_yaml, write_yaml

# --- What --help says beyond the fields ----------------------------------------------------------

# Headings by verb, with the options under them; the others stand under the common one.
_OF_METHODS = {name for kind in METHODS.values() for name in options_of(kind)}
PANELS: Mapping[str, Mapping[str, set[str]]] = {
    "tune": {
        "Training": {
            *options_of(Settings).keys() - {"metric"},
            *("against", "preset", "as_released", "learning_rate", "seed", "trunk_dropout"),
            *("fresh_head", "head_start", "head_end", "save_epochs", "resume", "track"),
        },
        "Method": {"method", "keep_adapter", "classifier", *_OF_METHODS},
        "Edits": {"edits", "keep_layer_norm", "reinit_rate_factor"},
    },
    "plan": {"Method": {"method", *_OF_METHODS}},
}

# What stands for the value of an option, where that is not its type; for one verb as verb.option.
METAVARS: Mapping[str, str] = {
    "address": "HOST:PORT",
    "against": "PLAN",
    "cache_limit": "SIZE",
    "changes": "PATH=VALUE",
    "edits": "EDIT",
    "encoding": "NAME",
    "evaluate.head_learning_rate": "R[,R...]",
    "export": "FORMAT[,...]",
    "head_learning_rate": "R",
    "learning_rate": "R[,R...]",
    "per_class": "N0,N1,...",
    "push_to_hub": "NAME",
    "save_epochs": "N[,N...]",
    "scan": "DIR",
    "score": "KEY",
    "scores": "KEY,KEY,...",
    "sep": "CHAR",
    "study.data": "DIR",
    "test": "FILE",
    "threshold": "P",
    "time": "TIME",
    "tune.seed": "S[,S...]",
}

# Options that may be given several times.
REPEATED = {"evaluate.edits", "study.changes"}

# Room and table whose keys complete the value of an option.
COMPLETED = {
    "method": ("plans", "METHODS"),
    "score": ("scores", "SCORES"),
    "scores": ("scores", "SCORES"),
    "task": ("data", "KNOWN"),
}

# --- From requests to options --------------------------------------------------------------------


class Given(dict[str, Any]):
    """All that a verb was given, by option: a parameter of this type is not an option itself."""


def flatten(verb: Callable[..., None]) -> Callable[..., None]:
    """Return a verb whose parameters that are dataclasses became an option for each field.

    Typer takes a command's options from its signature and knows no groups. A group is made from
    what was given on the command line; None and False count as not given.
    """
    own = inspect.signature(verb, eval_str=True).parameters
    groups = {name: p.annotation for name, p in own.items() if is_dataclass(p.annotation)}
    flat: list[inspect.Parameter] = []
    for name, parameter in own.items():
        if name in groups:
            flat += _list_parameters(groups[name], verb.__name__)
        elif parameter.annotation is not Given:
            flat.append(parameter)

    def run(*positional: Any, **given: Any) -> None:
        given |= dict(zip((parameter.name for parameter in flat), positional, strict=False))
        # Nothing was given for an option of None, False or []; 0 is a value.
        absent = {name for name, value in given.items() if value in (None, []) or value is False}
        everything = Given((name, given[name]) for name in given if name not in absent)
        verb(
            **{name: given[name] for name in own if name in given and name not in groups},
            **{name: _collect(group, everything) for name, group in groups.items()},
            **{name: everything for name, p in own.items() if p.annotation is Given},
        )

    run.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in flat}
    run.__name__, run.__doc__, run.__module__ = verb.__name__, verb.__doc__, verb.__module__
    return run


def _collect(group: Any, given: Given) -> Any:
    """Make a group from those of its options that were given."""
    options: dict[str, Any] = {}
    for name, declared in options_of(group).items():
        inner = [key for kind in (declared.nested or {}).values() for key in options_of(kind)]
        if values := {key: given[key] for key in inner if key in given}:
            options[name] = values
        elif name in given and not inner:
            options[name] = given[name]
    return make_request(group, options)


def _list_parameters(group: Any, verb: str) -> Iterator[inspect.Parameter]:
    """Yield a parameter for every option of a group, as Typer reads it."""
    for name, declared in options_of(group).items():
        if declared.nested is not None:
            for kind in declared.nested.values():
                yield from _list_parameters(kind, verb)
        else:
            yield _make_parameter(group, name, declared, verb)


def _make_parameter(group: Any, name: str, declared: Declaration, verb: str) -> inspect.Parameter:
    place = f"{verb}.{name}"
    kind, default = types_of(group)[name], declared.default
    flag = kind is bool
    if place in REPEATED:
        kind = list[str] | None
    elif not flag:  # Typer reads numbers and choices; all else is text that a check reads
        parts = [kind] if get_origin(kind) is Literal else get_args(kind) or (kind,)
        part, *more = (part for part in parts if part is not NoneType)
        read = not more and (part in (int, float) or get_origin(part) is Literal)
        read &= "str" not in (declared.takes or "")
        kind = (part if read else str) | None
    shown = declared.shown
    if shown is None:
        shown = str(default) if default not in (None, ()) else ""
    panels = PANELS.get(verb, {}).items()
    info = typer.Option(
        *(declared.flag or f"--{name.replace('_', '-')}").split(),
        help=explain_options(group)[name],
        show_default=False if flag or not shown else shown,
        metavar="" if flag else METAVARS.get(place, METAVARS.get(name)),  # a flag takes no value
        rich_help_panel=next((panel for panel, names in panels if name in names), None),
        autocompletion=_make_completer(*COMPLETED[name]) if name in COMPLETED else None,
    )
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=False if flag else None,
        annotation=Annotated[kind, info],
    )


def _make_completer(room: str, table: str) -> Callable[[str], list[str]]:
    """Return what completes the last of some keys of a table, separated by commas.

    The room is imported when somebody presses the key.
    """

    def complete(begun: str) -> list[str]:
        before, comma, last = begun.rpartition(",")
        known = getattr(import_module(f"layerscout.{room}"), table)
        return [f"{before}{comma}{key}" for key in known if key.startswith(last)]

    return complete


# --- From YAML to options ------------------------------------------------------------------------

# What a file has no use for: where the output goes, what is printed, and what a run does with
# earlier ones or publishes, which must be asked for each time.
LEFT_OUT = {"config", "output", "json", "quiet", "resume", "overwrite", "push_to_hub", "private"}


def _take_config(context: typer.Context, path: Path | None) -> None:
    """Let a file give what the command line does not, model and data too."""
    if path is not None and not context.resilient_parsing:
        parameters = {str(parameter.name): parameter for parameter in context.command.params}
        options = {n: p for n, p in parameters.items() if n not in ("help", "config")}
        context.default_map = _read_config(path, options, context)


Config = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        is_eager=True,
        callback=_take_config,
        help="YAML file of options, which may also name model and data; options on the "
        "command line take precedence.",
    ),
]


def _read_config(path: Path, options: Mapping[str, Any], context: typer.Context) -> dict[str, Any]:
    """Read a file of options, each as the command line would write it."""
    try:
        content = read_yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise InputError(f"cannot read {path}: {reason}") from error
    except InputError as error:
        raise InputError(f"{path} is {error}") from error
    if not isinstance(content, Mapping):
        raise InputError(f"{path} must have options with their values, such as `epochs: 3`")
    content = dict(content)
    nested = content.pop("method_options", None)
    if isinstance(nested, Mapping):
        content = {**nested, **content}
    written = {}
    for name, value in content.items():
        if name not in options:
            raise InputError(f"{path}: {make_unknown_error('option', str(name), options)}")
        if value is None:
            continue
        is_flag = bool(getattr(options[name], "is_flag", False))
        if isinstance(value, bool) != is_flag:
            rule = "must be true or false" if is_flag else "must not be true or false (unquoted)"
            raise InputError(f"{path}: `{name}` {rule}, got {value!r:.60}")
        written[name] = _write_value(path, name, value)
        try:
            options[name].process_value(context, written[name])
        except typer.BadParameter as error:  # whose message names neither the file nor the value
            raise InputError(f"{path}: `{name}` {_write_rule(error)}, got {value!r:.60}") from error
    return written


def _write_rule(error: typer.BadParameter) -> str:
    """Write what a value of an option must be, which Typer has refused."""
    kind = re.search("valid (integer|float|number)", error.message)
    if kind is not None:
        return f"must be a {'whole ' if kind[1] == 'integer' else ''}number"
    return f"cannot be used ({error.message.removeprefix('Value error, ').rstrip('.')})"


def _write_value(path: Path, name: str, value: Any) -> Any:
    """Write a value as it stands on the command line, but for true and false."""
    if isinstance(value, Mapping):
        raise InputError(f"{path}: `{name}` takes a value or a list, got {dict(value)!r:.60}")
    if isinstance(value, list):
        parts = [str(_write_value(path, name, part)) for part in value]
        return parts if name == "edits" else ",".join(parts)
    return value if isinstance(value, bool) else str(value)


def write_config(verb: str, given: Given, folder: Path) -> None:
    """Write `run.yaml` into a folder: what was given to a run, as `--config` takes it."""
    from layerscout.data import is_local

    content = {name: value for name, value in given.items() if name not in LEFT_OUT}
    for name, value in content.items():
        # A file or a folder, and no name, demo, strategy or fraction.
        is_path = name in ("plan", "against") and str(value).endswith(".json")
        if name in ("model", "data", "scan", "validation", "test"):
            is_path = value not in ("demo", "-") and is_local(value)
        if is_path:
            content[name] = str(Path(value).absolute())
    repeat = f"layerscout {verb} --config run.yaml"
    heading = f"# Options of layerscout {version('layerscout')}; {repeat} repeats the run.\n"
    write_files({folder / "run.yaml": heading + write_yaml(content)})
