"""Scores of blocks from the gradients of a classification model: Fisher, gradient norm, saliency.

All of them look at the model as fine-tuning would find it: the pretrained blocks under the head as
the library loads it, which is random in part or in whole. So is, then, the ranking of the blocks;
several seeds show by how much.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import isfinite, sqrt
from statistics import mean, stdev
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn
from torch.nn.functional import one_hot

from layerscout.data import Kind, Split, batch_by_length
from layerscout.models.encoder import Encoder, Tokens
from layerscout.models.per_example_gradients import Rows, SquaredGradientSums, factor_fisher
from layerscout.models.surgery import locate_parameters, make_classifier
from layerscout.plans import Plan, ranges
from layerscout.runtime import InputError, unknown

Mode = Literal["true", "empirical"]
Values = tuple[float | None, ...]

# Up to so many labels (or choices of an example) the sum over them is exact.
EXACT_LABELS = 10

# A backward pass keeps all that the forward pass computed: about 2 MB a token in large models.
BACKWARD_TOKENS = 4096

# Above such a probability of one label, or below such values, a head tells nothing about blocks.
SATURATED = 1 - 1e-6
TINY = 1e-12

# Parts of a block, by the first pattern that is found in a weight's name within the block: the
# norms first, as BERT's are within its "attention" and DistilBERT has an "output_layer_norm".
PARTS: Mapping[str, re.Pattern[str]] = {
    "norms": re.compile("norm", re.IGNORECASE),
    "attention": re.compile(r"\b(attention|attn)\b"),
    "feed_forward": re.compile(r"\b(intermediate|output|ffn|ffn_output|mlp)\b"),
    "other": re.compile(""),
}


@dataclass(frozen=True)
class BlockScores:
    """A score of every block, by one head or as the mean over several random ones.

    Attributes:
        values: L + 1 entries; entry 0, the embeddings, is None, and so is what is undefined.
        spread: the standard deviation over the seeds; None where there is a single one.
        by_seed: `values` of each seed.
        parts: the same score of the attention, the feed-forward layers, the norms and whatever
            else there is in each block; None unless it was asked for.
        notes: how the values are to be read.
        warnings: why they may mean nothing.
    """

    values: Values
    spread: Values
    by_seed: tuple[Values, ...]
    parts: Mapping[str, Values] | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def fisher(
    encoder: Encoder,
    split: Split,
    labels: Sequence[str],
    *,
    kind: Kind = "classification",
    mode: Mode = "true",
    as_released: bool = False,
    seeds: Sequence[int] = (0,),
    parts: bool = False,
    max_length: int = 128,
    progress: Callable[[int, int], None] | None = None,
) -> BlockScores:
    """Score blocks by the diagonal of the Fisher information, √Σ_θ F_θθ² over a block's weights.

    F_θθ = E_x E_y (∂ log p(y|x)/∂θ)²: gradients are squared example by example, then averaged.
    With mode "true", y comes from the model: the expectation is exact for up to 10 labels (and for
    regression), otherwise one label is drawn for each example. With mode "empirical", y is given.
    Regression has a Gaussian of unit variance about the output, multiple choice a softmax over the
    choices of an example. Padding is masked. Lodha et al. 2023, §3.1.

    Args:
        encoder: not changed.
        split: the held-out examples; all of them are used.
        labels: class names by id; not looked at unless `kind` is "classification".
        kind: of the task.
        mode: where y comes from.
        as_released: what the paper's released code computes, whatever the mode: the gradient of
            the given label's raw logit (regression: of the output), and for a block the sum over
            its tensors of the norm of each one's diagonal. That code also let the padding take
            part and read one example all over; these two faults are not repeated.
        seeds: of the random part of the head, and of the labels drawn.
        parts: score the parts of each block too.
        max_length: tokens that are kept of an input.
        progress: called with how many examples are done, and of how many.

    Raises:
        InputError: if labels, targets or groups do not fit the kind of task, an argument is
            unknown, or the device's memory does not hold a batch.
    """
    if mode not in ("true", "empirical"):
        raise unknown("Fisher mode", mode, ("true", "empirical"))
    rule = "as_released" if as_released else mode
    work = _prepare(encoder, split, labels, kind, rule, seeds, max_length, progress)
    amounts = []
    for seed in seeds:
        model, weights = work.model(seed)
        sums = SquaredGradientSums.of(model, list(weights))
        draws = np.random.default_rng(seed).random(len(split))
        with _fitting(encoder):
            for rows in work.batches:
                sums.add(partial(work.logits, model), partial(work.columns, draws=draws), rows)
        mean_squares = {name: total / work.examples for name, total in sums.sums.items()}
        amounts.append({name: _square_sum(F) for name, F in mean_squares.items()})
    notes, most = [], max(work.options)
    if rule == "true" and most > EXACT_LABELS:
        notes.append(
            f"with {most} labels, one is drawn for each example; the sum over all is taken for up "
            f"to {EXACT_LABELS}"
        )
    return _block_scores(
        work, model, amounts, _sum_of_roots if as_released else _root, parts, notes
    )


def gradient_scores(
    encoder: Encoder,
    split: Split,
    labels: Sequence[str],
    *,
    kind: Kind = "classification",
    seeds: Sequence[int] = (0,),
    parts: bool = False,
    max_length: int = 128,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, BlockScores]:
    """Score blocks by the gradient g of the mean loss over all examples, from one backward pass.

    "gradient_norm" is ‖g‖₂ over a block's weights, "saliency" Σ_θ |g_θ θ|. The loss is −log p of
    the given labels, with p as for `fisher`: cross-entropy, or half the squared error.

    Args:
        encoder: not changed.
        split: the held-out examples; all of them are used.
        labels: class names by id; not looked at unless `kind` is "classification".
        kind: of the task.
        seeds: of the random part of the head.
        parts: score the parts of each block too.
        max_length: tokens that are kept of an input.
        progress: called with how many examples are done, and of how many.

    Returns:
        The scores, under "gradient_norm" and "saliency".

    Raises:
        InputError: as `fisher`.
    """
    work = _prepare(encoder, split, labels, kind, "empirical", seeds, max_length, progress)
    norms, saliencies = [], []
    for seed in seeds:
        model, weights = work.model(seed)
        for weight in weights.values():
            weight.requires_grad_()
        with _fitting(encoder):
            for rows in work.batches:
                logits = work.logits(model, rows)
                (v,) = work.columns(logits, rows)  # of log p, which the loss is the negative of
                torch.autograd.backward(logits, -v / work.examples)
        found = [(name, w.detach(), w.grad) for name, w in weights.items()]
        norms.append({name: _square_sum(g) for name, _, g in found if g is not None})
        saliencies.append({name: _sum((g * w).abs()) for name, w, g in found if g is not None})
    return {
        "gradient_norm": _block_scores(work, model, norms, _root, parts),
        "saliency": _block_scores(work, model, saliencies, sum, parts),
    }


# --- Examples and their labels -------------------------------------------------------------------


@dataclass(eq=False)
class _Work:
    """Examples in batches, and what the model is asked about them.

    An example is C rows of the split: one, or its choices. Its logits are one for each label or
    for each choice; for regression, a single one.

    Attributes:
        rule: which y: "true", "empirical" or "as_released".
        outputs: names of the head's outputs.
        batches: rows of the examples of each batch, (e, C).
        heads: how many there are to go through.
        done: examples, counted once for each head.
        certain: those of them of which the model takes one label for certain.
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

    def model(self, seed: int) -> tuple[Any, dict[str, nn.Parameter]]:
        """Make the whole model; it shares its weights with the encoder. Name those of blocks."""
        # A plan that tunes nothing: what a plan tunes would be copied.
        plan = Plan((), self.encoder.blocks)
        model = make_classifier(self.encoder, plan, self.outputs, seed=seed)
        model = model.to(self.encoder.model.dtype).requires_grad_(False)
        found = locate_parameters(model)
        named = model.named_parameters()
        return model, {name: w for name, w in named if isinstance(found[name], tuple)}

    def logits(self, model: Any, rows: Rows) -> Float[Tensor, "e K"]:
        """Run the model; without autocast, as what is squared twice wants more than bfloat16."""
        logits: Tensor = model(**self.encoder.batch(self.tokens, rows.ravel())).logits
        return logits.reshape(len(rows), -1)

    def columns(
        self,
        logits: Float[Tensor, "e K"],
        rows: Rows,
        draws: Float64[np.ndarray, " n"] | None = None,
    ) -> Float[Tensor, "r e K"]:
        """Give vectors v with E_y (∂ log p(y|x)/∂θ)² = Σ_r (∂ (v_r · logits)/∂θ)²; count examples.

        Args:
            logits: of the examples.
            rows: of the same examples.
            draws: numbers from 0 to 1, one for each row; they draw labels, where those are drawn.
        """
        z = logits.detach().cpu().double()
        self.done += len(z)
        if self.progress is not None:
            self.progress(self.done, self.examples * self.heads)
        if self.kind == "regression":
            v = self._answers(rows)[:, None] - z if self.rule == "empirical" else torch.ones_like(z)
            return v[None].to(logits)
        p = z.softmax(dim=1)
        K = p.shape[1]
        self.certain += int((p.amax(dim=1) > SATURATED).sum()) if K > 1 else 0
        if self.rule != "true":
            y = self._answers(rows)
        elif K <= EXACT_LABELS or draws is None:
            return factor_fisher(p).to(logits)
        else:  # by the number of the example's first row, wherever it stands in the batches
            below = p.cumsum(dim=1) < torch.from_numpy(draws[rows[:, :1]])
            y = below.sum(dim=1).clamp(max=K - 1)
        v = one_hot(y, K).double()
        return (v if self.rule == "as_released" else v - p)[None].to(logits)

    def _answers(self, rows: Rows) -> Tensor:
        """Give what is right for each example, (e,): a label, a choice, or a number."""
        labels = torch.from_numpy(self.split.labels[rows])
        return labels.argmax(dim=1) if self.kind == "multiple_choice" else labels[:, 0]


