"""What the four papers claim, and how the values of a study judge it."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log
from statistics import mean
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from layerscout.scores.table import SCORES
from layerscout.studies import Mean, average, correlate_values, format_rounded, select_rows

# A difference of a metric within which two are near each other, and below which one does not help.
NEAR, NO_HELP = 0.05, 0.02
# Below this a difference of a metric does not matter: one point.
MARGIN = 0.01

# What most means are taken over.
PAIRS = "pairs of model and task"

HELD, NOT_HELD, UNCLEAR = "held", "not held", "unclear"
NO_EFFECT = "no effect"


# --- What a claim is judged by -------------------------------------------------------------------


@dataclass(frozen=True)
class Claim:
    """What a paper says, and what the values say to it."""

    text: str
    verdict: str
    numbers: str
    recipe: str = ""


def above(found: Mean, limit: float = 0.0) -> str:
    """Judge by the 95 % interval whether a mean is above a limit."""
    if found.low is None or found.high is None:
        return UNCLEAR
    return HELD if found.low > limit else NOT_HELD if found.high < limit else UNCLEAR


def matters(found: Mean) -> str:
    """Judge whether a difference of a metric is above 0, unless it is too small to matter.

    It is if two one-sided tests at 5 % find it within `MARGIN`: its 90 % interval is.
    """
    if found.error is not None:
        reach = float(stats.t.ppf(0.95, found.n - 1)) * found.error
        if abs(found.mean) + reach <= MARGIN:
            return NO_EFFECT
    return above(found)


def near(found: Mean, reach: float = NEAR) -> str:
    """Judge by the 95 % interval whether a mean is within so much of 0."""
    if found.low is None or found.high is None:
        return UNCLEAR
    if -reach <= found.low and found.high <= reach:
        return HELD
    return NOT_HELD if found.high < -reach or found.low > reach else UNCLEAR


def everywhere(flags: Iterable[bool]) -> str:
    """Judge whether something is so in every case, or in none; a single case says too little."""
    listed = list(flags)
    if len(listed) < 2:
        return UNCLEAR
    return HELD if all(listed) else NOT_HELD if not any(listed) else UNCLEAR


def by_task(text: str, cases: Sequence[tuple[bool, str]], start: str = "") -> Claim:
    """Judge a claim by every task: whether it is so there, and in which numbers."""
    return Claim(
        text, everywhere(so for so, _ in cases), start + "; ".join(line for _, line in cases)
    )


def told(found: Mean, of: str) -> str:
    """Write a mean with its interval."""
    interval = ""
    if found.low is not None:
        interval = f", 95 % interval {format_rounded(found.low)} to {format_rounded(found.high)}"
    counted = re.sub(r"s\b", "", of, count=1) if found.n == 1 else of
    return f"{format_rounded(found.mean)} ({found.n} {counted}{interval})"


def values(frame: pd.DataFrame, measure: str, by: Sequence[str], **where: Any) -> dict[Any, float]:
    """Average a measure over all but some axes."""
    found = select_rows(frame, where.pop("grid", None), [measure], where)
    groups: dict[Any, list[float]] = {}
    for row in found.to_dict("records"):
        key = tuple(row[axis] for axis in by)
        groups.setdefault(key if len(by) > 1 else key[0], []).append(float(row["value"]))
    return {key: mean(some) for key, some in groups.items()}


def by_first(found: Mapping[tuple[Any, Any], float]) -> dict[Any, dict[Any, float]]:
    """Group values by the first of their two axes."""
    groups: dict[Any, dict[Any, float]] = {}
    for (first, second), value in found.items():
        groups.setdefault(first, {})[second] = value
    return groups


def halves(found: Mapping[int, float]) -> tuple[list[float], list[float]]:
    """Part the values of states into those of the lower half and those of the upper."""
    top = max(found)
    lower = [value for at, value in found.items() if at <= top / 2]
    return lower, [value for at, value in found.items() if at > top / 2]


def gain(frame: pd.DataFrame, pairs: Sequence[tuple[str, str]]) -> Mean | None:
    """Average how much better the first of each pair of strategies is, over models and tasks.

    Where both are the same plan, as where the best state is the top one, nothing is compared.
    None where no pair is left.
    """
    found = values(frame, "metric", ("model", "task", "plan", "resolved"))
    plans = {(m, t, plan): (resolved, value) for (m, t, plan, resolved), value in found.items()}
    gains = []
    for model, task in dict.fromkeys(key[:2] for key in plans):
        both = [[plans.get((model, task, name)) for name in pair] for pair in pairs]
        differences = [a[1] - b[1] for a, b in both if a and b and a[0] != b[0]]
        if differences:
            gains.append(mean(differences))
    return average(gains) if gains else None


def span(found: Iterable[float]) -> str:
    """Write the least and the most."""
    listed = list(found)
    return f"{format_rounded(min(listed))} to {format_rounded(max(listed))}"


def correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Return Pearson's correlation."""
    return float(np.corrcoef(one, other)[0, 1])


