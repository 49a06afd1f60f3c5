"""Neighbours, shared information and probes by plain loops in float64, from their definitions."""

from collections.abc import Callable, Sequence
from math import log, sqrt

import numpy as np
import torch
from torch import nn


def knn(H: np.ndarray, y: np.ndarray, k: int, examples: np.ndarray) -> float:
    """Leave one row's example out, ask the k nearest of the others: accuracy, or R²."""
    predicted = []
    for row, h in enumerate(H):
        cosines = []
        for other, g in enumerate(H):
            if examples[other] != examples[row]:
                lengths = sqrt(h @ h) * sqrt(g @ g)
                cosines.append((h @ g / lengths if lengths > 0 else 0.0, other))
        near = sorted(cosines, reverse=True)[:k]
        if y.dtype.kind == "f":
            predicted.append(np.mean([y[other] for _, other in near]))
        else:
            votes = {
                label: (
                    sum(y[other] == label for _, other in near),
                    sum(cosine for cosine, other in near if y[other] == label),
                )
                for label in range(y.max() + 1)
            }
            predicted.append(max(votes, key=votes.__getitem__))
    if y.dtype.kind != "f":
        return float(np.mean(np.array(predicted) == y))
    return float(1 - np.sum((y - predicted) ** 2) / np.sum((y - np.mean(y)) ** 2))


def mutual_information(clusters: np.ndarray, labels: np.ndarray) -> float:
    """Σ p(c, k) log p(c, k) / (p(c) p(k)) with shares for probabilities, in nats."""
    total = 0.0
    for c in set(clusters.tolist()):
        for k in set(labels.tolist()):
            both = np.mean((clusters == c) & (labels == k))
            if both > 0:
                total += both * log(both / (np.mean(clusters == c) * np.mean(labels == k)))
    return total


def softmax(outputs: np.ndarray) -> np.ndarray:
    shares = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)


def logistic(outputs: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-outputs))


def linear_probe(
    x: np.ndarray,
    targets: np.ndarray,
    aside: np.ndarray,
    start: np.ndarray,
    batches: Sequence[Sequence[np.ndarray]],
    patience: int,
    several: bool = False,
    rate: float = 2e-3,
) -> tuple[np.ndarray, int]:
    """Train one probe with Adam; give its best weights, biases last, and their epoch.

    Args:
        x: (n, d).
        targets: (n, C), one-hot, or 1 for each label of several; with C = 1 the numbers to predict.
        aside: (n,), the rows that only tell when to stop.
        start: (d + 1, C).
        batches: rows of every step, by epoch.
        patience: epochs without a lower loss.
        several: a row may have several labels, each of which is a Bernoulli variable.
        rate: of Adam.
    """
    ones = np.column_stack([x, np.ones(len(x))])
    expect = softmax if targets.shape[1] > 1 else lambda outputs: outputs
    expect = logistic if several else expect
    weights, first, second = start.copy(), np.zeros_like(start), np.zeros_like(start)
    least, best, at, step = np.inf, start, 0, 0
    for epoch, steps in enumerate(batches, start=1):
        for rows in steps:
            used = rows[~aside[rows]]
            step += 1
            errors = expect(ones[used] @ weights) - targets[used]
            gradient = ones[used].T @ errors / max(len(used), 1)
            first = 0.9 * first + 0.1 * gradient
            second = 0.999 * second + 0.001 * gradient**2
            root = np.sqrt(second / (1 - 0.999**step)) + 1e-8
            weights = weights - rate * first / (1 - 0.9**step) / root
        expected = expect(ones[aside] @ weights)
        if several:
            has = np.where(targets[aside] == 1, expected, 1 - expected)
            loss = -np.mean(np.log(has).sum(axis=1))
        elif targets.shape[1] == 1:
            loss = np.mean((expected - targets[aside]) ** 2)
        else:
            loss = -np.mean(np.log((expected * targets[aside]).sum(axis=1)))
        if loss < least:
            least, best, at = loss, weights, epoch
        if epoch - at >= patience:
            break
    return best, at


def family_curve(
    head: nn.Module,
    train: np.ndarray,
    y: np.ndarray,
    validation: np.ndarray,
    judge: Callable[[np.ndarray], float],
    orders: Sequence[np.ndarray],
    batch_size: int,
    learning_rate: float,
) -> list[float]:
    """Train one head on one state by the usual loop; judge its outputs after every epoch."""
    optimizer = torch.optim.AdamW(head.parameters(), learning_rate, weight_decay=0.0)
    steps = len(orders) * -(-len(y) // batch_size)
    warmup = max(1, round(0.06 * steps))
    step, curve = 0, []
    for order in orders:
        head.train()
        for at in range(0, len(y), batch_size):
            rows = order[at : at + batch_size]
            rate = min((step + 1) / warmup, (steps - step) / max(1, steps - warmup))
            for group in optimizer.param_groups:
                group["lr"] = rate * learning_rate
            outputs = head(torch.from_numpy(train[rows]))
            if y.dtype.kind == "f":
                loss = nn.functional.mse_loss(outputs[:, 0], torch.from_numpy(y[rows]).float())
            elif y.ndim == 2:
                has = torch.from_numpy(y[rows]).float()
                loss = nn.functional.binary_cross_entropy_with_logits(outputs, has)
            else:
                loss = nn.functional.cross_entropy(outputs, torch.from_numpy(y[rows]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
        head.eval()
        with torch.no_grad():
            curve.append(judge(head(torch.from_numpy(validation)).double().numpy()))
    return curve
