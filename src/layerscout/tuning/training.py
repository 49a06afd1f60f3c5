"""Training what a plan tunes, from the states that its trunk left."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from math import isfinite
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerscout.data import evaluate, settle_thresholds, shuffle_batches, shuffle_plainly
from layerscout.models import Encoder, base_of, park_embeddings, use_seed
from layerscout.plans import Settings, learning_rate_at
from layerscout.states import Examples, predict
from layerscout.tuning.runs import Epoch, Run, Stepper, compute_loss, pick_epoch
from layerscout.tuning.snapshots import RunSnapshots, RunState


def train(
    encoder: Encoder,
    model: Any,
    training: Examples,
    validation: Examples,
    *,
    learning_rate: float,
    seed: int,
    settings: Settings,
    advance: Callable[[int, int], None] = lambda done, total: None,
    snapshots: RunSnapshots | None = None,
    log: Callable[[Mapping[str, float], int], None] = lambda values, step: None,
    after: Callable[[int], None] = lambda epoch: None,
    factors: Mapping[str, float] | None = None,
) -> tuple[Run, dict[str, Tensor]]:
    """Train those parameters of `model` that ask for gradients, and validate after every epoch.

    AdamW; the loss is `compute_loss`. Dropout is as the model's configuration says wherever a step
    computes anything, so not in a trunk that ran before.

    Args:
        encoder: what the model was made from.
        model: changed in place.
        training: what is learnt from.
        validation: what every epoch is judged on.
        learning_rate: the peak.
        seed: of the order of the examples, and of dropout.
        settings: everything else.
        advance: called after every step with how many are done, and of how many.
        snapshots: where the state after every epoch is saved; the run continues from the last one.
        log: called after every epoch with what a tracker shows, and the steps done.
        after: called after every epoch with its number.
        factors: what the learning rate of a parameter is multiplied by, by name; 1 for others.

    Returns:
        The run, and a copy of the trained parameters after the epoch that counts. A loss or logits
        that are not finite end the run (`stopped`); the epochs before count, if there are any.
    """
    epochs = settings.passes(len(training))
    with use_seed(seed):
        stepper = Stepper.prepare(encoder, model, training, settings, factors or {})
        state = RunState(np.random.default_rng(seed))
        if snapshots is not None:
            snapshots.restore(state, stepper)
        while state.stopped is None and state.epoch < epochs:
            with _freeing_memory(stepper, validation):
                training_loss = _pass_once(stepper, state, learning_rate, settings, advance)
                if not state.diverged:
                    _validate(stepper, state, validation, training_loss, settings)
            if state.stopped is None and state.epoch < epochs:
                by = "best" if settings.keep == "last" else settings.keep
                best = pick_epoch(state.curve, by).epoch
                if state.epoch - best >= (settings.patience or epochs):
                    state.stopped = f"no epoch was better than epoch {best}"
            if snapshots is not None:
                over = state.stopped is not None or state.epoch == epochs
                snapshots.save(state, stepper, settings.keep, over=over)
            if not state.diverged:
                last = state.curve[-1]
                losses = {"training_loss": last.training_loss, "validation_loss": last.loss}
                log(losses | {settings.metric: last.value}, state.done)
                after(state.epoch)
    curve, spent = tuple(state.curve), dict(state.spent)
    return Run(learning_rate, seed, curve, state.stopped, state.diverged, spent), state.kept


def _freeing_memory(stepper: Stepper, validation: Examples) -> AbstractContextManager[None]:
    """Move the embeddings off an accelerator where all examples start at states that were kept."""
    trunks = [part.trunk for part in (stepper.training, validation)]
    kept = all(trunk is not None and trunk.kept for trunk in trunks)
    if stepper.encoder.device.type == "cpu" or not kept:
        return nullcontext()
    return park_embeddings(stepper.encoder.model, base_of(stepper.model)[0])


def _pass_once(
    stepper: Stepper,
    state: RunState,
    peak: float,
    settings: Settings,
    advance: Callable[[int, int], None],
) -> float:
    """Take the steps of an epoch and give the mean loss of its examples."""
    started, steps = perf_counter(), settings.steps(len(stepper.training))
    stepper.model.train()
    loss = seen = 0.0
    size = settings.step_size
    if settings.batching == "shuffled":
        order = shuffle_plainly(len(stepper.training), size, state.order)
    else:
        order = shuffle_batches(stepper.training.lengths, size, state.order)
    for rows in order:
        if state.done == steps:
            break
        share = learning_rate_at(state.done, steps, settings.warmup, settings.schedule)
        value = stepper.step(rows, peak * share)
        if not isfinite(value):
            state.diverge(f"the loss was {value} at step {state.done + 1} of {steps}")
            break
        answers = len(stepper.training.find_answers(rows))
        loss, seen = loss + value * answers, seen + answers
        state.done += 1
        advance(state.done, steps)
    state.spent["train"] += perf_counter() - started
    return loss / seen if seen else loss


def _validate(
    stepper: Stepper,
    state: RunState,
    validation: Examples,
    training_loss: float,
    settings: Settings,
) -> None:
    """Judge what an epoch came to, and keep its parameters if it is the one that counts."""
    started = perf_counter()
    logits = predict(stepper.encoder, stepper.model, validation)
    state.spent["evaluate"] += perf_counter() - started
    if not logits.isfinite().all():  # the epoch's last step went too far
        steps = settings.steps(len(stepper.training))
        state.diverge(f"the logits were not finite after step {state.done} of {steps}")
        return
    state.epoch += 1
    answers, outputs = validation.answers, logits.numpy()
    loss = compute_loss(logits, torch.from_numpy(answers.labels)).item()
    thresholds = settle_thresholds(settings.threshold, answers.labels, outputs)
    value = evaluate(
        settings.metric, answers.labels, outputs, tags=answers.tags, thresholds=thresholds
    )
    state.curve.append(Epoch(state.epoch, training_loss, loss, value))
    if pick_epoch(state.curve, settings.keep) is state.curve[-1]:
        state.kept = stepper.copy_parameters()
