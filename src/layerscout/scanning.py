"""Scoring every state of an encoder on a task, from one forward pass."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from numbers import Integral
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from layerscout.costs import Choice, Cost, Option, Work, choose, cost, options
from layerscout.data import Task
from layerscout.encoder import Encoder, Pooling, Tokens
from layerscout.errors import InputError, unknown
from layerscout.figures import save_chart, scan_chart, scan_page
from layerscout.files import output_folder, write_files
from layerscout.moments import Moments, class_weights
from layerscout.plans import ModelShape, Plan, check_tied, make_plan
from layerscout.progress import progress as progress_line
from layerscout.sampling import Split, sample
from layerscout.scores import SCORES, Score

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

# What "auto" reads at the most: seconds to minutes on a laptop.
AUTO_EXAMPLES = 5000

# Examples whose pooled states are held until they enter the moments together.
CHUNK = 512


@dataclass(frozen=True)
class Scan:
    """What a scan found; the content of `scan.json`.

    Attributes:
        model: name, family, sizes and parameter counts.
        task: name, kind, labels, metric and how many examples were there and were read.
        settings: all that the scores depend on.
        scores: by key; entry ℓ of a score's values is state ℓ, from the embeddings (0) to L.
        warnings: what the reader of the scores should know.
        seconds: time spent tokenising, in the forward pass and on the scores.
    """

    model: Mapping[str, Any]
    task: Mapping[str, Any]
    settings: Mapping[str, Any]
    scores: Mapping[str, Score]
    warnings: tuple[str, ...]
    seconds: Mapping[str, float]

    def best(self, score: str = "variability_ratio") -> int | None:
        """Give ℓ*, the best state among 1..L by `score`; None if it is undefined everywhere.

        Raises:
            InputError: if the scan does not have that score.
        """
        if score not in self.scores:
            raise unknown("score of this scan", score, self.scores)
        return self.scores[score].best()

    def plan(
        self,
        strategy: str = "auto",
        *,
        score: str = "variability_ratio",
        budget: float = 0.5,
        epochs: int = 5,
    ) -> Plan:
        """Turn a strategy into the plan for this model and task.

        Args:
            strategy: one of `layerscout.plans.STRATEGIES`, such as "best-down:3@top", or a
                notation, such as "(6, 8, 12)".
            score: what ℓ* is the best state by.
            budget: of "auto": training FLOPs allowed, as a share of full fine-tuning's.
            epochs: of the training that is planned, which "auto" weighs too.

        Raises:
            InputError: if the strategy is unknown or does not fit the model, the scan does not have
                what it needs, or nothing fits into the budget.
        """
        return self.planning(strategy, score=score, budget=budget, epochs=epochs).choice.plan

    def planning(
        self,
        strategy: str = "auto",
        *,
        score: str = "variability_ratio",
        budget: float = 0.5,
        epochs: int = 5,
    ) -> Planning:
        """Compare the strategies for this model and task; as `plan`, with all that lies behind."""
        shape, work, best = ModelShape.from_dict(self.model), self._work(epochs), self.best(score)
        if self.scores[score].of != "states":
            raise InputError(f"plans start from the best state, but {score} scores blocks")
        ranking = self.ranking()
        strategy, untie = strategy.strip().lower(), False
        if strategy == "auto":
            choice = choose(shape, work, best, budget)
        else:
            plan = make_plan(strategy, shape.blocks, best=best, ranking=ranking)
            choice, budget = Choice(plan, strategy, f"{strategy} was asked for"), 1.0
            try:
                check_tied(plan, shape)
            except InputError:
                untie = True
                shape = replace(shape, weights=tuple(range(shape.blocks)))
        listed = options(shape, work, best, ranking, extra=(choice.strategy,))
        counted = cost(choice.plan, shape, work)
        return Planning(self, score, budget, work, choice, counted, listed, untie)

    def ranking(self) -> Sequence[float | None] | None:
        """Give the values of the first score of blocks, which ranks them; None without one."""
        return next((s.values for s in self.scores.values() if s.of == "blocks"), None)

    def _work(self, epochs: int) -> Work:
        try:
            available, held_out = self.task["examples_available"], self.task["validation_examples"]
            if held_out is None:  # a tenth will be set aside
                held_out = round(available / 10)
                available -= held_out
            return Work(available, held_out, self.task["tokens_per_example"], epochs)
        except (KeyError, TypeError) as error:
            raise InputError(f"the task of this scan lacks {error}; scan again") from error

    def table(self) -> pd.DataFrame:
        """Give the scores as a data frame with a row per state and a column per score."""
        import pandas as pd

        columns = {key: pd.Series(s.values, dtype="float64") for key, s in self.scores.items()}
        return pd.DataFrame(columns).rename_axis("state")

    def as_dict(self) -> dict[str, Any]:
        """Give the content of `scan.json`."""
        return {
            "layerscout": version("layerscout"),
            "verb": "scan",
            "model": dict(self.model),
            "task": dict(self.task),
            "settings": dict(self.settings),
            "scores": {key: asdict(score) for key, score in self.scores.items()},
            "best": {key: score.best() for key, score in self.scores.items()},
            "warnings": list(self.warnings),
            "seconds": dict(self.seconds),
        }

    def save(self, folder: str | Path) -> None:
        """Write `scan.json` and `scan.html` into `folder`, which is made if needed.

        Raises:
            InputError: if a file cannot be written.
        """
        folder = output_folder(Path(folder))
        content = self.as_dict()
        written = json.dumps(content, indent=1, allow_nan=False) + "\n"
        write_files({folder / "scan.json": written, folder / "scan.html": scan_page(content)})

    @classmethod
    def load(cls, folder: str | Path) -> Scan:
        """Read the `scan.json` that `save` wrote into `folder`.

        Raises:
            InputError: if there is none, or it is not one.
        """
        path = Path(folder) / "scan.json"
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            scores = {key: Score.from_dict(score) for key, score in content["scores"].items()}
            return cls(
                content["model"],
                content["task"],
                content["settings"],
                scores,
                tuple(content["warnings"]),
                content["seconds"],
            )
        except FileNotFoundError as error:
            raise InputError(f"there is no scan.json in {folder}; run layerscout scan") from error
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{path} is not a scan: {error}") from error


@dataclass(frozen=True)
class Planning:
    """The strategies for a scanned model and task, and the one chosen; the content of `plan.json`.

    Attributes:
        scan: what it rests on.
        score: what ℓ* is the best state by.
        budget: training FLOPs allowed, as a share of full fine-tuning's; 1 if a plan was asked for.
        work: the training that is planned.
        choice: the plan and why.
        cost: of that plan.
        options: all strategies worth listing, the dearest first.
        untie: whether weights that blocks share have to be copied for that plan.
    """

    scan: Scan
    score: str
    budget: float
    work: Work
    choice: Choice
    cost: Cost
    options: Sequence[Option]
    untie: bool

    def as_dict(self) -> dict[str, Any]:
        """Give the content of `plan.json`."""
        values = self.scan.scores[self.score].values
        listed = [
            asdict(option) | {"plan": option.plan.as_dict(), "value": values[option.state]}
            for option in self.options
        ]
        return {
            "layerscout": version("layerscout"),
            "verb": "plan",
            "model": dict(self.scan.model),
            "task": dict(self.scan.task),
            "work": asdict(self.work),
            "score": self.score,
            "best": self.scan.best(self.score),
            "budget": self.budget,
            "strategy": self.choice.strategy,
            "reason": self.choice.reason,
            "plan": self.choice.plan.as_dict(),
            "untie": self.untie,
            "cost": asdict(self.cost),
            "options": listed,
        }

    def save(self, folder: str | Path) -> None:
        """Write `plan.json` into `folder`, which is made if needed.

        Raises:
            InputError: if it cannot be written.
        """
        path = output_folder(Path(folder)) / "plan.json"
        write_files({path: json.dumps(self.as_dict(), indent=1, allow_nan=False) + "\n"})


def scan(
    encoder: Encoder | str | Path,
    task: Task | str | Path,
    *,
    scores: str | Sequence[str] = "variability_ratio",
    examples: int | Literal["all", "auto"] = "auto",
    balanced: bool = False,
    per_class: Sequence[int] | None = None,
    pooling: Pooling = "mean",
    max_length: int = 128,
    seed: int = 0,
    progress: bool = True,
) -> Scan:
    """Score every state of an encoder on the training split of a task, without training.

    One forward pass gives all L + 1 states of an example; they are pooled at once and only their
    moments are kept, so memory does not grow with the number of examples.

    Args:
        encoder: an `Encoder`, or what `Encoder.load` takes.
        task: a `Task`, or what `Task.load` takes.
        scores: keys of `layerscout.scores.SCORES`, in a list or separated by commas, or "all".
        examples: how many training examples to read, drawn in proportion to the classes, at least
            two of each; "auto" reads up to 5,000.
        balanced: draw the same number of every class.
        per_class: draw exactly these numbers, in the order of the task's labels.
        pooling: "mean" over the ordinary tokens, or "cls" for the first token (state 0 is then the
            same for every example and has no score).
        max_length: tokens kept of an input.
        seed: of the drawing.
        progress: show a bar on the terminal.

    Raises:
        InputError: if the model or the data cannot be used as asked.
    """
    keys = _score_keys(scores)
    if pooling not in ("mean", "cls"):
        raise unknown("pooling", pooling, ("mean", "cls"))
    task = task if isinstance(task, Task) else Task.load(task)
    if task.kind == "regression":
        raise InputError(
            f"{', '.join(keys)} compare classes, but the labels of {task.name} are numbers; "
            "choose a task with classes"
        )
    split = task.train.take(_choose_rows(task, examples, balanced, per_class, seed))
    encoder = encoder if isinstance(encoder, Encoder) else Encoder.load(encoder)

    started = perf_counter()
    tokens = encoder.tokenize(split.texts, split.pairs, max_length=max_length)
    tokenized = perf_counter()
    moments, forward = _moments(encoder, tokens, split.labels, pooling, progress)
    results = {key: SCORES[key].score(moments) for key in keys}
    if pooling == "cls":
        results = {key: score.without_embeddings() for key, score in results.items()}
    finished = perf_counter()
    return Scan(
        model=described_model(encoder, task),
        task=described_task(task, split, tokens),
        settings={
            **task.origin,
            "pooling": pooling,
            "max_length": max_length,
            "precision": encoder.precision,
            "device": encoder.device.type,
            "examples": examples if isinstance(examples, str) else int(examples),
            "balanced": balanced,
            "per_class": None if per_class is None else [int(size) for size in per_class],
            "seed": int(seed),
            "versions": {name: version(name) for name in ("torch", "transformers")},
        },
        scores=results,
        warnings=(*task.warnings, *_warnings(tokens, max_length, moments, results)),
        seconds={
            "tokenize": tokenized - started,
            "forward": forward,
            "scores": finished - tokenized - forward,
        },
    )


def plot(scan: Scan, path: str | Path | None = None) -> alt.TopLevelMixin:
    """Draw the curve of every score; in a notebook the chart shows itself.

    Args:
        scan: what `scan` or `Scan.load` gave.
        path: a .png, .svg or .pdf to write it to as well.

    Raises:
        InputError: if `path` has another suffix or cannot be written.
    """
    chart = scan_chart(scan.as_dict())
    if path is not None:
        save_chart(chart, output_folder(Path(path).parent) / Path(path).name)
    return chart


def _score_keys(scores: str | Sequence[str]) -> list[str]:
    if scores == "all":
        return list(SCORES)
    keys = [key.strip() for key in scores.split(",")] if isinstance(scores, str) else list(scores)
    for key in keys:
        if key not in SCORES:
            raise unknown("score", key, SCORES)
    return keys


def _choose_rows(
    task: Task,
    examples: int | Literal["all", "auto"],
    balanced: bool,
    per_class: Sequence[int] | None,
    seed: int,
) -> np.ndarray:
    if examples not in ("all", "auto") and not isinstance(examples, Integral):
        raise InputError(f"examples must be a whole number, 'all' or 'auto', got {examples!r}")
    size = None if isinstance(examples, str) else int(examples)
    if examples == "auto" and per_class is None:
        K = len(task.labels)
        available = K * int(np.bincount(task.train.labels).min()) if balanced else len(task.train)
        size = min(max(AUTO_EXAMPLES, 2 * K), available)
    return sample(
        task.train,
        len(task.labels),
        examples=size,
        balanced=balanced,
        per_class=per_class,
        seed=seed,
    )


def _moments(
    encoder: Encoder, tokens: Tokens, labels: np.ndarray, pooling: Pooling, progress: bool
) -> tuple[Moments, float]:
    """Sum the moments of all states over all texts; also give the seconds of the forward pass."""
    weights = class_weights(torch.from_numpy(np.bincount(labels)))
    moments = None
    forward = 0.0
    with _bar(tokens, progress) as advance:
        for chunk in _chunks(encoder.batches(tokens)):
            parts = []
            for rows in chunk:
                started = perf_counter()
                parts.append(encoder.pooled(tokens, rows, pooling))
                if encoder.device.type == "cuda":  # or its time would be counted elsewhere
                    torch.cuda.synchronize(encoder.device)
                forward += perf_counter() - started
                advance(rows)
            states = torch.cat(parts, dim=1)
            if encoder.device.type == "mps":  # which has no float64
                states = states.cpu()
            if moments is None:
                moments = Moments.empty(states.mean(dim=1), weights)
            moments.add_(states, torch.from_numpy(labels[np.concatenate(chunk)]))
    if moments is None:
        raise InputError("there are no examples to scan")
    return moments, forward


def _chunks(batches: Sequence[np.ndarray]) -> Iterator[list[np.ndarray]]:
    """Put batches together until they have `CHUNK` rows: a product of d × d pays for many rows."""
    chunk: list[np.ndarray] = []
    for rows in batches:
        chunk.append(rows)
        if sum(map(len, chunk)) >= CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


@contextmanager
def _bar(tokens: Tokens, shown: bool) -> Iterator[Callable[[np.ndarray], None]]:
    """Show the texts done and their rate; the time left follows the tokens, since the longest
    texts come first.
    """
    with progress_line(shown) as show:
        total, texts, started = int(tokens.lengths.sum()), len(tokens), perf_counter()
        done = passed = 0

        def advance(rows: np.ndarray) -> None:
            nonlocal done, passed
            done += int(tokens.lengths[rows].sum())
            passed += len(rows)
            rate = passed / (perf_counter() - started)
            show("scanning", done, total, f"{passed:,} of {texts:,} examples, {rate:,.0f}/s")

        show("scanning", 0, total)
        yield advance


def described_model(encoder: Encoder, task: Task) -> dict[str, Any]:
    """Give what the JSON files hold of a model."""
    # A head for multiple choice has one output, read for each choice.
    outputs = 1 if task.kind == "multiple_choice" else len(task.labels)
    return {
        "name": encoder.name,
        "source": encoder.source,
        "revision": encoder.revision,
        **asdict(encoder.shape(outputs)),
    }


def described_task(task: Task, split: Split, tokens: Tokens) -> dict[str, Any]:
    """Give what the JSON files hold of a task of which `split`, tokenised, was read."""
    return {
        "name": task.name,
        "kind": task.kind,
        "labels": list(task.labels),
        "metric": task.metric,
        "columns": dict(task.columns),
        "examples_used": len(split),
        "examples_available": len(task.train),
        "validation_examples": None if task.validation is None else len(task.validation),
        "examples_per_class": np.bincount(split.labels, minlength=len(task.labels)).tolist(),
        "tokens_per_example": float(tokens.lengths.mean()),
    }


def _warnings(
    tokens: Tokens, max_length: int, moments: Moments, scores: Mapping[str, Score]
) -> list[str]:
    found = []
    if tokens.truncated:
        found.append(
            f"{tokens.truncated:,} of {len(tokens):,} inputs were longer than {max_length} tokens "
            "and were cut (--max-length)"
        )
    if tokens.empty:
        found.append(
            f"{tokens.empty:,} of {len(tokens):,} inputs have no token of their own; the "
            "tokenizer's special tokens stand in for them"
        )
    broken = (~moments.total.isfinite().all(dim=2).all(dim=1)).nonzero().flatten().tolist()
    if broken:
        found.append(f"states {broken} hold values that are not finite and have no score")
    elif any(score.best() is None for score in scores.values()):
        found.append(
            "the class means are the same at every state, so nothing tells the classes apart; "
            "look at the labels and at which column is read as text"
        )
    return found
