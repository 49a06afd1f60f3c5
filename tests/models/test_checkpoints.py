"""Loading checkpoints, whole and broken, and counting what they are made of."""

import io
import json
import math
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    MODEL_FOR_MULTIPLE_CHOICE_MAPPING,
    AutoConfig,
    AutoModelForMultipleChoice,
    AutoModelForSequenceClassification,
    BertConfig,
    DistilBertConfig,
    ModernBertConfig,
    RobertaConfig,
)

from inputs import expect_refused
from layerscout.models import Encoder, build, model_shape, truncate
from tiny import SENTENCES, change_json, tiny_checkpoint


def check_sums(config, counts, model):
    assert len(counts.blocks) == 4
    blocks = counts.blocks[:1] if config.model_type == "albert" else counts.blocks
    assert counts.embeddings + sum(blocks) + counts.head == counts.total
    assert counts.total == sum(p.numel() for p in model.parameters())


def test_parameter_counts_add_up(folder):
    config = AutoConfig.from_pretrained(folder)
    counts = model_shape(config, labels=3).parameters
    load = AutoModelForSequenceClassification.from_pretrained
    check_sums(config, counts, load(folder, num_labels=3))
    assert counts.head > 3 * 16
    for labels in (0, 1):
        counts = model_shape(config, labels, "regression").parameters
        check_sums(config, counts, load(folder, num_labels=1))
    if type(config) in MODEL_FOR_MULTIPLE_CHOICE_MAPPING:
        counts = model_shape(config, 2, "multiple_choice").parameters
        check_sums(config, counts, AutoModelForMultipleChoice.from_pretrained(folder))
    else:
        words = f"multiple choice in the family {config.model_type};"
        expect_refused(words, model_shape, config, 2, "multiple_choice")


def test_roberta_large_has_the_published_number_of_parameters():
    config = RobertaConfig(
        vocab_size=50265,
        hidden_size=1024,
        num_hidden_layers=24,
        num_attention_heads=16,
        intermediate_size=4096,
        max_position_embeddings=514,
        type_vocab_size=1,
    )
    counts = model_shape(config, labels=3).parameters
    # Xie et al. 2022, Table 10: everything; blocks 15..24 and the head; blocks 1..14 and the head,
    # without and with the embeddings.
    assert counts.total == 355_362_819
    assert sum(counts.blocks[14:]) + counts.head == 127_014_915
    assert sum(counts.blocks[:14]) + counts.head == 177_399_811
    assert counts.embeddings + sum(counts.blocks[:14]) + counts.head == 229_400_579


@pytest.mark.parametrize(
    ("config", "embeddings", "first", "last", "head"),
    [
        # Words, positions and types with their norm; 12 d² + 13 d; pooler and output.
        (BertConfig(), 23_837_184, 7_087_872, 7_087_872, 768 * 768 + 768 + 768 * 2 + 2),
        # No types and no pooler, but a dense layer in the head.
        (DistilBertConfig(), 23_835_648, 7_087_872, 7_087_872, 768 * 768 + 768 + 768 * 2 + 2),
        # No biases: 4 · 768² and 3 · 768 · 1152 and two norms, of which the first block lacks one;
        # the head has the final norm, a dense layer with its norm, and the output.
        (ModernBertConfig(), 38_683_392, 5_014_272, 5_015_040, 768 * 770 + 768 * 2 + 2),
    ],
    ids=["bert", "distilbert", "modernbert"],
)
def test_parameters_are_where_they_belong(config, embeddings, first, last, head):
    counts = model_shape(config, labels=2).parameters
    assert (counts.embeddings, counts.blocks[0], counts.blocks[-1], counts.head) == (
        embeddings,
        first,
        last,
        head,
    )


def test_groups_of_shared_blocks_are_counted_by_the_block_that_uses_them(tmp_path):
    folder = tiny_checkpoint(tmp_path / "albert", "albert", num_hidden_groups=2)
    counts = model_shape(AutoConfig.from_pretrained(folder), labels=2).parameters
    assert len(counts.blocks) == 4
    assert counts.embeddings + counts.blocks[0] + counts.blocks[3] + counts.head == counts.total


def configured(**values):
    return lambda folder: change_json(folder / "config.json", **values)


