"""What decoders have that encoders do not: the last token, padding, pairs; and unknown families."""

import copy
import json
import re
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    LlamaForCausalLM,
)

import layerscout as ls
from conftest import whole_only
from inputs import expect_refused
from layerscout.data import Task, ensure_validation
from layerscout.models import (
    FAMILIES,
    Encoder,
    apply_edits,
    check_family,
    make_trainable,
    read_token,
    truncate,
)
from layerscout.models.architecture import family_of
from layerscout.models.devices import quiet_transformers
from layerscout.models.guessing import guess_family
from layerscout.plans import (
    EditSpec,
    block_weights,
    make_edits,
    make_method,
    usual_pooling,
)
from layerscout.studies import Store, TrialContext
from telling import telling_task
from tiny import SENTENCES, change_json, logits_of, tiny_checkpoint, tiny_tokenizer
from tuned import cheaply, load


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return load(tmp_path_factory.mktemp("decoder"), "llama")


# The last token


def test_the_last_ordinary_token_is_pooled(encoder, tmp_path):
    found = encoder.states(SENTENCES, pooling="last")
    for row, text in enumerate(SENTENCES):
        inputs = encoder.tokenizer(text, return_tensors="pt", return_token_type_ids=False)
        for level in range(encoder.blocks + 1):
            state = encoder.cut(inputs, level)[0, -1]
            torch.testing.assert_close(found[level, row], state, rtol=1e-4, atol=2e-5)
    bert = load(tmp_path)  # whose tokenizer adds a token at the end
    found = bert.states(SENTENCES[:2], pooling="last")[0]
    for row, text in enumerate(SENTENCES[:2]):
        inputs = bert.tokenizer(text, return_tensors="pt")
        torch.testing.assert_close(found[row], bert.cut(inputs, 0)[0, -2])


@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_padding_on_either_side_and_none_agree(encoder, pooling):
    texts = SENTENCES[:6]
    found = encoder.states(texts, pooling=pooling)
    alone = torch.cat([encoder.states([text], pooling=pooling) for text in texts], dim=1)
    assert (found - alone).abs().max() <= 1e-4
    left = AutoTokenizer.from_pretrained(encoder.source, padding_side="left")
    inputs = left(list(texts), padding=True, return_tensors="pt", return_token_type_ids=False)
    weights = (inputs["attention_mask"] * (inputs["input_ids"] != left.bos_token_id)).float()
    if pooling == "last":
        weights[:, :-1] = 0
    for level in range(encoder.blocks + 1):
        state = encoder.cut(inputs, level)
        pooled = (state * weights[:, :, None]).sum(1) / weights.sum(1, keepdim=True)
        assert (pooled - found[level]).abs().max() <= 1e-4


def test_find_read_skips_padding_tokens_at_the_end(encoder):
    tokens = encoder.tokenize(["a </s>", "</s>", "a cat", "</s> a </s> </s>"])
    ends = tokens.find_head_tokens("last", encoder.tokenizer.eos_token_id)
    for row, place in enumerate(ends):
        ids = tokens.ids[tokens.offsets[row] : tokens.offsets[row + 1]]
        others = np.flatnonzero(ids != encoder.tokenizer.eos_token_id)
        assert place == (others[-1] if len(others) else 0)


# Padding tokens, pairs, empty texts


@pytest.fixture
def poor(tmp_path):
    """Return a checkpoint without a padding token."""
    folder = tiny_checkpoint(tmp_path / "poor", "llama")
    change_json(folder / "config.json", pad_token_id=...)
    return change_json(folder / "tokenizer_config.json", pad_token=...)


