"""Measure a decoder: a scan against a bare pass, LoRA on a few blocks against LoRA on all.

    python bench/decoder.py MODEL --shared ../shared --runs RUNS --write docs/measured/decoders.md

MODEL is a folder or hub id of SmolLM2-135M-Instruct. Tunings and times go into RUNS and are read
from there if they were made before, so that a run that was stopped goes on. Speeds are ratios of
two things done in turns in this one run, with their spread: run that part alone on the machine.
"""

import argparse
import json
import os
import statistics
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import torch

import layerscout as ls
from layerscout.data import Targets
from layerscout.models import Encoder, make_classifier, make_trainable
from layerscout.plans import ModelShape, Settings, Work, block_flops, cost, make_plan, trunk_flops
from layerscout.reporting import place_side_by_side, save_chart
from layerscout.states import Examples, clear_cache, compute_logits
from layerscout.tuning.training import train
from measuring import Section, drawn, given, in_turns, options, ratio, table, write_page
from methods import LORA, peft_everywhere
from tune import LABELS, Bench, SameBatches, examples, theirs, timed

TASKS = ("cola", "sst2", "wic", "mrpc")
SEEDS = (0, 1)
EXAMPLES, VALIDATION, EPOCHS = 640, 800, 3
LENGTHS = (128, 512, 2048)
INTRODUCTION = """# A decoder

SmolLM2-135M-Instruct (Llama family, 30 blocks of 576), rebuilt from 4-bit weights.
`python bench/decoder.py MODEL --runs RUNS --write docs/measured/decoders.md`

**In short.**

- Tuned plans are best with the head between states 18 and 23 of 30. The blocks above cost FLOPs
  and do not help.
- LoRA on the advised blocks, with the blocks above removed, does not differ beyond noise from LoRA
  on all blocks, on any task. It takes half of the training FLOPs and two thirds of the inference
  FLOPs.
- Decoders are pooled by the last token by default. On average its scores rank tuned plans a little
  better than those of the mean, but four tasks are too few to settle this, and the default score,
  `head_quality`, does better on the mean: on a decoder, try `--pooling mean` too. The default is
  the last token because heads read it, and because ν of the mean is undefined for many states: the
  first token of this model is an attention sink. From state 12 to 28 its states have a norm of
  23,000, those of the last token 120 to 650 (medians over 100 texts of CoLA), so that a mean over
  tokens mostly shows how long a text is. Scores of the first token alone are no better than chance
  on average.
- All of this comes from one small model, 640 examples and short texts. With so few examples, CoLA
  is hardly learnt: 69 to 70 % are of its majority class. On MRPC only heads and single blocks were
  tuned, so it is included where plans are ranked, but not on the page about advice."""
FEW, ALL = "(13, 15, 15)", "(1, 30, 30)"
DRAWS = 2000
MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
POOLINGS = ("mean", "last", "cls")
TRIALS = Path(__file__).parent / "advice" / "trials"


def against_forward(encoder: Encoder, task: ls.Task, repeats: int) -> Section:
    """Compare a whole scan with the forward pass of the same model on the same batches."""
    split = drawn(task, EXAMPLES)
    tokens = encoder.tokenize(split.texts, split.pairs)
    batches = [encoder.batch(tokens, rows) for rows in encoder.batches(tokens)]

    def forward() -> None:
        with torch.inference_mode():
            for inputs in batches:
                encoder.model(**inputs)

    def scan() -> None:
        ls.scan(encoder, task, examples=EXAMPLES, cache_limit=0, progress=False)

    seconds = in_turns(repeats, {"forward": forward, "scan": scan})
    text = (
        f"{EXAMPLES} examples of {task.name}, {tokens.lengths.mean():.0f} tokens each, {repeats} "
        "repeats, the default scores, nothing kept. What the scores cost depends on the examples "
        "and the width alone, so short texts show it most. Wanted: at most 1.10.\n\n"
        + table(
            ["forward pass", "scan", "scan / forward"],
            [
                [
                    f"{statistics.median(seconds['forward']):.1f} s",
                    f"{statistics.median(seconds['scan']):.1f} s",
                    ratio(seconds["scan"], seconds["forward"]),
                ]
            ],
        )
    )
    return Section("A scan against a bare pass", text)


