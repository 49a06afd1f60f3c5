"""What a scan reads: which examples, how often, and when there are enough."""

import numpy as np
import pytest

from inputs import expect_refused
from layerscout.models.encoder import Encoder
from layerscout.runtime.errors import InputError
from layerscout.runtime.progress import show_progress
from layerscout.scanning import sampling as module
from layerscout.scanning.sampling import Drawing, Reader, kept_states, streamed, tokenized
from layerscout.scores.decisions import Decision
from layerscout.scores.table import DEFAULT
from telling import numbers_task, telling_task

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
def reader(encoder, shown):
    return make_reader(encoder, show=lambda *what: shown.append(what))


def make_reader(encoder, poolings=("mean",), limit=LIMIT, show=lambda *_: None):
    return Reader(encoder, poolings, 128, limit, show)


def drawing(task, examples="auto", balanced=False, per_class=None, seed=0):
    return Drawing(task, examples, balanced, per_class, seed)


# --- Which examples -----------------------------------------------------------------------------


def test_auto_grows_by_doubling_until_all_is_read():
    assert drawing(telling_task(n=2300)).growing() == [500, 1000, 2000, 2300]
    assert drawing(telling_task(n=500)).growing() == [500]
    assert drawing(telling_task(n=90)).growing() == [90]


def test_many_classes_start_with_more(monkeypatch):
    monkeypatch.setattr(module, "FIRST_LOOK", 20)
    # 8 of a class are the fewest that can be judged.
    assert drawing(telling_task(n=100, classes=5)).growing() == [40, 80, 100]


def test_a_given_number_does_not_grow():
    task = telling_task(n=90)
    assert drawing(task, 40).growing() is None
    assert drawing(task, "all").growing() is None
    assert drawing(task, per_class=[5, 7]).growing() is None
    assert len(drawing(task, 40).fixed()) == 40
    assert len(drawing(task, np.int64(40)).fixed()) == 40
    assert len(drawing(task, "all").fixed()) == 90
    rows = drawing(task, per_class=[5, 7]).fixed()
    assert np.bincount(task.train.labels[rows]).tolist() == [5, 7]


def test_auto_without_a_score_to_decide_by_is_a_fixed_number(monkeypatch):
    task = telling_task(n=90)
    assert len(drawing(task).fixed()) == 90
    monkeypatch.setattr(module, "AUTO_EXAMPLES", 30)
    assert len(drawing(task).fixed()) == 30
    many = telling_task(n=90, classes=20)
    assert np.bincount(many.train.labels[drawing(many).fixed()]).tolist() == [2] * 20


