"""A tuned model in words: its model card, and a summary in one line."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any

from layerscout.data import name_metric
from layerscout.models import overlap_windows
from layerscout.plans import METHODS
from layerscout.reporting.content import Table, write_markdown
from layerscout.reporting.evaluation import choose_judged_split, tabulate_by_name
from layerscout.reporting.words import (
    count_examples,
    describe_interval,
    describe_quality,
    describe_speed,
    list_chosen,
    name_constant_answer,
    name_examples,
    name_measure,
)

# What the hub calls the kinds of task whose models do not label whole texts.
TAGS = {"multiple_choice": "multiple-choice", "token_classification": "token-classification"}


def summarise_tuning(content: Mapping[str, Any]) -> str:
    """Say in one line what was tuned, what it cost and how good it is, from `result.json`."""
    plan, model = content["plan"], content["model"]
    blocks = f"{len(plan['tuned'])} of {model['blocks']} blocks"
    alone = "embeddings and head" if plan.get("embeddings") else "the head only"
    line = f"tuned {blocks if plan['tuned'] else alone}{_say_by_what(content)}"
    if model["editing"]:
        line += f" after {model['editing']['edits']}"
    other = content["against"]
    if other is None:
        share = content["flops"]["train"] / content["flops"]["full_train"]
        return f"{line}, {share:.0%} of the FLOPs of full fine-tuning, {describe_quality(content)}"
    spent, others = (one["seconds"]["trunk"] + one["seconds"]["train"] for one in (content, other))
    full = len(other["plan"]["tuned"]) == other["plan"]["head"] == model["blocks"]
    everything = "full fine-tuning" if content["method"] == "full" else "all blocks"
    name = everything if full else other["plan"]["notation"]
    return f"{line}, {spent / others:.0%} of the time of {name}, {describe_quality(content)}"


def _say_by_what(content: Mapping[str, Any]) -> str:
    """Say what was trained in the blocks, where it is not all of their weights."""
    return METHODS[content["method"]].words.format(**content["method_options"])


def write_card(content: Mapping[str, Any]) -> str:
    """Write the README.md of a tuned model: what it is, how it was made, how good, at what cost.

    Args:
        content: what `result.json` holds.
    """
    task = content["task"]
    facts = "\n".join(f"- {name}: {fact}" for name, fact in _list_facts(content).items())
    return f"""---
{_describe_for_hub(content)}
---

# {_escape(_find_name(content["model"]))} tuned on {_escape(task["name"])}

{facts}

{_show_figures(content)}
```python
{_show_usage(content)}
```

