"""Encoded examples, and running models on them: from the states at the cut where there are any."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from threading import current_thread, main_thread
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from layerscout.data import Tags, Targets, batch_by_length, expand_choices, label_pieces
from layerscout.errors import InputError, LayerscoutError, first_line
from layerscout.models import Encoder, Tokens, base_of, find_head_token, resume_at, widen
from layerscout.plans import Classifier, Plan
from layerscout.progress import announce_waiting
from layerscout.states.trunks import HeadToken, ProcessGroup, Trunk, run_trunk

Found = TypeVar("Found")

# By what accelerate looks for other processes, those of mpirun too.
OF_PROCESSES = (
    *("WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    *("PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    *("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"),
    *("MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_RANK"),
)


@dataclass(frozen=True, eq=False)
class Examples:
    """n tokenised examples with their targets, and their states at the cut, if any.

    Where words are labelled, an example is a sentence, or a window of a long one.

    Attributes:
        tokens: n C texts, those of an example one after another; if only the head is tuned and
            reads one state of each, a token that stands for it.
        answers: what is right for the n examples, or for all of their words.
        trunk: the states of the same texts.
    """

    tokens: Tokens
    answers: Targets
    trunk: Trunk | None

    def __len__(self) -> int:
        return len(self.tokens) // self.choices

    @property
    def choices(self) -> int:
        """C, 1 but for multiple choice."""
        return self.answers.choices

    def find_answers(self, rows: np.ndarray) -> np.ndarray:
        """Return the numbers of the examples at `rows`, or of all of their words."""
        return rows if self.choices > 1 else self.tokens.find_outputs(rows)

    def labels_of(self, rows: np.ndarray) -> Tensor:
        """Return the labels of the examples at `rows`, or of all of their words."""
        return torch.from_numpy(self.answers.labels[self.find_answers(rows)])

    def shares_of(self, rows: np.ndarray) -> Tensor | None:
        """Return how much the same labels count in training; None if all count alike."""
        shares = self.answers.shares
        return None if shares is None else torch.from_numpy(shares[self.find_answers(rows)])

    def weigh(self, rows: np.ndarray) -> float:
        """Return how much the labels of the examples at `rows` count together."""
        shares = self.shares_of(rows)
        return len(self.find_answers(rows)) if shares is None else float(shares.sum())

    def take_outputs(self, rows: np.ndarray, logits: Tensor) -> Tensor:
        """Take from the logits of the examples at `rows` those that have a label."""
        return logits if self.choices > 1 else self.tokens.take_outputs(rows, logits)

    def spread(self) -> Examples:
        """Return the examples for training: words are labelled wherever users' pipelines read them.

        That is at more than one token of some words. Such a word is judged by one of them, and the
        others count a nineteenth of that one together: every word counts alike. Where every token
        did, links and names of users in WNUT-17 took entity F1 from 0.44 to 0.38. On rows of its
        training file (500 MiniLM was tuned on, 400 judged, mean of 3 seeds) entity F1 by words and
        through the pipeline is 0.46 and 0.38 if only the one is labelled, 0.46 and 0.43 so, and
        0.46 and 0.44 with a quarter, but on its validation file 0.46, 0.45 and 0.44 by words.
        """
        tags = self.answers.tags
        if tags is None:
            return self
        tokens, words, places = self.tokens.spread()
        if not places.any():
            return self
        others = np.bincount(words[places != 0], minlength=len(self.answers))[words]
        judged = np.where(others > 0, 0.95, 1.0)
        shares = np.where(places == 0, judged, 0.05 / np.maximum(others, 1))
        pieces = label_pieces(tags, self.answers.labels, words, places)
        of_pieces = Tags(tags.names, tags.sentences[words])
        answers = Targets(pieces, 1, self.answers.rows[words], of_pieces, shares)
        return replace(self, tokens=tokens, answers=answers)

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each example, or of its longest choice, (n,)."""
        longest: np.ndarray = self.tokens.lengths.reshape(-1, self.choices).max(axis=1)
        return longest

    @classmethod
    def prepare(
        cls,
        encoder: Encoder,
        plan: Plan,
        tokens: Tokens,
        answers: Targets,
        *,
        classifier: Classifier = "family",
        **options: Any,
    ) -> Examples:
        """Run the trunk of a plan over examples, or read its states from the cache.

        Args:
            encoder: the model before the cut.
            plan: for this encoder; see `Plan.on`.
            tokens: the n C texts of the examples.
            answers: what is right for them.
            classifier: the head, which may read only one token's state, or the mean of all.
            **options: as for `run_trunk`.
        """
        if plan.cut is None:
            return cls(tokens, answers, None)
        reads = None if plan.tuned else _find_head_token(encoder, tokens, classifier)
        states = run_trunk(encoder, tokens, plan.cut, reads=reads, **options)
        if reads == "mean":
            tokens = tokens.keep(np.zeros(len(tokens), dtype=np.int64))
        elif reads is not None:
            tokens = tokens.keep(encoder.find_head_tokens(tokens, reads))
        return cls(tokens, answers, states)


