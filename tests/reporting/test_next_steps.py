"""What is suggested after a verb: one command that runs as it stands."""

from typing import Any

import pytest

from layerscout.reporting import (
    build_sections,
    describe_evaluation,
    describe_training,
    describe_tuning,
    draw_skips,
    list_uses,
    suggest_step,
    write_advice,
    write_command,
    write_next_command,
)
from scan_content import scan

SKIPS = [[0.5, 0.5, 0.5], [None, 0.5, 0.5], [None, None, 0.5]]
FAILED = {"metrics": {"accuracy": 0.4}}
RARE = {"metric": "macro_f1", "metrics": {"macro_f1": 0.4}}


def evaluated(curve: list[float] | None = None, skips: Any = None, **more: Any) -> dict[str, Any]:
    """The content of an evaluate.json."""
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


def before(**more: Any) -> dict[str, Any]:
    """What an evaluation knows of the tuning of its model."""
    known = {"model": "base", "plan": "(2, 3, 3)", "method": "full", "epochs": 3, "options": {}}
    return known | {"learning_rate": 3e-5, "settings": {}, "metric": "accuracy"} | more


def tuned(**more: Any) -> dict[str, Any]:
    """The content of a result.json: accuracy 0.6, which noise alone may set above 0.5."""
    curve = [{"epoch": 2, "value": 0.6, "loss": 0.6, "training_loss": 0.5}]
    ends = {name: {"epoch": 2, "value": 0.6} for name in ("best", "last")}
    run = {"learning_rate": 3e-5, "seed": 0, "curve": curve, "diverged": False, "stopped": None}
    kept = {"kept": 0, "keep": "best", **ends, "runs": [{**run, **ends}]}
    shape = {"name": "base", "blocks": 3, "family": "bert", "parameters": {"total": 9}}
    numbers = {"train": 1, "full_train": 2, "inference": 1, "full_inference": 2}
    return (
        evaluated(**kept, flops=numbers, memory={}, examples_per_second=None)
        | {"verb": "tune", "saved_as": "checkpoint", "method": "full", "model": shape}
        | {"metrics": {"accuracy": 0.6}, "interval": [0.45, 0.75]}
        | {"plan": {"notation": "(2, 3, 3)", "tuned": [2, 3], "head": 3}}
        | {"parameters": {"total": 9, "trainable": 1}}
        | {"settings": {"data": "r.csv", "validation": 0.1, "epochs": 10, "validation_examples": 9}}
        | more
    )


def settings(**more: Any) -> dict[str, Any]:
    return {"settings": tuned()["settings"] | more}


def suggest(content: dict[str, Any], folder: str = "out") -> str:
    """Return the command that is suggested; "" if none is."""
    step = suggest_step(content, folder)
    return "" if step is None else step[1]


USE = "layerscout predict out/model texts.csv"
OTHER_HEAD = {"name": "out-longer/model", "blocks": 3, "family": "bert"}
MORE_ROWS = {"best_epoch": 2, "epochs": 10}
MORE_ROWS |= {"settings": {"data": "my reviews.csv", "validation": 0.1}}
SOLVED = {"learning_rate": None, "epochs": 1, "settings": {"data": "r.csv"}}
EXCHANGED = {"confusion": [[0, 9], [9, 0]]}
UNCLEAR = {"curve": [0.5, 0.5, 0.5, 0.9], "interval": [0.45, 0.99]}