def test_a_missing_padding_token_is_borrowed_and_exported(poor, tmp_path):
    encoder = Encoder.load(poor)
    [note] = encoder.notes
    assert "no padding token; its end-of-text token </s>" in note
    result = cheaply(encoder, telling_task(n=40), "(2, 3, 3)", epochs=1)
    assert note in result.content["warnings"]
    result.save(tmp_path / "out")
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out" / "model")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out" / "model")
    assert tokenizer.pad_token == "</s>" and model.config.pad_token_id == tokenizer.pad_token_id
    assert tokenizer.padding_side == "right" and model.config.num_hidden_layers == 3
    inputs = tokenizer(list(SENTENCES[:2]), padding=True, return_tensors="pt")
    for logits, text in zip(logits_of(model, inputs), SENTENCES[:2], strict=True):
        alone = logits_of(model, tokenizer(text, return_tensors="pt"))[0]
        torch.testing.assert_close(logits, alone, rtol=0, atol=1e-5)
    truncate(poor, 2, tmp_path / "short")
    assert AutoConfig.from_pretrained(tmp_path / "short").pad_token_id == tokenizer.pad_token_id
    change_json(poor / "tokenizer_config.json", eos_token=...)
    expect_refused("has no padding token; give it one and save it", Encoder.load, poor)


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_a_line_break_stands_between_the_texts_of_a_pair(family, tmp_path):
    encoder = Encoder.load(tiny_checkpoint(tmp_path / family, family))
    broken = encoder.tokenizer("a cat\na dog")["input_ids"]
    assert encoder.tokenizer("a cat", "a dog")["input_ids"] == broken
    tokens = encoder.tokenize(["a cat"], ["a dog"])
    between = tokens.ids == encoder.tokenizer("\n", add_special_tokens=False)["input_ids"][-1]
    assert between.sum() == 1 and not tokens.ordinary[between].any()
    truncate(tmp_path / family, 2, tmp_path / "short")
    again = AutoTokenizer.from_pretrained(tmp_path / "short")
    assert again("a cat", "a dog")["input_ids"] == broken
    assert again("a cat")["input_ids"] == encoder.tokenizer("a cat")["input_ids"]


def test_a_tokenizer_class_with_pairs_of_its_own_is_exported_as_a_plain_one(tmp_path):
    """GPTNeoXTokenizer makes what is between the texts anew whenever it is loaded."""
    folder = tiny_checkpoint(tmp_path / "base", "gpt_neox")
    change_json(folder / "tokenizer_config.json", tokenizer_class="GPTNeoXTokenizer")
    expected = Encoder.load(folder).tokenizer("a cat", "a dog")
    truncate(folder, 2, tmp_path / "short")
    again = AutoTokenizer.from_pretrained(tmp_path / "short")
    assert dict(again("a cat", "a dog")) == dict(expected)
    assert len(again("a cat", "a dog")["input_ids"]) > len(again("a cata dog")["input_ids"])


@pytest.mark.parametrize(
    "options",
    [{"method": "adapter"}, {"method": "lora", "keep_adapter": True}],
    ids=["adapter", "kept"],
)
def test_a_small_folder_has_the_tokenizer_that_it_was_trained_with(options, poor, tmp_path):
    encoder, task = Encoder.load(poor), telling_task(n=40)
    result = cheaply(encoder, task, "(2, 3, 3)", epochs=1, **options)
    result.save(tmp_path / "out")
    saved = tmp_path / "out" / "model"
    card = (saved / "README.md").read_text()
    usage = card.split("```python\n")[1].split("```")[0].replace("path/to/this/folder", str(saved))
    names: dict[str, Any] = {}
    exec(usage.replace("path/to/the/base/model", str(poor)), names)
    model, tokenizer = names["model"], names.get("tokenizer")
    if tokenizer is None:  # layerscout's own, which holds both
        model, tokenizer = model.model, model.encoder.tokenizer
    assert tokenizer.pad_token == "</s>"
    check_reported(result, task, model, tokenizer)


def check_reported(result, task, model, tokenizer):
    """Compare the logits of a model, as others load it, with those that a tuning reported."""
    texts = list(ensure_validation(task, 0).validation.texts[:8])
    found = logits_of(model, tokenizer(texts, padding=True, return_tensors="pt"))
    reported = np.array([list(row) for row in result.predictions["logits"]][:8])
    np.testing.assert_allclose(found.numpy(), reported, atol=1e-5)


def test_an_empty_text_has_a_token(tmp_path):
    encoder = load(tmp_path, "qwen2")
    tokens = encoder.tokenize(["", "a cat"])
    assert tokens.lengths[0] == 1 and tokens.empty == 1
    for pooling in ("mean", "last", "cls"):
        assert encoder.states(["", "a cat"], pooling=pooling).isfinite().all()


