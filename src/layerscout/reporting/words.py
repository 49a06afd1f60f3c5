"""How numbers, names, and the parts of tasks and runs are written for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from layerscout.data import SIGNED, describe_kind, name_metric
from layerscout.plans import find_runs


def format_number(value: float | None) -> str:
    """Write a value with four digits."""
    return "–" if value is None else f"{value:#.4g}".removesuffix(".")


def format_signed(value: float | None) -> str:
    """Write a correlation with its sign and two decimals."""
    return "–" if value is None else f"{value:+.2f}"


def format_decimals(value: float | None, decimals: int = 3) -> str:
    """Write a value with a fixed number of decimals."""
    return "–" if value is None else f"{value:.{decimals}f}"


def start_line(name: str) -> str:
    """Write a name at the start of a line, where it may have capitals of its own."""
    return name[:1].upper() + name[1:]


def format_entries(entries: Sequence[int]) -> str:
    """Write ascending numbers, those that follow each other as a range: 1, 3–5."""
    runs = find_runs(entries)
    return ", ".join(str(a) if a == b else f"{a}{'–' if b > a + 1 else ', '}{b}" for a, b in runs)


def name_apart(paths: Sequence[Sequence[str]]) -> list[str]:
    """Name paths by as many last parts as tell those apart that are different."""
    longest, different = max(map(len, paths)), len(set(map(tuple, paths)))
    named = (["/".join(path[-parts:]) for path in paths] for parts in range(1, longest + 1))
    return next(names for names in named if len(set(names)) == different)


def format_state(state: int) -> str:
    """Name a state in a column of states."""
    return f"{state} (embeddings)" if state == 0 else str(state)


def list_model(model: Mapping[str, Any]) -> str:
    """Name a model with its family and depth."""
    return f"{model['name']} ({model['family']}, {model['blocks']} blocks)"


def list_circumstances(content: Mapping[str, Any]) -> list[tuple[str, str]]:
    """List what every verb records: the settings that have a value, the seconds, the version."""
    seconds = [f"{name} {value:.1f}" for name, value in content["seconds"].items()]
    named = {"task": "Known task"}  # its name stands above
    return [
        *(
            (named.get(name, name.replace("_", " ").capitalize()), format_setting(value))
            for name, value in content["settings"].items()
            if value is not None
        ),
        ("Seconds", ", ".join(seconds)),
        ("layerscout", content["layerscout"]),
    ]


def format_plain(value: object) -> str:
    """Write the value of an option as it is typed."""
    if isinstance(value, list):
        return ",".join(map(format_plain, value))
    short = f"{value:g}" if isinstance(value, float) else str(value)
    return short if not isinstance(value, float) or float(short) == value else str(value)


def format_setting(value: object) -> str:
    """Write the value of a setting for people."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {format_setting(held)}" for name, held in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(format_setting, value))
    return str(value)


# By the kind of a task; the others have the words of classification.
_LABEL = {"multi_label_classification": "label", "token_classification": "tag"}
_ALWAYS = {
    "regression": "the mean",
    "multi_label_classification": "the labels of at least half of the texts",
    "token_classification": "the most frequent tag",
}


def name_label(kind: str) -> str:
    """Return the word for one of those that the examples of a task are told apart by."""
    return _LABEL.get(kind, "class")


def name_labels(kind: str) -> str:
    """Return the same of several."""
    word = name_label(kind)
    return f"{word}es" if word == "class" else f"{word}s"


def name_constant_answer(kind: str) -> str:
    """Say what the answer is that is always the same; see `scores.probes.majority`."""
    return _ALWAYS.get(kind, "the majority class")


def name_measure(content: Mapping[str, Any]) -> str:
    """Name the metric that counts, from the content of `result.json` or `evaluate.json`."""
    return name_metric(content["metric"], content["task"].get("labels") or ())


def describe_reached(content: Mapping[str, Any]) -> str:
    """Say which model reaches what on which task, from `result.json` or `evaluate.json`."""
    reached = f"{name_measure(content)} {format_decimals(content['metrics'][content['metric']])}"
    return f"{content['model']['name']} on {content['task']['name']}, {reached}"


