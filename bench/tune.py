"""Measure tuning: plans against full fine-tuning, full against transformers' Trainer, memory.

Every speed is a ratio of two things done in this one run, in turns, with its spread. Run it alone
on the machine:

    python bench/tune.py --shared ../shared --write docs/measured/benchmarks-tuning.md

Times run from the first trunk block to the last optimiser step: computing the states at the cut,
writing them to the cache, and all training steps. Loading, tokenisation and validation are excluded
on both sides.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.model_selection import StratifiedKFold, cross_val_score
from transformers import (
    AutoModelForSequenceClassification,
    DataCollatorWithPadding,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    pipeline,
)

import layerscout as ls
from layerscout.data import Targets, shuffle_batches
from layerscout.models import Encoder, Tokens, make_classifier
from layerscout.plans import Plan, Work, cost, make_plan
from layerscout.states import Examples, clear_cache
from layerscout.tuning.training import Settings, train
from measuring import (
    Section,
    drawn,
    given,
    in_turns,
    measure_peak,
    options,
    random_encoder,
    ratio,
    synchronize,
    write_page,
)
from resident import read_peak
from writing import table

BLOCKS, BEST, EPOCHS, EXAMPLES = 12, 8, 5, 1000
LAYERSCOUT = (sys.executable, "-m", "layerscout")


@dataclass(frozen=True)
class Size:
    """How much is measured: training examples, and repeats of the sections by their batch size."""

    examples: int
    plans: Mapping[int, int]
    trainer: int
    grid: int


WHOLE = Size(EXAMPLES, {32: 5, 8: 3}, trainer=5, grid=2)
BRIEF = Size(96, {32: 2, 8: 2}, trainer=2, grid=2)

# Against the Trainer all epochs cost the same: there is nothing to compute once.
TRAINER_EPOCHS = 2
LABELS = ("negative", "positive")

STRATEGIES = ("top:1", "top:3", "best-down:3@best", "best-down:3@top", "best-up", "head:8")
# Texts of the smallest run whose head is solved.
FEW = 64
# Rows that are cross-validated, and in how many folds.
FOLDED, FOLDS = 400, 5
# Plans whose time is estimated, and how long those train that have 200 steps or more by default;
# on longer texts the larger model has the first three.
STEPS = ("--max-steps", "40")
TIMED = (("head:best",), ("top:1", *STEPS), ("top:3", *STEPS), ("auto",), ("full", *STEPS))
# What texts are padded to in the Trainer's examples that pad to a fixed length.
FIXED = 128


@dataclass(frozen=True)
class Bench:
    """What every run trains on: an encoder, training texts, and a few to validate on."""

    encoder: Encoder
    tokens: Tokens
    labels: np.ndarray
    validation: Examples | None = None


def plan_of(strategy: str) -> Plan:
    return make_plan(strategy, BLOCKS, best=BEST)


def limit_of(plan: Plan) -> float:
    """Return how many times faster than `full` an exact count allows, blocks alone."""
    cut = plan.cut or 0
    frozen_above = plan.head - cut - len(plan.tuned)
    return 3 * BLOCKS / (cut / EPOCHS + 3 * len(plan.tuned) + 2 * frozen_above)


def examples(bench: Bench, plan: Plan, rows: int | None = None) -> Examples:
    """Run the trunk over the training texts, or over the first few."""
    tokens = bench.tokens if rows is None else _few(bench.tokens, rows)
    return Examples.prepare(bench.encoder, plan, tokens, Targets.of(bench.labels[:rows]))


def _few(tokens: Tokens, rows: int) -> Tokens:
    end = int(tokens.offsets[rows])
    return Tokens(
        tokens.ids[:end],
        tokens.types[:end],
        tokens.ordinary[:end],
        tokens.offsets[: rows + 1],
        0,
        0,
    )


def ours(bench: Bench, strategy: str, batch_size: int, epochs: int = EPOCHS) -> float:
    """Tune a plan from nothing; seconds of the trunk, its cache included, and of all steps."""
    clear_cache()
    plan = plan_of(strategy)
    model = make_classifier(bench.encoder, plan, LABELS)
    validation = examples(bench, plan, 8)
    started = time.perf_counter()
    training = examples(bench, plan)
    below = time.perf_counter() - started
    settings = Settings(epochs=epochs, batch_size=batch_size)
    run, _ = train(
        bench.encoder,
        model,
        training,
        validation,
        learning_rate=5e-5,
        seed=0,
        settings=settings,
    )
    return below + run.seconds["train"]


class Clock(TrainerCallback):
    """Times the steps of a Trainer."""

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self.started = time.perf_counter()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        synchronize()
        self.seconds = time.perf_counter() - self.started


class SameBatches(Trainer):
    """A Trainer that takes our batches, so that both sides pad alike."""

    def get_train_dataloader(self) -> Any:
        return torch.utils.data.DataLoader(
            self.train_dataset,
            batch_sampler=Batches(self.train_dataset, self.args.per_device_train_batch_size),
            collate_fn=self.data_collator,
        )


class FixedPadding(Trainer):
    """A Trainer whose texts are all padded to one length."""


class Batches:
    """Our batches, in a new order every epoch."""

    def __init__(self, rows: list[dict[str, Any]], size: int) -> None:
        self.lengths = np.array([len(row["input_ids"]) for row in rows])
        self.size, self.order = size, np.random.default_rng(0)

    def __len__(self) -> int:
        return -(-len(self.lengths) // self.size)

    def __iter__(self) -> Iterable[list[int]]:
        return iter([b.tolist() for b in shuffle_batches(self.lengths, self.size, self.order)])


def theirs(
    bench: Bench,
    kind: type[Trainer],
    batch_size: int,
    padded: dict[str, int],
    prepare: Callable[[Any], Any] = lambda model: model,
    epochs: int = TRAINER_EPOCHS,
) -> float:
    """Fine-tune what is made of the model with transformers' Trainer; seconds of its steps."""
    model = prepare(
        AutoModelForSequenceClassification.from_pretrained(
            bench.encoder.source, num_labels=2, dtype=torch.float32
        )
    )
    tokens = bench.tokens
    rows = [
        {
            "input_ids": tokens.ids[start:stop].tolist(),
            "token_type_ids": tokens.types[start:stop].tolist(),
            "labels": int(label),
        }
        for start, stop, label in zip(
            tokens.offsets[:-1], tokens.offsets[1:], bench.labels, strict=True
        )
    ]
    fixed = kind is FixedPadding
    padding = DataCollatorWithPadding(
        bench.encoder.tokenizer, padding="max_length" if fixed else True, max_length=FIXED
    )
    padded[kind.__name__] = 0

    def collate(batch: list[dict[str, Any]]) -> Any:
        made = padding(batch)
        padded[kind.__name__] += made["input_ids"].numel()
        return made

    if "token_type_ids" not in bench.encoder.tokenizer.model_input_names:
        for row in rows:
            del row["token_type_ids"]
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            num_train_epochs=epochs,
            per_device_train_batch_size=batch_size,
            train_sampling_strategy="random" if fixed else "group_by_length",
            learning_rate=5e-5,
            warmup_steps=0.06,
            weight_decay=0.0,
            max_grad_norm=0.0,
            use_cpu=bench.encoder.device.type == "cpu",
            report_to="none",
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            dataloader_pin_memory=False,
        )
        trainer = kind(
            model=model,
            args=arguments,
            train_dataset=rows,
            data_collator=collate,
            callbacks=[clock],
        )
        trainer.train()
    return clock.seconds


