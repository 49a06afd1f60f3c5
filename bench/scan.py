"""Measure a scan: beside a bare forward pass and the published procedure, precision and memory.

Every speed is a ratio of two things done in turns in one run. Run it alone on the machine:

    python bench/scan.py --shared ../shared --write docs/measured/benchmarks-scan.md

`--section NAME` measures one part; what was measured before is kept in `bench/speed/scan.csv`, with
the machine, and the page is made from that.

The published procedure (Xie et al. 2022, §3.1) is stated again here as the text has it: one run
for each layer of the model cut at that layer, batches of 8 in random order, each padded to its
longest text, the states kept and ν computed from them.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer, BertConfig

import layerscout as ls
from layerscout.data import Split
from layerscout.models import Encoder
from layerscout.scanning import Sample, score_states
from layerscout.scores.grouping import deal_groups
from layerscout.scores.score import DEFAULT
from layerscout.states import DEFAULT_LIMIT, clear_cache, pool_states
from measuring import (
    drawn,
    given,
    in_turns,
    machine,
    measure_peak,
    options,
    precisions,
    random_encoder,
    ratio,
)
from writing import link, read_rows, table, write_rows

RECORDS = Path(__file__).parent / "speed" / "scan.csv"
COLUMNS = ("section", "what", "measured", "wanted", "machine")
SMALL, DEEP = "all-MiniLM-L6-v2", "stacked-minilm-12"
MOMENTS = [key for key, score in ls.scores.SCORES.items() if score.source == "moments"]
TOGETHER = (
    *("variability_ratio_debiased", "variability_ratio", "nc1", "cca"),
    *("ridge", "logme", "h_score", "numerical_rank"),
)

Row = tuple[str, str, str]  # what is measured, the figure, and what is wanted


@dataclass(frozen=True, eq=False)
class Bench:
    """What is read, and how much of it.

    Attributes:
        shared: holds real models and data.
        random: a BERT of 12 blocks, 384 wide, with random weights.
        repeats: of what is short.
        examples: of the scan against a forward pass, and of what both precisions read.
        published: examples that the published procedure reads, three times at most.
        scored: examples that scores of states are computed from.
        rows: of a small and of a large scan whose memory is compared.
    """

    shared: Path
    random: Path
    device: str
    repeats: int = 5
    examples: int = 2000
    published: int = 2000
    scored: int = 5000
    rows: tuple[int, int] = (5_000, 60_000)

    @cached_property
    def task(self) -> ls.Task:
        return ls.Task.load(self.shared / "data" / "sst2")

    def model(self, name: str) -> Path:
        return self.shared / "models" / name


BRIEF = {"repeats": 2, "examples": 400, "published": 200, "scored": 1000, "rows": (2_000, 6_000)}


def naive_ratio(H: np.ndarray, y: np.ndarray) -> float:
    """ν of states (n, d) in float64, as equation 3 reads."""
    H = H.astype(np.float64)
    classes = np.unique(y)
    means = np.stack([H[y == k].mean(axis=0) for k in classes])
    within = sum(np.cov(H[y == k].T, bias=True) for k in classes) / len(classes)
    between = np.cov(means.T, bias=True)
    inverse = np.linalg.pinv(between, rcond=1e-12, hermitian=True)
    return float(np.trace(within @ inverse)) / len(classes)


def published(folder: Path, split: Split, device: str, max_length: int = 128) -> list[float]:
    """Return ν of states 1..L by the published procedure."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    blocks = BertConfig.from_pretrained(folder).num_hidden_layers
    found = []
    for head in range(1, blocks + 1):
        model = AutoModel.from_pretrained(folder, num_hidden_layers=head, dtype=torch.float32)
        model.eval().to(device)
        order = np.random.default_rng(head).permutation(len(split))
        states = np.zeros((len(split), model.config.hidden_size), dtype=np.float32)
        for start in range(0, len(order), 8):
            rows = order[start : start + 8]
            batch = tokenizer(
                [split.texts[row] for row in rows],
                truncation=True,
                max_length=max_length,
                padding=True,
                return_special_tokens_mask=True,
                return_tensors="pt",
            ).to(device)
            ordinary = 1.0 - batch.pop("special_tokens_mask").float()
            with torch.inference_mode():
                state = model(**batch).last_hidden_state
                pooled = (state * ordinary[..., None]).sum(1) / ordinary.sum(1, keepdim=True)
            states[rows] = pooled.cpu().numpy()
        found.append(naive_ratio(states, split.labels))
    return found


