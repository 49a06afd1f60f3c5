"""The command line: one subcommand per verb."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Literal

import typer

from layerscout.cli.options import (
    Address,
    Backend,
    Balanced,
    BestScore,
    Bottleneck,
    Budget,
    CacheLimit,
    Cpus,
    Data,
    Device,
    Epochs,
    Examples,
    Gpus,
    Json,
    KnownTask,
    Label,
    LoraAlpha,
    MaxLength,
    Metric,
    Model,
    PerClass,
    Plot,
    Pooling,
    Precision,
    Quiet,
    Rank,
    Regression,
    Scores,
    Seed,
    Text,
    TextPair,
    Untie,
    Validation,
    VirtualTokens,
    interruptible,
    on_cluster,
    size_in_bytes,
)
from layerscout.cli.study import report, study
from layerscout.runtime import InputError, LayerscoutError

app = typer.Typer(
    name="layerscout",
    help="Find out which layers of a pretrained text encoder are worth tuning, before you tune.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Run the command line: exit 2 on input that cannot be used, 1 else, 130 on Ctrl-C."""
    if not os.environ.get("COLUMNS", "80").strip("0"):
        del os.environ["COLUMNS"]  # some shells say 0 for a width that they do not know
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # names from the data may not fit the encoding
            stream.reconfigure(errors="replace")
    try:
        _check_arguments()
        app()
    except OSError as error:  # such as a full disk behind standard output
        of_a_stream = error.errno is not None and error.filename is None
        _tell(OSError(f"cannot write the output: {error.strerror}") if of_a_stream else error)
        sys.exit(1)
    except LayerscoutError as error:
        _tell(error)
        sys.exit(2 if isinstance(error, InputError) else 1)


def _check_arguments() -> None:
    """Refuse names that no file written here could hold, before any work is done."""
    for argument in sys.argv[1:]:
        try:
            argument.encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"names of files must be UTF-8, got {argument}; rename it, or set PYTHONUTF8=1 if "
                "the name looks right to you"
            ) from error


def _tell(error: Exception) -> None:
    if os.environ.get("RANK", "0") == "0":  # of several processes the first one speaks
        typer.echo(f"layerscout: {error}", err=True)


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"layerscout {version('layerscout')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Take the options that belong to no verb."""


