"""Which plan is meant: a plan, its notation, a strategy, a plan.json, or what a scan says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from layerscout.data import Task
from layerscout.models import Encoder, check_family
from layerscout.plans import (
    FULL,
    Choice,
    Classifier,
    Full,
    Method,
    ModelShape,
    Named,
    Plan,
    Work,
    apply_method,
    check_embeddings,
    check_tied,
    check_tunes_blocks,
    check_untied,
    choose,
    full_cost,
    make_method,
    make_plan,
    name_blindly,
    pays_for_scan,
    split_embeddings,
)
from layerscout.runtime import InputError, read_json
from layerscout.scanning import Scan
from layerscout.scores import SCORES

# What two models have in common if a plan for the one is one for the other.
SAME = ("family", "blocks", "hidden_size", "feed_forward")


@dataclass(frozen=True)
class PlanContext:
    """What a choice of plan rests on.

    Attributes:
        encoder: what is tuned.
        task: what it is tuned for.
        scan: of the two, where there is one.
        score: of the scan, which says what the best state is.
        budget: of "auto".
        method: how the blocks of the plan are tuned.
        classifier: what reads the last state.
        spent: what the scan took of the budget, where it was made for this tuning.
    """

    encoder: Encoder
    task: Task
    scan: Scan | None
    score: str
    budget: float
    method: Method = FULL
    classifier: Classifier = "family"
    spent: float = 0.0

    @cached_property
    def shape(self) -> ModelShape:
        """Sizes and parameter counts of the encoder with its head for the task."""
        return self.encoder.shape(len(self.task.labels), self.task.kind, self.classifier)


@dataclass(frozen=True)
class PlanFile:
    """A plan.json, or a file that holds just a plan.

    Attributes:
        path: where it was read.
        choice: the plan, the strategy that it comes from and the reason.
        content: all that the file holds.
        method: the method that the plan was written for, if any.
    """

    path: Path
    choice: Choice
    content: Mapping[str, Any]
    method: Method | None


# A plan as it was asked for: a plan, a file that was read, or a notation or strategy.
Asked = Plan | PlanFile | str


def read_plan(plan: Any) -> Asked:
    """Return what was asked for, with a plan.json read.

    Raises:
        InputError: if the file cannot be read or is not a plan.
    """
    if not isinstance(plan, Path) and not (isinstance(plan, str) and plan.endswith(".json")):
        return plan  # type: ignore[no-any-return]
    path = Path(plan)
    try:
        content = read_json(path)
        found = Plan.from_dict(content.get("plan", content))
        strategy = content.get("strategy", found.notation)
        reason = content.get("reason", f"{path} says so")
        options = content.get("method_options") or {}
        texts = isinstance(strategy, str) and isinstance(reason, str)
        parts = (options, *(content.get(part, {}) for part in ("model", "task")))
        if not texts or not all(isinstance(part, Mapping) for part in parts) or "method" in options:
            raise TypeError("an entry is of another type")
    except IsADirectoryError as error:
        raise _folder(path) from error
    except OSError as error:
        raise InputError(
            f"cannot read the plan {path}: {error.strerror or error}; write one with layerscout "
            "plan"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is not a plan; write one with layerscout plan") from error
    named = content.get("method")
    method = None if named is None else make_method(named, **options)
    return PlanFile(path, Choice(found, strategy, reason), content, method)


def needs_scan(plan: Asked) -> bool:
    """Return whether a plan follows from a scan: from its best state, or its rank of blocks."""
    starts = ("auto", "best", "rank")
    return isinstance(plan, str) and _strategy(plan).startswith(starts)


def _strategy(plan: str) -> str:
    """Give a strategy without what it says of the embeddings."""
    return split_embeddings(plan.strip().lower())[1]


def is_worth_scan(plan: Asked, context: PlanContext, work: Work) -> bool:
    """Return whether to scan for a plan: always, but for "auto" only where that is cheap."""
    if not needs_scan(plan) or not _is_auto(plan):
        return needs_scan(plan)
    return pays_for_scan(price_scan(context, work), context.budget)


def price_scan(context: PlanContext, work: Work) -> float:
    """Give the FLOPs of a scan of all training examples, as a share of full fine-tuning's."""
    full = full_cost(context.shape, work)
    return work.examples * full.inference / full.train


def charge_scan(asked: Sequence[Asked], made: Scan, context: PlanContext, work: Work) -> float:
    """Give what a scan that was made for plans takes of the budget of "auto".

    It is what was read of the examples; nothing where "auto" alone would not have scanned.
    """
    if not any(_is_auto(one) and is_worth_scan(one, context, work) for one in asked):
        return 0.0
    read = made.task["examples_used"] / made.task["examples_available"]
    return price_scan(context, work) * float(read)