def _prepare(
    encoder: Encoder,
    split: Split,
    labels: Sequence[str],
    kind: Kind,
    rule: str,
    seeds: Sequence[int],
    max_length: int,
    progress: Callable[[int, int], None] | None,
) -> _Work:
    """Check, tokenise and batch the examples."""
    if not seeds or min(seeds) < 0:
        raise InputError(f"`seeds` must be one or more numbers from 0 on, got {list(seeds)}")
    tokens = encoder.tokenize(split.texts, split.pairs, max_length=max_length)
    _check_labels(split, labels, kind)
    budget, batches = min(encoder.token_budget, BACKWARD_TOKENS), []
    for rows in _rows_of_examples(split, kind):
        if kind == "multiple_choice" and rule != "true":
            _check_choices(split.labels[rows])
        longest = tokens.lengths[rows].max(axis=1)
        batches += [rows[at] for at in batch_by_length(longest, max(1, budget // rows.shape[1]))]
    outputs = list(labels) if kind == "classification" else ["score"]
    return _Work(encoder, split, kind, rule, tokens, outputs, batches, len(seeds), progress)


@contextmanager
def _fitting(encoder: Encoder) -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise InputError(
            f"a backward pass through {encoder.name} does not fit into the memory of "
            f"{encoder.device}; lower --max-length or use --device cpu"
        ) from error


def _check_labels(split: Split, labels: Sequence[str], kind: Kind) -> None:
    if kind not in ("classification", "regression", "multiple_choice"):
        raise unknown("kind of task", kind, ("classification", "regression", "multiple_choice"))
    numbers = split.labels.dtype.kind == "f"
    if numbers != (kind == "regression"):
        found = "numbers, which are for regression" if numbers else "class ids"
        raise InputError(f"the labels must be those of {kind}, got {found}; name the right kind")
    if kind == "multiple_choice" and split.groups is None:
        raise InputError("multiple choice needs the example of each row, got none; give `groups`")
    low, high = split.labels.min(), split.labels.max()
    if kind == "classification" and not (len(labels) > 1 and low >= 0 and high < len(labels)):
        raise InputError(
            f"class ids must be in 0..{max(2, len(labels)) - 1}, got {low}..{high} with "
            f"{len(labels)} class names; name all classes"
        )


def _check_choices(labels: Rows) -> None:
    wrong = (labels == 1).sum(axis=1) != 1
    if wrong.any():
        raise InputError(
            "one choice of every example must be right (labelled 1, the others 0), got "
            f"{np.count_nonzero(wrong)} of {len(labels)} examples with none or several; mend them"
        )


def _rows_of_examples(split: Split, kind: Kind) -> Iterator[np.ndarray]:
    """Give the rows of all examples, those with the same number of choices together."""
    if kind != "multiple_choice" or split.groups is None:
        yield np.arange(len(split))[:, None]
        return
    order = np.argsort(split.groups, kind="stable")
    counts = np.unique(split.groups, return_counts=True)[1]
    starts = np.cumsum(counts) - counts
    for choices in np.unique(counts):
        yield order[starts[counts == choices][:, None] + np.arange(choices)]


# --- From weights to blocks ----------------------------------------------------------------------


def part_of(name: str) -> str:
    """Tell which part of its block, a key of `PARTS`, a weight belongs to.

    Args:
        name: of the parameter, in full; what comes before a number is not of the block.
    """
    inner = re.split(r"\.\d+\.", name)[-1]
    return next(part for part, pattern in PARTS.items() if pattern.search(inner))


def _block_scores(
    work: _Work,
    model: Any,
    amounts: Sequence[Mapping[str, float]],
    combine: Callable[[Sequence[float]], float],
    parts: bool,
    notes: Sequence[str] = (),
) -> BlockScores:
    """Combine the amounts of the weights of each block, and of its parts, and average over seeds.

    Args:
        amounts: of each seed, by the weight's name.
        combine: amounts of several weights to a score.
    """
    inside = {k: place for k, place in locate_parameters(model).items() if isinstance(place, tuple)}

    def by_block(of: Mapping[str, float], part: str | None = None) -> Values:
        lists: list[list[float]] = [[] for _ in range(work.encoder.blocks + 1)]
        for name, amount in of.items():
            if part in (None, part_of(name)):
                for block in inside[name]:
                    lists[block].append(amount)
        values = [combine(several) if several else None for several in lists]
        return tuple(v if v is not None and isfinite(v) else None for v in values)

    by_seed = tuple(map(by_block, amounts))
    values = _over_seeds(by_seed, mean)
    shared = dict.fromkeys(place for place in inside.values() if len(place) > 1)
    present = [part for part in PARTS if any(part_of(name) == part for name in inside)]
    return BlockScores(
        values=values,
        spread=_over_seeds(by_seed, lambda v: stdev(v) if len(v) > 1 else None),
        by_seed=by_seed,
        parts={part: _over_seeds([by_block(of, part) for of in amounts], mean) for part in present}
        if parts
        else None,
        notes=(
            *(f"blocks {ranges(s)} share their weights and have one value" for s in shared),
            *notes,
        ),
        warnings=tuple(_warnings(work, values[1:])),
    )


def _over_seeds(
    by_seed: Sequence[Values], statistic: Callable[[Sequence[float]], float | None]
) -> Values:
    """Apply a statistic to each entry; undefined where one of the seeds is."""
    entries = []
    for several in zip(*by_seed, strict=True):
        defined = [v for v in several if v is not None]
        entries.append(statistic(defined) if len(defined) == len(several) else None)
    return tuple(entries)


def _warnings(work: _Work, values: Values) -> Iterator[str]:
    """Tell why the values of blocks 1..L are no ranking."""
    defined = [v for v in values if v is not None]
    if len(defined) < len(values):
        yield f"gradients are not finite in {len(values) - len(defined)} of {len(values)} blocks"
    seen = None
    if work.rule != "as_released" and 2 * work.certain > work.done:  # raw logits never saturate
        seen = f"p > 1 − 1e-6 for {work.certain} of {work.done} examples"
    if defined and max(defined) < TINY:
        seen = f"no value is above {max(defined):.1e}"
    if seen is not None:
        yield f"the head is saturated ({seen}): gradients this small do not rank the blocks"


def _root(squares: Sequence[float]) -> float:
    return sqrt(sum(squares))


def _sum_of_roots(squares: Sequence[float]) -> float:
    return sum(map(sqrt, squares))


def _sum(values: Tensor) -> float:
    """Sum in float64, on the CPU: some accelerators have no float64."""
    return float(values.cpu().double().sum())


def _square_sum(values: Tensor) -> float:
    return float(values.cpu().double().square().sum())
