"""What tuning gave and an evaluation found, in words and tables.

The content is that of `result.json` or `evaluate.json`.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile, zip_longest
from typing import Any

from layerscout.data import REPEATED, find_exchange, name_metric, name_some
from layerscout.plans import OF_TEXTS, share_stages
from layerscout.reporting.content import Table
from layerscout.reporting.words import (
    describe_calibration,
    describe_interval,
    find_stage,
    format_decimals,
    format_number,
    format_state,
    name_constant_answer,
    name_label,
    name_measure,
    read_calibration,
    start_line,
)

# What a truncation curve shows: UNTUNED, TUNED and TUNEDORIG of Phang et al. 2021. Their first
# name is that of the head alone, and beside an untuned model it misleads.
TRUNCATIONS: Mapping[str, str] = {
    "untuned": "tuned head, unchanged",
    "tuned": "head tuned again at each state",
    "tuned_original": "untuned model, head tuned at each state",
}
# The share of what a model has above the majority baseline that it may lose by being truncated.
LOST = 0.02
# Where the best epoch came before this share of them, training for longer cannot help.
EARLY = 2 / 3
# Validation examples below which another way to judge is offered.
FEW = 50
# What is left after an edit of a model that has learnt nothing.
_SO = "so what is left after an edit says nothing."
EXCHANGED = f"Its classes look exchanged, {_SO}"
UNCLEAR = f"It is not clearly better than always giving the same answer, {_SO}"


def describe_evaluation(content: Mapping[str, Any]) -> list[str]:
    """Say in words what an evaluation found."""
    metric, name = content["metric"], name_measure(content)
    whole, majority = content["metrics"][metric], content["majority"] or 0.0
    first = f"The whole model: {name} {format_number(whole)}"
    kind = content["task"]["kind"]
    if interval := describe_interval(content):
        first += f" ({interval})"
    if content["majority"] is not None and kind != "regression":
        first += (
            f"; always predicting {name_constant_answer(kind)} scores {format_number(majority)}"
        )
    seen, judged = content.get("seen"), content["task"].get("examples_used")
    # If the tuning trained on them, a warning says so.
    if seen and seen["chosen"] > REPEATED * judged >= seen["training"]:
        first += "; tuning chose by these rows, which flatters the figures a little"
    if failure := find_failure(content):
        advice = advise_more_rows(content)
        return [f"{first}.", failure, *([] if advice is None else [advice])]
    if calibration := describe_calibration(content):
        first += f". Its {calibration}"
    return [f"{first}.", *_describe_truncation(content), *_describe_skips(content)]


def find_failure(content: Mapping[str, Any]) -> str | None:
    """Say that a model has learnt nothing, or not so that it could be seen; None if it has."""
    whole, majority = content["metrics"][content["metric"]], content["majority"] or 0.0
    confusion = content.get("confusion") or []
    predicted = [n for n, column in enumerate(zip(*confusion, strict=True)) if any(column)]
    if len(predicted) == 1 and sum(map(any, confusion)) > 1:
        label = content["task"]["labels"][predicted[0]]
        return f"It predicts {label!r:.60} for everything and has not learnt the task, {_SO}"
    if confusion and find_exchange(confusion):
        return EXCHANGED
    if whole <= majority and have_one_class(content):
        return f"All examples have the same label, which cannot show what it has learnt, {_SO}"
    if whole <= majority:
        return f"It has not learnt the task, {_SO}"
    if content.get("interval") and content["interval"][0] <= majority:
        return UNCLEAR
    return None


def advise_more_rows(content: Mapping[str, Any]) -> str | None:
    """Advise more rows where noise alone may set a model apart and more epochs cannot help.

    Args:
        content: of `evaluate.json`; of `result.json`, with its `describe_tuning` as "tuning".
    """
    tuning = content.get("tuning") or {}
    epochs = tuning.get("epochs", 1)
    best = tuning.get("best_epoch", epochs)
    if best >= EARLY * epochs or find_failure(content) != UNCLEAR:
        return None
    return (
        f"Its best epoch was {best} of {epochs}, so training for longer will not help; validate on "
        "more rows, or train on more."
    )


def have_one_class(content: Mapping[str, Any]) -> bool:
    """Return whether all judged examples have one class, as in a file of a few rows."""
    return sum(map(any, content.get("confusion") or [])) == 1


def count_removable(content: Mapping[str, Any]) -> int:
    """Count the top blocks that the head as tuned can do without; 0 where that is unknown."""
    curve, majority = content["truncation"].get("untuned"), content["majority"] or 0.0
    if not curve or find_failure(content):
        return 0
    whole = content["metrics"][content["metric"]]
    enough = whole - LOST * (whole - majority)
    below = reversed(curve[:-1])
    return len([*takewhile(lambda value: value is not None and value >= enough, below)])


def _describe_truncation(content: Mapping[str, Any]) -> list[str]:
    """Say how many blocks the head as tuned can do without."""
    curve = content["truncation"].get("untuned")
    if not curve:
        return []
    name, removable, top = name_measure(content), count_removable(content), len(curve) - 1
    if not removable:
        return [
            f"With the tuned head unchanged, no top block can be removed: without block {top} the "
            f"{name} is {format_number(curve[top - 1])}."
        ]
    blocks = "top block" if removable == 1 else f"{removable} top blocks"
    return [
        f"With the tuned head unchanged, the {blocks} can be removed, and the {name} is still "
        f"{format_number(curve[top - removable])}."
    ]


def _describe_skips(content: Mapping[str, Any]) -> list[str]:
    """Say how much a single block matters."""
    lines = enumerate(content["skips"] or (), start=1)
    singles = [(line[i - 1], i) for i, line in lines if line[i - 1] is not None]
    if len(singles) < 2:
        return []
    (low, worst), (high, least) = min(singles), max(singles)
    return [
        f"Without one of its blocks, the {name_measure(content)} lies between "
        f"{format_number(low)} (block {worst}) and {format_number(high)} (block {least})."
    ]


def tabulate_truncation(content: Mapping[str, Any]) -> Table:
    """Tabulate the truncation curves."""
    curves = {k: content["truncation"][k] for k in TRUNCATIONS if k in content["truncation"]}
    rows = [
        [format_state(state), *map(format_number, values)]
        for state, values in enumerate(zip_longest(*curves.values()))
    ]
    caption = f"The {name_measure(content)} with the head on each state."
    return Table(caption, ["State", *(TRUNCATIONS[key] for key in curves)], rows, folded=True)


def tabulate_edits(content: Mapping[str, Any]) -> Table:
    """Tabulate the metrics of the model under each edit."""
    classes = content["task"].get("labels") or ()
    # Of over two classes `f1` is `macro_f1`, and stands here once.
    names = {name_metric(key, classes): key for key in content["metrics"]}
    listed = [{"edit": "the whole model", "metrics": content["metrics"]}, *content["edits"]]
    rows = [
        [edit["edit"], *(format_number(edit["metrics"][key]) for key in names.values())]
        for edit in listed
    ]
    columns = ["Edit", *map(start_line, names)]
    return Table("The model's metrics under each edit.", columns, rows)


def tabulate_spans(content: Mapping[str, Any]) -> Table:
    """Tabulate what is left of the metric without each span of blocks."""
    blocks = range(1, content["model"]["blocks"] + 1)
    cells = [["" if v is None else format_decimals(v) for v in line] for line in content["skips"]]
    rows = [[str(last), *(line[last - 1] for line in cells)] for last in reversed(blocks)]
    caption = "Rows: the last skipped block; columns: the first one."
    return Table(caption, ["", *map(str, blocks)], rows, folded=True)


# Rows that are shown at the most.
SHOWN = 30


def choose_judged_split(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the content with the figures of the test examples in place of validation, if any."""
    return {**content, **(content.get("test") or {})}


