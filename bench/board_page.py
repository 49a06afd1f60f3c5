"""Judge the records of board.py: `auto` beside everything else, on the same rows.

    python bench/board_page.py --write docs/measured/board.md

writes the page, its picture beside it, and a line for each record in bench/board/board.csv.
"""

import argparse
import textwrap
from pathlib import Path

import altair as alt
import numpy as np
import pandas as pd
from sklearn.metrics import matthews_corrcoef

from board import AUTO, CHEAP, FREE, HERE, LIMITS, MPNET, RECORDS, SETFIT, SIZES, WORDS
from layerscout.reporting import save_chart
from measuring import read_records, spread
from writing import table

AXIS = {"tickCount": 4, "grid": False, "title": "seconds of one core"}
CELL = ["model", "size", "task", "draw"]
OURS = (FREE, AUTO, *LIMITS, "all blocks")
# Of the processor's time; repeated runs of one command differ by a tenth.
SAME_TIME = 1.1
MARGIN = 1.0
# The tasks of SetFit's paper (Tunstall et al. 2022), one judged by Matthews' correlation,
# and the mean over them that it reports for mpnet-base with 8 texts of each class.
PUBLISHED_TASKS = ("sst5", "amazon_counterfactual_en", "cr", "emotion6", "enron_spam", "ag_news")
BY_CORRELATION, PUBLISHED = "amazon_counterfactual_en", 65.7


def read() -> pd.DataFrame:
    """Return a row for each record; `right` says for each test row whether it was right, 0 or 1."""
    frame = pd.DataFrame(read_records(RECORDS))
    letters = zip(frame["truth"], frame["predictions"], strict=True)
    frame["right"] = [np.array([*one]) == np.array([*other]) for one, other in letters]
    frame["accuracy"] = [100 * right.mean() for right in frame["right"]]
    frame["correlation"] = [
        100 * matthews_corrcoef([*truth], [*said])
        for truth, said in zip(frame["truth"], frame["predictions"], strict=True)
    ]
    frame["size"] = pd.Categorical(frame["size"], SIZES, ordered=True)
    return frame.drop(columns=["truth", "predictions", "value"]).sort_values([*CELL, "contender"])


def pair(frame: pd.DataFrame, one: str, other: str) -> pd.DataFrame:
    """Return the cells that both have, with the columns of both."""
    first, second = (frame[frame["contender"] == name] for name in (one, other))
    return first.merge(second, on=CELL, suffixes=("", "_other"))


def differ(cells: pd.DataFrame) -> tuple[float, float, float]:
    """Return how far the first is above the other on one task, in points, and its interval of 95 %.

    Test rows are the same in all draws: the draws of each are averaged.
    """
    gaps = cells["right"].to_numpy() - cells["right_other"].to_numpy() * 1.0
    rows = 100 * np.mean(np.stack(list(gaps)), axis=0)
    half = 1.96 * rows.std(ddof=1) / len(rows) ** 0.5
    return rows.mean(), rows.mean() - half, rows.mean() + half


def average(runs: pd.DataFrame) -> float:
    """Return the mean accuracy over tasks, of which some have more draws."""
    return float(runs.groupby("task")["accuracy"].mean().mean())


def tabulate(frame: pd.DataFrame, base: str) -> str:
    """Set each contender beside one of them, on the cells that both have."""
    lines = []
    for (model, size), own in frame.groupby(["model", "size"], observed=True):
        for name in order(own):
            mine = own[own["contender"] == name]
            cells = pair(own, name, base)
            line = [f"{model}, {size}", name, f"{len(mine)}", f"{average(mine):.1f}"]
            told = [""] * 3
            if len(cells) and name != base:
                tasks = [differ(each) for _, each in cells.groupby("task")]
                ahead = sum(low > 0 for _, low, _ in tasks), sum(high < 0 for *_, high in tasks)
                middle = spread([each[0] for each in tasks])
                times = (cells["seconds"] / cells["seconds_other"]).median()
                told = [middle, f"{ahead[0]} and {ahead[1]} of {len(tasks)}", say(times, 1)]
            figures = say(mine["seconds"].median(), 0), say(mine["nll"].mean(), 3)
            lines.append([*line, *told, *figures, say(mine["ece"].mean(), 3)])
    columns = ["model, rows", "contender", "runs", "accuracy", f"above {base}"]
    columns += ["tasks clearly ahead and behind", f"times the seconds of {base}"]
    return table([*columns, "seconds", "log loss", "calibration error"], lines)