def written(name, content):
    return lambda folder: (folder / name).write_text(content)


def cut_short(name, size):
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:size])


def spoiled(key, value):
    def act(folder):
        weights = load_file(folder / "model.safetensors")
        weights[key].view(-1)[-1] = value
        save_file(weights, folder / "model.safetensors", {"format": "pt"})

    return act


def renamed(prefix):
    def act(folder):
        weights = load_file(folder / "model.safetensors")
        weights = {f"{prefix}{name}": tensor for name, tensor in weights.items()}
        save_file(weights, folder / "model.safetensors", {"format": "pt"})

    return act


def of_a_training(folder):
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save({"epoch": 3, "state_dict": weights}, folder / "pytorch_model.bin")


def without(*names):
    return lambda folder: [(folder / name).unlink(missing_ok=True) for name in names]


TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json")


NESTED = '{"model_type": "bert", "x": ' + "[" * 100_000


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (without("config.json"), "no config.json"),
        (without(*TOKENIZER), "tokenizer"),
        (without("model.safetensors"), "cannot load the weights"),
        (
            cut_short("model.safetensors", 1000),
            "take 1,000 bytes, too few for … truncated, or pointers of Git LFS",
        ),
        (cut_short("model.safetensors", 30_000), "cannot load the weights … cut short"),
        (
            spoiled("encoder.layer.2.output.dense.weight", math.nan),
            "weights of … are not finite: encoder.layer.2.output.dense.weight holds NaN",
        ),
        (spoiled("embeddings.word_embeddings.weight", -math.inf), "are not finite: embeddings"),
        (cut_short("model.safetensors", 0), "cannot load the weights"),
        (cut_short("config.json", 20), "cannot read the configuration"),
        (cut_short("tokenizer.json", 200), "cannot load the tokenizer"),
        (written("config.json", NESTED), "cannot read the configuration"),
        (written("tokenizer.json", NESTED), "cannot load the tokenizer"),
        (written("config.json", "[1]"), "must be a JSON object whose model_type names a family"),
        (configured(model_type=None), "must be a JSON object whose model_type names a family"),
        (configured(model_type="gpt9"), "'gpt9', whose code is not in transformers … upgrade"),
        (configured(hidden_size=32), "cannot load the weights … shapes that its configuration"),
        (configured(num_hidden_layers="six"), 'config.json must be a whole number of 1 … "six"'),
        (configured(num_hidden_layers=0), "num_hidden_layers in … got 0; correct it"),
        (configured(num_attention_heads=-4), "num_attention_heads in … got -4"),
        (configured(hidden_size=float("nan")), "hidden_size in … got NaN"),
        (configured(hidden_dropout_prob=7), "hidden_dropout_prob in … must be in 0..1, got 7"),
        (configured(layer_norm_eps="x"), "cannot read the … 'layer_norm_eps' … correct … json"),
        (configured(id2label="x"), "cannot read the configuration … correct … json"),
        (configured(quantization_config=5), "has quantised weights"),
        (configured(pruned_heads={"0": [1]}), 'has pruned_heads {"0": [1]} … does not compute'),
        (configured(position_embedding_type="relative_key_query"), "has position_embedding_type"),
        (configured(is_decoder=True), "is the decoder of an encoder–decoder"),
        (configured(add_cross_attention=True), "is the decoder of an encoder–decoder"),
        (configured(is_encoder_decoder=True), "which has two stacks of blocks"),
        (configured(decoder={}), "reads more than text"),
        (configured(save_pretrained=1), "save_pretrained in … the name of a method … remove it"),
        (
            configured(num_labels=10**9),
            "num_labels … must be 1,000,000 at the most, got 1000000000",
        ),
        (configured(dtype="auto"), 'with dtype "auto" … correct … config.json'),
        (configured(dtype=["float16"]), 'dtype in … a name such as float32, got ["float16"]'),
        (
            configured(classifier_dropout=["x" * 999]),
            "'classifier_dropout' with value ['xxx … corr",
        ),
        (configured(id2label=["a"]), 'with id2label ["a"] … correct … config.json'),
        (renamed("module."), "names of the weights of … begin with 'module.' … without it"),
        (renamed("_orig_mod.bert."), "begin with '_orig_mod.'"),
        (of_a_training, "one of a training, which holds them within its state_dict; save that"),
        (configured(hidden_act="nope"), "asks for 'nope', which transformers does not have"),
        (configured(hidden_act="n" * 900), f"asks for '{'n' * 59}, which transformers does not"),
        (configured(hidden_size=...), "too few … truncated … or belong to another model"),
        (configured(intermediate_size=...), "shapes that its configuration asks for"),
        (configured(vocab_size=7), "cannot load the weights"),
        (configured(num_hidden_layers=2), "tensors of blocks … do not belong together"),
        (configured(num_hidden_layers=10**6), "too few for the 1,000,000 blocks"),
        (configured(vocab_size=10**8), "too few for … 100,000,000 tokens"),
        (configured(num_hidden_layers=6), "tensors … such as … incomplete"),
    ],
)
def test_a_broken_checkpoint_is_one_clear_line(tiny, tmp_path, fault, words):
    folder = shutil.copytree(tiny, tmp_path / "broken")
    fault(folder)
    line = expect_refused(words, Encoder.load, folder, device="cpu")
    assert str(folder) in line