def tabulate_by_name(content: Mapping[str, Any]) -> Table | None:
    """Tabulate `by_name` of `result.json` or `evaluate.json`, the most frequent names first.

    Of many those that occur, and of many such those that have the lowest F1. None where it is
    empty, as for numbers, or not there, as in older files.
    """
    content = choose_judged_split(content)
    names, thresholds = content.get("by_name") or {}, content.get("thresholds") or {}
    if not names:
        return None
    spans = "entity_f1" in content["metrics"]
    name = "type of entity" if spans else name_label(content["task"]["kind"])
    ranked, which = sorted(names, key=lambda label: -names[label]["support"]), ""
    if len(ranked) > SHOWN:
        ranked = [label for label in ranked if names[label]["support"]]
        which = f" The {len(ranked)} of {len(names)} that occur."
    if len(ranked) > SHOWN:
        which = f" The {SHOWN} with the lowest F1, of {len(ranked)} that occur."
        ranked = sorted(ranked, key=lambda label: names[label]["f1"])[:SHOWN]
    rows = []
    for label in ranked:
        values = [format_decimals(names[label][value]) for value in ("precision", "recall", "f1")]
        if not names[label]["support"]:
            values = ["–"] * 3
        least = [format_decimals(thresholds[label])] if thresholds else []
        rows.append([label, *values, f"{names[label]['support']:,}", *least])
    caption = f"Metrics of each {name}; support: how often it occurs.{which}"
    columns = [start_line(name), "Precision", "Recall", "F1", "Support"]
    columns += ["Threshold"] if thresholds else []
    return Table(caption, columns, rows)


