"""Compare layerscout with what one would use in its place: quality by time, from file to model.

    python bench/frontier.py --shared ../shared --mpnet FOLDER --smollm2 FOLDER

does what has no record in `bench/frontier/records.jsonl` yet, small groups first; `--dry-run`
prices it, and frontier_page.py judges the records. To repeat a run, delete its line. Each run is
one process with one thread, from the CSV file to the saved model: loading, scanning, choosing,
caching and validation count. Another process then predicts held-out rows, which no run has seen.
Before and after each, a matrix product shows whether the core is free; what ran beside other work
is not kept, and runs again the next time, but for `--busy`, which records the load.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from measuring import machine, measure_product, read_records

HERE = Path(__file__).parent
RECORDS = HERE / "frontier" / "records.jsonl"
PEERS = HERE / "frontier_peers.py"
HELD_OUT = 1000

# A core that reaches less than this share of the most that was measured works for others too: a
# process beside it leaves half; a virtual machine's neighbours take up to a quarter, for a second.
FREE = 0.75

# A run that takes more time than this, in times of its processor time, waited for its core.
WAITED = 1.1

MINILM, MPNET, SMOLLM2 = "MiniLM-L6", "mpnet-base", "SmolLM2-135M"

# Blocks of each model.
BLOCKS: Mapping[str, int] = {MINILM: 6, MPNET: 12, SMOLLM2: 30}

# The tasks with their metrics.
TASKS: Mapping[str, str] = {
    "sst2": "accuracy",
    "cola": "matthews_correlation",
    "mrpc": "accuracy",
    "emotions27": "accuracy",
}
PAIRS = frozenset({"mrpc"})


@dataclass(frozen=True)
class Contender:
    """One way from a file to a model.

    Attributes:
        name: as on the page.
        peer: as `frontier_peers.py` calls it; None for layerscout.
        given: options of `layerscout tune`, or how many epochs a peer trains; of SetFit, its
            num_iterations.
        epochs: about what it costs, in epochs of full fine-tuning; for a price.
    """

    name: str
    peer: str | None
    given: tuple[str, ...]
    epochs: float


def list_contenders(model: str, task: str, rows: int) -> Iterator[Contender]:
    """List what is compared for so many rows: ours as it comes, peers for more epochs if few."""
    few = rows < 1000
    epochs = {64: 50, 256: 25, 1000: 7}.get(rows, 5) if task != "emotions27" else 40
    top, mean = BLOCKS[model], ("--classifier", "mean-linear")
    if model != SMOLLM2:
        yield Contender("free head", None, ("--plan", "head:best"), 0.3)
    # Solved as well, but for a decoder's.
    trained = "trained " if model == SMOLLM2 else ""
    for name, state in (("head on the mean", 2 * top // 3), ("head on the top's mean", top)):
        yield Contender(trained + name, None, ("--plan", f"head:{state}", *mean), 0.3)
    # Of decoders one tunes LoRA's matrices. They are merged, which a head on the mean rules out.
    method = ("--method", "lora") if model == SMOLLM2 else ()
    name, third = ("top third", method) if method else ("top third, head on its mean", mean)
    yield Contender(name, None, ("--plan", f"top:{top // 3}", *third), 0.25 * epochs)
    for budget in ("0.1", "0.25", "0.5"):
        auto = ("--budget", budget, *method)
        yield Contender(f"auto, B = {budget}", None, auto, float(budget) * epochs)
    if few and (model == MINILM or rows <= 64):
        yield Contender("full", None, ("--plan", "full", *method), epochs)
    elif few:  # twenty-five epochs of it would take half an hour
        yield Contender("full, 10 epochs", None, ("--plan", "full", "--epochs", "10", *method), 10)
    yield Contender("embeddings + logistic regression", "regression", (), 0.3)
    usual = 10 if few else 3
    # Of pairs of texts 1,000 would take 14 minutes more, and stay at the majority.
    longer = {64: 30, 256: 30, 1000: None if task in PAIRS else 10}.get(rows)
    for many in (usual, longer) if longer and model == MINILM else (usual,):
        yield Contender(f"Trainer, {many} epochs", "trainer", (str(many),), many)
        if many == usual or not few:
            yield Contender(f"LoRA, {many} epochs", "lora", (str(many),), 0.7 * many)
    if model == SMOLLM2:
        if not few:  # as long as layerscout; with few texts that is its run in full
            yield Contender(f"LoRA, {epochs} epochs", "lora", (str(epochs),), 0.7 * epochs)
        return
    if few:
        yield Contender(f"Houlsby, {usual} epochs", "houlsby", (str(usual),), 0.7 * usual)
    if few and task not in PAIRS:
        pairs = 20 if rows <= 64 else 5
        yield Contender(f"SetFit, {pairs} pairs per text", "setfit", (str(pairs),), 4 * pairs)


@dataclass(frozen=True)
class Run:
    """What one record is about."""

    model: str
    task: str
    rows: int
    seed: int
    contender: Contender

    @property
    def key(self) -> dict[str, Any]:
        """Return what begins its record."""
        return {
            "model": self.model,
            "task": self.task,
            "rows": self.rows,
            "seed": self.seed,
            "contender": self.contender.name,
        }

    @property
    def price(self) -> float:
        """Estimate seconds of one core: starting, and passes over texts as first measured."""
        per_text = {MINILM: 0.035, MPNET: 0.22, SMOLLM2: 0.15}[self.model]
        texts = self.rows * (2 if self.task in PAIRS else 1)
        return 12 + per_text * texts * self.contender.epochs


def list_runs() -> list[Run]:
    """List everything, small groups first."""
    groups = [(MINILM, task, 64) for task in ("sst2", "cola")]
    groups += [(MINILM, task, 256) for task in ("sst2", "mrpc", "emotions27")]
    groups += [(MPNET, "sst2", 64), (MPNET, "sst2", 256)]
    groups += [(MINILM, task, 1000) for task in TASKS]
    groups += [(MINILM, "sst2", 4000), (MPNET, "cola", 1000)]
    groups += [(SMOLLM2, "sst2", 64), (SMOLLM2, "cola", 1000), (SMOLLM2, "sst2", 1000)]
    return [
        Run(model, task, rows, 0, contender)
        for model, task, rows in groups
        for contender in list_contenders(model, task, rows)
    ]


def write_files(shared: Path, run: Run, folder: Path) -> None:
    """Draw training rows, and write the held-out ones."""
    if run.task == "emotions27":
        frames = [
            frame[[len(one) == 1 and one[0] != "neutral" for one in frame["labels"]]]
            for frame in (
                pd.read_parquet(shared / "data" / "go_emotions" / f"{split}.parquet")
                for split in ("train", "validation")
            )
        ]
        frames = [frame.assign(label=[one[0] for one in frame["labels"]]) for frame in frames]
    else:
        frames = [
            pd.read_parquet(shared / "data" / run.task / f"{split}.parquet").rename(
                columns={"sentence1": "text", "sentence2": "second"}
            )
            for split in ("train", "validation")
        ]
    columns = ["text", *(["second"] if run.task in PAIRS else []), "label"]
    sizes = (run.rows, min(HELD_OUT, len(frames[1])))
    for name, frame, size, seed in zip(
        ("train", "test"), frames, sizes, (run.seed, 0), strict=True
    ):
        drawn = frame.sample(size, random_state=seed)[columns]
        if name == "train":  # a class with one example cannot be split by class
            drawn = drawn[drawn.groupby("label")["label"].transform("size") > 1]
        # Numbers as classes would be asked about.
        drawn["label"] = [one if isinstance(one, str) else f"class {one}" for one in drawn["label"]]
        drawn.to_csv(folder / f"{name}.csv", index=False)


def start(command: Sequence[str], folder: Path, out: Path | None = None) -> dict[str, float]:
    """Run a command with one thread; seconds of wall and processor, and peak memory."""
    set_one = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    environment = {
        **os.environ,
        **set_one,
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "LAYERSCOUT_CACHE": str(folder / "cache"),
    }
    began = time.perf_counter()
    with (folder / "errors").open("w") as errors, (out or folder / "said").open("w") as said:
        child = subprocess.Popen(
            list(command), stdout=said, stderr=errors, cwd=folder, env=environment
        )
        _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError((folder / "errors").read_text().strip()[-1000:])
    return {
        "wall_seconds": round(time.perf_counter() - began, 2),
        "seconds": round(used.ru_utime + used.ru_stime, 2),
        "peak_mb": round(used.ru_maxrss / 1024),
    }


def measure_core() -> float:
    """Measure GFLOP/s of a product of the shape of a block of mpnet-base."""
    return round(measure_product(512, 768) / 1e9, 1)


def carry_out(run: Run, shared: Path, models: Mapping[str, Path], peers: Path) -> dict[str, Any]:
    """Train one contender and predict with it."""
    contender, model = run.contender, str(models[run.model].resolve())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(shared, run, folder)
        python = sys.executable
        if contender.peer in ("setfit", "houlsby"):
            python = str((peers / contender.peer / "bin" / "python").absolute())
        out = folder / "out"
        if contender.peer is None:
            cli = str(Path(sys.executable).with_name("layerscout"))
            columns = ["--text", "text", "--label", "label"]
            columns += ["--text-pair", "second"] if run.task in PAIRS else []
            command = [cli, "tune", model, "train.csv", "-o", "out", *columns, *contender.given]
            command += ["--seed", str(run.seed), "--quiet"]
        else:
            given = ["--epochs", contender.given[0]] if contender.given else []
            command = [python, str(PEERS), "train", contender.peer, model, "train.csv", "out"]
            command += [*given, "--seed", str(run.seed)]
        free = measure_core()
        used: dict[str, Any] = start(command, folder)
        used |= {"core_gflops": [free, measure_core()], "machine": machine()}
        record: dict[str, Any] = {}
        saved = out
        if contender.peer is None:
            result = json.loads((out / "result.json").read_text("utf-8"))
            record = {"plan": result["plan"]["notation"]}
            if result.get("solved") and result["saved_as"] == "checkpoint":
                record["averages"] = True  # in one block more
            saved = out / "model"
        shutil.rmtree(out / "trainer", ignore_errors=True)
        size = measure_folder(saved)
        if (saved / "trained.safetensors").exists():  # it needs its base
            size += measure_folder(Path(model))
        predict = [python, str(PEERS), "predict", contender.peer or "layerscout", str(saved)]
        based = [] if contender.peer else ["--base", model]
        start([*predict, "test.csv", *based], folder, folder / "predicted.json")
        predicted = json.loads((folder / "predicted.json").read_text().splitlines()[-1])
        names = sorted(set(pd.read_csv(folder / "train.csv")["label"]))
        truth = list(pd.read_csv(folder / "test.csv")["label"])
    places = {name: place for place, name in enumerate(sorted({*names, *truth}))}
    return {
        **run.key,
        "peer": contender.peer,
        **used,
        "model_mb": round(size / 2**20, 1),
        "inference_ms": round(1000 * predicted["seconds"] / len(truth), 2),
        **record,
        "predictions": encode(places[one] for one in predicted["predictions"]),
        "truth": encode(places[one] for one in truth),
    }


def measure_folder(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def encode(classes: Iterable[int]) -> str:
    """Write classes as a letter each."""
    return "".join(chr(ord("A") + one) for one in classes)


def decode(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("ascii"), dtype=np.uint8) - ord("A")


def run_all(given: argparse.Namespace) -> None:
    models = {
        MINILM: given.shared / "models" / "all-MiniLM-L6-v2",
        MPNET: given.mpnet,
        SMOLLM2: given.smollm2,
    }
    records = read_records(RECORDS)
    number, of = given.part
    left = [
        run
        for run in list_runs()[number - 1 :: of]
        if models[run.model] and not any(run.key.items() <= record.items() for record in records)
    ]
    for peer in {"setfit", "houlsby"} & {run.contender.peer for run in left}:
        if not (given.peers / peer / "bin" / "python").exists():
            raise SystemExit(f"{given.peers / peer} holds no environment; `make frontier` makes it")
    hours = sum(run.price for run in left) / 3600
    print(f"{len(left)} runs, about {hours:.1f} hours of one core", flush=True)
    if given.dry_run:
        return
    RECORDS.parent.mkdir(exist_ok=True)
    here = [record for record in records if record.get("machine") == machine()]
    rates = (rate for record in here for rate in record["core_gflops"])
    most, failed = max([measure_core(), *rates]), 0
    for number, run in enumerate(left, start=1):
        try:
            record = carry_out(run, given.shared, models, given.peers)
        except RuntimeError as error:
            print(f"{number} of {len(left)}: {run} failed\n{error}", flush=True)
            failed += 1
            continue
        most = max(most, *record["core_gflops"])
        waited = record["wall_seconds"] > WAITED * record["seconds"]
        if given.busy:
            record["load"] = round(os.getloadavg()[0], 1)
        elif waited or min(record["core_gflops"]) < FREE * most:
            print(f"{number} of {len(left)}: {run} ran beside other work", flush=True)
            failed += 1
            continue
        with RECORDS.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        print(f"{number} of {len(left)}: {run} {record['seconds']:.0f} s", flush=True)
    if failed:
        raise SystemExit(f"{failed} runs failed, or ran beside other work")


def read_part(text: str) -> tuple[int, int]:
    """Read which part of how many is meant."""
    number, of = map(int, text.split("/"))
    if not 1 <= number <= of:
        raise ValueError
    return number, of


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--mpnet", type=Path, help="folder of all-mpnet-base-v2")
    parser.add_argument("--smollm2", type=Path, help="folder of SmolLM2-135M-Instruct")
    parser.add_argument("--peers", type=Path, default=Path(".venv/peers"))
    parser.add_argument(
        "--part", type=read_part, default=(1, 1), metavar="I/N", help="every Nth run, from the Ith"
    )
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--busy", action="store_true", help="keep what ran beside other work")
    given = parser.parse_args()
    torch.set_num_threads(1)  # as in what is measured
    run_all(given)


if __name__ == "__main__":
    main()
