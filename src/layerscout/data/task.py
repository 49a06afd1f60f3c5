"""A labelled task: texts, labels and splits, from a file, a folder, the hub, the demo or lists."""

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

import numpy as np

from layerscout.data.columns import Inputs, choose_inputs, column_template
from layerscout.data.known_tasks import KNOWN, Kind, find_known_task
from layerscout.data.lines import Format
from layerscout.data.rare import REPEATED, settle_rare, warn_of_repeats
from layerscout.data.reading import choose_metric, read_splits
from layerscout.data.sampling import Split, hold_out, number_texts
from layerscout.data.sources import find, is_local, open_file
from layerscout.data.tables import NUMBER, Rows, Source, from_memory
from layerscout.errors import InputError, LayerscoutError, check_integer, make_unknown_error


class ReadingOptions(TypedDict, total=False):
    """What is read by `Task.load`, and how.

    Attributes:
        task: a key of `KNOWN`; data sets on the hub imply theirs, names of files never do.
        text: the column of the texts, or of lists of words; guessed from the usual names when
            not given.
        text_pair: the column of the second texts; needs `text`.
        label: the column of the labels, of lists of them, or of lists of tags of the words;
            guessed when not given. Several columns, in a sequence or with commas between
            them, hold 0 or 1 for a label each.
        label_separator: what stands between the labels of a text, such as "|", if they are one
            string.
        regression: read the labels as numbers to predict.
        validation: a file to validate on, or the fraction of the training rows to hold out;
            either goes before a validation split that the data brings along.
        test: a file for the final figures of a tuning, in place of a test split that the data
            brings along; one without labels is left out, with a warning. False reads none.
        drop_missing: leave out rows without a text or a label, with a warning.
        drop_rare: leave out classes that fewer training rows have.
        merge_rare: make one class, "other", of those that fewer training rows have.
        sep: what stands between the fields of .csv and .tsv files, a character or "tab"; by
            default the first of `,`, `;`, tab and `|` that the line of a CSV's names has.
        encoding: of text files, as Python calls it; by default UTF-8, with a warning UTF-16 or
            Windows-1252 where they are that.
    """

    validation: str | Path | float | int | None
    test: str | Path | Literal[False] | None
    task: str | None
    text: str | None
    text_pair: str | None
    label: str | Sequence[str] | None
    label_separator: str | None
    regression: bool
    drop_missing: bool
    drop_rare: int | None
    merge_rare: int | None
    sep: str | None
    encoding: str | None


DEFAULTS: Mapping[str, Any] = {
    **dict.fromkeys(ReadingOptions.__annotations__),
    **{"regression": False, "drop_missing": False},
}


