"""Measure tasks with a label for every word, or several labels for a text, beside ordinary ones.

    python bench/words.py --shared ../shared --runs RUNS --write docs/measured/words.md

What was tuned and scanned is read from `bench/words/trials`, records of `layerscout study`. The
trainings on whole training splits and the times go into RUNS and are read from there if they were
made before. Times are ratios of two things done in turns in this one run: run that part alone on
the machine.
"""

import json
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import altair as alt
import numpy as np
import torch
from transformers import AutoModelForTokenClassification, Trainer, TrainingArguments

import layerscout as ls
from layerscout.data import Tags, Targets, make_targets, shuffle_batches
from layerscout.data.words import count_spans
from layerscout.models import Encoder, make_classifier
from layerscout.plans import Settings, make_plan
from layerscout.reporting import save_chart
from layerscout.scanning import name_head
from layerscout.scores import DEFAULT, SCORES, Score
from layerscout.states import Examples, clear_cache
from layerscout.tuning.training import train
from measuring import Section, given, in_turns, measure_peak, options, ratio, table, write_page

INTRODUCTION = """# Words and several labels

`python bench/words.py --runs RUNS --base MODEL --write docs/measured/words.md`

Tasks with a label for every word (WNUT 17, entities) and with several labels for a text
(GoEmotions, 28 of them) beside two ordinary ones (SST-2, RTE), on a small and a base model.

**In short.**

- **Entities: the advice holds.** On both models the plan that the scan leads to is as good as full
  fine-tuning for little more than a third of its training FLOPs: 0.3 points below on MiniLM
  (-2.4 to 2.6), 0.1 below on mpnet (-2.4 to 2.4). No plan within half of the FLOPs is better, the
  top two blocks of mpnet are 11 points worse, and heads alone lose 9 points or more. The default
  score orders plans of equal width rightly in 83 to 90 % of pairs.
- **28 labels, few texts: it does not.** On GoEmotions full fine-tuning is 4 points better on
  MiniLM and 19 on mpnet (500 texts, 3 epochs), and some plans of the same cost are better too. On
  mpnet most of that is the head: the family's reads the first token, which holds little of the
  text in the middle of this model. With a linear head on the mean of the tokens, which is what a
  scan judges, the advised plan gains 16 points and comes within 3 of full fine-tuning and of the
  best plan of its cost; but transformers has no class for such a head (`--classifier mean-linear`
  saves a folder for sentence-transformers instead).
- **Words peak lower than sentences** on the base model: by the default score at state 4 of 12, the
  sentences of SST-2 at 9, pairs of RTE at 7 and emotions at 6. On the small one all peak at 3 of 6.
- **Heads of words and of several labels need their own learning rate.** Tuned in full with the head
  at the rate of the blocks, mpnet found no entity at all; with the default rate of heads it reaches
  58.3 F1. Its top states differ little between the words of a sentence, so a slow head learns to
  call everything `O`.
- **Against the literature.** On test splits, after full fine-tuning on whole training splits:
  mpnet reaches 0.531 entity F1 on WNUT 17, where base encoders are known to reach 0.45 to 0.55
  (validation is easier, 0.658), and MiniLM 0.581 micro-F1 on GoEmotions, where 0.5 to 0.6 is
  known, from 12,000 of its 43,410 training texts.
- **Mean or first token of a word** makes no difference that these plans could settle. The mean
  stays the default.
- **A scan of words is slower than we want**: 1.21 forward passes of all sentences for 2,000 words
  with the default scores, 1.26 for two sums over all 11,614 words and 1.74 for the default scores
  over all of them, where 1.15 is the aim. It was 3.65 for the last before heads were fitted to the
  sums of folds, and 1.50 for the sums while words without an entity entered two matrix products.
  Symmetric products and shorter chunks gained nothing more. A plan is as fast as it should be, and
  memory is flat.
- What is known is from two models of one kind (sentence encoders), one task each and few examples;
  the intervals are over validation examples and hold for these two seeds."""
