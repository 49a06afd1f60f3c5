"""What a scan found and the plans that follow from it, with their files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerscout.pages import render_result
from layerscout.plans import (
    FULL,
    Choice,
    Cost,
    Method,
    ModelShape,
    Option,
    Plan,
    Work,
    applied,
    check_family,
    check_tied,
    check_untied,
    checked_budget,
    choose,
    cost,
    described,
    full_cost,
    make_method,
    make_plan,
    options,
)
from layerscout.runtime import (
    InputError,
    check_integer,
    make_output_folder,
    read_json,
    unknown,
    write_files,
)
from layerscout.scores import DEFAULT, Score

if TYPE_CHECKING:
    import pandas as pd


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
        diagnostics: how smooth the curves are and how well the scores agree, with each other and
            with the probe.
        stability: how the ranks move over further checkpoints of the model, if there are any.
    """

    model: Mapping[str, Any]
    task: Mapping[str, Any]
    settings: Mapping[str, Any]
    scores: Mapping[str, Score]
    warnings: tuple[str, ...]
    seconds: Mapping[str, float]
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    stability: Mapping[str, Any] | None = None

    def best(self, score: str | None = None) -> int | None:
        """Give ℓ*, the best state among 1..L by `score`; None if it is undefined everywhere.

        Args:
            score: unless it is given, the one that `leading` gives.

        Raises:
            InputError: if the scan does not have that score.
        """
        score = score or self.leading()
        if score not in self.scores:
            raise unknown("score of this scan", score, self.scores)
        return self.scores[score].best()

    def plan(
        self,
        strategy: str = "auto",
        *,
        score: str | None = None,
        budget: float = 0.5,
        epochs: int = 5,
        method: Method | str = FULL,
    ) -> Plan:
        """Turn a strategy into the plan for this model and task.

        Args:
            strategy: one of `layerscout.plans.plan.STRATEGIES`, such as "best-down:3@top", or a
                notation, such as "(6, 8, 12)".
            score: what ℓ* is the best state by; a score of blocks ranks them for "rank:k". Unless
                it is given, the one that `leading` gives.
            budget: of "auto": training FLOPs allowed, as a share of full fine-tuning's.
            epochs: of the training that is planned, which "auto" weighs too.
            method: how the blocks are tuned: such as `Adapter(256)`, or a key of
                `layerscout.plans.methods.METHODS`.

        Raises:
            InputError: if the strategy or the method is unknown or does not fit the model or the
                other, the scan does not have what it needs, or nothing fits into the budget.
        """
        planned = self.planning(strategy, score=score, budget=budget, epochs=epochs, method=method)
        return planned.choice.plan

    def planning(
        self,
        strategy: str = "auto",
        *,
        score: str | None = None,
        budget: float = 0.5,
        epochs: int = 5,
        method: Method | str = FULL,
    ) -> Planning:
        """Compare the strategies for this model and task; as `plan`, with all that lies behind."""
        budget, epochs = checked_budget(budget), check_integer("epochs", epochs, 1)
        shape, work = ModelShape.from_dict(self.model), self._work(epochs)
        method = make_method(method)
        check_family(shape.family, method)
        shape, untie = _untied_for(shape, method)
        score = score or self.leading()
        best, ranking = self.basis(score)
        strategy = strategy.strip().lower() if isinstance(strategy, str) else strategy
        if strategy == "auto":
            choice = choose(shape, work, self.detected(score), budget, method)
        else:
            plan = make_plan(strategy, shape.blocks, best=best, ranking=ranking)
            plan = applied(plan, method, shape.blocks)
            choice, budget = Choice(plan, strategy, f"{strategy} was asked for"), 1.0
            try:
                check_tied(plan, shape.weights)
            except InputError:
                shape, untie = _untied(shape), True
        listed = options(shape, work, best, ranking, extra=(choice.strategy,), method=method)
        counted = cost(choice.plan, shape, work, method)
        full = full_cost(shape, work)
        return Planning(self, score, budget, work, choice, counted, listed, untie, method, full)

    def leading(self) -> str:
        """Name the score that plans go by unless told otherwise: the default one, if it is there.

        Otherwise the first of states, or else the first.
        """
        of_states = (key for key, score in self.scores.items() if score.of == "states")
        return DEFAULT if DEFAULT in self.scores else next(of_states, next(iter(self.scores)))

    def basis(self, score: str | None = None) -> tuple[int | None, Sequence[float | None] | None]:
        """Give what strategies rest on: ℓ* and the values of a score of blocks; None without.

        Args:
            score: of states, which ℓ* is the best of; or of blocks, which then ranks them, and ℓ*
                is the best state by the one that `leading` gives, as it is where there is none.

        Raises:
            InputError: if the scan does not have that score.
        """
        score = score or self.leading()
        if score not in self.scores:
            raise unknown("score of this scan", score, self.scores)
        if self.scores[score].of == "blocks":
            of_states = self.leading()
            best = self.best(of_states) if self.scores[of_states].of == "states" else None
            return best, self.scores[score].values
        ranks = (s for s in self.scores.values() if s.of == "blocks" and s.best() is not None)
        return self.best(score), next((s.values for s in ranks), None)

    def detected(self, score: str | None = None) -> int | None:
        """Give ℓ* if any state can be told apart from it; None if it might be any of them.

        A score that comes without intervals cannot say so: then it is ℓ*.

        Args:
            score: as for `basis`.
        """
        best = self.basis(score)[0]
        key = score or self.leading()
        key = key if self.scores[key].of == "states" else self.leading()
        apart = self.scores[key].details.get("separable_from_best")
        return best if apart is None or any(apart[1:]) else None

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
            "diagnostics": dict(self.diagnostics),
            "stability": None if self.stability is None else dict(self.stability),
        }

    def save(self, folder: str | Path) -> None:
        """Write `scan.json` and `scan.html` into `folder`, which is made if needed.

        Raises:
            InputError: if a file cannot be written.
        """
        folder = make_output_folder(Path(folder))
        content = self.as_dict()
        written = json.dumps(content, indent=1, allow_nan=False) + "\n"
        write_files({folder / "scan.json": written, folder / "scan.html": render_result(content)})

    @classmethod
    def load(cls, folder: str | Path) -> Scan:
        """Read the `scan.json` that `save` wrote into `folder`, or that file itself.

        Raises:
            InputError: if there is none, or it is not one.
        """
        path = Path(folder) if Path(folder).is_file() else Path(folder) / "scan.json"
        try:
            content = read_json(path)
            for part in ("model", "task", "settings", "scores", "seconds"):
                if not isinstance(content[part], dict):
                    raise TypeError(f"its {part} is {content[part]!r:.40}")
            blocks = check_integer("blocks", content["model"]["blocks"], 1)
            scores = {key: Score.from_dict(score) for key, score in content["scores"].items()}
            for key, score in scores.items():
                known = [value for value in score.values if value is not None]
                if len(score.values) != blocks + 1 or not all(map(isfinite, known)):
                    raise ValueError(f"{key} is not a score of {blocks + 1} finite values")
            return cls(
                content["model"],
                content["task"],
                content["settings"],
                scores,
                tuple(content["warnings"]),
                content["seconds"],
                content.get("diagnostics") or {},
                content.get("stability"),
            )
        except FileNotFoundError as error:
            raise InputError(f"there is no scan.json in {folder}; run layerscout scan") from error
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror or error}") from error
        except KeyError as error:
            raise InputError(f"{path} is not a scan: it lacks {error}; scan again") from error
        except (ValueError, TypeError, AttributeError, InputError) as error:
            raise InputError(f"{path} is not a scan: {error}; scan again") from error


