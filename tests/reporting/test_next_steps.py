"""What is suggested after a verb: one command that runs as it stands."""

from typing import Any

import pytest

from layerscout.reporting import (
    build_sections,
    describe_evaluation,
    draw_skips,
    suggest_step,
    write_advice,
    write_command,
    write_next_command,
)
from layerscout.reporting.figures import LEAST_SPAN
from layerscout.reporting.next_steps import choose_output
from scan_content import scan

SKIPS = [[0.5, 0.5, 0.5], [None, 0.5, 0.5], [None, None, 0.5]]


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
        (
            evaluated(None),
            "layerscout evaluate out/model 'my reviews.csv' --edit truncate --edit skip",
        ),
        (
            evaluated([0.5, 0.6, 0.9, 0.9]),
            "layerscout truncate out/model --head 2 -o out/model-head-2",
        ),
        (
            evaluated([0.5, 0.6, 0.7, 0.9]),
            "layerscout evaluate out/model 'my reviews.csv' --edit truncate --edit skip",
        ),
        # Skips alone do not show how many blocks can go.
        (
            evaluated(None, SKIPS),
            "layerscout evaluate out/model 'my reviews.csv' --edit truncate --edit skip",
        ),
        (
            evaluated([0.5, 0.6, 0.9, 0.9], SKIPS),
            "layerscout truncate out/model --head 2 -o out/model-head-2",
        ),
    ],
)
def test_an_evaluation_suggests_a_command(content, command):
    step = suggest_step(content, "evaluate")
    assert step is not None
    assert step[1] == command
    assert build_sections(content, "evaluate")[1][0].commands == [step]


def test_nothing_follows_where_all_is_known():
    assert suggest_step(evaluated([0.5, 0.6, 0.9, 0.9], saved_as="ours"), "evaluate") is None
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
    gone = {**content, "tuning": {**before, "data_found": False}}
    assert suggest_step(gone, "evaluate") is None


def test_a_metric_that_was_asked_for_counts_in_what_comes_next():
    given = evaluated(None)
    judged = given | {"metric": "macro_f1", "metrics": {"macro_f1": 0.9}}
    own = judged["task"] | {"metric": "accuracy"}
    step = suggest_step(judged | {"task": own}, "evaluate")
    assert step is not None and " --metric macro_f1 --edit truncate" in step[1]
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


def tuned(**more: Any) -> dict[str, Any]:
    """The content of a result.json: macro-F1 0.6, which noise alone may set above 0.5."""
    curve = [{"epoch": 2, "value": 0.6, "loss": 0.6, "training_loss": 0.5}]
    ends = {name: {"epoch": 2, "value": 0.6} for name in ("best", "last")}
    run = {"learning_rate": 3e-5, "seed": 0, "curve": curve, "diverged": False, "stopped": None}
    kept = {"kept": 0, "keep": "best", **ends, "runs": [{**run, **ends}]}
    shape = {"name": "base", "blocks": 3, "family": "bert", "parameters": {"total": 9}}
    numbers = {"train": 1, "full_train": 2, "inference": 1, "full_inference": 2}
    return (
        evaluated(None, **kept, flops=numbers, memory={}, examples_per_second=None)
        | {"verb": "tune", "saved_as": "checkpoint", "method": "full", "model": shape}
        | {"metrics": {"accuracy": 0.6}, "interval": [0.45, 0.75]}
        | {"plan": {"notation": "(2, 3, 3)", "tuned": [2, 3], "head": 3}}
        | {"parameters": {"total": 9, "trainable": 1}}
        | {"settings": {"data": "r.csv", "validation": 0.1, "epochs": 10, "validation_examples": 9}}
        | more
    )


def test_more_rows_are_advised_where_more_epochs_cannot_help():
    """The best of 10 epochs was the second: the 20 that were suggested before end the same way."""
    content, early = tuned(), "Its best epoch was 2 of 10, so training for longer will not help"
    assert suggest_step(content, "out") == (
        "Tune it again, with more rows to validate on:",
        "layerscout tune base r.csv --plan '(2, 3, 3)' --validation 0.3 --epochs 10 "
        "--learning-rate 3e-05 -o out-more-rows",
    )
    assert build_sections(content)[1][0].paragraphs[1].startswith(early)
    # A third of the rows is set aside already, or they come from a file of their own.
    for given in (0.3, "held.csv", None):
        again = tuned(settings=content["settings"] | {"validation": given})
        assert suggest_step(again, "out") is None
    late = {"best": {"epoch": 7, "value": 0.6}}
    step = suggest_step(tuned(**late), "out")
    assert step is not None and "--epochs 20" in step[1] and step[1].endswith("-o out-longer")
    assert len(build_sections(tuned(**late))[1][0].paragraphs) == 1
    # Where nothing was learnt, it is not rows that are missing.
    step = suggest_step(tuned(metrics={"accuracy": 0.4}), "out")
    assert step is not None and step[1].endswith("-o out-longer")


