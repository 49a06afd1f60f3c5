"""Measure scan and tuning on an accelerator, beside the bare forward pass and Trainer, in minutes.

    make bench-accelerator                # with the torch, transformers, datasets of the machine
    make bench-accelerator WHEELS=wheels  # packages that it lacks come from a folder
    python bench/accelerator.py --tiny    # tiny shapes, to try the script on a processor

The models have random weights in the shapes of real ones: times do not depend on the weights. It
needs no network. What it finds is of this machine alone; the page names the card.
"""

from __future__ import annotations

import argparse
import gc
import importlib.metadata as metadata
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
REPEATS, EPOCHS, BATCH, RATE = 2, 3, 32, 2e-5


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


def measure(shape: Shape, device: str, folder: Path) -> dict[str, Any]:
    """Return seconds, peak memory and counted FLOPs of each kind of work with one model."""
    import torch

    import layerscout as ls

    words = [f"w{i}" for i in range(2000)]
    make_model(shape, folder, words)
    texts, labels = draw_texts(shape.examples, words)
    held_out = shape.examples // 8
    task = ls.Task.from_lists(
        texts[held_out:], labels[held_out:], validation=(texts[:held_out], labels[:held_out])
    )
    encoder = ls.Encoder.load(folder, device=device, precision="bfloat16")
    tokens = encoder.tokenize(task.train.texts)
    batches = [encoder.batch(tokens, rows) for rows in encoder.batches(tokens)]
    third = 2 * shape.blocks // 3
    plan = f"({shape.blocks // 3 + 1}, {third}, {third})"
    contents: dict[str, Mapping[str, Any]] = {}

    def forward() -> None:
        with torch.inference_mode(), encoder.autocast():
            for inputs in batches:
                encoder.model(**inputs)

    def scan() -> None:
        ls.scan(encoder, task, examples="all", progress=False)

    def tune(notation: str) -> Callable[[], None]:
        options: dict[str, Any] = {"epochs": EPOCHS, "batch_size": BATCH, "learning_rate": RATE}

        def work() -> None:
            contents[notation] = ls.tune(
                encoder, task, notation, measure="metric", progress=False, **options
            ).content

        return work

    works = {"bare pass": forward, "scan": scan, "plan": tune(plan), "full": tune("full")}
    works["Trainer"] = lambda: run_trainer(folder, task, device)
    seconds, memory = run_in_turns(works, device)
    flops = {
        name: contents[key]["flops"]["train"] for name, key in (("plan", plan), ("full", "full"))
    }
    rows = len(task.train)
    flops["bare pass"] = rows * contents["full"]["flops"]["full_inference"]
    return {"shape": shape, "plan": plan, "seconds": seconds, "memory": memory, "flops": flops}


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
            bf16=True,
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


def run_in_turns(
    works: Mapping[str, Callable[[], None]], device: str
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Return the seconds of each work, in turns after an uncounted round, and its peak memory."""
    import torch

    seconds: dict[str, list[float]] = {name: [] for name in works}
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
                work()
                if device != "cpu":
                    torch.cuda.synchronize()
                    memory[name] = torch.cuda.max_memory_allocated() / 1e9
                taken = time.perf_counter() - started
            print(f"  {name}: {taken:.2f} s", file=sys.stderr)
            if turn:
                seconds[name].append(taken)
    return seconds, memory


def tabulate(records: Sequence[Mapping[str, Any]]) -> str:
    """Write the Markdown tables of all models."""

    def ratio(above: Sequence[float], below: Sequence[float]) -> str:
        values = [a / b for a, b in zip(above, below, strict=True)]
        return f"{statistics.median(values):.2f} ({min(values):.2f}–{max(values):.2f})"

    times, rates = [], []
    for record in records:
        seconds, flops = record["seconds"], record["flops"]
        name = record["shape"].name
        times.append(
            [
                name,
                record["plan"],
                ratio(seconds["scan"], seconds["bare pass"]),
                ratio(seconds["Trainer"], seconds["plan"]),
                ratio(seconds["Trainer"], seconds["full"]),
                f"{statistics.median(seconds['Trainer']):.1f} s",
            ]
        )
        reached = {key: flops[key] / statistics.median(seconds[key]) / 1e12 for key in flops}
        share = flops["plan"] / flops["full"]
        measured = statistics.median(seconds["plan"]) / statistics.median(seconds["full"])
        peaks = record["memory"]
        rates.append(
            [
                name,
                *(f"{reached[key]:.3g}" for key in ("bare pass", "plan", "full")),
                f"{share:.2f}",
                f"{measured:.2f}",
                *(
                    f"{peaks[key]:.2f}" if key in peaks else "–"
                    for key in ("plan", "full", "Trainer")
                ),
            ]
        )
    first = ["model", "plan", "scan / bare pass", "Trainer / plan", "Trainer / full", "Trainer"]
    second = ["model", "bare pass, TFLOP/s", "plan, TFLOP/s", "full, TFLOP/s"]
    second += ["plan / full by FLOPs", "plan / full by time"]
    second += ["peak GB, plan", "peak GB, full", "peak GB, Trainer"]
    return f"{write_table(first, times)}\n\n{write_table(second, rates)}\n"


def write_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a Markdown table."""
    return "\n".join(f"| {' | '.join(row)} |" for row in [columns, ["---"] * len(columns), *rows])


def main() -> None:
    """Measure every shape that there is time for, and print or write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--wheels", type=Path, help="a folder of wheels of missing packages")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--tiny", action="store_true", help="tiny shapes, also on a CPU")
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
        if not arguments.tiny and not torch.cuda.is_available():
            parser.error("no accelerator is here; --tiny tries the script on a processor")
        device = "cuda" if torch.cuda.is_available() else "cpu"
        longest = 0.0
        for shape in TINY if arguments.tiny else SHAPES:
            used = time.monotonic() - begun
            if used + longest > 0.8 * 60 * arguments.minutes:
                left_out.append(shape.name)
                continue
            print(shape.name, file=sys.stderr)
            records.append(measure(shape, device, Path(work) / shape.name))
            longest = max(longest, time.monotonic() - begun - used)
        card = torch.cuda.get_device_name() if device == "cuda" else "A CPU"
        packages = ("torch", "transformers", "datasets", "accelerate")
        versions = ", ".join(f"{name} {metadata.version(name)}" for name in packages)
    page = (
        "# On an accelerator\n\n"
        f"{card}; Python {platform.python_version()}, {versions}. In bfloat16, {REPEATS} repeats "
        f"in turns after an uncounted one; ratios of paired times: median (least–most). {EPOCHS} "
        f"epochs in batches of {BATCH}; models with random weights. Scan and plan start with an "
        "empty cache. FLOPs are counted as `layerscout plan` does.\n\n"
        f"{tabulate(records)}"
        + (f"\nThere was no time for: {', '.join(left_out)}.\n" if left_out else "")
    )
    if arguments.write:
        arguments.write.write_text(page, encoding="utf-8")
    print(page)


if __name__ == "__main__":
    main()
