"""Naive scores from gradients: one example and one label at a time, then the formulas."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

Gradients = Mapping[str, np.ndarray]


def per_example(
    model: nn.Module,
    inputs: Sequence[Mapping[str, Tensor]],
    names: Sequence[str],
    of: Callable[[Tensor], Tensor],
) -> tuple[np.ndarray, Gradients]:
    """Return `of` the logits (n, K) and its gradients by name, (n, K, ...).

    Args:
        inputs: of one example each, without padding, or of the choices of one.
        of: logits, as the model gives them, to K numbers.
    """
    weights = [model.get_parameter(name) for name in names]
    numbers, rows = [], {name: [] for name in names}
    for example in inputs:
        values = of(model(**example).logits)
        numbers.append(values.detach().numpy())
        gradients = [torch.autograd.grad(v, weights, retain_graph=True) for v in values]
        for name, of_name in zip(names, zip(*gradients, strict=True), strict=True):
            rows[name].append(np.stack([g.numpy() for g in of_name]))
    return np.stack(numbers), {name: np.stack(several) for name, several in rows.items()}


def fisher_diagonal(log_p: np.ndarray, gradients: Gradients, y: np.ndarray | None) -> Gradients:
    """Lodha et al. 2023, §3.1: E_x E_y (∂ log p)²; with `y` for given labels."""
    diagonal = {}
    for name, g in gradients.items():
        total = np.zeros(g.shape[2:])
        for x in range(len(g)):
            for label in range(g.shape[1]):
                weight = np.exp(log_p[x, label]) if y is None else float(label == y[x])
                total += weight * g[x, label] ** 2
        diagonal[name] = total / len(g)
    return diagonal


def drawn(log_p: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Draw a label for each example by a number from 0 to 1."""
    pairs = zip(np.exp(log_p), numbers, strict=True)
    return np.array([np.searchsorted(np.cumsum(p), number) for p, number in pairs])


def norm(arrays: Sequence[np.ndarray]) -> float:
    return float(np.sqrt(sum((array**2).sum() for array in arrays)))


def sum_of_norms(arrays: Sequence[np.ndarray]) -> float:
    return float(sum(np.linalg.norm(array) for array in arrays))
