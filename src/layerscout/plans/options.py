"""Options of verbs: fields that are declared, checked and explained in one place.

A dataclass whose fields are made by `option` is all that an option needs: the Python call, the
command line, recipes and the keys of trials are made from it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from layerscout.runtime import InputError, check_integer, check_number, make_unknown_error

T = TypeVar("T")

# Takes the name of an option and what was given for it; returns the value, or raises InputError.
Check = Callable[[str, Any], Any]


@dataclass(frozen=True)
class Declaration:
    """What is known of an option beside its name, type, default and explanation.

    Attributes:
        check: of its value; without one, the annotation says what is allowed (`Literal`, `bool`).
        panel: heading in the help of the command line.
        metavar: what stands for its value there.
        flag: its name there, if that is another than the field's; or several, such as "--quiet -q".
        shown: its default there, in words.
        completes: room and table whose keys complete its value there.
        repeated: it may be given several times there.
        nested: its value is a mapping of the options of these dataclasses, which are options of
            their own on the command line.
    """

    check: Check | None = None
    panel: str | None = None
    metavar: str | None = None
    flag: str | None = None
    shown: str | None = None
    completes: tuple[str, str] | None = None
    repeated: bool = False
    nested: Mapping[str, type[Any]] | None = None


def option(default: Any, check: Check | None = None, **more: Any) -> Any:
    """Declare an option with its default; for the arguments see `Declaration`."""
    return field(default=default, metadata={"option": Declaration(check, **more)})


def options_of(kind: Any) -> dict[str, Declaration]:
    """Return the options of a request by name."""
    return {f.name: f.metadata["option"] for f in fields(kind) if "option" in f.metadata}


@cache
def types_of(kind: Any) -> dict[str, Any]:
    """Return the types of a request's fields."""
    return get_type_hints(kind)


@cache
def explanations(kind: Any) -> dict[str, str]:
    """Return what the docstrings of a request and its parents say of each attribute."""
    found: dict[str, str] = {}
    for one in reversed(kind.__mro__):
        section = (inspect.cleandoc(one.__doc__ or "")).partition("Attributes:\n")[2]
        entries = re.findall(r"^    (\w+): (.*(?:\n     +.*)*)", section, flags=re.MULTILINE)
        found |= {name: " ".join(text.split()) for name, text in entries}
    return found


@cache  # a study checks every option of every trial
def _find_option(kind: Any, name: str) -> tuple[Declaration, Any]:
    """Find how an option was declared, and its default."""
    default = next(f.default for f in fields(kind) if f.name == name)
    return options_of(kind)[name], default


def check_option(kind: Any, name: str, value: Any) -> Any:
    """Check one value by the rule of its option.

    Raises:
        InputError: if it is not allowed.
    """
    declared, default = _find_option(kind, name)
    if value is None and default is None:
        return None
    if declared.check is not None:
        return declared.check(name, value)
    allowed = types_of(kind)[name]
    choices = [
        choice
        for part in (allowed, *get_args(allowed))
        if get_origin(part) is Literal
        for choice in get_args(part)
    ]
    if choices and value not in choices:
        raise make_unknown_error(f"`{name}`", str(value), choices)
    if allowed is bool and not isinstance(value, bool):
        raise InputError(f"`{name}` must be true or false, got {value!r:.60}")
    return value


def check_options(request: Any) -> None:
    """Check every option of a request; numbers of other libraries become Python's.

    Raises:
        InputError: at the first value that is not allowed.
    """
    for name in options_of(type(request)):
        checked = check_option(type(request), name, getattr(request, name))
        object.__setattr__(request, name, checked)


def make_request(kind: type[T], given: Mapping[str, Any]) -> T:
    """Make a request from the options that were given; None counts as not given.

    Raises:
        InputError: if there is no such option, or a value is not allowed.
    """
    for name in given:
        if name not in options_of(kind):
            raise make_unknown_error("option", name, options_of(kind))
    found = {name: value for name, value in given.items() if value is not None}
    if "given" in kind.__dataclass_fields__:  # type: ignore[attr-defined]
        found["given"] = frozenset(found)
    return kind(**found)


def resolve_request(kind: type[T], request: T | None, given: Mapping[str, Any]) -> T:
    """Return a request: the one that is there, or the one that the options make.

    Raises:
        InputError: if there are both, or `make_request` refuses the options.
    """
    if request is None:
        return make_request(kind, given)
    if given:
        raise InputError(
            f"options must be given in the request or as arguments, got both: {', '.join(given)}"
        )
    return request


