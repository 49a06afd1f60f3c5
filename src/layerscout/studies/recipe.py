"""Recipes: a study as a YAML file, checked whole before anything runs.

A recipe has one or several grids. A grid runs one verb with every combination of its axes.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from difflib import get_close_matches
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from layerscout.data import KNOWN, METRICS
from layerscout.plans import METHODS, PRESETS, make_edits, make_method, make_plan
from layerscout.runtime import InputError, unknown
from layerscout.scores import SCORES

# What grids that read tuned models take from those.
READ = ("model", "task", "seed")

# What follows from a point of a grid, beside its axes.
DERIVED = ("resolved", "blocks", "best")

# What a table or a figure may show of a grid, by its verb; {score} is a key of a score.
MEASURES: Mapping[str, Mapping[str, str]] = {
    "tune": {
        "metric": "the metric on validation, of the epoch that counts",
        "metric_by_epoch": "the metric after every epoch",
        "loss_by_epoch": "the validation loss after every epoch",
        "epoch": "the epoch that counts",
        "seconds": "what the trial took",
        "train_seconds": "training and validation alone",
        "flops": "of the training, by count",
        "share": "of full fine-tuning's FLOPs",
        "inference_share": "of full fine-tuning's FLOPs",
        "parameters": "of the model that is left",
        "trainable": "parameters that were trained",
    },
    "scan": {
        "{score}": "the score of every state or block",
        "rank:{score}": "its rank, 1 being the best",
        "best:{score}": "its best state or block",
        "smoothness:{score}": "ζ of its curve",
        "pearson:{score}": "its correlation with the probe over states",
        "spearman:{score}": "the same of their ranks",
        "r_squared:{score}": "of the probe regressed on the score",
        "slope:{score}": "of that line",
        "deviation:{score}": "|rank now − rank at the start| averaged, at every checkpoint",
    },
    "compare": {
        "contrast": "of the best split of a model's states into two clusters",
        "split": "the last state of the lower cluster",
        "same_state": "CKA of the same state of two seeds of a model",
    },
    "evaluate": {
        "metric": "of the whole model",
        "untuned": "with every state fed to the tuned head",
        "tuned": "with the head tuned again at every state",
        "tuned_original": "with a head tuned at every state of the untuned model",
        "majority": "of the commonest class",
        "skip": "without a block, or a span of them",
    },
}
_ALL = [name for by in MEASURES.values() for name in by]
_SCORED = [name for name in _ALL if name.endswith(":{score}")]
_MEASURED = [name for name in _ALL if "{score}" not in name]
_OF_STATES = (
    *("metric_by_epoch", "loss_by_epoch", "same_state", "contrast", "split"),
    *("untuned", "tuned", "tuned_original", "skip"),
)

# Words that stand for one edit for each block, or run of blocks, of whatever model is at hand.
SWEEPS: Mapping[str, str] = {
    "incremental": "draw all blocks above block k anew, for k from 0 to L",
    "incremental:K,...": "the same for these k alone",
    "localized:n": "draw n neighbouring blocks anew, or all others, wherever they may lie",
    "single": "draw one block anew, for each block, and none",
    "permutations:n": "put the blocks in n random orders",
}

# Of a model's blocks, in one sweep.
MOST_ORDERS = 1000

_SWEEP = re.compile(
    r"(incremental)(?::([0-9]+(?:,[0-9]+)*))?|(localized|permutations):([0-9]+)|(single)"
)


def _known(kind: str, names: Sequence[str]) -> AfterValidator:
    def check(value: str) -> str:
        if value not in names:
            raise ValueError(str(unknown(kind, value, names)))
        return value

    return AfterValidator(check)


def _read_plan(value: str) -> str:
    if value.strip().lower() == "auto":
        raise ValueError("auto goes by a budget, so a study has no plan of that name; name others")
    # Whether it fits a model is told when there is one; here a model deep enough for any stands in.
    ranking: list[float | None] = [None, *[1.0] * 10_000]
    _told(lambda: make_plan(value, 10_000, best=5_000, ranking=ranking))
    if value != value.strip().lower():
        raise ValueError(f"a plan is written in small letters, got {value!r:.60}")
    return value


def _read_edits(value: str) -> str:
    if value and not _SWEEP.fullmatch(value):
        try:
            make_edits(value)
        except InputError as error:
            close = get_close_matches(value.split(":")[0], ("incremental", "localized", "single"))
            raise ValueError(
                str(error) + (f"; or {close[0]}, for a sweep" if close else "")
            ) from error
    return value


def _read_evaluated(value: str) -> str:
    return value if value in ("truncate", "skip") else _read_edits(value)


def _read_scores(value: str | list[str]) -> list[str]:
    keys = value.split(",") if isinstance(value, str) else value
    for key in keys:
        if key not in SCORES:
            raise ValueError(str(unknown("score", key, SCORES)))
    return keys


def _told(work: Any) -> None:
    try:
        work()
    except InputError as error:
        raise ValueError(str(error)) from error


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


Examples = Annotated[int, Field(ge=1)] | Literal["all"]
Rates = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Edits = Annotated[str, AfterValidator(_read_edits)]
Score = Annotated[str, _known("score", tuple(SCORES))]
Metric = Annotated[str, _known("metric", tuple(METRICS))]


class TaskFile(_Strict):
    """Data of one's own, as `layerscout.Task.load` takes them."""

    data: str = Field(description="a file, a folder or a hub data set")
    name: str | None = Field(None, description="what tables call it; by default `task` or `data`")
    task: Annotated[str, _known("task", tuple(KNOWN))] | None = None
    text: str | None = None
    text_pair: str | None = None
    label: str | None = None
    validation: str | float | None = None
    regression: bool = False


