"""Chunks of texts that the machines of a cluster read, each with a model of its own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from layerscout.errors import InputError
from layerscout.models import Precision
from layerscout.predicting.predictor import Predictor, load

# What `load` takes: a model, its base, the precision, and the longest input.
Loading = tuple[str | Path, str | Path | None, Precision, int | None]
# Texts and their pairs; None where their logits are known.
Asked = tuple[Sequence[Any], Sequence[Any] | None] | None


def find_logits(fingerprint: str, device: str, loading: Loading, asked: Asked) -> np.ndarray | None:
    """Return the logits that are asked for, on a machine of a cluster."""
    return asked and _load(fingerprint, device, *loading).find_logits(*asked)


@lru_cache(maxsize=1)
def _load(
    fingerprint: str,
    device: str,
    folder: str | Path,
    base: str | Path | None,
    precision: Precision,
    max_length: int | None,
) -> Predictor:
    """Load the model once per process: Ray gives a process many chunks.

    Raises:
        InputError: if it has another fingerprint.
    """
    predictor = load(folder, base, device=device, precision=precision, max_length=max_length)
    if predictor.fingerprint() != fingerprint:
        raise InputError(
            f"a machine of the cluster has another model at {folder}, or other versions of what "
            "runs it; give all machines the same"
        )
    return predictor