def timed(repeats: int, works: Mapping[str, Callable[[], float]]) -> dict[str, list[float]]:
    """Collect what each piece of work says it took, in turns."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            seconds[name].append(work())
            print(f"  {name}: {seconds[name][-1]:.2f} s", file=sys.stderr, flush=True)
    return seconds


def against_trainer(bench: Bench, batch_size: int, repeats: int) -> Section:
    """Compare full fine-tuning with transformers' Trainer."""
    padded: dict[str, int] = {}
    seconds = timed(
        repeats,
        {
            "full": lambda: ours(bench, "full", batch_size, TRAINER_EPOCHS),
            "same": lambda: theirs(bench, SameBatches, batch_size, padded),
            "own": lambda: theirs(bench, Trainer, batch_size, padded),
            "fixed": lambda: theirs(bench, FixedPadding, batch_size, padded),
        },
    )
    real = TRAINER_EPOCHS * int(bench.tokens.lengths.sum())
    rows = [
        [
            name,
            f"{statistics.median(seconds[key]):.1f} s",
            ratio(seconds["full"], seconds[key]),
            f"{padded[kind] / real:.2f}",
        ]
        for name, key, kind in (
            ("Trainer with our batches", "same", "SameBatches"),
            ("Trainer, dynamic padding, grouped by length", "own", "Trainer"),
            (f"Trainer, fixed padding to {FIXED}", "fixed", "FixedPadding"),
        )
    ]
    text = (
        f"`full` took {statistics.median(seconds['full']):.1f} s. Target: at most 1.03 times the "
        f"Trainer's time. {TRAINER_EPOCHS} epochs. Both sides: AdamW (fused), linear schedule, no "
        "clipping, float32.\n\n"
        + table(["against", "its time", "full / Trainer", "tokens with padding / real"], rows)
    )
    return Section(
        f"Full fine-tuning against the Trainer, batch {batch_size}, {repeats} repeats", text
    )


