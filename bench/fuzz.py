"""Feed inputs that nobody wrote by hand to the readers, and count them.

Input number N is always the same. What is read must be what a program wrote, or a warning says
otherwise; else it is refused in one line. A finding is any other exception, an input that takes
over five seconds, numbers that are not finite, and texts, labels or rows that changed silently.

Whatever bytes are given as recipes, scans, checkpoints, plans or edits is tried by
`tests/test_fuzz.py`.

    python bench/fuzz.py --inputs 1000000 --write docs/measured/fuzz.md
    python bench/fuzz.py --only 4711
"""

import argparse
import csv
import gzip
import io
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from seqeval.metrics import f1_score as seqeval_f1

from layerscout.data import Task, evaluate_all, make_targets
from layerscout.errors import InputError
from writing import table

SECONDS = 5  # of the processor, that an input may take

# Pieces of texts, of the sort that readers trip over.
PIECES = [
    *("the", "cat", "sat", "film", "a", "I", "1", "2.5", "-3", "0", "01", "1e5", "NaN", "null"),
    *("None", "N/A", "nan", "true", "O", "B-PER", "é", "naïve", "Straße", "ß", "ﬁ", "中文", "日本"),
    *("привет", "שלום", "\u202egood\u202c", "👩\u200d🚀", "e\u0301", "\u200b", "\u00a0", "\ufeff"),
    *('"', '""', "'", "''", '"a"', "\\", '\\"', "\\n", ",", ";", "|", "\t", "\n", "\r", "\r\n"),
    *("#", "# a", "sep=;", "[", "]", '["a"]', "{", "}", "{0}", "%s", "<b>", "&amp;", "=1+1", "@x"),
    *(" ", "  ", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029", "\x1a", "\x7f", "-DOCSTART-"),
]
LABELS = [
    *("good", "bad", "a", "b", "x y", "A", "é", "e\u0301", "café", "中", "👍", "0", "1", "2", "3"),
    *("01", "1.0", "2.0", "-1", "+1", "1e3", "LABEL_0", "LABEL_1", "class 1", "true", "false"),
    *("True", "yes", "no", "NA", "none", "nan", "-", "?", "a|b", "a,b", "a;b", '"q"', "'q'", " a"),
    *("a ", "O", "B-x", "I-x", "#", "\u200ba", "[a]", "ﬁ", "fi", "neutral", "entailment"),
]
# Bytes that take the place of others.
JUNK = [
    *(b'"', b"\n", b"\r", b"\0", b"\t", b",", b";", b"\xff\xfe", b"\xed\xa0\x80", b"\xef\xbb\xbf"),
    *(b"null", b"NaN", b"1e999", b"-1", b"{}", b"[[[[", b'"label"', b"PAR1", b"\xe9", b"\x81"),
    *(b"[" * 2_000, b'{"a":' * 2_000, b"\r\r\n", b'", "', b'""', b'\\"', b"# a\n", b"sep=;\n"),
]
# What warnings say of values, and not of how they were read.
OF_VALUES = re.compile(
    r"rows are (also|')|look the same|differ only in case|(is|are) read as (a|one) class|"
    r"begin or end with spaces|that occur|look like spans|without an example|may be names or ids|"
    r"the metric is|continue a span|so each row has one label|nothing can be learnt"
)


class FindingError(AssertionError):
    """What a reader must not do."""


def expect(condition: Any, *what: Any) -> None:
    """Raise a finding unless a condition holds."""
    if not condition:
        raise FindingError(" ".join(map(ascii, what)))


def check_refusal(error: InputError) -> None:
    """Check that a refusal is fit for a terminal: a line."""
    text = str(error)
    expect(text and len(text.splitlines()) == 1 and len(text) < 2000, "length", text)
    expect(not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text), "control characters", text)


def draw_text(random: Random) -> str:
    """Draw a text that is not blank."""
    pieces = random.choices(PIECES, k=random.randint(0, 5))
    return random.choice(["", " "]).join(
        [*pieces, f"w{random.randint(0, 999)}"][:: random.choice([1, -1])]
    )


def draw_rows(random: Random) -> tuple[list[str], list[str]]:
    """Draw texts, and a class for each: of two to four classes, with two texts or more."""
    names = random.sample(LABELS, random.randint(2, 4))
    labels = names * random.randint(2, 3)
    random.shuffle(labels)
    return [draw_text(random) for _ in labels], labels


