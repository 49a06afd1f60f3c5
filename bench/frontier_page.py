"""Judge the records of bench/frontier.py: every peer beside what of ours takes no longer.

    python bench/frontier_page.py --write docs/measured/frontier.md

writes how often each peer is behind, a picture, and a table for each model, task and number of
training rows.
"""

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np

from frontier import BLOCKS, PAIRS, RECORDS, SMOLLM2, TASKS, decode
from layerscout.data import evaluate, find_difference, find_interval
from layerscout.plans import make_plan
from layerscout.reporting import save_chart
from measuring import read_records
from writing import table

# Two runs of the same command differ by so much in the processor time that they take.
TOLERANCE = 1.1

OURS = "layerscout"
AHEAD, LEVEL, BEHIND, NONE = "ahead", "level", "behind", "nothing of ours is as fast"


@dataclass(frozen=True, eq=False)
class Point:
    """One model that was made: what it took, and what it is worth on the held-out rows.

    Attributes:
        labels: of these rows (n,).
        logits: a one for the predicted class (n, K).
    """

    record: Mapping[str, Any]
    labels: np.ndarray
    logits: np.ndarray

    @property
    def name(self) -> str:
        return str(self.record["contender"])

    @property
    def ours(self) -> bool:
        return self.record["peer"] is None

    @property
    def seconds(self) -> float:
        """Of one processor core, from the file to the saved model."""
        return float(self.record["seconds"])

    @property
    def scale(self) -> str:
        """The metric."""
        return TASKS[self.record["task"]]

    @property
    def metric(self) -> float:
        """In points."""
        return 100 * evaluate(self.scale, self.labels, self.logits)

    @property
    def interval(self) -> tuple[float, float]:
        """Of 95 %, in points."""
        low, high = find_interval(self.scale, self.labels, self.logits)
        return 100 * low, 100 * high

    def compare(self, other: "Point") -> str:
        """Say whether this one is ahead of another on the same rows, by the 95 % interval."""
        _, interval = find_difference(self.scale, self.labels, (other.logits, self.logits))
        low, high = interval or (0.0, 0.0)
        return AHEAD if low > 0 else BEHIND if high < 0 else LEVEL


Group = tuple[str, str, int]


def gather(records: Sequence[Mapping[str, Any]]) -> dict[Group, list[Point]]:
    """Read every record; groups share a model, a task and the number of training rows."""
    groups: dict[Group, list[Point]] = {}
    for record in records:
        labels, predicted = decode(record["truth"]), decode(record["predictions"])
        one_hot = np.eye(1 + max(labels.max(), predicted.max()))[predicted]
        key = (record["model"], record["task"], record["rows"])
        groups.setdefault(key, []).append(Point(record, labels.astype(np.int64), one_hot))
    # MiniLM first, the larger files last, whatever was run first.
    return {key: sorted(groups[key], key=lambda one: one.seconds) for key in sorted(groups)}


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
            verdicts.append(Verdict(group, peer, own, own.compare(peer)))
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
        head = make_plan(point.record["plan"], BLOCKS[point.record["model"]]).head
        return f"{head} and a mean" if point.record.get("averages") else str(head)
    whole, peer = str(BLOCKS[point.record["model"]]), point.record["peer"]
    if peer == "houlsby":
        return f"{whole} and adapters"
    # It embeds the texts of a pair apart, and the decoder's chat template with every text.
    apart = point.record["task"] in PAIRS or point.record["model"] == SMOLLM2
    return f"{whole} and embeddings" if peer == "regression" and apart else whole