def against_full(bench: Bench, batch_size: int, repeats: int) -> Section:
    """Compare plans with full fine-tuning, and with what counting allows."""
    names = ["full", *STRATEGIES]
    seconds = timed(repeats, {name: lambda n=name: ours(bench, n, batch_size) for name in names})
    shape = bench.encoder.shape(2)
    work = Work(len(bench.tokens), 0, float(bench.tokens.lengths.mean()), EPOCHS)
    full = cost(plan_of("full"), shape, work).train
    rows = []
    for name in STRATEGIES:
        limit = limit_of(plan_of(name))
        faster = [a / b for a, b in zip(seconds["full"], seconds[name], strict=True)]
        rows.append(
            [
                f"`{name}`",
                plan_of(name).notation,
                f"{limit:.1f}",
                f"{full / cost(plan_of(name), shape, work).train:.1f}",
                ratio(seconds["full"], seconds[name], 1),
                f"{statistics.median(faster) / limit:.2f}",
            ]
        )
    text = (
        f"Times faster than our own `full` ({statistics.median(seconds['full']):.1f} s). The limit "
        "is 3 L / (trunk / E + 3 tuned + 2 frozen above), blocks alone; `full` also pays for the "
        "embeddings and the optimiser's pass over them. Target: at least 1.0 times the limit.\n\n"
        + table(
            ["strategy", "plan", "limit", "by our FLOP count", "measured", "measured / limit"], rows
        )
    )
    return Section(f"Plans against full fine-tuning, batch {batch_size}, {repeats} repeats", text)


def grid(bench: Bench, repeats: int) -> Section:
    """Compare a grid of 4 rates and 3 seeds with 12 single runs and one trunk."""
    plan = plan_of("best-down:3@best")
    rates, seeds = (1e-5, 2e-5, 3e-5, 5e-5), (0, 1, 2)

    def training(seed: int, rate: float, material: Examples, few: Examples) -> float:
        model = make_classifier(bench.encoder, plan, LABELS, seed=seed)
        settings = Settings(epochs=EPOCHS)
        run, _ = train(
            bench.encoder, model, material, few, learning_rate=rate, seed=seed, settings=settings
        )
        return run.seconds["train"]

    def below() -> float:
        clear_cache()
        started = time.perf_counter()
        examples(bench, plan)
        return time.perf_counter() - started

    def whole() -> float:
        trunk_seconds = below()
        few = examples(bench, plan, 8)
        started = time.perf_counter()
        material = examples(bench, plan)
        again = time.perf_counter() - started
        runs = [training(seed, rate, material, few) for rate in rates for seed in seeds]
        return trunk_seconds + again + sum(runs)

    def single() -> float:
        few = examples(bench, plan, 8)
        return training(0, 1e-5, examples(bench, plan), few)

    seconds = timed(repeats, {"trunk": below, "single": single, "grid": whole})
    wanted = [12 * a + b for a, b in zip(seconds["single"], seconds["trunk"], strict=True)]
    text = (
        f"4 learning rates × 3 seeds of {plan.notation}, the cache found again for the second use: "
        f"{ratio(seconds['grid'], wanted)} of 12 × the training steps of one run + 1 × the trunk. "
        "Target: at most 1.10."
    )
    return Section(f"A grid of learning rates and seeds, {repeats} repeats", text)


