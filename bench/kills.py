"""Kill runs at random moments, 30 each, and see whether what continues them ends the same.

A tiny encoder and made-up reviews; every run is a process of its own, with a cache of its own:

    python bench/kills.py --write docs/measured/kills.md
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from writing import table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

TIMES = 30

# What differs between any two runs.
PASSING = ("seconds", "ended", "examples_per_second", "memory", "versions")


@dataclass(frozen=True)
class Case:
    """Work that is killed.

    Attributes:
        name: of it.
        command: arguments of layerscout; FOLDER stands for where it writes.
        again: what is added to go on.
        other: what is added to make it other work, which finds nothing that was kept.
        result: gives what has to be the same.
    """

    name: str
    command: tuple[str, ...]
    again: tuple[str, ...]
    other: tuple[str, ...]
    result: Callable[[Path], Any]


def lasting(content: Any) -> Any:
    """Leave out what differs between any two runs."""
    if isinstance(content, dict):
        return {name: lasting(v) for name, v in content.items() if name not in PASSING}
    return [lasting(one) for one in content] if isinstance(content, list) else content


def scanned(folder: Path) -> Any:
    return lasting(json.loads((folder / "scan.json").read_text()))


def tuned(folder: Path) -> Any:
    files = sorted((folder / "model").glob("*.safetensors"))
    weights = [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]
    content = json.loads((folder / "result.json").read_text())
    return content["runs"][0]["curve"], content["best"], content["parameters"], weights


def compared(folder: Path) -> Any:
    return lasting(json.loads((folder / "compare.json").read_text()))


def studied(folder: Path) -> Any:
    records = folder.glob("trials/[!.]*.json")
    return {path.name: lasting(json.loads(path.read_text())) for path in records}


def cases(made: Mapping[str, Path]) -> list[Case]:
    """Return the work that is killed."""
    places = {name: str(path) for name, path in made.items()}
    model, data = places["model"], places["reviews"]
    scan = ("scan", model, data, "--examples", "all")
    tune = ("tune", model, data)
    end = ("-o", "FOLDER", "-q")
    trunk = ("--plan", "head:3", "--epochs", "1")
    long = ("--plan", "(3, 4, 4)", "--epochs", "6", "--batch-size", "8")
    short = ("--plan", "(3, 4, 4)", "--epochs", "3", "--batch-size", "8")
    mean = ("--plan", "head:3", "--classifier", "mean-linear", "--epochs", "20")
    resume = ("--resume",)
    other = ("--max-length", "40")
    again = (*other, "--overwrite")
    return [
        Case("scan with kept states", (*scan, *end), (), other, scanned),
        Case("trunk of a tuning", (*tune, *trunk, *end), resume, again, tuned),
        Case("tuning", (*tune, *long, *end), resume, again, tuned),
        Case("head on cached means", (*tune, *mean, *end), resume, again, tuned),
        Case(
            "tuning a decoder",
            ("tune", places["decoder"], data, *short, *end),
            resume,
            again,
            tuned,
        ),
        Case(
            "tuning for words", ("tune", model, places["words"], *short, *end), resume, again, tuned
        ),
        Case(
            "tuning for several labels",
            ("tune", model, places["topics"], "--label-separator", "|", *short, *end),
            resume,
            again,
            tuned,
        ),
        Case(
            "comparing two models",
            ("compare", model, places["other"], data, *end),
            (),
            other,
            compared,
        ),
        Case(
            "study",
            ("study", places["recipe"], *end),
            (),
            ("--set", "max_length=40", "--overwrite"),
            studied,
        ),
    ]


class Run:
    """A folder and a cache in which a case runs."""

    def __init__(self, case: Case, place: Path) -> None:
        self.case, self.place = case, place
        self.folder = place / "out"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()

    def start(self, *more: str) -> subprocess.Popen[str]:
        """Start it, or go on."""
        command = [str(self.folder) if one == "FOLDER" else one for one in self.case.command]
        code = "from layerscout.cli import main; main()"
        return subprocess.Popen(
            [sys.executable, "-c", code, *command, *more],
            # A thread each: cases run side by side.
            env=os.environ
            | {"LAYERSCOUT_CACHE": str(self.place / "cache"), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def at_work(self, process: subprocess.Popen[str]) -> None:
        """Wait until it has begun to write; a second or more goes by before."""
        while process.poll() is None and not any(path.is_file() for path in self.place.rglob("*")):
            time.sleep(0.005)

    def finish(self, *more: str) -> float:
        """Run it to its end; give the seconds that it was at work."""
        process = self.start(*more)
        self.at_work(process)
        started = time.perf_counter()
        _, errors = process.communicate()
        if process.returncode:
            raise SystemExit(f"{self.case.name}: exit code {process.returncode}\n{errors}")
        return time.perf_counter() - started

    def left(self) -> list[Path]:
        """List what is half-written, folders and what is in them too; not what a kill unlocks."""
        written = (path for path in self.place.rglob("*") if path.suffix != ".lock")
        found = [path.relative_to(self.place) for path in written]
        hidden = [path for path in found if any(part.startswith(".") for part in path.parts)]
        return [self.place / path for path in hidden]


def killed(case: Case, place: Path, times: int) -> list[str]:
    """Kill a case at random moments; give a line of the table."""
    place.mkdir()
    chance = random.Random(case.name)
    whole = Run(case, place / "whole")
    seconds = whole.finish()
    expected, same, left, kills, too_late = case.result(whole.folder), 0, 0, 0, 0
    while kills < times:
        run = Run(case, place / "killed")
        process = run.start()
        run.at_work(process)
        try:
            process.wait(timeout=chance.random() * seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        _, errors = process.communicate()
        if process.returncode == 0:  # it had ended by then
            too_late += 1
            continue
        if process.returncode != -signal.SIGKILL:
            raise SystemExit(f"{case.name}: exit code {process.returncode}\n{errors}")
        kills += 1
        left += bool(run.left())
        run.finish(*case.again)
        same += case.result(run.folder) == expected
        if strays := run.left():
            for path in strays:  # two days later nobody can be at work on them
                os.utime(path, (time.time() - 2 * 86400,) * 2)
            run.finish(*case.other)
            if strays := run.left():
                raise SystemExit(f"{case.name}: {strays} stay")
    print(f"{case.name}: {same} the same, {left} left something, {too_late} late", file=sys.stderr)
    counted = [str(kills), f"{same} of {kills}", f"{left} of {kills}", str(too_late)]
    return [case.name, f"{seconds:.1f} s", *counted]


def made(folder: Path) -> dict[str, Path]:
    """Make tiny models, texts with labels of each kind, and a recipe."""
    from tiny import SENTENCES, tiny_checkpoint

    model = tiny_checkpoint(folder / "model", "bert")
    other = tiny_checkpoint(folder / "other", "bert", seed=1)
    decoder = tiny_checkpoint(folder / "decoder", "llama")
    words = " ".join(SENTENCES).replace(",", "").replace('"', "").split()
    draw = np.random.default_rng(0)
    data = folder / "reviews.csv"
    rows = (f"{' '.join(draw.choice(words, 20))},{('bad', 'good')[n % 2]}\n" for n in range(600))
    data.write_text("text,label\n" + "".join(rows))
    topics = folder / "topics.csv"
    named = ("joy", "joy|fear", "fear")
    rows = (f"{' '.join(draw.choice(words, 20))},{named[n % 3]}\n" for n in range(300))
    topics.write_text("text,label\n" + "".join(rows))
    tagged = folder / "words.conll"
    lines = (
        "".join(f"{word} {'B-PER' if n % 5 == 0 else 'O'}\n" for n, word in enumerate(sentence))
        for sentence in (draw.choice(words, 12) for _ in range(300))
    )
    tagged.write_text("\n".join(lines))
    recipe = folder / "mine.yaml"
    content: Mapping[str, Any] = {
        "title": "a study",
        "grids": {
            "tuned": {
                "axes": {
                    "model": {"tiny": str(model)},
                    "task": [{"data": str(data), "name": "reviews"}],
                    "plan": ["top:1", "top:2", "best-down:1@best"],
                    "seed": [0, 1],
                },
                "settings": {"epochs": 2, "examples": 128, "sample_seed": 0, "learning_rate": 1e-3},
            }
        },
    }
    recipe.write_text(json.dumps(content))
    return {
        **{"model": model, "other": other, "decoder": decoder, "recipe": recipe},
        **{"reviews": data, "topics": topics, "words": tagged},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--write", type=Path)
    parser.add_argument("--times", type=int, default=TIMES, help="kills of each kind of work")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place, ThreadPoolExecutor(os.cpu_count()) as pool:
        all_cases = cases(made(Path(place)))
        places = [Path(place) / f"case-{number}" for number, _ in enumerate(all_cases)]
        lines = list(pool.map(killed, all_cases, places, [given.times] * len(all_cases)))
    heads = [
        *("work", "duration", "killed", "identical result", "left files"),
        "finished before the kill",
    ]
    page = f"""# Does work that is killed end as if it had not been?

Each of these ran as a process of its own, was killed (SIGKILL) at a random moment between the
first file that it begins and its end, and was run again, with `--resume` where the command has
it. Scores, curves, weights and records were compared with those of an uninterrupted run, to the
last bit.

{table(heads, lines)}

Files that a kill leaves half-written have temporary names, are never read, and are removed once
they are a day old; this was verified wherever there were any.

`python bench/kills.py --write docs/measured/kills.md` does this again, in an hour.
"""
    print(page)
    if given.write:
        given.write.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
