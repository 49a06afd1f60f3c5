"""How numbers, names and the circumstances of a run are written for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def format_number(value: float | None) -> str:
    """Write a value with four digits."""
    return "–" if value is None else f"{value:#.4g}".removesuffix(".")


def format_signed(value: float | None) -> str:
    """Write a correlation with its sign and two decimals."""
    return "–" if value is None else f"{value:+.2f}"


def format_decimals(value: float | None, decimals: int = 3) -> str:
    """Write a value with a fixed number of decimals."""
    return "–" if value is None else f"{value:.{decimals}f}"


def start_line(name: str) -> str:
    """Write a name at the start of a line, where it may have capitals of its own."""
    return name[:1].upper() + name[1:]


def format_entries(entries: Sequence[int]) -> str:
    """Write ascending numbers, those that follow each other as a range: 1, 3–5."""
    starts = [e for e in entries if e - 1 not in entries]
    ends = [e for e in entries if e + 1 not in entries]
    runs = [
        str(a) if a == b else f"{a}, {b}" if b == a + 1 else f"{a}–{b}"
        for a, b in zip(starts, ends, strict=True)
    ]
    return ", ".join(runs)


def format_state(state: int) -> str:
    """Name a state in a column of states."""
    return f"{state} (embeddings)" if state == 0 else str(state)


def list_model(model: Mapping[str, Any]) -> str:
    """Name a model with its family and depth."""
    return f"{model['name']} ({model['family']}, {model['blocks']} blocks)"


def list_circumstances(content: Mapping[str, Any]) -> list[tuple[str, str]]:
    """List what every verb records: the settings that have a value, the seconds, the version."""
    seconds = [f"{name} {value:.1f}" for name, value in content["seconds"].items()]
    named = {"task": "Known task"}  # its name stands above
    return [
        *(
            (named.get(name, name.replace("_", " ").capitalize()), format_setting(value))
            for name, value in content["settings"].items()
            if value is not None
        ),
        ("Seconds", ", ".join(seconds)),
        ("layerscout", content["layerscout"]),
    ]


def format_setting(value: object) -> str:
    """Write the value of a setting for people."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {format_setting(held)}" for name, held in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(format_setting, value))
    return str(value)
