"""Run the board: what one would use, ours and others', from the same rows to a model.

    python bench/board.py --mpnet FOLDER --hours 2
    python bench/board.py --dry-run

A line of JSON in `bench/board/records.jsonl` for each contender of each cell (a model, a task, so
many rows and a draw of them); what has one is not run again: to repeat a run, delete its line. All
of a draw comes before the next, so that a grid that was stopped has something of everything. Each
contender is a file in `bench/board/contenders/`, run in a process of its own with one thread, in an
environment made from the packages that it names; seconds are of the processor, from the start to
the saved model. board_page.py judges the records.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
import venv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from layerscout.scores import measure_calibration
from measuring import read_records

MINILM, MPNET = "MiniLM-L6", "mpnet-base"
HERE = Path(__file__).parent / "board"
RECORDS, CONTENDERS = HERE / "records.jsonl", HERE / "contenders"

# Texts of each class from which few are drawn, so that draws are of the same; and the test rows.
POOL, TEST = 256, 500
# Short texts first, then those of news and mail, which take two to ten times as long.
TASKS = (
    "trec6",
    "cr",
    "emotion6",
    "sst5",
    "amazon_counterfactual_en",
    "cola",
    "ag_news",
    "enron_spam",
)
LARGE = ("trec6", "cr", "emotion6", "sst5")  # those of the larger model


@dataclass(frozen=True)
class Contender:
    """One way from rows to a model.

    Attributes:
        file: that carries it out.
        options: of that.
        price: about its seconds for MiniLM with 8 and 32 of each class, 1,000 and 4,000 rows; None
            where it is not run.
    """

    file: str
    options: tuple[str, ...]
    price: tuple[float | None, ...]


SIZES = ("8 of each class", "32 of each class", "1,000", "4,000")
FREE, AUTO, WORDS, SETFIT = "free head", "auto", "counting words", "SetFit"
LIMITS = {f"auto, {n} min": 60 * n for n in (1, 3, 10)}
AUTOGLUON = {f"AutoGluon, {n} min": 60 * n for n in (1, 3)}
BOARD: Mapping[str, Contender] = {
    WORDS: Contender("words", (), (3, 3, 3, 4)),
    "regression on embeddings": Contender("regression", (), (12, 13, 22, 50)),
    FREE: Contender("ours", ("--plan", "head:best"), (7, 9, 20, 50)),
    AUTO: Contender("ours", (), (45, 120, 110, 300)),
    "model2vec": Contender("model2vec_static", (), (60, 60, 60, 90)),
    SETFIT: Contender("setfit_pairs", (), (140, 560, None, None)),
    "FastFit": Contender("fastfit_batches", (), (100, 200, None, None)),
    "Trainer": Contender("trainer", ("--epochs", "10"), (30, 60, 130, 520)),
    "LoRA": Contender("trainer", ("--lora", "--epochs", "10"), (25, 45, 95, 380)),
    **{
        name: Contender(file, ("--time", str(limit)), (60, limit, limit, limit))
        for file, limits in (("ours", LIMITS), ("autogluon_time", AUTOGLUON))
        for name, limit in limits.items()
    },
    "all blocks": Contender("ours", ("--plan", "full"), (80, 160, 240, 600)),
}
# Which blocks, and which loss: plans by name whose head is solved in the end.
PLANS: Mapping[str, Sequence[str]] = {
    MINILM: ("(3,6,6)", "(3,4,4)", "(5,6,6)"),
    MPNET: ("(5,12,12)", "(9,12,12)", "(9,10,10)", "(7,8,8)"),
}
LOSSES: Mapping[str, Sequence[str]] = {
    "contrastive": ("--loss", "contrastive"),
    "cross-entropy": (),
}


def name_plans(model: str) -> list[str]:
    """Name the contenders that train a plan of a model by name."""
    return [f"{loss} {plan}" for plan, loss in product(PLANS[model], LOSSES)]


def find_contender(name: str) -> Contender:
    """Return a contender by its name."""
    if name in BOARD:
        return BOARD[name]
    loss, plan = name.split()
    options = ("--plan", plan, "--head-end", "solved", *LOSSES[loss])
    return Contender("ours", options, BOARD[AUTO].price)


@dataclass(frozen=True)
class Round:
    """Contenders for a model and so many rows, on some tasks, in each of these draws."""

    model: str
    size: str
    contenders: Sequence[str]
    draws: int
    tasks: Sequence[str] = TASKS


CHEAP = (WORDS, "regression on embeddings", FREE)
PEERS = ("model2vec", "FastFit", "Trainer", "LoRA")
# Most draws where they decide most: few rows, and `auto` against what is free. Peers that take ten
# times as long have one draw or two.
ROUNDS = (
    Round(MINILM, SIZES[0], (*CHEAP, AUTO), 5),
    Round(MINILM, SIZES[1], (*CHEAP, AUTO), 5),
    Round(MPNET, SIZES[0], (*CHEAP, AUTO), 3, LARGE),
    Round(MINILM, SIZES[2], (*CHEAP, AUTO), 2),
    Round(MINILM, SIZES[2], ("Trainer", "LoRA", "auto, 1 min"), 1),
    Round(MINILM, SIZES[0], (SETFIT,), 2),
    Round(MINILM, SIZES[1], (SETFIT,), 1),
    Round(MPNET, SIZES[0], (SETFIT,), 1, LARGE),
    Round(MINILM, SIZES[0], (*PEERS, "AutoGluon, 1 min", "all blocks"), 1),
    Round(MINILM, SIZES[1], (*PEERS, "auto, 1 min"), 1),
    Round(MINILM, SIZES[1], (*AUTOGLUON,), 1, LARGE),
    Round(MINILM, SIZES[2], ("model2vec", *AUTOGLUON), 1, LARGE),
    Round(MPNET, SIZES[1], (*CHEAP, AUTO), 1, LARGE),
    Round(MINILM, SIZES[3], (*CHEAP, AUTO, "Trainer", "LoRA", *LIMITS), 1, LARGE),
    Round(MPNET, SIZES[2], (*CHEAP, AUTO), 1, LARGE),
    Round(MINILM, SIZES[0], name_plans(MINILM), 2),
    Round(MPNET, SIZES[0], name_plans(MPNET), 1, LARGE),
    Round(MINILM, SIZES[1], name_plans(MINILM), 1),
)


@dataclass(frozen=True)
class Run:
    """What one record is about."""

    model: str
    task: str
    size: str
    draw: int
    contender: str


def list_runs() -> Iterator[Run]:
    """List all of it, the first draw of everything first."""
    for draw in range(max(each.draws for each in ROUNDS)):
        for each in ROUNDS:
            if draw < each.draws:
                for task in each.tasks:
                    for contender in each.contenders:
                        yield Run(each.model, task, each.size, draw, contender)


def price(run: Run) -> float | None:
    """Return about how many seconds it takes; None where it is not run."""
    own = find_contender(run.contender).price[SIZES.index(run.size)]
    if own is None or run.model == MINILM or run.contender in (*LIMITS, *AUTOGLUON) or own < 5:
        return own
    return 6 * own


def read_task(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the training rows of a task, and those that are predicted."""
    usual = {"sentence1": "text"}
    tested = "test" if (folder / "test.parquet").exists() else "validation"
    pool, test = (
        pd.read_parquet(folder / f"{name}.parquet").rename(columns=usual)[["text", "label"]]
        for name in ("train", tested)
    )
    return pool, test.sample(min(TEST, len(test)), random_state=0)