def compare_with_majority(content: Mapping[str, Any], value: float) -> str:
    """Say what the answer that is always the same reaches beside a value; "" if that is not known.

    Args:
        content: of `result.json` or `evaluate.json`.
        value: of its metric.
    """
    baseline, kind = content.get("majority"), content["task"]["kind"]
    if baseline is None or kind == "regression":  # the mean correlates with nothing
        return ""
    always = f"always predicting {name_constant_answer(kind)}"
    if value > baseline:
        return f"{always} scores {format_decimals(baseline)}"
    return f"no better than {always}, {format_decimals(baseline)}"


_FREE = {
    "tf-idf": "counting words{} (tf-idf)",
    "cosine": "the cosine of the embeddings of both texts, untrained,",
}


def compare_with_free(content: Mapping[str, Any]) -> tuple[str, bool]:
    """Say what the best of what is free reaches on the rows that chose a tuned model.

    Returns:
        The sentence, "" if that is not known, and whether the model is better than all of it beyond
        noise.
    """
    if not (baselines := content.get("baselines")):
        return "", True
    beaten = {
        name: bool(one["interval"]) and one["interval"][0] > 0 for name, one in baselines.items()
    }
    # One that is not, if there is one: the interval of a worse one may be wider.
    name = min(baselines, key=lambda name: (beaten[name], baselines[name]["difference"]))
    best = baselines[name]
    own = " and their neighbours" if content["task"]["kind"] == "token_classification" else ""
    reached = f"{_FREE[name].format(own)} reaches {name_measure(content)} {best['value']:.3f}"
    total = _number_judged(content)
    part = best.get("examples", total)  # earlier files have none
    if content.get("test") or part < total:  # other figures stand beside it
        some = f"{part:,} of " if part < total else ""
        reached += f" on {some}the {count_judged(content)}"
    if beaten[name]:
        return reached, True
    ends = "" if best["interval"] is None else " ({:+.3f} to {:+.3f})".format(*best["interval"])
    difference = f"{best['difference']:+.3f}{ends}".replace("-", "−")
    how = "not clearly" if best["difference"] > 0 else "no"
    return f"{how} better than what is free: {reached}; the difference is {difference}", False


def describe_interval(content: Mapping[str, Any]) -> str:
    """Return the interval of a metric, from where it stands in a file; "" where there is none."""
    if (interval := content.get("interval")) is None:
        return ""
    low, high = interval
    wide = high - low > (2 * WIDE if content.get("metric") in SIGNED else WIDE)
    return f"95 % interval {low:.3f} to {high:.3f}{': too few to judge' if wide else ''}"


def describe_difference(metric: str, difference: float, interval: Sequence[float] | None) -> str:
    """Say how far the better of two models is above the other on the same examples."""
    size, digits, unit = _choose_unit(metric)
    gap = f"{size * abs(difference):.{digits}f}{unit}"
    if interval is None:
        return gap
    # No sign of the difference is there to be misread.
    ends = sorted(-end if difference < 0 else end for end in interval)
    span = " to ".join(f"{size * end:.{digits}f}".replace("-", "−") for end in ends)
    return f"{gap} (95 % interval {span})"


def _choose_unit(metric: str) -> tuple[int, int, str]:
    """Return what differences of a metric are multiplied by, their decimals, and their unit.

    In points of a share; a correlation as it is.
    """
    return (1, 3, "") if metric in SIGNED else (100, 1, " points")


# Classes whose examples are counted in a line.
COUNTED = 5
# From this share of what a metric can be on, an interval says nothing of a model.
WIDE = 0.3
# What more examples bring at most where it is called little, as a share.
LITTLE = 0.02


def describe_more(content: Mapping[str, Any]) -> str | None:
    """Say what more time or more labelled examples would bring; None where neither is known.

    Args:
        content: of `result.json`.
    """
    more = content.get("more") or {}
    said = [_describe_more_time(content, more["time"])] if more.get("time") else []
    said += [_describe_more_texts(content, more["texts"])] if more.get("texts") else []
    return "; ".join(said) or None


def _describe_more_time(content: Mapping[str, Any], more: Mapping[str, Any]) -> str:
    gain, low, high, unit = _write_gain(content, more)
    return (
        f"more time (--time {more['seconds']}s) would bring about {gain}{unit} ({low} to {high}) "
        f"of {name_measure(content)}, as auto did on eight other tasks"
    )


