"""Plain data as YAML, read with limits."""

from __future__ import annotations

import json
import math
import re
from functools import cache
from typing import TYPE_CHECKING, Any

from layerscout.runtime.errors import InputError

if TYPE_CHECKING:
    import yaml

# PyYAML is imported when it is used: every command imports this room, `--help` too.

# Values of a file with its aliases written out: six levels of nine aliases are half a million.
MOST_VALUES = 100_000


def read_yaml(text: str) -> Any:
    """Read the only document of a text: plain data, 1e-4 as a number, no key twice, not too much.

    Raises:
        InputError: if it is anything else; the message says what is wrong, not of which file.
    """
    import yaml

    try:
        content = yaml.load(text, Loader=_make_loader())
        json.dumps(content)  # raises ValueError where anchors make a circle, TypeError for dates
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
        def get_single_data(self) -> Any:
            """Read the only document, unless its aliases stand for more than a file has."""
            node = self.get_single_node()
            if node is None:
                return None
            if _count_values(node, {}) > MOST_VALUES:
                problem = f"it has more than {MOST_VALUES:,} values, with aliases; write fewer"
                raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
            return self.construct_document(node)

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            """Read a mapping whose keys differ."""
            keys = [key.value for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
            twice = next((key for key in keys if keys.count(key) > 1), None)
            if twice is not None:
                problem = f"{twice!s:.60} appears twice; remove one"
                raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
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


def _count_values(node: yaml.Node, known: dict[int, float]) -> float:
    """Count the values below a node, those of an alias each time; endless in a circle."""
    import yaml

    if id(node) not in known:
        known[id(node)] = math.inf  # until all below it is counted
        parts: list[yaml.Node] = []
        if isinstance(node, yaml.MappingNode):
            parts = [part for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            parts = node.value
        known[id(node)] = 1 + sum(_count_values(part, known) for part in parts)
    return known[id(node)]
