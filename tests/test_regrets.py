"""Regrets of advisers on made-up grids whose qualities are known."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))

import regrets as module
from regrets import RULES, tabulate_regrets


@pytest.fixture(autouse=True)
def few_draws(monkeypatch):
    monkeypatch.setattr(module, "DRAWS", 40)
    monkeypatch.setattr(module, "MANY_HALVINGS", 30)


def cells(plans, best, examples=4000, metric="accuracy", seeds=(0, 1)):
    """Make what a study of one pair holds: plans by notation as (head, tuned, share, accuracy)."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, examples)
    values = {"model": "m", "task": "t"}
    tuned = []
    for notation, (head, blocks, share, right) in plans.items():
        for seed in seeds:
            wrong = rng.random(examples) >= right
            result = {
                "plan": {"head": head, "tuned": list(range(blocks)), "notation": notation},
                "flops": {"train": share, "full_train": 1.0, "full_inference": 1e-5},
                "predictions": np.where(wrong, 1 - labels, labels).tolist(),
                "labels": labels.tolist(),
                "blocks": 12,
                "metric": metric,
                "examples": 1000,
            }
            tuned.append(({"values": values | {"seed": seed}}, {"result": result}))
    scans = [({"values": values | {"seed": seed}}, {"result": {"best": best}}) for seed in seeds]
    return tuned, scans


def regrets(*given, **options):
    table = tabulate_regrets(*cells(*given, **options))
    return {row[0]: row[1:] for row in table.rows}


def on_task(cells, task):
    """Return cells and their records as if they were of another task."""
    return [({"values": {**cell["values"], "task": task}}, record) for cell, record in cells]


def read_points(table):
    """Return the points that following each adviser loses at half of full fine-tuning."""
    return {row[0]: float(row[3].split(" ")[0]) for row in table.rows}


PLANS = {
    "(5, 7, 7)": (7, 3, 0.3, 0.90),
    "(7, 7, 7)": (7, 1, 0.2, 0.80),
    "(10, 12, 12)": (12, 3, 0.4, 0.70),
    "(12, 12, 12)": (12, 1, 0.3, 0.65),
    "full": (12, 12, 1.0, 0.95),
}


def test_a_regret_is_the_distance_from_the_best_plan_that_fits():
    table = tabulate_regrets(*cells(PLANS, {"cca": 7, "nc1": 12, "logme": None, "fisher": 3}))
    half = read_points(table)
    assert list(half)[:3] == ["canonical correlation", "neural collapse NC1", "LogME"]
    assert half["canonical correlation"] == pytest.approx(0, abs=1.5)
    assert half["neural collapse NC1"] == pytest.approx(20, abs=2)
    # Who names no state gets the top; a score of blocks names none of them.
    assert half["LogME"] == pytest.approx(half["the top"], abs=1.5)
    assert half["any plan"] == pytest.approx(90 - (90 + 80 + 70 + 65) / 4, abs=2)
    assert not any("Fisher" in name for name in half) and {*RULES} <= half.keys()


def test_the_scan_counts_towards_the_budget():
    # A hundredth of full tuning: 1,000 examples at 1e-5 each. (7, 7, 7) costs 0.2, and so all.
    found = regrets({**PLANS, "head:7": (7, 0, 0.245, 0.99)}, {"cca": 7})
    cheap = float(found["canonical correlation"][1].split(" ")[0])
    assert cheap == pytest.approx(99 - 80, abs=2)
    assert found["canonical correlation"][0] == "–" == found["the top"][0]


def test_luck_is_not_rewarded():
    """Plans that are as good as each other: the best of twenty is no better than any of them."""
    same = {f"plan {i}": (1 + i % 12, 1, 0.2, 0.7) for i in range(20)}
    found = regrets(same, {"cca": 5}, examples=400)
    regret, interval = found["canonical correlation"][2].split(" ", 1)
    low, high = (float(end) for end in interval.strip("()").split(" to "))
    assert abs(float(regret)) < 2.5 and low < 0 < high


def test_one_seed_is_no_pair():
    assert tabulate_regrets(*cells(PLANS, {"cca": 7}, seeds=(0,))).rows == []
    assert tabulate_regrets([], []).rows == []
    # A study on its way may have two seeds of each plan, and only one of both.
    tuned, scans = cells(PLANS, {"cca": 7}, seeds=(0, 1, 2))
    ended = [one for i, one in enumerate(tuned) if i % 3 != (2 if i < 3 else 0)]
    assert tabulate_regrets(ended, scans).rows == []


def test_scans_of_a_pair_are_put_together():
    tuned, scans = cells(PLANS, {"cca": 7})
    more = [(cell, {"result": {"best": {"loes": 12}}}) for cell, _ in scans]
    lost = read_points(tabulate_regrets(tuned, [*scans, *more]))
    assert lost["LOES"] == pytest.approx(20, abs=2)
    assert lost["canonical correlation"] == pytest.approx(0, abs=1.5)


def test_of_several_poolings_the_usual_one_counts():
    tuned, scans = cells(PLANS, {"cca": 7})
    others = [
        (cell, {"result": {"best": {"cca": 12}, **made}})
        for cell, _ in scans
        for made in (
            {"model": {"family": "llama"}, "settings": {"pooling": "mean"}},
            {"model": {"family": "bert"}, "settings": {"pooling": "cls"}},
        )
    ]
    expected = tabulate_regrets(tuned, scans).rows
    assert tabulate_regrets(tuned, scans + others).rows == expected


def test_a_study_on_its_way_is_left_out_until_most_of_its_plans_are_there():
    whole = {f"plan {i}": (1 + i, 1, 0.2, 0.6 + i / 50) for i in range(9)}
    tuned, scans = cells(whole, {"cca": 5}, examples=200)
    for kept, pairs in ((5, 1), (6, 2)):
        plans = tuned + on_task(tuned[: 2 * kept], "other")
        table = tabulate_regrets(plans, scans + on_task(scans, "other"))
        assert {row[-1] for row in table.rows} == {str(pairs)}


def tabulate_two_tasks(best, **options):
    """Return the rows by adviser where the same plans on a second task have another best state."""
    tuned, scans = cells(PLANS, {"cca": 7}, **options)
    others = [(cell, {"result": {"best": best}}) for cell, _ in on_task(scans, "u")]
    table = tabulate_regrets(tuned + on_task(tuned, "u"), scans + others)
    return {row[0]: row for row in table.rows}


def test_an_interval_holds_the_chance_of_tasks():
    """It loses 20 points on one of two tasks, none on the other: any mean between is possible."""
    rows = tabulate_two_tasks({"cca": 12}, examples=1000)
    regret, interval = rows["canonical correlation"][3].split(" ", 1)
    low, high = (float(end) for end in interval.strip("()").split(" to "))
    assert float(regret) == pytest.approx(10, abs=2)
    assert low == pytest.approx(0, abs=3) and high == pytest.approx(20, abs=3)


def test_who_was_not_scanned_in_a_pair_has_no_say_there():
    rows = tabulate_two_tasks({"nc1": 12})
    own = rows["canonical correlation"]
    assert own[-1] == "1" and rows["the top"][-1] == "2"
    assert float(own[3].split(" ")[0]) == pytest.approx(0, abs=1.5)