TRIALS = Path(__file__).parent / "words" / "trials"
TASKS = ("sst2", "rte", "go_emotions", "wnut17")
BUDGET = 0.5  # the default of `auto`
SEEDS = 2
DRAWS = 2000
SENTENCES, EPOCHS, BATCH = 600, 3, 16
SIZES = (1000, 8000)  # sentences of the scans whose memory is measured
PLAN = "(4, 5, 5)"
SUMS = ("variability_ratio", "nc1")  # scores that need no more than sums


Record = Mapping[str, Any]


def read_records(folder: Path) -> list[Record]:
    """Read the records of the study."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


# --- Curves --------------------------------------------------------------------------------------


def average_curves(records: Sequence[Record]) -> dict[tuple[str, str, str], np.ndarray]:
    """Return every score of states by model, task and key, averaged over seeds, (L + 1,)."""
    found: dict[tuple[str, str, str], list[list[float]]] = {}
    for record in records:
        if record["verb"] != "scan" or record["arguments"].get("pooling", "mean") != "mean":
            continue
        for key, score in record["result"]["scores"].items():
            values = [np.nan if v is None else v for v in score["values"]]
            found.setdefault((record["models"][0], record["task"], key), []).append(values)
    return {name: np.mean(curves, axis=0) for name, curves in found.items()}


def draw_curves(curves: Mapping[tuple[str, str, str], np.ndarray], path: Path) -> Section:
    """Draw every score by its state, and list its best one."""
    models = sorted({model for model, _, _ in curves})
    keys = [key for key in SCORES if any(key == found for _, _, found in curves)]
    values = []
    for (model, task, key), curve in curves.items():
        turned = curve[1:] if SCORES[key].better == "higher" else -curve[1:]
        known = turned[np.isfinite(turned)]
        if not len(known) or known.min() == known.max():
            continue
        low, high = known.min(), known.max()
        where = {"model": _shorten(model), "task": task, "score": key}
        values += [
            {**where, "state": state, "value": float((value - low) / (high - low))}
            for state, value in enumerate(turned, start=1)
            if np.isfinite(value)
        ]
    chart = (
        alt.Chart(alt.Data(values=values))
        .mark_line(point={"size": 12})
        .encode(
            x=alt.X("state:Q", axis=alt.Axis(tickMinStep=1), title="state"),
            y=alt.Y("value:Q", title=None, axis=alt.Axis(values=[0, 1])),
            color=alt.Color("task:N", sort=list(TASKS), title=None),
            strokeDash=alt.StrokeDash("task:N", sort=list(TASKS), legend=None),
        )
        .properties(width=280, height=80)
        .facet(
            row=alt.Row("score:N", sort=keys, title=None),
            column=alt.Column("model:N", title=None),
        )
        .resolve_scale(x="independent")
    )
    save_chart(chart, path)
    rows = [
        [
            f"`{key}`",
            *(
                _name_best(curves.get((model, task, key)), key)
                for model in models
                for task in TASKS
            ),
        ]
        for key in keys
    ]
    heading = ["score", *(f"{task}, {_shorten(model)}" for model in models for task in TASKS)]
    text = (
        "Every score by state, from its worst (0) to its best (1) for each task; means over two "
        "seeds. `head_quality` of words is the macro-F1 over tags of single words, drawn in "
        "balance; that of several labels the micro-F1.\n\n"
        f"![scores by state]({path.name})\n\nThe best state by every score:\n\n"
        + table(heading, rows)
    )
    return Section("Where the scores are best", text)


def _shorten(model: str) -> str:
    return model.rsplit("/", 1)[-1]


def _name_best(curve: np.ndarray | None, key: str) -> str:
    if curve is None or np.isnan(curve[1:]).all():
        return "–"
    best = np.nanargmax if SCORES[key].better == "higher" else np.nanargmin
    return str(int(best(curve[1:])) + 1)


# --- Tuned plans ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Tried:
    """A plan that was tuned.

    Attributes:
        notation: of the plan.
        head: the state that its head reads.
        tuned: how many blocks.
        share: of the FLOPs of full fine-tuning.
        counts: by seed, of every validation example or sentence what is right, predicted and true,
            (seeds, n, 3), which make a micro-F1.
    """

    notation: str
    head: int
    tuned: int
    share: float
    counts: np.ndarray

    def value(self, rows: np.ndarray | slice = slice(None)) -> float:
        """Return the metric in points: the mean over seeds."""
        sums = self.counts[:, rows].sum(axis=1)
        return 100 * float((2 * sums[:, 0] / np.maximum(1, sums[:, 1:].sum(axis=1))).mean())


@dataclass(frozen=True)
class Grid:
    """Plans of one model that were tuned on one task, with heads of one kind.

    Attributes:
        model: its hub id.
        task: its name.
        head: "family", "mean-linear", or "slow": the family's at the rate of the blocks.
    """

    model: str
    task: str
    head: str

    @classmethod
    def of(cls, record: Record) -> "Grid":
        """Name the grid of a record."""
        arguments = record["arguments"]
        slow = "slow" if "head_learning_rate" in arguments else "family"
        return cls(record["models"][0], record["task"], arguments.get("classifier", slow))


def group_records(records: Sequence[Record], verb: str) -> dict[Grid, list[Record]]:
    """Return the records of a verb by grid; scans have the family's head."""
    found: dict[Grid, list[Record]] = {}
    for record in records:
        if record["verb"] == verb:
            found.setdefault(Grid.of(record), []).append(record)
    return found


