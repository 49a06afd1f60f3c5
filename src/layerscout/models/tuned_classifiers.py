"""Classifiers as they were tuned, loaded with their heads."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file

from layerscout.data import Kind, describe_kind
from layerscout.errors import InputError, first_line
from layerscout.models.architecture import ENDINGS
from layerscout.models.classifiers import (
    count_averaging,
    make_classifier,
    read_names,
    unshare_weights,
)
from layerscout.models.encoder import Encoder
from layerscout.models.shapes import model_class
from layerscout.plans import Plan


def load_tuned_classifier(encoder: Encoder, kind: Kind = "classification") -> Any:
    """Load the checkpoint of an encoder with the head that was tuned on it.

    Args:
        encoder: names the checkpoint.
        kind: of the task.

    Returns:
        The transformers model, in float32, on the encoder's device and in eval mode.

    Raises:
        InputError: if the checkpoint has no head that was tuned for such a task.
    """
    config = copy.deepcopy(encoder.model.config)
    if encoder.averages:
        if encoder.precision != "float32":
            raise InputError(
                f"the head of {encoder.name} reads a mean that needs float32, got "
                f"{encoder.precision}; use --precision float32"
            )
        count_averaging(config)
    dense = encoder.dense
    auto = model_class(config, kind, "family" if dense is None else "mean-linear")
    named = config.architectures if dense is None else None
    if named and not named[0].endswith(ENDINGS[kind]):
        raise InputError(
            f"{encoder.name} is a {named[0]}, which is not tuned for "
            f"{describe_kind(kind)}; tune it first with layerscout tune"
        )
    several = "multi_label_classification"
    problem = getattr(config, "problem_type", None)
    if problem is not None and (problem == several) != (kind == several):
        raise InputError(
            f"{encoder.name} is tuned for {problem.replace('_', ' ')}, and the task is one of "
            f"{describe_kind(kind)}; give the data that it was tuned for"
        )
    if dense is not None:
        return _load_linear(encoder, kind, dense)
    model, report = encoder.load_as(auto, config, part="head")
    if missing := sorted(report["missing_keys"]):
        raise InputError(
            f"{encoder.name} has no tuned head for {describe_kind(kind)} ({missing[0]} is "
            "missing); tune it first with layerscout tune"
        )
    return model.to(encoder.device).eval()


def read_kind(config: Any) -> Kind:
    """Return which kind of task a classifier was tuned for, from its configuration."""
    [named, *_] = config.architectures or [""]
    for kind in ("token_classification", "multiple_choice"):
        if named.endswith(ENDINGS[kind]):
            return kind
    problem: str | None = getattr(config, "problem_type", None)
    kinds: Mapping[str | None, Kind] = {
        "multi_label_classification": "multi_label_classification",
        "regression": "regression",
    }
    usual: Kind = "regression" if config.num_labels == 1 else "classification"
    return kinds.get(problem, usual)


def _load_linear(encoder: Encoder, kind: Kind, dense: Path) -> Any:
    """Load a linear head on the mean of the tokens from its folder, on a whole encoder."""
    labels = read_names(encoder.model.config)
    model = make_classifier(
        encoder, Plan((), encoder.blocks), labels, kind=kind, classifier="mean-linear"
    )
    try:
        held = load_file(dense / "model.safetensors")
        model.classifier.load_state_dict(
            {name.removeprefix("linear."): tensor for name, tensor in held.items()}
        )
    except (OSError, RuntimeError, SafetensorError) as error:
        raise InputError(
            f"cannot load the head of {encoder.name} from {dense}: {first_line(error)}; save the "
            "model again"
        ) from error
    return unshare_weights(model)
