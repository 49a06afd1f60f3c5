"""Files as the programs that people use write them, and what is read from them."""

import gzip
import io
import json
from typing import Any

import pandas as pd
import pytest

from inputs import Write, expect_refused
from layerscout.data import Task

TEXTS = ['He said "fine", twice', "a naïve café", "two\nlines", "tab\there", "dull", "so, so; no"]
LABELS = ["good", "good", "bad", "bad", "good", "bad"]
FRAME = pd.DataFrame({"text": TEXTS, "label": LABELS})
ROWS = FRAME.to_dict("records")
WESTERN = "is not UTF-8 and is read as Windows-1252, such as 'naïve'"
UNQUOTED = "the quotes around fields of x.tsv are not read, as in CSV"
SPACES = "the spaces after the separators of x.csv are not read"
ESCAPED = 'quotes in fields of {} are written as \\" and read as quotes'
ROW_NAMES = "the rows of {} begin with a number that the header does not name: row names"


def list_warnings(task: Task) -> list[str]:
    """List what is said of a file, without that texts of these are there several times."""
    return [line for line in task.warnings if "have a text that is there before" not in line]


def excel(mark: str = ";", end: str = "\r\n") -> str:
    """Write rows as Excel does: quotes only where they are needed, line breaks in cells as LF."""
    return FRAME.to_csv(index=False, sep=mark, lineterminator="\r\n").replace("\r\n", end)


def spark() -> str:
    """Write rows as Spark does: a quote in a field after a backslash."""
    cells = [[cell.replace('"', '\\"') for cell in row.values()] for row in ROWS]
    return "text,label\n" + "".join(f'"{text}",{label}\n' for text, label in cells)


def r_table(mark: str, quote: str, names: bool, header: str = "") -> str:
    """Write rows as R's write.table (quotes as \\") and write.csv ("") do, with row names."""
    lines = [mark.join(f'"{name}"' for name in ([header] * names + ["text", "label"]))]
    lines = [lines[0].removeprefix(f'"{header}"{mark}') if header == "-" else lines[0]]
    for number, row in enumerate(ROWS, 1):
        cells = [str(number)] * names + [row["text"], row["label"]]
        lines.append(mark.join('"' + cell.replace('"', quote) + '"' for cell in cells))
    return "\n".join(lines) + "\n"