def _write_gain(content: Mapping[str, Any], more: Mapping[str, Any]) -> list[str]:
    """Write a gain, the ends of its interval, and their unit."""
    size, digits, unit = _choose_unit(content["metric"])
    values = more["gain"], *more["interval"]
    return [*(f"{size * each:+.{digits}f}".replace("-", "−") for each in values), unit]


def _describe_more_texts(content: Mapping[str, Any], more: Mapping[str, Any]) -> str:
    gain, low, high, unit = _write_gain(content, more)
    examples = name_examples(content["task"]["kind"])
    added = f"{more['more']:,} more {examples}"
    if more["interval"][0] > 0:
        said = f"{added} would bring about {gain}{unit} ({low} to {high})"
    elif more["interval"][1] < LITTLE:
        said = f"more {examples} would bring little: {added} at most {high}{unit}"
    else:
        said = f"what {added} would bring cannot be told: {low} to {high}{unit}"
    return f"{said} of {name_measure(content)}, by the learning curve of the free head"


def describe_free(content: Mapping[str, Any]) -> str | None:
    """Say whether a training was better than the head that is free; None where that is not known.

    Args:
        content: of `result.json`.
    """
    if (free := content.get("free")) is None:
        return None
    interval, metric = free["interval"], content["metric"]
    gap = describe_difference(metric, free["difference"], interval)
    held = "left-out" if free.get("folds", 1) > 1 else "validation"
    rows = "words" if content["task"]["kind"] == "token_classification" else "examples"
    found = (
        f"{name_measure(content)} {free['trained']:.3f} against {free['value']:.3f} on the same "
        f"{free['examples']:,} {held} {rows}, a difference of {gap}"
    )
    if unclear := interval is None or interval[0] <= 0 <= interval[1]:
        found += ", which so few cannot tell from noise"
        if free["difference"] >= 0:  # what decides then
            found += ", and its loss is {}, {} against {}".format(
                "lower" if free["better"] else "higher",
                *(format_decimals(loss, 4) for loss in reversed(free["losses"])),
            )
    if free["better"]:
        level = "at least level with" if unclear else "better than"
        return f"The training is {level} the free head, solved without it: {found}."
    kept = "--plan head:best has that head"
    if free.get("trusted"):
        kept = "it is kept, since trainings of few examples were ahead on other tasks"
    elif free["kept"]:
        kept = f"so the free head is kept, solved on all {content['solved']['examples']:,}"
    return f"The training is no better than the free head, solved without it: {found}; {kept}."


def find_stage(content: Mapping[str, Any]) -> Literal["trained", "solved", "staged"]:
    """Return how `result.json` came about: staged is a training whose head is solved in the end."""
    if content.get("solved") is None:
        return "trained"
    plan = content["plan"]
    return "staged" if plan["tuned"] or plan.get("embeddings") else "solved"


def is_left_out(content: Mapping[str, Any]) -> bool:
    """Return whether the figures of `result.json` are of examples left out in folds."""
    solved = content.get("solved") or {}
    return "judged" in solved and bool(solved["folds"] > 1)


# Beside training FLOPs, where that is so.
FOR_JUDGING = " (half of it for judging on two halves of the rows)"


def note_judging(content: Mapping[str, Any]) -> str:
    """Return `FOR_JUDGING` if the training of `result.json`, kept or not, was judged so."""
    trained = (content.get("free") or {}).get("training") or content
    halves = find_stage(trained) == "staged" and is_left_out(trained)
    return FOR_JUDGING if halves else ""


def count_judged(content: Mapping[str, Any]) -> str:
    """Count the examples that the figures of `result.json` are of, but for those of test."""
    examples = name_examples(content["task"]["kind"])
    counted = f"{_number_judged(content):,}"
    if is_left_out(content):
        return f"{counted} {examples} left out in {content['solved']['folds']} folds"
    return f"{counted} validation {examples}"


def _number_judged(content: Mapping[str, Any]) -> int:
    solved, settings = content.get("solved") or {}, content["settings"]
    return int(solved["judged"] if is_left_out(content) else settings["validation_examples"])


