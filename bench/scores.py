"""Measure the scores: against the forward pass, a peer, plain loops and the published procedure.

Every speed is a ratio of two things done in this one run, in turns, with its spread. Run it alone
on the machine:

    python bench/scores.py --shared ../shared --write docs/measured/benchmarks-scores.md

One section compares with the package transformer-ranker, which needs an environment of its own
(the page says how to make it); `--ranker-python` names its Python.
"""

import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

import layerscout as ls
from layerscout.data import Split, sample
from layerscout.models import Encoder, fisher, locate_parameters, make_classifier
from layerscout.plans import Plan
from layerscout.scanning import Scan
from layerscout.scores.linear_probes import train_linear_probes
from layerscout.scores.probes import Probes
from layerscout.scores.score import DEFAULT
from layerscout.states import clear_cache
from material import DEEP, SMALL, Bench, Texts, clocked, middle
from measuring import (
    Section,
    drawn,
    given,
    in_turns,
    options,
    precisions,
    random_encoder,
    ratio,
    table,
    write_page,
)
from ranker import against_ranker
from scan import published

TOGETHER = (
    "variability_ratio_debiased",
    "variability_ratio",
    "nc1",
    "cca",
    "ridge",
    "logme",
    "h_score",
    "numerical_rank",
)

# By which "auto" has read enough: the one that it goes by among the default scores, and ν.
DECIDING = (DEFAULT, "variability_ratio_debiased")

# What the peer and the published procedure read.
FEW = 2000

# What Fisher information is computed from.
HELD_OUT = 100

# States this close to the best one by all rows are as good.
CLOSE = 0.02


# --- Against the forward pass --------------------------------------------------------------------


def against_forward(bench: Bench) -> Section:
    """Compare scoring kept states with the forward pass that gives them."""
    texts = bench.texts
    S, n, _ = texts.states.shape  # computed here, before anything is timed
    works: dict[str, Callable[[], object]] = {
        "forward": texts.forward,
        "all together": lambda: texts.scores(TOGETHER),
    }
    works |= {f"`{key}`": lambda key=key: texts.scores([key]) for key in TOGETHER}
    seconds = in_turns(bench.repeats, works)
    rows = [
        [name, middle(seconds[name]), ratio(seconds[name], seconds["forward"], 3)]
        for name in works
        if name != "forward"
    ]
    text = (
        f"Time of scoring all {S} states, read back from the cache, as a share of the bare forward "
        f"pass on the same {n:,} examples in length-sorted batches "
        f"({middle(seconds['forward'])}, float32). The debiased ratio comes with its jackknife "
        "intervals. What scores share (reading a state, `cca` and `ridge` their fits) is done once "
        "for all together. Target: all together at most 0.10 of the forward pass.\n\n"
    )
    return Section(
        "Scores from the states, as a share of the forward pass",
        text + table(["scores", "time", "share of the forward pass"], rows),
    )


def probes(bench: Bench) -> Section:
    """Compare the probes of all states with the forward pass over their training examples."""
    texts = bench.texts
    judged = Texts(texts.encoder, bench.task.validation)
    train, validation = texts.states, judged.states
    found: dict[str, Probes] = {}

    def fit(name: str, patience: int) -> None:
        found[name] = train_linear_probes(
            train, texts.split.labels, validation, judged.split.labels, patience=patience
        )

    works: dict[str, Callable[[], object]] = {
        "float32": texts.forward,
        "40 epochs": lambda: fit("40 epochs", 40),
        "as in a scan": lambda: fit("as in a scan", 5),
    }
    seconds = in_turns(bench.repeats, works)
    rows = []
    for name, reached in found.items():
        stopped = [epoch for of_state in reached.epochs for epoch in of_state]
        rows.append(
            [
                name,
                middle(seconds[name]),
                ratio(seconds[name], seconds["float32"]),
                f"{statistics.median(stopped):.0f} ({min(stopped)}–{max(stopped)})",
            ]
        )
    text = (
        f"Linear probes of all {len(train)} states with 8 seeds each, on {len(texts.split):,} "
        "examples; time as a share of the forward pass over these "
        f"({middle(seconds['float32'])}, float32). A scan stops early: after 5 epochs without less "
        "loss on the tenth that a probe sets aside. Target: at most 0.5 for all 40 epochs.\n\n"
    )
    columns = ["", "time", "share of the forward pass", "epoch that counted"]
    return Section("Probes of all states", text + table(columns, rows))


# --- Fisher information against a plain loop -----------------------------------------------------


