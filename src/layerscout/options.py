"""Arguments and options of the command line that mean the same for every verb."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

Model = Annotated[str, typer.Argument(metavar="MODEL", help="A model folder, a hub id, or 'demo'.")]
Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A CSV, TSV, JSONL or Parquet file, a folder with train.* (and validation.*), "
        "a hub data set (NAME or NAME/CONFIG), or 'demo'.",
    ),
]
Text = Annotated[str | None, typer.Option(help="Column of the text.")]
TextPair = Annotated[str | None, typer.Option(help="Column of the second text.")]
Label = Annotated[str | None, typer.Option(help="Column of the label.")]
KnownTask = Annotated[
    str | None, typer.Option("--task", help="A known task, such as cola: its columns and labels.")
]
Regression = Annotated[
    bool, typer.Option("--regression", help="The labels are numbers to predict.")
]
Validation = Annotated[
    str | None,
    typer.Option(help="Validation file, or the fraction of the training rows to set aside."),
]
Examples = Annotated[
    str,
    typer.Option(
        help="How many to read: a number, 'all', or 'auto', which reads more and more until the "
        "best state is decided."
    ),
]
Balanced = Annotated[bool, typer.Option("--balanced", help="Draw equally many of every class.")]
PerClass = Annotated[
    str | None, typer.Option(metavar="N0,N1,...", help="Draw exactly these numbers by class.")
]
Pooling = Annotated[
    Literal["mean", "cls"], typer.Option(help="Average a text's tokens, or take the first.")
]
MaxLength = Annotated[int, typer.Option(help="Tokens kept of an input.")]
Precision = Annotated[
    Literal["float32", "bfloat16", "float16", "auto"],
    typer.Option(help="Of the forward pass; auto: bfloat16 where the processor has it."),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps, ...")]
Seed = Annotated[int, typer.Option(help="Of every random choice.")]
Scores = Annotated[
    str | None,
    typer.Option(
        "--score",
        metavar="KEY,KEY,...",
        help="Scores to compute, or 'all'; by default the variability ratios, or cca, ridge and "
        "logme for numbers.",
    ),
]
Metric = Annotated[
    str | None,
    typer.Option(
        help="accuracy, f1 or matthews_correlation; for numbers pearson, spearman or "
        "pearson_spearman."
    ),
]
CacheLimit = Annotated[
    str,
    typer.Option(
        metavar="SIZE", help="What the cache may hold once new states are added; 0: no cache."
    ),
]
Epochs = Annotated[int, typer.Option(help="Passes over the training examples.")]
BestScore = Annotated[
    str | None,
    typer.Option(
        "--score",
        metavar="KEY",
        help="The score that says which state is best, or ranks blocks; by default the scan's.",
    ),
]
Budget = Annotated[
    float, typer.Option(help="For auto: the share of full fine-tuning's FLOPs to stay within.")
]
Bottleneck = Annotated[
    int | None,
    typer.Option(
        help="Features of an adapter between down and up; 256 unless given.",
        rich_help_panel="Method",
    ),
]
Rank = Annotated[
    int | None, typer.Option(help="Of LoRA's changes; 8 unless given.", rich_help_panel="Method")
]
LoraAlpha = Annotated[
    float | None,
    typer.Option(help="LoRA's scale times its rank; 16 unless given.", rich_help_panel="Method"),
]
VirtualTokens = Annotated[
    int | None,
    typer.Option(
        help="Of prefix-tuning, in each block; 16 unless given.", rich_help_panel="Method"
    ),
]
Untie = Annotated[
    bool, typer.Option("--untie", help="Copy the weights that blocks share (ALBERT) first.")
]
Plot = Annotated[
    Path | None, typer.Option(help="Also draw the curve into this .png, .svg or .pdf.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, and nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors and warnings only.")]
