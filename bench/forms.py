"""Ask every form of a head on the mean for the logits of 1,000 texts, through its own library.

python bench/forms.py MODEL ... --shared ../shared

For each model, a head that is solved and one that is trained: by how much the logits of each form
are off from those that `tune` reports, as a share of their spread, and how many texts get another
class.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

import layerscout as ls
from layerscout.models import Encoder, load_tuned_classifier
from measuring import table

ROWS, TRAINING = 1000, 500
# Of their library's own: batches, which the graph takes as they come.
BATCH = 32


def ask_transformers(folder: Path, texts: Sequence[str]) -> np.ndarray:
    from transformers import pipeline

    classify = pipeline("text-classification", str(folder), top_k=None, device="cpu")
    scores = classify(list(texts), function_to_apply="none", truncation=True, batch_size=BATCH)
    names = classify.model.config.id2label.values()
    rows = [{one["label"]: one["score"] for one in row} for row in scores]
    return np.array([[row[name] for name in names] for row in rows])


def ask_sentence_transformers(folder: Path, texts: Sequence[str]) -> np.ndarray:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu").encode(list(texts), batch_size=BATCH)


def ask_onnx(folder: Path, texts: Sequence[str]) -> np.ndarray:
    from onnxruntime import InferenceSession
    from transformers import AutoTokenizer

    inner = folder / "0_Transformer"
    tokenizer = AutoTokenizer.from_pretrained(inner if inner.exists() else folder)
    session = InferenceSession(str(folder / "onnx" / "model.onnx"))
    found = []
    for start in range(0, len(texts), BATCH):
        batch = list(texts[start : start + BATCH])
        inputs = tokenizer(batch, padding=True, truncation=True, return_tensors="np")
        found.append(session.run(["logits"], {k: v.astype(np.int64) for k, v in inputs.items()})[0])
    return np.concatenate(found)


def ask_layerscout(folder: Path, texts: Sequence[str]) -> np.ndarray:
    import torch

    encoder = Encoder.load(folder, device="cpu")
    model, tokens = load_tuned_classifier(encoder), encoder.tokenize(texts)
    logits = np.empty((len(texts), model.config.num_labels))
    with torch.inference_mode():
        for rows in encoder.batches(tokens):
            logits[rows] = model(**encoder.batch(tokens, rows)).logits.numpy()
    return logits


FORMS: dict[str, Callable[[Path, Sequence[str]], np.ndarray]] = {
    "transformers, pipeline": ask_transformers,
    "sentence-transformers": ask_sentence_transformers,
    "onnxruntime": ask_onnx,
    "layerscout, loaded again": ask_layerscout,
}


def compare(model: str, task: ls.Task, head: str) -> list[list[str]]:
    """Tune a head, write all of its forms, and compare their logits with the reported ones."""
    plan, options = ("head:best", {}) if head == "solved" else ("top:1", {"epochs": 1})
    if head == "trained":
        options["classifier"] = "mean-linear"
    encoder = Encoder.load(model, device="cpu")
    rows = []
    with tempfile.TemporaryDirectory() as place:
        result = ls.tune(encoder, task, plan, examples=TRAINING, progress=False, **options)
        result.save(place)
        folder = Path(place) / "model"
        ls.add_formats(folder, ["sentence-transformers-classifier", "onnx"])
        rows_of = np.array(result.predictions["split"]) == "test"
        reported = np.stack(list(result.predictions["logits"]))[rows_of]
        for name, ask in FORMS.items():
            if name.startswith("transformers") and result.content["saved_as"] != "checkpoint":
                continue
            found = ask(folder, task.test.texts)
            off = np.abs(found - reported).max() / reported.std()
            other = int((found.argmax(axis=1) != reported.argmax(axis=1)).sum())
            rows.append(
                [Path(model).name, head, result.plan.notation, name, f"{off:.1e}", str(other)]
            )
            print(rows[-1], file=sys.stderr)
    return rows


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--data", default="ag_news")
    options = parser.parse_args()
    task = ls.Task.load(options.shared / "data" / options.data)
    task = replace(task, test=task.test.take(np.arange(ROWS)))
    rows = [
        row
        for model in options.models
        for head in ("solved", "trained")
        for row in compare(model, task, head)
    ]
    columns = ["model", "head", "plan", "form", "off, of the spread", "other classes"]
    print(table(columns, rows))


if __name__ == "__main__":
    main()
