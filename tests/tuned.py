"""What the tests of training and tuning start from: tiny examples, trained in a line."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from layerscout.data import Split, Targets, Task, make_targets
from layerscout.errors import InputError
from layerscout.models import Encoder, make_classifier, make_trainable, untie_blocks
from layerscout.models.architecture import shared_weights
from layerscout.plans import FULL, Method, Plan, check_tied, make_plan
from layerscout.states import Examples
from layerscout.tuning import Result, tune
from layerscout.tuning.training import Settings, train
from tiny import SENTENCES, tiny_checkpoint

NAMES = ("bad", "fair", "good")
ROOM = 10**9

# A checkpoint with these settings computes the same in training as in eval mode (BERT's names).
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def labels_for(n: int, seed: int = 0) -> np.ndarray:
    """Draw n class ids that say nothing about the texts."""
    return np.random.default_rng(seed).integers(0, len(NAMES), n)


def task_of(n: int = 12, held: int = 6, classes: int = 2, **options: Any) -> Task:
    """Make a task of n training and `held` validation examples of a few words each."""
    rng = np.random.default_rng(n)
    words = " ".join(SENTENCES).split()
    texts = [" ".join(rng.choice(words, rng.integers(3, 12))) for _ in range(n + held)]
    labels = [NAMES[row % classes] for row in range(n + held)]
    if held:
        options["validation"] = (texts[n:], labels[n:])
    return Task.from_lists(texts[:n], labels[:n], name="made up", **options)


def choices_task(n: int = 12, held: int = 6, choices: int = 2, **options: Any) -> Task:
    """Make a task of n training and `held` validation examples, of so many choices each."""
    rng = np.random.default_rng(n)
    words = " ".join(SENTENCES).split()

    def split(examples: int) -> Split:
        texts, pairs = (
            [" ".join(rng.choice(words, rng.integers(2, 9))) for _ in range(count)]
            for count in (examples, examples * choices)
        )
        right = np.eye(choices, dtype=np.int64)[rng.integers(0, choices, examples)]
        groups = np.repeat(np.arange(examples), choices)
        return Split([texts[group] for group in groups], pairs, right.reshape(-1), groups)

    return Task(
        name="endings",
        kind="multiple_choice",
        labels=("wrong", "right"),
        metric="accuracy",
        train=split(n),
        validation=split(held),
        columns={"text": "text", "text_pair": "ending", "label": "label"},
        **options,
    )


def lists(n: int, classes: int = 2) -> tuple[list[str], list[str]]:
    """Make the texts and labels of a task without a validation split."""
    task = task_of(n=n, held=0, classes=classes)
    return list(task.train.texts), [task.labels[number] for number in task.train.labels]


def cheaply(encoder: Any, task: Any, plan: Any, **options: Any) -> Result:
    """Tune for two short epochs, and measure no speed of the full model, by default."""
    cheap = {"epochs": 2, "batch_size": 4, "learning_rate": 1e-3, "progress": False}
    if getattr(task, "test", None) is None:  # which is judged only where everything is measured
        cheap["measure"] = "predictions"
    return tune(encoder, task, plan, **(cheap | options))


def fitted(encoder: Encoder, notation: str) -> tuple[Encoder, Plan]:
    """Return the plan, and the encoder with weights of their own where the plan asks for them."""
    plan = make_plan(notation, encoder.blocks)
    try:
        check_tied(plan, shared_weights(encoder.model.config))
    except InputError:
        return untie_blocks(encoder), plan
    return encoder, plan


def examples_of(
    encoder: Encoder, plan: Plan, labels: np.ndarray, *, limit: int = ROOM, first: int = 0
) -> Examples:
    """Make examples of as many sentences as there are labels, with what the trunk gives."""
    tokens = encoder.tokenize(SENTENCES[first : first + len(labels)])
    return Examples.prepare(encoder, plan, tokens, Targets.of(labels), limit=limit)


def prepared(
    encoder: Encoder, plan: Plan, split: Split, task: Task, limit: int = ROOM, **options: Any
) -> Examples:
    """Make examples of a split of a task, with what the trunk gives."""
    answers = make_targets(split, task.kind, task.labels)
    tokens = encoder.tokenize_split(split, **options)
    return Examples.prepare(encoder, plan, tokens, answers, limit=limit)


def trained(
    encoder: Encoder,
    notation: str,
    *,
    limit: int = ROOM,
    learning_rate: float = 1e-3,
    seed: int = 0,
    rows: int = 12,
    method: Method = FULL,
    **settings: Any,
) -> Any:
    """Train on `rows` sentences and validate on 4; return the run, what was kept, and the model."""
    encoder, plan = fitted(encoder, notation)
    training = examples_of(encoder, plan, labels_for(rows), limit=limit)
    validation = examples_of(encoder, plan, labels_for(4, 1), limit=limit, first=12)
    model = make_trainable(make_classifier(encoder, plan, NAMES, seed=seed), plan, method).model
    run, kept = train(
        encoder,
        model,
        training,
        validation,
        learning_rate=learning_rate,
        seed=seed,
        settings=Settings(**{"epochs": 2, "batch_size": 4, **settings}),
    )
    return run, kept, model


def copied(model: Any) -> dict[str, torch.Tensor]:
    """Copy every tensor of a model."""
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def differing(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> set[str]:
    """Name the tensors that differ in any bit."""
    assert one.keys() == other.keys()
    return {name for name in one if not torch.equal(one[name], other[name])}


def without_key_biases(parameters: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Leave out what attention does not depend on: a bias of all keys shifts a softmax evenly.

    So its gradient is rounding error, which Adam makes as large as any other step.
    """
    bias = re.compile(r"\.(key|key_proj|k|k_lin)\.bias$")
    return {name: tensor for name, tensor in parameters.items() if not bias.search(name)}


