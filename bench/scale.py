"""Measure how the cost of scanning and tuning grows, and the memory of a scan of a million rows.

Random encoders and random texts; one thing grows at a time. Run it alone on the machine:

    python bench/scale.py --write docs/measured/scale.md
"""

import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.stats import linregress

import layerscout as ls
from layerscout.runtime.ray import Cluster
from layerscout.runtime.store import clear_cache
from layerscout.scanning.cluster import scan_shards
from measuring import Section, given, options, random_encoder, table, write_page

REPEATS = 3

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
    """

    examples: int = 512
    blocks: int = 6
    width: int = 192
    tokens: int = 32


# What grows, by its letter and the field that holds it.
GROWING: Mapping[tuple[str, str], tuple[int, ...]] = {
    ("n", "examples"): (256, 512, 1024, 2048),
    ("L", "blocks"): (3, 6, 12, 24),
    ("d", "width"): (96, 192, 384, 768),
    ("T", "tokens"): (16, 32, 64, 128),
}


def task_of(size: Size) -> ls.Task:
    """Make texts of one length, with labels in turn."""
    draw = np.random.default_rng(0)
    rows = size.examples + 8
    texts = [" ".join(draw.choice(WORDS, size.tokens - 2)) for _ in range(rows)]
    labels = [str(n % 2) for n in range(rows)]
    held_out = (texts[size.examples :], labels[size.examples :])
    return ls.Task.from_lists(texts[: size.examples], labels[: size.examples], validation=held_out)


def scanning(encoder: ls.Encoder, task: ls.Task) -> float:
    """Give the seconds of the forward pass and the sums of a scan."""
    found = ls.scan(
        encoder, task, scores="variability_ratio", examples="all", cache_limit=0, progress=False
    )
    return found.seconds["forward"] + found.seconds["scores"]


def tuning(plan: str) -> Callable[[ls.Encoder, ls.Task], float]:
    """Give what measures the seconds of a plan's trunk and of an epoch of training."""

    def tune(encoder: ls.Encoder, task: ls.Task) -> float:
        found = ls.tune(
            encoder,
            task,
            plan,
            epochs=1,
            batch_size=16,
            learning_rate=1e-5,
            cache_limit=0 if plan == "full" else 10**10,
            measure="metric",
            progress=False,
        )
        return float(found.content["seconds"]["trunk"] + found.content["seconds"]["train"])

    return tune


WORKS = {"scan": scanning, "tune full": tuning("full"), "tune top:1": tuning("top:1")}


def exponents(at: Sequence[int], times: Sequence[Sequence[float]]) -> list[float]:
    """Give the slope of log time over log size of each repeat, from times by size and repeat."""
    return [
        float(linregress(np.log(at), np.log(repeat)).slope) for repeat in zip(*times, strict=True)
    ]


def measured(
    letter: str, field: str, at: Sequence[int], folder: Path, tokenizer: Path
) -> Iterator[list[str]]:
    """Measure works over some sizes, in turns; give lines of the table."""
    seconds: dict[str, list[list[float]]] = {work: [[] for _ in at] for work in WORKS}
    sizes = [Size(**{field: value}) for value in at]
    paths = [
        random_encoder(folder / f"{letter}-{value}", tokenizer, size.blocks, size.width)
        for value, size in zip(at, sizes, strict=True)
    ]
    models = [ls.Encoder.load(path, device="cpu") for path in paths]
    for repeat in range(REPEATS + 1):
        for number, (size, encoder) in enumerate(zip(sizes, models, strict=True)):
            task = task_of(size)
            for work, run in WORKS.items():
                clear_cache()
                took = run(encoder, task)
                if repeat:
                    seconds[work][number].append(took)
                print(f"  {letter} = {at[number]}, {work}: {took:.2f} s", file=sys.stderr)
    for work, times in seconds.items():
        found = exponents(at, times)
        power = f"{np.median(found):.2f} ({min(found):.2f}–{max(found):.2f})"
        medians = ", ".join(f"{np.median(some):.2f}" for some in times)
        yield [f"{field} {letter}", ", ".join(map(str, at)), work, medians, power]


def growth(folder: Path, tokenizer: Path) -> Section:
    """Measure how time grows."""
    lines: list[list[str]] = []
    for (letter, field), at in GROWING.items():
        lines += measured(letter, field, at, folder, tokenizer)
    size = Size()
    text = (
        "The forward pass and the sums of a scan; the trunk and one epoch of a tuning. Unless "
        f"varied, n = {size.examples}, L = {size.blocks}, d = {size.width} (feed-forward "
        f"layers 4 d, attention heads of 32), T = {size.tokens}. Seconds are medians of "
        f"{REPEATS} repeats. The exponent is the slope of the logarithm of time over that of what "
        "grows, fitted to the four sizes in each repeat: median (minimum–maximum). By counting "
        "FLOPs of blocks it is 1 in n and L (for `tune top:1` less in L: its trunk runs once, and "
        "one block trains), 2 in d, and a little above 1 in T, where attention adds T². `tune "
        "full` also pays for the optimiser's pass over the embeddings in each step, whatever L and "
        "T are.\n\n" + table(["what grows", "values", "work", "seconds", "exponent"], lines)
    )
    return Section("How time grows", text)


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
            found = scan_shards(model, data, cluster=Cluster(cpus=1), progress=False)
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
    arguments = given(options(__doc__ or "", brief=False))
    tokenizer = arguments.shared / "models" / "all-MiniLM-L6-v2"
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        os.environ["LAYERSCOUT_CACHE"] = str(folder / "cache")
        sections = [million(folder, tokenizer), growth(folder, tokenizer)]
    write_page(
        "# How cost grows\n\n`make scale` measures this: random encoders, random texts.",
        sections,
        arguments.write,
    )


if __name__ == "__main__":
    main()
