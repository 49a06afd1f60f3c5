"""Measure how time and memory of scanning and tuning grow, and what a million rows take.

Random encoders and random texts; one thing grows at a time. Run it alone on the machine:

    python bench/scale.py --measure --write docs/measured/scale.md

What is measured is kept in `bench/scale`; the page is made from that.
"""

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import altair as alt
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from scipy.stats import linregress
from transformers import AutoModelForSequenceClassification

import layerscout as ls
from layerscout.cluster import Cluster
from layerscout.reporting import place_side_by_side, save_chart
from layerscout.states import clear_cache
from measuring import given, machine, measure_peak, options, random_encoder
from writing import link, read_rows, table, write_rows

REPEATS = 3
BATCH = 8

HERE = Path(__file__).parent / "scale"
TIME, MEMORY, MILLION, MACHINE = (
    HERE / f"{name}.csv" for name in ("time", "memory", "million", "machine")
)

# Rows of the scans of shards, and of each of their files.
ROWS, SHARD = (100_000, 1_000_000), 50_000
WORDS = ("film", "plot", "actor", "scene", "music", "story", "good", "bad", "old", "new")


@dataclass(frozen=True)
class Size:
    """What is measured.

    Attributes:
        examples: n to train on; 8 more are held out.
        blocks: L.
        width: d.
        tokens: of a text, the tokenizer's own among them.
        classes: K, in turns.
        rates: R, how many learning rates are tried.
    """

    examples: int = 512
    blocks: int = 6
    width: int = 192
    tokens: int = 32
    classes: int = 2
    rates: int = 1


# A model so small that many rows, and long ones, take seconds.
SMALL = Size(blocks=2, width=64, tokens=8)
LONG = Size(examples=16, blocks=2)

# What grows: its letter, the field that holds it, its values, and what it starts from.
GROWING: tuple[tuple[str, str, tuple[int, ...], Size], ...] = (
    ("n", "examples", (1000, 4000, 16000, 64000), SMALL),
    ("L", "blocks", (3, 6, 12, 24), Size()),
    ("d", "width", (96, 192, 384, 768), Size()),
    ("T", "tokens", (16, 64, 256, 1024, 2048), LONG),
    ("K", "classes", (2, 10, 100, 1000), replace(SMALL, examples=4000)),
    ("R", "rates", (1, 2, 4, 8), Size(examples=256)),
)


def task_of(size: Size) -> ls.Task:
    """Make texts of one length, with labels in turn."""
    draw = np.random.default_rng(0)
    rows = size.examples + 8
    texts = [" ".join(draw.choice(WORDS, size.tokens - 2)) for _ in range(rows)]
    labels = [f"class {n % size.classes}" for n in range(rows)]
    held_out = (texts[size.examples :], labels[size.examples :])
    return ls.Task.from_lists(texts[: size.examples], labels[: size.examples], validation=held_out)


def scanning(scores: str) -> Callable[[ls.Encoder, ls.Task, Size], float]:
    """Return what measures the seconds of the forward pass and of some scores."""

    def scan(encoder: ls.Encoder, task: ls.Task, size: Size) -> float:
        found = ls.scan(
            encoder,
            task,
            scores=scores,
            examples="all",
            max_length=size.tokens,
            cache_limit=10**10,
            progress=False,
        )
        return found.seconds["forward"] + found.seconds["scores"]

    return scan


def tuning(plan: str) -> Callable[[ls.Encoder, ls.Task, Size], float]:
    """Return what measures the seconds of a plan's trunk and of an epoch of training."""

    def tune(encoder: ls.Encoder, task: ls.Task, size: Size) -> float:
        found = ls.tune(
            encoder,
            task,
            plan,
            epochs=1,
            batch_size=BATCH,
            learning_rate=tuple(1e-5 * 2**number for number in range(size.rates)),
            max_length=size.tokens,
            cache_limit=0 if plan == "full" else 10**10,
            measure="metric",
            progress=False,
        )
        return float(found.content["seconds"]["trunk"] + found.content["seconds"]["train"])

    return tune


