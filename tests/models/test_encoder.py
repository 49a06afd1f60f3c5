"""Every family: states against the library's own, cutting and resuming, tokens, faults."""

import numpy as np
import pytest
import torch

from conftest import MODELS, real
from inputs import expect_refused
from layerscout.models import Encoder, encoder as encoder_module
from tiny import SENTENCES, change_json, tiny_checkpoint

TEXTS = (*SENTENCES, "", "   ", "unseen ☃ glyphs ﷽ and [SEP] </s> [CLS] typed by hand", "a " * 300)


def check_states(encoder, found, texts, pairs=None, max_length=128, rtol=1e-4, atol=2e-5):
    """Compare states with those of the library, pooled over the text's own tokens."""
    for row, text in enumerate(texts):
        pair = None if pairs is None else pairs[row]
        states, special = plain_states(encoder, text, pair, max_length)
        ordinary = ~special if (~special).any() else special
        for level, state in enumerate(states):
            expected = state[ordinary].mean(0)
            torch.testing.assert_close(found[level, row], expected, rtol=rtol, atol=atol)


def plain_states(encoder, text, pair=None, max_length=128):
    """Return the states of one text from plain transformers: a list of (T, d), and its mask."""
    batch = encoder.tokenizer(
        text,
        pair,
        truncation=True,
        max_length=max_length,
        return_special_tokens_mask=True,
        return_tensors="pt",
    )
    special = batch.pop("special_tokens_mask")[0].bool()
    if not len(special):  # a decoder's tokenizer puts nothing around a text
        filler = [encoder.tokenizer.bos_token_id, encoder.tokenizer.eos_token_id]
        ids = torch.tensor([[next(token for token in filler if token is not None)]])
        batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        special = torch.ones(1, dtype=bool)
    last = []
    blocks = encoder.model.get_submodule(encoder.family.blocks)
    handle = blocks[-1].register_forward_hook(lambda _m, _a, out: last.append(out))
    with torch.no_grad():
        states = list(encoder.model(**batch, output_hidden_states=True).hidden_states)
    handle.remove()
    if encoder.family.final_norm:  # the library's last entry is normed already
        states[-1] = last[-1]
    return [state[0] for state in states], special


def test_states_are_the_library_s_pooled_over_ordinary_tokens(encoder):
    found = encoder.states(TEXTS)
    assert found.shape == (encoder.blocks + 1, len(TEXTS), 16)
    check_states(encoder, found, TEXTS)
    firsts, seconds = SENTENCES[:6], SENTENCES[6:12]
    found = encoder.states(firsts, seconds, max_length=24)
    check_states(encoder, found, firsts, seconds, max_length=24)


def test_first_token_pooling(encoder):
    found = encoder.states(TEXTS[:5], pooling="cls")
    for row, text in enumerate(TEXTS[:5]):
        states, _ = plain_states(encoder, text)
        for level in range(1, encoder.blocks + 1):
            torch.testing.assert_close(found[level, row], states[level][0], rtol=1e-4, atol=2e-5)


def test_one_pass_pools_in_several_ways_without_dropout(encoder):
    tokens, rows = encoder.tokenize(TEXTS), np.array([3, 17, 0, 18])
    passes, trained = [], {m for m in encoder.model.modules() if isinstance(m, torch.nn.ModuleList)}
    assert not encoder.model.training
    assert not any(p.requires_grad for p in encoder.model.parameters())
    expected = encoder.pool(tokens, rows), encoder.pool(tokens, rows, "cls")
    handle = encoder.model.register_forward_pre_hook(lambda *_: passes.append(1))
    for module in trained:
        module.train()
    mean, first, again = encoder.pool_each(tokens, rows, ("mean", "cls", "mean"))
    assert not encoder.model.training and all(module.training for module in trained)
    encoder.model.eval()
    handle.remove()
    assert len(passes) == 1
    assert torch.equal(mean, again) and torch.equal(mean, expected[0])
    assert torch.equal(first, expected[1]) and not torch.equal(mean, first)


