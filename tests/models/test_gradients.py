"""Fisher, gradient norm and saliency against one example at a time."""

import re
from collections import defaultdict

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch import nn
from transformers import (
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
)

from conftest import real
from inputs import expect_refused
from layerscout.data import Split, Task
from layerscout.models import Encoder, Gradients, gradients
from layerscout.scores import SquaredGradientSums, label_vectors
from reference import gradients as naive
from reference.several import all_label_rows
from tiny import EACH_FAMILY, SENTENCES, tiny_checkpoint
from tuned import copied, differing

LABELS = ("a", "b", "c")
WORDS = " ".join(SENTENCES).split()


def fisher(*given, mode="true", **options):
    return Gradients(*given, **options).score_fisher(mode)


def gradient_scores(*given, **options):
    return Gradients(*given, **options).score_loss()


def texts(n, seed=0):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, length)) for length in rng.integers(1, 14, n)]


def examples(n=6, classes=3):
    return Split(texts(n), None, np.random.default_rng(1).integers(0, classes, n))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """Return a function that makes a checkpoint, once."""
    made = {}

    def make(family, classes=3, **settings):
        key = (family, classes, *settings.items())
        if key not in made:
            folder = tmp_path_factory.mktemp(family)
            made[key] = tiny_checkpoint(folder, family, classes=classes, **settings)
        return made[key]

    return make


def load(folder):
    """Load an encoder in float64."""
    encoder = Encoder.load(folder, device="cpu")
    encoder.model.double()
    return encoder


def log_p(z):
    return z[0].log_softmax(0)


def logits(z):
    return z[0]


class Naive:
    """The same model with its head, past layerscout, and one example at a time."""

    def __init__(self, folder, split, value=log_p, *, classes=3, leave_out=""):
        self.model = AutoModelForSequenceClassification.from_pretrained(
            folder, num_labels=classes, dtype=torch.float64
        ).eval()
        self.blocks = defaultdict(list)
        for name, _ in self.model.named_parameters():
            if found := re.search(r"\.(?:layers?|h|albert_layer_groups)\.(\d+)\.", name):
                self.blocks[int(found[1]) + 1].append(name)
        self.names = [name for names in self.blocks.values() for name in names]
        self.rows = np.arange(len(split))
        self.inputs = [
            {k: v for k, v in example.items() if k != leave_out}
            for example in inputs(folder, split)
        ]
        if value is not None:
            self.values, self.g = naive.per_example(self.model, self.inputs, self.names, value)

    def by_block(self, arrays, combine=naive.norm):
        blocks = [
            combine([arrays[name] for name in names]) for _, names in sorted(self.blocks.items())
        ]
        return blocks * 4 if len(blocks) == 1 else blocks  # ALBERT's

    def fisher(self, labels=None):
        return self.by_block(naive.fisher_diagonal(self.values, self.g, labels))

    def squares(self, gradients):
        """Combine the squares of a gradient of each example as the released code does."""
        means = {name: (of**2).mean(0) for name, of in gradients.items()}
        return self.by_block(means, naive.sum_of_norms)

    def gradient_of(self, split):
        """Return the gradient of the given label's value in each example."""
        return {name: of[self.rows, split.labels] for name, of in self.g.items()}

    def gradient(self, labels):
        """Return the gradient of the mean loss."""
        return {name: -of[self.rows, labels].mean(0) for name, of in self.g.items()}


