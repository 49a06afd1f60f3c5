"""Linear heads in closed form: on which state, shrunken by how much, and how good they are.

Classes take linear discriminant analysis with a shrunken covariance within classes, several labels
one for each, numbers ridge regression. A state costs one tridiagonal matrix for each fold, which
serves all shrinkages. Of words, multinomial logistic regression contends besides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np
from jaxtyping import Float64, Int64

from layerscout.data import Tags, evaluate, evaluate_without
from layerscout.scores.calibration import calibrate, find_losses
from layerscout.scores.quality import measure_quality
from layerscout.scores.regression import regress, share
from layerscout.scores.score import StatesLike
from layerscout.scores.threads import map_at_once
from layerscout.scores.tridiagonal import Tridiagonal

T = TypeVar("T")

# Shares of the covariance that is shrunken towards a multiple of the identity.
SHRINKAGES = (0.9, 0.7, 0.5, 0.35, 0.2, 0.1, 0.05, 0.02)
# States that are solved: the best by ridge regression, a fit of which serves all folds.
SHORTLIST = 3
# Rows of which several states are in memory at once; the products of more keep all threads busy.
FEW_ROWS = 5000
# Features have a deviation of 1: a smaller variance within classes, in the mean, is rounding.
ALIKE = 1e-10
# States are float32: a smaller deviation, as a share of the mean, is rounding.
TOLD = 1e-6
# Of regression: the shrinkage of the covariance that penalises weights, and how many times it does.
# Entity F1 is 0.718, 0.724 and 0.715 by 200, 60 and 20 (1,500 sentences of CoNLL-2003, MiniLM).
REGRESSED, PENALTY = 0.1, 60.0


@dataclass(frozen=True, eq=False)
class LinearHead:
    """Logits, or numbers, that are linear in a state.

    Attributes:
        weights: (K, d), of classes or labels; of numbers (1, d).
        bias: (K,).
    """

    weights: Float64[np.ndarray, "K d"]
    bias: Float64[np.ndarray, " K"]

    def __call__(self, H: np.ndarray) -> Float64[np.ndarray, "n K"]:
        """Return the logits of states (n, d), or of choices (n, C, d), where K = C."""
        logits: np.ndarray = H @ self.weights.T + self.bias
        return logits.reshape(len(H), -1)

    def scale(self, factor: float) -> LinearHead:
        """Return the head whose logits are `factor` times these."""
        return LinearHead(self.weights * factor, self.bias * factor)


# Solves for a head with each of `SHRINKAGES`, from states and answers.
_SolvePath = Callable[[np.ndarray, np.ndarray], list[LinearHead]]


@dataclass(frozen=True, eq=False)
class SolvedHead:
    """The head that is best on rows left out, solved on all rows.

    Attributes:
        head: its logits are calibrated.
        state: which of the states it reads.
        shrinkage: of the covariance, a share of `SHRINKAGES`.
        penalty: of regression, see `solve_regression`; None of other heads.
        factor: on the logits, which gives rows left out the least loss; 1 for numbers.
        rows: those that were left out once, (m,).
        held_out: logits (m, K) of these, by heads that were solved without their fold, and chosen
            and calibrated by the other folds; what is reported of the head is judged by them.
        factors: on each of these rows' logits, which the other folds calibrated.
        losses: of the rows left out, in the mean, by the number of every state that was solved.
    """

    head: LinearHead
    state: int
    shrinkage: float
    penalty: float | None
    factor: float
    rows: Int64[np.ndarray, " m"]
    held_out: Float64[np.ndarray, "m K"]
    factors: Float64[np.ndarray, " m"]
    losses: dict[int, float]


@dataclass(frozen=True, eq=False)
class _Candidate:
    """Heads with one state and shrinkage, each solved without a fold, and what they say of it.

    Attributes:
        logits: of the rows left out in the first deal.
        losses: of each row, the mean over the deals, with the factor that suits each.
        values: of words, the metric of those outside of each fold, and last of all; of others 0.
    """

    state: int
    shrinkage: float
    penalty: float | None
    logits: Float64[np.ndarray, "m K"]
    losses: Float64[np.ndarray, " m"]
    values: Float64[np.ndarray, " B1"]


def solve_head(
    states: StatesLike | Sequence[np.ndarray],
    y: np.ndarray,
    folds: Int64[np.ndarray, "R n"],
    *,
    metric: str,
    classes: int | None = None,
    bias: bool = True,
    balanced: bool = False,
    tags: Tags | None = None,
) -> SolvedHead | None:
    """Solve a linear head on each of the likeliest states, and return the best by folds.

    State and shrinkage are those with the least loss on rows left out, be it cross-entropy with a
    factor on all logits that suits them, or the squared error; of words those with the most of the
    metric, and with less loss only where it is equal. Rows left out owe to themselves nothing but
    their part in that factor while candidates are compared.

    Args:
        states: S times (n, d); those with values that are not finite are passed over. Of rows with
            choices (n, C, d).
        y: class ids or targets (n,), or which labels each row has, bool (n, K), or the numbers of
            the right choices (n,).
        folds: of each row, 0..B−1, or −1 for rows that all heads are solved with, such as the only
            one of a class; dealt R times. One deal of few rows says little: with 8 texts of each
            class the state that it chose was 6 points behind the top one on customer reviews, and
            level with it by four (MiniLM).
        metric: a key of `layerscout.data.METRICS`, by which ridge regression shortlists states
            where R = 1 and there are more than these; otherwise, and of words, all are solved.
        classes: K, where there may be classes without a row.
        bias: whether the head has one.
        balanced: all classes count alike, however many rows they have: in the losses, in the factor
            and as what is expected of a new row.
        tags: of words. Regression contends on the state where discriminant analysis errs least.

    Returns:
        None if no state tells rows apart, or no row can be left out.
    """
    first = folds[0]
    aside = np.flatnonzero(first >= 0)
    if len(np.unique(first[aside])) < 2:
        return None
    own_folds, own_y, weights = first[aside], y[aside], _weigh(y, aside, balanced)
    chosen: Sequence[int] = range(len(states))
    if len(folds) == 1 and len(states) > SHORTLIST and tags is None:
        chosen = _shortlist(states, y, np.maximum(first, 0), metric)
    classes = classes or _count_outputs(y)
    solve = partial(solve_path, classes=classes, bias=bias, balanced=balanced)
    regress_words = partial(solve_regression, classes=classes, balanced=balanced)
    own_tags = tags and Tags(tags.names, tags.sentences[aside])
    judge = partial(_judge, metric, own_y, own_folds, own_tags)
    asked = y, folds, weights, judge

    def read(s: int) -> np.ndarray:
        return np.asarray(states[s], np.float64)

    def leave_out(s: int) -> list[_Candidate]:
        settings, H = [(each, None) for each in SHRINKAGES], read(s)
        return _leave_out(s, H, *asked, solve, settings) if _tells_apart(H) else []

    candidates = [each for some in _map_states(leave_out, chosen, y) for each in some]
    if not candidates:
        return None
    if tags is not None and bias:
        likeliest = min(candidates, key=lambda each: float(each.losses.mean())).state
        H = read(likeliest)
        candidates += _leave_out(likeliest, H, *asked, regress_words, [(REGRESSED, PENALTY)])

    def solve_all(best: _Candidate) -> LinearHead:
        if best.penalty is None:
            return solve(read(best.state), y)[SHRINKAGES.index(best.shrinkage)]
        return regress_words(read(best.state), y)[0]

    return _choose(candidates, aside, own_y, own_folds, weights, solve_all)


def solve_apart(
    states: Sequence[Float64[np.ndarray, "n d"]],
    y: np.ndarray,
    parts: Int64[np.ndarray, " n"],
    folds: Int64[np.ndarray, " n"],
    kept: tuple[Float64[np.ndarray, "m d"], np.ndarray],
    *,
    classes: int,
    bias: bool = True,
    balanced: bool = False,
) -> SolvedHead | None:
    """Solve a linear head on a state that was trained on labels, whose own rows judge nothing.

    They are told apart far better than new ones are. So the shrinkage is the one with the least
    loss on rows that the model which gave their state did not see, by heads on the rows it did see.
    The fewer rows a model sees, the nearer they come together and the larger all logits are (of 32
    rows seven times those of 64), so each head's are brought to one size on the rows that it saw.

    Args:
        states: of each part, as a model gives them that did not see its rows.
        y: class ids (n,), or which labels each row has, bool (n, K).
        parts: of each row, 0..P−1, or −1 for rows that all of these models saw.
        folds: of each row, for choosing among heads without the rows that then judge the choice.
        kept: states and labels of the rows that the model which is kept has seen.
        classes: K.
        bias, balanced: as for `solve_head`.

    Returns:
        None if the state does not tell the rows apart; `state` is 0.
    """

    def solve(H: np.ndarray, y: np.ndarray) -> list[tuple[LinearHead, float]]:
        heads = solve_path(H, y, classes=classes, bias=bias, balanced=balanced)
        if y.dtype.kind == "f":
            return [(head, 1.0) for head in heads]
        return [(head, float(head(H).std()) or 1.0) for head in heads]

    if not all(_tells_apart(H) for H in (*states, kept[0])):
        return None
    aside = np.flatnonzero(parts >= 0)
    logits = np.zeros((len(SHRINKAGES), len(y), classes))
    for part, H in enumerate(states):
        own = parts == part
        for number, (head, size) in enumerate(solve(H[~own], y[~own])):
            logits[number, own] = head(H[own]) / size
    own_y, weights = y[aside], _weigh(y, aside, balanced)
    folds = np.unique(folds[aside], return_inverse=True)[1]
    candidates, values = [], np.zeros(folds.max() + 2)
    for shrinkage, said in zip(SHRINKAGES, logits[:, aside], strict=True):
        losses = weights * _find_calibrated(own_y, said, weights)
        candidates.append(_Candidate(0, shrinkage, None, said, losses, values))

    heads = dict(zip(SHRINKAGES, solve(*kept), strict=True))
    chosen = _choose(
        candidates, aside, own_y, folds, weights, lambda best: heads[best.shrinkage][0]
    )
    size = heads[chosen.shrinkage][1]
    return replace(
        chosen,
        head=chosen.head.scale(1 / size),
        factor=chosen.factor / size,
        factors=chosen.factors / size,
    )


def _judge(
    metric: str, y: np.ndarray, folds: np.ndarray, tags: Tags | None, logits: np.ndarray
) -> Float64[np.ndarray, " B1"]:
    """Judge words outside of each fold, and last all; other rows have 0."""
    if tags is None:
        return np.zeros(folds.max() + 2)
    without = evaluate_without(metric, y, logits, folds, tags=tags)
    return np.append(without, evaluate(metric, y, logits, tags=tags))


def _weigh(y: np.ndarray, aside: np.ndarray, balanced: bool) -> Float64[np.ndarray, " m"]:
    """Return how much the rows that are left out count."""
    if not balanced:
        return np.ones(len(aside))
    counts = np.bincount(y)
    weights: np.ndarray = len(y) / (np.count_nonzero(counts) * counts[y[aside]])
    return weights


def _find_calibrated(y: np.ndarray, logits: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the loss of each row with the factor on all logits that suits them."""
    return find_losses(y, logits * calibrate(y, logits, weights=weights))