def measure_gains(frame: pd.DataFrame) -> pd.Series:
    """Return how far `auto` is above the free head, in points, on each task of a model and size.

    Their mean and its interval are `GAIN` of `layerscout.tuning.limiting`.
    """
    cells = pair(frame, AUTO, FREE)
    gaps = cells["accuracy"] - cells["accuracy_other"]
    return gaps.groupby([cells[key] for key in CELL[:3]], observed=True).mean()


def say(value: float, digits: int) -> str:
    """Write a figure; nothing where there is none."""
    return "" if np.isnan(value) else f"{value:.{digits}f}"


def order(frame: pd.DataFrame) -> list[str]:
    """Name the contenders of some cells, the fastest first."""
    middle = frame.groupby("contender")["seconds"].median()
    return list(middle.sort_values(na_position="first").index)


def tabulate_limits(frame: pd.DataFrame) -> str:
    """Compare what is there after so many minutes, on tasks on which all that is shown has run.

    A longer limit has a line only where it changes a figure.
    """
    lines, last = list[list[str]](), dict[tuple[str, ...], tuple[str, ...]]()
    for (model, size), own in frame.groupby(["model", "size"], observed=True):
        peers = own[~own["contender"].isin([*OURS, *CHEAP])]
        for label, limit in LIMITS.items():
            within = own[own["seconds"] <= SAME_TIME * limit]
            ours = within[within["contender"].isin([FREE, AUTO, label])]
            # With a limit what the limit gave; without, the longest that fits.
            ours = ours.assign(asked=ours["contender"] == label)
            best = ours.sort_values(["asked", "seconds"]).groupby(CELL, observed=True).tail(1)
            best = best.assign(contender="ours")
            both = pd.concat([best, peers[peers["seconds"] <= SAME_TIME * limit]])
            for name in order(both[both["contender"] != "ours"]):
                cells = pair(both, "ours", name)
                if not len(cells):
                    continue
                tasks = [differ(each) for _, each in cells.groupby("task")]
                behind = sum(high < -MARGIN for *_, high in tasks)
                means = (f"{cells[key].mean():.1f}" for key in ("accuracy", "accuracy_other"))
                middle = spread([each[0] for each in tasks])
                told = f"{len(cells)}", *means, middle, f"{behind} of {len(tasks)}"
                if last.get((model, size, name)) != told:
                    lines.append([f"{model}, {size}", f"{limit // 60} min", name, *told])
                last[model, size, name] = told
    columns = ["model, rows", "limit", "peer", "cells", "ours", "peer's", "ours above it"]
    return table([*columns, f"tasks wholly below −{MARGIN:.0f}"], lines)


def compare_published(frame: pd.DataFrame) -> str:
    """Set means over the tasks of SetFit's paper beside the one reported there."""
    own = frame[(frame["model"] == MPNET) & (frame["size"] == SIZES[0])]
    told = []
    for name in (FREE, AUTO, SETFIT):
        mine = own[(own["contender"] == name) & own["task"].isin(PUBLISHED_TASKS)]
        by_correlation = mine["task"] == BY_CORRELATION
        values = mine["accuracy"].where(~by_correlation, mine["correlation"])
        means = values.groupby(mine["task"]).mean()
        if len(means) == len(PUBLISHED_TASKS):
            told.append(f"{name} {means.mean():.1f}")
    return textwrap.fill(
        f"SetFit's paper reports a mean of {PUBLISHED} for {MPNET} with 8 texts of each class, "
        "over six tasks, Matthews' correlation for the counterfactuals, draws of its own. On the "
        f"draws and the 500 test rows of this page, the same mean is: {', '.join(told)}.",
        100,
    )