def memory(folder: Path, arguments: argparse.Namespace) -> Section:
    """Measure the growth of memory over the loaded encoder, a process each."""
    grown = {}
    for strategy in ("full", "best-down:3@best"):
        command = [sys.executable, __file__, "--memory", strategy, str(folder)]
        command += ["--shared", str(arguments.shared), "--device", arguments.device]
        command += ["--brief"] if arguments.brief else []
        found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        grown[strategy] = float(found.split()[-1])
    share = grown["best-down:3@best"] / grown["full"]
    text = (
        f"Growth of the peak of {'resident' if arguments.device == 'cpu' else arguments.device} "
        "memory over the process with the loaded encoder: "
        f"{grown['full']:.0f} MB for `full`, {grown['best-down:3@best']:.0f} MB for "
        f"`best-down:3@best`: {share:.0%}. Target: below 50 %."
    )
    return Section("Memory", text)


def memory_of(bench: Bench, strategy: str) -> None:
    """Print by how many MB tuning raises the peak of this process's memory."""
    device = bench.encoder.device
    if device.type == "cpu":
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    else:
        torch.accelerator.reset_peak_memory_stats(device)
    before = peak(device)
    ours(bench, strategy, 32)
    print(peak(device) - before)


def peak(device: torch.device) -> float:
    """Return the peak of resident memory in MB, or of an accelerator's."""
    if device.type != "cpu":
        return torch.accelerator.max_memory_allocated(device) / 2**20
    return read_peak()


def disk(bench: Bench) -> Section:
    """Compare the cache's size with that of the numbers in it."""
    clear_cache()
    states = examples(bench, plan_of("top:3")).trunk
    assert states is not None
    folder = Path(os.environ["LAYERSCOUT_CACHE"])
    used = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    exact = int(bench.tokens.lengths.sum()) * 384 * 4
    text = (
        f"States of {len(bench.tokens):,} examples in float32: {used:,} bytes, all files together, "
        f"{used / exact:.4f} of real tokens × 384 × 4. Target: at most 1.05."
    )
    return Section("Cache on disk", text)


# What any program imports that loads a model: `transformers` alone imports next to nothing.


def timing(models: Sequence[str], shared: Path, folder: Path) -> Section:
    """Compare what tunings are estimated to take with what they take, and limits with that."""
    texts, out = folder / "texts.parquet", folder / "out"
    ratios, overruns, rows = [], [], []

    def run(model: str, plan: str, *more: str) -> tuple[float, Mapping[str, Mapping[str, float]]]:
        clear_cache()
        tune = [*LAYERSCOUT, "tune", model, str(texts), "--plan", plan, "--overwrite"]
        started = time.perf_counter()
        subprocess.run([*tune, "-o", str(out), *more], check=True, stdout=subprocess.DEVNULL)
        took = time.perf_counter() - started
        return took, json.loads((out / "result.json").read_text())["time"]

    for name, examples in (("trec6", 64), ("ag_news", 100)):
        task = ls.Task.load(shared / "data" / name)
        split = drawn(task, examples)
        labels = [task.labels[label] for label in split.labels]
        pd.DataFrame({"text": split.texts, "label": labels}).to_parquet(texts)
        for model in models:
            dear = model == models[-1] and name != "trec6"
            for plan, *more in TIMED[: 3 if dear else None]:
                took, spent = run(model, plan, *more, "--time", "10h")  # nothing is stopped
                expected = spent["estimate"]
                share = sum(expected.values()) / sum(
                    spent["seconds"].get(phase, 0.0) for phase in expected
                )
                limit = 0.7 * took
                within = ""
                if plan != "head:best":  # which has nothing to shorten
                    within = "refused"  # where that is too short for a free head
                    with suppress(subprocess.CalledProcessError):
                        limited, _ = run(model, plan, *more, "--time", f"{limit:.1f}s")
                        overruns.append(limited / limit)
                        within = f"{overruns[-1]:.2f}"
                ratios.append(share)
                each = f"{name}, {examples}", Path(model).name, plan, f"{took:.1f} s"
                rows.append([*each, f"{share:.2f}", within])
                print(*rows[-1], sep=", ", file=sys.stderr, flush=True)
    near = sum(0.75 <= share <= 1.25 for share in ratios)
    text = (
        f"The estimates of {near} of {len(ratios)} runs are within 25 % of what these took, the "
        f"median is {statistics.median(ratios):.2f} of it. With 0.7 of its time as the limit, a "
        f"run took at most {max(overruns):.2f} of that. Target: 90 %, and 1.10.\n\n"
        + table(["texts", "model", "plan", "took", "estimate / took", "limited / limit"], rows)
    )
    return Section("Estimates and limits of time", text)