class Reading(_Strict):
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
    balanced: bool | None = Field(None, description="draw as many of every class")
    sample_seed: Annotated[int, Field(ge=0)] | None = Field(
        None, description="draws the training examples; by default the trial's seed does"
    )
    validation_examples: Examples | None = Field(
        None, description="validation examples, drawn once for all trials"
    )
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    max_length: Annotated[int, Field(ge=1)] | None = None
    precision: Literal["float32", "bfloat16", "float16", "auto"] | None = None


class Tuning(Reading):
    """What a grid of `tune` takes; see `layerscout.tune`."""

    plan: Annotated[str, AfterValidator(_read_plan)] | None = None
    score: Score | None = Field(None, description="says which state is the best, or ranks blocks")
    scan_examples: Examples | None = Field(
        None, description="what it is computed on; by default the examples that are trained on"
    )
    method: Annotated[str, _known("method", tuple(METHODS))] | None = None
    method_options: dict[str, int | float | str] | None = None
    classifier: Literal["family", "mean-linear"] | None = None
    preset: Annotated[str, _known("preset", tuple(PRESETS))] | None = None
    as_released: bool | None = None
    learning_rate: Rates | None = None
    epochs: Annotated[int, Field(ge=1)] | None = None
    max_steps: Annotated[int, Field(ge=1)] | None = None
    batch_size: Annotated[int, Field(ge=1)] | None = None
    warmup: Annotated[float, Field(ge=0)] | None = None
    schedule: Literal["linear", "constant"] | None = None
    weight_decay: Annotated[float, Field(ge=0)] | None = None
    max_grad_norm: Annotated[float, Field(gt=0)] | None = None
    keep: Literal["best", "last"] | None = None
    patience: Annotated[int, Field(ge=1)] | None = None
    trunk_dropout: bool | None = None
    fresh_head: bool | None = None
    untie: bool | None = None
    edits: Edits | None = Field(None, description="such as reinit:9-12, or a sweep")
    checkpoints: list[Annotated[int, Field(ge=1)]] | None = Field(
        None, description="epochs after which the model is kept too, for a scan of them"
    )
    keep_layer_norm: bool | None = None
    reinit_rate_factor: Annotated[float, Field(gt=0)] | None = None
    metric: Metric | None = None


