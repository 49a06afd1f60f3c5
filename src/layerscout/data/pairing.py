"""Two models on the same rows, from the predictions that `tune` and `evaluate` keep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscout.data.intervals import find_difference
from layerscout.data.metrics import evaluate
from layerscout.data.predictions import find_certainty
from layerscout.data.tables import make_plain
from layerscout.data.words import Tags
from layerscout.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

# Flips that are listed of each direction, characters of their texts, and words around a word.
LISTED, LONGEST, AROUND = 20, 300, 6
# What tells whether two tables are of the same rows.
_ROW_COLUMNS = ("row", "word", "text", "text_pair", "choices", "label")


def pair_predictions(
    folders: Sequence[Path], contents: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Compare two models on rows that both have predicted: of test if these are the same, or else
    of validation.

    Args:
        folders: that hold a `predictions.parquet` each.
        contents: of their `result.json`, or of their `evaluate.json`.

    Returns:
        Under "unpaired" why the two cannot be compared row by row; else None, and
        "split", "examples" (or words), "metric", "values", "difference", "interval" (95 %), and
        "flips": None for numbers, else how many answers are right in the second alone ("gained"),
        in the first alone ("lost"), in both and in neither, and the surest of the first two.
    """
    first, second = contents
    kind, metric = first["task"]["kind"], first["metric"]
    names, second_names = (
        [str(name) for name in content["task"]["labels"]] for content in contents
    )
    if kind != second["task"]["kind"]:
        return {"unpaired": "the two have different kinds of tasks"}
    if sorted(names) != sorted(second_names):
        return {"unpaired": "the two have different labels"}
    frames = []
    for folder in folders:
        frame = _read_predictions(folder / "predictions.parquet")
        if frame is None:
            return {"unpaired": f"{folder} has no predictions.parquet"}
        frames.append(frame)
    tested = all("test" in set(frame["split"]) for frame in frames)
    splits = ["test", "validation"] if tested else ["validation"]
    for split in splits:
        rows, second_rows = (
            frame[frame["split"] == split].reset_index(drop=True) for frame in frames
        )
        if _have_same_rows(rows, second_rows):
            break
    else:
        return {"unpaired": f"the two were judged on different {splits[0]} rows"}
    outputs = [np.stack(list(frame["logits"])).astype(np.float64) for frame in (rows, second_rows)]
    if any(np.isnan(logits).any() for logits in outputs):
        return {"unpaired": "some logits are not finite"}
    if kind not in ("regression", "multiple_choice"):
        outputs[1] = outputs[1][:, [second_names.index(name) for name in names]]
    labels, tags = _read_labels(kind, names, rows)
    thresholds = (_read_thresholds(first, names), _read_thresholds(second, names))
    difference, interval = find_difference(
        metric, labels, (outputs[0], outputs[1]), tags=tags, thresholds=thresholds
    )
    flips = None
    if kind != "regression":
        several = kind == "multi_label_classification"
        certainty = [find_certainty(logits, several=several) for logits in outputs]
        flips = _find_flips(rows, second_rows, certainty)
    return {
        "unpaired": None,
        "split": split,
        "examples": len(rows),
        "metric": metric,
        "values": [
            evaluate(metric, labels, logits, tags=tags, thresholds=least)
            for logits, least in zip(outputs, thresholds, strict=True)
        ],
        "difference": difference,
        "interval": None if interval is None else list(interval),
        "flips": flips,
    }


def find_row_interval(
    first: Mapping[str, Any], second: Mapping[str, Any]
) -> tuple[float, float] | None:
    """Return the 95 % interval of how far the second of two tunings of a study is above the first.

    Args:
        first: the result of a tuning of a study, with its predictions.
        second: the same of another one.

    Returns:
        None unless both kept the predictions of the same examples, and these make up the metric.
    """
    both, metric = (first, second), first["metric"]
    if not all("kind" in result for result in both) or first["labels"] != second["labels"]:
        return None
    if metric == "lrap":  # it needs to know which labels are likelier, and that is not kept
        return None
    given, predicted = first["labels"], [result["predictions"] for result in both]
    names, tags = first["label_names"], None
    match first["kind"]:
        case "regression":
            labels = np.array(given, dtype=np.float64)
            outputs = [np.array(values, dtype=np.float64)[:, None] for values in predicted]
        case "multi_label_classification":
            numbers = range(len(names))
            labels = _mark(given, numbers)
            outputs = [np.where(_mark(sets, numbers), 1.0, -1.0) for sets in predicted]
        case "token_classification":
            tags = Tags(tuple(names), np.repeat(np.arange(len(given)), [*map(len, given)]))
            labels = np.concatenate(given, dtype=np.int64)
            outputs = [np.eye(len(names))[np.concatenate(ids, dtype=np.int64)] for ids in predicted]
        case _:
            labels = np.array(given)
            count = max(len(names), 1 + max(map(max, predicted)))  # a choice has no name
            outputs = [np.eye(count)[choices] for choices in predicted]
    return find_difference(metric, labels, (outputs[0], outputs[1]), tags=tags)[1]


