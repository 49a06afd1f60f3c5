"""Every family: classifiers cut and frozen as planned, and the same for models of others."""

import re
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModel, AutoModelForSequenceClassification, Trainer, TrainingArguments

from conftest import MODELS, real
from inputs import expect_refused
from layerscout.models import (
    Encoder,
    base_of,
    build,
    find_head_token,
    freeze,
    locate_parameters,
    lora_config,
    make_classifier,
    methods,
    untie_blocks,
)
from layerscout.plans import Plan, make_plan
from tiny import SENTENCES, inputs_of, logits_of, tiny_checkpoint, trains
from tuned import copied, differing

LABELS = ["bad", "so-so", "très “good”"]

# What lies in the head, by the names of the libraries' own classifiers.
HEADS = {
    **dict.fromkeys(("camembert", "electra", "mpnet", "roberta", "xlm-roberta"), r"classifier\."),
    **dict.fromkeys(("deberta", "deberta-v2"), r"pooler\.|classifier\."),
    **dict.fromkeys(
        ("gemma2", "gemma3_text", "llama", "mistral", "olmo2", "phi3", "qwen2", "qwen3"),
        r"model\.norm\.|score\.",
    ),
    "albert": r"albert\.pooler\.|classifier\.",
    "bert": r"bert\.pooler\.|classifier\.",
    "distilbert": r"pre_classifier\.|classifier\.",
    "eurobert": r"model\.norm\.|dense\.|classifier\.",
    "gpt2": r"transformer\.ln_f\.|score\.",
    "gpt_neox": r"gpt_neox\.final_layer_norm\.|score\.",
    "modernbert": r"model\.final_norm\.|head\.|classifier\.",
    "nomic_bert": r"nomic_bert\.pooler\.|classifier\.",
    "xlm-roberta-xl": r"roberta\.encoder\.LayerNorm\.|classifier\.",
}


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return tiny_checkpoint(tmp_path_factory.mktemp("one") / "bert", "bert")


@pytest.fixture(scope="module")
def albert(tmp_path_factory):
    settings = {"num_hidden_groups": 2}
    return tiny_checkpoint(tmp_path_factory.mktemp("one") / "albert", "albert", **settings)


def should_train(model, tuned, embeddings):
    """Name what a plan trains, written from the names of the modules."""
    kind, prefix = model.config.model_type, model.base_model_prefix
    inside, expected = {id(p) for p in base_of(model)[0].parameters()}, set()
    for name, parameter in model.named_parameters():
        block = re.search(r"\.(?:layers?|h|albert_layer_groups)\.(\d+)\.", f".{name}")
        full = name if hasattr(model, prefix) else f"{prefix}.{name}"
        head = rf"{HEADS[kind]}|(.+\.)?pooler\."
        if id(parameter) not in inside or re.match(head, full):
            trained = True
        elif block:
            # Without groups of its own, ALBERT's single one is all of its blocks.
            trained = (tuned and kind == "albert") or int(block[1]) + 1 in tuned
        else:
            trained = embeddings
        expected |= {name} if trained else set()
    return expected


def plans_for(encoder):
    shared = encoder.model.config.model_type == "albert"
    return ["full", "head:2", "(1,3,3)"] + ([] if shared else ["blocks:1,3@4", "(2,2,4)"])


def check_logits(model, theirs, encoder, drawn=()):
    """Compare logits with the library's, whose model gets the weights that both have drawn."""
    theirs.load_state_dict(theirs.state_dict() | {n: model.state_dict()[n] for n in drawn})
    batch = inputs_of(encoder)
    same(logits_of(model, batch), logits_of(theirs, batch))


def same(found, expected):
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_logits_are_the_librarys(encoder, folder):
    model = make_classifier(encoder, Plan((), 4), LABELS)
    config = model.config
    assert (config.num_labels, config.dtype) == (3, torch.float32)
    assert config.id2label == dict(enumerate(LABELS)) and config.label2id[LABELS[2]] == 2
    assert config.problem_type == "single_label_classification"
    theirs, report = AutoModelForSequenceClassification.from_pretrained(
        folder, num_labels=3, output_loading_info=True
    )
    check_logits(model, theirs, encoder, report["missing_keys"])


