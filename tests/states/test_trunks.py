"""Trunks: the states at a cut, computed once, found again, and never wrong."""

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoModel

from kept import ROWS, TEXTS, left
from layerscout import files
from layerscout.models import Encoder, encoder as encoder_module
from layerscout.states import (
    ProcessGroup,
    cache_folder,
    list_cache,
    run_trunk,
    trunks,
)
from tiny import EACH_FAMILY, SENTENCES, tiny_checkpoint


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


def expected(encoder, tokens, rows, cut, reads=None):
    """Return what a pass to the cut gives, and which entries are real tokens."""
    inputs = encoder.batch(tokens, rows)
    with torch.no_grad():
        state = encoder.cut(inputs, cut).float()
    mask = inputs["attention_mask"].bool()
    if reads is None:
        return state, mask
    if reads == "mean":
        means = [one[real].mean(dim=0) for one, real in zip(state, mask, strict=True)]
        return torch.stack(means)[:, None], mask[:, :1]
    at = torch.zeros(len(rows), dtype=int) if reads == "first" else mask.sum(dim=1) - 1
    return state[torch.arange(len(rows)), at][:, None], mask[:, :1]


def check(kept, rows, state, mask, tolerance=2e-5):
    """Compare all that a trunk gives for some rows with what is expected."""
    result = kept.states(rows)
    assert result.shape == state.shape
    assert result.dtype == torch.float32
    assert result.isfinite().all()
    torch.testing.assert_close(result[mask], state[mask], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("reads", [None, "first", "last", "mean"])
def test_states_are_those_of_a_pass_to_the_cut(family, reads):
    tokens = family.tokenize(TEXTS)
    for cut in range(family.blocks + 1):
        given = [(r, *expected(family, tokens, r, cut, reads)) for r in (ROWS, np.array([16]))]
        computed = run_trunk(family, tokens, cut, reads=reads)
        result = run_trunk(family, tokens, cut, reads=reads)
        never = run_trunk(family, tokens, cut, reads=reads, limit=0)
        assert (computed.cached, result.cached, never.cached) == (False, True, False)
        assert (computed.kept, result.kept, never.kept) == (True, True, False)
        for one in (computed, result, never):
            for some in given:
                check(one, *some)


def test_cuts_and_the_tokens_that_are_read_have_their_own_entries(encoder, tokens):
    each = [(cut, reads) for cut in (1, 2) for reads in (None, "first", "last", "mean")]
    assert not any(run_trunk(encoder, tokens, cut, reads=reads).cached for cut, reads in each)
    assert len(list_cache()) == 8


def test_what_follows_the_cut_goes_on_from_the_states(family):
    tokens = family.tokenize(TEXTS)
    inputs = family.batch(tokens, ROWS)
    mask = inputs["attention_mask"].bool()
    whole = family.model(**inputs).last_hidden_state
    for cut in range(family.blocks + 1):
        for limit in (10**9, 0):
            state = run_trunk(family, tokens, cut, limit=limit).states(ROWS).requires_grad_()
            output = family.resume(inputs, state, cut)
            torch.testing.assert_close(output[mask], whole[mask], rtol=1e-4, atol=2e-5)
            (gradient,) = torch.autograd.grad(output[mask].square().sum(), state)
            assert gradient[mask].abs().sum() > 0
            assert gradient[~mask].abs().sum() == 0  # so the padding is read by nobody


def test_bfloat16_takes_two_bytes_a_number(tiny):
    low = Encoder.load(tiny, precision="bfloat16")
    tokens = low.tokenize(TEXTS)
    for kept in (
        run_trunk(low, tokens, 2),
        run_trunk(low, tokens, 2),
        run_trunk(low, tokens, 2, limit=0),
    ):
        check(kept, ROWS, *expected(low, tokens, ROWS, 2), tolerance=0.05)
        result = kept.states(ROWS)
        assert torch.equal(result, result.bfloat16().float())
    (entry,) = list_cache()
    assert entry.path.stat().st_size == 2 * 16 * len(tokens.ids)


def test_the_file_holds_the_real_tokens_and_the_entry_says_what_it_is(encoder, tokens):
    rows = []
    kept = run_trunk(encoder, tokens, 3, progress=rows.extend)
    assert sorted(rows) == sorted(tokens.lengths)
    (entry,) = list_cache()
    size = 4 * 16 * len(tokens.ids)
    assert kept.bytes == entry.path.stat().st_size == size
    assert size < entry.bytes < 1.05 * size
    told = dict(entry.about)
    assert len(told.pop("sha256")) == 64
    assert told.pop("created").endswith("+00:00")
    assert told.pop("seconds") == kept.seconds > 0
    assert told == {
        "kind": "trunk",
        "model": encoder.name,
        "cut": 3,
        "reads": None,
        "texts": len(TEXTS),
        "shape": [len(tokens.ids), 16],
        "dtype": "float32",
        "bytes": size,
    }


def shorter(encoder, **settings):
    """Load the encoder's checkpoint again with other settings, such as fewer blocks."""
    model = AutoModel.from_pretrained(encoder.source, **settings).eval()
    return replace(encoder, name="another name", model=model)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("bert", {"num_hidden_layers": 2}),
        ("bert", {"num_hidden_layers": 3, "num_labels": 5}),
        ("distilbert", {"n_layers": 3}),
        (
            "modernbert",
            {"num_hidden_layers": 2, "layer_types": ["full_attention", "sliding_attention"]},
        ),
    ],
)
def test_a_model_whose_head_moved_down_has_the_same_trunk(tmp_path, name, settings):
    encoder = Encoder.load(tiny_checkpoint(tmp_path / name, name))
    tokens = encoder.tokenize(TEXTS)
    run_trunk(encoder, tokens, 2)
    short = shorter(encoder, **settings)
    assert short.blocks < encoder.blocks
    assert run_trunk(short, tokens, 2).cached


