"""What transformers 4 makes of an export.

`TEST_TRANSFORMERS` names folders of older versions, with colons in between, each made with `pip
install --no-deps --target FOLDER transformers==4.46.3 tokenizers==0.20.3 huggingface_hub==0.26.5`.
"""

import copy
import json
import os
import subprocess
import sys
from importlib.metadata import version

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModel, AutoTokenizer

from layerscout.models import (
    FAMILIES,
    Encoder,
    export,
    find_oldest,
    make_averaging_classifier,
    make_classifier,
)
from layerscout.plans import make_plan
from tiny import SENTENCES, logits_of, tiny_checkpoint

LINEAR = {"rope_type": "linear", "factor": 2.0}
LONG = {"short_factor": [1.0, 1.1], "long_factor": [1.5, 2.0]}

# Settings of a base, and what its export says where transformers 4 looks. Version 5 writes
# `rope_parameters` alone; 4 then took its own defaults.
WRITTEN = [
    ("bert", {}, {}),
    ("llama", {"rope_theta": 500.0}, {"rope_theta": 500.0}),
    (
        "llama",
        {"rope_theta": 5e5, "rope_scaling": LINEAR},
        {"rope_theta": 5e5, "rope_scaling": LINEAR},
    ),
    ("qwen2", {"rope_theta": 1e6}, {"rope_theta": 1e6}),
    (
        "gpt_neox",
        {"rotary_pct": 0.5, "rotary_emb_base": 500},
        {"rotary_pct": 0.5, "rotary_emb_base": 500},
    ),
    (
        "phi3",
        {"rope_scaling": {"type": "longrope", **LONG}},
        {"rope_scaling": {"type": "longrope", **LONG}},
    ),
    ("modernbert", *[{"global_rope_theta": 700.0, "local_rope_theta": 50.0}] * 2),
    ("gemma3_text", *[{"rope_theta": 700.0, "rope_local_base_freq": 50.0}] * 2),
]
LEGACY = ("rope_theta", "rope_scaling", "rotary_pct", "rotary_emb_base", "global_rope_theta")


def exported(folder, family, kind="classification", averages=False, **settings):
    """Export a tiny classifier of a family, untrained; return the encoder and the classifier.

    Its head may be one on the mean, with a block that averages.
    """
    settings = copy.deepcopy(settings)  # which the library writes into
    encoder = Encoder.load(tiny_checkpoint(folder / "base", family, **settings), device="cpu")
    labels = () if kind == "multiple_choice" else ("bad", "good")
    if averages:
        weights, bias = np.random.default_rng(0).normal(size=(2, 16)), np.ones(2)
        model = make_averaging_classifier(encoder, 3, labels, kind, weights, bias)
    else:
        model = make_classifier(encoder, make_plan("full", 4), labels, kind=kind).eval()
    export(model, encoder.tokenizer, folder / "model", "", max_length=128)
    return encoder, model


@pytest.mark.parametrize(("family", "settings", "expected"), WRITTEN)
def test_both_names_are_written(family, settings, expected, tmp_path):
    _, model = exported(tmp_path, family, **settings)
    written = json.loads((tmp_path / "model" / "config.json").read_text())
    assert {name: written[name] for name in expected} == expected
    assert expected or not set(LEGACY) & set(written)
    assert written["dtype"] == "float32"
    again = AutoConfig.from_pretrained(tmp_path / "model")
    assert getattr(again, "rope_parameters", None) == getattr(model.config, "rope_parameters", None)
    named = json.loads((tmp_path / "model" / "tokenizer_config.json").read_text())
    assert named["tokenizer_class"] == "PreTrainedTokenizerFast"


def test_a_class_of_the_library_and_further_tokens_keep_the_names_of_both(tmp_path):
    base = tiny_checkpoint(tmp_path / "first", "bert")
    tokenizer, model = AutoTokenizer.from_pretrained(base), AutoModel.from_pretrained(base)
    tokenizer.add_special_tokens({"extra_special_tokens": ["<name>"]})
    model.resize_token_embeddings(len(tokenizer))
    for part in (model, tokenizer):
        part.save_pretrained(base)
    path = base / "tokenizer_config.json"
    path.write_text(path.read_text().replace("TokenizersBackend", "BertTokenizer"))
    encoder = Encoder.load(base)
    model = make_classifier(encoder, make_plan("full", 4), ("bad", "good"))
    export(model, encoder.tokenizer, tmp_path / "model", "", max_length=128)
    written = json.loads((tmp_path / "model" / "tokenizer_config.json").read_text())
    # At a list of `extra_special_tokens` 4.57 raises "'list' object has no attribute 'keys'".
    assert written["additional_special_tokens"] == ["<name>"]
    assert "extra_special_tokens" not in written and written["tokenizer_class"] == "BertTokenizer"
    assert AutoTokenizer.from_pretrained(tmp_path / "model").extra_special_tokens == ["<name>"]