def alter(random: Random, content: bytes) -> bytes:
    """Put other bytes into a file, in one to four places."""
    for _ in range(random.choice([1, 1, 1, 2, 4])):
        at, gone = (
            random.randint(0, len(content)),
            random.choice([0, 0, 1, 2, random.randint(0, 40)]),
        )
        drawn = random.random()
        new = random.choice(JUNK) if drawn < 0.6 else random.randbytes(random.randint(0, 8))
        if drawn > 0.85 and content:
            start = random.randint(0, len(content))
            new = content[start : start + random.randint(0, 60)]
        content = content[:at] + new + content[at + gone :]
    return content


def encode(random: Random, text: str) -> tuple[bytes, dict[str, Any]]:
    """Encode a text in some way, and say so or not."""
    encoding = random.choice(
        ["utf-8"] * 4 + ["utf-8-sig", "utf-16", "cp1252", "latin-1", "utf-16-le"]
    )
    said = {"encoding": encoding} if random.random() < 0.5 else {}
    try:
        content = text.encode(encoding)
    except UnicodeEncodeError:
        return text.encode(), {}
    return content, said if encoding != "utf-8-sig" else {}


Written = tuple[str, bytes, dict[str, Any]]  # a file's name and content, and options to read it


def write_cells(random: Random, texts: list[str], labels: list[str]) -> Written:
    """Write a CSV or TSV file as pandas, Excel, R or Python's csv do."""
    mark = random.choice([",", ",", ";", "\t", "|"])
    end = random.choice(["\n", "\n", "\r\n", "\r"])
    file = io.StringIO()
    quoting = random.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
    # Python before 3.13 writes the other end of a line without quotes.
    bare = any(character in text for text in texts for character in {*"\r\n"} - {*end})
    writer = csv.writer(
        file,
        delimiter=mark,
        quoting=csv.QUOTE_ALL if bare else quoting,
        lineterminator=end,
    )
    index, more = random.random() < 0.3, random.random() < 0.2
    writer.writerow([""] * index + ["text", "label"] + ["stars"] * more)
    for number, row in enumerate(zip(texts, labels, strict=True)):
        writer.writerow([number] * index + [*row] + [number % 5] * more)
    text = file.getvalue() + end * random.choice([0, 0, 0, 2])
    if random.random() < 0.1 and mark != "\t":
        text = f"sep={mark}{end}{text}"
    content, options = encode(random, text)
    if random.random() < 0.3:
        options["sep"] = mark
    name = "train.tsv" if mark == "\t" and random.random() < 0.8 else "train.csv"
    return name, content, options


def write_json(random: Random, texts: list[str], labels: list[Any]) -> Written:
    """Write a JSON file: lines, an array, or one of the orients of pandas."""
    rows = [{"text": t, "label": label} for t, label in zip(texts, labels, strict=True)]
    keys = [*map(str, range(len(rows)))]
    columns = {"text": texts, "label": labels}
    shapes: list[Any] = [
        rows,
        {"data": rows},
        {n: dict(zip(keys, values, strict=True)) for n, values in columns.items()},
        dict(zip(keys, rows, strict=True)),
        {
            "columns": [*columns],
            "index": [*range(len(rows))],
            "data": [[*r.values()] for r in rows],
        },
        {"schema": {"fields": []}, "data": rows},
        columns,
    ]
    plain = random.random() < 0.5
    if random.random() < 0.5:
        end = random.choice(["\n", "\r\n"])
        text = "".join(json.dumps(row, ensure_ascii=plain) + end for row in rows)
        name = random.choice(["train.jsonl", "train.json", "train.ndjson"])
    else:
        indent = random.choice([None, 1, 4])
        text = json.dumps(random.choice(shapes), ensure_ascii=plain, indent=indent)
        name = "train.json"
    return name, *encode(random, text)


def write_parquet(random: Random, texts: list[str], labels: list[Any]) -> Written:
    """Write a Parquet file."""
    file = io.BytesIO()
    parquet.write_table(pa.table({"text": texts, "label": labels}), file)
    return "train.parquet", file.getvalue(), {}


