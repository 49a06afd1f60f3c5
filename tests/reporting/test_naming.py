"""What pages and the terminal say of tasks with several labels, and of labelled words."""

from string import ascii_lowercase
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
    offer_halves,
    offer_macro_f1,
    tabulate_by_name,
)
from layerscout.reporting.scores import describe_no_signal, list_notes
from layerscout.reporting.words import describe_interval
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


TEXTS, COUNTS = full()["task"], [9, 8, 7, 6, 5, 5, 1, 99]


@pytest.mark.parametrize(
    ("counted", "words"),
    [
        (count_read(WORDS), "2,000 words of 1,002 of 3,394 sentences"),
        (count_read(TEXTS), "2,000 of 67,349 examples"),
        (count_examples(WORDS), "1,002 sentences with 2,000 words"),
        (count_examples(TEXTS), "2,000 examples"),
        (count_labels(WORDS), "3 tags"),
        (count_labels(TEXTS), "2 classes"),
        (
            count_labels(TEXTS | {"labels": list("abcdefgh"), "examples_per_class": COUNTS}),
            "8 classes: h 99, a 9, b 8, c 7, d 6, and 1 to 5 of each of 3 others",
        ),
        (
            count_labels(TEXTS | {"labels": list("abcdef"), "examples_per_class": [8] * 6}),
            "6 classes: a 8, b 8, c 8, d 8, e 8, f 8",
        ),
        (
            count_labels(TEXTS | {"labels": ["no", "yes"], "examples_per_class": [10, 1200]}),
            "2 classes: yes 1,200, no 10",
        ),
        (count_labels(TEXTS | SEVERAL), "3 labels"),
        (
            count_compared(
                {"examples": 30, "task": {"kind": "token_classification", "words_used": 176}}
            ),
            "30 sentences with 176 words",
        ),
        (count_compared({"examples": 30, "task": {"kind": "classification"}}), "30 examples"),
    ],
)
def test_what_was_read_is_counted_in_what_is_labelled(counted: str, words: str):
    assert counted == words


def commands(given: dict[str, Any], **settings: Any) -> dict[str, str]:
    """Return the commands on the page of a scan by the sentences above them."""
    given["settings"] |= settings
    sections = build_sections(given)[1]
    return {sentence: command for section in sections for sentence, command in section.commands}


BALANCED = {"balanced": True, "examples_available": 9000}


@pytest.mark.parametrize(
    ("task", "settings", "more", "what"),
    [
        (WORDS, {}, "4000", "4,000 words"),
        (WORDS | {"words_used": 62000}, {}, "62730", "62,730 words"),
        (WORDS | {"words_used": 62730}, {}, None, None),
        # All sentences can have been read for some of their words.
        (WORDS | {"examples_used": 3394}, {}, "4000", "4,000 words"),
        ({}, {}, "all", "all 67,349 examples"),
        ({}, BALANCED, "all", "all 9,000 examples of balanced classes"),
        ({}, BALANCED | {"examples_available": 2000}, None, None),
    ],
)
def test_more_is_read_of_what_is_left(task, settings, more, what):
    """Of words it is a number of them."""
    shown = commands(scanned(task), **settings)
    listed = {sentence: command for sentence, command in shown.items() if "Read " in sentence}
    assert list(listed) == ([] if what is None else [f"Read {what}:"])
    assert all(f"--examples {more}" in command for command in listed.values())


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


@pytest.mark.parametrize(
    ("task", "metric", "judge"),
    [
        (WORDS, "macro_f1", "macro-F1 over the tags of single words"),
        (WORDS, "accuracy", "accuracy on words"),
        (SEVERAL, "micro_f1", "micro-F1, with each label predicted as often as it occurs"),
        ({}, "matthews_correlation", "Matthews correlation"),
    ],
)
def test_what_judges_heads_is_named(task: dict[str, Any], metric: str, judge: str):
    line = describe_scan(scanned(task, metric), ["head_quality"], "(≈)")[0]
    assert f"held-out quality of a head ({judge}): states" in line


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


def test_names_stand_by_how_often_they_occur_and_of_many_the_worst():
    table = tabulate_by_name(by_name(2))
    assert table is not None
    assert list(table.columns) == ["Class", "Precision", "Recall", "F1", "Support"]
    assert table.rows == [
        ["n1", "0.500", "0.333", "0.400", "2,000"],
        ["n0", "0.500", "0.333", "0.400", "1,000"],
    ]
    many = by_name(42)
    for k in range(42):
        many["by_name"][f"n{k}"] |= {"f1": k / 42, "support": k}
    table = tabulate_by_name(many)
    assert table is not None and [row[0] for row in table.rows] == [f"n{k}" for k in range(1, 31)]
    assert table.caption.endswith("The 30 with the lowest F1, of 41 that occur.")
    for k in range(12, 42):
        many["by_name"][f"n{k}"] |= {"f1": 0.0, "support": 0}
    table = tabulate_by_name(many)
    assert table is not None and [row[0] for row in table.rows] == [f"n{11 - k}" for k in range(11)]
    assert table.caption.endswith("The 11 of 42 that occur.")
    assert tabulate_by_name(by_name(0)) is None and tabulate_by_name({}) is None, "an older file"


