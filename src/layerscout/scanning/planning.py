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
from layerscout.scores import DEFAULT, Score, name_score

# A `Scan`, whose module imports this one.
AnyScan = Any


@dataclass(frozen=True)
class Planning:
    """The strategies for a scanned model and task, and the one chosen; the content of `plan.json`.

    Attributes:
        scan: the scan.
        score: what ℓ* is the best state by, or what ranks the blocks.
        best: ℓ*; None where it is undefined.
        named: the state that a head should read, which "auto" follows.
        ranking: the values of a score of blocks, if there is one.
        shown: the score of states that is shown beside the strategies, if there is one.
        budget: training FLOPs allowed, as a share of full fine-tuning's; 1 if a plan was asked for.
        work: the training that is planned.
        choice: the plan and why.
        cost: of that plan.
        untie: whether weights that blocks share have to be copied for that plan.
        shape: of the model, with copies of shared weights if `untie` says so.
        method: how its blocks are tuned.
        full: the cost of full fine-tuning.
    """

    scan: AnyScan
    score: str
    best: int | None
    named: HeadSuggestion
    ranking: Sequence[float | None] | None
    shown: str | None
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
        return list_strategies(
            self.shape,
            self.work,
            self.best,
            self.ranking,
            (self.choice.strategy,),
            self.method,
            self.named.state,
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the content of `plan.json`."""
        values = None if self.shown is None else self.scan.scores[self.shown].values
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
            "model": dict(self.scan.model),
            "task": dict(self.scan.task),
            "work": asdict(self.work),
            "score": self.score,
            "best": self.best,
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


def compare_strategies(
    scan: AnyScan,
    request: PlanRequest,
    score: str,
    best: int | None,
    named: HeadSuggestion,
    ranking: Sequence[float | None] | None,
) -> Planning:
    """Compare the strategies for a scan, and choose one.

    Args:
        scan: the scan.
        request: the strategy, and what it is for.
        score, best, named, ranking: as of `Planning`.

    Raises:
        InputError: as `Scan.planning`.
    """
    strategy, budget, method = request.strategy.strip().lower(), request.budget, request.method
    shape, work = ModelShape.from_dict(scan.model), _count_work(scan.task, request.epochs)
    check_family(shape.family, method)
    untie, untied = False, replace(shape, weights=tuple(range(shape.blocks)))
    try:
        check_untied(shape.family, shape.weights, method)
    except InputError:
        untie, shape = True, untied
    if strategy == "auto":
        choice = choose(shape, work, named, budget, method)
    else:
        plan = make_plan(strategy, shape.blocks, best=best, ranking=ranking)
        plan = apply_method(plan, method, shape.blocks)
        choice, budget = Choice(plan, strategy, f"{strategy} was asked for"), 1.0
        try:
            check_tied(plan, shape.weights)
        except InputError:
            untie, shape = True, untied
    keys = (key for key in (score, DEFAULT) if key in scan.scores)
    return Planning(
        scan=scan,
        score=score,
        best=best,
        named=named,
        ranking=ranking,
        shown=next((key for key in keys if scan.scores[key].of == "states"), None),
        budget=budget,
        work=work,
        choice=choice,
        cost=cost(choice.plan, shape, work, method),
        untie=untie,
        shape=shape,
        method=method,
        full=full_cost(shape, work),
    )


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
    value, top = score.values[state], score.values[blocks]
    if "behind_named" in score.details:
        words = f"state {state}: a linear head there scores {value:.2f}"
    else:
        words = f"state {state}: {name_score(key)} is {value:.2f} there"
    if state != blocks and top is not None:
        words += f", against {top:.2f} at the top"
        gaps = score.details.get("behind_named")
        if gaps and gaps[blocks] is not None:
            words += " (difference {:.2f} ± {:.2f})".format(*gaps[blocks])
    if state != best:
        of_best = f"{score.values[best]:.2f}"
        if apart and not apart[state]:
            most = "highest" if score.better == "higher" else "lowest"
            words += f"; state {best} has the {most} value, {of_best}, but the two are tied within "
            words += "noise"
        else:
            words += f"; state {best} is the best with {of_best}, but so far down few blocks are "
            words += "left to tune"
    return HeadSuggestion(state, words)


def _name_seen(score: Score, blocks: int, reason: str) -> HeadSuggestion:
    """Name a state blindly, but not one without a value, as above a block whose values overflow."""
    named = suggest_default_head(blocks, reason)
    seen = [s for s in range(1, named.state + 1) if score.values[s] is not None]
    if not seen or seen[-1] == named.state:
        return named
    where = f"state {seen[-1]} is the highest one with a value up to two thirds of the depth"
    return HeadSuggestion(seen[-1], f"{reason}: {where}")
