"""Linear probes: softmax, logistic or least-squares regressions, many seeds in one product."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int64
from torch import Tensor, nn

from layerscout.errors import InputError
from layerscout.scores.grouping import tenth
from layerscout.scores.probes import Metric, Probes, Report, all_finite, choose_metric, in_chunks
from layerscout.scores.score import StatesLike

# Mean and deviation of every feature.
Scale = tuple[np.ndarray, np.ndarray]

Link = Literal["softmax", "logistic", "identity"]
# By the kind of the type of labels that are not classes.
LINKS: Mapping[str, Link] = {"f": "identity", "b": "logistic"}

# Rows that a step of all linear probes together should have: fewer, and the calls cost more than
# the arithmetic; more, and they leave the processor's cache.
STEP_ROWS = 512

# Rows of a step and the rate of Tamkin et al. 2020 (App. I.6 and its default).
PLAIN_BATCH, PLAIN_RATE = 8, 2e-5

# Outputs of linear probes that are judged at a time.
LOSS_OUTPUTS = 2**16

# The highest rate that Adam is given: states have deviation 1.
RATE = 2e-3

# Bytes that the states in training and what belongs to them may take.
SLAB_BYTES = 2**28


def train_linear_probes(
    train: StatesLike,
    y: np.ndarray,
    validation: StatesLike,
    yv: np.ndarray,
    *,
    metric: Metric | None = None,
    examples: Int64[np.ndarray, " n"] | None = None,
    plain: bool = False,
    seeds: int = 8,
    epochs: int = 40,
    patience: int = 5,
    seed: int = 0,
    progress: Report | None = None,
) -> Probes:
    """Train a softmax (logistic, least-squares) regression on every state, several times over.

    Every seed sets another tenth of the training rows aside, stratified, and keeps the epoch with
    the least loss on it (early stopping; the validation split is only reported on). Seeds differ
    in nothing else: all start from weights of 0 and the shares of the classes, and read the rows
    in one order, so that all probes of a state take a step with one product. Adam, 2e-3, batches
    of a sixteenth of the rows, 8 to 256. Features are brought to mean 0 and deviation 1 by all
    training rows; those that only rounding tells from a constant become 0. Tamkin et al. 2020,
    §3, App. E; the optimiser is ours.

    Args:
        train: states (S, n, d), which may be memory-mapped; a few are copied at a time.
        y: class ids or targets (n,), or which labels each row has, bool (n, K): then there is a
            logistic regression for each.
        validation: states (S, m, d).
        yv: their labels, (m,) or (m, K).
        metric: what is reported; as `choose_metric` unless given.
        examples: ids (n,); training rows of one example are set aside together.
        plain: take the states as they are, in batches of 8 and at the rate 2e-5, as the paper did;
            many times slower.
        seeds: trainings of every state.
        epochs: passes over the training rows at the most.
        patience: epochs without less loss after which a probe stops.
        seed: the same one repeats the same numbers.
        progress: told the states done and how many there are to do.

    Returns:
        The probes, undefined at states that are not finite.

    Raises:
        InputError: if no row can be set aside.
    """
    draws = [np.random.default_rng([seed, number]) for number in range(seeds)]
    problem = _Problem.of(y, np.stack([tenth(y, examples, rng) for rng in draws], axis=1), plain)
    start = problem.start(train.shape[2])
    judge = choose_metric(metric, y)
    scales = {
        s: (np.zeros(1), np.ones(1)) if plain else scale
        for s in range(len(train))
        if (scale := _measure_scale(train[s])) is not None and all_finite(validation[s])
    }
    by_seed: list[Sequence[float]] = [()] * len(train)
    kept: list[Sequence[int]] = [()] * len(train)
    finite, size = list(scales), problem.slab(start)
    for first in range(0, len(finite), size):
        slab = finite[first : first + size]
        x = torch.empty(len(slab), *train.shape[1:])
        for at, s in enumerate(slab):
            x[at, problem.places] = _scale_features(train[s], scales[s])
        weights, best = problem.fit(x, start, epochs, patience, seed)
        for at, s in enumerate(slab):
            outputs = problem.predict(_scale_features(validation[s], scales[s]), weights[at])
            by_seed[s], kept[s] = [judge(yv, output) for output in outputs], best[at].tolist()
        if progress is not None:
            progress(first + len(slab), len(finite))
    return Probes.of(by_seed, kept)


@dataclass(frozen=True, eq=False)
class _Problem:
    """What M seeds learn from n rows, whatever the state.

    Weights are (D, C, M) with D = d + 1: the last row holds the biases.

    Attributes:
        link: from outputs to what is expected: "softmax" for classes, "logistic" for each of
            several labels, "identity" for numbers.
        places: where each row lies here: those that any seed sets aside come first.
        targets: one-hot classes, or 1 for each label of several, or the one number brought to mean
            0 and deviation 1.
        aside: 1 where a seed sets the row aside for stopping, else 0.
        mean, scale: of the numbers.
        plain: take the steps of the paper.
    """

    link: Link
    places: Int64[Tensor, " n"]
    targets: Float32[Tensor, "n C 1"]
    aside: Float32[Tensor, "n M"]
    mean: float
    scale: float
    plain: bool

    @classmethod
    def of(cls, y: np.ndarray, aside: Bool[np.ndarray, "n M"], plain: bool) -> _Problem:
        if not (aside.any(axis=0) & ~aside.all(axis=0)).all():
            raise InputError(
                "a probe sets a tenth of the rows aside for early stopping, and every class must "
                f"remain in training; got {len(y)} rows of {len(np.unique(y))} classes; use more "
                "examples"
            )
        rows = np.argsort(~aside.any(axis=1), kind="stable")
        places, kept = torch.from_numpy(np.argsort(rows)), torch.from_numpy(aside[rows]).float()
        mean, scale = 0.0, 1.0
        if y.dtype.kind not in "fb":
            targets = nn.functional.one_hot(torch.from_numpy(y[rows])).float()
        else:
            if y.dtype.kind == "f":
                mean, scale = float(y.mean()), float(y.std()) if np.ptp(y) > 0 else 1.0
            targets = torch.from_numpy((y[rows] - mean) / scale).float().reshape(len(y), -1)
        link = LINKS.get(y.dtype.kind, "softmax")
        return cls(link, places, targets[:, :, None], kept, mean, scale, plain)

    @property
    def batch(self) -> int:
        """Rows of a step: few enough for many steps an epoch."""
        return PLAIN_BATCH if self.plain else min(max(len(self.targets) // 16, 8), 256)

    def start(self, d: int) -> Float32[Tensor, "D C M"]:
        """Return weights of 0, and biases that fit the shares of the classes.

        Biases that had to find the shares by themselves would keep a probe of a weak state
        learning long after its weights fit nothing but noise.
        """
        C, M = self.targets.shape[1], self.aside.shape[1]
        start = torch.zeros(d + 1, C, M)
        if self.link == "softmax":
            start[d] = self.targets.mean(dim=0).log()
        elif self.link == "logistic":  # with half a row more of either: no row may have a label
            share = (self.targets.sum(dim=0) + 0.5) / (len(self.targets) + 1)
            start[d] = share.logit()
        return start

    def slab(self, start: Float32[Tensor, "D C M"]) -> int:
        """Return the number of states to train at once."""
        # Eight: the weights, their gradient, Adam's moments, the best ones, what is in between.
        each = 4 * (len(self.targets) * len(start) + 8 * start.numel())
        return max(1, min(STEP_ROWS // self.batch, SLAB_BYTES // each))

    def fit(
        self,
        x: Float32[Tensor, "s n d"],
        start: Float32[Tensor, "D C M"],
        epochs: int,
        patience: int,
        seed: int,
    ) -> tuple[Float32[Tensor, "s D C M"], Int64[Tensor, "s M"]]:
        """Train; return every probe's best weights and the epoch that they are of."""
        (s, n, d), (_, C, M) = x.shape, start.shape
        weights = start.reshape(1, d + 1, C * M).repeat(s, 1, 1)
        gradient, first, second = (torch.zeros_like(weights) for _ in range(3))
        best = weights.view(s, d + 1, C, M).clone()
        least, at = torch.full((s, M), torch.inf), torch.zeros(s, M, dtype=torch.int64)
        rng, steps, rate = np.random.default_rng(seed), 0, PLAIN_RATE if self.plain else RATE
        for epoch in range(1, epochs + 1):
            order = self.places[torch.from_numpy(rng.permutation(n))]
            for rows in order.tensor_split(-(-n // self.batch)):
                part, share = x.index_select(1, rows), 1 - self.aside[rows]
                # Of the mean loss of the rows that are trained on, by the outputs.
                share /= share.sum(dim=0).clamp(min=1)
                outputs = self._expect(self._outputs(part, weights))
                residuals = outputs.sub_(self.targets[rows]).mul_(share[:, None]).flatten(2)
                torch.bmm(part.transpose(1, 2), residuals, out=gradient[:, :d])
                torch.sum(residuals, 1, keepdim=True, out=gradient[:, d:])
                steps += 1
                first.lerp_(gradient, 0.1)
                second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
                root = (second / (1 - 0.999**steps)).sqrt_().add_(1e-8)
                weights.addcdiv_(first, root, value=-rate / (1 - 0.9**steps))
            loss = self._loss(x, weights)
            better = (loss < least) & (epoch - 1 - at < patience)
            least, at = torch.where(better, loss, least), torch.where(better, epoch, at)
            best = torch.where(better[:, None, None], weights.view_as(best), best)
            if bool((epoch - at >= patience).all()):
                break
        return best, at

    def _expect(self, outputs: Float32[Tensor, "s b C M"]) -> Float32[Tensor, "s b C M"]:
        """Return the targets that are expected, given the outputs."""
        if self.link == "softmax":
            return outputs.softmax(dim=2)
        return outputs.sigmoid() if self.link == "logistic" else outputs

    def _loss(
        self, x: Float32[Tensor, "s n d"], weights: Float32[Tensor, "s D CM"]
    ) -> Float32[Tensor, "s M"]:
        """Return the mean loss of the rows set aside."""
        total = torch.zeros(())
        last = int(self.aside.any(dim=1).sum())
        size = max(1, LOSS_OUTPUTS // (len(x) * weights.shape[2]))
        for rows in (slice(at, min(at + size, last)) for at in range(0, last, size)):
            outputs, target = self._outputs(x[:, rows], weights), self.targets[rows]
            if self.link == "identity":
                loss = (outputs - target).square_().squeeze(2)
            elif self.link == "logistic":
                loss = (nn.functional.softplus(outputs) - outputs * target).sum(dim=2)
            else:
                loss = outputs.logsumexp(dim=2) - outputs.mul_(target).sum(dim=2)
            total = total + loss.mul_(self.aside[rows]).sum(dim=1)
        return total / self.aside.sum(dim=0)

    def _outputs(
        self, x: Float32[Tensor, "s b d"], weights: Float32[Tensor, "s D CM"]
    ) -> Float32[Tensor, "s b C M"]:
        outputs = torch.baddbmm(weights[:, -1:], x, weights[:, :-1])
        return outputs.view(*x.shape[:2], self.targets.shape[1], self.aside.shape[1])

    def predict(
        self, x: Float32[Tensor, "m d"], weights: Float32[Tensor, "D C M"]
    ) -> Iterator[np.ndarray]:
        """Yield the logits (m, C), or the numbers (m,), of every seed."""
        for each in weights.unbind(dim=2):
            outputs = torch.addmm(each[-1], x, each[:-1]).double().numpy()
            numbers = self.link == "identity"
            yield outputs[:, 0] * self.scale + self.mean if numbers else outputs


def _measure_scale(x: Float[np.ndarray, "n d"]) -> Scale | None:
    """Return mean and deviation of every feature, 1 where only rounding tells it from a constant.

    None where they are not finite.
    """
    total = [part.sum(axis=0, dtype=np.float64) for part in in_chunks(x)]
    mean = np.sum(total, axis=0) / len(x)
    if not np.isfinite(mean).all():
        return None
    squares = [((part - mean) ** 2).sum(axis=0) for part in in_chunks(x)]
    deviation = np.sqrt(np.sum(squares, axis=0) / len(x))
    return mean, np.where(deviation > 1e-6 * abs(mean), deviation, 1.0)


def _scale_features(x: Float[np.ndarray, "n d"], scale: Scale) -> Float32[Tensor, "n d"]:
    scaled = np.empty(x.shape, dtype=np.float32)
    mean, deviation = scale
    for into, part in zip(in_chunks(scaled), in_chunks(x), strict=True):
        into[:] = (part - mean) / deviation
    return torch.from_numpy(scaled)
