"""Which plan is meant: a plan, its notation, a strategy, a plan.json, or what a scan says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from layerscout.data import Task
from layerscout.models import Encoder
from layerscout.plans import (
    FULL,
    Choice,
    Classifier,
    Full,
    Method,
    ModelShape,
    Plan,
    Work,
    applied,
    check_family,
    check_tied,
    check_tunes_blocks,
    check_untied,
    choose,
    described,
    make_method,
    make_plan,
)
from layerscout.runtime import InputError, read_json
from layerscout.scanning import Scan
from layerscout.scores import SCORES

# What two models have in common if a plan for the one is one for the other.
SAME = ("family", "blocks", "hidden_size", "feed_forward")


@dataclass(frozen=True)
class Ground:
    """What a choice rests on.

    Attributes:
        encoder: what is tuned.
        task: what it is tuned for.
        scan: of the two, where there is one.
        score: of the scan, which says what the best state is.
        budget: of "auto".
        method: how the blocks of the plan are tuned.
        head: what reads the last state.
    """

    encoder: Encoder
    task: Task
    scan: Scan | None
    score: str
    budget: float
    method: Method = FULL
    head: Classifier = "family"

    @cached_property
    def shape(self) -> ModelShape:
        """Sizes and parameter counts of the encoder with its head for the task."""
        return self.encoder.shape(len(self.task.labels), self.task.kind, self.head)


def needs_scan(plan: Plan | str | Path) -> bool:
    """Tell whether a plan follows from what a scan finds: its best state, or its rank of blocks."""
    if not isinstance(plan, str) or plan.endswith(".json"):
        return False
    return plan.strip().lower().startswith(("auto", "best", "rank"))


def written_method(plan: Plan | str | Path) -> Method | None:
    """Give the method that a plan.json was written for; None if it, or another plan, has none.

    Raises:
        InputError: if it is no plan, or there is no such method.
    """
    if not isinstance(plan, Path) and not (isinstance(plan, str) and plan.endswith(".json")):
        return None
    content = _read(Path(plan))[1]
    if content.get("method") is None:
        return None
    options = content.get("method_options") or {}
    if not isinstance(options, Mapping) or "method" in options:
        raise InputError(f"{plan} is not a plan; write one with layerscout plan")
    return make_method(content["method"], **options)


def chosen_method(plan: Plan | str | Path, name: str | None, **options: Any) -> Method:
    """Give the method that was asked for, or else the one that a plan.json was written for.

    Args:
        plan: what may be a plan.json.
        name: a key of `layerscout.plans.methods.METHODS`; None to go by the plan.
        options: of the method, by name; they go before those that were written.

    Raises:
        InputError: if the options are not of the method, or the plan is none.
    """
    written = written_method(plan)
    if name is None and written is not None:
        given = {key: value for key, value in options.items() if value is not None}
        return make_method(written.name, **described(written) | given)
    return make_method(name or FULL.name, **options)


def check(plan: Plan | str | Path, ground: Ground) -> None:
    """Refuse what the plan and the model alone, or a scan that is there, show to be impossible.

    Raises:
        InputError: as `settled`.
    """
    _check_model(ground)
    if ground.scan is not None:
        _of_the_same("the scan", ground.scan.as_dict(), ground)
    if _is_auto(plan):
        if ground.scan is not None:
            ground.scan.basis(ground.score)
        return
    if ground.scan is not None or not needs_scan(plan):
        _fitting(*_explicit(plan, ground), ground)
        return
    blocks = ground.encoder.blocks
    if str(plan).strip().lower().startswith("rank"):
        ranks = SCORES[ground.score].of == "blocks"
        _from_text(plan, blocks, None, [None, *[1.0] * blocks] if ranks else None)
        return
    refusals: list[InputError] = []
    for best in range(1, blocks + 1):  # what the scan might find
        try:
            _fitting(Choice(_from_text(plan, blocks, best, None), "", ""), [], ground)
            return
        except InputError as error:
            refusals.append(error)
    raise refusals[0]


def settled(plan: Plan | str | Path, ground: Ground, work: Work) -> tuple[Choice, list[str]]:
    """Turn what was asked for into a plan that fits the encoder, with the reason; and warnings.

    Args:
        plan: what was asked for.
        ground: what the choice rests on.
        work: the training, which "auto" weighs.

    Raises:
        InputError: if it is no plan, it does not fit, it needs a scan that is not there, the scan
            or the file is of a model of another shape, or the method is not for the model or the
            plan.
    """
    _check_model(ground)
    if not _is_auto(plan):
        return _fitting(*_explicit(plan, ground), ground)
    best = None if ground.scan is None else ground.scan.detected(ground.score)
    choice, warnings = choose(ground.shape, work, best, ground.budget, ground.method), []
    if ground.scan is not None:
        warnings = _of_the_same("the scan", ground.scan.as_dict(), ground)
    return _fitting(choice, warnings, ground)


def _is_auto(plan: Plan | str | Path) -> bool:
    return isinstance(plan, str) and plan.strip().lower() == "auto"


def _check_model(ground: Ground) -> None:
    """Refuse a method that the model cannot have, whatever the plan."""
    check_family(ground.shape.family, ground.method)
    check_untied(ground.shape.family, ground.shape.weights, ground.method)


def _explicit(plan: Plan | str | Path, ground: Ground) -> tuple[Choice, list[str]]:
    """Turn anything but "auto" into a plan; and warnings."""
    if isinstance(plan, Plan):
        return Choice(plan, plan.notation, f"{plan.notation} was asked for"), []
    if isinstance(plan, Path) or (isinstance(plan, str) and plan.endswith(".json")):
        choice, content = _read(Path(plan))
        return choice, _of_the_same(f"the plan {plan}", content, ground)
    warnings: list[str] = []
    best = ranking = None
    if ground.scan is not None:
        warnings = _of_the_same("the scan", ground.scan.as_dict(), ground)
        if needs_scan(plan):
            best, ranking = ground.scan.basis(ground.score)
    found = _from_text(plan, ground.encoder.blocks, best, ranking)
    return Choice(found, plan.strip(), f"{plan.strip()} was asked for"), warnings


def _from_text(
    plan: Any, blocks: int, best: int | None, ranking: Sequence[float | None] | None
) -> Plan:
    try:
        return make_plan(plan, blocks, best=best, ranking=ranking)
    except InputError as error:
        with suppress(OSError, TypeError):  # a name that is too long, or no name
            if Path(plan).is_dir():
                raise _folder(plan) from error
        raise


def _folder(path: str | Path) -> InputError:
    return InputError(f"a plan is a file, got the folder {path}; use {Path(path, 'plan.json')}")


def _fitting(choice: Choice, warnings: list[str], ground: Ground) -> tuple[Choice, list[str]]:
    """Settle a plan for the encoder and the method."""
    blocks = ground.encoder.blocks
    asked = choice.plan.on(blocks)
    check_tunes_blocks(asked, ground.method)
    implied = Plan(asked.tuned, asked.head).on(blocks).embeddings
    left = implied and not isinstance(ground.method, Full)  # which the plan may say or not
    if asked.embeddings != implied and not left:
        raise InputError(
            f"embeddings are tuned in full fine-tuning, (1, {blocks}, {blocks}), and in nothing "
            f"else, got {asked.notation} with embeddings={asked.embeddings}; leave embeddings out"
        )
    check_tied(asked, ground.shape.weights)
    asked = applied(asked, ground.method, blocks)
    return Choice(asked, choice.strategy, choice.reason), warnings


def _read(path: Path) -> tuple[Choice, dict[str, Any]]:
    """Read a plan.json, or a file that holds just a plan."""
    try:
        content = read_json(path)
        plan = Plan.from_dict(content.get("plan", content))
        strategy = content.get("strategy", plan.notation)
        reason = content.get("reason", f"{path} says so")
        texts = isinstance(strategy, str) and isinstance(reason, str)
        parts = (content.get(part, {}) for part in ("model", "task"))
        if not texts or not all(isinstance(part, Mapping) for part in parts):
            raise TypeError("an entry is of another type")
        return Choice(plan, strategy, reason), content
    except IsADirectoryError as error:
        raise _folder(path) from error
    except OSError as error:
        raise InputError(
            f"cannot read the plan {path}: {error.strerror or error}; write one with layerscout "
            "plan"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is not a plan; write one with layerscout plan") from error


def _of_the_same(what: str, content: dict[str, Any], ground: Ground) -> list[str]:
    """Refuse what was made for a model of another shape; warn of another task or checkpoint."""
    theirs, model = content.get("model"), ground.shape
    if theirs is None:
        return []
    for name in SAME:
        if theirs.get(name) != getattr(model, name):
            raise InputError(
                f"{what} is for {theirs.get('name')} ({name}={theirs.get(name)}), but "
                f"{ground.encoder.name} has {name}={getattr(model, name)}; scan that model"
            )
    warnings = []
    if theirs.get("source") != ground.encoder.source:
        warnings.append(f"{what} is for {theirs.get('name')}, not for {ground.encoder.name}")
    spec = ground.encoder.edit_spec
    if theirs.get("editing") != (None if spec is None else spec.as_dict()):
        warnings.append(f"{what} is for a model whose blocks were not edited as they are now")
    task = content.get("task", {}).get("name")
    if task != ground.task.name:
        warnings.append(f"{what} is for the task {task}, not for {ground.task.name}")
    return warnings
