"""Rows of texts that need no labels, read some at a time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from layerscout.data.columns import Template, choose_texts, holds_texts, render
from layerscout.data.files import open_records, text_records
from layerscout.data.folders import strip_suffix
from layerscout.data.known_tasks import KNOWN, Kind
from layerscout.data.lines import File, Format, find_suffix
from layerscout.data.reading import check_unicode
from layerscout.data.sources import find, open_stdin
from layerscout.data.tables import Source, Table, name_value, read_lists
from layerscout.data.writing import WRITTEN
from layerscout.errors import InputError, make_unknown_error


@dataclass(frozen=True)
class Texts:
    """What a model reads of some rows.

    Attributes:
        table: the rows, with all of their columns.
        texts: n texts, or lists of words.
        pairs: n second texts, or lists of choices; None where there are none.
    """

    table: Table
    texts: list[Any]
    pairs: list[Any] | None

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class TextRows:
    """Rows with texts.

    Attributes:
        source: of the rows.
        templates: the text, then its pair or its choices.
        kind: of the task that they are predicted for.
        numbers: whether columns of numbers may be texts, as the user named them.
        drop_missing: whether rows without a text are left out.
    """

    source: Source
    templates: tuple[Template, ...]
    kind: Kind
    numbers: bool
    drop_missing: bool

    def read(self, size: int) -> Iterator[Texts]:
        """Yield the rows, `size` at a time at the most.

        Raises:
            InputError: if a row has no text, or cannot be read.
        """
        columns = [slot[0] for template in self.templates for slot in template.slots]
        for table in self.source.read_chunks(size):
            for column in columns if self.drop_missing else ():
                table = table.drop_missing(column)
            for column in columns:
                if column not in table.columns:
                    raise make_unknown_error(f"column of {table.name}", column, table.columns)
            check_unicode(table)
            if len(table):
                yield self._read(table)

    def _read(self, table: Table) -> Texts:
        """Return what is read of a table."""
        [*_, last] = self.templates
        if self.kind == "token_classification" and self.holds_words:
            rows = read_lists(table, last.written, "every row must have a list of words", "fill it")
            for row, words in enumerate(rows):
                for word in words:
                    if not isinstance(word, str):
                        rule, actual = "words must be strings", name_value(word)
                        raise table.fault(rule, actual, last.written, row, "write it as a string")
            return Texts(table, rows, None)
        texts, *choices = [render(table, template, self.numbers) for template in self.templates]
        if self.kind == "multiple_choice":
            return Texts(table, texts, [list(row) for row in zip(*choices, strict=True)])
        return Texts(table, texts, choices[0] if choices else None)

    @property
    def holds_words(self) -> bool:
        """Whether the rows have lists of words."""
        return self.source.columns[self.templates[0].written] in ("words", "list")


def open_texts(
    data: str | Path,
    kind: Kind,
    *,
    task: str | None = None,
    text: str | None = None,
    text_pair: str | None = None,
    drop_missing: bool = False,
    sep: str | None = None,
    encoding: str | None = None,
    before: dict[str, Any] | None = None,
) -> TextRows:
    """Open rows that need no labels: what `Task.load` takes, or lines of text.

    Of several splits the last one is taken: the test rows. A .txt file has a text on each line, and
    so has standard input that is no table with a column of texts, by its name.

    Args:
        data: as for `Task.load`, or a .txt file.
        kind: of the task.
        task, text, text_pair, drop_missing, sep, encoding: as for `Task.load`.
        before: what was read in tuning, as in `Task.origin`, and is again if it is there.

    Raises:
        InputError: if the rows cannot be found, opened or used.
    """
    form, path = Format(sep, encoding), Path(data)
    if data == "-":
        source = open_stdin(form, None if text is not None else holds_texts)
    elif find_suffix(path) == ".txt" and path.is_file():
        if sep is not None:
            raise InputError(f"`sep` is for fields of CSV and TSV files, got {data}; leave it out")
        source = open_records(replace(File.at(path), encoding=encoding), text_records)
    else:
        source = [*find(data, form)[2].values()][-1]
    if task is not None and task not in KNOWN:
        raise make_unknown_error("task", task, KNOWN)
    of_words = kind == "token_classification"
    templates: tuple[Template, ...] = ()
    own = [None if before is None else before.get(name) for name in ("task", "text", "text_pair")]
    if (task, text, text_pair) == (None, None, None) and any(own):
        with suppress(InputError, KeyError):  # these rows may have other columns
            templates = choose_texts(source, *own, of_words=of_words)
    templates = templates or choose_texts(source, task, text, text_pair, of_words=of_words)
    needed = 3 if kind == "multiple_choice" else 1
    if len(templates) < needed:
        raise InputError(
            "a text with choices is read by the columns of its task; name it with --task, such as "
            "copa"
        )
    if len(templates) > 2 and kind != "multiple_choice":
        raise InputError(f"{task} is a task with choices, and the model has none; leave out --task")
    return TextRows(source, templates, kind, text is not None, drop_missing)


def choose_file(data: str | Path) -> Path:
    """Return the file that is written by default of rows of some data: beside theirs, or here."""
    path = Path(data)
    if path.is_file():
        suffix = WRITTEN.get(find_suffix(path), ".csv")
        return path.with_name(f"{strip_suffix(path.name)}.predictions{suffix}")
    name = re.sub(r"[^\w.-]+", "-", str(data)).strip("-.") or "texts"
    return Path(f"{name}.predictions.csv")
