"""What pooled states and trunks have in common: computed once, found again, and never wrong."""

import json
import resource
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch

from conftest import flip, real, truncate
from inputs import expect_refused
from kept import BOTH, LIMIT, ROWS, TEXTS, left, passes
from layerscout import files
from layerscout.models import Encoder
from layerscout.states import (
    cache_folder,
    fingerprint_encoder,
    fingerprints,
    list_cache,
    pool_states,
    pooled,
    run_trunk,
    store,
    trunks,
)
from tiny import SENTENCES


class Pooled:
    """All states of texts, pooled in two ways; an entry each of 5 states of 16 numbers.

    A third one has the other mean.
    """

    entries, module = 3, pooled
    unkept = "the states are held in memory and not kept", "1.28e-05"

    def __init__(self, encoder, tokens, progress=None, **options):
        self.encoder, self.tokens = encoder, tokens
        if progress:
            options["show"] = lambda *shown: progress(shown)
        result = pool_states(encoder, tokens, BOTH, **{"limit": LIMIT} | options)
        assert result.cached in (set(), set(BOTH)) and tuple(result.states) == BOTH
        self.cached, self.warning = bool(result.cached), result.warning
        self.arrays = {pooling: np.stack(list(kept)) for pooling, kept in result.states.items()}

    def check(self, tolerance=2e-5):
        """Compare all that was kept with what the encoder gives for the texts."""
        for pooling, array in self.arrays.items():
            assert array.dtype == np.float32
            every = np.arange(len(self.tokens))
            expected = self.encoder.pool(self.tokens, every, pooling).numpy()
            np.testing.assert_allclose(array, expected, rtol=tolerance, atol=tolerance)


class State:
    """State 2 of all tokens, in an entry of 16 numbers each."""

    entries, module, reads = 1, trunks, None
    unkept = "the states at the cut are computed again in every epoch", "3.36e-05"

    def __init__(self, encoder, tokens, **options):
        self.encoder, self.tokens = encoder, tokens
        self.trunk = run_trunk(encoder, tokens, 2, reads=self.reads, **options)
        self.cached, self.warning = self.trunk.cached, self.trunk.warning
        assert self.trunk.kept == (self.warning is None and options.get("limit") != 0)
        assert (self.trunk.bytes > 0) == self.trunk.kept

    def check(self, tolerance=2e-5):
        """Compare all that the trunk gives for some rows with a pass to the cut."""
        rows = ROWS if len(self.tokens) == len(TEXTS) else np.arange(len(self.tokens))
        inputs = self.encoder.batch(self.tokens, rows)
        self.encoder.model.eval()
        with torch.no_grad():
            state = self.encoder.cut(inputs, 2).float()
        mask = inputs["attention_mask"].bool()
        if self.reads == "first":
            state, mask = state[:, :1], mask[:, :1]
        result = self.trunk.states(rows)
        assert result.shape == state.shape and result.dtype == torch.float32
        assert result.isfinite().all() and not result.requires_grad
        torch.testing.assert_close(result[mask], state[mask], rtol=tolerance, atol=tolerance)


class FirstTokens(State):
    """State 2 of the first token of each text."""

    reads = "first"
    unkept = State.unkept[0], "1.22e-06"


@pytest.fixture(params=[Pooled, State, FirstTokens])
def keep(request):
    return request.param


@pytest.fixture
def encoder(bert):
    """Return an encoder of this test's own, to do something to."""
    return replace(bert, model=deepcopy(bert.model))


@pytest.fixture
def tokens(encoder):
    return encoder.tokenize(TEXTS)