def list_losses(frame: pd.DataFrame) -> str:
    """List the tasks on which a contender is clearly ahead of `auto`, and in what time."""
    lines = []
    for (model, size), own in frame.groupby(["model", "size"], observed=True):
        for name in order(own[own["contender"] != AUTO]):
            for task, cells in pair(own, AUTO, name).groupby("task"):
                middle, low, high = differ(cells)
                if high < -MARGIN:
                    times = (cells["seconds_other"] / cells["seconds"]).median()
                    gap = f"{-middle:.1f} ({-high:.1f} to {-low:.1f})"
                    lines.append([f"{model}, {size}, {task}", name, gap, say(times, 1)])
    columns = ["", "contender", "ahead of `auto` by, 95 %", "its seconds, times those of `auto`"]
    return table(columns, lines)


def draw(frame: pd.DataFrame, path: Path) -> None:
    """Draw accuracy by seconds: a panel for each model and size, over tasks that all have run."""
    values = []
    for (model, size), own in frame.groupby(["model", "size"], observed=True):
        wanted = own[own["contender"] == AUTO][["task", "draw"]]
        shared = own.merge(wanted, on=["task", "draw"])
        most = len(wanted)
        for name, mine in shared.groupby("contender"):
            if len(mine) == most:
                told = {"group": f"{model}, {size}", "contender": name}
                middle = {"seconds": mine["seconds"].mean(), "accuracy": mine["accuracy"].mean()}
                values.append(told | middle)
    names = list(dict.fromkeys(value["contender"] for value in values))
    legend = alt.Legend(orient="top", columns=6, labelLimit=240)
    points = alt.Chart(alt.Data(values=values)).mark_point(filled=True, size=80)
    chart = points.encode(
        x=alt.X("seconds:Q", scale=alt.Scale(type="log"), axis=alt.Axis(**AXIS)),
        y=alt.Y("accuracy:Q", scale=alt.Scale(zero=False), title="accuracy"),
        color=alt.Color("contender:N", scale=alt.Scale(domain=names), legend=legend, title=None),
        shape=alt.Shape("contender:N", scale=alt.Scale(domain=names), legend=legend, title=None),
    )
    faceted = chart.properties(width=260, height=170).facet(
        alt.Facet("group:N", title=None, sort=list(dict.fromkeys(v["group"] for v in values))),
        columns=3,
    )
    save_chart(faceted.resolve_scale(x="independent", y="independent"), path)


# What was measured before, with scripts and records that went since.
TRIED = """## What was tried before

- A second view of each text in a contrastive batch took twice the time, and was no better.
- Cross-entropy from a head that was solved on 48 rows comes to nothing in the upper blocks of
  mpnet-base: the head is fitted to the noise of these rows, and the blocks follow it.
- Plans that follow the best state of the free head were no better than the upper two thirds: few
  texts say too little.
- The free head was 4.4 points above a logistic regression on the top state (3.9 to 4.9; six tasks,
  two models, 8 to 128 texts of each class). Most of it is the choice of state: the same
  regression on that state was 3.8 points above.
- Contrasts in all blocks, (1, 6, 6), were 5.0 points behind `auto` with 32 texts of each class of
  five tasks. Which other blocks, and which loss: see [advice](advice.md).
- With 1,000 rows, four blocks and the head at the top, (3, 6, 6), were 1.0 points above `auto` on
  MiniLM (seven draws of five tasks; 1.3 times its seconds), and three, (4, 6, 6), 0.3 below. The
  like of mpnet-base, (6, 12, 12), was 2.0 and 2.6 below on trec6 and emotion6.
- With 8 texts of each class (MiniLM, seven tasks, three draws) three trainings were worth little
  more than one: 0.4 ± 0.4 points by their mean weights, 0.5 ± 0.6 by their mean probabilities."""

