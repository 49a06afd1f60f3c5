"""What pages and the terminal say of tasks with several labels, and of labelled words."""

from typing import Any

import pytest

from layerscout.data import METRICS, name_metric
from layerscout.reporting import (
    build_sections,
    count_compared,
    count_examples,
    count_labels,
    count_read,
    describe_evaluation,
    describe_scan,
    describe_speed,
    name_constant_answer,
    tabulate_by_name,
)
from layerscout.reporting.evaluation import SHOWN
from layerscout.reporting.scores import describe_no_signal, list_notes
from layerscout.reporting.words import read_more
from scan_content import full

WORDS = {
    "name": "news",
    "kind": "token_classification",
    "labels": ["B-PER", "I-PER", "O"],
    "examples_used": 1002,
    "examples_available": 3394,
    "words_used": 2000,
    "words_available": 62730,
}
SEVERAL = {"kind": "multi_label_classification", "labels": ["joy", "fear", "anger"]}


def scanned(task: dict[str, Any], metric: str = "f1") -> dict[str, Any]:
    """A scan of a task whose heads are judged by a metric."""
    given = full()
    given["task"] |= task
    given["scores"]["head_quality"]["details"]["metric"] = metric
    return given


def test_what_was_read_is_counted_in_what_is_labelled():
    assert count_read(WORDS) == "2,000 words of 1,002 of 3,394 sentences"
    assert count_examples(WORDS) == "1,002 sentences with 2,000 words"
    assert count_labels(WORDS) == "3 tags"
    texts = full()["task"]
    assert count_read(texts) == "2,000 of 67,349 examples"
    assert count_examples(texts) == "2,000 examples"
    assert count_labels(texts) == "2 classes" and count_labels(texts | SEVERAL) == "3 labels"
    compared = {"examples": 30, "task": {"kind": "token_classification", "words_used": 176}}
    assert count_compared(compared) == "30 sentences with 176 words"
    compared = {"examples": 30, "task": {"kind": "classification"}}
    assert count_compared(compared) == "30 examples"


def test_more_words_are_a_number_of_them():
    assert read_more({"task": WORDS, "settings": {}}) == ("4000", "4,000 words")
    assert read_more({"task": WORDS | {"words_used": 62000}, "settings": {}}) == (
        "62730",
        "62,730 words",
    )
    assert read_more({"task": WORDS | {"words_used": 62730}, "settings": {}}) is None
    # All sentences can have been read for some of their words.
    assert read_more({"task": WORDS | {"examples_used": 3394}, "settings": {}}) == (
        "4000",
        "4,000 words",
    )
    assert read_more(full()) == ("all", "all 67,349 examples")
    balanced = full()
    balanced["settings"] |= {"balanced": True, "examples_available": 9000}
    assert read_more(balanced) == ("all", "all 9,000 examples of balanced classes")
    balanced["settings"]["examples_available"] = balanced["task"]["examples_used"]
    assert read_more(balanced) is None
    (command,) = (
        command
        for section in build_sections(scanned(WORDS))[1]
        for sentence, command in section.commands
        if sentence == "Read 4,000 words:"
    )
    assert command.endswith("--examples 4000")


@pytest.mark.parametrize("reads", ["first", "last"])
def test_words_have_poolings_of_their_own(reads: str):
    def advised(**settings: Any) -> list[str]:
        given = scanned(WORDS)
        given["model"]["reads"] = reads
        given["settings"] |= settings
        sections = build_sections(given)[1]
        return [command for section in sections for _, command in section.commands]

    assert any("--pooling first" in command for command in advised(pooling="mean"))
    assert not any("--pooling mean" in command for command in advised(pooling="mean"))
    assert any("--pooling mean" in command for command in advised(pooling="first"))


@pytest.mark.parametrize(
    ("task", "always", "read"),
    [
        (WORDS, "the most frequent tag", "2,000 words; --examples 4000 reads 4,000 words."),
        (
            SEVERAL,
            "the labels of at least half of the texts",
            "2,000 examples; --examples all reads all 67,349 examples.",
        ),
    ],
)
def test_nothing_read_is_said_of_what_was_read(task: dict[str, Any], always: str, read: str):
    given = scanned(task)
    given["scores"]["head_quality"]["details"]["majority"] = 0.78
    words, _, rest = read.partition(";")
    told = f"With {words}, no state is shown to do better than always predicting {always} (0.7800)"
    assert describe_no_signal(given) == f"{told};{rest}"
    assert f"always predicting {always}: 0.7800" in list_notes(given, "head_quality")