def curve(frame: pd.DataFrame, measure: str, **where: Any) -> dict[int, float]:
    """Return a measure by state, in their order."""
    return dict(sorted(values(frame, measure, ("at",), **where).items()))


def toward(found: Mapping[Any, float], better: str) -> dict[Any, float]:
    """Return correlations signed so that above 0 the better goes with something good."""
    return {key: -value if better == "lower" else value for key, value in found.items()}


# --- Xie et al. 2022 -----------------------------------------------------------------------------


def agreement(frame: pd.DataFrame, key: str) -> dict[Any, float]:
    """Return the correlation of a score with probing, by model and task; higher is better."""
    return toward(values(frame, f"pearson:{key}", ("model", "task")), SCORES[key].better)


def predicts(frame: pd.DataFrame) -> Iterator[Claim]:
    """Judge whether ν goes with probing."""
    ratio = agreement(frame, "variability_ratio")
    predicted = average(list(ratio.values()))
    if predicted.high is not None:  # which Student's t puts beyond what a correlation can be
        predicted = replace(predicted, high=min(1.0, predicted.high))
    yield Claim(
        "ν predicts probing: the lower ν of a state, the better its probe",
        above(predicted),
        f"r towards better probes {told(predicted, PAIRS)}: "
        + ", ".join(f"{m} {t} {format_rounded(v)}" for (m, t), v in ratio.items()),
    )


def scores(frame: pd.DataFrame) -> Iterator[Claim]:
    """Judge which score goes with probing."""
    yield from predicts(frame)
    ratio, cca, rank, debiased = (
        agreement(frame, key)
        for key in ("variability_ratio", "cca", "numerical_rank", "variability_ratio_debiased")
    )
    for text, better, worse in (
        ("CCA predicts probing better than ν", cca, ratio),
        ("ν predicts probing better than the numerical rank", ratio, rank),
        ("(ours) the debiased ν predicts probing better than ν", debiased, ratio),
    ):
        common = [key for key in better if key in worse]
        one = average([better[key] - worse[key] for key in common])
        yield Claim(text, above(one), f"r towards better probes is higher by {told(one, PAIRS)}")


def pooling(frame: pd.DataFrame) -> Iterator[Claim]:
    """Judge which pooling gives the smoother curve."""
    found = values(frame, "smoothness:variability_ratio", ("model", "task", "pooling"))
    gains = [found[m, t, "cls"] - value for (m, t, p), value in found.items() if p == "mean"]
    one = average(gains)
    yield Claim(
        "ν over states is smoother for the mean of the tokens than for the first token",
        above(one),
        f"ζ lower by {told(one, PAIRS)}, lower in {sum(g > 0 for g in gains)} of them",
    )


def strategies(frame: pd.DataFrame) -> Iterator[Claim]:
    """Judge plans by ℓ*."""
    few = range(1, 4)
    for text, pairs, judge in (
        (
            "1 to 3 blocks at ℓ* beat as many top blocks (head on top)",
            [(f"best-down:{k}@top", f"top:{k}") for k in few],
            matters,
        ),
        (
            "1 to 3 blocks at ℓ* beat as many top blocks (head at ℓ*)",
            [(f"best-down:{k}@best", f"top:{k}") for k in few],
            matters,
        ),
        (
            "with these, the head on top beats the head at ℓ*",
            [(f"best-down:{k}@top", f"best-down:{k}@best") for k in few],
            matters,
        ),
        (f"best-up is near full fine-tuning (±{NEAR})", [("best-up", "full")], near),
        (f"(1, ℓ*, ℓ*) is near full fine-tuning (±{NEAR})", [("best-down:all@best", "full")], near),
    ):
        if (one := gain(frame, pairs)) is not None:
            yield Claim(text, judge(one), f"difference {told(one, PAIRS)}")