WINDOWS = {"layer_types": ["sliding_attention", "full_attention"], "num_hidden_layers": 2}


@pytest.mark.parametrize(
    ("family", "settings", "kind", "oldest"),
    [
        ("bert", {}, "classification", "4.46"),
        ("llama", {}, "regression", "4.51"),
        ("qwen2", {}, "classification", "4.51"),
        ("qwen2", WINDOWS, "classification", "4.57"),
        ("gemma3_text", WINDOWS, "classification", "4.57"),
        ("gemma2", {}, "classification", version("transformers")),
        ("eurobert", {}, "classification", version("transformers")),
        ("modernbert", {}, "token_classification", "4.48"),
        ("modernbert", {}, "multiple_choice", "4.57"),
        ("modernbert", WINDOWS, "classification", version("transformers")),  # as after an edit
        ("gemma", {}, "classification", version("transformers")),  # a family that is tried
    ],
)
def test_the_version_that_is_needed(family, settings, kind, oldest):
    assert find_oldest(AutoConfig.for_model(family, **settings), kind) == oldest


LOAD = """
import sys, json
import torch, transformers
from transformers import AutoTokenizer
found = {"version": transformers.__version__}
for folder, oldest in json.loads(sys.argv[1]).items():
    if [int(n) for n in found["version"].split(".")] < [int(n) for n in oldest.split(".")]:
        continue
    kind = json.load(open(f"{folder}/config.json"))["architectures"][0].split("For")[1]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = getattr(transformers, f"AutoModelFor{kind}").from_pretrained(folder).eval()
    found[folder] = []
    for text in json.loads(sys.argv[2]):
        inputs = tokenizer(text, truncation=True, return_tensors="pt")
        with torch.no_grad():
            found[folder].append((inputs["input_ids"].tolist(), model(**inputs).logits.tolist()))
print(json.dumps(found))
"""
HARD = ["It's  hard; to\tbelieve (that) naïve Ünïcode… 12,345\nline", "the <mask> [MASK] cat"]
OWN = {
    "gpt_neox": {"rotary_pct": 0.5, "rotary_emb_base": 500},
    "modernbert": {"global_rope_theta": 700.0, "local_rope_theta": 50.0},
}
for name in ("llama", "mistral", "phi3", "qwen2", "qwen3", "gemma3_text"):
    OWN[name] = {"rope_theta": 500.0}


@pytest.mark.whole
def test_older_versions_compute_the_same(tmp_path):
    older = [
        folder for folder in os.environ.get("TEST_TRANSFORMERS", "").split(os.pathsep) if folder
    ]
    if not older:
        pytest.skip("TEST_TRANSFORMERS names no folder of an older transformers")
    texts, expected, oldest = [*SENTENCES[:3], *HARD], {}, {}
    for family in FAMILIES:
        for kind in ("classification", "token_classification", "averaging"):
            averages = kind == "averaging"
            if averages and FAMILIES[family].averaged is None:
                continue
            if kind == "token_classification" and family in ("olmo2", "gemma3_text"):
                continue  # they have no head for words
            folder = tmp_path / f"{family}-{kind}"
            kind = "classification" if averages else kind
            encoder, model = exported(folder, family, kind, averages, **OWN.get(family, {}))
            key = str(folder / "model")
            oldest[key] = find_oldest(model.config, kind)
            expected[key] = [
                (tokens, logits_of(model, {"input_ids": torch.tensor(tokens)}))
                for tokens in ([encoder.tokenizer(text)["input_ids"]] for text in texts)
            ]
    command = [sys.executable, "-c", LOAD, json.dumps(oldest), json.dumps(texts)]
    for path in older:
        environment = {**os.environ, "PYTHONPATH": path}
        found = json.loads(subprocess.check_output(command, env=environment, text=True))
        assert found.pop("version") != version("transformers")
        assert len(found) >= 30  # eleven encoders, both kinds, and eight that average
        for key, answers in found.items():
            for (ids, logits), (tokens, reported) in zip(answers, expected[key], strict=True):
                assert ids == tokens, key
                torch.testing.assert_close(torch.tensor(logits), reported, rtol=0, atol=1e-5)
