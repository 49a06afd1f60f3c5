"""Scan the rows of the board: what each adviser says of the states, and what heads on them reach.

    python bench/board_scan.py --mpnet FOLDER

A line of JSON in `bench/board/scans.jsonl` for each cell, a draw of the board's rows: which state
each score of states names, and how often a head solved on each state is right on either half of the
test rows. What has a line is not scanned again. board_advice.py judges them.
"""

import argparse
import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
from scipy.stats import rankdata

import layerscout as ls
from board import HERE, LARGE, MINILM, MPNET, SIZES, TASKS, draw_rows, name_classes
from layerscout.data import Task
from layerscout.models import Encoder, norm_means
from layerscout.scanning import name_head
from layerscout.scores import DEFAULT, SCORES, solve_head
from layerscout.states import DEFAULT_LIMIT, pool_states
from layerscout.tuning.solving import deal
from measuring import read_records

SCANS = HERE / "scans.jsonl"
NAMED, RANKS = "auto with a scan", "mean rank of all scores"
STATES = [key for key, score in SCORES.items() if score.of == "states"]
Cell = tuple[str, str, str, int]


def list_cells() -> Iterator[Cell]:
    """List what is scanned, short texts first, as `TASKS` has them."""
    few = [(SIZES[at], draw) for draw, at in product(range(2), range(2))]
    for tasks, sizes in product((TASKS[:5], TASKS[5:]), (few, [(SIZES[2], 0)])):
        yield from ((MINILM, task, *size) for size, task in product(sizes, tasks))
        yield from ((MPNET, task, *size) for size, task in product(sizes, LARGE) if task in tasks)


def name_states(scan: ls.Scan) -> dict[str, int | None]:
    """Return the state that each adviser names by a scan; None where it names none."""
    blocks = scan.model["blocks"]
    signs = {"lower": 1.0, "higher": -1.0}
    ranks = [
        rankdata([np.inf if v is None else signs[score.better] * v for v in score.values[1:]])
        for score in scan.scores.values()
    ]
    return {
        **{key: scan.best(key) for key in STATES},
        NAMED: name_head(DEFAULT, scan.scores[DEFAULT], blocks).state,
        RANKS: int(np.mean(ranks, axis=0).argmin()) + 1,
    }


def solve_states(encoder: Encoder, task: Task) -> list[list[float]]:
    """Solve a head on each state; return how often it is right on each half of the test rows."""
    states = {}
    for name in ("train", "test"):
        tokens = encoder.tokenize_split(getattr(task, name), max_length=128)
        pooled = pool_states(encoder, tokens, ("mean-all",), limit=DEFAULT_LIMIT)
        kept = pooled.states["mean-all"]
        states[name] = [norm_means(kept[s]) for s in range(1, encoder.blocks + 1)]
    y = task.train.labels
    folds, right = deal(y, np.arange(len(y))), []
    for own, test in zip(states["train"], states["test"], strict=True):
        solved = solve_head([own], y, folds, metric="accuracy", classes=len(task.labels))
        assert solved is not None, "texts differ"
        right.append(solved.head(test).argmax(axis=1) == task.test.labels)
    return halve(np.array(right)).round(5).tolist()


def halve(right: np.ndarray) -> np.ndarray:
    """Return how often each of some models, (P, n), is right on each half of the rows, (2, P)."""
    return np.stack([right[:, start::2].mean(axis=1) for start in (0, 1)])


def scan_all(given: argparse.Namespace) -> None:
    """Scan the cells that have no line yet."""
    done = {tuple(one["cell"]) for one in read_records(SCANS)}
    folders = {MINILM: given.shared / "models" / "all-MiniLM-L6-v2", MPNET: given.mpnet}
    encoders: dict[str, Encoder] = {}
    for cell in list_cells():
        model, name, size, draw = cell
        drawn = draw_rows(given.shared / "data" / name, size, draw)
        if cell in done or drawn is None or folders[model] is None:
            continue
        if model not in encoders:
            encoders[model] = Encoder.load(folders[model])
        train, test = ((list(f["text"]), list(f["label"])) for f in map(name_classes, drawn))
        task = Task.from_lists(*train, name=name, test=test)
        found = ls.scan(encoders[model], task, scores=STATES, examples="all", progress=False)
        values = solve_states(encoders[model], task)
        line = {"cell": cell, "states": name_states(found), "values": values}
        with SCANS.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(*cell, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--mpnet", type=Path, help="folder of mpnet-base")
    scan_all(parser.parse_args())


if __name__ == "__main__":
    main()
