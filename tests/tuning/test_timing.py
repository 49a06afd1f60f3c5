"""How long a tuning takes: what is estimated, and how it keeps within a limit, by a fake clock."""

import sys
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from time import perf_counter

import pandas as pd
import pytest
from scipy.stats import t
from test_solved_heads import task_by_words

from inputs import expect_refused
from layerscout.errors import InputError
from layerscout.models import Encoder
from layerscout.plans import STAGE_ROWS, TuneRequest, Work, block_flops, cost
from layerscout.reporting import describe_more, describe_tuning, side_by_side
from layerscout.reporting.words import count_fitted
from layerscout.states import make_batches
from layerscout.tuning import (
    RunOptions,
    free,
    limiting,
    machine,
    run,
    stages,
    staging,
    timing,
    tune,
)
from layerscout.tuning.resolve import resolve
from layerscout.tuning.stepping import Stepper
from layerscout.tuning.timing import Speed, estimate, estimate_run
from tuned import choices_task, task_of, words_task

BOARD = Path(__file__).parents[2] / "bench" / "board" / "board.csv"
MODULES = (free, limiting, machine, run, stages, staging, timing)
OPTIONS = {"batch_size": 8, "epochs": 5, "learning_rate": 1e-3, "progress": False}


@dataclass
class Clock:
    """Goes on by what is done: a little for each look at it, a second for 60 rows or a step."""

    now: float = 1000.0
    steps: int = 0
    slow_from: int = 10**9
    stop_at: int = 10**9

    def __call__(self) -> float:
        self.now += 1e-3
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock, step, pool_each, read = Clock(), Stepper.step, Encoder.pool_each, staging.read_inputs

    def take_step(self, rows, rate):
        clock.steps += 1
        if clock.steps == clock.stop_at:
            raise KeyboardInterrupt
        clock.now += len(rows) / 8 * (4 if clock.steps >= clock.slow_from else 1)
        return step(self, rows, rate)

    def pool(self, tokens, rows, poolings):
        clock.now += len(rows) / 60
        return pool_each(self, tokens, rows, poolings)

    def read_inputs(encoder, model, examples, rows, *layers):
        clock.now += len(rows) / 60 * (4 if clock.steps >= clock.slow_from else 1)
        return read(encoder, model, examples, rows, *layers)

    for module in MODULES:
        if hasattr(module, "perf_counter"):
            monkeypatch.setattr(module, "perf_counter", clock)
    monkeypatch.setattr(Stepper, "step", take_step)
    monkeypatch.setattr(Encoder, "pool_each", pool)
    monkeypatch.setattr(staging, "read_inputs", read_inputs)
    return clock


@pytest.mark.parametrize(
    ("written", "seconds"), [("90s", 90), ("10m", 600), (" 1.5 H", 5400), ("45", 45), (2.5, 2.5)]
)
def test_times_are_read_as_people_write_them(written, seconds):
    assert TuneRequest(time=written).time == seconds


@pytest.mark.parametrize("written", ["soon", "10 days", "", 0, -1, "0s", "1e3", float("nan")])
def test_other_times_are_refused(written):
    expect_refused("`time`", TuneRequest, time=written)