class Scanning(Reading):
    """What a grid of `scan` takes; see `layerscout.scan`."""

    scores: Annotated[str | list[str], AfterValidator(_read_scores)] | None = None
    pooling: Literal["mean", "cls"] | None = None
    probe: Literal["linear", "family"] | None = None
    fisher_mode: Literal["true", "empirical"] | None = None
    as_released: bool | None = None
    head_seeds: Annotated[int, Field(ge=1)] | None = None
    checkpoints: list[Annotated[int, Field(ge=1)]] | None = Field(
        None, description="of tuned models: scan these epochs, which were kept, after the start"
    )


class Comparing(Reading):
    """What a grid of `compare` takes; see `layerscout.compare`."""

    pooling: Literal["mean", "cls"] | None = None
    original: bool | None = Field(None, description="compare with the untuned models too")


class Evaluating(Reading):
    """What a grid of `evaluate` takes; see `layerscout.evaluate`."""

    edits: list[Annotated[str, AfterValidator(_read_evaluated)]] | None = Field(
        None, description="truncate, skip, or edits such as skip:3-4"
    )
    tune_heads: bool | None = None
    original: bool | None = Field(None, description="also tune heads on the untuned model")
    metric: Metric | None = None


VERBS: Mapping[str, type[Reading]] = {
    "tune": Tuning,
    "scan": Scanning,
    "compare": Comparing,
    "evaluate": Evaluating,
}


class Grid(_Strict):
    """One verb, run with every combination of the axes."""

    verb: Literal["tune", "scan", "compare", "evaluate"] = "tune"
    of: str | None = Field(None, description="a grid of tune, whose models are read")
    axes: dict[str, list[Any] | dict[str, Any]] = Field(
        default_factory=dict,
        description="what varies: lists of values, or names with their values",
    )
    settings: dict[str, Any] = Field(default_factory=dict, description="what does not vary")
    rates: dict[str, list[Rates]] = Field(
        default_factory=dict,
        description="learning rates by plan; `other` for plans that are not named",
    )
    pilot: bool = Field(
        False,
        description="try the learning rates with the first seed alone, and only the best with all",
    )

    @property
    def arguments(self) -> type[Reading]:
        """The model that says what the verb takes."""
        return VERBS[self.verb]

    def listed(self, axis: str) -> dict[str, Any]:
        """Give the values of an axis by what tables call them."""
        values = self.axes[axis]
        if isinstance(values, Mapping):
            return {str(name): value for name, value in values.items()}
        return {called(value): value for value in values}


class TableSpec(_Strict):
    """A table: means over seeds, in the shape of the paper's."""

    title: str
    grid: str | None = Field(None, description="by default the last one")
    kind: Literal["means", "correlations"] = Field(
        "means",
        description="means, or how the values of one axis (`rows`) go together over another "
        "(`columns`)",
    )
    value: str | list[str] = Field("metric", description="one or several measures")
    rows: str | list[str] = Field("plan", description="axes, or `measure` or `state`")
    columns: str | list[str] = "task"
    spread: Literal["deviation", "error", "interval", "none"] = "deviation"
    where: dict[str, Any] = Field(default_factory=dict, description="cells with these values only")


class FigureSpec(_Strict):
    """A figure."""

    title: str
    kind: Literal["lines", "points", "strip", "fit", "maps"] = "lines"
    grid: str | None = None
    value: str | list[str] = Field("metric", description="one or several measures: up")
    x: str = Field("plan", description="an axis, `state`, or a measure: to the right")
    color: str | None = Field(None, description="an axis, or `measure`")
    panels: str | list[str] = Field("task", description="an axis: a panel each")
    where: dict[str, Any] = Field(default_factory=dict)


class Recipe(_Strict):
    """A study."""

    title: str
    source: str = Field("", description="the paper, and its tables and figures")
    cost: str = Field("", description="what the whole takes, in words")
    grids: dict[str, Grid] = Field(min_length=1)
    metric: dict[str, Metric] = Field(
        default_factory=dict, description="by task, where it is not the task's own"
    )
    baseline: str | None = Field(
        None, description="a plan (or other value of the first axis that varies) to compare with"
    )
    tables: list[TableSpec] = Field(default_factory=list)
    figures: list[FigureSpec] = Field(default_factory=list)
    small: dict[str, Any] = Field(
        default_factory=dict, description="what the small variant changes, as --set does"
    )


