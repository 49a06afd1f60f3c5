"""Columns and known tasks: which are read, and the texts that are made of them."""

from pathlib import Path
from typing import Any

import pytest

from inputs import Write, as_csv, as_jsonl, expect_refused, many, parquet
from layerscout.data import KNOWN, Task
from layerscout.data.known_tasks import find_known_task
from layerscout.data.sources import OLD_HUB_NAMES

# --- Columns -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "columns"),
    [
        ("text,label", {"text": "text", "label": "label"}),
        ("Sentence,LABEL", {"text": "Sentence", "label": "LABEL"}),
        ("class,id,review", {"text": "review", "label": "class"}),
        ("premise,hypothesis,target", "premise+hypothesis"),
        ("sentence1,sentence2,label", "sentence1+sentence2"),
        ("Question1,question2,label", "Question1+question2"),
        ("question,passage,label", "question+passage"),
        ("text_pair,text,label", "text+text_pair"),
        ("title,words,label", None),
        ("text,sentence,label", None),
        ("sentence1,sentence2,text,label", None),
        ("text,label,category", None),
        ("text,answer", None),
    ],
)
def test_columns_are_guessed_or_asked_for(write: Write, header: str, columns: Any) -> None:
    names = header.split(",")
    ids = {"id", "label", "class", "target", "LABEL", "category"}
    rows = [
        ",".join(str(row % 2) if name in ids else f"w{row}" for name in names)
        for row in range(1, 5)
    ]
    path = write("x.csv", "\n".join([header, *rows]))
    if columns is None:
        line = expect_refused("cannot tell which column", Task.load, path)
        assert ", ".join(names) in line and ("--label" in line or "--text" in line)
        return
    task = Task.load(path)
    if isinstance(columns, str):
        first, second = columns.split("+")
        columns = {"text": first, "text_pair": second, "label": names[-1]}
        assert task.train.pairs == ["w1", "w2", "w3", "w4"]
    assert task.columns == columns


def test_a_lone_column_of_strings_serves_as_text(write: Write, tmp_path: Path) -> None:
    lone = write("x.csv", "id,words,label\n1,a,0\n2,b,1\n3,c,0\n4,d,1\n")
    assert Task.load(lone).columns["text"] == "words"
    columns = {"id": [1, 2, 3, 4], "words": list("abcd"), "label": [0, 1, 0, 1]}
    assert Task.load(write("x.jsonl", as_jsonl(columns))).columns["text"] == "words"
    assert Task.load(parquet(tmp_path / "x.parquet", columns)).columns["text"] == "words"


def test_columns_can_be_named(write: Write) -> None:
    path = write("x.csv", "a,b,c,text,label\nk,l,0,m,1\nn,o,1,p,2\nk,l,0,m,3\nn,o,1,p,4\n")
    task = Task.load(path, text="b", text_pair="a", label="c")
    assert task.columns == {"text": "b", "text_pair": "a", "label": "c"}
    assert task.train.texts == ["l", "o"] * 2 and task.train.pairs == ["k", "n"] * 2


def test_braces_in_a_column_name_are_only_a_name(write: Write) -> None:
    path = write("x.csv", "{text},label\na,0\nb,1\nc,0\nd,1\n")
    assert Task.load(path, text="{text}").train.texts == list("abcd")


def test_numbers_are_texts_only_when_named(write: Write, tmp_path: Path) -> None:
    columns = {"text": [1, 2, 3, 4], "label": [0, 1, 0, 1]}
    for path in (parquet(tmp_path / "x.parquet", columns), write("x.jsonl", as_jsonl(columns))):
        assert Task.load(path, text="text").train.texts == ["1", "2", "3", "4"]


# --- Texts -------------------------------------------------------------------------------------


def test_empty_texts_are_told(write: Write) -> None:
    task = Task.load(write("x.csv", 'text,label\n"",0\n  \u3000,1\nc,0\nd,1\n'))
    assert task.warnings == (
        f"2 of 4 rows of {write('y', '').parent / 'x.csv'} have an empty text",
    )
    assert task.train.texts[:2] == ["", "  \u3000"]


# --- Known tasks -------------------------------------------------------------------------------

