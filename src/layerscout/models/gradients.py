"""Fisher information, gradient norm and saliency of the blocks of a classification model.

All of them look at the model as fine-tuning would find it: the pretrained blocks under the head as
the library loads it, which is random in part or in whole. So is, then, the ranking of the blocks;
several seeds show by how much. The arithmetic is in `layerscout.scores`; here are the model, the
examples in batches, and what their labels are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from layerscout.data import Kind, Split, batch_by_length, check_choices
from layerscout.errors import InputError
from layerscout.models.architecture import locate_parameters
from layerscout.models.classifiers import make_classifier
from layerscout.models.encoder import Encoder
from layerscout.plans import MAX_LENGTH, Plan
from layerscout.scores import (
    SCORES,
    BlockScores,
    SquaredGradientSums,
    label_vectors,
    root_of_sum,
    score_blocks,
    sum_of_roots,
    sum_squares,
)

Mode = Literal["true", "empirical", "as_released"]
Rows = Int64[np.ndarray, "e C"]

# Up to so many labels (or choices of an example) the sum over them is exact. Each is a backward
# pass; several labels of an example are independent, and a pass for each replaces 2^K cases.
EXACT_LABELS = 10
EXACT_SEVERAL = 32

# A backward pass keeps all that the forward pass computed: about 2 MB a token in large models.
BACKWARD_TOKENS = 4096

# Below such values, a head says nothing about blocks.
TINY = 1e-12


class Gradients:
    """Held-out examples in batches, whose gradients score the blocks of a model under its heads.

    An example is C rows of the split: one, or its choices. Its logits are one for each label or
    for each choice; for regression, a single one. Where it may have several labels, each of them is
    a Bernoulli variable of its own. Where words are labelled, it is a sentence or a window of one,
    with logits of every token, and its words are independent.

    Attributes:
        outputs: names of the head's outputs.
        several: whether an example may have several labels.
        blocks: those that each weight of the model is of, without the weights that are of none.
        exact: up to how many labels the sum over them is exact.
        batches: rows of the examples of each batch, (e, C).
        examples: how many there are.
        rule: where labels come from.
        done: the examples gone through, counted once for each head.
        certain: of those, the examples of which one label (of several, each) is as good as certain
            to the model.
    """

    rule: Mode
    done: int
    certain: int

    def __init__(
        self,
        encoder: Encoder,
        split: Split,
        labels: Sequence[str],
        *,
        kind: Kind = "classification",
        seeds: Sequence[int] = (0,),
        max_length: int = MAX_LENGTH,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Tokenise and batch the examples.

        Args:
            encoder: not changed.
            split: the held-out examples; all of them are used.
            labels: names of the classes or labels by id; not looked at for other kinds of tasks.
            kind: of the task.
            seeds: of the random part of the head, and of the labels drawn.
            max_length: tokens that are kept of an input.
            progress: called with how many examples are done, and of how many.
        """
        self.encoder, self.split, self.kind, self.seeds = encoder, split, kind, seeds
        self.progress = progress
        self.tokens = encoder.tokenize_split(split, max_length=max_length)
        one = kind in ("regression", "multiple_choice")
        self.outputs = ["score"] if one else list(labels)
        self.several = kind == "multi_label_classification"
        self.exact = EXACT_SEVERAL if self.several else EXACT_LABELS
        if self.tokens.words is not None:  # it would be a pass for each label of each word
            self.exact = 1
        budget, self.batches = min(encoder.token_budget, BACKWARD_TOKENS), list[Rows]()
        for rows in _rows_of_examples(split, kind, len(self.tokens)):
            longest = self.tokens.lengths[rows].max(axis=1)
            at_once = max(1, budget // rows.shape[1])
            self.batches += [rows[at] for at in batch_by_length(longest, at_once)]
        self.examples = sum(map(len, self.batches))

    def score_fisher(self, mode: Mode = "true") -> BlockScores:
        """Score blocks by the diagonal of the Fisher information, √Σ_θ F_θθ² over their weights.

        F_θθ = E_x E_y (∂ log p(y|x)/∂θ)²: gradients are squared example by example, then averaged.
        With mode "true", y comes from the model: the expectation is exact for up to 10 labels (and
        for regression), otherwise one label is drawn for each example. With mode "empirical", y is
        given. Regression has a Gaussian of unit variance about the output, multiple choice a
        softmax over the choices of an example. Several labels of an example are independent of each
        other, and exact for up to 32. Padding is masked. Lodha et al. 2023, §3.1.

        Args:
            mode: where y comes from; or "as_released" for what the paper's released code computes:
                the gradient of the given labels' raw logits (regression: of the output), and for a
                block the sum over its tensors of the norm of each one's diagonal. That code also
                let the padding take part, read one example all over, and gave the model no token
                types, so that both texts of a pair were read as the first one; these faults are not
                repeated.

        Raises:
            InputError: if not one choice of an example is right, or the device's memory does not
                hold a batch.
        """
        self._begin(mode)
        amounts = []
        for seed in self.seeds:
            model, weights = self.make_model(seed)
            sums = SquaredGradientSums.of(model, list(weights))
            # Numbers from 0 to 1 that draw labels: of each example or word, or of several, each.
            of_each = (len(self.outputs),) if self.several else ()
            draws = np.random.default_rng(seed).random((self.tokens.outputs, *of_each))
            with _refusing_too_large(self.encoder):
                for rows in self.batches:
                    sums.add(partial(self.logits, model), partial(self.vectors, draws=draws), rows)
            mean_squares = {name: total / self.examples for name, total in sums.sums.items()}
            amounts.append({name: sum_squares(F) for name, F in mean_squares.items()})
        combine = sum_of_roots if mode == "as_released" else root_of_sum
        return self.score(amounts, combine, self.list_notes())

    def score_loss(
        self, keys: Sequence[str] = ("gradient_norm", "saliency")
    ) -> dict[str, BlockScores]:
        """Score blocks by the gradient g of the mean loss over all examples, from one pass back.

        "gradient_norm" is ‖g‖₂ over a block's weights, "saliency" Σ_θ |g_θ θ|. The loss is −log p
        of the given labels, with p as for `score_fisher`: cross-entropy (of several labels their
        sum), or half the squared error.

        Args:
            keys: of scores with the source "gradients", but for that of `fisher`.

        Returns:
            The scores by key.

        Raises:
            InputError: as `score_fisher`.
        """
        self._begin("empirical")
        amounts: dict[str, list[dict[str, float]]] = {key: [] for key in keys}
        for seed in self.seeds:
            model, weights = self.make_model(seed)
            for weight in weights.values():
                weight.requires_grad_()
            with _refusing_too_large(self.encoder):
                for rows in self.batches:
                    logits = self.logits(model, rows)
                    (v,) = self.vectors(logits, rows)  # of log p, which the loss is the negative of
                    torch.autograd.backward(logits, -v / self.examples)
            known = [(n, w.detach(), w.grad) for n, w in weights.items() if w.grad is not None]
            for key in keys:
                compute = SCORES[key].compute
                amounts[key].append({name: compute(w, g) for name, w, g in known})
        return {key: self.score(amounts[key], SCORES[key].combine) for key in keys}

    def _begin(self, rule: Mode) -> None:
        """Count anew, with labels by a rule, for which one choice of each example must be right."""
        self.rule, self.done, self.certain = rule, 0, 0
        if self.kind == "multiple_choice" and rule != "true":
            for rows in _rows_of_examples(self.split, self.kind, len(self.tokens)):
                check_choices(self.split.labels[rows])

    def make_model(self, seed: int) -> tuple[Any, dict[str, nn.Parameter]]:
        """Make the whole model, which shares its weights with the encoder; list those of blocks."""
        # A plan that tunes nothing: what a plan tunes would be copied.
        plan = Plan((), self.encoder.blocks)
        # Choices go through a head with one output, each by itself.
        kind = "classification" if self.kind == "multiple_choice" else self.kind
        model = make_classifier(self.encoder, plan, self.outputs, seed=seed, kind=kind)
        model = model.to(self.encoder.model.dtype).requires_grad_(False)
        places = locate_parameters(model)
        self.blocks = {name: at for name, at in places.items() if isinstance(at, tuple)}
        return model, {name: model.get_parameter(name) for name in self.blocks}

    def logits(self, model: Any, rows: Rows) -> Float[Tensor, "e K"]:
        """Run the model; without autocast, since what is squared twice needs more than bfloat16."""
        logits: Tensor = model(**self.encoder.batch(self.tokens, rows.ravel())).logits
        return logits.reshape(len(rows), -1)

    def vectors(
        self, logits: Float[Tensor, "e K"], rows: Rows, draws: np.ndarray | None = None
    ) -> Float[Tensor, "r e K"]:
        """Return the vectors of `label_vectors`, and count examples.

        Args:
            logits: of the examples.
            rows: of the same examples.
            draws: numbers from 0 to 1 that draw labels, where those are drawn.
        """
        z = logits.detach().cpu().double()
        self.done += len(z)
        if self.progress is not None:
            self.progress(self.done, self.examples * len(self.seeds))
        labels = torch.from_numpy(self.split.labels)
        if self.kind == "regression":
            errors = labels[rows] - z
            v = (errors if self.rule == "empirical" else torch.ones_like(z))[None]
        elif self.tokens.words is not None:
            v, certain = self._word_vectors(z, labels, rows[:, 0], draws)
            self.certain += certain
        else:
            choice = self.kind == "multiple_choice"
            y = labels[rows].argmax(dim=1) if choice else labels[rows[:, 0]]
            # Drawn by the number of the example's first row, wherever it stands in the batches.
            numbers = None if draws is None else draws[rows[:, 0]]
            v, sure = label_vectors(
                z, y, self.rule, exact=self.exact, several=self.several, draws=numbers
            )
            self.certain += int(sure.sum())
        return v.to(logits)

    def _word_vectors(
        self, z: Tensor, labels: Tensor, rows: np.ndarray, draws: np.ndarray | None
    ) -> tuple[Float[Tensor, "1 e TK"], int]:
        """Return one vector for each example, and of how many all words are as good as certain."""
        *at, words = self.tokens.find_firsts(rows)
        texts, places = map(torch.from_numpy, at)
        v = z.new_zeros(len(rows), z.shape[1] // len(self.outputs), len(self.outputs))
        (of_words,), sure = label_vectors(
            z.reshape(v.shape)[texts, places],
            labels[words],
            self.rule,
            exact=self.exact,
            draws=None if draws is None else draws[words],
        )
        v[texts, places] = of_words
        return v.flatten(1)[None], len(rows) - len(set(texts[~sure].tolist()))

    def list_notes(self) -> list[str]:
        """Say where labels were drawn."""
        choices = max(rows.shape[1] for rows in self.batches)
        most = choices if self.kind == "multiple_choice" else len(self.outputs)
        if self.rule != "true" or most <= self.exact:
            return []
        drawn = "each is" if self.several else "one is"
        of = "word" if self.kind == "token_classification" else "example"
        return [
            f"with {most} labels, {drawn} drawn for each {of}; the sum over all is taken for up to "
            f"{self.exact}"
        ]

    def score(
        self,
        amounts: Sequence[Mapping[str, float]],
        combine: Callable[[Sequence[float]], float],
        notes: Sequence[str] = (),
    ) -> BlockScores:
        """Combine the amounts of the weights of each block, and say what is doubtful."""
        scores = score_blocks(amounts, self.blocks, combine, notes)
        return replace(scores, warnings=tuple(self._explain_doubts(scores.values[1:])))

    def _explain_doubts(self, values: Sequence[float | None]) -> Iterator[str]:
        """Say why the values of blocks 1..L may not be a ranking."""
        defined = [v for v in values if v is not None]
        if bad := len(values) - len(defined):
            yield f"gradients are not finite in {bad} of {len(values)} blocks"
        seen = None
        if self.rule != "as_released" and 2 * self.certain > self.done:  # raw logits never saturate
            seen = f"p > 1 − 1e-6 for {self.certain} of {self.done} examples"
        if defined and max(defined) < TINY:
            seen = f"no value is above {max(defined):.1e}"
        if seen is not None:
            yield f"the head is saturated ({seen}): gradients this small do not rank the blocks"


@contextmanager
def _refusing_too_large(encoder: Encoder) -> Iterator[None]:
    """Report a backward pass that does not fit into the device's memory as the user's error."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise InputError(
            f"a backward pass through {encoder.name} does not fit into the memory of "
            f"{encoder.device}; lower --max-length or use --device cpu"
        ) from error


def _rows_of_examples(split: Split, kind: Kind, texts: int) -> Iterator[np.ndarray]:
    """Yield the rows of all examples, those with the same number of choices together."""
    if kind != "multiple_choice" or split.groups is None:
        yield np.arange(texts)[:, None]
        return
    order = np.argsort(split.groups, kind="stable")
    counts = np.unique(split.groups, return_counts=True)[1]
    starts = np.cumsum(counts) - counts
    for choices in np.unique(counts):
        yield order[starts[counts == choices][:, None] + np.arange(choices)]
