"""A label for every word: what is read, from which files and columns, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inputs import Write, as_csv, as_jsonl, expect_refused, parquet
from layerscout.data import Task, make_targets

WORDS = [["Ann", "Lee", "left"], ["Bonn"], ["we", "saw", "Ann"]]
TAGS = [["B-PER", "I-PER", "O"], ["B-LOC"], ["O", "O", "B-PER"]]
NAMES = ("B-LOC", "B-PER", "I-PER", "O")
IDS = [1, 2, 3, 0, 3, 3, 1]
CONLL = "Ann B-PER\nLee I-PER\nleft O\n\nBonn B-LOC\n\nwe O\nsaw O\nAnn B-PER\n"


def check(task: Task, metric: str = "entity_f1", names: Any = NAMES, ids: Any = IDS) -> None:
    assert (task.kind, task.metric) == ("token_classification", metric)
    assert task.labels == tuple(names) and task.train.labels.dtype == np.int64
    assert task.train.labels.tolist() == ids
    assert task.train.words == [tuple(words) for words in WORDS]
    assert task.train.texts == ["Ann Lee left", "Bonn", "we saw Ann"] and len(task.train) == 3
    assert task.train.bounds.tolist() == [0, 3, 4, 7] and task.train.origin is None
    assert task.warnings == () and task.train.pairs is None and task.train.groups is None


# --- What is read ------------------------------------------------------------------------------


def test_lists_of_every_source(write: Write, tmp_path: Path) -> None:
    columns = {"tokens": WORDS, "ner_tags": TAGS}
    check(Task.load(parquet(tmp_path / "x.parquet", columns)))
    check(Task.load(write("x.jsonl", as_jsonl(columns))))
    check(Task.load(write("x.csv", as_csv(columns))))  # as Python writes lists
    check(Task.from_lists(WORDS, TAGS))
    check(Task.from_lists([np.array(row) for row in WORDS], [tuple(row) for row in TAGS]))
    check(Task.load(write("x.conll", CONLL)))


def test_numbers_without_names_are_names(tmp_path: Path) -> None:
    numbers = [[10, 9, 2], [9], [2, 2, 10]]
    path = parquet(tmp_path / "x.parquet", {"tokens": WORDS, "tags": numbers})
    check(Task.load(path), "accuracy", ("2", "9", "10"), [2, 1, 0, 1, 0, 0, 2])


def test_tags_that_mark_no_spans_are_judged_by_accuracy() -> None:
    tags = [["NOUN", "NOUN", "VERB"], ["NOUN"], ["PRON", "VERB", "NOUN"]]
    check(Task.from_lists(WORDS, tags), "accuracy", ("NOUN", "PRON", "VERB"), [0, 0, 2, 0, 1, 2, 0])
    ends = [["B-PER", "E-PER", "O"], ["S-LOC"], ["O", "O", "S-PER"]]
    assert Task.from_lists(WORDS, ends).metric == "entity_f1"


# --- Columns -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "options", "columns_read"),
    [
        ({"id": "text", "tokens": "words", "labels": "tags"}, {}, "tokens+labels"),
        ({"words": "words", "pos_tags": "ids", "lemma": "words"}, {}, "words+pos_tags"),
        ({"Tokens": "words", "NER": "tags"}, {}, "Tokens+NER"),
        ({"text": "text", "tokens": "words", "tags": "tags"}, {}, "tokens+tags"),
        ({"tokens": "words", "upos": "tags", "xpos": "tags"}, {}, "tokens+upos"),
        ({"tokens": "words", "a": "tags"}, {"label": "a"}, "tokens+a"),
        ({"a": "words", "tags": "tags"}, {"text": "a"}, "a+tags"),
        ({"a": "words", "b": "tags", "c": "tags"}, {"text": "a", "label": "c"}, "a+c"),
        ({"sentence": "words", "label": "tags"}, {}, "sentence+label"),
        ({"text": "text", "tokens": "words", "label": "class"}, {}, "text+label"),
        ({"text": "text", "tokens": "words", "labels": "tags"}, {}, "text+labels"),
        ({"tokens": "text", "label": "class"}, {}, "tokens+label"),
        ({"tokens": "words", "ner_tags": "tags", "pos_tags": "tags"}, {}, "--label"),
        ({"tokens": "words", "words": "words", "a": "tags"}, {}, "--label"),
        ({"tokens": "words", "words": "words", "a": "tags"}, {"label": "a"}, "--text"),
    ],
)
def test_columns_are_guessed_or_asked_for(
    write: Write,
    tmp_path: Path,
    columns: dict[str, str],
    options: dict[str, str],
    columns_read: str,
) -> None:
    holding: dict[str, list[Any]] = {
        "words": WORDS,
        "tags": TAGS,
        "ids": [[1, 2, 0], [3], [0, 0, 1]],
        "text": ["a", "b", "c"],
        "class": ["x", "x", "y"],
    }
    table = {name: holding[what] for name, what in columns.items()}
    table = {name: [*values, *values] for name, values in table.items()}
    for path in (
        write("x.jsonl", as_jsonl(table)),
        parquet(tmp_path / "x.parquet", table),
        write("x.csv", as_csv(table)),
    ):
        if columns_read.startswith("--"):
            expect_refused(columns_read, Task.load, path, **options)
            continue
        task = Task.load(path, **options)
        text, label = columns_read.split("+")
        assert task.columns == {"text": text, "label": label}
        assert (task.kind == "token_classification") == (columns[text] == "words")


def test_texts_in_brackets_are_texts(write: Write) -> None:
    columns = {"text": ["[deleted]", "a", "[]"], "label": ["['x']", "[]", "['y']"]}
    task = Task.load(write("x.csv", as_csv(columns)))
    assert task.kind == "multi_label_classification" and task.train.texts == columns["text"]
    columns["label"] = ["x", "x", "x"]
    columns = {name: values * 2 for name, values in columns.items()} | {"label": list("xyxyxy")}
    assert Task.load(write("y.csv", as_csv(columns))).kind == "classification"


# --- CoNLL files -------------------------------------------------------------------------------

CONLLU = """\
# sent_id = 1
# text = Ann isn't in.
1\tAnn\tAnn\tPROPN\tNNP\t_\t0\troot\t_\t_
2-3\tisn't\t_\t_\t_\t_\t_\t_\t_\t_
2\tis\tbe\tAUX\tVBZ\t_\t1\tcop\t_\t_
3\tn't\tnot\tPART\tRB\t_\t1\tadvmod\t_\t_
3.1\tsits\tsit\tVERB\tVBZ\t_\t_\t_\t_\t_

