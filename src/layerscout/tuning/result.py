"""What tuning gives back: the model, what is known of it, and the files."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np

from layerscout.plans import Plan
from layerscout.runtime import make_output_folder, replace_files
from layerscout.tuning.snapshots import Snapshots


@dataclass(frozen=True, eq=False)
class Result:
    """A tuned model, and all that is known of it.

    Attributes:
        model: the transformers model of the epoch that counts, in eval mode.
        tokenizer: its tokenizer.
        content: what `result.json` holds.
        predictions: row in the validation file, label, prediction and logits of every example.
    """

    model: Any
    tokenizer: Any
    content: Mapping[str, Any]
    predictions: Mapping[str, Sequence[Any] | np.ndarray]
    write: Callable[[Path, str], None]
    snapshots: Snapshots | None = None

    @property
    def plan(self) -> Plan:
        """What was tuned."""
        return Plan.from_dict(self.content["plan"])

    @property
    def metrics(self) -> dict[str, float]:
        """Every metric of the kept model on the validation split, by name."""
        return dict(self.content["metrics"])

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the reader of the figures should know."""
        return tuple(self.content["warnings"])

    def save(self, folder: str | Path) -> None:
        """Write `model/`, `result.json` and `predictions.parquet` into `folder`.

        `model/` is an ordinary checkpoint with a model card: `from_pretrained` of transformers'
        Auto class for the task loads it, and, but for multiple choice, `pipeline`. Earlier files
        are replaced once the new ones are whole.

        Raises:
            InputError: if something cannot be written.
        """
        import pandas as pd

        folder = make_output_folder(Path(folder).expanduser())
        written = json.dumps(plain_json(self.content), indent=1, allow_nan=False) + "\n"
        # All of it is there under other names before any of it takes its place.
        with replace_files(folder / "result.json", folder / "predictions.parquet") as temporary:
            temporary[0].write_text(written, encoding="utf-8")
            pd.DataFrame(self.predictions).to_parquet(temporary[1], index=False)
            self.write(folder / "model", model_card(self.content))
        if self.snapshots is not None:
            self.snapshots.discard()


def plain_json(content: Any) -> Any:
    """Give what JSON can hold, so that no number loses a training: null where it is not finite."""
    match content:
        case Mapping():
            return {str(key): plain_json(value) for key, value in content.items()}
        case list() | tuple():
            return [plain_json(value) for value in content]
        case None | bool() | str():
            return content
        case Integral():
            return int(content)
        case Real():
            return float(content) if isfinite(content) else None
    return str(content)


def summary(content: Mapping[str, Any]) -> str:
    """Say in one line what was tuned, what it cost and how good it is, from `result.json`."""
    plan, model, metric = content["plan"], content["model"], content["metric"].replace("_", " ")
    keep = content["keep"]
    blocks = f"{len(plan['tuned'])} of {model['blocks']} blocks"
    line = f"tuned {blocks if plan['tuned'] else 'the head only'}{_by(content)}"
    if model["editing"]:
        line += f" after {model['editing']['edits']}"
    other = content["against"]
    if other is None:
        share = content["flops"]["train"] / content["flops"]["full_train"]
        value = content[keep]["value"]
        return f"{line}, {share:.0%} of the FLOPs of full fine-tuning, {metric} {value:.3f}"
    spent, others = (one["seconds"]["trunk"] + one["seconds"]["train"] for one in (content, other))
    full = len(other["plan"]["tuned"]) == other["plan"]["head"] == model["blocks"]
    everything = "full fine-tuning" if content["method"] == "full" else "all blocks"
    name = everything if full else other["plan"]["notation"]
    return (
        f"{line}, {spent / others:.0%} of the time of {name}, {metric} "
        f"{content[keep]['value']:.3f} vs {other[keep]['value']:.3f}"
    )


def _by(content: Mapping[str, Any]) -> str:
    """Say how the blocks were tuned, where it is not by all of their weights."""
    options = content["method_options"]
    match content["method"]:
        case "adapter":
            return f" by adapters (bottleneck {options['bottleneck']})"
        case "lora":
            return f" by LoRA (rank {options['rank']})"
        case "prefix-tuning":
            return f" by prefix-tuning ({options['virtual_tokens']} virtual tokens)"
    return ""