# Of each exporter the name of a file, what is in it, and what is said about it.
TABLES: dict[str, tuple[str, str | bytes, str | None]] = {
    "pandas": ("x.csv", FRAME.to_csv(), None),
    "pandas, no index": ("x.csv", FRAME.to_csv(index=False), None),
    "pandas, TSV": ("x.tsv", FRAME.to_csv(index=False, sep="\t"), UNQUOTED),
    "pandas, TSV with index": ("x.tsv", FRAME.to_csv(sep="\t"), UNQUOTED),
    "pandas, everything quoted": ("x.tsv", FRAME.to_csv(sep="\t", quoting=1), UNQUOTED),
    "pandas, CSV of Windows": ("x.csv", FRAME.to_csv(index=False).encode("cp1252"), WESTERN),
    "pandas, UTF-16": ("x.csv", FRAME.to_csv(index=False).encode("utf-16"), "is read as UTF-16"),
    "pandas, columns": ("x.json", FRAME.to_json(), None),
    "pandas, columns by line": ("x.jsonl", FRAME.to_json(), None),
    "pandas, indented": ("x.json", FRAME.to_json(indent=2), None),
    "pandas, records": ("x.json", FRAME.to_json(orient="records"), None),
    "pandas, lines": ("x.jsonl", FRAME.to_json(orient="records", lines=True), None),
    "pandas, index": ("x.json", FRAME.to_json(orient="index"), None),
    "pandas, split": ("x.json", FRAME.to_json(orient="split"), None),
    "pandas, table": ("x.json", FRAME.to_json(orient="table"), None),
    "pandas, to_dict": ("x.json", json.dumps(FRAME.to_dict("list")), None),
    "pandas, records by line": ("x.jsonl", FRAME.to_json(orient="records"), None),
    "csv on Windows": ("x.csv", FRAME.to_csv(index=False, lineterminator="\r\r\n"), None),
    "csv with spaces": ("x.csv", r_table(", ", '""', False), SPACES),
    "Excel, CSV UTF-8": ("x.csv", b"\xef\xbb\xbf" + excel(",").encode(), None),
    "Excel, CSV in Germany": ("x.csv", excel().encode("cp1252"), WESTERN),
    "Excel, CSV (Macintosh)": ("x.csv", excel(end="\r").encode(), None),
    "Excel, sep=": ("x.csv", "sep=;\r\n" + excel(), None),
    "Excel, sep=|": ("x.csv", "sep=|\n" + excel("|"), None),
    "Excel, empty cells": ("x.csv", "text;label;;\r\n" + excel().partition("\n")[2].replace(
        "good\r", "good;;\r").replace("bad\r", "bad;;\r") + ";;;\r\n;;;\r\n",
        "rows of x.csv with nothing in any field are left out: 2"),
    "Excel, Unicode text": ("x.tsv", excel("\t").encode("utf-16"), "is read as UTF-16"),
    "Excel, UTF-16 without a mark": ("x.tsv", excel("\t").encode("utf-16-le"), "as UTF-16-LE"),
    "LibreOffice": ("x.csv", FRAME.to_csv(index=False, quoting=2, lineterminator="\n"), None),
    "Google Sheets": ("x.csv", FRAME.to_csv(index=False, lineterminator="\r\n"), None),
    "R, write.csv": ("x.csv", r_table(",", '""', True), None),
    "R, write.csv2": ("x.csv", r_table(";", '""', True), None),
    "R, write.csv, no row names": ("x.csv", r_table(",", '""', False), None),
    "R, write.table": ("x.csv", r_table(" ", '\\"', True, "-"), ESCAPED.format("x.csv")),
    "R, write.table, tabs": ("x.tsv", r_table("\t", '\\"', True, "-"), ROW_NAMES.format("x.tsv")),
    "R, write.table, no row names": ("x.tsv", r_table("\t", '\\"', False), UNQUOTED),
    "Spark": ("part-00000.csv", spark(), ESCAPED.format("part-00000.csv")),
    "Spark, compressed": ("x.csv.gz", gzip.compress(spark().encode()), ESCAPED.format("x.csv.gz")),
    "datasets, to_csv": ("x.csv", FRAME.to_csv(index=False), None),
    "datasets, to_json": ("x.jsonl", FRAME.to_json(orient="records", lines=True), None),
    "hub's rows": ("x.json", json.dumps({"data": ROWS}), None),
    "Label Studio, JSON-MIN": ("x.json", FRAME.assign(id=3, annotator=1).to_json(orient="records"),
        None),
    "Label Studio, CSV": ("x.csv", FRAME.assign(annotation_id=range(6), id=3).to_csv(), None),
    "doccano, CSV": ("x.csv", FRAME.reset_index(names="id").to_csv(index=False), None),
    "Prodigy": ("x.jsonl", FRAME.assign(_input_hash=1, answer="accept").to_json(
        orient="records", lines=True), None),
}  # fmt: skip


@pytest.mark.parametrize("exporter", TABLES)
def test_tables(write: Write, monkeypatch: pytest.MonkeyPatch, exporter: str) -> None:
    name, content, said = TABLES[exporter]
    path = write(name, content)
    monkeypatch.chdir(path.parent)
    options = {"sep": " "} if exporter == "R, write.table" else {}
    task = Task.load(path.name, **options)
    assert task.train.texts == TEXTS and task.labels == ("bad", "good")
    assert [task.labels[number] for number in task.train.labels] == LABELS
    assert any(said in line for line in task.warnings) if said else not task.warnings


def jsonl(**columns: Any) -> str:
    return str(pd.DataFrame(columns).to_json(orient="records", lines=True, force_ascii=False))


AB, XY = ["a", "b", "c", "d"], list("xyxy")
CSV = "text,label\na,x\nb,y\nc,x\nd,y\n"
MANY = CSV + CSV.partition("\n")[2] * 29
R_ROWS = zip(AB, XY, strict=True)
R_NAMES = '"text","label"\n' + "".join(f'"of {a}","{a}","{x}"\n' for a, x in R_ROWS)
CAFES = CSV.replace("a,", "café,").encode("latin-1")
CYRILLIC = "text,label\nкот,да\nпёс,нет\nдом,да\nлес,нет\n"
ODD = "classes of {} begin or end with spaces or quotes, or have characters that are not shown: "
SPILLED = "columns of x.csv without a name are not read, and have something in 1 row"
COMMENTED = "lines above the header of x.csv that begin with # are not read: "
BLANK = "rows of x.csv with nothing in any field are left out: "