INTRODUCTION = """\
# The board

What is a model worth that takes so many seconds, made by layerscout or by something else? Every
contender makes a saved model from the same rows, in a process of its own with one thread, and says
what the same 500 test rows are. Below 1,000 rows these are so many of each class.

{answer}

Over all {cells} of these, a task from so many rows with a model, `auto` is {gain} points above the
free head.

![accuracy by seconds, a panel for each model and size]({picture})

`make board` adds what has no record yet, and writes this page from the {runs} records there are
(`bench/board/board.csv`, with memory, size and inference time). {timed} of them have no seconds:
they were made by parts of the same commands, on the same rows.

- Trainer and LoRA (peft; query and value, rank 8, rate 5e-4) train for 10 epochs, SetFit on 20
  pairs of each kind for a text, FastFit for 40 epochs of four views; a logistic regression reads
  the embeddings of sentence-transformers. All else is as each comes.
- Accuracy is in percent, differences in points. Draws of a task are averaged for each test row;
  "clearly" is by the 95 % interval over these rows, "±" the half width of the 95 % t-interval over
  tasks. Seconds are of the processor, from the start of the command to the saved model, imports
  (five seconds) included; of two contenders they are compared in cells that both have.

"""


def answer(frame: pd.DataFrame) -> str:
    """Say for each model and size how `auto` does beside what is free, and beside its peers."""
    lines = []
    for (model, size), own in frame.groupby(["model", "size"], observed=True):
        told = []
        for name in [FREE, *(one for one in order(own) if one not in (*OURS, WORDS))]:
            cells = pair(own, AUTO, name)
            if cells["task"].nunique() > 2:
                gaps = [differ(each)[0] for _, each in cells.groupby("task")]
                times = (cells["seconds_other"] / cells["seconds"]).median()
                taken = "" if np.isnan(times) else f" ({times:.1f} times its seconds)"
                told.append(f"{name} {spread(gaps)}{taken}")
        if told:
            mean = average(own[own["contender"] == AUTO])
            head = f"- **{model}, {size}**: `auto` reaches {mean:.1f}. It is ahead of"
            lines.append(textwrap.fill(f"{head} {'; '.join(told)}.", 100, subsequent_indent="  "))
    return "\n".join(lines)


def write(path: Path) -> None:
    """Write the page, its picture and the table of all records."""
    frame = read()
    shown = frame.drop(columns=["right", "compared"])
    shown.to_csv(HERE / "board.csv", index=False, float_format="%.6g")
    plans = frame["contender"].str.contains("(", regex=False)
    whole = frame[~plans]
    limited = whole["contender"].isin(LIMITS).any()
    draw(whole, path.with_suffix(".svg"))
    gains = measure_gains(whole)
    introduction = INTRODUCTION.format(
        answer=answer(whole),
        cells=len(gains),
        gain=spread(gains),
        picture=path.with_suffix(".svg").name,
        runs=len(frame),
        timed=frame["seconds"].isna().sum(),
    )
    limits = "## With a limit\n\nA longer limit has a line only where it changes a figure."
    parts = [
        "## `auto` beside each",
        tabulate(whole, AUTO),
        *([limits, tabulate_limits(whole)] if limited else []),
        "## Where another is clearly ahead",
        list_losses(whole),
        "## Beside a published mean",
        compare_published(whole),
        TRIED,
    ]
    path.write_text(introduction + "\n\n".join(parts) + "\n", "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--write", type=Path, required=True)
    write(parser.parse_args().write)


if __name__ == "__main__":
    main()
