"""Measure adapters, LoRA and prefix-tuning by plan, LoRA against peft's, and what snapshots cost.

Every speed is a ratio of two things done in this one run, in turns, with its spread. Run it alone
on the machine:

    python bench/methods.py --shared ../shared --write docs/measured/benchmarks-methods.md

As in `bench/tune.py`, times run from the first trunk block to the last optimiser step. Loading,
making adapters, tokenisation and validation are excluded on both sides.
"""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

import layerscout as ls
from layerscout.models import Encoder, make_classifier, make_trainable
from layerscout.plans import (
    FULL,
    Adapter,
    LoRA,
    Method,
    Plan,
    PrefixTuning,
    Settings,
    Work,
    apply_method,
    cost,
)
from layerscout.states import clear_cache
from layerscout.tuning.snapshots import RunSnapshots
from layerscout.tuning.training import train
from measuring import Section, drawn, given, options, random_encoder, ratio, table, write_page
from tune import (
    BEST,
    BLOCKS,
    EPOCHS,
    EXAMPLES,
    LABELS,
    TRAINER_EPOCHS,
    Bench,
    SameBatches,
    examples,
    plan_of,
    theirs,
)

BATCH, REPEATS, SNAPSHOTS = 32, 3, 5
CHOSEN, ALL = "best-down:3@best", "full"
LORA = LoRA(rank=8)
METHODS: Mapping[str, Method] = {
    "adapter, bottleneck 256": Adapter(bottleneck=256),
    "adapter, bottleneck 64": Adapter(bottleneck=64),
    "lora, rank 8": LORA,
    "prefix-tuning, 16 virtual tokens": PrefixTuning(virtual_tokens=16),
}
SAVED: Mapping[str, tuple[str, Method]] = {
    "`full`": (ALL, FULL),
    "`top:3`": ("top:3", FULL),
    f"`{CHOSEN}`, adapter of bottleneck 256": (CHOSEN, Adapter(bottleneck=256)),
}


@dataclass(frozen=True)
class Took:
    """Seconds of the trunk, its cache included, and of the steps of a few epochs."""

    trunk: float
    steps: float

    @property
    def total(self) -> float:
        return self.trunk + self.steps

    @property
    def of_an_epoch(self) -> float:
        """What falls to each of `EPOCHS`; the steps of all epochs cost the same."""
        return self.trunk / EPOCHS + self.steps / TRAINER_EPOCHS


@dataclass(frozen=True)
class Timings:
    """What was timed in turns, in the order of the turns: our runs, and peft under the Trainer."""

    ours: dict[tuple[str, str], list[Took]]
    peft: list[float]
    padded: dict[str, int]

    def ours_in(self, kind: str, name: str, strategy: str) -> list[float]:
        return [getattr(took, kind) for took in self.ours[name, strategy]]


def made(bench: Bench, plan: Plan, method: Method) -> Any:
    return make_trainable(make_classifier(bench.encoder, plan, LABELS), plan, method).model


def ours(bench: Bench, strategy: str, method: Method, rows: int | None = None) -> Took:
    """Tune by a plan and a method, from nothing, on all examples or on the first few.

    Where the plan begins with block 1, the "trunk" is the embeddings, which no method but full
    trains: they are computed once too, so that all blocks are as fast as they can be.
    """
    clear_cache()
    plan = apply_method(plan_of(strategy), method, BLOCKS)
    model = made(bench, plan, method)
    validation = examples(bench, plan, 8)
    started = time.perf_counter()
    training = examples(bench, plan, rows)
    below = time.perf_counter() - started
    run, _ = train(
        bench.encoder,
        model,
        training,
        validation,
        learning_rate=5e-5,
        seed=0,
        settings=Settings(epochs=TRAINER_EPOCHS, batch_size=BATCH),
    )
    if run.stopped is not None:
        raise RuntimeError(f"{plan.notation} was not trained to the end: {run.stopped}")
    return Took(below, run.seconds["train"])


