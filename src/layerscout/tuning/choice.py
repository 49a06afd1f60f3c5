"""Which plan is meant: a plan, its notation, a strategy, a plan.json, or what a scan says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from layerscout.data import Task
from layerscout.errors import InputError
from layerscout.files import read_json
from layerscout.models import Encoder
from layerscout.plans import (
    Choice,
    Full,
    Method,
    ModelShape,
    Plan,
    Work,
    apply_method,
    check_embeddings,
    check_tied,
    check_tunes_blocks,
    choose,
    make_method,
    make_plan,
    split_embeddings,
    suggest_default_head,
)
from layerscout.scanning import Scan
from layerscout.scores import SCORES

# What two models have in common if a plan for the one is one for the other.
SAME = ("family", "blocks", "hidden_size", "feed_forward")


@dataclass(frozen=True, eq=False)
class Target:
    """What a plan is chosen for.

    Attributes:
        encoder: what is tuned.
        task: what it is tuned for.
        shape: of the encoder with its head for the task.
        method: how the blocks of the plan are tuned.
        scan: of the two, where there is one.
        score: of the scan, which says what the best state is.
    """

    encoder: Encoder
    task: Task
    shape: ModelShape
    method: Method
    scan: Scan | None
    score: str


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


# A plan as it was requested: a plan, a file that was read, or a notation or strategy.
PlanSpec = Plan | PlanFile | str


def read_plan(plan: Any) -> PlanSpec:
    """Return the plan that was requested, with a plan.json read.

    Raises:
        InputError: if the file cannot be read or is not a plan.
    """
    if not isinstance(plan, Path) and not (isinstance(plan, str) and plan.endswith(".json")):
        return plan  # type: ignore[no-any-return]
    path = Path(plan)
    try:
        content = read_json(path)
        written = Plan.from_dict(content.get("plan", content))
        strategy = content.get("strategy", written.notation)
        reason = content.get("reason", f"{path} says so")
        options = content.get("method_options") or {}
        texts = isinstance(strategy, str) and isinstance(reason, str)
        parts = (options, *(content.get(part, {}) for part in ("model", "task")))
        if not texts or not all(isinstance(part, Mapping) for part in parts) or "method" in options:
            raise TypeError("an entry is of another type")
    except IsADirectoryError as error:
        raise _make_folder_error(path) from error
    except OSError as error:
        raise InputError(
            f"cannot read the plan {path}: {error.strerror or error}; write one with layerscout "
            "plan"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is not a plan; write one with layerscout plan") from error
    name = content.get("method")
    method = None if name is None else make_method(name, **options)
    return PlanFile(path, Choice(written, strategy, reason), content, method)


def needs_scan(plan: PlanSpec) -> bool:
    """Return whether a plan follows from a scan: from its best state, or its rank of blocks.

    "auto" uses a scan that is there and needs none: no scan made up for what it cost, see
    docs/measured/advice.md.
    """
    if not isinstance(plan, str):
        return False
    _, strategy = split_embeddings(plan.strip().lower())
    return strategy.startswith(("best", "rank"))


def is_auto(plan: PlanSpec) -> bool:
    """Return whether the plan is to be chosen under a budget."""
    return isinstance(plan, str) and plan.strip().lower() == "auto"


def write_plan(plan: PlanSpec) -> str:
    """Return a plan as it was requested, in text."""
    if isinstance(plan, PlanFile):
        return str(plan.path)
    return plan.notation if isinstance(plan, Plan) else str(plan).strip()


def check_without_scan(plan: PlanSpec, target: Target) -> None:
    """Check a plan before there is a scan: no scan could make some strategies fit.

    Raises:
        InputError: as `settle_plan`.
    """
    if not needs_scan(plan):
        if not is_auto(plan):
            settle_plan(plan, target)
        return
    blocks = target.encoder.blocks
    if split_embeddings(str(plan).strip().lower())[1].startswith("rank"):
        ranks = SCORES[target.score].of == "blocks"
        _make_plan(plan, blocks, None, [None, *[1.0] * blocks] if ranks else None)
        return
    refusals: list[InputError] = []
    for best in range(1, blocks + 1):  # what the scan might find
        try:
            _fit(Choice(_make_plan(plan, blocks, best, None), "", ""), target)
            return
        except InputError as error:
            refusals.append(error)
    raise refusals[0]


def settle_plan(plan: PlanSpec, target: Target) -> Choice:
    """Turn anything but "auto" into a plan that fits the encoder, with the reason.

    Raises:
        InputError: if it is not a plan, it does not fit, it needs a scan that is not there, or the
            method is not for the plan.
    """
    if isinstance(plan, PlanFile):
        return _fit(plan.choice, target)
    if isinstance(plan, Plan):
        return _fit(Choice(plan, plan.notation, f"{plan.notation} was asked for"), target)
    best = ranking = None
    if target.scan is not None and needs_scan(plan):
        best, ranking = target.scan.basis(target.score)
    settled = _make_plan(plan, target.encoder.blocks, best, ranking)
    return _fit(Choice(settled, plan.strip(), f"{plan.strip()} was asked for"), target)


def choose_plan(target: Target, work: Work, budget: float) -> Choice:
    """Choose the plan of "auto", by the scan if there is one.

    Raises:
        InputError: if no plan fits into the budget, a share of full fine-tuning's training FLOPs.
    """
    if target.scan is None:
        named = suggest_default_head(target.shape.blocks, "there is no scan")
    else:
        named = target.scan.name_head(target.score)
    return _fit(choose(target.shape, work, named, budget, target.method), target)


def check_same(what: str, model: Any, task: Mapping[str, Any], target: Target) -> list[str]:
    """Raise for what was made for a model of another shape; warn of another task or checkpoint.

    Args:
        what: a scan or a plan, for messages.
        model: the one that it is for, as JSON files describe it; None where it names none.
        task: the one that it is for.
        target: what it is used for.

    Returns:
        The warnings.

    Raises:
        InputError: if the model is of another shape.
    """
    if model is None:
        return []
    encoder = target.encoder
    for name in SAME:
        if model.get(name) != getattr(target.shape, name):
            raise InputError(
                f"{what} is for {model.get('name')} ({name}={model.get(name)}), but "
                f"{encoder.name} has {name}={getattr(target.shape, name)}; scan that model"
            )
    warnings = []
    if model.get("source") != encoder.source:
        warnings.append(f"{what} is for {model.get('name')}, not for {encoder.name}")
    if model.get("editing") != (None if encoder.edit_spec is None else encoder.edit_spec.as_dict()):
        warnings.append(f"{what} is for a model without the present edits of its blocks")
    if task.get("name") != target.task.name:
        warnings.append(f"{what} is for the task {task.get('name')}, not for {target.task.name}")
    return warnings


def _make_plan(
    plan: Any, blocks: int, best: int | None, ranking: Sequence[float | None] | None
) -> Plan:
    try:
        return make_plan(plan, blocks, best=best, ranking=ranking)
    except InputError as error:
        with suppress(OSError, TypeError):  # a name that is too long, or no name
            if plan != "" and Path(plan).is_dir():
                raise _make_folder_error(plan) from error
        raise


def _make_folder_error(path: str | Path) -> InputError:
    return InputError(f"a plan is a file, got the folder {path}; use {Path(path, 'plan.json')}")


def _fit(choice: Choice, target: Target) -> Choice:
    """Return a choice with its plan settled for the encoder and the method."""
    blocks, method = target.encoder.blocks, target.method
    plan = choice.plan.on(blocks)
    check_tunes_blocks(plan, method)
    full = len(plan.tuned) == plan.head == blocks
    if full and not plan.embeddings and isinstance(method, Full):
        raise InputError(
            f"full fine-tuning, (1, {blocks}, {blocks}), tunes the embeddings too, got "
            "embeddings=False; leave embeddings out"
        )
    check_embeddings(plan, blocks)
    check_tied(plan, target.shape.weights)
    return replace(choice, plan=apply_method(plan, method, blocks))
