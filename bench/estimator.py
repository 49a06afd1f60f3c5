"""Study the plug-in and the debiased variability ratio, made up and on real tasks.

python bench/estimator.py --shared ../shared --write docs/measured/estimator.md
"""

import argparse
import itertools
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import layerscout as ls
from layerscout.data import Split
from layerscout.models import Encoder
from layerscout.scanning import Sample, score_states
from layerscout.scores import DEFAULT, arrays as scores
from layerscout.scores.diagnostics import agreement
from layerscout.scores.grouping import deal_groups
from layerscout.scores.linear_probes import train_linear_probes
from layerscout.scores.moments import Centred
from layerscout.scores.score import Score
from layerscout.scores.variability import estimate_debiased
from layerscout.states import DEFAULT_LIMIT, States, pool_states
from measuring import Section, drawn, table, write_page

EXAMPLES, DRAWS = 600, 400
FRACTIONS = (0.3, 0.6, 0.95)

TASKS, MODELS = ("cola", "rte", "sst2"), ("all-MiniLM-L6-v2", "stacked-minilm-12")
# Examples of a real task at the most, and how often they are cut in two.
REAL_EXAMPLES, CUTS = 4000, 5


@dataclass(frozen=True)
class Population:
    """What states are drawn from.

    Attributes:
        features: d.
        shares: how many examples of each class, relative to each other.
        fraction: of the expected distance² between the class means of a sample, how much is not
            noise.
        heavy: t with 5 degrees of freedom, made skew, instead of Gaussian.
        decay: direction j has the variance j^-decay.
        along: whether the class means lie along directions as the states do, instead of all alike.
    """

    features: int
    shares: tuple[int, ...]
    fraction: float
    heavy: bool = False
    decay: float = 0.5
    along: bool = False

    def draw(self, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray, float]:
        """Draw states (n, d), their classes (n,), and the true ratio of their population."""
        K = len(self.shares)
        counts = np.array(self.shares) * EXAMPLES // sum(self.shares)
        variances = np.arange(1, self.features + 1) ** -self.decay
        means = generator.normal(size=(K, self.features))
        if self.along:
            means *= np.sqrt(variances)
        means -= means.mean(axis=0)
        noise = (1 - 1 / K) * variances.sum() * (1 / counts).sum()
        means *= np.sqrt(self.fraction / (1 - self.fraction) * noise / (means**2).sum())
        between = np.linalg.pinv(means @ means.T, rcond=1e-12, hermitian=True)
        truth = float(np.trace(between @ between @ (means * variances @ means.T)))
        y = np.repeat(np.arange(K), counts)
        size = (len(y), self.features)
        if self.heavy:
            # One chi-square for all features of an example, as in the multivariate t.
            spread = np.sqrt(3 / generator.chisquare(5, size=(len(y), 1)))
            deviations = spread * (generator.exponential(size=size) - 1)
        else:
            deviations = generator.normal(size=size)
        return means[y] + deviations * np.sqrt(variances), y, truth


@dataclass(frozen=True)
class Found:
    """What both estimates make of many draws; ratios are over the truth of each draw."""

    plug_in: list[float]
    honest: list[float]
    widths: list[float]
    covered: list[bool]

    def row(self) -> list[str]:
        """Write the columns of `COLUMNS`."""
        defined, all_draws = len(self.honest), len(self.plug_in)
        missed = self.covered.count(False)
        honest, coverage, width = "–", "–", "–"
        if defined:
            honest = f"{statistics.median(self.honest):.2f}"
            coverage = f"{1 - missed / defined:.0%}"
            width = f"{statistics.median(self.widths):.1f}"
        return [
            f"{statistics.median(self.plug_in):.2f}",
            honest,
            f"{1 - defined / all_draws:.0%}",
            coverage,
            width,
            f"{missed / all_draws:.0%}",
        ]


COLUMNS = (
    "plug-in ν̂/ν",
    "debiased ν̂/ν",
    "undefined",
    "coverage",
    "width",
    "missed",
)


