"""Measure phases of scan, tuning and predicting, beside a matrix product, Trainer and pipeline.

    python bench/speed.py --write docs/measured/speed.md    # what is here: a GPU, or the processor
    make bench-accelerator WHEELS=wheels    # a GPU; packages that are missing come from a folder
    python bench/speed.py --tiny            # tiny shapes, to try the script

The models have random weights in the shapes of real ones: times do not depend on the weights. It
needs no network. What it finds is of this machine alone; the page names it.
"""

from __future__ import annotations

import argparse
import gc
import importlib.metadata as metadata
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
REPEATS, EPOCHS, BATCH, RATE = 3, 1, 32, 2e-5
PASS, STEPS, EVERY = "bare pass", "steps of the plan", "steps of all blocks"


@dataclass(frozen=True)
class Shape:
    """A model to make, and how many texts it reads."""

    name: str
    family: str
    blocks: int
    width: int
    heads: int
    feed_forward: int
    examples: int


SHAPES = (
    Shape("encoder, 12 × 768", "bert", 12, 768, 12, 3072, 2048),
    Shape("encoder, 24 × 1,024", "bert", 24, 1024, 16, 4096, 1024),
    Shape("decoder, 30 × 576", "llama", 30, 576, 9, 1536, 1024),
)
# Of 73 texts 64 are trained on: two whole batches.
PROCESSOR = (replace(SHAPES[0], examples=73),)
TINY = (
    Shape("encoder, 3 × 32", "bert", 3, 32, 2, 64, 64),
    Shape("decoder, 3 × 32", "llama", 3, 32, 2, 64, 64),
)


def find_packages(wheels: Path | None, target: Path) -> None:
    """Make layerscout and what it needs importable; say in one line what is missing or older.

    Packages that are there are taken as they are. What is missing comes from the folder of wheels.
    """
    needs = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    missing, older = [], []
    for requirement in needs["dependencies"]:
        name, least = re.match(r"([\w.-]+)(?:>=([\d.]+))?", requirement).groups()  # type: ignore[union-attr]
        try:
            there = metadata.version(name)
        except metadata.PackageNotFoundError:
            missing.append(name)
            continue
        if least and numbers(there) < numbers(least):
            older.append(f"{name} {there} (declared: {least})")
    if older:
        print(f"older than declared, and tried: {', '.join(older)}", file=sys.stderr)
    if missing and wheels is not None:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
        command += ["--find-links", str(wheels), "--target", str(target), *missing]
        subprocess.run(command, check=True)
        sys.path.insert(0, str(target))
    elif missing:
        print(
            f"missing: {', '.join(missing)}; if it does not run without them, put their wheels "
            "into a folder and name it (WHEELS=folder)",
            file=sys.stderr,
        )
    sys.path.insert(0, str(ROOT / "src"))
    try:
        metadata.version("layerscout")
    except metadata.PackageNotFoundError:  # not installed: records of results hold its version
        about = target / f"layerscout-{needs['version']}.dist-info"
        about.mkdir(parents=True)
        text = f"Metadata-Version: 2.1\nName: layerscout\nVersion: {needs['version']}\n"
        (about / "METADATA").write_text(text)
        sys.path.insert(0, str(target))


def numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, to compare by."""
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])


def make_model(shape: Shape, folder: Path, words: Sequence[str]) -> None:
    """Save a model with random weights, and a tokenizer that knows these words."""
    import torch
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    tokenizer = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate([*special, *words])}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    if shape.family == "bert":
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
        )
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        bos_token="[CLS]",
        eos_token="[SEP]",
        model_max_length=256,
        model_input_names=["input_ids", "attention_mask"],
    ).save_pretrained(folder)
    common: dict[str, Any] = {
        "num_hidden_layers": shape.blocks,
        "hidden_size": shape.width,
        "num_attention_heads": shape.heads,
        "intermediate_size": shape.feed_forward,
        "max_position_embeddings": 512,
        "vocab_size": 30522 if shape.family == "bert" else 49152,
        "pad_token_id": 0,
    }
    torch.manual_seed(0)
    if shape.family == "bert":
        model = transformers.BertModel(transformers.BertConfig(**common))
    else:
        more = {"num_key_value_heads": max(1, shape.heads // 3), "bos_token_id": 2}
        config = transformers.LlamaConfig(**common, **more, eos_token_id=3)
        model = transformers.LlamaModel(config)
    model.save_pretrained(folder)


def draw_texts(examples: int, words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Draw texts of 8 to 120 words, most of them short, and labels without a pattern."""
    import numpy as np

    rng = np.random.default_rng(0)
    lengths = np.clip(rng.lognormal(3.5, 0.6, examples).astype(int), 8, 120)
    texts = [" ".join(rng.choice(words, length)) for length in lengths]
    return texts, [("no", "yes")[i] for i in rng.integers(0, 2, examples)]