def adapters(frame: pd.DataFrame) -> Iterator[Claim]:
    """Judge the same plans where adapters are trained, in all blocks too."""
    for claim in strategies(frame):
        text = claim.text.replace("full fine-tuning", "adapters in all blocks")
        yield replace(claim, text=f"with adapters, {text}")


def middle(frame: pd.DataFrame) -> Iterator[Claim]:
    """Judge ℓ* against the middle."""
    pairs = [
        (f"best-down:{k}@{head}", f"middle-down:{k}@{head.replace('best', 'middle')}")
        for k in range(1, 4)
        for head in ("best", "top")
    ]
    if (one := gain(frame, pairs)) is not None:
        text = f"difference {told(one, f'{PAIRS} where the two differ')}"
        yield Claim("blocks at ℓ* beat blocks at the middle state", matters(one), text)


def deberta(frame: pd.DataFrame) -> Iterator[Claim]:
    """Judge ν and the strategies by one block, on the model that the recipe is given."""
    yield from predicts(frame)
    yield from strategies(frame)
    yield from middle(frame)


def costs(frame: pd.DataFrame) -> Iterator[Claim]:
    """Judge what strategies cost, on a task each."""
    measures = ("train_seconds", "inference_share", "parameters", "trainable")
    found = {key: values(frame, key, ("task", "plan"), grid="tuned") for key in measures}
    for text, plan, cheaper in (
        (
            "(1, ℓ*, ℓ*) trains faster than full fine-tuning, with fewer parameters and FLOPs of "
            "inference",
            "best-down:all@best",
            ("train_seconds", "inference_share", "parameters"),
        ),
        (
            "(ℓ* + 1, L, L) trains faster than full fine-tuning, with fewer trained parameters "
            "(and the same inference)",
            "best-up",
            ("train_seconds", "trainable"),
        ),
    ):
        cases = []
        for task in dict.fromkeys(task for task, _ in found["train_seconds"]):
            share = {
                key: by[task, plan] / by[task, "full"]
                for key, by in found.items()
                if key in cheaper
            }
            told_all = ", ".join(
                f"{value:.0%} of the {key.replace('_share', ' FLOPs').replace('_', ' ')}"
                for key, value in share.items()
            )
            cases.append((all(value < 1 for value in share.values()), f"{task}: {told_all}"))
        yield by_task(text, cases)


# What the recipe calls samples with as many examples of every class.
EVEN = ("p = 0.5", "even")