def called(value: Any) -> str:
    """Give what tables call the value of an axis."""
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}"
        case list():
            return " ".join(map(called, value))
        case Mapping():
            return str(value.get("name") or value.get("task") or value.get("data"))
    return str(value) or "none"


def shipped() -> list[str]:
    """Name the recipes that come with the package."""
    folder = resources.files("layerscout.studies") / "recipes"
    return sorted(
        f.name.removesuffix(".yaml") for f in folder.iterdir() if f.name.endswith(".yaml")
    )


def recipe_text(name: str | Path) -> str:
    """Give the text of a recipe, shipped or one's own.

    Raises:
        InputError: if there is none.
    """
    if str(name) in shipped():
        return (resources.files("layerscout.studies") / "recipes" / f"{name}.yaml").read_text(
            "utf-8"
        )
    path = Path(name)
    if path.suffix not in (".yaml", ".yml") and not path.exists():
        raise unknown("recipe", str(name), shipped())
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        told = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise InputError(f"cannot read the recipe {path}: {told}") from error


class _Loader(yaml.SafeLoader):
    """Reads plain data, 1e-4 as the number that YAML 1.2 says it is, and no key twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Read a mapping whose keys differ."""
        keys = [key.value for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        twice = next((key for key in keys if keys.count(key) > 1), None)
        if twice is not None:
            told = f"{twice!s:.60} is there twice"
            raise yaml.constructor.ConstructorError(None, None, told, node.start_mark)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+"),
    list("-+0123456789"),
)


def read_value(text: str) -> Any:
    """Read a value as a recipe writes it.

    Raises:
        InputError: if it is no YAML.
    """
    try:
        return yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise InputError(
            f"a value is written as in YAML, such as 3, [0, 1] or top:2, got {text!r:.60}"
        ) from error


