"""What a study is said to show."""

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
    lines = conclude(of_plans(plans))
    assert len(lines) == len(words)
    for line, begun in zip(lines, words, strict=True):
        assert line.startswith(begun)


def test_one_seed_has_no_interval_and_decides_nothing():
    (line,) = conclude(of_plans({"full": [0.8], "top:1": [0.9]}))
    assert "10.0 points more (no interval: one seed), so which of the two is better" in line


def test_validation_examples_widen_the_interval_of_seeds():
    # Both seeds gain the same: alone they would show no variation at all.
    n, gained, lost = 100, 9, 3
    base, better = np.array([1] * 60 + [0] * 40), np.array([1] * 57 + [0] * 3 + [1] * 9 + [0] * 31)
    shared = {"labels": [1] * n, "kind": "classification", "label_names": ["a", "b"]}
    predicted = {"full": base, "top:1": better}
    kept = {plan: {**shared, "predictions": right.tolist()} for plan, right in predicted.items()}
    values = {plan: [float(right.mean())] * 2 for plan, right in predicted.items()}
    (line,) = conclude(of_plans(values, kept))
    # Agresti and Min 2005, section 2.
    middle = (gained - lost) / (n + 2)
    error = np.sqrt((gained + lost + 1) - (gained - lost) ** 2 / (n + 2)) / (n + 2)
    low, high = (100 * (middle + sign * stats.norm.ppf(0.975) * error) for sign in (-1, 1))
    assert low < 0 < high
    assert f"interval −{-low:.1f} to +{high:.1f}, over 2 seeds and the validation examples" in line


def test_a_study_that_tunes_nothing_says_what_it_measured():
    study = made(
        [({"seed": "0"}, record("scan", {"scores": {}, "best": {}}))],
        tables=[{"title": "Scores", "value": "best:ridge", "rows": "task", "columns": "measure"}],
    )
    assert conclude(study) == ['Scanned 1 model on 1 task (1 trial): see "Scores".']