def pool_classes(rows: pd.DataFrame) -> list[pd.DataFrame]:
    """Return the rows of each class from which draws of few are taken."""
    return [own.sample(min(POOL, len(own)), random_state=0) for _, own in rows.groupby("label")]


def draw_rows(folder: Path, size: str, draw: int) -> tuple[pd.DataFrame, pd.DataFrame] | None:
    """Return training and test rows of a task; None where it has too few."""
    rows, test = read_task(folder)
    number = int(size.split()[0].replace(",", ""))
    if "class" not in size:
        return (rows.sample(number, random_state=draw), test) if len(rows) >= number else None
    rng = np.random.default_rng(draw)
    taken = [own.iloc[rng.permutation(len(own))[:number]] for own in pool_classes(rows)]
    return pd.concat(taken), test


def name_classes(frame: pd.DataFrame) -> pd.DataFrame:
    """Return rows whose labels are names: numbers as classes would be asked about."""
    names = [one if isinstance(one, str) else f"class {one}" for one in frame["label"]]
    return frame.assign(label=names)


def find_python(file: Path, peers: Path) -> str:
    """Return the interpreter of the environment that a contender names, made where it is not there.

    Raises:
        CalledProcessError: if packages cannot be installed.
    """
    found = re.search(r"(?ms)^# /// script\n(.*?)^# ///$", file.read_text("utf-8"))
    if found is None:
        return sys.executable
    named = tomllib.loads(re.sub(r"(?m)^# ?", "", found[1]))["dependencies"]
    if not any(one.startswith("torch==") for one in named):
        named.append(f"torch=={version('torch').split('+')[0]}")
    folder = peers / file.stem
    python, stamp = folder / "bin" / "python", folder / "installed"
    if not stamp.exists():
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *named], check=True)
        stamp.touch()
    return str(python.absolute())


