"""Naive versions of what is said about scores, with loops."""

import numpy as np


def smoothness(values) -> float:
    """Xie et al. 2022, §4.4 and its footnote 2."""
    states = list(values)[1:]
    mean = sum(states) / len(states)
    sigma = (sum((v - mean) ** 2 for v in states) / len(states)) ** 0.5
    z = [(v - mean) / sigma for v in states]
    return sum((z[i + 2] - 2 * z[i + 1] + z[i]) ** 2 for i in range(len(z) - 2))


def kendall(x, y) -> float:
    """τ_b from counts of pairs."""
    concordant = tied_x = tied_y = pairs = 0
    for i in range(len(x)):
        for j in range(i):
            pairs += 1
            concordant += np.sign(x[i] - x[j]) * np.sign(y[i] - y[j])
            tied_x += x[i] == x[j]
            tied_y += y[i] == y[j]
    return float(concordant / np.sqrt(float(pairs - tied_x) * float(pairs - tied_y)))


def rank(values, better, entry) -> int:
    """One more than how many entries are better, or as good and lower."""
    here = values[entry]
    sign = 1 if better == "lower" else -1
    ahead = [
        i
        for i, v in enumerate(values)
        if i > 0 and v is not None and (sign * v < sign * here or (v == here and i < entry))
    ]
    return 1 + len(ahead)


def line(x, y) -> tuple[float, float, float]:
    """Least squares of y on [1, x]: intercept, slope, and the part of the variance explained."""
    design = np.column_stack([np.ones(len(x)), x])
    solution = np.linalg.lstsq(design, y, rcond=None)[0]
    left = np.sum((y - design @ solution) ** 2)
    return float(solution[0]), float(solution[1]), float(1 - left / np.sum((y - np.mean(y)) ** 2))