def write_table(random: Random) -> tuple[Written, list[str], list[Any]]:
    """Write a file of texts with a class or several labels each."""
    texts, labels = draw_rows(random)
    drawn = random.random()
    if drawn < 0.15:
        names = sorted({*labels})
        several = [random.sample(names, random.randint(0, len(names))) for _ in texts]
        write = random.choice([write_json, write_json, write_parquet])
        return write(random, texts, several), texts, [set(some) for some in several]
    write = write_cells if drawn < 0.6 else write_json if drawn < 0.95 else write_parquet
    written = write(random, texts, labels)
    if drawn > 0.25 and random.random() < 0.05 and not written[0].endswith(".parquet"):
        written = f"{written[0]}.gz", gzip.compress(written[1]), written[2]
    return written, texts, labels


def put(place: Path, written: Written) -> Path:
    """Write a file into a folder."""
    path = place / written[0]
    path.write_bytes(written[1])
    return path


def check_task(task: Task) -> None:
    """Check what must hold of any task that was read."""
    for split in (task.train, task.validation, task.test):
        if split is None:
            continue
        words = task.kind == "token_classification"
        wanted = split.bounds[-1] if words else len(split.texts)
        expect(len(split.labels) == wanted and len(split.texts), "rows", len(split.labels), wanted)
        if task.kind == "regression":
            expect(np.isfinite(split.labels).all(), "numbers", split.labels)
        elif split.labels.dtype.kind == "i":
            expect(0 <= split.labels.min() <= split.labels.max() < len(task.labels), "ids")
    for line in task.warnings:
        expect(len(line.splitlines()) == 1, "a warning of several lines", line)


def names_of(task: Task) -> list[Any]:
    """Return the label of each row, by name."""
    if task.train.labels.ndim == 2:
        return [
            {name for name, on in zip(task.labels, row, strict=True) if on}
            for row in task.train.labels
        ]
    return [task.labels[number] for number in task.train.labels]


def same_label(read: Any, written: Any) -> bool:
    """Return whether a label is what was written: numbers may be written in other ways."""
    if isinstance(written, set):
        # Labels that no other row has are left out with a warning.
        return {*map(canonical, read)} <= {*map(canonical, written)}
    return canonical(read) == canonical(written)


def canonical(label: str) -> str:
    """Return a number without its sign and fraction, or a name as it is."""
    with suppress(ValueError, OverflowError):
        number = float(label)
        if number.is_integer() and "_" not in label:
            return str(int(number))
    return label


def try_table(random: Random, place: Path) -> None:
    """Check that a file is read as a program wrote it."""
    written, texts, labels = write_table(random)
    task = Task.load(put(place, written), **written[2])
    check_task(task)
    if not all(map(OF_VALUES.search, task.warnings)):
        return
    expect(task.train.texts == texts, "texts", written[0], written[2], task.train.texts, texts)
    names = names_of(task)
    expect(all(map(same_label, names, labels)), "labels", written[0], names, labels)


def try_altered(random: Random, place: Path) -> None:
    """Read a file of which some bytes were altered."""
    written = write_conll(random)[0] if random.random() < 0.25 else write_table(random)[0]
    path = put(place, (written[0], alter(random, written[1]), {}))
    options = written[2]
    drawn = random.random()
    if drawn < 0.1:
        options |= {"text": "text", "label": "label", "regression": True}
    elif drawn < 0.3:
        options |= {"drop_missing": True}
    elif drawn < 0.4:
        options |= {"label_separator": random.choice(["|", ",", ";", " "])}
    elif drawn < 0.5:
        options |= {"validation": random.choice([0.3, "0.5", 1, "nan", -1, "inf"])}
    elif drawn < 0.55:
        sys.stdin = io.TextIOWrapper(io.BytesIO(path.read_bytes()))
        path = "-"  # type: ignore[assignment]
    check_task(Task.load(path, **options))


TAGS = [
    *("O", "B-PER", "I-PER", "B-LOC", "I-LOC", "E-PER", "S-LOC", "B", "I", "E", "S", "b-per"),
    *("PER-B", "B_PER", "U-PER", "L-PER", "B-", "-", "B-a-b", "NOUN", "X", "#", "1"),
]
WORDS = [
    *(
        "Ann",
        "Bonn",
        "1",
        "2",
        "3",
        "#tag",
        "#",
        "it's",
        "U.S.",
        "中文",
        "é",
        "e\u0301",
        '"',
        "''",
        ",",
    ),
    *("-", "O", "B-PER", "_", "\u200b", "a\xa0b", "|", "a|b", "👩\u200d🚀", "["),
    *("\\",),
]


