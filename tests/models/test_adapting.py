"""Every family: adapters, LoRA and prefix-tuning on the planned blocks; saved and taken out."""

import copy
import json
import re
import shutil
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification

from conftest import truncate
from inputs import expect_refused
from layerscout.models import (
    base_of,
    check_method,
    hash_base,
    load_tuned,
    locate_parameters,
    make_classifier,
    make_trainable,
    resume_at,
    save_peft,
    save_trained,
    unload,
    untie_blocks,
)
from layerscout.models.adapters import Bottleneck, Prefix
from layerscout.plans import Adapter, LoRA, Plan, PrefixTuning, make_plan
from tiny import POSITIONS, inputs_of, is_norm, logits_of, tiny_checkpoint, trains
from tuned import copied, differing, load as load_tiny

LABELS = ["bad", "so-so", "très “good”"]
ADAPTER, IDENTITY = Adapter(bottleneck=3), Adapter(bottleneck=3, adapter_init="identity")
PREFIX, LORA = PrefixTuning(virtual_tokens=5), LoRA(rank=2)
STANDARD = (
    *("albert", "bert", "camembert", "distilbert", "electra", "eurobert", "nomic_bert", "roberta"),
    *("xlm-roberta", "xlm-roberta-xl", "gpt2", "gpt_neox", "llama", "olmo2", "phi3", "qwen3"),
)
PLAN = make_plan("blocks:2,4@4", 4)


@pytest.fixture(scope="module")
def encoder(encoder):
    """Return the encoder with blocks of their own, which adapters and prefixes need."""
    tied = encoder.model.config.model_type == "albert"
    return untie_blocks(encoder) if tied else encoder


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return load_tiny(tmp_path_factory.mktemp("one"), "bert")


def methods_for(encoder):
    standard = encoder.model.config.model_type in STANDARD
    return [ADAPTER, LORA] + ([PREFIX] if standard else [])


def trainable(encoder, method, plan=PLAN, **options):
    return make_trainable(make_classifier(encoder, plan, LABELS), plan, method, **options)


def step(model, batch):
    """Take one large step with what has a gradient; give the names of what has one."""
    model.train()
    model(**batch, labels=torch.tensor([0, 1, 2, 0, 1])).loss.backward()
    given = {name: p for name, p in model.named_parameters() if p.grad is not None}
    with torch.no_grad():
        for parameter in given.values():
            parameter -= 0.5 * parameter.grad.sign()
            parameter.grad = None
    return set(given)


def same(found, expected, tolerance=0.0):
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)


def of_blocks(names, blocks):
    """Keep the names of what lies in some blocks, written from the libraries' names."""
    found = {n: re.search(r"(?:^|\.)(?:layers?|h|albert_layer_groups)\.(\d+)\.", n) for n in names}
    return {n for n, at in found.items() if at and int(at[1]) + 1 in blocks}


# What is added, and what is trained


def test_adapters_that_start_as_the_identity_and_prefixes_of_no_tokens_change_nothing(encoder):
    batch, plain = inputs_of(encoder), make_classifier(encoder, PLAN, LABELS)
    same(logits_of(trainable(encoder, IDENTITY).model, batch), logits_of(plain, batch))
    drawn = logits_of(trainable(encoder, ADAPTER).model, batch)
    assert (drawn - logits_of(plain, batch)).abs().max() > 1e-4
    if encoder.model.config.model_type not in STANDARD:
        return
    one_text = {name: tensor[:1, :6] for name, tensor in batch.items()}  # which needs no mask
    model = trainable(encoder, PREFIX).model
    for given in (batch, one_text):
        assert (logits_of(model, given) - logits_of(plain, given)).abs().max() > 1e-4
    for module in model.modules():
        if isinstance(module, Prefix):
            module.key.data, module.value.data = module.key.data[:0], module.value.data[:0]
    for given in (batch, one_text):
        same(logits_of(model, given), logits_of(plain, given), 1e-6)


