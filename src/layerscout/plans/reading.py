"""Requests of verbs that tune no blocks of a model: scan, compare, evaluate, predict.

The Python call, the command line, a recipe's settings and a trial's key are made from these fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from layerscout.errors import check_integer, check_number
from layerscout.plans.edits import Edit
from layerscout.plans.options import (
    COUNT,
    COUNT_OR_ALL,
    COUNTS,
    MAX_LENGTH,
    RATE,
    RATES,
    SEED,
    Options,
    Pooling,
    check_count,
    check_metric_name,
    option,
)
from layerscout.plans.papers import FAMILY_RATES

# At which rates an evaluation tunes heads again: all of Table 3 of Xie et al. 2022 and not only the
# task's, because no single one suits all states.
HEAD_RATES = tuple(sorted(set(FAMILY_RATES.values())))


@dataclass(frozen=True)
class ScanRequest(Options):
    """What a scan is asked for; see `layerscout.scan`."""

    scores: str | Sequence[str] | None = option(None, flag="--score")
    """Scores to compute, separated by commas, or all; by default head_quality and the variability
    ratios, or for numbers head_quality, cca, ridge and logme."""
    examples: int | Literal["all", "auto"] = option(
        "auto", partial(check_count, words=("all", "auto"))
    )
    """Number of training examples to read, all, or auto, which reads until more cannot change where
    the head belongs."""
    within: float = option(1.0, RATE, shown="1")
    """How many points better a state above the advised one may be when "auto" stops."""
    balanced: bool = option(False)
    """Draw the same number of examples from every class."""
    per_class: tuple[int, ...] | None = option(None, COUNTS, takes="Sequence[int] | None")
    """Draw exactly these numbers of examples, in the order of the labels."""
    pooling: Pooling | None = option(None, shown="mean; last for decoders")
    """Average the tokens of a text (mean), or take its last (last) or first one (cls); by default
    mean, and last for decoders. For labelled words: mean, last or first."""
    max_length: int = option(MAX_LENGTH, COUNT)
    """Maximum number of tokens per input."""
    seed: int = option(0, SEED)
    """Random seed."""
    probe: Literal["linear", "plain", "family"] = option("linear")
    """Train a linear probe on the pooled state (linear; plain trains it slowly, as Tamkin et al.
    2020 did), or the family's own head on the token that it reads (Xie et al. 2022)."""
    probe_seeds: int | None = option(None, COUNT, shown="8; 3 for the family's head")
    """How many times each probe is trained, with different seeds."""
    probe_pooling: Literal["mean", "cls"] | None = option(None, shown="see --probe")
    """What probes read: the average of a text's tokens (mean) or the first one (cls); by default
    the pooled state, or what the family's head reads."""
    fisher_mode: Literal["true", "empirical"] = option("true")
    """Fisher information in expectation over the model's own labels (true), or with the given
    labels (empirical)."""
    as_released: bool = option(False)
    """Compute Fisher information as the code published by Lodha et al. 2023 does."""
    head_seeds: int = option(1, COUNT)
    """Number of random heads over which gradient-based scores are averaged."""
    clusters: int | None = option(None, partial(check_integer, low=2), shown="10 for each class")
    """Number of clusters for mutual_information."""

    @property
    def fisher_rule(self) -> Literal["true", "empirical", "as_released"]:
        """How Fisher information is computed."""
        return "as_released" if self.as_released else self.fisher_mode


@dataclass(frozen=True)
class CompareRequest(Options):
    """What a comparison is asked for; see `layerscout.compare`."""

    examples: int | Literal["all"] = option("all", COUNT_OR_ALL)
    """Validation examples to read (or rows of a single file): a number or all."""
    pooling: Pooling | None = option(None, shown="cls; last for decoders")
    """Take the first token of a text (cls), as Phang et al. 2021 did, its last one (last), or
    average all (mean); by default cls, but last if all models are decoders and mean if some are.
    For labelled words: mean (the default), last or first."""
    max_length: int = option(MAX_LENGTH, COUNT)
    """Maximum number of tokens per input."""
    seed: int = option(0, SEED)
    """Random seed."""


@dataclass(frozen=True)
class EvaluateRequest(Options):
    """What an evaluation is asked for; see `layerscout.evaluate`."""

    edits: str | Sequence[str | Edit] = option(("truncate",), flag="--edit", shown="truncate")
    """Truncate (feed every state to the head), skip (leave out every span of blocks), or one edit
    such as skip:3-4, reinit:9-12 or permute:1; may be repeated."""
    tune_heads: bool = option(False)
    """Also tune the head again at every state."""
    metric: str | None = option(None, check_metric_name)
    """Metric to report first; by default that of the tuning, or else the task's own."""
    examples: int | Literal["all"] | None = option(None, COUNT_OR_ALL, shown="at most 5,000")
    """Number of training examples for tuning heads, or all."""
    head_epochs: int = option(20, COUNT)
    """Epochs for tuning heads; the best one is used."""
    head_batch_size: int = option(8, COUNT)
    """Batch size for tuning heads."""
    head_learning_rate: tuple[float, ...] = option(
        HEAD_RATES,
        RATES,
        takes="float | Sequence[float]",
        shown=",".join(f"{rate:g}" for rate in HEAD_RATES),
    )
    """One or several peak learning rates for heads; the best one is used."""
    max_length: int = option(MAX_LENGTH, COUNT)
    """Maximum number of tokens per input."""
    seed: int = option(0, SEED)
    """Random seed."""


@dataclass(frozen=True)
class PredictRequest(Options):
    """What a prediction is asked for; see `layerscout.predict`."""

    text: str | None = option(None)
    """Column of texts, or of words."""
    text_pair: str | None = option(None)
    """Column of second texts."""
    task: str | None = option(None)
    """Known task, such as copa, whose columns are used."""
    drop_missing: bool = option(False)
    """Leave out rows without a text."""
    sep: str | None = option(None)
    """Separator of the fields in a CSV or TSV file: a character, or tab; by default it is detected
    from the first line."""
    encoding: str | None = option(None)
    """Encoding of text files, such as cp1252 or utf-16; by default it is detected."""
    top_k: int | None = option(None, COUNT)
    """Write the most probable classes, so many of them, with their probabilities, in place of a
    column of probabilities for every class."""
    threshold: float | None = option(
        None, partial(check_number, rule="between 0 and 1", fits=lambda p: 0 < p < 1)
    )
    """Probability from which on a text has a label, where it may have several; by default what the
    model was saved with, or else 0.5."""
    max_length: int | None = option(None, COUNT, shown="as in tuning")
    """Maximum number of tokens per input."""
