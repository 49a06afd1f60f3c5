"""Predicting: every form that is saved, every file that is read, in Python and on the terminal."""

import csv
import io
import json
import pickle
import signal
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, strategies as st
from scipy.special import expit, softmax
from transformers import BertForSequenceClassification, pipeline

import layerscout as ls
from conftest import start, whole_only
from inputs import as_csv, as_jsonl, expect_refused, parquet
from layerscout.cluster import Cluster
from layerscout.predicting import run as running
from layerscout.predicting.cluster import find_logits
from telling import numbers_task
from tiny import SENTENCES, tiny_checkpoint
from tuned import cheaply, choices_task, task_of

TEXTS = [*SENTENCES[:6], "cat"]
SENTENCE = ("the cat sat", "a dog ran away", "it sat", "the dog", "a cat ran", "so it ran")
TAGS = ("B-ANIMAL", "O")


def words_task():
    """Make a task of tagged words."""
    words = [sentence.split() for sentence in SENTENCE]
    tags = [[TAGS[word not in ("cat", "dog")] for word in row] for row in words]
    return ls.Task.from_lists(words, tags, validation=(words[:4], tags[:4]))


def several_task():
    """Make a task of several labels."""
    labels = [["x"], ["y"], ["x", "y"], [], ["y"], ["x"]] * 2
    texts = [*SENTENCES[:12]]
    return ls.Task.from_lists(texts, labels, validation=(texts[:6], labels[:6]))


CLASSES = task_of(n=12, held=6)
FORMS = {
    "checkpoint": (CLASSES, "top:1", {}),
    "adapter": (CLASSES, "(3, 3, 3)", {"method": "adapter"}),
    "lora": (CLASSES, "(3, 3, 3)", {"method": "lora", "keep_adapter": True}),
    "words": (words_task(), "top:1", {}),
    "several": (several_task(), "top:1", {"threshold": "tuned"}),
    "choices": (choices_task(8, 4), "top:1", {}),
    "mean-linear": (CLASSES, "(3, 3, 3)", {"classifier": "mean-linear"}),
    "prefix": (CLASSES, "(3, 3, 3)", {"method": "prefix-tuning"}),
    "numbers": (numbers_task(24).hold_out(0.5, 0), "top:1", {}),
    "words by LoRA": (words_task(), "top:1", {"method": "lora", "keep_adapter": True}),
}
QUICK = ("adapter", "lora", "several", "choices")