def drawn_curves(
    frame: pd.DataFrame, key: str, first: Collection[str]
) -> dict[str, dict[str, dict[int, float]]]:
    """Return ν of states 1..L by task and sample; the sample named first has the first place."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    for task in dict.fromkeys(frame["grid"]):
        names = list(dict.fromkeys(frame[frame["grid"] == task]["per_class"]))
        names.sort(key=lambda name: name not in first)
        curves = {name: curve(frame, key, grid=task, per_class=name) for name in names}
        found[task] = {
            name: {at: value for at, value in states.items() if at > 0}
            for name, states in curves.items()
        }
    return found


def lowest(found: Mapping[int, float]) -> int:
    """Return the state with the lowest value."""
    return int(min(found, key=found.__getitem__))


def imbalance(frame: pd.DataFrame) -> Iterator[Claim]:
    """Judge ν by how skewed the classes are; in all samples but p = 0.05 it is 0.1 or more."""
    alike, best, moves = [], [], []
    papyan = drawn_curves(frame, "nc1", first=EVEN)
    for task, curves in drawn_curves(frame, "variability_ratio", first=EVEN).items():
        even, *skewed = curves
        usual, base = [one for one in skewed if one != "p = 0.05"], list(curves[even].values())
        same = {one: correlation(base, list(curves[one].values())) for one in skewed}
        told_alike = ", ".join(f"{one}: r = {same[one]:.2f}" for one in skewed)
        alike.append((min(same[one] for one in usual) >= 0.9, f"{task}: {told_alike}"))
        states = {one: lowest(states) for one, states in curves.items()}
        told_best = ", ".join(f"{one}: {state}" for one, state in states.items())
        best.append((all(states[one] == states[even] for one in usual), f"{task}: {told_best}"))
        moved = [
            mean(
                abs(log(some[one][at] / value))
                for one in skewed
                for at, value in some[even].items()
            )
            for some in (curves, papyan[task])
        ]
        moves.append((moved[0] < moved[1], f"{task}: {moved[0]:.2f}, for Papyan's {moved[1]:.2f}"))
    yield by_task(
        "the curve of ν over states is preserved if the smallest class has p ≥ 0.1 (r of 0.9 or "
        "more with the curve of balanced classes)",
        alike,
    )
    yield by_task("the state with the lowest ν stays the same if p ≥ 0.1", best)
    yield by_task(
        "ν moves less with imbalance than the form of Papyan et al. (mean absolute log ratio to "
        "balanced classes)",
        moves,
    )


def scarcity(frame: pd.DataFrame) -> Iterator[Claim]:
    """Judge ν by the number of examples."""
    for key, ours in (
        ("variability_ratio", ""),
        ("variability_ratio_debiased", "(ours) debiased: "),
    ):
        cases = []
        for task, curves in drawn_curves(frame, key, first=("20,000", "12,000")).items():
            most, *fewer = curves
            away = {
                n: max((abs(v / curves[most][at] - 1) for at, v in curves[n].items()), default=None)
                for n in fewer
            }
            text = ", ".join(
                f"{n}: {away[n]:.0%}, lowest {lowest(curves[n])}" if curves[n] else f"{n}: no value"
                for n in fewer
            )
            line = f"{task}: {text}, {most}: lowest {lowest(curves[most])}"
            first = away[fewer[0]]
            cases.append((first is not None and first <= 0.1, line))
        yield by_task(
            f"{ours}ν of a few thousand examples equals that of many (5,000 and 20,000 of SST-2, "
            "3,750 and 12,000 of MNLI, one draw each; within 10 % at every state)",
            cases,
        )


def after_tuning(frame: pd.DataFrame) -> Iterator[Claim]:
    """Judge what tuning does to ν."""
    cases = []
    before, after = (
        by_first(values(frame, "variability_ratio", ("task", "at"), grid=grid))
        for grid in ("before", "after")
    )
    for task, curve_before in before.items():
        logs = {at: log(after[task][at] / value) for at, value in curve_before.items() if at}
        lower, upper = (mean(half) for half in halves(logs))
        line = f"{task}: ×{np.exp(lower):.2f} in the lower half, ×{np.exp(upper):.2f} in the upper"
        cases.append((upper < 0 and upper < lower, line))
    yield by_task(
        "tuning lowers ν of the upper states more than of the lower ones (on the training rows)",
        cases,
    )


# --- Phang et al. 2021 ---------------------------------------------------------------------------


def truncated(frame: pd.DataFrame) -> Iterator[Claim]:
    """Judge what tuned models lose without some of their blocks."""
    whole = values(frame, "metric", ("task",), grid="evaluated")
    untuned, tuned, original, skips = (
        by_first(values(frame, key, ("task", "at")))
        for key in ("untuned", "tuned", "tuned_original", "skip")
    )
    spared = {}
    for task, value in whole.items():
        _, *cut = sorted(untuned[task], reverse=True)
        good = [untuned[task][at] >= value - NEAR for at in cut]
        spared[task] = (good.index(False) if False in good else len(good), len(cut))
    yield Claim(
        f"top blocks of a tuned model can be removed without further tuning (−{NEAR})",
        everywhere(number > 0 for number, _ in spared.values()),
        ", ".join(
            f"{task}: {number} of {blocks} blocks" for task, (number, blocks) in spared.items()
        ),
    )
    cases = []
    for task in whole:
        gaps = [
            value - original[task][at]
            for at, value in tuned[task].items()
            if at and at in original[task]
        ]
        cases.append(
            (
                mean(gaps) > NEAR,
                f"{task}: by {format_rounded(mean(gaps))} over states 1 to {len(gaps)}",
            )
        )
    yield by_task(
        f"heads on the tuned model (TUNED) are more than {NEAR} above heads on the original one "
        "(TUNEDORIG)",
        cases,
    )
    cases = []
    for task, value in whole.items():
        lost = {at: value - v for at, v in skips[task].items() if isinstance(at, int)}
        worst = max((at for at in lost if at != 1), key=lost.__getitem__)
        line = (
            f"{task}: {format_rounded(lost[1])} lost without it, "
            f"{format_rounded(lost[worst])} without block {worst}"
        )
        cases.append((lost[1] > lost[worst], line))
    yield by_task(
        "skipping block 1 hurts more than skipping any other (the paper: on some tasks, CoLA among "
        "them)",
        cases,
    )


def clusters(frame: pd.DataFrame) -> Iterator[Claim]:
    """Judge what tuning does to the similarity of states."""
    cases = []
    for task, found in by_first(values(frame, "contrast", ("task", "at"))).items():
        before = [v for model, v in found.items() if "untuned" in str(model)]
        after = [v for model, v in found.items() if "untuned" not in str(model)]
        cases.append(
            (
                min(after) > max(before),
                f"{task}: {format_rounded(mean(before))} before, {span(after)} after",
            )
        )
    yield by_task(
        "tuning creates two clusters of states (the contrast of the best split in two grows, as it "
        "also would if states merely drifted)",
        cases,
    )
    cases = []
    for task, same in by_first(values(frame, "same_state", ("task", "at"))).items():
        _, upper = halves(same)
        cases.append((min(upper) >= 0.8, f"{task}: {span(upper)}"))
    yield by_task("the upper states of two seeds agree (CKA of each 0.8 or more)", cases)


# --- Tamkin et al. 2020 --------------------------------------------------------------------------


def incremental(frame: pd.DataFrame) -> Iterator[Claim]:
    """Judge pretrained blocks by transfer and by probing."""
    # At base size two grids have the same number of examples, and so some of the same trials.
    frame = frame.drop_duplicates(["trial", "measure", "at"])
    found = values(frame, "metric", ("task", "examples", "kept"))
    probes = by_first(values(frame, "probe", ("task", "at"), grid="probed"))
    sizes = sorted({size for _, size, _ in found})
    transfer, gains = [], []
    for task in dict.fromkeys(task for task, _, _ in found):
        curves = {
            size: {k: found[task, size, k] for t, s, k in sorted(found) if (t, s) == (task, size)}
            for size in sizes
            if any((t, s) == (task, size) for t, s, _ in found)
        }
        if len(curves) < 2:  # at base size most tasks are trained with few examples only
            continue
        r = [
            correlation([*some.values()], [probes[task][k] for k in some])
            for some in curves.values()
        ]
        line = ", ".join(f"r = {one:.2f} with {n:,g}" for one, n in zip(r, curves, strict=True))
        transfer.append((r[0] > r[-1], f"{task}: {line}"))
        low = [some[max(some) // 2] - some[0] for some in curves.values()]
        line = ", ".join(
            f"{format_rounded(one)} with {n:,g}" for one, n in zip(low, curves, strict=True)
        )
        gains.append((low[-1] > low[0], f"{task}: {line}"))
    yield by_task(
        "probes agree with transfer when there is little data, and less when there is more",
        transfer,
    )
    yield by_task(
        "the lower half of the pretrained blocks matters more with more data",
        gains,
        "gain over no pretrained block: ",
    )


def permutation(frame: pd.DataFrame) -> Iterator[Claim]:
    """Judge pretrained blocks in another order."""
    shuffled = by_first(values(frame, "metric", ("task", "permutation"), grid="tuned"))
    ends = by_first(values(frame, "metric", ("task", "kept"), grid="ends"))
    shares, lines = [], []
    for task, orders in shuffled.items():
        low, high = ends[task][min(ends[task])], ends[task][max(ends[task])]
        some = list(orders.values())
        line = (
            f"{task}: none pretrained {format_rounded(low)}, shuffled {format_rounded(mean(some))} "
        )
        line += f"({span(some)}), in order {format_rounded(high)}"
        if high - low > NO_HELP:
            shares.append((mean(some) - low) / (high - low))
        else:
            line += ", the two differ too little to judge"
        lines.append(line)
    yield Claim(
        "a model with shuffled blocks is closer to a random one than to itself",
        everywhere(share < 0.5 for share in shares),
        "; ".join(lines),
    )
    agreed = correlate_values(frame, grid="tuned", value="metric", of="task", over="permutation")
    clear = [one.pearson for one in agreed if one.pearson_p < 0.05]
    verdict = everywhere(r > 0 for r in clear) if len(clear) == len(agreed) else UNCLEAR
    yield Claim(
        "the same orders are good for all tasks (ρ > 0, p < 0.05)",
        verdict,
        "; ".join(f"{one.pair}: r = {one.pearson:.2f}, p = {one.pearson_p:.2f}" for one in agreed),
    )


def localized(frame: pd.DataFrame) -> Iterator[Claim]:
    """Judge where three pretrained blocks help most."""
    cases = []
    metrics = values(frame, "metric", ("task", "change", "first"), grid="tuned")
    for task in dict.fromkeys(task for task, _, _ in metrics):
        lines, flags = [], []
        for change, text in (("preserved", "with"), ("reinitialised", "without")):
            low, high = halves(
                {at: v for (t, how, at), v in metrics.items() if (t, how) == (task, change)}
            )
            early, late = mean(low), mean(high)
            flags.append(early > late if change == "preserved" else early < late)
            lines.append(
                f"{format_rounded(early)} {text} three early ones and {format_rounded(late)} "
                f"{text} three late ones"
            )
        cases.append((all(flags), f"{task}: {', '.join(lines)}"))
    yield by_task(
        "three early pretrained blocks help more than three late ones (kept, and reinitialised)",
        cases,
    )


def longer(frame: pd.DataFrame) -> Iterator[Claim]:
    """Judge what more than three epochs bring."""
    found = values(frame, "metric_by_epoch", ("examples", "task", "kept", "at"))
    few, *_, many = sorted({examples for examples, *_ in found})
    for size, last, text in (
        (few, 5, f"with few examples, two more epochs than 3 gain {NO_HELP} or more"),
        (many, 10, f"with more of them, seven more epochs gain less than {NO_HELP}"),
    ):
        gains = {
            f"{task}, {kept} kept": value - found[size, task, kept, 3]
            for (examples, task, kept, at), value in found.items()
            if (examples, at) == (size, last)
        }
        yield by_task(
            text,
            [
                ((gain >= NO_HELP) == (size == few), f"{case}: {format_rounded(gain)}")
                for case, gain in gains.items()
            ],
            f"{size:,} examples: ",
        )


def single(frame: pd.DataFrame) -> Iterator[Claim]:
    """Judge what re-initialising a single block does."""
    found = values(frame, "metric", ("edits", "seed"))
    seeds = sorted({seed for _, seed in found})
    edits = [edit for edit in dict.fromkeys(edit for edit, _ in found) if edit != "none"]
    lost = {edit: mean(found[edit, seed] - found["none", seed] for seed in seeds) for edit in edits}
    worst = min(lost, key=lost.__getitem__)
    one = average(
        [mean(found[edit, seed] - found["none", seed] for edit in edits) for seed in seeds]
    )
    yield Claim(
        f"re-initialising one block does no harm (±{NEAR}, each)",
        everywhere(value >= -NEAR for value in lost.values()),
        f"difference {told(one, 'seeds')}; the most with {worst}, {format_rounded(lost[worst])}",
    )


def helps(frame: pd.DataFrame, axis: str, text: str) -> Claim:
    """Judge whether a setting helps re-initialised blocks."""
    found = values(frame, "metric", (axis, "task", "kept", "seed"))
    usual, other = sorted({key[0] for key in found})
    both = [key[1:] for key in found if key[0] == usual and (other, *key[1:]) in found]
    gains = by_first({(key[0], key): found[(other, *key)] - found[(usual, *key)] for key in both})
    one = average([mean(some.values()) for some in gains.values()])
    return Claim(
        f"{text} (by {NO_HELP} or more)",
        {HELD: NOT_HELD, NOT_HELD: HELD}.get(above(one, NO_HELP), UNCLEAR),
        f"difference {told(one, 'tasks')}: "
        + ", ".join(f"{task} {format_rounded(mean(v.values()))}" for task, v in gains.items()),
    )


def rate(frame: pd.DataFrame) -> Iterator[Claim]:
    """Judge a higher rate for re-initialised blocks."""
    yield helps(frame, "reinit_rate_factor", "5 times the rate does not help re-initialised blocks")


def norms(frame: pd.DataFrame) -> Iterator[Claim]:
    """Judge whether to keep the norms of re-initialised blocks."""
    yield helps(frame, "keep_layer_norm", "keeping the norms does not help re-initialised blocks")


# --- Lodha et al. 2023 ---------------------------------------------------------------------------


def layers(frame: pd.DataFrame) -> Iterator[Claim]:
    """Judge the k blocks with the most Fisher information."""
    yield from best_blocks(frame, "")


def released(frame: pd.DataFrame) -> Iterator[Claim]:
    """Judge the same where embeddings are trained in every run, as published."""
    yield from best_blocks(frame, "emb+")


def best_blocks(frame: pd.DataFrame, start: str) -> Iterator[Claim]:
    """Judge plans of the best blocks and of the worst, whose names begin with `start`."""
    found = values(frame, "metric", ("task", "plan"))
    close, alone = (
        {t: v - found[t, other] for (t, one), v in found.items() if one == plan}
        for plan, other in ((f"{start}rank:5", "full"), (f"{start}rank:1", f"{start}rank-bottom:1"))
    )
    one = average([*close.values()])
    yield Claim(
        f"the 5 best blocks are within {NEAR} of full fine-tuning",
        near(one),
        f"difference {told(one, 'tasks')}: "
        + ", ".join(f"{task} {format_rounded(v)}" for task, v in close.items()),
    )
    yield by_task(
        "the best block alone beats the worst alone",
        [(v > 0, f"{task}: by {format_rounded(v)}") for task, v in alone.items()],
    )


def ranks(frame: pd.DataFrame) -> Iterator[Claim]:
    """Judge whether Fisher ranks last."""
    found = values(frame, "deviation:fisher", ("grid", "task", "at"))
    blocks = int(frame["blocks"].max())
    random = (blocks**2 - 1) / (3 * blocks)
    for grid, text in (("ranked", "with a real schedule"), ("ranked as released", "as released")):
        moves = {(t, at): v for (g, t, at), v in found.items() if g == grid and at}
        tasks = dict.fromkeys(task for task, _ in moves)
        last = {task: moves[task, max(at for t, at in moves if t == task)] for task in tasks}
        yield Claim(
            f"Fisher ranks of blocks hold during training ({text}): they move by less than 1",
            everywhere(value < 1 for value in last.values()),
            ", ".join(
                f"{task}: {format_rounded(v)} after the last epoch" for task, v in last.items()
            )
            + f" (shuffled ranks would move by {random:.2f})",
        )


# --- What judges which study ---------------------------------------------------------------------


@dataclass(frozen=True)
class Evidence:
    """What a study is for.

    Attributes:
        judge: reads its values.
        both: whether both encoders are read, or the demo's alone.
        pairs: whether its claims are about pairs of a model and a task, whichever they are.
        measures: how those begin that are kept.
    """

    judge: Callable[[pd.DataFrame], Iterator[Claim]]
    both: bool = False
    pairs: bool = False
    measures: tuple[str, ...] = ("metric", "share", "probe")


RATIO = ("best:", "pearson:", "variability_ratio")
STUDIES: Mapping[str, Evidence] = {
    "xie2022-scores": Evidence(scores, both=True, pairs=True, measures=(*RATIO, "probe")),
    "xie2022-pooling": Evidence(
        pooling, both=True, pairs=True, measures=("smoothness:", "variability_ratio")
    ),
    "xie2022-table6": Evidence(strategies, both=True, pairs=True),
    "xie2022-table7": Evidence(adapters, pairs=True),
    "xie2022-middle": Evidence(middle, both=True, pairs=True),
    "xie2022-deberta": Evidence(deberta, measures=("metric", *RATIO, "probe")),
    "xie2022-table10": Evidence(
        costs, measures=("train_seconds", "inference_share", "parameters", "trainable")
    ),
    "xie2022-imbalance": Evidence(imbalance, measures=(*RATIO, "nc1")),
    "xie2022-scarcity": Evidence(scarcity, measures=RATIO),
    "xie2022-after-tuning": Evidence(after_tuning, measures=("metric", *RATIO, "probe")),
    "phang2021-truncation": Evidence(truncated, measures=("metric", "untuned", "tuned", "skip")),
    "phang2021-cka": Evidence(clusters, measures=("metric", "contrast", "split", "same_state")),
    "tamkin2020-incremental": Evidence(incremental),
    "tamkin2020-permutation": Evidence(permutation),
    "tamkin2020-localized": Evidence(localized),
    "tamkin2020-single": Evidence(single),
    "tamkin2020-epochs": Evidence(longer, measures=("metric_by_epoch",)),
    "tamkin2020-rate": Evidence(rate),
    "tamkin2020-norms": Evidence(norms),
    "lodha2023-layers": Evidence(layers),
    "lodha2023-released": Evidence(released),
    "lodha2023-ranks": Evidence(ranks, measures=("metric", "deviation:")),
}