def _find_best(candidates: Sequence[_Candidate], folds: np.ndarray) -> list[_Candidate]:
    """Return the candidates that are best outside of each fold, and last the one that is by all."""

    def rank(fold: int) -> Callable[[_Candidate], tuple[float, float]]:
        others = _leave(folds, fold)
        return lambda each: (float(each.values[fold]), -float(each.losses[others].mean()))

    return [max(candidates, key=rank(fold)) for fold in (*range(folds.max() + 1), -1)]


def _leave(folds: np.ndarray, fold: int) -> np.ndarray:
    """Return which rows are in other folds; all where there are no others."""
    others: np.ndarray = folds != fold
    return others if others.any() else ~others


def _choose(
    candidates: Sequence[_Candidate],
    aside: Int64[np.ndarray, " m"],
    y: np.ndarray,
    folds: Int64[np.ndarray, " m"],
    weights: Float64[np.ndarray, " m"],
    solve_all: Callable[[_Candidate], LinearHead],
) -> SolvedHead:
    """Choose the best heads, and for each fold by the others alone."""
    held_out, factors = np.empty_like(candidates[0].logits), np.empty(len(y))
    *by_others, best = _find_best(candidates, folds)
    for fold, each in enumerate(by_others):
        own, others = folds == fold, _leave(folds, fold)
        factors[own] = calibrate(y[others], each.logits[others], weights=weights[others])
        held_out[own] = each.logits[own] * factors[own, None]
    factor = calibrate(y, best.logits, weights=weights)
    losses: dict[int, float] = {}
    for each in candidates:
        loss = float(each.losses.mean())
        losses[each.state] = min(losses.get(each.state, loss), loss)
    how = best.state, best.shrinkage, best.penalty, factor
    return SolvedHead(solve_all(best).scale(factor), *how, aside, held_out, factors, losses)


