"""The content of `scan.json` as tests of what is shown need it: one score, or all of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from layerscout.scores import RETIRED, SCORES

CURVE = [13.93, 12.231234567890123, 5.38, 6.99, 12.65, 10.8, 10.75]


def score(
    values: Sequence[float | None], better: str = "lower", of: str = "states", **more: Any
) -> dict[str, Any]:
    return {"of": of, "better": better, "values": list(values), "low": [], "high": [], **more}


def scan(
    scores: Mapping[str, Any] | None = None,
    best: Mapping[str, int | None] | None = None,
    **more: Any,
) -> dict[str, Any]:
    scores = scores or {"variability_ratio": score(CURVE)}
    blocks = len(next(iter(scores.values()))["values"]) - 1
    return {
        "layerscout": "0.1.0",
        "verb": "scan",
        "model": {
            "name": "tiny",
            "source": "tiny",
            "family": "bert",
            "blocks": blocks,
            "hidden_size": 384,
            "parameters": {"embeddings": 1, "blocks": [2], "head": 3, "total": 22713216},
        },
        "task": {
            "name": "reviews",
            "kind": "classification",
            "labels": ["bad", "good"],
            "metric": "accuracy",
            "examples_used": 2000,
            "examples_available": 67349,
            "tokens_per_example": 13.34,
        },
        "settings": {"pooling": "mean", "max_length": 128, "precision": "float32", "seed": 0},
        "scores": scores,
        "best": {"variability_ratio": 2} if best is None else best,
        "warnings": [],
        "seconds": {"forward": 3.21, "scores": 0.1},
    } | more


def best_entry(content: Mapping[str, Any]) -> int | None:
    sign = 1 if content["better"] == "lower" else -1
    entries = [(sign * v, i) for i, v in enumerate(content["values"]) if i and v is not None]
    return min(entries)[1] if entries else None


def debiased(blocks: int) -> dict[str, Any]:
    """The debiased ratio: a valley at two thirds, with neighbours that are not told apart."""
    valley = round(blocks * 2 / 3)
    values = [0.8 + 3 * ((i - valley) / blocks) ** 2 + 0.01 * (i % 2) for i in range(blocks + 1)]
    values[0] = 6.2
    best = best_entry(score(values))
    apart: list[bool | None] = [abs(i - valley) > 1 for i in range(blocks + 1)]
    return score(
        values,
        low=[0.9 * v for v in values],
        high=[1.13 * v for v in values],
        details={
            "signal_fraction": [
                0.5 + 0.45 * math.exp(-abs(i - valley) / 6) for i in range(blocks + 1)
            ],
            "level": 0.95,
            "separable_from_best": [separable and i != best for i, separable in enumerate(apart)],
        },
    )


def quality(blocks: int) -> dict[str, Any]:
    """The held-out quality of a head: a peak at two thirds, with gaps to the other states."""
    peak = blocks * 2 / 3
    values = [0.5 + 0.3 * math.exp(-(((i - peak) / blocks) ** 2)) for i in range(blocks + 1)]
    best = best_entry(score(values, "higher"))
    gaps = [[values[best] - value, 0.02] for value in values]
    return score(
        values,
        "higher",
        low=[value - 0.03 for value in values],
        high=[value + 0.03 for value in values],
        details={
            "level": 0.95,
            "separable_from_best": [gap > width for gap, width in gaps],
            "behind_best": gaps,
            "majority": 0.55,
        },
    )


def full(blocks: int = 12, without: Sequence[str] = ()) -> dict[str, Any]:
    """A scan with every score: a refused one, an undefined one, numbers small, large, negative."""
    entries = range(blocks + 1)

    def hump(peak: float, low: float, high: float) -> list[float]:
        return [low + (high - low) * math.exp(-(((i - peak) / (blocks / 3)) ** 2)) for i in entries]

    def by_block(values: list[float], **details: Any) -> dict[str, Any]:
        return score([None, *values[1:]], "higher", "blocks", details=details)

    debiased_ratio, third = debiased(blocks), blocks / 3
    probe = hump(2 * third, 0.71, 0.8693)
    errors = [0.004 + 0.001 * (i % 3) for i in entries]
    fisher = hump(blocks, 1.2e-7, 5.9e-3)
    spread = [None, *(0.3 * v for v in fisher[1:])]
    scores = {
        "head_quality": quality(blocks),
        "variability_ratio_debiased": debiased_ratio,
        "variability_ratio": score([1.4 * v for v in debiased_ratio["values"]]),
        "nc1": score([120.0 * v for v in debiased_ratio["values"]]),
        "cca": score(hump(2 * third, 0.31, 0.66), "higher"),
        "ridge": score(hump(2 * third + 1, 0.55, 0.81), "higher"),
        "logme": score(hump(2 * third + 1, -0.71, -0.522), "higher"),
        "h_score": score(hump(third, 0.1, 0.62), "higher"),
        "numerical_rank": score([3 + 15000 / (1 + i) ** 2 for i in entries]),
        "knn": score([0.6] + [None] * blocks, "higher"),
        "mutual_information": score(
            [None] * (blocks + 1),
            "higher",
            details={
                "refused": "mutual information needs 20 or more examples of every class, got 7 of "
                "class 'entailment'; use more examples"
            },
        ),
        "codelength": score([0.4 + 0.2 / (1 + i) for i in entries]),
        "loes": score([0.9 - i / 100 for i in entries]),
        "entropy": score([3 + 1 / (1 + i) for i in entries], "higher"),
        "probe": score(
            probe,
            "higher",
            low=[v - 2 * e for v, e in zip(probe, errors, strict=True)],
            high=[v + 2 * e for v, e in zip(probe, errors, strict=True)],
            details={
                "kind": "linear",
                "standard_error": errors,
                "majority": 0.5278,
                "metric": "accuracy",
            },
        ),
        "fisher": score(
            [None, *fisher[1:]],
            "higher",
            "blocks",
            details={
                "mode": "true",
                "spread": spread,
                "by_seed": [[None, *fisher[1:]]],
                "parts": {
                    "attention": [None, *(0.4 * v for v in fisher[1:])],
                    "feed_forward": [None, *(0.6 * v for v in fisher[1:])],
                },
                "notes": ["the embeddings are left out"],
            },
        ),
        "gradient_norm": by_block(hump(1, 0.1, 3.0)),
        "saliency": by_block(hump(1, 10, 900.0)),
        "weight_snr": by_block(
            hump(third, 2, 7.0),
            by_type={"query": [None, *hump(2, 1.0, 2.0)[1:]], "key": [None] * (blocks + 1)},
        ),
        "cka_change": by_block(hump(1, 0.01, 0.33), debiased=[None, *hump(1, 0.02, 0.4)[1:]]),
    }
    assert scores.keys() == {*SCORES, *RETIRED}
    scores = {key: content for key, content in scores.items() if key not in without}
    of_states = [key for key, content in scores.items() if content["of"] == "states"]
    of_blocks = [key for key in scores if key not in of_states]
    best = {key: best_entry(content) for key, content in scores.items()}
    checkpoints = ["checkpoint-0", "checkpoint-1000", "checkpoint-2000"]
    return scan(
        scores,
        best,
        diagnostics={
            "smoothness": {key: None if key == "knn" else 0.7 for key in of_states},
            "against_probe": {
                key: {
                    "pearson": -0.93,
                    "r_squared": 0.8649,
                    "slope": -0.0123,
                    "intercept": 0.91,
                    "spearman": -0.95,
                    "states": blocks,
                }
                for key in of_states
                if key != "probe"
            },
            **{
                f"agreement_of_{of}": {
                    "best": {key: best[key] for key in keys},
                    "kendall": {
                        a: {
                            b: None if "knn" in (a, b) else 1.0 - 0.15 * abs(i - j)
                            for j, b in enumerate(keys)
                        }
                        for i, a in enumerate(keys)
                    },
                }
                for of, keys in {"states": of_states, "blocks": of_blocks}.items()
            },
        },
        stability={
            "checkpoints": checkpoints,
            "scores": {key: moved(scores[key], blocks) for key in (*of_states[:2], "fisher")},
        },
    )


def without_quality(blocks: int = 12) -> dict[str, Any]:
    """A scan with all other scores, which the debiased ratio leads."""
    return full(blocks, ["head_quality"])


def moved(content: Mapping[str, Any], blocks: int) -> dict[str, Any]:
    """How a score moves over three checkpoints; from one to the next three ranks turn round."""
    order = sorted(range(1, blocks + 1), key=lambda i: (i * 5) % blocks)
    ranks = []
    for _ in range(3):
        ranks.append([None, *(order.index(i) + 1 for i in range(1, blocks + 1))])
        order = [*order[2:3], *order[:2], *order[3:]]
    return {
        "values": [content["values"]] * 3,
        "ranks": ranks,
        "deviation": [0.0, 4 / blocks, 8 / blocks],
        "kendall": [1.0, 0.94, 0.88],
    }