def test_albert_s_groups_of_weights_count_by_the_blocks_that_use_them(tmp_path):
    encoder = Encoder.load(tiny_checkpoint(tmp_path / "albert", "albert", num_hidden_groups=2))
    tokens = encoder.tokenize(TEXTS)
    run_trunk(encoder, tokens, 2)
    groups = encoder.model.encoder.albert_layer_groups
    next(groups[1].parameters()).data.add_(1)  # of blocks 3 and 4
    assert run_trunk(encoder, tokens, 2).cached
    assert not run_trunk(shorter(encoder, num_hidden_layers=2), tokens, 2).cached  # uses both
    next(groups[0].parameters()).data.add_(1)
    assert not run_trunk(encoder, tokens, 2).cached


@pytest.mark.whole
def test_a_killed_run_leaves_nothing_that_could_be_taken_for_an_entry(tiny, encoder, tokens):
    code = """if True:
        import os, signal, sys
        from layerscout.models import Encoder
        from layerscout.states import run_trunk
        def stop(rows):
            os.kill(os.getpid(), signal.SIGKILL)
        encoder = Encoder.load(sys.argv[1])
        run_trunk(encoder, encoder.tokenize(sys.argv[2:]), 2, progress=stop)
    """
    run = subprocess.run([sys.executable, "-c", code, tiny, *TEXTS], check=False)
    assert run.returncode == -signal.SIGKILL
    temporaries = left()
    assert {name.rsplit(".")[-1] for name in temporaries} == {"bin", "json"}
    assert all(name.startswith(".") and ".layerscout-part." in name for name in temporaries)
    assert list_cache() == []
    run_trunk(encoder, tokens, 2)
    assert set(temporaries) < set(left())  # the other run may still be at it
    long_ago = files.time.time() - files.STALE - 1
    for path in cache_folder().glob("*/.*"):
        os.utime(path, (long_ago, long_ago))
    run_trunk(encoder, tokens, 1)
    assert set(temporaries) & set(left()) == set()
    assert len(list_cache()) == 2