def _leave_out(
    s: int,
    H: Float64[np.ndarray, "n *C d"],
    y: np.ndarray,
    folds: Int64[np.ndarray, "R n"],
    weights: Float64[np.ndarray, " m"],
    judge: Callable[[np.ndarray], np.ndarray],
    solve: _SolvePath,
    settings: Sequence[tuple[float, float | None]],
) -> list[_Candidate]:
    """Solve heads on a state without each fold of each deal, and keep what may be chosen.

    Args:
        s, H: the state.
        y, folds: as for `solve_head`.
        weights: of the rows left out.
        judge: returns the `values` of their logits.
        solve: returns a head with each of the settings.
        settings: shrinkage and penalty.
    """
    aside = np.flatnonzero(folds[0] >= 0)
    right = y[aside]
    deals = [_predict_without(H, y, deal, solve)[:, aside] for deal in folds]
    candidates = []
    for (shrinkage, penalty), *logits in zip(settings, *deals, strict=True):
        losses = [_find_calibrated(right, each, weights) for each in logits]
        weighed = weights * np.mean(losses, axis=0)
        values = np.mean([*map(judge, logits)], axis=0)
        said = logits[0].copy()  # not a part of what all settings lead to, which is not kept
        candidates.append(_Candidate(s, shrinkage, penalty, said, weighed, values))
    return list(dict.fromkeys(_find_best(candidates, folds[0, aside])))