def test_more_rows_are_advised_after_an_evaluation_of_the_same_data():
    before = {"model": "base", "plan": "(2, 3, 3)", "method": "full", "epochs": 10, "best_epoch": 2}
    before |= {"learning_rate": 3e-5, "options": {}, "metric": "accuracy"}
    before |= {"settings": {"data": "my reviews.csv", "validation": 0.1}}
    content = evaluated([0.5, 0.5, 0.5, 0.9], interval=[0.45, 0.99], tuning=before)
    assert "validate on more rows" in describe_evaluation(content)[2]
    step = suggest_step(content, "evaluate")
    assert step is not None and " --validation 0.3 " in step[1]
    other = content | {"settings": {"data": "november.csv"}}
    assert suggest_step(other, "evaluate") is None


def test_what_was_trained_for_longer_is_not_trained_for_even_longer():
    failed = {"metrics": {"accuracy": 0.4}}
    assert suggest_step(tuned(**failed), "out-longer") is None
    model = {"name": "out-longer/model", "blocks": 3, "family": "bert"}
    before = {"model": "base", "plan": "(2, 3, 3)", "method": "full", "epochs": 10}
    before |= {"learning_rate": 3e-5, "options": {}, "metric": "accuracy", "settings": {}}
    content = evaluated(None, **failed, model=model, tuning=before)
    assert suggest_step(content, "evaluate") is None


def test_a_test_file_is_carried_to_another_tuning_only():
    settings = {"data": "r.csv", "test": "test.csv", "validation": "held.csv", "epochs": 3}
    step = suggest_step(tuned(metrics={"accuracy": 0.4}, settings=settings), "out")
    assert step is not None and " --validation held.csv --test test.csv " in step[1]
    assert "--test" not in write_command("evaluate", tuned(settings=settings))


def advised(metric: str = "accuracy") -> dict[str, Any]:
    """The content of a scan.json with advice."""
    content = scan(advice={"plan": {"notation": "(2, 2, 2)"}}, settings={"data": "in/imb.csv"})
    return content | {"task": content["task"] | {"metric": metric}}


def planned(content: dict[str, Any]) -> dict[str, Any]:
    work = {"examples": 60_000, "epochs": 5}
    given = {"method": "full", "untie": False, "plan": {"notation": "(2, 2, 2)"}}
    return {"task": content["task"], "work": work, **given}


def test_a_folder_that_holds_a_result_is_not_suggested_again(tmp_path, monkeypatch):
    """tune refused the command that scan suggested for the second data set of a folder."""
    monkeypatch.chdir(tmp_path)
    content, command = advised(), "layerscout tune tiny in/imb.csv --plan '(2, 2, 2)'"

    def suggest() -> set[str | None]:
        return {write_advice(content), write_next_command(planned(content), content)}

    (tmp_path / "tuned").mkdir()
    assert suggest() == {command}
    (tmp_path / "tuned" / "result.json").touch()
    assert suggest() == {f"{command} -o tuned-imb"}
    (tmp_path / "tuned-imb").mkdir()
    (tmp_path / "tuned-imb-2").mkdir()
    assert suggest() == {f"{command} -o tuned-imb-3"}
    assert write_command("tune", content, "--epochs", "3").endswith("-o tuned-imb-3"), "of a study"
    assert write_command("tune", content, "-o", "mine").endswith("-o mine")
    assert choose_output("-") == choose_output("") == ["-o", "tuned-2"]
    assert choose_output("nyu-mll/glue") == ["-o", "tuned-glue"]


def test_rare_classes_are_balanced_from_the_first_tuning_on():
    content = advised("macro_f1")
    command = "layerscout tune tiny in/imb.csv --class-weights balanced --plan '(2, 2, 2)'"
    assert write_advice(content) == command
    assert write_next_command(planned(content), content) == command
    content["task"]["kind"] = "token_classification"  # all tags but one are rare
    assert "balanced" not in str(write_advice(content))
