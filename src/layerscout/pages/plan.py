"""What planning found (the content of `plan.json`), as words and a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from layerscout.pages.commands import balance_classes, write_command
from layerscout.pages.content import Table
from layerscout.pages.naming import name_examples
from layerscout.plans import METHODS, Settings, choose_epochs, describe_method


def tabulate_plans(content: Mapping[str, Any], full: Mapping[str, Any]) -> Table:
    """Tabulate the strategies in 80 columns; the chosen plan is marked.

    Args:
        content: the content of `plan.json`.
        full: the cost of full fine-tuning, which the shares are of.
    """
    rows: list[list[str]] = []
    marked = set()
    for option in content["options"]:
        cost, value = option["cost"], option["value"]
        if option["plan"] == content["plan"]:
            marked.add((len(rows), 1))
        rows.append(
            [
                option["strategy"],
                option["plan"]["notation"],
                _format_count(cost["trainable"]),
                f"{cost['trainable'] / full['total']:.0%}",
                f"{option['relative']:.1%}",
                f"{1 / option['relative']:.1f}x",
                f"{cost['inference'] / full['inference']:.0%}",
                f"{'-' if value is None else f'{value:.3g}'} @{option['state']:>2}",
                "◆" if option["efficient"] else "",
            ]
        )
    columns = ["strategy", "plan", "trained", "", "train", "cheaper", "infer", "score", ""]
    return Table("", columns, rows, frozenset(marked), frozenset({1}), mark="")


def explain_plans(score: str | None) -> list[str]:
    """Explain the columns of the table of strategies.

    Args:
        score: the name of the one that the table shows, if any.
    """
    return [
        "(b, t, h): tune blocks b to t, with the head on state h, the output of block h",
        "train, infer: FLOPs, as a share of full fine-tuning's",
        *([] if score is None else [f"score: {score} @ the state that the plan is built on"]),
        "◆ what auto chooses when the budget is exactly the cost of that plan",
    ]


def describe_work(content: Mapping[str, Any]) -> list[str]:
    """Say what training the plans are for."""
    work, lines = content["work"], []
    examples = name_examples(content["task"]["kind"])
    if options := content.get("method_options"):
        listed = ", ".join(f"{name.replace('_', ' ')} {_write(options[name])}" for name in options)
        lines.append(f"method {content['method']}: {listed}")
    lines.append(
        f"training on {work['examples']:,} {examples} of {work['tokens']:.0f} tokens for "
        f"{work['epochs']} epochs, validating on {work['validation']:,} after each"
    )
    return lines


def describe_untying(content: Mapping[str, Any]) -> list[str]:
    """Say that weights have to be untied for a plan or a method, if so."""
    if not content["untie"]:
        return []
    what = "method" if METHODS[content["method"]].untied else "plan"
    return [f"this {what} separates blocks that share weights; --untie gives each its own copy"]


def write_next_command(content: Mapping[str, Any], scan: Mapping[str, Any]) -> str:
    """Write the command that tunes by the chosen plan."""
    task, work, method = content["task"], content["work"], content["method"]
    usual_epochs = choose_epochs(Settings(), work["examples"], task["kind"], task["labels"])
    more = ["--epochs", str(work["epochs"])] if work["epochs"] != usual_epochs else []
    more += balance_classes(task["kind"], task.get("metric"))
    more += [] if method == "full" else ["--method", method]
    usual = describe_method(METHODS[method]())
    for name, value in content.get("method_options", {}).items():
        if value != usual[name]:
            more += [f"--{name.replace('_', '-')}", _write(value)]
    more += ["--plan", content["plan"]["notation"], *(["--untie"] if content["untie"] else [])]
    return write_command("tune", scan, *more)


def _write(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _format_count(parameters: int) -> str:
    millions = parameters / 1e6
    return f"{millions:.1f}M" if millions >= 1 else f"{1000 * millions:.0f}k"
