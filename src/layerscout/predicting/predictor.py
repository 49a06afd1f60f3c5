"""A tuned model that predicts, loaded in whichever form it was saved."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from layerscout.data import Kind, Targets, describe_kind, predict_labels
from layerscout.errors import InputError
from layerscout.models import (
    Encoder,
    Precision,
    Tokens,
    find_linear_head,
    load_tuned,
    norm_means,
    read_names,
    read_thresholds,
    view_bytes,
)
from layerscout.states import Examples, predict

Recall = Callable[[Sequence[str]], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True, eq=False)
class Predictor:
    """A tuned model that predicts.

    Attributes:
        model: the transformers model, in eval mode.
        encoder: what it was made from, with its tokenizer.
        kind: of the task.
        labels: names of its classes, labels or tags by id; none for numbers and choices.
        max_length: tokens of an input at the most.
        recall: returns which of some texts have states in the cache that the head reads, and the
            logits of these; None where there is no such head.
    """

    model: Any = field(repr=False)
    encoder: Encoder = field(repr=False)
    kind: Kind
    labels: tuple[str, ...]
    max_length: int
    recall: Recall | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls,
        encoder: Encoder,
        model: Any,
        kind: Kind,
        max_length: int | None = None,
        recall: Recall | None = None,
    ) -> Predictor:
        """Make one of a classifier; inputs are cut as its tokenizer says, unless told otherwise."""
        unnamed = kind in ("regression", "multiple_choice")
        labels = () if unnamed else tuple(read_names(model.config))
        longest = encoder.tokenizer.model_max_length if max_length is None else max_length
        return cls(model, encoder, kind, labels, longest, recall)

    def predict(self, texts: Sequence[Any], pairs: Sequence[Any] | None = None) -> Any:
        """Predict the class of each of n texts.

        Args:
            texts: n texts; or, where words have tags, n lists of words, or texts whose words stand
                between spaces.
            pairs: n second texts; or n lists of as many choices.

        Returns:
            Names of classes, or numbers, or numbers of choices counted from 0, (n,); or n lists of
            the labels of a text, or of the tags of its words.

        Raises:
            InputError: if the texts cannot be read.
        """
        return self.decide(texts, self.find_logits(texts, pairs))

    def predict_proba(self, texts: Sequence[Any], pairs: Sequence[Any] | None = None) -> Any:
        """Return the probabilities of all classes, or of each label, float64 (n, K).

        Of the words of each text there is an array of their own.

        Args:
            texts: as for `predict`.
            pairs: as for `predict`.

        Raises:
            InputError: if the model predicts numbers, or the texts cannot be read.
        """
        if self.kind == "regression":
            raise InputError("numbers have no probabilities; use predict")
        shares = find_shares(self.kind, self.find_logits(texts, pairs))
        return self._part(texts, shares) if self.kind == "token_classification" else shares

    def find_logits(
        self,
        texts: Sequence[Any],
        pairs: Sequence[Any] | None = None,
        advance: Callable[[int], None] | None = None,
    ) -> np.ndarray:
        """Return the logits of n texts, float32 (n, K), or of all of their words, (w, K).

        Args:
            texts: as for `predict`.
            pairs: as for `predict`.
            advance: called after each batch with its number of texts.

        Raises:
            InputError: if the texts cannot be read, or the logits are not finite.
        """
        if isinstance(texts, str) or getattr(texts, "ndim", 1) != 1 or not len(texts):
            raise InputError(f"texts must be a list of one or more texts, got {texts!r:.60}")
        if pairs is not None and len(pairs) != len(texts):
            raise InputError(f"every text needs one second text: got {len(texts)} and {len(pairs)}")
        choices, cut = 1, self.max_length
        if self.kind == "token_classification":
            sentences = [words for words in map(_split, texts) if words]
            check_strings(chain(*sentences))
            if not sentences:
                return np.zeros((0, len(self.labels)), np.float32)
            tokens = self.encoder.tokenize_words(sentences, max_length=cut)
            outputs = sum(map(len, sentences))
        elif self.kind == "multiple_choice":
            choices, outputs = len([()] if pairs is None else pairs[0]), len(texts)
            if pairs is None or choices < 2 or any(len(row) != choices for row in pairs):
                raise InputError("every text needs as many choices as the others, two or more")
            firsts = [text for text in texts for _ in range(choices)]
            flat = [choice for row in pairs for choice in row]
            check_strings((*firsts, *flat))
            tokens = self.encoder.tokenize(firsts, flat, max_length=cut)
        else:
            check_strings((*texts, *(() if pairs is None else pairs)))
            tokens, outputs = self.encoder.tokenize(texts, pairs, max_length=cut), len(texts)
        logits: np.ndarray
        if self.encoder.averages:
            logits = self._read_means(tokens, advance)
        else:
            answers = Targets(np.zeros(outputs, np.int64), choices, np.arange(outputs))
            examples = Examples(tokens, answers, None)
            logits = predict(self.encoder, self.model, examples, advance).numpy()
        if not np.isfinite(logits).all():
            raise InputError(
                f"the logits of {self.encoder.name} are not finite; use --precision float32, or "
                "another checkpoint"
            )
        return logits

    def _read_means(self, tokens: Tokens, advance: Callable[[int], None] | None) -> np.ndarray:
        """Return the logits of a head on the mean, without running the block that averages."""
        means = np.zeros((len(tokens), self.encoder.model.config.hidden_size), np.float32)
        for rows in self.encoder.batches(tokens):
            means[rows] = self.encoder.pool(tokens, rows, "mean-all")[-1].cpu().numpy()
            if advance is not None:
                advance(len(rows))
        weights, bias = (part.double().numpy() for part in find_linear_head(self.model))
        logits: np.ndarray = norm_means(means) @ weights.T + bias
        return logits.astype(np.float32)

    def decide(
        self, texts: Sequence[Any], logits: np.ndarray, threshold: float | None = None
    ) -> Any:
        """Return what logits say of texts; see `predict`.

        Args:
            texts: n of them.
            logits: as of `find_logits`.
            threshold: probability from which on a text has a label, where it may have several; by
                default what the model was saved with.
        """
        match self.kind:
            case "regression":
                return logits[:, 0].astype(np.float64)
            case "multiple_choice":
                return logits.argmax(axis=1)
            case "multi_label_classification":
                least = read_thresholds(self.model, slice(None))
                if threshold is not None:
                    least = np.full(logits.shape[1], threshold)
                chosen = predict_labels(np.zeros(0, bool), logits, least)
                return [[self.labels[k] for k in np.flatnonzero(row)] for row in chosen]
        names = np.array(self.labels)[logits.argmax(axis=1)]
        if self.kind == "classification":
            return names
        return [words.tolist() for words in self._part(texts, names)]

    def _part(self, texts: Sequence[Any], values: np.ndarray) -> list[np.ndarray]:
        """Part what there is of all words into that of each text."""
        return np.split(values, np.cumsum([len(_split(text)) for text in texts])[:-1])

    def fingerprint(self) -> str:
        """Hash all that logits depend on besides texts and precision: weights and versions too."""
        about = {
            "config": self.model.config.to_dict(),
            "tokenizer": self.encoder.tokenizer.backend_tokenizer.to_str(),
            "settings": [self.kind, self.max_length],
            "versions": [version(name) for name in ("layerscout", "torch", "transformers")],
        }
        digest = hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode())
        for name, tensor in self.model.state_dict().items():
            digest.update(name.encode())
            digest.update(view_bytes(tensor))
        return digest.hexdigest()


def load(
    folder: str | Path,
    base: str | Path | None = None,
    *,
    device: str = "auto",
    precision: Precision = "float32",
    max_length: int | None = None,
) -> Predictor:
    """Load a tuned model, to predict with it.

    Args:
        folder: what `tune` saved, or its `model/`, in any form: a whole checkpoint, a classifier
            for sentence-transformers, adapters, prefixes or LoRA without their base; or a folder
            or hub id of a classifier of transformers that others tuned.
        base: the folder or hub id of the base of adapters, if it is not where it was then.
        device: as for `Encoder.load`.
        precision: as for `Encoder.load`.
        max_length: tokens of an input at the most; by default as in tuning.

    Raises:
        InputError: if it cannot be loaded, or the base is not the one that was tuned.
    """
    encoder, model, kind = load_tuned(
        find_model(folder), base=base, device=device, precision=precision
    )
    return Predictor.of(encoder, model, kind, max_length)


def find_model(folder: str | Path) -> str | Path:
    """Return the folder of the model within that of a tuning; anything else as it is."""
    inner = Path(folder).expanduser() / "model"
    return inner if (inner.parent / "result.json").is_file() and inner.is_dir() else folder


def find_shares(kind: Kind, logits: np.ndarray) -> np.ndarray:
    """Return probabilities, float64, that sum to 1; of several labels each has its own."""
    from scipy.special import expit, softmax

    exact = logits.astype(np.float64)
    shares: np.ndarray = (
        expit(exact) if kind == "multi_label_classification" else softmax(exact, axis=1)
    )
    return shares


def check_strings(values: Iterable[Any]) -> None:
    """Raise unless all are strings of valid Unicode."""
    for value in values:
        try:
            str.encode(value)
        except (TypeError, UnicodeEncodeError):
            raise InputError(
                f"texts and words must be strings of valid Unicode, got {value!r:.60}; correct it "
                "or leave it out"
            ) from None


def _split(text: Any) -> tuple[str, ...]:
    """Return the words of a text: those between spaces, unless they are a list already."""
    if not isinstance(text, Iterable):
        raise InputError(f"every text must be a string or a list of words, got {text!r:.60}")
    return tuple(text.split() if isinstance(text, str) else text)


def check_kind(predictor: Predictor, option: str, kinds: Sequence[Kind]) -> None:
    """Raise unless an option applies to what a model predicts."""
    if predictor.kind not in kinds:
        raise InputError(
            f"--{option} is for {' or '.join(map(describe_kind, kinds))}, and the model is tuned "
            f"for {describe_kind(predictor.kind)}; leave it out"
        )