@pytest.mark.parametrize("head", [1, 2, 3, 4])
def test_a_cut_model_gives_the_state_of_its_head(encoder, head):
    model = make_classifier(encoder, make_plan(f"(1,{head},{head})", 4), LABELS)
    batch = inputs_of(encoder)
    with torch.no_grad():
        expected = encoder.cut(batch, head)
        if encoder.family.final_norm:
            expected = encoder.model.get_submodule(encoder.family.final_norm)(expected)
        same(base_of(model)[0](**batch).last_hidden_state, expected)
    assert model.config.num_hidden_layers == head


def test_only_what_the_plan_tunes_is_trained_and_copied(encoder):
    for notation in plans_for(encoder):
        plan = make_plan(notation, 4)
        model = make_classifier(encoder, plan, LABELS)
        expected = should_train(model, plan.tuned, notation == "full")
        assert trains(model) == expected, notation
        prefix = base_of(model)[1]
        theirs = {f"{prefix}{n}": p.data_ptr() for n, p in encoder.model.named_parameters()}
        shared = {n for n, p in model.named_parameters() if theirs.get(n) == p.data_ptr()}
        assert shared == set(dict(model.named_parameters())) - expected, notation
    assert not any(p.requires_grad for p in encoder.model.parameters())


def test_a_step_leaves_the_encoder_as_it_was(encoder):
    before = copied(encoder.model)
    model = make_classifier(encoder, make_plan("full", 4), LABELS).train()
    model(**inputs_of(encoder), labels=torch.tensor([0, 1, 2, 0, 1])).loss.backward()
    torch.optim.SGD(model.parameters(), lr=1.0).step()
    assert not differing(before, copied(encoder.model))


def test_the_seed_draws_the_head_and_nothing_else_draws(encoder):
    torch.manual_seed(5)
    models = [
        make_classifier(encoder, Plan((), head), LABELS, seed=seed)
        for seed, head in ((0, 4), (0, 2), (1, 4))
    ]
    first, again, other = (
        copied(getattr(model, "classifier", getattr(model, "score", None))) for model in models
    )
    after = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(after, torch.rand(1))
    assert not differing(first, again) and differing(first, other)


def test_a_fresh_head_has_nothing_of_the_checkpoint(encoder):
    brought = set(encoder.model.state_dict())
    drawn = [
        make_classifier(encoder, Plan((), 4), LABELS, fresh_head=fresh, seed=seed)
        for fresh, seed in ((False, 7), (True, 7), (True, 7), (True, 8))
    ]
    for name, place in locate_parameters(drawn[0]).items():
        if place == "head" and drawn[0].state_dict()[name].ndim > 1:
            loaded, first, again, other = (m.state_dict()[name] for m in drawn)
            assert torch.equal(first, again)
            assert not torch.equal(first, other)
            assert not torch.equal(first, loaded) or name.partition(".")[2] not in brought
    assert trains(drawn[1]) == trains(drawn[0])


@pytest.mark.parametrize("family", ["bert", "roberta", "modernbert", "distilbert"])
def test_a_checkpoint_with_as_many_labels_brings_its_classifier(family, tmp_path):
    folder = tiny_checkpoint(tmp_path / family, family, classes=3)
    encoder = Encoder.load(folder)
    model = make_classifier(encoder, Plan((), 4), LABELS)
    check_logits(model, AutoModelForSequenceClassification.from_pretrained(folder), encoder)
    fewer = make_classifier(encoder, Plan((), 4), LABELS[:2])
    assert logits_of(fewer, inputs_of(encoder)).shape == (5, 2)
    assert not any(p.is_meta or p.isnan().any() for p in fewer.parameters())


@pytest.mark.real
@pytest.mark.parametrize("name", MODELS)
def test_logits_of_real_checkpoints_are_the_librarys(name):
    source = real("models", name)
    encoder = Encoder.load(source, device="cpu")
    model = make_classifier(encoder, Plan((), encoder.blocks - 2), LABELS, seed=3)
    with torch.random.fork_rng():
        theirs = AutoModelForSequenceClassification.from_pretrained(
            source, num_labels=3, num_hidden_layers=encoder.blocks - 2, dtype=torch.float32
        )
    if name == "all-MiniLM-L6-v2":  # which has its pooler
        same(model.bert.pooler.dense.weight, theirs.bert.pooler.dense.weight)
    places = locate_parameters(model)
    check_logits(model, theirs, encoder, [name for name in places if places[name] == "head"])