@pytest.mark.parametrize(
    "flags",
    [
        {"output_attentions": True},
        {"output_attentions": True, "attn_implementation": "sdpa"},
        {"output_hidden_states": True},
        {"output_hidden_states": "true"},
        {"return_dict": False},
        {"return_dict": None},
        {"use_return_dict": True},
        {"torchscript": True},
        {"chunk_size_feed_forward": 4},
        {"chunk_size_feed_forward": None},
        {"gradient_checkpointing": True},
        {"attn_implementation": "flash_attention_2"},
        {"_attn_implementation": "flex_attention"},
        {"attn_implementation": "nope"},
        {"pruned_heads": {}},
        {"quantization_config": {}},
        {"use_cache": None},
        {"num_labels": None},
        {"architectures": "BertModel"},
    ],
)
def test_what_changes_no_state_in_a_configuration_does_no_harm(tiny, bert, tmp_path, flags, capfd):
    folder = shutil.copytree(tiny, tmp_path / "model")
    change_json(folder / "config.json", **flags)
    encoder = Encoder.load(folder, device="cpu")
    assert encoder.states(SENTENCES[:3]).equal(bert.states(SENTENCES[:3]))
    truncate(folder, 2, tmp_path / "short")
    kept = json.loads((tmp_path / "short" / "config.json").read_text())
    expected = json.loads((tiny / "config.json").read_text()) | {"num_hidden_layers": 2}
    assert kept == expected
    assert capfd.readouterr() == ("", "")


def test_a_decoder_that_is_cut_keeps_its_cache_of_keys_switched_off(tmp_path):
    folder = tiny_checkpoint(tmp_path / "llama", "llama", use_cache=False)
    change_json(folder / "config.json", output_attentions=True)
    truncate(folder, 2, tmp_path / "short")
    assert json.loads((tmp_path / "short" / "config.json").read_text())["use_cache"] is False


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("pickled", [False, True])
def test_the_dtype_of_the_weights_is_found_in_any_file(tiny, tmp_path, dtype, pickled):
    """Without a word in config.json, and where integers come before the weights."""
    folder = shutil.copytree(tiny, tmp_path / "model")
    change_json(folder / "config.json", dtype=...)
    weights = load_file(folder / "model.safetensors")
    weights = {"embeddings.position_ids": torch.arange(160)[None]} | {
        name: tensor.to(dtype) for name, tensor in weights.items()
    }
    if pickled:
        (folder / "model.safetensors").unlink()
        torch.save(weights, folder / "pytorch_model.bin")
    else:
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
    assert Encoder.load(folder, device="cpu").dtype == str(dtype).removeprefix("torch.")


def test_a_model_that_is_not_there(tmp_path):
    (tmp_path / "model.bin").touch()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "gone").symlink_to("nowhere")
    for name in ("nowhere", "model.bin", "loop", "gone"):
        expect_refused("there is no model folder", Encoder.load, tmp_path / name, device="cpu")
    for place in ("0_Transformer", "checkpoint-9", "snapshots/0af"):
        (inner := tmp_path / f"around-{place[0]}" / place).mkdir(parents=True)
        (inner / "config.json").write_text("{}")
        outer = tmp_path / f"around-{place[0]}"
        expect_refused(f"did you mean {inner}?", Encoder.load, outer, device="cpu")
    words = "neither a folder here nor a model on the hub"
    expect_refused(words, Encoder.load, "no such name", device="cpu")