PREDICT = """
import sys, layerscout
layerscout.predict(sys.argv[1], sys.argv[2], sys.argv[3], progress=False)
"""


def predicting(shared: Path, size: Size, rows: int, folder: Path) -> Section:
    """Time `predict` on a CSV, as a whole, beside transformers' pipeline on the same texts."""
    task, base = ls.Task.load(shared / "data" / "sst2"), shared / "models" / "all-MiniLM-L6-v2"
    ls.tune(base, task, "head:4", examples=size.examples, progress=False).save(folder / "tuned")
    model, out = str(folder / "tuned" / "model"), folder / "out.csv"
    texts = [task.train.texts[row % len(task.train)] for row in range(rows)]
    files = {}
    for count in (rows // 10, rows):
        files[count] = folder / f"{count}.csv"
        pd.DataFrame({"text": texts[:count]}).to_csv(files[count], index=False)

    def ask(batch: int, count: int) -> None:
        classify = pipeline("text-classification", model, top_k=None, device="cpu")
        some = pd.read_csv(files[count], keep_default_na=False)["text"].tolist()
        said = classify(some, batch_size=batch, truncation=True)
        pd.DataFrame(said).to_csv(out, index=False)

    work: dict[str, list[float]] = {}

    def spend(name: str, ask: Callable[[], object]) -> None:
        before = time.process_time()
        ask()
        work.setdefault(name, []).append(time.process_time() - before)

    seconds = in_turns(
        size.trainer,
        {
            "predict": lambda: spend(
                "predict", lambda: ls.predict(model, files[rows], out, progress=False)
            ),
            "32": lambda: spend("32", lambda: ask(32, rows)),
            "1": lambda: ask(1, rows // 10),
        },
        uncounted=0,
    )
    ours, theirs, single = (statistics.median(some) for some in seconds.values())
    peaks = [measure_peak(PREDICT, model, str(file), str(out)) for file in files.values()]
    text = (
        f"{rows:,} rows of SST-2 in a CSV, MiniLM with a head solved at state 4: "
        f"{rows / ours:,.0f} rows a second, where `pipeline` does {rows / theirs:,.0f} with "
        f"`batch_size=32` and {rows / 10 / single:,.0f} without. `predict` is "
        f"{ratio(seconds['32'], seconds['predict'])} times as fast as the former, "
        f"{ratio(work['32'], work['predict'])} by the processor's time (target: at least 3), "
        "loading the model, reading and writing included on both sides. Its memory peaks at "
        f"{peaks[1]:,.0f} MB, with a tenth of the rows at {peaks[0]:,.0f} MB."
    )
    return Section("Predicting", text)


def folding(shared: Path, plans: Sequence[str]) -> Section:
    """Cross-validate plans with `TextClassifier`, and with tunings that share nothing."""
    task = ls.Task.load(shared / "data" / "amazon_counterfactual_en")
    base, split = shared / "models" / "all-MiniLM-L6-v2", drawn(task, FOLDED)
    X, y = np.array(split.texts, dtype=object), np.array(task.labels)[split.labels]
    deal = StratifiedKFold(FOLDS)

    def tune_apart(plan: str) -> list[float]:
        reached = []
        for training, held_out in deal.split(X, y):
            clear_cache()
            own = ls.Task.from_lists(X[training], y[training])
            said = ls.tune(base, own, plan, progress=False).predict(X[held_out])
            reached.append(float(np.mean(said == y[held_out])))
        return reached

    def cross_validate(plan: str) -> list[float]:
        return list(cross_val_score(ls.TextClassifier(base, plan), X, y, cv=deal))

    def spend(way: Callable[[str], list[float]], plan: str) -> tuple[float, list[float]]:
        started = time.process_time()
        reached = way(plan)
        return time.process_time() - started, reached

    # The first tuning of a process takes seconds more than others.
    ls.tune(base, ls.Task.from_lists(X[:FEW], y[:FEW]), "head:2", progress=False)
    apart = [spend(tune_apart, plan) for plan in plans]
    clear_cache()
    shared_work = [spend(cross_validate, plan) for plan in plans]
    rows = [
        [
            plan,
            *(f"{before:.1f} s", f"{after:.1f} s", f"{before / after:.1f}"),
            f"{np.mean(said):.3f}",
            f"{max(np.abs(np.subtract(said, expected))):.3f}",
        ]
        for plan, (before, expected), (after, said) in zip(plans, apart, shared_work, strict=True)
    ]
    before, after = (sum(seconds for seconds, _ in some) for some in (apart, shared_work))
    text = (
        f"{FOLDED} rows of amazon_counterfactual_en, MiniLM, {FOLDS} folds, by the processor's "
        f"time: {before / after:.1f} times as fast as tunings with an empty cache each.\n\n"
        + table(["plan", "apart", "together", "ratio", "accuracy", "a fold's differs by"], rows)
    )
    return Section("Cross-validation", text)


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--times", metavar="MODEL", help="beside MiniLM")
    parser.add_argument("--predict", type=int, metavar="ROWS", help="beside the pipeline")
    parser.add_argument("--folds", nargs="+", metavar="PLAN", help="beside tunings apart")
    parser.add_argument("--memory", nargs=2, metavar=("STRATEGY", "MODEL"))
    arguments = given(parser)
    size = BRIEF if arguments.brief else WHOLE
    split = drawn(ls.Task.load(arguments.shared / "data" / "sst2"), size.examples)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LAYERSCOUT_CACHE"] = str(Path(folder) / "cache")
        if arguments.times or arguments.predict or arguments.folds:
            if arguments.folds:
                section = folding(arguments.shared, arguments.folds)
            elif arguments.predict:
                section = predicting(arguments.shared, size, arguments.predict, Path(folder))
            else:
                models = str(arguments.shared / "models" / "all-MiniLM-L6-v2"), arguments.times
                section = timing(models, arguments.shared, Path(folder))
            print(f"## {section.title}\n\n{section.text}")
            return
        if arguments.memory:
            strategy, model = arguments.memory
        else:
            tokenizer = arguments.shared / "models" / "all-MiniLM-L6-v2"
            strategy, model = "", str(random_encoder(Path(folder) / "model", tokenizer))
        encoder = Encoder.load(model, device=arguments.device)
        bench = Bench(encoder, encoder.tokenize(split.texts), split.labels)
        if strategy:
            memory_of(bench, strategy)
            return
        ours(bench, "full", 32, 1)  # the first training of a process takes seconds more than others
        sections = [
            *(against_full(bench, batch, repeats) for batch, repeats in size.plans.items()),
            against_trainer(bench, 32, size.trainer),
            grid(bench, size.grid),
            memory(Path(model), arguments),
            disk(bench),
        ]
    introduction = (
        "# Benchmarks of tuning\n\nWritten by `python bench/tune.py`. A ratio is the median over "
        "repeats done in turns in one run, with its minimum and maximum. The model is a BERT of 12 "
        f"blocks, 384 wide, with random weights, and ℓ* is taken to be {BEST}; the data are "
        f"{size.examples:,} examples of SST-2, {EPOCHS} epochs. Times run from the first "
        "trunk block to the last optimiser step, including writing the cache; loading, "
        "tokenisation and validation are excluded on both sides."
    )
    write_page(introduction, sections, arguments.write, arguments.device)


if __name__ == "__main__":
    main()