def test_what_is_trained_is_what_the_method_says(encoder):
    """The names before, with what the method adds, and what a step reaches."""
    plain, batch = make_classifier(encoder, PLAN, LABELS), inputs_of(encoder)
    before = copied(encoder.model)
    head = {name for name, place in locate_parameters(plain).items() if place == "head"}
    names = set(dict(plain.named_parameters()))
    norms = {n for n in of_blocks(names, (2, 4)) if is_norm(n)}
    for method in methods_for(encoder):
        model = trainable(encoder, method).model
        held = set(dict(model.named_parameters()))
        if isinstance(method, LoRA):
            held = {n.replace(".base_layer", "").replace(".original_module", "") for n in held}
            new = {n for n in held if ".lora_" in n}
            copies = {n for n in held if ".modules_to_save.default" in n}
            assert {n.replace(".modules_to_save.default", "") for n in copies} == head
            expected, held = new | copies, held - copies
        else:
            new = {n for n in held if ".adapters." in n or ".prefix." in n}
            expected = new | head | (norms if isinstance(method, Adapter) else set())
        assert held - new == names
        assert new == of_blocks(new, (2, 4))
        assert trains(model) == expected
        assert step(model, batch) == expected
        assert logits_of(model, batch).isfinite().all()
        assert not differing(before, copied(encoder.model))
        whole = trainable(encoder, method, make_plan("full", 4))
        assert whole.plan.embeddings is False and whole.plan.cut == 0
        places = locate_parameters(whole.model)
        assert "embeddings" in places.values()
        assert "embeddings" not in {places[name] for name in trains(whole.model)}


def test_the_count_of_the_paper():
    config = transformers.RobertaConfig(
        hidden_size=1024, num_hidden_layers=1, num_attention_heads=16, intermediate_size=4096
    )
    with torch.device("meta"):
        model = AutoModelForSequenceClassification.from_config(config)
        make_trainable(model, Plan((1,), 1), Adapter())
    found = {n: p.numel() for n, p in model.named_parameters() if p.requires_grad}
    assert sum(found[n] for n in found if not n.startswith("classifier.")) == 1_055_232


def test_new_weights_follow_the_seed_and_nothing_else_draws(bert):
    for method in methods_for(bert):
        torch.manual_seed(5)
        first, again, other = (
            trainable(bert, method, seed=seed).model.state_dict() for seed in (0, 0, 1)
        )
        after = torch.rand(1)
        torch.manual_seed(5)
        assert torch.equal(after, torch.rand(1))
        assert not differing(first, again) and differing(first, other)


@pytest.mark.parametrize(
    ("method", "drawn"),
    [
        (Adapter(bottleneck=2000), ("up", "down", "key", "value")),
        (Adapter(bottleneck=2000, adapter_init="identity"), ("down",)),
        (PrefixTuning(160), ("key", "value")),
    ],
)
def test_how_new_weights_are_drawn(bert, method, drawn):
    for name, tensor in trainable(bert, method).model.state_dict().items():
        if ".adapters." in name or ".prefix." in name:
            random = name.removesuffix(".weight").rpartition(".")[2] in drawn
            assert abs(tensor.std().item() - 0.02 * random) < 5e-4, name
            assert abs(tensor.mean().item()) < 2e-3


def test_training_and_dropout(bert):
    """Dropout is inside of the adapter: what goes round it is never dropped."""
    adapter = Bottleneck(16, Adapter(bottleneck=500)).train()
    x = torch.randn(40, 16)
    torch.manual_seed(0)
    found = adapter(x)
    torch.manual_seed(0)
    kept = torch.nn.functional.dropout(torch.relu(x @ adapter.down.weight.T), 0.1)
    same(found, x + kept @ adapter.up.weight.T, 1e-6)
    for method in methods_for(bert):
        assert not any(module.training for module in trainable(bert, method).model.modules())


