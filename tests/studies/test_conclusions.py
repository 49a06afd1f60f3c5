"""What a study is said to show, and the command that follows from it."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from scipy import stats

from layerscout.studies import make_recipe, tidy_records
from layerscout.studies.conclusions import StudyContent, conclude
from studying import record, tuned

SHARES = {"full": 1.0, "top:1": 0.43, "head:1": 0.04}
Values = Mapping[str, list[float]]


def made(records: list[tuple[dict[str, str], dict[str, Any]]], **recipe: Any) -> StudyContent:
    """Make a study of one grid from the values of its axes and the records."""
    verb = records[0][1]["verb"]
    axes = {"model": ["m"], "task": ["reviews"], "seed": [0]}
    axes |= {"plan": list(SHARES)} if verb == "tune" else {}
    grids = {"g": {"verb": verb, "axes": axes}}
    known = {str(n): {"key": str(n), **record} for n, (_, record) in enumerate(records)}
    content = {
        "cells": [
            {"grid": "g", "values": {"model": "m", "task": "reviews", **values}, "trial": str(n)}
            for n, (values, _) in enumerate(records)
        ]
    }
    wanted = make_recipe({"title": "t", "grids": grids, **recipe})
    return StudyContent(content, wanted, known, 0, tidy_records(content, known.get))


def of_plans(plans: Values, kept: Any = None, **more: Any) -> StudyContent:
    """Make a study of plans from the values by seed; `kept` are predictions by plan."""
    more = {"models": ["./encoder"], "task": {"data": "my reviews.csv", "name": "reviews"}} | more
    arguments = {"learning_rate": 3e-4, "epochs": 5, "metric": "accuracy"}
    arguments |= more.pop("arguments", {})
    return made(
        [
            (
                {"plan": plan, "seed": str(seed)},
                record(
                    "tune",
                    tuned(value, SHARES[plan], **(kept or {}).get(plan, {})),
                    arguments={"seed": seed} | arguments,
                    **more,
                ),
            )
            for plan, values in plans.items()
            for seed, value in enumerate(values)
        ]
    )


FULL = [0.80, 0.82, 0.81]


@pytest.mark.parametrize(
    ("plans", "words"),
    [
        (
            {"full": FULL, "top:1": [0.79, 0.83, 0.798], "head:1": [0.6, 0.61, 0.6]},
            [
                "Nothing clearly beats full; top:1 takes 43% of its training FLOPs for 0.4 "
                "points less (95 % interval −3.4 to +2.6, over 3 seeds), so which of the two is "
                "better is unclear."
            ],
        ),
        (
            {"full": FULL, "head:1": [0.7, 0.71, 0.7]},
            ["Nothing beats full; head:1 takes 4% of its training FLOPs for 10.7 points less"],
        ),
        (
            {"full": FULL, "top:1": [0.9, 0.93, 0.91], "head:1": [0.6, 0.61, 0.6]},
            [
                "top:1 beats full: it takes 43% of its training FLOPs for 10.3 points more",
                "It was chosen as the best of 2 plans",
                "The interval covers only the seeds",
            ],
        ),
        ({"full": [0.8], "top:1": [0.9]}, ["Nothing clearly beats full; top:1 takes 43%"]),
        # Without full, what costs most is the baseline.
        ({"head:1": [0.7], "top:1": [0.8]}, ["Nothing clearly beats top:1; head:1 takes 9%"]),
        (
            {"full": [0.5, 0.5], "top:1": [0.45, 0.5]},
            ["No plan has learnt the task: the best trial reaches 0.500, and always giving the"],
        ),
    ],
)
def test_plans_are_said_to_be_better_only_where_the_interval_leaves_out_none(plans, words):
    lines = conclude(of_plans(plans), "out").lines
    assert len(lines) == len(words)
    for line, begun in zip(lines, words, strict=True):
        assert line.startswith(begun)


def test_one_seed_has_no_interval_and_decides_nothing():
    (line,) = conclude(of_plans({"full": [0.8], "top:1": [0.9]}), "out").lines
    assert "10.0 points more (no interval: one seed), so which of the two is better" in line


def test_validation_examples_widen_the_interval_of_seeds():
    # Both seeds gain the same: alone they would show no variation at all.
    n, gained, lost = 100, 9, 3
    base, better = np.array([1] * 60 + [0] * 40), np.array([1] * 57 + [0] * 3 + [1] * 9 + [0] * 31)
    shared = {"labels": [1] * n, "kind": "classification", "label_names": ["a", "b"]}
    predicted = {"full": base, "top:1": better}
    kept = {plan: {**shared, "predictions": right.tolist()} for plan, right in predicted.items()}
    values = {plan: [float(right.mean())] * 2 for plan, right in predicted.items()}
    (line,) = conclude(of_plans(values, kept), "out").lines
    # Agresti and Min 2005, section 2.
    middle = (gained - lost) / (n + 2)
    error = np.sqrt((gained + lost + 1) - (gained - lost) ** 2 / (n + 2)) / (n + 2)
    low, high = (100 * (middle + sign * stats.norm.ppf(0.975) * error) for sign in (-1, 1))
    assert low < 0 < high
    assert f"interval −{-low:.1f} to +{high:.1f}, over 2 seeds and the validation examples" in line


def test_the_command_repeats_the_best_cell():
    """Options that are as usual are left out, and what cannot be repeated is said."""
    asked = {
        "plan": {"tuned": [3, 4], "head": 4, "notation": "(3, 4, 4)"},
        "method": "lora",
        "method_options": {"rank": 4, "lora_alpha": 16.0},
        "metric": "macro_f1",
        "batch_size": 16,
        "warmup": 0.06,
        "trunk_dropout": True,
        "edits": "skip:1",
        "examples": 500,
        "sample_seed": 7,
        "validation_examples": 300,
    }
    task = {"data": "my reviews.csv", "name": "reviews", "label": "stars", "regression": False}
    study = of_plans({"full": [0.8], "top:1": [0.9]}, arguments=asked, task=task)
    purpose, command = conclude(study, "out").step
    assert command == (
        "layerscout tune ./encoder 'my reviews.csv' --label stars --plan '(3, 4, 4)' "
        "--batch-size 16 --method lora --learning-rate 0.0003 --examples 500 --trunk-dropout "
        "--edit skip:1 --rank 4 --metric macro_f1"
    )
    assert purpose == (
        "Tune the best cell again, on another sample of training examples, judged on all "
        "validation examples:"
    )


def test_where_nothing_was_learnt_the_largest_plan_is_tuned_for_longer():
    step = conclude(of_plans({"head:1": [0.5], "full": [0.5]}), "out").step
    assert step[1].endswith("--plan full --learning-rate 0.0001,0.0003,0.0009 --epochs 10")


def test_a_known_task_is_read_from_where_the_study_read_it(tmp_path):
    study = of_plans({"full": [0.8], "top:1": [0.7]}, task="cola")
    assert " ./encoder nyu-mll/glue/cola --task cola --plan full" in conclude(study, "out").step[1]
    (tmp_path / "cola").mkdir()
    here = StudyContent(
        {**study.content, "data": str(tmp_path)}, study.recipe, study.records, 0, study.frame
    )
    assert f" {tmp_path / 'cola'} --task cola " in conclude(here, "out").step[1]


def test_a_study_that_tunes_nothing_says_what_it_measured():
    study = made(
        [({"seed": "0"}, record("scan", {"scores": {}, "best": {}}))],
        tables=[{"title": "Scores", "value": "best:ridge", "rows": "task", "columns": "measure"}],
    )
    found = conclude(study, "my out")
    assert found.lines == ['Scanned 1 model on 1 task (1 trial): see "Scores".']
    assert found.step is None, "the page is written, and there is nothing to tune"
    study.records.clear()
    assert conclude(study, "my out").step[1] == "layerscout report 'my out'"
