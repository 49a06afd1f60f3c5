"""A label for every word: what is read, from which files and columns, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import real
from inputs import Write, as_csv, as_jsonl, expect_refused, parquet
from layerscout.data import KNOWN, Task, make_targets

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


def test_class_names_number_the_tags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from datasets import ClassLabel, Dataset, DatasetDict, Features, List, Value

    names = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
    features = Features({"tokens": List(Value("string")), "tags": List(ClassLabel(names=names))})
    ids = [[1, 2, 0], [3], [0, 0, 1]]
    rows = Dataset.from_dict({"tokens": WORDS, "tags": ids}, features=features)
    rows.to_parquet(tmp_path / "x.parquet")
    monkeypatch.setattr("datasets.load_dataset", lambda *_: DatasetDict(train=rows))
    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", lambda *_, **__: None)
    for data in (tmp_path / "x.parquet", "someone/else"):
        task = Task.load(data)
        assert task.labels == ("O", "B-PER", "I-PER", "B-LOC")
        assert task.train.labels.tolist() == [1, 2, 0, 3, 0, 0, 1]
        (warning,) = task.warnings
        assert warning.startswith("tags without a word in ") and warning.endswith(": I-LOC")


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


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("x.conll", "", "PATH has no words; it must hold a word and its tag on each line"),
        ("x.conllu", "# a\n\n", "PATH has no words; it must hold a word and its tag on each line"),
        (
            "x.conll",
            "a O\nb\n",
            "PATH must have a word first, its tag last, and the same columns on every line: "
            "line 2 has 1, and the lines before 2; correct the line",
        ),
        (
            "x.bio",
            "\na\n",
            "PATH must have a word first, its tag last, and the same columns on every line: "
            "line 2 has 1, and no tag; correct the line",
        ),
        ("x.iob", "a O\n\nb NN O\n", "line 3 has 3, and the lines before 2"),
        (
            "x.conllu",
            "# a\n1\ta\tO\n",
            "must have ten tab-separated … line 2 has 3 … to .conll",
        ),
        ("x.conll", "a O\nb B-X\n" * 300, "a blank line after each … among its 600 words; add"),
        ("x.conll", b"caf\xe9 O\n", "UTF-8 … 0xe9 … line 1"),
        ("x.conll", b"a O\n\0 O\n", "NUL … line 2"),
        ("x.conll", "a O\nb O\n", "at least 2 tags: column 'tags' of PATH has only 'O'"),
    ],
)
def test_bad_conll_files(write: Write, name: str, content: str | bytes, line: str) -> None:
    path = write(name, content)
    expect_refused(line.replace("PATH", str(path)), Task.load, path)


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
    expect_refused("no words in column 'text'; it needs some", Task.from_lists, [[], []], [[], []])


def test_blank_words_stay(write: Write) -> None:
    task = Task.from_lists([["", " "], ["a", "b"]], [["O", "B-X"], ["O", "O"]])
    assert task.train.words == [("", " "), ("a", "b")]
    assert task.warnings == ("1 of 2 rows of task have an empty text",)
    expect_refused("must not all be empty", Task.from_lists, [["", " "]], [["O", "B-X"]])


def test_spans_that_did_not_begin_are_counted() -> None:
    tags = [["I-PER", "I-PER", "O"], ["I-LOC"], ["B-LOC", "I-PER", "E-PER"]]
    task = Task.from_lists(WORDS, tags)
    assert task.warnings == (
        "3 of 7 tags of task continue a span that did not begin; they are read as its beginning "
        "(I- as B-)",
    )
    # A span does not go on in the next sentence.
    task = Task.from_lists([["a"], ["b"], ["c"]], [["B-X"], ["I-X"], ["O"]])
    assert task.warnings[0].startswith("1 of 3 tags")


def test_tags_that_are_written_in_two_ways_are_told() -> None:
    task = Task.from_lists([["a", "b", "c"]], [["B-Per", "B-PER", "O"]])
    assert task.labels == ("B-PER", "B-Per", "O")
    told = "tags of task differ only in case or spaces: 'B-PER', 'B-Per'; write them alike if they"
    assert task.warnings == (f"{told} are the same",)


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


# --- What is refused ---------------------------------------------------------------------------

AT = "row 1 (counted from 0)"
WRONG = {
    "lengths": ([["a"], ["b", "c"]], [["O"], ["O"]], "every word must have a tag: task has 2 words "
                f"and 1 tags in {AT}, column 'label'; correct the row"),
    "a number": ([["a"], ["b", 3]], [["O"], ["O", "X"]], "words must be strings: task has 3 (int) "
                 f"in {AT}, column 'text'; write it as a string"),
    "no word": ([["a"], [None]], [["O"], ["X"]], "words must be strings: task has None (NoneType) "
                f"in {AT}, column 'text'; write it as a string"),
    "no tags": ([["a"], ["b"]], [["O"], None], "every row must have a list of tags: task has 1 "
                f"missing, the first in {AT}, column 'label'; write one for each word, or drop the "
                "row"),
    "no tag": ([["a"], ["b"]], [["O"], [None]], "tags must be strings or integers: task has None "
               f"(NoneType) in {AT}, column 'label'; write its name or number"),
    "empty tag": ([["a"], ["b"]], [["O"], [""]], "tags must have a name: task has '' in "
                  f"{AT}, column 'label'; write its name or number"),
    "ignored": ([["a"], ["b", "c"]], [[0], [1, -100]], "every word must have a tag: task has -100 "
                f"in {AT}, column 'label'; write one tag for each word; words are "
                "split into tokens later"),
    "a class": ([["a"], ["b"]], ["x", "y"], "every row must have a list of tags: task has 'x' "
                "(str) in row 0 (counted from 0), column 'label'; name another column"),
    "a text": ([["a"], "b"], [["O"], ["X"]], "every row must have a list of words: task has 'b' "
               f"(str) beside ['a'] in {AT}, column 'text'; write all of them as lists"),
    "no words": ([["a"], None], [["O"], ["X"]], "every row must have a list of words: task has 1 "
                 f"missing, the first in {AT}, column 'text'; fill or drop the row"),
    "one tag": ([["a"], ["b"]], [["O"], ["O"]], "a task needs at least 2 tags: column 'label' of "
                "task has only 'O'; name another column with --label, or add rows"),
    "surrogate": ([["a"], ["b\ud800"]], [["O"], ["X"]], "texts and labels must be valid Unicode: "
                  f"task has half of a surrogate pair in {AT}, column 'text'; repair it"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_words_and_tags_that_cannot_be_read(wrong: str) -> None:
    words, tags, line = WRONG[wrong]
    assert expect_refused(line, Task.from_lists, words, tags) == line


def test_words_are_of_one_text_and_one_kind(write: Write) -> None:
    columns: dict[str, list[Any]] = {"tokens": WORDS, "tags": TAGS, "a": ["x", "y", "z"]}
    columns |= {"b": [1, 0, 1], "c": [0, 1, 1], "d": [["joy"], [], ["fear"]]}
    path = write("x.jsonl", as_jsonl(columns))
    for options, words in (
        ({"regression": True}, "a label must be one string or number … leave out --task"),
        ({"text": "tokens", "text_pair": "a"}, "texts must be strings"),
        ({"label_separator": "|"}, "a task of words needs a list of words … split at '|'"),
        ({"text": "tokens", "label": "b,c"}, "a task of words needs … from several columns"),
        ({"task": "cola", "text": "a", "label": "tags"}, "one string or number … line 1"),
        ({"task": "go_emotions", "text": "tokens", "label": "d"}, "texts must be strings"),
    ):
        expect_refused(words, Task.load, path, **options)
    texts = write("y.jsonl", as_jsonl({"tokens": ["a", "b"], "tags": [["O"], ["O"]]}))
    expect_refused("wnut17 needs a list of words", Task.load, texts, task="wnut17")


def test_known_tasks_have_their_tags_alone(write: Write) -> None:
    path = write("x.jsonl", as_jsonl({"tokens": WORDS, "ner_tags": TAGS, "pos_tags": TAGS}))
    task = Task.load(path, task="conll2003")
    assert task.labels == ("O", "B-PER", "I-PER", "B-LOC") and task.columns["label"] == "ner_tags"
    assert task.warnings[0].startswith("tags without a word in ")
    rule = "labels must be ids or names of the task's classes (0 O, 1 B-corporation"
    expect_refused(f"{rule} … 'B-PER' in line 1 … --task", Task.load, path, task="wnut17")


# --- Real tasks --------------------------------------------------------------------------------


@pytest.mark.real
@pytest.mark.parametrize("name", [None, "wnut17"])
def test_named_entities_load_whole(name: str | None) -> None:
    task = Task.load(real("data", "wnut17"), task=name)
    assert task.validation is not None and task.warnings == ()
    assert (task.kind, task.metric) == ("token_classification", "entity_f1")
    assert (len(task.train), len(task.validation)) == (3394, 1009)
    assert (len(task.train.labels), len(task.validation.labels)) == (62_730, 15_733)
    known = KNOWN["wnut17"].labels
    assert task.labels == (known if name else tuple(sorted(known)))
    counts = np.bincount(task.train.labels)
    assert counts[task.labels.index("B-person")] == 660
    assert counts[task.labels.index("I-corporation")] == 46