@pytest.mark.parametrize(
    ("content", "command"),
    [
        (evaluated(), USE),
        # A model that has learnt the task is used as it is, though it could be shorter.
        (evaluated([0.5, 0.6, 0.9, 0.9], SKIPS), USE),
        (evaluated([0.5, 0.6, 0.9, 0.9], saved_as="ours"), USE),
        # What has learnt nothing is tuned again.
        (
            evaluated(**FAILED),
            "layerscout tune out/model 'my reviews.csv' --epochs 10 -o out/model-longer",
        ),
        (
            evaluated(
                **FAILED,
                tuning=before(
                    method="lora",
                    options={"rank": 4, "edits": "reinit:2 + skip:1", "fresh_head": True},
                    settings={"data": "train.csv", "label": "stars"},
                ),
            ),
            "layerscout tune base train.csv --label stars --plan '(2, 3, 3)' --method lora "
            "--rank 4 --edit 'reinit:2 + skip:1' --fresh-head --epochs 6 "
            "--learning-rate 1e-05,3e-05,9e-05 -o out-longer",
        ),
        (evaluated(**FAILED, tuning=before(data_found=False)), ""),
        # Exchanged classes are no lack of training.
        (
            evaluated(**EXCHANGED),
            "layerscout tune out/model 'my reviews.csv' --fresh-head -o out/model-fresh",
        ),
        (
            evaluated(**EXCHANGED, tuning=before()),
            "layerscout tune base DATA --plan '(2, 3, 3)' --fresh-head "
            "--epochs 3 --learning-rate 3e-05 -o out-fresh",
        ),
        (evaluated(**EXCHANGED, tuning=before(options={"fresh_head": True})), ""),
        # What was trained for longer is not trained for even longer.
        (evaluated(**FAILED, model=OTHER_HEAD, tuning=before()), ""),
        # Validating on more rows needs the same data.
        (
            evaluated(**UNCLEAR, tuning=before(**MORE_ROWS)),
            "layerscout tune base 'my reviews.csv' --plan '(2, 3, 3)' --validation 0.3 "
            "--epochs 10 --learning-rate 3e-05 -o out-more-rows",
        ),
        (
            evaluated(**UNCLEAR, tuning=before(**MORE_ROWS), settings={"data": "november.csv"}),
            "",
        ),
        # A head that was solved has neither epochs nor a rate, and goes with its averaging block.
        (
            evaluated(**FAILED, tuning=before(**SOLVED, options={"examples": 60})),
            "layerscout tune base r.csv --examples 60 -o out-tuned",
        ),
        (evaluated(**EXCHANGED, tuning=before(**SOLVED)), ""),
        # What tuning blocks would bring was seen already.
        (evaluated(**FAILED, tuning=before(**SOLVED, kept_free=True)), ""),
        (evaluated([0.5, 0.6, 0.9, 0.9], tuning=before(**SOLVED)), USE),
    ],
)
def test_an_evaluation_suggests_a_command(content, command):
    assert suggest(content, "evaluate") == command
    if command:
        step = suggest_step(content, "evaluate")
        assert build_sections(content, "evaluate")[1][0].commands == [step]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (FAILED, "It has not learnt the task"),
        ({"confusion": [[1, 9], [9, 1]]}, "Its classes look exchanged"),
        # F1 of class 1 is above that of the majority where class 1 is all that is predicted.
        ({"confusion": [[0, 5], [0, 4]]}, "It predicts 'b' for everything"),
        ({"interval": [0.45, 0.99]}, "It is not clearly better than always giving the same answer"),
        # One class of data that has no other is no failure.
        ({"confusion": [[0, 0], [0, 4]]}, "With the tuned head unchanged"),
    ],
)
def test_what_has_learnt_nothing_is_said(more, words):
    lines = describe_evaluation(evaluated([0.5, 0.6, 0.9, 0.9], **more))
    assert len(lines) == 2 and lines[1].startswith(words)


@pytest.mark.parametrize(
    ("more", "folder", "command"),
    [
        # The best of 10 epochs was the second: 20 of them end the same way.
        (
            {},
            "out",
            "layerscout tune base r.csv --plan '(2, 3, 3)' --validation 0.3 --epochs 10 "
            "--learning-rate 3e-05 -o out-more-rows",
        ),
        # A third of the rows is set aside already, or they come from a file of their own.
        (settings(validation=0.3), "out", ""),
        (settings(validation="held.csv"), "out", ""),
        (settings(validation=None), "out", ""),
        # Where the best epoch came late, or nothing was learnt, it is not rows that are missing.
        *(
            (
                more,
                "out",
                "layerscout tune base r.csv --plan '(2, 3, 3)' --epochs 20 "
                "--learning-rate 1e-05,3e-05,9e-05 -o out-longer",
            )
            for more in ({"best": {"epoch": 7, "value": 0.6}}, FAILED)
        ),
        # A limit of time would leave as little of it again.
        (
            FAILED | {"given": {"plan": "top:2", "examples": 60, "time": 60}},
            "out",
            "layerscout tune base r.csv --plan '(2, 3, 3)' --examples 60 "
            "--epochs 20 --learning-rate 1e-05,3e-05,9e-05 -o out-longer",
        ),
        # Rows that were left out in halves are all that there are.
        (
            {"solved": {"judged": 60, "folds": 2}},
            "out",
            "layerscout tune base r.csv --plan '(2, 3, 3)' --head-end solved "
            "--epochs 20 --learning-rate 1e-05,3e-05,9e-05 -o out-longer",
        ),
        (FAILED, "out-longer", ""),
        # A test file is carried to another tuning.
        (
            FAILED | settings(validation="held.csv", test="test.csv"),
            "out",
            "layerscout tune base r.csv --validation held.csv --test test.csv --plan '(2, 3, 3)' "
            "--epochs 20 --learning-rate 1e-05,3e-05,9e-05 -o out-longer",
        ),
    ],
)
def test_a_tuning_suggests_a_command(more, folder, command):
    assert suggest(tuned(**more), folder) == command


