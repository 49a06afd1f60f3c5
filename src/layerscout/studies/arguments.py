"""What a grid of each verb takes, how each value is read, and the sweeps that edits may be."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from functools import partial
from math import factorial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, create_model

from layerscout.data import KNOWN, METRICS
from layerscout.errors import InputError, make_unknown_error
from layerscout.plans import (
    CompareRequest,
    EvaluateRequest,
    ScanRequest,
    TuneRequest,
    arrange,
    check_option,
    make_edits,
    make_plan,
    options_of,
)
from layerscout.scores import SCORES


def _reading(read: Callable[[Any], Any]) -> AfterValidator:
    """Return the validator that reads a value, and reports as pydantic does what is refused."""

    def validate(value: Any) -> Any:
        try:
            return read(value)
        except InputError as error:
            raise ValueError(str(error)) from error

    return AfterValidator(validate)


def _one_of(kind: str, names: Collection[str]) -> AfterValidator:
    def check(value: str) -> str:
        if value not in names:
            raise make_unknown_error(kind, value, names)
        return value

    return _reading(check)


def _check_plan(value: str) -> str:
    if value.strip().lower() == "auto":
        raise InputError(
            "auto depends on a budget and cannot be used in a study; name another strategy"
        )
    # Whether it fits a model shows once there is one; until then, a model deep enough for any plan.
    ranking: list[float | None] = [None, *[1.0] * 10_000]
    make_plan(value, 10_000, best=5_000, ranking=ranking)
    if value != value.strip().lower():
        raise InputError(f"a plan is written in lower case, got {value!r:.60}")
    return value


def _check_edits(value: str) -> str:
    if value and not _SWEEP.fullmatch(value):
        try:
            make_edits(value)
        except InputError as error:
            close = get_close_matches(value.split(":")[0], ("incremental", "localized", "single"))
            remedy = f"; or {close[0]}, for a sweep" if close else ""
            raise InputError(f"{error}{remedy}") from error
    return value


def _read_scores(value: str | list[str]) -> list[str]:
    keys = value.split(",") if isinstance(value, str) else value
    for key in keys:
        if key not in SCORES:
            raise make_unknown_error("score", key, SCORES)
    return keys


class Strict(BaseModel):
    """A value of a recipe: no other keys, and no other kinds of values, than it names."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


Examples = Annotated[int, Field(ge=1)] | Literal["all"]
Epochs = list[Annotated[int, Field(ge=1)]]
Rates = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Score = Annotated[str, _one_of("score", SCORES)]
Metric = Annotated[str, _one_of("metric", tuple(METRICS))]


class TaskFile(Strict):
    """Your own data, as `layerscout.Task.load` takes them."""

    data: str
    """A file, a folder or a hub data set."""
    name: str | None = None
    """What tables call it; by default `task` or `data`."""
    task: Annotated[str, _one_of("task", tuple(KNOWN))] | None = None
    text: str | None = None
    text_pair: str | None = None
    label: str | None = None
    label_separator: str | None = None
    validation: str | float | None = None
    regression: bool = False