def model_card(content: Mapping[str, Any]) -> str:
    """Write the README.md of a tuned model: what it is, how it was made, how good, at what cost.

    Args:
        content: what `result.json` holds.
    """
    model, task, plan, settings = (content[key] for key in ("model", "task", "plan", "settings"))
    run, flops = content["runs"][content["kept"]], content["flops"]
    speed, kept = content["examples_per_second"], content[content["keep"]]
    removed = model["blocks"] - plan["head"]
    tuned = ", ".join(map(str, plan["tuned"])) or "none"
    facts = {
        "Made from": f"{_name(model)} ({model['family']}, {model['blocks']} blocks)",
        "Task": f"{_plain(task['name'])}, {_asked(task)}",
        **({"Blocks edited first": model["editing"]["edits"]} if model["editing"] else {}),
        "Plan": f"{plan['notation']}: blocks tuned: {tuned}{_by(content)}; the head reads state "
        f"{plan['head']}"
        + (f"; removed above it: {removed} of {model['blocks']} blocks" if removed else ""),
        "Parameters": f"{content['parameters']['total']:,}, of which "
        f"{content['parameters']['trainable']:,} were trained",
        "Training": f"{task['examples_used']:,} examples, inputs cut at {settings['max_length']} "
        f"tokens, batches of {settings['batch_size']}, learning rate {run['learning_rate']:g}, "
        f"seed {run['seed']}; epoch {kept['epoch']} of {settings['epochs']} kept",
        "Cost": f"{flops['train']:.3g} FLOPs by count for {_counted(settings)}, "
        f"{flops['train'] / flops['full_train']:.0%} of full fine-tuning; inference "
        f"{flops['inference'] / flops['full_inference']:.0%}",
    }
    if speed is not None:
        facts["Speed"] = (
            f"{speed['kept_model']:.0f} examples/s where it was made; the full model "
            f"{speed['full_model']:.0f}"
        )
    metrics = "\n".join(f"| {name} | {value:.4f} |" for name, value in content["metrics"].items())
    listed = "\n".join(f"- {name}: {fact}" for name, fact in facts.items())
    tag = "multiple-choice" if task["kind"] == "multiple_choice" else "text-classification"
    library = {"ours": "layerscout", "peft": "peft"}.get(content["saved_as"], "transformers")
    front = f"---\nlibrary_name: {library}\npipeline_tag: {tag}\n---\n"
    return f"""{front}
# {_name(model)} tuned on {_plain(task["name"])}

{listed}

On {settings["validation_examples"]:,} validation examples{_chosen(content)}:

| metric | value |
| --- | --- |
{metrics}

```python
{_usage(content)}
```

Made by layerscout {content["layerscout"]}.
"""


def _asked(task: Mapping[str, Any]) -> str:
    """Say what the model tells of a text."""
    if task["kind"] == "regression":
        return "a number"
    if task["kind"] == "multiple_choice":
        return f"one of {task['choices']} choices"
    return f"classes {', '.join(map(_plain, task['labels']))}"


def _usage(content: Mapping[str, Any]) -> str:
    """Show how the model is loaded and asked, with inputs cut as they were in tuning."""
    task, max_length = content["task"], content["settings"]["max_length"]
    if content["saved_as"] == "ours":
        return """import layerscout
from transformers import AutoTokenizer

model = layerscout.load("path/to/this/folder")  # the base with what was trained in it
tokenizer = AutoTokenizer.from_pretrained(model.name_or_path)  # the base's"""
    if content["saved_as"] == "peft":
        head, outputs = content["plan"]["head"], len(task["labels"]) or 1
        kind = "MultipleChoice" if task["kind"] == "multiple_choice" else "SequenceClassification"
        return f"""from peft import PeftModel
from transformers import AutoModelFor{kind}

base = AutoModelFor{kind}.from_pretrained(
    {json.dumps(_name(content["model"]))}, num_hidden_layers={head}, num_labels={outputs}
)
model = PeftModel.from_pretrained(base, "path/to/this/folder")"""
    if task["kind"] == "multiple_choice":
        return f"""import torch
from transformers import AutoModelForMultipleChoice, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("path/to/this/folder")
model = AutoModelForMultipleChoice.from_pretrained("path/to/this/folder")
choices = {json.dumps([f"choice {number}" for number in range(1, task["choices"] + 1)])}
inputs = tokenizer(
    ["some text"] * len(choices),
    choices,
    padding=True,
    truncation=True,
    max_length={max_length},  # as it was tuned
    return_tensors="pt",
)
with torch.no_grad():
    logits = model(**{{name: tensor[None] for name, tensor in inputs.items()}}).logits
print(choices[logits.argmax()])"""
    text = '"some text"'
    if "text_pair" in task["columns"]:
        text = '{"text": "some text", "text_pair": "its second text"}'
    name = "score" if task["kind"] == "regression" else "classify"
    return f"""from transformers import pipeline

{name} = pipeline("text-classification", "path/to/this/folder")
{name}({text}, truncation=True, max_length={max_length})  # as it was tuned"""


def _name(model: Mapping[str, Any]) -> str:
    """Name a model; of a folder the last part, since the rest is nobody's business."""
    name = str(model["name"])
    return _plain(Path(name).name if model["revision"] is None else name)


def _chosen(content: Mapping[str, Any]) -> str:
    """Say what the validation examples chose, which makes their figures a little too good."""
    runs = content["runs"]
    what = ["the epoch"] if content["keep"] == "best" else []
    what += ["the learning rate"] if len({run["learning_rate"] for run in runs}) > 1 else []
    what += ["the seed"] if len({run["seed"] for run in runs}) > 1 else []
    return f", which also chose {' and '.join(what)}" if what else ""


def _counted(settings: Mapping[str, Any]) -> str:
    number, unit = settings["epochs"], "epoch"
    if settings["max_steps"] is not None:
        number, unit = settings["max_steps"], "step"
    return f"{number:,} {unit}{'s' if number > 1 else ''}"


def _plain(text: str) -> str:
    """Escape what Markdown or HTML would read as more than text, and drop what turns it round."""
    straight = re.sub("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]", "", str(text))
    escaped = html.escape(" ".join(straight.split()), quote=False)
    return re.sub(r"([\\`*_\[\]|#~])", r"\\\1", escaped)