def start_up(bench: Bench) -> list[Row]:
    """Time `layerscout --help`."""
    command = [str(Path(sys.executable).parent / "layerscout"), "--help"]
    work = {"help": lambda: subprocess.run(command, check=True, capture_output=True)}
    seconds = in_turns(9, work)["help"]
    spread = f"{statistics.median(seconds):.2f} s ({min(seconds):.2f}–{max(seconds):.2f})"
    return [("`layerscout --help`", spread, "below 0.5 s")]


def forward_of(encoder: Encoder, split: Split) -> Callable[[], None]:
    """Return what runs the bare model over the batches of a scan."""
    tokens = encoder.tokenize(split.texts)
    batches = [encoder.batch(tokens, rows) for rows in encoder.batches(tokens)]
    low, kind = encoder.precision == "bfloat16", encoder.device.type

    def forward() -> None:
        with torch.inference_mode(), torch.autocast(kind, torch.bfloat16, enabled=low):
            for inputs in batches:
                encoder.model(**inputs)

    return forward


def against_forward(bench: Bench) -> list[Row]:
    """Compare a whole scan with the forward pass of the same model on the same batches."""
    rows: list[Row] = []
    for precision in precisions(bench.random, bench.device):
        encoder = Encoder.load(bench.random, device=bench.device, precision=precision)

        def scan(scores: Sequence[str] | None, encoder: Encoder = encoder) -> None:
            clear_cache()
            ls.scan(encoder, bench.task, scores=scores, examples=bench.examples, progress=False)

        kinds = {"sums alone": partial(scan, MOMENTS), "default scores": partial(scan, None)}
        forward = forward_of(encoder, drawn(bench.task, bench.examples))
        seconds = in_turns(bench.repeats, {"forward": forward, **kinds})
        rows += [
            (
                f"speed of a scan of {bench.examples:,} texts over that of the bare forward pass, "
                f"{kind}, {precision}",
                ratio(seconds["forward"], seconds[kind]),
                "0.90 or more",
            )
            for kind in kinds
        ]
    return rows


def share_of_scores(bench: Bench) -> list[Row]:
    """Compare scoring kept states with the forward pass that gives them."""
    encoder = Encoder.load(bench.random, device=bench.device)
    split = drawn(bench.task, bench.scored)
    tokens, labels = encoder.tokenize(split.texts), split.labels
    states = pool_states(encoder, tokens, limit=DEFAULT_LIMIT).states["mean"]
    sample = Sample(labels, deal_groups(labels, 0), 0, None, first=0)
    works = {
        "forward": forward_of(encoder, split),
        "scores": lambda: score_states(states, sample, TOGETHER),
    }
    seconds = in_turns(bench.repeats, works)
    what = f"{len(TOGETHER)} scores of all {len(states)} states of {len(split):,} texts, as a share"
    share = ratio(seconds["scores"], seconds["forward"], 3)
    return [(f"{what} of the forward pass", share, "0.10 or less")]


def against_published(bench: Bench) -> list[Row]:
    """Compare a scan with the published procedure, loading included on both sides."""
    split = drawn(bench.task, bench.published)
    found: dict[str, list[float]] = {}

    def by_text() -> None:
        found["published"] = published(bench.random, split, bench.device)

    def by_scan(precision: str) -> None:
        clear_cache()
        encoder = Encoder.load(bench.random, device=bench.device, precision=precision)
        scores = [*MOMENTS, DEFAULT]
        result = ls.scan(
            encoder, bench.task, scores=scores, examples=bench.published, progress=False
        )
        found[precision] = list(result.scores["variability_ratio"].values[1:])

    taken = precisions(bench.random, bench.device)
    works = {"published": by_text, **{p: partial(by_scan, p) for p in taken}}
    # All of them load anew each time, so there is nothing to warm up.
    seconds = in_turns(min(bench.repeats, 3), works, uncounted=0)
    rows = []
    for precision, wanted in zip(taken, ("10 or more", "15 or more"), strict=False):
        change = np.abs(np.array(found[precision]) / np.array(found["published"]) - 1).max()
        what = f"ν of states 1 to 12 of {bench.published:,} texts, times faster than as published, "
        faster = ratio(seconds["published"], seconds[precision], 1)
        rows.append((f"{what}{precision}", f"{faster}; ν within {change:.1e}", wanted))
    return rows


