"""Files with a word and its tag on each line, and a blank line after each sentence."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from itertools import chain
from typing import Any

from layerscout.data.lines import File, read_lines
from layerscout.errors import InputError

# Where the columns of CoNLL-U stand, of which there are ten.
CONLLU = {"tokens": 1, "upos": 3, "xpos": 4}

# A file of one sentence with more words lacks its blank lines, and would be a single example.
LONGEST = 500


def conll_records(file: File) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (first line, lists of words by column) of each sentence.

    The columns are "tokens" and "tags", of Universal Dependencies "tokens", "upos" and "xpos". A
    file of words alone has no tags.
    """
    places: Mapping[str, int]
    if file.suffix == ".conllu":
        places, lines = CONLLU, _conllu_lines(file)
    else:
        layout = tell_layout(file)
        places, lines = layout.places, _conll_lines(file, layout)
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


@dataclass(frozen=True)
class Layout:
    """What the columns of a file hold.

    Attributes:
        width: how many there are in most lines.
        places: where the words, "tokens", and their "tags" stand.
        tags: those of all words that do not begin with #.
    """

    width: int
    places: Mapping[str, int]
    tags: Set[str]


def split_line(line: str) -> list[str]:
    """Return the fields of a line, at tabs if it has any; none of a blank line."""
    fields = re.split("\t" if "\t" in line else " +", line.strip(" \r\n"))
    fields = [field.strip(" ") for field in fields]
    return fields if any(field and not field.isspace() for field in fields) else []


# The number that something ends in, such as 3, 3. or 12-3.
COUNT = re.compile(r"([0-9]{1,9})([.)]?)\Z")

# Tags of the usual schemes of spans.
TAG = re.compile("O|[BIESLUM]-.+")

# What the columns of words and of tags are called in a first line.
HEADINGS = (
    {"word", "words", "token", "tokens", "form"},
    {"tag", "tags", "label", "labels", "ne", "ner", "ner_tag", "ner_tags", "pos", "pos_tag"},
)


def _read_body(file: File) -> Iterator[tuple[int, str]]:
    """Yield (line number, line) of each line, but for a first one that names the columns."""
    first = True
    for number, line in read_lines(file):
        if first and (fields := split_line(line.lower())):
            first = False
            if not HEADINGS[0].isdisjoint(fields[:2]) and fields[-1] in HEADINGS[1]:
                file.note(f"line {number} of {file.name} names the columns, and is no word")
                continue
        yield number, line


def tell_layout(file: File) -> Layout:
    """Return what the columns of a file hold: the word in the first, and its tag in the last.

    Two programs have others before the word: GermEval 2014 numbers the words of a sentence (flair
    read these numbers as words), and brat's anntoconll.py begins with the tag.

    Raises:
        InputError: if the first column holds neither words nor one of these.
    """
    size = longest = 0
    widths = Counter[int]()
    counted = numbers = same = paired = True
    first = before = ""
    firsts: set[str] = set()
    lasts: set[str] = set()
    for _, line in _read_body(file):
        fields = split_line(line)
        if not fields or fields[0].startswith(("#", "-DOCSTART-")):
            size *= line.startswith("#")
            continue
        first = first or fields[0]
        widths[len(fields)] += 1
        if counted:  # with what WebAnno and Universal Dependencies have before it, such as 3-1
            number = COUNT.search(fields[0])
            counted = number is not None and (
                not size
                or before == f"{fields[0][: number.start()]}{int(number[1]) - 1}{number[2]}"
            )
        numbers &= fields[0].isdecimal()
        same &= not size or fields[0] == before
        paired &= all("|" in field.strip("|") for field in fields)
        size, before = size + 1, fields[0]
        longest = max(longest, size)
        firsts.add(fields[0])
        lasts.add(fields[-1])
    width = max(widths, key=lambda width: widths[width], default=0)
    rule = f"{file.name} must have a word first on each line, and its tag last"
    if paired and longest:
        raise InputError(f"{rule}: it has pairs, such as {first!r:.60}; write each on its own line")
    if longest >= 3 and same and width > 2:
        raise InputError(
            f"{rule}: the first column is the same in all of a sentence, such as {first!r:.60}; "
            "leave it out"
        )
    if width == 1:
        return Layout(1, {"tokens": 0}, set())
    places = {"tokens": 0, "tags": -1}
    if longest >= 2 and counted and width > 2:
        if width == 10:
            raise InputError(f"{rule}: it has the columns of CoNLL-U; rename it to .conllu")
        if not first.rstrip(".)").isdecimal():
            raise InputError(
                f"{rule}: the first column numbers the words, such as {first!r:.60}; leave it out"
            )
        places["tokens"] = 1
        file.note(
            f"the first column of {file.name} counts the words, which are read from the second"
        )
    elif longest >= 2 and numbers and width > 2:
        raise InputError(
            f"{rule}: the first column has numbers alone, such as {first!r:.60}; leave it out"
        )
    swapped = "O" in firsts and len(firsts) > 1 and all(map(TAG.fullmatch, firsts))
    if swapped and not all(map(TAG.fullmatch, lasts)):
        places, lasts = {"tokens": -1, "tags": 0}, firsts
        file.note(f"the first column of {file.name} has tags, so words are read from the last")
    return Layout(width, places, lasts)


def _conll_lines(file: File, layout: Layout) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, fields) of each line; none for blank lines and marks of documents.

    Comments are left out: lines before a sentence that begin with #, as in MultiCoNER and
    OntoNotes, and have not the columns of a word (such as #tbt), or a space and no tag of others;
    and in a sentence as well those with no tag of a span, where all others have one.
    """
    comments: list[str] = []
    spans = bool(layout.tags) and all(map(TAG.fullmatch, layout.tags))
    inside = False
    for number, line in _read_body(file):
        fields = split_line(line)
        if not fields or fields[0].startswith("-DOCSTART-"):
            inside = False
            yield number, []
            continue
        if line.startswith("#"):
            tag, alike = fields[layout.places.get("tags", 0)], len(fields) == layout.width
            is_tag = not alike or tag in layout.tags or TAG.fullmatch(tag)
            odd = not inside and (not alike or (line[1:2] == " " and not is_tag))
            if odd or (spans and not is_tag):
                comments.append(line.strip())
                continue
        inside = True
        if len(fields) != layout.width:
            rule = "must have a word first, its tag last, and the same columns on every line"
            other = f"line {number} has {len(fields)}, and others {layout.width}"
            raise InputError(f"{file.name} {rule}: {other}; correct the line")
        yield number, fields
    if comments:
        file.note(
            f"comments in {file.name} are skipped, such as {comments[0]!r:.60}, "
            f"{len(comments):,} line{'s'[: len(comments) != 1]} in all"
        )


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
