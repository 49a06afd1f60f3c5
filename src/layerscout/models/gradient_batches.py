"""Labelled examples in batches, for gradients of the log-probabilities of their labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn
from torch.nn.functional import one_hot

from layerscout.data import Kind, Split, batch_by_length, check_choices
from layerscout.models.architecture import locate_parameters
from layerscout.models.block_scores import Values
from layerscout.models.classifiers import make_classifier
from layerscout.models.encoder import Encoder
from layerscout.models.per_example_gradients import Rows, factor_fisher
from layerscout.models.tokens import Tokens
from layerscout.plans import Plan
from layerscout.runtime import InputError, make_unknown_error

# Up to so many labels (or choices of an example) the sum over them is exact. Each is a backward
# pass; several labels of an example are independent, and a pass for each replaces 2^K cases.
EXACT_LABELS = 10
EXACT_SEVERAL = 32

# Kinds of tasks that have gradients, with the kind of the type of their labels.
KINDS = {
    "classification": "i",
    "multi_label_classification": "b",
    "token_classification": "i",
    "regression": "f",
    "multiple_choice": "i",
}
FOUND = {"f": "numbers, which are for regression", "b": "several labels for each"}

# A backward pass keeps all that the forward pass computed: about 2 MB a token in large models.
BACKWARD_TOKENS = 4096

# Above such a probability of one label, or below such values, a head says nothing about blocks.
SATURATED = 1 - 1e-6
TINY = 1e-12


@dataclass(eq=False)
class GradientBatches:
    """Examples in batches, and which gradients of their logits are asked for.

    An example is C rows of the split: one, or its choices. Its logits are one for each label or
    for each choice; for regression, a single one. Where it may have several labels, each of them is
    a Bernoulli variable of its own. Where words are labelled, it is a sentence or a window of one,
    with logits of every token, and its words are independent.

    Attributes:
        rule: which y: "true", "empirical" or "as_released".
        outputs: names of the head's outputs.
        batches: rows of the examples of each batch, (e, C).
        heads: how many there are to go through.
        done: examples, counted once for each head.
        certain: those of them of which one label (of several, each) is as good as certain to the
            model.
    """

    encoder: Encoder
    split: Split
    kind: Kind
    rule: str
    tokens: Tokens
    outputs: Sequence[str]
    batches: Sequence[np.ndarray]
    heads: int
    progress: Callable[[int, int], None] | None
    done: int = 0
    certain: int = 0

    @property
    def examples(self) -> int:
        """How many there are."""
        return sum(map(len, self.batches))

    @property
    def options(self) -> set[int]:
        """How many labels an example can have."""
        if self.kind == "multiple_choice":
            return {rows.shape[1] for rows in self.batches}
        return {len(self.outputs)}

    @property
    def several(self) -> bool:
        """Whether an example may have several labels."""
        return self.kind == "multi_label_classification"

    @property
    def most_exact(self) -> int:
        """Up to how many labels the sum over them is exact."""
        if self.tokens.words is not None:  # which would be a pass for each label of each word
            return 1
        return EXACT_SEVERAL if self.several else EXACT_LABELS

    def draw(self, seed: int) -> np.ndarray:
        """Draw the numbers from 0 to 1 that draw labels, (n,), or (w,); of several, (n, K)."""
        of_row = (len(self.outputs),) if self.several else ()
        return np.random.default_rng(seed).random((self.tokens.outputs, *of_row))

    def make_model(self, seed: int) -> tuple[Any, dict[str, nn.Parameter]]:
        """Make the whole model, which shares its weights with the encoder; list those of blocks."""
        # A plan that tunes nothing: what a plan tunes would be copied.
        plan = Plan((), self.encoder.blocks)
        # Choices go through a head with one output, each by itself.
        kind = "classification" if self.kind == "multiple_choice" else self.kind
        model = make_classifier(self.encoder, plan, self.outputs, seed=seed, kind=kind)
        model = model.to(self.encoder.model.dtype).requires_grad_(False)
        found = locate_parameters(model)
        named = model.named_parameters()
        return model, {name: w for name, w in named if isinstance(found[name], tuple)}

    def logits(self, model: Any, rows: Rows) -> Float[Tensor, "e K"]:
        """Run the model; without autocast, since what is squared twice needs more than bfloat16."""
        logits: Tensor = model(**self.encoder.batch(self.tokens, rows.ravel())).logits
        return logits.reshape(len(rows), -1)

    def vectors(
        self,
        logits: Float[Tensor, "e K"],
        rows: Rows,
        draws: np.ndarray | None = None,
    ) -> Float[Tensor, "r e K"]:
        """Give vectors v with E_y (∂ log p(y|x)/∂θ)² = Σ_r (∂ (v_r · logits)/∂θ)²; count examples.

        Args:
            logits: of the examples.
            rows: of the same examples.
            draws: as of `draw`; they draw labels, where those are drawn.
        """
        z = logits.detach().cpu().double()
        self.done += len(z)
        if self.progress is not None:
            self.progress(self.done, self.examples * self.heads)
        if self.kind == "regression":
            v = self._targets(rows)[:, None] - z if self.rule == "empirical" else torch.ones_like(z)
            return v[None].to(logits)
        if self.several:
            return self._vectors_of_several(z.sigmoid(), rows, draws).to(logits)
        if self.tokens.words is not None:
            return self._vectors_of_words(z, rows[:, 0], draws).to(logits)
        p = z.softmax(dim=1)
        K = p.shape[1]
        self.certain += int((p.amax(dim=1) > SATURATED).sum()) if K > 1 else 0
        if self.rule != "true":
            y = self._targets(rows)
        elif K <= EXACT_LABELS or draws is None:
            return factor_fisher(p).to(logits)
        else:  # by the number of the example's first row, wherever it stands in the batches
            y = _draw_classes(p, draws[rows[:, 0]])
        v = one_hot(y, K).double()
        return (v if self.rule == "as_released" else v - p)[None].to(logits)

    def _vectors_of_several(
        self,
        p: Float64[Tensor, "e K"],
        rows: Rows,
        draws: np.ndarray | None,
    ) -> Float64[Tensor, "r e K"]:
        """Give the vectors where labels are independent, y_k = 1 with probability p_k.

        The gradient of log p(y) by the logits is y − p, whose covariance is diagonal: p_k(1 − p_k).
        """
        K = p.shape[1]
        self.certain += int((torch.maximum(p, 1 - p).amin(dim=1) > SATURATED).sum())
        if self.rule != "true":
            y = self._targets(rows).double()
        elif self.most_exact >= K or draws is None:
            return torch.diag_embed((p * (1 - p)).sqrt()).transpose(0, 1)
        else:
            y = (torch.from_numpy(draws[rows[:, 0]]) < p).double()
        return (y if self.rule == "as_released" else y - p)[None]

    def _vectors_of_words(
        self,
        z: Float64[Tensor, "e TK"],
        rows: np.ndarray,
        draws: np.ndarray | None,
    ) -> Float64[Tensor, "1 e TK"]:
        """Give one vector for each example: of every word the gradient of its own log p."""
        texts, places = map(torch.from_numpy, self.tokens.find_firsts(rows))
        v = torch.zeros(len(rows), z.shape[1] // len(self.outputs), len(self.outputs))
        v = v.to(z)
        p = z.reshape(v.shape)[texts, places].softmax(dim=1)
        words = self.tokens.find_outputs(rows)
        doubtful = texts[p.amax(dim=1) <= SATURATED]
        self.certain += len(rows) - len(set(doubtful.tolist()))
        if self.rule != "true":
            y = torch.from_numpy(self.split.labels[words])
        else:
            assert draws is not None, "labels of words are drawn"
            y = _draw_classes(p, draws[words])
        given = one_hot(y, p.shape[1]).double()
        v[texts, places] = given if self.rule == "as_released" else given - p
        return v.flatten(1)[None]

    def explain_doubts(self, values: Values) -> Iterator[str]:
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

    def _targets(self, rows: Rows) -> Tensor:
        """Give the target of each example, (e,): a label, a choice, or a number; or (e, K)."""
        labels = torch.from_numpy(self.split.labels[rows])
        return labels.argmax(dim=1) if self.kind == "multiple_choice" else labels[:, 0]


def prepare_batches(
    encoder: Encoder,
    split: Split,
    labels: Sequence[str],
    kind: Kind,
    rule: str,
    seeds: Sequence[int],
    max_length: int,
    progress: Callable[[int, int], None] | None,
) -> GradientBatches:
    """Check, tokenise and batch the examples; see `fisher`.

    Raises:
        InputError: if labels, targets or groups do not fit the kind of task, or there are no seeds.
    """
    if not seeds or min(seeds) < 0:
        raise InputError(f"`seeds` must be one or more numbers from 0 on, got {list(seeds)}")
    tokens = encoder.tokenize_split(split, max_length=max_length)
    _check_labels(split, labels, kind)
    budget, batches = min(encoder.token_budget, BACKWARD_TOKENS), []
    for rows in _rows_of_examples(split, kind, len(tokens)):
        if kind == "multiple_choice" and rule != "true":
            check_choices(split.labels[rows])
        longest = tokens.lengths[rows].max(axis=1)
        batches += [rows[at] for at in batch_by_length(longest, max(1, budget // rows.shape[1]))]
    outputs = ["score"] if kind in ("regression", "multiple_choice") else list(labels)
    return GradientBatches(
        encoder, split, kind, rule, tokens, outputs, batches, len(seeds), progress
    )


@contextmanager
def refusing_too_large(encoder: Encoder) -> Iterator[None]:
    """Report a backward pass that does not fit into the device's memory as the user's error."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise InputError(
            f"a backward pass through {encoder.name} does not fit into the memory of "
            f"{encoder.device}; lower --max-length or use --device cpu"
        ) from error


