"""Where the parameters of a model lie, and which of them a plan tunes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from layerscout.models.architecture import base_of, blocks_of, count_blocks, family_of
from layerscout.plans import Plan, make_plan, ranges, weight_sets
from layerscout.runtime import InputError

Place = str | tuple[int, ...]


def locate_parameters(model: Any) -> dict[str, Place]:
    """Find where each parameter of a transformers model lies.

    Returns:
        By name: "embeddings", "head", or the numbers of its blocks (several in ALBERT). What lies
        in neither block nor head counts as embeddings: the relative positions of DeBERTa and MPNet,
        DeBERTa-v2's norm and convolution beside the blocks, the projections of ELECTRA and ALBERT.
        Weights that the head is tied to lie where the encoder has them.

    Raises:
        InputError: if it is not a transformers model of a supported family.
    """
    family = family_of(model)
    base, prefix = base_of(model)
    heads = tuple(f"{part}." for part in family.head_parts)
    sets = weight_sets(count_blocks(model), len(blocks_of(base, family)))
    named = list(model.named_parameters(remove_duplicate=False))
    found: dict[str, Place] = {}
    for name, _ in named:
        inner = name.removeprefix(prefix)
        if not name.startswith(prefix) or inner.startswith(heads):
            found[name] = "head"
        elif inner.startswith(f"{family.blocks}."):
            group = int(inner.removeprefix(f"{family.blocks}.").split(".")[0])
            found[name] = tuple(i for i, theirs in enumerate(sets, start=1) if theirs == group)
        else:
            found[name] = "embeddings"
    inside = {id(parameter): found[name] for name, parameter in named if found[name] != "head"}
    return {name: inside.get(id(parameter), "head") for name, parameter in named}


def head_modules(model: Any, found: Mapping[str, Place]) -> list[str]:
    """Name the modules that make up the head, in full."""
    prefix = base_of(model)[1]
    parts = [f"{prefix}{part}" for part in family_of(model).head_parts]

    def name_module(name: str) -> str:
        return next((p for p in parts if name.startswith(f"{p}.")), name.split(".")[0])

    names = [name for name, place in found.items() if place == "head"]
    return list(dict.fromkeys(map(name_module, names)))


def fit_plan(model: Any, plan: Plan | str) -> tuple[Plan, dict[str, Place]]:
    """Check a plan against a whole model; give it for this model, and where the parameters lie.

    Raises:
        InputError: if the plan does not fit the model, or tears apart blocks that share weights.
    """
    found = locate_parameters(model)
    blocks = count_blocks(model)
    plan = (plan if isinstance(plan, Plan) else make_plan(plan, blocks)).on(blocks)
    if plan.head != blocks:
        raise InputError(
            f"the head must be on the model's top block, {blocks}, got a plan with the head at "
            f"{plan.head}; cut the model with layerscout.build, or load it with num_hidden_layers="
            f"{plan.head}"
        )
    tuned, matched = set(plan.tuned), set[int]()
    for place in found.values():
        if isinstance(place, tuple) and not tuned.isdisjoint(place):
            matched.update(place)
    if tuned < matched:
        raise InputError(
            f"blocks that share their weights must be tuned together, got {plan.notation}, which "
            f"leaves out {ranges(sorted(matched - tuned))}; give each its own with "
            "layerscout.build(..., untie=True)"
        )
    if matched != tuned:
        raise InputError(f"blocks {ranges(sorted(tuned - matched))} have no parameters to tune")
    return plan, found


def tunes(plan: Plan, place: Place) -> bool:
    """Say whether a plan trains the parameters of a place."""
    if place == "head":
        return True
    if place == "embeddings":
        return bool(plan.embeddings)
    return not set(plan.tuned).isdisjoint(place)


def tied_to_embeddings(model: Any, found: Mapping[str, Place]) -> list[str]:
    """List the parameters of the head that are the embeddings' too."""
    prefix = base_of(model)[1]
    return [n for n, place in found.items() if not n.startswith(prefix) and place != "head"]