def count_fitted(content: Mapping[str, Any]) -> str:
    """Count the examples that the model of `result.json` was trained on, or its head solved on."""
    task = content["task"]
    fitted = (content.get("solved") or content).get("examples", task["examples_used"])
    if fitted < task["examples_used"]:  # of which the words are not counted
        return f"{fitted:,} of {task['examples_used']:,} {name_examples(task['kind'])}"
    return count_examples({**task, "examples_used": fitted})


def list_chosen(content: Mapping[str, Any]) -> list[str]:
    """List what the validation examples of a tuning chose, which flatters their figures a little.

    Args:
        content: of `result.json`.
    """
    runs = content["runs"]
    solved = content.get("solved") is not None
    what = ["the epoch"] if content["keep"] != "last" and not solved else []
    what += ["the learning rate"] if len({run["learning_rate"] for run in runs}) > 1 else []
    what += ["the seed"] if len({run["seed"] for run in runs}) > 1 else []
    what += ["the thresholds"] if content["settings"].get("threshold") == "tuned" else []
    return what


def describe_quality(content: Mapping[str, Any]) -> str:
    """Say what a tuned model reached, on the test examples if there are any.

    With what the plan it is compared with reached, what always predicting the same reaches, and
    whether the examples chose the model.

    Args:
        content: of `result.json`.
    """
    name, value = name_measure(content), content[content["keep"]]["value"]
    off = _describe_errors((content.get("test") or content)["metrics"])
    if (test := content.get("test")) is not None:
        reached = test["metrics"][content["metric"]]
        always = compare_with_majority({**content, "majority": test["majority"]}, reached)
        other = (content.get("against") or {}).get("test")
        versus = f" vs {other['metrics'][content['metric']]:.3f}" if other else ""
        text = f"test {name} {reached:.3f}{versus}"
        held = "left out" if is_left_out(content) else "validation"
        interval = describe_interval({**test, "metric": content["metric"]})
        notes = [interval, always, off, f"{held} {value:.3f}"]
    else:
        chosen = "selected on these rows" if list_chosen(content) else ""
        other = content.get("against")
        versus = f" vs {other[content['keep']]['value']:.3f}" if other else ""
        text, always = f"{name} {value:.3f}{versus}", compare_with_majority(content, value)
        judged = f"of {count_judged(content)}" if is_left_out(content) else ""
        notes = [describe_interval(content), always, off, judged, chosen]
    noted = "; ".join(filter(None, notes))
    return f"{text} ({noted})" if noted else text


def _describe_errors(metrics: Mapping[str, float]) -> str:
    """Say how far predicted numbers are off, which a correlation does not; "" for other tasks."""
    squares = metrics.get("mean_squared_error")
    return "" if squares is None else f"off by {squares**0.5:.3g}, root mean square"


def read_calibration(content: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]] | None:
    """Return how far probabilities can be believed, by when, and of which examples.

    Args:
        content: of `result.json` or `evaluate.json`; None where it has nothing of them.
    """
    known = content.get("calibration")
    if known is None:
        return None
    name = "test" if known.get("test") else "validation"
    measured = known[name] if "factor" in known else {"as it is": known}
    if name == "validation" and is_left_out(content):
        name = "left out"
    return (name, measured) if all(measured.values()) else None


def describe_calibration(content: Mapping[str, Any]) -> str | None:
    """Say how far the probabilities of a model are off; see `read_calibration`."""
    if (known := read_calibration(content)) is None:
        return None
    name, measured = known
    *_, after = measured.values()
    off, loss, brier = (format_decimals(after[key]) for key in ("ece", "nll", "brier"))
    off = f"{off} (expected calibration error, {name})"
    return f"probabilities are off by {off}, log loss {loss}, Brier score {brier}"


