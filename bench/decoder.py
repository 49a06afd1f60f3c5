"""Measure a decoder: where plans of it are best, and LoRA on a few blocks against LoRA on all.

    python bench/decoder.py MODEL --shared ../shared --runs RUNS --write docs/measured/decoders.md

MODEL is a folder or hub id of SmolLM2-135M-Instruct. What was tuned and scanned once is
kept in `bench/decoder`; tunings by LoRA go into RUNS and are read from there if they were made
before. Without MODEL the page is written from what is kept.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

import layerscout as ls
from layerscout.reporting import place_side_by_side, save_chart
from layerscout.scores import DEFAULT
from measuring import given, options
from writing import link, read_rows, table, write_rows

HERE = Path(__file__).parent / "decoder"
PLANS, SCORES, QUALITY, ORDERS = (
    HERE / f"{name}.csv" for name in ("plans", "scores", "quality", "orders")
)
TASKS, SEEDS = ("cola", "sst2", "wic", "mrpc"), (0, 1)
EXAMPLES, EPOCHS, DRAWS = 640, 3, 2000
ALL = "(1, 30, 30)"
POOLINGS = ("mean", "last", "cls")

INTRODUCTION = """# Where is a decoder worth tuning, and what does LoRA there save?

SmolLM2-135M-Instruct (Llama family, 30 blocks of 576; rebuilt from 4-bit weights), four tasks, 640
texts each.

- Tuned plans are best with the head between states 18 and 23 of 30. The blocks above cost FLOPs
  and do not help.
- LoRA on the advised blocks, with the blocks above removed, does not differ beyond noise from LoRA
  on all, for half of the training FLOPs and two thirds of those of inference.
- Decoders are pooled by the last token, which their heads read. Of pairs of plans of equal width
  its scores order {last:.0f} % as tuning does, those of the mean {mean:.0f} % and those of the
  first token {cls:.0f} % (chance is 50): too few tasks to settle it. The default score does better
  on the mean ({own_mean:.0f} against {own_last:.0f} %): try `--pooling mean` too. ν of the mean is
  undefined for many states, since the first token is an attention sink with huge states.
