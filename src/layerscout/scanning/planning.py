"""What follows from a scan: the state for the head, why, and the strategies compared."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from layerscout.errors import InputError
from layerscout.files import make_output_folder, write_files
from layerscout.models import check_family
from layerscout.plans import (
    Choice,
    Cost,
    HeadSuggestion,
    ListedStrategy,
    Method,
    ModelShape,
    PlanRequest,
    Settings,
    Work,
    apply_method,
    check_tied,
    check_untied,
    choose,
    choose_epochs,
    choose_head_state,
    cost,
    full_cost,
    list_strategies,
    make_plan,
    suggest_default_head,
)
from layerscout.reporting import describe_tie
from layerscout.scores import Score, name_score


@dataclass(frozen=True)
class Basis:
    """What plans rest on in a scan.

    Attributes:
        score: what ℓ* is the best state by, or what ranks the blocks.
        best: ℓ*; None where it is undefined.
        named: the state that a head should read, which "auto" follows.
        ranking: the values of a score of blocks, if there is one.
        shown: the score of states that is shown beside the strategies, and its values.
    """

    score: str
    best: int | None
    named: HeadSuggestion
    ranking: Sequence[float | None] | None
    shown: tuple[str, Sequence[float | None]] | None


@dataclass(frozen=True)
class Planning:
    """The strategies for a scanned model and task, and the one chosen; the content of `plan.json`.

    Attributes:
        scan: the content of `scan.json`.
        basis: what it rests on.
        budget: training FLOPs allowed, as a share of full fine-tuning's; 1 if a plan was asked for.
        work: the training that is planned.
        choice: the plan and why.
        cost: of that plan.
        untie: whether weights that blocks share have to be copied for that plan.
        shape: of the model, with copies of shared weights if `untie` says so.
        method: how its blocks are tuned.
        full: the cost of full fine-tuning.
    """

    scan: Mapping[str, Any]
    basis: Basis
    budget: float
    work: Work
    choice: Choice
    cost: Cost
    untie: bool
    shape: ModelShape
    method: Method
    full: Cost

    @cached_property
    def options(self) -> list[ListedStrategy]:
        """All strategies worth listing, the dearest first."""
        basis = self.basis
        return list_strategies(
            self.shape,
            self.work,
            basis.best,
            basis.ranking,
            (self.choice.strategy,),
            self.method,
            basis.named.state,
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the content of `plan.json`."""
        values = None if self.basis.shown is None else self.basis.shown[1]
        listed = [
            asdict(option)
            | {
                "plan": option.plan.as_dict(),
                "value": None if values is None else values[option.state],
            }
            for option in self.options
        ]
        method_options = asdict(self.method)
        return {
            "layerscout": version("layerscout"),
            "verb": "plan",
            "model": self.scan["model"],
            "task": self.scan["task"],
            "work": asdict(self.work),
            "score": self.basis.score,
            "best": self.basis.best,
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


def compare_strategies(scan: Mapping[str, Any], request: PlanRequest, basis: Basis) -> Planning:
    """Compare the strategies for a scan, the content of `scan.json`, and choose one.

    Raises:
        InputError: as `Scan.planning`.
    """
    strategy, budget, method = request.strategy.strip().lower(), request.budget, request.method
    shape, work = ModelShape.from_dict(scan["model"]), _count_work(scan["task"], request.epochs)
    check_family(shape.family, method)
    untie, untied = False, replace(shape, weights=tuple(range(shape.blocks)))
    try:
        check_untied(shape.family, shape.weights, method)
    except InputError:
        untie, shape = True, untied
    if strategy == "auto":
        choice = choose(shape, work, basis.named, budget, method)
    else:
        plan = make_plan(strategy, shape.blocks, best=basis.best, ranking=basis.ranking)
        plan = apply_method(plan, method, shape.blocks)
        choice, budget = Choice(plan, strategy, f"{strategy} was asked for"), 1.0
        try:
            check_tied(plan, shape.weights)
        except InputError:
            untie, shape = True, untied
    counted = cost(choice.plan, shape, work, method)
    full = full_cost(shape, work)
    return Planning(scan, basis, budget, work, choice, counted, untie, shape, method, full)


def _count_work(task: Mapping[str, Any], epochs: int | None) -> Work:
    try:
        available, held_out = task["examples_available"], task["validation_examples"]
        if held_out is None:  # a tenth will be set aside
            held_out = round(available / 10)
            available -= held_out
        epochs = epochs or choose_epochs(Settings(), available, task["kind"], task["labels"])
        return Work(available, held_out, task["tokens_per_example"], epochs)
    except (KeyError, TypeError) as error:
        raise InputError(f"the task of this scan lacks {error}; scan again") from error


def name_head(key: str, score: Score, blocks: int) -> HeadSuggestion:
    """Name the state that a head should read by a score of states, and say why.

    It is the one of `choose_head_state`, by the score's intervals if it has some, else by ℓ*.

    Args:
        key: of the score.
        score: its values and details.
        blocks: of the model.
    """
    best = score.best()
    if best is None:
        return suggest_default_head(blocks, f"{name_score(key)} has no value for any state")
    majority = score.details.get("majority")
    if majority is not None and not any(low is not None and low > majority for low in score.low):
        always = f"always giving the same answer ({majority:.2f})"
        return _name_seen(score, blocks, f"no head is shown to do better than {always}")
    state = score.details.get("named", choose_head_state(blocks, best))
    state = best if score.values[state] is None else state
    apart = score.details.get("separable_from_best")
    if apart is not None and not any(apart[1:]) and blocks > 1:
        tied = [s for s in range(1, blocks + 1) if s != best and score.values[s] is not None]
        reason = f"no state is clearly best by {name_score(key)} ({describe_tie(best, tied)})"
        reason = reason if tied else f"{name_score(key)} has a value for state {best} alone"
        return _name_seen(score, blocks, reason)
    words = f"state {state}: {_describe_value(key, score, state)}"
    if state != blocks and score.values[blocks] is not None:
        words += f", against {_format(score.values[blocks])} at the top"
        words += _describe_gap(score, blocks)
    if state != best:
        value = _format(score.values[best])
        if apart and not apart[state]:
            most = "highest" if score.better == "higher" else "lowest"
            words += (
                f"; state {best} has the {most} value, {value}, but the two are tied within noise"
            )
        else:
            words += (
                f"; state {best} is the best with {value}, but so far down few blocks are left "
            )
            words += "to tune"
    return HeadSuggestion(state, words)


def _name_seen(score: Score, blocks: int, reason: str) -> HeadSuggestion:
    """Name a state blindly, but not one without a value, as above a block whose values overflow."""
    named = suggest_default_head(blocks, reason)
    seen = [s for s in range(1, named.state + 1) if score.values[s] is not None]
    if not seen or seen[-1] == named.state:
        return named
    where = f"state {seen[-1]} is the highest one with a value up to two thirds of the depth"
    return HeadSuggestion(seen[-1], f"{reason}: {where}")


def _describe_value(key: str, score: Score, state: int) -> str:
    value = _format(score.values[state])
    if "behind_named" in score.details:
        return f"a linear head there scores {value}"
    return f"{name_score(key)} is {value} there"


def _describe_gap(score: Score, top: int) -> str:
    gaps: Any = score.details.get("behind_named")
    if not gaps or gaps[top] is None:
        return ""
    difference, half_width = gaps[top]
    return f" (difference {difference:.2f} ± {half_width:.2f})"


def _format(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