def test_the_forward_pass_of_the_adapters_library():
    """Golden values of the library that Houlsby's adapters are best known from, in eval mode."""
    golden = json.loads((Path(__file__).parents[1] / "golden" / "houlsby.json").read_text())
    config = transformers.BertConfig(**golden["config"], num_labels=golden["labels"])
    model = AutoModelForSequenceClassification.from_config(config).eval()
    model.load_state_dict({n: torch.tensor(w) for n, w in golden["weights"].items()})
    batch = {name: torch.tensor(golden[name]) for name in ("input_ids", "attention_mask")}
    same(logits_of(model, batch), torch.tensor(golden["base_logits"]), 1e-5)
    make_trainable(model, "full", Adapter(bottleneck=golden["bottleneck"]))
    given = {name: torch.tensor(weights) for name, weights in golden["adapters"].items()}
    held = {n for n in model.state_dict() if ".adapters." in n}
    assert set(given) == held
    model.load_state_dict(given, strict=False)
    with torch.no_grad():
        found = model(**batch, output_hidden_states=True)
    same(torch.stack(found.hidden_states), torch.tensor(golden["states"]), 1e-5)
    same(found.logits, torch.tensor(golden["logits"]), 1e-5)


def test_prefixes_are_what_attention_sees_first(bert):
    """Attention written out, over the virtual tokens and the tokens that are no padding."""
    model, batch, seen = trainable(bert, PREFIX).model, inputs_of(bert), {}
    attention = model.bert.encoder.layer[1].attention.self
    handle = attention.register_forward_hook(
        lambda _, args, out: seen.update(state=args[0], out=out[0])
    )
    logits_of(model, batch)
    handle.remove()
    state, prefix = seen["state"], attention.prefix
    with torch.no_grad():
        query = attention.query(state)
        key = torch.cat([prefix.key.expand(5, -1, -1), attention.key(state)], dim=1)
        value = torch.cat([prefix.value.expand(5, -1, -1), attention.value(state)], dim=1)
    query, key, value = (part.unflatten(-1, (4, 4)) for part in (query, key, value))
    scores = torch.einsum("bqhs,bkhs->bhqk", query, key) / 2
    real = torch.cat([torch.ones(5, 5), batch["attention_mask"]], dim=1).bool()
    weights = scores.masked_fill(~real[:, None, None], -torch.inf).softmax(dim=-1)
    same(seen["out"], torch.einsum("bhqk,bkhs->bqhs", weights, value).flatten(2), 1e-5)


# With the rest of layerscout


def test_a_resumed_model_gives_the_same_logits(encoder):
    plan, batch = make_plan("blocks:3-4@4", 4), inputs_of(encoder)
    for method in methods_for(encoder):
        model = trainable(encoder, method, plan).model
        step(model, batch)
        expected = logits_of(model, batch)
        for cut in range(plan.cut + 1):
            with torch.no_grad():
                state = encoder.cut(batch, cut)
            with resume_at(base_of(model)[0], encoder.family, state, cut):
                same(logits_of(model, batch), expected)


def test_copies_are_their_own(encoder):
    batch = inputs_of(encoder)
    for method in methods_for(encoder):
        first = trainable(encoder, method)
        expected = logits_of(first.model, batch)
        second = copy.deepcopy(first)
        same(logits_of(second.model, batch), expected)
        step(second.model, batch)
        assert (logits_of(second.model, batch) - expected).abs().max() > 1e-3
        if isinstance(method, LoRA):
            second.wrapper.merge_and_unload()
        else:
            unload(second.model)
        same(logits_of(first.model, batch), expected)


def test_unloading_restores_the_base(encoder):
    batch, plain = inputs_of(encoder), make_classifier(encoder, PLAN, LABELS)
    found = locate_parameters(plain)
    for method in methods_for(encoder):
        if isinstance(method, LoRA):
            continue
        model = trainable(encoder, method).model
        step(model, batch)
        assert unload(model) is model
        assert list(model.state_dict()) == list(plain.state_dict())
        changed = differing(copied(model), copied(plain))
        assert {found[name] for name in changed} == {"head"}
        model.load_state_dict(plain.state_dict())  # the head
        same(logits_of(model, batch), logits_of(plain, batch))
        expect_refused("neither adapters nor prefixes", unload, model)
        make_trainable(model, PLAN, method)


