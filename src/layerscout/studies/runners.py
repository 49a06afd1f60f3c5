"""Running a trial, and its record."""

from __future__ import annotations

import shutil
import traceback
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from itertools import pairwise
from time import perf_counter
from typing import Any

import numpy as np

from layerscout.analysis import compare, evaluate
from layerscout.models import Encoder
from layerscout.plans import Plan
from layerscout.runtime import DiskError
from layerscout.scanning import scan
from layerscout.studies.context import TrialContext
from layerscout.studies.trial import DRAWING, Trial
from layerscout.tuning import Result, plain_json, tune


@cache
def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("layerscout", "torch", "transformers")}


def _tune(context: TrialContext, trial: Trial) -> dict[str, Any]:
    given = dict(trial.arguments)
    drawing = {name: given.pop(name) for name in DRAWING if name in given}
    encoder = context.encoder(trial.models[0], given.pop("precision", "float32"))
    plan = Plan.from_dict(given.pop("plan"))
    folder = context.store.model(trial.key)
    if trial.keep:
        shutil.rmtree(folder, ignore_errors=True)  # what another run may have left of it
    epochs, predictions = given.pop("checkpoints", []), given.pop("predictions", False)
    result = tune(
        encoder,
        context.examples(trial.task, drawing),
        plan,
        cache_limit=context.cache_limit,
        checkpoints={
            epoch: folder / "epochs" / str(epoch) for epoch in (epochs if trial.keep else [])
        },
        measure="predictions" if predictions else "speed",
        progress=False,
        **given,
    )
    content = plain_json(result.content)
    if trial.keep:
        result.save(folder)
    (run,), settings = content["runs"], content["settings"]
    told = ("plan", "metric", "majority", "keep", "best", "last", "parameters", "flops")
    surroundings = ("precision", "device", "threads", "processes", "epochs", "batch_size")
    return {
        **{name: content[name] for name in (*told, content["keep"], "warnings")},
        "seconds": content["seconds"]
        | {"example": 1 / content["examples_per_second"]["kept_model"]},
        **{name: run[name] for name in ("curve", "stopped", "diverged")},
        **{name: settings[name] for name in surroundings},
        "blocks": content["model"]["blocks"],
        "examples": settings["examples"],
        "validation_examples": settings["validation_examples"],
        "tokens_per_example": content["task"]["tokens_per_example"],
        "cut": content["trunk"]["cut"],
        "trunk_kept": content["trunk"]["kept"],
        **(_list_predictions(result) if predictions else {}),
    }


def _list_predictions(result: Result) -> dict[str, Any]:
    """List what is right for every validation example and what was predicted, classes by number.

    Of an example with several labels a list of them, of a sentence one of the tags of its words.
    """
    numbers = {name: number for number, name in enumerate(result.content["task"]["labels"])}

    def number(one: Any) -> Any:
        return [numbers[name] for name in one] if isinstance(one, list) else numbers.get(one, one)

    found = {
        f"{name}s": [number(one) for one in result.predictions[name]]
        for name in ("label", "prediction")
    }
    kind = result.content["task"]["kind"]
    if kind == "token_classification":
        ends = np.flatnonzero(np.diff(result.predictions["row"], append=-1)) + 1
        bounds = list(pairwise([0, *ends]))
        found = {name: [tags[a:b] for a, b in bounds] for name, tags in found.items()}
    return found | {"kind": kind, "label_names": list(numbers)}


def _scan(context: TrialContext, trial: Trial) -> dict[str, Any]:
    given = dict(trial.arguments)
    drawing = {name: given.pop(name) for name in DRAWING if name in given}
    encoder = context.encoder(trial.models[0], given.pop("precision", "float32"))
    task = context.examples(trial.task, drawing)
    found = scan(
        encoder,
        task,
        # Most words are outside of all spans: of those of the sentences some are drawn, in balance.
        examples="auto" if task.kind == "token_classification" else "all",
        checkpoints=[context.place(one) for one in trial.models[1:]],
        cache_limit=context.cache_limit,
        progress=False,
        **given,
    )
    return found.as_dict()


def _compare(context: TrialContext, trial: Trial) -> dict[str, Any]:
    given = dict(trial.arguments)
    drawing = {name: given.pop(name) for name in DRAWING if name in given}
    models = [context.place(one) for one in trial.models]
    precision = given.pop("precision", "float32")
    loaded = [Encoder.load(one, device=context.device, precision=precision) for one in models]
    task = context.examples(trial.task, drawing)
    return compare(loaded, task, cache_limit=context.cache_limit, progress=False, **given).as_dict()


def _evaluate(context: TrialContext, trial: Trial) -> dict[str, Any]:
    given = dict(trial.arguments)
    drawing = {name: given.pop(name) for name in DRAWING if name in given}
    first, *others = [context.place(one) for one in trial.models]
    task = context.examples(trial.task, drawing)
    if "head_examples" in given:
        given["examples"] = given.pop("head_examples")
    found = evaluate(
        first,
        task,
        original=others[0] if others else None,
        device=context.device,
        cache_limit=context.cache_limit,
        progress=False,
        **given,
    )
    return found.as_dict()


RUN = {"tune": _tune, "scan": _scan, "compare": _compare, "evaluate": _evaluate}


def run_trial(trial: Trial, context: TrialContext) -> dict[str, Any]:
    """Run a trial, and write and give its record; what goes wrong with it is in there.

    Raises:
        InputError: if the record cannot be written.
        DiskError: if the machine cannot write. A trial that it stops has no record, so it is run
            again when the study continues.
    """
    started, result, fault = perf_counter(), None, None
    try:
        result = RUN[trial.verb](context, trial)
    except DiskError:
        raise
    except Exception as error:
        fault = {
            "error": f"{type(error).__name__}: {error}",
            "traceback": traceback.format_exc(),
        }
    record = {
        "key": trial.key,
        "status": "done" if fault is None else "failed",
        "verb": trial.verb,
        "models": list(trial.models),
        "task": trial.task,
        "arguments": dict(trial.arguments),
        "result": result,
        **(fault or {}),
        "seconds": perf_counter() - started,
        "ended": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": _versions(),
    }
    context.store.write(record)
    return record
