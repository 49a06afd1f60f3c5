"""Checks of numbers from users."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite, isinf, nan
from numbers import Integral, Real
from typing import Any

from layerscout.runtime.errors import InputError


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