def collect_plans(
    records: Sequence[Record], names: Mapping[str, Sequence[str]]
) -> dict[Grid, list[Tried]]:
    """Return the plans that were tuned with both seeds."""
    plans = {}
    for grid, some in group_records(records, "tune").items():
        by_plan: dict[str, list[Record]] = {}
        for record in some:
            by_plan.setdefault(record["result"]["plan"]["notation"], []).append(record)
        whole = [each for each in by_plan.values() if len(each) == SEEDS]
        plans[grid] = [_make_tried(each, names[grid.task]) for each in whole]
    return plans


def _make_tried(records: Sequence[Record], names: Sequence[str]) -> Tried:
    result = records[0]["result"]
    plan, flops = result["plan"], result["flops"]
    counts = [count_micro(one["result"], names) for one in records]
    share = flops["train"] / flops["full_train"]
    return Tried(plan["notation"], plan["head"], len(plan["tuned"]), share, np.stack(counts))


def count_micro(result: Mapping[str, Any], names: Sequence[str]) -> np.ndarray:
    """Count what is right, predicted and true of every example, or spans of every sentence."""
    labels, predicted = result["labels"], result["predictions"]
    if result["metric"] == "entity_f1":
        sentences = np.repeat(np.arange(len(labels)), [len(tags) for tags in labels])
        tags = Tags(tuple(names), sentences)
        flat = [np.array([tag for row in side for tag in row]) for side in (labels, predicted)]
        counts: np.ndarray = count_spans(tags, *flat, sentences).sum(axis=1)
        return counts
    pairs = zip(labels, predicted, strict=True)
    return np.array([[len({*a} & {*b}), len(b), len(a)] for a, b in pairs], dtype=np.float64)