@dataclass(frozen=True)
class Record:
    """What was measured with one model.

    Attributes:
        shape: of the model.
        plan: that was tuned.
        calls: by call, the seconds of each turn from its start to its end.
        phases: by phase, the seconds and the FLOPs of each turn.
        memory: by call, the peak in GB, on an accelerator.
    """

    shape: Shape
    plan: str
    calls: dict[str, list[float]]
    phases: dict[str, list[tuple[float, float]]]
    memory: dict[str, float]

    def rates(self, phase: str) -> list[float]:
        """Return the FLOPs a second of each turn."""
        return [flops / seconds for seconds, flops in self.phases[phase]]


# What a call did: seconds and FLOPs by phase; no seconds where these are of the whole call.
Phases = Mapping[str, tuple[float | None, float]]


def measure(shape: Shape, device: str, folder: Path) -> Record:
    """Measure each kind of work with one model, in turns."""
    import pandas as pd
    import torch

    import layerscout as ls
    from layerscout.plans import Work, full_cost, make_plan, trunk_flops

    words = [f"w{i}" for i in range(2000)]
    make_model(shape, folder, words)
    texts, labels = draw_texts(shape.examples, words)
    held_out = shape.examples // 8
    rows = shape.examples - held_out
    task = ls.Task.from_lists(
        texts[held_out:], labels[held_out:], validation=(texts[:held_out], labels[:held_out])
    )
    precision = "float32" if device == "cpu" else "bfloat16"
    encoder = ls.Encoder.load(folder, device=device, precision=precision)
    tokens = encoder.tokenize(task.train.texts)
    batches = [encoder.batch(tokens, some) for some in encoder.batches(tokens)]
    counted, length = encoder.shape(2, "classification", "family"), float(tokens.lengths.mean())
    each = full_cost(counted, Work(rows, held_out, length, 1)).inference
    third = 2 * shape.blocks // 3
    plan = f"({shape.blocks // 3 + 1}, {third}, {third})"
    options: dict[str, Any] = {"measure": "metric", "progress": False}
    settings: dict[str, Any] = {"epochs": EPOCHS, "batch_size": BATCH, "learning_rate": RATE}
    tuned, table, out = (folder.with_suffix(f".{end}") for end in ("tuned", "csv", "out.csv"))
    ls.tune(encoder, task, "full", max_steps=1, **options).save(tuned)
    pd.DataFrame({"text": texts}).to_csv(table, index=False)

    def forward(half: bool) -> None:
        with torch.inference_mode(), torch.autocast(device, torch.bfloat16, enabled=half):
            for inputs in batches:
                encoder.model(**inputs)

    def scan() -> Phases:
        ls.scan(encoder, task, examples="all", progress=False)
        return {"scan": (None, rows * each)}

    def solve() -> Phases:
        content = ls.tune(encoder, task, "head:best", **options).content
        return {"free head": (None, content["flops"]["train"])}

    def tune(steps: str, notation: str, **more: Any) -> Phases:
        content = ls.tune(encoder, task, notation, **options, **settings, **more).content
        seconds, flops = content["seconds"], content["flops"]["train"]
        tokens = content["task"]["tokens_per_example"]
        trunk = make_plan(notation, shape.blocks)
        below = trunk_flops(trunk, counted, Work(rows, held_out, tokens, EPOCHS))
        phases = {steps: (seconds["train"] + seconds["evaluate"], flops - below)}
        return {"trunk": (seconds["trunk"], below), **phases} if steps == STEPS else phases

    def predict() -> Phases:
        ls.predict(tuned, table, out, device=device, precision=precision, progress=False)
        return {"predict": (None, shape.examples * each)}

    works: dict[str, Callable[[], Phases | None]] = {
        "product": make_product(shape.width, device),
        PASS: lambda: forward(device != "cpu") or {PASS: (None, rows * each)},
        "scan": scan,
        "free head": solve,
        "plan": lambda: tune(STEPS, plan),
        "contrastive": lambda: tune("contrastive stage", plan, loss="contrastive"),
        "full": lambda: tune(EVERY, "full"),
        "Trainer": lambda: run_trainer(folder, task, device),
        "predict": predict,
        "pipeline": lambda: run_pipeline(tuned / "model", table, out, device),
    }
    if device == "cpu":
        name = f"{PASS} in bfloat16"
        works[name] = lambda: forward(True) or {name: (None, rows * each)}
    return Record(shape, plan, *run_in_turns(works, device))


