"""Kept states: computed once in one pass, found again, read one at a time, and never wrong."""

import json
import os
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from inputs import expect_refused
from kept import BOTH, LIMIT, TEXTS, left, passes
from layerscout.data import Task
from layerscout.models import Encoder, encoder as encoder_module
from layerscout.states import (
    States,
    cache_path,
    count_unfinished,
    fingerprint_encoder,
    fingerprint_task,
    list_cache,
    pool_states,
    pooled,
    store,
)
from tiny import EACH_FAMILY, tiny_checkpoint

STATES = 4 * 5 * 16 * len(TEXTS)  # bytes of 5 states of 16 numbers
SIZE = STATES + 16 * len(TEXTS)  # of a file, which has their names too
EVERY = ("mean", "mean-all", "cls")


@pytest.fixture(scope="module", params=EACH_FAMILY)
def family(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("families") / request.param
    return Encoder.load(tiny_checkpoint(folder, request.param))


@pytest.fixture
def encoder(tiny):
    return Encoder.load(tiny)


@pytest.fixture
def tokens(encoder):
    return encoder.tokenize(TEXTS)


@pytest.fixture
def small_batches(monkeypatch):
    """Make every pass one of many batches."""
    monkeypatch.setattr(encoder_module, "CPU_TOKENS", 40)


def read(states):
    """Read all states as an array, (S, n, d)."""
    return np.stack([states[s] for s in range(len(states))])


def check(result, encoder, texts=TEXTS, tolerance=2e-5):
    """Compare all that was kept with what the encoder gives for the texts."""
    for pooling, states in result.states.items():
        expected = encoder.states(texts, pooling=pooling).numpy()
        assert states.shape == expected.shape
        assert len(states) == len(expected)
        array = read(states)
        assert array.dtype == np.float32
        np.testing.assert_allclose(array, expected, rtol=tolerance, atol=tolerance)


def test_states_are_the_encoder_s(family):
    tokens = family.tokenize(TEXTS)
    computed = pool_states(family, tokens, BOTH, limit=LIMIT)
    result = pool_states(family, tokens, BOTH, limit=LIMIT)
    never = pool_states(family, tokens, BOTH, limit=0)
    assert (computed.cached, result.cached, never.cached) == (set(), set(BOTH), set())
    for one in (computed, result, never):
        assert tuple(one.states) == BOTH
        assert one.passed[0] == len(TEXTS) and one.passed[1] > 0
        assert one.warning is None
        check(one, family)


def test_one_pass_pools_in_all_ways_and_the_second_call_runs_nothing(
    encoder, tokens, small_batches
):
    batches, count, notes = len(encoder.batches(tokens)), passes(encoder), []
    assert batches > 10

    def show(stage, done, total, note):
        assert (stage, total) == ("all states, once", len(tokens.ids))
        notes.append((done, note))

    pool_states(encoder, tokens, BOTH, limit=LIMIT, show=show)
    assert len(count) == len(notes) == batches
    done, note = notes[-1]
    assert done == len(tokens.ids) and note.startswith("19 of 19 examples, ")
    for poolings in (BOTH, BOTH[::-1], ("cls",), ("mean", "mean"), ("mean-all",)):
        result = pool_states(encoder, tokens, poolings, limit=LIMIT, show=show)
        assert result.cached == set(result.states) == set(poolings)
    assert (len(count), len(notes)) == (batches, batches)
    check(pool_states(encoder, tokens, EVERY, limit=LIMIT), encoder)


def test_only_the_pooling_that_is_missing_is_computed(encoder, tokens):
    first = pool_states(encoder, tokens, limit=LIMIT)
    written = {entry.path: entry.path.stat().st_mtime_ns for entry in list_cache()}
    both = pool_states(encoder, tokens, BOTH, limit=LIMIT)
    assert both.cached == {"mean"}
    check(both, encoder)
    assert np.array_equal(read(both.states["mean"]), read(first.states["mean"]))
    assert sorted(entry.about["pooling"] for entry in list_cache()) == sorted(EVERY)
    assert all(path.stat().st_mtime_ns == changed for path, changed in written.items())


# What was kept before, and how many texts a call for all of them then runs.
PARTS = {
    "a fold": ([TEXTS[:4] + TEXTS[9:]], 5),
    "in another order": ([TEXTS[::-1]], 0),
    "folds that share rows": ([TEXTS[:9], TEXTS[5:13], TEXTS[3:18]], 1),
    "more than is read": ([(*TEXTS, "a dog", "the dog")], 0),
    "nothing of it": ([("a dog", "the dog")], len(TEXTS)),
}


@pytest.mark.parametrize("case", PARTS)
def test_examples_are_found_in_whatever_company_they_were_kept(encoder, case, monkeypatch):
    parts, missing = PARTS[case]
    for part in parts:
        pool_states(encoder, encoder.tokenize(part), limit=LIMIT)
    before, run = len(list_cache()), []
    each = Encoder.pool_each
    monkeypatch.setattr(
        Encoder, "pool_each", lambda self, t, rows, p: run.extend(rows) or each(self, t, rows, p)
    )
    tokens = encoder.tokenize(TEXTS)
    result = pool_states(encoder, tokens, limit=LIMIT)
    assert len(run) == missing and result.cached == (set() if missing else {"mean"})
    assert len(list_cache()) == before + (2 if missing else 0)
    again = pool_states(encoder, tokens, limit=LIMIT)
    assert again.cached == {"mean"} and len(run) == missing
    assert again.passed == result.passed and result.passed[0] >= len(TEXTS)
    check(result, encoder)
    assert np.array_equal(read(again.states["mean"]), read(result.states["mean"]))


@pytest.mark.parametrize("limit", [LIMIT, 0])
def test_equal_texts_are_computed_once(encoder, limit):
    count, texts = passes(encoder), ["the cat", "a dog", "the cat", "the cat", "a dog"]
    tokens = encoder.tokenize(texts)
    result = pool_states(encoder, tokens, limit=limit)
    assert [part.shape[1] for part in result.states["mean"].parts] == [2] and len(count) == 1
    check(result, encoder, texts)


def test_words_are_found_one_by_one(encoder, small_batches):
    sentences = [("the", "cat", "sat"), ("a", "dog"), ("the", "cat"), ("x " * 300, "the", "cat")]
    tokens = encoder.tokenize_words(sentences, max_length=30)
    words = np.arange(tokens.outputs)
    kept = pool_states(encoder, tokens.select(words[[1, 3, 6]]), ("first",), limit=LIMIT)
    assert kept.cached == set() and len(list_cache()) == 1
    count = passes(encoder)
    some = pool_states(encoder, tokens.select(words[[3, 6]]), ("first",), limit=LIMIT)
    assert some.cached == {"first"} and count == []
    every = pool_states(encoder, tokens, ("first", "mean"), limit=LIMIT)
    assert every.cached == set() and len(count) > 0
    for number in range(2):
        result = pool_states(encoder, tokens, ("first", "mean"), limit=LIMIT * (1 - number))
        assert result.cached == (set() if number else {"first", "mean"})
        for pooling, states in result.states.items():
            expected = np.empty(states.shape, np.float32)
            for row in range(len(tokens)):
                one = np.array([row])
                expected[:, tokens.find_outputs(one)] = encoder.pool(tokens, one, pooling).numpy()
            np.testing.assert_allclose(read(states), expected, rtol=2e-5, atol=2e-5)


def test_what_goes_from_the_cache_is_all_that_is_computed_again(encoder):
    halves = [encoder.tokenize(TEXTS[start : start + 10]) for start in (0, 10)]
    for half in halves:
        pool_states(encoder, half, limit=LIMIT)
    tokens, count = encoder.tokenize(TEXTS), passes(encoder)
    gone = [entry.path for entry in list_cache() if entry.about["texts"] == 9]
    for path in gone:
        path.unlink()
    ran = []
    result = pool_states(encoder, tokens, limit=LIMIT, show=lambda *shown: ran.append(shown[3]))
    assert len(count) == len(ran) and ran[-1].startswith("9 of 9 examples")
    assert {entry.path for entry in list_cache()} >= set(gone)  # under the same names
    check(result, encoder)


def test_two_that_compute_at_once_both_have_what_they_asked_for(encoder, small_batches):
    """What the other one writes meanwhile is the same entry, another that shares rows, or all."""
    tokens, others = encoder.tokenize(TEXTS), [TEXTS, TEXTS[4:12], TEXTS[::-1]]
    meanwhile = [encoder.tokenize(texts) for texts in others]

    def show(*_):
        if meanwhile:
            check(pool_states(encoder, meanwhile[0], limit=LIMIT), encoder, others.pop(0))
            meanwhile.pop(0)

    check(pool_states(encoder, tokens, limit=LIMIT, show=show), encoder)
    assert meanwhile == [] and pool_states(encoder, tokens, limit=LIMIT).cached == {"mean"}


PROGRAM = """
import os, sys
from layerscout.models import Encoder, encoder
from layerscout.states import pool_states
encoder.CPU_TOKENS = 40
model, stop, *texts = sys.argv[1:]
shown = []
def show(*note):
    shown.append(note)
    if len(shown) == int(stop):
        os._exit(9)
own = Encoder.load(model)
pool_states(own, own.tokenize(texts), limit=10**9, show=show)
print(shown[-1][3].split(",")[0] if shown else "nothing")
"""


@pytest.mark.whole
def test_processes_at_once_and_one_that_is_killed_half_way(tiny):
    def start(stop, texts):
        arguments = [sys.executable, "-c", PROGRAM, str(tiny), str(stop), *texts]
        return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)

    killed = start(3, TEXTS)
    assert killed.wait(timeout=120) == 9
    assert list_cache() == [] and count_unfinished()[0] > 0
    both = [start(-1, texts) for texts in (TEXTS[:12], TEXTS[6:])]
    assert all(process.communicate(timeout=120)[0] for process in both)
    assert [process.returncode for process in both] == [0, 0]
    last = start(-1, (*TEXTS, "a dog"))
    assert last.communicate(timeout=120)[0] == "1 of 1 examples\n"


