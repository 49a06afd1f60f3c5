"""Measure a scan: speed against a bare forward and the published procedure, precision, memory.

Every speed is a ratio of two things done in this one run, in turns, with its spread. Run it alone
on the machine:

    python bench/scan.py --shared ../shared --write docs/measured/benchmarks-scan.md

The published procedure (Xie et al. 2022, §3.1) is stated again here as the text has it: one run
for each layer of the model cut at that layer, batches of 8 in random order, each padded to its
longest text, the states kept and ν computed from them.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer, BertConfig

import layerscout as ls
from layerscout.data import Split
from layerscout.states import clear_cache
from measuring import (
    Section,
    drawn,
    given,
    in_turns,
    measure_peak,
    options,
    precisions,
    random_encoder,
    ratio,
    table,
    write_page,
)


@dataclass(frozen=True)
class Size:
    """How much is measured.

    Attributes:
        repeats: of what is short.
        examples: of the scan against a forward pass.
        published: examples that the published procedure reads, three times at most.
        precision: examples that both precisions read.
        rows: of a small and of a large scan whose memory is compared.
    """

    repeats: int
    examples: int
    published: int
    precision: int
    rows: tuple[int, int]


MOMENTS = [key for key, score in ls.scores.SCORES.items() if score.source == "moments"]

WHOLE = Size(5, 2000, 2000, 2000, (5_000, 60_000))
BRIEF = Size(2, 1000, 200, 400, (2_000, 6_000))


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


def against_forward(folder: Path, task: ls.Task, size: Size, device: str) -> Section:
    """Compare a whole scan with the forward pass of the same model on the same batches."""
    rows = []
    for precision in precisions(folder, device):
        encoder = ls.Encoder.load(folder, device=device, precision=precision)
        split = drawn(task, size.examples)
        tokens = encoder.tokenize(split.texts)
        batches = [encoder.batch(tokens, rows) for rows in encoder.batches(tokens)]

        def forward(encoder: ls.Encoder = encoder, batches: list = batches) -> None:
            low = encoder.precision == "bfloat16"
            kind = encoder.device.type
            with torch.inference_mode(), torch.autocast(kind, torch.bfloat16, enabled=low):
                for inputs in batches:
                    encoder.model(**inputs)

        def scan(scores: Sequence[str] | None, encoder: ls.Encoder = encoder) -> None:
            clear_cache()
            ls.scan(encoder, task, scores=scores, examples=size.examples, progress=False)

        kinds = {
            ", ".join(f"`{key}`" for key in MOMENTS): partial(scan, MOMENTS),
            "those of every scan": partial(scan, None),
        }
        seconds = in_turns(size.repeats, {"forward": forward, **kinds})
        for kind in kinds:
            rate = size.examples / statistics.median(seconds[kind])
            share = ratio(seconds["forward"], seconds[kind])
            rows.append([precision, kind, share, f"{rate:,.0f}"])
    text = (
        "Examples per second of the whole scan (drawing, tokenising, forward pass, pooling, "
        "scoring; loading excluded on both sides), over those of the bare forward pass on the "
        f"same length-sorted batches of {size.examples:,} examples. Scores of sums alone keep "
        "no states; the debiased ratio of every scan keeps them, with nothing in the cache "
        "before, and comes with its intervals. In float32 and, if different, in the "
        "precision that `auto` takes. Target: 0.90 or more for sums alone.\n\n"
    )
    return Section(
        "Scan against a bare forward pass",
        text + table(["precision", "scores", "scan / forward", "examples/s of the scan"], rows),
    )


def against_published(folder: Path, task: ls.Task, size: Size, device: str) -> Section:
    """Compare a scan with the published procedure, loading included on both sides."""
    examples = size.published
    split = drawn(task, examples)
    found: dict[str, list[float]] = {}

    def by_text() -> None:
        found["published"] = published(folder, split, device)

    def by_scan(precision: str) -> None:
        clear_cache()
        encoder = ls.Encoder.load(folder, device=device, precision=precision)
        result = ls.scan(encoder, task, examples=examples, progress=False)
        found[precision] = list(result.scores["variability_ratio"].values[1:])

    taken = precisions(folder, device)
    works = {"published": by_text, **{p: partial(by_scan, p) for p in taken}}
    # All of them load anew each time, so there is nothing to warm up.
    seconds = in_turns(min(size.repeats, 3), works, uncounted=0)
    rows = []
    for precision in taken:
        change = np.abs(np.array(found[precision]) / np.array(found["published"]) - 1).max()
        rows.append(
            [precision, ratio(seconds["published"], seconds[precision], 1), f"{change:.1e}"]
        )
    text = (
        f"Time of the published procedure over the time of a scan, both from loading to ν of "
        f"states 1..12, on {examples:,} examples. The published procedure, in float32, took "
        f"{statistics.median(seconds['published']):.0f} s. `auto` was {taken[-1]} here. "
        "Target: 10 or more in float32 with the same ν to 1e-4 relative, 15 or more in `auto`.\n\n"
    )
    columns = ["precision", "times faster", "largest relative difference of ν"]
    return Section("Scan against the published procedure", text + table(columns, rows))


def jackknife_error(H: np.ndarray, y: np.ndarray, groups: int = 20) -> float:
    """Return the standard error of log ν by leaving out a stratified twentieth at a time."""
    rank = np.zeros(len(y), dtype=int)
    order = np.random.default_rng(0).permutation(len(y))
    for k in np.unique(y):
        members = order[y[order] == k]
        rank[members] = np.arange(len(members)) % groups
    logs = [np.log(naive_ratio(H[rank != g], y[rank != g])) for g in range(groups)]
    return float(np.sqrt((groups - 1) / groups * np.sum((logs - np.mean(logs)) ** 2)))


def both_precisions(
    model: Path, split: Split, device: str
) -> tuple[dict[str, np.ndarray], dict[str, list[float]]]:
    """Return the states (L + 1, n, d) in float32 and in bfloat16, and the seconds of each run."""
    states: dict[str, np.ndarray] = {}

    def read(encoder: ls.Encoder) -> None:
        states[encoder.precision] = encoder.states(split.texts).numpy()

    encoders = [ls.Encoder.load(model, device=device, precision=p) for p in ("float32", "bfloat16")]
    return states, in_turns(3, {e.precision: lambda e=e: read(e) for e in encoders})


def precision_on_real_tasks(shared: Path, examples: int, device: str) -> Section:
    """Compare bfloat16 with float32 on real checkpoints and tasks: speed, and the change in ν."""
    rows = []
    for name, data in (
        ("all-MiniLM-L6-v2", "sst2"),
        ("all-MiniLM-L6-v2", "cola"),
        ("stacked-minilm-12", "sst2"),
        ("stacked-minilm-12", "cola"),
    ):
        split = drawn(ls.Task.load(shared / "data" / data), examples)
        states, seconds = both_precisions(shared / "models" / name, split, device)
        exact, low = (np.array([naive_ratio(H, split.labels) for H in states[p]]) for p in states)
        errors = np.array([jackknife_error(H, split.labels) for H in states["float32"]])
        change = np.abs(np.log(low / exact))
        rows.append(
            [
                name,
                data,
                ratio(seconds["float32"], seconds["bfloat16"]),
                f"{change.max():.1e}",
                f"{errors.min():.1e}",
                f"{(change / errors).max():.2f}",
                f"{1 + exact[1:].argmin()}, {1 + low[1:].argmin()}",
            ]
        )
    text = (
        f"{examples:,} examples. The change is the largest of |log ν(bfloat16) − log ν(float32)| "
        "over the states; the sampling error is that of log ν by a jackknife over 20 groups (the "
        "smallest over the states is shown). `--precision auto` takes bfloat16 where it is "
        "known to be faster; it may, as long as the change stays below the sampling error.\n\n"
    )
    columns = [
        "model",
        "task",
        "times faster",
        "largest change",
        "smallest sampling error",
        "largest change / error",
        "ℓ* float32, bfloat16",
    ]
    return Section("bfloat16 against float32", text + table(columns, rows))


SCAN = """
import sys
import layerscout as ls
encoder = ls.Encoder.load(sys.argv[1], device=sys.argv[3])
ls.scan(encoder, ls.Task.load(sys.argv[2]), examples="all", progress=False)
"""


def memory(shared: Path, sizes: tuple[int, int], device: str) -> Section:
    """Compare the peak memory of a small and a large scan, each of a file and in a process."""
    task = ls.Task.load(shared / "data" / "sst2")
    peaks = {}
    for examples in sizes:
        split = drawn(task, examples)
        with tempfile.TemporaryDirectory() as folder:
            data = Path(folder) / "rows.tsv"
            rows = zip(split.texts, split.labels, strict=True)
            data.write_text("text\tlabel\n" + "".join(f"{t}\t{y}\n" for t, y in rows))
            model = shared / "models" / "all-MiniLM-L6-v2"
            peaks[examples] = measure_peak(SCAN, str(model), str(data), device)
        print(f"  peak of {examples}: {peaks[examples]:.0f} MB", file=sys.stderr)
    few, many = sizes
    text = (
        "Peak resident memory of a scan of all rows of a TSV with all-MiniLM-L6-v2, a process "
        f"each: {peaks[few]:.0f} MB for {few:,} rows of SST-2, {peaks[many]:.0f} MB for {many:,}: "
        f"{peaks[many] - peaks[few]:+.0f} MB. Target: within 100 MB."
    )
    return Section("Memory", text)


def start_up() -> Section:
    """Time `layerscout --help`."""
    command = [str(Path(sys.executable).parent / "layerscout"), "--help"]
    seconds = in_turns(
        9, {"help": lambda: subprocess.run(command, check=True, capture_output=True)}
    )
    help_seconds = seconds["help"]
    text = (
        f"`layerscout --help`: {statistics.median(help_seconds):.2f} s (median of 9, "
        f"{min(help_seconds):.2f}–{max(help_seconds):.2f}). Target: below 0.5 s."
    )
    return Section("Start-up", text)


def main() -> None:
    arguments = given(options(__doc__ or ""))
    size = BRIEF if arguments.brief else WHOLE
    task = ls.Task.load(arguments.shared / "data" / "sst2")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LAYERSCOUT_CACHE"] = str(Path(folder) / "cache")
        random = random_encoder(
            Path(folder) / "model", arguments.shared / "models" / "all-MiniLM-L6-v2"
        )
        sections = [
            start_up(),
            against_forward(random, task, size, arguments.device),
            against_published(random, task, size, arguments.device),
            precision_on_real_tasks(arguments.shared, size.precision, arguments.device),
            memory(arguments.shared, size.rows, arguments.device),
        ]
    introduction = (
        "# Benchmarks of the scan\n\nWritten by `python bench/scan.py`. A ratio is the median over "
        "repeats done in turns in one run, with its minimum and maximum. Unless a model is "
        "named it is a BERT of 12 blocks, 384 wide, with random weights, on examples of SST-2."
    )
    write_page(introduction, sections, arguments.write, arguments.device)


if __name__ == "__main__":
    main()