@pytest.mark.parametrize("form", [*QUICK, *whole_only(*sorted(FORMS.keys() - {*QUICK}))])
def test_every_form_that_is_saved_predicts_what_the_tuning_judged(form, tmp_path):
    task, plan, options = FORMS[form]
    base = tiny_checkpoint(tmp_path / "base", "bert")
    result = cheaply(base, task, plan, **({"epochs": 1} | options))
    result.save(tmp_path / "out")
    split, predictions = task.validation, result.predictions
    texts, pairs = list(split.texts), None
    if task.kind == "token_classification":
        texts = list(split.words)
    if task.kind == "multiple_choice":
        texts = list(split.texts[::2])
        pairs = [split.pairs[at : at + 2] for at in range(0, len(split.pairs), 2)]
    loaded = ls.load(tmp_path / "out")
    assert (
        loaded.kind == task.kind and loaded.max_length == result.content["settings"]["max_length"]
    )
    expected, logits = predictions["prediction"], np.array(predictions["logits"], np.float64)
    for predictor in (loaded, result):
        predicted = predictor.predict(texts, pairs)
        if task.kind == "token_classification":
            assert [len(tags) for tags in predicted] == [len(words) for words in texts]
            predicted = [tag for tags in predicted for tag in tags]
        if task.kind == "regression":
            np.testing.assert_allclose(predicted, expected, atol=1e-5)
            expect_refused("have no probabilities", predictor.predict_proba, texts)
            continue
        assert list(predicted) == list(expected)
        several = task.kind == "multi_label_classification"
        shares = predictor.predict_proba(texts, pairs)
        if task.kind == "token_classification":
            shares = np.concatenate(shares)
        wanted = expit(logits) if several else softmax(logits, axis=1)
        np.testing.assert_allclose(shares, wanted, atol=1e-5)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Return a plain checkpoint of transformers, as others save them."""
    folder = tiny_checkpoint(tmp_path_factory.mktemp("plain") / "model", "bert")
    torch.manual_seed(0)
    names = {0: "bad", 1: "fair", 2: "good"}
    other = BertForSequenceClassification.from_pretrained(folder, id2label=names, num_labels=3)
    other.classifier.weight.data.normal_(std=2)
    other.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def loaded(model):
    return ls.load(model)


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """Return a model that tags words."""
    folder = tmp_path_factory.mktemp("words")
    cheaply(tiny_checkpoint(folder / "base", "bert"), words_task(), "top:1", epochs=1).save(folder)
    return folder


@pytest.fixture(scope="module")
def averaging(tmp_path_factory):
    """Return a model whose head was solved, under a block that averages."""
    folder = tmp_path_factory.mktemp("solved")
    base = tiny_checkpoint(folder / "base", "bert")
    ls.tune(base, CLASSES, "head:3", progress=False, measure="predictions").save(folder)
    return folder / "model"


def test_the_block_that_averages_is_not_run(averaging, monkeypatch):
    predictor = ls.load(averaging)
    expected = predictor.predict_proba(TEXTS)
    monkeypatch.setattr(predictor.model, "forward", None)
    np.testing.assert_array_equal(predictor.predict_proba(TEXTS), expected)


@pytest.mark.parametrize("name", ["model", "averaging"])
def test_it_says_what_the_pipeline_says(name, request):
    folder = request.getfixturevalue(name)
    texts = [*TEXTS, "", "a " * 300]
    classify = pipeline("text-classification", str(folder), top_k=None)
    predictor = ls.load(folder)
    cut = {"truncation": True, "max_length": predictor.max_length}
    said = classify(texts, **cut)
    scores = [{one["label"]: one["score"] for one in row} for row in said]
    expected = [[row[label] for label in predictor.labels] for row in scores]
    np.testing.assert_allclose(predictor.predict_proba(texts), expected, atol=1e-5)
    assert list(predictor.predict(texts)) == [row[0]["label"] for row in said]
    pairs = [*reversed(texts)]
    both = [{"text": text, "text_pair": pair} for text, pair in zip(texts, pairs, strict=True)]
    said = classify(both, **cut)
    assert list(predictor.predict(texts, pairs)) == [row[0]["label"] for row in said]


def read(text, separator=","):
    return list(csv.DictReader(io.StringIO(text), delimiter=separator))


COLUMNS = {"id": [*"abcdefg"], "text": TEXTS, "label": ["0"] * 7}
FILES = {
    "x.csv": lambda path: path.write_text(as_csv(COLUMNS)),
    "x.tsv": lambda path: pd.DataFrame(COLUMNS).to_csv(path, sep="\t", index=False),
    "x.jsonl": lambda path: path.write_text(as_jsonl(COLUMNS)),
    "x.json": lambda path: path.write_text(json.dumps(pd.DataFrame(COLUMNS).to_dict("records"))),
    "x.parquet": lambda path: parquet(path, COLUMNS | {"id": pd.to_datetime(["2020-01-01"] * 7)}),
    "x.txt": lambda path: path.write_text("\n".join(TEXTS)),
}
READERS = {
    ".csv": lambda path: pd.read_csv(path, dtype={"label": str}),
    ".tsv": lambda path: pd.read_csv(path, sep="\t", dtype={"label": str}),
    ".jsonl": lambda path: pd.read_json(path, lines=True, dtype={"label": str}),
    ".parquet": pd.read_parquet,
}


@pytest.mark.parametrize("name", FILES)
def test_rows_keep_their_order_columns_and_types(name, model, run, tmp_path, monkeypatch):
    monkeypatch.setattr(running, "CHUNK", 3)
    FILES[name](tmp_path / name)
    assert run("predict", model, tmp_path / name, "-q")[:2] == (0, "")
    [written] = tmp_path.glob("x.predictions.*")
    assert written.suffix == {".json": ".jsonl", ".txt": ".csv"}.get(
        Path(name).suffix, Path(name).suffix
    )
    frame, predictor = READERS[written.suffix](written), ls.load(model)
    added = ["prediction", "probability_bad", "probability_fair", "probability_good"]
    own = ["text"] if name == "x.txt" else [*COLUMNS]
    assert [*frame] == [*own, *added] and [*frame["text"]] == TEXTS
    assert [*frame["prediction"]] == [*predictor.predict(TEXTS)]
    np.testing.assert_allclose(frame[added[1:]], predictor.predict_proba(TEXTS), atol=1e-5)
    if name == "x.parquet":
        assert frame["id"].dtype.kind == "M"
    assert not [*tmp_path.glob(".x*")]
    code, _, errors = run("predict", model, tmp_path / name, "-q")
    assert code == 2 and "already there; name another file with --output" in errors


def test_other_files_are_written_by_their_names(model, run, tmp_path):
    (tmp_path / "x.jsonl").write_text(as_jsonl(COLUMNS))
    frames = []
    for suffix, reader in READERS.items():
        out = tmp_path / f"out{suffix}"
        code, printed, _ = run("predict", model, tmp_path / "x.jsonl", "--top-k", 2, "-o", out)
        assert code == 0 and "7 rows in" in printed and f"wrote {out}" in printed.replace("\n", "")
        frames.append(reader(out))
    for frame in frames:
        assert [*frame][3:] == ["prediction", "top_1", "probability_1", "top_2", "probability_2"]
        assert [*frame["top_1"]] == [*frame["prediction"]] == [*frames[0]["prediction"]]
        assert (frame["probability_1"] >= frame["probability_2"]).all()


@pytest.mark.parametrize(
    ("given", "rows"),
    [
        ("a fine film\n\ndull\n", ["a fine film", "", "dull"]),
        ("text;id\na fine film;1\n", ["a fine film"]),
        (as_jsonl({"text": ["dull"]}), ["dull"]),
    ],
)
def test_standard_input_is_lines_of_text_or_a_table(given, rows, model, run, monkeypatch):
    stdin = io.TextIOWrapper(io.BytesIO(given.encode()))
    monkeypatch.setattr("sys.stdin", stdin)
    code, printed, errors = run("predict", model, "-", "-q")
    assert code == 0 and [row["text"] for row in read(printed)] == rows
    assert ("have an empty text" in errors) == ("" in rows)


def test_words_get_a_tag_each(words, run, tmp_path):
    sentences = [sentence.split() for sentence in SENTENCE]
    tags = ls.load(words).predict(sentences)
    assert (
        ls.load(words).predict(SENTENCE) == tags and ls.load(words).predict([[], ["cat"]])[0] == []
    )
    blocks = ["".join(f"{word}\n" for word in row) for row in sentences]
    (tmp_path / "plain.conll").write_text("\n".join(blocks))
    blocks = ["".join(f"{word}\tO\n" for word in row) for row in sentences]
    (tmp_path / "tagged.conll").write_text("\n".join(blocks))
    (tmp_path / "rows.jsonl").write_text(as_jsonl({"tokens": [*sentences, []]}))
    (tmp_path / "rows.csv").write_text(as_csv({"text": SENTENCE}))
    for name in ("plain.conll", "tagged.conll", "rows.jsonl", "rows.csv"):
        assert run("predict", words, tmp_path / name)[0] == 0
    for name, width in (("plain", 2), ("tagged", 3)):
        text = (tmp_path / f"{name}.predictions.conll").read_text()
        lines = [
            [line.split("\t") for line in block.split("\n")] for block in text.split("\n\n")[:-1]
        ]
        assert {len(line) for block in lines for line in block} == {width}
        assert [[line[0] for line in block] for block in lines] == sentences
        assert [[line[-1] for line in block] for block in lines] == tags
    rows = (tmp_path / "rows.predictions.jsonl").read_text().splitlines()
    assert [json.loads(row)["prediction"] for row in rows] == [*tags, []]
    cells = read((tmp_path / "rows.predictions.csv").read_text())
    assert [json.loads(row["prediction"]) for row in cells] == tags


LATE = [{"text": "a", "n": None}, {"text": "b"}, {"text": "c", "n": 1}, {"text": "d", "n": 1.5}]


def test_what_stands_late_in_a_file_counts_from_the_first_row_on(model, tmp_path, monkeypatch):
    monkeypatch.setattr(running, "CHUNK", 1)
    source, out = tmp_path / "x.jsonl", tmp_path / "out.parquet"
    source.write_text("\n".join(map(json.dumps, LATE)))
    ls.predict(model, source, out, progress=False)
    np.testing.assert_array_equal(pd.read_parquet(out)["n"], [np.nan, np.nan, 1, 1.5])
    source.write_text("\n".join(map(json.dumps, [*LATE, {"text": "e", "n": "x"}])))
    with patch.object(ls.Predictor, "find_logits") as find:
        expect_refused("do not fit into Parquet", ls.predict, model, source, out, progress=False)
    assert not find.called


def test_rows_without_a_text_fill_a_whole_chunk(model, tmp_path, monkeypatch):
    monkeypatch.setattr(running, "CHUNK", 2)
    parquet(tmp_path / "x.parquet", {"text": [None, None, "cat"]})
    done = ls.predict(model, tmp_path / "x.parquet", drop_missing=True, progress=False)
    assert [*pd.read_parquet(done.path)["text"]] == ["cat"]


def test_odd_characters_are_written_so_that_others_read_them(model, tmp_path):
    row = {"text": "a\rb", "x": '"\r', "half \ud800": "c"}
    (tmp_path / "x.jsonl").write_text(json.dumps(row) + "\n" + json.dumps(row))
    for suffix in (".csv", ".tsv"):
        done = ls.predict(model, tmp_path / "x.jsonl", tmp_path / f"x{suffix}", progress=False)
        text = done.path.open(newline="").read()
        assert text.endswith("\n") and "\r\n" not in text
        rows = [*csv.DictReader(io.StringIO(text, newline=""), delimiter=",\t"[suffix == ".tsv"])]
        assert [(one["text"], one["x"]) for one in rows] == [("a\rb", '"\r')] * 2
    done = ls.predict(model, tmp_path / "x.jsonl", progress=False)
    assert row.items() <= json.loads(done.path.read_text().splitlines()[0]).items()
    (tmp_path / "gaps.jsonl").write_text('{"text": "a", "x": [NaN, {"y": Infinity}], "z": NaN}')
    done = ls.predict(model, tmp_path / "gaps.jsonl", progress=False)
    assert '"x": [null, {"y": null}], "z": null' in done.path.read_text()
    done = ls.predict(model, tmp_path / "gaps.jsonl", tmp_path / "gaps.csv", progress=False)
    assert 'a,"[null, {""y"": null}]",,' in done.path.read_text()
    (tmp_path / "old.txt").write_text("кот\n", encoding="cp1251")
    done = ls.predict(model, tmp_path / "old.txt", encoding="cp1251", progress=False)
    assert [*pd.read_csv(done.path)["text"]] == ["кот"]
    (tmp_path / "one.csv").write_text('text\na\n""\n\nb\n')
    [note] = ls.predict(model, tmp_path / "one.csv", progress=False).warnings
    assert "with nothing in any field are left out: 1" in note


def test_words_stand_first_in_conll_whatever_they_were_read_from(words, tmp_path):
    (tmp_path / "x.jsonl").write_text(as_jsonl({"ner_tags": [[0, 1]], "tokens": [["the", "cat"]]}))
    (tmp_path / "x.csv").write_text(as_csv({"tokens": ['["the", "cat"]']}))
    for name, width in (("x.jsonl", 3), ("x.csv", 2)):
        done = ls.predict(words, tmp_path / name, tmp_path / "out.conll", progress=False)
        lines = [line.split("\t") for line in done.path.read_text().splitlines() if line]
        assert [line[0] for line in lines] == ["the", "cat"] and {*map(len, lines)} == {width}


UNUSABLE = (
    [None],
    ["a", np.nan],
    [1],
    [b"a"],
    ["\ud800"],
    [["a", "b"]],
    pd.DataFrame({"text": ["a"]}),
)


def test_texts_in_python_that_are_none_are_refused_in_one_line(loaded, words):
    for texts in UNUSABLE:
        expect_refused("texts", loaded.predict, texts)
    expect_refused("strings of valid Unicode", loaded.predict, ["a"], [None])
    tagger = ls.load(words)
    for texts in ([None], [["a", 1]], [["\ud800"]]):
        expect_refused("text", tagger.predict, texts)
    assert "BertModel" not in repr(loaded)


def test_it_says_where_single_texts_were_tuned_on_and_pairs_are_read(model, tmp_path):
    columns = {"premise": TEXTS, "hypothesis": TEXTS}
    (tmp_path / "x.csv").write_text(as_csv(columns | {"body": TEXTS}))
    (tmp_path / "model").symlink_to(model)
    for read, line in ({"text": "body"}, None), ({"text": "gone"}, "tuned on single texts, and"):
        about = {"settings": {"task": None}, "task": {"columns": read}}
        (tmp_path / "result.json").write_text(json.dumps(about))
        out = tmp_path / "out.csv"
        found = ls.predict(tmp_path, tmp_path / "x.csv", out, progress=False).warnings
        assert line in found[0] if line else not found


REFUSALS = {
    "no model": (["./MISSING", "x.csv"], "there is no model folder"),
    "no head": (["BARE", "x.csv"], "is not tuned for classification"),
    "no texts": (["MODEL", "y.csv"], "no such file"),
    "misspelt column": (["MODEL", "x.csv", "--text", "txt"], "did you mean 'text'"),
    "no column": (["MODEL", "two.csv"], "cannot tell which column holds the texts"),
    "added twice": (["MODEL", "again.csv"], "already has the column 'prediction'"),
    "a missing text": (["MODEL", "null.jsonl"], "every row needs a text: null.jsonl has 1 null"),
    "of its folder": (["MODEL", ".", "-o", "x.csv"], "would replace the texts"),
    "no texts in it": (["MODEL", "none.txt"], "must hold a text on each line"),
    "--sep of lines": (["MODEL", "none.txt", "--sep", ";"], "is for fields of CSV"),
    "no date of Python": (["MODEL", "far.parquet"], "as Parquet: date value out of range"),
    "tab in a word": (["WORDS", "tab.jsonl", "-o", "x.conll"], "must not be blank or hold tabs"),
    "no such file": (["MODEL", "x.csv", "-o", "x.doc"], "--output must be .csv"),
    "its own texts": (["MODEL", "x.csv", "-o", "x.csv"], "would replace the texts"),
    "no labels": (["MODEL", "x.csv", "--threshold", "0.3"], "--threshold is for multi-label"),
    "no probability": (["MODEL", "x.csv", "--threshold", "3"], "between 0 and 1, got 3"),
    "no classes": (["WORDS", "x.csv", "--top-k", "2"], "--top-k is for classification"),
    "no words": (["MODEL", "x.csv", "-o", "x.conll"], "--output .conll is for token"),
    "too long": (["MODEL", "x.csv", "--max-length", "999"], "max_length must be in"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_cannot_be_used_is_one_line(case, model, words, tiny, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.csv").write_text(as_csv(COLUMNS))
    (tmp_path / "two.csv").write_text(as_csv({"a": TEXTS, "b": TEXTS}))
    (tmp_path / "again.csv").write_text(as_csv({"text": TEXTS, "prediction": TEXTS}))
    (tmp_path / "null.jsonl").write_text(as_jsonl({"text": ["a", None]}))
    (tmp_path / "none.txt").write_text("")
    (tmp_path / "tab.jsonl").write_text(as_jsonl({"tokens": [["a\tb"]]}))
    parquet(tmp_path / "far.parquet", {"text": ["a"], "at": np.array([2**61], "datetime64[us]")})
    before = {*tmp_path.iterdir()}
    places = {"MODEL": model, "WORDS": words, "BARE": tiny}
    arguments, line = REFUSALS[case]
    code, printed, errors = run("predict", *(places.get(word, word) for word in arguments), "-q")
    assert code == 2 and printed == "" and line in errors and errors.count("\n") == 1, errors
    assert {*tmp_path.iterdir()} == before


def test_a_run_that_was_stopped_goes_on(model, run, tmp_path, monkeypatch):
    monkeypatch.setattr(running, "CHUNK", 3)
    source, out = tmp_path / "x.csv", tmp_path / "out.csv"
    source.write_text(as_csv(COLUMNS))
    assert run("predict", model, source, "-q", "-o", tmp_path / "whole.csv")[0] == 0
    find, computed = ls.Predictor.find_logits, []

    def stopping(self, texts, *more):
        if len(computed) == stop:
            raise KeyboardInterrupt
        computed.append(len(texts))
        return find(self, texts, *more)

    monkeypatch.setattr(ls.Predictor, "find_logits", stopping)
    stop = 2
    code, _, errors = run("predict", model, source, "-q", "-o", out)
    assert code == 130 and "to continue, run: layerscout predict" in errors
    assert computed == [3, 3] and not out.exists()
    [broken] = (tmp_path / ".out.csv.layerscout-predict").glob("000001-*")
    broken.write_bytes(b"")
    stop = 4
    code, printed, errors = run("predict", model, source, "-o", out)
    assert "7 rows, 3 of them by an earlier run, in" in printed
    assert code == 0 and computed == [3, 3, 3, 1] and "going on with what an earlier run" in errors
    assert out.read_bytes() == (tmp_path / "whole.csv").read_bytes()
    assert not [*tmp_path.glob(".out*")]
    stop = 6
    assert run("predict", model, source, "-q", "-o", out)[0] == 130
    source.write_text(as_csv(COLUMNS | {"text": ["other", *TEXTS[1:]]}))
    stop = 9
    code, _, errors = run("predict", model, source, "-q", "-o", out)
    assert code == 0 and "have changed since" in errors and len(computed) == 8


def test_a_cluster_writes_what_one_machine_does_and_goes_on(model, run, tmp_path, monkeypatch):
    monkeypatch.setattr(running, "CHUNK", 2)
    source, out = tmp_path / "x.csv", tmp_path / "out.csv"
    source.write_text(as_csv(COLUMNS))
    assert run("predict", model, source, "-q", "-o", tmp_path / "whole.csv")[0] == 0
    sent, shown, stop = [], [], 2

    @contextmanager
    def spread(_):
        def work(find, asked):
            for one in asked:
                if one is not None and len(sent) == stop:
                    raise KeyboardInterrupt
                sent.extend([] if one is None else [len(one[0])])
                yield pickle.loads(pickle.dumps(find))(one)

        yield work, "cpu"

    monkeypatch.setattr("layerscout.cluster.Cluster.spread", spread)
    ray = ("predict", model, source, "-q", "-o", out, "--backend", "ray")
    assert run(*ray)[0] == 130 and not out.exists()
    stop = 9

    def show(stage, done, total, note):
        shown.append((done, total))

    ls.predict(model, source, out, cluster=Cluster(), progress=show)
    assert sent == [2, 2, 2, 1] and shown == [(2, 7), (4, 7), (6, 7), (7, 7)]
    assert out.read_bytes() == (tmp_path / "whole.csv").read_bytes()
    for refused in (("--precision", "auto"), ("--threads", 1)):
        code, _, errors = run(*ray, *refused)
        assert code == 2 and refused[0] in errors


def test_a_machine_with_another_model_is_refused(model):
    there = (model, None, "float32", None)
    expect_refused("has another model at", find_logits, "0", "cpu", there, (["a cat"], None))


CHARACTERS = st.characters(codec="utf-8", exclude_characters="\0")


@given(
    texts=st.lists(st.text(CHARACTERS, max_size=9), min_size=1, max_size=9), size=st.integers(1, 4)
)
def test_count_and_order_of_rows_are_kept(texts, size, loaded):
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(running, "CHUNK", size),
        patch.object(running, "load", lambda *_, **__: loaded),
    ):
        source, out = Path(folder) / "x.jsonl", Path(folder) / "out.jsonl"
        source.write_text(as_jsonl({"n": range(len(texts)), "text": texts}))
        done = ls.predict("model", source, out, progress=False)
        rows = [json.loads(line) for line in out.read_text().split("\n")[:-1]]
    assert [(row["n"], row["text"]) for row in rows] == [*enumerate(texts)]
    assert done.rows == len(texts) and done.path == out
    assert [row["prediction"] for row in rows] == [*loaded.predict(texts)]


@pytest.mark.whole
def test_a_run_that_was_killed_goes_on(tmp_path):
    model = cheaply(tiny_checkpoint(tmp_path / "base", "bert"), CLASSES, "top:1", epochs=1)
    model.save(tmp_path / "out")
    texts = [f"{SENTENCES[n % 12]} {n}" for n in range(12_000)]
    pd.DataFrame({"text": texts}).to_csv(tmp_path / "x.csv", index=False)
    arguments = ("predict", tmp_path / "out", tmp_path / "x.csv", "--threads", 1)
    first, hidden = start(*arguments), tmp_path / ".x.predictions.csv.layerscout-predict"
    while len([*hidden.glob("*.npy")]) < 2:
        assert first.poll() is None
        time.sleep(0.01)
    first.send_signal(signal.SIGKILL)
    first.wait()
    kept = {path.name: path.stat().st_mtime_ns for path in hidden.glob("*.npy")}
    assert kept and not (tmp_path / "x.predictions.csv").exists()
    printed, errors = start(*arguments).communicate()
    assert "going on with" in errors and "12,000 rows" in printed
    frame = pd.read_csv(tmp_path / "x.predictions.csv")
    assert [*frame["text"]] == texts
    assert [*frame["prediction"][:50]] == [*ls.load(tmp_path / "out").predict(texts[:50])]
    assert not hidden.exists()
