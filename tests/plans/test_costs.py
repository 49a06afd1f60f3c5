"""What plans cost, against torch's own counter and published numbers."""

from contextlib import suppress
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import (
    AlbertConfig,
    AttentionInterface,
    AutoModelForSequenceClassification,
    BertConfig,
    DebertaConfig,
    DistilBertConfig,
    ElectraConfig,
    EuroBertConfig,
    Gemma2Config,
    GPT2Config,
    GPTNeoXConfig,
    LlamaConfig,
    ModernBertConfig,
    MPNetConfig,
    NomicBertConfig,
    Olmo2Config,
    Phi3Config,
    Qwen3Config,
    RobertaConfig,
    XLMRobertaXLConfig,
)
from transformers.models.bert.modeling_bert import eager_attention_forward
from transformers.models.llama import modeling_llama as llama

from conftest import whole_only
from layerscout.errors import InputError
from layerscout.models import FAMILIES, make_trainable, model_shape
from layerscout.plans import (
    Adapter,
    LoRA,
    ModelShape,
    Parameters,
    PrefixTuning,
    Work,
    cost,
    make_plan,
)

LARGE = RobertaConfig(
    vocab_size=50265,
    hidden_size=1024,
    num_hidden_layers=24,
    num_attention_heads=16,
    intermediate_size=4096,
    max_position_embeddings=514,
    type_vocab_size=1,
)
# ALBERT's blocks have weights of their own here; that changes no FLOPs.
ALBERT = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}

DEBERTA = DebertaConfig(relative_attention=True, pos_att_type=["c2p", "p2c"])

SMALL = {"vocab_size": 1000, "hidden_size": 768, "num_attention_heads": 12}
SMALL |= {"intermediate_size": 2048}
GROUPED = {"num_key_value_heads": 4}

# How far the count may be off: the embeddings' projections are left out, the norm below a head
# takes gradients through it even when no block is tuned, and decoders' heads run on all tokens.
CONFIGS = {
    "bert": (BertConfig(), 1e-5),
    "roberta": (RobertaConfig(vocab_size=50265, max_position_embeddings=514), 1e-5),
    "distilbert": (DistilBertConfig(), 1e-5),
    "electra": (ElectraConfig(embedding_size=256), 1e-5),
    "electra with a projection": (ElectraConfig(), 0.014),
    "mpnet": (MPNetConfig(), 1e-5),
    "albert": (AlbertConfig(num_hidden_groups=6, **ALBERT), 0.005),
    "modernbert": (ModernBertConfig(), 1e-3),
    "eurobert": (EuroBertConfig(pad_token_id=0, classifier_pooling="bos", **SMALL), 2e-3),
    "gpt2": (GPT2Config(pad_token_id=0), 2e-3),
    "gpt_neox": (GPTNeoXConfig(pad_token_id=0, **SMALL), 2e-3),
    "llama": (LlamaConfig(pad_token_id=0, **SMALL, **GROUPED), 2e-3),
    "nomic_bert": (NomicBertConfig(**SMALL), 1e-5),
    "olmo2": (Olmo2Config(pad_token_id=0, **SMALL, **GROUPED), 2e-3),
    "phi3": (Phi3Config(**SMALL, **GROUPED, pad_token_id=0, bos_token_id=1, eos_token_id=2), 2e-3),
    "qwen3": (Qwen3Config(pad_token_id=0, head_dim=128, **SMALL, **GROUPED), 2e-3),
    "gemma2": (Gemma2Config(head_dim=128, **SMALL, **GROUPED), 2e-3),
    "xlm-roberta-xl": (XLMRobertaXLConfig(**SMALL), 1e-3),
}
FIRST = ("bert", "modernbert", "llama")
EACH_CONFIG = [*FIRST, *whole_only(*sorted(CONFIGS.keys() - set(FIRST)))]


STRATEGIES = ["full", "blocks:2,4@5", *whole_only("top:1", "best-down:2@top")]


def without_weights(config, plan, method=None):
    """Make the real model of a plan on the meta device, where only shapes are computed."""
    config = deepcopy(config)
    config.num_hidden_layers, config.num_labels = plan.head, 3
    if config.model_type == "albert":
        config.num_hidden_groups = plan.head
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[: plan.head]
    with torch.device("meta"):
        model = AutoModelForSequenceClassification.from_config(config, attn_implementation="eager")
    encoder = model.base_model
    if method is not None:
        with torch.device("meta"):
            make_trainable(model, plan, method)
    elif len(plan.tuned) < config.num_hidden_layers or not plan.embeddings:
        encoder.requires_grad_(False)
        blocks = encoder.get_submodule(FAMILIES[config.model_type].blocks)
        for trained in [blocks[block - 1] for block in plan.tuned]:
            trained.requires_grad_(True)
        for part in FAMILIES[config.model_type].head_parts:
            with suppress(AttributeError):
                encoder.get_submodule(part).requires_grad_(True)
        encoder.get_input_embeddings().requires_grad_(bool(plan.embeddings))
    return model