@pytest.mark.parametrize(
    ("task", "arguments", "rows"),
    [
        ({"columns": {"text": "review"}}, "['some text']", "rows.csv"),
        ({"columns": {"text": "a", "text_pair": "b"}}, "['some text'], ['its second']", "rows.csv"),
        ({"kind": "multiple_choice"}, "['some text'], [['one end', 'another']]", "rows.csv"),
        ({"kind": "token_classification"}, "['some text']", "rows.conll"),
    ],
)
def test_a_model_can_be_used_and_tested(task, arguments, rows):
    sure = tuned(interval=[0.55, 0.75])
    for content in (evaluated(), sure):
        given = content | {"task": content["task"] | task}
        assert [command for _, command in list_uses(given, "out")] == [
            USE,
            f"import layerscout; print(layerscout.load('out/model').predict({arguments}))",
            f"layerscout evaluate out/model {rows}",
        ]
        assert list_uses(given | FAILED, "out") == []
    columns = settings(text="body", label="a,b c", label_separator="|", regression=True)
    use, _, test = (command for _, command in list_uses(sure | columns, "out"))
    assert use == f"{USE} --text body"
    options = "--text body --label 'a,b c' --label-separator '|' --regression"
    assert test == f"layerscout evaluate out/model rows.csv {options}"
    new = evaluated(tuning={"settings": {"data": "my older reviews.csv"}})
    assert not any("evaluate" in command for _, command in list_uses(new, "out"))


def test_a_page_shows_what_to_do_with_a_model_before_what_it_was_made_of():
    names = {"a": {"precision": 1.0, "recall": 1.0, "f1": 1.0, "support": 9}}
    content = evaluated([0.5, 0.6, 0.7, 0.9], by_name=names)
    titles = [section.title for section in build_sections(content)[1]]
    assert titles[:2] == ["Found", "Warnings"] and titles[2] == "By class"
    assert titles.index("Use the model") < titles.index("Truncated at every state")


def test_a_free_head_is_solved_again_as_it_was():
    """Options of the training that was not kept would train it, or be refused."""
    given = {"head_end": "solved", "loss": "contrastive", "batch_size": 8, "examples": 60}
    plan = {"notation": "head:3", "tuned": [], "head": 3}
    kept = {"solved": {"judged": 60, "folds": 5}, "free": {"kept": True}, "plan": plan}
    kept |= settings(classifier="mean-linear")
    result = tuned(**kept, given=given, runs=[{**tuned()["runs"][0], "learning_rate": None}])
    assert suggest(result) == ""
    assert suggest(evaluated(tuning=describe_tuning(result))) == USE


def test_more_rows_are_advised_where_more_epochs_cannot_help():
    early = "Its best epoch was 2 of 10, so training for longer will not help"
    assert build_sections(tuned())[1][0].paragraphs[1].startswith(early)
    assert len(build_sections(tuned(best={"epoch": 7, "value": 0.6}))[1][0].paragraphs) == 1
    content = evaluated(**UNCLEAR, tuning=before(**MORE_ROWS))
    assert "validate on more rows" in describe_evaluation(content)[2]


def test_a_metric_that_was_asked_for_counts_in_what_comes_next():
    given = evaluated()
    judged = given | {"metric": "macro_f1", "metrics": {"macro_f1": 0.9}}
    own = judged["task"] | {"metric": "accuracy"}
    again = write_command("evaluate", judged | {"task": own}, "--edit", "truncate")
    assert " --metric macro_f1 --edit truncate" in again
    assert "--metric" not in write_command("scan", judged | {"task": own}), "it has no such option"
    known = judged | {"task": own | {"metric": "macro_f1"}}
    assert "--metric" not in write_command("tune", known), "it is the task's own"
    # The tuning was given one, the evaluation of what came of it was not.
    tuning = before(options={"metric": "macro_f1"}, metric="macro_f1")
    assert " --metric macro_f1 --epochs 6" in suggest(given | FAILED | {"tuning": tuning})


