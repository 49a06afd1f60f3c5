"""What a grid of each verb takes, and how each value is read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, create_model

from layerscout.data import (
    KNOWN,
    METRICS,
)
from layerscout.plans import (
    CompareRequest,
    EvaluateRequest,
    ScanRequest,
    TuneRequest,
    check_option,
    explain_options,
    make_edits,
    make_plan,
    options_of,
)
from layerscout.runtime import (
    InputError,
    make_unknown_error,
)
from layerscout.scores import SCORES
from layerscout.studies.sweeps import is_sweep


def _one_of(kind: str, names: Collection[str]) -> AfterValidator:
    def check(value: str) -> str:
        if value not in names:
            raise ValueError(str(make_unknown_error(kind, value, names)))
        return value

    return AfterValidator(check)


def _check_plan(value: str) -> str:
    if value.strip().lower() == "auto":
        raise ValueError(
            "auto depends on a budget and cannot be used in a study; name another strategy"
        )
    # Whether it fits a model shows once there is one; until then, a model deep enough for any plan.
    ranking: list[float | None] = [None, *[1.0] * 10_000]
    try:
        make_plan(value, 10_000, best=5_000, ranking=ranking)
    except InputError as error:
        raise ValueError(str(error)) from error
    if value != value.strip().lower():
        raise ValueError(f"a plan is written in lower case, got {value!r:.60}")
    return value


def _check_edits(value: str) -> str:
    if value and not is_sweep(value):
        try:
            make_edits(value)
        except InputError as error:
            close = get_close_matches(value.split(":")[0], ("incremental", "localized", "single"))
            raise ValueError(
                str(error) + (f"; or {close[0]}, for a sweep" if close else "")
            ) from error
    return value


def _check_evaluated(value: str) -> str:
    return value if value in ("truncate", "skip") else _check_edits(value)


def _read_scores(value: str | list[str]) -> list[str]:
    keys = value.split(",") if isinstance(value, str) else value
    for key in keys:
        if key not in SCORES:
            raise ValueError(str(make_unknown_error("score", key, SCORES)))
    return keys


class Strict(BaseModel):
    """A value of a recipe: no other keys, and no other kinds of values, than it names."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


Examples = Annotated[int, Field(ge=1)] | Literal["all"]
Rates = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Edits = Annotated[str, AfterValidator(_check_edits)]
Score = Annotated[str, _one_of("score", SCORES)]
Metric = Annotated[str, _one_of("metric", tuple(METRICS))]


class TaskFile(Strict):
    """Your own data, as `layerscout.Task.load` takes them."""

    data: str = Field(description="a file, a folder or a hub data set")
    name: str | None = Field(None, description="what tables call it; by default `task` or `data`")
    task: Annotated[str, _one_of("task", tuple(KNOWN))] | None = None
    text: str | None = None
    text_pair: str | None = None
    label: str | None = None
    label_separator: str | None = None
    validation: str | float | None = None
    regression: bool = False


class Reading(Strict):
    """What every verb takes."""

    model: str | None = Field(None, description="a model folder, a hub id, or demo")
    task: str | TaskFile | None = Field(
        None, description="a known task such as cola, a file, a folder, a hub data set, or demo"
    )
    examples: Examples | None = Field(
        None, description="training examples, drawn in proportion to the classes, or all"
    )
    per_class: list[Annotated[int, Field(ge=2)]] | None = Field(
        None, description="training examples of each class"
    )
    balanced: bool | None = Field(None, description="draw the same number from each class")
    sample_seed: Annotated[int, Field(ge=0)] | None = Field(
        None, description="draws the training examples; by default the trial's seed does"
    )
    validation_examples: Examples | None = Field(
        None, description="validation examples, drawn once for all trials"
    )
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    max_length: Annotated[int, Field(ge=1)] | None = None
    precision: Literal["float32", "bfloat16", "float16", "auto"] | None = None


def make_arguments(name: str, request: Any, *left_out: str, **own: Any) -> type[Reading]:
    """Make the arguments of a verb from the options of its request.

    Args:
        name: of the class.
        request: of the verb.
        left_out: options that a study has no use for.
        own: arguments that a study has besides, or reads in another way.
    """
    known = {*left_out, *own, *Reading.model_fields}
    made: dict[str, Any] = {
        option: (
            Annotated[Any, AfterValidator(partial(_check_option, request, option))],
            Field(None, description=explain_options(request)[option]),
        )
        for option in options_of(request)
        if option not in known
    }
    doc = f"What a grid of this verb takes; see `{request.__name__}`."
    return create_model(name, __base__=Reading, __doc__=doc, **made, **own)


def _check_option(request: Any, option: str, value: Any) -> Any:
    if value is not None:
        try:
            check_option(request, option, value)
        except InputError as error:
            raise ValueError(str(error)) from error
    return value


_EPOCHS = list[Annotated[int, Field(ge=1)]] | None

VERBS: Mapping[str, type[Reading]] = {
    "tune": make_arguments(
        "Tuning",
        TuneRequest,
        *("against", "budget", "keep_adapter"),
        plan=(Annotated[str, AfterValidator(_check_plan)] | None, None),
        score=(
            Score | None,
            Field(None, description="the score that says which state is best, or ranks blocks"),
        ),
        scan_examples=(
            Examples | None,
            Field(
                None, description="what it is computed on; by default the examples of the training"
            ),
        ),
        method_options=(dict[str, int | float | str] | None, None),
        learning_rate=(Rates | None, None),
        edits=(Edits | None, Field(None, description="such as reinit:9-12, or a sweep")),
        checkpoints=(
            _EPOCHS,
            Field(
                None,
                description="also keep the model after these epochs, so that another grid can scan "
                "it",
            ),
        ),
        predictions=(
            bool | None,
            Field(None, description="keep label and prediction of every validation example"),
        ),
    ),
    "scan": make_arguments(
        "Scanning",
        ScanRequest,
        scores=(Annotated[str | list[str], AfterValidator(_read_scores)] | None, None),
        checkpoints=(
            _EPOCHS,
            Field(
                None,
                description="scan the untuned model, then the tuned one after each of these kept "
                "epochs",
            ),
        ),
    ),
    "compare": make_arguments(
        "Comparing",
        CompareRequest,
        original=(
            bool | None,
            Field(None, description="compare with the untuned models too"),
        ),
    ),
    "evaluate": make_arguments(
        "Evaluating",
        EvaluateRequest,
        edits=(
            list[Annotated[str, AfterValidator(_check_evaluated)]] | None,
            Field(None, description="truncate, skip, or edits such as skip:3-4"),
        ),
        original=(
            bool | None,
            Field(None, description="also tune heads on the untuned model"),
        ),
    ),
}


def find_fault(verb: str, name: str, value: Any) -> str | None:
    """Say in a line what is wrong with the value of an argument of a verb, or give None."""
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