def few_blocks(bench: Bench) -> float:
    """Train LoRA on three blocks from nothing: seconds of the trunk and of all steps."""
    clear_cache()
    plan = make_plan(FEW, bench.encoder.blocks)
    model = make_trainable(make_classifier(bench.encoder, plan, LABELS), plan, LORA).model
    validation = examples(bench, plan, 8)
    training = examples(bench, plan)
    run, _ = train(
        bench.encoder,
        model,
        training,
        validation,
        learning_rate=5e-4,
        seed=0,
        settings=Settings(epochs=EPOCHS, batch_size=8),
    )
    assert training.trunk is not None
    return training.trunk.seconds + run.seconds["train"]


def against_peft(encoder: Encoder, task: ls.Task, repeats: int) -> Section:
    """Compare LoRA on three blocks with peft's on all, under transformers' Trainer."""
    split = drawn(task, EXAMPLES)
    tokens = encoder.tokenize(split.texts, split.pairs)
    bench = Bench(encoder, tokens, split.labels)
    padded: dict[str, int] = {}

    def prepare(model: Any) -> Any:
        model.config.pad_token_id = encoder.tokenizer.pad_token_id
        model.config.use_cache = False
        return peft_everywhere(model, ("model.norm", "score"))

    seconds = timed(
        repeats,
        {
            "few": lambda: few_blocks(bench),
            "all": lambda: theirs(bench, SameBatches, 8, padded, prepare, EPOCHS),
        },
    )
    # A pass forward and one backward through every block and epoch; the trunk once, forward.
    plan, L = make_plan(FEW, encoder.blocks), encoder.blocks
    limit = 2 * L * EPOCHS / ((plan.cut or 0) + 2 * len(plan.tuned) * EPOCHS)
    faster = [a / b for a, b in zip(seconds["all"], seconds["few"], strict=True)]
    text = (
        f"LoRA of rank 8 on blocks 13 to 15 with the head at state 15, against peft's on all {L} "
        f"under the Trainer with the same batches of 8: {EXAMPLES} examples of {task.name}, "
        f"{EPOCHS} epochs, {repeats} repeats. Times run from the first trunk block to the "
        "last step. The limit counts passes through blocks. Wanted: 0.9 of it.\n\n"
        + table(
            ["all", "few", "all / few", "limit", "of the limit"],
            [
                [
                    f"{statistics.median(seconds['all']):.1f} s",
                    f"{statistics.median(seconds['few']):.1f} s",
                    ratio(seconds["all"], seconds["few"], 1),
                    f"{limit:.1f}",
                    f"{statistics.median(faster) / limit:.2f}",
                ]
            ],
        )
    )
    return Section("LoRA on three blocks against LoRA on all: time", text)


def long_inputs(encoder: Encoder, task: ls.Task, repeats: int) -> Section:
    """Compare steps of LoRA on three blocks and on all, in time and by count, as inputs grow."""
    shape, joined = encoder.shape(len(LABELS)), " ".join(drawn(task, EXAMPLES).texts)
    rows = []
    for length in LENGTHS:
        tokens = encoder.tokenize([joined], max_length=length)
        steps, flops = {}, {}
        for name in (FEW, ALL):
            plan = make_plan(name, encoder.blocks)
            model = make_trainable(make_classifier(encoder, plan, LABELS), plan, LORA).model.train()
            made = Examples.prepare(encoder, plan, tokens, Targets.of(np.zeros(1, np.int64)))

            def step(model: Any = model, made: Examples = made) -> None:
                compute_logits(encoder, model, made, np.zeros(1, np.int64)).sum().backward()

            steps[name] = step
            work = Work(1, 0, float(tokens.lengths[0]), 1)
            flops[name] = cost(plan, shape, work, LORA).train - trunk_flops(plan, shape, work)
        seconds = in_turns(repeats, steps)
        rows.append(
            [
                f"{tokens.lengths[0]:,}",
                f"{statistics.median(seconds[ALL]):.2f} s",
                f"{statistics.median(seconds[FEW]):.2f} s",
                ratio(seconds[ALL], seconds[FEW], 1),
                f"{flops[ALL] / flops[FEW]:.1f}",
                f"{flops[ALL] / statistics.median(seconds[ALL]) / 1e9:.0f}",
                f"{flops[FEW] / statistics.median(seconds[FEW]) / 1e9:.0f}",
            ]
        )
    text = (
        f"A step of LoRA on one text: on all blocks, and on {FEW} from the cached state. "
        f"{repeats} repeats. By the count attention makes "
        f"{_share_of_attention(shape, LENGTHS[0]):.0%} of a block's forward pass at "
        f"{LENGTHS[0]:,} tokens and {_share_of_attention(shape, LENGTHS[-1]):.0%} at "
        f"{LENGTHS[-1]:,}.\n\n"
        + table(
            [
                *("tokens", "all", "few", "all / few", "counted"),
                *("GFLOPs/s by count: all", "few"),
            ],
            rows,
        )
    )
    return Section("Long inputs", text)


