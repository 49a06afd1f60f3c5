"""What can go wrong, told in one line: the rule, the value seen, the remedy."""

from collections.abc import Iterable
from difflib import get_close_matches


class LayerscoutError(Exception):
    """Anything that layerscout itself raises."""


class InputError(LayerscoutError):
    """The input cannot be used as it is; the command line exits with 2."""


def unknown(kind: str, got: str, known: Iterable[str]) -> InputError:
    """Build the error for a name that is not one of `known`, with the nearest one as a guess.

    Args:
        kind: what the name stands for, such as "column".
        got: the name as the user wrote it.
        known: the names that would have been right.
    """
    names = list(known)
    close = get_close_matches(got, names, n=1)
    guess = f", did you mean {close[0]!r}?" if close else ";"
    return InputError(f"unknown {kind} {got!r}{guess} known: {', '.join(names) or 'none'}")
