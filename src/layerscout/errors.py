"""Errors in one line: the rule, the value seen, the remedy; and checks of numbers from users."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from math import isfinite, isinf, nan
from numbers import Integral, Real
from typing import Any

# Characters that move the cursor, colour the terminal or reverse the text: file names and labels in
# a message may hold them.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def escape_controls(text: str) -> str:
    """Replace control characters, line ends among them, by their escapes."""
    return _CONTROL.sub(lambda match: repr(match.group())[1:-1], text)


class LayerscoutError(Exception):
    """Anything that layerscout itself raises.

    Its arguments are the lines of its message, usually one. They may quote names and the content
    of files, so control characters are escaped.
    """

    def __str__(self) -> str:
        """Return the message."""
        return "\n".join(escape_controls(str(line)) for line in self.args)


class InputError(LayerscoutError):
    """The input cannot be used as it is; the command line exits with 2."""


class DiskError(LayerscoutError):
    """The machine cannot write, such as for a full disk; the command line exits with 1."""


class UnfinishedError(LayerscoutError):
    """All is trained and kept, but could not be judged or saved; the command line exits with 1."""


# With a guess at hand, a longer list of names would only hide it.
LISTED = 40


def make_unknown_error(kind: str, got: str, known: Iterable[str]) -> InputError:
    """Build the error for a name that is not one of `known`, with the nearest one as a guess.

    Args:
        kind: what the name is for, such as "column".
        got: the name as the user wrote it.
        known: the valid names.
    """
    names = list(known)
    close = get_close_matches(got, names, n=1)
    guess = f", did you mean {close[0]!r:.99}?" if close else ";"
    shown = [f"{name if name.isprintable() else repr(name):.99}" for name in names]
    if close and len(names) > LISTED:
        return InputError(f"unknown {kind} {got!r}{guess}")
    return InputError(f"unknown {kind} {got!r}{guess} known: {', '.join(shown) or 'none'}")


def first_line(error: Exception) -> str:
    """Return the first line of a library's message, if it is long its beginning.

    The rest is advice for its own users. Two lines if the first one only introduces the second.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    return (" ".join(lines[:2]) if lines[0].endswith(":") else lines[0])[:300]


def check_integer(
    name: str, value: Any, low: int, high: int | None = None, remedy: str = ""
) -> int:
    """Return a whole number from `low` to `high` as an `int`.

    Raises:
        InputError: if it is anything else.
    """
    fits = isinstance(value, Integral) and not isinstance(value, bool)
    if not fits or value < low or (high is not None and value > high):
        span = f"from {low} on" if high is None else f"in {low}..{high}"
        raise _refusal(name, f"a whole number {span}", value, remedy)
    return int(value)


def check_number(
    name: str, value: Any, rule: str, fits: Callable[[float], bool], remedy: str = ""
) -> float:
    """Return a finite number that `fits` as a `float`; `rule` says in words which ones do.

    Raises:
        InputError: if it is anything else.
    """
    try:
        number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else nan
    except OverflowError:
        number = nan
    if not isfinite(number) or not fits(number):
        rule = f"finite and {rule}" if isinf(number) else rule
        raise _refusal(name, rule, value, remedy)
    return number


def _refusal(name: str, rule: str, value: Any, remedy: str) -> InputError:
    message = f"`{name}` must be {rule}, got {value!r:.60}"
    return InputError(f"{message}; {remedy}" if remedy else message)
