"""Measure how time and memory of scanning and tuning grow, and what a million rows take.

Random encoders and random texts; one thing grows at a time. Run it alone on the machine:

    python bench/scale.py --write docs/measured/scale.md

`--device cuda` measures the growth on a GPU.
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

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from scipy.stats import linregress
from transformers import AutoModelForSequenceClassification

import layerscout as ls
from layerscout.cluster import Cluster
from layerscout.states import clear_cache
from measuring import (
    Section,
    given,
    measure_peak,
    options,
    random_encoder,
    synchronize,
    table,
    write_page,
)

REPEATS = 3
BATCH = 8

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
        synchronize()
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
    letter: str, sizes: Mapping[int, Size], device: str, folder: Path, tokenizer: Path
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
    models = [ls.Encoder.load(path, device=device) for path in paths]
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


def growth(folder: Path, tokenizer: Path, device: str) -> Section:
    """Measure how time grows."""
    lines: list[list[str]] = []
    for letter, field, at, start in GROWING:
        sizes = {value: replace(start, **{field: value}) for value in at}
        lines += measured(letter, sizes, device, folder, tokenizer)
    size = Size()
    text = (
        "A scan is its forward pass and its scores: sums (the variability ratio), or linear "
        "heads on all states, fitted to four fifths of the examples, five times; or linear "
        "probes, trained with eight seeds. A tuning is its trunk and one epoch of training, in "
        f"batches of {BATCH}; a plain loop, an epoch of transformers' own model and torch's AdamW. "
        f"Unless varied, n = {size.examples} examples, L = {size.blocks} blocks, "
        f"width d = {size.width} (feed-forward layers 4 d, attention heads of 32), T = "
        f"{size.tokens} tokens, K = 2 classes, R = 1 learning rate; n and K vary with L = "
        f"{SMALL.blocks}, d = {SMALL.width}, T = {SMALL.tokens} (K with 4,000 examples), T with n "
        f"= {LONG.examples} and L = {LONG.blocks}, R with 256 examples. Seconds are medians of "
        f"{REPEATS} repeats. The exponent is the slope of the logarithm of time over that of what "
        "grows, fitted in each repeat: median (minimum–maximum), and between the last two sizes. "
        "By counting FLOPs of blocks it is 1 in n and L (for `tune top:1` less in L: its trunk "
        "runs once, and one block trains), 2 in d, 1 in T and 2 where attention's T² d outweighs "
        "12 T d²; 1 in K for heads and 0 for the rest; 1 in R, but 0 for the trunk. `tune full` "
        "also pays for the optimiser's pass over the embeddings in each step, whatever L and T "
        "are. Its last exponent in T lies above 2 where the plain loop's does: dropout on "
        "attention keeps all T² weights of a batch, which are new memory in each step. R stands "
        "for all that is trained more than once.\n\n"
        + table(["what grows", "values", "work", "seconds", "exponent", "at the end"], lines)
    )
    return Section("How time grows", text)


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


def memory(folder: Path, tokenizer: Path) -> Section:
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
    text = (
        "Peak resident memory of one process each, in MB beyond that of a process that does the "
        f"same at n = {TINY.examples}, L = {TINY.blocks}, d = {TINY.width}, T = {TINY.tokens}, "
        "K = 2; models and sizes as for times. By counting numbers it is at most 1 in n (tokens "
        "and labels; states and trunks are on disk), 1 in L, 2 in d, 1 in K, and 1 in T, but 2 "
        "where dropout on attention keeps T² weights of a batch. The C allocator keeps some of "
        "what is freed.\n\n"
        + table(["what grows", "values", "work", "MB", "exponent at the end"], lines)
    )
    return Section("How memory grows", text)


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


def million(folder: Path, tokenizer: Path) -> Section:
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
    text = (
        "`layerscout scan --backend ray --cpus 1` of Parquet shards of four words a text, with an "
        "encoder of 2 blocks, 32 wide, on a local cluster with a process for each core, from its "
        "start to the result. The memory is the resident one of the largest process, Ray's own "
        "and the one that merges among them, sampled four times a second.\n\n"
    )
    columns = ["rows", "shards", "time", "largest process"]
    return Section("A million rows", text + table(columns, lines))


def main() -> None:
    parser = options(__doc__ or "", brief=False)
    parser.add_argument("--device", default="cpu", help="where models run")
    arguments = given(parser)
    tokenizer = arguments.shared / "models" / "all-MiniLM-L6-v2"
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        os.environ["LAYERSCOUT_CACHE"] = str(folder / "cache")
        on_cpu = arguments.device == "cpu"
        # The shards first: of the largest process counts what this one has taken by then.
        sections = [million(folder, tokenizer)] if on_cpu else []
        sections.append(growth(folder, tokenizer, arguments.device))
        sections += [memory(folder, tokenizer)] if on_cpu else []
    write_page(
        "# How cost grows\n\n`make scale` measures this: random encoders, random texts.",
        sections,
        arguments.write,
        arguments.device,
    )


if __name__ == "__main__":
    main()
