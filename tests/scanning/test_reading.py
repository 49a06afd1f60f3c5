"""What a scan reads: which examples, how often, and when there are enough."""

import numpy as np
import pytest

from inputs import expect_refused
from layerscout.errors import InputError
from layerscout.models import Encoder
from layerscout.plans import ScanRequest
from layerscout.progress import show_progress
from layerscout.scanning import Extractor, ScanContext, draw_sample
from layerscout.scores import Decision, Quality
from telling import numbers_task, telling_task

DEBIASED = "variability_ratio_debiased"

LIMIT = 10**9


@pytest.fixture(scope="module")
def encoder(tiny):
    return Encoder.load(tiny)


@pytest.fixture
def forwarded(encoder):
    """Count the texts that go through the encoder."""
    texts = []
    handle = encoder.model.encoder.layer[0].register_forward_hook(
        lambda _module, arguments, _output: texts.append(len(arguments[0]))
    )
    yield texts
    handle.remove()


@pytest.fixture
def shown():
    return []


@pytest.fixture
def extractor(encoder, shown):
    return make_extractor(encoder, show=lambda *what: shown.append(what))


def make_extractor(encoder, poolings=("mean",), limit=LIMIT, show=lambda *_: None):
    return Extractor(encoder, poolings, 128, limit, show)


def sampling(
    task, examples="auto", balanced=False, per_class=None, seed=0, keys=(), extractor=None
):
    request = ScanRequest(examples=examples, balanced=balanced, per_class=per_class, seed=seed)
    return ScanContext(task, keys, request, extractor)


def read(extractor, task, *options, decide=None, keys=("knn",), **more):
    """Read a task as far as some scores need it; "auto" has enough by `decide`."""
    keys = keys if decide is None else (decide,)
    return draw_sample(sampling(task, *options, keys=keys, extractor=extractor, **more))


# --- Which examples -----------------------------------------------------------------------------


def test_auto_grows_until_all_is_read():
    assert sampling(telling_task(n=2300)).list_sizes() == [500, 707, 1000, 1414, 2000, 2300]
    assert sampling(telling_task(n=500)).list_sizes() == [500]
    assert sampling(telling_task(n=90)).list_sizes() == [90]


def test_many_classes_start_with_more(monkeypatch):
    monkeypatch.setattr("layerscout.scanning.sampling.FIRST_LOOK", 20)
    # 8 of a class are the fewest that can be judged.
    assert sampling(telling_task(n=100, classes=5)).list_sizes() == [40, 56, 80, 100]


def test_a_number_that_no_score_decides_is_fixed(extractor, monkeypatch):
    def count(*options, classes=2, **more):
        task = telling_task(n=90, classes=classes)
        split = read(extractor, task, *options, keys=("fisher",), **more).split
        return np.bincount(split.labels).tolist()

    assert count(40) == count(np.int64(40)) == [20, 20]
    assert count("all") == count() == [45, 45]
    assert count(per_class=[5, 7]) == [5, 7]
    monkeypatch.setattr("layerscout.scanning.sampling.AUTO_EXAMPLES", 30)
    assert count() == [15, 15]
    assert count(classes=20) == [2] * 20