def _share_of_attention(shape: ModelShape, tokens: int) -> float:
    return 4 * tokens**2 * shape.queries / block_flops(shape, tokens)


@dataclass(frozen=True)
class Tuned:
    """A tuning that was made: its result, and whether it was right on each example."""

    content: dict[str, Any]
    right: np.ndarray


def tune_once(model: str, task: str, shared: Path, plan: str, seed: int, runs: Path) -> Tuned:
    """Tune by LoRA, or read what was tuned before."""
    folder = runs / f"{task}-{plan.replace(' ', '')}-{seed}"
    if not (folder / "result.json").is_file():
        loaded = ls.Task.load(shared / "data" / task)
        result = ls.tune(
            model,
            loaded,
            plan=plan,
            method="lora",
            seed=seed,
            examples=EXAMPLES,
            epochs=EPOCHS,
            batch_size=8,
            keep="last",
            progress=False,
        )
        result.save(folder)
    content = json.loads((folder / "result.json").read_text())
    found = pd.read_parquet(folder / "predictions.parquet")
    return Tuned(content, (found["label"] == found["prediction"]).to_numpy())


def compare_quality(model: str, shared: Path, runs: Path, tasks: Sequence[str]) -> Section:
    """Compare LoRA on the advised blocks with LoRA on all, in points of accuracy."""
    rng, rows = np.random.default_rng(0), []
    for task in tasks:
        pairs = [
            [tune_once(model, task, shared, plan, seed, runs) for plan in ("auto", ALL)]
            for seed in SEEDS
        ]
        apart = np.array([100.0 * few.right - 100.0 * whole.right for few, whole in pairs])
        draws = [
            apart[rng.integers(len(apart), size=len(apart))][
                :, rng.integers(apart.shape[1], size=apart.shape[1])
            ].mean()
            for _ in range(DRAWS)
        ]
        low, high = np.percentile(draws, [2.5, 97.5])
        few, whole = ([pair[at] for pair in pairs] for at in (0, 1))
        majority = np.bincount(pd.factorize(_labels(runs, task))[0]).max() / apart.shape[1]
        rows.append(
            [
                task,
                ", ".join(dict.fromkeys(one.content["plan"]["notation"] for one in few)),
                f"{100 * majority:.1f}",
                f"{100 * np.mean([one.right.mean() for one in few]):.1f}",
                f"{100 * np.mean([one.right.mean() for one in whole]):.1f}",
                f"{apart.mean():+.1f} ({low:+.1f} to {high:+.1f})",
                _share(few, whole, "flops", "train"),
                _share(few, whole, "flops", "inference"),
                _share(few, whole, "parameters", "total"),
            ]
        )
    text = (
        f"Rank 8, {EXAMPLES} examples, {EPOCHS} epochs, the epoch at the end, seeds "
        f"{' and '.join(map(str, SEEDS))}; accuracy on the whole validation split. `auto` scans "
        "first, pools the last token, and may spend half of full fine-tuning. Intervals: 95 %, "
        "drawn over seeds and examples together.\n\n"
        + table(
            [
                *("task", "advised", "majority class", "advised: accuracy", "all 30: accuracy"),
                *("points apart", "training FLOPs", "inference FLOPs", "parameters"),
            ],
            rows,
        )
    )
    return Section("LoRA on the advised blocks against LoRA on all: quality", text)


def read_records(trials: Path) -> list[dict[str, Any]]:
    """Read the records of the decoder."""
    records = [json.loads(path.read_text()) for path in sorted(trials.glob("*.json"))]
    return [record for record in records if MODEL in record["models"]]