def _tells_apart(H: np.ndarray) -> bool:
    """Return whether a state is finite, and not the same for all rows but for rounding."""
    return bool(np.isfinite(H).all() and (H.std(axis=0) > TOLD * np.abs(H.mean(axis=0))).any())


def _map_states(compute: Callable[[int], T], states: Sequence[int], y: np.ndarray) -> Iterator[T]:
    return map_at_once(compute, states) if len(y) <= FEW_ROWS else map(compute, states)


def _shortlist(
    states: StatesLike | Sequence[np.ndarray], y: np.ndarray, folds: np.ndarray, metric: str
) -> list[int]:
    """Return the states, in order, whose ridge regression is best on rows left out."""

    def measure(s: int) -> float | None:
        H, right, of, examples = np.asarray(states[s], np.float64), y, folds, None
        if H.ndim == 3:  # each choice by itself, and then the one that looks right most
            examples = np.repeat(np.arange(len(H)), H.shape[1])
            right = (np.arange(H.shape[1]) == y[:, None]).ravel().astype(np.int64)
            H, of = H.reshape(-1, H.shape[2]), folds[examples]
        if not np.isfinite(H).all():
            return None
        return measure_quality(H, right, of, metric, examples).value

    measured = enumerate(_map_states(measure, range(len(states)), y))
    values = {s: value for s, value in measured if value is not None}
    return sorted(sorted(values, key=lambda s: (-values[s], s))[:SHORTLIST])


