"""Plain data as YAML, read with limits."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any

from layerscout.runtime.errors import InputError

if TYPE_CHECKING:
    import yaml

# PyYAML is imported when it is used: every command imports this room, `--help` too.

# Values of a file with its aliases written out: six levels of nine aliases are half a million.
MOST_VALUES = 100_000
# Levels of values in values. PyYAML takes a time that grows with their square: 2.6 s for a thousand
# opening brackets, and two minutes where Python's stack is allowed to grow.
MOST_LEVELS = 50


def read_yaml(text: str) -> Any:
    """Read the only document of a text: plain data, 1e-4 as a number, no key twice, not too much.

    Raises:
        InputError: if it is anything else; the message says what is wrong, not of which file.
    """
    import yaml

    try:
        content = yaml.load(text, Loader=_make_loader())
        json.dumps(content)  # raises TypeError for dates
    except (yaml.YAMLError, RecursionError, ValueError, TypeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        reason = getattr(error, "problem", None) or "it cannot be parsed"
        raise InputError(f"not valid YAML{where}: {reason}") from error
    return content


def write_yaml(content: Any) -> str:
    """Write plain data so that `read_yaml` gives the same."""
    import yaml

    return yaml.dump(content, Dumper=_make_dumper(), sort_keys=False, allow_unicode=True)


@cache
def _make_loader() -> type[yaml.SafeLoader]:
    """Make the class that reads.

    PyYAML follows YAML 1.1, in which 1e-4 is text and the last of two equal keys wins.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        def __init__(self, text: str) -> None:
            super().__init__(text)
            self.written = self.repeated = 0  # values so far, and those that aliases repeat
            self.level = 0  # values that are being read
            self.sizes: dict[str, int] = {}  # values below an anchor, once all are read

        def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
            """Read a value and count all below it; an alias counts as all that it repeats."""
            event = self.peek_event()  # type: ignore[no-untyped-call]
            before = self.written + self.repeated
            if self.level == MOST_LEVELS:
                deep = f"it has more than {MOST_LEVELS} levels of values in values; write fewer"
                raise yaml.composer.ComposerError(None, None, deep, event.start_mark)
            self.level += 1
            node = super().compose_node(parent, index)
            self.level -= 1
            problem = None
            if not isinstance(event, yaml.AliasEvent):
                self.written += 1
                if event.anchor is not None:
                    self.sizes[event.anchor] = self.written + self.repeated - before
            elif event.anchor in self.sizes:
                self.repeated += self.sizes[event.anchor]
            else:
                problem = f"*{event.anchor} is inside the value that it repeats; write that out"
            if self.written + self.repeated > MOST_VALUES:
                aliases = ", with those that aliases repeat" if self.repeated else ""
                problem = f"it has more than {MOST_VALUES:,} values{aliases}; write fewer"
            if problem is not None:
                raise yaml.composer.ComposerError(None, None, problem, event.start_mark)
            return node

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            """Read a mapping whose keys differ."""
            keys = set()
            for key, _ in node.value:
                if key.tag == "tag:yaml.org,2002:merge" or not isinstance(key, yaml.ScalarNode):
                    continue
                if key.value in keys:
                    problem = f"{key.value:.60} appears twice; remove one"
                    raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
                keys.add(key.value)
            return super().construct_mapping(node, deep)

    _add_numbers(Loader)
    return Loader


@cache
def _make_dumper() -> type[yaml.SafeDumper]:
    """Make the class that writes: text that would be read as a number gets quotes."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def represent_text(self, text: str) -> yaml.ScalarNode:
            """Write text, with escapes where PyYAML would fold these line breaks to spaces."""
            style = '"' if re.search("[\x85\u2028\u2029]", text) else None
            return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, Dumper.represent_text)
    _add_numbers(Dumper)
    return Dumper


def _add_numbers(kind: Any) -> None:
    """Let a class of PyYAML take 1e-4 for a number."""
    pattern = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+")
    kind.add_implicit_resolver("tag:yaml.org,2002:float", pattern, list("-+0123456789"))
