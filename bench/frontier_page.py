"""Judge the records of bench/frontier.py: every peer beside what of ours takes no longer.

    python bench/frontier_page.py --write docs/measured/frontier.md

writes how often each peer is behind, a picture, and a table for each model, task and number of
training rows.
"""

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np

from frontier import MINILM, MPNET, TASKS, decode, read_records
from layerscout.pages.plotting import save_chart
from layerscout.plans import make_plan
from measuring import table

DRAWS = 2000

# Two runs of the same command differ by so much in the processor time that they take.
TOLERANCE = 1.1

OURS = "layerscout"
BLOCKS = {MINILM: 6, MPNET: 12}
AHEAD, LEVEL, BEHIND, NONE = "ahead", "level", "behind", "nothing of ours is as fast"


@dataclass(frozen=True)
class Point:
    """One model that was made: what it took, and what it is worth on the held-out rows.

    Attributes:
        seconds: of one processor core, from the file to the saved model.
        drawn: the metric on samples of the rows with replacement, the same for all points of a
            group, in points (DRAWS).
    """

    record: Mapping[str, Any]
    metric: float
    drawn: np.ndarray

    @property
    def name(self) -> str:
        return str(self.record["contender"])

    @property
    def ours(self) -> bool:
        return self.record["peer"] is None

    @property
    def seconds(self) -> float:
        return float(self.record["seconds"])


Group = tuple[str, str, int]


def measure_accuracy(weights: np.ndarray, predicted: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Weigh what is right (D, n): accuracy of each draw, in points."""
    return 100 * weights @ (predicted == truth) / weights.sum(1)


def measure_matthews(weights: np.ndarray, predicted: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Correlate two classes in each draw (D, n), in points; 0 where one side is constant."""
    p, t = predicted == 1, truth == 1
    counts = [weights @ both.astype(float) for both in (p & t, ~p & ~t, p & ~t, ~p & t)]
    tp, tn, fp, fn = counts
    below = np.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    return 100 * np.divide(tp * tn - fp * fn, below, out=np.zeros_like(tp), where=below > 0)


METRICS: Mapping[str, Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]] = {
    "accuracy": measure_accuracy,
    "matthews": measure_matthews,
}


@cache
def draw_weights(n: int) -> np.ndarray:
    """Count how often each row is drawn: once in the first line, then in samples (DRAWS + 1, n)."""
    samples = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), DRAWS)
    return np.vstack([np.ones(n), samples])


def gather(records: Sequence[Mapping[str, Any]]) -> dict[Group, list[Point]]:
    """Measure every record; groups share a model, a task and the number of training rows."""
    groups: dict[Group, list[Point]] = {}
    for record in records:
        truth, measure = decode(record["truth"]), METRICS[TASKS[record["task"]]]
        values = measure(draw_weights(len(truth)), decode(record["predictions"]), truth)
        key = (record["model"], record["task"], record["rows"])
        groups.setdefault(key, []).append(Point(record, float(values[0]), values[1:]))
    return {key: sorted(points, key=lambda one: one.seconds) for key, points in groups.items()}


@dataclass(frozen=True)
class Verdict:
    """A peer beside one of ours within its time; ahead and behind are as seen from ours."""

    group: Group
    peer: Point
    own: Point | None
    verdict: str


# Which of ours that take no longer stands for us.
CHOICES: Mapping[str, Callable[[Sequence[Point]], Point]] = {
    "best": lambda within: max(within, key=lambda one: one.metric),
    "longest": lambda within: max(within, key=lambda one: one.seconds),
}


def judge(groups: Mapping[Group, Sequence[Point]], choice: str) -> list[Verdict]:
    """Set every peer beside what of ours takes no longer."""
    verdicts = []
    for group, points in groups.items():
        for peer in points:
            if peer.ours:
                continue
            most = peer.seconds * TOLERANCE
            within = [one for one in points if one.ours and one.seconds <= most]
            if not within:
                verdicts.append(Verdict(group, peer, None, NONE))
                continue
            own = CHOICES[choice](within)
            low, high = np.percentile(own.drawn - peer.drawn, [2.5, 97.5])
            verdict = AHEAD if low > 0 else BEHIND if high < 0 else LEVEL
            verdicts.append(Verdict(group, peer, own, verdict))
    return verdicts