def compare_plans(
    grid: Grid, plans: Sequence[Tried], scans: Sequence[Record], tunings: Sequence[Record]
) -> Section:
    """Compare the plan that a scan leads to with every other one, in points of the metric."""
    blocks = max(plan.head for plan in plans)
    named = [
        name_head(DEFAULT, Score.from_dict(scan["result"]["scores"][DEFAULT]), blocks).state
        for scan in scans
    ]
    advised = [_follow(plans, state) for state in named]
    rng, n = np.random.default_rng(0), plans[0].counts.shape[1]
    draws = [rng.integers(n, size=n) for _ in range(DRAWS)]
    own = [np.mean([one.value(rows) for one in advised]) for rows in draws]
    ours = float(np.mean([one.value() for one in advised]))
    rows = []
    for plan in sorted(plans, key=lambda plan: (plan.head, plan.tuned)):
        apart = [plan.value(at) - mine for at, mine in zip(draws, own, strict=True)]
        low, high = np.percentile(apart, [2.5, 97.5])
        marked = f"**{plan.notation}**" if plan in advised else plan.notation
        rows.append(
            [
                marked,
                f"{plan.share:.0%}",
                f"{plan.value():.1f}",
                f"{plan.value() - ours:+.1f} ({low:+.1f} to {high:+.1f})",
            ]
        )
    fitting = [plan for plan in plans if plan.share <= BUDGET]
    best = max(fitting, key=lambda plan: plan.value())
    tuned = tunings[0]
    longest = max(record["arguments"]["epochs"] for record in tunings)
    rates = sorted({record["arguments"]["learning_rate"] for record in tunings})
    examples = "sentences" if tuned["result"]["metric"] == "entity_f1" else "texts"
    thresholds = ", thresholds tuned" if "threshold" in tuned["arguments"] else ""
    text = (
        f"The scan names state {' and '.join(map(str, dict.fromkeys(named)))} of {blocks}; within "
        f"{BUDGET:.0%} of full fine-tuning that leads to the plan in bold. The best one within it "
        f"is {best.notation}. {tuned['result']['examples']:,} training {examples}, "
        f"{tuned['result']['validation_examples']:,} to validate on, two seeds, {longest} epochs, "
        f"the model at the end{thresholds}; rates {', '.join(f'{rate:g}' for rate in rates)} (all "
        "blocks, some, none). 95 % intervals over validation examples, both seeds together.\n\n"
        + table(["plan", "training FLOPs", "micro-F1", "less the advised one"], rows)
    )
    heads = {"family": "", "mean-linear": ", with a linear head on the mean of the tokens"}
    return Section(f"{grid.task}, {_shorten(grid.model)}{heads[grid.head]}", text)


def _follow(plans: Sequence[Tried], state: int) -> Tried:
    fitting = [plan for plan in plans if plan.share <= BUDGET]
    return min(fitting, key=lambda plan: (abs(plan.head - state), -plan.tuned))


def compare_rates(
    plans: Mapping[Grid, Sequence[Tried]], tunings: Mapping[Grid, Sequence[Record]]
) -> Section:
    """Compare heads that learn at the rate of the blocks with those that learn faster."""
    rng, rows = np.random.default_rng(0), []
    for grid in (grid for grid in plans if grid.head == "slow"):
        fast = {plan.notation: plan for plan in plans.get(replace(grid, head="family"), ())}
        [theirs] = plans[grid]
        ours, n = fast[theirs.notation], theirs.counts.shape[1]
        draws = [rng.integers(n, size=n) for _ in range(DRAWS)]
        gains = [ours.value(draw) - theirs.value(draw) for draw in draws]
        low, high = np.percentile(gains, [2.5, 97.5])
        gain = f"{ours.value() - theirs.value():+.1f} ({low:+.1f} to {high:+.1f})"
        rate = f"{tunings[grid][0]['arguments']['head_learning_rate']:g}"
        row = [grid.task, _shorten(grid.model), rate]
        row += [f"{theirs.value():.1f}", f"{ours.value():.1f}"]
        rows.append([*row, gain])
    text = (
        "Full fine-tuning as above. The head learns at the rate of the blocks, or at the default "
        "of its own, 3e-3 × 1024 / width. Micro-F1 in points, mean over two seeds; 95 % intervals "
        "over validation examples.\n\n"
        + table(["task", "model", "rate of the blocks", "head at it", "faster", "gain"], rows)
    )
    return Section("A faster head", text)