class Reading(Strict):
    """What every verb takes."""

    model: str | None = None
    """A model folder, a hub id, or demo."""
    task: str | TaskFile | None = None
    """A known task such as cola, a file, a folder, a hub data set, or demo."""
    examples: Examples | None = None
    """Training examples, drawn in proportion to the classes, or all."""
    per_class: list[Annotated[int, Field(ge=2)]] | None = None
    """Training examples of each class."""
    balanced: bool | None = None
    """Draw the same number from each class."""
    sample_seed: Annotated[int, Field(ge=0)] | None = None
    """Draws the training examples; by default the trial's seed does."""
    validation_examples: Examples | None = None
    """Validation examples, drawn once for all trials."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    max_length: Annotated[int, Field(ge=1)] | None = None
    precision: Literal["float32", "bfloat16", "float16", "auto"] | None = None


class Tuning(Reading):
    """What a grid of tune takes beside the options of `TuneRequest`, or reads in another way."""

    plan: Annotated[str, _reading(_check_plan)] | None = None
    score: Score | None = None
    """The score that says which state is best, or ranks blocks."""
    scan_examples: Examples | None = None
    """What it is computed on; by default the examples of the training."""
    method_options: dict[str, int | float | str] | None = None
    learning_rate: Rates | None = None
    edits: Annotated[str, _reading(_check_edits)] | None = None
    """Such as reinit:9-12, or a sweep."""
    checkpoints: Epochs | None = None
    """Also keep the model after these epochs, so that another grid can scan it."""
    predictions: bool | None = None
    """Keep label and prediction of every validation example."""


class Scanning(Reading):
    """What a grid of scan takes beside the options of `ScanRequest`."""

    scores: Annotated[str | list[str], _reading(_read_scores)] | None = None
    checkpoints: Epochs | None = None
    """Scan the untuned model, then the tuned one after each of these kept epochs."""


class Comparing(Reading):
    """What a grid of compare takes beside the options of `CompareRequest`."""

    original: bool | None = None
    """Compare with the untuned models too."""


class Evaluating(Reading):
    """What a grid of evaluate takes beside the options of `EvaluateRequest`."""

    edits: list[Literal["truncate", "skip"] | Annotated[str, _reading(_check_edits)]] | None = None
    """Truncate, skip, or edits such as skip:3-4."""
    original: bool | None = None
    """Also tune heads on the untuned model."""


def add_arguments(own: type[Reading], request: Any, *left_out: str) -> type[Reading]:
    """Return the arguments of a verb: its own, and the options of its request.

    Args:
        own: arguments that a study has besides, or reads in another way.
        request: of the verb.
        left_out: options that a study has no use for.
    """
    options: dict[str, Any] = {
        name: (Annotated[Any, _reading(partial(check_option, request, name))] | None, None)
        for name in options_of(request)
        if name not in (*left_out, *own.model_fields)
    }
    return create_model(own.__name__, __base__=own, **options)


VERBS: Mapping[str, type[Reading]] = {
    "tune": add_arguments(Tuning, TuneRequest, "against", "budget", "keep_adapter"),
    "scan": add_arguments(Scanning, ScanRequest),
    "compare": add_arguments(Comparing, CompareRequest),
    "evaluate": add_arguments(Evaluating, EvaluateRequest),
}


def find_fault(verb: str, name: str, value: Any) -> str | None:
    """Return in a line what is wrong with the value of an argument; None if nothing is."""
    known = VERBS[verb].model_fields
    if name not in known:
        return str(make_unknown_error("argument", name, known))
    try:
        VERBS[verb].model_validate({name: value})
    except ValidationError as error:
        # pydantic lists a fault for each type that the value might have had; the last one will do.
        return describe_fault(error.errors()[-1], TaskFile)
    return None


def describe_fault(fault: Any, model: type[BaseModel]) -> str:
    """Describe in a line a fault that pydantic found in `model`: the rule and the value."""
    if fault["type"] == "extra_forbidden":
        return str(make_unknown_error("key", str(fault["loc"][-1]), model.model_fields))
    if fault["type"] == "value_error":  # raised by a check of ours, which names the value itself
        return str(fault["ctx"]["error"])
    return f"{fault['msg']}, got {fault['input']!r:.60}"


# Of a model's blocks, in one sweep.
MOST_ORDERS = 1000

# Each stands for an edit for each block, or run of blocks, of the model at hand: all blocks above
# block k re-initialised, for k from 0 to L or these k alone; n neighbouring blocks, or all others,
# at every place; the blocks in n random orders; each block alone, and none.
_SWEEP = re.compile(
    r"(incremental)(?::([0-9]+(?:,[0-9]+)*))?|(localized|permutations):([0-9]+)|(single)"
)


def expand_sweep(written: str | None, blocks: int) -> dict[str, dict[str, Any]]:
    """Return the edits that a sweep stands for on a model of L = `blocks` blocks.

    Args:
        written: edits, or a sweep.
        blocks: L.

    Returns:
        By edit the values that tables may show: `kept`, how many blocks at the bottom stay as they
        were, or `permutation`, or `change`, `first` and `last`.

    Raises:
        InputError: if the model is not deep enough.
    """
    match = _SWEEP.fullmatch(written or "")
    if match is None:
        return {written or "": {}}
    incremental, named, kind, number, _ = match.groups()
    if incremental:
        kept = sorted(map(int, named.split(","))) if named else range(blocks + 1)
        if max(kept) > blocks:
            raise InputError(f"{written} keeps more blocks than there are, {blocks}; use fewer")
        return {f"reinit:{k + 1}-{blocks}" if k < blocks else "": {"kept": k} for k in kept}
    if kind == "permutations":
        if int(number) > MOST_ORDERS:
            raise InputError(f"{written} asks for too many orders; use at most {MOST_ORDERS}")
        seeds = _draw_orders(int(number), blocks)
        return {f"permute:{seed}": {"permutation": seed} for seed in seeds}
    if kind == "localized":
        n = int(number)
        if not 1 <= n < blocks:
            raise InputError(f"{written} needs more than {n} blocks, got {blocks}; use fewer")
        return {
            f"{verb}:{first}-{first + n - 1}": {
                "change": change,
                "first": first,
                "last": first + n - 1,
            }
            for verb, change in (("reinit", "reinitialised"), ("preserve", "preserved"))
            for first in range(1, blocks - n + 2)
        }
    single = {f"reinit:{k}": {"change": "reinitialised", "first": k} for k in range(1, blocks + 1)}
    return {"": {"change": "none"}} | single


def _draw_orders(number: int, blocks: int) -> list[int]:
    """Return the first seeds whose orders of the blocks differ, as far as there are so many orders.

    Seeds 2 and 9 put six blocks in the same order.
    """
    seeds: dict[tuple[int, ...], int] = {}
    # The order as it was is never drawn, unless there is no other.
    wanted = min(number, max(1, factorial(blocks) - 1))
    draw = itertools.count()
    while len(seeds) < wanted:
        seed = next(draw)
        seeds.setdefault(arrange(make_edits(f"permute:{seed}"), blocks).order, seed)
    return list(seeds.values())