# Files as hands and scripts write them: name, content, options, texts, labels and warnings.
OTHERS: list[tuple[str, str | bytes, dict[str, Any], list[str], list[str], list[str]]] = [
    ("x.csv", CSV.replace(",", ", "), {}, AB, XY, [SPACES]),
    ("x.csv", CSV.replace(",x", ', "x"'), {}, AB, XY, [SPACES]),
    ("x.csv", CSV.replace(",x", ", x"), {}, AB, [" x", "y"] * 2, [ODD.format("x.csv") + "' x'"]),
    # Quotes after a space in a text are text, be it in quotes itself or not.
    ("x.csv", CSV.replace("a,", ' "a" b,'), {}, [' "a" b', *AB[1:]], XY, []),
    ("x.csv", CSV.replace("a,", '" ""a"" b",'), {}, [' "a" b', *AB[1:]], XY, []),
    ("x.csv", CSV.replace("a,", '"a, ""b""",'), {}, ['a, "b"', *AB[1:]], XY, []),
    ("x.csv", CSV.replace("a,", '"a \\",'), {}, ["a \\", *AB[1:]], XY, []),
    ("x.csv", CSV + "  \n\t\n", {}, AB, XY, []),
    ("x.csv", CSV + "\x1a", {}, AB, XY, []),
    ("x.csv", CSV + " , \n,\n", {}, AB, XY, [BLANK + "2"]),
    ("x.csv", CSV * 3, {}, AB * 3, XY * 3,
     ["rows of x.csv that repeat its header are left out: 2"]),
    ("x.csv", CSV.replace("x\n", "x,\n").replace("y\n", "y,\n"), {}, AB, XY, []),
    ("x.csv", CSV.replace("label", "label,,").replace("x\n", "x,,\n"), {}, AB, XY, []),
    ("x.csv", CSV.replace("label", "label,, ").replace("a,x", "a,x,b,"), {}, AB, XY, [SPILLED]),
    ("x.csv", CSV.replace("text", ""), {}, AB, XY, []),  # of a Series
    ("x.csv", CSV.replace("\n", "\r"), {}, AB, XY, []),
    ("x.csv", CSV.replace("\n", "\r").replace("\r", "\n", 1), {}, AB, XY, []),
    ("x.csv", CSV.replace("a,", '"a\rb\nc",').replace("y\n", "y\r"), {},
     ["a\rb\nc", *AB[1:]], XY, []),
    ("x.tsv", CSV.replace(",", "\t").replace("\n", "\r\r\n"), {}, AB, XY, []),
    ("x.tsv", CSV.replace(",", "\t").replace("a\t", '"a\r""b"\t'), {}, ['a\r"b', *AB[1:]], XY,
     [UNQUOTED]),
    ("x.tsv", CSV.replace(",", "\t").replace("a\t", '"a"\t'), {}, ['"a"', *AB[1:]], XY,
     ["quotes at both ends of fields of x.tsv are read as text, such as '\"a\"'; rename the file "
      "to .csv if they only enclose fields"]),
    ("x.tsv", CSV.replace(",", "\t").replace("a\t", '"a" ""b\t').replace("c", '"c"'), {},
     ['"a" ""b', "b", '"c"', "d"], XY, []),
    ("x.csv", f"# of 2020, by hand\n#\n{CSV}", {}, AB, XY, [COMMENTED + "2"]),
    ("x.csv", CSV.replace("text", "#text"), {"text": "#text"}, AB, XY, []),
    # What is seen late only.
    ("x.csv", MANY + 'f, "x"\n', {}, [*AB * 30, "f"], [*XY * 30, "x"], [SPACES]),
    ("x.tsv", MANY.replace(",", "\t") + '"""f"""\tx\n', {}, [*AB * 30, '"f"'], [*XY * 30, "x"],
     [UNQUOTED]),
    ("x.csv", CSV.replace("label", "label,split").replace("x\n", "x,train\n").replace(
        "y\n", "y,test\n"), {}, AB, XY, ["column 'split' of x.csv names splits (test, train), and "
     "is not followed; write a file for each"]),
    # Names of rows are in quotes, as the header, and differ.
    ("x.csv", R_NAMES, {}, AB, XY, [ROW_NAMES.format("x.csv").replace("number", "name")]),
    ("x.csv", "sep=,\n" + CSV.replace(",", ";"), {"sep": ";"}, AB, XY, []),
    ("x.csv", b"\xef\xbb\xbf" * 2 + CSV.encode(), {}, AB, XY, []),
    ("x.csv", CAFES, {"encoding": "latin-1"}, ["café", *AB[1:]], XY, []),
    ("x.csv", CYRILLIC.encode("cp1251"), {"encoding": "cp1251"}, ["кот", "пёс", "дом", "лес"],
     ["да", "нет"] * 2, []),
    ("x.csv", CSV.encode("utf-16-le"), {"encoding": "UTF_16"}, AB, XY, []),
    ("x.csv", CSV.encode("utf-32"), {}, AB, XY,
     ["x.csv is read as UTF-32 (--encoding names another one)"]),
    ("x.jsonl", jsonl(text=["à", *AB[1:]], label=XY).encode("latin-1"), {}, ["à", *AB[1:]], XY,
     ["x.jsonl is not UTF-8 and is read as Windows-1252, such as 'à' in line 1 (--encoding names "
      "another one)"]),
    ("x.jsonl", jsonl(text=AB, label=["x", "y\r"] * 2), {}, AB, ["x", "y\r"] * 2,
     [ODD.format("x.jsonl") + "'y\\r'"]),
    ("x.jsonl", jsonl(text=[*AB, "e"], label=[*XY, "x"], answer=["accept"] * 4 + ["reject"]), {},
     AB, XY, ["1 of 5 rows of x.jsonl have another `answer` than accept and are left out"]),
    ("x.jsonl", jsonl(text=AB, label=XY, answer=["accept", "no"] * 2), {}, AB, XY, []),
    ("x.json", "[" + jsonl(text=AB, label=XY).strip().replace("\n", ",\n") + "]", {}, AB, XY, []),
]  # fmt: skip


