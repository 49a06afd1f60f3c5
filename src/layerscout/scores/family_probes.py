"""Family probes: the family's own classification head, trained on every state at once."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float, Float32, Float64
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from layerscout.data import expand_choices
from layerscout.plans import FAMILY_RATE
from layerscout.scores.probes import Metric, Probes, Report, all_finite, choose_metric, in_chunks


def train_family_probes(
    train: Float[np.ndarray, "S n d"],
    y: np.ndarray,
    validation: Float[np.ndarray, "S m d"],
    yv: np.ndarray,
    head_factory: Callable[[int], nn.Module],
    *,
    metric: Metric | None = None,
    learning_rate: float = FAMILY_RATE,
    epochs: int = 20,
    batch_size: int = 8,
    seeds: Sequence[int] = (0,),
    choices: int = 1,
    progress: Report | None = None,
) -> Probes:
    """Train the family's own classification head on every state; the best epoch counts.

    All states are trained at once, each with dropout of its own, on the same rows in the same
    order and from the same start. AdamW without weight decay; the rate rises over the first 6 %
    of the steps and then falls to 0. The best epoch is chosen by what is reported, as in the
    paper, so the value flatters a little. Xie et al. 2022, §4.1, App. B.1, B.3.

    Args:
        train: states (S, n C, d) of the first token, which may be memory-mapped.
        y: class ids or targets (n,), or which labels each row has, bool (n, K), or the numbers of
            the right choices (n,).
        validation: states (S, m C, d).
        yv: their labels, (m,) or (m, K).
        head_factory: gives, by a seed, a module from states (b, d) to logits (b, K), or to one
            number each (b, 1) in regression and for choices.
        metric: what is reported; as `choose_metric` unless given.
        learning_rate: the highest; see `FAMILY_RATES`.
        epochs: passes over the training rows.
        batch_size: examples of a step.
        seeds: of the trainings of every state.
        choices: C, the consecutive states of an example, one for each choice; 1 if it has none.
        progress: told the epochs done and all of them.

    Returns:
        The probes, undefined at states that are not finite.
    """
    judge, numbers = choose_metric(metric, y), y.dtype.kind == "f"
    targets = torch.from_numpy(y.astype(np.float32) if y.dtype.kind in "fb" else y)
    finite = [s for s in range(len(train)) if all_finite(train[s]) and all_finite(validation[s])]
    shape = len(train), len(seeds)
    reached, kept = np.full(shape, np.nan), np.zeros(shape, np.int64)

    def read(states: np.ndarray, rows: np.ndarray) -> Tensor:
        at = np.ix_(np.array(finite), expand_choices(rows, choices))
        return torch.from_numpy(np.asarray(states[at], dtype=np.float32))

    for number, seed in enumerate(seeds if finite else ()):
        rng, curve = np.random.default_rng(seed), []
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            steps = epochs * -(-len(y) // batch_size)
            head = head_factory(seed).cpu()  # where the states are
            heads = _Heads(head, len(finite), learning_rate, steps, choices)
            for epoch in range(epochs):
                for rows in in_chunks(rng.permutation(len(y)), batch_size):
                    heads.step(read(train, rows), targets[rows])
                parts = [heads(read(validation, at)) for at in in_chunks(np.arange(len(yv)))]
                outputs = np.concatenate(parts, axis=1)
                finished = [each[:, 0] if numbers else each for each in outputs]
                curve.append([judge(yv, o) if np.isfinite(o).all() else np.nan for o in finished])
                if progress is not None:
                    progress(number * epochs + epoch + 1, len(seeds) * epochs)
        curves = np.where(np.isfinite(curve), curve, -np.inf)
        reached[finite, number], kept[finite, number] = (
            curves.max(axis=0),
            curves.argmax(axis=0) + 1,
        )
    return Probes.of(reached.tolist(), kept.tolist())


class _Heads:
    """S copies of a head in training, one for each state.

    Attributes:
        head: the module without its values.
        choices: C; the outputs for the C states of an example are its logits.
        parameters, buffers: those of all copies, (S, ...) by name.
        optimizer, schedule: of all parameters.
    """

    def __init__(
        self, head: nn.Module, states: int, learning_rate: float, steps: int, choices: int
    ) -> None:
        self.head, self.choices = copy.deepcopy(head).to("meta"), choices
        self.parameters, self.buffers = torch.func.stack_module_state([head] * states)
        trained = list(self.parameters.values())
        self.optimizer = torch.optim.AdamW(trained, learning_rate, weight_decay=0.0, fused=True)
        warmup = max(1, round(0.06 * steps))

        def share(step: int) -> float:
            return min((step + 1) / warmup, (steps - step) / max(1, steps - warmup))

        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, share)

    def step(self, x: Float32[Tensor, "S bC d"], targets: Tensor) -> None:
        """Train every copy on the same b examples of its state."""
        self.head.train()
        outputs = self._outputs(x)
        if targets.ndim == 2:
            expected, logistic = targets.expand_as(outputs), binary_cross_entropy_with_logits
            loss = logistic(outputs, expected, reduction="none").mean(dim=(1, 2))
        elif targets.is_floating_point():
            loss = (outputs.squeeze(2) - targets).square().mean(dim=1)
        else:
            classes = outputs.log_softmax(dim=2)
            loss = -classes.gather(2, targets.expand(len(x), -1)[:, :, None]).mean(dim=(1, 2))
        self.optimizer.zero_grad()
        torch.autograd.backward(loss.sum())  # whose gradient for each copy is that of its own mean
        self.optimizer.step()
        self.schedule.step()

    def __call__(self, x: Float32[Tensor, "S bC d"]) -> Float64[np.ndarray, "S b K"]:
        """Return the outputs of every copy without dropout."""
        self.head.eval()
        with torch.no_grad():
            return self._outputs(x).double().numpy()

    def _outputs(self, x: Float32[Tensor, "S bC d"]) -> Float32[Tensor, "S b K"]:
        every = torch.vmap(self._run, randomness="different")
        outputs: Tensor = every(self.parameters, self.buffers, x)
        return outputs if self.choices == 1 else outputs.reshape(len(x), -1, self.choices)

    def _run(self, own: dict[str, Tensor], buffers: dict[str, Tensor], x: Tensor) -> Tensor:
        outputs: Tensor = torch.func.functional_call(self.head, (own, buffers), (x,))
        return outputs