def test_code_that_comes_with_a_checkpoint_never_runs(tiny, tmp_path):
    folder = shutil.copytree(tiny, tmp_path / "model")
    trace = tmp_path / "ran"
    (folder / "evil.py").write_text(
        f"open({str(trace)!r}, 'w').close()\n"
        "from transformers import BertConfig as Config, BertModel as Model\n"
        "from transformers import BertTokenizerFast as Tokenizer\n"
    )
    classes = {
        "AutoConfig": "evil.Config",
        "AutoModel": "evil.Model",
        "AutoTokenizer": ["evil.Tokenizer", "evil.Tokenizer"],
    }
    for name in ("config.json", "tokenizer_config.json"):
        change_json(folder / name, auto_map=classes)
    Encoder.load(folder, device="cpu")
    assert not trace.exists()


def test_a_tokenizer_that_is_only_a_sentencepiece_model(tmp_path, monkeypatch):
    import sentencepiece

    folder, content = tiny_checkpoint(tmp_path / "deberta-v2", "deberta-v2"), io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES * 20), model_writer=content, vocab_size=120,
        hard_vocab_limit=False, minloglevel=2, pad_id=0, bos_id=1, eos_id=2, unk_id=3,
        pad_piece="[PAD]", bos_piece="[CLS]", eos_piece="[SEP]", unk_piece="[UNK]",
    )  # fmt: skip
    (folder / "tokenizer.json").unlink()
    (folder / "spm.model").write_bytes(content.getvalue())
    settings = {"tokenizer_class": "DebertaV2Tokenizer", "vocab_type": "spm"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    tokenizer = Encoder.load(folder, device="cpu").tokenizer
    first, *pieces, last = tokenizer.convert_ids_to_tokens(tokenizer("the old cat").input_ids)
    assert (first, last) == ("[CLS]", "[SEP]")
    assert "".join(pieces).replace("▁", " ").strip() == "the old cat"
    # Where the libraries for it are not installed, the line says what to install.
    monkeypatch.setattr("layerscout.models.checkpoints.distributions", lambda: [])
    (folder / "spm.model").write_bytes(b"")
    expect_refused("pip install 'layerscout[sentencepiece]'", Encoder.load, folder, device="cpu")


# --- What is beside the weights, or does not fit them ---------------------------------------------

ADAPTER = {"peft_type": "LORA", "base_model_name_or_path": "nowhere/base"}


@pytest.mark.parametrize("weights", [None, "adapter_model.safetensors"])
def test_an_adapter_beside_whole_weights_is_left_out_and_said(tiny, tmp_path, weights):
    folder = tmp_path / "model"
    shutil.copytree(tiny, folder)
    (folder / "adapter_config.json").write_text(json.dumps(ADAPTER))
    if weights is not None:
        save_file({}, folder / weights)
    encoder = Encoder.load(folder, device="cpu")
    [note] = encoder.notes
    assert "whole weights and an adapter_config.json: the weights are used as they are" in note
    assert encoder.states(["a cat"]).equal(Encoder.load(tiny, device="cpu").states(["a cat"]))
    assert build(encoder, "top:1").config.num_labels == 2  # its head is loaded from there again
    (folder / "model.safetensors").unlink()
    expect_refused("an adapter of peft, not a whole model; merge it", Encoder.load, folder)


@pytest.mark.parametrize("family", ["deberta", "deberta-v2"])
def test_a_pooler_of_another_size_than_the_states(family, tmp_path):
    folder = tiny_checkpoint(tmp_path / family, family)
    for size, words in ((8, "pooler_hidden_size of … is 8 … taken as hidden_size, 16"), (16, "")):
        encoder = Encoder.load(change_json(folder / "config.json", pooler_hidden_size=size))
        assert all(word in " ".join(encoder.notes) for word in words.split(" … "))
        assert len(encoder.notes) == bool(words)
        model = build(encoder, "top:1")
        inputs = encoder.batch(encoder.tokenize(["a cat"]), np.arange(1))
        assert model(**inputs).logits.shape == (1, 2)
