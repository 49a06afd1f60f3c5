"""A classifier of texts for scikit-learn: `tune` behind `fit`, `predict` and `score`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

import numpy as np
import pandas as pd
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted, column_or_1d

from layerscout.data import Task
from layerscout.errors import InputError
from layerscout.files import format_json, read_json, write_files
from layerscout.models import Encoder
from layerscout.plans import FULL, TuneRequest, options_of
from layerscout.predicting import check_strings, find_shares, load
from layerscout.tuning import Result, RunOptions, tune

if TYPE_CHECKING:
    from layerscout.plans import Plan, TuneOptions

# The parameters that are options of `tune`. The seed has another name here, and so has a method.
OPTIONS = [name for name in options_of(TuneRequest) if name not in ("against", "score", "seed")]
OPTIONS += options_of(RunOptions).keys() & {"cache_limit"}
# What is written beside the result of `tune`.
FILE = "estimator.json"


class RefusedError(InputError, ValueError):
    """Input that cannot be used, by the name that scikit-learn looks for."""


class TextClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier of texts for scikit-learn, which `tune` fits.

    What is computed of a text once is kept in the cache, and found by every fold and candidate.

    Args:
        model: an `Encoder`, or what `Encoder.load` takes.
        plan: what is tuned, as for `tune`.
        random_state: the seed of `tune`, or what draws it; by default 0.
        **options: options of `tune`, each a parameter of its own, such as `time` (for each fit),
            `learning_rate`, `epochs`, `method` or `max_length`; None leaves one as it is in `tune`.
            Left out are `against`, `score`, `seed`, and what `tune` keeps, writes and measures
            besides, except for `cache_limit`.

    Attributes:
        classes_: the K classes in y, sorted; the numbers of its columns if it is a matrix.
        predictor_: the `Predictor`.
        result_: what `tune` returned; None for a classifier that was loaded.
        matrix_: the data type of y if it is a matrix, else None.
    """

    def __init__(
        self,
        model: Encoder | str | Path = "demo",
        plan: Plan | str | Path = "auto",
        *,
        random_state: int | np.random.RandomState | None = None,
        **options: Unpack[TuneOptions],
    ) -> None:
        """Set parameters, which `fit` checks."""
        if unknown := options.keys() - {*OPTIONS}:
            raise TypeError(f"TextClassifier() got an unexpected keyword argument {min(unknown)!r}")
        own = {"model": model, "plan": plan, "random_state": random_state}
        self.__dict__.update(dict.fromkeys(OPTIONS) | own | {**options})

    def fit(self, X: Any, y: Any) -> Self:
        """Tune the model.

        Args:
            X: n strings in a list, an array or a column, or in a table with one column.
            y: the class of each, (n,), numbers, strings or booleans; or (n, K), which of K labels
                each text has.

        Raises:
            InputError: if something cannot be used; it is a `ValueError`, too.
        """
        with _refusing():
            texts, y = list_texts(X), read_labels(y)
            if y.ndim == 2:
                labels: list[Any] = [[str(k) for k in np.flatnonzero(row)] for row in y]
            else:
                labels = [str(label) for label in y]
            given: Any = {name: getattr(self, name) for name in OPTIONS} | {"seed": self._seed()}
            given = {name: value for name, value in given.items() if value is not None}
            task = Task.from_lists(texts, labels, name="the given texts")
            result = tune(self.model, task, **given, progress=False)
        self.matrix_ = y.dtype if y.ndim == 2 else None
        self.classes_ = np.unique(y) if y.ndim == 1 else np.arange(y.shape[1])
        self.result_: Result | None = result
        self.predictor_ = result.predictor
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Predict the class of each text, (n,), or which labels it has, (n, K), as in y.

        Args:
            X: as for `fit`.

        Raises:
            InputError: if something cannot be used; it is a `ValueError`, too.
        """
        texts, logits = self._find_logits(X)
        said = self.predictor_.decide(texts, logits)
        names = self._name_classes()
        if self.matrix_ is None:
            places = {name: k for k, name in enumerate(names)}
            return self.classes_[[places[name] for name in said]]
        return np.array([[name in row for name in names] for row in said]).astype(self.matrix_)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each class, or of each label, float64 (n, K).

        Args:
            X: as for `fit`.

        Raises:
            InputError: if something cannot be used; it is a `ValueError`, too.
        """
        _, logits = self._find_logits(X)
        shares = find_shares(self.predictor_.kind, logits)
        every = np.zeros((len(shares), len(self.classes_)))  # of labels that no text had: 0
        names = self._name_classes()
        every[:, [names.index(label) for label in self.predictor_.labels]] = shares
        return every

    def save(self, folder: str | Path) -> None:
        """Write what `Result.save` does, and what `load` needs besides.

        Raises:
            InputError, DiskError: if something cannot be written.
        """
        check_is_fitted(self)
        if self.result_ is None:
            raise InputError("a classifier that was loaded is saved already; copy its folder")
        self.result_.save(folder)
        classes, matrix = self.classes_, self.matrix_
        about = {"classes": classes.tolist(), "type": classes.dtype.str}
        about["matrix"] = None if matrix is None else matrix.str
        write_files({Path(folder).expanduser() / FILE: format_json(about)})

    @classmethod
    def load(cls, folder: str | Path, **options: Any) -> Self:
        """Load a fitted classifier that was saved.

        Args:
            folder: where.
            **options: `base`, `device` and `precision`, as for `layerscout.load`.

        Raises:
            InputError: if it cannot be loaded.
        """
        place = Path(folder).expanduser()
        try:
            about, tuned = read_json(place / FILE), read_json(place / "result.json")
            given = {name: value for name, value in tuned["given"].items() if name in OPTIONS}
            if tuned["method"] != FULL.name:
                given |= {name: tuned[name] for name in ("method", "method_options")}
            [seed] = tuned["given"].get("seed", [None])
            loaded = cls(tuned["model"]["name"], random_state=seed, **given)
            loaded.classes_ = np.array(about["classes"], dtype=about["type"])
            loaded.matrix_ = None if about["matrix"] is None else np.dtype(about["matrix"])
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise InputError(
                f"{folder} holds no whole classifier that was saved: {error!r:.200}; "
                "layerscout.load takes what `tune` saved"
            ) from error
        loaded.result_, loaded.predictor_ = None, load(folder, **options)
        return loaded

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that this takes texts, and several labels too."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        tags.classifier_tags.multi_label = True
        return tags

    def _seed(self) -> Any:
        """Return the seed of `tune`, which checks it; None for its default."""
        state: Any = self.random_state
        drawn = isinstance(state, np.random.RandomState)
        return int(state.randint(2**31 - 1)) if drawn else state

    def _name_classes(self) -> list[str]:
        """Return what the model calls each class."""
        return [str(label) for label in self.classes_]

    def _find_logits(self, X: Any) -> tuple[list[str], np.ndarray]:
        """Return the texts, and what the model says of them."""
        check_is_fitted(self)
        with _refusing():
            texts, predictor = list_texts(X), self.predictor_
            logits = np.zeros((len(texts), len(predictor.labels)), np.float32)
            others = np.arange(len(texts))
            if predictor.recall is not None:  # what other folds have computed
                found, logits_found = predictor.recall(texts)
                logits[found] = logits_found
                others = np.setdiff1d(others, found)
            if len(others):
                logits[others] = predictor.find_logits([texts[row] for row in others])
            return texts, logits