@dataclass(frozen=True)
class Task:
    """A labelled task.

    Attributes:
        name: the known task, or else the name of the file, folder or hub data set.
        kind: "classification", "multi_label_classification" (any number of labels for a text),
            "token_classification" (a label for every word), "regression" or "multiple_choice" (a
            row per example and choice, labelled wrong or right).
        labels: names of classes, labels or tags by id; none for regression.
        metric: a key of `METRICS_OF` for the kind, such as "accuracy".
        train: what is learnt from.
        validation: what is held out, or None.
        test: what nothing is chosen by, for the final figures; None where there is none.
        columns: what was read as "text", "text_pair" and "label": a column's name, or for known
            tasks a template.
        warnings: what was accepted but should be known, a line each.
        origin: what was given to make it ("data", "validation", "test", "task", "text",
            "text_pair", "label", "label_separator", "regression", "drop_missing",
            "drop_rare", "merge_rare", "sep", "encoding"), the "validation_seed" that drew held-out
            rows, the name on the "hub", and the "data_sha256" of the texts and the "labels_sha256"
            of the labels that there were; None where there was nothing.
        repeated: the one of `warnings` that validation rows are training rows, too, which flatters
            no figure of rows that folds keep together; None where they are not.
    """

    name: str
    kind: Kind
    labels: tuple[str, ...]
    metric: str
    train: Split
    validation: Split | None
    columns: Mapping[str, str]
    warnings: tuple[str, ...] = ()
    origin: Mapping[str, str | float | bool | None] = field(default_factory=dict, repr=False)
    test: Split | None = None
    repeated: str | None = None

    @classmethod
    def load(
        cls,
        data: str | Path,
        *,
        seed: int = 0,
        classes: Sequence[str] = (),
        **options: Unpack[ReadingOptions],
    ) -> "Task":
        """Read a task from a file, standard input, a folder of splits, the hub or the demo.

        Args:
            data: a .csv, .tsv, .json, .jsonl, .ndjson, .parquet, .conll, .iob, .bio or .conllu
                file, all but .parquet also compressed (.csv.gz); "-" for standard input, whose
                content tells whether it is CSV, TSV, JSON or Parquet; a folder with `train.*` and
                perhaps `validation.*` and `test.*`, each one file or numbered parts, or with many
                .parquet or .jsonl files; `folder/config` of a copy of a hub data set; a pattern of
                files, or a URL that fsspec knows; the word "demo" (`./demo` for a folder of that
                name); or a hub data set as `name[/config]`. A path that exists goes first.
            seed: draws the held-out rows.
            classes: of a model that is judged, by id: rows that have no others need not have all.
            **options: what is read, and how: the keys of `layerscout.data.ReadingOptions`.

        Raises:
            InputError: if the data cannot be found, read or used; one line says why.
        """
        if unknown := options.keys() - DEFAULTS.keys():
            raise TypeError(f"Task.load() got an unexpected keyword argument {min(unknown)!r}")
        given = {**DEFAULTS, **options}
        validation, test, label = given["validation"], given["test"], given["label"]
        form, fraction = Format(given["sep"], given["encoding"]), _fraction(validation)
        named = (None if fraction is not None else validation, test or None)
        name, hub, sources = find(data, form, [Path(str(one)) for one in named if one is not None])
        labels = label if label is None or isinstance(label, str) else ",".join(label)
        task = _check_task(given["task"], hub, labels)
        if fraction is not None:
            sources.pop("validation", None)
        elif validation is not None:
            sources["validation"] = open_file(Path(str(validation)), form)
        if test is False:
            sources.pop("test", None)
        elif test is not None:
            sources["test"] = open_file(Path(test), form)
        columns = given["text"], given["text_pair"], label, given["label_separator"]
        loaded = _build(
            task or name,
            sources,
            choose_inputs(sources["train"], task, *columns),
            task,
            regression=given["regression"],
            optional="test" if test is None else None,
            drop_missing=given["drop_missing"],
            classes=tuple(classes),
            rare=(given["drop_rare"], given["merge_rare"]),
        )
        origin = {
            "data": str(data),
            **given,
            "validation": None if validation is None else str(validation),
            "test": str(test) if test else None,
            "task": task,
            "label": labels,
            "hub": hub,
            **_hash_rows(loaded),
        }
        loaded = replace(loaded, origin=origin)
        return loaded if fraction is None else loaded.hold_out(fraction, seed)

    @classmethod
    def from_lists(
        cls,
        texts: Rows,
        labels: Rows,
        *,
        pairs: Rows | None = None,
        name: str = "task",
        regression: bool = False,
        validation: tuple[Rows, ...] | float | int | None = None,
        test: tuple[Rows, ...] | None = None,
        seed: int = 0,
    ) -> "Task":
        """Make a task from lists, with the same checks as for files.

        Args:
            texts: n strings, or n lists of words.
            labels: n strings, integers or booleans; n numbers with `regression`; n lists of the
                labels of a text; or n lists of the tags of the words.
            pairs: n second texts.
            name: what to call the task.
            regression: read the labels as numbers to predict.
            validation: `(texts, labels)` or `(texts, labels, pairs)` to validate on, or the
                fraction of the rows to hold out.
            test: `(texts, labels)` or `(texts, labels, pairs)` for the final figures of a tuning.
            seed: draws the held-out rows.

        Raises:
            InputError: if the lists cannot be used.
        """
        sources = {"train": from_memory(name, texts, labels, pairs)}
        fraction = None
        if isinstance(validation, tuple):
            sources["validation"] = from_memory(f"{name} (validation)", *validation)
        else:
            fraction = _fraction(validation)
        if test is not None:
            sources["test"] = from_memory(f"{name} (test)", *test)
        texts_in = ("text",) if pairs is None else ("text", "text_pair")
        inputs = Inputs(tuple(map(column_template, texts_in)), "label")
        loaded = _build(name, sources, inputs, None, regression=regression)
        return loaded if fraction is None else loaded.hold_out(fraction, seed)

    def renumber(self, labels: Sequence[str]) -> "Task":
        """Return the task of classes with other numbers, and with classes that no row has.

        Args:
            labels: names by id; all of the task's own are among them.
        """
        ids = np.array([labels.index(name) for name in self.labels])

        def renumbered(part: Split) -> Split:
            if part.labels.ndim == 1:
                return replace(part, labels=ids[part.labels])
            marks = np.zeros((len(part), len(labels)), dtype=bool)
            marks[:, ids] = part.labels
            return replace(part, labels=marks)

        validation, test = (
            None if part is None else renumbered(part) for part in (self.validation, self.test)
        )
        train = renumbered(self.train)
        return replace(self, labels=tuple(labels), train=train, validation=validation, test=test)

    def hold_out(self, fraction: float, seed: int, *, least: int = 2) -> "Task":
        """Return the task with a part of its training rows, drawn by class, for validation.

        Where many rows have the same text, those stay together.

        Args:
            fraction: between 0 and 1.
            seed: the same one draws the same rows.
            least: examples of a class that stay in training.

        Raises:
            InputError: if `fraction` is not between 0 and 1, or leaves either part empty.
        """
        check_integer("seed", seed, 0)
        train, validation = hold_out(self.train, fraction, seed, least=least)
        origin = {**self.origin, "validation": fraction, "validation_seed": seed}
        repeated = _warn_of_repeated({"train": train, "validation": validation})
        if repeated and self.kind != "multiple_choice":
            together = number_texts(self.train)
            with suppress(InputError):  # too few texts: the warning stands
                train, validation = hold_out(
                    self.train, fraction, seed, least=least, together=together
                )
                repeated = _warn_of_repeated({"train": train, "validation": validation})
        return replace(
            self,
            train=train,
            validation=validation,
            origin=origin,
            warnings=(*self.warnings, *repeated.values()),
            repeated=repeated.get(("validation", "train")),
        )