def test_entries_of_earlier_versions_are_not_read_and_make_way(encoder, tokens):
    pool_states(encoder, tokens, limit=LIMIT)
    for number, entry in enumerate(list_cache()):
        about = {k: v for k, v in entry.about.items() if k != "encoder"}
        old = cache_path("states", f"{number:064}")
        entry.path.rename(old)
        entry.path.with_suffix(".json").unlink()
        old.with_suffix(".json").write_text(json.dumps(about))
        os.utime(old.with_suffix(".json"), (1, 1))
    assert pool_states(encoder, tokens, limit=3 * SIZE).cached == set()
    assert [entry.about.get("encoder") is None for entry in list_cache()] == [False, False]


def test_where_both_means_have_no_room_the_one_that_is_read_is_kept(encoder, tokens):
    count = passes(encoder)
    result = pool_states(encoder, tokens, ("mean-all",), limit=SIZE + 100)
    assert result.warning is None and len(count) == len(encoder.batches(tokens))
    assert [entry.about["pooling"] for entry in list_cache()] == ["mean-all"]
    check(result, encoder)


def test_the_entry_says_what_it_is(encoder, tokens):
    pool_states(encoder, tokens, BOTH, limit=LIMIT)
    told = {entry.about["pooling"]: dict(entry.about) for entry in list_cache()}
    assert {entry.path.stat().st_size for entry in list_cache()} == {SIZE}
    for pooling in EVERY:
        about = told[pooling]
        assert len(about.pop("sha256")) == 64
        assert about.pop("created").endswith("+00:00")
        assert about.pop("seconds") > 0
        assert about == {
            "kind": "states",
            "model": encoder.name,
            "encoder": fingerprint_encoder(encoder, 4),
            "pooling": pooling,
            "texts": len(TEXTS),
            "shape": [5, len(TEXTS), 16],
            "dtype": "float32",
            "bytes": SIZE,
        }