def test_the_revision_of_a_hub_model_is_asked_for(bert, monkeypatch):
    wanted = {}

    def from_pretrained(source, **options):
        wanted.update(options, source=source)
        model = AutoModelForSequenceClassification.from_config(options["config"])
        return model, {"missing_keys": [], "mismatched_keys": []}

    monkeypatch.setattr(AutoModelForSequenceClassification, "from_pretrained", from_pretrained)
    encoder = replace(Encoder.load(bert), source="org/name", revision="0123abc")
    make_classifier(encoder, Plan((), 4), LABELS)
    assert (wanted["source"], wanted["revision"]) == ("org/name", "0123abc")
    assert wanted["local_files_only"]


def test_nothing_is_said(folder, capfd):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build(folder, "head:2", num_labels=5)
    assert capfd.readouterr() == ("", "")


def test_which_heads_read_the_first_token(encoder):
    assert find_head_token(make_classifier(encoder, Plan((), 2), LABELS)) == encoder.family.reads
    config = transformers.ModernBertConfig(classifier_pooling="mean", num_hidden_layers=1)
    with torch.device("meta"):
        model = AutoModelForSequenceClassification.from_config(config)
    assert find_head_token(model) is None


# ALBERT


def test_blocks_that_share_weights_are_tuned_together_or_untied(albert):
    encoder = Encoder.load(albert)
    model = AutoModelForSequenceClassification.from_pretrained(albert)
    found = {place for place in locate_parameters(model).values() if isinstance(place, tuple)}
    assert found == {(1, 2), (3, 4)}
    assert "blocks 3-4, head" in str(freeze(model, "top:2"))
    assert make_classifier(encoder, make_plan("(1,2,2)", 4), LABELS).config.num_hidden_groups == 1
    expect_refused("untie", make_classifier, encoder, make_plan("top:1", 4), LABELS)
    expect_refused("leaves out 3; … untie=True", freeze, model, "top:1")
    expect_refused("untie=True", lora_config, model, "(4,4,4)")
    free, batch = untie_blocks(encoder), inputs_of(encoder)
    expect_refused("share no weights", untie_blocks, free)
    for block in range(5):
        same(encoder.cut(batch, block), free.cut(batch, block))
    model = make_classifier(free, make_plan("(2,2,3)", 4), LABELS)
    assert model.config.num_hidden_groups == 3
    second = {name for name in locate_parameters(model) if "groups.1." in name}
    assert {locate_parameters(model)[name] for name in second} == {(2,)}
    heads = {n for n, _ in model.named_parameters() if re.match(HEADS["albert"], n)}
    assert trains(model) == second | heads
    assert encoder.model.config.num_hidden_groups == 2
    assert trains(build(albert, "top:1", untie=True)) >= {"classifier.weight"}


# freeze


@pytest.mark.parametrize("kind", ["SequenceClassification", "TokenClassification", "MaskedLM", ""])
def test_freeze_whatever_the_head(folder, kind):
    model = getattr(transformers, f"AutoModelFor{kind}" if kind else "AutoModel")
    try:
        model = model.from_pretrained(folder)
    except ValueError:
        pytest.skip("the family has no such head")
    shared = model.config.model_type == "albert"
    for notation in ("full", "(1,4,4)") if shared else ("top:1", "(2,3,4)", "blocks:1,3@4", "full"):
        plan, done = make_plan(notation, 4), freeze(model, notation)
        assert trains(model) == set(done.trained)
        assert trains(model) == should_train(model, plan.tuned, plan.embeddings)
        assert len(done.trained) + len(done.frozen) == len(list(model.named_parameters()))
        tied = kind == "MaskedLM" and model.config.tie_word_embeddings
        assert ("tied" in str(done)) == (tied and not plan.embeddings)


def test_freeze_says_what_it_did(bert):
    model = AutoModelForSequenceClassification.from_pretrained(bert)
    done = freeze(model, Plan({1, 2, 4}, 4))
    sizes = {name: p.numel() for name, p in model.named_parameters()}
    trained = sum(sizes[name] for name in done.trained)
    assert str(done) == (
        f"trains 52 of 73 tensors, {trained:,} of {sum(sizes.values()):,} parameters: "
        "blocks 1-2,4, head"
    )
    assert repr(done) == done.summary
    assert "embeddings, blocks 1-4, head" in str(freeze(model, "full"))
    assert str(freeze(model, Plan((), 4, embeddings=True))).endswith("embeddings, head")


def classifier(folder):
    return AutoModelForSequenceClassification.from_pretrained(folder)