def offer_halves(content: Mapping[str, Any]) -> str | None:
    """Say that all rows can judge where few validation examples do; None where they are enough.

    Args:
        content: of `result.json`.
    """
    rows, task = content["settings"].get("validation_examples") or FEW, content["task"]
    total = task["examples_used"] + rows
    halves = task["kind"] in OF_TEXTS and len(share_stages(total)) > 1
    if (
        rows >= FEW
        or not halves
        or not content["plan"]["tuned"]
        or find_stage(content) != "trained"
    ):
        return None
    return (
        f"{rows} validation examples are few to go by; with --head-end solved all {total} judge, "
        "each half by a training on the other"
    )


def offer_macro_f1(content: Mapping[str, Any]) -> str | None:
    """Say what macro-F1 is where accuracy hides classes that are rare or never right.

    A class is rare with under a tenth of the training examples and half of an even share.

    Args:
        content: of `result.json`.
    """
    task, names = content["task"], choose_judged_split(content).get("by_name") or {}
    if content["metric"] != "accuracy" or task["kind"] != "classification" or not names:
        return None
    counts = task.get("examples_per_class") or ()
    least = min(0.1, 0.5 / max(1, len(counts))) * sum(counts)
    rare = [name for name, count in zip(task["labels"], counts, strict=False) if count < least]
    never = [name for name, own in names.items() if own["support"] and not own["f1"]]
    parts = [
        f"{name_some(some, 3)} {'have' if len(some) > 1 else 'has'} {what}"
        for some, what in ((rare, "few examples"), (never, "no right prediction"))
        if some
    ]
    if not parts:
        return None
    value = choose_judged_split(content)["metrics"]["macro_f1"]
    return (
        f"macro-F1, in which every class counts alike, is {format_decimals(value)} (--metric "
        f"macro_f1 chooses by it): {', and '.join(parts)}"
    )


def tabulate_confusion(content: Mapping[str, Any]) -> Table | None:
    """Tabulate which classes were taken for which, shaded by the share of the row."""
    table = choose_judged_split(content).get("confusion")
    names = content["task"].get("labels") or ()
    if not table or len(names) > SHOWN:
        return None
    rows: list[list[str]] = []
    shades: dict[tuple[int, int], float] = {}
    for row, (name, counts) in enumerate(zip(names, table, strict=True)):
        rows.append([name, *(f"{count:,}" for count in counts)])
        total = max(1, sum(counts))
        shades |= {(row, column): n / total for column, n in enumerate(counts, start=1)}
    word = name_label(content["task"]["kind"])
    caption = f"Rows: the true {word}; columns: the predicted one. Shading: the share of the row."
    return Table(caption, ["", *names], rows, shades=shades)


def tabulate_runs(content: Mapping[str, Any]) -> Table:
    """Tabulate the runs, one for each learning rate and seed; the kept one is marked."""
    rows = []
    others = [content["keep"]] if content["keep"] not in ("best", "last") else []
    for run in content["runs"]:
        ends = ["–"] * (3 + len(others))
        if run["curve"]:
            best, *rest = (format_decimals(run[n]["value"], 4) for n in ("best", "last", *others))
            ends = [best, str(run["best"]["epoch"]), *rest]
        stopped = "diverged" if run["diverged"] else run["stopped"] or "–"
        rows.append([f"{run['learning_rate']:g}", str(run["seed"]), *ends, stopped])
    columns = ["learning rate", "seed", f"best {name_measure(content)}", "epoch", "last"]
    columns += [name.replace("-", " ") for name in others]
    place = {"best": 2, "last": 4}.get(content["keep"], 5)
    kept = frozenset({(content["kept"], place)})
    caption = "Every run with its best and its last epoch; the kept one is marked."
    if others:
        caption = "Every run with its metric at each chosen epoch; the kept one is marked."
    return Table(caption, [*columns, "stopped"], rows, kept, mark="kept")