def counted(config, plan, tokens, examples=2, method=None):
    """Count a forward pass and a step of the real model, per example, with torch's counter."""
    model = without_weights(config, plan, method)
    model.base_model.warn_if_padding_and_no_attention_mask = lambda *_: None  # looks at values
    texts = torch.ones(examples, tokens, dtype=torch.long, device="meta")
    with FlopCounterMode(display=False) as forward:
        loss = model(input_ids=texts).logits.sum()
    with FlopCounterMode(display=False) as backward:
        loss.backward()
    return forward.get_total_flops() / examples, backward.get_total_flops() / examples


@pytest.mark.parametrize(
    "strategy",
    [
        "full",
        "blocks:2,4@5",
        "head:4",
        "emb+(3, 3, 5)",
        *whole_only("top:1", "best-down:2@top", "best-down:all@best"),
    ],
)
@pytest.mark.parametrize("family", EACH_CONFIG)
def test_flops_are_those_that_torch_counts(family, strategy):
    config, tolerance = deepcopy(CONFIGS[family])
    config.num_hidden_layers = 6
    shape = model_shape(config, labels=3)
    plan = make_plan(strategy, shape.blocks, best=3)
    forward, backward = counted(config, plan, tokens=48)
    found = cost(plan, shape, Work(examples=1, validation=0, tokens=48, epochs=1))
    assert found.inference == pytest.approx(forward, rel=tolerance)
    assert found.train == pytest.approx(forward + backward, rel=tolerance)


METHODS = [Adapter(64), LoRA(rank=8), PrefixTuning(16)]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
@pytest.mark.parametrize("family", EACH_CONFIG)
def test_flops_of_methods_are_those_that_torch_counts(monkeypatch, family, method, strategy):
    config, tolerance = deepcopy(CONFIGS[family])
    if family == "modernbert":  # a block is tuned
        tolerance = 1e-5
    # GPT-NeoX runs attention and feed-forward layers side by side, and OLMo 2 norms queries and
    # keys, which changes what the lowest block spares.
    tolerance = {"gpt_neox": 0.1, "olmo2": 0.02}.get(family, tolerance)
    if isinstance(method, PrefixTuning):
        if not FAMILIES[config.model_type].prefixed:
            pytest.skip("its attention is of another kind")
        # Prefixes go on to a fused attention, in which the counter sees other products.
        eager = eager_attention_forward
        if getattr(config, "num_key_value_heads", None):
            eager = llama.eager_attention_forward
        monkeypatch.setitem(AttentionInterface._global_mapping, "sdpa", eager)
    config.num_hidden_layers = 6
    shape = model_shape(config, labels=3)
    plan = make_plan(strategy, shape.blocks, best=3)
    forward, backward = counted(config, plan, tokens=48, method=method)
    found = cost(plan, shape, Work(examples=1, validation=0, tokens=48, epochs=1), method)
    assert found.train == pytest.approx(forward + backward, rel=tolerance)
    if isinstance(method, LoRA):  # which is merged
        assert found.inference == cost(plan, shape, Work(1, 0, 48, 1)).inference < forward
    else:
        assert found.inference == pytest.approx(forward, rel=tolerance)


def test_epochs_validation_and_the_trunk():
    shape = model_shape(BertConfig(), labels=3)
    plan = make_plan("(6, 8, 10)", 12)
    forward, backward = counted(BertConfig(), plan, tokens=32)
    head = 2 * shape.parameters.head
    trunk = (forward - head) * 5 / 10
    work = Work(examples=1000, validation=300, tokens=32, epochs=4)
    step, scoring = forward - trunk + backward, forward - trunk
    tuned = 4 * (1000 * step + 300 * scoring)
    assert cost(plan, shape, work).train == pytest.approx(1300 * trunk + tuned)
    uncached = cost(plan, shape, replace(work, cached=False))
    assert uncached.train == pytest.approx(4 * 1300 * trunk + tuned)
    full = make_plan("full", 12)
    assert cost(full, shape, work) == cost(full, shape, replace(work, cached=False))
    # Two halves judge each other and all rows are trained on, each read once for the head.
    staged = work.end_solved((0.5, 0.5, 1.0))
    stages = 1300 * trunk + 2 * 4 * 1000 * step + 3 * 1300 * scoring
    assert cost(plan, shape, staged).train == pytest.approx(stages)
    uncached = cost(plan, shape, replace(staged, cached=False))
    assert uncached.train == pytest.approx(2 * 4 * 1000 * (trunk + step) + 3 * 1300 * forward)