def test_first_tokens_of_many_texts_are_computed_in_small_batches(encoder, monkeypatch):
    monkeypatch.setattr(encoder_module, "CPU_TOKENS", 40)
    tokens = encoder.tokenize(SENTENCES)
    expected = run_trunk(encoder, tokens, 2, reads="first").states(np.arange(len(tokens)))
    sizes = []
    original = Encoder.batch

    def batch(self, *arguments):
        inputs = original(self, *arguments)
        sizes.append(inputs["input_ids"].numel())
        return inputs

    monkeypatch.setattr(Encoder, "batch", batch)
    rows = np.array([3, 0, 15, 7, 3])
    anew = run_trunk(encoder, tokens, 2, reads="first", limit=0)
    assert torch.allclose(anew.states(rows), expected[rows], atol=1e-5)
    assert len(sizes) > 1 and max(sizes) <= 40


def test_what_is_in_use_does_not_make_way(encoder):
    training, validation = encoder.tokenize(SENTENCES[:8]), encoder.tokenize(SENTENCES[8:])
    first = run_trunk(encoder, training, 2)
    size = encoder.model.config.hidden_size * 4
    limit = max(first.bytes, int(validation.lengths.sum()) * size) + 1000
    second = run_trunk(encoder, validation, 2, limit=limit, spare=first)
    assert not second.kept and "--cache-limit" in second.warning
    assert run_trunk(encoder, training, 2).cached
    assert run_trunk(encoder, validation, 2, limit=limit).kept
    assert not run_trunk(encoder, training, 2).cached


def team_of(size):
    """Make processes that are threads here."""
    barrier, said = threading.Barrier(size), [None] * size

    def member(own):
        def meet(mine):
            said[own] = mine
            barrier.wait(timeout=60)
            heard = list(said)
            barrier.wait(timeout=60)
            return heard

        return ProcessGroup(own, size, meet)

    return [member(own) for own in range(size)]


def together(size, work, tiny):
    """Run work for every member of a team at the same time; give what each gives.

    The encoders are loaded beforehand: while a model loads, transformers 5.23 replaces the method
    that ties weights of all models, and two threads that do so at once leave it replaced.
    """
    encoders = [Encoder.load(tiny) for _ in range(size)]
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(work, encoders, team_of(size)))


@pytest.mark.parametrize("size", [2, 3])
def test_several_processes_compute_a_part_each(tiny, tokens, monkeypatch, cache, size):
    monkeypatch.setattr("layerscout.models.encoder.CPU_TOKENS", 40)
    alone = run_trunk(Encoder.load(tiny), tokens, 2)
    expected = alone.path.read_bytes()
    alone.path.unlink()
    computed, numbers = [], trunks.TrunkSource.numbers

    def noting(self, rows):
        computed.append(rows)
        return numbers(self, rows)

    monkeypatch.setattr(trunks.TrunkSource, "numbers", noting)
    result = together(size, lambda one, team: run_trunk(one, tokens, 2, group=team), tiny)
    assert all(one.kept and not one.cached for one in result)
    assert result[0].path.read_bytes() == expected
    assert sorted(np.concatenate(computed)) == list(range(len(tokens)))
    computed.clear()
    result = together(size, lambda one, team: run_trunk(one, tokens, 2, group=team), tiny)
    assert all(one.cached for one in result) and not computed
    assert not list(cache.rglob(".*"))


@pytest.mark.parametrize("culprit", [0, 1])
def test_a_process_that_cannot_write_leaves_all_without(tiny, tokens, monkeypatch, cache, culprit):
    write = trunks._write_part

    def full(team, *given):
        if team.own == culprit:
            raise OSError(28, "No space left on device")
        write(team, *given)

    monkeypatch.setattr(trunks, "_write_part", full)
    result = together(2, lambda one, team: run_trunk(one, tokens, 2, group=team), tiny)
    assert not any(one.kept for one in result)
    assert all("No space left" in one.warning for one in result)
    assert not [path for path in cache.rglob("*") if path.is_file()]


def test_a_first_process_without_room_leaves_all_without(tiny, tokens):
    result = together(2, lambda one, team: run_trunk(one, tokens, 2, limit=1, group=team), tiny)
    assert not any(one.kept for one in result)
    assert "the cache may hold" in result[0].warning
