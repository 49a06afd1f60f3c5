"""What records say: means, choices and comparisons against SciPy and by hand."""

import math
from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from layerscout.reporting import Table, write_latex, write_markdown
from layerscout.scores.diagnostics import rank_movement
from layerscout.studies import (
    Mean,
    average,
    choose_rates,
    compare_with_baseline,
    correlate_values,
    format_rounded,
    load_recipe,
    summarise,
    tidy_records,
)
from layerscout.studies.charts import draw_figure, estimate_density
from layerscout.studies.recipe import FigureSpec, TableSpec
from studying import record, tuned


def test_means_are_those_of_scipy():
    values = [0.3, 0.5, 0.9, 0.4]
    found = average(values)
    assert (found.n, found.mean) == (4, pytest.approx(np.mean(values)))
    assert found.deviation == pytest.approx(np.std(values, ddof=1))
    assert found.error == pytest.approx(stats.sem(values))
    ends = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    assert (found.low, found.high) == pytest.approx(ends)
    assert average([0.3]) == Mean(1, 0.3)
    # Tamkin et al. 2020, Figures 6 to 8: ± 2 standard deviations.
    two = 2 * np.std(values, ddof=1)
    assert found.ends("double") == pytest.approx((found.mean - two, found.mean + two))
    assert found.ends("interval") == (found.low, found.high)
    assert Mean(1, 0.3).ends("double") == (None, None)


def mean_ends(values):
    return stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=stats.sem(values))


@pytest.mark.parametrize(
    ("rates", "best"),
    [
        ({"a": [0.5, 0.6], "b": [0.9, 0.1], "c": [0.6, 0.6]}, "c"),
        ({"a": [0.5, 0.6], "b": [0.9, None]}, "a"),
        ({"a": [0.5], "b": [0.5]}, "a"),
    ],
)
def test_the_best_rate_has_the_best_mean_of_those_that_came_through(rates, best):
    trials = [("sweep", rate, value) for rate, values in rates.items() for value in values]
    assert {trials[number][1] for number in choose_rates(trials)} == {best}


def study(values, **others):
    """Return a study of one grid: metric by (task, plan, rate, seed), and other axes' values."""
    cells, records = [], {}
    for number, ((task, plan, rate, seed), value) in enumerate(values.items()):
        axes = {"model": "m", "task": task, "plan": plan, "seed": seed, "learning_rate": rate}
        axes |= {name: column[number] for name, column in others.items()}
        cells.append({"grid": "g", "values": axes, "trial": str(number)})
        if value is not None:
            records[str(number)] = record("tune", tuned(value))
    return {"cells": cells}, records.get


VALUES = {
    ("a", "full", "1e-4", "0"): 0.8,
    ("a", "full", "1e-4", "1"): 0.7,
    ("a", "full", "1e-3", "0"): 0.9,
    ("a", "full", "1e-3", "1"): 0.5,
    ("a", "top:1", "1e-4", "0"): 0.6,
    ("a", "top:1", "1e-4", "1"): 0.4,
    ("b", "full", "1e-4", "0"): 0.9,
    ("b", "full", "1e-4", "1"): None,
    ("b", "top:1", "1e-4", "0"): 1.0,
    ("b", "top:1", "1e-4", "1"): 0.9,
}


def test_rows_are_tidy_and_the_chosen_rate_is_told():
    content, read = study(VALUES)
    content["cells"].append({"grid": "g", "values": {"task": "c"}, "trial": None, "refused": "x"})
    frame = tidy_records(content, read)
    metric = frame[frame.measure == "metric"]
    assert list(metric.value) == [v for v in VALUES.values() if v is not None]
    chosen = metric[metric.selected]
    assert set(zip(chosen.task, chosen.plan, chosen.learning_rate, strict=True)) == {
        ("a", "full", "1e-4"),
        ("a", "top:1", "1e-4"),
        ("b", "full", "1e-4"),
        ("b", "top:1", "1e-4"),
    }
    assert list(frame[frame.measure.isna()].status) == ["waiting", "refused"]
    assert set(frame.measure.dropna()) == {
        *("metric", "majority", "epoch", "seconds", "train_seconds", "flops", "share"),
        *("example_seconds", "inference_share"),
        *("parameters", "trainable", "metric_by_epoch", "loss_by_epoch"),
    }
    assert frame[frame.measure == "train_seconds"].value.unique() == [1.5]
    assert frame[frame.measure == "share"].value.unique() == [0.5]


