"""Scoring every state and block of an encoder on a task, from one forward pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from layerscout.cache import DEFAULT_LIMIT, States
from layerscout.data import HELD_OUT, Split, Task, evaluate, pearson_spearman, sample
from layerscout.models import (
    BlockScores,
    Encoder,
    Pooling,
    fisher,
    gradient_scores,
    make_family_head,
)
from layerscout.plans import (
    FAMILY_RATE,
    FAMILY_RATES,
    ScanRequest,
    add_options,
    options_of,
    resolve_request,
    weight_sets,
)
from layerscout.runtime import InputError, show_progress
from layerscout.scanning.result import Scan
from layerscout.scanning.sampling import (
    Drawing,
    Reader,
    Reading,
    cut_inputs,
    kept_states,
    streamed,
    tokenized,
)
from layerscout.scanning.scoring import refused, score_states
from layerscout.scores import (
    LARGEST,
    SCORES,
    Metric,
    Moments,
    Score,
    Source,
    against_probe,
    agreement,
    applicable,
    majority,
    rank_movement,
    smoothness,
    train_family_probes,
    train_linear_probes,
    usual_scores,
)

# Held-out examples that scores of gradients read (Lodha et al. 2023, §3.1).
GRADIENT_EXAMPLES = 100

# Trainings of the family's head on every state: each takes minutes on a processor.
FAMILY_SEEDS = 3


@add_options(ScanRequest)
def scan(
    encoder: Encoder | str | Path,
    task: Task | str | Path,
    *,
    request: ScanRequest | None = None,
    checkpoints: Sequence[Encoder | str | Path] = (),
    cache_limit: int = DEFAULT_LIMIT,
    progress: bool = True,
    **options: Any,
) -> Scan:
    """Score every state and block of an encoder on a task, without training it.

    Scores of states read the training split. One forward pass gives all L + 1 states of an
    example, pooled at once. Scores that need no more than sums add them up as they come, so that
    memory does not grow with the examples; for the others the pooled states are kept on disk,
    where the next scan finds them. Fisher information and the other scores of gradients read
    100 held-out examples; probes are fitted to the training examples and judged by the held-out
    ones. Where the data has no validation split, a tenth is set aside.

    Args:
        encoder: an `Encoder`, or what `Encoder.load` takes.
        task: a `Task`, or what `Task.load` takes.
        request: what is asked for, as one value in place of `options`.
        checkpoints: further checkpoints of the same model, in the order of its training; their
            scores show how the ranks of states and blocks move.
        cache_limit: bytes that the cache may take on disk; 0 keeps nothing there.
        progress: show a bar on the terminal.
        **options: everything else that may be asked for, such as `scores` or `examples`: the
            attributes of `layerscout.plans.ScanRequest`.

    Raises:
        InputError: if the model or the data cannot be used as asked.
    """
    asked_for = resolve_request(ScanRequest, request, options)
    task = task if isinstance(task, Task) else Task.load(task)
    numbers = task.kind == "regression"
    if numbers and np.abs(task.train.labels).max() > LARGEST:
        raise InputError(f"the numbers of {task.name} must be below {LARGEST:g}; scale them")
    keys = applicable(asked_for.scores or usual_scores(numbers=numbers), numbers=numbers)
    if task.validation is None and any(SCORES[key].held_out for key in keys):
        with suppress(InputError):  # the scores that do without are computed all the same
            task = task.hold_out(HELD_OUT, asked_for.seed)
    encoder = encoder if isinstance(encoder, Encoder) else Encoder.load(encoder)
    for checkpoint in checkpoints:  # before the work that one of them could spoil
        _checkpoint(checkpoint, encoder)
    drawing = Drawing(
        task, asked_for.examples, asked_for.balanced, asked_for.per_class, asked_for.seed
    )
    pooling, max_length = asked_for.pooling, asked_for.max_length
    poolings: tuple[Pooling, ...]
    poolings = (pooling, "cls") if "probe" in keys and asked_for.probe == "family" else (pooling,)
    with show_progress(progress) as show:
        reader = Reader(encoder, tuple(dict.fromkeys(poolings)), max_length, cache_limit, show)
        asked = _Asked(task, keys, asked_for, reader)
        reading = asked.read(drawing)
        results, broken = asked.scores(reading)
    found = Scan(
        model=described_model(encoder, task),
        task=described_task(task, reading.split, reading.lengths),
        settings={
            **task.origin,
            **record_request(asked_for),
            "precision": encoder.precision,
            "device": encoder.device.type,
            "examples_because": reading.because,
            "versions": {name: version(name) for name in ("torch", "transformers")},
        },
        scores=results,
        warnings=(*task.warnings, *_warnings(asked, reading, results, broken)),
        seconds={"tokenize": 0.0, "forward": 0.0, "scores": 0.0} | reader.seconds,
        diagnostics=diagnostics_of(results),
    )
    if not checkpoints:
        return found
    same = replace(
        asked_for,
        scores=keys,
        examples="all" if asked_for.per_class is not None else len(reading.split),
    )
    again = partial(scan, task=task, request=same, cache_limit=cache_limit, progress=progress)
    others = [again(_checkpoint(checkpoint, encoder)) for checkpoint in checkpoints]
    return replace(found, stability=_stability([found, *others], keys))


def record_request(request: ScanRequest) -> dict[str, Any]:
    """Return what `settings` of `scan.json` holds of a request."""
    found = {name: getattr(request, name) for name in options_of(ScanRequest) if name != "scores"}
    return {name: list(v) if isinstance(v, tuple) else v for name, v in found.items()}


@dataclass(frozen=True, eq=False)
class _Asked:
    """The scores that were asked for, and what they are computed with."""

    task: Task
    keys: Sequence[str]
    request: ScanRequest
    reader: Reader

    def of(self, *sources: Source) -> list[str]:
        """Give the keys of the scores that are computed from these sources."""
        return [key for key in self.keys if SCORES[key].source in sources]

    def read(self, drawing: Drawing) -> Reading:
        """Read the training examples as far as the scores need it."""
        if self.of("state", "states", "probes"):
            decide = next((key for key in self.keys if SCORES[key].jackknife is not None), None)
            return kept_states(self.reader, drawing, decide=decide)
        if self.of("moments"):
            return streamed(self.reader, drawing)
        return tokenized(self.reader, drawing)

    def scores(self, reading: Reading) -> tuple[dict[str, Score], list[int]]:
        """Compute all scores; one that refuses leaves the others alone, unless it is alone.

        Returns:
            The scores, and the states that hold values that are not finite.

        Raises:
            InputError: if every score refuses.
        """
        with self.reader.timed("scores"):
            found, broken = self._of_states(reading)
        works: list[tuple[list[str], Callable[[Reading], dict[str, Score]]]] = [
            (self.of("probes"), self._probes),
            (self.of("gradients"), self._gradients),
            (self.of("weights"), self._weights),
        ]
        for keys, work in works:
            if keys:
                with self.reader.timed(SCORES[keys[0]].source):
                    try:
                        found |= work(reading)
                    except InputError as reason:
                        found |= {key: refused(key, self._blocks, reason) for key in keys}
        reasons = [score.details.get("refused") for score in found.values()]
        if all(reasons):
            raise InputError(str(reasons[0]))
        return {key: found[key] for key in self.keys}, broken

    @property
    def _blocks(self) -> int:
        return self.reader.encoder.blocks

    def _of_states(self, reading: Reading) -> tuple[dict[str, Score], list[int]]:
        pooling, keys = self.reader.poolings[0], self.of("moments", "state", "states")
        if reading.sample is not None:
            return score_states(
                reading.states[pooling],
                reading.sample,
                keys,
                looks=reading.looks,
                known=reading.known,
                progress=lambda done, total: self.reader.show("scoring", done, total, "states"),
            )
        if reading.moments is None:
            return {}, []
        return score_moments(reading.moments, keys, pooling)

    def _held_out(self) -> Split:
        if self.task.validation is None:
            raise InputError(
                f"{self.task.name} has no held-out examples, and too few to set a tenth aside (2 "
                "of every class stay); use --validation FILE"
            )
        return self.task.validation

    def _probes(self, reading: Reading) -> dict[str, Score]:
        """Fit probes to the training examples, and judge them by all that are held out."""
        held_out, family = self._held_out(), self.request.probe == "family"
        pooling: Pooling = "cls" if family else self.reader.poolings[0]
        tokens = self.reader.tokens(held_out)
        kept = self.reader.kept(tokens, "scanning the held-out")
        judged = kept.states[pooling]
        metric = _judging(self.task, held_out)
        labels = reading.split.labels, held_out.labels
        states = reading.states[pooling]
        show = partial(self.reader.show, "probing")
        if family:
            names = self.task.labels or ("score",)
            found = train_family_probes(
                in_memory(states),
                labels[0],
                in_memory(judged),
                labels[1],
                partial(make_family_head, self.reader.encoder, names),
                metric=metric,
                seeds=FAMILY_SEEDS,
                seed=self.request.seed,
                learning_rate=FAMILY_RATES.get(self.task.name, FAMILY_RATE),
                progress=show,
            )
        else:
            found = train_linear_probes(
                states,
                labels[0],
                judged,
                labels[1],
                metric=metric,
                examples=reading.split.groups,
                seed=self.request.seed,
                progress=show,
            )
        ends = [
            (None, None) if value is None or error is None else (value - error, value + error)
            for value, error in zip(found.values, found.standard_errors, strict=True)
        ]
        details = {
            "kind": self.request.probe,
            "metric": self.task.metric,
            "majority": majority(*labels, metric),
            "standard_error": list(found.standard_errors),
            "by_seed": [list(values) for values in found.by_seed],
            "epochs": [list(epochs) for epochs in found.epochs],
            "warnings": [kept.warning] if kept.warning else [],
        }
        low, high = zip(*ends, strict=True)
        score = SCORES["probe"].score(found.values, details, low, high)
        return {"probe": score.without_embeddings() if pooling == "cls" else score}

    def _gradients(self, _: Reading) -> dict[str, Score]:
        """Score blocks by gradients on held-out examples, drawn once for all such scores."""
        keys, task, encoder = self.of("gradients"), self.task, self.reader.encoder
        split = _some(self._held_out(), len(task.labels), self.request.seed)
        seeds = range(self.request.seed, self.request.seed + self.request.head_seeds)
        found: dict[str, BlockScores] = {}
        if "fisher" in keys:
            found["fisher"] = fisher(
                encoder,
                split,
                task.labels,
                kind=task.kind,
                mode=self.request.fisher_mode,
                as_released=self.request.as_released,
                seeds=seeds,
                parts=self.request.fisher_parts,
                max_length=self.reader.max_length,
                progress=lambda done, total: self.reader.show("Fisher information", done, total),
            )
        if set(keys) - {"fisher"}:
            found |= gradient_scores(
                encoder,
                split,
                task.labels,
                kind=task.kind,
                seeds=seeds,
                max_length=self.reader.max_length,
                progress=lambda done, total: self.reader.show("gradients", done, total),
            )
        scores = {key: _of_blocks(key, found[key], len(split)) for key in keys}
        if "fisher" in scores:
            mode = "as_released" if self.request.as_released else self.request.fisher_mode
            details = {"mode": mode, **scores["fisher"].details}
            scores["fisher"] = replace(scores["fisher"], details=details)
        return scores

    def _weights(self, _: Reading) -> dict[str, Score]:
        matrices, rows = _matrices(self.reader.encoder), {k: SCORES[k] for k in self.of("weights")}
        return {
            key: row.score(*row.from_weights(matrices))
            for key, row in rows.items()
            if row.from_weights is not None
        }


def score_moments(
    moments: Moments, keys: Sequence[str], pooling: Pooling
) -> tuple[dict[str, Score], list[int]]:
    """Compute scores of the source "moments".

    Returns:
        The scores, and the states that hold values that are not finite.
    """
    scores = {key: SCORES[key].of_moments(moments) for key in keys}
    if pooling == "cls":
        scores = {key: score.without_embeddings() for key, score in scores.items()}
    finite = moments.total.isfinite().all(dim=2).all(dim=1)
    return scores, (~finite).nonzero().flatten().tolist()


def _judging(task: Task, held_out: Split) -> Metric:
    """Choose what judges the logits of a probe on held-out examples."""
    if task.kind == "regression":
        return pearson_spearman
    if held_out.groups is None:
        return partial(evaluate, task.metric)
    examples = np.unique(held_out.groups, return_inverse=True)[1].reshape(-1)

    def right_choices(labels: np.ndarray, logits: np.ndarray) -> float:
        """Give the share of examples whose right choice is taken for right the most."""
        order = np.lexsort((np.arange(len(labels)), logits[:, 0] - logits[:, 1], examples))
        first = np.searchsorted(examples[order], np.arange(examples.max() + 1))
        return float(labels[order[first]].mean())

    return right_choices


def in_memory(states: States) -> np.ndarray:
    """Read all states, (S, n, d) float32; training them all at once reads them at random."""
    found = np.empty(states.shape, dtype=np.float32)
    for s, state in enumerate(states):
        found[s] = state
    return found


def _some(split: Split, classes: int, seed: int) -> Split:
    """Draw the held-out examples that scores of gradients read; all choices of each."""
    examples = len(split) if split.groups is None else len(np.unique(split.groups))
    if examples <= GRADIENT_EXAMPLES:
        return split
    rows = max(GRADIENT_EXAMPLES * len(split) // examples, min(2 * classes, len(split)))
    return split.take(
        sample(split, classes, examples=rows, balanced=False, per_class=None, seed=seed)
    )


def _of_blocks(key: str, found: BlockScores, rows: int) -> Score:
    details: dict[str, Any] = {
        "rows": rows,
        "spread": list(found.spread),
        "by_seed": [list(values) for values in found.by_seed],
        "notes": list(found.notes),
        "warnings": list(found.warnings),
    }
    if found.parts is not None:
        details["parts"] = {part: list(values) for part, values in found.parts.items()}
    return SCORES[key].score(found.values, details)


def described_model(encoder: Encoder, task: Task) -> dict[str, Any]:
    """Give what the JSON files hold of a model."""
    # A head for multiple choice has one output, read for each choice; one for numbers has one too.
    outputs = len(task.labels) if task.kind == "classification" else 1
    return {
        "name": encoder.name,
        "source": encoder.source,
        "revision": encoder.revision,
        "editing": None if encoder.edit_spec is None else encoder.edit_spec.as_dict(),
        **asdict(encoder.shape(outputs)),
    }


def described_task(task: Task, split: Split, lengths: np.ndarray) -> dict[str, Any]:
    """Give what the JSON files hold of a task of which `split` was read, in so many tokens."""
    classes = task.kind != "regression"
    per_class = np.bincount(split.labels, minlength=len(task.labels)).tolist() if classes else []
    return {
        "name": task.name,
        "kind": task.kind,
        "labels": list(task.labels),
        "metric": task.metric,
        "columns": dict(task.columns),
        "examples_used": len(split),
        "examples_available": len(task.train),
        "validation_examples": None if task.validation is None else len(task.validation),
        "examples_per_class": per_class,
        "tokens_per_example": float(lengths.mean()),
    }


def _matrices(encoder: Encoder) -> dict[tuple[int, str], np.ndarray]:
    """Give the weight matrices of every block, by block and name within it."""
    modules = list(encoder.model.get_submodule(encoder.family.blocks))
    return {
        (block, name.removesuffix(".weight")): parameter.detach().cpu().numpy()
        for block, module in enumerate(weight_sets(encoder.blocks, len(modules)), start=1)
        for name, parameter in modules[module].named_parameters()
        if parameter.ndim == 2
    }


def diagnostics_of(scores: Mapping[str, Score]) -> dict[str, Any]:
    """Tell how smooth the curves are, and how the scores agree with each other and the probe."""
    of_states = {key: score for key, score in scores.items() if score.of == "states"}
    found: dict[str, Any] = {
        "smoothness": {key: smoothness(score.values) for key, score in of_states.items()}
    }
    for of in ("states", "blocks"):
        if sum(score.of == of for score in scores.values()) > 1:
            agreed = agreement(scores, of)
            found[f"agreement_of_{of}"] = {
                "best": dict(agreed.best),
                "kendall": {key: dict(row) for key, row in agreed.kendall.items()},
            }
    if "probe" in scores:
        found["against_probe"] = {
            key: asdict(against_probe(score.values, scores["probe"].values))
            for key, score in of_states.items()
            if key != "probe"
        }
    return found


def _checkpoint(checkpoint: Encoder | str | Path, first: Encoder) -> Encoder:
    """Load another checkpoint of a model as the first one was loaded."""
    other = checkpoint
    if not isinstance(other, Encoder):
        other = Encoder.load(other, device=str(first.device), precision=first.precision)
    kinds = [(each.model.config.model_type, each.blocks) for each in (first, other)]
    if kinds[0] != kinds[1]:
        told = [
            f"{each.name} ({family}, {blocks} blocks)"
            for each, (family, blocks) in zip((first, other), kinds, strict=True)
        ]
        raise InputError(
            f"checkpoints must be of one model, got {told[0]} and {told[1]}; scan them one by one"
        )
    return other


def _stability(scans: Sequence[Scan], keys: Sequence[str]) -> dict[str, Any]:
    """Tell how the ranks move over scans of several checkpoints of a model."""
    moved = {
        key: rank_movement([scan.scores[key].values for scan in scans], SCORES[key].better)
        for key in keys
    }
    return {
        "checkpoints": [scan.model["name"] for scan in scans],
        "scores": {
            key: {"values": [list(scan.scores[key].values) for scan in scans], **asdict(movement)}
            for key, movement in moved.items()
        },
    }


def _warnings(
    asked: _Asked, reading: Reading, scores: Mapping[str, Score], broken: Sequence[int]
) -> list[str]:
    found, used = list(reading.notes), len(reading.split)
    found += cut_inputs(reading.truncated, used, asked.reader.max_length)
    if reading.empty:
        found.append(
            f"{reading.empty:,} of {used:,} inputs have no token of their own; the tokenizer's "
            "special tokens stand in for them"
        )
    if broken:
        found.append(f"states {broken} hold values that are not finite and have no score")
    for key, score in scores.items():
        if "refused" in score.details:
            found.append(f"{key} was left out: {score.details['refused']}")
        found += [f"{key}: {note}" for note in score.details.get("warnings", ())]
    plug_in = [scores[key] for key in asked.of("moments")]
    if not broken and any(score.best() is None for score in plug_in):
        found.append(
            "the class means are the same at every state, so nothing tells the classes apart; "
            "look at the labels and at which column is read as text"
        )
    return found
