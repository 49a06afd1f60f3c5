"""Whose advice loses what, from made-up grids and records."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))

import board
import board_advice as advice
from board_advice import Grid

A, B = {"low": [0, 0], "high": [2, 2]}, {"low": [2, 2], "high": [0, 0]}


def grid(model, task, values, advised=A):
    return Grid(model, task, np.array(values), advised)


def test_best_is_chosen_on_rows_that_do_not_judge_it():
    # The middle one is best on the first half and worst on the other, where the last one is best.
    one = grid("m", "t", [[0.5, 0.9, 0.6], [0.7, 0.2, 0.8]])
    # Chosen on the first half, 0.2 is judged; chosen on the other, 0.6 is.
    assert one.lose("high") == pytest.approx(100 * ((0.2 - 0.8) + (0.6 - 0.6)) / 2)
    assert one.lose("low") == pytest.approx(100 * ((0.2 - 0.7) + (0.6 - 0.5)) / 2)
    assert one.lose(advice.ANY) == pytest.approx(100 * ((0.2 - 1.7 / 3) + (0.6 - 2 / 3)) / 2)


def test_plan_is_the_nearest_and_of_those_the_widest():
    plans = [(4, 2), (6, 4), (6, 2), (4, 0)]
    assert [advice.follow(plans, state) for state in (1, 4, 5, 6)] == [0, 0, 1, 1]
    # Without a state the adviser is at the top, and two thirds of six blocks are four.
    led = advice.advise(plans, {"probe": 3, "cca": None}, 6)
    assert (led["probe"], led["cca"], led[advice.THIRDS]) == ([0, 0], [1, 1], [0, 0])


def test_choice_rests_on_other_models_and_other_tasks():
    good = [[0.1, 0.1, 0.9]] * 2  # following "high" by A, "low" by B
    here = grid("m", "t", good, B)
    known = [grid("m", "u", good, B), grid("n", "t", good, B), grid("n", "u", good, A)]
    assert advice.choose_elsewhere([here, *known], here) == "high"
    assert advice.find_regrets([here, known[1]]).keys() == {"low", "high", advice.ANY}
    lost, cells = advice.find_regrets([here, known[2]])[advice.ELSEWHERE]
    assert (lost, cells) == (pytest.approx([80, 80]), 2)  # each is misled by the other


def test_a_scan_counts_towards_the_budget(monkeypatch):
    plans = [[6, 2, 0.45, [0.9] * 4], [4, 2, 0.3, [0.5] * 4]]
    line = {"model": "m", "task": "t", "blocks": 6, "scan": 0.1, "plans": plans}
    line |= {"states": {"probe": [6, None]}}
    monkeypatch.setattr(advice, "read_records", lambda path: [line])
    [found] = advice.read_random()
    assert found.lose("probe") == pytest.approx(40) and found.lose(advice.TOP) == 0


def test_plans_of_a_cell_are_set_against_each_other(monkeypatch):
    truth, cell = "AB" * 100, [board.MINILM, "cr", board.SIZES[0], 0]
    wrong = {"contrastive (3,6,6)": 20, "contrastive (3,4,4)": 60, "cross-entropy (3,6,6)": 0}
    records = [
        dict(zip(("model", "task", "size", "draw"), cell, strict=True))
        | {"contender": name, "truth": truth, "predictions": "?" * many + truth[many:]}
        for name, many in {**wrong, board.FREE: 100, board.AUTO: 30}.items()
    ]
    scan = {"cell": cell, "states": {"probe": 3}, "values": [[0.5] * 6] * 2}
    monkeypatch.setattr(
        advice, "read_records", lambda path: [scan] if path == advice.SCANS else records
    )
    [found] = advice.read_trained("contrastive")
    assert (found.lose("probe"), found.lose(advice.TOP)) == (pytest.approx(20), 0)
    assert [*advice.read_trained("cross-entropy")] == []  # a single plan
    [rules] = advice.read_rules()
    assert rules.lose(advice.RULE) == pytest.approx(10)
    assert (rules.lose(board.AUTO), rules.lose(board.FREE)) == pytest.approx((15, 50))