def table(frame, **options):
    return summarise(frame, TableSpec.model_construct(title="t", **{"grid": "g"} | options))


def test_a_table_has_means_of_the_chosen_rate_in_the_order_of_the_recipe():
    frame = tidy_records(*study(VALUES))
    spread = np.std([0.8, 0.7], ddof=1)
    found = table(frame)
    assert (found.columns, found.caption) == (
        ["plan", "a", "b"],
        "Means of 1 to 2 trials ± standard deviation.",
    )
    assert [row[0] for row in found.rows] == ["full", "top:1"]
    assert found.rows[0] == ["full", f"0.750 ± {spread:.3f}", "0.900"]
    assert table(frame, where={"task": "b"}).columns == ["plan", "b"]
    for name, text in (
        ("error", f"0.750 ± {stats.sem([0.8, 0.7]):.3f}"),
        ("double", f"0.750 ± {2 * spread:.3f}"),
        ("none", "0.750"),
        ("interval", "0.750 ({:.3f} to {:.3f})".format(*mean_ends([0.8, 0.7]))),
    ):
        assert table(frame, spread=name).rows[0][1] == text.replace("-", "−")
    shares = table(frame, value=["share", "trainable"], columns="measure")
    assert shares.rows[0] == ["full", "0.500 ± 0.000", "3"]


@pytest.mark.parametrize(
    ("trials", "caption"),
    [
        ([], "No trials."),
        ([("a", 1), ("b", 1)], "One trial each."),
        ([("a", 1), ("b", 3)], "Means of 1 to 3 trials ± standard error."),
        ([("a", 3)], "Means of 3 trials ± standard error."),
    ],
)
def test_a_table_says_how_many_trials_it_is_of(trials, caption):
    values = {(task, "full", "1", str(s)): 0.5 for task, seeds in trials for s in range(seeds)}
    frame = tidy_records(*study(values or VALUES))
    where = {} if values else {"task": "none"}
    assert table(frame, where=where, spread="error").caption == caption


def test_tables_are_written_for_markdown_and_latex():
    rows = [["a|b", "0.500 (0.400 to 0.600)"], ["c_d", "1,234"]]
    found = Table("", ["plan", "50 %"], rows)
    assert write_markdown(found) == (
        "| plan | 50 % |\n| --- | ---: |\n| a\\|b | 0.500 (0.400 to 0.600) |\n| c_d | 1,234 |\n"
    )
    assert "c\\_d & 1,234 \\\\" in write_latex(found) and "50 \\%" in write_latex(found)
    assert write_latex(found).startswith("\\begin{tabular}{lr}\n\\toprule\n")
    tricky = write_latex(Table("", ["a"], [["\\x{y}~^ ± ν&#$"]]))
    assert "\\textbackslash{}x\\{y\\}\\textasciitilde{}\\textasciicircum{}" in tricky
    assert "$\\pm$ $\\nu$\\&\\#\\$" in tricky


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.12345, "0.123"),
        (-0.5, "−0.500"),
        (12.34, "12.3"),
        (355362819, "355,362,819"),
        (1.5e9 + 0.5, "1.5e+09"),
        (0.00012, "0.00012"),
        (0.0, "0.000"),
        (None, "–"),
        (math.nan, "–"),
    ],
)
def test_numbers_are_rounded_for_reading(value, text):
    assert format_rounded(value) == text


def test_a_contest_pairs_trials_that_differ_in_the_plan_alone():
    (found,) = compare_with_baseline(tidy_records(*study(VALUES)), "g", "plan", "full")
    assert found.name == "top:1" and found.pairs == 3  # seed 1 of full on b did not come through
    a, b = np.mean([0.6 - 0.8, 0.4 - 0.7]), 1.0 - 0.9
    assert found.difference.mean == pytest.approx((a + b) / 2)
    assert found.difference.low == pytest.approx(
        stats.t.interval(0.95, 1, loc=(a + b) / 2, scale=stats.sem([a, b]))[0]
    )
    assert (found.better, found.wilcoxon) == (1, None)