def auto_examples(bench: Bench) -> list[Row]:
    """Compare scans that read as much as they need with the published procedure on all rows.

    That is run on some examples in the same turns, and extrapolated: what a run on 8 examples takes
    (loading the model cut at every layer) once, the rest in proportion to the rows.
    """
    split = drawn(bench.task, bench.published)
    firsts = [np.flatnonzero(split.labels == k)[:4] for k in (0, 1)]
    first = split.take(np.sort(np.concatenate(firsts)))
    return [_auto_of(bench, name, split, first) for name in (DEEP, SMALL)]


def _auto_of(bench: Bench, name: str, split: Split, first: Split) -> Row:
    """Compare both with one model, on examples and on the few of a single batch."""
    model = bench.model(name)

    def scan(examples: int | str, seed: int) -> ls.Scan:
        clear_cache()
        encoder = Encoder.load(model, device=bench.device)
        return ls.scan(encoder, bench.task, examples=examples, seed=seed, progress=False)

    def clocked(work: Callable[[], object]) -> tuple[float, Any]:
        started = time.perf_counter()
        result = work()
        return time.perf_counter() - started, result

    ours, theirs, bests = [], [], []
    for seed in range(min(bench.repeats, 3)):
        seconds, found = clocked(partial(scan, "auto", seed))
        ours.append(seconds)
        bests.append(found.best(DEFAULT))
        loading, _ = clocked(partial(published, model, first, bench.device))
        whole, _ = clocked(partial(published, model, split, bench.device))
        theirs.append(loading + (whole - loading) * len(bench.task.train) / len(split))
    every = scan("all", 0).scores[DEFAULT].values
    lost = 100 * (max(every[1:]) - min(every[best] for best in bests))
    what = f"`--examples auto` of {len(bench.task.train):,} rows, {name}, times faster than as"
    figure = f"{ratio(theirs, ours, 0)}; ℓ\\* at most {lost:.1f} points behind"
    return f"{what} published on all", figure, "50 or more; 1 point"


def jackknife_error(H: np.ndarray, y: np.ndarray, groups: int = 20) -> float:
    """Return the standard error of log ν by leaving out a stratified twentieth at a time."""
    rank = np.zeros(len(y), dtype=int)
    order = np.random.default_rng(0).permutation(len(y))
    for k in np.unique(y):
        members = order[y[order] == k]
        rank[members] = np.arange(len(members)) % groups
    logs = [np.log(naive_ratio(H[rank != g], y[rank != g])) for g in range(groups)]
    return float(np.sqrt((groups - 1) / groups * np.sum((logs - np.mean(logs)) ** 2)))


def both_precisions(bench: Bench) -> list[Row]:
    """Compare bfloat16 with float32 on real models and tasks: speed, and the change in ν."""
    medians, changes = [], []
    for name in (SMALL, DEEP):
        encoders = [
            Encoder.load(bench.model(name), device=bench.device, precision=precision)
            for precision in ("float32", "bfloat16")
        ]
        for data in ("sst2", "cola"):
            split = drawn(ls.Task.load(bench.shared / "data" / data), bench.examples)
            states: dict[str, np.ndarray] = {}

            def read(encoder: Encoder, split: Split = split, states: dict = states) -> None:
                states[encoder.precision] = encoder.states(split.texts).numpy()

            seconds = in_turns(3, {one.precision: partial(read, one) for one in encoders})
            pairs = zip(seconds["float32"], seconds["bfloat16"], strict=True)
            medians.append(statistics.median(full / half for full, half in pairs))
            exact, low = (
                np.array([naive_ratio(H, split.labels) for H in states[one.precision]])
                for one in encoders
            )
            errors = [jackknife_error(H, split.labels) for H in states["float32"]]
            changes.append(float((np.abs(np.log(low / exact)) / errors).max()))
    what = "bfloat16, times faster than float32, two models on two tasks"
    figure = f"{min(medians):.2f} to {max(medians):.2f}; ν changes by {max(changes):.2f} of its"
    return [(what, f"{figure} sampling error", "below 1 of the error")]