@pytest.mark.parametrize(("family", "token"), [("qwen2", "<s>"), ("gpt2", "</s>"), ("llama", None)])
def test_the_card_says_how_an_empty_text_was_read(family, token, tmp_path):
    """A model cannot run on no token, which is all that some tokenizers make of an empty text."""
    encoder = load(tmp_path / "base", family)
    rows = [*SENTENCES[:7], ""], list("ab" * 4)
    result = cheaply(encoder, Task.from_lists(*rows, validation=rows), "top:1", epochs=1)
    result.save(tmp_path / "out")
    folder = tmp_path / "out" / "model"
    card = (folder / "README.md").read_text()
    assert (f'give "{token}" in its place' in card) == (token is not None)
    assert result.content["empty_text"] == token
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    logits = logits_of(model, tokenizer(token or "", return_tensors="pt"))
    reported = list(result.predictions["logits"])[rows[0].index("")]
    np.testing.assert_allclose(logits[0].numpy(), reported, atol=1e-5)


@pytest.mark.parametrize(
    ("lacking", "between"),
    [({"eos_token": ...}, "<s>"), ({"eos_token": ..., "bos_token": ...}, "<pad>"), ({}, "</s>")],
)
def test_pairs_where_a_line_break_makes_no_token(lacking, between, tmp_path):
    base = tiny_checkpoint(tmp_path / "base", "llama")
    path = base / "tokenizer.json"
    written = json.loads(path.read_text())
    written["normalizer"] = {"type": "Strip", "strip_left": True, "strip_right": True}
    written["post_processor"] = None
    path.write_text(json.dumps(written))
    change_json(base / "tokenizer_config.json", **lacking)
    tokenizer = Encoder.load(base).tokenizer
    ids = tokenizer("a cat", "a dog")["input_ids"]
    alone = [tokenizer(text)["input_ids"] for text in (between, "a cat", "a dog")]
    assert ids == [*alone[1], *alone[0], *alone[2]]


# Checkpoints


def test_a_language_model_with_tied_embeddings_is_truncated(tmp_path):
    folder = tiny_checkpoint(tmp_path / "base", "llama")
    config = AutoConfig.from_pretrained(folder)
    config.tie_word_embeddings = True
    torch.manual_seed(0)
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    change_json(folder / "config.json", use_cache=True)
    whole = LlamaForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        inputs = tiny_tokenizer("llama")(SENTENCES[0], return_tensors="pt")
        inputs.pop("token_type_ids", None)
        (said,) = truncate(folder, 2, tmp_path / "short")
        assert "norm" in said and "now reads state 2" in said
        short = LlamaForCausalLM.from_pretrained(tmp_path / "short")
        assert short.dtype == torch.bfloat16 and len(short.model.layers) == 2
        assert short.config.use_cache
        assert short.lm_head.weight is short.model.embed_tokens.weight
        states = whole(**inputs, output_hidden_states=True).hidden_states
        found = short(**inputs, output_hidden_states=True).hidden_states
    torch.testing.assert_close(found[1], states[1], rtol=0, atol=0)


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"quantization_config": {"quant_method": "gptq"}}, "quantised weights … made from"),
        ({"model_type": "t5", "is_encoder_decoder": True}, "encoder–decoder (t5)"),
        ({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text"}}, "save its lang"),
        ({"model_type": "mine", "auto_map": {"AutoModel": "mine.Model"}}, "needs its own code"),
        ({"model_type": "cohere"}, "of the family cohere, for which … no head … neither tuned"),
        ({"model_type": "bart"}, "encoder–decoder (bart), which has two stacks of blocks"),
        ({"model_type": "vit"}, "of the family vit, for which … no head for classes"),
        ({"model_type": "wav2vec2"}, "of the family wav2vec2, for which … no head for classes"),
        ({"model_type": "clip"}, "reads more than text (clip)"),
    ],
)
def test_what_is_no_stack_of_blocks_in_floating_point(entries, words, tmp_path):
    folder = tiny_checkpoint(tmp_path / "other", "llama")
    change_json(folder / "config.json", **entries)
    line = expect_refused(words, Encoder.load, folder)
    assert "albert" not in line  # a reason, and no list of families


