"""What tuning gave (the content of `result.json`), in words and tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from layerscout.reporting.content import Table
from layerscout.reporting.evaluation import choose_judged_split
from layerscout.reporting.words import format_decimals, name_measure


def tabulate_runs(content: Mapping[str, Any]) -> Table:
    """Tabulate the runs, one for each learning rate and seed; the kept one is marked."""
    rows = []
    others = [content["keep"]] if content["keep"] not in ("best", "last") else []
    for run in content["runs"]:
        ends = ["–", "–", "–", *("–" for _ in others)]
        if run["curve"]:
            best, last = run["best"], run["last"]
            ends = [format_decimals(best["value"], 4), str(best["epoch"])]
            ends.append(format_decimals(last["value"], 4))
            ends += [format_decimals(run[name]["value"], 4) for name in others]
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
    line = f"{trained:,} parameters trained ({trained / model['parameters']['total']:.1%})"
    cut = content["trunk"]["cut"]
    if cut and content["trunk"]["kept"]:
        line += f"; {'block 1' if cut == 1 else f'blocks 1 to {cut}'} ran once"
    removed = model["blocks"] - plan["head"]
    if removed:
        line += f"; {removed} block{'s' if removed > 1 else ''} above the head removed"
    return [f"plan {plan['notation']}: {plan['reason']}", line]


def tabulate_errors(content: Mapping[str, Any]) -> Table | None:
    """Tabulate the wrong predictions that the model is surest of."""
    rows = [
        [
            f"{one['row']:,}",
            one["label"],
            one["prediction"],
            format_decimals(one["probability"]),
            one["text"] + (f" / {one['text_pair']}" if "text_pair" in one else ""),
        ]
        for one in choose_judged_split(content).get("errors") or ()
    ]
    columns = ["Row", "Label", "Predicted", "Probability", "Text"]
    caption = "The wrong predictions of which the model is most sure; rows are counted from 0."
    table = Table(caption, columns, rows, words=frozenset({1, 2, 4}), texts=True)
    return table if rows else None