def peft_everywhere(model: Any, head: Sequence[str] = ("pooler", "classifier")) -> Any:
    """Return every linear layer of the blocks peft's LoRA, and train the head whole, as ours do."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        task_type="SEQ_CLS",
        r=LORA.rank,
        lora_alpha=LORA.lora_alpha,
        target_modules="all-linear",
        modules_to_save=list(head),
    )
    return get_peft_model(model, config)


def timings(bench: Bench, repeats: int) -> Timings:
    """Time everything in turns; the two plans of a method come right after one another."""
    found = Timings({(name, plan): [] for name in METHODS for plan in (ALL, CHOSEN)}, [], {})
    ours(bench, ALL, LORA, 64)  # the first training of a process takes seconds more than others
    for _ in range(repeats):
        for (name, strategy), took in found.ours.items():
            took.append(ours(bench, strategy, METHODS[name]))
            print(f"  {name}, {strategy}: {took[-1]}", file=sys.stderr, flush=True)
            if METHODS[name] is LORA and strategy == ALL:
                found.peft.append(theirs(bench, SameBatches, BATCH, found.padded, peft_everywhere))
                print(f"  peft: {found.peft[-1]:.2f} s", file=sys.stderr, flush=True)
    return found


def by_plan(bench: Bench, found: Timings) -> Section:
    """Compare the chosen blocks with all of them, under each method."""
    shape = bench.encoder.shape(2)
    work = Work(len(bench.tokens), 0, float(bench.tokens.lengths.mean()), EPOCHS)
    rows = []
    for name, method in METHODS.items():
        seconds = {s: found.ours_in("of_an_epoch", name, s) for s in (ALL, CHOSEN)}
        flops = {s: cost(plan_of(s), shape, work, method).train for s in (ALL, CHOSEN)}
        rows.append(
            [
                name,
                f"{statistics.median(seconds[ALL]):.2f} s",
                f"{statistics.median(seconds[CHOSEN]):.2f} s",
                ratio(seconds[ALL], seconds[CHOSEN]),
                f"{flops[ALL] / flops[CHOSEN]:.2f}",
                "≥ 2.5" if isinstance(method, Adapter) else "",
            ]
        )
    text = (
        f"Seconds per epoch of tuning all blocks, {plan_of(ALL).notation}, and of `{CHOSEN}`, "
        f"{plan_of(CHOSEN).notation}, both by our own training in batches of {BATCH}: "
        f"1/{EPOCHS} of the trunk, which is computed once in {EPOCHS} epochs, and the steps of one "
        f"epoch, timed over {TRAINER_EPOCHS} since they cost the same in each. No method here "
        "trains the embeddings; where all blocks are tuned these are what is computed once.\n\n"
        + table(
            ["method", "all blocks", "chosen", "times faster", "by our FLOP count", "target"], rows
        )
    )
    return Section(f"Adapters by plan, {len(found.peft)} repeats", text)


def against_peft(bench: Bench, found: Timings) -> Section:
    """Compare our LoRA with peft's on all layers, under the Trainer."""
    name = next(name for name, method in METHODS.items() if method is LORA)
    shape = bench.encoder.shape(2)
    work = Work(len(bench.tokens), 0, float(bench.tokens.lengths.mean()), TRAINER_EPOCHS)
    peft = f"{statistics.median(found.peft):.1f} s"
    rows = []
    for strategy in (ALL, CHOSEN):
        seconds = found.ours_in("total", name, strategy)
        rows.append(
            [
                f"`{strategy}`, {plan_of(strategy).notation}",
                f"{cost(plan_of(strategy), shape, work, LORA).trainable:,}",
                f"{statistics.median(seconds):.1f} s",
                peft,
                ratio(found.peft, seconds),
            ]
        )
    padding = found.padded["SameBatches"] / (TRAINER_EPOCHS * int(bench.tokens.lengths.sum()))
    text = (
        f"peft {version('peft')} on every linear layer of all blocks "
        '(`target_modules="all-linear"`, the head trained whole, '
        f"{peft_parameters(bench):,} parameters) under transformers' Trainer with our batches "
        f"({padding:.2f} tokens with padding for each real one), against our LoRA; on both sides "
        f"rank {LORA.rank}, {TRAINER_EPOCHS} epochs, batches of {BATCH}, AdamW (fused), linear "
        "schedule, no clipping, float32. On our side the trunk, or the embeddings where all blocks "
        "are tuned, is computed once and counted whole.\n\n"
        + table(["ours", "trained parameters", "our time", "peft's", "peft / ours"], rows)
    )
    return Section(f"LoRA against peft's on all layers, {len(found.peft)} repeats", text)


def peft_parameters(bench: Bench) -> int:
    """Count what peft trains, to show that it is what our LoRA of all blocks does."""
    plan = apply_method(plan_of(ALL), LORA, BLOCKS)
    wrapped = peft_everywhere(make_classifier(bench.encoder, plan, LABELS))
    return sum(p.numel() for p in wrapped.parameters() if p.requires_grad)


@dataclass(frozen=True)
class Saved:
    """Seconds of a snapshot, those of all steps before it, and bytes written."""

    seconds: float
    steps: float
    bytes: int