def _predict_without(
    H: Float64[np.ndarray, "n *C d"], y: np.ndarray, folds: np.ndarray, solve: _SolvePath
) -> Float64[np.ndarray, "P n K"]:
    """Return the logits of every row by heads solved without its fold, for every shrinkage."""
    logits: list[np.ndarray] = []
    for fold in np.unique(folds[folds >= 0]):
        own = folds == fold
        left = H[own]
        for number, head in enumerate(solve(H[~own], y[~own])):
            said = head(left)
            if number == len(logits):
                logits.append(np.zeros((len(y), said.shape[1])))
            logits[number][own] = said
    return np.stack(logits)


def _count_outputs(y: np.ndarray) -> int:
    if y.dtype.kind == "i":
        return int(y.max()) + 1
    return 1 if y.ndim == 1 else y.shape[1]


def solve_path(
    H: Float64[np.ndarray, "n *C d"],
    y: np.ndarray,
    classes: int | None = None,
    bias: bool = True,
    balanced: bool = False,
    shrinkages: Sequence[float] = SHRINKAGES,
) -> list[LinearHead]:
    """Solve a head on all rows for each of some shrinkages, features brought to one deviation.

    With Σ the covariance of the features (within classes, where rows have one each) and s its mean
    variance, Σ_λ = (1 − λ)Σ + λ s I. Of class k with mean μ_k and share π_k the logit is
    μ_kᵀΣ_λ⁻¹h − ½ μ_kᵀΣ_λ⁻¹μ_k + log π_k (Hastie et al. 2009, §4.3); of a label, the difference of
    two such logits, with the Σ of rows that have it and rows that do not. Numbers are regressed on
    the features with the ridge term that λ makes of Σ. A choice has the logit of being right, from
    its distance to the mean of its row's choices. A head without a bias has it, too, by the weights
    that regress the constant 1 on the features as they are.

    Args:
        H: states (n, d), or (n, C, d).
        y: as for `solve_head`.
        classes: as for `solve_head`.
        bias: as for `solve_head`.
        balanced: as for `solve_head`; π_k is the same for all classes that have a row.
    """
    if chosen := H.ndim == 3:  # what all choices of a row share says nothing
        H, y = H - H.mean(axis=1, keepdims=True), np.arange(H.shape[1]) == y[:, None]
        H, y = H.reshape(-1, H.shape[2]), y.reshape(-1, 1)
    X, mean, inverse = _standardise(H)
    if y.dtype.kind == "i":
        solve = _prepare_classes(X, y, classes or _count_outputs(y), balanced)
    elif y.dtype.kind == "b":
        solve = _prepare_labels(X, y)
    else:
        solve = _prepare_numbers(X, y)
    constant = _prepare_constant(X, mean * inverse) if not (bias or chosen) else None
    heads = []
    for shrinkage in shrinkages:
        weights, start = solve(shrinkage)
        weights = weights * inverse
        start = start - weights @ mean
        if constant is not None:
            weights = weights + np.outer(start, constant(shrinkage) * inverse)
        heads.append(LinearHead(weights, start * (bias and not chosen)))
    return heads


