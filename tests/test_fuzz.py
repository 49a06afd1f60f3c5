"""Whatever is in a file or a notation: it is used, or refused in one line.

`make fuzz` tries far more, and knows more often what must be read.
"""

import json
import re
import shutil
import warnings
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st
from pyarrow import parquet

from layerscout.data import Task
from layerscout.errors import InputError
from layerscout.models import Encoder
from layerscout.plans import make_edits, make_plan
from layerscout.scanning import Scan
from layerscout.studies import load_recipe, make_recipe, read_recipe_text

fuzzed = settings(
    max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)

NAMES = "\u202egood\u202c \U0001f469\u200d\U0001f680"
ROWS = [{"text": f"row {n} of a film, {NAMES}", "label": "ab"[n % 2]} for n in range(6)]


def valid(kind, path):
    """Write a file of a kind that can be read, and return its bytes."""
    if kind == "parquet":
        columns = {name: [row[name] for row in ROWS] for name in ROWS[0]}
        parquet.write_table(pa.table(columns), path)
    elif kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    elif kind == "lists":
        rows = ({**row, "label": [row["label"], row["text"][:5]]} for row in ROWS)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif kind == "conll":
        path.write_text("-DOCSTART- O\n\n" + "Ann B-PER\nLee I-PER\nleft O\n\n" * 4)
    elif kind == "conllu":
        lines = (f"{n}\tw{n}\tw\tNOUN\tNN\t_\t0\troot\t_\t_\n" for n in range(1, 5))
        path.write_text(f"# text\n{''.join(lines)}\n1\tb\tb\tVERB\tVB{6 * f'{chr(9)}_'}\n")
    else:
        mark = "\t" if kind == "tsv" else ","
        quote = "" if kind == "tsv" else '"'
        lines = (f"{quote}{row['text']}{quote}{mark}{row['label']}\n" for row in ROWS)
        path.write_text(f"text{mark}label\n" + "".join(lines))
    return path.read_bytes()


# A place in a file (as a share of it), how much goes there, and what comes instead.
changes = st.lists(
    st.tuples(
        st.floats(0, 1),
        st.integers(0, 40),
        st.one_of(
            st.binary(max_size=12),
            st.text(max_size=6).map(lambda text: text.encode("utf-8", "surrogatepass")),
            st.sampled_from([b'"', b"\n", b"\r", b"\0", b"\t", b",", b"\xff\xfe", b"\xed\xa0\x80"]),
            st.sampled_from([b"null", b"NaN", b"1e999", b"{}", b"[[[[", b"-1", b'"label"']),
            st.sampled_from([b"[" * 2_000, b'{"a":' * 2_000, b"PAR1", b"\xef\xbb\xbf"]),
            st.sampled_from(
                [b"\r\r\n", b', "', b'""', b'\\"', b"# a\n", b"sep=;\n", b"\xe9", b"\x81"]
            ),
        ),
    ),
    min_size=1,
    max_size=5,
)


def changed(content, changes):
    """Put other bytes into a file."""
    for share, gone, new in changes:
        at = int(share * len(content))
        content = content[:at] + new + content[at + gone :]
    return content


def refused_or_not(work, lines=1):
    """Do something; only an `InputError` may come out, fit for a terminal, in so many lines."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return work()
        except InputError as error:
            text = str(error)
            assert text and len(text.splitlines()) <= lines and len(text) < 2000 * lines
            assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text), repr(text)
            return None


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet", "lists", "conll", "conllu"])
@fuzzed
@given(changes=changes)
def test_data(tmp_path_factory, kind, changes):
    suffix = "jsonl" if kind == "lists" else kind
    path = tmp_path_factory.mktemp("data") / f"train.{suffix}"
    path.write_bytes(changed(valid(kind, path), changes))
    refused_or_not(lambda: Task.load(path, text="text", label="label", regression=True))
    task = refused_or_not(lambda: Task.load(path))
    if task is not None:
        assert len(task.train) and len(task.labels) >= 1 + (task.kind == "classification")
    shutil.rmtree(path.parent)


plain = st.one_of(
    st.none(), st.booleans(), st.integers(-100, 3), st.floats(), st.sampled_from(["", "a", "B-x"])
)
values = st.recursive(plain, lambda inner: st.lists(inner, max_size=3), max_leaves=6)


@fuzzed
@given(
    texts=st.lists(values, min_size=2, max_size=5),
    labels=st.lists(values, min_size=5, max_size=5),
    options=st.sampled_from(
        [{}, {"label_separator": "|"}, {"label": "label,text"}, {"regression": True}]
    ),
    cells=st.booleans(),
)
def test_values(tmp_path_factory, texts, labels, options, cells):
    path = tmp_path_factory.mktemp("values") / "train.jsonl"
    rows = [
        dict(zip(("text", "label"), row, strict=True)) for row in zip(texts, labels, strict=False)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    if cells:
        path = path.with_suffix(".tsv")
        path.write_text("text\tlabel\n" + "".join(f"{r['text']}\t{r['label']}\n" for r in rows))
    task = refused_or_not(lambda: Task.load(path, **{"text": "text", "label": "label"} | options))
    if task is not None:
        words = task.kind == "token_classification"
        assert len(task.train.labels) == (task.train.bounds[-1] if words else len(rows))
    shutil.rmtree(path.parent)


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
@fuzzed
@given(changes=changes)
def test_shards(tmp_path_factory, kind, changes):
    path = tmp_path_factory.mktemp("shards") / f"part-0.{kind}"
    path.write_bytes(changed(valid(kind, path), changes))
    refused_or_not(lambda: Task.load(path.parent, text="text", label="label"))
    shutil.rmtree(path.parent)


README = b"""---
configs:
- config_name: default
  data_files:
  - {split: train, path: "data/train-*"}
  - {split: test, path: [train.csv, "**"]}
  sep: ","