def tabulate_group(points: Sequence[Point]) -> str:
    # What ran beside a prediction can only slow it down; under a load there is nothing to tell.
    fastest: dict[str, float] = {}
    for one in points:
        if "load" not in one.record:
            depth = find_depth(one)
            fastest[depth] = min(fastest.get(depth, math.inf), one.record["inference_ms"])
    rows = []
    for one in points:
        low, high = one.interval
        plan = one.record.get("plan")
        rows.append(
            [
                (f"**{one.name}**" + (f" {plan}" if plan else "")) if one.ours else one.name,
                f"{one.seconds:.0f}",
                f"{one.metric:.1f} ({low:.1f} to {high:.1f})",
                f"{one.record['peak_mb']:,}",
                f"{one.record['model_mb']:.0f}",
                f"{fastest[find_depth(one)]:.1f}" if find_depth(one) in fastest else "–",
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

How good is the model that a user has after so many seconds, with layerscout or with something
else? From the same CSV file, layerscout and five alternatives each make a saved model:

- `Trainer`: all weights, learning rate 5e-5.
- LoRA (peft): query and value, rank 8, 5e-4.
- Houlsby adapters (the package adapters): 3e-4. Up to 256 rows, not for the decoder.
- SetFit: `num_iterations` is 20 for 64 texts and 5 for 256, batches of 16, otherwise its defaults.
  Not for the decoder, for pairs of texts, or for more rows, which would take hours.
- A logistic regression (scikit-learn) on the embeddings of the frozen model, as the package
  sentence-transformers makes them. For the decoder it puts each text into the chat template, which
  adds 26 tokens (about three times the work), and takes the last token.

All but SetFit have batches of 32; all have at most 128 tokens, padding to the longest text of a
batch, float32 and one thread. `Trainer`, LoRA and adapters train for 10 epochs on up to 256 rows
and for 3 on more, in some groups also for longer. layerscout trains for as long as it does by
default, and sets 10 % of the rows aside to choose an epoch, which the others do not. The free head
(`--plan head:best`) and the heads on the mean are solved from all rows; heads that are called
trained are from before that, and those of the decoder. (Its usual
number of steps was set on SST-2 and emotions with MiniLM, 256 and 1,000 rows, which are also among
the groups here.)

Seconds are of one processor core, from the start of the command to the saved model: importing,
loading, choosing, caching, training, validation and saving included. The metric is accuracy, or
Matthews' correlation for CoLA, in points, on up to 1,000 held-out texts that no command saw, with
95 % intervals over these texts. Inference time is the shortest measured of all models of a table
that run the same blocks in the same way, with nothing beside them. The size of a trained head on
the mean, and of every head on the mean of mpnet-base, is that of the base as it was downloaded
(MiniLM in half precision) and of the head; layerscout saves the decoder in half precision, as its
file is, and the others in float32, in which they are made to load it.

The models are all-MiniLM-L6-v2 (6 blocks, 384 wide), all-mpnet-base-v2 (12 blocks, 768 wide) and
the decoder SmolLM2-135M-Instruct (30 blocks, 576 wide), rebuilt from 4-bit weights, in whose blocks
layerscout tunes LoRA's matrices (rank 8, on all linear layers, 8.9e-4); most of its runs were made
two at a time, each on a core of its own. emotions27 is the part of GoEmotions with one label that
is not neutral, less a few rows of classes that were drawn once.

**Each line is one run**, of one draw of training rows with one seed. Intervals are over test texts
alone, so differences of a few points between two lines may be chance even where the intervals
exclude it.

"""


CONCLUSION = """\
## What to make of it

- Within the time of LoRA or adapters there is nearly always something of layerscout that is as good
  or better: a few epochs of a small file are too few steps for them. With 256 texts and mpnet-base
  they are better by two points, and so is all of the model, tuned for the same epochs.
- With up to 256 texts the free head (`--plan head:best`) is as good as a logistic regression on
  embeddings with MiniLM on SST-2 (64 texts), CoLA and MRPC, four points better on SST-2 with 256
  and eight on the emotions; with mpnet-base it reaches 84.1 and 88.5 on SST-2, and the regression
  75.5 and 85.2. Trained, a head on the mean of state 8 reached 67.8 with 64 texts; solved, it
  reaches 82.1. The free head's seconds were measured beside other work, and those of the regression
  mostly not, which is why nothing of ours counts as fast as it in three cases.
- With 1,000 texts and more, heads on the mean are those that were trained. They took less time than
  a regression on embeddings, and their models run a third fewer blocks.
- The top third of the blocks with a head on the mean of the last state was better than `auto` with
  half the budget in 5 of 13 cases, with mpnet-base on SST-2 by seven points; in 8 it was worse, on
  CoLA with mpnet-base by fifteen.
- Sentence encoders such as MiniLM and mpnet-base were trained for the mean of their last state,
  which is what SetFit and the logistic regression read. With these two and 64 texts of SST-2,
  SetFit is better than all else, because it trains on pairs of texts, of which there are many more
  than texts; layerscout has no such loss. For CoLA, whose classes are not a matter of meaning,
  pairs do not help.
- With the decoder and 1,000 texts, `auto` with LoRA and a quarter of the budget was level with LoRA
  on all blocks for as many epochs, in 34 and 39 % of its time, and its model runs a third fewer
  blocks. It was ahead of LoRA for 3 epochs, and level with or ahead of `Trainer`. layerscout also
  adapts other modules than peft does, at a higher rate; [a decoder](decoders.md) compares the
  blocks alone. With 64 texts, of all runs that tune blocks only one (`auto`, B = 0.25) was as good
  as a head on the mean of state 20, which takes 17 s; with 1,000 that head was behind `auto` with
  any budget, and on CoLA behind the logistic regression too."""


def describe_machines(records: Sequence[Mapping[str, Any]]) -> str:
    """Say where runs were made, and how free the core was."""
    known = [one for one in records if "machine" in one]
    lines = [
        f"{one.removesuffix('.')}: {sum(record['machine'] == one for record in known)} runs."
        for one in dict.fromkeys(record["machine"] for record in known)
    ]
    rates: dict[str, list[float]] = {}
    for one in known:
        rates.setdefault(one["model"], []).extend(one["core_gflops"])
    if rates:
        ranges = (f"{min(of):.0f} to {max(of):.0f} for {model}" for model, of in rates.items())
        lines.append(
            "Before and after each of these a matrix product reached, in GFLOP/s, "
            f"{', '.join(ranges)}."
        )
    if busy := [record["load"] for record in records if "load" in record]:
        lines.append(
            f"{len(busy)} of them, of solved heads, were made later than all others, beside other "
            f"work (a load of {min(busy):.0f} to {max(busy):.0f} on two cores), so that their "
            "seconds, of the processor, are rather too long."
        )
    if len(known) < len(records):
        lines.append(
            f"{len(records) - len(known)} runs were made before the machine was recorded, on "
            "processors of the same type, some of them beside other work."
        )
    return " ".join(lines)


def write(records: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write the page, and its picture beside it."""
    groups = gather(records)
    picture = path.with_suffix(".svg")
    draw(groups, picture)
    best, longest = (judge(groups, choice) for choice in CHOICES)
    parts = [
        describe_machines(records),
        "## In place of each",
        "Each run of a peer beside the run of ours that takes the longest within its time (up to a "
        "tenth more, by which repeated runs differ), chosen without looking at results:",
        count_verdicts(longest),
        "The same beside the best of ours within its time, chosen on the rows on which it is then "
        "compared, so rather too good:",
        count_verdicts(best),
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
    write(read_records(RECORDS), parser.parse_args().write)


if __name__ == "__main__":
    main()
