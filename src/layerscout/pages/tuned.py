"""What tuning gave (the content of `result.json`), as words, tables and sections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt

from layerscout.pages.axes import BEST, CURVE, MUTED, lay_out_entries, lay_out_values, layer_rows
from layerscout.pages.by_name import choose_split, show_by_name, show_confusion
from layerscout.pages.content import Section, Table
from layerscout.pages.evaluation import advise_more_rows
from layerscout.pages.formats import format_decimals, list_model
from layerscout.pages.naming import (
    count_examples,
    describe_reached,
    describe_speed,
    list_task,
    name_examples,
    name_majority,
    name_measure,
)
from layerscout.pages.next_steps import describe_tuning


def build_tuned(content: Mapping[str, Any]) -> tuple[str, list[Section]]:
    """Give the title and the sections of a tuned model."""
    model, task, plan, flops = (content[name] for name in ("model", "task", "plan", "flops"))
    found = f"{plan['notation']} ({content['method']}): {describe_reached(content)}."
    advice = advise_more_rows({**content, "tuning": describe_tuning(content)})
    share, test = flops["train"] / flops["full_train"], content.get("test")
    examples = name_examples(task["kind"])
    sections = [
        Section("Found", [found] if advice is None else [found, advice]),
        Section("Warnings", content["warnings"]),
        Section("Runs", table=tabulate_runs(content)),
        Section("Epochs", charts=[draw_epochs(content)], table=tabulate_epochs(content)),
        show_by_name(content),
        show_confusion(content),
        _show_errors(content),
        Section(
            "Facts",
            facts=[
                ("Model", list_model(model)),
                ("Task", list_task(task)),
                ("Trained on", count_examples(task)),
                ("Validated on", f"{content['settings']['validation_examples']:,} {examples}"),
                *([("Tested on", f"{test['examples']:,} {examples}")] if test else []),
                ("Training FLOPs", f"{share:.0%} of full fine-tuning"),
                ("Parameters", f"{content['parameters']['total']:,}"),
                ("Trained", f"{content['parameters']['trainable']:,}"),
                *_list_costs(content),
            ],
        ),
    ]
    return f"{model['name']} tuned on {task['name']}", sections


def _show_errors(content: Mapping[str, Any]) -> Section:
    """Show the wrong predictions that the model is surest of."""
    found = choose_split(content).get("errors") or []
    rows = [
        [
            f"{one['row']:,}",
            one["label"],
            one["prediction"],
            format_decimals(one["probability"]),
            one["text"] + (f" / {one['text_pair']}" if "text_pair" in one else ""),
        ]
        for one in found
    ]
    columns = ["Row", "Label", "Predicted", "Probability", "Text"]
    caption = "The wrong predictions of which the model is most sure; rows are counted from 0."
    table = Table(caption, columns, rows, words=frozenset({1, 2, 4}), texts=True)
    return Section("Errors", table=table if rows else None)


def _list_costs(content: Mapping[str, Any]) -> list[tuple[str, str]]:
    """List the time and the memory that the training took, and the speed of the model."""
    seconds, memory = content["seconds"], content["memory"].get("used")
    found = [("Time", f"{sum(seconds.values()):.1f} s: " + _join_seconds(seconds))]
    if memory is not None:
        found.append(("Memory", f"{memory / 1e9:.2f} GB at most"))
    if speed := describe_speed(content):
        found.append(("Speed of the model", speed))
    return found


def _join_seconds(seconds: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.1f}" for name, value in seconds.items())


def draw_epochs(content: Mapping[str, Any]) -> alt.LayerChart:
    """Draw the metric of the kept run by epoch, with that of always predicting the same."""
    curve = content["runs"][content["kept"]]["curve"]
    name, kept = name_measure(content), content[content["keep"]]["epoch"]
    rows = [{"epoch": one["epoch"], "value": one["value"]} for one in curve]
    shown = [one["value"] for one in curve if one["value"] is not None]
    shown += [] if content.get("majority") is None else [content["majority"]]
    base = alt.Chart().encode(
        lay_out_entries("epoch", "epoch", 1, max(2, len(rows))),
        lay_out_values("value", f"{name} on validation", 20, shown),
        tooltip=[alt.Tooltip("epoch:Q"), alt.Tooltip("value:Q", title=name, format=".3f")],
    )
    layers: list[Any] = []
    if content.get("majority") is not None:
        ruled = alt.Chart(alt.InlineData(values=[{"value": content["majority"]}]))
        layers.append(ruled.mark_rule(color=MUTED, strokeDash=[4, 4]).encode(alt.Y("value:Q")))
    layers += [
        base.mark_line(color=CURVE, strokeWidth=2),
        base.mark_point(color=CURVE, filled=True, size=50, opacity=1),
    ]
    of_kept = base.properties(data=alt.InlineData(values=[r for r in rows if r["epoch"] == kept]))
    layers.append(of_kept.mark_point(color=BEST, filled=True, size=110, opacity=1))
    always = name_majority(content["task"]["kind"])
    description = (
        f"{name} by epoch; the kept epoch has a larger point; dashed: always predicting {always}."
    )
    return layer_rows(rows, layers, description, height=220)


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