def estimated(population: Population, draws: int) -> Found:
    """Estimate the ratio of many draws both ways."""
    found = Found([], [], [], [])
    for seed in range(draws):
        H, y, truth = population.draw(np.random.default_rng(seed))
        plug_in = scores.variability_ratio(H, y)
        if plug_in is None:
            raise RuntimeError("the plug-in ratio of a sample is always defined")
        found.plug_in.append(plug_in / truth)
        result = estimate_debiased(Centred.of(H, y, deal_groups(y, draws + seed)))
        low, high = result.interval()
        if result.value is None or low is None or high is None:
            continue
        found.honest.append(result.value / truth)
        found.widths.append(high / low)
        found.covered.append(low <= truth <= high)
    print(population, *found.row(), file=sys.stderr, flush=True)
    return found


def simulated(draws: int) -> Section:
    """Compare both estimates where signal is weak or strong and tails are light or heavy."""
    rows = []
    shares = {"balanced": {2: (1, 1), 3: (1, 1, 1)}, "1:5": {2: (1, 5), 3: (1, 3, 5)}}
    for d, K, heavy, classes in itertools.product((50, 200), (2, 3), (False, True), shares):
        for fraction in FRACTIONS:
            found = estimated(Population(d, shares[classes][K], fraction, heavy), draws)
            tails = "heavy" if heavy else "Gaussian"
            rows.append([str(d), str(K), tails, classes, str(fraction), *found.row()])
    text = table(["d", "K", "tails", "classes", "signal fraction", *COLUMNS], rows)
    return Section("Where the truth is known", text)


def steep(draws: int) -> Section:
    """Compare both estimates where few directions hold most of the variance."""
    rows = []
    for along, fraction in itertools.product((True, False), FRACTIONS):
        found = estimated(Population(200, (1, 1), fraction, decay=1.0, along=along), draws)
        where = "along the variance" if along else "anywhere"
        rows.append([where, str(fraction), *found.row()])
    text = (
        "Here direction j has the variance 1/j (d = 200, K = 2, Gaussian, balanced), so the noise "
        "of the class means lies in few directions and does not average out. Class means either "
        "lie along the directions as the states do, or anywhere, so mostly where the states hardly "
        "vary. In the last case a signal fraction of 0.6 cannot be told from none. The ratio is "
        "then undefined, or the sample was a lucky one and the ratio far too high: samples with a "
        "defined value are already a selection, which the interval does not account for.\n\n"
    )
    text += table(["class means", "signal fraction", *COLUMNS], rows)
    return Section("Few strong directions", text)


@dataclass(frozen=True, eq=False)
class Material:
    """The kept states of a real task, for training and held out."""

    train: Split
    states: States
    held_out: Split
    judged: States

    @classmethod
    def of(cls, model: Path, data: Path) -> "Material":
        """Run a checkpoint over a task."""
        encoder, task = Encoder.load(model), ls.Task.load(data)
        if task.validation is None:
            raise RuntimeError(f"{task.name} has no validation split")
        train = drawn(task, min(REAL_EXAMPLES, len(task.train)))
        read = []
        for split in (train, task.validation):
            tokens = encoder.tokenize(split.texts, split.pairs)
            read.append(pool_states(encoder, tokens, limit=DEFAULT_LIMIT).states["mean"])
        return cls(train, read[0], task.validation, read[1])

    def ratios(self, rows: np.ndarray, seed: int) -> dict[str, Score]:
        """Return both ratios on some of the rows."""
        labels = self.train.labels[rows]
        sample = Sample(labels, deal_groups(labels, seed), seed, None, first=0)
        return score_states(self.states.take(rows), sample, ["variability_ratio", DEFAULT])[0]

    def probes(self, rows: np.ndarray, seed: int) -> Score:
        """Train linear probes on some of the rows."""
        found = train_linear_probes(
            self.states.take(rows),
            self.train.labels[rows],
            self.judged,
            self.held_out.labels,
            seeds=4,
            seed=seed,
        )
        return Score("states", "higher", found.values)


