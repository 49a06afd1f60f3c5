"""Options of verbs: fields that are declared, checked and explained in one place.

A dataclass whose fields are made by `option`, each with a docstring below it, is all that an option
needs: the Python call, what editors know of it, the command line, recipes and the keys of trials
are made from it.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache, partial
from itertools import pairwise
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from layerscout.errors import InputError, check_integer, check_number, make_unknown_error

T = TypeVar("T")

# Takes the name of an option and what was given for it; returns the value, or raises InputError.
Check = Callable[[str, Any], Any]


@dataclass(frozen=True)
class Declaration:
    """What is known of an option beside its name, type and explanation.

    Attributes:
        default: its default.
        check: of its value; without one, the annotation says what is allowed (`Literal`, `bool`).
        takes: what callers may give, as an annotation, where that is more than the field's type.
        shown: its default in words.
        flag: its name on the command line, if that is another than the field's; or several, such as
            "--quiet -q".
        nested: its value is a mapping of the options of these dataclasses, which are options of
            their own on the command line.
    """

    default: Any
    check: Check | None = None
    takes: str | None = None
    shown: str | None = None
    flag: str | None = None
    nested: Mapping[str, type[Any]] | None = None


def option(default: Any, check: Check | None = None, **more: Any) -> Any:
    """Declare an option with its default; for the arguments see `Declaration`."""
    return field(default=default, metadata={"option": Declaration(default, check, **more)})


def options_of(kind: Any) -> dict[str, Declaration]:
    """Return the options of a request by name."""
    return {f.name: f.metadata["option"] for f in fields(kind) if "option" in f.metadata}


@cache
def types_of(kind: Any) -> dict[str, Any]:
    """Return the types of a request's fields."""
    return get_type_hints(kind)


@cache
def explain_options(kind: Any) -> dict[str, str]:
    """Return the docstrings that stand below the fields of a request and of its parents."""
    texts: dict[str, str] = {}
    for parent in reversed(kind.__mro__[:-1]):
        texts |= _read_docstrings(parent.__module__)[parent.__name__]
    return texts


@cache
def _read_docstrings(module: str) -> dict[str, dict[str, str]]:
    """Return the docstrings below the fields of a module's classes, by class and field."""
    texts: dict[str, dict[str, str]] = {}
    for statement in ast.parse(inspect.getsource(sys.modules[module])).body:
        if isinstance(statement, ast.ClassDef):
            own = texts[statement.name] = {}
            for first, second in pairwise(statement.body):
                match first, second:
                    case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                        own[name] = " ".join(text.split())
    return texts


def check_option(kind: Any, name: str, value: Any) -> Any:
    """Check one value by the rule of its option.

    Raises:
        InputError: if it is not allowed.
    """
    declared = options_of(kind)[name]
    if value is None and declared.default is None:
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


class Options:
    """A frozen dataclass of options; each value is checked when it is made."""

    def __post_init__(self) -> None:
        """Check every option; numbers of other libraries become Python's.

        Raises:
            InputError: at the first value that is not allowed.
        """
        for name in options_of(type(self)):
            checked = check_option(type(self), name, getattr(self, name))
            object.__setattr__(self, name, checked)


def make_request(kind: type[T], given: Mapping[str, Any]) -> T:
    """Make a request from the options that were given; None counts as not given.

    Raises:
        InputError: if there is no such option, or a value is not allowed.
    """
    for name in given:
        if name not in options_of(kind):
            raise make_unknown_error("option", name, options_of(kind))
    values = {name: value for name, value in given.items() if value is not None}
    if "given" in kind.__dataclass_fields__:  # type: ignore[attr-defined]
        values["given"] = frozenset(values)
    return kind(**values)


def resolve_request(
    kind: type[T], request: Any, given: Mapping[str, Any], first: str | None = None
) -> T:
    """Return the request of a call: a whole one, or the one that its options make.

    Args:
        kind: of the request.
        request: a request of this kind, or None; with `first`, it may also be the value of that
            option, which None is not.
        given: the other options.
        first: the option that the place of the request takes as well.

    Raises:
        InputError: if there are both a request and options, or the options make none.
    """
    if not isinstance(request, kind):
        start = {} if first is None else {first: check_option(kind, first, request)}
        return make_request(kind, {**start, **given})
    if given:
        raise InputError(
            f"options must be given in the request or as arguments, got both: {', '.join(given)}"
        )
    return request


def take_options(kind: type[T], given: Mapping[str, Any]) -> tuple[T, dict[str, Any]]:
    """Return the request that its own options make, and the options that are left.

    Raises:
        InputError: if a value is not allowed.
    """
    own = {name: value for name, value in given.items() if name in options_of(kind)}
    rest = {name: value for name, value in given.items() if name not in own}
    return make_request(kind, own), rest