def test_estimates_add_up_what_is_counted(bert):
    task = task_by_words()
    request = TuneRequest(plan="(3, 4, 4)", epochs=3, batch_size=8, seed=(0, 1))
    tuning = resolve(request, bert, task, None, 10**9, False)
    [rated], running = tuning.plans, RunOptions()
    plan, shape, blocks = rated.choice.plan, tuning.shape, bert.blocks
    splits = tuning.training, tuning.validation
    batches = [
        (len(rows), int(split.lengths[rows].max()))
        for split in splits
        for rows in make_batches(bert, split)
    ]
    # Batches are drawn, so the FLOPs of steps are known but for padding.
    longest, shortest = (f(tuning.training.lengths) for f in (max, min))

    def steps(tokens):
        work = Work(len(tuning.training), 0, tokens, 1)
        trunk = len(tuning.training) * 2 * block_flops(shape, tokens)
        return 2 * 3 * (cost(plan, shape, work).train - trunk)

    def expect(phase, tuning=tuning, **speed):
        every = dict.fromkeys(
            ("forward", "batch", "step", "update", "start", "solve", "fit"), 1e-15
        )
        return estimate(tuning, rated, tuning.settings, Speed(**{**every, **speed}), running)[phase]

    once = sum(n * block_flops(shape, T) for n, T in batches)
    plain = expect("states")
    assert expect("states", forward=1) - plain == pytest.approx(blocks * once)
    assert expect("states", batch=1) - plain == pytest.approx(len(batches))
    assert expect("trunk", forward=1) - expect("trunk") == pytest.approx(2 * once)
    assert expect("train", update=1) == pytest.approx(2 * 3 * 8)
    assert expect("train", start=1) == pytest.approx(2)
    assert steps(shortest) <= expect("train", step=1) <= steps(longest)
    # 60 rows are dealt five times into five folds, and the head is solved once more.
    assert expect("solve", solve=1) == pytest.approx(blocks * 5 * 5 + 1)
    assert expect("solve", fit=1) == pytest.approx(blocks * 5 * 8)
    # With a limit it is solved first, of twice the rows, and once more beside what was trained.
    limited, deals = replace(tuning, request=replace(request, time=60)), timing.count_deals(120)
    first = 2 * (blocks * 5 * deals + 1)
    assert expect("solve", limited, solve=1) == pytest.approx(first + blocks * 5 * 5 + 1)


def test_heads_of_words_are_estimated_on_every_state_and_by_regression(bert, monkeypatch):
    tuning = resolve(TuneRequest(plan="head:best"), bert, words_task(n=40), None, 0, False)
    [rated], words = tuning.plans, len(tuning.training.answers)
    monkeypatch.setattr(timing, "TIMED_ROWS", 20)
    monkeypatch.setattr(timing, "perf_counter", Clock())
    timed = timing._time_solving(tuning)
    # A look at the clock takes a millisecond: what grows with the rows is so many times as much.
    assert timed == dict.fromkeys(
        ("solve", "fit", "regress"), pytest.approx(1e-3 * words / 20, rel=1e-3)
    )

    def expect(**speed):
        speed = Speed(**dict.fromkeys(("forward", "batch"), 1e-15), **speed)
        return estimate(tuning, rated, tuning.settings, speed, RunOptions())["solve"]

    both = words + len(tuning.validation.answers)
    deals, share = timing.count_deals(both), both / words
    assert expect(solve=1) == pytest.approx(share * (bert.blocks * deals * 5 + 1))
    assert expect(regress=1) == pytest.approx(share * (deals * 5 + 1))
    # Beside a training, two folds of so many words are enough.
    monkeypatch.setattr("layerscout.tuning.solving.CHOOSING", 1)
    beside = timing.estimate_solving(tuning, Speed(1, 1, regress=1), bert.blocks)
    assert beside == timing.count_deals(words) * 2 + 1


def test_embeddings_of_pairs_are_estimated(bert, monkeypatch):
    def judge(task, plan, most):
        monkeypatch.setattr("layerscout.tuning.timing.MOST_PAIRS", most)
        monkeypatch.setattr("layerscout.tuning.timing.FITTED_PAIRS", 0)
        tuning = resolve(TuneRequest(plan=plan), bert, task, None, 0, False)
        speed, settings = Speed(forward=1, batch=0), tuning.settings
        return estimate(tuning, tuning.plans[0], settings, speed, RunOptions())["judge"]

    task = task_of(n=12, held=6)
    rows = [replace(split, pairs=split.texts) for split in (task.train, task.validation)]
    pairs = replace(task, train=rows[0], validation=rows[1])
    row = (judge(pairs, "head:2", 18) - judge(pairs, "head:2", 0)) / 18
    assert row > 0
    for plan, most in product(("head:2", "top:1", "auto"), (5, 18, 99)):
        own = judge(pairs, plan, most) - judge(pairs, plan, 0)
        assert own == pytest.approx(min(most, 18) * row)
    assert judge(choices_task(), "head:2", 18) == judge(choices_task(), "head:2", 0)


