"""A linear head on the mean of the tokens, by a block that averages: who loads it, and as what."""

import json
from itertools import islice, product

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    TextClassificationPipeline,
)

import layerscout as ls
from conftest import real, whole_only
from inputs import expect_refused
from layerscout.evaluating import evaluate
from layerscout.models import (
    FAMILIES,
    Encoder,
    add_formats,
    can_average,
    edit,
    export,
    find_oldest,
    load_config,
    load_tuned_classifier,
    make_averaging_classifier,
    model_shape,
    norm_means,
    truncate,
)
from layerscout.states import fingerprint_encoder
from tiny import FAMILIES as TINY, SENTENCES, inputs_of, logits_of, tiny_checkpoint
from tuned import NAMES, cheaply, copied, differing, task_of

AVERAGED = [name for name in TINY if FAMILIES[name.removesuffix("-conv")].averaged]
# One of each kind of block and of head; the others differ in names alone.
FIRST = ("bert", "electra", "distilbert", "deberta-v2-conv")
EACH = [pytest.param(name, marks=() if name in FIRST else pytest.mark.whole) for name in AVERAGED]
# Texts of 1 to 12 words, and one that is cut.
WORDS = " ".join(SENTENCES).split()
TEXTS = [" ".join(WORDS[row : row + 1 + row % 12]) for row in range(49)] + ["a " * 300]
STATE = 3