# LoRA


def test_merged_is_unmerged(encoder, tmp_path):
    batch, plain = inputs_of(encoder), make_classifier(encoder, PLAN, LABELS)
    done = trainable(encoder, LORA)
    step(done.model, batch)
    step(done.model, batch)  # in the first one, half of the matrices are still zero
    done.model.double()
    expected = logits_of(done.model, batch)
    model = done.wrapper.merge_and_unload()
    assert model is done.model and list(model.state_dict()) == list(plain.state_dict())
    same(logits_of(model, batch), expected, 1e-10)
    assert (expected - logits_of(plain, batch)).abs().max() > 1e-2
    model.save_pretrained(tmp_path / "model")
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model")
    same(logits_of(again.double(), batch), expected, 1e-10)


def test_what_lora_adds(bert):
    done = trainable(bert, LoRA(rank=2, lora_alpha=6))
    step(done.model, inputs_of(bert))
    layer = done.model.bert.encoder.layer[1].intermediate.dense
    a, b = layer.lora_A["default"].weight, layer.lora_B["default"].weight
    expected = layer.base_layer.weight + 3 * (b @ a)
    assert a.shape == (2, 16) and b.abs().min() > 0
    merged = done.wrapper.merge_and_unload().bert.encoder.layer[1].intermediate.dense
    same(merged.weight, expected, 1e-6)