def looped_fisher(encoder: Encoder, split: Split, labels: Sequence[str], mode: str) -> np.ndarray:
    """Return the Fisher information of blocks 1..L, an example and a backward pass at a time."""
    model = make_classifier(encoder, Plan((), encoder.blocks), labels, seed=0)
    found = locate_parameters(model)
    named = [(name, w) for name, w in model.named_parameters() if isinstance(found[name], tuple)]
    weights = [weight.requires_grad_() for _, weight in named]
    sums = [torch.zeros_like(weight) for weight in weights]
    for text, label in zip(split.texts, split.labels.tolist(), strict=True):
        inputs = encoder.tokenizer(text, truncation=True, max_length=128, return_tensors="pt")
        inputs = inputs.to(encoder.device)
        log_p = model(**inputs).logits[0].log_softmax(dim=0)
        wanted = range(len(log_p)) if mode == "true" else [label]
        for k in wanted:
            share = log_p[k].exp().item() if mode == "true" else 1.0
            gradients = torch.autograd.grad(log_p[k], weights, retain_graph=k != wanted[-1])
            for total, gradient in zip(sums, gradients, strict=True):
                total.addcmul_(gradient, gradient, value=share)
    squares = np.zeros(encoder.blocks)
    for (name, weight), total in zip(named, sums, strict=True):
        weight.requires_grad_(False)
        (block,) = found[name]
        squares[block - 1] += float((total.cpu().double() / len(split)).square().sum())
    return np.sqrt(squares)


def against_loop(bench: Bench) -> Section:
    """Compare Fisher information with a plain loop."""
    encoder = Encoder.load(bench.model(DEEP), device=bench.device)
    labels, held_out = bench.task.labels, bench.task.validation
    rows = sample(
        held_out, len(labels), examples=bench.held_out, balanced=False, per_class=None, seed=0
    )
    split = held_out.take(rows)
    values: dict[str, np.ndarray] = {}

    def ours(mode: str) -> None:
        found = fisher(encoder, split, labels, mode=mode)
        values[mode] = np.array(found.values[1:], dtype=float)

    def loop(mode: str) -> None:
        values[f"loop {mode}"] = looped_fisher(encoder, split, labels, mode)

    works: dict[str, Callable[[], object]] = {}
    for mode in ("true", "empirical"):
        works |= {mode: lambda m=mode: ours(m), f"loop {mode}": lambda m=mode: loop(m)}
    seconds = in_turns(bench.repeats, works)
    shown = []
    for mode in ("true", "empirical"):
        rates = [len(split) / statistics.median(seconds[name]) for name in (mode, f"loop {mode}")]
        difference = np.abs(values[mode] / values[f"loop {mode}"] - 1).max()
        shown.append(
            [
                f"`{mode}`",
                *(f"{rate:.1f}" for rate in rates),
                ratio(seconds[f"loop {mode}"], seconds[mode], 1),
                f"{difference:.1e}",
            ]
        )
    text = (
        f"{len(split)} validation examples, {DEEP}, a head of one seed, tokenising and making the "
        "head included. The loop is the plain way: batches of one, for `true` a backward pass for "
        "each of the two labels.\n\n"
    )
    columns = [
        "mode",
        "examples/s",
        "examples/s of the loop",
        "times faster",
        "largest relative difference",
    ]
    return Section("Fisher information against a loop", text + table(columns, shown))


# --- Against the published procedure on all examples ---------------------------------------------


@dataclass(frozen=True, eq=False)
class Decided:
    """Scans with `--examples auto` of one model by one score, a seed each."""

    model: str
    key: str
    precision: str
    seconds: list[float]
    scans: list[Scan]
    published: list[float]

    def row(self, reference: Scan | None) -> list[str]:
        bests = [found.best(self.key) for found in self.scans]
        used = [found.task["examples_used"] for found in self.scans]
        shown = [
            self.model,
            f"`{self.key}`",
            self.precision,
            middle(self.seconds),
            ", ".join(f"{count:,}" for count in used),
            ratio(self.published, self.seconds, 0),
            ", ".join(map(str, bests)),
        ]
        if reference is None:
            return shown
        values, best = reference.scores[self.key].values, reference.best(self.key)
        if best is None or None in bests:
            return [*shown, str(best), "–"]
        if self.key == DEFAULT:
            short = max(values[best] - values[found] for found in bests)
            return [*shown, str(best), f"{100 * short:.1f} points"]
        excess = max(values[found] / values[best] - 1 for found in bests)
        return [*shown, str(best), f"{excess:.1%}"]