@app.command()
def scan(
    model: Model,
    data: Data,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for scan.json and scan.html.")
    ] = Path("scan"),
    text: Text = None,
    text_pair: TextPair = None,
    label: Label = None,
    task: KnownTask = None,
    regression: Regression = False,
    validation: Validation = None,
    scores: Scores = None,
    examples: Examples = "auto",
    balanced: Balanced = False,
    per_class: PerClass = None,
    pooling: Pooling = "mean",
    max_length: MaxLength = 128,
    precision: Precision = "float32",
    device: Device = "auto",
    seed: Seed = 0,
    probe: Annotated[
        Literal["linear", "family"],
        typer.Option(help="A linear probe on the pooled state, or the family's own head."),
    ] = "linear",
    fisher_mode: Annotated[
        Literal["true", "empirical"],
        typer.Option(help="Expectation over the model's own labels, or the given ones."),
    ] = "true",
    as_released: Annotated[
        bool, typer.Option("--as-released", help="Fisher information as in the paper's own code.")
    ] = False,
    fisher_parts: Annotated[
        bool, typer.Option("--fisher-parts", help="Fisher information of each block's parts too.")
    ] = False,
    head_seeds: Annotated[
        int, typer.Option(help="Random heads that scores of gradients are averaged over.")
    ] = 1,
    checkpoints: Annotated[
        list[str] | None,
        typer.Option(
            "--checkpoint",
            metavar="MODEL",
            help="A later checkpoint of the same model, to see how ranks move; may be repeated.",
        ),
    ] = None,
    backend: Backend = "local",
    address: Address = None,
    cpus: Cpus = None,
    gpus: Gpus = None,
    cache_limit: CacheLimit = "20GB",
    plot: Plot = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Score every layer of MODEL on DATA without training, and find the best one."""
    from layerscout.cli import terminal

    limit = size_in_bytes(cache_limit)
    spread = on_cluster(backend, address=address, cpus=cpus, gpus=gpus)
    with interruptible(), terminal.loading(quiet):
        # Heavy imports are part of what the spinner stands for.
        from layerscout.data import Task
        from layerscout.models import Encoder
        from layerscout.pages import check_plot
        from layerscout.runtime import check_output_folder

        check_output_folder(output, "scan.json", "scan.html")
        if plot is not None:
            check_plot(plot)
            check_output_folder(plot.parent, plot.name)
        columns = {"task": task, "text": text, "text_pair": text_pair, "label": label}
        if not spread:
            loaded_task = Task.load(
                data, **columns, regression=regression, validation=validation, seed=seed
            )
            encoder = Encoder.load(model, device=device, precision=precision)
    with interruptible():
        from layerscout import pages, scanning

        if spread:
            from layerscout.runtime import Cluster
            from layerscout.scanning import scan_shards

            others = {
                "--regression": regression,
                "--validation": validation,
                "--examples": examples not in ("auto", "all"),
                "--balanced": balanced,
                "--per-class": per_class,
                "--checkpoint": checkpoints,
            }
            if given := [name for name, value in others.items() if value]:
                raise InputError(
                    f"{given[0]} does not go with --backend ray, which sums over all rows of tasks "
                    "with classes; leave one out"
                )
            result = scan_shards(
                model,
                data,
                **columns,
                scores=scores,
                pooling=pooling,
                max_length=max_length,
                precision=precision,
                cluster=Cluster(address, cpus, gpus, device),
                progress=not quiet,
            )
        else:
            result = scanning.scan(
                encoder,
                loaded_task,
                scores=scores,
                examples=_examples(examples),
                balanced=balanced,
                per_class=None if per_class is None else _numbers("--per-class", per_class),
                pooling=pooling,
                max_length=max_length,
                seed=seed,
                options=scanning.Options(probe, fisher_mode, as_released, fisher_parts, head_seeds),
                checkpoints=checkpoints or (),
                cache_limit=limit,
                progress=not quiet,
            )
        result.save(output)
        if plot is not None:
            pages.plot(result, plot)
    terminal.report_scan(result, output, plot, as_json=json, quiet=quiet)


@app.command()
def plan(
    folder: Annotated[
        Path, typer.Argument(metavar="SCAN_DIR", help="What a scan wrote, or its scan.json.")
    ],
    strategy: Annotated[
        str, typer.Option(help="Such as best-down:3@top, or a plan such as '(6, 8, 12)'.")
    ] = "auto",
    budget: Budget = 0.5,
    score: BestScore = None,
    epochs: Epochs = 5,
    method: Annotated[
        Literal["full", "adapter", "lora", "prefix-tuning"],
        typer.Option(
            help="How the blocks are tuned: all of their weights, or a few new ones.",
            rich_help_panel="Method",
        ),
    ] = "full",
    bottleneck: Bottleneck = None,
    rank: Rank = None,
    lora_alpha: LoraAlpha = None,
    virtual_tokens: VirtualTokens = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder for plan.json.", show_default="SCAN_DIR"),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """List what could be tuned after a scan, with the cost of each plan, and choose one."""
    from layerscout.cli import terminal

    output = output or (folder.parent if folder.is_file() else folder)
    with interruptible(), terminal.loading(quiet):
        from layerscout.plans import make_method
        from layerscout.scanning import Scan

        made = make_method(
            method,
            bottleneck=bottleneck,
            rank=rank,
            lora_alpha=lora_alpha,
            virtual_tokens=virtual_tokens,
        )
        scanned = Scan.load(folder)
        result = scanned.planning(strategy, score=score, budget=budget, epochs=epochs, method=made)
        result.save(output)
    terminal.report_planning(result, output, as_json=json, quiet=quiet)


@app.command()
def tune(
    model: Model,
    data: Data,
    plan: Annotated[
        str,
        typer.Option(
            help="A strategy such as best-down:3@top, a plan such as '(6, 8, 12)', or a plan.json."
        ),
    ] = "auto",
    scan_folder: Annotated[
        Path | None,
        typer.Option(
            "--scan", metavar="DIR", help="The scan to go by; without it, one is made first."
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for model/ and result.json.")
    ] = Path("tuned"),
    text: Text = None,
    text_pair: TextPair = None,
    label: Label = None,
    task: KnownTask = None,
    regression: Regression = False,
    validation: Validation = None,
    metric: Metric = None,
    examples: Annotated[
        str, typer.Option(help="Training examples to use: a number or 'all'.")
    ] = "all",
    score: BestScore = None,
    budget: Budget = 0.5,
    method: Annotated[
        Literal["full", "adapter", "lora", "prefix-tuning"] | None,
        typer.Option(
            help="How the blocks are tuned: all of their weights, or a few new ones.",
            show_default="full, or what a plan.json says",
            rich_help_panel="Method",
        ),
    ] = None,
    bottleneck: Bottleneck = None,
    adapter_init: Annotated[
        Literal["bert", "identity"] | None,
        typer.Option(help="How adapters start; bert unless given.", rich_help_panel="Method"),
    ] = None,
    rank: Rank = None,
    lora_alpha: LoraAlpha = None,
    virtual_tokens: VirtualTokens = None,
    keep_adapter: Annotated[
        bool,
        typer.Option(
            "--keep-adapter",
            help="Write LoRA as a folder of peft, not merged.",
            rich_help_panel="Method",
        ),
    ] = False,
    classifier: Annotated[
        Literal["family", "mean-linear"] | None,
        typer.Option(
            help="What reads the last state: the family's own head, or one layer on the mean.",
            show_default="family",
            rich_help_panel="Method",
        ),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="Train as a paper did: xie2022, phang2021, tamkin2020 or lodha2023.",
            rich_help_panel="Training",
        ),
    ] = None,
    as_released: Annotated[
        bool,
        typer.Option(
            "--as-released",
            help="With a preset or reinit: as the published code did.",
            rich_help_panel="Training",
        ),
    ] = False,
    learning_rate: Annotated[
        str | None,
        typer.Option(
            metavar="R[,R...]",
            help="One or several; by default one that suits the plan.",
            rich_help_panel="Training",
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            help="Passes over the training examples.", show_default="5", rich_help_panel="Training"
        ),
    ] = None,
    max_steps: Annotated[
        int | None,
        typer.Option(
            help="Steps of the whole training, in place of epochs.", rich_help_panel="Training"
        ),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(help="Examples of a step.", show_default="32", rich_help_panel="Training"),
    ] = None,
    seed: Annotated[
        str,
        typer.Option(
            metavar="S[,S...]", help="One or several, a run each.", rich_help_panel="Training"
        ),
    ] = "0",
    keep: Annotated[
        Literal["best", "last"] | None,
        typer.Option(
            help="Keep the best epoch's model, or the last's.",
            show_default="best",
            rich_help_panel="Training",
        ),
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option(
            help="Stop after so many epochs that are no better.", rich_help_panel="Training"
        ),
    ] = None,
    warmup: Annotated[
        float | None,
        typer.Option(
            help="Steps in which the learning rate rises; below 1 their share.",
            show_default="0.06",
            rich_help_panel="Training",
        ),
    ] = None,
    schedule: Annotated[
        Literal["linear", "constant"] | None,
        typer.Option(
            help="Whether the rate then falls to 0, or stays.",
            show_default="linear",
            rich_help_panel="Training",
        ),
    ] = None,
    weight_decay: Annotated[
        float | None, typer.Option(help="Of AdamW.", show_default="0", rich_help_panel="Training")
    ] = None,
    max_grad_norm: Annotated[
        float | None, typer.Option(help="Clip gradients to this norm.", rich_help_panel="Training")
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="PLAN",
            help="Tune this too, such as full, and compare.",
            rich_help_panel="Training",
        ),
    ] = None,
    trunk_dropout: Annotated[
        bool,
        typer.Option(
            "--trunk-dropout",
            help="Run frozen blocks at every step, with dropout.",
            rich_help_panel="Training",
        ),
    ] = False,
    fresh_head: Annotated[
        bool,
        typer.Option(
            "--fresh-head", help="Start the whole head at random.", rich_help_panel="Training"
        ),
    ] = False,
    untie: Untie = False,
    edit: Annotated[
        str,
        typer.Option(
            metavar="EDIT",
            help="What is done to the blocks first: reinit:9-12, preserve:1-3, permute:1, skip:3-4 "
            "or truncate:8; several with +.",
            show_default=False,
            rich_help_panel="Edits",
        ),
    ] = "",
    keep_layer_norm: Annotated[
        bool,
        typer.Option(
            "--keep-layer-norm",
            help="Leave the norms of blocks that are drawn anew.",
            rich_help_panel="Edits",
        ),
    ] = False,
    reinit_rate_factor: Annotated[
        float,
        typer.Option(
            help="Times the learning rate of blocks that are drawn anew.", rich_help_panel="Edits"
        ),
    ] = 1.0,
    save_epochs: Annotated[
        str | None,
        typer.Option(
            metavar="N[,N...]",
            help="Also write the model after these epochs, under epochs/.",
            rich_help_panel="Training",
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Go on with a training that was stopped.", rich_help_panel="Training"
        ),
    ] = False,
    track: Annotated[
        str | None,
        typer.Option(
            help="Report to tensorboard, mlflow, wandb or trackio.", rich_help_panel="Training"
        ),
    ] = None,
    cache_limit: CacheLimit = "20GB",
    max_length: MaxLength = 128,
    precision: Precision = "float32",
    device: Device = "auto",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Tune the blocks that a plan names; what lies below them is computed once."""
    from layerscout.cli import terminal

    seeds, rates = _numbers("--seed", seed), None
    if learning_rate is not None:
        rates = _floats("--learning-rate", learning_rate)
    limit, wanted = size_in_bytes(cache_limit), _examples(examples, auto=False)
    saved = [] if save_epochs is None else _numbers("--save-epochs", save_epochs)
    with interruptible(), terminal.loading(quiet):
        from layerscout.data import Task
        from layerscout.models import Encoder
        from layerscout.runtime import check_checkpoint_folder, check_output_folder
        from layerscout.scanning import Scan
        from layerscout.tuning import chosen_method

        check_output_folder(output, "result.json", "predictions.parquet")
        check_checkpoint_folder(output / "model")
        scanned = None if scan_folder is None else Scan.load(scan_folder)
        loaded_task = Task.load(
            data,
            task=task,
            text=text,
            text_pair=text_pair,
            label=label,
            regression=regression,
            validation=validation,
            seed=seeds[0],
        )
        made = chosen_method(
            plan,
            method,
            bottleneck=bottleneck,
            adapter_init=adapter_init,
            rank=rank,
            lora_alpha=lora_alpha,
            virtual_tokens=virtual_tokens,
        )
        encoder = Encoder.load(model, device=device, precision=precision)
    with interruptible(output / "snapshots"):
        from layerscout import tuning
        from layerscout.cache import is_first_process

        result = tuning.tune(
            encoder,
            loaded_task,
            plan,
            scan=scanned,
            score=score,
            budget=budget,
            method=made,
            classifier=classifier,
            preset=preset,
            as_released=as_released,
            learning_rate=rates,
            seed=seeds,
            epochs=epochs,
            max_steps=max_steps,
            batch_size=batch_size,
            keep=keep,
            patience=patience,
            warmup=warmup,
            schedule=schedule,
            weight_decay=weight_decay,
            max_grad_norm=max_grad_norm,
            metric=metric,
            examples="all" if isinstance(wanted, str) else wanted,
            max_length=max_length,
            trunk_dropout=trunk_dropout,
            fresh_head=fresh_head,
            untie=untie,
            edits=edit,
            keep_layer_norm=keep_layer_norm,
            reinit_rate_factor=reinit_rate_factor,
            against=against,
            keep_adapter=keep_adapter,
            cache_limit=limit,
            checkpoints={epoch: output / "epochs" / str(epoch) for epoch in saved},
            snapshots=output / "snapshots",
            resume=resume,
            track=track,
            logs=output / "logs",
            progress=not quiet,
        )
        if not is_first_process():
            return
        result.save(output)
    terminal.report_tuning(result, output, as_json=json, quiet=quiet)


