"""Measure the comparison of states and the evaluation of a model under edits.

Every speed is a ratio of two things done in this one run, in turns, with its spread. Run it alone
on the machine:

    python bench/compare.py --shared ../shared --write docs/measured/benchmarks-compare.md

One section compares with the package torch_cka, which needs an environment of its own (the page
says how to make it); `--torch-cka-python` names its Python.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import layerscout as ls
from layerscout.data import make_targets, require_validation
from layerscout.evaluating.ablations import ablate
from layerscout.models import Encoder, base_of, edit, make_classifier
from layerscout.plans import Plan
from layerscout.progress import show_progress
from layerscout.scores.cka import cka_map
from layerscout.states import Examples, clear_cache, pool_states, predict
from measuring import Section, given, in_turns, options, random_encoder, ratio, table, write_page

REPEATS, EXAMPLES = 5, 400
BRIEF_REPEATS, BRIEF_EXAMPLES = 2, 48
MODEL = "stacked-minilm-12"
ENVIRONMENT = "`make .venv/peers/cka` installs torch_cka."


def against_torch_cka(
    encoder: Encoder, task: ls.Task, python: Path | None, repeats: int
) -> Section:
    """Compare all pairs of states by torch_cka and by ours."""
    title = "CKA of all pairs of states"
    if python is None:
        text = f"Not measured: no environment with torch_cka was given. {ENVIRONMENT}"
        return Section(title, text)
    split = require_validation(task)
    tokens = encoder.tokenize(split.texts, split.pairs)
    states = pool_states(encoder, tokens, ("mean",), limit=10**10).states["mean"]
    found = cka_map(states)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "states.npy"
        np.save(path, np.stack(list(states)))
        ours, theirs, matrix, version = _turns(states, path, python, repeats)
    difference = np.abs(np.array(found.debiased, dtype=float) - matrix).max()
    rows = [
        [
            f"{len(states)} × {len(states)}",
            f"{len(split):,}",
            f"{1e3 * statistics.median(ours):.0f} ms",
            f"{statistics.median(theirs):.1f} s",
            ratio(theirs, ours, 0),
            f"{difference:.1e}",
        ]
    ]
    text = (
        f"All states of {MODEL}, averaged over tokens, on the {len(split):,} validation examples "
        f"of CoLA, by torch_cka {version} with all examples in one batch, in a process of its own "
        "with as many threads, and by ours, both on the CPU. Both read the same states, ours from "
        "the cache; both give the debiased estimate, ours the biased one too. torch_cka computes "
        "in the states' float32, ours in float64; the difference is that of ours from torch_cka's "
        "values for states in float64. (torch_cka stops on first tokens, whose embeddings are all "
        "the same.) Target: 10 times or more, and 1e-5. "
        f"{ENVIRONMENT}\n\n"
    )
    columns = ["pairs", "examples", "ours", "torch_cka", "times faster", "largest difference"]
    return Section(title, text + table(columns, rows))


def _turns(
    states: Sequence[np.ndarray], path: Path, python: Path, repeats: int
) -> tuple[list[float], list[float], list[list[float]], str]:
    """Time both in turns; of the first round, in float64, only the values count."""
    script = Path(__file__).with_name("torch_cka_peer.py")
    command = [str(python), str(script), str(path), str(torch.get_num_threads()), str(1 + repeats)]
    ours: list[float] = []
    theirs: list[float] = []
    told: list[dict[str, Any]] = []
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    ) as process:
        assert process.stdin
        assert process.stdout
        for _ in range(1 + repeats):
            answer = process.stdout.readline()
            if not answer:
                raise SystemExit(f"{' '.join(command)} ended")
            told.append(json.loads(answer))
            theirs.append(told[-1]["seconds"])
            time.sleep(1)  # until its threads have stopped waiting for work
            started = time.perf_counter()
            cka_map(states)  # type: ignore[arg-type]
            ours.append(time.perf_counter() - started)
            print(f"  torch_cka {theirs[-1]:.2f} s, ours {ours[-1]:.3f} s", file=sys.stderr)
            process.stdin.write("\n")
            process.stdin.flush()
    return ours[1:], theirs[1:], told[0]["matrix"], told[0]["version"]


def evaluations(encoder: Encoder, task: ls.Task, examples: int, repeats: int) -> list[Section]:
    """Time the truncation curve and the skip matrix against a forward pass and plain loops."""
    L, split = encoder.blocks, require_validation(task).take(np.arange(examples))
    model = make_classifier(encoder, Plan((), L), task.labels)
    encoder = replace(encoder, model=base_of(model)[0])
    given_ = make_targets(split, task.kind)
    data = Examples(encoder.tokenize_split(split), given_, None)

    def curve() -> None:
        with show_progress(False) as show:
            ablate(encoder, model, data, False, show)

    def cut_each() -> None:
        for head in range(1, L + 1):
            with edit(model, f"truncate:{head}"):
                predict(encoder, model, data)

    def spans() -> None:
        with show_progress(False) as show:
            ablate(encoder, model, data, True, show)

    def skip_each() -> None:
        predict(encoder, model, data)
        for first in range(1, L + 1):
            for last in range(first, L + 1):
                if (first, last) != (1, L):  # which leaves no block
                    with edit(model, f"skip:{first}-{last}"):
                        predict(encoder, model, data)

    once = in_turns(
        repeats,
        {"forward pass": lambda: predict(encoder, model, data), "curve": curve, "loop": cut_each},
    )
    about = (
        f"{len(split):,} validation examples of SST-2, a BERT of {L} blocks, 384 wide, with random "
        "weights."
    )
    truncation = Section(
        "The truncation curve with the head as it is",
        f"{about} The curve has the logits at all {L + 1} states; the loop cuts the model at each "
        "and runs it. Target: at most 1.1 forward passes.\n\n"
        + table(
            ["", "time", "forward passes"],
            [
                [
                    name,
                    f"{statistics.median(once[key]):.2f} s",
                    ratio(once[key], once["forward pass"]),
                ]
                for name, key in (
                    ("one forward pass", "forward pass"),
                    ("the curve", "curve"),
                    ("a loop", "loop"),
                )
            ],
        ),
    )
    many = in_turns(2, {"ours": spans, "loop": skip_each}, uncounted=0)
    passes = (L**3 - L) // 6 + L, (L**3 - L) // 3
    skips = Section(
        "All spans of blocks passed over",
        f"{about} Each of the {L * (L + 1) // 2} spans. The loop runs every shortened model from "
        "the first block on. A test counts the block passes.\n\n"
        + table(
            ["", "block passes a batch", "time", "times faster"],
            [
                ["ours", str(passes[0]), f"{statistics.median(many['ours']):.1f} s", ""],
                [
                    "a loop",
                    str(passes[1]),
                    f"{statistics.median(many['loop']):.1f} s",
                    ratio(many["loop"], many["ours"]),
                ],
            ],
        ),
    )
    return [truncation, skips]


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--torch-cka-python", type=Path, help="of an environment that has it")
    arguments = given(parser)
    introduction = (
        "# Benchmarks of comparing and evaluating\n\nWritten by `python bench/compare.py`. A ratio "
        "is the median over repeats done in turns in one run, with its minimum and maximum."
    )
    shared = arguments.shared
    repeats, examples = (BRIEF_REPEATS, BRIEF_EXAMPLES) if arguments.brief else (REPEATS, EXAMPLES)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LAYERSCOUT_CACHE"] = str(Path(folder) / "cache")
        real = Encoder.load(shared / "models" / MODEL, device=arguments.device)
        cola, sst2 = (ls.Task.load(shared / "data" / n, task=n) for n in ("cola", "sst2"))
        sections = [against_torch_cka(real, cola, arguments.torch_cka_python, repeats)]
        tokenizer = shared / "models" / MODEL
        plain = Encoder.load(
            random_encoder(Path(folder) / "model", tokenizer), device=arguments.device
        )
        sections += evaluations(plain, sst2, examples, repeats)
        clear_cache()
    write_page(introduction, sections, arguments.write, arguments.device)


if __name__ == "__main__":
    main()
