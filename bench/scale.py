"""Measure how time and memory grow with rows, classes, blocks, width and length.

Random encoders and random texts; one thing grows at a time. Run it alone on the machine:

    python bench/scale.py --measure n K --write docs/measured/scale.md

Without letters behind `--measure` everything is measured. What was measured is kept in
`bench/scale/growth.csv`, with the machine; the page is made from that.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
from scipy.stats import linregress

from layerscout import Encoder, Task, predict, scan, tune
from layerscout.reporting import place_side_by_side, save_chart
from measuring import given, machine, options, random_encoder
from writing import link, read_rows, table, write_rows

GROWTH = Path(__file__).parent / "scale" / "growth.csv"
COLUMNS = ("grows", "value", "work", "seconds", "MB", "machine")
# A piece of work that takes longer than so many seconds is done once.
REPEATS, LONG = 3, 5
BATCH = 32


@dataclass(frozen=True)
class Size:
    """What is measured.

    Attributes:
        examples: n to read, train on or predict; 8 more are held out.
        blocks: L.
        width: d.
        tokens: of a text, the tokenizer's own among them.
        classes: K, in turns.
    """

    examples: int = 256
    blocks: int = 6
    width: int = 192
    tokens: int = 32
    classes: int = 2

    def texts(self) -> list[str]:
        """Draw texts of one length, of numbers that are a token each."""
        draw = np.random.default_rng(0)
        numbers = draw.integers(10, 100, (self.examples + 8, self.tokens - 2))
        return [" ".join(map(str, row)) for row in numbers.tolist()]

    def task(self) -> Task:
        """Label them in turn."""
        texts = self.texts()
        labels = [f"class {n % self.classes}" for n in range(len(texts))]
        held_out = (texts[self.examples :], labels[self.examples :])
        return Task.from_lists(texts[: self.examples], labels[: self.examples], validation=held_out)


# A model so small that many rows take seconds; what a process does before it is measured.
SMALL = Size(blocks=2, width=64, tokens=8)
TINY = replace(SMALL, examples=64, width=32)

# What grows: its letter, the field that holds it, its values, and what it starts from.
GROWING: tuple[tuple[str, str, tuple[int, ...], Size], ...] = (
    ("n", "examples", (1000, 10_000, 100_000, 1_000_000), SMALL),
    ("K", "classes", (2, 10, 100, 1000), replace(SMALL, examples=4000)),
    ("L", "blocks", (3, 6, 12, 24), Size()),
    ("d", "width", (96, 192, 384, 768), Size()),
    ("T", "tokens", (16, 64, 256, 1024), Size(examples=16, blocks=2)),
)
# By counting: the exponents of time and of memory.
COUNTED = {
    "n": ("rows", "1", "at most 1"),
    "K": ("classes", "1 for heads, else 0", "1 for heads, else 0"),
    "L": ("blocks", "1; 0 for the steps of top:1", "1"),
    "d": ("width", "2", "2"),
    "T": ("tokens", "1 to 2", "1; 2 with dropout on attention"),
}
# More rows than these are not trained on, which takes minutes.
MOST_TRAINED = 100_000
TRAINED = ("contrastive", "tune full", "tune top:1")


def train(plan: str, **more: Any) -> Callable[[Path, Size], Callable[[], object]]:
    """Return what prepares tuning a plan for an epoch."""

    def get_ready(folder: Path, size: Size) -> Callable[[], object]:
        encoder, task = Encoder.load(folder, device="cpu"), size.task()
        notation = plan.format(size.blocks // 3 + 1, size.blocks, size.blocks)
        settings = {"measure": "metric", "progress": False, "max_length": size.tokens, **more}
        return lambda: tune(encoder, task, notation, **settings)

    return get_ready


def read(folder: Path, size: Size) -> Callable[[], object]:
    """Prepare a scan with the default scores."""
    encoder, task = Encoder.load(folder, device="cpu"), size.task()
    settings = {"examples": "all", "max_length": size.tokens, "progress": False}
    return lambda: scan(encoder, task, **settings)


def answer(folder: Path, size: Size) -> Callable[[], object]:
    """Prepare predicting the rows of a CSV, if an earlier process has not."""
    texts, tuned = folder.with_suffix(".csv"), folder.with_suffix(".tuned")
    if not texts.exists():
        few = replace(size, examples=2 * size.classes).task()
        encoder = Encoder.load(folder, device="cpu")
        settings = {"measure": "metric", "progress": False, "max_length": size.tokens}
        tune(encoder, few, "full", max_steps=1, **settings).save(tuned)
        pd.DataFrame({"text": size.texts()}).to_csv(texts, index=False)
    return lambda: predict(tuned, texts, folder.with_suffix(".out.csv"), progress=False)


EPOCH = {"epochs": 1, "batch_size": BATCH}
WORKS: dict[str, Callable[[Path, Size], Callable[[], object]]] = {
    "scan": read,
    "free head": train("head:best"),
    "contrastive": train("({}, {}, {})", loss="contrastive", **EPOCH),
    "tune full": train("full", learning_rate=1e-5, **EPOCH),
    "tune top:1": train("top:1", learning_rate=1e-5, **EPOCH),
    "predict": answer,
}


def prepare(folder: Path, tokenizer: Path, size: Size) -> None:
    """Leave the encoder in a folder, and beside it what `predict` reads."""
    random_encoder(folder, tokenizer, size.blocks, size.width, size.tokens)
    answer(folder, size)


def run_one(work: str, tiny: Path, folder: Path, size: Size) -> tuple[list[float], float]:
    """Do a piece of work, after a tiny one; return the seconds of each time and the peak in MB.

    Seconds are the processor's, of all threads, so that other work counts little.
    """
    WORKS[work](tiny, TINY)()
    do, seconds = WORKS[work](folder, size), []
    while len(seconds) < REPEATS and max(seconds, default=0) < LONG:
        with tempfile.TemporaryDirectory() as cache:
            os.environ["LAYERSCOUT_CACHE"] = cache  # empty every time
            started = time.process_time()
            do()
            seconds.append(time.process_time() - started)
    return seconds, read_peak()


def read_peak() -> float:
    """Return the peak resident memory of this process in MB, on Linux.

    `ru_maxrss` starts at the peak of the process that started this one.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) / 1024