def check_plan(plan: Asked, context: PlanContext) -> None:
    """Refuse what the plan and the model alone, or a scan that is there, show to be impossible.

    Raises:
        InputError: as `settle_plan`.
    """
    _check_model(context)
    if context.scan is not None:
        _check_same("the scan", context.scan.as_dict(), context)
    if _is_auto(plan):
        if context.scan is not None:
            context.scan.basis(context.score)
        return
    if context.scan is not None or not needs_scan(plan):
        _fit(*_explicit(plan, context), context)
        return
    blocks = context.encoder.blocks
    if _strategy(str(plan)).startswith("rank"):
        ranks = SCORES[context.score].of == "blocks"
        _make_plan(plan, blocks, None, [None, *[1.0] * blocks] if ranks else None)
        return
    refusals: list[InputError] = []
    for best in range(1, blocks + 1):  # what the scan might find
        try:
            _fit(Choice(_make_plan(plan, blocks, best, None), "", ""), [], context)
            return
        except InputError as error:
            refusals.append(error)
    raise refusals[0]


def settle_plan(plan: Asked, context: PlanContext, work: Work) -> tuple[Choice, list[str]]:
    """Turn what was asked for into a plan that fits the encoder, with the reason; and warnings.

    Args:
        plan: what was asked for.
        context: what the choice rests on.
        work: the training, which "auto" weighs.

    Raises:
        InputError: if it is not a plan, it does not fit, it needs a scan that is not there, the
            scan or the file is of a model of another shape, or the method is not for the model or
            the plan.
    """
    _check_model(context)
    if not _is_auto(plan):
        return _fit(*_explicit(plan, context), context)
    named, budget = name_head(context), context.budget
    choice = choose(context.shape, work, named, budget, context.method, context.spent)
    return _fit(choice, _check_scan(context), context)


def name_head(context: PlanContext) -> Named:
    """Name the state that a head should read, by the scan if there is one."""
    if context.scan is not None:
        return context.scan.name_head(context.score)
    because = "a scan would take too much of the budget"
    return name_blindly(context.shape.blocks, because)


def _check_scan(context: PlanContext) -> list[str]:
    scan = context.scan
    return [] if scan is None else _check_same("the scan", scan.as_dict(), context)


def _is_auto(plan: Asked) -> bool:
    return isinstance(plan, str) and plan.strip().lower() == "auto"


def _check_model(context: PlanContext) -> None:
    """Refuse a method that the model cannot have, whatever the plan."""
    check_family(context.shape.family, context.method)
    check_untied(context.shape.family, context.shape.weights, context.method)


def _explicit(plan: Asked, context: PlanContext) -> tuple[Choice, list[str]]:
    """Turn anything but "auto" into a plan; and warnings."""
    if isinstance(plan, Plan):
        return Choice(plan, plan.notation, f"{plan.notation} was asked for"), []
    if isinstance(plan, PlanFile):
        return plan.choice, _check_same(f"the plan {plan.path}", plan.content, context)
    warnings: list[str] = []
    best = ranking = None
    if context.scan is not None:
        warnings = _check_same("the scan", context.scan.as_dict(), context)
        if needs_scan(plan):
            best, ranking = context.scan.basis(context.score)
    found = _make_plan(plan, context.encoder.blocks, best, ranking)
    return Choice(found, plan.strip(), f"{plan.strip()} was asked for"), warnings


def _make_plan(
    plan: Any, blocks: int, best: int | None, ranking: Sequence[float | None] | None
) -> Plan:
    try:
        return make_plan(plan, blocks, best=best, ranking=ranking)
    except InputError as error:
        with suppress(OSError, TypeError):  # a name that is too long, or no name
            if plan != "" and Path(plan).is_dir():
                raise _folder(plan) from error
        raise


def _folder(path: str | Path) -> InputError:
    return InputError(f"a plan is a file, got the folder {path}; use {Path(path, 'plan.json')}")


def _fit(choice: Choice, warnings: list[str], context: PlanContext) -> tuple[Choice, list[str]]:
    """Settle a plan for the encoder and the method."""
    blocks = context.encoder.blocks
    asked = choice.plan.on(blocks)
    check_tunes_blocks(asked, context.method)
    full = len(asked.tuned) == asked.head == blocks
    if full and not asked.embeddings and isinstance(context.method, Full):
        raise InputError(
            f"full fine-tuning, (1, {blocks}, {blocks}), tunes the embeddings too, got "
            "embeddings=False; leave embeddings out"
        )
    check_embeddings(asked, blocks)
    check_tied(asked, context.shape.weights)
    asked = apply_method(asked, context.method, blocks)
    return Choice(asked, choice.strategy, choice.reason), warnings


def _check_same(what: str, content: Mapping[str, Any], context: PlanContext) -> list[str]:
    """Refuse what was made for a model of another shape; warn of another task or checkpoint."""
    theirs, model = content.get("model"), context.shape
    if theirs is None:
        return []
    for name in SAME:
        if theirs.get(name) != getattr(model, name):
            raise InputError(
                f"{what} is for {theirs.get('name')} ({name}={theirs.get(name)}), but "
                f"{context.encoder.name} has {name}={getattr(model, name)}; scan that model"
            )
    warnings = []
    if theirs.get("source") != context.encoder.source:
        warnings.append(f"{what} is for {theirs.get('name')}, not for {context.encoder.name}")
    editing = context.encoder.edit_spec
    if theirs.get("editing") != (None if editing is None else editing.as_dict()):
        warnings.append(f"{what} is for a model without the present edits of its blocks")
    task = content.get("task", {}).get("name")
    if task != context.task.name:
        warnings.append(f"{what} is for the task {task}, not for {context.task.name}")
    return warnings