def write_conll(random: Random) -> tuple[Written, list[list[str]], list[list[str]]]:
    """Write a file with a word and its tag on each line."""
    tags_used = random.sample(TAGS, random.randint(1, 5)) + ["O"] * (random.random() < 0.8)
    sentences = [
        [random.choice(WORDS) for _ in range(random.randint(1, 5))]
        for _ in range(random.randint(2, 6))
    ]
    tags = [[random.choice(tags_used) for _ in words] for words in sentences]
    mark, end = random.choice([" ", "\t", "  "]), random.choice(["\n", "\r\n", "\r", "\n\n"][:3])
    counted = random.random() < 0.1 and max(map(len, sentences)) > 1
    middle = random.choice([(), (), ("_",), ("NN", "x")])
    lines = ["-DOCSTART- O", ""] * (random.random() < 0.1 and not counted and not middle)
    for words, own in zip(sentences, tags, strict=True):
        lines += ["# id 1\tdomain=en"] * (random.random() < 0.1)
        lines += [
            mark.join([*[str(n)] * counted, word, *middle, tag])
            for n, (word, tag) in enumerate(zip(words, own, strict=True), 1)
        ]
        lines.append("")
    content, options = encode(random, end.join(lines) + end)
    name = random.choice(["train.conll", "train.iob", "train.bio"])
    return (name, content, options), sentences, tags


def try_tags(random: Random, place: Path) -> None:
    """Check that words and their tags are read as written, and entities counted as by seqeval."""
    if random.random() < 0.6:
        written, sentences, tags = write_conll(random)
    else:
        _, sentences, tags = write_conll(random)
        rows = [{"tokens": w, "ner_tags": t} for w, t in zip(sentences, tags, strict=True)]
        written = "train.jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode(), {}
    task = Task.load(put(place, written), **written[2])
    check_task(task)
    if task.kind != "token_classification" or not all(map(OF_VALUES.search, task.warnings)):
        return
    targets = make_targets(task.train, task.kind, task.labels)
    names = [task.labels[number] for number in targets.labels]
    flat = [tag for some in tags for tag in some]
    expect(
        [*map(list, task.train.words or ())] == sentences,
        "words",
        written[0],
        task.train.words,
        sentences,
    )
    expect([*map(canonical, names)] == [*map(canonical, flat)], "tags", names, flat)
    drawn = np.array([random.randrange(len(task.labels)) for _ in names])
    logits = np.eye(len(task.labels))[drawn]
    values = evaluate_all(task.kind, targets.labels, logits, tags=targets.tags)
    expect(all(map(np.isfinite, values.values())), "metrics", values)
    # seqeval knows more letters, and takes the last hyphen of a tag for the one after the prefix.
    if "entity_f1" in values and all(re.fullmatch("O|[BIES]-[A-Z]+", tag) for tag in task.labels):
        bounds = np.cumsum([0, *map(len, sentences)])
        true, predicted = (
            [[task.labels[k] for k in ids[a:b]] for a, b in pairwise(bounds)]
            for ids in (targets.labels, drawn)
        )
        theirs = seqeval_f1(true, predicted)
        expect(
            abs(theirs - values["entity_f1"]) < 1e-9, "entity F1", theirs, values, true, predicted
        )


FILES = [
    *("train", "training", "validation", "valid", "val", "dev", "test", "testing", "eval"),
    *("evaluation", "validation_mismatched", "en-train", "en-dev", "extra", "train-old"),
    *("README", "data", "part-00000", "part-00001", "TRAIN", "train_1", "train_2"),
    *("train-00000-of-00002", "train-00001-of-00002", "test-00000-of-00001", "trainer", "test2"),
]