def test_balanced_grows_as_far_as_the_smallest_class(monkeypatch):
    monkeypatch.setattr(module, "FIRST_LOOK", 20)
    task = telling_task(n=100)
    rows = np.flatnonzero((task.train.labels == 0) | (np.arange(100) < 60))
    skewed = drawing(task.__class__(**vars(task) | {"train": task.train.take(rows)}), balanced=True)
    assert skewed.available == 60
    assert skewed.growing() == [20, 40, 60]
    for size in skewed.growing():
        counts = np.bincount(skewed.task.train.labels[skewed.rows(size)])
        assert counts.tolist() == [size // 2] * 2


@pytest.mark.parametrize("examples", ["many", 1.5, None, "40"])
def test_other_numbers_of_examples_are_refused(examples):
    expect_refused("whole number, 'all' or 'auto'", drawing, telling_task(n=20), examples)


def test_more_rows_contain_the_fewer():
    some = drawing(telling_task(n=400, classes=3), seed=4)
    assert set(some.rows(99)) <= set(some.rows(200)) <= set(some.rows(400))


# --- One pass ------------------------------------------------------------------------------------


def test_streams_and_kept_states_hold_the_same(encoder, reader, forwarded):
    task = telling_task(n=300)
    sums = streamed(reader, drawing(task, 200)).moments
    kept = kept_states(reader, drawing(task, 200), decide=None)
    assert sum(forwarded) == 400
    for s, state in enumerate(kept.states["mean"]):
        for k in range(2):
            total = sums.total[s, k] + sums.count[k] * sums.reference[s]
            expected = state[kept.split.labels == k].astype(np.float64).sum(axis=0)
            np.testing.assert_allclose(total, expected, rtol=1e-4, atol=1e-4)
    assert sums.count.sum() == len(kept.split) == 200
    assert kept.moments is None and kept.because is None and kept.looks == 1


def test_rows_and_states_belong_together(encoder, reader):
    task = telling_task(n=300)
    kept = kept_states(reader, drawing(task, 100, seed=3), decide=None)
    expected = encoder.states(kept.split.texts, pooling="mean").numpy()
    np.testing.assert_allclose(np.stack(list(kept.states["mean"])), expected, atol=2e-5)
    assert kept.lengths.tolist() == encoder.tokenize(kept.split.texts).lengths.tolist()
    assert (kept.sample.labels == kept.split.labels).all()
    assert kept.sample.first == 0 and kept.sample.examples is None
    rows = drawing(task, 100, seed=3).fixed()
    assert kept.split.texts == task.train.take(rows).texts


def test_tokens_alone_run_nothing(reader, forwarded):
    task = telling_task(n=60)
    found = tokenized(reader, drawing(task))
    assert not forwarded
    assert len(found.split) == len(found.lengths) == 60
    assert (found.moments, found.states, found.sample) == (None, {}, None)


def test_both_poolings_come_from_one_pass(encoder, forwarded):
    reader = make_reader(encoder, ("cls", "mean"))
    kept = kept_states(reader, drawing(telling_task(n=60)), decide=None)
    assert sum(forwarded) == 60
    assert set(kept.states) == {"mean", "cls"}
    assert kept.sample.first == 1  # of the first pooling, which is scored


def test_what_was_read_is_found_again(encoder, forwarded):
    task = telling_task(n=60)
    first = kept_states(make_reader(encoder), drawing(task), decide=None)
    assert sum(forwarded) == 60
    again = kept_states(make_reader(encoder), drawing(task), decide=None)
    assert sum(forwarded) == 60
    assert (first.states["mean"][3] == again.states["mean"][3]).all()
    kept_states(make_reader(encoder, limit=0), drawing(task), decide=None)
    assert sum(forwarded) == 120


def test_nothing_is_kept_without_room(encoder, cache):
    reader = make_reader(encoder, limit=0)
    assert reader.fingerprint is None
    kept_states(reader, drawing(telling_task(n=60)), decide=None)
    assert not cache.exists() or not [p for p in cache.rglob("*") if p.is_file()]
    tight = kept_states(make_reader(encoder, limit=100), drawing(telling_task(n=60)), decide=None)
    assert len(tight.notes) == 1 and "held in memory" in tight.notes[0]


def test_times_and_progress_are_told(reader, shown):
    kept_states(reader, drawing(telling_task(n=60)), decide=DEFAULT)
    assert {"tokenize", "forward", "scores"} == set(reader.seconds)
    assert min(reader.seconds.values()) > 0
    stages = [what[0] for what in shown]
    assert stages[0] == "scanning 60"
    assert shown[-1][1] == shown[-1][2] and "60 of 60 examples" in shown[-1][3]
    with show_progress(False) as show:
        show("scanning", 1, 2)


# --- When there are enough -----------------------------------------------------------------------


def test_a_clear_best_state_is_enough(reader, forwarded):
    found = kept_states(reader, drawing(telling_task(n=2300, signal=1.0)), decide=DEFAULT)
    assert found.because == "state 1 is told apart from all others"
    assert len(found.split) == sum(forwarded) == 500
    assert found.looks == 4  # that there could have been


def test_noise_is_read_to_the_end_and_every_row_once(reader, forwarded, monkeypatch):
    monkeypatch.setattr(module, "FIRST_LOOK", 100)
    found = kept_states(reader, drawing(telling_task(n=700, signal=0.0)), decide=DEFAULT)
    assert found.because == "these are all there are"
    assert len(found.split) == sum(forwarded) == 700
    assert len(np.unique(found.states["mean"].rows)) == 700
    assert found.looks == 4


def test_rows_that_were_read_in_turns_are_in_their_place(encoder, reader, monkeypatch):
    monkeypatch.setattr(module, "FIRST_LOOK", 50)
    task = telling_task(n=330, signal=0.0)
    grown = kept_states(reader, drawing(task), decide=DEFAULT)
    whole = kept_states(make_reader(encoder, limit=0), drawing(task, "all"), decide=None)
    assert grown.split.texts == whole.split.texts == task.train.texts
    assert len(grown.states["mean"].parts) == 4
    np.testing.assert_allclose(
        np.stack(list(grown.states["mean"])), np.stack(list(whole.states["mean"])), atol=2e-5
    )
    assert (grown.sample.groups == whole.sample.groups).all()
    assert grown.lengths.tolist() == whole.lengths.tolist()


def decisions(monkeypatch, *found):
    """Have these decisions taken, one look after another; give what was asked."""
    asked, left = [], iter(found)

    def decide(results, looks, tolerance):
        asked.append((len(results), looks, tolerance))
        return next(left)

    monkeypatch.setattr(module, "decide_best", decide)
    monkeypatch.setattr(module, "FIRST_LOOK", 50)
    return asked


OPEN = Decision(2, decided=False, close=False, rest=(3,))
CLOSE = Decision(2, decided=False, close=True, rest=(3,))
DECIDED = Decision(2, decided=True, close=True, rest=())
NONE = Decision(None, decided=False, close=False, rest=())


@pytest.mark.parametrize(
    ("found", "size", "because"),
    [
        ([DECIDED], 50, "state 2 is told apart from all others"),
        ([OPEN, CLOSE], 100, "not told apart from state 2 lie within 2% of it"),
        ([NONE, OPEN, DECIDED], 200, "state 2 is told apart"),
        ([OPEN, NONE, OPEN, OPEN], 240, "these are all there are"),
        ([NONE, NONE, NONE, NONE], 240, "these are all there are"),
    ],
)
def test_reading_stops_at_the_first_look_that_decides(monkeypatch, reader, found, size, because):
    asked = decisions(monkeypatch, *found)
    got = kept_states(reader, drawing(telling_task(n=240)), decide=DEFAULT)
    assert len(got.split) == size and because in got.because
    assert set(asked) == {(5, 4, 0.02)}  # 5 states, as many looks as there may be, 2 %
    assert got.looks == 4


def test_too_few_of_a_class_do_not_stop_the_reading(reader, forwarded):
    task = telling_task(n=240)
    rows = np.flatnonzero((task.train.labels == 0) | (np.arange(240) < 6))
    scarce = task.__class__(**vars(task) | {"train": task.train.take(rows)})
    found = kept_states(reader, drawing(scarce), decide=DEFAULT)
    assert found.because == "these are all there are"
    assert np.bincount(found.split.labels).tolist() == [120, 3]


def test_numbers_are_read_without_a_decision(reader):
    found = kept_states(reader, drawing(numbers_task(n=60)), decide=None)
    assert found.sample.labels.dtype == np.float64
    assert len(np.unique(found.sample.groups)) == 20


def test_a_split_that_cannot_be_drawn_is_refused(reader):
    with pytest.raises(InputError, match="at most 60"):
        kept_states(reader, drawing(telling_task(n=60), 61), decide=None)