def test_gguf_is_refused_by_name(tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    for name in (tmp_path, tmp_path / "model.gguf"):
        expect_refused("quantised weights (GGUF) … gguf_file", Encoder.load, name)


# Families that the table does not have

TRIED = ["phi", *whole_only("bloom", "opt", "smollm3", "modernbert-decoder", "ernie", "gemma")]


@pytest.fixture
def unknown(tmp_path):
    """Return a function that makes a checkpoint of a family which the table does not have."""

    def make(family, **settings):
        tokenizer, folder = tiny_tokenizer("llama"), tmp_path / f"{family}-{len(settings)}"
        sizes = {"vocab_size": len(tokenizer), "hidden_size": 16, "num_hidden_layers": 4}
        sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 32}
        sizes |= {"max_position_embeddings": 160, "pad_token_id": tokenizer.pad_token_id}
        sizes |= {"bos_token_id": 1, "eos_token_id": 2}
        with quiet_transformers():
            torch.manual_seed(0)
            config = AutoConfig.for_model(family, **(sizes | settings))
            AutoModel.from_config(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder

    return make


@pytest.mark.parametrize("family", TRIED)
def test_an_unknown_family_is_tried_and_used_with_a_warning(family, unknown, tmp_path):
    folder = unknown(family)
    encoder = Encoder.load(folder)
    assert encoder.family.since is None and re.search(rf"not know \({family}\)", encoder.notes[0])
    inputs = encoder.batch(encoder.tokenize(SENTENCES[:5]), np.arange(5))
    with torch.no_grad():
        whole = encoder.model(**inputs).last_hidden_state
        for cut in range(5):
            torch.testing.assert_close(encoder.resume(inputs, encoder.cut(inputs, cut), cut), whole)
    truncate(folder, 2, tmp_path / "short")
    short = Encoder.load(tmp_path / "short")
    torch.testing.assert_close(short.states(SENTENCES[:5]), encoder.states(SENTENCES[:5])[:3])
    for method in ("full", "lora"):
        result = cheaply(encoder, telling_task(n=40), "(2, 3, 3)", method=method, epochs=1)
        assert encoder.notes[0] in result.content["warnings"]
    words = f"knows where to insert them, got {family};"
    expect_refused(words, make_trainable, ls.build(encoder, "top:1"), "top:1", "adapter")


@pytest.mark.parametrize("family", ["qwen3", *whole_only("llama", "gpt_neox", "gemma2", "olmo2")])
def test_what_is_found_by_looking_is_what_the_table_says(family, tmp_path):
    encoder = Encoder.load(tiny_checkpoint(tmp_path / family, family))
    found, known = guess_family(family, encoder.model)[0], FAMILIES[family]
    names = ("blocks", "final_norm", "reads", "tuples", "normed_input", "norm_start", "gated")
    for name in names:
        assert getattr(found, name) == getattr(known, name), name


def test_two_checkpoints_of_a_family_may_differ_in_how_they_are_built(unknown):
    encoders = [
        Encoder.load(unknown("opt", ffn_dim=32, word_embed_proj_dim=16, **settings))
        for settings in ({}, {"do_layer_norm_before": False})
    ]
    assert [e.family.final_norm for e in encoders] == ["decoder.final_layer_norm", None]
    for encoder in encoders:
        inputs = encoder.batch(encoder.tokenize(SENTENCES[:3]), np.arange(3))
        with torch.no_grad():
            whole = encoder.model(**inputs, output_hidden_states=True).hidden_states
        if encoder.family.final_norm is None:
            torch.testing.assert_close(encoder.cut(inputs, 4), whole[4])
        model = ls.build(encoder, "top:1")
        assert family_of(model) == family_of(copy.deepcopy(model)) == encoder.family
        assert "family" not in json.dumps(model.config.to_dict())


def test_a_study_knows_what_a_tuning_knows(unknown, tmp_path):
    folder = unknown("phi")
    context = TrialContext(Store(tmp_path))
    shape = context.shape(str(folder))
    assert shape == Encoder.load(folder).shape(2)
    scan = ls.scan(folder, telling_task(n=40), scores=["variability_ratio"], progress=False)
    assert scan.settings["pooling"] == "last" == usual_pooling(read_token(scan.model))
    words = "knows where to insert them, got phi;"
    expect_refused(words, check_family, shape.family, make_method("adapter"))


NEO = {"attention_types": [[["global", "local"], 2]], "num_layers": 4, "num_heads": 4}
ESM = {"position_embedding_type": "rotary", "mask_token_id": 0, "token_dropout": False}


@pytest.mark.parametrize(
    ("family", "settings", "words"),
    [
        ("fnet", {}, "padding changes the states"),
        ("flaubert", {}, "not in one list"),
        ("jamba", {}, "not alike"),
        ("gpt_neo", NEO, "first blocks cannot be used as a shorter model"),
        ("esm", ESM, "a shorter model (contact_head.regression.weight would have another"),
    ],
)
def test_an_unlike_family_is_refused_with_the_reason(family, settings, words, unknown):
    known = f"family {family}, which is not known … {words}"
    expect_refused(known, Encoder.load, unknown(family, **settings))


def test_positions_that_are_counted_after_the_padding_token(unknown):
    folder = unknown("data2vec-text")
    change_json(folder / "tokenizer_config.json", model_max_length=10**6)
    encoder = Encoder.load(folder)
    assert encoder.family.positions_after_padding
    longest = 160 - encoder.tokenizer.pad_token_id - 1
    assert encoder.states(["a cat " * 200], max_length=longest).isfinite().all()
    expect_refused(f"..{longest} ", encoder.states, ["a cat"], max_length=longest + 1)


def test_costs_of_an_unknown_family_follow_its_blocks_or_are_called_estimates(unknown):
    encoder = Encoder.load(unknown("gemma"))
    matrices = sum(p.numel() for p in encoder.model.layers[0].parameters() if p.ndim > 1)
    assert encoder.family.gated and block_weights(encoder.shape(2)) == matrices
    assert len(encoder.notes) == 1
    experts = Encoder.load(unknown("phimoe", num_local_experts=4))
    held = sum(p.numel() for p in experts.model.layers[0].parameters() if p.ndim > 1)
    assert re.search(f"rough estimates: they assume .* but it has {held:,}$", experts.notes[1])


def test_lora_leaves_out_what_is_only_made_from_a_linear_layer(unknown):
    encoder = Encoder.load(unknown("phimoe", num_local_experts=2))
    result = cheaply(encoder, telling_task(n=40), "(2, 3, 3)", method="lora", epochs=1)
    assert result.content["parameters"]["trainable"] > 0


@pytest.mark.parametrize("edits", ["skip:2", "permute:1"])
@pytest.mark.parametrize(
    ("family", "settings"),
    [("gpt2", {"scale_attn_by_inverse_layer_idx": True}), ("diffllama", {})],
)
def test_blocks_that_use_their_numbers_cannot_be_moved(family, settings, edits, unknown):
    encoder = Encoder.load(unknown(family, **settings))
    words = f"would compute something else … got {edits[:4]}"
    expect_refused(words, apply_edits, encoder, EditSpec(tuple(make_edits(edits)), 4))
    for kept in ("skip:4", "reinit:2"):
        assert apply_edits(encoder, EditSpec(tuple(make_edits(kept)), 4)).blocks >= 3


# The type of weights


@pytest.mark.parametrize(
    ("method", "stored", "asked", "dtype"),
    [
        ("lora", "bfloat16", None, "bfloat16"),
        ("full", "float32", "bfloat16", "bfloat16"),  # which rounds what is below the cut, too
        *whole_only(
            ("full", "bfloat16", None, "bfloat16"),
            ("full", "bfloat16", "float32", "float32"),
            ("lora", "float32", "bfloat16", "bfloat16"),
        ),
    ],
)
def test_a_tuned_model_keeps_the_type_of_its_checkpoint(method, stored, asked, dtype, tmp_path):
    folder = tiny_checkpoint(tmp_path / "base", "llama")
    AutoModel.from_pretrained(folder, dtype=getattr(torch, stored)).save_pretrained(folder)
    encoder, task = Encoder.load(folder), ensure_validation(telling_task(n=90), 0)
    assert encoder.dtype == stored and encoder.model.dtype == torch.float32
    result = cheaply(encoder, task, "(2, 3, 3)", method=method, save_dtype=asked, epochs=1)
    result.save(tmp_path / "out")
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out" / "model")
    assert again.dtype == getattr(torch, dtype)
    assert result.content["settings"]["save_dtype"] == dtype
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out" / "model")
    check_reported(result, task, again.float(), tokenizer)


@pytest.mark.parametrize(
    "options",
    [
        {"method": "adapter"},
        {"method": "lora", "keep_adapter": True},
        {"classifier": "mean-linear"},
    ],
    ids=["adapter", "kept", "mean-linear"],
)
def test_a_type_is_for_whole_checkpoints(options, encoder):
    words, options = "is always in float32 … leave it out", options | {"save_dtype": "bfloat16"}
    expect_refused(words, cheaply, encoder, telling_task(n=40), "(2, 3, 3)", **options)