def _mark(sets: Iterable[Iterable[Any]], labels: Iterable[Any]) -> np.ndarray:
    """Return which of all labels each example has, bool (n, K)."""
    return np.array([[label in row for label in labels] for row in map(set, sets)], bool)


def _read_predictions(path: Path) -> pd.DataFrame | None:
    """Read the predictions of the model without edits; None if the file is missing.

    Those of `evaluate` are of validation rows and do not say so.
    """
    import pandas as pd

    try:
        frame = pd.read_parquet(path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is not what layerscout writes; run the verb again") from error
    if "split" not in frame:
        frame["split"] = "validation"
    for name in frame.columns.intersection(["choices", "label", "prediction"]):
        frame[name] = [make_plain(value) for value in frame[name]]
    return frame[frame["edit"] == ""] if "edit" in frame else frame


def _have_same_rows(rows: pd.DataFrame, second_rows: pd.DataFrame) -> bool:
    """Return whether two tables are of the same texts and labels, in one order."""
    return len(rows) == len(second_rows) > 0 and all(
        name in second_rows and rows[name].tolist() == second_rows[name].tolist()
        for name in _ROW_COLUMNS
        if name in rows
    )


def _read_labels(
    kind: str, names: Sequence[str], frame: pd.DataFrame
) -> tuple[np.ndarray, Tags | None]:
    """Return labels as `evaluate` takes them, and of words what joins their tags."""
    labels = frame["label"]
    match kind:
        case "regression":
            return labels.to_numpy(np.float64), None
        case "multiple_choice":
            return labels.to_numpy(np.int64), None
        case "multi_label_classification":
            return _mark(labels, names), None
    ids = np.array([names.index(str(label)) for label in labels], np.int64)
    if kind != "token_classification":
        return ids, None
    sentences = np.cumsum(frame["word"].to_numpy() == 0) - 1
    return ids, Tags(tuple(names), sentences.astype(np.int64))


def _read_thresholds(content: Mapping[str, Any], names: Sequence[str]) -> np.ndarray | None:
    thresholds = content.get("thresholds")
    return None if not thresholds else np.array([thresholds[name] for name in names])


def _find_flips(
    rows: pd.DataFrame, second_rows: pd.DataFrame, certainty: Sequence[np.ndarray]
) -> dict[str, Any]:
    """Count and list what one model gets right and the other wrong; the surest contradiction first.

    A contradiction is as sure as the less certain of the two models.
    """
    right = [
        np.array([a == b for a, b in zip(frame["label"], frame["prediction"], strict=True)])
        for frame in (rows, second_rows)
    ]
    sure = np.minimum(*certainty)
    parts = {"gained": right[1] & ~right[0], "lost": right[0] & ~right[1]}
    listed = {
        f"{name}_listed": [
            {
                "row": int(rows["row"][n]),
                "text": _show_text(rows, int(n)),
                "label": _name(rows["label"][n]),
                "predictions": [_name(frame["prediction"][n]) for frame in (rows, second_rows)],
                "probabilities": [float(values[n]) for values in certainty],
            }
            for n in sorted(np.flatnonzero(part), key=lambda n: -sure[n])[:LISTED]
        ]
        for name, part in parts.items()
    }
    return {
        **{name: int(part.sum()) for name, part in parts.items()},
        "both": int((right[0] & right[1]).sum()),
        "neither": int((~right[0] & ~right[1]).sum()),
        **listed,
    }


def _name(value: Any) -> str:
    """Name a label, or several."""
    return ", ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)


def _show_text(frame: pd.DataFrame, n: int) -> str:
    """Return a text with its pair or its choices, or a word within its sentence."""
    text = str(frame["text"][n])
    if "word" in frame:
        start, end = n - int(frame["word"][n]), n + 1
        while end < len(frame) and frame["word"][end] != 0:
            end += 1
        before = " ".join(map(str, frame["text"][max(start, n - AROUND) : n]))
        after = " ".join(map(str, frame["text"][n + 1 : min(end, n + 1 + AROUND)]))
        return f"{before} [{text}] {after}".strip()[:LONGEST]
    if "text_pair" in frame:
        text = f"{text} / {frame['text_pair'][n]}"
    if "choices" in frame:
        text = " / ".join(
            [text, *(f"{k}: {choice}" for k, choice in enumerate(frame["choices"][n]))]
        )
    return text[:LONGEST]
