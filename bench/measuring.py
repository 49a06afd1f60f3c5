"""What the benchmarks share: timing in turns, ratios with their spread, pages."""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Section:
    """A heading and the Markdown below it."""

    title: str
    text: str


def synchronize() -> None:
    """Wait until an accelerator has done what it was told to, before the time is taken."""
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()


def in_turns(
    repeats: int, works: Mapping[str, Callable[[], object]], uncounted: int = 1
) -> dict[str, list[float]]:
    """Time each piece of work `repeats` times, in turns, after some uncounted rounds."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(uncounted + repeats):
        for name, work in works.items():
            started = time.perf_counter()
            work()
            synchronize()
            seconds[name].append(time.perf_counter() - started)
            print(f"  {name}: {seconds[name][-1]:.2f} s", file=sys.stderr)
    return {name: counted[uncounted:] for name, counted in seconds.items()}


def measure_product(tokens: int, d: int) -> float:
    """Measure FLOPs a second of the largest matrix product of a block: (tokens, d) by (d, 4 d)."""
    left, right, seconds = torch.randn(tokens, d), torch.randn(d, 4 * d), []
    for _ in range(10):
        started = time.perf_counter()
        torch.matmul(left, right)
        seconds.append(time.perf_counter() - started)
    return 2 * tokens * d * 4 * d / statistics.median(seconds[1:])  # the first is slower


def ratio(above: Sequence[float], below: Sequence[float], digits: int = 2) -> str:
    """Write the ratio of paired times: median, minimum and maximum."""
    ratios = [a / b for a, b in zip(above, below, strict=True)]
    middle, low, high = statistics.median(ratios), min(ratios), max(ratios)
    return f"{middle:.{digits}f} ({low:.{digits}f}–{high:.{digits}f})"


# After the work of a process of its own.
END = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from resident import read_peak
print(read_peak())
"""


def measure_peak(code: str, *arguments: str) -> float:
    """Run Python code in a process of its own, on Linux; give its peak resident memory in MB."""
    command = [sys.executable, "-c", code + END, *arguments]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(output.split()[-1])


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


def precisions(model: Path, device: str) -> tuple[str, ...]:
    """Return float32 and, where it is another, what `--precision auto` takes on the device."""
    settled = ls.Encoder.load(model, device=device, precision="auto").precision
    return tuple(dict.fromkeys(("float32", settled)))


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


def options(page: str, brief: bool = True) -> argparse.ArgumentParser:
    """Make the parser of a script that measures on real texts and writes a page.

    Args:
        page: the script's docstring.
        brief: `make bench` runs it: there is a small size of it, and other devices may be named.
    """
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    parser = argparse.ArgumentParser(description=page.split("\n")[0])
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--write", type=Path)
    if brief:
        parser.add_argument("--brief", action="store_true", help="fewer examples and repeats")
        parser.add_argument("--device", default="cpu", help="where models run")
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


def write_page(
    introduction: str, sections: Sequence[Section], path: Path | None, device: str = "cpu"
) -> None:
    """Print a Markdown page, and write it to `path`."""
    parts = [introduction, machine(device), *(f"## {s.title}\n\n{s.text}" for s in sections)]
    page = "\n\n".join(parts) + "\n"
    if path:
        path.write_text(page, encoding="utf-8")
    print(page)