# sent_id = 2
1\tI saw\tsee\tVERB\tVBD\t_\t0\troot\t_\t_
"""


def test_conll_files_have_a_word_first_and_its_tag_last(write: Write, tmp_path: Path) -> None:
    marked = "-DOCSTART- -X- O O\n\n" + CONLL.replace(" B", " NNP X B").replace(" I", " NNP X I")
    marked = marked.replace("left O", "left VBD X O").replace("we O", "we PRP X O")
    check(Task.load(write("a.iob", marked.replace("saw O", "saw VBD X O"))))
    check(Task.load(write("b.bio", CONLL.replace(" ", "\t").replace("\n\n", "\n\t\n \n\n"))))
    check(Task.load(write("c.conll", "\ufeff" + CONLL.replace(" ", "   ").replace("\n", "\r\n"))))
    write("folder/train.conll", CONLL)
    write("folder/dev.conll", "Lee B-PER\n")
    task = Task.load(tmp_path / "folder")
    assert task.validation is not None and task.validation.words == [("Lee",)]
    assert task.columns == {"text": "tokens", "label": "tags"} and task.name == "folder"


def test_words_in_conll_files_are_cut_at_spaces_and_tabs_alone(write: Write) -> None:
    content = "a\u00a0b O\n# O\nNew York\tB-LOC\n\n\u2028 O\n"
    task = Task.load(write("x.conll", content))
    assert task.train.words == [("a\u00a0b", "#", "New York"), ("\u2028",)]


def test_conllu_files(write: Write) -> None:
    path = write("x.conllu", CONLLU)
    task = Task.load(path)
    assert task.train.words == [("Ann", "is", "n't"), ("I saw",)]
    assert [task.labels[tag] for tag in task.train.labels] == ["PROPN", "AUX", "PART", "VERB"]
    assert task.columns == {"text": "tokens", "label": "upos"} and task.metric == "accuracy"
    task = Task.load(path, label="xpos")
    assert [task.labels[tag] for tag in task.train.labels] == ["NNP", "VBZ", "RB", "VBD"]
    known = Task.load(path, task="ud_pos")
    assert known.labels == ("PART", "PROPN", "VERB", "AUX") and len(known.warnings) == 1
    assert known.kind == "token_classification" and known.metric == "accuracy"


# --- What should be known ----------------------------------------------------------------------


def test_rows_without_words_are_left_out(tmp_path: Path) -> None:
    words = [[], ["a", "b"], [], ["c"], ["d"]]
    tags = [[], ["O", "B-X"], [], ["O"], ["O"]]
    path = parquet(tmp_path / "x.parquet", {"tokens": words, "tags": tags})
    task = Task.load(path)
    assert task.warnings == (f"2 of 5 rows of {path} have no words and are left out",)
    assert task.train.words == [("a", "b"), ("c",), ("d",)]
    assert task.train.origin is not None and task.train.origin.tolist() == [1, 3, 4]
    assert make_targets(task.train, task.kind).rows.tolist() == [1, 1, 3, 4]


def test_blank_words_stay(write: Write) -> None:
    task = Task.from_lists([["", " "], ["a", "b"]], [["O", "B-X"], ["O", "O"]])
    assert task.train.words == [("", " "), ("a", "b")]


def test_validation_may_have_new_tags(write: Write) -> None:
    train = write("train.conll", CONLL)
    held = write("held.conll", "Bad B-LOC\nEms I-LOC\nTom B-PER\n\nvan I-LOC\n")
    task = Task.load(train, validation=held)
    assert task.labels == (*NAMES, "I-LOC") and task.train.labels.tolist() == IDS
    assert task.validation is not None and task.validation.labels.tolist() == [0, 4, 1, 4]
    assert task.warnings == (
        f"tags of {held} that do not occur in training, on 2 words, and so cannot be learnt: I-LOC",
        f"1 of 4 tags of {held} continue a span that did not begin; they are read as its "
        "beginning (I- as B-)",
    )


def test_known_tasks_have_their_tags_alone(write: Write) -> None:
    path = write("x.jsonl", as_jsonl({"tokens": WORDS, "ner_tags": TAGS, "pos_tags": TAGS}))
    task = Task.load(path, task="conll2003")
    assert task.labels == ("O", "B-PER", "I-PER", "B-LOC") and task.columns["label"] == "ner_tags"
    assert task.warnings[0].startswith("tags without a word in ")
    rule = "labels must be all ids or all names of the task's classes (0 O, 1 B-corporation"
    expect_refused(f"{rule} … 'B-PER' in line 1 … --task", Task.load, path, task="wnut17")