def test_wilcoxon_is_over_tasks_and_needs_five():
    values = {}
    for task, gain in zip("abcdef", [0.1, 0.2, -0.05, 0.3, 0.15, 0.07], strict=True):
        values |= {(task, "full", "1", "0"): 0.5, (task, "top:1", "1", "0"): 0.5 + gain}
    (found,) = compare_with_baseline(tidy_records(*study(values)), "g", "plan", "full")
    gains = [0.1, 0.2, -0.05, 0.3, 0.15, 0.07]
    assert found.wilcoxon == pytest.approx(stats.wilcoxon(gains).pvalue)
    assert (found.better, found.difference.n) == (5, 6)


def test_agreement_over_orders_is_that_of_scipy():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=10), rng.normal(size=10)
    rows = [
        {"grid": "g", "model": "m", "task": task, "order": str(n), "measure": "metric", "at": None}
        | {"value": v, "selected": True, "trial": "t", "status": "done"}
        for task, values in (("a", x), ("b", y), ("c", np.ones(10)))
        for n, v in enumerate(values)
    ]
    (found,) = correlate_values(
        pd.DataFrame(rows), grid="g", value="metric", of="task", over="order"
    )
    assert (found.pair, found.n) == ("a, b", 10)  # what is the same everywhere has no correlation
    rank, line = stats.spearmanr(x, y), stats.pearsonr(x, y)
    assert (found.spearman, found.spearman_p) == pytest.approx((rank.statistic, rank.pvalue))
    assert (found.pearson, found.pearson_p) == pytest.approx((line.statistic, line.pvalue))


def test_states_are_compared_over_the_seeds_of_a_model():
    def one(i, j, values):
        cka = [[0.0] * 2 for _ in range(2)]
        cka[0][0], cka[1][1] = values
        return {"of": [i, j], "rows": [1, 2], "columns": [1, 2], "cka": cka}

    maps = [one(0, 0, (1, 1)), one(0, 1, (0.9, 0.8)), one(0, 2, (0.7, 0.6)), one(1, 2, (0.5, 0.4))]
    clusters = [{"cka": {"contrast": c, "split": 1}} for c in (0.3, 0.2)] + [{"cka": None}]
    names = ["model a, seed 0", "model a, seed 1", "model a, untuned"]
    result = {"clusters": clusters, "maps": maps, "models": []}
    cell = {"grid": "g", "values": {"task": "t", "models": names}, "trial": "x"}
    frame = tidy_records({"cells": [cell]}, {"x": record("compare", result)}.get)
    same = frame[frame.measure == "same_state"]
    assert list(zip(same["at"], same.value, strict=True)) == [(1, 0.9), (2, 0.8)]
    assert list(frame[frame.measure == "contrast"]["at"]) == names[:2]


def test_a_contest_keeps_other_axes_apart():
    plans, metrics = ["full", "full", "top:1", "top:1"], [0.5, 0.6, 0.5, 0.675]
    values = {
        ("a", plan, "1", n): value
        for n, (plan, value) in enumerate(zip(plans, metrics, strict=True))
    }
    others = {"batch_size": ["4", "32"] * 2, "resolved": plans, "blocks": range(4)}
    frame = tidy_records(*study(values, seed=["0"] * 4, **others))
    (contest,) = compare_with_baseline(frame, "g", "plan", "full")
    assert contest.difference.mean == pytest.approx(0.0375) and contest.pairs == 2


def test_rates_are_chosen_over_seeds_even_where_the_best_state_differs():
    values = {("1e-4", "0"): 0.9, ("1e-4", "1"): 0.1, ("1e-3", "0"): 0.6, ("1e-3", "1"): 0.6}
    tunings = {("a", "best-down:1@top", *place): value for place, value in values.items()}
    best, plans = [1, 2, 1, 2], ["(0)", "(1)"] * 2
    frame = tidy_records(*study(tunings, best=best, resolved=plans, blocks=[1] * 4))
    chosen = frame[frame.selected & (frame.measure == "metric")]
    assert list(chosen.learning_rate) == ["1e-3", "1e-3"]


def test_where_goes_by_what_tables_call_a_value():
    content, read = study(VALUES)
    for number, cell in enumerate(content["cells"]):
        cell["values"] |= {"keep_layer_norm": "yes" if number % 2 else "no", "kept": number}
    content["cells"].append({"grid": "other", "values": {"task": "a"}, "trial": None})
    frame = tidy_records(content, read)  # where `kept` is a float, since one cell has none
    assert table(frame, where={"keep_layer_norm": True}).rows
    assert table(frame, where={"kept": 0}).rows == [["full", "0.800"]]
    assert table(frame, where={"kepd": 0}).rows == []


