"""What a comparison found (the content of `compare.json`), as words, tables and sections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from layerscout.pages.content import Section, Table
from layerscout.pages.formats import format_decimals, list_circumstances, list_model, start_line
from layerscout.pages.heat_maps import (
    choose_estimate,
    draw_similarity,
    name_estimate,
    name_maps,
    shorten_names,
)
from layerscout.pages.naming import count_examples, list_task
from layerscout.plans import first_state

BLOCK_DIAGONAL = (
    "Two bright squares on the diagonal mean that the states within each square are similar, and "
    "that most of the change happens between the squares."
)

# What is said of the estimate that does not lead.
OTHERS = {
    "cka": ("Debiased", "The same estimate without the bias that few examples cause."),
    "cka_debiased": (
        "Biased",
        "The usual estimate. With so few examples, it is far above 0 even for unrelated states.",
    ),
}

MEANINGS = [
    (
        "CKA",
        "Linear centred kernel alignment: 1 if two states are the same up to a rotation and a "
        "scale, so that the examples lie at the same relative distances in both. Its usual, biased "
        "estimate is far above 0 for unrelated states unless there are many more examples than "
        "features (Kornblith et al. 2019; Phang et al. 2021, App. A).",
    ),
    (
        "Debiased CKA",
        "The same from the unbiased estimate of HSIC (Song et al. 2012): about 0 for unrelated "
        "states, however few the examples.",
    ),
]


def build_comparison(content: Mapping[str, Any]) -> tuple[str, list[Section]]:
    """Give the title and the sections of a comparison."""
    names = shorten_names(content)
    small = len(content["maps"]) > 1
    key = choose_estimate(content)
    title, text = OTHERS[key]
    models = zip(names, content["models"], strict=True)
    sections = [
        Section(
            "Found",
            [*describe_clusters(content), BLOCK_DIAGONAL],
            draw_similarity(content, key),
            small=small,
        ),
        Section("Warnings", content["warnings"]),
        Section("Two clusters", table=_tabulate_clusters(content)),
        Section(
            title,
            [text],
            draw_similarity(content, "cka_debiased" if key == "cka" else "cka"),
            small=small,
        ),
        *(
            Section(f"Values: {name}", table=_tabulate_map(one, name, key))
            for name, one in zip(name_maps(content), content["maps"], strict=True)
        ),
        Section("What the numbers mean", facts=MEANINGS),
        Section(
            "Facts",
            facts=[
                *((f"Model {name}", list_model(model)) for name, model in models),
                ("Task", list_task(content["task"])),
                ("Compared on", count_compared(content)),
                *list_circumstances(content),
            ],
        ),
    ]
    return f"{' and '.join(names)} on {content['task']['name']}", sections


def count_compared(content: Mapping[str, Any]) -> str:
    """Count what the states that are compared are of."""
    return count_examples({**content["task"], "examples_used": content["examples"]})


def describe_clusters(content: Mapping[str, Any]) -> list[str]:
    """Say of each model of a comparison where its states fall into two clusters, and how far."""
    lines, leading = [], choose_estimate(content)
    for name, found, model in zip(
        shorten_names(content), content["clusters"], content["models"], strict=True
    ):
        # Of a very few examples the debiased one may have no value.
        key = "cka" if found[leading] is None else leading
        other = "cka_debiased" if key == "cka" else "cka"
        if (one := found[key]) is None:
            lines.append(f"{name}: too few states vary to look for clusters.")
            continue
        first = first_state(content["pooling"])
        spans = f"states {first} to {one['split']} and {one['split'] + 1} to {model['blocks']}"
        measured = (
            f"{name_estimate(key)} {one['lower']:.2f} and {one['upper']:.2f} within them and "
            f"{one['between']:.2f} between, contrast {one['contrast']:.2f}"
        )
        if found[other] is not None:
            word = "biased" if other == "cka" else "debiased"
            measured += f" ({word} {found[other]['contrast']:.2f})"
        if min(one["lower"], one["upper"]) > one["between"]:
            lines.append(f"{name}: {spans} form two clusters, with {measured}.")
        else:
            lines.append(f"{name}: no two clusters; the best split, {spans}, has {measured}.")
    return lines


def _tabulate_clusters(content: Mapping[str, Any]) -> Table:
    """Tabulate the best split of each model's states."""
    rows = []
    for name, found in zip(shorten_names(content), content["clusters"], strict=True):
        for key, words in (("cka", "biased"), ("cka_debiased", "debiased")):
            one = found[key] or dict.fromkeys(("split", "lower", "upper", "between", "contrast"))
            measured = (one[value] for value in ("lower", "upper", "between", "contrast"))
            split = "–" if one["split"] is None else str(one["split"])
            rows.append([name, words, split, *map(format_decimals, measured)])
    caption = (
        "The split of the states into a lower and an upper cluster with the largest contrast: the "
        "mean CKA between states of the same cluster minus that between states of different "
        "clusters. Compare it with that of the untuned model: states that change evenly from block "
        "to block have some contrast, too."
    )
    columns = ["Model", "CKA", "Lower ends at", "Within lower", "Within upper", "Between"]
    return Table(caption, [*columns, "Contrast"], rows, words=frozenset({1}))


def _tabulate_map(one: Mapping[str, Any], name: str, key: str) -> Table:
    """Tabulate a map, for those who want its numbers; the top state first."""
    rows = [
        [str(state), *(format_decimals(value, 2) for value in line)]
        for state, line in reversed(list(zip(one["rows"], one[key], strict=True)))
    ]
    return Table(
        f"{start_line(name_estimate(key))}, {name}.",
        ["State", *map(str, one["columns"])],
        rows,
        folded=True,
    )
