"""What is suggested after a verb: one command that runs as it stands."""

from typing import Any

import pytest

from layerscout.pages.commands import write_command
from layerscout.pages.evaluation import describe_evaluation
from layerscout.pages.heat_maps import LEAST_SPAN, draw_skips
from layerscout.pages.html import build_sections
from layerscout.pages.next_steps import suggest_step


def evaluated(curve: list[float] | None, skips: Any = None, **more: Any) -> dict[str, Any]:
    return {
        "verb": "evaluate",
        "model": {"name": "out/model", "blocks": 3, "family": "bert"},
        "original": None,
        "task": {"kind": "classification", "labels": ["a", "b"], "name": "x", "examples_used": 9},
        "metric": "accuracy",
        "metrics": {"accuracy": 0.9},
        "majority": 0.5,
        "truncation": {} if curve is None else {"untuned": curve},
        "skips": skips,
        "edits": [],
        "settings": {"data": "my reviews.csv"},
        "warnings": [],
        "seconds": {},
        "layerscout": "0",
        **more,
    }


@pytest.mark.parametrize(
    ("content", "command"),
    [
        (evaluated(None), "layerscout evaluate out/model 'my reviews.csv' --edit truncate"),
        (
            evaluated([0.5, 0.6, 0.9, 0.9]),
            "layerscout truncate out/model --head 2 -o out/model-head-2",
        ),
        (
            evaluated([0.5, 0.6, 0.7, 0.9]),
            "layerscout evaluate out/model 'my reviews.csv' --edit skip",
        ),
    ],
)
def test_an_evaluation_suggests_a_command(content, command):
    step = suggest_step(content, "evaluate")
    assert step is not None
    assert step[1] == command
    assert build_sections(content, "evaluate")[1][0].commands == [step]


def test_nothing_follows_where_all_is_known():
    assert suggest_step(evaluated([0.5, 0.6, 0.7, 0.9], [[0.1]]), "evaluate") is None


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"metrics": {"accuracy": 0.4}}, "It has not learnt the task"),
        # F1 of class 1 is above that of the majority where class 1 is all that is predicted.
        ({"confusion": [[0, 5], [0, 4]]}, "It predicts 'b' for everything"),
        ({"interval": [0.45, 0.99]}, "It is not clearly better than always giving the same answer"),
    ],
)
def test_what_has_learnt_nothing_is_tuned_again(more, words):
    content = evaluated([0.5, 0.5, 0.5, 0.9], **more)
    line = describe_evaluation(content)
    assert len(line) == 2 and line[1].startswith(words)
    step = suggest_step(content, "evaluate")
    assert step is not None
    assert step[1] == ("layerscout tune out/model 'my reviews.csv' --epochs 10 -o out/model-longer")
    before = {"model": "base", "plan": "(2, 3, 3)", "method": "lora", "epochs": 3}
    before |= {"learning_rate": 3e-5, "settings": {"data": "train.csv", "label": "stars"}}
    before |= {"metric": "accuracy"}
    before |= {"options": {"rank": 4, "edits": "reinit:2 + skip:1", "fresh_head": True}}
    step = suggest_step({**content, "tuning": before}, "evaluate")
    assert step is not None
    assert step[1] == (
        "layerscout tune base train.csv --label stars --plan '(2, 3, 3)' --method lora --rank 4 "
        "--edit 'reinit:2 + skip:1' --fresh-head --epochs 6 "
        "--learning-rate 1e-05,3e-05,9e-05 -o out-longer"
    )


def test_a_metric_that_was_asked_for_counts_in_what_comes_next():
    given = evaluated(None)
    judged = given | {"metric": "macro_f1", "metrics": {"macro_f1": 0.9}}
    own = judged["task"] | {"metric": "accuracy"}
    step = suggest_step(judged | {"task": own}, "evaluate")
    assert step is not None and step[1].endswith("--metric macro_f1 --edit truncate")
    assert "--metric" not in write_command("scan", judged | {"task": own}), "it has no such option"
    known = judged | {"task": own | {"metric": "macro_f1"}}
    assert "--metric" not in write_command("tune", known), "it is the task's own"
    # The tuning was given one, the evaluation of what came of it was not.
    before = {"model": "base", "plan": "(2, 3, 3)", "method": "full", "epochs": 3}
    before |= {"learning_rate": 3e-5, "settings": {}, "options": {"metric": "macro_f1"}}
    before |= {"metric": "macro_f1"}
    failed = given | {"metrics": {"accuracy": 0.4}, "tuning": before}
    step = suggest_step(failed, "evaluate")
    assert step is not None and " --metric macro_f1 --epochs 6" in step[1]


def test_rare_classes_are_balanced_where_they_were_judged_and_not_learnt():
    """Where 8 % had the rare class, this and 10 epochs took macro-F1 from 0.56 to 0.65."""
    before = {"model": "base", "plan": "(2, 3, 3)", "method": "full", "epochs": 3}
    before |= {"learning_rate": 3e-5, "settings": {}, "options": {}, "metric": "macro_f1"}
    task = evaluated(None)["task"] | {"metric": "macro_f1"}
    failed = evaluated(None, metric="macro_f1", metrics={"macro_f1": 0.4}, task=task)

    def write_again(**options: Any) -> str:
        step = suggest_step(failed | {"tuning": before | {"options": options}}, "evaluate")
        assert step is not None
        return step[1]

    assert " --class-weights balanced --epochs 6" in write_again()
    assert "balanced" not in write_again(class_weights=[1.0, 4.0]), "it was asked for"


def test_one_class_of_data_that_has_no_other_is_no_failure():
    content = evaluated([0.5, 0.6, 0.9, 0.9], confusion=[[0, 0], [0, 4]])
    assert describe_evaluation(content)[1].startswith("With the tuned head unchanged")


@pytest.mark.parametrize("verb", ["scan", "tune", "evaluate", "compare"])
def test_numbers_stay_numbers_in_the_next_command(verb):
    content = evaluated(None, settings={"data": "scores.csv", "regression": True})
    assert "--regression" in write_command(verb, content)


def test_near_values_do_not_span_all_colours():
    content = evaluated(None, [[0.49, 0.51, 0.5], [None, 0.5, 0.5], [None, None, 0.5]])
    low, high = draw_skips(content).to_dict()["layer"][0]["encoding"]["color"]["scale"]["domain"]
    assert high - low == pytest.approx(LEAST_SPAN)
    assert low < 0.49 < 0.51 < high