def draw_curves(records: Sequence[dict[str, Any]], path: Path) -> Section:
    """Draw tuned quality by the head's place, and below it every score by state and pooling."""
    tasks = sorted({record["task"] for record in records})
    tuned = [
        {
            "task": record["task"],
            "state": record["result"]["plan"]["head"],
            "blocks tuned": str(len(record["result"]["plan"]["tuned"])),
            "value": record["result"]["last"]["value"],
        }
        for record in records
        if record["verb"] == "tune"
    ]
    scanned = [
        {
            "task": record["task"],
            "score": key,
            "pooling": record["arguments"]["pooling"],
            "state": state,
            "value": value,
        }
        for record in records
        if record["verb"] == "scan"
        for key, score in record["result"]["scores"].items()
        for state, value in enumerate(score["values"])
    ]
    keys = list(dict.fromkeys(one["score"] for one in scanned))
    widths = sorted({one["blocks tuned"] for one in tuned}, key=int)
    charts = [
        _draw_panel(
            [one for one in tuned if one["task"] == task],
            f"{task}: tuned",
            ("blocks tuned", widths),
            legend=task == tasks[-1],
        )
        for task in tasks
    ] + [
        _draw_panel(
            [one for one in scanned if (one["score"], one["task"]) == (key, task)],
            f"{task}: {key}",
            ("pooling", POOLINGS),
            legend=(key, task) == (keys[0], tasks[-1]),
        )
        for key in keys
        for task in tasks
    ]
    save_chart(place_side_by_side(charts, len(tasks)).resolve_scale(color="independent"), path)
    text = (
        f"In the first row what plans reach by the state that their head reads, one line for each "
        "number of blocks that are tuned; below it every score, one line for each pooling. Means "
        f"over two seeds, {EXAMPLES} examples.\n\n![tuned quality and scores by "
        f"state]({path.name})"
    )
    return Section("The curves", text)


def _draw_panel(
    values: Sequence[dict[str, Any]], title: str, colour: tuple[str, Sequence[str]], *, legend: bool
) -> alt.Chart:
    name, names = colour
    return (
        alt.Chart(alt.Data(values=list(values)), title=title, width=200, height=100)
        .mark_line(strokeWidth=1)  # points on every line made the picture a megabyte
        .encode(
            x=alt.X("state:Q", title=None),
            y=alt.Y("mean(value):Q", title=None, scale=alt.Scale(zero=False)),
            color=alt.Color(
                f"{name}:N",
                scale=alt.Scale(domain=list(names)),
                legend=alt.Legend(title=name) if legend else None,
            ),
        )
    )


def compare_memory(model: str, shared: Path) -> Section:
    """Compare predicted memory with what a fresh process took, LoRA on three blocks and on all."""
    shape = Encoder.load(model, device="cpu").shape(2)
    encoder = 4 * (shape.parameters.total - shape.parameters.head)
    rows = []
    for plan in (FEW, ALL):
        # The allocator of glibc reads the setting when a process begins.
        (predicted, usual), (_, returning) = (
            _run_afresh(setting, model, str(shared / "data" / "sst2"), plan)
            for setting in ({}, {"MALLOC_MMAP_THRESHOLD_": "131072"})
        )
        wanted = predicted - encoder
        sizes = [f"{size / 1e6:,.0f} MB" for size in (predicted, wanted, usual, returning)]
        rows.append([plan, *sizes, f"{wanted / returning:.2f}"])
    text = (
        "LoRA of rank 8 on 64 examples of sst2 in batches of 32, one epoch, each plan in a process "
        "of its own. The process holds the encoder before, so the prediction without it is "
        "compared with what the resident size grows by at its peak. glibc keeps much of what is "
        "given back to it, unless `MALLOC_MMAP_THRESHOLD_=131072` is set (see `man mallopt`). The "
        "growth also has libraries that load late and states that are mapped from the cache.\n\n"
        + table(
            [
                *("plan", "predicted", "without the encoder", "grown by"),
                *("the same with the threshold", "predicted / grown"),
            ],
            rows,
        )
    )
    return Section("Memory: predicted and used", text)


def _run_afresh(setting: dict[str, str], *told: str) -> tuple[int, int]:
    """Run `grow` in a process that begins with these variables."""
    os.environ.update(setting)
    try:
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            return pool.submit(grow, *told).result()
    finally:
        for name in setting:
            del os.environ[name]


def grow(model: str, data: str, plan: str) -> tuple[int, int]:
    """Tune by LoRA: bytes predicted, and what the resident size grew by. Linux only."""
    encoder, task = Encoder.load(model, device="cpu"), ls.Task.load(data, validation=0.001)
    Path("/proc/self/clear_refs").write_text("5")  # the peak is from now on
    options: dict[str, Any] = {"examples": 64, "epochs": 1, "measure": "metric", "progress": False}
    memory = ls.tune(encoder, task, plan, method="lora", **options).content["memory"]
    return memory["predicted"], memory["used"] - memory["before"]