@pytest.mark.parametrize("case", OTHERS)
def test_others(write: Write, monkeypatch: pytest.MonkeyPatch, case: Any) -> None:
    name, content, options, texts, labels, said = case
    path = write(name, content)
    monkeypatch.chdir(path.parent)
    task = Task.load(path.name, **options)
    assert (task.train.texts, task.labels) == (texts, tuple(sorted(set(labels))))
    assert [task.labels[number] for number in task.train.labels] == labels
    assert [line.partition("; remove these")[0] for line in list_warnings(task)] == said


@pytest.mark.parametrize("content", [R_NAMES.replace("of a", "of b"), R_NAMES.replace('"', "")])
def test_what_may_be_no_names_of_rows_is_refused(write: Write, content: str) -> None:
    expect_refused("2 columns, but 3 fields in line 2", Task.load, write("x.csv", content))


@pytest.mark.parametrize("encoding", ["utf-16", "cp1252"])
def test_standard_input(monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    content = io.BytesIO(CSV.replace("a,", "café,").replace(",", "\t").encode(encoding))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(content))
    task = Task.load("-")
    assert task.train.texts == ["café", *AB[1:]] and "standard input is" in task.warnings[0]


def test_many_files(write: Write) -> None:
    content = jsonl(text=["à", *AB[1:]], label=XY).encode("latin-1")
    for number in range(3):
        folder = write(f"parts/part-{number}.jsonl", content).parent
    task = Task.load(folder)
    assert task.train.texts == ["à", *AB[1:]] * 3 and len(list_warnings(task)) == 2
    assert "part-0.jsonl is not UTF-8" in task.warnings[0]
    assert task.warnings[1] == "2 such lines about other files of parts are left out"
    assert list_warnings(Task.load(folder, encoding="cp1252")) == []


def test_parts_that_spark_wrote(write: Write) -> None:
    for number in range(2):
        folder = write(f"spark/part-0000{number}-5f0c-c000.csv", spark()).parent
        write(f"spark/.part-0000{number}-5f0c-c000.csv.crc", b"crc")
    write("spark/_SUCCESS", "")
    task = Task.load(folder)
    assert task.train.texts == TEXTS * 2 and len(list_warnings(task)) == 2
    assert all("written as" in line for line in list_warnings(task))