def unknown(_):
    config = transformers.CTRLConfig(n_layer=1, n_embd=8, n_head=2, dff=4, vocab_size=9)
    return transformers.CTRLModel(config)


@pytest.mark.parametrize(
    ("make", "plan", "words"),
    [
        (lambda f: torch.nn.Linear(2, 2), "top:1", "a model of transformers, got Linear"),
        (lambda f: "bert", "top:1", "a model of transformers, got str"),
        (unknown, "top:1", "CTRLModel is of a family that … not know (ctrl) … Encoder.load"),
        (AutoModel.from_pretrained, "(1,2,3)", "layerscout.build, or … num_hidden_layers=3"),
        (AutoModel.from_pretrained, Plan((1,), 5), "must be in 1..4"),
        (AutoModel.from_pretrained, "best-up", "best state"),
        (AutoModel.from_pretrained, "top-1", "top"),
        (AutoModel.from_pretrained, None, "a plan must be a Plan, or text … got None"),
        (
            lambda f: AutoModel.from_pretrained(f, add_pooling_layer=False),
            "head:4",
            "BertModel has none",
        ),
        (
            lambda f: get_peft_model(classifier(f), lora_config(classifier(f), "top:1")),
            "top:1",
            "got PeftModelForSequenceClassification; pass it before",
        ),
    ],
)
def test_what_freeze_refuses(bert, make, plan, words):
    expect_refused(words, freeze, make(bert), plan)


# build


def test_a_built_model_shares_nothing_with_its_encoder(encoder):
    model = build(encoder, "head:3")
    theirs = {p.data_ptr() for p in encoder.model.parameters()}
    assert not any(p.data_ptr() in theirs for p in model.parameters())
    assert trains(model) == should_train(model, (), False)


def test_a_built_model_survives_saving(encoder, folder, tmp_path):
    model = build(folder, "(1,3,3)", labels=LABELS)
    model.save_pretrained(tmp_path / "saved")
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path / "saved")
    check_logits(again, model, encoder)
    assert again.config.id2label == dict(enumerate(LABELS))
    assert len(again.get_submodule(base_of(again)[1] + encoder.family.blocks)) in (1, 3)


@pytest.mark.parametrize("name", ["bert", "modernbert"])
def test_the_trainer_changes_what_is_planned(name, tmp_path):
    folder = tiny_checkpoint(tmp_path / name, name)
    model = build(folder, "(2,2,3)")
    encoder = Encoder.load(folder)
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    rows = encoder.tokenizer(list(SENTENCES[:8]), padding=True)
    data = Dataset.from_dict({**rows, "labels": [0, 1] * 4})
    arguments = TrainingArguments(
        str(tmp_path / "runs"),
        max_steps=2,
        learning_rate=0.1,
        report_to="none",
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
    )
    Trainer(model, arguments, train_dataset=data).train()
    changed = {n for n, p in model.named_parameters() if not torch.equal(p, before[n])}
    # A bias of keys moves no softmax, so its gradient is nothing but rounding.
    assert changed | {n for n in before if "key.bias" in n} >= should_train(model, (2,), False)
    assert changed <= should_train(model, (2,), False)


def test_names_of_labels(bert):
    assert build(bert, "head:1", num_labels=3).config.id2label[2] == "LABEL_2"
    assert build(bert, "head:1").config.num_labels == 2
    assert build(bert, "head:1", num_labels=1).config.problem_type == "regression"
    for options in ({"labels": LABELS, "num_labels": 2}, {"labels": ["a", "a"]}, {"labels": []}):
        words = "a list of names, at least one and all different, and `num_labels` their number"
        expect_refused(words, build, bert, "head:1", **options)
    expect_refused("a list of names … got 'ab'", build, bert, "head:1", labels="ab")
    for count in ("2", 1.5, True, 0):
        words = f"whole number from 1 on, got {count!r}"
        expect_refused(words, build, bert, "head:1", num_labels=count)
    expect_refused("a plan must be a Plan, or text … got None", build, bert, None)


# lora_config


def adapted(model):
    """Name the modules that peft put adapters on, as they were called before."""
    names = [n for n, module in model.named_modules() if hasattr(module, "lora_A")]
    return {name.removeprefix("base_model.model.") for name in names}


def linear(model, tuned):
    """Name the linear layers of some blocks, from their names."""
    block = re.compile(r"\.(?:layers?|h|albert_layer_groups)\.(\d+)\.")
    kinds = (torch.nn.Linear, transformers.pytorch_utils.Conv1D)
    names = [n for n, module in model.named_modules() if isinstance(module, kinds)]
    found = {name: block.search(f".{name}") for name in names}
    return {n for n, at in found.items() if at and int(at[1]) + 1 in tuned}