def test_balanced_grows_as_far_as_the_smallest_class(monkeypatch):
    monkeypatch.setattr("layerscout.scanning.sampling.FIRST_LOOK", 20)
    task = telling_task(n=100)
    rows = np.flatnonzero((task.train.labels == 0) | (np.arange(100) < 60))
    skewed = sampling(
        task.__class__(**vars(task) | {"train": task.train.take(rows)}), balanced=True
    )
    assert skewed.available == 60
    assert skewed.list_sizes() == [20, 28, 40, 56, 60]
    for size in skewed.list_sizes():
        counts = np.bincount(skewed.task.train.labels[skewed.draw(size)])
        assert counts.tolist() == [size // 2] * 2


def test_no_number_of_examples_is_refused():
    expect_refused("`examples` must be a whole number", sampling, telling_task(n=20), None)


def test_more_rows_contain_the_fewer():
    some = sampling(telling_task(n=400, classes=3), seed=4)
    assert set(some.draw(99)) <= set(some.draw(200)) <= set(some.draw(400))


# --- One pass ------------------------------------------------------------------------------------


def test_rows_and_states_belong_together(encoder, extractor):
    task = telling_task(n=300)
    kept = read(extractor, task, 100, seed=3)
    expected = encoder.states(kept.split.texts, pooling="mean").numpy()
    np.testing.assert_allclose(np.stack(list(kept.extracted.states["mean"])), expected, atol=2e-5)
    assert kept.extracted.lengths.tolist() == encoder.tokenize(kept.split.texts).lengths.tolist()
    assert (kept.sample.labels == kept.split.labels).all()
    assert kept.sample.first == 0 and kept.sample.examples is None
    assert kept.extracted.moments is None and kept.reason is None and kept.looks == 1
    rows = sampling(task, seed=3).draw(100)
    assert kept.split.texts == task.train.take(rows).texts


def test_tokens_alone_run_nothing(extractor, forwarded):
    task = telling_task(n=60)
    result = read(extractor, task, keys=("fisher",))
    assert not forwarded
    assert len(result.split) == len(result.extracted.lengths) == 60
    assert (result.extracted.moments, result.extracted.states, result.sample) == (None, {}, None)


def test_both_poolings_come_from_one_pass(encoder, forwarded):
    extractor = make_extractor(encoder, ("cls", "mean"))
    kept = read(extractor, telling_task(n=60))
    assert sum(forwarded) == 60
    assert set(kept.extracted.states) == {"mean", "cls"}
    assert kept.sample.first == 1  # of the first pooling, which is scored


def test_nothing_is_kept_without_room(encoder, cache):
    extractor = make_extractor(encoder, limit=0)
    assert extractor.fingerprint is None
    read(extractor, telling_task(n=60))
    assert not cache.exists() or not [p for p in cache.rglob("*") if p.is_file()]
    tight = read(make_extractor(encoder, limit=100), telling_task(n=60))
    assert len(tight.extracted.warnings) == 1 and "held in memory" in tight.extracted.warnings[0]


def test_times_and_progress_are_told(extractor, shown):
    read(extractor, telling_task(n=60), decide=DEBIASED)
    assert {"tokenize", "forward", "scores"} == set(extractor.seconds)
    assert min(extractor.seconds.values()) > 0
    stages = [what[0] for what in shown]
    assert stages[0] == "scanning 60"
    assert shown[-1][1] == shown[-1][2] and "60 of 60 examples" in shown[-1][3]
    with show_progress(False) as show:
        show("scanning", 1, 2)


# --- When there are enough -----------------------------------------------------------------------


def test_rows_that_were_read_in_turns_are_in_their_place(encoder, extractor, monkeypatch):
    monkeypatch.setattr("layerscout.scanning.sampling.FIRST_LOOK", 50)
    task = telling_task(n=330, signal=0.0)
    grown = read(extractor, task, decide=DEBIASED)
    whole = read(make_extractor(encoder, limit=0), task, "all")
    assert grown.split.texts == whole.split.texts == task.train.texts
    assert len(grown.extracted.states["mean"].parts) == 7
    np.testing.assert_allclose(
        np.stack(list(grown.extracted.states["mean"])),
        np.stack(list(whole.extracted.states["mean"])),
        atol=2e-5,
    )
    assert (grown.sample.groups == whole.sample.groups).all()
    assert grown.extracted.lengths.tolist() == whole.extracted.lengths.tolist()


def decisions(monkeypatch, *result):
    """Have these decisions taken, one look after another; give what was asked."""
    asked, left = [], iter(result)

    def decide(results, better, looks, tolerance):
        asked.append((len(results), better, looks, tolerance))
        return next(left)

    monkeypatch.setattr("layerscout.scanning.sampling.decide_best", decide)
    monkeypatch.setattr("layerscout.scanning.sampling.FIRST_LOOK", 50)
    return asked


OPEN = Decision(2, decided=False, close=False, rest=(3,))
CLOSE = Decision(2, decided=False, close=True, rest=(3,))
DECIDED = Decision(2, decided=True, close=True, rest=())
NONE = Decision(None, decided=False, close=False, rest=())


@pytest.mark.parametrize(
    ("result", "size", "because"),
    [
        ([DECIDED], 50, "state 2 differs from all others beyond noise"),
        ([OPEN, CLOSE], 70, "tied with state 2 lie within 2% of it"),
        ([NONE, OPEN, DECIDED], 100, "state 2 differs from all"),
        ([OPEN, NONE, OPEN, OPEN, OPEN, OPEN], 240, "these are all there are"),
        ([NONE] * 6, 240, "these are all there are"),
    ],
)
def test_reading_stops_at_the_first_look_that_decides(
    monkeypatch, extractor, result, size, because
):
    asked = decisions(monkeypatch, *result)
    got = read(extractor, telling_task(n=240), decide=DEBIASED)
    assert len(got.split) == size and because in got.reason
    assert set(asked) == {(5, "lower", 6, 0.02)}  # 5 states, as many looks as there may be, 2 %
    assert got.looks == 6


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (0.9, "these are all there are"),
        (
            0.93,
            "more of them could not show a state above state 2, where the head belongs, to be "
            "better by more than 1 point",
        ),
    ],
)
def test_heads_that_all_give_the_majority_s_answer_are_no_reason_to_stop(
    extractor, monkeypatch, value, reason
):
    # Without any spread, no interval is wide: 20 groups without one of which nothing changes.
    heads = [Quality(value, np.full(20, value), 0.9, "accuracy")] * 4
    monkeypatch.setattr("layerscout.scanning.sampling.estimate_states", lambda *_: heads)
    assert read(extractor, telling_task(n=600), decide="head_quality").reason == reason


def test_too_few_of_a_class_do_not_stop_the_reading(extractor, forwarded):
    task = telling_task(n=240)
    rows = np.flatnonzero((task.train.labels == 0) | (np.arange(240) < 6))
    scarce = task.__class__(**vars(task) | {"train": task.train.take(rows)})
    result = read(extractor, scarce, decide=DEBIASED)
    assert result.reason == "these are all there are"
    assert np.bincount(result.split.labels).tolist() == [120, 3]
    result = read(extractor, scarce, balanced=True, decide=DEBIASED)
    assert result.reason == "the rarest class has no more"


def test_numbers_are_read_without_a_decision(extractor):
    result = read(extractor, numbers_task(n=60))
    assert result.sample.labels.dtype == np.float64
    assert len(np.unique(result.sample.groups)) == 20


def test_a_split_that_cannot_be_drawn_is_refused(extractor):
    with pytest.raises(InputError, match="at most 60"):
        read(extractor, telling_task(n=60), 61)
