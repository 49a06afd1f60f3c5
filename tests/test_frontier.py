"""The verdicts of the frontier's page, from made-up records."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))

from frontier import decode, encode, read_part
from frontier_page import AHEAD, BEHIND, LEVEL, NONE, gather, judge

TRUTH = "AB" * 200


def record(contender, seconds, wrong, peer=None, task="sst2"):
    flipped = "".join("AB"[c == "A"] for c in TRUTH[:wrong])
    return {
        "model": "MiniLM-L6",
        "task": task,
        "rows": 64,
        "contender": contender,
        "peer": peer,
        "seconds": seconds,
        "predictions": flipped + TRUTH[wrong:],
        "truth": TRUTH,
    }


@pytest.mark.parametrize("task", ["sst2", "cola"])
@pytest.mark.parametrize(
    ("ours", "best", "longest"),
    [
        ([("short", 9, 10)], AHEAD, AHEAD),
        ([("short", 9, 99)], LEVEL, LEVEL),
        ([("short", 9, 190)], BEHIND, BEHIND),
        ([("short", 9, 10), ("long", 11, 190)], AHEAD, BEHIND),  # a tenth more is as long
        ([("short", 9, 190), ("too long", 11.1, 10)], BEHIND, BEHIND),
        ([("too long", 20, 10)], NONE, NONE),
    ],
)
def test_a_peer_is_judged_beside_what_takes_no_longer(task, ours, best, longest):
    records = [record(*one, task=task) for one in ours]
    groups = gather([*records, record("LoRA, 3 epochs", 10, 100, "lora", task)])
    for choice, expected in (("best", best), ("longest", longest)):
        (found,) = judge(groups, choice)
        assert found.verdict == expected


def test_points_have_the_metric_of_their_task():
    (points,) = gather([record("short", 9, 100)]).values()
    assert points[0].metric == pytest.approx(75)
    low, high = points[0].interval
    assert 70 < low < 75 < high < 80  # 75 ± 1.96 · 2.165
    (points,) = gather([record("short", 9, 100, task="cola")]).values()
    assert points[0].metric == pytest.approx(50)  # 2 · 0.75 − 1 where both classes are as frequent


def test_classes_are_written_as_letters():
    classes = list(range(28))
    assert decode(encode(classes)).tolist() == classes


def test_a_part_is_one_of_several():
    assert read_part("2/3") == (2, 3)
    for text in ("0/2", "3/2", "2", "x"):
        with pytest.raises(ValueError):
            read_part(text)