HUB_ROWS: dict[str, tuple[dict[str, Any], str, str]] = {
    "cola": ({"sentence": "s"}, "s", ""),
    "sst2": ({"sentence": "s"}, "s", ""),
    "mrpc": ({"sentence1": "s", "sentence2": "t"}, "s", "t"),
    "qqp": ({"question1": "s", "question2": "t"}, "s", "t"),
    "stsb": ({"sentence1": "s", "sentence2": "t"}, "s", "t"),
    "mnli": ({"premise": "s", "hypothesis": "t"}, "s", "t"),
    "qnli": ({"question": "s", "sentence": "t"}, "s", "t"),
    "rte": ({"premise": "s", "hypothesis": "t"}, "s", "t"),
    "wnli": ({"sentence1": "s", "sentence2": "t"}, "s", "t"),
    "boolq": ({"question": "q", "passage": "p"}, "p", "q"),
    "cb": ({"premise": "s", "hypothesis": "t"}, "s", "t"),
    "multirc": (
        {"paragraph": "p", "question": "q", "answer": "a", "idx": {"answer": 0}}, "p", "q a"
    ),
    "wic": ({"word": "w", "sentence1": "s", "sentence2": "t", "start1": 0}, "w: s", "t"),
    "wsc": (
        {"text": "s", "span1_text": "Mark", "span2_text": "He"}, "s", '"He" refers to "Mark".'
    ),
    "yelp_polarity": ({"text": "s"}, "s", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", HUB_ROWS)
def test_known_tasks_read_the_columns_of_the_hub(tmp_path: Path, name: str) -> None:
    known = KNOWN[name]
    row, text, pair = HUB_ROWS[name]
    labels: list[Any] = [number for number in range(len(known.labels)) for _ in range(2)]
    columns = {key: [value] * (len(labels) or 2) for key, value in row.items()}
    columns["label"] = labels or [0.5, 1.5]
    task = Task.load(parquet(tmp_path / "x.parquet", columns), task=name)
    assert task.name == name and task.labels == known.labels and task.metric == known.metric
    assert task.kind == ("classification" if known.labels else "regression")
    assert task.train.texts[0] == text and (task.train.pairs or [""])[0] == pair
    assert task.train.labels.tolist() == columns["label"]


RELEASED: dict[str, tuple[dict[str, Any], list[str], list[str] | None]] = {
    "boolq": ({"question": "q", "passage": "p"}, ["q"], ["p"]),
    "multirc": ({"paragraph": "p", "question": "q", "answer": "a"}, ["p q"], ["a"]),
    "wic": ({"word": "w", "sentence1": "s", "sentence2": "t"}, ["s[SEP]t[SEP]w"], None),
    "copa": (
        {"premise": "It rained.", "question": "effect", "choice1": "a", "choice2": "b"},
        ["It rained. What was the effect of this?"] * 2,
        ["a", "b"],
    ),
}


@pytest.mark.parametrize("name", RELEASED)
def test_inputs_as_the_code_of_a_paper_has_them(tmp_path: Path, name: str) -> None:
    """Lodha et al. 2023, data_loader.py of the published code."""
    row, text, pairs = RELEASED[name]
    columns = {key: [value] * 4 for key, value in row.items()} | {"label": [0, 1, 0, 1]}
    task = Task.load(parquet(tmp_path / "x.parquet", columns), task=f"{name}@lodha2023")
    rows = len(text)
    assert task.train.texts[:rows] == text
    assert (task.train.pairs and task.train.pairs[:rows]) == pairs
    assert (task.kind, task.labels) == (KNOWN[name].kind, KNOWN[name].labels)
    assert find_known_task(KNOWN[name].hub) == name


def test_copa_is_a_row_a_choice(write: Write) -> None:
    columns = {
        "premise": ["It rained.", "He ran. "],
        "question": ["effect", "cause"],
        "choice1": ["It was wet.", "He sat."],
        "choice2": ["It was dry.", "He was late."],
        "label": [0, 1],
    }
    task = Task.load(write("x.jsonl", as_jsonl(columns)), task="copa")
    assert task.kind == "multiple_choice" and task.labels == ("wrong", "right")
    assert task.train.texts == ["It rained so"] * 2 + ["He ran because"] * 2
    assert task.train.pairs == ["It was wet.", "It was dry.", "He sat.", "He was late."]
    assert task.train.labels.tolist() == [1, 0, 0, 1]
    assert task.train.groups is not None and task.train.groups.tolist() == [0, 0, 1, 1]


def test_hellaswag_reads_lists_and_labels_as_strings(write: Write) -> None:
    endings = [["a", "b", "c", "d"], ["e", "f", "g", "h"]]
    columns: dict[str, list[Any]] = {"ctx": ["s", "t"], "endings": endings, "label": ["3", "0"]}
    task = Task.load(write("x.jsonl", as_jsonl(columns)), task="hellaswag")
    assert task.train.pairs == list("abcdefgh")
    assert task.train.labels.tolist() == [0, 0, 0, 1, 1, 0, 0, 0]


def test_cosmos_qa_joins_question_and_answer(write: Write) -> None:
    columns = {f"answer{item}": [str(item)] * 2 for item in range(4)}
    columns |= {"context": ["c", "d"], "question": ["q", "r"], "label": ["1", "2"]}
    task = Task.load(write("x.csv", as_csv(columns)), task="cosmos_qa")
    assert task.train.texts[0] == "c" and task.train.pairs is not None
    assert task.train.pairs[:4] == ["q 0", "q 1", "q 2", "q 3"]
    assert task.train.labels.tolist() == [0, 1, 0, 0, 0, 0, 1, 0]


def test_known_tasks_read_columns_that_are_named(write: Write) -> None:
    task = Task.load(write("x.csv", many("0,1")), task="sst2", text="text")
    assert task.labels == ("negative", "positive")


# A data set on the hub, the column that is named for the labels, and the task of both.
HUBS = [
    ("nyu-mll/glue/sst2", None, "sst2"),
    ("nyu-mll/glue", None, None),
    ("nyu-mll/glue/ax", None, None),
    ("aps/super_glue/wsc", None, "wsc"),
    ("aps/super_glue/wsc.fixed", None, "wsc"),
    ("fancyzhx/yelp_polarity", None, "yelp_polarity"),
    ("allenai/cosmos_qa/default", None, "cosmos_qa"),
    ("someone/sst2", None, None),
    ("Rowan/hellaswag2", None, None),
    ("google-research-datasets/go_emotions/simplified", None, "go_emotions"),
    ("google-research-datasets/go_emotions/raw", None, None),
    ("leondz/wnut_17", None, "wnut17"),
    ("universal-dependencies/universal_dependencies/de_gsd", None, "ud_pos"),
    ("eriktks/conll2003", None, "conll2003"),
    ("eriktks/conll2003", "ner_tags", "conll2003"),
    ("eriktks/conll2003", "pos_tags", None),
    ("nyu-mll/glue/cola", "idx", "cola"),
]


@pytest.mark.parametrize(("hub", "label", "task"), HUBS)
def test_the_hub_implies_its_tasks(hub: str, label: str | None, task: str | None) -> None:
    assert find_known_task(hub, label) == task


def test_old_hub_names_lead_to_known_tasks() -> None:
    for name, hub in OLD_HUB_NAMES.items():
        assert any(known.hub.startswith(hub) for known in KNOWN.values())
        assert name in (*KNOWN, "glue", "super_glue", "wnut_17", "universal_dependencies")


def test_class_names_and_metrics_are_those_of_the_benchmarks() -> None:
    """The numbering of the hub's glue and super_glue, written out."""
    entailment, truth = ("entailment", "not_entailment"), ("False", "True")
    choice = ("wrong", "right")
    of_words = {"go_emotions", "wnut17", "conll2003", "ontonotes5", "ud_pos"}
    assert len(KNOWN) == 27
    assert {
        name: (known.labels, known.metric)
        for name, known in KNOWN.items()
        if name not in of_words and "@" not in name
    } == {
        "cola": (("unacceptable", "acceptable"), "matthews_correlation"),
        "sst2": (("negative", "positive"), "accuracy"),
        "mrpc": (("not_equivalent", "equivalent"), "f1"),
        "qqp": (("not_duplicate", "duplicate"), "f1"),
        "stsb": ((), "pearson_spearman"),
        "mnli": (("entailment", "neutral", "contradiction"), "accuracy"),
        "qnli": (entailment, "accuracy"),
        "rte": (entailment, "accuracy"),
        "wnli": (("not_entailment", "entailment"), "accuracy"),
        "boolq": (truth, "accuracy"),
        "cb": (("entailment", "contradiction", "neutral"), "accuracy"),
        "copa": (choice, "accuracy"),
        "multirc": (truth, "accuracy"),
        "wic": (truth, "accuracy"),
        "wsc": (truth, "accuracy"),
        "yelp_polarity": (("negative", "positive"), "accuracy"),
        "hellaswag": (choice, "accuracy"),
        "cosmos_qa": (choice, "accuracy"),
    }


def test_tags_and_emotions_are_numbered_as_on_the_hub() -> None:
    """The numbers that the cards of the data sets give, at some places of each."""
    wnut17 = {0: "O", 1: "B-corporation", 4: "I-creative-work", 7: "B-location", 12: "I-product"}
    for name, metric, places in (
        ("go_emotions", "micro_f1",
         {0: "admiration", 9: "disappointment", 16: "grief", 27: "neutral"}),
        ("wnut17", "entity_f1", wnut17),
        ("conll2003", "entity_f1", {0: "O", 1: "B-PER", 4: "I-ORG", 5: "B-LOC", 8: "I-MISC"}),
        ("ontonotes5", "entity_f1",
         {0: "O", 7: "B-GPE", 11: "B-ORG", 22: "I-CARDINAL", 36: "I-LANGUAGE"}),
        ("ud_pos", "accuracy", {0: "NOUN", 6: "ADJ", 13: "_", 14: "ADV", 17: "AUX"}),
    ):  # fmt: skip
        labels = KNOWN[name].labels
        assert {place: labels[place] for place in places} == places
        assert len(labels) == max(places) + 1 == len(set(labels)) and KNOWN[name].metric == metric