def compare_poolings(trials: Path) -> Section:
    """Compare how the scores of each pooling order tuned plans, from the records of the board.

    Plans that tune equally many blocks (none, one, a quarter, a half) differ in where the head is:
    of each two the share is counted that the score at their heads orders as tuned quality does.
    """
    records = read_records(trials)
    tuned: dict[tuple[str, int], list[tuple[int, int, float]]] = {}
    for record in records:
        if record["verb"] == "tune":
            plan, last = record["result"]["plan"], record["result"]["last"]
            at = (record["task"], record["arguments"]["seed"])
            tuned.setdefault(at, []).append((len(plan["tuned"]), plan["head"], last["value"]))
    shares: dict[tuple[str, str], list[float]] = {}
    tasks = set()
    for record in records:
        if record["verb"] != "scan":
            continue
        asked = record["arguments"]
        plans = tuned.get((record["task"], asked["seed"]), [])
        for key, score in record["result"]["scores"].items():
            share = _share_in_order(score["values"], score["better"], plans)
            if share is not None:
                shares.setdefault((key, asked["pooling"]), []).append(share)
                tasks.add(record["task"])
    keys = list(dict.fromkeys(key for key, _ in shares))

    def cell(key: str, pooling: str) -> str:
        found = shares.get((key, pooling))
        return "" if found is None else f"{100 * np.mean(found):.0f}"

    rows = [[f"`{key}`", *(cell(key, pooling) for pooling in POOLINGS)] for key in keys]
    for pooling in [one for one in POOLINGS if any(p == one for _, p in shares)]:
        every = [100 * np.mean(shares[key, pooling]) for key in keys if (key, pooling) in shares]
        rows.append(
            [
                f"mean of {len(every)} scores, `{pooling}`",
                *(f"**{np.mean(every):.0f}**" if one == pooling else "" for one in POOLINGS),
            ]
        )
    text = (
        f"Tasks: {', '.join(sorted(tasks))}; 640 examples. Percent of pairs of tuned plans of "
        "equal width that the score at their heads orders as their tuned quality does, over both "
        "seeds; 50 is chance.\n\n" + table(["score", *(f"`{one}`" for one in POOLINGS)], rows)
    )
    return Section("Which pooling orders tuned plans best", text)


def _share_in_order(
    values: Sequence[float | None], better: str, plans: Sequence[tuple[int, int, float]]
) -> float | None:
    """Return the share of pairs of plans of equal width that the score orders rightly."""
    sign = 1 if better == "higher" else -1
    right = total = 0.0
    for width, head, value in plans:
        for other_width, other_head, other in plans:
            ours, theirs = values[head], values[other_head]
            if width != other_width or not head < other_head or value == other:
                continue
            if ours is None or theirs is None:
                continue
            total += 1
            apart = sign * (ours - theirs)
            right += 0.5 if apart == 0 else float((apart > 0) == (value > other))
    return right / total if total else None


def _labels(runs: Path, task: str) -> pd.Series:
    folder = next(iter(sorted(runs.glob(f"{task}-*"))))
    return pd.read_parquet(folder / "predictions.parquet")["label"]


def _share(few: Sequence[Tuned], whole: Sequence[Tuned], part: str, name: str) -> str:
    ours = np.mean([one.content[part][name] for one in few])
    return f"{100 * ours / np.mean([one.content[part][name] for one in whole]):.0f} %"


def keep(path: Path, measure: Callable[..., Section], *arguments: Any) -> Section:
    """Measure, or read what was measured before."""
    if not path.is_file():
        path.write_text(json.dumps(asdict(measure(*arguments))))
    return Section(**json.loads(path.read_text()))


def main() -> None:
    parser = options(__doc__ or "", brief=False)
    parser.add_argument("model")
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS))
    parser.add_argument("--only", choices=["quality", "speed", "memory"], help="one part of it")
    arguments: argparse.Namespace = given(parser)
    model, shared, runs = arguments.model, arguments.shared, arguments.runs
    runs.mkdir(parents=True, exist_ok=True)
    only, sections = arguments.only, []
    if only is None:
        picture = (arguments.write or runs / "decoders.md").with_suffix(".svg")
        sections += [draw_curves(read_records(TRIALS), picture), compare_poolings(TRIALS)]
    if only in (None, "quality"):
        sections.append(compare_quality(model, shared, runs, arguments.tasks))
    if only in (None, "memory"):
        sections.append(keep(runs / "memory.json", compare_memory, model, shared))
    if only in (None, "speed"):
        encoder = Encoder.load(model, device="cpu")
        short, long = (ls.Task.load(shared / "data" / name) for name in ("sst2", "mrpc"))
        repeats = arguments.repeats
        sections += [
            keep(runs / "forward.json", against_forward, encoder, short, repeats),
            keep(runs / "peft.json", against_peft, encoder, short, repeats),
            keep(runs / "long.json", long_inputs, encoder, long, repeats),
        ]
    write_page(INTRODUCTION, sections, arguments.write)


if __name__ == "__main__":
    main()
