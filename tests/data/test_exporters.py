"""Files as the programs that people use write them, and what is read from them."""

import gzip
import json

import pandas as pd
import pytest

from inputs import Write
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
        "2 rows of x.csv have nothing in any field and are left out"),
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