@app.command()
def compare(
    models_and_data: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL... DATA",
            help="One or several model folders or hub ids, such as a tuned model and the untuned "
            "one; then the data.",
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for compare.json and compare.html.")
    ] = Path("compare"),
    text: Text = None,
    text_pair: TextPair = None,
    label: Label = None,
    task: KnownTask = None,
    regression: Regression = False,
    validation: Validation = None,
    examples: Annotated[
        str, typer.Option(help="Validation examples to read: a number or 'all'.")
    ] = "all",
    pooling: Annotated[
        Literal["mean", "cls"], typer.Option(help="Average a text's tokens, or take the first.")
    ] = "cls",
    max_length: MaxLength = 128,
    precision: Precision = "float32",
    device: Device = "auto",
    seed: Seed = 0,
    cache_limit: CacheLimit = "20GB",
    plot: Annotated[
        Path | None, typer.Option(help="Also draw the maps into this .png, .svg or .pdf.")
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare what the states of one or several models hold, by CKA on the validation examples."""
    from layerscout.cli import terminal

    *models, data = models_and_data
    if not models:
        raise InputError(f"compare takes models and then the data, got only {data!r}; add a model")
    limit, wanted = size_in_bytes(cache_limit), _examples(examples, auto=False)
    with interruptible(), terminal.loading(quiet):
        from layerscout.data import Task
        from layerscout.models import Encoder
        from layerscout.pages import check_plot
        from layerscout.runtime import check_output_folder

        check_output_folder(output, "compare.json", "compare.html")
        if plot is not None:
            check_plot(plot)
            check_output_folder(plot.parent, plot.name)
        loaded_task = Task.load(
            data,
            task=task,
            text=text,
            text_pair=text_pair,
            label=label,
            regression=regression,
            validation=validation,
            seed=seed,
        )
        encoders = [Encoder.load(model, device=device, precision=precision) for model in models]
    with interruptible():
        from layerscout import analysis, pages

        result = analysis.compare(
            encoders,
            loaded_task,
            pooling=pooling,
            examples="all" if isinstance(wanted, str) else wanted,
            max_length=max_length,
            seed=seed,
            cache_limit=limit,
            progress=not quiet,
        )
        result.save(output)
        if plot is not None:
            pages.plot(result, plot)
    terminal.report_comparison(result, output, plot, as_json=json, quiet=quiet)


@app.command()
def evaluate(
    model: Model,
    data: Data,
    edits: Annotated[
        list[str] | None,
        typer.Option(
            "--edit",
            metavar="EDIT",
            help="'truncate': the head at every state; 'skip': every span of blocks passed over; "
            "or one edit such as skip:3-4, reinit:9-12, permute:1. May be repeated.",
            show_default="truncate",
        ),
    ] = None,
    tune_heads: Annotated[
        bool, typer.Option("--tune-heads", help="Also tune the head again at every state.")
    ] = False,
    original: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL", help="The untuned model, to tune its head at every state too."
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for evaluate.json and evaluate.html.")
    ] = Path("evaluate"),
    text: Text = None,
    text_pair: TextPair = None,
    label: Label = None,
    task: KnownTask = None,
    regression: Regression = False,
    validation: Validation = None,
    metric: Metric = None,
    examples: Annotated[
        str | None,
        typer.Option(
            help="Training examples that heads are tuned on: a number or 'all'.",
            show_default="at most 5,000",
        ),
    ] = None,
    max_length: MaxLength = 128,
    precision: Precision = "float32",
    device: Device = "auto",
    seed: Seed = 0,
    cache_limit: CacheLimit = "20GB",
    plot: Annotated[
        Path | None, typer.Option(help="Also draw the curves and map into this .png, .svg or .pdf.")
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Judge a tuned MODEL cut at every state, without spans of its blocks, or under other edits."""
    from layerscout.cli import terminal

    limit = size_in_bytes(cache_limit)
    if plot is not None and edits and not {"truncate", "skip"} & set(edits):
        raise InputError("--plot draws --edit truncate and --edit skip; add one, or leave it out")
    wanted = None if examples is None else _examples(examples, auto=False)
    with interruptible(), terminal.loading(quiet):
        from layerscout.data import Task
        from layerscout.pages import check_plot
        from layerscout.runtime import check_output_folder

        check_output_folder(output, "evaluate.json", "evaluate.html", "predictions.parquet")
        if plot is not None:
            check_plot(plot)
            check_output_folder(plot.parent, plot.name)
        loaded_task = Task.load(
            data,
            task=task,
            text=text,
            text_pair=text_pair,
            label=label,
            regression=regression,
            validation=validation,
            seed=seed,
        )
    with interruptible():
        from layerscout import analysis, pages

        result = analysis.evaluate(
            model,
            loaded_task,
            edits=edits or ("truncate",),
            tune_heads=tune_heads,
            original=original,
            metric=metric,
            examples="all" if isinstance(wanted, str) else wanted,
            max_length=max_length,
            device=device,
            precision=precision,
            seed=seed,
            cache_limit=limit,
            progress=not quiet,
        )
        result.save(output)
        if plot is not None:
            pages.plot(result, plot)
    terminal.report_evaluation(result, output, plot, as_json=json, quiet=quiet)


@app.command()
def truncate(
    model: Model,
    head: Annotated[int, typer.Option(help="The state that the shorter encoder ends with.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the checkpoint.")],
    untie: Untie = False,
    quiet: Quiet = False,
) -> None:
    """Cut MODEL above a state and save the shorter checkpoint, nothing else."""
    from layerscout.cli import terminal

    with interruptible(), terminal.loading(quiet):
        from layerscout import models

        warnings = models.truncate(model, head, output, untie=untie)
    terminal.report_truncation(output, warnings, quiet=quiet)


app.command()(study)
app.command()(report)

cache = typer.Typer(help="The states that are kept on disk.", no_args_is_help=True)
app.add_typer(cache, name="cache")


@cache.command("list")
def list_cache(json: Json = False) -> None:
    """List what is kept, the latest used first."""
    from layerscout.cli import terminal

    terminal.report_cache(as_json=json)


@cache.command("clear")
def clear_cache(quiet: Quiet = False) -> None:
    """Remove all that is kept; what is needed again is computed again."""
    from layerscout.runtime import cache_folder, clear_cache

    freed = clear_cache()
    if not quiet:
        typer.echo(f"removed {freed / 1e6:,.1f} MB from {cache_folder()}")


@app.command()
def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for what the demo writes.")
    ] = Path("layerscout-demo"),
    plot: Plot = None,
    quiet: Quiet = False,
) -> None:
    """Scan, plan and tune a small encoder on a small task that ships with layerscout, offline."""
    from layerscout.cli import terminal

    def say(command: str) -> None:
        if not quiet:
            terminal.say_command(f"layerscout {command} -o {output}")

    # Of six blocks, little fits into half the cost. Half of the sentences show as much, sooner.
    budget, epochs, examples = 0.7, 3, "1000"
    chosen = str(output / "plan.json")
    say("scan demo demo")
    scan("demo", "demo", output, plot=plot, quiet=quiet)
    say(f"plan {output} --budget {budget} --epochs {epochs}")
    plan(output, budget=budget, epochs=epochs, quiet=quiet)
    say(f"tune demo demo --plan {chosen} --examples {examples} --epochs {epochs} --against full")
    tune(
        "demo",
        "demo",
        chosen,
        output=output,
        examples=examples,
        epochs=epochs,
        against="full",
        quiet=quiet,
    )


def _examples(examples: str, *, auto: bool = True) -> int | Literal["all", "auto"]:
    if examples == "all":
        return "all"
    if examples == "auto" and auto:
        return "auto"
    try:
        return int(examples)
    except ValueError as error:
        words = "a whole number, 'all' or 'auto'" if auto else "a whole number or 'all'"
        raise InputError(f"--examples takes {words}, got {examples!r}") from error


def _numbers(option: str, written: str) -> list[int]:
    try:
        return [int(part) for part in written.split(",")]
    except ValueError as error:
        raise InputError(f"{option} takes whole numbers, got {written!r}") from error


def _floats(option: str, written: str) -> list[float]:
    try:
        return [float(part) for part in written.split(",")]
    except ValueError as error:
        raise InputError(f"{option} takes numbers, got {written!r}") from error