def name_peer(name: str) -> str:
    """Leave out how long a peer trained."""
    return name.split(",")[0]


def count_verdicts(verdicts: Sequence[Verdict]) -> str:
    """Tabulate how often each peer is behind what of ours takes no longer."""
    rows = []
    for name in dict.fromkeys(name_peer(one.peer.name) for one in verdicts):
        own = [one for one in verdicts if name_peer(one.peer.name) == name]
        judged = [one for one in own if one.own]
        gaps = [one.own.metric - one.peer.metric for one in judged if one.own]
        speeds = [one.peer.seconds / one.own.seconds for one in judged if one.own]
        counts = [str(sum(one.verdict == v for one in own)) for v in (AHEAD, LEVEL, BEHIND, NONE)]
        middle = [f"{np.median(gaps):+.1f}", f"{np.median(speeds):.1f}"] if gaps else ["–", "–"]
        rows.append([name, *counts, *middle])
    columns = ["in place of layerscout", AHEAD, LEVEL, BEHIND, NONE]
    return table([*columns, "median difference", "times as long, median"], rows)


def find_depth(point: Point) -> str:
    """Name what runs when a model predicts: two that run the same blocks are as fast."""
    if point.ours:
        return str(make_plan(point.record["plan"], BLOCKS[point.record["model"]]).head)
    whole = str(BLOCKS[point.record["model"]])
    return f"{whole} and adapters" if point.record["peer"] == "houlsby" else whole


def tabulate_group(points: Sequence[Point]) -> str:
    # What ran beside a prediction can only slow it down.
    fastest: dict[str, float] = {}
    for one in points:
        depth = find_depth(one)
        fastest[depth] = min(fastest.get(depth, math.inf), one.record["inference_ms"])
    rows = []
    for one in points:
        low, high = np.percentile(one.drawn, [2.5, 97.5])
        plan = one.record.get("plan")
        rows.append(
            [
                (f"**{one.name}**" + (f" {plan}" if plan else "")) if one.ours else one.name,
                f"{one.seconds:.0f}",
                f"{one.metric:.1f} ({low:.1f} to {high:.1f})",
                f"{one.record['peak_mb']:,}",
                f"{one.record['model_mb']:.0f}",
                f"{fastest[find_depth(one)]:.1f}",
            ]
        )
    columns = ["", "seconds", "metric", "peak MB", "model MB", "inference, ms a text"]
    return table(columns, rows)


def draw(groups: Mapping[Group, Sequence[Point]], path: Path) -> None:
    """Draw quality by time, a panel for each model, task and number of rows."""
    values = [
        {
            "group": name_group((model, task, rows)),
            "seconds": one.seconds,
            "metric": one.metric,
            "what": OURS if one.ours else name_peer(one.name),
        }
        for (model, task, rows), points in groups.items()
        for one in points
    ]
    names = [OURS, *dict.fromkeys(value["what"] for value in values if value["what"] != OURS)]
    legend = alt.Legend(labelLimit=300, orient="top", columns=6, columnPadding=24)
    scale = alt.Scale(domain=names)
    order = list(dict.fromkeys(value["group"] for value in values))
    chart = (
        alt.Chart(alt.Data(values=values))
        .mark_point(filled=True, size=55)
        .encode(
            x=alt.X(
                "seconds:Q",
                scale=alt.Scale(type="log"),
                axis=alt.Axis(tickCount=4, grid=False, title="seconds of one core"),
            ),
            y=alt.Y("metric:Q", scale=alt.Scale(zero=False), title=None),
            color=alt.Color("what:N", scale=scale, legend=legend, title="made by"),
            shape=alt.Shape("what:N", scale=scale, legend=legend, title="made by"),
        )
        .properties(width=230, height=130)
        .facet(alt.Facet("group:N", sort=order, title=None), columns=3)
        .resolve_scale(x="independent", y="independent")
    )
    save_chart(chart, path)