def test_the_seconds_are_those_of_the_forward_pass(encoder, tokens, small_batches, monkeypatch):
    ticks = iter(range(1000))
    monkeypatch.setattr(pooled, "perf_counter", lambda: next(ticks))
    pool_states(encoder, tokens, limit=LIMIT)
    assert {entry.about["seconds"] for entry in list_cache()} == {len(encoder.batches(tokens))}
    # Two readings of the clock for each batch, and none for hashing and writing.
    assert next(ticks) == 2 * len(encoder.batches(tokens))


@pytest.mark.parametrize("limit", [LIMIT, 0])
def test_the_arrays_are_not_for_writing(encoder, tokens, limit):
    (part,) = pool_states(encoder, tokens, limit=limit).states["mean"].parts
    assert isinstance(part, np.memmap) == (limit > 0)
    with pytest.raises(ValueError, match="read-only"):
        part[0, 0, 0] = 1


def test_bfloat16_keeps_float32(tiny):
    low = Encoder.load(tiny, precision="bfloat16")
    tokens = low.tokenize(TEXTS)
    result = pool_states(low, tokens, BOTH, limit=LIMIT)
    check(result, low)
    array = read(result.states["mean"])
    assert not np.array_equal(array, torch.from_numpy(array).bfloat16().float().numpy())


