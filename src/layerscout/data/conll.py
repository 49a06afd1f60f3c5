"""Files with a word and its tag on each line, and a blank line after each sentence."""

import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from layerscout.data.files import File, read_lines
from layerscout.errors import InputError

# Where the columns of a file stand: the first and the last, or of the ten of CoNLL-U.
FIRST_AND_LAST = {"tokens": 0, "tags": -1}
CONLLU = {"tokens": 1, "upos": 3, "xpos": 4}

# A file of one sentence with more words lacks its blank lines, and would be a single example.
LONGEST = 500


def conll_records(file: File) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (first line, lists of words by column) of each sentence.

    The columns are "tokens" and "tags", of Universal Dependencies "tokens", "upos" and "xpos".
    """
    conllu = file.suffix == ".conllu"
    places: Mapping[str, int] = CONLLU if conllu else FIRST_AND_LAST
    lines = _conllu_lines(file) if conllu else _conll_lines(file)
    sentence: list[list[str]] = []
    count = start = size = 0
    for number, fields in chain(lines, [(0, [])]):  # the last sentence ends, too
        if fields:
            start = start if sentence else number
            sentence.append(fields)
        elif sentence:
            yield start, {name: [word[at] for word in sentence] for name, at in places.items()}
            count, size, sentence = count + 1, len(sentence), []
    if not count:
        raise InputError(f"{file.name} has no words; it must hold a word and its tag on each line")
    if count == 1 and size > LONGEST:
        raise InputError(
            f"{file.name} must have a blank line after each sentence: there is none among its "
            f"{size:,} words; add them"
        )


def _conll_lines(file: File) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, fields) of each line; none for blank lines and marks of documents."""
    count = 0
    for number, line in read_lines(file):
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
                f"{file.name} {rule}: line {number} has {len(fields)}, {other}; correct the line"
            )
        yield number, fields


def _conllu_lines(file: File) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, fields) of each word; none for blank lines.

    Comments are left out, and so are ranges such as 1-2, which repeat the words after them, and
    words that are not in the text, such as 1.1.
    """
    for number, line in read_lines(file):
        line = line.rstrip("\r\n")
        if not line.strip():
            yield number, []
            continue
        if line.startswith("#"):
            continue
        fields = line.split("\t")
        if len(fields) != 10:
            raise InputError(
                f"{file.name} must have ten tab-separated columns (CoNLL-U), line {number} has "
                f"{len(fields)}; correct the line, or rename a file with other columns to .conll"
            )
        if fields[0].isdecimal():
            yield number, fields
