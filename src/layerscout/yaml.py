"""Plain data as YAML 1.2, read with limits."""

from __future__ import annotations

import json
import re
from functools import cache
from io import StringIO
from typing import Any

from layerscout.errors import InputError, first_line

# ruamel.yaml is imported when it is used: every command imports this room, `--help` too.

# Values of a file with its aliases written out: six levels of nine aliases are half a million.
MOST_VALUES = 100_000


def read_yaml(text: str) -> Any:
    """Read the only document of a text: plain data, no key twice, not too much.

    Raises:
        InputError: if it is anything else; the message says what is wrong, not of which file.
    """
    from ruamel.yaml.error import YAMLError

    try:
        content = _make_yaml().load(text)
        if (count := _count_values(content, {})) > MOST_VALUES:
            raise ValueError(
                f"it has more than {MOST_VALUES:,} values, with those that aliases repeat "
                f"({count:,}); write fewer"
            )
        json.dumps(content)  # raises TypeError for dates
    except (YAMLError, RecursionError, ValueError, TypeError, LookupError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        reason = getattr(error, "problem", None) or first_line(error)
        raise InputError(f"not valid YAML{where}: {reason}") from error
    return content


def write_yaml(content: Any) -> str:
    """Write plain data so that `read_yaml` returns the same."""
    yaml, stream = _make_yaml(), StringIO()
    yaml.Representer = _make_representer()
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False
    yaml.dump(content, stream)
    return stream.getvalue()


def _make_yaml() -> Any:
    from ruamel.yaml import YAML

    return YAML(typ="safe", pure=True)  # the reader in C follows YAML 1.1, in which 1e-4 is text


@cache
def _make_representer() -> type:
    """Make the class that writes text with escapes where line breaks would be folded to spaces."""
    from ruamel.yaml.representer import SafeRepresenter

    class EscapingRepresenter(SafeRepresenter):
        def represent_text(self, text: str) -> Any:
            """Return the node of a text."""
            style = '"' if re.search("[\x85\u2028\u2029]", text) else None
            return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    EscapingRepresenter.add_representer(str, EscapingRepresenter.represent_text)
    return EscapingRepresenter


def _count_values(value: Any, sizes: dict[int, int | None]) -> int:
    """Count a value and all within it, those that aliases repeat as often as they stand there.

    Raises:
        ValueError: if one is inside itself.
    """
    inner = [*value, *value.values()] if isinstance(value, dict) else value
    if not isinstance(inner, list):
        return 1
    if id(value) not in sizes:
        sizes[id(value)] = None
        sizes[id(value)] = 1 + sum(_count_values(one, sizes) for one in inner)
    if (size := sizes[id(value)]) is None:
        raise ValueError("an alias is inside the value that it repeats; write that out")
    return size
