"""`layerscout demo`: scan, plan and tune on the task that ships."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from layerscout.cli.console import print_rows, say
from layerscout.cli.groups import Plot, Quiet, check_checkpoint, check_outputs
from layerscout.cli.options import flatten
from layerscout.cli.plan import plan
from layerscout.cli.scan import scan
from layerscout.cli.tune import tune


def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for what the demo writes.")
    ] = Path("layerscout-demo"),
    plot: Plot = None,
    threads: Annotated[
        int | None,
        typer.Option(help="Number of CPU threads.", show_default="one per core"),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Scan, plan and tune a small encoder on a small task that ships with layerscout, offline."""

    def announce(command: str) -> None:
        if not quiet:
            console = Console()
            console.print()
            say(console, f"$ layerscout {command} -o {output}", "bold")

    # Of six blocks, little fits into half the cost. Half of the sentences show as much, sooner.
    budget, epochs, examples = 0.7, 3, "1000"
    chosen = str(output / "plan.json")
    check_outputs(output, "plan.json", "result.json", "predictions.parquet", plot=plot)
    check_checkpoint(output / "model")
    announce("scan demo demo")
    flatten(scan)("demo", "demo", output=output, plot=plot, threads=threads, quiet=quiet)
    announce(f"plan {output} --budget {budget} --epochs {epochs}")
    flatten(plan)(output, budget=budget, epochs=epochs, quiet=quiet)
    announce(
        f"tune demo demo --plan {chosen} --examples {examples} --epochs {epochs} --against full"
    )
    flatten(tune)(
        "demo",
        "demo",
        plan=chosen,
        output=output,
        examples=examples,
        epochs=epochs,
        against="full",
        threads=threads,
        resume=any((output / "snapshots").glob("*/state.json")),  # it was stopped
        quiet=quiet,
    )
    if not quiet:
        _tell(json.loads((output / "result.json").read_text(encoding="utf-8")))


def _tell(content: Mapping[str, Any]) -> None:
    """Print what four ways to a classifier reach on the same rows, and how long they take."""
    rows = [[way, f"{value:.3f}", f"{seconds:.1f}"] for way, value, seconds in list_ways(content)]
    console = Console()
    console.print()
    trained, held = content["task"]["examples_used"], content["free"]["examples"]
    say(console, f"trained on the same {trained:,} sentences, on {held:,} others:", "bold")
    print_rows(console, ["", content["metric"], "seconds"], rows, {0})


def list_ways(content: Mapping[str, Any]) -> list[tuple[str, float, float]]:
    """List four ways to a classifier, each with its metric on the same rows and its seconds."""
    words, free, other = content["baselines"]["tf-idf"], content["free"], content["against"]
    tuned, full = (each["seconds"]["trunk"] + each["seconds"]["train"] for each in (content, other))
    return [
        ("counting words (tf-idf)", words["value"], words["seconds"]),
        (f"free head, solved on state {free['state']}", free["value"], free["seconds"]),
        (f"tuned {content['plan']['notation']}", free["trained"], tuned),
        ("full fine-tuning, head solved", other[content["keep"]]["value"], full),
    ]