def drawn(width, outputs=3):
    """Draw weights and biases of a head."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(outputs, width)), rng.normal(size=outputs)


def averaging(encoder, state=STATE, labels=NAMES, kind="classification"):
    """Make a classifier with the head that is drawn for this encoder."""
    head = drawn(encoder.model.config.hidden_size, max(1, len(labels)))
    return make_averaging_classifier(encoder, state, labels, kind, *head)


def means_of(encoder, inputs, state):
    """Average the states of all tokens of each text, in float64."""
    shown = inputs["attention_mask"].double()[:, :, None]
    states = encoder.cut(inputs, state).double()
    return ((states * shown).sum(dim=1) / shown.sum(dim=1)).numpy()


def assert_close(logits, means, tolerance=1e-4):
    """Compare logits with those of the head that is drawn; the tolerance is a share of a spread."""
    logits = np.asarray(logits)
    weights, bias = drawn(means.shape[1], logits.shape[1])
    expected = norm_means(means) @ weights.T + bias
    assert np.abs(logits - expected).max() <= tolerance * expected.std()


def saved(folder, family="bert", state=STATE, **settings):
    """Export a classifier of a tiny model with dropout; its base stays beside it."""
    encoder = Encoder.load(tiny_checkpoint(folder / "base", family, **settings), device="cpu")
    export(averaging(encoder, state), encoder.tokenizer, folder / "model", "", max_length=64)
    return encoder, folder / "model"


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("averaging"))


# what it computes


@pytest.mark.parametrize("family", EACH)
@pytest.mark.parametrize("state", [1, 3, 4])
def test_plain_transformers_give_the_head_on_the_normed_mean(family, state, tmp_path):
    encoder, folder = saved(tmp_path, family, state)
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert model.config.layerscout_averaging and model.dtype == torch.float32
    assert model.config.num_hidden_layers == state + 1
    for pairs in (None, TEXTS[::-1]):
        inputs = tokenizer(TEXTS, pairs, padding=True, truncation=True, return_tensors="pt")
        assert_close(logits_of(model, inputs), means_of(encoder, inputs, state))
    classify = TextClassificationPipeline(model=model, tokenizer=tokenizer, top_k=None)
    scores = classify(TEXTS[:5], function_to_apply="none", truncation=True)
    found = [[{s["label"]: s["score"] for s in row}[name] for name in NAMES] for row in scores]
    inputs = tokenizer(TEXTS[:5], padding=True, return_tensors="pt")
    assert_close(found, means_of(encoder, inputs, state))


# A text of DeBERTa that is padded on the left has a padding token where its head reads, and that
# one sees nothing: so it is with any of its classifiers.
@pytest.mark.parametrize("family", [each for each in EACH if "deberta" not in str(each.values)])
def test_padding_may_be_on_the_left(family, tmp_path):
    encoder = Encoder.load(tiny_checkpoint(tmp_path, family), device="cpu")
    encoder.tokenizer.padding_side = "left"
    inputs = encoder.tokenizer(
        TEXTS, padding=True, truncation=True, max_length=64, return_tensors="pt"
    )
    inputs.pop("token_type_ids", None)
    assert not inputs["attention_mask"][0, 0]
    assert_close(logits_of(averaging(encoder), inputs), means_of(encoder, inputs, STATE))


@pytest.mark.parametrize(
    ("kind", "labels", "problem", "named"),
    [
        ("classification", NAMES, "single_label_classification", NAMES),
        ("multi_label_classification", NAMES, "multi_label_classification", NAMES),
        ("regression", (), "regression", ("score",)),
        ("regression", ("stars",), "regression", ("stars",)),
    ],
)
def test_labels_stand_in_the_configuration(bert, kind, labels, problem, named):
    encoder, _ = bert
    model = averaging(encoder, 2, labels, kind)
    assert model.config.problem_type == problem
    assert model.config.id2label == dict(enumerate(named))
    assert not model.training and find_oldest(model.config, kind) == "4.46"
    inputs = inputs_of(encoder)
    assert_close(logits_of(model, inputs), means_of(encoder, inputs, 2))


def test_nothing_is_shared_with_the_encoder(bert):
    encoder, _ = bert
    before = copied(encoder.model)
    with torch.no_grad():
        for parameter in averaging(encoder, 4).parameters():
            parameter.zero_()
    assert not differing(copied(encoder.model), before)
    assert encoder.blocks == 4 and not hasattr(encoder.model.config, "layerscout_averaging")


def test_normed_means_against_the_librarys_norm():
    rows = np.random.default_rng(0).normal(3, 2, (5, 16))
    rows[1], rows[2] = 0, 0.1 + 0.2
    found = norm_means(rows)
    expected = torch.nn.functional.layer_norm(torch.from_numpy(rows), (16,), eps=0).numpy()
    np.testing.assert_allclose(found[[0, 3, 4]], expected[[0, 3, 4]], rtol=1e-12)
    assert not found[1:3].any() and found.dtype == np.float64
    np.testing.assert_allclose(norm_means(rows[[0]] * 1e-20), found[[0]], rtol=1e-9)


def test_the_families_that_can(tmp_path):
    expected = "bert camembert deberta deberta-v2 distilbert electra nomic_bert roberta xlm-roberta"
    assert sorted(name for name in FAMILIES if FAMILIES[name].averaged) == expected.split()
    mpnet = Encoder.load(tiny_checkpoint(tmp_path / "mpnet", "mpnet"), device="cpu")
    assert not can_average(mpnet)
    expect_refused("family mpnet … use the classifier mean-linear", averaging, mpnet)
    wide = tiny_checkpoint(tmp_path / "wide", "nomic_bert", head_dim=8)
    assert not can_average(Encoder.load(wide, device="cpu"))


def test_other_kinds_and_states_are_refused(bert):
    encoder, _ = bert
    assert can_average(encoder)
    expect_refused("labels texts … use", averaging, encoder, kind="token_classification")
    expect_refused("labels texts … use", averaging, encoder, kind="multiple_choice")
    for state in (0, 5):
        expect_refused("", averaging, encoder, state)


# what reads it


@pytest.mark.parametrize("family", EACH)
def test_the_block_is_none_of_the_encoders(family, tmp_path, capfd):
    base, folder = saved(tmp_path, family)
    capfd.readouterr()
    found = Encoder.load(folder, device="cpu")
    assert capfd.readouterr() == ("", "")
    assert found.averages and found.notes == () and found.blocks == STATE
    inputs = inputs_of(base)
    assert torch.equal(found.cut(inputs, STATE), base.cut(inputs, STATE))
    config = load_config(str(folder))[0]
    assert config.num_hidden_layers == STATE and not hasattr(config, "layerscout_averaging")
    assert found.shape(3).blocks == STATE
    whole = AutoModelForSequenceClassification.from_pretrained(folder).config
    assert model_shape(whole, 3, family=found.family) == found.shape(3)


def test_states_that_are_kept_are_found_again(bert):
    base, folder = bert
    prints = [fingerprint_encoder(each, STATE) for each in (base, Encoder.load(folder))]
    assert prints[0] == prints[1]


def test_a_block_that_was_trained_is_one_like_the_others(bert, tmp_path):
    base, folder = bert
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    with torch.no_grad():
        model.bert.encoder.layer[-1].output.dense.bias[0] = 0.1
    export(model, base.tokenizer, tmp_path / "model", "", max_length=64)
    found = Encoder.load(tmp_path / "model")
    assert found.blocks == STATE + 1 and not found.averages
    assert load_config(str(tmp_path / "model"))[0].num_hidden_layers == STATE + 1
    inputs = inputs_of(found)
    with torch.no_grad():
        whole = model.bert(**inputs).last_hidden_state
    assert torch.equal(found.cut(inputs, STATE + 1), whole)
    ls.freeze(model, "top:1")


def test_a_training_starts_with_a_fresh_head(bert, tmp_path):
    base, folder = bert
    truncate(base.source, STATE, tmp_path / "short")
    ours, theirs = (
        ls.build(each, "top:1", labels=NAMES, fresh_head=fresh)
        for each, fresh in ((folder, False), (tmp_path / "short", True))
    )
    assert not differing(copied(ours), copied(theirs))
    result = cheaply(folder, task_of(), "top:1", epochs=1)
    assert result.model.config.num_hidden_layers == STATE
    assert not hasattr(result.model.config, "layerscout_averaging")
    assert any("the whole head starts anew" in line for line in result.warnings)


@pytest.mark.parametrize("family", EACH)
def test_evaluate_reads_the_mean_of_every_state(family, tmp_path):
    base, folder = saved(tmp_path, family)
    task = task_of(classes=3)
    found = evaluate(folder, task, progress=False, edits=["truncate", "skip", "skip:2"])
    inputs = base.batch(base.tokenize(list(task.validation.texts)), np.arange(6))
    logits = pd.DataFrame(dict(found.predictions)).groupby("edit", sort=False)["logits"]
    by_edit = {name: np.stack(list(each)) for name, each in logits}
    assert list(by_edit) == ["", "truncate:1", "truncate:2", "skip:2"]
    for name, state in {"": 3, "truncate:1": 1, "truncate:2": 2}.items():
        assert_close(by_edit[name], means_of(base, inputs, state))
    with edit(base.model, "skip:2"):
        assert_close(by_edit["skip:2"], means_of(base, inputs, 2))
    content = found.as_dict()
    assert content["model"]["blocks"] == STATE and len(content["truncation"]["untuned"]) == 4
    assert [len(row) for row in content["skips"]] == [3, 3, 3]
    metric, judged = content["metric"], content["edits"][0]["metrics"]
    assert content["skips"][1][1] == judged[metric]
    assert content["skips"][2][2] == content["truncation"]["untuned"][2]
    words = "reads all tokens … leave out --tune-heads"
    expect_refused(words, evaluate, folder, task, progress=False, tune_heads=True)


def test_what_would_be_another_function_is_refused(bert, tmp_path):
    base, folder = bert
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    for each in ("top:1", "full"):
        expect_refused("top block averages … layerscout.build", ls.freeze, model, each)
    expect_refused("top block averages … layerscout.build", ls.lora_config, model, "top:1")
    for edits in ("skip:4", "skip:3-4", "reinit:4", "truncate:3", "permute:4,1,2,3"):
        expect_refused("block 4 averages … below it", edit, model, edits)
    edit(model, "skip:2").close()
    short = Encoder.load(folder, device="cpu", precision="bfloat16")
    expect_refused("needs float32, got bfloat16 … use", load_tuned_classifier, short)
    assert Encoder.load(folder, device="cpu", precision="auto").precision == "float32"
    for dtype in ("float16", "bfloat16"):
        options = {"max_length": 64, "dtype": dtype}
        words = f"must be saved in float32, got {dtype} … --save-dtype float32"
        expect_refused(words, export, model, base.tokenizer, tmp_path / "half", "", **options)
    assert not (tmp_path / "half").exists()


@pytest.mark.parametrize("family", ["bert", "distilbert"])
def test_the_truncated_model_is_the_encoder_alone(family, tmp_path):
    base, folder = saved(tmp_path, family)
    warned = truncate(folder, 2, tmp_path / "short")
    assert len(warned) == 1 and "left out, such as" in warned[0] and "classifier" in warned[0]
    short = Encoder.load(tmp_path / "short")
    inputs = inputs_of(base)
    assert torch.equal(short.cut(inputs, 2), base.cut(inputs, 2))
    content = json.loads((tmp_path / "short" / "config.json").read_text())
    assert content["architectures"] == [type(base.model).__name__]
    assert "layerscout_averaging" not in content and not short.averages
    kept = " ".join(load_file(tmp_path / "short" / "model.safetensors"))
    assert not any(part in kept for part in ("pooler", "classifier", "layer.2"))


def test_further_formats(tmp_path):
    _, folder = saved(tmp_path)
    (warned,) = add_formats(folder, ["sentence-transformers"])
    assert "after a norm" in warned and str(folder) in warned
    assert json.loads((folder / "modules.json").read_text())[1]["path"] == "1_Pooling"


@pytest.mark.parametrize("family", EACH)
def test_sentence_transformers_gives_the_logits(family, tmp_path):
    library = pytest.importorskip("sentence_transformers")
    base, folder = saved(tmp_path, family)
    assert add_formats(folder, ["sentence-transformers-classifier"]) == ()
    parts = json.loads((folder / "modules.json").read_text())
    assert [part["path"] for part in parts] == ["", "1_Pooling", "2_Dense"]
    found = library.SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    inputs = AutoTokenizer.from_pretrained(folder)(
        TEXTS, padding=True, truncation=True, return_tensors="pt"
    )
    assert_close(found, means_of(base, inputs, STATE))
    # It is an ordinary checkpoint still.
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    assert_close(logits_of(model, inputs), means_of(base, inputs, STATE))
    assert Encoder.load(folder, device="cpu").averages


@pytest.mark.whole
@pytest.mark.parametrize("family", AVERAGED)
def test_the_graph_of_onnx_has_the_mean_inside(family, tmp_path):
    library = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    base, folder = saved(tmp_path, family)
    add_formats(folder, ["onnx"])
    session = library.InferenceSession(str(folder / "onnx" / "model.onnx"))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(TEXTS, padding=True, truncation=True, return_tensors="pt")
    (logits,) = session.run(None, {name: tensor.numpy() for name, tensor in inputs.items()})
    assert_close(logits, means_of(base, inputs, STATE))


# real models


@pytest.mark.parametrize("state", [2, *whole_only(6)])
def test_a_real_model(state, tmp_path):
    encoder = Encoder.load(real("models", "all-MiniLM-L6-v2"), device="cpu")
    export(averaging(encoder, state), encoder.tokenizer, tmp_path / "m", "", max_length=64)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "m")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "m")
    texts = [f"{one} {other}" for one, other in islice(product(SENTENCES, repeat=2), 50)]
    inputs = tokenizer([*texts, "ok"], padding=True, truncation=True, return_tensors="pt")
    assert_close(logits_of(model, inputs), means_of(encoder, inputs, state), 1e-5)
    assert Encoder.load(tmp_path / "m").blocks == state
