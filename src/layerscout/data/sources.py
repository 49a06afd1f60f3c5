"""Finding the splits of a file, a folder, the demo or a data set on the hub."""

from dataclasses import replace
from pathlib import Path

from layerscout.data.files import OPENERS, is_known, no_such_file, open_file, refuse_separator
from layerscout.data.hub import VALIDATION_NAMES, open_hub, parse_hub_name
from layerscout.data.lines import reading
from layerscout.data.stdin import open_stdin
from layerscout.data.tables import Source, Table, from_memory, join_names
from layerscout.runtime import InputError


def find(data: str | Path, sep: str | None = None) -> tuple[str, str | None, dict[str, Source]]:
    """Find the splits of a file, a folder, standard input, the demo or a data set on the hub.

    Args:
        data: as for `Task.load`.
        sep: what stands between the fields of CSV and TSV files; see `open_file`.

    Returns:
        What to call the data; the hub's `owner/name[/config]`, None for what is not from the hub;
        and the source of each split, "train" first and perhaps "validation" and "test".

    Raises:
        InputError: if there is no such thing, or it cannot be read.
    """
    if data == "demo":
        if sep is not None:
            raise refuse_separator(data)
        return "demo", None, _demo()
    if data == "-":
        return "stdin", None, {"train": open_stdin(sep)}
    if not str(data):
        raise InputError("the name of the data is empty; give a file, a folder or a hub data set")
    path = Path(data)
    with reading(path):
        if path.is_dir():
            return path.resolve().name, None, _folder(path, sep)
        if path.is_file():
            return _strip(path), None, {"train": open_file(path, sep)}
        there = path.is_symlink() or path.exists()
    hub = None if there or isinstance(data, Path) else parse_hub_name(data)
    if hub is None:
        raise no_such_file(path)
    if sep is not None:
        raise refuse_separator(data)
    return str(data), hub, open_hub(hub)


def _strip(path: Path) -> str:
    """Give the name of a file without its ending, or endings if it is compressed."""
    return Path(path.stem).stem if path.suffix.lower() == ".gz" else path.stem


def _folder(path: Path, sep: str | None) -> dict[str, Source]:
    """Open the splits of a folder with `train.*` and perhaps `validation.*` and `test.*`."""
    entries = sorted(path.iterdir())
    files = [entry for entry in entries if is_known(entry)]
    names = {"train": ("train",), "validation": VALIDATION_NAMES, "test": ("test",)}
    found = {
        split: [file for file in files if _strip(file).lower() in usual]
        for split, usual in names.items()
    }
    if not found["train"]:
        raise InputError(
            f"a folder of data needs one train file ({', '.join(OPENERS)}): {path} has "
            f"{join_names(entry.name for entry in entries)}; name a file to use it alone"
        )
    for split, matches in found.items():
        if len(matches) > 1:
            raise InputError(
                f"a folder of data needs one {split} file: {path} has "
                f"{join_names(file.name for file in matches)}; remove all but one"
            )
    return {split: _open(split, matches[0], sep) for split, matches in found.items() if matches}


def _open(split: str, path: Path, sep: str | None) -> Source:
    """Open the file of a split; a broken test file has no columns, and is told of when it is read.

    It may be there for other uses, or be empty.
    """
    try:
        return open_file(path, sep)
    except InputError:
        if split != "test":
            raise
        return Source(path.name, {}, lambda _: Table(path.name, {}))


def _demo() -> dict[str, Source]:
    """Return the splits of the task that ships with the package: always the same rows."""
    from layerscout.data.demo import LABELS, sentences

    texts, labels = zip(*sentences(2500, seed=0), strict=True)
    splits = {
        "train": from_memory("demo", texts[:2000], labels[:2000]),
        "validation": from_memory("demo (validation)", texts[2000:], labels[2000:]),
    }
    return {which: replace(split, classes={"label": LABELS}) for which, split in splits.items()}