def test_batching_does_not_matter_and_order_is_kept(encoder, monkeypatch):
    together = encoder.states(TEXTS)
    monkeypatch.setattr(encoder_module, "CPU_TOKENS", 1)  # each text alone, without padding
    torch.testing.assert_close(encoder.states(TEXTS), together, rtol=1e-4, atol=2e-5)
    backwards = encoder.states(TEXTS[::-1])
    torch.testing.assert_close(backwards.flip(1), together, rtol=1e-4, atol=2e-5)


def test_resuming_at_every_cut_gives_the_full_model(encoder):
    tokens = encoder.tokenize(TEXTS[:8])
    inputs = encoder.batch(tokens, np.arange(8))
    full = encoder.model(**inputs).last_hidden_state
    for block in range(encoder.blocks + 1):
        state = encoder.cut(inputs, block)
        assert torch.equal(encoder.resume(inputs, state, block), full), block
    assert torch.equal(encoder.model(**inputs).last_hidden_state, full)  # all is put back


@pytest.mark.parametrize("block", [-1, 5, True])
def test_blocks_that_there_are_not(bert, block):
    inputs = bert.batch(bert.tokenize(TEXTS[:2]), np.arange(2))
    words = f"`block` must be a whole number in 0..4, got {block}"
    expect_refused(words, bert.cut, inputs, block)
    expect_refused(words, bert.resume, inputs, bert.cut(inputs, 2), block)


def test_resuming_computes_from_the_state_alone_with_gradients(encoder):
    tokens = encoder.tokenize(TEXTS[:8])
    inputs = encoder.batch(tokens, np.arange(8))
    for block in range(encoder.blocks):
        state = torch.randn_like(encoder.cut(inputs, block)).requires_grad_()
        if block > 0:  # what the embeddings read is then of no consequence
            other = inputs | {"input_ids": inputs["input_ids"].flip(0)}
            torch.testing.assert_close(
                encoder.resume(other, state, block), encoder.resume(inputs, state, block)
            )
        encoder.resume(inputs, state, block).square().sum().backward()
        assert state.grad is not None and state.grad.abs().sum() > 0


def test_blocks_below_and_above_a_cut_do_not_run(encoder, monkeypatch):
    tokens = encoder.tokenize(TEXTS[:2])
    inputs = encoder.batch(tokens, np.arange(2))
    state = encoder.cut(inputs, 2)
    ran = []
    inner = [
        module
        for name, module in encoder.model.named_modules()
        if name.endswith(("attention", "attn")) and not name.endswith("attention.self")
    ]
    assert inner
    handles = [m.register_forward_hook(lambda *_: ran.append(1)) for m in inner]
    encoder.model(**inputs)
    whole, _ = len(ran), ran.clear()
    encoder.cut(inputs, 2)
    below, _ = len(ran), ran.clear()
    encoder.resume(inputs, state, 2)
    above = len(ran)
    for handle in handles:
        handle.remove()
    assert below == above == whole // 2


def test_unknown_tokens_count_and_typed_special_tokens_do_not_hide(tiny):
    encoder = Encoder.load(tiny)
    tokens = encoder.tokenize(["☃ cat", "cat [SEP] cat"])
    first = slice(*tokens.offsets[:2])
    assert encoder.tokenizer.unk_token_id in tokens.ids[first][tokens.ordinary[first]]
    # Typed by a person, [SEP] is a token of the text, though it has the id of the added one.
    added = np.flatnonzero(~tokens.ordinary[tokens.offsets[1] :])
    assert added.tolist() == [0, tokens.lengths[1] - 1]
    tokens = encoder.tokenize(["", "the cat", "a " * 50], max_length=20)
    assert (tokens.empty, tokens.cut, len(tokens)) == (1, (1, 32, 52), 3)
    assert tokens.lengths.max() == 20
    assert tokens.lengths.sum() == len(tokens.ids) == len(tokens.types) == len(tokens.ordinary)


def test_maximal_length_must_fit_the_model(tiny):
    for length in (0, 2, 161, 10**6):
        words = f"max_length must be in 3..160 … got {length}"
        expect_refused(words, Encoder.load(tiny).tokenize, ["a"], max_length=length)


