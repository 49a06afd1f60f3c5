"""From the fields of requests to options of the command line."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from importlib import import_module
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from layerscout.plans import Declaration, explanations, make_request, options_of, types_of


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
        if parameter.annotation is not Given:
            flat += list(_parameters(groups[name])) if name in groups else [parameter]

    def run(*positional: Any, **given: Any) -> None:
        given |= dict(zip((parameter.name for parameter in flat), positional, strict=False))
        everything = Given((name, value) for name, value in given.items() if not _is_absent(value))
        verb(
            **{name: given[name] for name in own if name in given and name not in groups},
            **{name: _collect(group, given) for name, group in groups.items()},
            **{name: everything for name, p in own.items() if p.annotation is Given},
        )

    run.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in flat}
    run.__name__, run.__doc__, run.__module__ = verb.__name__, verb.__doc__, verb.__module__
    return run


def _is_absent(value: Any) -> bool:
    """Tell whether an option was not given; 0 was."""
    return value is None or value is False or value == []


def _collect(group: Any, given: Mapping[str, Any]) -> Any:
    """Make a group from those of its options that were given."""
    found: dict[str, Any] = {}
    for name, declared in options_of(group).items():
        value = given.get(name)
        if declared.nested is not None:
            inner = [key for kind in declared.nested.values() for key in options_of(kind)]
            value = {key: given[key] for key in inner if given.get(key) is not None} or None
        if not _is_absent(value):
            found[name] = value
    return make_request(group, found)


def _parameters(group: Any) -> Iterator[inspect.Parameter]:
    """Give a parameter for every option of a group, as Typer reads it."""
    defaults = {f.name: f.default for f in fields(group)}
    for name, declared in options_of(group).items():
        if declared.nested is not None:
            for kind in declared.nested.values():
                yield from _parameters(kind)
            continue
        kind = _type(types_of(group)[name], declared)
        default = defaults[name]
        shown = declared.shown
        if shown is None:
            shown = str(default) if default not in (None, ()) else ""
        text = explanations(group)[name]
        info = typer.Option(
            *(declared.flag or f"--{name.replace('_', '-')}").split(),
            help=text[0].upper() + text[1:],
            show_default=False if kind is bool or not shown else shown,
            metavar="" if kind is bool else declared.metavar,  # a flag takes no value
            rich_help_panel=declared.panel,
            autocompletion=None
            if declared.completes is None
            else _make_completer(*declared.completes),
        )
        yield inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=False if kind is bool else None,
            annotation=Annotated[kind, info],
        )


def _type(declared: Any, option: Declaration) -> Any:
    """Return what the command line reads for a field: its type, or text that its check reads."""
    parts = [part for part in get_args(declared) or (declared,) if part is not NoneType]
    if option.repeated:
        return list[str] | None
    if declared is bool:
        return bool
    if get_origin(declared) is Literal:
        return declared | None
    if len(parts) == 1 and (parts[0] in (int, float) or get_origin(parts[0]) is Literal):
        return parts[0] | None
    return str | None


def _make_completer(room: str, table: str) -> Callable[[str], list[str]]:
    """Return what completes the last of some keys of a table, separated by commas.

    The room is imported when somebody presses the key.
    """

    def complete(begun: str) -> list[str]:
        before, comma, last = begun.rpartition(",")
        known = getattr(import_module(f"layerscout.{room}"), table)
        return [f"{before}{comma}{key}" for key in known if key.startswith(last)]

    return complete
