"""Options in a YAML file: those of a run that is asked for, and of one that was done."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from layerscout.cli.flatten import Given
from layerscout.runtime import InputError, make_unknown_error, read_yaml, write_files, write_yaml

# What a file has no use for: where the output goes, what is printed, and what a run does with
# earlier ones or publishes, which must be asked for each time.
LEFT_OUT = {"config", "output", "json", "quiet", "resume", "overwrite", "push_to_hub", "private"}


def _take_config(context: typer.Context, path: Path | None) -> None:
    """Let a file give what the command line does not, model and data too."""
    if path is not None and not context.resilient_parsing:
        options = (one for one in context.command.params if one.name not in ("help", "config"))
        flags = {str(one.name): bool(getattr(one, "is_flag", False)) for one in options}
        context.default_map = _read_config(path, flags)


Config = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        is_eager=True,
        callback=_take_config,
        help="YAML file of options, which may also name model and data; options on the "
        "command line take precedence.",
    ),
]


def _read_config(path: Path, flags: Mapping[str, bool]) -> dict[str, Any]:
    """Read a file of options, each as the command line would write it.

    Args:
        path: the file.
        flags: whether an option is a flag, by its name.

    Raises:
        InputError: if it cannot be read, or has something else.
    """
    try:
        content = read_yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise InputError(f"cannot read {path}: {reason}") from error
    except InputError as error:
        raise InputError(f"{path} is {error}") from error
    if not isinstance(content, Mapping):
        raise InputError(f"{path} must have options with their values, such as `epochs: 3`")
    content = dict(content)
    nested = content.pop("method_options", None)
    if isinstance(nested, Mapping):
        content = {**nested, **content}
    for name in content:
        if name not in flags:
            raise InputError(f"{path}: {make_unknown_error('option', str(name), flags)}")
        if isinstance(content[name], bool) != flags[name] and content[name] is not None:
            rule = (
                "must be true or false" if flags[name] else "must not be true or false (unquoted)"
            )
            raise InputError(f"{path}: `{name}` {rule}, got {content[name]!r:.60}")
    return {
        name: _write_value(path, name, value)
        for name, value in content.items()
        if value is not None
    }


def _write_value(path: Path, name: str, value: Any) -> Any:
    """Write a value as it stands on the command line, but for true and false."""
    if isinstance(value, Mapping):
        raise InputError(f"{path}: `{name}` takes a value or a list, got {dict(value)!r:.60}")
    if isinstance(value, list):
        parts = [str(_write_value(path, name, one)) for one in value]
        return parts if name == "edits" else ",".join(parts)
    return value if isinstance(value, bool) else str(value)


def write_config(verb: str, given: Given, folder: Path) -> None:
    """Write `run.yaml` into a folder: what was given to a run, as `--config` takes it."""
    content = {
        name: str(Path(value).absolute()) if _is_path(name, value) else value
        for name, value in given.items()
        if name not in LEFT_OUT
    }
    repeat = f"layerscout {verb} --config run.yaml"
    heading = f"# Options of layerscout {version('layerscout')}; {repeat} repeats the run.\n"
    write_files({folder / "run.yaml": heading + write_yaml(content)})


def _is_path(name: str, value: Any) -> bool:
    """Tell a file or a folder from a name on the hub, the demo, a strategy or a fraction."""
    if name in ("plan", "against"):
        return str(value).endswith(".json")
    named = name in ("model", "data", "scan", "validation", "test")
    return named and value not in ("demo", "-") and Path(value).exists()
