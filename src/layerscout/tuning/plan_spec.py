"""Which plan is meant: a plan, its notation, a strategy, a plan.json, or what a scan says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerscout.data import Task
from layerscout.errors import InputError
from layerscout.files import read_json
from layerscout.models import Encoder, hash_base
from layerscout.plans import (
    BEST_HEAD,
    Choice,
    Full,
    Method,
    ModelShape,
    Plan,
    TuneRequest,
    Work,
    apply_method,
    check_embeddings,
    check_option,
    check_tied,
    check_tunes_blocks,
    make_method,
    make_plan,
    split_embeddings,
)
from layerscout.scores import SCORES

if TYPE_CHECKING:
    from layerscout.scanning import Scan

# What two models have in common if a plan for the one is one for the other.
SAME = ("family", "blocks", "hidden_size", "feed_forward")


@dataclass(frozen=True, eq=False)
class Target:
    """What a plan is chosen for.

    Attributes:
        encoder: what is tuned, with its blocks edited as was requested.
        task: what it is tuned for, with the training examples that are used.
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
class PlanSpec:
    """A plan as it was requested, with a plan.json read.

    Attributes:
        written: the notation, the strategy or the path of the file.
        choice: the plan, the strategy that it comes from and the reason; None for text, which says
            nothing without a model.
        content: all that a file holds.
        method: the method that a file was written for, if any.
    """

    written: str
    choice: Choice | None = None
    content: Mapping[str, Any] = field(default_factory=dict)
    method: Method | None = None

    @property
    def needs_scan(self) -> bool:
        """Whether it follows from the best state of a scan, or from its rank of blocks."""
        return self.choice is None and needs_scan(self.written)

    @property
    def is_head(self) -> bool:
        """Whether it tunes nothing but a head."""
        if self.choice is None:
            return self.written.lower().startswith("head:")
        return not (self.choice.plan.tuned or self.choice.plan.embeddings)

    @property
    def finds_state(self) -> bool:
        """Whether the head is read where it is best on examples left out."""
        return self.choice is None and self.written.lower() == BEST_HEAD

    @property
    def is_auto(self) -> bool:
        """Whether it is to be chosen under a budget."""
        return self.choice is None and self.written.lower() == "auto"

    @property
    def prefers_solved(self) -> bool:
        """Whether its head is solved in the end where nothing says how: "auto", or a file of it."""
        return self.is_auto or self.content.get("head_end") == "solved"


def read_plan(plan: Plan | Path | str) -> PlanSpec:
    """Return the plan that was requested, with a plan.json read.

    Raises:
        InputError: if the file cannot be read or is not a plan.
    """
    plan = check_option(TuneRequest, "plan", plan)
    if isinstance(plan, Plan):
        return PlanSpec(plan.notation, _name(plan, plan.notation))
    if isinstance(plan, str) and not plan.endswith(".json"):
        return PlanSpec(plan.strip())
    try:
        content = read_json(Path(plan))
        chosen = Plan.from_dict(content.get("plan", content))
        strategy = content.get("strategy", chosen.notation)
        reason = content.get("reason", f"{plan} says so")
        options = content.get("method_options") or {}
        texts = isinstance(strategy, str) and isinstance(reason, str)
        parts = (options, *(content.get(part, {}) for part in ("model", "task")))
        if not texts or not all(isinstance(part, Mapping) for part in parts) or "method" in options:
            raise TypeError("an entry is of another type")
    except OSError as error:
        raise InputError(
            f"cannot read the plan {plan}: {error.strerror or error}; write one with layerscout "
            "plan"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{plan} is not a plan; write one with layerscout plan") from error
    name = content.get("method")
    method = None if name is None else make_method(name, **options)
    return PlanSpec(str(plan), Choice(chosen, strategy, reason), content, method)


def _name(plan: Plan, written: str) -> Choice:
    return Choice(plan, written, f"{written} was asked for")


def needs_scan(plan: Any) -> bool:
    """Return whether a plan follows from a scan: from its best state, or its rank of blocks.

    "auto" uses a scan that is there and needs none: no scan made up for what it cost, see
    docs/measured/advice.md.
    """
    if not isinstance(plan, str):
        return False
    return split_embeddings(plan.strip().lower())[1].startswith(("best", "rank"))


def check_without_scan(spec: PlanSpec, target: Target) -> None:
    """Check a plan before there is a scan: no scan could make some strategies fit.

    Raises:
        InputError: as `settle_plan`.
    """
    blocks = target.encoder.blocks
    if not spec.needs_scan:
        if not spec.is_auto:
            settle_plan(spec, target)
        return
    ranks = [None, *[1.0] * blocks] if SCORES[target.score].of == "blocks" else None
    ranked = split_embeddings(spec.written.lower())[1].startswith("rank")
    refusals: list[InputError] = []
    for best in [None] if ranked else range(1, blocks + 1):  # what the scan might find
        try:
            plan = make_plan(spec.written, blocks, best=best, ranking=ranks)
            if not ranked:
                _fit(_name(plan, spec.written), target)
            return
        except InputError as error:
            refusals.append(error)
    raise refusals[0]


def settle_plan(spec: PlanSpec, target: Target) -> Choice:
    """Turn anything but "auto" into a plan that fits the encoder, with the reason.

    Raises:
        InputError: if it is not a plan, it does not fit, it needs a scan that is not there, or the
            method is not for the plan.
    """
    if spec.choice is not None:
        return _fit(spec.choice, target)
    if spec.finds_state:  # of 1..L; which one shows once heads are solved
        return _fit(_name(Plan((), target.encoder.blocks), BEST_HEAD), target)
    best = ranking = None
    if target.scan is not None and spec.needs_scan:
        best, ranking = target.scan.basis(target.score)
    plan = make_plan(spec.written, target.encoder.blocks, best=best, ranking=ranking)
    return _fit(_name(plan, spec.written), target)


def choose_plan(target: Target, work: Work, budget: float | None, *, few: bool = False) -> Choice:
    """Choose the plan of "auto", by the scan if there is one; see `choose`.

    Raises:
        InputError: if no plan fits into the budget, a share of full fine-tuning's training FLOPs.
    """
    from layerscout.plans import choose, suggest_default_head, suggest_upper_head

    if few:
        named = suggest_upper_head(target.shape.blocks)
    elif target.scan is None:
        named = suggest_default_head(target.shape.blocks, "there is no scan")
    else:
        named = target.scan.name_head(target.score)
    return _fit(choose(target.shape, work, named, budget, target.method, few), target)


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
    edited = model.get("editing") != encoder.editing
    untied = list(model.get("weights") or ()) != list(target.shape.weights)
    before = None if edited or untied else model.get("weights_sha256")
    if model.get("source") != encoder.source:
        warnings.append(f"{what} is for {model.get('name')}, not for {encoder.name}")
    elif before is not None and before != hash_base(encoder, encoder.blocks):
        warnings.append(
            f"{what} is for other weights of {encoder.name}, which were changed since; scan it "
            "again"
        )
    if edited:
        warnings.append(f"{what} is for a model without the present edits of its blocks")
    if task.get("name") != target.task.name:
        warnings.append(f"{what} is for the task {task.get('name')}, not for {target.task.name}")
    return warnings


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
