"""Scoring kept states: state by state, on several threads, each score on its own feet."""

import threading
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch

from layerscout.errors import InputError
from layerscout.scanning import Sample, estimate_states, score_states
from layerscout.scores import arrays
from layerscout.scores.estimates import find_separable
from layerscout.scores.grouping import deal_groups
from layerscout.scores.neighbours import mutual_information
from layerscout.scores.table import SCORES
from layerscout.states import States
from reference import similarity as naive

DEBIASED = "variability_ratio_debiased"

OF_STATES = tuple(key for key, row in SCORES.items() if row.source in ("moments", "state"))
ALL = (*OF_STATES, "cka_change")


def material(n=240, S=5, d=6, K=2, seed=0, y=None):
    """Kept states with more and more noise, and the sample that belongs to them."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % K if y is None else y
    centres = rng.normal(size=(K, d))
    signal = centres[y] if y.dtype.kind == "i" else np.outer(y, centres[0])
    H = np.stack([signal + (1 + s) * rng.normal(size=(n, d)) for s in range(S)])
    H = H.astype(np.float32)
    sample = Sample(y, deal_groups(y, seed), seed, None, first=0)
    return H, States((H,), np.arange(n)), sample


@pytest.fixture
def threads():
    """Let torch have three threads, and give it back what it had."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield 3
    torch.set_num_threads(before)


def test_every_state_has_the_value_of_its_array():
    H, states, sample = material()
    found, broken = score_states(states, sample, ALL)
    assert (tuple(found), broken) == (ALL, [])
    for key in OF_STATES:
        expected = [getattr(arrays, key)(state, sample.labels) for state in H]
        assert found[key].values == pytest.approx(expected, rel=1e-5)
        assert (found[key].of, found[key].better) == (SCORES[key].of, SCORES[key].better)
    change = found["cka_change"]
    assert (change.of, change.better, change.values[0]) == ("blocks", "higher", None)
    expected = [1 - naive.cka(*H[s - 1 : s + 1].astype(float)) for s in range(1, 5)]
    assert change.values[1:] == pytest.approx(expected, rel=1e-9)


def test_numbers_are_scored_too():
    y = np.random.default_rng(0).normal(size=240)
    H, states, sample = material(y=y)
    keys = [key for key in OF_STATES if SCORES[key].numbers]
    found, _ = score_states(states, sample, keys)
    for key in keys:
        expected = [getattr(arrays, key)(state, y, regression=True) for state in H]
        assert found[key].values == pytest.approx(expected, rel=1e-5)


def test_the_order_of_the_rows_is_that_of_the_sample():
    _, states, sample = material()
    order = np.random.default_rng(1).permutation(240)
    shuffled = Sample(sample.labels[order], sample.groups[order], 0, None, 0)
    keys = ("variability_ratio", DEBIASED, "cca", "logme", "knn", "cka_change")
    first, _ = score_states(states, sample, keys)
    again, _ = score_states(states.take(order), shuffled, keys)
    for key in keys:
        assert again[key].values[1:] == pytest.approx(first[key].values[1:], rel=1e-5)


def test_intervals_and_separation_belong_to_the_debiased_ratio():
    _, states, sample = material(n=600)
    results = estimate_states(DEBIASED, states, sample)
    (once, _), (often, _) = (
        score_states(states, sample, [DEBIASED], looks=looks) for looks in (1, 10**6)
    )
    score = once[DEBIASED]
    assert score.values == tuple(result.value for result in results)
    assert list(zip(score.low, score.high, strict=True)) == [r.interval() for r in results]
    assert (np.array(score.low) < score.values).all()
    assert (np.array(score.high) > score.values).all()
    assert score.details["signal_fraction"] == [result.signal_fraction for result in results]
    assert score.details["level"] == 0.95
    assert score.details["separable_from_best"] == find_separable(results, score.best())
    assert any(score.details["separable_from_best"])
    # The more looks there were, the less is told apart.
    assert not any(often[DEBIASED].details["separable_from_best"])


def test_no_signal_has_no_best_and_nothing_that_is_separable():
    H, _, sample = material()
    noise = np.repeat(H[:, :120], 2, axis=1)  # the same in both classes
    found, broken = score_states(States((noise,), np.arange(240)), sample, [DEBIASED])
    score = found[DEBIASED]
    assert score.best() is None and not broken
    assert set(score.low) == set(score.high) == {None}
    assert "separable_from_best" not in score.details and "refused" not in score.details