def make_product(width: int, device: str) -> Callable[[], Phases]:
    """Return what multiplies two matrices for a second."""
    import torch

    kind = torch.float32 if device == "cpu" else torch.bfloat16
    left = torch.randn(4096, width, dtype=kind, device=device)
    right = torch.randn(width, 4 * width, dtype=kind, device=device)
    burst = 1 if device == "cpu" else 100

    def multiply() -> Phases:
        started, count = time.perf_counter(), 0
        while time.perf_counter() - started < 1:
            for _ in range(burst):
                torch.matmul(left, right)
            wait(device)
            count += burst
        flops = count * 2 * left.shape[0] * right.numel()
        return {"product": (time.perf_counter() - started, flops)}

    return multiply


def run_pipeline(model: Path, table: Path, out: Path, device: str) -> None:
    """Predict the rows of a CSV as transformers' pipeline does, in batches."""
    import pandas as pd
    import torch
    import transformers

    classify = transformers.pipeline(
        "text-classification",
        transformers.AutoModelForSequenceClassification.from_pretrained(
            model, dtype=torch.float32 if device == "cpu" else torch.bfloat16
        ),
        tokenizer=transformers.AutoTokenizer.from_pretrained(model),
        top_k=None,
        device=device,
    )
    texts = pd.read_csv(table)["text"].tolist()
    pd.DataFrame(classify(texts, batch_size=BATCH, truncation=True)).to_csv(out, index=False)


def run_trainer(folder: Path, task: Any, device: str) -> None:
    """Fine-tune all weights as transformers' Trainer does, in batches of texts of like length."""
    import inspect

    import transformers
    from accelerate.state import AcceleratorState
    from datasets import Dataset

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)

    def rows(split: Any) -> Dataset:
        coded = tokenizer(list(split.texts), truncation=True, max_length=128)
        return Dataset.from_dict({**coded, "labels": split.labels.tolist()})

    import torch

    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        folder, num_labels=2, dtype=torch.float32
    )
    known = inspect.signature(transformers.TrainingArguments.__init__).parameters
    by_length: dict[str, Any] = (
        {"train_sampling_strategy": "group_by_length"}
        if "train_sampling_strategy" in known
        else {"group_by_length": True}
    )
    with tempfile.TemporaryDirectory() as output:
        arguments = transformers.TrainingArguments(
            output,
            num_train_epochs=EPOCHS,
            per_device_train_batch_size=BATCH,
            per_device_eval_batch_size=4 * BATCH,
            learning_rate=RATE,
            bf16=device != "cpu",
            use_cpu=device == "cpu",
            eval_strategy="epoch",
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            logging_strategy="no",
            **by_length,
        )
        trainer = transformers.Trainer(
            model,
            arguments,
            data_collator=transformers.DataCollatorWithPadding(tokenizer),
            train_dataset=rows(task.train),
            eval_dataset=rows(task.validation),
        )
        trainer.remove_callback(transformers.trainer_callback.PrinterCallback)
        trainer.train()
    # Trainer's mixed precision would hold for the whole process, and ours sets its own.
    AcceleratorState._reset_state(reset_partial_state=True)


def wait(device: str) -> None:
    """Wait until an accelerator has done what it was told to, before the time is taken."""
    import torch

    if device != "cpu":
        torch.cuda.synchronize()


def run_in_turns(
    works: Mapping[str, Callable[[], Phases | None]], device: str
) -> tuple[dict[str, list[float]], dict[str, list[tuple[float, float]]], dict[str, float]]:
    """Run each work in turns, after an uncounted round; return what `Record` has."""
    import torch

    calls: dict[str, list[float]] = {name: [] for name in works}
    phases: dict[str, list[tuple[float, float]]] = {}
    memory: dict[str, float] = {}
    for turn in range(REPEATS + 1):
        for name, work in works.items():
            with tempfile.TemporaryDirectory() as cache:
                os.environ["LAYERSCOUT_CACHE"] = cache  # empty every time
                gc.collect()
                if device != "cpu":
                    torch.cuda.empty_cache()
                    torch.cuda.reset_peak_memory_stats()
                started = time.perf_counter()
                done = work()
                wait(device)
                taken = time.perf_counter() - started
                if device != "cpu":
                    memory[name] = torch.cuda.max_memory_allocated() / 1e9
            print(f"  {name}: {taken:.2f} s", file=sys.stderr, flush=True)
            if turn:
                calls[name].append(taken)
                for phase, (seconds, flops) in (done or {}).items():
                    phases.setdefault(phase, []).append((seconds or taken, flops))
    return calls, phases, memory


