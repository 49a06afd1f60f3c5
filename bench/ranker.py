"""Compare with transformer-ranker, which runs in a process of its own (peers.py)."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import layerscout as ls
from layerscout.models import Encoder
from layerscout.states import clear_cache
from material import DEEP, SMALL, Bench, Texts, clocked, middle
from measuring import Section, drawn, precisions, ratio, table

ENVIRONMENT = "`make .venv/peers/ranker` makes one."

Ask = Callable[..., dict[str, Any]]


@contextmanager
def ranker(python: Path) -> Iterator[Ask]:
    """Start transformer-ranker in a process of its own; ask it with a kind of work and more."""
    command = [str(python), str(Path(__file__).with_name("peers.py")), str(torch.get_num_threads())]
    with (
        tempfile.TemporaryFile("w+") as said,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            env=os.environ | {"HF_HUB_OFFLINE": "1"},
        ) as process,
    ):
        assert process.stdin and process.stdout

        def ask(work: str, **about: Any) -> dict[str, Any]:
            print(json.dumps({"work": work} | about), file=process.stdin, flush=True)
            answer = process.stdout.readline()
            if not answer:
                said.seek(0)
                raise SystemExit(f"{' '.join(command)} ended:\n{said.read()[-2000:]}")
            return json.loads(answer)

        yield ask


def told_in_turns(repeats: int, works: Mapping[str, Callable[[], float]]) -> dict[str, list[float]]:
    """Collect the seconds that each piece of work says it took, in turns, after one round."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(1 + repeats):
        for name, work in works.items():
            seconds[name].append(work())
            print(f"  {name}: {seconds[name][-1]:.2f} s", file=sys.stderr, flush=True)
    return {name: counted[1:] for name, counted in seconds.items()}


def added(*seconds: Sequence[float]) -> list[float]:
    return [sum(each) for each in zip(*seconds, strict=True)]


def against_ranker(bench: Bench) -> Section:
    """Compare with transformer-ranker: the scores of the same states, and a whole run."""
    title = "LogME and H-score against transformer-ranker"
    if bench.ranker is None:
        return Section(
            title,
            f"Not measured: no environment with it was given (`--ranker-python`). {ENVIRONMENT}",
        )
    with ranker(bench.ranker) as ask, tempfile.TemporaryDirectory() as folder:
        versions = ", ".join(f"{p} {v}" for p, v in ask("about")["versions"].items())
        same_states = _same_states(bench, ask, Path(folder))
        runs = _runs(bench, ask, Path(folder))
    text = (
        f"{versions}, in a process of its own with as many threads ({torch.get_num_threads()}); "
        f"its imports are left out. {ENVIRONMENT}\n\n{same_states}\n\n{runs}"
    )
    return Section(title, text)


def _same_states(bench: Bench, ask: Ask, folder: Path) -> str:
    """Compare times and values on the same kept states."""
    texts = Texts(
        Encoder.load(bench.model(DEEP), device=bench.device), drawn(bench.task, bench.examples)
    )
    saved = _saved(folder / "many", np.stack(list(texts.states)), texts.split.labels)
    keys = ("logme", "h_score")
    seconds = told_in_turns(
        bench.repeats,
        {key: lambda key=key: clocked(lambda: texts.scores([key])) for key in keys}
        | {"both": lambda: clocked(lambda: texts.scores(keys))}
        | {
            f"its {key}": lambda key=key: ask("layers", key=key, **saved)["seconds"] for key in keys
        },
    )
    seconds["its both"] = added(seconds["its logme"], seconds["its h_score"])
    rows = [
        [
            name if name == "both" else f"`{name}`",
            middle(seconds[name]),
            middle(seconds[f"its {name}"]),
            ratio(seconds[f"its {name}"], seconds[name], 1),
        ]
        for name in (*keys, "both")
    ]
    timed = (
        f"The same states of {DEEP} (0..12, {len(texts.split):,} examples, float32), ours read "
        "back from the cache, its in memory. Target: 10 or more for both.\n\n"
    ) + table(["score", "ours", "its", "times faster"], rows)
    return timed + "\n\n" + _values(texts, ask, folder)


