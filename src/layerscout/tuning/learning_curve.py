"""What more labelled texts would bring: the learning curve of the free head, led a little on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import floor, log10
from time import perf_counter
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float64, Int64

from layerscout.data import (
    Tags,
    Targets,
    evaluate,
    evaluate_without,
    half_width,
    settle_thresholds,
)
from layerscout.tuning.free import Settled
from layerscout.tuning.solving import FOLDS, find_form, read_labelled

# Heads are solved on the first 1, 2 and all of so many parts of the rows that are not left out.
PARTS, FIRST = 4, (1, 2, 4)
# Rows that are left out, from which on a further fold is not: each costs three heads.
ENOUGH = 10_000
# Groups of texts that a jackknife leaves out, and texts that are too few for a curve.
GROUPS, FEWEST = 20, 16
LEVEL = 0.95
# How far predictions were off, in standard errors of the jackknife: it holds all heads fixed, and
# which texts are drawn is of more weight (bench/more.py).
WIDER = 3.0
# Pieces of the curve ahead.
STEPS = 5

# Solves a head on rows with answers, and gives the logits of others.
Predict = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)
class Curve:
    """The metric of heads that were solved on more and more texts, judged on texts left out.

    Attributes:
        examples: labelled texts that there are.
        sizes: texts that the heads were solved on, in the mean.
        values: of all texts that were left out, in the mean over the deals, and then of all but
            each of some groups of them.
    """

    examples: int
    sizes: Float64[np.ndarray, " S"]
    values: Float64[np.ndarray, "S B"]

    def fit(self) -> Float64[np.ndarray, "2 B"]:
        """Return a and b of a − b/√n, by least squares, for each column of the values.

        Of six tasks, powers of 1/4 and 1 and a logarithm came less near to twice as many texts.
        """
        x = np.column_stack([np.ones(len(self.sizes)), -(self.sizes**-0.5)])
        lowest = self.values[0]  # of which nothing is left where all are equal
        limits, slopes = np.linalg.lstsq(x, self.values - lowest, rcond=None)[0]
        return np.stack([limits + lowest, slopes])

    def as_dict(self) -> dict[str, Any]:
        """Return what `result.json` holds of it: the curve, and where it leads with more texts.

        These are no more than there are.
        """
        (limit, *_), slopes = self.fit()
        half, now, more = half_width(slopes[1:], LEVEL), self.examples, round_down(self.examples)
        at = np.linspace(now, now + more, STEPS + 1)
        values, around = limit - slopes[0] * at**-0.5, WIDER * half * (now**-0.5 - at**-0.5)
        ends = np.minimum([values, values - around, values + around], 1.0)  # no metric is above 1
        gain, *interval = (ends[:, -1] - ends[0, 0]).tolist()
        names = "examples", "value", "low", "high"
        solved = np.stack([self.sizes, self.values[:, 0]], axis=1).tolist()
        ahead = np.stack([at, *ends], axis=1).tolist()
        return {
            "examples": now,
            "curve": [dict(zip(names, row, strict=False)) for row in solved],
            "ahead": [dict(zip(names, row, strict=True)) for row in ahead],
            "more": more,
            "gain": gain,
            "interval": interval,
        }


def round_down(count: int) -> int:
    """Return the largest of 1, 2, 5, 10, 20, 50, ... that is not above a count."""
    power: int = 10 ** floor(log10(count))
    return power * max(first for first in (1, 2, 5) if first * power <= count)


def learn_more(settled: Settled) -> dict[str, Any] | None:
    """Return what more texts would bring the free head, as `result.json` holds it.

    All heads read the state and have the shrinkage that were chosen on all texts: to choose them
    anew for each made no difference to what is predicted. None where no head was solved, where a
    part of the texts is too little for one, or where time was too short to train on all of them.
    """
    from layerscout.scores import solve_path, solve_regression

    tuning, first, started = settled.tuning, settled.tuned[0], perf_counter()
    if first.examples < tuning.task.train.examples:
        return None
    if settled.free is not None and settled.pooled is not None:
        pooled, free = settled.pooled, settled.free
        state, shrinkage, penalty = free["state"], free["shrinkage"], free["penalty"]
    elif first.solution is not None and first.solution.pooled.splits:
        pooled, solved = first.solution.pooled, first.solution.solved
        state, shrinkage, penalty = solved.state, solved.shrinkage, solved.penalty
    else:
        return None
    classes, balanced = len(tuning.task.labels), tuning.settings.class_weights is not None
    solve = partial(solve_regression, classes=classes, balanced=balanced)
    if penalty is None:
        bias, one = find_form(tuning).bias, (shrinkage,)
        solve = partial(solve_path, classes=classes, bias=bias, balanced=balanced, shrinkages=one)
    curve = find_curve(
        *read_labelled(tuning, pooled, state, PARTS),
        lambda H, y, others: solve(H, y)[0](others),
        metric=tuning.settings.metric,
        threshold=tuning.settings.threshold,
    )
    if curve is None:
        return None
    about = {"state": state, "shrinkage": shrinkage, "seconds": perf_counter() - started}
    return curve.as_dict() | about


def find_curve(
    H: Float64[np.ndarray, "n *C d"],
    answers: Targets,
    folds: Int64[np.ndarray, "R n"],
    parts: Int64[np.ndarray, "R n"],
    predict: Predict,
    *,
    metric: str,
    threshold: float | Literal["tuned"] | None = None,
) -> Curve | None:
    """Solve heads on the first parts of the rows, and judge each by the rows of a fold left out.

    Args:
        H: states of the rows.
        answers: what is right for them.
        folds: as of `solve_head`.
        parts: the part of each row, 0 to 3, dealt R times, or −1 for rows of every head.
        predict: solves a head on rows with answers, and gives the logits of others.
        metric: by which heads are judged.
        threshold: of several labels, see `settle_thresholds`.

    Returns:
        None where a part of the rows is too little to solve a head.
    """
    n, y, tags = len(answers), answers.labels, answers.tags
    texts = np.arange(n) if tags is None else tags.sentences
    count, used = len(np.unique(texts)), max(1, min(FOLDS, ENOUGH * FOLDS // n))
    folds = np.where(folds < used, folds, -1)
    aside, options = np.flatnonzero(folds[0] >= 0), dict[str, Any]()
    left, units = np.unique(texts[aside], return_inverse=True)
    if len(left) < FEWEST:
        return None
    if tags is not None:
        options["tags"] = Tags(tags.names, tags.sentences[aside])
    groups = (np.random.default_rng(0).permutation(len(left)) % GROUPS)[units]
    values, sizes = [], []
    for first in FIRST:
        judged, shares = [], []
        for deal, part in zip(folds, parts, strict=True):
            found = _leave_out(H, y, deal, part < first, predict)
            if found is None:
                return None
            shares.append(found[1])
            said = y[aside], found[0][aside]
            options["thresholds"] = settle_thresholds(threshold, *said)
            value = evaluate(metric, *said, **options)
            judged.append([value, *evaluate_without(metric, *said, groups, **options)])
        values.append(np.mean(judged, axis=0))
        sizes.append(count * np.mean(shares))
    return Curve(count, np.array(sizes), np.stack(values))


def _leave_out(
    H: np.ndarray,
    y: np.ndarray,
    deal: Int64[np.ndarray, " n"],
    chosen: Bool[np.ndarray, " n"],
    predict: Predict,
) -> tuple[Float64[np.ndarray, "n K"], float] | None:
    """Predict the rows of each fold by a head that is solved on the chosen ones of the others.

    Returns:
        Logits, and the share of all rows that heads were solved on; None where those are too few.
    """
    logits, shares = np.zeros((len(y), 0)), list[float]()
    for fold in np.unique(deal[deal >= 0]):
        own = deal == fold
        few = chosen & ~own
        if few.sum() < 2:
            return None
        predicted = predict(H[few], y[few], H[own])
        if not shares:
            logits = np.zeros((len(y), predicted.shape[1]))
        logits[own] = predicted
        shares.append(few.mean())
    return logits, float(np.mean(shares))
