"""Study the plug-in and the debiased variability ratio, made up and on real tasks.

    python bench/estimator.py --measure --shared ../shared --write docs/measured/estimator.md

What is measured is kept in `bench/estimator`; the page is made from that.
"""

import argparse
import itertools
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import altair as alt
import numpy as np

import layerscout as ls
from layerscout.data import Split
from layerscout.models import Encoder
from layerscout.reporting import save_chart
from layerscout.scanning import Sample, score_states
from layerscout.scores import DEFAULT, arrays as scores
from layerscout.scores.diagnostics import agreement
from layerscout.scores.grouping import deal_groups
from layerscout.scores.linear_probes import train_linear_probes
from layerscout.scores.moments import Centred
from layerscout.scores.score import Score
from layerscout.scores.variability import estimate_debiased
from layerscout.states import DEFAULT_LIMIT, States, pool_states
from measuring import drawn
from writing import link, read_rows, table, write_rows

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


COLUMNS = ("plug-in", "debiased", "undefined", "coverage", "width", "missed")
HERE = Path(__file__).parent / "estimator"
SIMULATED, STEEP, REAL = (HERE / f"{name}.csv" for name in ("simulated", "steep", "real"))


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


def simulate(draws: int) -> None:
    """Compare both estimates where signal is weak or strong and tails are light or heavy."""
    rows = []
    shares = {"balanced": {2: (1, 1), 3: (1, 1, 1)}, "1:5": {2: (1, 5), 3: (1, 3, 5)}}
    for d, K, heavy, classes in itertools.product((50, 200), (2, 3), (False, True), shares):
        for fraction in FRACTIONS:
            found = estimated(Population(d, shares[classes][K], fraction, heavy), draws)
            tails = "heavy" if heavy else "Gaussian"
            rows.append([str(d), str(K), tails, classes, str(fraction), *found.row()])
    write_rows(SIMULATED, ("d", "K", "tails", "classes", "signal fraction", *COLUMNS), rows)


def simulate_steep(draws: int) -> None:
    """Compare both estimates where few directions hold most of the variance."""
    rows = []
    for along, fraction in itertools.product((True, False), FRACTIONS):
        found = estimated(Population(200, (1, 1), fraction, decay=1.0, along=along), draws)
        where = "along the variance" if along else "anywhere"
        rows.append([where, str(fraction), *found.row()])
    write_rows(STEEP, ("class means", "signal fraction", *COLUMNS), rows)


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


def read_real_tasks(shared: Path) -> None:
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
            cells = [f"{np.mean(c):+.2f}" if c else "" for c in columns[:2]]
            cells.append(f"{100 * np.mean(columns[2]):.1f}" if columns[2] else "")
            rows.append([model, data, str(len(material.train)), name, *cells])
    write_rows(REAL, ("model", "task", "examples", "ratio", "halves", "probes", "lost"), rows)


def draw(path: Path) -> None:
    """Draw both estimates over the truth by the signal fraction."""
    values = [
        {"fraction": row["signal fraction"], "estimate": name, "value": float(row[name])}
        for row in read_rows(SIMULATED)
        for name in ("plug-in", "debiased")
    ]
    chart = (
        alt.Chart(alt.Data(values=values))
        .mark_tick(thickness=2)
        .encode(
            x=alt.X("value:Q", title="median estimate / truth"),
            y=alt.Y("estimate:N", sort=["plug-in", "debiased"], title=None),
            row=alt.Row("fraction:N", title="signal fraction"),
        )
        .properties(width=420, height=50)
    )
    save_chart(chart, path)


def tell_span(rows: Sequence[Mapping[str, str]], column: str, **where: str) -> str:
    """Write the least and the most of a column of numbers or percentages."""
    cells = [row[column] for row in rows if all(row[k] == v for k, v in where.items())]
    known = sorted({float(cell.rstrip("%")) for cell in cells})
    sign = " %" if cells[0].endswith("%") else ""
    return f"{known[0]:g} to {known[-1]:g}{sign}"


def page(picture: Path) -> str:
    """Write the page from what is kept, and draw its picture."""
    draw(picture)
    made, steep, real = (read_rows(path) for path in (SIMULATED, STEEP, REAL))
    rows = [
        [
            str(fraction),
            *(
                tell_span(made, column, **{"signal fraction": str(fraction)})
                for column in ("plug-in", "debiased", "undefined", "coverage")
            ),
        ]
        for fraction in FRACTIONS
    ]
    elsewhere = [row for row in steep if row["class means"] == "anywhere"][:2]
    means = {
        (name, column): np.mean([float(row[column]) for row in real if row["ratio"] == name])
        for name in ("plug-in", "debiased")
        for column in ("halves", "probes", "lost")
    }
    halves, probes, lost = (
        f"{means['debiased', column]:{style}} against {means['plug-in', column]:{style}}"
        for column, style in (("halves", "+.2f"), ("probes", "+.2f"), ("lost", ".1f"))
    )
    return f"""# Is the debiased ν a better estimate, and a better guide?

The plug-in ν takes the noise of the class means for distance between the classes: it is too low
where they are hard to tell apart, and grows with the sample. `variability_ratio_debiased` takes
that noise out and has a 95 % interval.

- **A better estimate: mostly.** In {len(made)} simulated populations it removes most of the bias,
  and its intervals hold the truth in {tell_span(made, "coverage")} of the samples. Where little
  but noise lies between the classes it is often undefined.
- **It fails where the class means lie in directions in which the states hardly vary**: with
  signal fractions of 0.3 and 0.6 it is {tell_span(elsewhere, "debiased")} times the truth, and
  intervals hold it in {tell_span(elsewhere, "coverage")}. Samples with a defined value are then a
  lucky selection.
- **A better guide: no.** On halves of three tasks, two small encoders, Kendall's τ of the states'
  order with that of linear probes on the other half is {probes} of the plug-in, between two
  halves {halves}, and its best state loses {lost} points.

{table(["signal fraction", *(f"{name} / truth" for name in COLUMNS[:2]), *COLUMNS[2:4]], rows)}

![Median estimates over the truth]({picture.name})

Medians over {DRAWS} samples of {EXAMPLES} examples in each population: 50 or 200 features, 2 or 3
classes, balanced or 1:5, Gaussian or heavy tails; the signal fraction is the share of the expected
squared distance between class means that is not noise. Every population: {link(SIMULATED)}, few
strong directions: {link(STEEP)}, real tasks: {link(REAL)}.

`python bench/estimator.py --measure --write docs/measured/estimator.md` measures this again.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    if arguments.measure:
        simulate(arguments.draws)
        simulate_steep(arguments.draws)
        read_real_tasks(arguments.shared)
    if arguments.write:
        written = page(arguments.write.with_suffix(".svg"))
        arguments.write.write_text(written, encoding="utf-8")


if __name__ == "__main__":
    main()