def inputs(folder, split):
    """Tokenise one example at a time; the rows of a group are one."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    groups = np.arange(len(split)) if split.groups is None else split.groups
    found = []
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)
        pairs = None if split.pairs is None else [split.pairs[row] for row in rows]
        given = tokenizer([split.texts[row] for row in rows], pairs, padding=True)
        found.append({k: torch.tensor(v) for k, v in given.items()})
    return found


def same(scores, expected, rtol=1e-9):
    assert scores.values[0] is None
    np.testing.assert_allclose(scores.values[1:], expected, rtol=rtol)


@pytest.mark.parametrize("family", EACH_FAMILY)
def test_a_padded_batch_gives_what_single_examples_give(family, checkpoint):
    folder, split = checkpoint(family), examples()
    encoder = load(folder)
    tokens = encoder.tokenize(split.texts)
    assert len(encoder.batches(tokens)) == 1 and len(set(tokens.lengths)) > 3
    # DistilBERT's tokenizer offers types, which it does not take.
    types = "token_type_ids" if family == "distilbert" else ""
    expected = Naive(folder, split, leave_out=types)
    # Some norms and all rotations compute in float32 whatever the weights are.
    rotates = hasattr(encoder.model, "rotary_emb")
    rtol = 1e-6 if family == "deberta" or rotates else 1e-9

    scores = fisher(encoder, split, LABELS)
    same(scores, expected.fisher(), rtol)
    assert scores.warnings == ()

    mean = expected.gradient(split.labels)
    found = gradient_scores(encoder, split, LABELS)
    same(found["gradient_norm"], expected.by_block(mean), rtol)
    weights = {name: p.detach().numpy() for name, p in expected.model.named_parameters()}
    moved = {name: np.abs(of * weights[name]) for name, of in mean.items()}
    same(found["saliency"], expected.by_block(moved, lambda all_: sum(a.sum() for a in all_)), rtol)


@pytest.mark.parametrize("family", ["bert", "albert", "deberta-v2"])
def test_given_labels_are_another_mode_and_raw_logits_a_third(family, checkpoint):
    folder, split = checkpoint(family), examples()
    encoder = load(folder)
    expected = Naive(folder, split).fisher(split.labels)
    same(fisher(encoder, split, LABELS, mode="empirical"), expected)
    raw = Naive(folder, split, logits)
    same(fisher(encoder, split, LABELS, mode="as_released"), raw.squares(raw.gradient_of(split)))


def test_both_texts_of_a_pair_are_read_which_the_released_code_read_as_the_first(checkpoint):
    """It gave the model no token types, which is all that is left between it and as_released."""
    folder, first = checkpoint("bert"), examples()
    split = Split(first.texts, texts(len(first), 5), first.labels)
    encoder = load(folder)
    same(fisher(encoder, split, LABELS), Naive(folder, split).fisher())
    found = fisher(encoder, split, LABELS, mode="as_released")
    typed = Naive(folder, split, logits)
    assert all(one["token_type_ids"].any() for one in typed.inputs)
    same(found, typed.squares(typed.gradient_of(split)))
    theirs = Naive(folder, split, logits, leave_out="token_type_ids")
    with pytest.raises(AssertionError):
        same(found, theirs.squares(theirs.gradient_of(split)))


@pytest.mark.parametrize("family", ["bert", "deberta-v2"])
def test_float32_is_enough_whatever_the_scan_computes_in(family, checkpoint):
    folder, split = checkpoint(family), examples()
    exact = fisher(load(folder), split, LABELS)
    for precision in ("float32", "bfloat16"):
        encoder = Encoder.load(folder, device="cpu", precision=precision)
        same(fisher(encoder, split, LABELS), exact.values[1:], rtol=1e-5)


def test_other_batches_give_the_same_and_progress_counts_examples_of_all_heads(
    checkpoint, monkeypatch
):
    encoder, split, seen = load(checkpoint("bert")), examples(), []
    expected = fisher(encoder, split, LABELS), gradient_scores(encoder, split, LABELS)["saliency"]
    monkeypatch.setattr(gradients, "BACKWARD_TOKENS", 30)
    same(gradient_scores(encoder, split, LABELS)["saliency"], expected[1].values[1:])
    found = fisher(encoder, split, LABELS, seeds=(0, 1), progress=lambda *now: seen.append(now))
    np.testing.assert_allclose(found.by_seed[0][1:], expected[0].values[1:], rtol=1e-9)
    assert seen == sorted(seen) and len(seen) > 3 and seen[-1] == (12, 12)


# --- Regression, multiple choice, many labels ----------------------------------------------------


def test_regression_has_a_gaussian_of_unit_variance(checkpoint):
    folder, y = checkpoint("bert", classes=1), np.random.default_rng(2).normal(0, 2, 8)
    split, encoder = Split(texts(8), None, y), load(folder)
    single = Naive(folder, split, logits, classes=1)
    residual = y - single.values[:, 0]

    def expected(weights):
        return single.by_block(
            {k: np.tensordot(weights / 8, of[:, 0] ** 2, axes=1) for k, of in single.g.items()}
        )

    def score(**options):
        return fisher(encoder, split, (), kind="regression", **options)

    same(score(), expected(np.ones(8)))
    same(score(mode="empirical"), expected(residual**2))
    assert score(mode="as_released").values != score().values  # the same F, summed in another way
    mean = {k: np.tensordot(-residual / 8, of[:, 0], axes=1) for k, of in single.g.items()}
    found = gradient_scores(encoder, split, (), kind="regression")
    same(found["gradient_norm"], single.by_block(mean))


@pytest.mark.parametrize("family", ["bert", "deberta-v2"])
def test_choices_of_an_example_share_one_softmax(family, checkpoint):
    folder = checkpoint(family, classes=1)
    # Examples of two, three and four choices whose rows do not stand together.
    groups = np.array([7, 3, 3, 7, 5, 3, 5, 5, 5, 2, 2])
    right = np.array([0, 0, 1, 1, 0, 0, 0, 0, 1, 1, 0])
    split = Split(texts(11), texts(11, seed=3), right, groups)
    single = Naive(folder, split, None, classes=1)
    total = {mode: dict.fromkeys(single.names, 0.0) for mode in ("true", "empirical")}
    for group, example in zip(np.unique(groups), single.inputs, strict=True):
        values, g = naive.per_example(
            single.model, [example], single.names, lambda z: z[:, 0].log_softmax(0)
        )
        y = right[groups == group].argmax(keepdims=True)
        for mode, given_labels in (("true", None), ("empirical", y)):
            for name, of in naive.fisher_diagonal(values, g, given_labels).items():
                total[mode][name] += of / 4
    encoder = load(folder)
    for mode, diagonal in total.items():
        scores = fisher(encoder, split, (), kind="multiple_choice", mode=mode)
        same(scores, single.by_block(diagonal))


def test_of_many_labels_one_is_drawn(checkpoint):
    labels = [f"label {k}" for k in range(12)]
    folder, split = checkpoint("bert", classes=12), examples(classes=12)
    single = Naive(folder, split, classes=12)
    scores = fisher(load(folder), split, labels, seeds=(0, 1))
    for seed in (0, 1):
        y = naive.drawn(single.values, np.random.default_rng(seed).random(len(split)))
        expected = single.fisher(y)
        np.testing.assert_allclose(scores.by_seed[seed][1:], expected, rtol=1e-9)
    assert scores.by_seed[0] != scores.by_seed[1]
    assert "with 12 labels, one is drawn for each example" in scores.notes[0]


# --- Several labels of an example ----------------------------------------------------------------


def several(n=6, labels=3, seed=1):
    """Examples with any number of labels each, the first without one."""
    Y = np.random.default_rng(seed).random((n, labels)) < 0.5
    Y[0] = False
    return Split(texts(n), None, Y)


def log_likelihoods(z):
    """Return log p of all 2^K rows of labels there can be."""
    rows = torch.tensor(all_label_rows(z.shape[1]))
    return torch.where(rows, nn.functional.logsigmoid(z), nn.functional.logsigmoid(-z)).sum(1)


@pytest.mark.parametrize("family", ["bert", "deberta-v2"])
def test_several_labels_are_independent_of_each_other(family, checkpoint):
    folder, split = checkpoint(family), several()
    encoder, single = load(folder), Naive(folder, split, log_likelihoods)
    assert np.exp(single.values).sum(axis=1) == pytest.approx(1)
    kind = {"kind": "multi_label_classification"}
    found = fisher(encoder, split, LABELS, **kind)
    same(found, single.fisher())
    assert found.notes == () and found.warnings == ()
    y = (all_label_rows(3) == split.labels[:, None]).all(axis=2).argmax(axis=1)
    same(fisher(encoder, split, LABELS, mode="empirical", **kind), single.fisher(y))
    found = gradient_scores(encoder, split, LABELS, **kind)
    same(found["gradient_norm"], single.by_block(single.gradient(y)))
    raw = Naive(folder, split, logits)
    of_given = {k: np.einsum("nk,nk...->n...", split.labels * 1.0, of) for k, of in raw.g.items()}
    found = fisher(encoder, split, LABELS, mode="as_released", **kind)
    same(found, raw.squares(of_given))


def test_of_very_many_labels_each_is_drawn(checkpoint, monkeypatch):
    monkeypatch.setattr(gradients, "EXACT_SEVERAL", 2)
    folder, split = checkpoint("bert"), several()
    single = Naive(folder, split, log_likelihoods)
    found = fisher(load(folder), split, LABELS, kind="multi_label_classification", seeds=(0, 1))
    rows = all_label_rows(3)
    for seed in (0, 1):
        numbers = np.random.default_rng(seed).random((6, 3))
        marginal = np.exp(single.values) @ rows  # p_k, the sum over all rows that have label k
        y = [int((rows == has).all(axis=1).argmax()) for has in numbers < marginal]
        np.testing.assert_allclose(found.by_seed[seed][1:], single.fisher(np.array(y)), rtol=1e-9)
    assert "with 3 labels, each is drawn for each example" in found.notes[0]
    assert found.notes[0].endswith("up to 2")


# --- A label for every word ----------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["true", "empirical", "as_released"])
def test_the_words_of_a_sentence_are_one_example(checkpoint, rule):
    folder, words = checkpoint("bert"), [tuple(text.split()) for text in SENTENCES[:3]]
    counts = [len(row) for row in words]
    labels = np.random.default_rng(0).integers(0, 3, sum(counts))
    split = Split([" ".join(row) for row in words], None, labels, words=words)
    encoder = load(folder)
    model = AutoModelForTokenClassification.from_pretrained(
        folder, num_labels=3, dtype=torch.float64
    ).eval()
    single = Naive(folder, split, None)
    numbers, total, at = np.random.default_rng(0).random(len(labels)), {}, 0
    for example, row, count in zip(single.inputs, words, counts, strict=True):
        own = np.arange(at, at + count)
        found = AutoTokenizer.from_pretrained(folder)(list(row), is_split_into_words=True)
        first = [found.word_ids().index(word) for word in range(count)]
        logits = model(**example).logits[0, first]
        p = logits.detach().softmax(dim=1).numpy()
        y = naive.drawn(np.log(p), numbers[own]) if rule == "true" else labels[own]
        log_p = logits if rule == "as_released" else logits.log_softmax(dim=1)
        value = log_p[torch.arange(count), torch.from_numpy(y)].sum()
        weights = [model.get_parameter(name) for name in single.names]
        for name, g in zip(single.names, torch.autograd.grad(value, weights), strict=True):
            total[name] = total.get(name, 0.0) + g.numpy() ** 2 / len(words)
        at += count
    kind = {"kind": "token_classification"}
    found = fisher(encoder, split, LABELS, mode=rule, **kind)
    combine = naive.sum_of_norms if rule == "as_released" else naive.norm
    same(found, single.by_block(total, combine))
    assert ("one is drawn for each word" in " ".join(found.notes)) == (rule == "true")


# --- Closed forms --------------------------------------------------------------------------------


def test_a_linear_softmax_layer_has_a_closed_form():
    rng = np.random.default_rng(0)
    X = torch.tensor(rng.normal(size=(20, 5)))
    model = nn.Sequential(nn.Linear(5, 4)).double().requires_grad_(False)
    p, y = model(X).softmax(1), torch.zeros(20)  # the labels are not looked at
    sums = SquaredGradientSums.of(model, ["0.weight", "0.bias"])
    sums.add(
        lambda rows: model(X[rows[:, 0], None])[:, 0],
        lambda logits, rows: label_vectors(logits.detach(), y, "true", exact=4)[0],
        np.arange(20)[:, None],
    )
    variance = p * (1 - p)  # E_y (1[y = k] − p_k)²
    torch.testing.assert_close(sums.sums["0.weight"], variance.T @ X**2)
    torch.testing.assert_close(sums.sums["0.bias"], variance.sum(0))


@given(st.lists(st.floats(-60, 60), min_size=1, max_size=10), st.integers(0, 9))
def test_the_vectors_make_up_the_information_of_the_logits(z, turn):
    logits = torch.tensor([z, z[turn % len(z) :] + z[: turn % len(z)]], dtype=torch.float64)
    v, _ = label_vectors(logits, torch.zeros(2), "true", exact=len(z))
    p = logits.softmax(1)
    assert v.shape == (len(z) - 1, 2, len(z))
    # Relative to √(p_i p_j): rare labels count too.
    scale = (p[:, :, None] * p[:, None, :]).sqrt()
    information = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    found = torch.einsum("reh,rek->ehk", v, v)
    assert ((found - information).abs() <= 1e-12 * scale).all()


# --- Blocks, parts, seeds ------------------------------------------------------------------------


def test_shared_weights_have_one_value_and_a_note(checkpoint):
    scores = fisher(load(checkpoint("albert")), examples(), LABELS)
    assert len(set(scores.values[1:])) == 1
    assert scores.notes == ("blocks 1-4 share their weights and have one value",)
    two = load(checkpoint("albert", num_hidden_groups=2))
    found = gradient_scores(two, examples(), LABELS)["saliency"]
    assert found.values[1] == found.values[2] != found.values[3] == found.values[4]
    assert [note.split(" share")[0] for note in found.notes] == ["blocks 1-2", "blocks 3-4"]


def test_random_heads_give_a_mean_and_a_spread(tiny):
    encoder, split = Encoder.load(tiny, device="cpu"), examples()
    several = fisher(encoder, split, LABELS, seeds=(0, 1, 2))
    single = [fisher(encoder, split, LABELS, seeds=(seed,)) for seed in (0, 1, 2)]
    assert several.by_seed == tuple(scores.values for scores in single)
    values = np.array(several.by_seed)[:, 1:].astype(float)
    np.testing.assert_allclose(several.values[1:], values.mean(0))
    np.testing.assert_allclose(several.spread[1:], values.std(0, ddof=1))
    assert several.spread[0] is None and (values.std(0) > 0).all()
    assert single[0].spread == (None,) * 5
    both = gradient_scores(encoder, split, LABELS, seeds=(0, 4))
    assert all(len(set(scores.by_seed)) == 2 for scores in both.values())


def test_the_encoder_stays_as_it_was(checkpoint):
    encoder = Encoder.load(checkpoint("bert"), device="cpu")
    before = copied(encoder.model)

    def fail(done, total):
        raise KeyboardInterrupt

    for score in (fisher, gradient_scores):
        score(encoder, examples(), LABELS)
        with pytest.raises(KeyboardInterrupt):
            score(encoder, examples(), LABELS, progress=fail)
    assert not differing(before, copied(encoder.model))
    assert not any(p.requires_grad or p.grad is not None for p in encoder.model.parameters())
    assert not any(m.training or m._forward_hooks for m in encoder.model.modules())


# --- What means nothing, and what is refused -----------------------------------------------------


def head_with(bias, checkpoint, folder):
    """Return an encoder whose checkpoint has a head with these biases."""
    model = AutoModelForSequenceClassification.from_pretrained(checkpoint("bert"))
    model.classifier.bias.data += torch.tensor(bias)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(checkpoint("bert")).save_pretrained(folder)
    return Encoder.load(folder, device="cpu")


def test_a_saturated_head_is_told(checkpoint, tmp_path):
    encoder, split = head_with([1000.0, 0, 0], checkpoint, tmp_path), examples()
    (warning,) = fisher(encoder, split, LABELS).warnings
    assert warning.startswith("the head is saturated (no value is above 0.0e+00)")
    (warning,) = fisher(encoder, split, LABELS, mode="empirical").warnings
    assert "(p > 1 − 1e-6 for 6 of 6 examples)" in warning
    assert gradient_scores(encoder, split, LABELS)["saliency"].warnings == (warning,)
    assert fisher(encoder, split, LABELS, mode="as_released").warnings == ()


@pytest.mark.parametrize(("bias", "told"), [([50.0, -50, 50], True), ([50.0, -50, 0], False)])
def test_a_head_that_is_sure_of_every_label_is_told(bias, told, checkpoint, tmp_path):
    encoder, kind = head_with(bias, checkpoint, tmp_path), "multi_label_classification"
    found = fisher(encoder, several(), LABELS, kind=kind, mode="empirical").warnings
    assert [("p > 1 − 1e-6 for 6 of 6" in warning) for warning in found] == [True] * told


def test_no_value_is_infinite_or_not_a_number(tiny):
    encoder = Encoder.load(tiny, device="cpu")
    encoder.model.encoder.layer[2].output.dense.weight.data.fill_(float("inf"))
    for scores in (
        fisher(encoder, examples(), LABELS),
        *gradient_scores(encoder, examples(), LABELS).values(),
    ):
        assert all(v is None or np.isfinite(v) for v in scores.values)
        assert "gradients are not finite" in scores.warnings[0]


@pytest.mark.parametrize("mode", ["empirical", "as_released"])
def test_one_choice_of_every_example_must_be_right(mode, tiny):
    split = Split(texts(6), None, examples().labels.clip(max=1), np.repeat(np.arange(3), 2))
    options = {"kind": "multiple_choice", "mode": mode}
    words = "one choice of every example must be right … of 3 examples"
    expect_refused(words, fisher, Encoder.load(tiny, device="cpu"), split, LABELS, **options)


@pytest.mark.real
def test_a_real_model_gives_the_same_one_by_one(monkeypatch):
    encoder = Encoder.load(real("models", "all-MiniLM-L6-v2"), device="cpu")
    task = Task.load(real("data", "rte"))
    split = task.validation.take(np.arange(2))
    together = fisher(encoder, split, task.labels)
    start = SquaredGradientSums.of

    def one_by_one(model, names):
        sums = start(model, names)
        sums.layers = {}
        return sums

    monkeypatch.setattr(SquaredGradientSums, "of", one_by_one)
    same(together, fisher(encoder, split, task.labels).values[1:], rtol=1e-4)