Made by layerscout {content["layerscout"]}.
"""


def _describe_for_hub(content: Mapping[str, Any]) -> str:
    """Write what the hub reads of a card: the base, the task, and every metric by its name."""
    from huggingface_hub import EvalResult, ModelCardData

    model, task, test = content["model"], content["task"], content.get("test")
    tag = TAGS.get(task["kind"], "text-classification")
    name, hub = _escape(task["name"]), content["settings"].get("hub")
    results = [
        EvalResult(
            task_type=tag,
            dataset_type=name,
            dataset_name=name,
            dataset_split="validation" if test is None else "test",
            metric_type=key,
            metric_name=_escape(name_metric(key, task["labels"])),
            metric_value=round(value, 4),
        )
        for key, value in choose_judged_split(content)["metrics"].items()
        if isfinite(value)
    ]
    data = ModelCardData(
        library_name={"ours": "layerscout", "peft": "peft"}.get(
            content["saved_as"], "transformers"
        ),
        pipeline_tag=tag,
        base_model=None if model["revision"] is None else model["name"],  # a folder is not there
        datasets=None if hub is None else ["/".join(hub.split("/")[:2])],  # not of files
        tags=["layerscout"],
        model_name=f"{_escape(_find_name(model))} tuned on {name}",
        eval_results=results,
    )
    return data.to_yaml().strip()


def _show_figures(content: Mapping[str, Any]) -> str:
    """Show every metric and every label, of the test examples if there are any."""
    test, chosen = content.get("test"), list_chosen(content)
    examples = name_examples(content["task"]["kind"])
    if test is not None:
        counted = f"{test['examples']:,} test {examples}, which were not used to choose anything"
    else:
        counted = f"{content['settings']['validation_examples']:,} validation {examples}"
        counted += f", which were also used to choose {' and '.join(chosen)}" if chosen else ""
    shown = choose_judged_split(content)
    classes, kind = content["task"]["labels"], content["task"]["kind"]
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


def _list_facts(content: Mapping[str, Any]) -> dict[str, str]:
    model, task, plan, settings = (content[key] for key in ("model", "task", "plan", "settings"))
    run, kept = content["runs"][content["kept"]], content[content["keep"]]
    parameters, flops = content["parameters"], content["flops"]
    removed = model["blocks"] - plan["head"]
    tuned = ", ".join(map(str, plan["tuned"])) or "none"
    inputs = f"inputs cut at {settings['max_length']} tokens"
    if task["kind"] == "token_classification":
        inputs = f"read in windows of at most {settings['max_length']} tokens"
    batches = f"batches of {settings['batch_size']}"
    if (each := settings["accumulation"] or 1) > 1:
        batches += f", {each} a step"
    rates = f"learning rate {run['learning_rate']:g}"
    if plan["tuned"] and settings.get("head_learning_rate") is not None:
        rates += f" (head: {settings['head_learning_rate']:g})"
    number, unit = settings["epochs"], "epoch"
    if settings["max_steps"] is not None:
        number, unit = settings["max_steps"], "step"
    length = f"{number:,} {unit}{'s' if number > 1 else ''}"
    facts = {
        "Made from": f"{_escape(_find_name(model))} ({model['family']}, {model['blocks']} blocks)",
        "Task": f"{_escape(task['name'])}, {_say_what_is_predicted(task)}",
        **({"Blocks edited first": model["editing"]["edits"]} if model["editing"] else {}),
        "Plan": f"{plan['notation']}: blocks tuned: {tuned}{_say_by_what(content)}; the head reads "
        f"state {plan['head']}"
        + (f"; removed above it: {removed} of {model['blocks']} blocks" if removed else ""),
        "Chosen because": _escape(plan["reason"]),
        "Parameters": f"{parameters['total']:,}, of which {parameters['trainable']:,} were trained",
        "Training": f"{count_examples(task)}, {inputs}, {batches}, {rates}, "
        f"seed {run['seed']}; epoch {kept['epoch']} of {settings['epochs']} kept",
        "Cost": f"{flops['train']:.3g} FLOPs (counted, not measured) for "
        f"{length}, {flops['train'] / flops['full_train']:.0%} of full fine-tuning; inference "
        f"{flops['inference'] / flops['full_inference']:.0%}",
    }
    if speed := describe_speed(content):
        facts["Speed"] = f"{speed}, on the machine that trained it"
    return facts


def _say_what_is_predicted(task: Mapping[str, Any]) -> str:
    if task["kind"] == "regression":
        return "a number"
    if task["kind"] == "multiple_choice":
        return f"one of {task['choices']} choices"
    labels = ", ".join(map(_escape, task["labels"]))
    if task["kind"] == "multi_label_classification":
        return f"any number of labels out of {labels}"
    if task["kind"] == "token_classification":
        return f"a label for every word: {labels}"
    return f"classes {labels}"


def _escape(text: str) -> str:
    """Escape Markdown and HTML in a text, and drop the marks that turn its direction round."""
    straight = re.sub("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]", "", str(text))
    escaped = html.escape(" ".join(straight.split()), quote=False)
    return re.sub(r"([\\`*_\[\]#~])", r"\\\1", escaped).replace("|", "&#124;")


def _show_usage(content: Mapping[str, Any]) -> str:
    """Show how to load the model and ask it, with inputs cut as they were in tuning."""
    task, max_length = content["task"], content["settings"]["max_length"]
    if content["saved_as"] == "ours":
        return """import layerscout