def _check_labels(split: Split, labels: Sequence[str], kind: Kind) -> None:
    if kind not in KINDS:
        raise make_unknown_error("kind of task", kind, KINDS)
    given = split.labels.dtype.kind
    if given != KINDS[kind]:
        found = FOUND.get(given, "class ids")
        raise InputError(f"the labels must be those of {kind}, got {found}; name the right kind")
    if kind == "multi_label_classification":
        if split.labels.shape[1] != len(labels):
            raise InputError(
                f"there must be a name for each of {split.labels.shape[1]} labels, got "
                f"{len(labels)} names; name all labels"
            )
        return
    if kind == "multiple_choice" and split.groups is None:
        raise InputError("multiple choice needs the example of each row, got none; give `groups`")
    low, high = split.labels.min(), split.labels.max()
    if kind.endswith("classification") and not (
        len(labels) > 1 and low >= 0 and high < len(labels)
    ):
        raise InputError(
            f"class ids must be in 0..{max(2, len(labels)) - 1}, got {low}..{high} with "
            f"{len(labels)} class names; name all classes"
        )


def _draw_classes(p: Float64[Tensor, "n K"], draws: np.ndarray) -> Tensor:
    """Draw a class for each row by its probabilities, with numbers from 0 to 1, (n,)."""
    below = p.cumsum(dim=1) < torch.from_numpy(draws)[:, None]
    return below.sum(dim=1).clamp(max=p.shape[1] - 1)


def _rows_of_examples(split: Split, kind: Kind, texts: int) -> Iterator[np.ndarray]:
    """Give the rows of all examples, those with the same number of choices together."""
    if kind != "multiple_choice" or split.groups is None:
        yield np.arange(texts)[:, None]
        return
    order = np.argsort(split.groups, kind="stable")
    counts = np.unique(split.groups, return_counts=True)[1]
    starts = np.cumsum(counts) - counts
    for choices in np.unique(counts):
        yield order[starts[counts == choices][:, None] + np.arange(choices)]