def test_what_a_verb_has_no_option_for_is_not_in_its_command():
    assert "--test" not in write_command("evaluate", tuned(**settings(test="test.csv")))
    numbers = evaluated(settings={"data": "scores.csv", "regression": True})
    for verb in ("scan", "tune", "evaluate", "compare"):
        assert "--regression" in write_command(verb, numbers)


def test_near_values_do_not_span_all_colours():
    content = evaluated(None, [[0.49, 0.51, 0.5], [None, 0.5, 0.5], [None, None, 0.5]])
    low, high = draw_skips(content).to_dict()["layer"][0]["encoding"]["color"]["scale"]["domain"]
    assert high - low == pytest.approx(0.1)
    assert low < 0.49 < 0.51 < high


def advised(metric: str = "accuracy") -> dict[str, Any]:
    """The content of a scan.json with advice."""
    content = scan(advice={"plan": {"notation": "(2, 2, 2)"}}, settings={"data": "in/imb.csv"})
    return content | {"task": content["task"] | {"metric": metric}}


def suggest_tuning(content: dict[str, Any]) -> str | None:
    """Return the command that a scan and a plan suggest alike."""
    plan = {"method": "full", "untie": False, "plan": {"notation": "(2, 2, 2)"}}
    planned = {"task": content["task"], "epochs": None, **plan}
    command = write_advice(content)
    assert write_next_command(planned, content) == command
    return command


def test_a_folder_that_holds_a_result_is_not_suggested_again(tmp_path, monkeypatch):
    """tune refused the command that scan suggested for the second data set of a folder."""
    monkeypatch.chdir(tmp_path)
    content, command = advised(), "layerscout tune tiny in/imb.csv --plan '(2, 2, 2)'"
    (tmp_path / "tuned").mkdir()
    assert suggest_tuning(content) == command
    (tmp_path / "tuned" / "result.json").touch()
    assert suggest_tuning(content) == f"{command} -o tuned-imb"
    (tmp_path / "tuned-imb").mkdir()
    (tmp_path / "tuned-imb-2").mkdir()
    assert suggest_tuning(content) == f"{command} -o tuned-imb-3"
    assert write_command("tune", content, "--epochs", "3").endswith("-o tuned-imb-3"), "of a study"
    assert write_command("tune", content, "-o", "mine").endswith("-o mine")
    for data, output in (("-", "tuned-2"), ("", "tuned-2"), ("nyu-mll/glue", "tuned-glue")):
        assert write_command("tune", content | {"settings": {"data": data}}).endswith(output)


def test_rare_classes_are_balanced():
    """Where 8 % had the rare class, this and 10 epochs took macro-F1 from 0.56 to 0.65."""
    content = advised("macro_f1")
    command = "layerscout tune tiny in/imb.csv --class-weights balanced --plan '(2, 2, 2)'"
    assert suggest_tuning(content) == command, "from the first tuning on"
    content["task"]["kind"] = "token_classification"  # all tags but one are rare
    assert "balanced" not in str(suggest_tuning(content))
    failed = evaluated(**RARE, task=evaluated()["task"] | {"metric": "macro_f1"})
    again = failed | {"tuning": before(metric="macro_f1")}
    assert " --class-weights balanced --epochs 6" in suggest(again), "where they were not learnt"
    weighed = before(metric="macro_f1", options={"class_weights": [1.0, 4.0]})
    assert "balanced" not in suggest(failed | {"tuning": weighed}), "it was asked for"


@pytest.mark.parametrize(
    ("cut", "said"),
    [
        (2, "; blocks 1 to 2 ran once"),
        (1, "; block 1 ran once"),
        (0, "; no block lies below those that are tuned, so none ran once"),
        (None, "; no block lies below those that are tuned, so none ran once"),
    ],
)
def test_what_ran_once_is_said_and_that_nothing_did(cut: int | None, said: str):
    plan = {"notation": "", "reason": "", "tuned": [3], "head": 3}
    given = tuned(plan=plan, parameters={"trainable": 9}, trunk={"cut": cut, "kept": True})
    assert describe_training(given)[1] == f"9 parameters trained (100.0%){said}"


@pytest.mark.parametrize(
    ("reason", "line"),
    [
        ("head:3 was asked for", "plan head:3 was asked for"),
        ("head:best was asked for", "plan head:3: head:best was asked for"),
    ],
)
def test_a_plan_is_named_once(reason, line):
    plan = {"notation": "head:3", "reason": reason, "tuned": [], "head": 3}
    given = tuned(plan=plan, parameters={"trainable": 9}, trunk={"cut": 3, "kept": True})
    assert describe_training(given)[0] == line
