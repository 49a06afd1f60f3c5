"""What is said of the papers' claims follows from the values kept, and could come out otherwise."""

import csv
import sys
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "bench"))

import claims  # noqa: E402
import results  # noqa: E402
from layerscout.studies import average, format_value, list_recipes, load_recipe  # noqa: E402  # noqa: E402

RESULTS = ROOT / "docs" / "measured" / "results"


def test_the_page_is_what_the_values_say():
    assert results.page() == (ROOT / "docs" / "measured" / "results.md").read_text(), (
        "write the page again"
    )


def test_every_claim_has_its_study_and_its_record():
    assert set(claims.STUDIES) <= set(list_recipes())
    for name in results.there():
        with (RESULTS / f"{name}.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert rows and all(len(row["trial"]) == 12 and row["value"] for row in rows)


@pytest.mark.parametrize("name", results.there())
def test_what_is_kept_is_of_the_recipe_as_it_is(name):
    grids = load_recipe(name, small=True).grids
    frame = results.kept(name)
    assert set(frame["grid"]) <= set(grids)
    for grid, rows in frame.groupby("grid"):
        for axis in set(grids[grid].axes) & set(frame) - {"model", "learning_rate", "edits"}:
            wanted = set(map(str, grids[grid].label_values(axis)))
            assert set(rows[axis].dropna().map(format_value)) <= wanted, axis


@pytest.mark.parametrize(
    ("values", "verdict", "near"),
    [
        ([0.1, 0.11, 0.12], claims.HELD, claims.NOT_HELD),
        ([-0.1, -0.11, -0.12], claims.NOT_HELD, claims.NOT_HELD),
        ([-0.2, 0.1, 0.3], claims.UNCLEAR, claims.UNCLEAR),
        ([0.01, 0.011, 0.012], claims.HELD, claims.HELD),
        ([0.1], claims.UNCLEAR, claims.UNCLEAR),
    ],
)
def test_verdicts_go_by_the_interval(values, verdict, near):
    assert claims.above(average(values)) == verdict
    assert claims.near(average(values)) == near


def test_a_difference_within_the_margin_has_no_effect():
    small, wide = [0.001, 0.003, 0.004, 0.002], [-0.03, 0.04, 0.001, 0.0]
    assert claims.matters(average(small)) == claims.NO_EFFECT  # although all of them are above 0
    assert claims.matters(average(wide)) == claims.UNCLEAR
    assert claims.matters(average([value + 0.02 for value in small])) == claims.HELD
    # Of the ends at 90 and 95 %, 0.0092 and 0.0106, the first alone is within a point.
    edge = average([0.0, 0.0061, 0.0061, 0.008])
    assert edge.high > claims.MARGIN and claims.matters(edge) == claims.NO_EFFECT
    assert claims.matters(average([0.002])) == claims.UNCLEAR


def test_pairs_of_several_folders_are_judged_together():
    one, more = results.BASE_KEPT, results.MORE_KEPT
    [alone, both] = (
        next(c for c in results.claims(*some) if c.text.startswith("ν predicts probing: "))
        for some in ((one,), (one, more))
    )
    counts = [int(c.numbers.split("(")[1].split(" pairs")[0]) for c in (alone, both)]
    new = results.kept("xie2022-scores", more)
    new = new[new["measure"] == "pearson:variability_ratio"]
    assert counts[1] == counts[0] + len(new[["model", "task"]].drop_duplicates())
    # A claim that is about curves of one model has no verdict on several.
    assert {c.recipe for c in results.claims(one, more)} <= {
        name for name, evidence in claims.STUDIES.items() if evidence.pairs
    }


def test_verdicts_of_cases():
    assert claims.everywhere([True, True]) == claims.HELD
    assert claims.everywhere([False, False]) == claims.NOT_HELD
    assert claims.everywhere([True, False]) == claims.UNCLEAR
    assert claims.everywhere([]) != claims.HELD


def rows(plans, **more):
    """Make values of strategies in three places and two seeds."""
    return pd.DataFrame(
        [
            {
                "grid": "tuned", "model": model, "task": task, "plan": plan, "seed": seed,
                "resolved": more.get(plan, plan), "measure": "metric", "at": None,
                "value": value + 0.01 * number + 0.001 * int(seed), "selected": True,
            }
            for number, (model, task) in enumerate([("m", "a"), ("m", "b"), ("n", "a")])
            for plan, value in plans.items()
            for seed in "01"
        ]
    )  # fmt: skip


def test_strategies_are_compared_within_a_model_and_a_task():
    frame = rows({"best-down:1@top": 0.8, "top:1": 0.7, "full": 0.9})
    found = claims.gain(frame, [("best-down:1@top", "top:1")])
    assert found.n == 3 and found.mean == pytest.approx(0.1)
    assert claims.gain(frame, [("top:1", "full")]).mean == pytest.approx(-0.2)
    same = rows({"best-down:1@top": 0.8, "top:1": 0.7}, **{"best-down:1@top": "x", "top:1": "x"})
    # Nowhere are they two plans.
    assert claims.gain(same, [("best-down:1@top", "top:1")]) is None


def test_other_values_turn_the_verdicts():
    frame = results.kept("xie2022-table6")
    told = {claim.text: claim.verdict for claim in claims.strategies(frame)}
    turned = frame.assign(value=frame["value"] * 0 + frame["plan"].str.startswith("top") * 1.0)
    other = {claim.text: claim.verdict for claim in claims.strategies(turned)}
    assert told.keys() == other.keys()
    assert other["1 to 3 blocks at ℓ* beat as many top blocks (head on top)"] == claims.NOT_HELD