# Of linear layers in a block; 6 in the others.
COUNTS = dict.fromkeys(("modernbert", "gpt2", "gpt_neox", "phi3"), 4) | dict.fromkeys(
    (
        *("eurobert", "gemma2", "gemma3_text", "llama", "mistral", "nomic_bert", "olmo2"),
        *("qwen2", "qwen3"),
    ),
    7,
)


@pytest.mark.parametrize("bare", [False, True], ids=["classifier", "bare"])
def test_peft_adapts_what_is_planned(folder, bare):
    load = (AutoModel if bare else AutoModelForSequenceClassification).from_pretrained
    family = load(folder).config.model_type
    notations = ("blocks:1,3@4",) if bare else ("(2,3,4)", "full")
    for notation in ("full",) if family == "albert" else notations:
        model, plan = load(folder), make_plan(notation, 4)
        groups = (1,) if family == "albert" else plan.tuned
        expected = linear(model, groups)
        head = {name for name, place in locate_parameters(model).items() if place == "head"}
        config = lora_config(model, notation, r=2, **({"task_type": None} if bare else {}))
        wrapped = get_peft_model(model, config)
        assert adapted(wrapped) == expected
        assert len(expected) == COUNTS.get(family, 6) * len(groups)
        others = {n for n in trains(wrapped) if "lora_" not in n}
        saved = {n.replace(".modules_to_save.default", "") for n in others}
        if bare and hasattr(model, "norm"):  # peft would take the norms of blocks for it
            head = set()
        assert {n.removeprefix("base_model.model.") for n in saved} == head


def test_many_blocks_are_not_mixed_up(tmp_path):
    model = classifier(tiny_checkpoint(tmp_path / "deep", "bert", blocks=23))
    expected = linear(model, {1, 2, 11, 12, 22})
    # From 20 names on, peft shortens them.
    wrapped = get_peft_model(model, lora_config(model, "blocks:1-2,11-12,22@23"))
    assert adapted(wrapped) == expected and len(expected) == 30


def test_options_reach_peft(bert):
    model = classifier(bert)
    config = lora_config(model, "top:1", r=4, lora_alpha=7, bias="lora_only")
    assert (config.r, config.lora_alpha, config.bias) == (4, 7, "lora_only")
    assert config.task_type == "SEQ_CLS"
    assert trains(model) == set(dict(model.named_parameters()))


@pytest.mark.parametrize(
    ("plan", "options", "words"),
    [
        ("head:4", {}, "head:4 tunes none"),
        ("top:1", {"r": 0}, "whole number from 1 on, got 0"),
        ("top:1", {"r": "8"}, "whole number from 1 on, got '8'"),
        ("top:1", {"r": 1.5}, "whole number from 1 on, got 1.5"),
        ("top:1", {"target_modules": "all-linear"}, "got target_modules='all-linear'; leave"),
        ("top:1", {"layers_to_transform": [1]}, "layers_to_transform"),
        ("top:1", {"modules_to_save": ["bert"]}, "modules_to_save"),
        ("top:1", {"bias": "all"}, "bias='all'"),
        ("top:1", {"lora_alfa": 3}, "peft refuses these options: … lora_alfa"),
        ("(1,2,3)", {}, "layerscout.build"),
    ],
)
def test_what_lora_config_refuses(bert, plan, options, words):
    expect_refused(words, lora_config, classifier(bert), plan, **options)


def test_tied_heads_and_a_missing_peft(bert, monkeypatch):
    assert set(methods.DECIDED) <= set(LoraConfig.__dataclass_fields__)
    model = transformers.AutoModelForMaskedLM.from_pretrained(bert)
    expect_refused("tied to the embeddings", lora_config, model, "top:1")
    monkeypatch.setitem(sys.modules, "peft", None)
    expect_refused("pip install 'layerscout[peft]'", lora_config, model, "top:1")


def test_the_code_of_the_documentation(tmp_path, monkeypatch, capsys):
    page = (Path(__file__).parents[2] / "docs" / "surgery.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(code, names)
    assert f"# {capsys.readouterr().out}" in code
    assert len(get_peft_model(names["model"], names["config"]).targeted_module_names) == 12
    assert (tmp_path / "short" / "model.safetensors").is_file()