def describe_speed(content: Mapping[str, Any]) -> str:
    """Say how many examples a tuned model processes in a second beside the full one.

    "" if that was not measured, as for the models of a study.

    Two models of one size have one speed, whatever the clock says: of 84 and 87 a second for the
    same inference cost, the difference was noise.

    Args:
        content: of `result.json`.
    """
    speed = content["examples_per_second"]
    if speed is None or "full_model" not in speed:
        return ""
    kept, full = speed["kept_model"], speed["full_model"]
    text = f"{kept:,.0f} {name_examples(content['task']['kind'])}/s"
    if content["flops"]["inference"] == content["flops"]["full_inference"]:
        return f"{text}, the same as the full model"
    if (ratio := f"{kept / full:.1f}") == "1.0":
        return f"{text}, about as many as the full model"
    return f"{text}, {ratio} times the {full:,.0f} of the full model"


def list_costs(content: Mapping[str, Any]) -> dict[str, str]:
    """List what a tuning and its model cost, by name, from `result.json`; – where not known."""
    flops, parameters, used = content["flops"], content["parameters"], content["memory"].get("used")
    train, infer = (flops[cost] / flops[f"full_{cost}"] for cost in ("train", "inference"))
    seconds = ", ".join(f"{name} {value:.1f}" for name, value in content["seconds"].items())
    return {
        "training FLOPs": f"{train:.1%} of full fine-tuning{note_judging(content)}",
        "inference FLOPs": f"{infer:.1%} of the full model",
        "parameters": f"{parameters['total']:,}",
        "trained parameters": f"{parameters['trainable']:,}",
        "time": f"{sum(content['seconds'].values()):.1f} s ({seconds})",
        "memory": "–" if used is None else f"{used / 1e9:.2f} GB at most",
        "speed": describe_speed(content) or "–",
    }


def list_task(task: Mapping[str, Any]) -> str:
    """Name a task with its kind."""
    return f"{task['name']} ({describe_kind(task['kind'])})"


def name_examples(kind: str) -> str:
    """Return the word for the examples of a task."""
    return "sentences" if kind == "token_classification" else "examples"


def count_labels(task: Mapping[str, Any]) -> str:
    """Count the labels of a task, and the rows that the most frequent ones have.

    `task` is what the JSON files hold of it, here and below.
    """
    if task["kind"] == "regression":
        return "numbers as labels"
    counts = task.get("examples_per_class") or ()
    ranked = sorted(zip(task["labels"], counts, strict=False), key=lambda pair: -pair[1])
    named = COUNTED + (len(ranked) == COUNTED + 1)  # a single other one is named instead
    first = ", ".join(f"{name:.30} {count:,}" for name, count in ranked[:named])
    rest = sorted({count for _, count in ranked[named:]})
    if rest:
        ends = f"{rest[0]:,}" if len(rest) == 1 else f"{rest[0]:,} to {rest[-1]:,}"
        first += f", and {ends} of each of {len(ranked) - COUNTED} others"
    return f"{len(task['labels'])} {name_labels(task['kind'])}{': ' if first else ''}{first}"


def count_examples(task: Mapping[str, Any]) -> str:
    """Count the examples of a split that was read whole, and their words if these are labelled."""
    counted = f"{task['examples_used']:,} {name_examples(task['kind'])}"
    return f"{counted} with {task['words_used']:,} words" if "words_used" in task else counted


def count_rows(task: Mapping[str, Any]) -> str:
    """Count what a scan scored, each with a label: words or examples."""
    if "words_used" in task:
        return f"{task['words_used']:,} words"
    return f"{task['examples_used']:,} examples"


def count_read(task: Mapping[str, Any]) -> str:
    """Count what a scan read of what there was."""
    words = f"{count_rows(task)} of " if "words_used" in task else ""
    examples = name_examples(task["kind"])
    return f"{words}{task['examples_used']:,} of {task['examples_available']:,} {examples}"


def read_more(scan: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the value of --examples with which a scan reads more, and what that is; None if all.

    Of words twice as many: all of them are mostly of the most frequent tag. In balance there are
    no more than the rarest class has.
    """
    task, settings = scan["task"], scan["settings"]
    if "words_used" in task:
        used, available = task["words_used"], task["words_available"]
        more = min(2 * used, available)
        return (str(more), f"{more:,} words") if used < available else None
    used, balanced = task["examples_used"], settings.get("balanced")
    available = settings.get("examples_available", task["examples_available"])
    what = f"all {available:,} examples{' of balanced classes' if balanced else ''}"
    return ("all", what) if used < available else None
