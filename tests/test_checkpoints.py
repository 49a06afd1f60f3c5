"""Loading checkpoints, whole and broken, and counting what they are made of."""

import json
import shutil

import pytest
import torch
from transformers import AutoConfig, AutoModelForSequenceClassification, RobertaConfig

from layerscout.checkpoints import load_checkpoint, model_shape
from layerscout.errors import InputError
from tiny import FAMILIES, tiny_checkpoint


@pytest.mark.parametrize("family", FAMILIES)
def test_parameter_counts_add_up(family, tmp_path):
    folder = tiny_checkpoint(tmp_path / family, family)
    counts = model_shape(AutoConfig.from_pretrained(folder), labels=3).parameters
    assert len(counts.blocks) == 4
    blocks = counts.blocks[:1] if family == "albert" else counts.blocks
    assert counts.embeddings + sum(blocks) + counts.head == counts.total
    model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=3)
    assert counts.total == sum(p.numel() for p in model.parameters())
    assert counts.head > 3 * 16


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
    assert counts.total == 355_362_819  # Xie et al. 2022, Table 10
    assert counts.embeddings + sum(counts.blocks) + counts.head == counts.total


def test_groups_of_shared_blocks_are_counted_by_the_block_that_uses_them(tmp_path):
    folder = tiny_checkpoint(tmp_path / "albert", "albert", num_hidden_groups=2)
    counts = model_shape(AutoConfig.from_pretrained(folder), labels=2).parameters
    assert len(counts.blocks) == 4
    assert counts.embeddings + counts.blocks[0] + counts.blocks[3] + counts.head == counts.total


def test_float16_checkpoints_are_computed_in_float32(tiny, tmp_path):
    folder = shutil.copytree(tiny, tmp_path / "half")
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float16)
    model.save_pretrained(folder)
    assert json.loads((folder / "config.json").read_text())["dtype"] == "float16"
    loaded = load_checkpoint(str(folder))
    assert {p.dtype for p in loaded.model.parameters()} == {torch.float32}


def without(*names):
    def act(folder):
        for name in names:
            (folder / name).unlink(missing_ok=True)

    return act


def configured(**values):
    def act(folder):
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    return act


def cut_short(name, size):
    def act(folder):
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[:size])

    return act


TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json")


@pytest.mark.parametrize(
    ("fault", "rule"),
    [
        (without("config.json"), "no config.json"),
        (without(*TOKENIZER), "tokenizer"),
        (without("model.safetensors"), "cannot load the weights"),
        (cut_short("model.safetensors", 1000), "cannot load the weights"),
        (cut_short("model.safetensors", 0), "cannot load the weights"),
        (cut_short("config.json", 20), "cannot read the configuration"),
        (cut_short("tokenizer.json", 200), "cannot load the tokenizer"),
        (configured(model_type="gpt2"), "unknown model family 'gpt2'.*known: albert, bert"),
        (configured(model_type="made-up"), "cannot read the configuration"),
        (configured(hidden_size=32), "cannot load the weights"),
        (configured(vocab_size=7), "."),
        (configured(num_hidden_layers=6), r"lack \d+ tensors .* incomplete"),
    ],
)
def test_a_broken_checkpoint_is_one_clear_line(tiny, tmp_path, fault, rule):
    folder = shutil.copytree(tiny, tmp_path / "broken")
    fault(folder)
    with pytest.raises(InputError, match=rule) as caught:
        load_checkpoint(str(folder))
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value) or "family" in str(caught.value)


def test_a_model_that_is_not_there(tmp_path):
    file = tmp_path / "model.bin"
    file.touch()
    for name, rule in (
        (tmp_path / "nowhere", "no model folder"),
        (file, "is a file"),
        ("no such name", "neither a folder here nor a model on the hub"),
    ):
        with pytest.raises(InputError, match=rule):
            load_checkpoint(str(name))