def auto_examples(bench: Bench) -> Section:
    """Compare scans that read as much as they need with the published procedure on all rows."""
    rows, procedure = [], []
    for name in (SMALL,) if bench.many else (DEEP, SMALL):
        reference = _all_rows(bench, name) if bench.all_rows else None
        found, seconds = _decided(bench, name)
        rows += [decided.row(reference) for decided in found]
        told = f"{seconds / 60:.0f} min for {name}"
        if reference is not None:
            plug_in = reference.best("variability_ratio")
            told += f" (ν of equation 3 on all rows is best at state {plug_in})"
        procedure.append(told)
    available = len(bench.task.train)
    text = (
        f"`--examples auto` on {'the first' if bench.many else 'all'} {available:,} rows of SST-2, "
        "with the default scores, of which `head_quality` decides, or by "
        f"`{DECIDING[-1]}`, from loading the model to the result, with nothing in the cache; each "
        f"repeat draws with a seed of its own. `auto` precision was {found[-1].precision} here. "
        f"The published procedure was run on {bench.few:,} stratified examples in the same turns, "
        "in float32, and extrapolated: what a run on 8 examples takes (loading the model cut at "
        "every layer) once, the rest in proportion to the rows: "
        f"{', '.join(procedure)}. Target: 50 or more, and the ℓ* of all rows or a state within "
        f"one point of its head quality, or {CLOSE:.0%} of its ν."
    )
    columns = ["model", "decided by", "precision", "time", "examples read", "times faster", "ℓ*"]
    if bench.all_rows:
        columns += ["ℓ* of all rows", "worst of the found"]
        text += (
            " The last column is how far the ℓ* found lies from that of all rows, by the score on "
            "all rows."
        )
    else:
        text += " All rows were not read (`--all-rows`)."
    return Section(
        "`--examples auto` against the published procedure", text + "\n\n" + table(columns, rows)
    )


def _decided(bench: Bench, name: str) -> tuple[list[Decided], float]:
    """Scan by each score and precision, run the published procedure; also its time on all rows."""
    model, split = bench.model(name), drawn(bench.task, bench.few)
    first = split.take(_first_of_both(split))
    kinds = [(key, short) for key in DECIDING for short in precisions(model, bench.device)]
    scans: dict[tuple[str, str], list[Scan]] = {kind: [] for kind in kinds}

    def scan(key: str, precision: str) -> float:
        clear_cache()
        done = scans[key, precision]
        return clocked(
            lambda: done.append(
                ls.scan(
                    Encoder.load(model, device=bench.device, precision=precision),
                    bench.task,
                    scores=None if key == DEFAULT else key,
                    seed=len(done),
                    progress=False,
                )
            )
        )

    works: dict[object, Callable[[], float]] = {
        **{kind: partial(scan, *kind) for kind in kinds},
        "loading": lambda: clocked(lambda: published(model, first, bench.device)),
        "published": lambda: clocked(lambda: published(model, split, bench.device)),
    }
    # Everything is loaded anew each time, so there is nothing to warm up.
    seconds: dict[object, list[float]] = {key: [] for key in works}
    for _ in range(min(bench.repeats, 3)):
        for key, work in works.items():
            seconds[key].append(work())
            print(f"  {name}, {key}: {seconds[key][-1]:.2f} s", file=sys.stderr, flush=True)
    share = len(bench.task.train) / len(split)
    full = [
        loading + (whole - loading) * share
        for loading, whole in zip(seconds["loading"], seconds["published"], strict=True)
    ]
    decided = [Decided(name, *kind, seconds[kind], scans[kind], full) for kind in kinds]
    return decided, statistics.median(full)


def _first_of_both(split: Split) -> np.ndarray:
    """Return the rows of the first four examples of each class: a single batch."""
    return np.sort(np.concatenate([np.flatnonzero(split.labels == k)[:4] for k in (0, 1)]))


def _all_rows(bench: Bench, name: str) -> Scan:
    encoder = Encoder.load(bench.model(name), device=bench.device)
    print(f"  {name}, all rows", file=sys.stderr, flush=True)
    return ls.scan(encoder, bench.task, examples="all", progress=False)


SECTIONS: Mapping[str, Callable[[Bench], Section]] = {
    "forward": against_forward,
    "ranker": against_ranker,
    "probes": probes,
    "fisher": against_loop,
    "auto": auto_examples,
}


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--section", action="append", choices=SECTIONS, help="all unless given")
    parser.add_argument("--ranker-python", type=Path, help="of an environment that has it")
    parser.add_argument("--all-rows", action="store_true", help="check ℓ* on all rows: minutes")
    arguments = given(parser)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LAYERSCOUT_CACHE"] = str(Path(folder) / "cache")
        bench = Bench(
            arguments.shared,
            random_encoder(Path(folder) / "model", arguments.shared / "models" / SMALL),
            device=arguments.device,
            examples=5000,
            few=400 if arguments.brief else FEW,
            many=10_000 if arguments.brief else None,
            held_out=40 if arguments.brief else HELD_OUT,
            repeats=2 if arguments.brief else 5,
            ranker=arguments.ranker_python,
            all_rows=arguments.all_rows,
        )
        sections = [SECTIONS[name](bench) for name in arguments.section or SECTIONS]
    introduction = (
        "# Benchmarks of the scores\n\nWritten by `python bench/scores.py`. A ratio is the median "
        f"over repeats ({bench.repeats}, or {min(bench.repeats, 3)} where models are loaded) "
        "done in turns in one run, with its minimum and maximum. Unless a model is named it is a "
        f"BERT of 12 blocks, 384 wide, with random weights, on {bench.examples:,} examples of "
        "SST-2."
    )
    write_page(introduction, sections, arguments.write, arguments.device)


if __name__ == "__main__":
    main()