def list_phases(record: Record) -> str:
    """Write the table of one model: seconds, FLOPs a second, and the product's share of these."""
    from measuring import ratio
    from writing import table

    product, rows = record.rates("product"), []
    for phase, turns in record.phases.items():
        seconds = [f"{statistics.median(taken for taken, _ in turns):.2f}"]
        reached = [rate / 1e9 for rate in record.rates(phase)]
        middle, least, most = (f(reached) for f in (statistics.median, min, max))
        rows.append(
            [
                phase,
                *(["–"] if phase == "product" else seconds),
                f"{middle:,.0f} ({least:,.0f}–{most:,.0f})",
                ratio(record.rates(phase), product),
            ]
        )
    columns = ["phase", "seconds", "GFLOP/s", "of the product's"]
    return f"## {record.shape.name}\n\nThe plan is {record.plan}.\n\n{table(columns, rows)}\n"


def compare_calls(records: Sequence[Record]) -> str:
    """Write the table of what takes how many times as long as what, from start to end."""
    from measuring import ratio
    from writing import table

    pairs = {
        f"{one} / {other}": (one, other)
        for one, other in (
            ("scan", PASS),
            ("Trainer", "plan"),
            ("Trainer", "full"),
            ("plan", "full"),
            ("pipeline", "predict"),
        )
    }
    rows = []
    for record in records:
        calls = record.calls
        cells = [ratio(calls[one], calls[other]) for one, other in pairs.values()]
        peaks = [f"{record.memory[one]:.2f}" for one in MEMORY if one in record.memory]
        rows.append([record.shape.name, *cells, *peaks])
    peaks = [f"peak GB, {one}" for one in MEMORY if one in records[0].memory]
    return table(["model", *pairs, *peaks], rows)


MEMORY = ("plan", "contrastive", "full", "Trainer", "predict")


def page(records: Sequence[Record], left_out: Sequence[str], device: str) -> str:
    """Write the page."""
    from measuring import machine

    steady = [PASS, "scan", "trunk", STEPS, "contrastive stage", EVERY]
    shares = {
        phase: statistics.median(
            rate / whole
            for record in records
            for rate, whole in zip(record.rates(phase), record.rates("product"), strict=True)
        )
        for phase in (*steady, "free head", "predict")
    }
    low, high = min(shares[one] for one in steady), max(shares[one] for one in steady)
    tables = "\n".join(list_phases(record) for record in records)
    missing = f"\nThere was no time for: {', '.join(left_out)}.\n" if left_out else ""
    return f"""# How fast is each phase{" on an accelerator" * (device != "cpu")}?

Passes and steps reach {low:.0%} to {high:.0%} of the FLOPs a second of a plain matrix product of
the same width; the free head {shares["free head"]:.0%} and `predict` {shares["predict"]:.0%},
which count only the pass, although one also solves heads, and the other loads, reads and writes.

{compare_calls(records)}

From the start of a call to its end, medians of {REPEATS} turns after an uncounted one, with the
least and the most; scan and tunings start with an empty cache, and evaluate after the epoch.
{missing}
{tables}
The product is of (4,096, d) and (d, 4 d), on the same threads. FLOPs are counted as `layerscout
plan` does, without padding and the optimiser's. Steps are of {EPOCHS} epoch in batches of {BATCH},
with the passes that judge them; the contrastive stage also solves its head, and more epochs would
not take the trunk again. Models have random weights, texts 8 to 120 words, median 33; a batch of
`Trainer` has texts of like length, one of `pipeline` {BATCH} texts in the order of the file.

{machine(device)}

`python bench/speed.py --device {device}` measures this in ten minutes.
"""


def main() -> None:
    """Measure every shape that there is time for, and print or write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--wheels", type=Path, help="a folder of wheels of missing packages")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--tiny", action="store_true", help="tiny shapes")
    parser.add_argument("--device", choices=("cuda", "cpu"), help="by default what is here")
    parser.add_argument("--minutes", type=float, default=10, help="time for all models")
    arguments = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    begun, records, left_out = time.monotonic(), [], []
    with tempfile.TemporaryDirectory() as work:
        find_packages(arguments.wheels, Path(work) / "packages")
        try:
            import torch
            import transformers

            import layerscout  # noqa: F401
        except ImportError as error:
            parser.error(f"{error}; put its wheel into a folder and name that (WHEELS=folder)")
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        found = "cuda" if torch.cuda.is_available() else "cpu"
        device = arguments.device or found
        if device == "cuda" != found:
            parser.error("no accelerator is here; --device cpu measures the processor")
        longest = 0.0
        for shape in TINY if arguments.tiny else SHAPES if device == "cuda" else PROCESSOR:
            used = time.monotonic() - begun
            if used + longest > 0.8 * 60 * arguments.minutes:
                left_out.append(shape.name)
                continue
            print(shape.name, file=sys.stderr)
            records.append(measure(shape, device, Path(work) / shape.family))
            longest = max(longest, time.monotonic() - begun - used)
    text = page(records, left_out, device)
    if arguments.write:
        arguments.write.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