def add_options(*kinds: type[Any]) -> Callable[[T], T]:
    """Return the decorator that shows the options of requests in a function's signature.

    The function takes them as `**options`; editors and `help` then list them one by one.
    """

    def decorate(function: T) -> T:
        signature = inspect.signature(function)  # type: ignore[arg-type]
        *own, _ = signature.parameters.values()
        taken = {parameter.name for parameter in own}
        options = [
            inspect.Parameter(
                f.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=f.default,
                annotation=options_of(kind)[f.name].takes or f.type,
            )
            for kind in kinds
            for f in fields(kind)
            if f.name in options_of(kind).keys() - taken
        ]
        function.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]
        return function

    return decorate


# --- Checks --------------------------------------------------------------------------------------


def check_known(name: str, value: Any, known: Collection[str]) -> str:
    """Check that a value is one of the names of a table."""
    if value not in known:
        raise make_unknown_error(name, str(value), known)
    return str(value)


def check_metric_name(name: str, value: Any) -> str:
    """Check the name of a metric of any kind of task; whether it fits the task shows later."""
    from layerscout.data import METRICS  # imports numpy, which would slow `--help` by a third

    return check_known(name, value, METRICS)


def check_count(name: str, value: Any, *, words: Sequence[str]) -> int | str:
    """Check a number of at least 1, or one of some words."""
    if isinstance(value, str):
        if value in words:
            return value
        if not re.fullmatch(r"[0-9]{1,18}", value):
            allowed = " or ".join(f"'{word}'" for word in words)
            raise InputError(f"`{name}` must be a whole number or {allowed}, got {value!r:.60}")
        value = int(value)
    return check_integer(name, value, 1, remedy=f"'{words[0]}' takes all of them")


def check_duration(name: str, value: Any) -> float:
    """Check seconds, or text such as 90s, 10m or 2h, and return the seconds."""
    units = {"": 1, "s": 1, "m": 60, "h": 3600}
    written = value.strip().lower() if isinstance(value, str) else None
    if written is not None:
        found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*([smh]?)", written)
        if found is None:
            raise InputError(f"`{name}` takes a time such as 90s, 10m or 2h, got {value!r:.60}")
        value = float(found[1]) * units[found[2]]
    return check_number(name, value, "above 0", lambda seconds: seconds > 0)


def check_several(
    name: str, value: Any, *, check: Check, read: type[int] | type[float], repeated: bool = False
) -> tuple[Any, ...]:
    """Check one or several numbers and return them as a tuple.

    Args:
        name: of the option.
        value: a number, several, or text with commas between them.
        check: of each number.
        read: what text is read as.
        repeated: whether a number may come several times, or none at all.
    """
    if isinstance(value, str):
        try:
            value = [read(part) for part in value.split(",")]
        except ValueError as error:
            kind = "whole numbers" if read is int else "numbers"
            raise InputError(f"`{name}` takes {kind}, got {value!r:.60}") from error
    many = isinstance(value, Sequence) or getattr(value, "ndim", 0) > 0  # an array of numpy
    numbers = tuple(check(name, number) for number in (value if many else [value]))
    if not repeated and (not numbers or len(set(numbers)) < len(numbers)):
        raise InputError(
            f"`{name}` takes one number or several different ones, got {list(numbers)}; "
            "remove the duplicates"
        )
    return numbers


# Checks that several requests share.
COUNT = partial(check_integer, low=1)
RATE = partial(check_number, rule="above 0", fits=lambda rate: rate > 0)
RATES = partial(check_several, check=RATE, read=float)
COUNTS = partial(check_several, check=partial(check_integer, low=0), read=int, repeated=True)
SEED = partial(check_integer, low=0, high=2**63 - 1)
COUNT_OR_ALL = partial(check_count, words=("all",))
BUDGET = partial(
    check_number,
    rule="a share of full fine-tuning's training FLOPs, above 0 and up to 1",
    fits=lambda share: 0 < share <= 1,
    remedy="0.5 is half of them",
)

# --- What several requests take ------------------------------------------------------------------

# Tokens that are read of an input at the most, unless it is told otherwise.
MAX_LENGTH = 128

Pooling = Literal["mean", "last", "cls", "first", "mean-all", "mean-normed"]

# Which token the head of a classifier reads: the first one, or the last one that is not padding.
ReadToken = Literal["first", "last"]


def first_state(pooling: Pooling) -> int:
    """Return the first state that can differ between texts.

    The first token is the same in all of them, and so is its embedding: cls has no state 0.
    """
    return 1 if pooling == "cls" else 0


def usual_pooling(reads: ReadToken | None, *, words: bool = False) -> Pooling:
    """Return the pooling that a scan has unless another one is given.

    A decoder's tokens see only what stands before them, so that the last one alone has seen the
    whole text; docs/measured/decoders.md compares the poolings.

    Args:
        reads: the token that the head of the model's family reads.
        words: whether it is the tokens of a word that are pooled.
    """
    return "last" if reads == "last" and not words else "mean"