def list_losses(verdicts: Sequence[Verdict]) -> str:
    """Tabulate where a peer is ahead of the best of ours, or faster than all."""
    rows = [
        [
            name_group(one.group),
            f"{one.peer.name}: {one.peer.metric:.1f}, {one.peer.seconds:.0f} s",
            f"{one.own.name}: {one.own.metric:.1f}, {one.own.seconds:.0f} s" if one.own else "–",
        ]
        for one in verdicts
        if one.verdict in (BEHIND, NONE)
    ]
    return table(["", "peer", "best of layerscout within its time"], rows)


def name_group(group: Group) -> str:
    model, task, rows = group
    return f"{task}, {model}, {rows:,} rows"


INTRODUCTION = """\
# The frontier

Written by `python bench/frontier_page.py --write docs/measured/frontier.md` from the records of
`python bench/frontier.py`; `make frontier` runs both.

What would a user run instead, and is it better or faster? From the same CSV file, layerscout and
five alternatives each make a saved model: `Trainer` (all weights, 5e-5), LoRA (peft, on query and
value, rank 8, 5e-4), Houlsby adapters (the package adapters, 3e-4), SetFit (its defaults) and a
logistic regression on frozen sentence embeddings (scikit-learn). All have batches of 32 (SetFit:
16), at most 128 tokens, padding to the longest text of a batch, float32 and one thread. Seconds
are of one processor core, from the start of the command to the saved model: importing, loading,
choosing, caching, training, validation and saving included. layerscout sets 10 % of the rows
aside to choose an epoch, which the others do not. The metric is accuracy, or Matthews'
correlation for CoLA, in points, on up to 1,000 held-out texts that no command saw, with 95 %
intervals over these texts. Inference time is the shortest measured of all models of a table that
run the same blocks. The models are all-MiniLM-L6-v2 (6 blocks, 384 wide) and all-mpnet-base-v2
(12 blocks, 768 wide); emotions27 is the part of GoEmotions with one label that is not neutral.
There is one draw of training rows and one seed for each line, so differences of a few points
between two lines may be chance even where the intervals exclude it. The lines of a table may come
from several sessions on processors of the same type.

"""


CONCLUSION = """\
## What to make of it

- For the same time, plans of blocks are better than LoRA and adapters nearly everywhere: these need
  more steps than a few epochs of a small file have.
- Up to some 256 texts, a linear layer on the mean of the tokens (`--plan head:8 --classifier
  mean-linear`) is worth more than the family's own head, which starts from nothing and reads one
  token: it needs no more time than a logistic regression on embeddings, and reads a model that is a
  third shorter.
- Sentence encoders such as these two were trained for the mean of their last state, which is what
  SetFit and the logistic regression read. With 64 texts of SST-2, SetFit is better than all else,
  because it trains on pairs of texts, of which there are many more than texts; layerscout has no
  such loss. For CoLA, whose classes are not a matter of meaning, pairs do not help.
- The time of a short run is mostly that of starting: four to five seconds to import torch and
  transformers, for all alike."""


def write(groups: Mapping[Group, Sequence[Point]], path: Path) -> None:
    """Write the page, and its picture beside it."""
    picture = path.with_suffix(".svg")
    draw(groups, picture)
    best, longest = (judge(groups, choice) for choice in CHOICES)
    parts = [
        "## In place of each",
        "The best of ours that takes no longer (up to a tenth, by which repeated runs differ); "
        "it is picked on the rows on which it is then compared:",
        count_verdicts(best),
        "The one of ours that takes the longest within the time, picked without looking at "
        "results:",
        count_verdicts(longest),
        "“Ahead” and “behind” mean that the 95 % interval of the difference over the same texts "
        "excludes 0.",
        "Where even the best of ours within the time is behind, or nothing is as fast:",
        list_losses(best),
        CONCLUSION,
        f"![quality by time, a panel for each task, model and number of rows]({picture.name})",
        *(
            f"## {name_group(group)}\n\n{tabulate_group(points)}"
            for group, points in groups.items()
        ),
    ]
    path.write_text(INTRODUCTION + "\n\n".join(parts) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--write", type=Path, required=True)
    write(gather(read_records()), parser.parse_args().write)


if __name__ == "__main__":
    main()