def _saved(path: Path, H: np.ndarray, y: np.ndarray) -> dict[str, str]:
    np.save(path.with_suffix(".states.npy"), H)
    np.save(path.with_suffix(".labels.npy"), y)
    return {
        "states": str(path.with_suffix(".states.npy")),
        "labels": str(path.with_suffix(".labels.npy")),
    }


def _values(texts: Texts, ask: Ask, folder: Path) -> str:
    """Compare the values, as they are and with what is defined otherwise taken out."""
    rows = []
    _, n, d = texts.states.shape
    for size in (n, d // 2):
        some = np.linspace(0, n - 1, size).astype(int)
        part = Texts(texts.encoder, texts.split.take(some))
        H, y = np.stack(list(part.states)), part.split.labels
        saved = _saved(folder / str(size), H, y)
        ours = {
            key: np.array(score.values) for key, score in part.scores(["logme", "h_score"]).items()
        }
        settled = {"max_iter": 100_000, "tol": 1e-12}
        pairs = {
            "`logme`": (ours["logme"], ask("layers", key="logme", **saved)),
            "`logme`, its iteration run to the end": (
                ours["logme"],
                ask("layers", key="logme", **saved, **settled),
            ),
            "`h_score`": (ours["h_score"], ask("layers", key="h_score", **saved)),
            "`h_score` × n / (n − 1)": (
                ours["h_score"] * size / (size - 1),
                ask("layers", key="h_score", **saved),
            ),
        }
        for name, (mine, answer) in pairs.items():
            its = np.array(answer["values"])
            difference = np.abs(mine / its - 1).max()
            best = f"{1 + mine[1:].argmax()}, {1 + its[1:].argmax()}"
            rows.append([f"{size:,}", name, f"{difference:.1e}", best])
    text = (
        "The values. LogME is the same evidence; it stops after 11 steps or a change of 1e-3, and "
        "adds 1e-5 to two denominators. With fewer examples than features it leaves out "
        "(d − n)/2 · log α, so its evidence differs from ours. Its H-score divides Σ_b by n − 1, "
        "ours by n, as Σ.\n\n"
    )
    columns = ["examples", "score", "largest relative difference", "ℓ* ours, its"]
    return text + table(columns, rows)


def _runs(bench: Bench, ask: Ask, folder: Path) -> str:
    """Compare a scan with a run, from loading to the result."""
    model, split = bench.model(SMALL), drawn(bench.task, bench.few)
    held = folder / "examples.json"
    held.write_text(json.dumps({"text": list(split.texts), "label": split.labels.tolist()}))
    about = {"model": str(model), "examples": str(held), "device": bench.device}

    def scan(precision: str, keys: Sequence[str]) -> float:
        clear_cache()
        return clocked(
            lambda: ls.scan(
                Encoder.load(model, device=bench.device, precision=precision),
                bench.task,
                scores=keys,
                examples=bench.few,
                progress=False,
            )
        )

    keys, taken = ("logme", "h_score"), precisions(model, bench.device)
    seconds = told_in_turns(
        min(bench.repeats, 3),
        {
            **{precision: partial(scan, precision, keys) for precision in taken},
            "its logme": lambda: ask("run", key="logme", **about)["seconds"],
            "its h_score": lambda: ask("run", key="h_score", **about)["seconds"],
        },
    )
    rows = [
        [
            f"its {which}",
            middle(its),
            *(ratio(its, seconds[precision], 1) for precision in taken),
        ]
        for which, its in (
            ("run for `hscore`", seconds["its h_score"]),
            ("run for `logme`", seconds["its logme"]),
            ("two runs for both", added(seconds["its h_score"], seconds["its logme"])),
        )
    ]
    ours = ", ".join(f"{middle(seconds[precision])} in {precision}" for precision in taken)
    text = (
        f"A whole scan for both scores against its `run` with `bestlayer`, which computes one, of "
        f"{SMALL} on the same {len(split):,} texts, from loading the model to the result. The scan "
        f"took {ours}; `auto` was {taken[-1]} here. It averages tokens; its run averages the parts "
        "of a word, then words. Target: more than 1.\n\n"
    )
    columns = ["against", "its time", *(f"times faster in {precision}" for precision in taken)]
    return text + table(columns, rows)