SCAN = """
import sys
import layerscout as ls
encoder = ls.Encoder.load(sys.argv[1], device=sys.argv[3])
ls.scan(encoder, ls.Task.load(sys.argv[2]), examples="all", progress=False)
"""


def memory(bench: Bench) -> list[Row]:
    """Compare the peak memory of a small and a large scan, each of a file and in a process."""
    peaks = []
    for examples in bench.rows:
        split = drawn(bench.task, examples)
        with tempfile.TemporaryDirectory() as folder:
            data = Path(folder) / "rows.tsv"
            rows = zip(split.texts, split.labels, strict=True)
            data.write_text("text\tlabel\n" + "".join(f"{t}\t{y}\n" for t, y in rows))
            peaks.append(measure_peak(SCAN, str(bench.model(SMALL)), str(data), bench.device))
    few, many = bench.rows
    what = f"peak memory of a scan of {few:,} and of {many:,} rows, {SMALL}"
    return [(what, f"{peaks[0]:,.0f} and {peaks[1]:,.0f} MB", "within 100 MB")]


SECTIONS: Mapping[str, Callable[[Bench], list[Row]]] = {
    "start": start_up,
    "forward": against_forward,
    "scores": share_of_scores,
    "published": against_published,
    "auto": auto_examples,
    "precision": both_precisions,
    "memory": memory,
}


def page() -> str:
    """Write the page from what is kept."""
    kept = read_rows(RECORDS)
    machines = list(dict.fromkeys(row["machine"] for row in kept))
    rows = [
        [row["what"], row["measured"], row["wanted"], str(machines.index(row["machine"]) + 1)]
        for row in kept
    ]
    about = "\n".join(f"{number}. {one}" for number, one in enumerate(machines, 1))
    return f"""# How fast is a scan?

About as fast as the forward pass that it needs, and many times faster than the procedure that the
paper on ν has, with the same values. Its memory does not grow with the rows.

{table(["what", "measured", "wanted", "machine"], rows)}

A ratio is the median over repeats done in turns in one run, with its minimum and maximum. Unless a
model is named it is a BERT of 12 blocks, 384 wide, with random weights, on texts of SST-2; loading
is left out beside the forward pass, and counted beside the published procedure. `--precision auto`
takes bfloat16 where it is known to be faster. The machines:

{about}

`python bench/scan.py --write docs/measured/benchmarks-scan.md` measures this, `--section NAME` a
part of it; the figures are kept in {link(RECORDS)}.
"""


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--section", action="append", choices=SECTIONS, help="all unless given")
    arguments = given(parser)
    brief = arguments.brief  # which is printed, and kept nowhere
    kept = [tuple(row[column] for column in COLUMNS) for row in read_rows(RECORDS)]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LAYERSCOUT_CACHE"] = str(Path(folder) / "cache")
        random = random_encoder(Path(folder) / "model", arguments.shared / "models" / SMALL)
        sizes = BRIEF if brief else {}
        bench = Bench(arguments.shared, random, arguments.device, **sizes)
        for name in arguments.section or SECTIONS:
            here = machine(arguments.device)
            found = [(name, *row, here) for row in SECTIONS[name](bench)]
            print(*found, sep="\n", flush=True)
            # What other machines did stays beside it.
            kept = [row for row in kept if (row[0], row[-1]) != (name, here)] + found
    if arguments.write and not brief:
        write_rows(RECORDS, COLUMNS, sorted(kept, key=lambda row: [*SECTIONS].index(row[0])))
        arguments.write.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
