"""Compute with transformer-ranker what bench/scores.py asks for, and say how long it took.

It needs datasets below 4, so it stands in an environment of its own, and this file runs there.

A request is a line of JSON on the standard input, the answer one on the standard output. Loading
the package and reading a request's files are left out of the time.
"""

import json
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from transformer_ranker import TransformerRanker
from transformer_ranker.estimators import HScore, LogME

ESTIMATORS = {"logme": LogME, "h_score": HScore}
NAMES = {"logme": "logme", "h_score": "hscore"}


def layers(key: str, states: str, labels: str, **options: Any) -> dict[str, Any]:
    """Score every state of an array (S, n, d)."""
    embeddings = torch.from_numpy(np.load(states))
    targets = torch.from_numpy(np.load(labels))
    started = time.perf_counter()
    values = [ESTIMATORS[key]().fit(embeddings=H, labels=targets, **options) for H in embeddings]
    return {"seconds": time.perf_counter() - started, "values": values}


def run(key: str, model: str, examples: str, device: str) -> dict[str, Any]:
    """Rank a single model by the best of its layers, from its files and the texts."""
    held = json.loads(Path(examples).read_text("utf-8"))
    started = time.perf_counter()
    ranker = TransformerRanker(Dataset.from_dict(held))
    result = ranker.run([model], estimator=NAMES[key], layer_aggregator="bestlayer", device=device)
    return {"seconds": time.perf_counter() - started, "values": list(result.scores.values())}


def about() -> dict[str, Any]:
    """Name the versions."""
    packages = ("transformer-ranker", "torch", "transformers", "datasets")
    return {"versions": {package: version(package) for package in packages}}


def main() -> None:
    torch.set_num_threads(int(sys.argv[1]))
    # What the package prints goes to the standard error; answers have this one for themselves.
    answers, sys.stdout = sys.stdout, sys.stderr
    works = {"layers": layers, "run": run, "about": about}
    for line in sys.stdin:
        request = json.loads(line)
        answer = works[request.pop("work")](**request)
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
