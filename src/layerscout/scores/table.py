"""The table of scores: everything that is known of a score stands in its row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal

from layerscout.errors import InputError, make_unknown_error
from layerscout.scores.score import FEWEST_FOLDS, FEWEST_GROUPS, FEWEST_ROWS, Better, Score

if TYPE_CHECKING:
    from layerscout.scores.moments import Moments
    from layerscout.scores.state import State


def _module(name: str) -> Any:
    """Return a module of this room, imported only when a score is computed.

    What shows a saved scan reads the names here; importing torch took 2 of the 4 s of a plan.
    """
    return import_module(f"layerscout.scores.{name}")


# What a score is computed from, the cheapest first: sums over the examples, the examples of one
# state, those of all states, held-out examples too, gradients of a classifier, or weights alone.
Source = Literal["moments", "state", "states", "probes", "gradients", "weights"]


def _need_model(*_: Any) -> Any:
    raise TypeError("a score of probes, or of Fisher information, is computed by a scan")


@dataclass(frozen=True, kw_only=True)
class Definition:
    """A row of the table of scores.

    Probes and Fisher information need a model at work, so `scanning` computes them; each of the
    others brings a function.

    Attributes:
        title: its name within a sentence.
        summary: what it measures, in a few words.
        meaning: what it measures and when not to trust it, for people who do not know it.
        of: what has a value.
        better: which direction is better.
        source: what it is computed from.
        numbers: whether it is defined for tasks whose labels are numbers.
        together: whether it reads all labels of a task with several for a text at once; others are
            taken label by label, each with the classes of having it or not, and averaged.
        usual: for which labels a scan computes it unless told otherwise.
        fewest: examples of every class that it needs; a scan computes it without the classes that
            have fewer.
        undefined: why a state or a block may have no value, even so.
        compute: by the source, from "moments" to the values (S,), NaN if undefined; from a "state"
            to its value, None if undefined; from "states" (S, n, d) and the first state that
            counts, or from "weights" by block and name, to the values of the entries 0..L and what
            else the score has to tell; from a weight and its part of "gradients", those of the mean
            loss, to an amount.
        combine: the amounts of the weights of a block, for the source "gradients", to its value.
        jackknife: whether `compute` gives the value of a state with the replicates that intervals
            need, and that "auto" needs to see whether there are enough examples.
    """

    title: str
    summary: str
    meaning: str
    of: Literal["states", "blocks"] = "states"
    better: Better = "higher"
    source: Source
    numbers: bool = False
    together: bool = False
    usual: Literal["classes", "numbers", "all"] | None = None
    fewest: int = 0
    undefined: str = "there its numbers overflow, or nothing differs"
    compute: Callable[..., Any] = _need_model
    combine: Callable[[Sequence[float]], float] = sum
    jackknife: bool = False

    @property
    def held_out(self) -> bool:
        """Whether it needs held-out examples."""
        return self.source in ("probes", "gradients")

    def score(
        self,
        values: Sequence[float | None],
        details: Mapping[str, Any] | None = None,
        low: Sequence[float | None] = (),
        high: Sequence[float | None] = (),
    ) -> Score:
        """Make the score that has these values, and says why, if it lacks some that count."""
        known = dict(details or {})
        if None in values[1:] and "refused" not in known:
            known["undefined_because"] = self.undefined
        return Score(self.of, self.better, tuple(values), tuple(low), tuple(high), known)

    def of_moments(self, moments: Moments) -> Score:
        """Compute the score of all S states from their sums, for the source "moments"."""
        values = self.compute(moments).tolist()
        return self.score([v if isfinite(v) else None for v in values])

    def of_blocks(self, *material: Any) -> Score:
        """Compute the score of all blocks, for the sources "states" and "weights"."""
        return self.score(*self.compute(*material))

    def of_state(self, state: State) -> float | None:
        """Compute the value of one state, for the sources "moments" and "state"."""
        if state.labels.dtype.kind == "b" and not self.together:
            raise TypeError(f"{self.title} is computed label by label")
        value: float | None
        if self.source == "moments":
            value = self.compute(state.centred).item()
        else:
            value = self.compute(state).value if self.jackknife else self.compute(state)
        return value if value is not None and isfinite(value) else None


SCORES: Mapping[str, Definition] = {
    "head_quality": Definition(
        title="held-out quality of a head",
        summary="the task's metric for a linear head, on held-out examples",
        meaning="How well a linear head on the frozen state does, in the task's own metric, on "
        "examples that it was not fitted to. States are compared on the same examples, so even "
        "small differences are seen. It says nothing about what tuning the blocks adds, and a head "
        "fitted by least squares favours larger classes.",
        source="state",
        numbers=True,
        together=True,
        usual="all",
        compute=lambda state: state.quality,
        jackknife=True,
    ),
    "variability_ratio_debiased": Definition(
        title="debiased variability ratio ν",
        summary="spread within the classes over spread between them, without noise",
        meaning="ν compares how far the examples of one class are from each other with how far the "
        "classes are from each other, before any training. The noise in the class means is "
        "removed, so ν does not grow with the number of examples. Where there is only noise, it "
        "has no value. It sees only how the class means differ: classes with the same mean look "
        "the same to it, even if one surrounds the other.",
        better="lower",
        source="state",
        fewest=2 * FEWEST_GROUPS,
        undefined="there the class means are too uncertain; it needs more examples",
        compute=lambda state: state.debiased,
        jackknife=True,
    ),
    "variability_ratio": Definition(
        title="variability ratio ν",
        summary="spread within the classes over spread between them, as published",
        meaning="The published ν compares the spread of the examples within a class with the "
        "spread between the class means, and counts the noise of these means as distance. So where "
        "the classes are hard to separate, it grows with the number of examples: compare the "
        "layers of one scan, not one scan with another.",
        better="lower",
        source="moments",
        usual="classes",
        compute=lambda moments: _module("moments").variability_ratios(moments),
    ),
    "nc1": Definition(
        title="neural collapse NC1",
        summary="the same ratio, with equal weight for every example",
        meaning="NC1 is ν with equal weight for every example instead of every class. If classes "
        "differ in size, the largest one dominates; otherwise it is as noisy as the published ν.",
        better="lower",
        source="moments",
        compute=lambda moments: _module("moments").nc1s(moments),
    ),
    "cca": Definition(
        title="canonical correlation",
        summary="correlation of the states with the labels, on held-out examples",
        meaning="How strongly directions of the states correlate with the labels, on examples that "
        "were not used to find these directions. With few examples for many features, the "
        "regularisation decides as much as the state does.",
        source="state",
        numbers=True,
        together=True,
        usual="numbers",
        fewest=2 * FEWEST_FOLDS,
        compute=lambda state: state.folds.cca,
    ),
    "ridge": Definition(
        title="ridge regression",
        summary="a linear fit, judged on held-out examples",
        meaning="How well a regularised linear fit predicts examples it has not seen: accuracy "
        "with equal weight for every class, or R² for numbers and several labels. Accuracy changes "
        "in steps of one example, so a few hundred examples cannot separate layers that differ "
        "only a little.",
        source="state",
        numbers=True,
        together=True,
        usual="numbers",
        fewest=2 * FEWEST_FOLDS,
        compute=lambda state: state.folds.ridge,
    ),
    "logme": Definition(
        title="LogME",
        summary="evidence of a Bayesian linear fit, for each example",
        meaning="How plausible the labels are under a linear model of the state, averaged over all "
        "weights that such a model could have. Its size depends on the number of examples and of "
        "classes: it ranks the layers of one scan and cannot be compared across scans.",
        source="state",
        numbers=True,
        together=True,
        usual="numbers",
        compute=lambda state: _module("transferability").logme(state.centred, state.scatter),
    ),
    "h_score": Definition(
        title="H-score",
        summary="spread between the classes over all spread",
        meaning="How much of the spread of the states is between the classes, after scaling all "
        "directions to the same spread. Larger classes count more, and with fewer examples than "
        "features, much of the value comes from how the covariance is shrunk.",
        source="state",
        together=True,
        compute=lambda state: _module("transferability").h_score(state.centred, state.scatter),
    ),
    "numerical_rank": Definition(
        title="numerical rank",
        summary="how many directions a class takes up",
        meaning="How many directions the states of one class spread over; few directions are taken "
        "as a sign of collapse. It is not centred and never compares two classes, so a layer that "
        "maps everything to one place looks best.",
        better="lower",
        source="state",
        compute=lambda state: _module("transferability").numerical_rank(state.centred),
    ),
    "knn": Definition(
        title="nearest neighbours",
        summary="accuracy of the ten nearest neighbours",
        meaning="How often the ten examples at the smallest angle, without the example itself, "
        "vote for the right label. It needs no linear boundary, but where a few features dominate "
        "the angle, it sees only those, and if classes differ in size, the vote favours the "
        "largest.",
        source="state",
        numbers=True,
        compute=lambda state: _module("neighbours").knn(
            state.exact, state.labels, examples=state.examples
        ),
    ),
    "mutual_information": Definition(
        title="mutual information",
        summary="what clusters reveal about the labels, in nats",
        meaning="What the cluster of an example reveals about its class, with clusters found "
        "without the labels. It is too large if few examples are held out, and clusters follow "
        "whatever varies most, which need not be what the task is about.",
        source="state",
        fewest=FEWEST_ROWS,
        compute=lambda state: _module("neighbours").mutual_information(
            state.exact, state.labels, state.seed, state.examples, state.clusters
        ),
    ),
    "probe": Definition(
        title="probe",
        summary="a trained classifier on the frozen state",
        meaning="How well a classifier trained on the frozen state does on examples it has not "
        "seen: the closest to what tuning the head alone would give. Compare it with always "
        "predicting the majority class, and note that its standard error covers the noise of the "
        "seeds but not that of few examples.",
        source="probes",
        numbers=True,
    ),
    "fisher": Definition(
        title="Fisher information",
        summary="how strongly the predictions depend on a block's weights",
        meaning="How strongly the predictions depend on a block's weights, from squared gradients "
        "under an untrained head. That head is partly random: look at the spread over its seeds "
        "before you trust a difference.",
        of="blocks",
        source="gradients",
        numbers=True,
    ),
    "gradient_norm": Definition(
        title="gradient norm",
        summary="how long a block's gradient is",
        meaning="How strongly the loss pulls at a block's weights before training. It grows with "
        "the size of a block and changes with the untrained head, and the block with the largest "
        "gradient at the start need not gain most from training.",
        of="blocks",
        source="gradients",
        numbers=True,
        compute=lambda weight, gradient: _module("gradients").sum_squares(gradient),
        combine=lambda squares: _module("gradients").root_of_sum(squares),
    ),
    "saliency": Definition(
        title="saliency",
        summary="gradient times weight, over a block",
        meaning="How much the loss would change, to first order, if a block's weights were removed "
        "one at a time. It holds only for small changes and for this untrained head.",
        of="blocks",
        source="gradients",
        numbers=True,
        compute=lambda weight, gradient: float((gradient * weight).abs().cpu().double().sum()),
    ),
    "weight_snr": Definition(
        title="weight signal-to-noise",
        summary="singular values above the noise of a block's matrices",
        meaning="How far the singular values of a block's weight matrices stand out from those of "
        "noise. It uses only the weights, so it is the same for every task and every label.",
        of="blocks",
        source="weights",
        numbers=True,
        compute=lambda matrices: _module("spectra").score_spectra(matrices),
    ),
    "cka_change": Definition(
        title="change of the states (1 − CKA)",
        summary="how much a block changes the states",
        meaning="1 − CKA between the input and the output of a block. It does not use the labels: "
        "a block may change much that the task does not need. Unless there are many more examples "
        "than features, it is too small.",
        of="blocks",
        source="states",
        numbers=True,
        compute=lambda states, first: _module("cka").score_changes(states, first),
    ),
}


# Scores that led to no better plans and were dropped, by their titles: older scans still hold them.
RETIRED = {
    "loes": "LOES",
    "entropy": "entropy of the states",
    "codelength": "online code length",
}


def name_score(key: str) -> str:
    """Name a score within a sentence, be it one that only an older scan holds."""
    return SCORES[key].title if key in SCORES else RETIRED.get(key, key.replace("_", " "))


def list_usual_scores(*, numbers: bool) -> tuple[str, ...]:
    """Name what a scan computes unless told otherwise.

    Args:
        numbers: whether the labels are numbers instead of classes.
    """
    labels = "numbers" if numbers else "classes"
    return tuple(key for key, row in SCORES.items() if row.usual in (labels, "all"))


def read_score_keys(scores: str | Sequence[str], *, numbers: bool) -> list[str]:
    """Read the keys of scores, separated by commas or in a list, or "all" that fit the labels.

    Args:
        scores: the request.
        numbers: whether the labels are numbers instead of classes.

    Raises:
        InputError: if a key is unknown, or its score needs classes and the labels are numbers.
    """
    fitting = [key for key, row in SCORES.items() if row.numbers or not numbers]
    if scores == "all":
        return fitting
    keys = [key.strip() for key in scores.split(",")] if isinstance(scores, str) else list(scores)
    for key in keys:
        if key not in SCORES:
            raise make_unknown_error("score", key, SCORES)
        if key not in fitting:
            raise InputError(
                f"{key} compares classes, but the labels are numbers; use {', '.join(fitting)}"
            )
    return list(dict.fromkeys(keys))