def _find_head_token(encoder: Encoder, tokens: Tokens, classifier: Classifier) -> HeadToken | None:
    """Return what a head on frozen states reads of each text; None if it reads every token."""
    if tokens.words is not None:
        return None
    if classifier == "family":
        return find_head_token(encoder.model)
    # A norm before the mean is not one after it.
    return "mean" if encoder.family.final_norm is None else None


def make_batch(encoder: Encoder, examples: Examples, rows: np.ndarray) -> dict[str, Tensor]:
    """Return a model's inputs for the examples at `rows`: (b, T), or (b, C, T) with choices."""
    inputs = encoder.batch(examples.tokens, expand_choices(rows, examples.choices))
    if examples.choices == 1:
        return inputs
    shape = (len(rows), examples.choices, -1)
    return {name: tensor.reshape(shape) for name, tensor in inputs.items()}


def make_batches(
    encoder: Encoder, examples: Examples, rows: np.ndarray | None = None
) -> list[np.ndarray]:
    """Group the examples at `rows`, or all, by length, as `Encoder.batches` does texts."""
    rows = np.arange(len(examples)) if rows is None else rows
    budget = max(1, encoder.token_budget // examples.choices)
    return [rows[part] for part in batch_by_length(examples.lengths[rows], budget)]


def compute_logits(
    encoder: Encoder, model: Any, examples: Examples, rows: np.ndarray, *, run: Any = None
) -> Tensor:
    """Run a model of `encoder` on the examples at `rows`, from the cut if there is one.

    Args:
        encoder: what the model was made from.
        model: the model.
        examples: the encoded examples.
        rows: of the examples, (b,).
        run: called instead of the model, for example to gather gradients.

    Returns:
        (b, K), or (b, C) for examples with choices, or (w, K) for the words of the examples;
        float32 or more precise.
    """
    inputs, trunk = make_batch(encoder, examples, rows), examples.trunk
    if trunk is None:
        with encoder.autocast():
            logits = widen((model if run is None else run)(**inputs).logits)
    else:
        states = trunk.states(expand_choices(rows, examples.choices))
        logits = resume_from_states(encoder, model, inputs, states, trunk.cut, run=run)
    return examples.take_outputs(rows, logits)


def resume_from_states(
    encoder: Encoder,
    model: Any,
    inputs: Mapping[str, Tensor],
    states: Tensor,
    block: int,
    *,
    run: Any = None,
) -> Tensor:
    """Run a model of `encoder` from given states: blocks 1..`block` are skipped.

    Args:
        encoder: what the model was made from.
        model: the model.
        inputs: from `make_batch`; of the tokens that the head reads where `states` holds no others.
        states: (b C, T, d), what block `block` + 1, or the head, reads.
        block: 0 to L.
        run: as for `compute_logits`.

    Returns:
        What the model gives: of every token, (b, T, K), where words are labelled.
    """
    with (
        encoder.autocast(),
        resume_at(base_of(model)[0], encoder.family, states, block),
    ):
        return widen((model if run is None else run)(**inputs).logits)


def predict(
    encoder: Encoder, model: Any, examples: Examples, advance: Callable[[int], None] | None = None
) -> Tensor:
    """Return the logits of all examples in their order, (n, K) float32 on the CPU, in eval mode.

    Those of all words, (w, K), where words are labelled. Several processes share the batches.

    Args:
        encoder: what the model was made from.
        model: the model.
        examples: the encoded examples.
        advance: called after each batch with its number of examples.
    """
    outputs = model.config.num_labels if examples.choices == 1 else examples.choices
    answers = np.arange(len(examples.answers))
    return _run(encoder, model, examples, np.arange(len(examples)), answers, outputs, advance)


def read_inputs(
    encoder: Encoder,
    model: Any,
    examples: Examples,
    rows: np.ndarray,
    layer: nn.Linear,
    last: nn.Linear,
) -> Tensor:
    """Return what a layer of a model's head is given, (b, d), run as `predict` runs a model.

    Args:
        encoder: what the model was made from.
        model: the model.
        examples: the encoded examples.
        rows: of the examples, (b,), sorted.
        layer: the one that gives the outputs, or a square one before it.
        last: the one that gives the outputs.

    Returns:
        float32; of all words of the examples, (w, d), and for examples with choices (b, C, d).
    """
    seen: list[Tensor] = []

    def keep(inputs: Tensor) -> Tensor:
        seen[:] = [inputs]
        return inputs

    # The library's own code picks tokens from what the last layer gives.
    last.forward = lambda inputs: seen[0].contiguous()  # type: ignore[assignment]
    layer.forward = keep  # type: ignore[assignment]
    try:
        answers, outputs = examples.find_answers(rows), layer.in_features * examples.choices
        given = _run(encoder, model, examples, rows, answers, outputs)
    finally:
        for changed in {layer, last}:
            del changed.forward
    return given if examples.choices == 1 else given.reshape(len(given), examples.choices, -1)


def _run(
    encoder: Encoder,
    model: Any,
    examples: Examples,
    rows: np.ndarray,
    answers: np.ndarray,
    outputs: int,
    advance: Callable[[int], None] | None = None,
) -> Tensor:
    """Run a model in eval mode on the examples at `rows`; both they and their answers are sorted.

    Each answer has so many outputs. For `advance` see `predict`.
    """
    model.eval()
    logits = torch.zeros(len(answers), outputs)
    accelerator = make_accelerator()
    own, processes = accelerator.process_index, accelerator.num_processes
    with torch.no_grad():
        for batch in make_batches(encoder, examples, rows)[own::processes]:
            places = np.searchsorted(answers, examples.find_answers(batch))
            given = compute_logits(encoder, model, examples, batch).float().cpu()
            logits[places] = given.reshape(len(places), outputs)
            if advance is not None:
                advance(len(batch))
    if processes > 1:
        logits = accelerator.reduce(logits.to(accelerator.device), "sum").cpu()
    return logits


def make_accelerator() -> Any:
    """Make an accelerator that leaves placement and precision to the encoder.

    Raises:
        InputError: if mixed precision was set elsewhere, or the environment names other processes
            that cannot be joined.
    """
    from accelerate import Accelerator, InitProcessGroupKwargs
    from accelerate.state import PartialState, is_initialized

    before = is_initialized()
    # Taken now: accelerate adds to them.
    names = {name: os.environ[name] for name in OF_PROCESSES if name in os.environ}
    # The other processes wait while the first one scans; the default timeout is 10 minutes.
    patient = InitProcessGroupKwargs(timeout=timedelta(days=7))
    try:
        with _announcing_processes(names):
            accelerator = Accelerator(
                device_placement=False, mixed_precision="no", kwargs_handlers=[patient]
            )
    except (ValueError, RuntimeError, ImportError) as error:
        if before:
            raise InputError(
                "another Accelerator in this process uses mixed precision; tune in a separate "
                'process, with precision="bfloat16" if you want that'
            ) from error
        PartialState._reset_state()
        raise InputError(
            f"accelerate cannot start with {', '.join(names) or 'this environment'}: "
            f"{first_line(error)}; start several processes with accelerate launch, or unset "
            f"{' '.join(names) or 'what names them'}"
        ) from error
    accelerator.gradient_accumulation_steps = 1  # `accelerate launch` may set it
    return accelerator


@contextmanager
def _announcing_processes(names: Mapping[str, str]) -> Iterator[None]:
    """Say what is awaited if the environment names other processes and they do not come.

    Launchers, notebooks and schedulers leave such variables behind, and torch waits for good.
    """
    if torch.distributed.is_initialized() or not names:
        yield
        return
    main = current_thread() is main_thread()
    # Where torch waits, Python hears of no Ctrl-C; there is nothing to clear up yet.
    stops = main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    try:
        if stops:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        with announce_waiting(
            f"waiting for other processes, which {', '.join(f'{k}={v}' for k, v in names.items())} "
            f"announce; if none were started, stop this and run: unset {' '.join(names)}"
        ):
            yield
    finally:
        if stops:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def join_process_group() -> ProcessGroup:
    """Return the processes that `accelerate launch` started."""
    from accelerate.utils import gather_object

    accelerator = make_accelerator()
    return ProcessGroup(
        accelerator.process_index, accelerator.num_processes, lambda value: gather_object([value])
    )


def follow_first(find: Callable[[], Found]) -> Found:
    """Return what the first of several processes finds, or raise what it does; the others wait."""
    from accelerate.utils import broadcast_object_list

    accelerator = make_accelerator()
    if accelerator.num_processes == 1:
        return find()
    found, failure = None, None
    if accelerator.is_main_process:
        try:
            found = find()
        except Exception as error:  # of any kind: the others would wait for it forever
            failure = error
    said = failure
    if failure is not None and not isinstance(failure, LayerscoutError):  # which may not be sent
        said = LayerscoutError(f"the first process failed: {type(failure).__name__}: {failure}")
    found, said = broadcast_object_list([found, said])
    if said is not None:
        raise failure or said
    return cast(Found, found)


def is_first_process() -> bool:
    """Return whether this is the only process, or the first of several."""
    return bool(make_accelerator().is_main_process)