@pytest.fixture
def full():
    """Make the system's own writes fail behind so many bytes of a file."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, old[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, old)


def lost(keep, encoder, tokens, **options):
    """Check that states are right though they cannot be kept; return the warning."""
    before, kept = left(), keep(encoder, tokens, **options)
    assert not kept.cached and left() == before
    kept.check()
    assert "\n" not in str(kept.warning)
    return kept.warning


# --- Found again ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        lambda e: e.model.pooler.dense.weight.data.add_(1),
        lambda e: e.model.config.update({"id2label": {0: "no"}, "hidden_dropout_prob": 0.3}),
        lambda e: e.model.requires_grad_(True).train(),
    ],
)
def test_what_lies_above_the_states_does_not_matter(keep, encoder, tokens, change):
    keep(encoder, tokens)
    change(encoder)
    count, seen = passes(encoder), []
    again = keep(replace(encoder, name="another"), tokens, progress=seen.extend)
    assert again.cached and count == seen == []
    again.check()


@pytest.mark.parametrize("limit", [LIMIT, 0])
def test_dropout_is_off_whatever_mode_the_model_is_in(keep, encoder, tokens, limit):
    encoder.model.train()
    encoder.model.pooler.eval()
    kept = keep(encoder, tokens, limit=limit)
    if keep is not Pooled:
        kept.trunk.states(ROWS)
    assert encoder.model.training and not encoder.model.pooler.training
    kept.check()


@pytest.mark.parametrize(
    "change",
    [
        lambda e: e.model.encoder.layer[1].output.dense.bias.data[3].add_(1e-6),
        lambda e: e.model.encoder.layer[0].attention.self.query.weight.data.mul_(2),
        lambda e: e.model.embeddings.word_embeddings.weight.data[-1, 3].add_(1e-6),
        lambda e: e.model.embeddings.position_ids.data[0, 0].add_(1),
        lambda e: e.model.config.update({"hidden_act": "relu"}),
        lambda e: e.model.set_attn_implementation("eager"),
    ],
)
def test_another_model_has_its_own_entries(keep, encoder, tokens, change):
    keep(encoder, tokens)
    change(encoder)
    assert not keep(encoder, tokens).cached
    assert len(list_cache()) == 2 * keep.entries


def test_other_tokens_precisions_and_versions_have_their_own_entries(
    keep, tiny, encoder, tokens, monkeypatch
):
    offsets = tokens.offsets.copy()
    offsets[1] += 1
    others = [
        replace(tokens, ids=np.where(tokens.ids == tokens.ids[5], 9, tokens.ids)),
        replace(tokens, types=1 - tokens.types),
        replace(tokens, offsets=offsets),
        encoder.tokenize(TEXTS, max_length=20),
    ]
    kept = [keep(encoder, one) for one in (tokens, *others)]
    kept.append(keep(Encoder.load(tiny, precision="bfloat16"), tokens))
    monkeypatch.setattr(fingerprints, "version", lambda _: "another")
    kept.append(keep(encoder, tokens))
    assert not any(one.cached for one in kept)
    assert len(list_cache()) == 7 * keep.entries
    # Only states of single tokens are kept by the whole table.
    for texts in (TEXTS[:-1], TEXTS[::-1]):
        other = keep(encoder, encoder.tokenize(texts))
        assert other.cached == (keep is Pooled)
        other.check()


def test_weights_are_hashed_once_or_not_at_all(keep, encoder, tokens, monkeypatch):
    hashed, known = [], fingerprint_encoder(encoder, 4 if keep is Pooled else 2)
    monkeypatch.setattr(keep.module, "fingerprint_encoder", lambda *of: hashed.append(of) or known)
    keep(encoder, tokens, limit=0)
    assert hashed == []
    keep(encoder, tokens)
    assert hashed == [(encoder, 4 if keep is Pooled else 2)]
    assert keep(encoder, tokens, fingerprint=known).cached and len(hashed) == 1


@pytest.mark.parametrize(
    ("suffix", "harm"),
    [
        (".bin", truncate),
        (".bin", flip),
        (".bin", lambda path: path.write_bytes(path.read_bytes() + b"more")),
        (".bin", lambda path: path.unlink()),
        (".json", lambda path: path.unlink()),
        (".json", lambda path: path.write_bytes(b"\xff\xfe")),
        (".json", lambda path: path.write_text("[" * 100_000)),
        (".json", lambda path: path.write_text("[1, 2]")),
        (".json", lambda path: path.write_text("{}")),
        (
            ".json",
            lambda path: path.write_text(json.dumps(json.loads(path.read_text()) | {"seconds": 0})),
        ),
    ],
)
def test_a_harmed_entry_is_computed_again(keep, encoder, tokens, suffix, harm):
    keep(encoder, tokens)
    before = left()
    for entry in list_cache():
        harm(entry.path.with_suffix(suffix))
    again = keep(encoder, tokens)
    assert (again.cached, again.warning) == (False, None)
    again.check()
    assert left() == before
    assert keep(encoder, tokens).cached


# --- Not kept ------------------------------------------------------------------------------------


def test_a_cache_that_is_off_holds_nothing_and_says_nothing(keep, encoder, tokens):
    assert lost(keep, encoder, tokens, limit=0) is None
    assert not cache_folder().exists()


def test_states_that_are_larger_than_the_cache(keep, encoder, tokens):
    assert keep(encoder, encoder.tokenize(["a dog"]), limit=1500).warning is None
    start, needed = keep.unkept
    assert lost(keep, encoder, tokens, limit=1200) == (
        f"{start}: the cache may hold 1.2e-06 GB, and {needed} GB are needed; raise --cache-limit"
    )


@pytest.mark.parametrize("fault", [KeyboardInterrupt, ValueError])
def test_a_stop_leaves_nothing_behind(keep, encoder, tokens, fault):
    def stop(_):
        raise fault

    with pytest.raises(fault):
        keep(encoder, tokens, progress=stop)
    assert left() == []


def test_a_disk_that_is_full_in_the_middle(keep, encoder, tokens, full):
    full(1000)
    warning = lost(keep, encoder, tokens)
    assert "cannot write to the cache" in warning
    assert warning.endswith("File too large; set LAYERSCOUT_CACHE to another folder")


def test_a_read_only_cache(keep, encoder, tokens, monkeypatch):
    keep(encoder, tokens)

    def refuse(*_, **__):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(files.tempfile, "mkstemp", refuse)
    monkeypatch.setattr(store.os, "utime", refuse)
    assert keep(encoder, tokens).cached
    warning = lost(keep, encoder, encoder.tokenize(["a dog"]))
    assert "Read-only file system; set LAYERSCOUT_CACHE" in warning


def test_a_cache_folder_that_cannot_be_made(keep, encoder, tokens):
    cache_folder().touch()
    assert "set LAYERSCOUT_CACHE to another folder" in lost(keep, encoder, tokens)


def test_memory_that_is_short_halves_the_batch(keep, encoder, tokens, monkeypatch):
    batch = Encoder.batch

    def small(self, tokens, rows):
        if len(rows) > limit:
            raise torch.OutOfMemoryError
        return batch(self, tokens, rows)

    monkeypatch.setattr(Encoder, "batch", small)
    limit = 3
    kept = keep(encoder, tokens)
    limit = 100
    kept.check()
    limit = 0
    words = "a text of 13 tokens does not fit into the memory of"
    another = " ".join(reversed(SENTENCES[0].split()))
    expect_refused(words, keep, encoder, encoder.tokenize([another]))
    assert len(list_cache()) == keep.entries


@pytest.fixture(scope="module")
def minilm():
    return Encoder.load(real("models", "all-MiniLM-L6-v2"))


@pytest.mark.real
def test_a_real_encoder(keep, minilm):
    for _ in range(2):
        keep(minilm, minilm.tokenize(TEXTS[:-1])).check(tolerance=2e-4)