- config_name: other
  data_dir: data
---
"""


@fuzzed
@given(changes=changes)
def test_readmes(tmp_path_factory, changes):
    folder = tmp_path_factory.mktemp("copy")
    (folder / "data").mkdir()
    for name in ("train.csv", "data/train-0.csv"):
        (folder / name).write_text("text,label\na,x\nb,y\nc,x\nd,y\n")
    (folder / "README.md").write_bytes(changed(README, changes))
    refused_or_not(lambda: Task.load(folder))
    shutil.rmtree(folder)


WORDS = ["reinit", "preserve", "skip", "permute", "truncate", "top", "full"]
MARKS = ["0", "1", "12", "3-4", ":", ",", "-"]
texts = st.one_of(
    st.text(max_size=30),
    st.from_regex(r"[a-z]{2,12}(-[a-z]{2,6})?(:[0-9a-z,-]{0,9})?(@[a-z0-9]{0,7})?", fullmatch=True),
    st.from_regex(r"\(?-?[0-9]{1,30}, ?[0-9]{0,3}, ?[0-9]{0,3}\)?", fullmatch=True),
    st.lists(st.sampled_from(WORDS + MARKS), max_size=9).map("".join),
)


@fuzzed
@given(text=texts, blocks=st.integers(1, 30), best=st.none() | st.integers(0, 40))
def test_plans(text, blocks, best):
    plan = refused_or_not(lambda: make_plan(text, blocks, best=best))
    if plan is not None:
        assert 0 <= plan.head <= blocks and all(1 <= block <= blocks for block in plan.tuned)


@fuzzed
@given(text=texts)
def test_edits(text):
    refused_or_not(lambda: make_edits(text))


RECIPE = read_recipe_text("tamkin2020-permutation").encode()


@fuzzed
@given(changes=changes)
def test_recipes(tmp_path_factory, changes):
    path = tmp_path_factory.mktemp("recipe") / "mine.yaml"
    path.write_bytes(changed(RECIPE, changes))
    refused_or_not(lambda: load_recipe(path, small=True), lines=99)
    shutil.rmtree(path.parent)


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.sampled_from([10**12, -(10**12), 1e300, float("nan"), 0.5, "", "x", "../../x", "\ud800"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=4,
)


@fuzzed
@given(content=anything)
def test_recipes_of_any_shape(content):
    refused_or_not(lambda: make_recipe({"title": "t", "grids": {"g": content}}), lines=99)
    refused_or_not(lambda: make_recipe({"title": "t", "grids": {"g": {"axes": content}}}), lines=99)


@pytest.fixture(scope="module")
def scanned(tiny, reviews, tmp_path_factory):
    from layerscout.scanning import scan

    folder = tmp_path_factory.mktemp("scan")
    scan(tiny, Task.load(reviews), examples="all", cache_limit=0, progress=False).save(folder)
    return (folder / "scan.json").read_bytes()


@fuzzed
@given(changes=changes)
def test_scans(tmp_path_factory, scanned, changes):
    folder = tmp_path_factory.mktemp("scan")
    (folder / "scan.json").write_bytes(changed(scanned, changes))
    scan = refused_or_not(lambda: Scan.load(folder))
    if scan is not None:
        refused_or_not(scan.planning)
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"]
)
@fuzzed
@given(changes=changes)
@example([(0.390625, 14, b"[" * 2_000)])  # in the name of a rate of dropout
def test_checkpoints(tmp_path_factory, tiny, name, changes):
    folder = tmp_path_factory.mktemp("model") / "bert"
    shutil.copytree(tiny, folder)
    path = Path(folder / name)
    if not path.exists():
        pytest.skip(f"the tiny checkpoint has no {name}")
    content = path.read_bytes()
    # Of the weights the header is what matters: other bytes are other numbers.
    head = len(content) if name != "model.safetensors" else 2000
    path.write_bytes(changed(content[:head], changes) + content[head:])
    refused_or_not(lambda: Encoder.load(folder, device="cpu"))
    shutil.rmtree(folder.parent)


CONFIG = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")


@fuzzed
@given(
    name=st.sampled_from([*CONFIG, "vocab_size", "model_type", "hidden_act", "pad_token_id"]),
    value=anything,
)
def test_configs(tmp_path_factory, tiny, name, value):
    folder = tmp_path_factory.mktemp("model") / "bert"
    shutil.copytree(tiny, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {name: value}))
    refused_or_not(lambda: Encoder.load(folder, device="cpu"))
    shutil.rmtree(folder.parent)
