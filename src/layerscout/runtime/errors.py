"""What can go wrong, told in one line: the rule, the value seen, the remedy."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

# What would move the cursor, colour the terminal or turn the text around.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def escape_controls(text: str) -> str:
    """Write control characters as escapes, ends of lines among them."""
    return _CONTROL.sub(lambda found: repr(found.group())[1:-1], text)


class LayerscoutError(Exception):
    """Anything that layerscout itself raises.

    Its arguments are the lines of its message, one as a rule. They may quote names and what is in
    a file: control characters are written as escapes.
    """

    def __str__(self) -> str:
        """Give the message."""
        return "\n".join(escape_controls(str(line)) for line in self.args)


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


def first_line(error: Exception) -> str:
    """Give the first line of a library's message; what follows is advice for its own users."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