def test_what_judges_heads_is_named():
    def told(task: dict[str, Any], metric: str) -> str:
        return describe_scan(scanned(task, metric), ["head_quality"], "(≈)")[0]

    words = told(WORDS, "macro_f1")
    assert "held-out quality of a head (macro-F1 over the tags of single words): states" in words
    assert "of a head (accuracy on words): states" in told(WORDS, "accuracy")
    several = told(SEVERAL, "micro_f1")
    assert "(micro-F1, with each label predicted as often as it occurs): states" in several
    assert "of a head (Matthews correlation): states" in told({}, "matthews_correlation")


@pytest.mark.parametrize(
    ("task", "counted"),
    [({}, "2,000 of 67,349 examples"), (WORDS, "2,000 words of 1,002 of 3,394 sentences")],
)
def test_the_reason_for_so_many_examples_is_given(task: dict[str, Any], counted: str):
    given = scanned(task)
    given["settings"]["examples_because"] = "these are all there are"
    lines = describe_scan(given, ["head_quality"], "(≈)")
    assert f"{counted}: these are all there are." in lines


def test_every_metric_has_a_name_in_words():
    names = [name_metric(key) for key in METRICS]
    assert not any("_" in name for name in names) and len(set(names)) == len(METRICS)
    assert name_metric("entity_f1") == "entity F1" and name_metric("micro_f1") == "micro-F1"
    assert name_metric("lrap") == "label ranking average precision"
    assert name_metric("mean_squared_error") == "mean squared error"


def by_name(count: int, **more: Any) -> dict[str, Any]:
    values = {"precision": 0.5, "recall": 1 / 3, "f1": 0.4}
    found = {f"n{k}": {**values, "support": 1000 * (k + 1)} for k in range(count)}
    return {"task": {"kind": "classification"}, "metrics": {}, "by_name": found, **more}


def test_names_stand_by_how_often_they_occur():
    table = tabulate_by_name(by_name(2))
    assert table is not None
    assert list(table.columns) == ["Class", "Precision", "Recall", "F1", "Support"]
    assert table.rows == [
        ["n1", "0.500", "0.333", "0.400", "2,000"],
        ["n0", "0.500", "0.333", "0.400", "1,000"],
    ]
    table = tabulate_by_name(by_name(SHOWN + 12))
    assert table is not None and len(table.rows) == SHOWN
    assert table.caption.endswith(f"The {SHOWN} most frequent of {SHOWN + 12}.")


def test_names_are_called_what_they_are():
    def heading(**more: Any) -> str:
        table = tabulate_by_name(by_name(1, **more))
        assert table is not None
        return table.columns[0]

    assert heading(task=WORDS, metrics={"entity_f1": 0.5}) == "Type of entity"
    assert heading(task=WORDS) == "Tag" and heading(task=SEVERAL) == "Label"
    thresholds = tabulate_by_name(by_name(1, task=SEVERAL, thresholds={"n0": 0.4213}))
    assert thresholds is not None and thresholds.rows[0][-1] == "0.421"
    assert thresholds.columns[-1] == "Threshold"
    assert tabulate_by_name(by_name(0)) is None and tabulate_by_name({}) is None, "an older file"


def test_an_evaluation_names_the_answer_that_is_always_the_same():
    content = {
        "metric": "entity_f1",
        "metrics": {"entity_f1": 0.9},
        "majority": 0.0,
        "task": WORDS,
        "truncation": {},
        "skips": None,
    }
    first = describe_evaluation(content)[0]
    assert first.endswith("entity F1 0.9000; always predicting the most frequent tag scores 0.000.")
    content |= {"task": SEVERAL, "metric": "micro_f1", "metrics": {"micro_f1": 0.9}}
    assert name_constant_answer("multi_label_classification") in describe_evaluation(content)[0]
    content |= {"task": {"kind": "multiple_choice"}, "majority": None}
    assert "always" not in describe_evaluation(content)[0]


@pytest.mark.parametrize(
    ("kept", "words"),
    [(101.0, "101 examples/s, about as many as the full model"), (180.0, "1.8 times the 100 of")],
)
def test_a_speed_is_set_against_that_of_the_full_model(kept, words):
    speeds = {"kept_model": kept, "full_model": 100.0}
    content = {"examples_per_second": speeds, "task": {"kind": "classification"}}
    assert words in describe_speed(content | {"flops": {"inference": 1, "full_inference": 2}})
    same = describe_speed(content | {"flops": {"inference": 2, "full_inference": 2}})
    assert same.endswith("the same as the full model")