def solve_regression(
    H: Float64[np.ndarray, "n d"], y: np.ndarray, classes: int, balanced: bool = False
) -> list[LinearHead]:
    """Solve one head on all rows: the least of −Σ log p(y) + PENALTY/2 Σ_k w_kᵀΣ_λw_k.

    Σ_λ is that of `solve_path` for classes, with λ = REGRESSED: where features are brought to it, a
    sum of squares. If classes count alike, so do their parts of the first sum.
    """
    from scipy.linalg import cholesky, solve_triangular

    X, mean, inverse = _standardise(H)
    counts, means = _average(X, y, classes)
    some = np.flatnonzero(counts)
    covariance = (X.T @ X - (means.T * counts) @ means) / max(len(X) - len(some), 1)
    variance = np.trace(covariance) / len(covariance)
    covariance *= 1 - REGRESSED
    covariance.flat[:: len(covariance) + 1] += REGRESSED * (variance if variance > ALIKE else 1.0)
    factor = cholesky(PENALTY * covariance, lower=True)
    Z = solve_triangular(factor, X.T, lower=True, overwrite_b=True).T
    counted = _weigh(y, np.arange(len(y)), balanced)[:, None]
    found, start = regress(Z, np.eye(classes)[y][:, some] * counted, share)
    weights, bias = np.zeros(means.shape), np.zeros(classes)
    weights[some] = solve_triangular(factor, found, lower=True, trans=1).T * inverse
    bias[some] = start - weights[some] @ mean
    _place_absent(weights, bias, counts, _expect(counts, balanced))
    return [LinearHead(weights, bias)]


