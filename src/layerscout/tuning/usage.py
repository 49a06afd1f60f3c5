"""The code on a tuned model's card that loads the model and asks it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from layerscout.models import overlap_windows


def show_usage(content: Mapping[str, Any]) -> str:
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
    {json.dumps(find_name(content["model"]))},
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


def find_name(model: Mapping[str, Any]) -> str:
    """Name a model; a folder by its last part alone, since the card may be published."""
    name = str(model["name"])
    return Path(name).name if model["revision"] is None else name
