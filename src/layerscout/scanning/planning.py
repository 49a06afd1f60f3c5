"""What follows from a scan: the state for the head, why, and the strategies compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from layerscout.errors import InputError
from layerscout.files import format_json, make_output_folder, write_files
from layerscout.models import check_family
from layerscout.plans import (
    STAGE_EXAMPLES,
    Choice,
    Cost,
    HeadSuggestion,
    ListedStrategy,
    Loss,
    Method,
    ModelShape,
    PlanRequest,
    Settings,
    Work,
    apply_method,
    block_flops,
    check_tied,
    check_untied,
    choose,
    choose_epochs,
    choose_head_state,
    choose_stage_loss,
    cost,
    ends_solved,
    full_cost,
    list_strategies,
    make_plan,
    share_stages,
    suggest_default_head,
    suggest_upper_head,
    usual_budget,
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
        ranking: the values of a score of blocks, if there is one.
        named: the state that a head should read, which "auto" follows.
        few: as for `choose`.
        budget: training FLOPs allowed, as a share of full fine-tuning's; 1 if a plan was asked for.
        work: the training of a plan that is asked for, by which all plans are compared.
        training: that of the plan chosen: the same, or one whose head is solved in the end.
        stages: shares of its steps that each of its trainings takes, if so; else None.
        choice: the plan and why.
        untie: whether weights that blocks share have to be copied for that plan.
        shape: of the model, with copies of shared weights if `untie` says so.
        method: how its blocks are tuned.
        epochs: that were asked for, of which `work` and `training` are; None where none were.
    """

    scan: AnyScan = field(repr=False)
    score: str
    best: int | None
    ranking: Sequence[float | None] | None
    named: HeadSuggestion
    few: bool
    budget: float
    work: Work
    training: Work
    stages: Sequence[float] | None
    choice: Choice
    untie: bool
    shape: ModelShape
    method: Method
    epochs: int | None

    @cached_property
    def cost(self) -> Cost:
        """The cost of the plan."""
        work = self.training if self.stages is None else self.training.end_solved(self.stages)
        return cost(self.choice.plan, self.shape, work, self.method)

    @property
    def head_end(self) -> Literal["solved"] | None:
        """How its training ends, where that is not as for any plan that is asked for."""
        return None if self.stages is None else "solved"

    @property
    def loss(self) -> Loss | None:
        """What such a training lowers, where that is not the loss of the head."""
        return "contrastive" if self.few and self.stages else None

    @property
    def relative(self) -> float:
        """Its training FLOPs over those of full fine-tuning for as many epochs."""
        return self.cost.train / full_cost(self.shape, self.training).train

    @cached_property
    def full(self) -> Cost:
        """The cost of full fine-tuning, for as long as other plans."""
        return full_cost(self.shape, self.work)

    @cached_property
    def speed(self) -> float | None:
        """FLOPs a second of the passes that the scan's states come from; None if not known."""
        passed, tokens = self.scan.passed, self.work.tokens
        with suppress(KeyError, TypeError, ZeroDivisionError):
            flops = passed["texts"] * self.shape.blocks * block_flops(self.shape, tokens)
            return float(flops / passed["seconds"]) or None
        return None

    def expect(self, cost: Cost) -> float | None:
        """Return about how many seconds a training of that cost takes; None if not known.

        Steps have about as many FLOPs a second as passes (bench/speed.py).
        """
        return None if self.speed is None else cost.train / self.speed

    @property
    def shown(self) -> str | None:
        """The score of states that is shown beside the strategies, if there is one."""
        scores = self.scan.scores
        keys = (key for key in (self.score, DEFAULT) if key in scores)
        return next((key for key in keys if scores[key].of == "states"), None)

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
            self.few,
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the content of `plan.json`."""
        values = None if self.shown is None else self.scan.scores[self.shown].values
        listed = [
            asdict(option)
            | {
                "plan": option.plan.as_dict(),
                "value": None if values is None else values[option.state],
                "seconds": self.expect(option.cost),
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
            "epochs": self.epochs,
            "head_end": self.head_end,
            "loss": self.loss,
            "stages": self.stages,
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
            "seconds": self.expect(self.cost),
            "options": listed,
        }

    def save(self, folder: str | Path) -> None:
        """Write `plan.json` into `folder`, which is made if needed.

        Raises:
            InputError: if it cannot be written.
        """
        path = make_output_folder(Path(folder)) / "plan.json"
        write_files({path: format_json(self.as_dict())})


def compare_strategies(scan: AnyScan, request: PlanRequest) -> Planning:
    """Compare the strategies for a scan, and choose one.

    Raises:
        InputError: as `Scan.planning`.
    """
    strategy, budget, method = request.strategy.strip().lower(), request.budget, request.method
    best, ranking = scan.basis(request.score)
    shape, work = ModelShape.from_dict(scan.model), _count_work(scan.task, request.epochs)
    stages = _list_stages(scan.task, work, method)
    rows = work.examples + work.validation
    loss = choose_stage_loss(scan.task["kind"], rows, request.score) if stages else None
    few = loss is not None
    named = suggest_upper_head(shape.blocks) if few else scan.name_head(request.score)
    check_family(shape.family, method)
    untie, untied = False, replace(shape, weights=tuple(range(shape.blocks)))
    try:
        check_untied(shape.family, shape.weights, method)
    except InputError:
        untie, shape = True, untied
    if strategy == "auto":
        choice = choose(shape, work, named, budget, method, few)
        budget = usual_budget(few) if budget is None else budget
    else:
        plan = make_plan(strategy, shape.blocks, best=best, ranking=ranking)
        plan = apply_method(plan, method, shape.blocks)
        choice, budget = Choice(plan, strategy, f"{strategy} was asked for"), 1.0
        try:
            check_tied(plan, shape.weights)
        except InputError:
            untie, shape = True, untied
    if strategy != "auto" or not choice.plan.tuned:
        stages = ()
    score = request.score or scan.leading_score()
    training = _count_work(scan.task, request.epochs, solved=True, loss=loss) if stages else work
    trained = (work, training, stages or None, choice)
    told = (scan, score, best, ranking, named, few, budget)
    return Planning(*told, *trained, untie, shape, method, request.epochs)


def _list_stages(task: Mapping[str, Any], work: Work, method: Method) -> Sequence[float]:
    """List the shares of `share_stages` where "auto" ends with a solved head; none elsewhere."""
    return (
        share_stages(work.examples + work.validation) if ends_solved(task["kind"], method) else ()
    )


def _count_work(
    task: Mapping[str, Any], epochs: int | None, *, solved: bool = False, loss: Loss | None = None
) -> Work:
    settings = Settings(batch_size=STAGE_EXAMPLES, loss=loss) if solved else Settings()
    try:
        available, held_out = task["examples_available"], task["validation_examples"]
        if held_out is None:  # a tenth will be set aside
            held_out = round(available / 10)
            available -= held_out
        kind, labels = task["kind"], task["labels"]
        epochs = epochs or choose_epochs(settings, available, kind, labels, staged=solved)
        return Work.of(
            replace(settings, epochs=epochs),
            examples=available,
            texts=available,
            validation=held_out,
            tokens=task["tokens_per_example"],
        )
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
        return _suggest_default(score, blocks, f"{name_score(key)} names no best state")
    majority, apart = map(score.details.get, ("majority", "separable_from_best"))
    tied = [s for s in range(1, blocks + 1) if s != best and score.values[s] is not None]
    if majority is not None and not any(low is not None and low > majority for low in score.low):
        always = f"always giving the same answer ({majority:.2f})"
        return _suggest_default(score, blocks, f"no head is shown to do better than {always}")
    if apart is not None and tied and not any(apart[1:]):
        reason = f"no state is clearly best by {name_score(key)} ({describe_tie(best, tied)})"
        return _suggest_default(score, blocks, reason)
    state = score.details.get("named", choose_head_state(blocks, best))
    state = best if score.values[state] is None else state
    value, top, gaps = score.values[state], score.values[blocks], score.details.get("behind_named")
    words = f"state {state}: {name_score(key)} is {value:.2f} there"
    if gaps is not None:
        words = f"state {state}: a linear head there scores {value:.2f}"
    if state != blocks and top is not None:
        words += f", against {top:.2f} at the top"
        if gaps and gaps[blocks] is not None:
            words += " (difference {:.2f} ± {:.2f})".format(*gaps[blocks])
    if state != best:
        of_best = f"{score.values[best]:.2f}"
        most = "highest" if score.better == "higher" else "lowest"
        words += (
            f"; state {best} has the {most} value, {of_best}, but the two are tied within noise"
            if apart and not apart[state]
            else f"; state {best} is the best with {of_best}, but so far down few blocks are left "
            "to tune"
        )
    return HeadSuggestion(state, words)


def _suggest_default(score: Score, blocks: int, reason: str) -> HeadSuggestion:
    """Return the default state, or the highest one below it that has a value.

    States above a block whose values overflow have none.
    """
    named = suggest_default_head(blocks, reason)
    seen = [s for s in range(1, named.state + 1) if score.values[s] is not None]
    if not seen or seen[-1] == named.state:
        return named
    where = f"state {seen[-1]} is the highest one with a value up to two thirds of the depth"
    return HeadSuggestion(seen[-1], f"{reason}: {where}")