# --- Words -------------------------------------------------------------------------------------

SENTENCES = [("Ann", "saw", "Bonn"), ("#tbt", "Bob"), ("#", "ran")]
TAGS = [["B-PER", "O", "B-LOC"], ["O", "B-PER"], ["O", "O"]]
COMMENTS = "comments in x.conll are skipped, such as {!r}, 3 lines in all"
COUNTED = "the first column of x.conll counts the words, which are read from the second"


def conll(line: str, before: str = "", start: int = 1) -> str:
    """Write each word by a template, and a line before each sentence."""
    blocks = [
        before + "".join(line.format(n=n, word=word, tag=tag) + "\n"
                         for n, (word, tag) in enumerate(zip(words, tags, strict=True), start))
        for words, tags in zip(SENTENCES, TAGS, strict=True)
    ]  # fmt: skip
    return "\n".join(blocks)


WORDS: dict[str, tuple[str | bytes, list[str]]] = {
    "spaces": (conll("{word} {tag}"), []),
    "tabs": (conll("{word}\t{tag}"), []),
    "old Mac": (conll("{word} {tag}").replace("\n", "\r"), []),
    "csv on Windows": (conll("{word} {tag}").replace("\n", "\r\r\n"), []),
    "UTF-16": (conll("{word} {tag}").encode("utf-16"), ["x.conll is read as UTF-16 (--encoding "
               "names another one)"]),
    "MultiCoNER, two columns": (conll("{word}\t{tag}", "# id 3\tdomain=en\n"),
                                [COMMENTS.format("# id 3\tdomain=en")]),
    "MultiCoNER": (conll("{word} _ _ {tag}", "# id 3\tdomain=en\n"),
                   [COMMENTS.format("# id 3\tdomain=en")]),
    "spaces, two words": (conll("{word} {tag}", "# text\n"), [COMMENTS.format("# text")]),
    "OntoNotes": (conll("{word} {tag}", "#begin document (bc/x); part 000\n"),
                  [COMMENTS.format("#begin document (bc/x); part 000")]),
    "GermEval": (conll("{n}\t{word}\tO\t{tag}", "#\thttp://x.de [2009]\n"),
                 [COUNTED, COMMENTS.format("#\thttp://x.de [2009]")]),
    "any comment": (conll("{word}\t{tag}", "#\tid 3\n"), [COMMENTS.format("#\tid 3")]),
    "comments within": (conll("{word} {tag}").replace("Bonn", "# x\nBonn").replace(
        "Bob", "#y x\nBob").replace("ran", "# x\nran"), [COMMENTS.format("# x")]),
    "a header": ("\nToken Tag\n" + conll("{word} {tag}"),
                 ["line 2 of x.conll names the columns, and is no word"]),
    "a header of numbers": ("id\tword\tne\n" + conll("{n}.\t{word}\t{tag}"),
                            ["line 1 of x.conll names the columns, and is no word", COUNTED]),
    "numbers": (conll("{n} {word} {tag}"), [COUNTED]),
    "numbers that go on": ("1 Ann B-PER\n2 saw O\n3 Bonn B-LOC\n\n4 #tbt O\n5 Bob B-PER\n\n"
                           "6 # O\n7 ran O\n", [COUNTED]),
    "numbers from 0": (conll("{n}\t{word}\tNN\t{tag}", start=0), [COUNTED]),
    "Label Studio": ("-DOCSTART- -X- O\n" + conll("{word} -X- _ {tag}"), []),
    "brat": (conll("{tag}\t0\t3\t{word}"), ["the first column of x.conll has tags, so words are "
                                            "read from the last"]),
}  # fmt: skip


@pytest.mark.parametrize("writer", WORDS)
def test_words(write: Write, monkeypatch: pytest.MonkeyPatch, writer: str) -> None:
    content, said = WORDS[writer]
    path = write("x.conll", content)
    monkeypatch.chdir(path.parent)
    task = Task.load(path.name)
    assert task.train.words == SENTENCES and list(task.warnings) == said
    tags = [tag for sentence in TAGS for tag in sentence]
    assert [task.labels[number] for number in task.train.labels] == tags