def compare_poolings(
    plans: Mapping[Grid, Sequence[Tried]], scans: Mapping[Grid, Sequence[Record]]
) -> Section:
    """Compare how the mean of a word's tokens and its first one order plans of equal width."""
    rows = []
    for grid, tried in plans.items():
        found = scans[replace(grid, head="family")]
        poolings = {scan["arguments"].get("pooling") for scan in found}
        if grid.head != "family" or not {"mean", "first"} <= poolings:
            continue
        pairs = [
            (a, b)
            for a, b in combinations(tried, 2)
            if a.tuned == b.tuned and a.tuned and a.value() != b.value()
        ]
        for key in found[0]["result"]["scores"]:
            cells = []
            for pooling in ("mean", "first"):
                right = [
                    _orders(r["result"]["scores"][key], a, b)
                    for r in found
                    if r["arguments"].get("pooling") == pooling
                    for a, b in pairs
                ]
                known = [one for one in right if one is not None]
                cells.append(f"{100 * np.mean(known):.0f}" if known else "–")
            rows.append([f"`{key}`", _shorten(grid.model), *cells])
    text = (
        "Percent of pairs of plans of equal width that a score at their heads orders as their "
        "tuned quality does; 50 is chance.\n\n"
        + table(["score", "model", "`mean` of a word's tokens", "`first` token"], rows)
    )
    return Section("Which pooling of a word orders plans best", text)


def _orders(score: Mapping[str, Any], one: Tried, other: Tried) -> bool | None:
    values = [score["values"][plan.head] for plan in (one, other)]
    if None in values or values[0] == values[1]:
        return None
    better = (values[0] > values[1]) == (score["better"] == "higher")
    return better == (one.value() > other.value())


# --- Whole training splits -----------------------------------------------------------------------


def tune_whole(shared: Path, runs: Path, works: Sequence[tuple[str, str, Any]]) -> Section:
    """Tune in full on as many examples as published figures have, and judge on validation."""
    rows = []
    for model, name, more in works:
        folder = runs / f"whole-{_shorten(model)}-{name}"
        if not (folder / "result.json").is_file():
            task = ls.Task.load(shared / "data" / name)
            ls.tune(model, task, "full", batch_size=BATCH, progress=False, **more).save(folder)
        content = json.loads((folder / "result.json").read_text())
        metric, test = content["metric"], content["test"]
        low, high = test["interval"]
        found = f"{test['metrics'][metric]:.3f} ({low:.3f} to {high:.3f})"
        rows.append(
            [
                name,
                _shorten(model),
                f"{content['settings']['examples']:,}",
                f"{content['settings']['epochs']}",
                metric.replace("_", " "),
                f"{content['metrics'][metric]:.3f}",
                found,
                *(f"{test['metrics'][key]:.3f}" if key in test["metrics"] else "–" for key in MORE),
            ]
        )
    columns = ["task", "model", "examples", "epochs", "metric", "validation", "test"]
    text = (
        "Full fine-tuning on whole training splits at the default rates; the best epoch by "
        "validation, then judged on the test split, with 95 % intervals.\n\n"
        + table([*columns, *(f"test {key.replace('_', ' ')}" for key in MORE)], rows)
    )
    return Section("As others tune", text)


MORE = ("entity_precision", "entity_recall", "macro_f1", "lrap")  # of the test split


# --- Times ---------------------------------------------------------------------------------------


def against_forward(encoder: Encoder, task: ls.Task, repeats: int) -> Section:
    """Compare a scan of words with the forward pass of the model on the same batches."""
    split = task.train.take(np.arange(SENTENCES))
    words = ls.Task(**{**vars(task), "train": split})
    tokens = encoder.tokenize_split(split)
    batches = [encoder.batch(tokens, rows) for rows in encoder.batches(tokens)]

    def forward() -> None:
        with torch.inference_mode():
            for inputs in batches:
                encoder.model(**inputs)

    rows = []
    for name, more in (
        ("sums of all words", {"scores": SUMS, "examples": "all"}),
        ("2,000 words, the default scores", {"examples": 2000}),
        ("all words, the default scores", {"examples": "all"}),
    ):

        def scan(more: Mapping[str, Any] = more) -> None:
            ls.scan(encoder, words, cache_limit=0, progress=False, **more)

        seconds = in_turns(repeats, {"forward": forward, "scan": scan})
        rows.append([name, ratio(seconds["scan"], seconds["forward"])])
    text = (
        f"{SENTENCES} sentences of {task.name}, {len(split.labels):,} words, "
        f"{tokens.lengths.mean():.0f} tokens a sentence, {repeats} repeats. Wanted: at most 1.15."
        "\n\n" + table(["read", "scan / forward pass of all sentences"], rows)
    )
    return Section("A scan of words against a bare pass", text)