def test_peft_loads_its_folder(encoder, tmp_path):
    plan, batch = make_plan("(2,2,3)", 4), inputs_of(encoder)
    if encoder.model.config.model_type == "albert":
        return  # untied, it is not the model of its checkpoint
    done = trainable(encoder, LORA, plan)
    step(done.model, batch)
    step(done.model, batch)
    for _ in range(2):
        save_peft(done, encoder, tmp_path / "peft", max_length=64)
    options = {"num_hidden_layers": 3, "num_labels": 3, "dtype": torch.float32}
    plain = AutoModelForSequenceClassification.from_pretrained(encoder.source, **options)
    model = PeftModel.from_pretrained(plain, tmp_path / "peft")
    same(logits_of(model, batch), logits_of(done.model, batch), 1e-6)
    settings = json.loads((tmp_path / "peft" / "adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] == encoder.source


# Saving


def saved(encoder, method, folder, plan=PLAN):
    done = trainable(encoder, method, plan)
    step(done.model, inputs_of(encoder))
    save_trained(done, encoder, folder, max_length=64)
    return done.model


def test_what_was_trained_is_saved_and_loaded(encoder, tmp_path):
    batch = inputs_of(encoder)
    for method in methods_for(encoder):
        if isinstance(method, LoRA):
            continue
        folder = tmp_path / method.name
        model = saved(encoder, method, folder, make_plan("(2,2,3)", 4))
        assert set(load_file(folder / "trained.safetensors")) == trains(model)
        again = load_tuned(folder)[1]
        assert trains(again) == trains(model)
        same(logits_of(again, batch), logits_of(model, batch))
        assert again.config.id2label == dict(enumerate(LABELS))
        assert not any(module.training for module in again.modules())
        words = "could not load adapters or prefixes again"
        expect_refused(words, again.save_pretrained, tmp_path / "plain")
        unload(again).save_pretrained(tmp_path / "plain")


def test_a_folder_is_small_and_replaced(bert, tmp_path):
    saved(bert, ADAPTER, tmp_path / "model")
    saved(bert, PREFIX, tmp_path / "model")
    files = {"config.json", "trained.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert {path.name for path in (tmp_path / "model").iterdir()} == files
    about = json.loads((tmp_path / "model" / "config.json").read_text())
    assert (about["method"], about["options"]) == ("prefix-tuning", {"virtual_tokens": 5})
    assert about["plan"] == PLAN.as_dict()
    assert (about["max_length"], about["labels"]) == (64, LABELS)


def test_a_base_elsewhere(tmp_path):
    folder = tmp_path / "base"
    encoder = load_tiny(folder, "bert")
    model = saved(encoder, ADAPTER, tmp_path / "model")
    folder.rename(tmp_path / "moved")
    words = "cannot load the base … there is no model folder … `base`"
    expect_refused(words, load_tuned, tmp_path / "model")
    batch = inputs_of(encoder)
    same(
        logits_of(load_tuned(tmp_path / "model", None, tmp_path / "moved")[1], batch),
        logits_of(model, batch),
    )
    tiny_checkpoint(folder, "bert", seed=1)
    expect_refused(
        "exactly the model that was tuned … other weights", load_tuned, tmp_path / "model"
    )
    for name, family, blocks in (
        ("robin", "roberta", 4),
        ("alba", "albert", 4),
        ("low", "bert", 2),
    ):
        base = tiny_checkpoint(tmp_path / name, family, blocks=blocks)
        expect_refused(f"{name} has other weights", load_tuned, tmp_path / "model", base=base)


def test_the_hash_of_a_base(bert):
    """It sees every weight up to the head, and nothing above."""
    whole = hash_base(bert, 4)
    assert re.fullmatch("[0-9a-f]{64}", whole) and hash_base(bert, 3) != whole
    for name, place in locate_parameters(bert.model).items():
        other = replace(bert, model=copy.deepcopy(bert.model))
        other.model.get_parameter(name).data.view(-1)[-1] += 1e-3
        below = place == "embeddings" or (place != "head" and place <= (2,))
        assert (hash_base(other, 2) != hash_base(bert, 2)) is below, name
        assert (hash_base(other, 4) != whole) is (place != "head"), name


@pytest.fixture(scope="module")
def whole(bert, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "model"
    saved(bert, ADAPTER, folder)
    return folder


def change(**entries):
    """Change entries of the JSON file; those of the base by `base__...`."""

    def spoil(folder):
        about = json.loads((folder / "config.json").read_text())
        for path, value in entries.items():
            above, _, last = path.rpartition("__")
            inside = about[above] if above else about
            inside[last] = value
            if value is None:
                del inside[last]
        (folder / "config.json").write_text(json.dumps(about))

    return spoil


def tensors(**changed):
    def spoil(folder):
        held = load_file(folder / "trained.safetensors") | changed
        held = {name: tensor for name, tensor in held.items() if tensor is not None}
        save_file(held, folder / "trained.safetensors")

    return spoil


def written(text):
    return lambda folder: (folder / "config.json").write_text(text)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda f: (f / "config.json").unlink(), "that layerscout saved"),
        (written("{"), "that layerscout saved"),
        (written("[]"), "that layerscout saved"),
        (lambda f: tiny_checkpoint(f, "bert"), "that layerscout saved; a checkpoint is loaded"),
        (change(format=2), "must be of format 1, got 2; load it with the layerscout"),
        (change(method="lora"), "broken … lora"),
        (change(method=["adapter"]), "broken"),
        (change(options={"rank": 2}), "broken … rank"),
        (change(options={"bottleneck": 0}), "broken … `bottleneck` must be a whole number"),
        (change(plan={"tuned": [5], "head": 4}), "broken … must be in 1..4"),
        (change(plan=None), "broken … plan"),
        (change(labels=None), "broken … labels"),
        (change(labels=[]), "broken"),
        (change(labels="abc"), "broken"),
        (change(base="bert"), "broken"),
        (change(base__sha256=None), "broken"),
        (change(base__sha256="0" * 64), "has other weights"),
        (change(base__family="roberta"), "has other weights"),
        (change(options={"bottleneck": 2}), "of another shape or type"),
        (change(labels=["a", "b"]), "2 tensors are … shape or type, such as classifier.bias"),
        (lambda f: (f / "trained.safetensors").unlink(), "missing or broken"),
        (lambda f: truncate(f / "trained.safetensors"), "missing or broken"),
        (tensors(**{"classifier.bias": None}), "1 tensors are missing … such as classifier.bias"),
        (tensors(more=torch.ones(1)), "1 tensors … unknown … such as more"),
        (tensors(**{"classifier.bias": torch.ones(3).double()}), "1 tensors … classifier.bias"),
    ],
)
def test_broken_folders_are_refused(whole, tmp_path, spoil, words):
    shutil.copytree(whole, tmp_path / "model")
    spoil(tmp_path / "model")
    expect_refused(words, load_tuned, tmp_path / "model")


# What is refused


def test_families_without_standard_attention(encoder):
    if (family := encoder.model.config.model_type) not in STANDARD:
        words = f"prefix-tuning … got {family} … ; use --method full, adapter or lora"
        expect_refused(words, trainable, encoder, PREFIX)


def test_a_prefix_is_what_a_cache_of_keys_and_values_holds(encoder):
    if encoder.family.reads == "first" or encoder.model.config.model_type not in STANDARD:
        return
    model, batch = (
        trainable(encoder, PREFIX, make_plan("blocks:1-4@4", 4)).model,
        inputs_of(encoder),
    )
    expected = logits_of(model, batch)
    prefixes = [module for module in model.modules() if isinstance(module, Prefix)]
    plain, cache = unload(model), transformers.DynamicCache()
    (rows, texts), config = batch["input_ids"].shape, plain.config
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    for block, prefix in enumerate(prefixes):
        both = (part.detach().unflatten(1, (heads, -1)) for part in (prefix.key, prefix.value))
        cache.update(*(part.transpose(0, 1).expand(rows, -1, -1, -1) for part in both), block)
    seen = torch.nn.functional.pad(batch["attention_mask"], (5, 0), value=1)
    positions = torch.arange(texts).expand(rows, -1)
    options = {"position_ids": positions, "past_key_values": cache, "use_cache": True}
    given = {"input_ids": batch["input_ids"], "attention_mask": seen} | options
    same(logits_of(plain, given), expected, 1e-5)


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_as_many_virtual_tokens_as_positions(family, tmp_path):
    config = load_tiny(tmp_path, family).model.config
    check_method(config, PLAN, PrefixTuning(POSITIONS))
    words = f"`virtual_tokens` … 1..{POSITIONS}, got 161"
    expect_refused(words, check_method, config, PLAN, PrefixTuning(POSITIONS + 1))


def test_blocks_that_share_their_weights(tmp_path):
    encoder, full = load_tiny(tmp_path, "albert", num_hidden_groups=2), make_plan("full", 4)
    for method in (ADAPTER, PREFIX):
        words = f"{method.name} needs blocks … albert … --untie"
        expect_refused(words, trainable, encoder, method, full)
        check_method(untie_blocks(encoder).model.config, PLAN, method)
    done = trainable(encoder, LORA, full)
    expected = logits_of(done.model, inputs_of(encoder))
    same(logits_of(done.wrapper.merge_and_unload(), inputs_of(encoder)), expected, 1e-5)


def test_what_else_is_refused(bert):
    model = trainable(bert, ADAPTER).model
    plain = make_classifier(bert, PLAN, LABELS)
    words = "already has adapters or prefixes; … unload"
    expect_refused(words, make_trainable, model, PLAN, PREFIX)
    expect_refused("a model of transformers, got Linear", unload, torch.nn.Linear(2, 2))
    words = "unknown method 'adaptor', did you mean 'adapter'"
    expect_refused(words, make_trainable, plain, PLAN, "adaptor")
    words = "head must be on the model's top block"
    expect_refused(words, make_trainable, plain, "(1,2,3)", ADAPTER)
    for method in (ADAPTER, PREFIX, LORA):
        words = f"{method.name} tunes blocks, but head:3 tunes none; use"
        expect_refused(words, trainable, bert, method, Plan((), 3))


def test_nothing_is_said(bert, tmp_path, capfd):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for method in methods_for(bert):
            done = trainable(bert, method)
            if isinstance(method, LoRA):
                save_peft(done, bert, tmp_path / "peft", max_length=64)
                done.wrapper.merge_and_unload()
            else:
                save_trained(done, bert, tmp_path / "model", max_length=64)
                unload(load_tuned(tmp_path / "model")[1])
    assert capfd.readouterr() == ("", "")