from transformers import AutoTokenizer

model = layerscout.load("path/to/this/folder")  # the base model with the trained parameters
tokenizer = AutoTokenizer.from_pretrained("path/to/this/folder")"""
    if content["saved_as"] == "peft":
        return _usage_of_peft(content)
    if task["kind"] == "multiple_choice":
        return _usage_of_choices(task["choices"])
    if task["kind"] == "token_classification":
        return _usage_of_words(max_length)
    text = '"some text"'
    if "text_pair" in task["columns"]:
        text = '{"text": "some text", "text_pair": "its second text"}'
    if task["kind"] == "multi_label_classification":
        return _usage_of_several(text, tuned=content["thresholds"] is not None)
    name = "score" if task["kind"] == "regression" else "classify"
    return f"""from transformers import pipeline

{name} = pipeline("text-classification", "path/to/this/folder")
{name}({text}, truncation=True)  # cut at {max_length} tokens, as in tuning"""


def _usage_of_words(max_length: int) -> str:
    # Only the first token of a word was trained to carry its label. Without a stride the library
    # leaves out what follows the first window.
    stride = overlap_windows(max_length)
    return f"""from transformers import pipeline

label = pipeline(
    "token-classification",
    "path/to/this/folder",
    aggregation_strategy="first",
    stride={stride},  # long texts in windows, as in tuning
)
label("some text")"""


def _usage_of_several(text: str, *, tuned: bool) -> str:
    # The library notes thresholds in config.json but does not look at them.
    read = "\nthresholds = classify.model.config.thresholds" if tuned else ""
    least = 'thresholds[one["label"]]' if tuned else "0.5"
    return f"""from transformers import pipeline

classify = pipeline("text-classification", "path/to/this/folder", top_k=None)
[scores] = classify([{text}], truncation=True)  # cut as in tuning{read}
labels = [one["label"] for one in scores if one["score"] > {least}]"""


def _usage_of_peft(content: Mapping[str, Any]) -> str:
    task, head = content["task"], content["plan"]["head"]
    outputs = len(task["labels"]) or 1
    names = {"multiple_choice": "MultipleChoice", "token_classification": "TokenClassification"}
    kind = names.get(task["kind"], "SequenceClassification")
    several = task["kind"] == "multi_label_classification"
    problem = '\n    problem_type="multi_label_classification",' if several else ""
    return f"""from peft import PeftModel
from transformers import AutoModelFor{kind}, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("path/to/this/folder")
base = AutoModelFor{kind}.from_pretrained(
    {json.dumps(_find_name(content["model"]))},
    num_hidden_layers={head},
    num_labels={outputs},{problem}
    pad_token_id=tokenizer.pad_token_id,
)
model = PeftModel.from_pretrained(base, "path/to/this/folder")"""


def _usage_of_choices(choices: int) -> str:
    # An export for multiple choice does not load in pipeline("text-classification").
    return f"""import torch
from transformers import AutoModelForMultipleChoice, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("path/to/this/folder")
model = AutoModelForMultipleChoice.from_pretrained("path/to/this/folder")
choices = {json.dumps([f"choice {number}" for number in range(1, choices + 1)])}
inputs = tokenizer(
    ["some text"] * len(choices),
    choices,
    padding=True,
    truncation=True,  # cut as in tuning
    return_tensors="pt",
)
with torch.no_grad():
    logits = model(**{{name: tensor[None] for name, tensor in inputs.items()}}).logits
print(choices[logits.argmax()])"""


def _find_name(model: Mapping[str, Any]) -> str:
    """Name a model; a folder by its last part alone, since the card may be published."""
    name = str(model["name"])
    return Path(name).name if model["revision"] is None else name
