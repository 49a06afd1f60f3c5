"""Options in a YAML file: those of a run that is asked for, and of one that was done."""

from __future__ import annotations

import re
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
        context.default_map = _read_config(path, {str(one.name): one for one in options}, context)


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


def _read_config(path: Path, options: Mapping[str, Any], context: typer.Context) -> dict[str, Any]:
    """Read a file of options, each as the command line would write it.

    Args:
        path: the file.
        options: the parameters of the command, by name.
        context: of the command.

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
    written = {}
    for name, value in content.items():
        if name not in options:
            raise InputError(f"{path}: {make_unknown_error('option', str(name), options)}")
        if value is None:
            continue
        is_flag = bool(getattr(options[name], "is_flag", False))
        if isinstance(value, bool) != is_flag:
            rule = "must be true or false" if is_flag else "must not be true or false (unquoted)"
            raise InputError(f"{path}: `{name}` {rule}, got {value!r:.60}")
        written[name] = _write_value(path, name, value)
        try:
            options[name].process_value(context, written[name])
        except typer.BadParameter as error:  # whose message names neither the file nor the value
            raise InputError(f"{path}: `{name}` {_write_rule(error)}, got {value!r:.60}") from error
    return written


def _write_rule(error: typer.BadParameter) -> str:
    """Write what a value of an option must be, which Typer has refused."""
    kind = re.search("valid (integer|float|number)", error.message)
    if kind is not None:
        return f"must be a {'whole ' if kind[1] == 'integer' else ''}number"
    return f"cannot be used ({error.message.removeprefix('Value error, ').rstrip('.')})"


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