def test_the_published_parameter_counts():
    shape, work = model_shape(LARGE, labels=3), Work(1, 0, 1, 1)
    found = {
        notation: cost(make_plan(notation, 24), shape, work)
        for notation in ("full", "(1, 14, 14)", "(15, 24, 24)", "head:14")
    }
    # Xie et al. 2022, Table 10.
    assert found["full"].total == found["full"].trainable == 355_362_819
    assert found["(1, 14, 14)"].total == 229_400_579
    assert found["(1, 14, 14)"].trainable == 177_399_811
    assert found["(15, 24, 24)"].trainable == 127_014_915
    assert found["(15, 24, 24)"].total == 355_362_819
    assert found["head:14"].trainable == shape.parameters.head


def test_the_published_parameters_of_an_adapter():
    shape, work = model_shape(LARGE, labels=3), Work(1, 0, 1, 1)
    plan, whole = make_plan("(14, 16, 24)", 24), make_plan("full", 24)
    found = cost(plan, shape, work, Adapter(256))
    assert found.trainable == 3 * 1_055_232 + shape.parameters.head
    assert found.total == 355_362_819 + 3 * (1_055_232 - 4096)
    assert cost(whole, shape, work, Adapter(256)).trainable == 24 * 1_055_232 + 1_052_675


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
@pytest.mark.parametrize(
    "config", [*(c for c, _ in CONFIGS.values()), DEBERTA], ids=lambda c: c.model_type
)
def test_parameters_of_methods_are_those_that_the_model_has(config, method):
    if isinstance(method, PrefixTuning) and not FAMILIES[config.model_type].prefixed:
        pytest.skip("its attention is of another kind")
    config = deepcopy(config)
    config.num_hidden_layers = 6
    plan = make_plan("blocks:1,3-4@5", 6)
    model = without_weights(config, plan, method)
    found = cost(plan, model_shape(config, labels=3), Work(1, 0, 1, 1), method)
    sizes = [(p.numel(), p.requires_grad) for p in model.parameters()]
    trained = sum(size for size, trains in sizes if trains)
    assert found.trainable == trained
    if not isinstance(method, LoRA):  # which is merged
        assert found.total == sum(size for size, _ in sizes)


def test_shared_weights_count_once():
    shape = model_shape(AlbertConfig(**ALBERT), labels=2)
    counts, work = shape.parameters, Work(1, 0, 1, 1)
    plan = make_plan("(1, 4, 4)", 12)
    assert cost(make_plan("full", 12), shape, work).total == counts.total
    assert cost(plan, shape, work).trainable == counts.blocks[0] + counts.head
    untied = replace(shape, weights=tuple(range(12)))
    assert cost(plan, untied, work).trainable == 4 * counts.blocks[0] + counts.head
    changes = 8 * shape.linear[0]
    assert cost(plan, shape, work, LoRA(8)).trainable == changes + counts.head
    assert cost(plan, untied, work, LoRA(8)).trainable == 4 * changes + counts.head


@pytest.mark.parametrize(
    ("strategy", "trunk", "tuned", "above", "times"),
    [
        ("top:1", 11, 1, 0, 6.9),
        ("top:3", 9, 3, 0, 3.3),
        ("best-down:3@best", 5, 3, 0, 3.6),
        ("best-down:3@top", 5, 3, 4, 2.0),
        ("best-up", 8, 4, 0, 2.6),
        ("head:8", 8, 0, 0, 22),
    ],
)
def test_the_limit_of_short_texts(strategy, trunk, tuned, above, times):
    counts = Parameters(embeddings=0, blocks=(0,) * 12, head=0, total=0)
    shape = ModelShape(
        "bert",
        12,
        384,
        1536,
        0,
        counts,
        queries=384,
        keys=384,
        gated=False,
        fused=False,
        first_normed=None,
        weights=tuple(range(12)),
        norms=(1536,) * 12,
        linear=(6912,) * 12,
    )
    work = Work(examples=1000, validation=0, tokens=1e-9, epochs=5)
    plan = make_plan(strategy, 12, best=8)
    full = cost(make_plan("full", 12), shape, work).train
    # In units of a block's forward pass; the lowest tuned block spares a quarter.
    units = trunk / 5 + 3 * tuned + 2 * above
    assert 36 / units == pytest.approx(times, rel=0.03)
    spared = units - 0.25 * (tuned > 0)
    assert full / cost(plan, shape, work).train == pytest.approx(36 / spared)


def test_work_is_checked():
    for numbers in (
        (0, 0, 1.0, 1),
        (1, -1, 1.0, 1),
        (1, 0, 0.0, 1),
        (1, 0, float("nan"), 1),
        (1, 0, float("inf"), 1),
    ):
        with pytest.raises(InputError, match="1 or more examples"):
            Work(*numbers)
    with pytest.raises(InputError, match="more than 0 epochs; got 7, 1 and 0"):
        Work(7, 0, 1.0, 0)
