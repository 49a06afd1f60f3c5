"""Files of data for tests, and the check that bad ones are refused."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layerscout.errors import InputError

TEXTS = ["a fine film", 'he said "no", twice', "two\nlines", "naïve café 😀", "dull", "so, so"]
LABELS = ["good", "bad", "good", "good", "bad", "bad"]

Write = Callable[[str, str | bytes], Path]


def expect_refused(words: str, call: Callable[..., Any], *arguments: Any, **options: Any) -> str:
    """Check that a call is refused in one line with all of the words in it; return the line."""
    with pytest.raises(InputError) as caught:
        call(*arguments, **options)
    line = str(caught.value)
    assert "\n" not in line and len(line) < 700
    missing = [word for word in words.split(" … ") if word not in line]
    assert not missing, f"{missing} not in {line!r}"
    return line


def writer(folder: Path) -> Write:
    """Make the function that writes a file of text or bytes into a folder and returns its path."""

    def put(name: str, content: str | bytes) -> Path:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return put


def as_csv(columns: Mapping[str, Any]) -> str:
    """Write columns as RFC 4180 says, every field quoted."""
    rows = [list(columns), *zip(*columns.values(), strict=True)]
    quoted = [['"' + str(cell).replace('"', '""') + '"' for cell in row] for row in rows]
    return "".join(",".join(row) + "\r\n" for row in quoted)


def as_jsonl(columns: Mapping[str, Any]) -> str:
    """Write columns as one JSON object a line."""
    rows = zip(*columns.values(), strict=True)
    return "".join(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in rows)


def parquet(path: Path, columns: Mapping[str, Any]) -> Path:
    """Write columns as Parquet."""
    pq.write_table(pa.table(dict(columns)), path)
    return path


def many(label: str = "x,y") -> str:
    """Write a good CSV file of four rows."""
    one, other = label.split(",")
    return f"text,label\na,{one}\nb,{other}\nc,{one}\nd,{other}\n"
