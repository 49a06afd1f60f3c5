"""What a comparison found (the content of `compare.json`), in words and tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from layerscout.plans import first_state
from layerscout.reporting.content import Table
from layerscout.reporting.words import count_examples, format_decimals, name_apart, start_line

# Up to this p-value states are said to form clusters.
SURE = 0.05
# The estimates of CKA, as they are called within a sentence.
ESTIMATES = {"cka": "CKA", "cka_debiased": "debiased CKA"}


def shorten_names(content: Mapping[str, Any]) -> list[str]:
    """Name the models of a comparison by as many last parts of their names as tell them apart."""
    paths = [PurePath(str(model["name"])).parts for model in content["models"]]
    # What `tune` writes is called model; the folder around it says more.
    paths = [path[:-1] if path[-1:] == ("model",) and len(path) > 1 else path for path in paths]
    names = name_apart(paths)
    if len(set(names)) < len(names):  # one of them is there twice
        return [f"{number}. {name}" for number, name in enumerate(names, start=1)]
    return names


def name_maps(content: Mapping[str, Any]) -> list[str]:
    """Name the maps of a comparison."""
    names = shorten_names(content)
    pairs = [similarity["of"] for similarity in content["maps"]]
    return [names[i] if i == j else f"{names[i]} and {names[j]}" for i, j in pairs]


def choose_estimate(content: Mapping[str, Any]) -> str:
    """Choose which estimate of a comparison leads: "cka", or "cka_debiased" of few examples.

    Those are few for the width of the widest model, by the rule that also warns of the bias.
    """
    from layerscout.scores import small_sample_warning

    rows = content["task"].get("words_used", content["examples"])
    width = max(model["hidden_size"] for model in content["models"])
    return "cka" if small_sample_warning(rows, width) is None else "cka_debiased"


def count_compared(content: Mapping[str, Any]) -> str:
    """Count what the states that are compared are of."""
    return count_examples({**content["task"], "examples_used": content["examples"]})


def describe_clusters(content: Mapping[str, Any]) -> list[str]:
    """Say of each model of a comparison where its states fall into two clusters, and how far."""
    lines, leading = [], choose_estimate(content)
    for name, clusters, model in zip(
        shorten_names(content), content["clusters"], content["models"], strict=True
    ):
        # Of a very few examples the debiased one may have no value.
        key = "cka" if clusters[leading] is None else leading
        other = "cka_debiased" if key == "cka" else "cka"
        if (best := clusters[key]) is None:
            lines.append(f"{name}: too few states vary to look for clusters.")
            continue
        first = first_state(content["pooling"])
        spans = f"states {first} to {best['split']} and {best['split'] + 1} to {model['blocks']}"
        measured = (
            f"{ESTIMATES[key]} {best['lower']:.2f} and {best['upper']:.2f} within them and "
            f"{best['between']:.2f} between, contrast {best['contrast']:.2f}"
        )
        if clusters[other] is not None:
            word = "biased" if other == "cka" else "debiased"
            measured += f" ({word} {clusters[other]['contrast']:.2f})"
        p = best.get("p")  # earlier comparisons did not test it
        if p is not None:
            measured += f"; p = {p:.3f}, against states that drift apart evenly"
        if p is not None and p <= SURE and min(best["lower"], best["upper"]) > best["between"]:
            lines.append(f"{name}: {spans} form two clusters, with {measured}.")
        else:
            lines.append(f"{name}: no two clusters; the best split, {spans}, has {measured}.")
    return lines


def tabulate_clusters(content: Mapping[str, Any]) -> Table:
    """Tabulate the best split of each model's states."""
    rows = []
    for name, clusters in zip(shorten_names(content), content["clusters"], strict=True):
        for key, words in (("cka", "biased"), ("cka_debiased", "debiased")):
            best = clusters[key] or {}
            values = map(best.get, ("lower", "upper", "between", "contrast", "p"))
            rows.append([name, words, str(best.get("split", "–")), *map(format_decimals, values)])
    caption = (
        "The split of the states into a lower and an upper cluster with the largest contrast: the "
        "mean CKA between states of the same cluster minus that between states of different "
        "clusters. p: the share of maps with as much, of those whose entries are shuffled among "
        "states equally far apart, since states that change evenly have some contrast, too."
    )
    columns = ["Model", "CKA", "Lower ends at", "Within lower", "Within upper", "Between"]
    return Table(caption, [*columns, "Contrast", "p"], rows, words=frozenset({1}))


def tabulate_map(similarity: Mapping[str, Any], name: str, key: str) -> Table:
    """Tabulate a map, for those who want its numbers; the top state first."""
    rows = [
        [str(state), *(format_decimals(value, 2) for value in line)]
        for state, line in reversed(list(zip(similarity["rows"], similarity[key], strict=True)))
    ]
    return Table(
        f"{start_line(ESTIMATES[key])}, {name}.",
        ["State", *map(str, similarity["columns"])],
        rows,
        folded=True,
    )
