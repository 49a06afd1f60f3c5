"""What the benchmarks share: models, texts, options, and how figures are written."""

import argparse
import json
import platform
import statistics
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import t
from transformers import AutoTokenizer, BertConfig, BertModel
from transformers.utils import logging

import layerscout as ls
from layerscout.data import Split, sample


def ratio(above: Sequence[float], below: Sequence[float], digits: int = 2) -> str:
    """Write the ratio of paired times: median, minimum and maximum."""
    ratios = [a / b for a, b in zip(above, below, strict=True)]
    middle, low, high = statistics.median(ratios), min(ratios), max(ratios)
    return f"{middle:.{digits}f} ({low:.{digits}f}–{high:.{digits}f})"


def random_encoder(
    folder: Path, tokenizer: Path, blocks: int = 12, width: int = 384, tokens: int = 512
) -> Path:
    """Save a BERT with random weights, attention heads of 32, and a real tokenizer."""
    torch.manual_seed(0)
    config = BertConfig(
        num_hidden_layers=blocks,
        hidden_size=width,
        num_attention_heads=width // 32,
        intermediate_size=4 * width,
        max_position_embeddings=max(512, tokens),
    )
    BertModel(config).save_pretrained(folder)
    words = AutoTokenizer.from_pretrained(tokenizer)
    words.model_max_length = config.max_position_embeddings
    words.save_pretrained(folder)
    return folder


def drawn(task: ls.Task, examples: int) -> Split:
    """Return the examples that a scan of this size reads."""
    rows = sample(
        task.train,
        len(task.labels),
        examples=examples,
        balanced=False,
        per_class=None,
        seed=0,
    )
    return task.train.take(rows)


def options(page: str) -> argparse.ArgumentParser:
    """Make the parser of a script that measures on real texts, from its docstring."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    parser = argparse.ArgumentParser(description=page.split("\n")[0])
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--write", type=Path)
    return parser


def given(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Read the command line, and leave where the real texts are not there."""
    arguments = parser.parse_args()
    if not (arguments.shared / "data" / "sst2").is_dir():
        parser.error(f"{arguments.shared} holds no data/sst2; the benchmarks need real texts")
    return arguments


def read_records(path: Path) -> list[dict[str, Any]]:
    """Read lines of JSON; none where there is no such file yet."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def estimate(values: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """Return a mean and the half width of its 95 % t-interval, which a single value has none of."""
    n = len(values)
    half = t.ppf(0.975, n - 1) * np.std(values, ddof=1) / n**0.5 if n > 1 else np.nan
    return float(np.mean(values)), float(half)


def spread(values: Sequence[float] | np.ndarray, digits: int = 1) -> str:
    """Write a mean with its 95 % t-interval."""
    mean, half = estimate(values)
    return f"{mean:+.{digits}f}" + ("" if np.isnan(half) else f" ± {half:.{digits}f}")


def machine(device: str = "cpu") -> str:
    """Name the machine, the device that models run on, and the versions."""
    capabilities = getattr(torch.cpu, "get_capabilities", dict)()
    units = "with" if capabilities.get("amx_bf16") else "without"
    packages = ", ".join(f"{p} {version(p)}" for p in ("torch", "transformers", "layerscout"))
    threads = torch.get_num_threads()
    accelerator = torch.cuda.get_device_name(device) if device.startswith("cuda") else device
    return (
        f"{'' if device == 'cpu' else accelerator + ', '}"
        f"{capabilities.get('cpu_name', platform.processor())}, "
        f"{threads} thread{'' if threads == 1 else 's'}, "
        f"{units} matrix units for bfloat16; Python {platform.python_version()}, {packages}."
    )
