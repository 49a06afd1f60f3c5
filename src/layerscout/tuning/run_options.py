"""Options that change nothing of what is trained: what is kept, saved, reported and measured."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from layerscout.errors import (
    InputError,
    LayerscoutError,
    check_integer,
    make_unknown_error,
)
from layerscout.files import check_checkpoint_folder, check_output_folder, lock_folder, read_json
from layerscout.models import SENTENCES, check_formats
from layerscout.plans import (
    Options,
    Settings,
    TuneRequest,
    option,
    options_of,
)
from layerscout.states import (
    DEFAULT_LIMIT,
    check_limit,
    fingerprint_encoder,
    hash_content,
    is_first_process,
    make_accelerator,
)
from layerscout.tuning.plan_spec import read_plan
from layerscout.tuning.resolve import Tuning
from layerscout.tuning.snapshots import VERSIONS, Snapshots

# What is measured of a tuned model: the metric that counts, which its training has computed; also
# its speed; also its predictions and all metrics; also those of the test split.
Measure = Literal["metric", "speed", "predictions", "all"]

# The trackers, and the option of each that names a run.
TRACKERS: Mapping[str, str | None] = {
    "tensorboard": None,
    "mlflow": "run_name",
    "wandb": "name",
    "trackio": "name",
}

Log = Callable[[Mapping[str, float], int], None]


# Options that a training's other entries cover: its plans, settings, method, edits, model and
# examples. Every other option has an entry of its own.
COVERED = {
    *("plan", "against", "score", "budget", "preset", "as_released", "learning_rate", "seed"),
    *("method", "method_options", "keep_adapter", "classifier", "fresh_head", "edits"),
    *("keep_layer_norm", "untie", "examples", "max_length", "save_dtype"),
    *options_of(Settings),
}


class AlreadyDoneError(LayerscoutError):
    """There is nothing to resume: the result of the training is there."""


def _check_checkpoints(name: str, value: Mapping[int, str | Path]) -> dict[int, Path]:
    for epoch, folder in value.items():
        check_integer(name, epoch, 1, remedy="epochs count from 1")
        check_checkpoint_folder(Path(folder))
    return {epoch: Path(folder) for epoch, folder in value.items()}


def _check_single(checkpoints: Collection[int] | None, trainings: int) -> None:
    """Raise for checkpoints of several trainings, which would have the same folders."""
    if checkpoints and trainings > 1:
        raise InputError(
            "`checkpoints` need a single training; give one plan, one learning rate and one seed"
        )


def check_tracker(name: str, value: str) -> str:
    """Return the name of a tracker that can be used here; `name` is that of the option.

    Raises:
        InputError: if there is no such tracker, or it is not installed.
    """
    if value not in TRACKERS:
        raise make_unknown_error("tracker", str(value), TRACKERS)
    from accelerate.tracking import get_available_trackers

    if value not in {str(kind.value) for kind in get_available_trackers()}:
        raise InputError(f"the tracker {value} is not installed; run: pip install {value}")
    return value


@dataclass(frozen=True)
class RunOptions(Options):
    """What a tuning keeps, saves, reports and measures, and how it continues."""

    cache_limit: int = option(DEFAULT_LIMIT, check_limit)
    """Bytes that the cache may hold once new states are added; 0 keeps none."""
    checkpoints: Mapping[int, Path] | None = option(
        None, _check_checkpoints, takes="Mapping[int, str | Path] | None"
    )
    """Folders by epoch, where the model is saved as it is after that epoch, such as for the
    `checkpoints` of a scan."""
    snapshots: Path | None = option(
        None, lambda name, value: Path(value), takes="str | Path | None"
    )
    """A folder where the state of training is saved after every epoch, until the result is saved,
    and which is locked until then; None for none."""
    resume: bool = option(False)
    """Continue a training that was stopped, from its snapshots."""
    track: str | None = option(None, check_tracker)
    """Report every epoch to "tensorboard", "mlflow", "wandb" or "trackio"."""
    logs: Path = option(Path("logs"), lambda name, value: Path(value), takes="str | Path")
    """The folder of trackers that write files."""
    output: Path | None = option(None, lambda name, value: Path(value), takes="str | Path | None")
    """Where the result will be saved: refused before any training if it holds the result of
    another one."""
    overwrite: bool = option(False)
    """Replace such a result, and drop `snapshots` that are not to be resumed."""
    formats: tuple[str, ...] = option(
        (), lambda name, value: check_formats(value), takes="Sequence[str]"
    )
    """Formats that `add_formats` will give the saved model: refused before any training if it
    cannot have them."""
    measure: Measure = option("all", takes='Literal["metric", "speed", "predictions", "all"]')
    """What is measured of the kept model: only the "metric" that counts, which needs no further
    pass; also its "speed"; also its "predictions" and every other metric; or "all", the test split
    too."""

    since: float | None = option(None)
    """What `time.perf_counter()` said when the `time` began that all may take; by default the call
    begins it."""

    def __post_init__(self) -> None:
        """Check the values."""
        super().__post_init__()
        if self.resume and self.snapshots is None:
            raise InputError(
                "`resume` continues from `snapshots`, and none are given; name the folder"
            )
        if self.track is not None:
            check_output_folder(self.logs)

    def settle(self, request: TuneRequest) -> TuneRequest:
        """Let a training end with a trained head where only such a model can be saved as asked.

        Raises:
            InputError: if checkpoints of several trainings are asked for.
        """
        plans = 1 if request.against is None else 2
        _check_single(
            self.checkpoints, plans * len(request.learning_rate or (0,)) * len(request.seed)
        )
        own = bool(self.checkpoints) or SENTENCES in self.formats
        own &= read_plan(request.plan).prefers_solved
        if own and request.head_end is None and request.loss is None:
            return replace(request, head_end="trained")
        return request

    def check_saving(self, tuning: Tuning) -> None:
        """Raise for formats that the model cannot have, and for checkpoints of epochs.

        These may never end, or be of models that are not saved whole.
        """
        check_formats(self.formats, tuning.saves)
        if not self.checkpoints:
            return
        seeds = len(tuning.request.seed)
        _check_single(self.checkpoints, sum(len(rated.rates) * seeds for rated in tuning.plans))
        if tuning.solves:
            raise InputError(
                "`checkpoints` need epochs, and a head that is solved has none; leave them out, or "
                "give `epochs`, or `head_end` trained, to train it"
            )
        if tuning.saved_as != "checkpoint" or tuning.method.saved == "merged":
            raise InputError(
                f"`checkpoints` need whole models, which {tuning.method.name} with the classifier "
                f"{tuning.classifier} does not save; use the method full and the family's "
                "classifier"
            )
        epochs = tuning.settings.passes(len(tuning.training))
        if later := [epoch for epoch in self.checkpoints if epoch > epochs]:
            raise InputError(
                f"`checkpoints` must be epochs of the training, in 1..{epochs}, got "
                f"{', '.join(map(str, later))}; train for longer, or name other epochs"
            )

    def warn_of_unsaved(self) -> list[str]:
        """Warn of epochs whose model was to be saved, and which the training never came to."""
        return [
            f"the model of epoch {epoch} was not saved: the training ended before that epoch did"
            for epoch, folder in (self.checkpoints or {}).items()
            if is_first_process() and not folder.exists()
        ]

    def open_snapshots(self, about: Mapping[str, Any], lock: ExitStack) -> Snapshots | None:
        """Lock and open the folder of snapshots; the first process does so before the others."""
        if self.snapshots is None:
            return None
        accelerator = make_accelerator()
        first = accelerator.is_main_process
        if first:
            lock.enter_context(lock_folder(self.snapshots))
        with accelerator.main_process_first():
            return Snapshots.open(
                self.snapshots, about, resume=self.resume or not first, overwrite=self.overwrite
            )

    def identify(self, tuning: Tuning) -> tuple[dict[str, Any], str | None]:
        """Return what is trained on what and how, and its name by its hash.

        Nothing where nothing is kept: it reads all weights and examples, which every trial of a
        study would pay for.

        Raises:
            InputError: if the output folder has the result of another training, which would be
                lost.
            AlreadyDoneError: if `resume` is requested, and the result of this one is there.
        """
        if self.snapshots is None and self.output is None:
            return {}, None
        about = identify_training(tuning, self.measure)
        training = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]
        if self.output is None or self.overwrite or not (self.output / "result.json").exists():
            return about, training
        earlier = None
        with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
            earlier = read_json(self.output / "result.json")["settings"]["training"]
        if earlier != training:
            raise InputError(
                f"{self.output} holds the result of another training; --overwrite replaces it, or "
                "name another folder with -o"
            )
        if self.resume:
            raise AlreadyDoneError(
                f"{self.output} holds the result of this training; there is nothing to resume"
            )
        return about, training


def identify_training(tuning: Tuning, measure: Measure) -> dict[str, Any]:
    """Return what is trained on what and how: what must be the same to continue a training.

    What is measured decides which rows judge, and of few rows which a training sees.
    """
    encoder, request = tuning.encoder, tuning.request
    fingerprint = fingerprint_encoder(encoder, encoder.blocks, versions=False)
    first, *others = tuning.plans
    splits = {
        f"{name} examples": hash_content(
            fingerprint, split.tokens, {"labels": split.answers.labels.tolist()}
        )
        for name, split in (
            ("training", tuning.training.spread()),
            ("validation", tuning.validation),
        )
    }
    return {
        "plan": first.choice.plan.notation,
        "second plan": others[0].choice.plan.notation if others else None,
        "states of solved heads": [
            None if rated.states is None else list(rated.states) for rated in tuning.plans
        ],
        "method": {"name": tuning.method.name, **asdict(tuning.method)},
        **asdict(tuning.settings),
        "learning rates": [list(rated.rates) for rated in tuning.plans],
        "seeds": list(request.seed),
        "edits": encoder.editing,
        "classifier": tuning.classifier,
        "fresh head": request.draws_head,
        **{name: getattr(request, name) for name in options_of(TuneRequest) if name not in COVERED},
        "measure": measure,
        "processes": make_accelerator().num_processes,
        "model (weights and precision)": fingerprint,
        VERSIONS: {name: version(name) for name in ("torch", "transformers")},
        **splits,
    }


@contextmanager
def tracking(name: str | None, folder: Path, run: str, config: Mapping[str, Any]) -> Iterator[Log]:
    """Return what logs values at a step to a run of a tracker, which begins with the first of them.

    Args:
        name: a key of `TRACKERS`; None for no tracker.
        folder: where those that write files write them.
        run: what the run is called.
        config: facts about the run, by name.
    """
    if name is None:
        yield lambda values, step: None
        return
    from accelerate import Accelerator

    option = TRACKERS[name]
    # TensorBoard names runs by their folders.
    own = folder if option else folder / re.sub(r"[^\w.=+-]+", "_", run)
    opened: list[Any] = []  # a run that was finished before has nothing to log

    def log(values: Mapping[str, float], step: int) -> None:
        if not opened:
            own.mkdir(parents=True, exist_ok=True)
            options: dict[str, Any] = {"log_with": name, "project_dir": str(own)}
            accelerator = Accelerator(device_placement=False, mixed_precision="no", **options)
            plain = {k: v for k, v in config.items() if isinstance(v, bool | int | float | str)}
            try:
                own_options = {name: {option: run}} if option else {}
                accelerator.init_trackers("layerscout", plain, own_options)
            except Exception as error:  # of whatever kind the tracker's own are
                reason = (str(error).strip() or type(error).__name__).splitlines()[0]
                raise LayerscoutError(
                    f"the tracker {name} cannot start a run: {reason}; check its settings and "
                    "continue with --resume, or leave out --track"
                ) from error
            opened.append(accelerator)
        opened[0].log(dict(values), step=step)

    try:
        yield log
    finally:
        for accelerator in opened:
            for tracker in accelerator.trackers:
                tracker.finish()