def looping(attention_dropout: float) -> Callable[[ls.Encoder, ls.Task, Size], float]:
    """Return what measures the seconds of an epoch of a plain loop over transformers' own model."""

    def loop(encoder: ls.Encoder, task: ls.Task, size: Size) -> float:
        model = AutoModelForSequenceClassification.from_pretrained(
            encoder.source,
            num_labels=size.classes,
            attention_probs_dropout_prob=attention_dropout,
        )
        model = model.to(encoder.device).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
        started = time.perf_counter()
        for first in range(0, size.examples, BATCH):
            texts = list(task.train.texts[first : first + BATCH])
            tokens = encoder.tokenizer(texts, padding=True, return_tensors="pt")
            labels = torch.from_numpy(task.train.labels[first : first + BATCH])
            inputs = tokens.to(encoder.device)
            model(**inputs, labels=labels.to(encoder.device)).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        return time.perf_counter() - started

    return loop


SCAN = {"scan, sums": scanning("variability_ratio"), "scan, heads": scanning("head_quality")}
TUNE = {"tune full": tuning("full"), "tune top:1": tuning("top:1")}
PROBE = {"scan, probes": scanning("probe")}
PLAIN = {
    "plain loop": looping(attention_dropout=0.1),
    "plain loop, attention without dropout": looping(attention_dropout=0.0),
}
# Of others: scans and tunings.
WORKS = {"R": TUNE, "K": SCAN | PROBE | TUNE, "T": SCAN | TUNE | PLAIN}


def exponents(at: Sequence[int], times: Sequence[Sequence[float]]) -> list[float]:
    """Return the slope of log time over log size of each repeat, from times by size and repeat."""
    return [
        float(linregress(np.log(at), np.log(repeat)).slope) for repeat in zip(*times, strict=True)
    ]


def measured(
    letter: str, sizes: Mapping[int, Size], folder: Path, tokenizer: Path
) -> Iterator[list[str]]:
    """Measure works over some sizes, in turns; give lines of the table."""
    works, at = WORKS.get(letter, SCAN | TUNE), list(sizes)
    seconds: dict[str, list[list[float]]] = {work: [[] for _ in at] for work in works}
    paths = [
        random_encoder(
            folder / f"{letter}-{value}", tokenizer, size.blocks, size.width, size.tokens
        )
        for value, size in sizes.items()
    ]
    models = [ls.Encoder.load(path, device="cpu") for path in paths]
    for repeat in range(REPEATS + 1):
        for number, (size, encoder) in enumerate(zip(sizes.values(), models, strict=True)):
            task = task_of(size)
            for work, run in works.items():
                clear_cache()
                took = run(encoder, task, size)
                if repeat:
                    seconds[work][number].append(took)
                print(f"  {letter} = {at[number]:,}, {work}: {took:.2f} s", file=sys.stderr)
    for work, times in seconds.items():
        found = exponents(at, times)
        power = f"{np.median(found):.2f} ({min(found):.2f}–{max(found):.2f})"
        medians = ", ".join(f"{np.median(some):.2f}" for some in times)
        last = exponents(at[-2:], times[-2:])
        values = ", ".join(f"{value:,}" for value in at)
        yield [letter, values, work, medians, power, f"{np.median(last):.2f}"]


def measure_time(folder: Path, tokenizer: Path) -> None:
    """Measure how time grows."""
    lines: list[list[str]] = []
    for letter, field, at, start in GROWING:
        sizes = {value: replace(start, **{field: value}) for value in at}
        lines += measured(letter, sizes, folder, tokenizer)
    write_rows(TIME, ("grows", "values", "work", "seconds", "exponent", "at the end"), lines)