def call_apart(function: Callable[..., Any], *arguments: object) -> Any:
    """Call a function in a process of its own, which has imported what this one has."""
    context = get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=lambda: theirs.send(function(*arguments)))
    process.start()
    theirs.close()
    try:
        return ours.recv()
    finally:
        process.join()


def measure(letters: Sequence[str], folder: Path, tokenizer: Path) -> None:
    """Measure what grows by these letters; keep it after each piece of work."""
    kept = {(row["grows"], row["value"], row["work"]): row for row in read_rows(GROWTH)}
    tiny, here, least = folder / "tiny", machine(), {}
    call_apart(prepare, tiny, tokenizer, TINY)
    for work in WORKS:
        _, least[work] = call_apart(run_one, work, tiny, tiny, TINY)
    for letter, field, values, start in GROWING:
        for value in values if letter in letters else ():
            size, model = replace(start, **{field: value}), folder / f"{letter}-{value}"
            call_apart(prepare, model, tokenizer, size)
            for work in WORKS:
                if size.examples > MOST_TRAINED and work in TRAINED:
                    continue
                seconds, peak = call_apart(run_one, work, tiny, model, size)
                row = [letter, f"{value}", work, " ".join(f"{one:.3f}" for one in seconds)]
                row += [f"{max(1, peak - least[work]):.0f}", here]
                print("  ", *row[:-1], file=sys.stderr, flush=True)
                kept[letter, f"{value}", work] = dict(zip(COLUMNS, row, strict=True))
                write_rows(GROWTH, COLUMNS, [[*one.values()] for one in kept.values()])


# --- The page ------------------------------------------------------------------------------------


def middle(cell: str) -> float:
    """Return the median of the numbers in a cell."""
    return float(np.median([float(one) for one in cell.split()]))