def _show_options() -> None:
    """Show every option of `tune` in the signature of the classifier, which scikit-learn reads."""
    signature = inspect.signature(TextClassifier.__init__)
    *own, _ = signature.parameters.values()
    kind = inspect.Parameter.KEYWORD_ONLY
    named = [name for name in OPTIONS if name not in signature.parameters]
    options = [inspect.Parameter(name, kind, default=None) for name in named]
    TextClassifier.__init__.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]


_show_options()


@contextmanager
def _refusing() -> Iterator[None]:
    """Raise what cannot be used as scikit-learn expects it."""
    try:
        yield
    except InputError as error:
        raise RefusedError(*error.args) from error


def list_texts(X: Any) -> list[str]:
    """Return n texts as a list of strings.

    Raises:
        InputError: if they are none.
    """
    values = np.asarray(X, dtype=object)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1 or not len(values):
        raise InputError(
            "X must be a list, an array or a column of one or more strings, got "
            f"{type(X).__name__} of shape {values.shape}; give one column of texts"
        )
    check_strings(values)
    return [str(value) for value in values]


def read_labels(labels: Any) -> np.ndarray:
    """Return classes, (n,), or which of K labels each text has, (n, K).

    Raises:
        InputError: if they are neither.
    """
    if labels is None:
        raise InputError("fit requires y to be passed, but the target y is None; give the labels")
    y = np.array(labels.toarray() if issparse(labels) else labels, ndmin=1)
    missing = np.flatnonzero(pd.isna(y).reshape(len(y), -1).any(axis=1))
    if len(missing):
        raise InputError(
            f"y must have a label for every text, got none (None or NaN) in {len(missing)}, first "
            f"in row {missing[0]}; leave such texts out"
        )
    kind = type_of_target(y, input_name="y")
    if kind not in ("binary", "multiclass", "multilabel-indicator"):
        raise InputError(
            f"Unknown label type: {kind}; y must hold a class for every text, or a 0 or 1 for each "
            "of its labels"
        )
    if kind == "multilabel-indicator":
        return y
    y = np.asarray(column_or_1d(y, warn=True))
    if len(classes := np.unique(y).tolist()) < 2:
        raise InputError(
            f"y must hold two classes or more, got {len(y)} rows with 1 class: "
            f"{classes[0]!r:.60}; add texts of another, or deal folds by class (StratifiedKFold)"
        )
    return y
