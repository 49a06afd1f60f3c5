"""Examples drawn from a split, and parts of it held out."""

from collections.abc import Sequence
from numbers import Integral

import numpy as np

from layerscout.data.split import Split
from layerscout.runtime import InputError


def hold_out(split: Split, fraction: float, seed: int) -> tuple[Split, Split]:
    """Cut a split in two: what stays, and a stratified part of about `fraction` held out.

    Both keep the order of the rows. Each class is held out in proportion, to within one example,
    but keeps 2 where it is. Rows of one group stay together.

    Args:
        fraction: between 0 and 1.
        seed: the same one draws the same rows.

    Raises:
        InputError: if either part would be empty, or the fraction is out of range.
    """
    if not 0 < fraction < 1:
        raise InputError(f"`fraction` must be between 0 and 1, got {fraction}; 0.1 is a tenth")
    example, strata = stratify(split.labels, split.groups)
    counts = np.bincount(strata)
    total = round(fraction * len(strata))
    seats = np.minimum(_apportion(counts, total, floor=0), np.maximum(counts - 2, 0))
    if not 0 < seats.sum() < len(strata):
        raise InputError(
            f"holding out {fraction:g} of {len(strata)} examples leaves one part empty (at "
            "least 2 examples of each class always stay in training); use another fraction or more "
            "data"
        )
    chosen = _draw(strata, seats, seed)[example]
    return split.take(np.flatnonzero(~chosen)), split.take(np.flatnonzero(chosen))


def sample(
    split: Split,
    classes: int,
    *,
    examples: int | None,
    balanced: bool,
    per_class: Sequence[int] | None,
    seed: int,
) -> np.ndarray:
    """Draw examples without replacement and return their row numbers, sorted, int64 (m,).

    The rows are class-proportional (largest remainder), with at least 2 of every class that has
    them. Groups are kept whole: then as many as fit into the number of rows asked for.

    Args:
        split: what is drawn from.
        classes: the number K of classes; 0 for regression, which is drawn evenly.
        examples: how many rows; None for all, or with `balanced` for as many as the smallest class
            allows.
        balanced: equally many of every class: `examples` // K.
        per_class: exactly these numbers, 2 or more, by class id, instead of `examples`.
        seed: the same one draws the same rows.

    Raises:
        InputError: if there are not so many examples, or they would be too few.
    """
    example, strata = stratify(split.labels, split.groups)
    counts = np.bincount(strata, minlength=0 if split.groups is not None else classes)
    if (balanced or per_class is not None) and (classes == 0 or split.groups is not None):
        raise InputError(
            "--balanced and --per-class need one class an example, not numbers or several choices; "
            "use --examples"
        )
    if per_class is not None:
        seats = _check_exact_counts(counts, per_class, examples, balanced)
    elif balanced:
        seats = _share_equally(counts, examples)
    else:
        seats = _share_in_proportion(counts, len(split), examples)
    return np.flatnonzero(_draw(strata, seats, seed)[example])


def stratify(labels: np.ndarray, groups: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the example of each row (n,) and the stratum of each example (m,).

    Examples are of one stratum when their rows have the same classes; numbers are all of one.

    Args:
        labels: class ids (n,), or targets as floats.
        groups: (n,), or None; rows with the same number are one example.
    """
    numbers = labels.dtype.kind == "f"
    classes = np.zeros(len(labels), np.int64) if numbers else labels
    if groups is None:
        return np.arange(len(labels)), classes
    example: np.ndarray = np.unique(groups, return_inverse=True)[1].reshape(-1)
    makeup = np.zeros((example.max() + 1, classes.max() + 1), np.int64)
    np.add.at(makeup, (example, classes), 1)
    return example, np.unique(makeup, axis=0, return_inverse=True)[1].reshape(-1)


def _check_exact_counts(
    counts: np.ndarray, per_class: Sequence[int], examples: int | None, balanced: bool
) -> np.ndarray:
    """Check the numbers of examples that were asked for class by class."""
    if balanced or examples is not None:
        raise InputError(
            "--per-class already sets the numbers; leave out --examples and --balanced"
        )
    if len(per_class) != len(counts):
        raise InputError(
            f"--per-class needs a number for each of {len(counts)} classes, got {len(per_class)}"
        )
    for number, (asked, available) in enumerate(zip(per_class, counts, strict=True)):
        if not isinstance(asked, Integral) or not 2 <= asked <= available:
            raise InputError(
                f"--per-class must be in 2..{available} for class {number}, got {asked}"
            )
    return np.array(per_class, dtype=np.int64)


def _share_equally(counts: np.ndarray, examples: int | None) -> np.ndarray:
    """Share examples out equally."""
    smallest = int(counts.min())
    each = smallest if examples is None else examples // len(counts)
    if not 2 <= each <= smallest:
        raise InputError(
            f"--balanced draws equally (at least 2) from each of {len(counts)} classes; the "
            f"smallest, class {counts.argmin()}, has {smallest}, you asked for {each} each; use "
            f"--examples {2 * len(counts)} to {smallest * len(counts)}, or leave out --balanced"
        )
    return np.full(len(counts), each)


def _share_in_proportion(counts: np.ndarray, rows: int, examples: int | None) -> np.ndarray:
    """Share examples out in proportion, at least 2 to each class that has them.

    Args:
        counts: rows, or groups of rows, of each class.
        rows: all rows; more than all `counts` together where those are of groups.
        examples: the rows asked for.
    """
    if examples is None:
        return counts
    total = int(counts.sum())
    least = int(np.minimum(counts, 2).sum())
    smallest = least * rows // total
    if examples > rows:
        raise InputError(f"--examples must be at most {rows}, all there are; got {examples}")
    if examples < smallest:
        raise InputError(
            f"--examples must be at least {smallest}, 2 of every class; got {examples}"
        )
    return _apportion(counts, max(least, examples * total // rows), floor=2)


def _apportion(counts: np.ndarray, total: int, *, floor: int) -> np.ndarray:
    """Split `total` <= sum of `counts` in proportion by largest remainder, ties to the lower id.

    Args:
        floor: what each gets at least (or all it has); the best served ones pay for it.
    """
    whole, remainder = np.divmod(counts * total, counts.sum())
    seats: np.ndarray = whole.astype(np.int64)
    seats[np.argsort(-remainder, kind="stable")[: total - seats.sum()]] += 1
    least = np.minimum(counts, floor)
    seats = np.maximum(seats, least)
    quota = counts * (total / counts.sum())
    for _ in range(int(seats.sum()) - total):
        seats[np.argmax(np.where(seats > least, seats - quota, -np.inf))] -= 1
    return seats


def _draw(strata: np.ndarray, seats: np.ndarray, seed: int) -> np.ndarray:
    """Choose `seats[s]` examples of every stratum s; return which, bool (m,)."""
    if seed < 0:
        raise InputError(f"--seed must be 0 or more, got {seed}")
    shuffled = np.random.default_rng(seed).permutation(len(strata))
    order = shuffled[np.argsort(strata[shuffled], kind="stable")]
    sizes = np.bincount(strata, minlength=len(seats))
    place = np.arange(len(strata)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    chosen = np.zeros(len(strata), dtype=bool)
    chosen[order[place < np.repeat(seats, sizes)]] = True
    return chosen
