"""The advice of a scan: which state a head should read, why, and the plan that follows."""

from dataclasses import replace

import pytest

from layerscout.data import Task
from layerscout.scanning import Scan, name_head, scan
from layerscout.scores import DEFAULT, Score
from telling import telling_task

VALUES = (0.5, 0.6, 0.91, 0.92, 0.7)
APART = (True, True, False, False, True)
GAPS = [[0.41, 0.04], [0.31, 0.04], [0.0, 0.0], [-0.01, 0.03], [0.21, 0.05]]


def read(values=VALUES, apart=APART, **details):
    """What heads on five states read, of which states 2 and 3 are not told apart."""
    low, high = ([v and v + shift for v in values] for shift in (-0.05, 0.05))
    details = {
        "separable_from_best": list(apart),
        "named": 3,
        "behind_named": GAPS,
        "majority": 0.5,
        **details,
    }
    return Score("states", "higher", tuple(values), tuple(low), tuple(high), details)


@pytest.mark.parametrize(
    ("score", "state", "because"),
    [
        (
            read(),
            3,
            "state 3: a linear head there scores 0.92, against 0.70 at the top (difference 0.21 ± "
            "0.05)",
        ),
        (
            read((0.5, 0.6, 0.93, 0.92, 0.7)),
            3,
            "state 3: a linear head there scores 0.92, against 0.70 at the top (difference 0.21 ± "
            "0.05); state 2 has the highest value, 0.93, but the two are tied within noise",
        ),
        (
            read((0.5, 0.6, 0.97, 0.92, 0.7), apart=(True, True, False, True, True)),
            3,
            "state 3: a linear head there scores 0.92, against 0.70 at the top (difference 0.21 ± "
            "0.05); state 2 is the best with 0.97, but so far down few blocks are left to tune",
        ),
        (
            read(apart=[None, False, False, False, False]),
            3,
            "no state is clearly best by held-out quality of a head (states 1–4 are tied within "
            "noise): state 3 is at two thirds of the depth",
        ),
        (
            read(majority=0.88),
            3,
            "no head is shown to do better than always giving the same answer "
            "(0.88): state 3 is at two thirds of the depth",
        ),
        (
            Score("states", "higher", (None,) * 5),
            3,
            "held-out quality of a head names no best state: state 3 is at two thirds of the depth",
        ),
        (
            read((0.5, 0.6, 0.61, None, None), apart=(None, False, False, None, None)),
            2,
            "no state is clearly best by held-out quality of a head (states 1, 2 are tied within "
            "noise): state 2 is the highest one with a value up to two thirds of the depth",
        ),
        (
            read((0.5, 0.6, 0.61, None, None), majority=0.88),
            2,
            "no head is shown to do better than always giving the same answer (0.88): "
            "state 2 is the highest one with a value",
        ),
        (
            read((0.5, 0.6, 0.95, 0.92, None)),
            3,
            "state 3: a linear head there scores 0.92; state 2 has",
        ),
    ],
)
def test_the_state_and_the_reason(score, state, because):
    named = name_head(DEFAULT, score, 4)
    assert named.state == state
    assert named.reason.startswith(because)


def test_a_score_without_intervals_is_followed_where_its_best_is_above_two_thirds():
    low, high = ((None, 9.0, 3.0, 4.0, 8.0), (None, 9.0, 8.0, 4.0, 3.0))
    named = name_head("nc1", Score("states", "lower", low), 4)
    assert named.state == 3 and named.reason == (
        "state 3: neural collapse NC1 is 4.00 there, against 8.00 at the top; state 2 is the "
        "best with 3.00, but so far down few blocks are left to tune"
    )
    named = name_head("nc1", Score("states", "lower", high), 4)
    assert (named.state, named.reason) == (4, "state 4: neural collapse NC1 is 3.00 there")
    named = name_head("loes", Score("states", "lower", high), 4)  # which an older scan may hold
    assert (named.state, named.reason) == (4, "state 4: LOES is 3.00 there")
    named = name_head("nc1", Score("states", "lower", (None, 9.0, 3.0, None, 8.0)), 4)
    assert named.state == 2, "state 3 has no value"


def test_a_scan_holds_the_advice_of_auto(tiny, tmp_path):
    result = scan(str(tiny), telling_task(), progress=False)
    advice, planned = result.as_dict()["advice"], result.planning()
    assert advice["plan"] == planned.choice.plan.as_dict()
    assert planned.choice.reason.startswith(advice["because"])
    assert advice["head"] == planned.named.state == 4  # the top, since rows are few
    assert advice["relative"] == pytest.approx(planned.relative) and advice["head_end"] == "solved"
    result.save(tmp_path)
    assert Scan.load(tmp_path).as_dict()["advice"] == advice
    alike = Task.from_lists(["the same"] * 40, ["a", "b"] * 20)
    assert scan(str(tiny), alike, progress=False).as_dict()["advice"] is None
    older = replace(
        result, task={k: v for k, v in result.task.items() if k != "validation_examples"}
    )
    named = older.name_head()
    assert older.as_dict()["advice"] == dict.fromkeys(advice) | {
        "head": named.state,
        "because": named.reason,
    }