def tabulate_solved(content: Mapping[str, Any]) -> Table:
    """Tabulate the states on which a head was solved; the one that it is kept on is marked."""
    losses = content["solved"]["losses"]
    rows = [[state, format_decimals(loss, 4)] for state, loss in losses.items()]
    marked = frozenset({(list(losses).index(str(content["plan"]["head"])), 1)})
    caption = "The heads that were solved; the kept one is marked."
    return Table(caption, ["state", "loss on examples left out"], rows, marked, mark="kept")


def tabulate_calibration(content: Mapping[str, Any]) -> Table | None:
    """Tabulate how far probabilities can be believed; see `read_calibration`."""
    if (known := read_calibration(content)) is None:
        return None
    name, measured = known
    rows = [
        [when, *(format_decimals(each[key], 4) for key in ("ece", "brier", "nll"))]
        for when, each in measured.items()
    ]
    if len(rows) > 1:
        rows[0][0], rows[1][0] = "as trained or solved", "calibrated"
    rows_of = name.replace(" ", "-")
    caption = f"How far the probabilities of the {rows_of} rows can be believed; lower is better."
    columns = ["logits", "expected calibration error", "Brier score", "log loss"]
    return Table(caption, columns, rows)


def tabulate_epochs(content: Mapping[str, Any]) -> Table:
    """Tabulate the epochs of the kept run; the kept one is marked."""
    curve = content["runs"][content["kept"]]["curve"]
    rows = [
        [str(epoch["epoch"])]
        + [format_decimals(epoch[key], 4) for key in ("training_loss", "loss", "value")]
        for epoch in curve
    ]
    kept = content[content["keep"]]["epoch"]
    marked = frozenset((row, 3) for row, epoch in enumerate(curve) if epoch["epoch"] == kept)
    columns = ["epoch", "training loss", "validation loss", name_measure(content)]
    return Table("The epochs of the kept run.", columns, rows, marked, mark="kept")


def describe_training(content: Mapping[str, Any]) -> list[str]:
    """Say which plan was followed, why, and what was trained, cached and removed."""
    plan, model, trained = content["plan"], content["model"], content["parameters"]["trainable"]
    how = {
        "trained": "trained",
        "solved": "solved from one pass",
        "staged": "trained, and then the head solved",
    }[find_stage(content)]
    line = f"{trained:,} parameters {how} ({trained / model['parameters']['total']:.1%})"
    cut = content["trunk"]["cut"]
    if cut and content["trunk"]["kept"]:
        line += f"; {'block 1' if cut == 1 else f'blocks 1 to {cut}'} ran once"
    elif not cut and plan["tuned"]:
        line += "; no block lies below those that are tuned, so none ran once"
    removed = model["blocks"] - plan["head"]
    if removed:
        line += f"; {removed} block{'s' if removed > 1 else ''} above the head removed"
    if (content.get("solved") or {}).get("averaging"):
        line += "; a block added that averages the tokens"
    asked = plan["reason"].startswith(f"{plan['notation']} ")
    return [
        f"plan {plan['reason']}" if asked else f"plan {plan['notation']}: {plan['reason']}",
        line,
    ]


def tabulate_errors(content: Mapping[str, Any]) -> Table | None:
    """Tabulate the wrong predictions that the model is surest of."""
    rows = []
    of_one_file = isinstance(content["settings"].get("validation"), float)
    for one in choose_judged_split(content).get("errors") or ():
        text = " / ".join(one[name] for name in ("text", "text_pair") if name in one)
        sure = format_decimals(one["probability"])
        row = f"{one['row']:,}"
        if content.get("solved") and not of_one_file:  # of any split
            row = f"{one['split']} {row}"
        rows.append([row, one["label"], one["prediction"], sure, text])
    columns = ["Row", "Label", "Predicted", "Probability", "Text"]
    caption = "The wrong predictions of which the model is most sure; rows are counted from 0."
    table = Table(caption, columns, rows, words=frozenset({1, 2, 4}), texts=True)
    return table if rows else None
