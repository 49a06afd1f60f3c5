"""The factor on the logits of a trained model, and how far probabilities can be believed with it.

Those of a solved head have theirs by rows left out of it: see `solve_head`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float64

from layerscout.data import Targets
from layerscout.tuning.solving import Judged

# Parts of the validation rows, each judged with the factor that suits the others.
FOLDS = 5


def calibrate_trained(
    answers: Targets, logits: Float64[np.ndarray, "n K"]
) -> tuple[float, Float64[np.ndarray, " n"]]:
    """Return the factor for logits of rows that were not trained on, and those without each fold.

    Words of a sentence are in one fold. All are 1 for numbers.
    """
    # It loads SciPy, which a training that is measured by its metric alone does not need.
    from layerscout.scores import TRAINED, calibrate, deal_groups

    y, factors = answers.labels, np.ones(len(logits))
    if y.dtype.kind == "f":
        return 1.0, factors
    units = None if answers.tags is None else answers.tags.sentences
    folds = deal_groups(y, 0, units, groups=FOLDS, least=0)
    for fold in np.unique(folds):
        others = folds != fold
        factors[~others] = calibrate(y[others], logits[others], TRAINED) if others.any() else 1.0
    return calibrate(y, logits, TRAINED), factors


def describe_calibration(
    y: np.ndarray, judged: Judged, test: tuple[np.ndarray, np.ndarray] | None
) -> dict[str, Any] | None:
    """Return what `result.json` holds of a kept model's factor; None of numbers.

    Args:
        y: labels of the rows that are judged.
        judged: these rows, each "after" with a factor that was found without it.
        test: labels of the test rows, and the model's logits.
    """
    from layerscout.scores import measure_calibration

    def compare(y: np.ndarray, before: np.ndarray, after: np.ndarray) -> dict[str, Any]:
        return {"before": measure_calibration(y, before), "after": measure_calibration(y, after)}

    if y.dtype.kind == "f":
        return None
    return {
        "factor": judged.factor,
        "rows": len(y),
        "validation": compare(y, judged.raw, judged.raw * judged.factors[:, None]),
        "test": None if test is None else compare(test[0], test[1] / judged.factor, test[1]),
    }
