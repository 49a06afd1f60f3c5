"""A scan that the machines of a cluster share: each adds up files, and the sums are merged."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any, get_args
from uuid import uuid4

import numpy as np
import torch

from layerscout.data import (
    KNOWN,
    Inputs,
    Shards,
    Split,
    Task,
    choose_inputs,
    count_classes,
    join_names,
)
from layerscout.models import Encoder, Precision
from layerscout.plans import Pooling, ScanRequest, usual_pooling
from layerscout.runtime import (
    Cluster,
    InputError,
    Show,
    make_unknown_error,
    run_on_cluster,
    show_progress,
)
from layerscout.scanning.description import describe_model, describe_task, diagnose
from layerscout.scanning.extraction import warn_of_cut_inputs
from layerscout.scanning.result import Scan
from layerscout.scanning.run import record_request
from layerscout.scanning.scoring import score_moments
from layerscout.scanning.shard_moments import Read, Work, count_labels, sum_moments
from layerscout.scores import SCORES, Moments, applicable, class_weights

# Scores that can be computed from sums, which machines can share.
SCORED = tuple(key for key, score in SCORES.items() if score.source == "moments")


def scan_shards(
    model: str | Path,
    data: str | Path,
    *,
    task: str | None = None,
    text: str | None = None,
    text_pair: str | None = None,
    label: str | None = None,
    scores: str | Sequence[str] | None = None,
    pooling: Pooling | None = None,
    max_length: int = 128,
    precision: Precision = "float32",
    cluster: Cluster | None = None,
    progress: bool | Show = True,
) -> Scan:
    """Score every state of an encoder on all examples in many files, on a Ray cluster.

    The files are read twice, the labels first, some rows at a time. Processes with the encoder add
    up the moments of a file each, which are merged in the order of the files: the result is the
    same whichever machine dies. It is the result of `layerscout.scan` with `examples="all"`, except
    for the rounding of the forward pass, which computes other batches.

    Args:
        model: as for `Encoder.load`; machines must find it under that name.
        data: a folder, a pattern or a URL of .parquet or .jsonl files; see `Shards.find`.
        task: as for `Task.load`, and so are `text`, `text_pair` and `label`.
        text: see there.
        text_pair: see there.
        label: see there.
        scores: of `SCORED`; all of them by default.
        pooling: as for `scan`.
        max_length: as for `scan`.
        precision: as for `Encoder.load`.
        cluster: where the work is done; by default the cluster of RAY_ADDRESS, or a new local one.
        progress: show a bar on the terminal; or a function, which is called in its place with the
            stage of the work, how much of it is done, of how much, and a note.

    Raises:
        InputError: if the model or the data cannot be used as requested.
    """
    keys = _check_request(pooling, scores, task)
    cluster = cluster or Cluster()
    shards = Shards.find(data)
    inputs = _choose_inputs(shards, task, text, text_pair, label)
    encoder = Encoder.load(model, device="cpu")
    with cluster.join() as ray, show_progress(progress) as show:
        started = perf_counter()
        counts = _count_all(ray, shards, inputs.label, show)
        counted = [(json.loads(written), count) for written, count in counts.items()]
        classes = count_classes(counted, shards.source, inputs.label, task)
        counting = perf_counter() - started
        gpus = cluster.gpus_of_task(ray)
        work = Work(
            key=uuid4().hex,
            shards=shards,
            model=str(model),
            device="cpu" if gpus == 0 and cluster.device == "auto" else cluster.device,
            precision=precision,
            inputs=inputs,
            ids=dict(zip(counts, classes.ids, strict=True)),
            weights=class_weights(torch.tensor(classes.counts)),
            pooling=pooling or usual_pooling(encoder.family.reads),
            max_length=max_length,
        )
        run = partial(run_on_cluster, ray, cpus=cluster.cpus, gpus=gpus, in_order=True)
        total, started = sum(classes.counts), perf_counter()
        moments, read = _sum_all(run, work, total, show)
        forward = perf_counter() - started
    results, broken = score_moments(moments, keys, work.pooling)
    described = _describe_rows(work, task, classes.labels)
    return Scan(
        model=describe_model(encoder, described),
        task=_describe_examples(described, classes.counts, read.tokens),
        settings={
            **{"data": str(data), "validation": None, "task": task},
            **{"text": text, "text_pair": text_pair, "label": label},
            **{"label_separator": None, "regression": False},
            **_list_settings(work, read),
        },
        scores=results,
        warnings=(*classes.warnings, *_warnings(shards.name, read, broken, max_length)),
        seconds={"tokenize": 0.0, "scores": 0.0, "labels": counting, "forward": forward},
        diagnostics=diagnose(results),
    )


def _describe_rows(work: Work, task: str | None, labels: Sequence[str]) -> Task:
    """Return the task without its rows, which no machine holds."""
    metric = KNOWN[task].metric if task else "accuracy"
    rows = Split([], None, np.empty(0, np.int64))
    name = task or work.shards.name
    return Task(name, "classification", tuple(labels), metric, rows, None, work.inputs.written)


def _describe_examples(task: Task, counts: Sequence[int], tokens: int) -> dict[str, Any]:
    """Return what `scan.json` says of the task, all of whose examples were read."""
    total = sum(counts)
    return {
        **describe_task(task, task.train, np.array([tokens / total])),
        "examples_used": total,
        "examples_available": total,
        "examples_per_class": list(counts),
    }


def _list_settings(work: Work, read: Read) -> dict[str, Any]:
    """Return what `settings` of `scan.json` holds besides the data and its columns."""
    request = ScanRequest(examples="all", pooling=work.pooling, max_length=work.max_length)
    return {
        **record_request(request),
        "precision": ", ".join(read.precisions),
        "device": ", ".join(sorted(read.devices)),
        "examples_because": None,
        "files": len(work.shards.paths),
        "versions": {name: version(name) for name in ("torch", "transformers", "ray")},
    }


def _check_request(
    pooling: str | None, scores: str | Sequence[str] | None, task: str | None
) -> list[str]:
    """Return the scores to compute; refuse what a cluster cannot scan."""
    if pooling not in (None, *get_args(Pooling)):
        raise make_unknown_error("pooling", str(pooling), get_args(Pooling))
    keys = applicable(scores or SCORED, numbers=False)
    if beyond := [key for key in keys if key not in SCORED]:
        raise InputError(
            f"a cluster computes only scores made from sums ({', '.join(SCORED)}), got "
            f"{beyond[0]}; leave out --backend ray for the others"
        )
    if task is not None and task not in KNOWN:
        raise make_unknown_error("task", task, KNOWN)
    return keys


def _choose_inputs(
    shards: Shards, task: str | None, text: str | None, text_pair: str | None, label: str | None
) -> Inputs:
    """Choose the columns of a task with classes; see `choose_inputs`."""
    inputs = choose_inputs(shards.source, task, text, text_pair, label)
    if task is not None and KNOWN[task].kind != "classification":
        raise InputError(
            f"a cluster scans only classification, got {task}; leave out --backend ray"
        )
    contents = shards.source.columns
    lists = [column for column in inputs.columns if contents[column] in ("words", "list")]
    if inputs.flags or (lists and task is None):
        found = f"lists in column {lists[0]!r:.60}" if lists else f"columns {inputs.label:.60}"
        raise InputError(
            f"a cluster scans texts with one label each, got {found} of {shards.name}; leave out "
            "--backend ray for several labels per text and for labels of words"
        )
    return inputs


def _count_all(ray: Any, shards: Shards, column: str, show: Show) -> Counter[str]:
    """Count the labels of all files, in the order in which they first occur."""
    counts: Counter[str] = Counter()
    count = partial(count_labels, shards, column)
    with closing(run_on_cluster(ray, count, shards.paths, cpus=1, in_order=True)) as parts:
        for done, part in enumerate(parts, 1):
            counts.update(part)
            show("counting labels", done, len(shards.paths))
    if not counts:
        raise InputError(f"{shards.name} has no rows; name files that have some")
    return counts


def _sum_all(run: Callable[..., Any], work: Work, total: int, show: Show) -> tuple[Moments, Read]:
    """Merge the moments of all files in order: sums in another order round differently."""
    moments, read = None, Read()
    started = perf_counter()
    with closing(run(partial(sum_moments, work), work.shards.paths)) as parts:
        for sums, more in parts:
            if sums is not None:
                moments = sums if moments is None else moments + sums
            read += more
            if len(read.precisions) > 1:
                raise InputError(
                    "all machines of a cluster must compute in one precision: `auto` chose "
                    f"{join_names(sorted(read.precisions))} on different ones; name one with "
                    "--precision"
                )
            rate = read.examples / (perf_counter() - started)
            note = f"{read.examples:,} of {total:,} examples, {rate:,.0f}/s"
            show("scanning", read.examples, total, note)
    assert moments is not None, "there are rows"
    if read.blank == read.examples:
        raise InputError(
            f"texts must not all be empty: those of {work.shards.name} are; name another column "
            "with --text"
        )
    return moments, read


def _warnings(name: str, read: Read, broken: Sequence[int], max_length: int) -> Iterator[str]:
    if read.blank:
        yield f"{read.blank:,} of {read.examples:,} rows of {name} have an empty text"
    yield from warn_of_cut_inputs(read.truncated, read.examples, max_length)
    if read.empty:
        yield (
            f"{read.empty:,} of {read.examples:,} inputs have no ordinary token; the tokenizer's "
            "special tokens are read instead"
        )
    if broken:
        yield f"states {list(broken)} hold values that are not finite and have no score"