@pytest.mark.parametrize(
    ("more", "first", "last"),
    [
        ({"task": WORDS, "metrics": {"entity_f1": 0.5}}, "Type of entity", "1,000"),
        ({"task": WORDS}, "Tag", "1,000"),
        ({"task": SEVERAL}, "Label", "1,000"),
        ({"task": SEVERAL, "thresholds": {"n0": 0.4213}}, "Label", "0.421"),
    ],
)
def test_names_are_called_what_they_are(more: dict[str, Any], first: str, last: str):
    table = tabulate_by_name(by_name(1, **more))
    assert table is not None
    assert (table.columns[0], table.rows[0][-1]) == (first, last)
    assert (table.columns[-1] == "Threshold") == ("thresholds" in more)


@pytest.mark.parametrize(
    ("task", "metric", "majority", "ending"),
    [
        (WORDS, "entity_f1", 0.0, "; always predicting the most frequent tag scores 0.000."),
        (
            SEVERAL,
            "micro_f1",
            0.0,
            "; always predicting the labels of at least half of the texts scores 0.000.",
        ),
        ({"kind": "multiple_choice"}, "accuracy", None, "accuracy 0.9000."),
    ],
)
def test_an_evaluation_names_the_answer_that_is_always_the_same(task, metric, majority, ending):
    content = {"metric": metric, "metrics": {metric: 0.9}, "majority": majority, "task": task}
    first = describe_evaluation(content | {"truncation": {}, "skips": None})[0]
    assert f"{name_metric(metric)} 0.9000" in first and first.endswith(ending)


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


MACRO = "macro-F1, in which every class counts alike, is 0.600 (--metric macro_f1 chooses by it): "


@pytest.mark.parametrize(
    ("counts", "right", "said"),
    [
        ((50, 40, 10), (0.9, 0.9, 0.2), None),
        ((50, 41, 9), (0.9, 0.9, 0.2), "'c' has few examples"),
        ((50, 41, 9), (0.9, 0.9, 0.0), "'c' has few examples, and 'c' has no right prediction"),
        ((40, 30, 30), (0.9, 0.0, 0.0), "'b', 'c' have no right prediction"),
        ((5,) * 20, (0.9,) * 20, None),  # of as many, each has a twentieth
        ((5,) * 19 + (2,), (0.9,) * 20, "'t' has few examples"),
        ((), (0.9, 0.9), None),  # of an older file
    ],
)
def test_macro_f1_is_offered_where_accuracy_hides_a_class(counts, right, said):
    names = list(ascii_lowercase[: len(right)])
    content = {
        "metric": "accuracy",
        "task": {"kind": "classification", "labels": names, "examples_per_class": list(counts)},
        "metrics": {"accuracy": 0.9, "macro_f1": 0.6},
        "by_name": {n: {"support": 5, "f1": f1} for n, f1 in zip(names, right, strict=True)},
    }
    assert offer_macro_f1(content) == (None if said is None else MACRO + said)
    assert offer_macro_f1(content | {"metric": "macro_f1"}) is None
    assert offer_macro_f1(content | {"by_name": {}}) is None


@pytest.mark.parametrize(
    ("rows", "more", "offered"),
    [
        (20, {}, True),
        (50, {}, False),
        (None, {}, False),  # of an older file
        (20, {"task": {"kind": "token_classification", "examples_used": 180}}, False),
        (40, {"task": {"kind": "classification", "examples_used": 460}}, False),  # one stage
        (20, {"plan": {"tuned": []}}, False),
        (20, {"solved": {"folds": 2}}, False),
    ],
)
def test_halves_are_offered_where_few_rows_judge(rows, more, offered):
    content = {
        "settings": {"validation_examples": rows},
        "task": {"kind": "classification", "examples_used": 180},
        "plan": {"tuned": [3]},
        "solved": None,
    }
    said = (
        "20 validation examples are few to go by; with --head-end solved all 200 judge, each half "
        "by a training on the other"
    )
    assert offer_halves(content | more) == (said if offered else None)


@pytest.mark.parametrize(
    ("interval", "metric", "said"),
    [
        (None, "accuracy", ""),
        ([0.51, 1.0], "accuracy", "95 % interval 0.510 to 1.000: too few to judge"),
        ([0.7, 0.95], "accuracy", "95 % interval 0.700 to 0.950"),
        ([0.1, 0.6], "pearson", "95 % interval 0.100 to 0.600"),  # which begins at −1
        ([-0.1, 0.6], "pearson", "95 % interval -0.100 to 0.600: too few to judge"),
    ],
)
def test_a_wide_interval_says_that_rows_are_too_few(interval, metric, said):
    assert describe_interval({"interval": interval, "metric": metric}) == said