def on_real_tasks(shared: Path) -> Section:
    """Compare both estimates on halves of real tasks, and with probes trained on the other half."""
    rows = []
    for model, data in itertools.product(MODELS, TASKS):
        material = Material.of(shared / "models" / model, shared / "data" / data)
        found: dict[str, list[tuple[float | None, float | None, float | None]]] = {}
        for cut in range(CUTS):
            half = deal_groups(material.train.labels, cut, groups=2)
            one, other = np.flatnonzero(half == 0), np.flatnonzero(half == 1)
            first, second = material.ratios(one, cut), material.ratios(other, cut)
            probes = material.probes(other, cut)
            for key in first:
                pair = {"first": first[key], "second": second[key], "probes": probes}
                taus, best = agreement(pair).kendall, first[key].best()
                values = [v for v in probes.values[1:] if v is not None]
                lost = None
                if best is not None and probes.values[best] is not None:
                    lost = max(values) - probes.values[best]
                entry = (taus["first"]["second"], taus["first"]["probes"], lost)
                found.setdefault(key, []).append(entry)
            print(model, data, cut, {k: v[-1] for k, v in found.items()}, file=sys.stderr)
        for key, entries in found.items():
            name = "debiased" if key == DEFAULT else "plug-in"
            by_column = zip(*entries, strict=True)
            columns = [[e for e in column if e is not None] for column in by_column]
            cells = [f"{np.mean(c):+.2f} ({len(c)})" if c else "–" for c in columns[:2]]
            cells.append(f"{100 * np.mean(columns[2]):.1f}" if columns[2] else "–")
            rows.append([model, data, f"{len(material.train):,}", name, *cells])
    text = (
        f"Each task is cut in two halves, {CUTS} times. The columns: Kendall's τ over the states "
        "1..L between the ratios of both halves (1: the same order); between the ratio on one half "
        "and linear probes that were trained on the other and judged by the validation split "
        "(directions aligned, so 1 means that the ratio puts the states in the order of the "
        "probes, 0 that it says nothing of it), each the mean over the cuts, and in brackets in "
        "how many of them it was defined; and the accuracy in points that the probe loses at the "
        "ratio's best state against the best probe. A ratio that two halves agree on is measured "
        "well, not therefore a good guide: a better estimate of ν is not a better ν.\n\n"
    )
    columns = ["model", "task", "examples", "ν", "τ of halves", "τ with probes", "points lost"]
    return Section("On real tasks", text + table(columns, rows))


INTRODUCTION = (
    "# The debiased variability ratio\n\nWritten by `python bench/estimator.py`. The plug-in ν "
    "takes the noise of the class means for distance between the classes, so it is too low where "
    "they are hard to tell apart, and grows with the sample for no other reason. "
    "`variability_ratio_debiased` takes that noise out and comes with a 95 % interval.\n\n"
    "{draws} samples of {examples} examples for each row, with new class means each. The signal "
    "fraction is the share of the expected squared distance between the class means of a sample "
    "that is not noise. Class covariances are diagonal, with the variance 1/√j in direction j; "
    "heavy tails are those of the multivariate t with 5 degrees of freedom, made skew by "
    "exponential variables; class sizes are 1:5, or 1:3:5 for three classes. The columns: medians "
    "of the estimate over the truth, of the debiased one where it is defined; the share of samples "
    "where it is undefined (null); the share of the nominal 95 % intervals that hold the truth; "
    "the median of their upper over their lower end; and the share of all samples in which an "
    "interval was given and missed the truth. The plug-in ratio has no interval."
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    started = time.perf_counter()
    sections = [simulated(arguments.draws), steep(arguments.draws), on_real_tasks(arguments.shared)]
    print(f"{time.perf_counter() - started:.0f} s", file=sys.stderr)
    introduction = INTRODUCTION.format(draws=arguments.draws, examples=EXAMPLES)
    write_page(introduction, sections, arguments.write)


if __name__ == "__main__":
    main()
