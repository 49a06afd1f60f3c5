"""Measure a base-size model beside what counting allows: scan, phases of tuning, gradients, memory.

On one thread, with nothing else on the machine:

    OMP_NUM_THREADS=1 python bench/limits.py MODEL --write docs/measured/limits.md
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForSequenceClassification

import layerscout as ls
from layerscout.plans import METHODS, Work, cost, full_cost, make_plan, trunk_flops
from layerscout.states import clear_cache
from measuring import (
    Section,
    drawn,
    given,
    in_turns,
    measure_product,
    options,
    random_encoder,
    ratio,
    write_page,
)
from writing import table

EXAMPLES, HELD_OUT, EPOCHS, REPEATS = 256, 64, 2, 3
PLANS = ("head:8", "top:2", "(7, 8, 8)", "(4, 8, 8)", "full")
GRADIENTS = 100


def measure_scan(encoder: ls.Encoder, task: ls.Task) -> Section:
    """Compare the default scan, and linear probes, with a bare forward pass on the same batches."""
    split = drawn(task, EXAMPLES)
    tokens = encoder.tokenize(split.texts)
    batches = [encoder.batch(tokens, rows) for rows in encoder.batches(tokens)]
    few = ls.Task.from_lists(split.texts, [task.labels[y] for y in split.labels])

    def forward() -> None:
        with torch.inference_mode():
            for inputs in batches:
                encoder.model(**inputs)

    def scan(*scores: str) -> None:
        clear_cache()
        ls.scan(encoder, few, scores=scores or None, examples="all", progress=False)

    works = {"forward": forward, "scan": scan}
    works["probes"] = partial(scan, "head_quality", "probe")
    seconds = in_turns(REPEATS, works)
    rows = [
        ["default scores", ratio(seconds["scan"], seconds["forward"])],
        ["default scores and linear probes", ratio(seconds["probes"], seconds["forward"])],
    ]
    shape = encoder.shape(2, "classification", "family")
    flops = EXAMPLES * full_cost(shape, Work(EXAMPLES, 0, len(tokens.ids) / EXAMPLES, 1)).inference
    rate = flops / statistics.median(seconds["forward"])
    text = (
        f"Time of a whole scan of {EXAMPLES} texts, tokenising, forward pass, keeping states and "
        "scores included, over that of the bare forward pass on the same batches; loading "
        f"excluded. The bare pass reaches {rate / 1e9:.0f} GFLOP/s.\n\n"
    )
    return Section("Scan", text + table(["scores", "scan / forward"], rows))


def measure_phases(encoder: ls.Encoder, task: ls.Task) -> Section:
    """Return GFLOP/s of each phase of tuning, and its time beside what counting allows."""
    rng = np.random.default_rng(0)
    names = [task.labels[y] for y in task.train.labels]
    picked = rng.permutation(len(task.train))[: EXAMPLES + HELD_OUT]
    first, second = picked[:EXAMPLES], picked[EXAMPLES:]
    few = ls.Task.from_lists(
        [task.train.texts[i] for i in first],
        [names[i] for i in first],
        validation=([task.train.texts[i] for i in second], [names[i] for i in second]),
    )
    found: dict[str, dict[str, list[float]]] = {}
    counted: dict[str, dict[str, float]] = {}
    shape = encoder.shape(2, "classification", "family")
    for _ in range(REPEATS):
        for notation in PLANS:
            clear_cache()
            result = ls.tune(encoder, few, notation, epochs=EPOCHS, progress=False).content
            for phase, seconds in result["seconds"].items():
                found.setdefault(notation, {}).setdefault(phase, []).append(seconds)
            plan = make_plan(notation, encoder.blocks)
            tokens = result["task"]["tokens_per_example"]
            work = Work(EXAMPLES, HELD_OUT, tokens, EPOCHS)
            trunk = trunk_flops(plan, shape, work)
            whole = cost(plan, shape, work, METHODS["full"]()).train
            judged = cost(plan, shape, Work(EXAMPLES, 0, tokens, EPOCHS), METHODS["full"]()).train
            judged = whole - judged - trunk * HELD_OUT / (EXAMPLES + HELD_OUT)
            counted[notation] = {
                "trunk": trunk,
                "evaluate": judged,
                "train": whole - trunk - judged,
                "whole": whole,
            }
    rows = []
    for notation, phases in found.items():
        times = {name: statistics.median(values) for name, values in phases.items()}
        rates = [
            f"{counted[notation][name] / times[name] / 1e9:.0f}"
            if times[name] > 0.01 and counted[notation][name] > 1e9
            else "–"
            for name in ("trunk", "train", "evaluate")
        ]
        whole = [sum(values) for values in zip(*phases.values(), strict=True)]
        full = [sum(values) for values in zip(*found["full"].values(), strict=True)]
        allowed = counted[notation]["whole"] / counted["full"]["whole"]
        reached = statistics.median(b / a for a, b in zip(whole, full, strict=True))
        times_faster = [ratio(full, whole), f"{1 / allowed:.2f}", f"{reached * allowed:.2f}"]
        rows.append([notation, *rates, f"{statistics.median(whole):.1f} s", *times_faster])
    columns = ["plan", "trunk, GFLOP/s", "training, GFLOP/s", "validation, GFLOP/s", "time"]
    columns += ["times faster than full", "allowed by counting", "share of that"]
    text = (
        f"{EXAMPLES} training and {HELD_OUT} validation texts, {EPOCHS} epochs, batches of 32; the "
        "trunk, its cache, all steps with the optimiser's, and validation. FLOPs are counted as "
        "`plan` does (without padding and without the optimiser), so padding lowers the rates.\n\n"
    )
    return Section("Phases of tuning", text + table(columns, rows))


def measure_gradients(encoder: ls.Encoder, task: ls.Task, folder: str) -> Section:
    """Compare the gradient-based scores with the backward passes that they count."""
    split = drawn(task, GRADIENTS)
    texts, labels = split.texts, [task.labels[y] for y in split.labels]
    few = ls.Task.from_lists(texts, labels, validation=(texts, labels))  # the rows that are read
    tokens = encoder.tokenize(split.texts)
    batches = [encoder.batch(tokens, rows) for rows in encoder.batches(tokens)]
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()

    def passes() -> None:
        for inputs in batches:
            logits = model(**inputs).logits
            for label in range(logits.shape[1]):
                logits[:, label].sum().backward(retain_graph=True)
                model.zero_grad()

    def scan(*scores: str) -> None:
        clear_cache()
        ls.scan(encoder, few, scores=scores, examples="all", head_seeds=1, progress=False)

    seconds = in_turns(
        REPEATS,
        {
            "passes": passes,
            "fisher": partial(scan, "fisher"),
            "all": partial(scan, "fisher", "gradient_norm", "saliency"),
        },
    )
    rows = [
        ["`fisher`", ratio(seconds["fisher"], seconds["passes"])],
        ["`fisher`, `gradient_norm`, `saliency`", ratio(seconds["all"], seconds["passes"])],
    ]
    text = (
        f"{GRADIENTS} texts, 2 classes, one head seed, beside a forward and two backward passes of "
        "the whole model on the same batches, whose gradients are not those of single texts.\n\n"
    )
    return Section("Gradients", text + table(["scores", "time / passes"], rows))


MEMORY = """
import json, sys
import layerscout as ls
model, data, plan = sys.argv[1:]
encoder = ls.Encoder.load(model, device="cpu")
memory = ls.tune(encoder, ls.Task.load(data), plan, epochs=1, progress=False).content["memory"]
print(json.dumps([memory["predicted"], memory["used"]]))
"""


def measure_memory(task: ls.Task, folder: str, tokenizer: Path) -> Section:
    """Compare predicted memory with what a process takes beyond one that tunes a tiny model."""

    def tune(model: str, plan: str, **environment: str) -> tuple[int, int]:
        command = [sys.executable, "-c", MEMORY, model, str(path), plan]
        with tempfile.TemporaryDirectory() as cache:  # so that each computes its trunk
            done = subprocess.run(
                command,
                stdout=subprocess.PIPE,
                text=True,
                check=True,
                env=os.environ | environment | {"LAYERSCOUT_CACHE": cache},
            )
        predicted, used = json.loads(done.stdout.splitlines()[-1])
        return predicted, used

    rows = []
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "train.jsonl"
        with path.open("w", encoding="utf-8") as file:
            for i in range(EXAMPLES):
                row = {"text": task.train.texts[i], "label": int(task.train.labels[i])}
                file.write(json.dumps(row) + "\n")
        tiny = random_encoder(Path(name) / "tiny", tokenizer, 2, 32)
        predicted, used = tune(str(tiny), "top:1")
        libraries = used - predicted
        for plan in PLANS:
            predicted, used = tune(folder, plan)
            _, mapped = tune(folder, plan, MALLOC_MMAP_THRESHOLD_=str(2**20))
            taken = [used - libraries, mapped - libraries]
            rows.append([plan, *(f"{size / 1e6:,.0f} MB" for size in (predicted, *taken))])
            rows[-1] += [f"{one / predicted - 1:+.0%}" for one in taken]
    text = (
        "What `tune` predicts, and the peak of a process less that of one that tunes a model of 2 "
        f"blocks, 32 wide; {EXAMPLES} texts, batches of 32, one epoch, one run each. The "
        "C allocator keeps much of what is freed, unless `MALLOC_MMAP_THRESHOLD_=1048576` is set "
        "before the command.\n\n"
    )
    columns = ["plan", "predicted", "taken", "taken with the threshold"]
    columns += ["off by", "off by with the threshold"]
    return Section("Memory", text + table(columns, rows))


def main() -> None:
    parser = options(__doc__ or "", brief=False)
    parser.add_argument("model", help="folder of a base-size model")
    parser.add_argument("--only", choices=["scan", "phases", "gradients", "memory"])
    arguments = given(parser)
    if arguments.only and arguments.write:
        parser.error("a page has all sections; leave out --only, or --write")
    with tempfile.TemporaryDirectory() as cache:
        os.environ["LAYERSCOUT_CACHE"] = cache
        measure(arguments)


def measure(arguments: argparse.Namespace) -> None:
    task = ls.Task.load(arguments.shared / "data" / "sst2", task="sst2")
    encoder = ls.Encoder.load(arguments.model, device="cpu")
    width = encoder.shape(2, "classification", "family").hidden_size
    measured = {tokens: measure_product(tokens, width) / 1e9 for tokens in (64, 512, 4096)}
    rates = [f"{rate:.0f} for {tokens:,} tokens" for tokens, rate in measured.items()]
    introduction = (
        "# Limits at base size\n\nWritten by `OMP_NUM_THREADS=1 python bench/limits.py MODEL "
        f"--write docs/measured/limits.md`, with {Path(arguments.model).name} ({encoder.blocks} "
        f"blocks) and texts of SST-2, in float32. Ratios are medians of {REPEATS} turns, with "
        "their range. A product of the shape of the feed-forward layer reaches "
        f"{', '.join(rates)} (GFLOP/s)."
    )
    small = arguments.shared / "models" / "all-MiniLM-L6-v2"  # whose tokenizer is BERT's
    works = {
        "scan": partial(measure_scan, encoder, task),
        "phases": partial(measure_phases, encoder, task),
        "gradients": partial(measure_gradients, encoder, task, arguments.model),
        "memory": partial(measure_memory, task, arguments.model, small),
    }
    sections = [work() for name, work in works.items() if arguments.only in (None, name)]
    write_page(introduction, sections, arguments.write)


if __name__ == "__main__":
    main()
