"""What training takes of memory, against the bytes that lived while real models took a step."""

import numpy as np
import pytest
from transformers import BertConfig

from conftest import whole_only
from layerscout.data import Targets
from layerscout.models import Encoder, describe_step, make_classifier, make_trainable, model_shape
from layerscout.plans import (
    FULL,
    Adapter,
    LoRA,
    PrefixTuning,
    Settings,
    Step,
    apply_method,
    make_plan,
    peak_memory,
)
from layerscout.states import Examples
from layerscout.tuning.stepping import Stepper
from live import LiveBytes
from tiny import FAMILIES, SENTENCES, tiny_checkpoint

TEXTS, WIDTH = 32, 64

BERT = model_shape(BertConfig(), labels=2)

# How far the bytes of a step may be off where the count is rough; see `peak_memory`.
OFF = {"modernbert": 0.15, "phi3": 0.15, "nomic_bert": 0.15, "xlm-roberta-xl": 0.15}
OFF |= {"gemma2": 0.25, "gemma3_text": 0.25, "deberta-v2": 0.25}
OFF |= {"deberta": 0.5, "olmo2": 0.15}
EACH = ["bert", "llama", "gpt2", "modernbert"]
EACH += whole_only(*(name for name in FAMILIES if name not in EACH and name != "albert"))


def take_steps(encoder, strategy, method):
    """Take two steps; gives the plan, the bytes before the second, and the most during it."""
    plan = apply_method(make_plan(strategy, encoder.blocks), method, encoder.blocks)
    tokens = encoder.tokenize((SENTENCES * 2)[:TEXTS])
    examples = Examples.prepare(encoder, plan, tokens, Targets.of(np.arange(TEXTS) % 3), limit=0)
    model = make_trainable(make_classifier(encoder, plan, ["a", "b", "c"]), plan, method).model
    stepper = Stepper(encoder, model, examples, Settings(), {})
    model.train()
    stepper.step(np.arange(TEXTS), 1e-3)  # after it there are moments
    held = [t for one in (encoder.model, model) for t in (*one.parameters(), *one.buffers())]
    moments = [t for state in stepper.optimizer.state.values() for t in state.values()]
    live = LiveBytes([*held, *moments])
    before = live.now
    with live:
        stepper.step(np.arange(TEXTS), 1e-3)
    return plan, int(tokens.lengths.max()), before, live.peak


@pytest.fixture(scope="module", params=EACH)
def encoder(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / request.param
    return Encoder.load(tiny_checkpoint(folder, request.param, width=WIDTH, blocks=6), device="cpu")


@pytest.mark.parametrize("strategy", ["full", "(3, 4, 6)", *whole_only("blocks:2,4@5")])
@pytest.mark.parametrize("method", [FULL, LoRA(8), Adapter(16)], ids=lambda method: method.name)
def test_a_step_takes_what_is_predicted(encoder, method, strategy):
    family = encoder.model.config.model_type
    plan, longest, before, peak = take_steps(encoder, strategy, method)
    # Of many texts the activations are what counts, and each text has as many.
    few, more = (
        peak_memory(plan, encoder.shape(3), describe_step(encoder, n, longest, copies=0), method)
        for n in (100 * TEXTS, 101 * TEXTS)
    )
    activations = more - few
    assert few - 100 * activations == pytest.approx(before, rel=0.04)
    assert activations == pytest.approx(peak - before, rel=OFF.get(family, 0.1))


def count(notation, step, method=FULL):
    return peak_memory(make_plan(notation, 12), BERT, step, method)


def test_the_activations_of_a_bert_by_hand():
    """Count tensors of BERT-base, 32 texts of 128 tokens, as its source keeps them."""
    d, f, tokens = 768, 3072, 32 * 128
    # Weights, moments and the kept epoch.
    held = 4 * (BERT.parameters.total + 4 * BERT.parameters.blocks[0] + 3 * BERT.parameters.head)
    working = 4 * tokens * 2 * f
    step = Step(texts=32, tokens=128, matrices=0)
    # Two norms, queries, keys, values, what attention gives, and what GELU is given; in a tuned
    # block what the linear layers are given as well. The last state is read by the head.
    frozen, more = 2 * d + 4 * d + f, 2 * d + f
    found = count("(11, 11, 12)", step) - held
    assert found - working == 4 * tokens * (2 * frozen + more + d)
    # On a CPU dropout keeps a mask of float32 for each sum, and three matrices for every head.
    step = Step(texts=32, tokens=128, matrices=36, fused=False, mask=4)
    frozen += 2 * d - d + 36 * 128
    found = count("(11, 11, 12)", step) - held
    assert found - working == 4 * tokens * (2 * frozen + more + d + d)


def test_what_lives_at_once():
    blocks, counts, step = BERT.parameters.blocks[0], BERT.parameters, Step(32, 128)
    # The encoder is whole, and what is tuned is a copy. Gradients take the place of activations:
    # with a single text they are the larger.
    copy = counts.embeddings + 12 * blocks
    assert count("full", Step(1, 8)) == 4 * (counts.total + copy + 4 * counts.total)
    # With few activations nothing is larger than the model that is left.
    assert count("head:12", step) == 4 * (counts.total + counts.total)
    scoring = count("head:12", Step(32, 128, scored=10**6))
    assert scoring == 4 * (counts.total + 3 * counts.head + 10**6 * (2 * 768 + 2 * 3072))
    twice = count("(7, 9, 9)", Step(32, 128, copies=2))
    assert twice - count("(7, 9, 9)", step) == 4 * (3 * blocks + counts.head)


def test_prefixes_are_kept_by_text():
    few, many = (count("(7, 9, 9)", Step(32, 128), PrefixTuning(P)) for P in (16, 32))
    # With their weights, moments and the kept epoch.
    assert many - few == 4 * (32 * 3 * 2 * 16 * 768 + 4 * 3 * 2 * 16 * 768)