def carry_out(run: Run, rows: Sequence[pd.DataFrame], model: Path, peers: Path) -> dict[str, Any]:
    """Let a contender make a model and predict.

    Raises:
        RuntimeError: if it fails.
    """
    contender = find_contender(run.contender)
    file = CONTENDERS / f"{contender.file}.py"
    python = find_python(file, peers)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        train, test = (name_classes(frame) for frame in rows)
        train.to_csv(folder / "train.csv", index=False)
        test.to_csv(folder / "test.csv", index=False)
        one = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        offline = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        environment = os.environ | one | offline | {"LAYERSCOUT_CACHE": str(folder / "cache")}
        command = [python, str(file), str(model.resolve()), "train.csv", "test.csv", "out"]
        command += ["--seed", str(run.draw), *contender.options]
        started = time.perf_counter()
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr.strip()[-1500:])
        record = json.loads(done.stdout.splitlines()[-1])
        record["wall_seconds"] = round(time.perf_counter() - started, 2)
        record["model_mb"] = round(measure_folder(folder / "out") / 2**20, 1)
        if (result := folder / "out" / "result.json").exists():
            record |= describe(json.loads(result.read_text("utf-8")))
    truth, classes = list(test["label"]), sorted(set(train["label"]))
    if (probabilities := record.pop("probabilities", None)) is not None:
        record |= judge(np.array(probabilities), np.array([*map(classes.index, truth)]))
    names = sorted({*classes, *truth})
    said = {"truth": truth, "predictions": record.pop("predictions")}
    return record | {name: encode(map(names.index, own)) for name, own in said.items()}


def measure_folder(folder: Path) -> int:
    """Return how many bytes its files have."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def encode(classes: Iterable[int]) -> str:
    """Write classes as a letter each."""
    return "".join(chr(ord("A") + one) for one in classes)


def judge(probabilities: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Return log loss and calibration error, as `tune` has them."""
    found = measure_calibration(y, np.log(np.clip(probabilities, 1e-12, 1)))
    assert found is not None, "they are finite"
    return {name: round(found[name], 5) for name in ("nll", "ece")}


def describe(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a record keeps of `result.json`: the plan, and how it compared with the rest."""
    free = result.get("free") or {}
    compared = {name: free[name] for name in ("difference", "interval", "better") if name in free}
    return {"plan": result["plan"]["notation"], "compared": compared}


def run_all(given: argparse.Namespace) -> None:
    """Run what has no record, until the time is over."""
    until = time.time() + 3600 * given.hours
    done = {tuple(record[name] for name in Run.__annotations__) for record in read_records(RECORDS)}
    models = {MINILM: given.shared / "models" / "all-MiniLM-L6-v2", MPNET: given.mpnet}
    left = [
        run
        for run in list_runs()
        if (not given.only or run.contender in given.only)
        and price(run)
        and tuple(asdict(run).values()) not in done
    ]
    hours = sum(price(run) or 0 for run in left) / 3600
    print(f"{len(left)} runs, about {hours:.1f} hours of one core", flush=True)
    if given.dry_run:
        return
    for run in left:
        model = models[run.model]
        drawn = draw_rows(given.shared / "data" / run.task, run.size, run.draw)
        if model is None or drawn is None:
            continue
        if time.time() > until:
            return
        try:
            record = asdict(run) | carry_out(run, drawn, model, given.peers)
        except (RuntimeError, subprocess.CalledProcessError) as error:
            print(f"{run} failed\n{error}", file=sys.stderr, flush=True)
            continue
        with RECORDS.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        told = f"{100 * record['value']:.1f}", f"{record['seconds']:.0f} s"
        print(*asdict(run).values(), *told, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--mpnet", type=Path, help="folder of mpnet-base")
    parser.add_argument("--peers", type=Path, default=Path(".venv/peers"))
    parser.add_argument("--hours", type=float, default=14.0)
    parser.add_argument("--only", nargs="+", help="contenders, all by default")
    parser.add_argument("--dry-run", action="store_true", help="say what is left, and its price")
    run_all(parser.parse_args())


if __name__ == "__main__":
    main()