# In a process of its own: a piece of work, the model's folder, and the size as JSON.
ONE = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from scale import run_one
run_one(*sys.argv[1:])
"""
REMEMBERED = ("scan, heads", "tune full", "tune top:1")
TINY = replace(SMALL, examples=16, width=32)


def run_one(work: str, model: str, written: str) -> None:
    """Do one piece of work at one size."""
    size = Size(**json.loads(written))
    (SCAN | TUNE)[work](ls.Encoder.load(model, device="cpu"), task_of(size), size)


def measure_memory(folder: Path, tokenizer: Path) -> None:
    """Measure how peak memory grows, beyond that of a process at the least size."""

    def measure(work: str, size: Size) -> float:
        name = folder / f"memory-{size.blocks}-{size.width}-{max(512, size.tokens)}"
        if not name.exists():
            random_encoder(name, tokenizer, size.blocks, size.width, size.tokens)
        clear_cache()
        found = measure_peak(ONE, work, str(name), json.dumps(asdict(size)))
        print(f"  {size}, {work}: {found:.0f} MB", file=sys.stderr)
        return found

    least = {work: measure(work, TINY) for work in REMEMBERED}
    lines = []
    for letter, field, at, start in GROWING:
        if letter == "R":
            continue
        for work in REMEMBERED:
            sizes = (replace(start, **{field: value}) for value in at)
            taken = [max(1.0, measure(work, size) - least[work]) for size in sizes]
            last = exponents(at[-2:], [[one] for one in taken[-2:]])[0]
            values = ", ".join(f"{value:,}" for value in at)
            sizes_taken = ", ".join(f"{one:,.0f}" for one in taken)
            lines.append([letter, values, work, sizes_taken, f"{last:.2f}"])
    write_rows(MEMORY, ("grows", "values", "work", "MB", "at the end"), lines)


@contextmanager
def watched() -> Iterator[list[float]]:
    """Note the largest resident memory, in MB, of this process or any below it."""
    largest, over = [0.0], threading.Event()

    def watch() -> None:
        while not over.wait(0.25):
            this = psutil.Process()
            for process in (this, *this.children(recursive=True)):
                with suppress(psutil.Error):
                    largest[0] = max(largest[0], process.memory_info().rss / 2**20)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield largest
    finally:
        over.set()
        watcher.join()


def measure_million(folder: Path, tokenizer: Path) -> None:
    """Scan shards of a hundred thousand and of a million short texts on a local cluster."""
    model = random_encoder(folder / "tiny", tokenizer, blocks=2, width=32)
    lines = []
    for rows in ROWS:
        data = folder / f"rows-{rows}"
        data.mkdir()
        for number in range(rows // SHARD):
            ids = np.random.default_rng(number).integers(0, len(WORDS), (SHARD, 4))
            texts = [" ".join(WORDS[i] for i in row) for row in ids]
            shard = pa.table({"text": texts, "label": ids.sum(axis=1) % 2})
            pq.write_table(shard, data / f"train-{number:03}.parquet")
        started = time.perf_counter()
        with watched() as largest:
            found = ls.scan(
                model,
                data,
                scores=("variability_ratio", "nc1"),
                examples="all",
                cluster=Cluster(cpus=1),
                progress=False,
            )
        seconds = time.perf_counter() - started
        lines.append(
            [
                f"{found.task['examples_used']:,}",
                f"{rows // SHARD}",
                f"{seconds:.0f} s",
                f"{largest[0]:.0f} MB",
            ]
        )
        print(f"  {lines[-1]}", file=sys.stderr)
    write_rows(MILLION, ("rows", "shards", "time", "largest process"), lines)


# --- The page ------------------------------------------------------------------------------------

# What grows, and the exponents that counting FLOPs and numbers gives: of time and of memory.
COUNTED = {
    "n": ("examples", "1", "at most 1"),
    "L": ("blocks", "1, less for top:1", "1"),
    "d": ("width", "2", "2"),
    "T": ("tokens of a text", "1 to 2", "1, but 2 with dropout on attention"),
    "K": ("classes", "1 for heads, else 0", "1"),
    "R": ("learning rates", "1, 0 for the trunk", ""),
}


def draw(path: Path) -> None:
    """Draw seconds by what grows, both on logarithmic axes."""
    values = [
        {
            "grows": COUNTED[row["grows"]][0],
            "work": row["work"],
            "size": int(size.replace(",", "")),
            "seconds": float(seconds),
        }
        for row in read_rows(TIME)
        if row["work"] in REMEMBERED
        for size, seconds in zip(row["values"].split(", "), row["seconds"].split(", "), strict=True)
    ]
    charts = [
        alt.Chart(
            alt.Data(values=[one for one in values if one["grows"] == name]),
            title=name,
            width=180,
            height=120,
        )
        .mark_line(point={"size": 12})
        .encode(
            x=alt.X("size:Q", scale=alt.Scale(type="log"), title=None),
            y=alt.Y("seconds:Q", scale=alt.Scale(type="log")),
            color=alt.Color("work:N", sort=list(REMEMBERED), title=None),
        )
        for name, *_ in COUNTED.values()
    ]
    save_chart(place_side_by_side(charts, 3), path)


def page(picture: Path) -> str:
    """Write the page from what is kept, and draw its picture."""
    draw(picture)
    last = {
        (path, row["grows"], row["work"]): row["at the end"]
        for path in (TIME, MEMORY)
        for row in read_rows(path)
    }
    rows = []
    for letter, (name, *counted) in COUNTED.items():
        cells = [
            ", ".join(last.get((path, letter, work), "–") for work in REMEMBERED)
            for path in (TIME, MEMORY)
        ]
        rows.append([f"{name} ({letter})", cells[0], counted[0], cells[1], counted[1]])
    heads = ["what grows", "time", "by counting", "memory", "by counting"]
    few, many = read_rows(MILLION)
    size = Size()
    return f"""# How do time and memory grow?

