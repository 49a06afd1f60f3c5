"""Files with a word and its tag on each line, and a blank line after each sentence."""

import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from layerscout.data.files import read_lines
from layerscout.data.tables import Source, Table
from layerscout.errors import InputError

# Where the columns of a CoNLL-U file stand, of its ten.
CONLLU = {"tokens": 1, "upos": 3, "xpos": 4}
FIRST_AND_LAST = {"tokens": 0, "tags": -1}

# A file of one sentence with more words lacks its blank lines, and would be a single example.
LONGEST = 500

Line = tuple[int, list[str]]


def open_conll(path: Path) -> Source:
    """Open a file whose first column is "tokens" and whose last one is "tags"."""
    return _open(path, FIRST_AND_LAST)


def open_conllu(path: Path) -> Source:
    """Open a file of Universal Dependencies, with the columns "tokens", "upos" and "xpos"."""
    return _open(path, CONLLU)


def _open(path: Path, places: Mapping[str, int]) -> Source:
    lines = _conllu_lines if places is CONLLU else _conll_lines

    def read(wanted: Sequence[str]) -> Table:
        columns: dict[str, list[list[str]]] = {name: [] for name in wanted}
        starts = array("q")
        for sentence in _sentences(lines(path)):
            for name, words in columns.items():
                words.append([fields[places[name]] for _, fields in sentence])
            starts.append(sentence[0][0])
        if len(starts) == 1 and len(sentence) > LONGEST:
            raise InputError(
                f"{path} must have a blank line after each sentence: there is none among its "
                f"{len(sentence):,} words; add them"
            )
        return Table(str(path), columns, starts)

    if next(_sentences(lines(path)), None) is None:
        raise InputError(f"{path} has no words; it must hold a word and its tag on each line")
    return Source(str(path), dict.fromkeys(places, "words"), read)


def _sentences(lines: Iterator[Line]) -> Iterator[list[Line]]:
    """Group lines into sentences; a line without fields ends one."""
    sentence: list[Line] = []
    for number, fields in lines:
        if fields:
            sentence.append((number, fields))
        elif sentence:
            yield sentence
            sentence = []
    if sentence:
        yield sentence


def _conll_lines(path: Path) -> Iterator[Line]:
    """Yield (line number, fields) of each line; none for blank lines and marks of documents."""
    count = 0
    for number, line in read_lines(path):
        fields = re.split("\t" if "\t" in line else " +", line.strip(" \r\n"))
        fields = [field.strip(" ") for field in fields]
        if not "".join(fields).strip() or fields[0].startswith("-DOCSTART-"):
            yield number, []
            continue
        count = count or len(fields)
        if len(fields) < 2 or len(fields) != count:
            rule = "must have a word first, its tag last, and the same columns on every line"
            other = f"and the lines before {count}" if count > 1 else "and no tag"
            raise InputError(
                f"{path} {rule}: line {number} has {len(fields)}, {other}; correct the line"
            )
        yield number, fields


def _conllu_lines(path: Path) -> Iterator[Line]:
    """Yield (line number, fields) of each word; none for blank lines.

    Comments are left out, and so are ranges such as 1-2, which repeat the words after them, and
    words that are not in the text, such as 1.1.
    """
    for number, line in read_lines(path):
        line = line.rstrip("\r\n")
        if not line.strip():
            yield number, []
            continue
        if line.startswith("#"):
            continue
        fields = line.split("\t")
        if len(fields) != 10:
            raise InputError(
                f"{path} must have ten tab-separated columns (CoNLL-U), line {number} has "
                f"{len(fields)}; correct the line, or rename a file with other columns to .conll"
            )
        if fields[0].isdecimal():
            yield number, fields