def load(folder: Path, family: str = "bert", **options: Any) -> Encoder:
    """Make a tiny checkpoint and load it on the CPU, in float32 by default."""
    precision = options.pop("precision", "float32")
    checkpoint = tiny_checkpoint(folder, family, **options)
    return Encoder.load(checkpoint, device="cpu", precision=precision)


TAGS = ("O", "B-long", "I-long")


def words_task(n: int = 12, held: int = 6, **options: Any) -> Task:
    """Make a task of n training and `held` validation sentences; long words are spans."""

    def split(sentences: list[tuple[str, ...]]) -> Split:
        tags: list[int] = []
        for words in sentences:
            before = False
            for word in words:
                long = len(word) > 5
                tags.append(0 if not long else 2 if before else 1)
                before = long
        texts = [" ".join(words) for words in sentences]
        return Split(texts, None, np.array(tags), words=sentences)

    rng = np.random.default_rng(n)
    words = " ".join(SENTENCES).split()
    sentences = [tuple(map(str, rng.choice(words, rng.integers(1, 12)))) for _ in range(n + held)]
    return Task(
        name="long words",
        kind="token_classification",
        labels=TAGS,
        metric="entity_f1",
        train=split(sentences[:n]),
        validation=split(sentences[n:]) if held else None,
        columns={"text": "tokens", "label": "tags"},
        **options,
    )


def several_task(n: int = 24, held: int = 8, labels: int = 3, **options: Any) -> Task:
    """Make a task of n training and `held` validation texts, each with any number of labels."""
    rng = np.random.default_rng(n)
    plain = task_of(n, held)

    def split(texts: Sequence[str]) -> Split:
        return Split(texts, None, rng.random((len(texts), labels)) < 0.4)

    return Task(
        name="several",
        kind="multi_label_classification",
        labels=tuple(f"label {k}" for k in range(labels)),
        metric="micro_f1",
        train=split(plain.train.texts),
        validation=split(plain.validation.texts) if plain.validation else None,
        columns={"text": "text", "label": "labels"},
        **options,
    )


def card_code(card: str, folder: Path, base: Path | None = None) -> str:
    """Return the code that a model's card shows, with the places of the model and of its base."""
    code = re.search(r"```python\n(.*?)\n```", card, re.DOTALL)[1]
    code = code.replace("path/to/this/folder", str(folder))
    return code.replace("path/to/the/base/model", str(base))


def run_card(card: str, folder: Path, base: Path | None = None) -> dict[str, Any]:
    """Run what a model's card shows, on the model; return what it named."""
    names: dict[str, Any] = {}
    exec(card_code(card, folder, base), names)
    return names