@dataclass(frozen=True)
class Watched:
    """Stands for the snapshots of a run, and notes what each one takes."""

    inner: RunSnapshots
    saved: list[Saved] = field(default_factory=list)

    def load(self) -> None:
        return None

    def save(
        self,
        epoch: int,
        kept: int | None,
        state: Mapping[str, Any],
        parameters: Mapping[str, Tensor],
        optimizer: Mapping[str, Tensor],
    ) -> None:
        started = time.perf_counter()
        self.inner.save(epoch, kept, state, parameters, optimizer)
        seconds = time.perf_counter() - started
        files = [f"parameters-{epoch}.safetensors", f"optimizer-{epoch}.safetensors", "state.json"]
        paths = [self.inner.folder / name for name in files]
        size = sum(path.stat().st_size for path in paths if path.exists())
        self.saved.append(Saved(seconds, state["seconds"]["train"], size))


def snapshots(bench: Bench, folder: Path, epochs: int) -> Section:
    """Measure what a snapshot after every epoch costs, as a part of that epoch's steps."""
    rows = []
    for number, (name, (strategy, method)) in enumerate(SAVED.items()):
        saved = saved_by(bench, strategy, method, RunSnapshots(folder / f"run-{number}"), epochs)
        steps = np.diff([0.0, *(one.steps for one in saved)]).tolist()
        seconds = [one.seconds for one in saved]
        rows.append(
            [
                name,
                f"{saved[-1].bytes:,}",
                f"{statistics.median(seconds):.3f} s",
                f"{statistics.median(steps):.2f} s",
                ratio(seconds, steps, 3),
            ]
        )
        print(f"  snapshots of {name}: {rows[-1][-1]}", file=sys.stderr, flush=True)
    text = (
        "A snapshot holds the trained parameters, both moments of AdamW for each of them, and the "
        "random states. Its time is set against the steps of "
        f"its epoch of {len(bench.tokens):,} examples, without the trunk or validation; {epochs} "
        "epochs of one run, of which the first two have no earlier one to be written over. "
        "It goes to a temporary folder on this machine's disk; of the tensors, what the system "
        "writes out later is not waited for. Target: below 0.05.\n\n"
        + table(["what is tuned", "bytes", "a snapshot", "the epoch's steps", "share"], rows)
    )
    return Section("Snapshots", text)


def saved_by(
    bench: Bench, strategy: str, method: Method, inner: RunSnapshots, epochs: int
) -> list[Saved]:
    """Train, and tell of the snapshots of epochs that others follow; the last one holds less."""
    clear_cache()
    plan = apply_method(plan_of(strategy), method, BLOCKS)
    watched = Watched(inner)
    one_more = epochs * -(-len(bench.tokens) // BATCH) + 1
    train(
        bench.encoder,
        made(bench, plan, method),
        examples(bench, plan),
        examples(bench, plan, 8),
        learning_rate=5e-5,
        seed=0,
        settings=Settings(max_steps=one_more, batch_size=BATCH),
        snapshots=watched,
    )
    return watched.saved[:-1]


def main() -> None:
    parser = options(__doc__ or "")
    arguments = given(parser)
    # Snapshots are set against an epoch, which has to have its usual length.
    count, repeats = (192, 2) if arguments.brief else (EXAMPLES, REPEATS)
    task = ls.Task.load(arguments.shared / "data" / "sst2")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["LAYERSCOUT_CACHE"] = str(folder / "cache")
        tokenizer = arguments.shared / "models" / "all-MiniLM-L6-v2"
        encoder = Encoder.load(random_encoder(folder / "model", tokenizer), device=arguments.device)

        def bench_of(examples: int) -> Bench:
            split = drawn(task, examples)
            return Bench(encoder, encoder.tokenize(split.texts), split.labels)

        bench = bench_of(count)
        found = timings(bench, repeats)
        sections = [
            by_plan(bench, found),
            against_peft(bench, found),
            snapshots(bench_of(EXAMPLES), folder / "snapshots", SNAPSHOTS),
        ]
    introduction = (
        "# Benchmarks of methods and snapshots\n\nWritten by `python bench/methods.py`. A ratio is "
        "the median over repeats done in turns in one run, with its minimum and maximum. The model "
        f"is a BERT of {BLOCKS} blocks, 384 wide, with random weights, and ℓ* is taken to be "
        f"{BEST}; the data are {count:,} examples of SST-2, {EXAMPLES:,} for "
        "snapshots. Times run from the first trunk block to the last optimiser step, "
        "including writing the cache; loading, making adapters, tokenisation and "
        "validation are excluded on both sides."
    )
    write_page(introduction, sections, arguments.write, arguments.device)


if __name__ == "__main__":
    main()