def place_request(kind: type[T], name: str, first: Any, given: Mapping[str, Any]) -> T:
    """Return the request of a call whose first place takes one option, or a whole request.

    Args:
        kind: of the request.
        name: of the option that stands first; None is not a way to leave it out there.
        first: what stands there.
        given: the other options.

    Raises:
        InputError: as `resolve_request`, or if the first option is not allowed.
    """
    if isinstance(first, kind):
        return resolve_request(kind, first, given)
    return make_request(kind, {name: check_option(kind, name, first), **given})


def add_options(kind: type[Any]) -> Callable[[T], T]:
    """Return the decorator that shows the options of a request in a function's signature.

    The function takes them as `**options`; editors and `help` then list them one by one.
    """

    def decorate(function: T) -> T:
        signature = inspect.signature(function)  # type: ignore[arg-type]
        *own, _ = signature.parameters.values()
        taken = {parameter.name for parameter in own}
        options = [
            inspect.Parameter(
                f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=f.type
            )
            for f in fields(kind)
            if f.name in options_of(kind) and f.name not in taken
        ]
        function.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]
        return function

    return decorate


# --- Checks --------------------------------------------------------------------------------------


def check_for_whole_number(low: int, high: int | None = None, remedy: str = "") -> Check:
    """Return the check for whole numbers from `low` to `high`."""
    return lambda name, value: check_integer(name, value, low, high, remedy)


def check_for_number(rule: str, fits: Callable[[float], bool], remedy: str = "") -> Check:
    """Return the check for finite numbers that fit; `rule` says in words which do."""
    return lambda name, value: check_number(name, value, rule, fits, remedy)


def check_for_one_of(kind: str, known: Iterable[str]) -> Check:
    """Return the check for one of some names, which are of a kind such as "metric"."""

    def check(name: str, value: Any) -> str:
        if value not in tuple(known):
            raise make_unknown_error(kind, str(value), known)
        return str(value)

    return check


def check_metric_name(name: str, value: Any) -> str:
    """Check the name of a metric of any kind of task; whether it fits the task shows later."""
    from layerscout.data import METRICS  # imports numpy, which would slow `--help` by a third

    return str(check_for_one_of("metric", METRICS)(name, value))


def check_for_count_or(*words: str) -> Check:
    """Return the check for a number of at least 1, or one of some words."""

    def check(name: str, value: Any) -> int | str:
        if isinstance(value, str):
            if value in words:
                return value
            if not re.fullmatch(r"[0-9]{1,18}", value):
                allowed = " or ".join(f"'{word}'" for word in words)
                raise InputError(f"`{name}` must be a whole number or {allowed}, got {value!r:.60}")
            value = int(value)
        return check_integer(name, value, 1, remedy=f"'{words[0]}' takes all of them")

    return check


def check_counts(name: str, value: Any) -> tuple[int, ...]:
    """Check a list of numbers of things; text has commas between them.

    Raises:
        InputError: if one is not a whole number of 0 or more.
    """
    parts = read_numbers(name, value) if isinstance(value, str) else value
    return tuple(check_integer(name, part, 0) for part in parts)


def check_for_several(check: Check, read: type[int] | type[float]) -> Check:
    """Return the check for one or several different numbers, as a tuple.

    Text with commas, as the command line gives it, is read as numbers of the type `read`.
    """

    def check_all(name: str, value: Any) -> tuple[Any, ...]:
        value = read_numbers(name, value, read) if isinstance(value, str) else value
        many = isinstance(value, Sequence) or getattr(value, "ndim", 0) > 0  # an array of numpy
        numbers = tuple(check(name, one) for one in (value if many else [value]))
        if not numbers or len(set(numbers)) < len(numbers):
            raise InputError(
                f"`{name}` takes one number or several different ones, got {list(numbers)}; "
                "remove the duplicates"
            )
        return numbers

    return check_all


def read_numbers(name: str, text: str, read: type[int] | type[float] = int) -> list[Any]:
    """Read numbers with commas between them.

    Raises:
        InputError: if they are not.
    """
    try:
        return [read(part) for part in text.split(",")]
    except ValueError as error:
        kind = "whole numbers" if read is int else "numbers"
        raise InputError(f"`{name}` takes {kind}, got {text!r:.60}") from error
