"""What the studies of the papers change to run on a base-size model within hours.

Trainings of the same plan are one, whichever study asks for it.
"""

from collections.abc import Mapping
from typing import Any

TASKS = ["cola", "sst2", "wic"]
LONG = [*TASKS, "mrpc", "rte"]

# As all of them train, without what the small variants set; None takes a setting out.
TRAINED: Mapping[str, Any] = {
    "preset": None,
    "epochs": 3,
    "batch_size": 8,
    "learning_rate": None,
    "warmup": None,
    "keep": "last",
    "examples": 640,
    "validation_examples": 800,
    "sample_seed": None,
    "batching": None,
    "trunk_dropout": None,
    "task": TASKS,
}
FULL = {**TRAINED, "predictions": True}  # the same trials in several studies
PLANS = {**FULL, "grids.tuned.rates": {}, "grids.tuned.pilot": False, "axes.seed": [0, 1, 2]}
# As Tamkin et al. 2020 train, but for the number of examples.
EDITED = {"epochs": 3, "batch_size": 8, "learning_rate": None, "validation_examples": 800}
EDITED |= {"examples": 640, "task": TASKS, "batching": None}
SCANNED = {"examples": 2000, "validation_examples": 1000, "task": LONG}

# By recipe: changes of its small variant, but for the model.
BASE: Mapping[str, Mapping[str, Any]] = {
    "xie2022-scores": SCANNED,
    "xie2022-pooling": SCANNED,
    "xie2022-table6": {
        **PLANS,
        "grids.tuned.axes.plan": [
            *("best-down:1@best", "best-down:1@top", "top:1"),
            *("best-down:3@best", "best-down:3@top", "top:3"),
            *("best-up", "best-down:all@best", "best-down:all@top", "full"),
        ],
    },
    "xie2022-table7": {
        **PLANS,
        "grids.tuned.axes.plan": [
            "best-down:1@best",
            "best-down:1@top",
            "top:1",
            "best-up",
            "full",
        ],
    },
    "xie2022-middle": {
        **PLANS,
        "grids.tuned.axes.plan": [
            *("best-down:1@best", "best-down:1@top", "middle-down:1@middle", "middle-down:1@top"),
            *("best-down:3@best", "best-down:3@top", "middle-down:3@middle", "middle-down:3@top"),
        ],
    },
    "xie2022-imbalance": {},
    "xie2022-scarcity": {},
    "xie2022-after-tuning": {**FULL, "grids.tuned.axes.seed": [0, 1, 2]},
    "phang2021-truncation": {**FULL, "grids.tuned.axes.seed": [0]},
    "phang2021-cka": {**FULL, "grids.tuned.axes.seed": [0, 1, 2]},
    "lodha2023-layers": {
        **PLANS,
        "grids.tuned.axes.plan": ["full", "rank:1", "rank:3", "rank:5", "rank-bottom:1"],
    },
    "lodha2023-ranks": {**TRAINED, "preset": "lodha2023", "epochs": 4, "checkpoints": [1, 2, 4]},
    "tamkin2020-incremental": {
        **EDITED,
        "axes.edits": ["incremental:0,3,6,9,12"],
        "grids.500.axes.examples": [500],
        "grids.500.axes.seed": [0, 1, 2],
        "grids.5k.axes.examples": [5000],
        "grids.5k.axes.task": ["cola"],
        "grids.5k.axes.seed": [0],
        "grids.50k.axes.examples": [500],  # no more than these
        "grids.50k.axes.seed": [0],
    },
    "tamkin2020-localized": {
        **EDITED,
        "task": ["cola", "sst2"],
        "seed": [0],
        "grids.ends.axes.edits": ["incremental:0,12"],
    },
    "tamkin2020-permutation": {
        **EDITED,
        "grids.tuned.axes.edits": ["permutations:5"],
        "grids.ends.axes.edits": ["incremental:0,12"],
    },
    "tamkin2020-single": {**EDITED, "task": ["cola"], "seed": [0, 1]},
    "tamkin2020-rate": {**EDITED, "edits": ["incremental:0,6"], "seed": [0, 1, 2]},
    "tamkin2020-norms": {**EDITED, "edits": ["incremental:0,6"], "seed": [0, 1, 2]},
}
