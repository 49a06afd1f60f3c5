"""Training what a plan tunes, from the states that its trunk left."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from layerscout.models import Encoder, base_of, park_embeddings, use_seed
from layerscout.plans import Settings
from layerscout.states import Examples, predict
from layerscout.tuning.snapshots import RunSnapshots
from layerscout.tuning.stepping import (
    Epoch,
    Run,
    Stepper,
    compute_loss,
    draw_batches,
    judge_logits,
    pick_epoch,
)


def train(
    encoder: Encoder,
    model: Any,
    training: Examples,
    validation: Examples,
    *,
    learning_rate: float,
    seed: int,
    settings: Settings,
    advance: Callable[[int, int], bool | None] = lambda done, total: None,
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
        advance: called after every step with how many are done, and of how many; the run ends
            where it returns True, with the epochs before, or with the one that has begun.
        snapshots: where the state after every epoch is saved; the run continues from the last one.
        log: called after every epoch with what a tracker shows, and the steps done.
        after: called after every epoch with its number.
        factors: what the learning rate of a parameter is multiplied by, by name; 1 for others.

    Returns:
        The run, and a copy of the trained parameters after the epoch that counts. A loss or logits
        that are not finite end the run (`stopped`); the epochs before count, if there are any.
    """
    epochs, run = settings.passes(len(training)), Run(learning_rate, seed)
    with use_seed(seed):
        stepper = Stepper(encoder, model, training, settings, factors or {}, seed)
        if snapshots is not None:
            snapshots.restore(run, stepper)
        while run.stopped is None and len(run.curve) < epochs:
            with _freeing_memory(stepper, validation):
                before, training_loss = len(run.curve), _pass_once(run, stepper, advance)
                if run.stopped is None or not (run.diverged or run.curve):
                    _validate(run, stepper, validation, training_loss)
            epoch = len(run.curve)
            if run.stopped is None and epoch < epochs:
                by = "best" if settings.keep == "last" else settings.keep
                best = pick_epoch(run.curve, by).epoch
                if epoch - best >= (settings.patience or epochs):
                    run.stopped = f"no epoch was better than epoch {best}"
            if snapshots is not None:
                snapshots.save(run, stepper, over=run.stopped is not None or epoch == epochs)
            if len(run.curve) > before:
                log(run.curve[-1].track(settings.metric), stepper.done)
                after(epoch)
    return run, stepper.kept


def _freeing_memory(stepper: Stepper, validation: Examples) -> AbstractContextManager[None]:
    """Move the embeddings off an accelerator where all examples start at states that were kept."""
    trunks = [part.trunk for part in (stepper.training, validation)]
    kept = all(trunk is not None and trunk.kept for trunk in trunks)
    if stepper.encoder.device.type == "cpu" or not kept:
        return nullcontext()
    return park_embeddings(stepper.encoder.model, base_of(stepper.model)[0])


def _pass_once(run: Run, stepper: Stepper, advance: Callable[[int, int], bool | None]) -> float:
    """Take the steps of an epoch and return the mean loss of its examples."""
    started, settings, training = perf_counter(), stepper.settings, stepper.training
    batches = draw_batches(settings, training.lengths, stepper.order)
    steps = settings.steps(len(training))
    loss = seen = 0.0
    for rows, value in stepper.take_steps(run, batches, steps, advance):
        answers = training.weigh(rows)
        loss, seen = loss + value * answers, seen + answers
    run.seconds["train"] += perf_counter() - started
    return loss / seen if seen else loss


def _validate(run: Run, stepper: Stepper, validation: Examples, training_loss: float) -> None:
    """Judge what an epoch came to, and keep its parameters if it is the one that counts."""
    started, settings = perf_counter(), stepper.settings
    logits = predict(stepper.encoder, stepper.model, validation)
    run.seconds["evaluate"] += perf_counter() - started
    if not logits.isfinite().all():  # the epoch's last step went too far
        steps = settings.steps(len(stepper.training))
        run.diverge(f"the logits were not finite after step {stepper.done} of {steps}")
        return
    answers, outputs = validation.answers, logits.numpy()
    loss = compute_loss(logits, torch.from_numpy(answers.labels)).item()
    value = judge_logits(settings, answers, outputs)
    run.curve.append(Epoch(len(run.curve) + 1, training_loss, loss, value))
    if pick_epoch(run.curve, settings.keep) is run.curve[-1]:
        stepper.kept = {name: p.detach().clone() for name, p in stepper.trained.items()}