class SameBatches(Trainer):
    """A Trainer that takes our batches, so that both sides pad alike."""

    def get_train_dataloader(self) -> Any:
        """Return our batches, in a new order every epoch."""
        lengths = self.data_collator.examples.lengths
        return torch.utils.data.DataLoader(
            self.train_dataset, batch_sampler=Batches(lengths), collate_fn=self.data_collator
        )


class Batches:
    """Our batches, in a new order every epoch."""

    def __init__(self, lengths: np.ndarray) -> None:
        self.lengths, self.order = lengths, np.random.default_rng(0)

    def __len__(self) -> int:
        return -(-len(self.lengths) // BATCH)

    def __iter__(self) -> Iterator[list[int]]:
        return iter([b.tolist() for b in shuffle_batches(self.lengths, BATCH, self.order)])


class Padding:
    """Lays out the batches of the Trainer as ours are."""

    def __init__(self, encoder: Encoder, examples: Examples) -> None:
        self.encoder, self.examples = encoder, examples

    def __call__(self, rows: Sequence[int]) -> dict[str, torch.Tensor]:
        at = np.array(rows)
        inputs = self.encoder.batch(self.examples.tokens, at)
        labels = torch.full(inputs["input_ids"].shape, -100)
        texts, places, _ = self.examples.tokens.find_firsts(at)
        labels[torch.from_numpy(texts), torch.from_numpy(places)] = self.examples.labels_of(at)
        return {**inputs, "labels": labels}


def against_trainer(encoder: Encoder, task: ls.Task, runs: Path, repeats: int) -> Section:
    """Compare tuning two blocks and the head with transformers' Trainer tuning everything."""
    split = task.train.take(np.arange(SENTENCES))
    tokens, answers = encoder.tokenize_split(split), make_targets(split, task.kind, task.labels)
    plan = make_plan(PLAN, encoder.blocks)

    def ours() -> None:
        clear_cache()
        model = make_classifier(encoder, plan, task.labels, kind=task.kind)
        examples = Examples.prepare(encoder, plan, tokens, answers)
        few = Examples(tokens.select(np.arange(8)), Targets.of(answers.labels[:8]), None)
        settings = Settings(epochs=EPOCHS, batch_size=BATCH, metric="accuracy")
        train(encoder, model, examples, few, learning_rate=1e-4, seed=0, settings=settings)

    def theirs() -> None:
        model = AutoModelForTokenClassification.from_pretrained(
            encoder.source, num_labels=len(task.labels)
        )
        arguments = TrainingArguments(
            output_dir=str(runs / "trainer"),
            num_train_epochs=EPOCHS,
            per_device_train_batch_size=BATCH,
            learning_rate=1e-4,
            warmup_steps=0.06,
            weight_decay=0.0,
            max_grad_norm=0.0,
            report_to="none",
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            remove_unused_columns=False,
            use_cpu=True,
        )
        collate = Padding(encoder, Examples(tokens, answers, None))
        SameBatches(
            model, arguments, data_collator=collate, train_dataset=range(len(tokens))
        ).train()

    seconds = in_turns(repeats, {"all": theirs, "ours": ours})
    L, tuned, cut = encoder.blocks, len(plan.tuned), plan.cut or 0
    limit = 3 * L * EPOCHS / (cut + 3 * tuned * EPOCHS)
    faster = [a / b for a, b in zip(seconds["all"], seconds["ours"], strict=True)]
    text = (
        f"Plan {PLAN} against the Trainer on all {L} blocks with the library's own head for words: "
        f"{SENTENCES} sentences of {task.name}, {EPOCHS} epochs, batches of {BATCH}, {repeats} "
        "repeats; from the first trunk block to the last step. The limit counts passes through "
        "blocks. Wanted: 0.95 of it.\n\n"
        + table(
            ["Trainer", "ours", "Trainer / ours", "limit", "of the limit"],
            [
                [
                    f"{statistics.median(seconds['all']):.1f} s",
                    f"{statistics.median(seconds['ours']):.1f} s",
                    ratio(seconds["all"], seconds["ours"], 1),
                    f"{limit:.1f}",
                    f"{statistics.median(faster) / limit:.2f}",
                ]
            ],
        )
    )
    return Section("A plan against the Trainer", text)


SCAN = """
import sys
import layerscout as ls
encoder = ls.Encoder.load(sys.argv[1], device="cpu")
ls.scan(
    encoder, ls.Task.load(sys.argv[2]), scores=sys.argv[3].split(","), examples="all",
    cache_limit=0, progress=False,
)
"""


def grow_memory(encoder: Encoder, task: ls.Task) -> Section:
    """Compare the peak memory of scans of few and of many words, each of a file in a process."""
    split = task.train
    tags = np.array(task.labels)[split.labels].tolist()
    written = [
        json.dumps({"tokens": words, "tags": tags[begin : begin + len(words)]}) + "\n"
        for words, begin in zip(split.words or (), split.bounds, strict=False)
    ]
    rows = []
    for sentences in SIZES:
        with TemporaryDirectory() as folder:
            data = Path(folder) / "sentences.jsonl"
            lines = [written[at % len(written)] for at in range(sentences)]
            data.write_text("".join(lines), encoding="utf-8")
            peak = measure_peak(SCAN, encoder.source, str(data), ",".join(SUMS))
        rows.append([f"{sentences:,}", f"{peak:,.0f} MB"])
    text = (
        "Peak resident memory, a process each, which reads a file, tokenises it and sums up two "
        "scores over all of its words.\n\n" + table(["sentences", "peak"], rows)
    )
    return Section("Memory of a scan of words", text)


def keep(path: Path, measure: Callable[..., Section], *arguments: Any) -> Section:
    """Measure, or read what was measured before."""
    if not path.is_file():
        path.write_text(json.dumps(asdict(measure(*arguments))))
    return Section(**json.loads(path.read_text()))


def main() -> None:
    parser = options(__doc__ or "", brief=False)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=["whole", "speed"], help="one part of it")
    parser.add_argument("--base", help="a folder or hub id of all-mpnet-base-v2")
    arguments = given(parser)
    shared, runs, only = arguments.shared, arguments.runs, arguments.only
    runs.mkdir(parents=True, exist_ok=True)
    small, sections = str(shared / "models" / "all-MiniLM-L6-v2"), []
    wnut = ls.Task.load(shared / "data" / "wnut17")
    if only is None:
        records = read_records(TRIALS)
        picture = (arguments.write or runs / "words.md").with_suffix(".svg")
        sections.append(draw_curves(average_curves(records), picture))
        plans = collect_plans(records, {"wnut17": wnut.labels, "go_emotions": ()})
        scans, tunings = (group_records(records, verb) for verb in ("scan", "tune"))
        for grid in sorted(plans, key=astuple, reverse=True):
            if grid.head != "slow" and len(plans[grid]) > 1:
                found = scans[replace(grid, head="family")]
                means = [r for r in found if r["arguments"].get("pooling", "mean") == "mean"]
                sections.append(compare_plans(grid, plans[grid], means, tunings[grid]))
        sections.append(compare_rates(plans, tunings))
        sections.append(compare_poolings(plans, scans))
    if only in (None, "whole"):
        works = [(small, "wnut17", {"epochs": 5}), (small, "go_emotions", {"epochs": 4})]
        if arguments.base:
            works.append((arguments.base, "wnut17", {"epochs": 3}))
        sections.append(tune_whole(shared, runs, works))
    if only in (None, "speed"):
        encoder = Encoder.load(small, device="cpu")
        sections += [
            keep(runs / "forward.json", against_forward, encoder, wnut, arguments.repeats),
            keep(runs / "trainer.json", against_trainer, encoder, wnut, runs, arguments.repeats),
            keep(runs / "memory.json", grow_memory, encoder, wnut),
        ]
    write_page(INTRODUCTION, sections, arguments.write)


if __name__ == "__main__":
    main()