def _untied_for(shape: ModelShape, method: Method) -> tuple[ModelShape, bool]:
    """Give the shape that a method can have, and whether shared weights are copied for that."""
    try:
        check_untied(shape.family, shape.weights, method)
    except InputError:
        return _untied(shape), True
    return shape, False


def _untied(shape: ModelShape) -> ModelShape:
    return replace(shape, weights=tuple(range(shape.blocks)))


@dataclass(frozen=True)
class Planning:
    """The strategies for a scanned model and task, and the one chosen; the content of `plan.json`.

    Attributes:
        scan: what it rests on.
        score: what ℓ* is the best state by, or what ranks the blocks.
        budget: training FLOPs allowed, as a share of full fine-tuning's; 1 if a plan was asked for.
        work: the training that is planned.
        choice: the plan and why.
        cost: of that plan.
        options: all strategies worth listing, the dearest first.
        untie: whether weights that blocks share have to be copied for that plan.
        method: how its blocks are tuned.
        full: the cost of full fine-tuning.
    """

    scan: Scan
    score: str
    budget: float
    work: Work
    choice: Choice
    cost: Cost
    options: Sequence[Option]
    untie: bool
    method: Method
    full: Cost

    @property
    def listed(self) -> tuple[str, Sequence[float | None]] | None:
        """Give the score of states that is shown beside the options, and its values."""
        of_states = (k for k in (self.score, DEFAULT) if k in self.scan.scores)
        key = next((k for k in of_states if self.scan.scores[k].of == "states"), None)
        return None if key is None else (key, self.scan.scores[key].values)

    def as_dict(self) -> dict[str, Any]:
        """Give the content of `plan.json`."""
        values = None if self.listed is None else self.listed[1]
        listed = [
            asdict(option)
            | {
                "plan": option.plan.as_dict(),
                "value": None if values is None else values[option.state],
            }
            for option in self.options
        ]
        method_options = described(self.method)
        return {
            "layerscout": version("layerscout"),
            "verb": "plan",
            "model": dict(self.scan.model),
            "task": dict(self.scan.task),
            "work": asdict(self.work),
            "score": self.score,
            "best": self.scan.basis(self.score)[0],
            "budget": self.budget,
            "strategy": self.choice.strategy,
            "reason": self.choice.reason,
            "plan": self.choice.plan.as_dict(),
            "method": self.method.name,
            **({"method_options": method_options} if method_options else {}),
            "untie": self.untie,
            "cost": asdict(self.cost),
            "options": listed,
        }

    def save(self, folder: str | Path) -> None:
        """Write `plan.json` into `folder`, which is made if needed.

        Raises:
            InputError: if it cannot be written.
        """
        path = make_output_folder(Path(folder)) / "plan.json"
        write_files({path: json.dumps(self.as_dict(), indent=1, allow_nan=False) + "\n"})