def find_exponents(letter: str, work: str, column: str) -> str:
    """Write the slope of the logarithm of time or memory over that of size, and at the end."""
    known = [row for row in read_rows(GROWTH) if (row["grows"], row["work"]) == (letter, work)]
    if len(known) < 2:
        return "–"
    sizes = np.log([float(row["value"]) for row in known])
    taken = np.log([middle(row[column]) for row in known])
    ends = (linregress(sizes[some:], taken[some:]).slope for some in (0, -2))
    return ", ".join(f"{one:.2f}" for one in ends)


def draw(path: Path) -> None:
    """Draw seconds and memory by what grows, on logarithmic axes."""
    values = [
        {
            "grows": row["grows"],
            "work": row["work"],
            "size": int(row["value"]),
            column: middle(row[column]),
        }
        for row in read_rows(GROWTH)
        for column in ("seconds", "MB")
    ]
    charts = [
        alt.Chart(
            alt.Data(values=[one for one in values if one["grows"] == letter and column in one]),
            title=f"{COUNTED[letter][0]} ({letter})",
            width=180,
            height=120,
        )
        .mark_line(point={"size": 12})
        .encode(
            x=alt.X("size:Q", scale=alt.Scale(type="log"), title=None),
            y=alt.Y(f"{column}:Q", scale=alt.Scale(type="log")),
            color=alt.Color("work:N", sort=list(WORKS), title=None),
        )
        for column in ("seconds", "MB")
        for letter in COUNTED
    ]
    save_chart(place_side_by_side(charts, len(COUNTED)), path)


def page(picture: Path) -> str:
    """Write the page from what is kept, and draw its picture."""
    draw(picture)
    rows = [
        [
            f"{name} ({letter}), {'time' if column == 'seconds' else 'memory'}",
            counted,
            *(find_exponents(letter, work, column) for work in WORKS),
        ]
        for letter, (name, *both) in COUNTED.items()
        for column, counted in zip(("seconds", "MB"), both, strict=True)
    ]
    kept = read_rows(GROWTH)
    told = {
        (row["grows"], row["value"], row["work"]): f"{middle(row['seconds']):.1f} s, "
        f"{int(row['MB']):,} MB"
        for row in kept
    }
    most = [
        [f"{int(value):,} {COUNTED[letter][0]}", *cells]
        for letter, value in (("n", "1000"), ("n", "100000"), ("n", "1000000"), ("K", "1000"))
        if set(cells := [told.get((letter, value, work), "–") for work in WORKS]) != {"–"}
    ]
    machines = dict.fromkeys(row["machine"] for row in kept)
    base = Size()
    return f"""# How do time and memory grow?

As counting says: with rows and blocks in proportion, with the width less than squared at these
sizes, with classes where heads are solved or `predict` writes a probability of each. Long texts
cost more than their length, since attention grows with its square, and dropout on it keeps all of
that in memory. What `predict` takes in memory does not grow with the rows.

An encoder of 2 blocks, 64 wide, texts of 8 tokens:

{table(["", *WORKS], most)}

The exponent that fits all sizes, and that between the last two:

{table(["what grows", "by counting", *WORKS], rows)}

![Seconds and memory by what grows]({picture.name})

Random encoders and texts, one thing growing at a time from n = {base.examples}, L = {base.blocks},
d = {base.width}, T = {base.tokens}, K = 2 (n, K and T on smaller models). Seconds are the
processor's, of whole calls with an empty cache, each in a process of its own, the median of
{REPEATS} if they are short; `predict` reads and writes a CSV, the others have the rows in memory.
Training is an epoch in batches of {BATCH}. Memory is the peak of the process beyond that of one
that does almost nothing. Every size: {link(GROWTH)}.
{" ".join(machines)}

`make scale` measures this again, with nothing else on the machine.
"""


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--measure", nargs="*", choices=COUNTED, metavar="LETTER")
    arguments = given(parser)
    if arguments.measure is not None:
        tokenizer = arguments.shared / "models" / "all-MiniLM-L6-v2"
        with tempfile.TemporaryDirectory() as place:
            measure(arguments.measure or [*COUNTED], Path(place), tokenizer)
    if arguments.write:
        written = page(arguments.write.with_suffix(".svg"))
        arguments.write.write_text(written, encoding="utf-8")


if __name__ == "__main__":
    main()
