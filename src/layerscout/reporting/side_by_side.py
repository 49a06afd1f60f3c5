"""Two results of one verb side by side: what changed, and which texts flip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from layerscout.data import name_metric
from layerscout.reporting.content import Section, Table
from layerscout.reporting.scores import (
    choose_leading,
    describe_tie,
    find_tied,
    get_details,
    title_score,
)
from layerscout.reporting.words import (
    describe_difference,
    format_decimals,
    format_number,
    format_setting,
    is_left_out,
    list_costs,
    name_measure,
)
from layerscout.scores import name_score

Contents = Sequence[Mapping[str, Any]]
# What differs between any two runs, and says nothing.
_APART = {"training", "device", "threads", "versions", "processes", "cache_limit"}


def build_side_by_side(
    contents: Contents, names: Sequence[str], pair: Mapping[str, Any] | None
) -> list[Section]:
    """Return the sections of a comparison, the conclusion first.

    Args:
        contents: two, of `scan.json`, `result.json`, `evaluate.json` or `compare.json`.
        names: of their folders.
        pair: of tuned or evaluated models, what `pair_predictions` found on the same rows.
    """
    described = [_describe(content) for content in contents]
    keys = dict.fromkeys([*described[0], *described[1]])
    pairs = [(key, *(one.get(key, "–") for one in described)) for key in keys]
    changed = [(key, first, second) for key, first, second in pairs if first != second]
    same = [] if changed else ["Model, data, plan and settings are the same."]
    caption = "The settings in which the two differ."
    settings = Table(caption, ["", *names], changed, words=frozenset({1, 2}))
    sections = [
        Section("Side by side", describe_side_by_side(contents, names, pair), heading=True),
        Section("What changed", same, table=settings if changed else None),
    ]
    if contents[0]["verb"] == "scan":
        sections.append(Section("Scores side by side", table=_tabulate_scores(contents, names)))
    if contents[0]["verb"] in ("tune", "evaluate"):
        table = _tabulate_figures(contents, names)
        sections.append(Section("Quality and cost", table=table))
    if pair is not None and not pair["unpaired"]:
        sections += _show_flips(pair, contents[0]["task"]["kind"], names)
    return sections


def describe_side_by_side(
    contents: Contents, names: Sequence[str], pair: Mapping[str, Any] | None
) -> list[str]:
    """Say in a few sentences how the second of two results differs from the first."""
    match contents[0]["verb"]:
        case "scan":
            return [_compare_scans(contents, names), *_doubt_scans(contents)]
        case "compare":
            return [f"{names[0]} and {names[1]} are two comparisons; their maps follow."]
    lines = [_compare_quality(contents, names, pair)]
    if contents[0]["verb"] == "tune":
        shares = [f"{one['flops']['train'] / one['flops']['full_train']:.0%}" for one in contents]
        lines.append(
            f"{names[0]} took {shares[0]} of the training FLOPs of full fine-tuning, {names[1]} "
            f"{shares[1]}."
        )
    if pair is not None and (flips := pair.get("flips")) is not None:
        lines.append(
            f"{names[1]} gets {flips['gained']:,} right that {names[0]} gets wrong, and "
            f"{flips['lost']:,} wrong that {names[0]} gets right."
        )
    return lines


def _compare_quality(
    contents: Contents, names: Sequence[str], pair: Mapping[str, Any] | None
) -> str:
    """Say which of two models is better, if that can be told."""
    if pair is None or pair["unpaired"]:
        split = "test" if all(one.get("test") for one in contents) else "validation"
        judged = [one["test"] if split == "test" else one for one in contents]
        kinds = ["left-out" if split != "test" and is_left_out(one) else split for one in contents]
        values = [
            f"{kind} {name_measure(one)} {own['metrics'][one['metric']]:.3f} ({name})"
            for kind, one, own, name in zip(kinds, contents, judged, names, strict=True)
        ]
        reason = "" if pair is None else f": {pair['unpaired']}"
        return f"{values[0]} and {values[1]} are not compared row by row{reason}."
    key, (first, second) = pair["metric"], pair["values"]
    name = name_metric(key, contents[0]["task"].get("labels") or ())
    rows = "words" if contents[0]["task"]["kind"] == "token_classification" else "examples"
    on = f"on the same {pair['examples']:,} {pair['split']} {rows}"
    interval, sign = pair["interval"], -1 if pair["difference"] < 0 else 1
    if interval is None or interval[0] == interval[1]:
        return f"{name}: {first:.3f} of {names[0]} and {second:.3f} of {names[1]}, {on}."
    # The larger one comes first, so that the difference has no sign to be misread.
    (above, high), (below, low) = [(names[1], second), (names[0], first)][::sign]
    gap = describe_difference(key, pair["difference"], interval)
    compared = f"{name} {high:.3f} and {low:.3f} {on}, a difference of {gap}"
    if interval[0] <= 0 <= interval[1]:
        return f"{above} and {below} do not differ beyond noise: {compared}."
    return f"{above} is better than {below}: {compared}."


def _compare_scans(contents: Contents, names: Sequence[str]) -> str:
    """Say which state is best in each of two scans."""
    parts = []
    for scan, name in zip(contents, names, strict=True):
        key = choose_leading(scan)
        if key is None:
            parts.append(f"{name} could score no state")
            continue
        score, best = scan["scores"][key], scan["best"][key]
        if tied := find_tied(scan, key):
            unclear = f"no {score['of'][:-1]} clearly best by {name_score(key)}"
            parts.append(f"{name} finds {unclear} ({describe_tie(best, tied)})")
            continue
        parts.append(
            f"{name} finds {score['of'][:-1]} {best} of {scan['model']['blocks']} best by "
            f"{name_score(key)} ({format_number(score['values'][best])})"
        )
    return f"{parts[0]}; {parts[1]}."


def _doubt_scans(contents: Contents) -> list[str]:
    """Say what two scans of different models, data or scores cannot say."""
    subjects = []
    for scan in contents:
        task, key = scan["task"], choose_leading(scan)
        metric = None if key is None else get_details(scan["scores"][key]).get("metric")
        data = (task["name"], task["kind"], task.get("labels"), scan["settings"].get("data"))
        subjects.append({"data": data, "scores": key, "metrics": metric})
    different = [what for what in subjects[0] if subjects[0][what] != subjects[1][what]]
    lines = []
    if different:
        listed = " and ".join(filter(None, [", ".join(different[:-1]), different[-1]]))
        lines.append(f"The values are of different {listed}, and cannot be compared.")
    if contents[0]["model"]["name"] != contents[1]["model"]["name"]:
        lines.append(
            "This does not say which model is better after tuning: tune both, and compare the "
            "results with layerscout report A B."
        )
    return lines


def _describe(content: Mapping[str, Any]) -> dict[str, str]:
    """Name the model, the data, the plan and the settings of a result."""
    models = content["models"] if "models" in content else [content["model"]]
    facts = {
        "model": ", ".join(str(model["name"]) for model in models),
        "task": content["task"]["name"],
        "examples_read": f"{content.get('examples', content['task'].get('examples_used')):,}",
    }
    if content["verb"] == "tune":
        plan, run = content["plan"], content["runs"][content["kept"]]
        facts["plan"] = f"{plan['notation']} ({plan['strategy']})"
        facts["method"] = content["method"]
        if run["learning_rate"] is not None:
            facts |= {"learning_rate": f"{run['learning_rate']:g}", "seed": run["seed"]}
        facts |= content.get("method_options") or {}
    if "scores" in content:
        facts["scores"] = ", ".join(map(name_score, content["scores"]))
    if "metric" in content:
        facts["metric"] = name_measure(content)
    facts |= {
        name: value
        for name, value in content["settings"].items()
        if value is not None and name not in (*_APART, "examples", "metric")
    }
    return {
        name.replace("_", " ").capitalize(): format_setting(value) for name, value in facts.items()
    }


def _tabulate_figures(contents: Contents, names: Sequence[str]) -> Table:
    """Tabulate metrics, costs and speed of two models."""
    metrics = [key for key in contents[0]["metrics"] if key in contents[1]["metrics"]]
    classes = contents[0]["task"].get("labels") or ()
    judged = {"": contents}
    if all(one.get("test") for one in contents):
        judged[", test"] = [one["test"] for one in contents]
    rows = {
        name_metric(key, classes) + of: [format_decimals(one["metrics"][key]) for one in some]
        for of, some in judged.items()
        for key in metrics
    }
    if contents[0]["verb"] == "tune":
        costs = [list_costs(one) for one in contents]
        rows |= {name: [one[name] for one in costs] for name in costs[0]}
    table = [[name, *cells] for name, cells in rows.items()]
    folds = ", or examples left out in folds," if any(map(is_left_out, contents)) else ""
    return Table(f"Metrics are on validation{folds} unless marked as test.", ["", *names], table)


def _tabulate_scores(contents: Contents, names: Sequence[str]) -> Table:
    """Tabulate the best state by each score of two scans, and its value there."""
    rows = []
    for key in dict.fromkeys([*contents[0]["scores"], *contents[1]["scores"]]):
        row = [title_score(key)]
        for scan in contents:
            if (best := scan["best"].get(key)) is None:
                row += ["–", "–"]
                continue
            score, tied = scan["scores"][key], " (tied)" if find_tied(scan, key) else ""
            row += [f"{score['of'][:-1]} {best}{tied}", format_number(score["values"][best])]
        rows.append(row)
    columns = ["Score", *(f"{what}, {name}" for name in names for what in ("Best", "value"))]
    caption = "The best state or block by each score."
    if any("(tied)" in cell for row in rows for cell in row):
        caption += " Tied: others cannot be told apart from it."
    return Table(caption, columns, rows, words=frozenset({1, 3}))


def _show_flips(pair: Mapping[str, Any], kind: str, names: Sequence[str]) -> list[Section]:
    """Count and list the answers that one model has right and the other wrong."""
    flips = pair["flips"]
    if flips is None:
        text = "Predicted numbers are neither right nor wrong, so there are no flips."
        return [Section("Flips", [text])]
    first, second = names
    rows = [
        [f"right in {first}", f"{flips['both']:,}", f"{flips['lost']:,}"],
        [f"wrong in {first}", f"{flips['gained']:,}", f"{flips['neither']:,}"],
    ]
    words = {"token_classification": "words", "multi_label_classification": "texts"}
    what = words.get(kind, "examples")
    caption = f"{what.capitalize()} of {pair['split']}, by which of the two models is right."
    if kind == "multi_label_classification":
        caption += " Right: exactly the labels of the text."
    counted = Table(caption, ["", f"right in {second}", f"wrong in {second}"], rows)
    return [
        Section("Flips", table=counted),
        _list_flips(flips, "lost", f"Right in {first}, wrong in {second}", names),
        _list_flips(flips, "gained", f"Right in {second}, wrong in {first}", names),
    ]


def _list_flips(flips: Mapping[str, Any], part: str, title: str, names: Sequence[str]) -> Section:
    listed = flips[f"{part}_listed"]
    if not listed:
        return Section(title)
    rows = []
    for one in listed:
        answers = zip(one["predictions"], one["probabilities"], strict=True)
        predictions = [f"{said} ({format_decimals(sure, 2)})" for said, sure in answers]
        rows.append([f"{one['row']:,}", one["label"], *predictions, one["text"]])
    caption = "Sorted by how sure both models are, with the probability that each gives."
    if flips[part] > len(listed):
        caption = f"The {len(listed)} of {flips[part]:,} on which both models are most sure, with "
        caption += "the probability that each gives."
    columns = ["Row", "Label", *names, "Text"]
    words = frozenset({1, 2, 3, 4})
    return Section(title, table=Table(caption, columns, rows, words=words, texts=True))
