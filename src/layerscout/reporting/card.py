"""A tuned model in words: its model card, and a summary in one line."""

from __future__ import annotations

import html
import inspect
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any

from layerscout.data import list_metrics, name_metric
from layerscout.errors import InputError
from layerscout.models import overlap_windows
from layerscout.plans import METHODS
from layerscout.reporting.content import Table, load_template, write_markdown
from layerscout.reporting.evaluation import choose_judged_split, tabulate_by_name
from layerscout.reporting.words import (
    compare_with_free,
    count_fitted,
    count_judged,
    describe_interval,
    describe_more,
    describe_quality,
    describe_speed,
    find_stage,
    is_left_out,
    list_chosen,
    name_constant_answer,
    name_examples,
    name_measure,
    note_judging,
    start_line,
)
from layerscout.yaml import read_yaml

# What the hub calls the kinds of task whose models do not label whole texts.
TAGS = {"multiple_choice": "multiple-choice", "token_classification": "token-classification"}

# What holds of a model as of the checkpoint that it was made from, and values that the hub takes.
PASSED_ON = ("language", "license", "license_name", "license_link", "base_model")
WORD = r'"(?![./])[\w./:-]+"'  # no path
PLAIN = re.compile(rf"{WORD}|\[{WORD}(?:, {WORD})*\]")


def summarise_tuning(content: Mapping[str, Any]) -> str:
    """Say in one line what was tuned, what it cost and how good it is, from `result.json`."""
    plan, model = content["plan"], content["model"]
    blocks = f"{len(plan['tuned'])} of {model['blocks']} blocks"
    alone = "embeddings and head" if plan.get("embeddings") else "the head only"
    how = "solved" if find_stage(content) == "solved" else "tuned"
    line = f"{how} {blocks if plan['tuned'] else alone}{_say_by_what(content)}"
    if model["editing"]:
        line += f" after {model['editing']['edits']}"
    other = content["against"]
    if other is None:
        share = content["flops"]["train"] / content["flops"]["full_train"]
        steps = " for as many steps" * (content["settings"]["max_steps"] is not None)
        cost = f"{share:.0%} of the FLOPs of full fine-tuning{steps}{note_judging(content)}"
        if (content.get("free") or {}).get("kept"):
            cost += ", training that was no better included"
        return f"{line}, {cost}, {describe_quality(content)}"
    spent, others = (one["seconds"]["trunk"] + one["seconds"]["train"] for one in (content, other))
    full = len(other["plan"]["tuned"]) == other["plan"]["head"] == model["blocks"]
    everything = "full fine-tuning" if content["method"] == "full" else "all blocks"
    name = everything if full else other["plan"]["notation"]
    stages = [find_stage(one) for one in (content, other)]
    if "trained" not in stages:
        name += ", both heads solved"
    elif len({*stages}) > 1:
        name += f" with its head {'trained' if stages[1] == 'trained' else 'solved'}"
    return f"{line}, {spent / others:.0%} of the time of {name}, {describe_quality(content)}"


def _say_by_what(content: Mapping[str, Any]) -> str:
    """Say what was trained in the blocks, where it is not all of their weights."""
    return METHODS[content["method"]].words.format(**content["method_options"])


def write_card(content: Mapping[str, Any]) -> str:
    """Write the README.md of a tuned model: what it is, how it was made, how good, at what cost.

    Args:
        content: what `result.json` holds.
    """
    model, task, settings = content["model"], content["task"], content["settings"]
    # A folder is named by its last part alone, since the card may be published.
    name = model["name"] if model["revision"] is not None else Path(model["name"]).name
    number, unit = settings["epochs"], "epoch"
    if (stage := find_stage(content)) == "solved":
        number, unit = 1, "pass"
        if (content.get("free") or {}).get("kept"):
            unit = "pass and a training that was no better"
    elif settings["max_steps"] is not None:
        number, unit = settings["max_steps"], "step"
    template = load_template("card.md", escape_markdown=_escape, json=json.dumps)
    spans = "entity_f1" in list_metrics(task["kind"], task["labels"])
    words, better = compare_with_free(content)
    card: str = template.render(
        {"solved": None, **content, "stage": stage},
        name=name,
        metadata=_describe_for_hub(content, name),
        predicted=_say_what_is_predicted(task),
        by_what=_say_by_what(content),
        examples=count_fitted(content),
        run=content["runs"][content["kept"]],
        kept_epoch=content[content["keep"]]["epoch"],
        length=f"{number:,} {unit}{'s' if number > 1 else ''}",
        speed=describe_speed(content),
        more=describe_more(content),
        words=words if better else start_line(words),
        better=better,
        figures=_show_figures(content),
        spans=spans,
        words_class=_show_words_class(task),
        stride=overlap_windows(settings["max_length"]),
        # Marked in other ways than with B- and I-.
        other_spans=spans and not all(re.match("O$|[BI]-", tag) for tag in task["labels"]),
    )
    return card