def reload_task(origin: Mapping[str, Any]) -> Task | None:
    """Load a task again, with the same rows set aside; None where its data cannot be read any more.

    Args:
        origin: as `Task.origin`, among other settings.
    """
    data = origin.get("data")
    if data is None or not (data == "demo" or is_local(data)):  # never from the hub, unasked
        return None
    options: Any = {name: origin[name] for name in DEFAULTS if name in origin}
    seed = origin.get("validation_seed") or 0
    with suppress(LayerscoutError):
        return Task.load(data, **(options | {"test": False}), seed=seed)
    return None


def _hash_rows(task: Task) -> dict[str, str]:
    """Hash the texts, and the labels, that training and validation come from, in their order."""
    texts_hash = hashlib.sha256()
    labels_hash = hashlib.sha256("\0".join(task.labels).encode("utf-8", "surrogatepass"))
    for split in (task.train, task.validation):
        for texts in () if split is None else (split.texts, split.pairs or ()):
            for text in texts:
                texts_hash.update(f"{text}\0".encode("utf-8", "surrogatepass"))
            texts_hash.update(b"\1")
        labels_hash.update(b"" if split is None else np.ascontiguousarray(split.labels).data)
    return {"data_sha256": texts_hash.hexdigest(), "labels_sha256": labels_hash.hexdigest()}


def _check_task(task: str | None, hub: str | None, labels: str | None) -> str | None:
    """Return the key of `KNOWN` that is given, or that of a data set on the hub; None for none."""
    if task is not None and task not in KNOWN:
        raise make_unknown_error("task", task, KNOWN)
    return find_known_task(hub, labels) if task is None and hub is not None else task


def _fraction(validation: str | Path | float | int | None) -> float | None:
    """Return the fraction that `validation` stands for, or None where it is a file or nothing."""
    if validation is None or isinstance(validation, Path):
        return None
    is_name = isinstance(validation, str) and not NUMBER.fullmatch(validation)
    return None if is_name else float(validation)


def _build(
    name: str,
    sources: Mapping[str, Source],
    inputs: Inputs,
    task: str | None,
    *,
    rare: tuple[int | None, int | None] = (None, None),
    classes: tuple[str, ...] = (),
    **more: Any,
) -> Task:
    """Read every split and put the task together; for all else see `read_splits`.

    Args:
        rare: the rows below which classes are left out, or merged.
    """
    known = None if task is None else KNOWN[task]
    sources = {part: sources[part] for part in ("train", "validation", "test") if part in sources}
    given = any(rare)  # then classes of a model may be what others are merged into
    more |= {"classes": () if given else classes, "rare": given}
    kind, labels, splits, warnings = read_splits(name, sources, inputs, known, **more)
    labels, splits, noted = settle_rare(sources["train"].name, kind, labels, splits, *rare)
    warnings += [] if classes and not given else noted  # such rows teach nothing
    if known is None:
        warnings += warn_of_repeats(sources["train"].name, kind, labels, splits["train"])
    train = splits["train"]
    metric = known.metric if known else choose_metric(kind, labels, train, warnings)
    text, *pairs = (template.written for template in inputs.templates)
    pair = {"text_pair": " | ".join(pairs)} if pairs else {}
    repeated = _warn_of_repeated(splits)
    built = Task(
        name=name,
        kind=kind,
        labels=labels,
        metric=metric,
        train=train,
        validation=splits.get("validation"),
        columns={"text": text, **pair, "label": inputs.label},
        warnings=(*warnings, *repeated.values()),
        test=splits.get("test"),
        repeated=repeated.get(("validation", "train")),
    )
    return built.renumber(classes) if given and {*labels} <= {*classes} else built


def _warn_of_repeated(splits: Mapping[str, Split]) -> dict[tuple[str, str], str]:
    """Warn of held-out rows that are training rows as well, and of test rows that are validation's.

    Validation rows choose the epoch. The lines are found by the two splits.
    """
    compared = [("validation", "train"), ("test", "train"), ("test", "validation")]
    warnings = {}
    for which, other in compared:
        if which not in splits or other not in splits:
            continue
        split, name = splits[which], "training" if other == "train" else other
        count = count_repeated(split, splits[other])
        if count > REPEATED * len(split):
            warnings[which, other] = (
                f"{count:,} of {len(split):,} {which} rows are also {name} rows, so the "
                f"{which} figures are too good; remove them from {name}"
            )
    return warnings


def count_repeated(split: Split, other: Split) -> int:
    """Count the rows of a split whose text, or pair of texts, another split has too."""
    rows = [*split.pair_texts()]
    # Of the other one, which may be large, no copy is made.
    seen = {*rows}.intersection(other.pair_texts())
    return sum(row in seen for row in rows)