def ranked(by_epoch):
    """Return a study of one scan of a model before and during its training: values by epoch."""
    values = [[None, *of_blocks] for of_blocks in by_epoch.values()]
    moved = rank_movement(values, "higher")
    scores = {"fisher": {"values": values[0], "better": "higher"}}
    record = {
        "status": "done",
        "verb": "scan",
        "seconds": 1.0,
        "models": ["m", *({"trial": "y", "epoch": epoch} for epoch in list(by_epoch)[1:])],
        "result": {
            "scores": scores,
            "best": {},
            "stability": {"scores": {"fisher": {"values": values, **asdict(moved)}}},
        },
    }
    cell = {"grid": "ranked", "values": {"model": "m", "task": "wic", "seed": "0"}, "trial": "x"}
    return {"cells": [cell]}, {"x": record}.get


def test_blocks_have_a_rank_at_every_checkpoint():
    # The axes of Lodha et al. 2023, Fig. 2: 12 blocks of BERT-base at epochs 0, 2, 5, 8 and 10.
    rng = np.random.default_rng(0)
    by_epoch = {epoch: rng.permutation(12) + 1.0 for epoch in (0, 2, 5, 8, 10)}
    frame = tidy_records(*ranked(by_epoch))
    assert (frame.measure == "rank:fisher").sum() == (frame.measure == "fisher").sum() == 12 * 5
    spec = {"value": "rank:fisher", "rows": "block", "columns": "checkpoint", "spread": "none"}
    found = table(frame, grid="ranked", **spec)
    assert found.columns == ["at", "0", "2", "5", "8", "10"]
    assert found.rows == [
        [str(block + 1), *(f"{13 - values[block]:.0f}" for values in by_epoch.values())]
        for block in range(12)
    ]
    moved = frame[frame.measure == "deviation:fisher"]
    assert list(moved.checkpoint) == [0, 2, 5, 8, 10]
    expected = [np.abs(values - by_epoch[0]).mean() for values in by_epoch.values()]
    assert list(moved.value) == pytest.approx(expected)


def test_ranks_are_drawn_over_epochs_with_a_line_for_each_block():
    by_epoch = {epoch: [3.0, 2.0, 1.0 + 2 * epoch] for epoch in (0, 2, 5, 8, 10)}
    drawn = [one for one in load_recipe("lodha2023-ranks").figures if one.value == "rank:fisher"]
    assert [one.grid for one in drawn] == ["ranked", "ranked as released"]
    [chart] = draw_figure(tidy_records(*ranked(by_epoch)), drawn[0], ["task"])
    [rows] = chart.to_dict()["datasets"].values()
    assert {(row["color"], row["x"]): row["value"] for row in rows} == {
        (str(block), epoch): rank
        for epoch, (*_, third) in by_epoch.items()
        for block, rank in enumerate((1, 2, 3) if third < 2 else (2, 3, 1), start=1)
    }


def kept(values, dashed):
    """Draw a figure of rows (grid, kept, value) of one task; return the data and the marks."""
    columns = ["grid", "kept", "value"]
    frame = pd.DataFrame(values, columns=columns).assign(
        model="m", task="t", seed="0", at=None, checkpoint=None, selected=True, permutation="1"
    )
    frame["measure"] = ["probe" if grid == "probed" else "metric" for grid in frame.grid]
    frame["at"] = [k if grid == "probed" else None for grid, k, _ in values]
    spec = {"title": "t", "grid": "tuned", "x": "kept", "dashed": dashed}
    kind = "density" if dashed["grid"] == "ends" else "lines"
    [chart] = draw_figure(frame, FigureSpec(**spec, kind=kind), ["task"])
    drawn = chart.to_dict()
    marks = [layer["mark"] for layer in drawn["layer"]]
    return list(drawn["datasets"].values()), marks