- With so few texts CoLA is hardly learnt; on MRPC only heads and single blocks were tuned in full.
"""


# --- How scores order plans ----------------------------------------------------------------------


def read_values(row: Mapping[str, str]) -> list[float | None]:
    """Return the values of a score by state."""
    return [None if one == "-" else float(one) for one in row["values"].split()]


def share_in_order(row: Mapping[str, str], plans: Sequence[tuple[str, int, float]]) -> float | None:
    """Return the share of pairs of plans of equal width that a score orders as tuning does."""
    values, sign = read_values(row), 1 if row["better"] == "higher" else -1
    right = []
    for (width, head, value), (other_width, other_head, other) in combinations(plans, 2):
        ours, theirs = values[head], values[other_head]
        if width != other_width or head == other_head or value == other:
            continue
        if ours is not None and theirs is not None:
            apart = sign * (ours - theirs) * (value - other)
            right.append(0.5 if apart == 0 else float(apart > 0))
    return float(np.mean(right)) if right else None


def order_plans() -> dict[tuple[str, str], float]:
    """Return by score and pooling what percentage of pairs it orders as tuning does."""
    plans: dict[tuple[str, str], list[tuple[str, int, float]]] = {}
    for row in read_rows(PLANS):
        tried = (row["tuned"], int(row["head"]), float(row["value"]))
        plans.setdefault((row["task"], row["seed"]), []).append(tried)
    shares: dict[tuple[str, str], list[float]] = {}
    for row in read_rows(SCORES):
        share = share_in_order(row, plans.get((row["task"], row["seed"]), []))
        if share is not None:
            shares.setdefault((row["score"], row["pooling"]), []).append(100 * share)
    return {key: float(np.mean(some)) for key, some in shares.items()}


def draw(path: Path) -> None:
    """Draw what plans reach by the state that their head reads, and the default score below."""
    tuned = [
        {**row, "state": int(row["head"]), "y": float(row["value"])} for row in read_rows(PLANS)
    ]
    scored = [
        {**row, "state": state, "y": value}
        for row in read_rows(SCORES)
        if row["score"] == DEFAULT
        for state, value in enumerate(read_values(row))
    ]
    charts = [
        alt.Chart(
            alt.Data(values=[one for one in values if one["task"] == task]),
            title=f"{task}: {title}",
            width=200,
            height=110,
        )
        .mark_line(strokeWidth=1)
        .encode(
            x=alt.X("state:Q", title=None),
            y=alt.Y("mean(y):Q", title=None, scale=alt.Scale(zero=False)),
            color=alt.Color(
                f"{name}:N",
                sort=names,
                legend=alt.Legend(title=legend) if task == sorted(TASKS)[-1] else None,
            ),
        )
        for values, title, name, names, legend in (
            (tuned, "tuned", "tuned", ["0", "1", "7", "11", "15", "30"], "blocks tuned"),
            (scored, DEFAULT, "pooling", list(POOLINGS), "pooling"),
        )
        for task in sorted(TASKS)
    ]
    save_chart(place_side_by_side(charts, len(TASKS)).resolve_scale(color="independent"), path)


# --- LoRA on the advised blocks and on all -------------------------------------------------------


@dataclass(frozen=True)
class Tuned:
    """A tuning that was made: its result, and whether it was right on each example."""

    content: dict[str, Any]
    right: np.ndarray


def tune_once(model: str, task: str, shared: Path, plan: str, seed: int, runs: Path) -> Tuned:
    """Tune by LoRA, or read what was tuned before."""
    folder = runs / f"{task}-{plan.replace(' ', '')}-{seed}"
    if not (folder / "result.json").is_file():
        options = {"examples": EXAMPLES, "epochs": EPOCHS, "batch_size": 8, "keep": "last"}
        data = ls.Task.load(shared / "data" / task)
        ls.tune(model, data, plan, method="lora", seed=seed, progress=False, **options).save(folder)
    found = pd.read_parquet(folder / "predictions.parquet")
    right = (found["label"] == found["prediction"]).to_numpy()
    return Tuned(json.loads((folder / "result.json").read_text()), right)


def compare_quality(model: str, shared: Path, runs: Path) -> None:
    """Compare LoRA on the advised blocks with LoRA on all, in points of accuracy."""
    rng, rows = np.random.default_rng(0), []
    for task in TASKS:
        few, whole = (
            [tune_once(model, task, shared, plan, seed, runs) for seed in SEEDS]
            for plan in ("auto", ALL)
        )
        apart = np.array(
            [100.0 * a.right - 100.0 * b.right for a, b in zip(few, whole, strict=True)]
        )
        draws = [
            apart[rng.integers(len(apart), size=len(apart))][
                :, rng.integers(apart.shape[1], size=apart.shape[1])
            ].mean()
            for _ in range(DRAWS)
        ]
        low, high = np.percentile(draws, [2.5, 97.5])
        shares = [
            sum(one.content[part][name] for one in few)
            / sum(one.content[part][name] for one in whole)
            for part, name in (("flops", "train"), ("flops", "inference"), ("parameters", "total"))
        ]
        rows.append(
            [
                task,
                ", ".join(dict.fromkeys(one.content["plan"]["notation"] for one in few)),
                *(
                    f"{100 * np.mean([one.right.mean() for one in some]):.1f}"
                    for some in (few, whole)
                ),
                f"{apart.mean():+.1f} ({low:+.1f} to {high:+.1f})",
                *(f"{share:.0%}" for share in shares),
            ]
        )
    columns = ("task", "advised", "accuracy", "accuracy of all 30", "points apart")
    write_rows(QUALITY, (*columns, "training FLOPs", "inference FLOPs", "parameters"), rows)


# --- The page ------------------------------------------------------------------------------------


def tabulate(path: Path) -> str:
    """Write a table that is kept as Markdown."""
    rows = read_rows(path)
    return table(list(rows[0]), [list(row.values()) for row in rows])


def page(picture: Path) -> str:
    """Write the page from what is kept, and draw its picture."""
    draw(picture)
    orders = order_plans()
    keys = list(dict.fromkeys(key for key, _ in orders))
    cells = [[key, *(f"{orders.get((key, p), np.nan):.0f}" for p in POOLINGS)] for key in keys]
    write_rows(ORDERS, ("score", *POOLINGS), cells)
    means = {p: np.mean([orders[key, p] for key in keys if (key, p) in orders]) for p in POOLINGS}
    own = {f"own_{pooling}": orders[DEFAULT, pooling] for pooling in POOLINGS}
    return f"""{INTRODUCTION.format(**means, **own)}
![Tuned quality by the state that the head reads, and the default score]({picture.name})

Above: what plans reach by the state that their head reads, a line for each number of tuned blocks;
below: the default score by state, a line for each pooling. Means over two seeds.
[Every plan]({link(PLANS).partition("(")[2]}, [every score]({link(SCORES).partition("(")[2]} and
[how each orders the plans]({link(ORDERS).partition("(")[2]}.

LoRA of rank 8, two seeds, accuracy on the validation split; 95 % intervals over seeds and rows:

{tabulate(QUALITY)}

`python bench/decoder.py MODEL --runs RUNS --write docs/measured/decoders.md` measures LoRA again.
"""


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("model", nargs="?")
    parser.add_argument("--runs", type=Path)
    arguments = given(parser)
    if arguments.model and arguments.runs:
        compare_quality(arguments.model, arguments.shared, arguments.runs)
    if arguments.write:
        written = page(arguments.write.with_suffix(".svg"))
        arguments.write.write_text(written, encoding="utf-8")


if __name__ == "__main__":
    main()