As counting says: with examples, blocks and rates in proportion, with the width less than squared
at these sizes, with classes only where heads are fitted. Long texts cost more than their length,
since attention grows with its square, and dropout on it keeps all of that in memory, as in a
plain loop over transformers' model. A scan of {many["rows"]} rows ({many["shards"]} shards, an
encoder of 2 blocks, 32 wide, a local Ray cluster) takes {many["time"]} and
{many["largest process"]} in its largest process; {few["rows"]} take {few["time"]} and
{few["largest process"]}.

Exponents between the last two sizes of {", ".join(f"`{work}`" for work in REMEMBERED)}:

{table(heads, rows)}

![Seconds by what grows]({picture.name})

Random encoders and texts, one thing growing at a time from n = {size.examples}, L =
{size.blocks}, d = {size.width}, T = {size.tokens}, K = 2, R = 1 (n, K and T on smaller models). A
scan is its pass and linear heads on all states; a tuning its trunk and one epoch in batches of
{BATCH}. Memory is the peak of a process beyond that of one with almost nothing to do. Every size,
sums and probes, and the plain loop: {link(TIME)}, {link(MEMORY)}, {link(MILLION)}.
{read_rows(MACHINE)[0]["machine"]}

`make scale` measures this again in 50 minutes, with nothing else on the machine.
"""


def main() -> None:
    parser = options(__doc__ or "", brief=False)
    parser.add_argument("--measure", action="store_true")
    arguments = given(parser)
    if arguments.measure:
        tokenizer = arguments.shared / "models" / "all-MiniLM-L6-v2"
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            os.environ["LAYERSCOUT_CACHE"] = str(folder / "cache")
            # The shards first: of the largest process counts what this one has taken by then.
            for measure in (measure_million, measure_time, measure_memory):
                measure(folder, tokenizer)
        write_rows(MACHINE, ("machine",), [[machine()]])
    if arguments.write:
        written = page(arguments.write.with_suffix(".svg"))
        arguments.write.write_text(written, encoding="utf-8")


if __name__ == "__main__":
    main()
