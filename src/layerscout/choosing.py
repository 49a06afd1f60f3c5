"""Which plan is meant: a plan, its notation, a strategy, a plan.json, or what a scan says."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layerscout.costs import Choice, Work, choose
from layerscout.data import Task
from layerscout.encoder import Encoder
from layerscout.errors import InputError
from layerscout.plans import Plan, check_tied, make_plan
from layerscout.scanning import Scan

# What two models have in common if a plan for the one is one for the other.
SAME = ("family", "blocks", "hidden_size", "feed_forward")


@dataclass(frozen=True)
class Ground:
    """What a choice rests on.

    Attributes:
        encoder: what is tuned.
        task: what it is tuned for.
        work: the training.
        scan: of the two, where there is one.
        score: of the scan, which says what the best state is.
        budget: of "auto".
    """

    encoder: Encoder
    task: Task
    work: Work
    scan: Scan | None
    score: str
    budget: float


def needs_scan(plan: Plan | str | Path) -> bool:
    """Tell whether a plan follows from the best state of a scan."""
    if not isinstance(plan, str) or plan.endswith(".json"):
        return False
    return plan.strip().lower().startswith(("auto", "best"))


def settled(plan: Plan | str | Path, ground: Ground) -> tuple[Choice, list[str]]:
    """Turn what was asked for into a plan that fits the encoder, with the reason; and warnings.

    Raises:
        InputError: if it is no plan, it does not fit, it needs a scan that is not there, or the
            scan or the file is of a model of another shape.
    """
    warnings: list[str] = []
    blocks = ground.encoder.blocks
    shape = ground.encoder.shape(len(ground.task.labels))
    if isinstance(plan, Plan):
        choice = Choice(plan, plan.notation, f"{plan.notation} was asked for")
    elif isinstance(plan, Path) or plan.endswith(".json"):
        choice, content = _read(Path(plan))
        warnings += _of_the_same(f"the plan {plan}", content, ground)
    else:
        best = ranking = None
        if ground.scan is not None:
            warnings += _of_the_same("the scan", ground.scan.as_dict(), ground)
            best = ground.scan.best(ground.score) if needs_scan(plan) else None
            ranking = ground.scan.ranking()
        if plan.strip().lower() == "auto":
            choice = choose(shape, ground.work, best, ground.budget)
        else:
            found = make_plan(plan, blocks, best=best, ranking=ranking)
            choice = Choice(found, plan.strip(), f"{plan.strip()} was asked for")
    asked = choice.plan.on(blocks)
    if asked.embeddings != Plan(asked.tuned, asked.head).on(blocks).embeddings:
        raise InputError(
            f"embeddings are tuned in full fine-tuning, (1, {blocks}, {blocks}), and in nothing "
            f"else, got {asked.notation} with embeddings={asked.embeddings}; leave embeddings out"
        )
    check_tied(asked, shape)
    return Choice(asked, choice.strategy, choice.reason), warnings


def _read(path: Path) -> tuple[Choice, dict[str, Any]]:
    """Read a plan.json, or a file that holds just a plan."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        plan = Plan.from_dict(content.get("plan", content))
        strategy = str(content.get("strategy", plan.notation))
        return Choice(plan, strategy, str(content.get("reason", f"{path} says so"))), content
    except OSError as error:
        raise InputError(
            f"cannot read the plan {path}: {error.strerror or error}; write one with layerscout "
            "plan"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is not a plan; write one with layerscout plan") from error


def _of_the_same(what: str, content: dict[str, Any], ground: Ground) -> list[str]:
    """Refuse what was made for a model of another shape; warn of another task or checkpoint."""
    theirs, model = content.get("model"), ground.encoder.shape(len(ground.task.labels))
    if not isinstance(theirs, dict):
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
    task = (content.get("task") or {}).get("name")
    if task != ground.task.name:
        warnings.append(f"{what} is for the task {task}, not for {ground.task.name}")
    return warnings