def _show_words_class(task: Mapping[str, Any]) -> str | None:
    """Return the code that makes a pipeline join words at spaces, if words have labels."""
    if task["kind"] != "token_classification":
        return None
    from layerscout.models import Words  # with it comes all of transformers

    return inspect.getsource(Words)


def _describe_for_hub(content: Mapping[str, Any], base: str) -> str:
    """Write what the hub reads of a card: the base, the task, and every metric by its name."""
    from huggingface_hub import EvalResult, ModelCardData

    task, test = content["task"], content.get("test")
    tag = TAGS.get(task["kind"], "text-classification")
    data_set, hub = _escape(task["name"]), content["settings"].get("hub")
    split = "test" if test is not None else "train" if is_left_out(content) else "validation"
    metrics = choose_judged_split(content)["metrics"].items()
    # Of over two classes `f1` is `macro_f1`, and stands here once.
    named = {name_metric(key, task["labels"]): (key, value) for key, value in metrics}
    results = [
        EvalResult(
            task_type=tag,
            dataset_type=data_set,
            dataset_name=data_set,
            dataset_split=split,
            metric_type=key,
            metric_name=_escape(name),
            metric_value=round(value, 4),
        )
        for name, (key, value) in named.items()
        if isfinite(value)
    ]
    known = _read_card(content["model"])
    if content["model"]["revision"] is not None:  # a folder is not there
        known["base_model"] = base
    libraries = {name: name for name in ("sentence-transformers", "peft")} | {"ours": "layerscout"}
    data = ModelCardData(
        library_name=libraries.get(content["saved_as"], "transformers"),
        pipeline_tag=tag,
        **known,
        datasets=None if hub is None else ["/".join(hub.split("/")[:2])],  # not of files
        tags=["layerscout"],
        model_name=f"{_escape(base)} tuned on {data_set}",
        eval_results=results,
    )
    return data.to_yaml().strip()


def _read_card(model: Mapping[str, Any]) -> dict[str, Any]:
    """Read from the card of a checkpoint, beside it or in the hub's cache, what it passes on."""
    from huggingface_hub import try_to_load_from_cache

    path: Any = Path(model["source"]) / "README.md"
    if model["revision"] is not None:
        path = try_to_load_from_cache(model["name"], "README.md", revision=model["revision"])
    with suppress(OSError, ValueError, TypeError, AttributeError, InputError):
        text = Path(path).read_text(encoding="utf-8")
        front = re.match(r"---[ \t]*\n(.*?)^---[ \t]*$", text, re.DOTALL | re.MULTILINE)
        said = read_yaml(front[1]) if front else {}
        plain = {key: json.dumps(said.get(key), ensure_ascii=False) for key in PASSED_ON}
        return {key: said[key] for key, value in plain.items() if PLAIN.fullmatch(value)}
    return {}


def _show_figures(content: Mapping[str, Any]) -> str:
    """Show every metric and every label, of the test examples if there are any."""
    test, chosen = content.get("test"), list_chosen(content)
    kind, classes = content["task"]["kind"], content["task"]["labels"]
    if test is not None:
        counted = f"{test['examples']:,} test {name_examples(kind)}"
        counted += ", which were not used to choose anything"
    else:
        counted = count_judged(content)
        counted += ", by heads solved without them" if is_left_out(content) else ""
        counted += f", which were also used to choose {' and '.join(chosen)}" if chosen else ""
    shown = choose_judged_split(content)
    # Of over two classes `f1` is `macro_f1`, and stands here once.
    metrics = {name_metric(key, classes): value for key, value in shown["metrics"].items()}
    if shown.get("majority") is not None and kind != "regression":
        always = f"{name_measure(content)} of always predicting {name_constant_answer(kind)}"
        metrics[always] = shown["majority"]
    if interval := describe_interval(shown):
        counted += f" ({name_measure(content)}: {interval})"
    rows = [[_escape(name), f"{value:.4f}"] for name, value in metrics.items()]
    text = f"On {counted}:\n\n{write_markdown(Table('', ['metric', 'value'], rows))}"
    if (table := tabulate_by_name(shown)) is not None:
        rows = [[_escape(name), *cells] for name, *cells in table.rows]
        text += f"\n{table.caption}\n\n{write_markdown(replace(table, rows=rows))}"
    return text


def _say_what_is_predicted(task: Mapping[str, Any]) -> str:
    labels = ", ".join(map(_escape, task["labels"]))
    words = {
        "regression": "a number",
        "multiple_choice": f"one of {task.get('choices')} choices",
        "multi_label_classification": f"any number of labels out of {labels}",
        "token_classification": f"a label for every word: {labels}",
    }
    return words.get(task["kind"], f"classes {labels}")


def _escape(text: str) -> str:
    """Escape Markdown and HTML in a text, and drop the marks that turn its direction round."""
    straight = re.sub("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]", "", str(text))
    escaped = html.escape(" ".join(straight.split()), quote=False)
    return re.sub(r"([\\`*_\[\]#~])", r"\\\1", escaped).replace("|", "&#124;")