# --- What is not read --------------------------------------------------------------------------

SPANS = [[[0, 1, "PER"]]] * 4
REFUSED: dict[str, tuple[str, str, str]] = {
    "spaCy's pairs": ("x.iob", "Ann|B-PER ran|O\nBob|B-PER sat|O\n",
                      "has pairs, such as 'Ann|B-PER'"),
    "OntoNotes": ("x.conll", conll("bc/x 0 {word} {tag}"), "the same in all of a sentence, such as "
                  "'bc/x'; leave it out"),
    "offsets": ("x.conll", "0 3 Ann B-PER\n4 7 ran O\n\n0 3 Bob B-PER\n4 7 sat O\n",
                "the first column has numbers alone, such as '0'; leave it out"),
    "other comments": ("x.conll", "; a b\n" + conll("{word} {tag}"), "line 1 has 3, and others 2"),
    "WebAnno": ("x.conll", conll("3-{n}\t{word}\t{tag}"), "numbers the words, such as '3-1'"),
    "CoNLL-U": ("x.conll", conll("{n}\t{word}\t_\t_\t_\t_\t_\t_\t_\t{tag}"), "to .conllu"),
    "Label Studio": ("x.json", json.dumps([{"id": 1, "data": {"text": "a"}, "annotations": []}]),
                     "export it from Label Studio as JSON-MIN"),
    "Kaggle's words": ("x.csv", "Sentence #,Word,POS,Tag\n1,Ann,NNP,B-PER\n,ran,VB,O\n",
                       "into a .conll file"),
    "Prodigy's spans": ("x.jsonl", jsonl(text=AB, tokens=SPANS, spans=SPANS), "tag for each word"),
    "Prodigy's choices": ("x.jsonl", jsonl(text=AB, options=SPANS, accept=[["x"], ["y"]] * 2),
                          "--label accept"),
    "spaCy's categories": ("x.jsonl", jsonl(text=AB, cats=[{"x": 1, "y": 0}] * 4), "the category"),
    "doccano's spans": ("x.jsonl", jsonl(text=AB, label=SPANS), "[0, 1, 'PER'] (list) in line 1"),
    "several splits": ("x.json", json.dumps({"train": ROWS, "test": ROWS}), "has several: train, "
                       "test; write a file for each"),
    "pandas, values": ("x.json", FRAME.to_json(orient="values"), "item 1 is ['He said"),
}  # fmt: skip


@pytest.mark.parametrize("writer", REFUSED)
def test_refused(write: Write, writer: str) -> None:
    name, content, words = REFUSED[writer]
    expect_refused(words, Task.load, write(name, content))


LOOKS = [
    (("cafe\u0301", "caf\xe9"), "'cafe\\u0301', 'caf\\xe9'"),
    (("x\u200b", "x"), "'x', 'x\\u200b'"),
    (("\uff21", "A"), "'A', '\\uff21'"),
    (("a\u00adb", "\ufeffAB"), "'a\\xadb', '\\ufeffAB'"),
    (("\u2764\ufe0f", "\u2764"), "'\\u2764', '\\u2764\\ufe0f'"),
    (("c\u0410t", "cat"), "'cat', 'c\\u0410t'"),
    (("\u041da", "ha"), "'ha', '\\u041da'"),
    (("a-b\u2019s", "a\u2011b's"), "'a-b\\u2019s', \"a\\u2011b's\""),
]


@pytest.mark.parametrize(("names", "shown"), LOOKS)
def test_names_that_look_the_same(names: tuple[str, str], shown: str) -> None:
    [line] = Task.from_lists(AB, [*names, *names]).warnings
    said = f"task look the same: {shown}; write them alike if they are the same"
    assert line == f"classes of {said}"
    [line] = Task.from_lists(["a", "b"], [[names[0], "z"], [names[1]]]).warnings
    assert line == f"labels of {said}"
    held = (["e"], [names[1]])
    named = (
        f"task (validation) has {names[1]!a} in row 0 (counted from 0), column 'label'; training"
    )
    expect_refused(f"{named} has {names[0]!a}", Task.from_lists, AB, [names[0], "z"] * 2,
                   validation=held)  # fmt: skip
