"""Made-up reviews in many files."""

import json
from itertools import islice


def shards(folder, kind, sizes, *, classes=3):
    """Write made-up reviews into files of so many rows; give the whole as a file too."""
    import pyarrow as pa
    from pyarrow import parquet

    from tiny import SENTENCES

    folder.mkdir()
    words = " ".join(SENTENCES).replace(",", "").split()
    rows = iter(
        {"text": " ".join(words[n % 17 : n % 17 + 3 + n % 9]), "label": n * n % 7 % classes}
        for n in range(10**6)
    )
    whole = []
    for number, size in enumerate(sizes):
        some = list(islice(rows, size))
        whole += some
        path = folder / f"train-{number}.{kind}"
        if kind == "parquet":
            table = {"text": pa.array([row["text"] for row in some], pa.string())}
            table["label"] = pa.array([row["label"] for row in some], pa.int64())
            parquet.write_table(pa.table(table), path)
        else:
            path.write_text("".join(json.dumps(row) + "\n" for row in some))
    path = folder.parent / f"whole-{kind}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in whole))
    return folder, path
