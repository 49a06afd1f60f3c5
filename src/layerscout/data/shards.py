"""Data in many files, here or wherever fsspec reaches, read as one split."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from layerscout.data.folders import Layout, count_missing, is_held_out, is_part, lay_out
from layerscout.data.lines import File, find_suffix
from layerscout.data.tables import Source, Table, join_names
from layerscout.errors import InputError, first_line


class Part(NamedTuple):
    """One of the files of a split: what it is called, how many bytes it has, and what opens it."""

    path: str
    size: int | None
    open_source: Callable[[], Source]


def find_shards(
    data: str, is_known: Callable[[Path], bool], open_part: Callable[[File], Source]
) -> dict[str, Source]:
    """Find the files of a folder, a pattern or a URL that fsspec knows.

    A pattern is one split in many parts. So is a folder where no name tells a split; where some
    files are named train..., those are taken alone.

    Args:
        data: such as `folder/train-*.parquet` or `s3://bucket/folder`.
        is_known: tells whether a file can be read, by its path.
        open_part: opens a file.

    Returns:
        The source of each split.

    Raises:
        InputError: if there are none, they are of several kinds or of other splits, or the first
            cannot be read.
    """
    import fsspec

    with _reading(data, "; check the address"):
        filesystem, path = fsspec.core.url_to_fs(data)
        is_folder = filesystem.isdir(path)
        if is_folder:
            sizes = filesystem.find(path, maxdepth=1, detail=True)
        else:
            sizes = filesystem.glob(path, detail=True) if "*" in path else {path: {}}
            sizes = {file: sizes[file] for file in sizes if filesystem.isfile(file)}
    names = {file.rpartition("/")[2] if is_folder else file: file for file in sorted(sizes)}
    readable = [name for name in names if is_known(Path(name))]
    layout = lay_out(data, readable) if is_folder else Layout({})
    if "train" not in layout.splits:
        layout = Layout({"train": _choose_parts(data, list(names), readable, is_folder=is_folder)})

    def part(name: str) -> Part:
        opened = partial(filesystem.open, names[name], "rb")
        packed = name.lower().endswith(".gz")
        file = File(names[name], find_suffix(Path(name)), opened, packed)
        return Part(names[name], sizes[names[name]].get("size"), partial(open_part, file))

    return open_layout(data, data.rstrip("/").rpartition("/")[2], layout, readable, part)


def _choose_parts(
    data: str, names: Sequence[str], readable: Sequence[str], *, is_folder: bool
) -> list[str]:
    """Choose the files of the training split where their names tell nothing about splits."""
    parts = list(filter(is_part, readable))
    parts = [name for name in parts if name.lower().startswith("train")] or parts
    parts = parts if is_folder else [*readable]
    if not parts:
        raise InputError(
            f"data in many files must be .parquet or .jsonl: {data} has {join_names(names)}; "
            "convert the data"
        )
    if is_folder and (held_out := [name for name in parts if is_held_out(name)]):
        raise InputError(
            f"data in many files are one training split: {data} has {join_names(held_out)}; name "
            "the training files, or one file to use it alone"
        )
    return parts


def open_layout(
    folder: str, title: str, layout: Layout, files: Sequence[str], part: Callable[[str], Part]
) -> dict[str, Source]:
    """Open the splits of a folder; the training one says what should be known of its files.

    Args:
        folder, title: what messages call it, and its training split.
        layout: of its files.
        files: all of them that could be read, by their names in the folder.
        part: turns a name in the folder into a part of its split.
    """
    sources, notes = {}, [*layout.notes]
    for split, chosen in layout.splits.items():
        name = title if split == "train" else f"{folder} ({split})"
        try:
            sources[split] = join_files(name, list(map(part, chosen)))
        except InputError:
            if split != "test":
                raise
            # It may be there for other uses, or be empty: no columns, as reading it will tell.
            sources[split] = Source(chosen[0], {}, lambda _: Table("", {}))
        if missing := count_missing(chosen):
            notes.append(
                f"missing: {missing} of the {missing + len(chosen)} files of the {split} split of "
                f"{folder}; the others are read"
            )
    read = {*layout.others, *chain(*layout.splits.values())}
    if unread := [name for name in files if name not in read]:
        notes.append(
            f"data files of {folder} that are not read: {join_names(unread)} (a file given as "
            "--validation or --test is)"
        )
    return {**sources, "train": add_notes(sources["train"], notes)}


def add_notes(source: Source, notes: Sequence[str]) -> Source:
    """Return a source that says more of what should be known."""

    def read(wanted: Sequence[str]) -> Table:
        table = source.read(wanted)
        return replace(table, notes=(*notes, *table.notes))

    return replace(source, read=read)


def join_files(name: str, parts: Sequence[Part]) -> Source:
    """Join files into one split; its columns and the names of its classes are those of the first.

    Args:
        name: what messages call the split.
        parts: of the split; those without a byte are left out, as parallel writers leave some.
    """
    kinds = {find_suffix(Path(part.path)) for part in parts}
    if len(kinds) > 1:
        raise InputError(
            f"files must be of one kind: {name} has {' and '.join(sorted(kinds))}; name some, such "
            f"as {parts[0].path.rpartition('/')[0]}/*{min(kinds)}"
        )
    parts = [part for part in parts if part.size != 0] or parts[:1]
    with _reading(parts[0].path):
        first = parts[0].open_source()
    if len(parts) == 1:
        return first

    def read(wanted: Sequence[str]) -> Table:
        columns: dict[str, list[Any]] = {column: [] for column in wanted}
        lines: list[int] = []
        notes: list[str] = []
        starts, cells = {}, False
        for part in parts:
            starts[part.path] = len(columns[wanted[0]])
            with _reading(part.path):
                source = part.open_source()
                _check_alike(first, source, wanted)
                table = source.read(wanted)
            for column, values in columns.items():
                values += table.columns[column]
            lines += table.lines or ()
            notes += table.notes
            cells = cells or table.all_strings
        if len(notes) > 2:  # of hundreds of files
            notes[1:] = [f"{len(notes) - 1:,} such lines about other files of {name} are left out"]
        return Table(name, columns, lines or None, cells, starts, notes=tuple(notes))

    def stream(size: int) -> Iterator[Table]:
        for part in parts:
            with _reading(part.path):
                source = part.open_source()
                _check_alike(first, source, list(first.columns))
                yield from source.read_chunks(size)

    return replace(first, name=name, read=read, stream=stream)


def _check_alike(first: Source, source: Source, wanted: Sequence[str]) -> None:
    """Raise unless a file has the columns and the class names of the first one."""
    for column in wanted:
        if column not in source.columns:
            raise InputError(
                f"every row must have the column {column!r}: {source.name} has "
                f"{join_names(source.columns)}; name files of one kind"
            )
        names, others = source.classes.get(column, ()), first.classes.get(column, ())
        if names != others:
            raise InputError(
                f"the classes of {column!r} must be the same in all files: {source.name} has "
                f"{join_names(names)}, {first.name} has {join_names(others)}; name files of one "
                "kind"
            )


@contextmanager
def _reading(path: str, remedy: str = "") -> Iterator[None]:
    """Turn errors, of many kinds as formats and file systems have their own, into one line."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"cannot read {path}: {first_line(error):.200}{remedy}") from error