def test_a_score_that_refuses_says_why_and_leaves_the_others_alone():
    _, states, sample = material(n=7, S=3)
    found, broken = score_states(states, sample, ALL)
    refusing = {key for key, score in found.items() if "refused" in score.details}
    assert refusing == {DEBIASED, "cca", "ridge", "mutual_information"}
    assert not broken
    for key in refusing:
        assert set(found[key].values) == {None} and len(found[key].values) == 3
        assert found[key].best() is None
        with pytest.raises(InputError) as reason:
            getattr(arrays, key)(states[0], sample.labels)
        assert found[key].details == {"refused": str(reason.value)}
    for key in set(ALL) - refusing:
        assert None not in found[key].values[1:]
    with pytest.raises(InputError, match="class 1 has 3"):
        estimate_states(DEBIASED, states, sample)


def test_states_that_are_not_finite_are_named_and_the_others_scored():
    H, _, sample = material()
    whole, _ = score_states(States((H,), np.arange(240)), sample, ALL)
    H[1, 3, 2], H[4, 0, 0] = np.nan, np.inf
    found, broken = score_states(States((H,), np.arange(240)), sample, ALL)
    assert broken == [1, 4]
    for key in OF_STATES:
        assert [value is None for value in found[key].values] == [s in broken for s in range(5)]
        for s in (0, 2, 3):
            assert found[key].values[s] == whole[key].values[s]
        assert "refused" not in found[key].details
    assert found[DEBIASED].low[1] is None and found[DEBIASED].low[2] is not None
    assert "not finite" in found["cka_change"].details["refused"]
    results = estimate_states(DEBIASED, States((H,), np.arange(240)), sample)
    assert [result is None for result in results] == [False, True, False, False, True]


def test_a_state_that_is_the_same_for_every_example_is_left_out():
    H, _, sample = material()
    H[0] = H[0, 0]
    later = Sample(sample.labels, sample.groups, 0, None, first=1)
    found, broken = score_states(States((H,), np.arange(240)), later, ALL)
    assert not broken
    for key in OF_STATES:
        assert [value is None for value in found[key].values] == [True, *[False] * 4]
    # Block 1 has nothing to change; the entry of the embeddings is empty in any case.
    assert [v is None for v in found["cka_change"].values] == [True, True, False, False, False]
    assert [v is None for v in found["cka_change"].details["debiased"]][:3] == [True, True, False]


def test_choices_of_an_example_are_no_neighbours_and_are_held_out_together():
    H, states, sample = material(n=400)
    # The two rows of an example are all but the same, and of different classes.
    H[:, 1::2] = H[:, ::2] + 1e-3
    examples = np.arange(400) // 2
    groups = deal_groups(sample.labels, 0, examples)
    together = Sample(sample.labels, groups, 0, examples, 0)
    keys = ("knn", "mutual_information")
    apart, _ = score_states(states, sample, keys)
    found, _ = score_states(states, together, keys)
    assert (np.array(found["knn"].values) > np.array(apart["knn"].values) + 0.02).all()
    expected = [mutual_information(np.float64(state), sample.labels, 0, examples) for state in H]
    assert found["mutual_information"].values == pytest.approx(expected)


def test_progress_counts_the_states():
    _, states, sample = material()
    seen = []
    score_states(states, sample, ["nc1"], progress=lambda *of: seen.append(of))
    assert seen == [(s, 5) for s in range(1, 6)]


def test_the_number_of_threads_changes_nothing(threads):
    _, states, sample = material(n=500, d=12)
    several, _ = score_states(states, sample, ALL)
    torch.set_num_threads(1)
    alone, _ = score_states(states, sample, ALL)
    assert several == alone


def test_states_are_scored_on_several_threads_of_one_each(threads, monkeypatch):
    _, states, sample = material()
    seen, together = {}, threading.Barrier(threads, timeout=20)
    arrived = threading.Semaphore(threads)

    def watched(state):
        if arrived.acquire(blocking=False):  # the first of every thread wait for each other
            together.wait()
        seen[threading.get_ident()] = torch.get_num_threads()
        return arrays.variability_ratio(state.states, state.labels)

    row = replace(SCORES["numerical_rank"], compute=watched)
    monkeypatch.setitem(SCORES, "numerical_rank", row)
    score_states(states, sample, ["numerical_rank"])
    assert len(seen) == threads and set(seen.values()) == {1}
    assert threading.get_ident() not in seen


@pytest.mark.parametrize("fault", [None, KeyboardInterrupt])
def test_threads_are_given_back(threads, fault):
    _, states, sample = material()
    before = torch.__config__.parallel_info()

    def stop(*_):
        if fault:
            raise fault

    with pytest.raises(fault) if fault else nullcontext():
        score_states(states, sample, ALL, progress=stop)
    estimate_states(DEBIASED, states, sample)
    assert torch.get_num_threads() == threads
    assert torch.__config__.parallel_info() == before
    # A thread that starts afterwards has as many, too.
    later = []
    thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert later == [threads]
