"""Plain data as YAML 1.2, read with limits."""

from __future__ import annotations

import json
import re
from functools import cache
from io import StringIO
from typing import Any

from layerscout.errors import InputError

# ruamel.yaml is imported when it is used: every command imports this room, `--help` too.

# Values of a file with its aliases written out: six levels of nine aliases are half a million.
MOST_VALUES = 100_000
# Levels of values in values; reading takes a time that grows with their square.
MOST_LEVELS = 50


def read_yaml(text: str) -> Any:
    """Read the only document of a text: plain data, no key twice, not too much.

    Raises:
        InputError: if it is anything else; the message says what is wrong, not of which file.
    """
    from ruamel.yaml.error import YAMLError

    yaml = _make_yaml()
    yaml.Composer, yaml.Constructor = _make_limits()
    try:
        content = yaml.load(text)
        json.dumps(content)  # raises TypeError for dates
    except (YAMLError, RecursionError, ValueError, TypeError, LookupError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        reason = getattr(error, "problem", None) or "it cannot be parsed"
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


@cache
def _make_limits() -> tuple[type, type]:
    """Make the classes that keep what is read within the limits, and its keys different."""
    from ruamel.yaml.composer import Composer, ComposerError
    from ruamel.yaml.constructor import ConstructorError, SafeConstructor
    from ruamel.yaml.events import AliasEvent

    class LimitedComposer(Composer):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.levels = 0  # values that are being read
            self.values = 0  # read so far, with those that aliases repeat
            self.sizes: dict[int, int] = {}  # values of each node, once all are read

        def compose_node(self, parent: Any, index: Any) -> Any:
            """Read a value and count all below it; an alias counts as all that it repeats."""
            event, before = self.parser.peek_event(), self.values
            problem, is_alias = None, isinstance(event, AliasEvent)
            if self.levels == MOST_LEVELS:
                problem = f"it has more than {MOST_LEVELS} levels of values in values; write fewer"
                raise ComposerError(None, None, problem, event.start_mark)
            self.levels += 1
            node = super().compose_node(parent, index)
            self.levels -= 1
            if not is_alias:
                self.values += 1
                self.sizes[id(node)] = self.values - before
            elif id(node) in self.sizes:
                self.values += self.sizes[id(node)]
            else:
                problem = f"*{event.anchor} is inside the value that it repeats; write that out"
            if self.values > MOST_VALUES:
                aliases = ", with those that aliases repeat" if is_alias else ""
                problem = f"it has more than {MOST_VALUES:,} values{aliases}; write fewer"
            if problem is not None:
                raise ComposerError(None, None, problem, event.start_mark)
            return node

    class StrictConstructor(SafeConstructor):
        def check_mapping_key(
            self, node: Any, key_node: Any, mapping: Any, key: Any, value: Any
        ) -> bool:
            """Check that a key is the first of its name."""
            if key in mapping:
                problem = f"{key!s:.60} appears twice; remove one"
                raise ConstructorError(None, None, problem, key_node.start_mark)
            return True

    return LimitedComposer, StrictConstructor