@pytest.mark.parametrize("limit", [LIMIT, 0])
def test_numbers_that_are_not_finite_are_kept(encoder, limit):
    encoder.model.embeddings.word_embeddings.weight.data[encoder.tokenizer.sep_token_id] = np.nan
    tokens = encoder.tokenize(["the cat"])
    for _ in range(2):
        states = pool_states(encoder, tokens, BOTH, limit=limit).states
        assert np.isfinite(read(states["cls"])).all(axis=2).ravel().tolist() == [True] + 4 * [False]
        assert not np.isfinite(read(states["mean"])[1:]).any()


def test_a_shorter_model_has_its_own_entries(encoder, tokens):
    pool_states(encoder, tokens, limit=LIMIT)
    short = Encoder.load(encoder.source)
    short.model.config.num_hidden_layers = 2
    short.model.encoder.layer = short.model.encoder.layer[:2]
    result = pool_states(short, tokens, limit=LIMIT)
    assert result.cached == set()
    assert result.states["mean"].shape == (3, len(TEXTS), 16)
    check(result, short)


def test_which_tokens_are_ordinary_matters(encoder, tokens):
    pool_states(encoder, tokens, BOTH, limit=LIMIT)
    every = replace(tokens, ordinary=np.ones_like(tokens.ordinary))
    result = pool_states(encoder, every, BOTH, limit=LIMIT)
    assert result.cached == set()
    means = encoder.pool(every, np.arange(len(every))).numpy()
    np.testing.assert_allclose(read(result.states["mean"]), means, rtol=2e-5, atol=2e-5)


def test_an_entry_that_goes_while_it_is_opened(encoder, tokens, monkeypatch):
    pool_states(encoder, tokens, limit=LIMIT)

    def found_and_gone(path, size):
        about = store.find_cached(path, size)
        path.unlink()
        return about

    monkeypatch.setattr(pooled, "find_cached", found_and_gone)
    again = pool_states(encoder, tokens, limit=LIMIT)
    assert (again.cached, again.warning) == ({"mean"}, None)
    check(again, encoder)


def test_what_was_found_does_not_make_way_for_what_is_missing(encoder, tokens):
    pool_states(encoder, tokens, limit=LIMIT)
    short = pool_states(encoder, tokens, BOTH, limit=SIZE + 1000)
    assert short.cached == {"mean"}
    assert short.warning.endswith("are needed; raise --cache-limit")
    check(short, encoder)
    assert {entry.about["pooling"] for entry in list_cache()} == {"mean", "mean-all"}


