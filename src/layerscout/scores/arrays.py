"""The scores of one state as functions of plain arrays."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int64
from numpy.typing import ArrayLike
from torch import Tensor

from layerscout.errors import InputError, check_integer
from layerscout.scores.grouping import deal_groups
from layerscout.scores.state import State
from layerscout.scores.table import SCORES

# What is read as an array.
Values = ArrayLike | Tensor

# Products of four larger numbers, or of four whose inverses are larger, would leave float64.
LARGEST = 1e70


def variability_ratio_debiased(H: Values, y: Values, *, seed: int = 0) -> float | None:
    """Within-class over between-class variability with the noise of the class means taken out.

    As `variability_ratio`, from an unbiased estimate of either scatter, so that it does not grow
    with n where the classes are hard to tell apart. Lower is better. None where there is no
    signal beyond the noise.

    Args:
        H: states (n, d).
        y: class labels (n,), of any type.
        seed: draws the groups that are told apart from each other.

    Raises:
        InputError: if there are fewer than two classes, fewer than eight examples of one of them,
            or values that are not finite.

    Example:
        >>> import numpy as np
        >>> import layerscout as ls
        >>> rng = np.random.default_rng(0)
        >>> y = np.arange(200) % 2
        >>> H = rng.normal(size=(200, 8)) + y[:, None]
        >>> round(ls.scores.variability_ratio_debiased(H, y), 2)
        0.26
    """
    return _on_arrays("variability_ratio_debiased", H, y, seed)


def variability_ratio(H: Values, y: Values) -> float | None:
    """Within-class over between-class variability, ν = (1/K) trace(Σ_w Σ_b†); lower is better.

    Every class counts alike, in Σ_w and in the mean of the class means. None where all class
    means are the same, so that Σ_b has no direction. Xie et al. 2022, §3.1, equation 3.

    Args:
        H: states (n, d).
        y: class labels (n,), of any type.

    Raises:
        InputError: if there are fewer than two classes, fewer than two examples of one of them,
            or values that are not finite.

    Example:
        >>> import numpy as np
        >>> import layerscout as ls
        >>> rng = np.random.default_rng(0)
        >>> y = np.arange(200) % 2
        >>> H = rng.normal(size=(200, 8)) + y[:, None]
        >>> round(ls.scores.variability_ratio(H, y), 2)
        0.24
    """
    return _on_arrays("variability_ratio", H, y)


def nc1(H: Values, y: Values) -> float | None:
    """The same ratio with every example counting alike (neural collapse's first quantity).

    Σ_w is pooled over the examples and Σ_b is taken about the mean of all examples, so large
    classes dominate; equal to `variability_ratio` on balanced classes. Lower is better.
    Xie et al. 2022, App. A.1 (after Papyan et al. 2020).

    Args and errors: as `variability_ratio`.

    Example:
        >>> import numpy as np
        >>> import layerscout as ls
        >>> rng = np.random.default_rng(0)
        >>> y = np.arange(200) % 2
        >>> H = rng.normal(size=(200, 8)) + y[:, None]
        >>> round(ls.scores.nc1(H, y), 2)
        0.24
    """
    return _on_arrays("nc1", H, y)


def cca(H: Values, y: Values, *, regression: bool = False, seed: int = 0) -> float | None:
    """Mean canonical correlation of states and labels on folds left out; higher is better.

    Over all canonical pairs but the last, which is noise; with numbers the only one. Xie et al.
    2022, App. C.7; see `layerscout.scores.folds.score_folds`.

    Args:
        H: states (n, d).
        y: class labels (n,), or numbers with `regression`.
        regression: read `y` as numbers.
        seed: draws the folds.

    Raises:
        InputError: if there are too few examples, or values that are not finite.

    Example:
        >>> import numpy as np
        >>> import layerscout as ls
        >>> rng = np.random.default_rng(0)
        >>> y = np.arange(200) % 2
        >>> H = rng.normal(size=(200, 8)) + y[:, None]
        >>> round(ls.scores.cca(H, y), 2)
        0.82
    """
    return _on_arrays("cca", H, y, seed, regression)


def ridge(H: Values, y: Values, *, regression: bool = False, seed: int = 0) -> float | None:
    """Class-balanced accuracy (R² for numbers) of ridge regression on folds left out.

    Higher is better. See `layerscout.scores.folds.score_folds`.

    Args and errors: as `cca`.

    Example:
        >>> import numpy as np
        >>> import layerscout as ls
        >>> rng = np.random.default_rng(0)
        >>> H = rng.normal(size=(200, 8))
        >>> y = H[:, 0] + rng.normal(size=200)
        >>> round(ls.scores.ridge(H, y, regression=True), 2)
        0.36
    """
    return _on_arrays("ridge", H, y, seed, regression)


def logme(H: Values, y: Values, *, regression: bool = False) -> float | None:
    """Log evidence per example of Bayesian linear regression on the labels; higher is better.

    Uncentred, without an intercept, maximised over both precisions; with classes the mean over
    one against the rest. You et al. 2021.

    Args and errors: as `cca`.

    Example:
        >>> import numpy as np
        >>> import layerscout as ls
        >>> rng = np.random.default_rng(0)
        >>> H = rng.normal(size=(200, 8))
        >>> y = H[:, 0] + rng.normal(size=200)
        >>> round(ls.scores.logme(H, y, regression=True), 2)
        -1.56
    """
    return _on_arrays("logme", H, y, regression=regression)


def h_score(H: Values, y: Values) -> float | None:
    """Trace(Σ⁻¹ Σ_b) with Ledoit–Wolf shrinkage of Σ, every example alike; higher is better.

    Bao et al. 2019, with the shrinkage of Ibrahim et al. 2021.

    Args and errors: as `variability_ratio`.

    Example:
        >>> import numpy as np
        >>> import layerscout as ls
        >>> rng = np.random.default_rng(0)
        >>> y = np.arange(200) % 2
        >>> H = rng.normal(size=(200, 8)) + y[:, None]
        >>> round(ls.scores.h_score(H, y), 2)
        0.65
    """
    return _on_arrays("h_score", H, y)


def numerical_rank(H: Values, y: Values) -> float | None:
    """Mean over the classes of ‖H_y‖_*² / ‖H_y‖_F², not centred; lower is better.

    Xie et al. 2022, §4.3 (after Zhou et al. 2022).

    Args and errors: as `variability_ratio`.

    Example:
        >>> import numpy as np
        >>> import layerscout as ls
        >>> rng = np.random.default_rng(0)
        >>> y = np.arange(200) % 2
        >>> H = rng.normal(size=(200, 8)) + y[:, None]
        >>> round(ls.scores.numerical_rank(H, y), 2)
        6.99
    """
    return _on_arrays("numerical_rank", H, y)


def head_quality(
    H: Values,
    y: Values,
    *,
    metric: str | None = None,
    seed: int = 0,
    regression: bool = False,
) -> float | None:
    """The metric of a linear head on examples that it was not fitted to; higher is better.

    Ridge regression on the one-hot label, with an intercept, cross-fitted over 20 folds. None where
    all states are the same.

    Args:
        H: states (n, d).
        y: class labels (n,), or numbers.
        metric: accuracy, f1 or matthews_correlation, by default the first; for numbers
            pearson_spearman, pearson or spearman.
        seed: deals the folds.
        regression: y are numbers.

    Raises:
        InputError: as `cca`, or if there is no such metric for the labels.

    Example:
        >>> import numpy as np
        >>> import layerscout as ls
        >>> rng = np.random.default_rng(0)
        >>> y = np.arange(200) % 2
        >>> H = rng.normal(size=(200, 8)) + y[:, None]
        >>> round(ls.scores.head_quality(H, y, metric="f1"), 2)
        0.93
    """
    return _on_arrays("head_quality", H, y, seed, regression, metric)


def knn(H: Values, y: Values, *, regression: bool = False) -> float | None:
    """Leave-one-out accuracy (R² for numbers) of the 10 nearest by cosine; higher is better.

    Args and errors: as `cca`.

    Example:
        >>> import numpy as np
        >>> import layerscout as ls
        >>> rng = np.random.default_rng(0)
        >>> y = np.arange(200) % 2
        >>> H = rng.normal(size=(200, 8)) + y[:, None]
        >>> round(ls.scores.knn(H, y), 2)
        0.86
    """
    return _on_arrays("knn", H, y, regression=regression)


def mutual_information(H: Values, y: Values, *, seed: int = 0) -> float | None:
    """Mutual information (nats) of cluster and class on a held-out tenth; higher is better.

    Xie et al. 2022, App. C.7.

    Args and errors: as `variability_ratio`; `seed` draws the rows and starts the clusters.

    Example:
        >>> import numpy as np
        >>> import layerscout as ls
        >>> rng = np.random.default_rng(0)
        >>> y = np.arange(200) % 2
        >>> H = rng.normal(size=(200, 8)) + y[:, None]
        >>> round(ls.scores.mutual_information(H, y), 2)
        0.46
    """
    return _on_arrays("mutual_information", H, y, seed)


def _on_arrays(
    key: str,
    H: Values,
    y: Values,
    seed: int = 0,
    regression: bool = False,
    metric: str | None = None,
) -> float | None:
    seed = check_integer("seed", seed, 0)
    states = _numbers("states", H)
    labels = _numbers("targets", y) if regression else _read(y)
    if states.ndim != 2 or not states.size or labels.shape != states.shape[:1]:
        raise InputError(
            "states must be (n, d), with 1 or more rows and features, and labels (n,), got "
            f"{states.shape} and {labels.shape}"
        )
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise InputError("every row needs a label, got NaN or infinity; drop those rows")
    if not regression:
        labels = _class_ids(labels)
    if not np.isfinite(states).all():
        raise InputError("states must be finite, got NaN or infinity; drop those rows")
    for kind, array in (("states", states), ("targets", labels)):
        largest = float(np.abs(array).max())
        if largest and not 1 / LARGEST <= largest <= LARGEST:
            raise InputError(
                f"{kind} must be of a size below {LARGEST:g} and above "
                f"{1 / LARGEST:g}, got {largest:.3g}; scale them"
            )
    return SCORES[key].of_state(
        State(states, labels, deal_groups(labels, seed), seed, metric=metric)
    )


def _read(values: Values) -> np.ndarray:
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        values = (values.double() if values.is_floating_point() else values).numpy()
    return np.asarray(values)


def _numbers(kind: str, values: Values) -> np.ndarray:
    try:
        array = _read(values)
        if array.dtype.kind == "c":
            raise TypeError("complex numbers")
        return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{kind} must be an array of real numbers: {error}") from error


def _class_ids(labels: np.ndarray) -> Int64[np.ndarray, " n"]:
    try:
        classes, ids = np.unique(labels, return_inverse=True)
    except TypeError as error:
        raise InputError(f"labels must all be of one type: {error}; convert them") from error
    count = np.bincount(ids)
    if len(classes) < 2 or count.min() < 2:
        raise InputError(
            f"a class score needs 2 or more classes of 2 or more examples each, got {len(ids)} "
            f"examples in {len(classes)} classes, the smallest of {count.min()}"
        )
    return ids.astype(np.int64)