def try_folder(random: Random, place: Path) -> None:
    """Check that each file of a folder is read whole, once, or named."""
    written: dict[str, list[str]] = {}
    suffix = random.choice(["csv", "jsonl", "tsv", "parquet"])
    for name in random.sample(FILES, random.randint(1, 5)):
        suffix = (
            suffix if random.random() < 0.9 else random.choice(["csv", "jsonl", "txt", "csv.gz"])
        )
        inner = random.choice(["", "", "", "data/", "train/", "data/train/", "test/"])
        path = place / f"{inner}{name}.{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        texts = [
            f"{inner}{name}.{suffix} {number}"
            for number in range(random.choice([4, 4, 4, 6, 1, 0]))
        ]
        labels = ["xy"[number % 2] for number in range(len(texts))]
        if suffix == "parquet":
            content = write_parquet(random, texts, labels)[1]
        elif suffix == "jsonl":
            content = "".join(
                json.dumps({"text": t, "label": n}) + "\n"
                for t, n in zip(texts, labels, strict=True)
            ).encode()
        else:
            mark = "\t" if suffix == "tsv" else ","
            lines = [f"{t}{mark}{n}\n" for t, n in zip(texts, labels, strict=True)]
            content = "".join(
                [f"text{mark}label\n" if random.random() < 0.98 else "", *lines]
            ).encode()
        path.write_bytes(gzip.compress(content) if suffix == "csv.gz" else content)
        written[f"{inner}{name}.{suffix}"] = texts
    data: Any = place
    if random.random() < 0.1:
        data = str(
            place
            / random.choice(["*", "train*", "**/*", "default", "other", "data", f"*.{suffix}"])
        )
    task = Task.load(data)
    check_task(task)
    said = " ".join(task.warnings)
    if data is place:
        splits = [split for split in (task.train, task.validation, task.test) if split is not None]
        read = Counter(text for split in splits for text in split.texts)
        expect(max(read.values()) == 1, "a file read twice", written, read)
        for name, texts in written.items():
            got = sum(read[text] for text in texts)
            expect(got in (0, len(texts)), "rows of a file", name, got, texts)
            if not got and texts and not name.endswith(".txt"):
                expect(
                    name in said or "not used" in said or " and " in said,
                    "overlooked",
                    name,
                    [*written],
                    said,
                )


@contextmanager
def limited() -> Iterator[None]:
    """Raise a finding where an input takes too long."""

    def stop(*_: object) -> None:
        raise FindingError(f"took more than {SECONDS} s")

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


# How often a kind is drawn, in words, and what tries it.
KINDS: tuple[tuple[int, str, Callable[[Random, Path], None]], ...] = (
    (40, "tables as programs write them", try_table),
    (30, "the same and words, altered", try_altered),
    (15, "words and tags", try_tags),
    (15, "folders of splits", try_folder),
)


def try_input(number: int, place: Path) -> tuple[str, bool]:
    """Try an input; return its kind and whether it was used, not refused."""
    random = Random(number)
    _, name, attempt = random.choices(KINDS, [weight for weight, *_ in KINDS])[0]
    place.mkdir()
    try:
        with limited():
            attempt(random, place)
    except InputError as error:
        check_refusal(error)
        return name, False
    finally:
        shutil.rmtree(place)
    return name, True


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--only", type=int, help="try this input, and show it")
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    memory = Path("/dev/shm")
    counts: dict[str, list[float]] = {name: [0, 0, 0.0] for _, name, _ in KINDS}
    findings = []
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        if given.only is not None:
            print(try_input(given.only, Path(folder) / "input"))
            return
        for number in range(given.inputs):
            started = time.perf_counter()
            try:
                kind, used = try_input(number, Path(folder) / "input")
            except Exception:  # of all kinds
                findings.append(number)
                print(f"--- input {number}\n{traceback.format_exc()[-3000:]}", flush=True)
                continue
            for place, more in enumerate((1, used, time.perf_counter() - started)):
                counts[kind][place] += more
    rows = [
        [kind, f"{n:,}", f"{used / max(1, n):.0%}", f"{seconds:.0f} s"]
        for kind, (n, used, seconds) in counts.items()
    ]
    page = f"""# Is every file read as it was written?

Of {given.inputs:,} files that nobody wrote each was read as a program wrote it, or a warning said
otherwise, or it was refused in one line as invalid input, within five seconds. Nothing else may
happen: a run with a finding ends without a page.

{table(["what", "inputs", "read", "time"], rows)}

`python bench/fuzz.py --inputs {given.inputs} --write docs/measured/fuzz.md` does this again; input
number N is always the same, and `--only N` tries it alone. Recipes, checkpoints, scans, plans and
edits of any bytes are tried by `tests/test_fuzz.py` on every change.
"""
    print(page)
    if findings:
        raise SystemExit(f"findings: {findings[:50]}")
    if given.write:
        given.write.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