def load_recipe(
    name: str | Path, *, small: bool = False, changes: Mapping[str, Any] | None = None
) -> Recipe:
    """Read a recipe and check all of it.

    Args:
        name: of a shipped recipe, or a YAML file.
        small: with what its small variant changes.
        changes: by path, such as {"axes.seed": [0, 1]}; see `changed`.

    Raises:
        InputError: with every fault that it has, a line each.
    """
    text = recipe_text(name)
    try:
        content = yaml.load(text, Loader=_Loader)
        json.dumps(content)  # which goes in circles where anchors do
    except (yaml.YAMLError, RecursionError, ValueError, TypeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        told = getattr(error, "problem", None) or "it cannot be parsed"
        raise InputError(f"{name} is no YAML{where}: {told}") from error
    if not isinstance(content, dict) or not isinstance(content.get("grids"), dict):
        raise InputError(f"{name} is no recipe: it needs `title` and `grids`; see --show")
    if small:
        if not content.get("small"):
            raise InputError(f"{name} has no small variant; leave out --small")
        for path, value in _items(content, "small"):
            content = changed(content, path, value)
    for path, value in (changes or {}).items():
        content = changed(content, path, value)
    return read_recipe(content, str(name))


def _items(content: Mapping[str, Any], key: str) -> list[tuple[str, Any]]:
    found = content[key]
    if not isinstance(found, Mapping):
        raise InputError(f"`{key}` must be names with values, got {found!r:.60}")
    return [(str(path), value) for path, value in found.items()]


def changed(content: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Give a recipe's content with something changed.

    Args:
        content: what YAML gave.
        path: "grids.NAME.axes.seed"; or "axes.seed", "settings.epochs" or just "model" for all
            grids that take it; or another entry of a recipe, such as "baseline".
        value: what stands there then; an axis takes a list, or a single value.

    Raises:
        InputError: if there is no such place.
    """
    content = deepcopy(content)
    first, *rest = path.split(".")
    if first in Recipe.model_fields and first != "grids" and not rest:
        content[first] = value
        return content
    grids = {name: grid for name, grid in content["grids"].items() if isinstance(grid, dict)}
    if first == "grids":
        if not rest or rest[0] not in grids:
            raise unknown("grid", rest[0] if rest else "", grids)
        grids = {rest[0]: grids[rest[0]]}
        first, *rest = rest[1:] or [""]
        if first in Grid.model_fields and not rest:
            (grid,) = grids.values()
            grid[first] = value
            return content
    if first in ("pilot", "rates") and not rest:
        for grid in grids.values():
            if grid.get("verb", "tune") == "tune":
                grid[first] = value
        return content
    where = first if first in ("axes", "settings") else None
    name = ".".join(rest) if where else ".".join([first, *rest])
    taken = 0
    for grid in grids.values():
        known = VERBS.get(str(grid.get("verb", "tune")), Reading).model_fields
        axes = grid.get("axes") or {}
        if name not in known or (name in READ and grid.get("of")):
            continue
        taken += 1
        if name in axes or where == "axes":
            grid["axes"] = {**axes, name: value if isinstance(value, list | dict) else [value]}
            if name in (grid.get("settings") or {}):
                grid["settings"] = {k: v for k, v in grid["settings"].items() if k != name}
        else:
            grid["settings"] = {**(grid.get("settings") or {}), name: value}
    if not taken:
        names = {n for model in VERBS.values() for n in model.model_fields}
        raise unknown("place in the recipe", path, sorted(names))
    return content


def read_recipe(content: Mapping[str, Any], name: str = "the recipe") -> Recipe:
    """Make a recipe of what YAML gave, and check all of it.

    Raises:
        InputError: with every fault that it has, a line each.
    """
    faults: list[str] = []
    recipe = None
    try:
        recipe = Recipe.model_validate(content)
    except pydantic.ValidationError as error:
        faults += [_fault(one) for one in error.errors()]
    grids = content.get("grids")
    listed = grids.items() if isinstance(grids, Mapping) else ()
    known = {str(key): grid for key, grid in listed if isinstance(grid, Mapping)}
    for key, grid in known.items():
        faults += [f"grids.{key}.{fault}" for fault in _grid_faults(grid)]
    faults += _reference_faults(content, known)
    if recipe is not None and not faults:
        return recipe
    faults = list(dict.fromkeys(faults))
    number = "a fault" if len(faults) == 1 else f"{len(faults)} faults"
    raise InputError(f"{name} has {number}:", *(f"- {fault}" for fault in faults))


def _fault(one: Any) -> str:
    """Write a fault that pydantic found."""
    where = ".".join(str(part) for part in one["loc"])
    if one["type"] == "extra_forbidden":
        *above, key = one["loc"]
        known = _model_at(above).model_fields
        told = str(unknown("key", str(key), known))
        return f"{'.'.join(map(str, above))}: {told}" if above else told
    return f"{where}: {_said(one)}"


def _said(one: Any) -> str:
    if one["type"] == "extra_forbidden":  # in the only mapping among the arguments of a verb
        return str(unknown("key", str(one["loc"][-1]), TaskFile.model_fields))
    if one["type"] == "value_error":  # ours, which names the value
        return str(one["msg"]).removeprefix("Value error, ")
    return f"{one['msg']}, got {one['input']!r:.60}"


def _model_at(path: Sequence[Any]) -> type[BaseModel]:
    """Give the model that an entry of a recipe is read by."""
    match [str(part) for part in path]:
        case ["grids", _]:
            return Grid
        case ["tables", _]:
            return TableSpec
        case ["figures", _]:
            return FigureSpec
    return Recipe


def _grid_faults(grid: Mapping[str, Any]) -> Iterator[str]:
    """Find what is wrong with the arguments of a grid's verb, each value by itself."""
    model = VERBS.get(str(grid.get("verb", "tune")))
    axes, settings = grid.get("axes") or {}, grid.get("settings") or {}
    if model is None or not isinstance(axes, Mapping) or not isinstance(settings, Mapping):
        return
    for name, values in axes.items():
        if name in settings:
            yield f"axes.{name}: it is among the settings too; leave it out there"
        single = list(values.values()) if isinstance(values, Mapping) else values
        if not isinstance(single, list) or not single:
            if isinstance(single, list) or not isinstance(values, list | Mapping):
                yield f"axes.{name}: an axis is a list of one or more values, got {values!r:.60}"
            continue
        labels = [called(value) for value in single]
        if isinstance(values, list) and len(set(labels)) < len(labels):
            twice = next(label for label in labels if labels.count(label) > 1)
            yield f"axes.{name}: {twice} is there twice; leave one out"
        for value in single:
            yield from (f"axes.{name}{fault}" for fault in _value_faults(model, name, value))
    for name, value in settings.items():
        yield from (f"settings.{name}{fault}" for fault in _value_faults(model, name, value))
    given = {*map(str, axes), *map(str, settings)}
    if grid.get("of"):
        for name in sorted(given.intersection(READ)):
            yield f"{name}: it is that of the tuned models, which `of` names; leave it out"
    if grid.get("verb", "tune") == "tune":
        if "plan" not in given:
            yield "plan: a grid of tune needs a plan, as an axis or a setting"
        if "learning_rate" in given and grid.get("rates"):
            yield "rates: learning_rate says it too; leave one out"
        options = settings.get("method_options")
        if isinstance(options, Mapping) and isinstance(settings.get("method"), str):
            with_method = settings["method"]
            try:
                make_method(with_method, **options)
            except (InputError, TypeError) as error:
                yield f"settings.method_options: {error}"
    for needed in ("model", "task"):
        if needed not in given and not grid.get("of"):
            yield f"{needed}: a grid needs a {needed}, as an axis or a setting"
    rates, plans = grid.get("rates"), axes.get("plan", [settings.get("plan")])
    written = list(plans.values()) if isinstance(plans, Mapping) else plans
    for plan in rates if isinstance(rates, Mapping) else ():
        if plan != "other" and isinstance(written, list) and plan not in written:
            yield f"rates: {unknown('plan of the grid', str(plan), map(str, written))}"
    for name in ("model", "task"):
        if given.intersection([name]) and settings.get(name, "") is None:
            yield f"settings.{name}: it is empty; name one"
        if isinstance(axes.get(name), list) and None in axes[name]:
            yield f"axes.{name}: it has an empty value; name one"


def _value_faults(model: type[Reading], name: str, value: Any) -> Iterator[str]:
    if name not in model.model_fields:
        yield f": {unknown('argument', str(name), model.model_fields)}"
        return
    try:
        model.model_validate({name: value})
    except pydantic.ValidationError as error:
        # A value that may be of several kinds is told about once.
        yield f": {_said(error.errors()[-1])}"


def _reference_faults(
    content: Mapping[str, Any], grids: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    """Find names that stand for nothing."""
    tuned = [name for name, grid in grids.items() if grid.get("verb", "tune") == "tune"]
    for name, grid in grids.items():
        verb, of = grid.get("verb", "tune"), grid.get("of")
        if of is not None and verb == "tune":
            yield f"grids.{name}.of: tune starts from a checkpoint, not from a tuned model"
        elif of is not None and str(of) not in tuned:
            yield f"grids.{name}.of: {unknown('grid of tune', str(of), tuned)}"
        elif of is not None and verb == "scan":
            kept = _checkpoints(grids[str(of)])
            if missing := [epoch for epoch in _checkpoints(grid) if epoch not in kept]:
                yield (
                    f"grids.{name}.settings.checkpoints: epochs {missing} are not kept by {of}; "
                    "name them among its checkpoints"
                )
        elif of is None and verb in ("compare", "evaluate"):
            yield f"grids.{name}.of: {verb} needs tuned models; name the grid that tunes them"
    for kind in ("tables", "figures"):
        specs = content.get(kind)
        for number, spec in enumerate(specs if isinstance(specs, list) else ()):
            named = spec.get("grid") if isinstance(spec, Mapping) else None
            if named is not None and str(named) not in grids:
                yield f"{kind}.{number}.grid: {unknown('grid', str(named), grids)}"
            if isinstance(spec, Mapping):
                for fault in _shown_faults(kind, spec, grids):
                    yield f"{kind}.{number}.{fault}"


# What a table or a figure may go by besides axes; `state` and its like are the column `at`.
_PLACES = ("at", "state", "block", "epoch", "checkpoint")
_SHOWN = (*_PLACES, *DERIVED, *READ, "learning_rate", "measure", "grid", "family")
_SWEPT = ("kept", "change", "first", "last", "permutation")


def _shown_faults(
    kind: str, spec: Mapping[str, Any], grids: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    """Find names of axes and measures that stand for nothing, and means over unlike things."""
    axes = {str(axis) for grid in grids.values() for axis in grid.get("axes") or {}}
    known = {*axes, *_SHOWN, *_SWEPT}
    values = _names(spec.get("value", "metric"))
    for entry in ("rows", "columns", "color", "panels", "x", "where"):
        for name in _names(spec.get(entry)):
            measure = entry == "x" and kind == "figures" and spec.get("kind") == "fit"
            if name not in known and not measure:
                yield f"{entry}: {unknown('axis', name, sorted(known))}"
    for name in values:
        base, colon, key = name.rpartition(":")
        prefixes = {m.partition(":")[0] for m in _SCORED}
        if (colon and (base not in prefixes or key not in SCORES)) or (
            not colon and name not in SCORES and name not in _MEASURED
        ):
            yield f"value: {unknown('measure', name, [*_MEASURED, *_SCORED])}"
    if kind == "tables" and spec.get("kind", "means") == "means":
        headed = {*_names(spec.get("rows", "plan")), *_names(spec.get("columns", "task"))}
        if len(values) > 1 and "measure" not in headed:
            yield "value: a mean over several measures says nothing; add measure to columns"
        wide = [v for v in values if v in SCORES or v in _OF_STATES or v.startswith("rank:")]
        if wide and not headed.intersection(_PLACES):
            yield f"value: {wide[0]} is of every state; add state to rows or columns"


def _names(written: Any) -> list[str]:
    if isinstance(written, str):
        return [written]
    return [str(one) for one in written] if isinstance(written, list | Mapping) else []


def _checkpoints(grid: Mapping[str, Any]) -> list[Any]:
    settings = grid.get("settings")
    found = settings.get("checkpoints") if isinstance(settings, Mapping) else None
    return found if isinstance(found, list) else []


def swept(written: str | None, blocks: int) -> dict[str, dict[str, Any]]:
    """Give the edits that a sweep stands for on a model of L = `blocks` blocks.

    Args:
        written: edits, or a sweep of `SWEEPS`.
        blocks: L.

    Returns:
        By edit what tables may call it: `kept`, how many blocks at the bottom stay as they were, or
        `change`, `first` and `last`.

    Raises:
        InputError: if the model is not deep enough.
    """
    found = _SWEEP.fullmatch(written or "")
    if found is None:
        return {written or "": {}}
    incremental, named, kind, number, _ = found.groups()
    if incremental:
        kept = sorted(map(int, named.split(","))) if named else range(blocks + 1)
        if max(kept) > blocks:
            raise InputError(f"{written} keeps more blocks than there are, {blocks}; use fewer")
        return {f"reinit:{k + 1}-{blocks}" if k < blocks else "": {"kept": k} for k in kept}
    if kind == "permutations" and int(number) > MOST_ORDERS:
        raise InputError(f"{written} are too many orders; take {MOST_ORDERS} at the most")
    if kind == "permutations":
        return {f"permute:{seed}": {"permutation": seed} for seed in range(int(number))}
    if kind == "localized":
        n = int(number)
        if not 1 <= n < blocks:
            raise InputError(f"{written} needs more than {n} blocks, got {blocks}; use fewer")
        spans = [(first, first + n - 1) for first in range(1, blocks - n + 2)]
        edits = itertools.product((("reinit", "reinitialised"), ("preserve", "preserved")), spans)
        return {
            f"{verb}:{first}-{last}": {"change": change, "first": first, "last": last}
            for (verb, change), (first, last) in edits
        }
    every = {f"reinit:{k}": {"change": "reinitialised", "first": k} for k in range(1, blocks + 1)}
    return {"": {"change": "none"}} | every