@pytest.fixture
def full():
    """Make the system's own writes fail behind so many bytes of a file."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, old[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, old)


def test_states_that_fit_nowhere_are_refused_before_they_are_computed(
    encoder, tokens, full, monkeypatch
):
    monkeypatch.setattr(pooled, "MEMORY", STATES)
    assert pool_states(encoder, tokens, limit=0).cached == set()
    count = passes(encoder)
    words = "1.22e-05 GB … 5 states of 19 examples, 16 numbers … 6.08e-06 GB that memory may hold"
    remedy = " … raise --cache-limit, or read fewer --examples"
    expect_refused(
        f"{words} … the cache is off{remedy}", pool_states, encoder, tokens, BOTH, limit=0
    )
    expect_refused(f"{words} … may hold 1e-09{remedy}", pool_states, encoder, tokens, BOTH, limit=1)
    assert count == []
    full(SIZE // 2)
    words += " … set LAYERSCOUT_CACHE to another folder, or read fewer --examples"
    expect_refused(words, pool_states, encoder, tokens, BOTH, limit=LIMIT)
    assert left() == []


def test_growing_samples_joined_are_the_whole(encoder, small_batches):
    sizes = [0, 4, 5, 19]
    parts = [
        pool_states(encoder, encoder.tokenize(TEXTS[start:stop]), limit=limit).states["mean"]
        for start, stop, limit in zip(sizes, sizes[1:], (LIMIT, 0, LIMIT), strict=False)
    ]
    whole = parts[0] + parts[1] + parts[2]
    other = parts[0] + (parts[1] + parts[2])
    assert whole.shape == (5, len(TEXTS), 16)
    expected = encoder.states(TEXTS).numpy()
    for states in (whole, other):
        np.testing.assert_allclose(read(states), expected, rtol=2e-5, atol=2e-5)
    rows = np.array([18, 3, 0, 4, 3])
    np.testing.assert_allclose(read(whole.take(rows)), expected[:, rows], rtol=2e-5, atol=2e-5)
    assert all(a is b for a, b in zip(whole.parts, (p.parts[0] for p in parts), strict=True))


@given(st.data())
def test_joining_and_taking_is_that_of_arrays(data):
    S, d = 3, 2
    count = st.integers(0, 6)
    joined, expected = None, None
    for number in range(data.draw(st.integers(1, 4))):
        n = data.draw(count)
        array = np.arange(S * n * d, dtype=np.float32).reshape(S, n, d) + 1000 * number
        rows = np.array(data.draw(st.permutations(range(n))), dtype=np.int64)
        states = States((array,), rows)
        joined = states if joined is None else joined + states
        array = array[:, rows]
        expected = array if expected is None else np.concatenate([expected, array], axis=1)
        if expected.shape[1] and data.draw(st.booleans()):
            places = st.integers(0, expected.shape[1] - 1)
            rows = np.array(data.draw(st.lists(places, max_size=8)), dtype=np.int64)
            joined, expected = joined.take(rows), expected[:, rows]
    assert joined.shape == expected.shape
    assert np.array_equal(read(joined), expected)


def test_long_states_are_read_in_pieces_by_several_threads(monkeypatch):
    monkeypatch.setattr(pooled, "CHUNK", 7)
    rng = np.random.default_rng(0)
    parts = [rng.standard_normal((6, n, 3), dtype=np.float32) for n in (50, 1, 34)]
    rows = rng.permutation(85)
    states = States(tuple(parts), rows)
    expected = np.concatenate(parts, axis=1)[:, rows]
    with ThreadPoolExecutor(4) as pool:
        result = list(pool.map(states.__getitem__, range(6)))
    assert np.array_equal(np.stack(result), expected)
    with pytest.raises(IndexError):
        states[6]


def test_tasks_differ_in_words_tags_and_sets_of_labels():
    tags = [["O", "B-X", "O"], ["O", "O"]]
    words = [["New York", "is", "big"], ["a", "b"]]
    others = [
        (words, tags),
        ([["New", "York is", "big"], ["a", "b"]], tags),  # the same text, cut elsewhere
        (words, [["O", "O", "B-X"], ["O", "O"]]),
        ([["New York", "is"], ["big", "a", "b"]], [["O", "B-X"], ["O", "O", "O"]]),
    ]
    result = {fingerprint_task(Task.from_lists(*lists)) for lists in others}
    assert len(result) == len(others)
    texts, labels = ["a", "b"], [["x"], ["x", "y"]]
    several = [fingerprint_task(Task.from_lists(texts, some)) for some in (labels, labels[::-1])]
    assert several[0] != several[1] == fingerprint_task(Task.from_lists(texts, labels[::-1]))