def test_stages_are_estimated_by_their_rows(bert):
    request = TuneRequest(plan="(3, 4, 4)", head_end="solved")
    tuning = resolve(request, bert, task_by_words(), None, 10**9, False)
    training, validation = (
        2
        * sum(
            len(rows) * block_flops(tuning.shape, int(split.lengths[rows].max()))
            for rows in make_batches(bert, split)
        )
        for split in (tuning.training, tuning.validation)
    )
    runs = estimate_run(tuning, tuning.plans[0], Speed(forward=1, batch=0), RunOptions())
    # Each reads its own rows for the head that it starts with, and all rows in the end.
    assert [run.start for run in runs] == pytest.approx([0.5 * training, 0.5 * training, training])
    assert {run.end for run in runs} == {training + validation}


def test_what_a_first_call_imports_is_no_time_of_solving(bert, monkeypatch):
    tuning = resolve(TuneRequest(plan="head:2"), bert, task_of(), None, 0, False)
    late, calls = [0], []

    def calibrate(y, logits):
        late[0] += 10 if calls else 1000
        calls.append(logits)
        return 1.0

    monkeypatch.setattr("layerscout.scores.calibrate", calibrate)
    monkeypatch.setattr(timing, "perf_counter", lambda: perf_counter() + late[0])
    assert 10 <= timing.time_work(tuning, tuning.plans[0], RunOptions()).fit < 20


@pytest.mark.parametrize("options", [{"loss": "contrastive"}, {"accumulation": 2}])
def test_some_work_is_timed_where_a_terminal_shows_it_which_changes_nothing(
    bert, options, monkeypatch, capsys
):
    options = {**OPTIONS, "progress": True, "epochs": 1, "measure": "predictions", **options}
    plain = tune(bert, task_by_words(), "(3, 4, 4)", **options)
    assert "timing" not in plain.content["time"]["seconds"] and capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    timed = tune(bert, task_by_words(), "(3, 4, 4)", **options)
    assert timed.content["runs"][0]["curve"] == plain.content["runs"][0]["curve"]
    assert plain.content["time"]["estimate"] is None
    assert timed.content["time"]["estimate"]["train"] > 0
    assert "this takes about" in capsys.readouterr().err