def test_positions_after_padding_are_not_used(tmp_path):
    folder = tiny_checkpoint(tmp_path / "roberta", "roberta")
    # So that the position table is the limit.
    change_json(folder / "tokenizer_config.json", model_max_length=10**30)
    encoder = Encoder.load(folder)
    assert encoder.states(["the cat " * 200], max_length=160).isfinite().all()
    expect_refused("..160", encoder.states, ["the cat"], max_length=161)


def test_bfloat16_is_autocast_over_float32_weights(tiny):
    exact, low = Encoder.load(tiny), Encoder.load(tiny, precision="bfloat16")
    assert {p.dtype for p in low.model.parameters()} == {torch.float32}
    a, b = exact.states(TEXTS[:6]), low.states(TEXTS[:6])
    assert b.dtype == torch.float32
    assert not torch.equal(a[1:], b[1:])
    torch.testing.assert_close(a, b, rtol=0.1, atol=0.1)


@pytest.mark.parametrize(
    ("capabilities", "precision"),
    [
        ({"avx512_bf16": True, "amx_bf16": True}, "bfloat16"),
        ({"avx512_bf16": True, "amx_bf16": False, "cpu_name": "Intel Xeon"}, "float32"),
        ({"avx512_bf16": True, "cpu_name": "AMD EPYC"}, "bfloat16"),
        ({"avx512_bf16": False, "cpu_name": "AMD EPYC"}, "float32"),
        ({"avx2": True}, "float32"),
        ({}, "float32"),
    ],
)
def test_auto_takes_bfloat16_where_it_is_faster(tiny, monkeypatch, capabilities, precision):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    assert Encoder.load(tiny, device="cpu", precision="auto").precision == precision


def test_float16_needs_a_processor_that_computes_it(tiny, monkeypatch):
    options = {"device": "cpu", "precision": "float16"}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_fp16": True}, raising=False)
    assert Encoder.load(tiny, **options).precision == "float16"
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    expect_refused("float16 … bfloat16", Encoder.load, tiny, **options)


def test_a_device_that_is_not_there(tiny):
    expect_refused("device 'abacus' cannot be used", Encoder.load, tiny, device="abacus")


def test_a_device_that_runs_out_of_memory_gets_smaller_batches(tiny, monkeypatch):
    encoder = Encoder.load(tiny)
    expected, forward = encoder.states(TEXTS), encoder.model.forward
    sizes = []

    def small_device(limit):
        def run(input_ids, **inputs):
            sizes.append(len(input_ids))
            if len(input_ids) > limit:
                raise torch.OutOfMemoryError
            return forward(input_ids=input_ids, **inputs)

        return run

    monkeypatch.setattr(encoder.model, "forward", small_device(3))
    torch.testing.assert_close(encoder.states(TEXTS), expected, rtol=1e-4, atol=2e-5)
    assert max(sizes) > 3
    monkeypatch.setattr(encoder.model, "forward", small_device(0))
    expect_refused("128 tokens does not fit … --max-length", encoder.states, TEXTS)


def test_no_texts(tiny):
    for texts in ([], "one text"):
        expect_refused("must be a list of one or more texts", Encoder.load(tiny).states, texts)


def test_a_text_of_a_megabyte(tiny):
    assert Encoder.load(tiny).states(["the cat " * 130_000, "the cat"]).isfinite().all()


@pytest.mark.real
@pytest.mark.parametrize("name", MODELS)
def test_real_states_are_the_library_s(name):
    encoder = Encoder.load(real("models", name))
    check_states(encoder, encoder.states(SENTENCES), SENTENCES, rtol=1e-3, atol=1e-4)


def test_a_family_that_cannot_run_in_bfloat16_is_told_apart(tmp_path):
    folder = tiny_checkpoint(tmp_path / "deberta", "deberta")
    words = "deberta … does not run in bfloat16 … use float32"
    expect_refused(words, Encoder.load, folder, precision="bfloat16")
    assert Encoder.load(folder, precision="auto").precision == "float32"