def test_probing_is_dashed_beside_the_curves_of_sizes():
    # Tamkin et al. 2020, Figure 2: one figure of both.
    values = [("tuned", 0, 0.5), ("tuned", 12, 0.9), ("probed", 0, 0.6), ("probed", 12, 0.7)]
    data, marks = kept(values, {"grid": "probed", "value": "probe", "x": "state"})
    found = {(row["color"], row["x"]): row["value"] for rows in data for row in rows}
    assert found == {
        **{("metric", 0): 0.5, ("metric", 12): 0.9},
        **{("Probe", 0): 0.6, ("Probe", 12): 0.7},
    }
    assert [mark.get("strokeDash") for mark in marks if mark["type"] == "line"] == [[5, 4], None]
    [spec] = [one for one in load_recipe("tamkin2020-incremental").figures if one.dashed]
    assert (spec.x, spec.color, spec.dashed.value, spec.dashed.x) == (
        *("kept", "examples"),
        *("probe", "state"),
    )


def test_orders_are_drawn_with_their_density_and_the_two_ends():
    # Tamkin et al. 2020, Figure 4: circles, density, mean; dashed levels with ± 2 deviations.
    orders = [0.5, 0.52, 0.55, 0.6]
    ends = [("ends", 0, 0.5), ("ends", 0, 0.54), ("ends", 12, 0.9), ("ends", 12, 0.92)]
    values = [*(("tuned", None, value) for value in orders), *ends]
    dashed = {"grid": "ends", "color": "kept", "spread": "double"}
    data, marks = kept(values, dashed)
    rows = [row for some in data for row in some]
    levels = {row["color"]: row for row in rows if "color" in row}
    assert set(levels) == {"mean", "kept 0", "kept 12"}
    two = 2 * np.std([0.9, 0.92], ddof=1)
    assert levels["kept 12"]["low"] == pytest.approx(0.91 - two)
    assert levels["mean"]["low"] == pytest.approx(average(orders).low)
    circles = [row for row in rows if "label" in row and "color" not in row]
    assert [row["value"] for row in circles] == orders
    assert {"area", "point", "rule", "rect"} == {mark["type"] for mark in marks}
    curve = estimate_density(orders)
    expected = stats.gaussian_kde(orders)([row["value"] for row in curve])
    assert [row["x"] for row in curve] == pytest.approx(list(expected / expected.max()))
    assert estimate_density([0.5, 0.5]) == []
    spec = load_recipe("tamkin2020-permutation").figures[0]
    assert (spec.kind, spec.dashed.model_dump(exclude_defaults=True)) == ("density", dashed)


@pytest.mark.parametrize("name", ["tamkin2020-single", "tamkin2020-rate", "tamkin2020-norms"])
def test_bars_of_the_appendix_are_two_deviations(name):
    found = load_recipe(name)
    assert {one.spread for one in (*found.figures, *found.tables)} == {"double"}


def test_blocks_of_fisher_are_drawn_as_differences_from_full_tuning():
    # Lodha et al. 2023, Figure 1: relative performance by task in two runs.
    recipe = load_recipe("lodha2023-layers")
    grid = recipe.grids["tuned"]
    assert grid.axes["seed"] == [0, 1] and "roberta-base" in grid.axes["model"]
    spec = recipe.figures[0]
    assert (spec.x, spec.color, spec.against) == ("task", "plan", "full")
    content, read = study(VALUES)
    for cell in content["cells"]:
        cell["values"]["resolved"] = cell["values"]["plan"]
    frame = tidy_records(content, read)
    [chart] = draw_figure(frame, spec, ["model"])
    [rows, *_] = chart.to_dict()["datasets"].values()
    means = {(row["x"], row["color"]): (row["value"], row["n"]) for row in rows}
    assert means == {
        ("a", "top:1"): (pytest.approx(np.mean([0.6 - 0.8, 0.4 - 0.7])), 2),
        ("b", "top:1"): (pytest.approx(1.0 - 0.9), 1),  # seed 1 of full did not come through
    }


@pytest.mark.parametrize("name", ["xie2022-imbalance", "xie2022-scarcity"])
def test_imbalance_and_scarcity_are_figures(name):
    # Xie et al. 2022, Figures 6, 7 (SST-2), 15 and 16 (MNLI): ν by state; ζ and ρ by sample.
    found = load_recipe(name)
    drawn = {(one.value, one.x, one.color) for one in found.figures}
    assert drawn >= {
        ("variability_ratio", "state", "per_class"),
        ("smoothness:variability_ratio", "per_class", None),
        ("pearson:variability_ratio", "per_class", None),
    }
    assert {task for grid in found.grids.values() for task in grid.axes["task"]} == {"sst2", "mnli"}