def test_a_training_is_planned_to_fit(bert, clock, tmp_path):
    options = {**OPTIONS, "snapshots": tmp_path / "snapshots", "since": clock.now}
    clock.stop_at = 18  # in the second epoch
    with pytest.raises(KeyboardInterrupt):
        tune(bert, task_by_words(), "top:1", time=50, **options)
    clock.stop_at, before = 10**9, clock.steps
    # Resumed, it has the time once more, and the steps that it was planned with.
    options["since"] = clock.now
    result = tune(bert, task_by_words(), "top:1", time=50, resume=True, **options)
    steps, (trained,) = result.content["settings"]["max_steps"], result.content["runs"]
    assert 10 < steps < 40 and trained["stopped"] is None
    assert len(trained["curve"]) == -(-steps // 8) and clock.steps - before < steps
    assert any(f"{steps} of 40 steps" in warning for warning in result.warnings)
    assert result.content["time"]["limit"] == 50 and clock.now - options["since"] < 50


@pytest.mark.parametrize(("end", "reads"), [("solved", "read_inputs"), ("trained", "train")])
def test_a_training_without_time_for_all_rows_reads_some(
    bert, clock, tmp_path, monkeypatch, end, reads
):
    monkeypatch.setattr(limiting, "STAGE_ROWS", 100)
    module, rows = staging if end == "solved" else stages, []
    read = getattr(module, reads)

    def count(encoder, model, examples, *rest, **options):
        rows.append(len(examples))
        return read(encoder, model, examples, *rest, **options)

    monkeypatch.setattr(module, reads, count)
    task, options = task_of(n=600, held=20), {**OPTIONS, "snapshots": tmp_path, "head_end": end}
    if end == "trained":  # whose epochs are kept
        clock.stop_at = 40
        with pytest.raises(KeyboardInterrupt):
            tune(bert, task, "top:1", time=80, since=clock.now, **options)
        clock.stop_at, options["resume"] = 10**9, True
    before = clock.now
    result = tune(bert, task, "top:1", time=80, since=before, **options)
    content, [warning] = result.content, [w for w in result.warnings if "as many as fit" in w]
    steps = content["settings"]["max_steps"]
    fewer = 8 * steps // 2  # each is seen twice
    assert 100 <= fewer < 300 and f"{steps} of 375 steps are trained on {fewer} of 600" in warning
    assert set(rows) == {fewer + 20 * (end == "solved")} and clock.now - before < 80
    assert count_fitted(content) == f"{fewer} of 600 examples"
    assert content["settings"]["epochs"] == 2 and content["settings"]["examples"] == 600
    assert end == "solved" or len(content["runs"][0]["curve"]) == 2
    # The FLOPs are those of steps on them, and of their trunk (and of another head).
    shape = bert.shape(2, task.kind, result.content["settings"]["classifier"])
    tokens = content["task"]["tokens_per_example"]
    epochs, readings = steps / -(-fewer // 8), 1 if end == "solved" else None
    work = Work(fewer, 20, tokens, epochs, readings=readings)
    counted = cost(result.plan, shape, work).train
    assert content["flops"]["train"] == pytest.approx(counted, rel=0.01)
    # More epochs may well help it.
    assert describe_tuning(content)["best_epoch"] == describe_tuning(content)["epochs"] == 2
    assert side_by_side._describe(content)["Examples read"] == str(fewer)
    assert content["more"] == {"texts": None, "time": None}  # it is time that is short
    assert content["free"]["examples"] == 20  # what is free has all rows, and is judged as ever


def test_a_step_is_not_refused_for_rows_that_it_would_not_read(bert, clock, monkeypatch):
    task, request = task_of(n=900, held=20), TuneRequest(plan="top:1", time=60)
    tuning = resolve(request, bert, task, None, 10**9, False)
    trunk = limiting.Trainings(tuning, [], trunk=1.0, after=0.0).take
    whole = tuning.settings.steps(900)
    assert trunk(whole) == 1 and trunk(1) == pytest.approx((STAGE_ROWS + 20) / (900 + 20))
    # Of such a model there is no free head, which would be solved first.
    options = {**OPTIONS, "classifier": "family", "save_dtype": "float16", "head_end": "trained"}

    def find_least(rows):
        monkeypatch.setattr(limiting, "STAGE_ROWS", rows)
        with pytest.raises(InputError, match="give ([0-9]+)s or more") as refused:
            tune(bert, task, "top:1", time=2, since=clock.now, **options)
        return int(str(refused.value).split("give ")[1].split("s")[0])

    # 800 rows less through three of four blocks.
    least = find_least(100)
    assert 0.7 * 10 < find_least(900) - least < 1.4 * 10
    monkeypatch.setattr(limiting, "STAGE_ROWS", 100)
    before = clock.now
    result = tune(bert, task, "top:1", time=least, since=before, **options)
    assert 100 <= result.content["examples"] < 900 and clock.now - before < 1.1 * least


def test_the_epochs_are_those_of_the_plan_that_is_trained(bert, clock, monkeypatch):
    monkeypatch.setattr(limiting, "STAGE_ROWS", 100)
    options = {"progress": False, "against": "top:1", "time": 90, "since": clock.now}
    content = tune(bert, task_of(n=600, held=20), "head:best", **options).content
    assert content["examples"] == 600 and 100 <= content["against"]["examples"] < 600
    assert content["settings"]["epochs"] == 2 and "solved" in content


def test_a_slower_machine_stops_a_training(bert, clock):
    clock.slow_from = 8
    result = tune(bert, task_by_words(), "top:1", time=40, since=clock.now, **OPTIONS)
    [trained] = result.content["runs"]
    assert "the time was over" in trained["stopped"] and trained["curve"]
    assert clock.now - 1000 < 40 and any("ended early" in each for each in result.warnings)


def test_what_follows_the_steps_of_a_slower_machine_has_its_time(bert, clock):
    """Reading all rows for the head, which is slower by then, too."""
    clock.slow_from = 8
    options = {**OPTIONS, "head_end": "solved", "since": clock.now}
    result = tune(bert, task_by_words(), "top:1", time=90, **options)
    [trained] = result.content["runs"]
    assert "the time was over" in trained["stopped"] and 60 < clock.now - 1000 < 90


def test_the_free_head_is_kept_where_no_training_fits(bert, clock, tmp_path):
    result = tune(bert, task_by_words(), "top:1", time=16, since=clock.now, **OPTIONS)
    assert result.content["solved"] is not None and clock.now - 1000 < 17.6
    assert result.content["more"]["time"] is None  # of a plan that was named nothing was measured
    [line] = [each for each in result.warnings if "no training fits" in each]
    least = int(line.split("need --time ")[1].split("s")[0])
    result.save(tmp_path)
    start = clock.now
    result = tune(bert, task_by_words(), "top:1", time=least, since=start, **OPTIONS)
    assert result.content["solved"] is None and clock.now - start < 1.1 * least


def test_the_time_that_auto_needs_is_said_with_what_it_would_bring(bert, clock):
    options = {**OPTIONS, "metric": "accuracy"}
    result = tune(bert, task_by_words(), time=20, since=clock.now, **options)
    more = result.content["more"]["time"]
    cells = ["model", "size", "task"]
    board = pd.read_csv(BOARD).pivot(index=[*cells, "draw"], columns="contender", values="accuracy")
    gaps = (board["auto"] - board["free head"]).groupby(cells).mean().dropna() / 100
    half = t.ppf(0.975, len(gaps) - 1) * gaps.std() / len(gaps) ** 0.5
    assert result.content["solved"] is not None
    expected = [gaps.mean(), gaps.mean() - half, gaps.mean() + half]
    assert [more["gain"], *more["interval"]] == pytest.approx(expected, abs=5e-4)
    gain, low, high = (f"{100 * each:+.1f}" for each in expected)
    said = (
        f"--time {more['seconds']}s) would bring about {gain} points ({low} to {high}) of accuracy"
    )
    assert said in describe_more(result.content)
    enough, start = more["seconds"], clock.now
    result = tune(bert, task_by_words(), time=enough, since=start, **options)
    assert result.content["more"]["time"] is None and clock.now - start < enough
    assert not any("steps are trained" in warning for warning in result.warnings)


@pytest.mark.parametrize("plan", ["auto", "head:best", "(3, 4, 4)"])
def test_too_short_a_time_is_refused_before_anything_is_written(bert, clock, tmp_path, plan):
    options = {"progress": False, "snapshots": tmp_path / "snapshots", "output": tmp_path}
    with pytest.raises(InputError, match="too short.*give ([0-9]+)s or more") as refused:
        tune(bert, task_by_words(), plan, time=2, since=clock.now, **options)
    assert not any(tmp_path.iterdir())
    least = int(str(refused.value).split("give ")[1].split("s")[0])
    since = clock.now
    result = tune(bert, task_by_words(), plan, time=least, since=since, **options)
    assert clock.now - since <= 1.1 * least and result.content["metrics"]


def test_a_time_that_is_too_short_for_all_rows_says_how_many_fit(bert, clock):
    task, options = task_by_words(n=600), {"progress": False}
    with pytest.raises(InputError, match="give ([0-9]+)s") as refused:
        tune(bert, task, "head:best", time=2, since=clock.now, **options)
    short = 0.8 * int(str(refused.value).split("give ")[1].split("s")[0])
    with pytest.raises(InputError, match="read ([0-9]+) `examples` of the 600") as refused:
        tune(bert, task, "head:best", time=short, since=clock.now, **options)
    fit, since = int(str(refused.value).split("read ")[1].split()[0]), clock.now
    tune(bert, task, "head:best", time=short, examples=fit, since=since, **options)
    assert clock.now - since <= 1.1 * short and fit < 600