def _standardise(H: Float64[np.ndarray, "n d"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows about their mean with one deviation, the mean, and what they are times."""
    mean = H.mean(axis=0)
    X = H - mean
    deviation = np.sqrt(np.einsum("nd,nd->d", X, X) / len(X))  # `std` would copy X
    told = deviation > TOLD * np.abs(mean)  # other features have no weight
    inverse = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=told)
    X *= inverse
    return X, mean, inverse


def _average(X: np.ndarray, y: np.ndarray, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return how many rows classes have, and their means."""
    counts = np.bincount(y, minlength=classes)
    return counts, np.eye(classes)[:, y] @ X / np.maximum(counts, 1)[:, None]


def _expect(counts: Int64[np.ndarray, " K"], balanced: bool) -> Float64[np.ndarray, " K"]:
    """Return the logarithms of how likely classes are before a row is seen."""
    some, shares = counts > 0, np.zeros(len(counts))
    shares[some] = -np.log(some.sum()) if balanced else np.log(counts[some] / counts.sum())
    return shares


def _place_absent(
    weights: Float64[np.ndarray, "K d"],
    bias: Float64[np.ndarray, " K"],
    counts: Int64[np.ndarray, " K"],
    shares: Float64[np.ndarray, " K"],
) -> None:
    """Set the logits of classes without a row, as rare as half a row, from those of the others.

    They are so far below the mean logit that they are below the highest, by log 2 or more, however
    far out a row is. Without a bias that holds where what stands for one is positive; as close as
    that mean, it would be too likely.
    """
    mix, none = counts / counts.sum(), counts == 0
    below = np.log(0.5 / counts.sum()) - mix @ shares
    weights[none], bias[none] = mix @ weights, mix @ bias + below


# Solves for weights (K, d) and biases (K,) with one shrinkage.
_Solve = Callable[[float], tuple[np.ndarray, np.ndarray]]


def _prepare_inverse(
    R: Float64[np.ndarray, "n d"], freedom: int, columns: Float64[np.ndarray, "d m"]
) -> Callable[[float], Float64[np.ndarray, "d m"]]:
    """Return what gives Σ_λ⁻¹ times columns, of which Σ = RᵀR / freedom.

    With fewer rows than features by way of RRᵀ: (RᵀR + cI)⁻¹ = (I − Rᵀ(RRᵀ + cI)⁻¹R) / c.
    """
    by_rows, freedom = R.shape[0] < R.shape[1], max(freedom, 1)
    products = R @ R.T if by_rows else R.T @ R
    # Where all rows of a class are alike, the nearest mean decides.
    variance = float(np.trace(products)) / freedom / R.shape[1]
    scale = variance if variance > ALIKE else 1.0
    reduced = Tridiagonal.of(products)
    turned = reduced.turn(R @ columns if by_rows else columns)

    def solve(shrinkage: float) -> np.ndarray:
        share = (1 - shrinkage) / freedom
        shift = shrinkage * scale / share
        solved = reduced.solve(shift, turned)
        assert solved is not None, "the shift is above what rounding leaves of an eigenvalue"
        found = reduced.turn(solved[1], back=True)
        if by_rows:
            found = (columns - R.T @ found) / shift
        product: np.ndarray = found / share
        return product

    return solve


def _prepare_classes(X: np.ndarray, y: np.ndarray, classes: int, balanced: bool) -> _Solve:
    counts, means = _average(X, y, classes)
    invert = _prepare_inverse(X - means[y], len(X) - int((counts > 0).sum()), means.T)
    shares = _expect(counts, balanced)

    def solve(shrinkage: float) -> tuple[np.ndarray, np.ndarray]:
        weights = invert(shrinkage).T
        start = shares - 0.5 * (weights * means).sum(axis=1)
        _place_absent(weights, start, counts, shares)
        return weights, start

    return solve


def _prepare_labels(X: np.ndarray, y: np.ndarray) -> _Solve:
    """Solve for each label by the covariance of all rows, less what lies between its two means.

    With share p and difference δ of the means, Σ_λ = A − c δδᵀ, where A is of all rows and c =
    (1 − λ) p (1 − p); so Σ_λ⁻¹δ = A⁻¹δ / (1 − c δᵀA⁻¹δ) (Sherman & Morrison 1950).
    """
    n, counts = len(X), y.sum(axis=0)
    both = (counts > 0) & (counts < n)
    having = (y.T @ X) / np.maximum(counts, 1)[:, None]
    lacking = (~y.T @ X) / np.maximum(n - counts, 1)[:, None]
    apart = np.where(both[:, None], having - lacking, 0.0)
    invert = _prepare_inverse(X, n, apart.T)
    odds = np.log((counts + 0.5) / (n - counts + 0.5))

    def solve(shrinkage: float) -> tuple[np.ndarray, np.ndarray]:
        weights = invert(shrinkage).T
        between = (1 - shrinkage) * (counts / n) * (1 - counts / n)
        weights /= (1 - between * (weights * apart).sum(axis=1))[:, None]
        return weights, odds - 0.5 * (weights * (having + lacking)).sum(axis=1)

    return solve


def _prepare_numbers(X: np.ndarray, y: np.ndarray) -> _Solve:
    mean = y.mean()
    invert = _prepare_inverse(X, len(X), (X.T @ (y - mean) / len(X))[:, None])

    def solve(shrinkage: float) -> tuple[np.ndarray, np.ndarray]:
        weights = (1 - shrinkage) * invert(shrinkage).T
        return weights, np.array([mean])

    return solve


def _prepare_constant(
    X: Float64[np.ndarray, "n d"], mean: Float64[np.ndarray, " d"]
) -> Callable[[float], Float64[np.ndarray, " d"]]:
    """Solve for the v that minimises the mean of (1 − vᵀ(x + mean))², with Σ_λ for Σ of the x.

    That is Σ_λ⁻¹mean / (1 + meanᵀΣ_λ⁻¹mean).
    """
    invert = _prepare_inverse(X, len(X), mean[:, None])

    def solve(shrinkage: float) -> np.ndarray:
        v = invert(shrinkage)[:, 0]
        found: np.ndarray = v / (1 + mean @ v)
        return found

    return solve
