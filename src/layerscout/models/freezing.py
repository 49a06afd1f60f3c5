"""Models that train what a plan tunes, and nothing else."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from layerscout.models.places import fit_plan, tied_to_embeddings, tunes
from layerscout.plans import Plan, ranges
from layerscout.runtime import InputError


@dataclass(frozen=True, repr=False)
class Frozen:
    """What `freeze` did to a model.

    Attributes:
        trained: names of the parameters that are trained, each tensor once.
        frozen: names of the others.
        summary: the same in one line: how many, and which parts of the model they are.
    """

    trained: tuple[str, ...]
    frozen: tuple[str, ...]
    summary: str

    def __str__(self) -> str:
        return self.summary

    def __repr__(self) -> str:
        return f"<Frozen: {self.summary}>"


def freeze(model: Any, plan: Plan | str) -> Frozen:
    """Make a transformers model train what the plan tunes, and nothing else.

    The model may be bare or have any head, which is trained. Weights that the head shares with
    the embeddings, as the output of a masked-language model does, are treated as embeddings.

    Args:
        model: of a supported family, with as many blocks as the plan's head says; nothing but
            `requires_grad` of its parameters is changed.
        plan: a plan, or a strategy that needs no scan, such as "top:3" or "(7, 9, 12)".

    Returns:
        What is trained and what is frozen.

    Raises:
        InputError: if the plan does not fit the model, or nothing would be trained.
    """
    plan, found = fit_plan(model, plan)
    named = dict(model.named_parameters())
    trained = tuple(name for name in named if tunes(plan, found[name]))
    if not trained:
        raise InputError(
            f"{plan.notation} tunes only the head, and {type(model).__name__} has none; tune "
            "blocks too, or take a model with a head"
        )
    train_only(model, set(trained))
    parts = ["embeddings"] if plan.embeddings else []
    parts += [f"blocks {ranges(plan.tuned)}"] if plan.tuned else []
    parts += ["head"] if any(found[name] == "head" for name in trained) else []
    sizes = sum(named[name].numel() for name in trained), sum(p.numel() for p in named.values())
    tied = tied_to_embeddings(model, found)
    return Frozen(
        trained,
        tuple(name for name in named if name not in set(trained)),
        f"trains {len(trained)} of {len(named)} tensors, {sizes[0]:,} of {sizes[1]:,} parameters: "
        + ", ".join(parts)
        + (f"; {tied[0]} is tied to the frozen embeddings" if tied and not plan.embeddings else ""),
    )


def train_only(model: Any, names: AbstractSet[str]) -> None:
    """Make the parameters of these names ask for gradients, and no others."""
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in names)
