"""Seeded faults: each is put into a copy of the package, and the fast tests should notice it."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]


class Fault(NamedTuple):
    """A fault: `old` stands once in `file` and becomes `new`, and `tests` should fail."""

    file: str
    old: str
    new: str
    what: str
    tests: tuple[str, ...]


SCORES = ("scores",)
DECISIONS = ("scores/test_head_quality.py", "scores/test_variability.py")
PLANS = ("plans",)
TRUNKS = ("states",)
RESUME = ("tuning/test_snapshots.py", "tuning/test_resuming.py")
TRAINING = ("tuning/test_training.py", *RESUME)
SAVING = ("models/test_exports.py", "models/test_surgery.py", "tuning/test_results.py")
NAMES = ("models/test_classifiers.py", "data/test_data.py", "test_names.py")
RUNTIME = ("test_files.py", *TRUNKS)
STUDIES = ("studies/test_studies.py",)

FAULTS = (
    # --- Scores
    Fault(
        "scores/quality.py",
        "residuals[rows], _ = dpotrs(factor, residuals[rows])",
        "pass",
        "a head is judged on the examples that it was fitted to",
        DECISIONS,
    ),
    Fault(
        "scores/quality.py",
        "own.T - intercept / n",
        "own.T",
        "a fit without a fold keeps the intercept of all",
        DECISIONS,
    ),
    Fault(
        "scanning/sampling.py",
        "and gap.half_width * (1 - share) ** 0.5 - gap.difference",
        "and -gap.difference",
        "a stop takes the gaps for certain",
        ("scanning/test_stopping.py",),
    ),
    Fault(
        "studies/regrets.py",
        "metrics[other][1] for _, other in orders",
        "metrics[one][0] for one, _ in orders",
        "the best plan is judged by what chose it",
        ("studies/test_regrets.py",),
    ),
    Fault(
        "scores/moments.py",
        "s > 1e-6 * largest",
        "s > 1e-2 * largest",
        "ν drops weak directions",
        SCORES,
    ),
    Fault(
        "scores/moments.py",
        "weights = 1 / (len(moments.count) * moments.count)",
        "weights = 1 / moments.count",
        "ν without 1/K",
        SCORES,
    ),
    Fault(
        "scores/moments.py",
        "means - means.mean(dim=1, keepdim=True)",
        "means",
        "ν about the origin",
        SCORES,
    ),
    Fault(
        "scores/moments.py",
        "self.total + self.count[:, None] * shift[:, None, :]",
        "self.total",
        "merged sums keep two references",
        SCORES,
    ),
    Fault(
        "scores/moments.py",
        "self.scatter + cross + cross.transpose(-1, -2) + square",
        "self.scatter + cross + square",
        "half of the cross terms in a move",
        SCORES,
    ),
    Fault(
        "scores/moments.py",
        "means - centre",
        "means",
        "NC1 about the origin",
        SCORES,
    ),
    Fault(
        "data/intervals.py",
        "np.sqrt((B - 1) * replicates.var())",
        "np.sqrt(replicates.var())",
        "the jackknife's error is too small",
        DECISIONS,
    ),
    Fault(
        "scores/variability.py",
        "(along / weights**2)",
        "(along / weights)",
        "the debiased ratio's inverse is not squared",
        SCORES,
    ),
    Fault(
        "scores/estimates.py",
        "chance = MISS / max(1, compared * looks)",
        "chance = MISS",
        "looks and comparisons are not paid for",
        DECISIONS,
    ),
    Fault(
        "scores/estimates.py",
        "if state > 0}",
        "}",
        "the embeddings may be the best state",
        DECISIONS,
    ),
    Fault(
        "scores/neighbours.py",
        "cosine[own[rows, None] == own] = -np.inf",
        "pass",
        "a row is its own neighbour",
        SCORES,
    ),
    Fault(
        "scores/neighbours.py",
        "return max(float(mutual_info_score",
        "return max(2 * float(mutual_info_score",
        "mutual information twice",
        SCORES,
    ),
    Fault(
        "scores/transferability.py",
        "n).mean() / n)",
        "n).mean())",
        "LogME of all examples",
        SCORES,
    ),
    Fault(
        "scores/transferability.py",
        "explained = along[kept] ** 2 if n < d else",
        "explained = along[kept] ** 2 if n > d else",
        "LogME's sides exchanged",
        SCORES,
    ),
    Fault(
        "scores/transferability.py",
        "return (1 - shrinkage) *",
        "return 1.0 *",
        "H-score of unlike shrinkage",
        SCORES,
    ),
    Fault(
        "scores/transferability.py",
        "float(np.sqrt(eigenvalues).sum()) ** 2 / total",
        "float(np.sqrt(eigenvalues).sum()) / total",
        "numerical rank without the square",
        SCORES,
    ),
    Fault(
        "scores/folds.py",
        "zip(folds, folds[1:] + folds[:1], strict=True)",
        "zip(folds, folds, strict=True)",
        "the ridge term is chosen on the fold it is tested on",
        SCORES,
    ),
    Fault(
        "scores/folds.py",
        "results.append(on_first[_best(on_second)])",
        "results.append(on_first.max())",
        "the best ridge term by the test",
        SCORES,
    ),
    Fault(
        "scores/spectra.py",
        "signal / noise / scale",
        "signal / noise",
        "a weight's scale is lost",
        SCORES,
    ),
    Fault(
        "scores/cka.py",
        "values.append(None if biased is None else 1 - biased)",
        "values.append(biased)",
        "a change is a likeness",
        SCORES,
    ),
    # --- Plans and costs
    Fault(
        "plans/plan.py",
        "return min(self.tuned) - 1 if self.tuned else self.head",
        "return min(self.tuned) if self.tuned else self.head",
        "the cut lies in the lowest tuned block",
        PLANS,
    ),
    Fault(
        "plans/strategies.py",
        "low = max(1, start - k + 1)",
        "low = max(1, start - k)",
        "best-down takes a block too many",
        PLANS,
    ),
    Fault(
        "plans/strategies.py",
        "_plan([(best + 1, high)]",
        "_plan([(best, high)]",
        "best-up starts at the best state",
        PLANS,
    ),
    Fault(
        "plans/strategies.py",
        '1.0 if strategy.startswith("rank-bottom") else -1.0',
        '-1.0 if strategy.startswith("rank-bottom") else 1.0',
        "rank and rank-bottom exchanged",
        PLANS,
    ),
    Fault(
        "plans/strategies.py",
        "blocks // 2 + 1",
        "blocks // 2",
        "the middle is one too low",
        PLANS,
    ),
    Fault(
        "plans/plan.py",
        "int(block / (blocks / groups))",
        "int(block * groups // blocks) if blocks % 2 else 0",
        "ALBERT's groups",
        (*PLANS, "models/test_surgery.py"),
    ),
    Fault(
        "plans/strategies.py",
        "(blocks - k + 1, blocks)], blocks, blocks",
        "(blocks - k, blocks)], blocks, blocks",
        "top:k takes a block too many",
        PLANS,
    ),
    Fault(
        "plans/costs.py",
        "return 2 * d * (shape.queries + shape.keys)",
        "return d * (shape.queries + 2 * shape.keys)",
        "a matrix of a block is not counted",
        PLANS,
    ),
    Fault(
        "plans/costs.py",
        "work.examples + work.validation if work.cached else run",
        "run",
        "the trunk is counted in every epoch",
        PLANS,
    ),
    Fault(
        "plans/costs.py",
        "backward += tuned * dense",
        "pass",
        "gradients of weights cost nothing",
        PLANS,
    ),
    Fault(
        "plans/auto.py",
        "if share <= budget]",
        "if share >= budget]",
        "auto chooses what does not fit",
        PLANS,
    ),
    Fault("plans/training.py", "return step / rising", "return 1.0", "no warm-up", TRAINING),
    Fault(
        "plans/training.py",
        "(steps - step) / max(1, steps - rising)",
        "(steps - step) / max(1, steps)",
        "the rate falls from too low",
        TRAINING,
    ),
    # --- Trunks and the cache
    Fault(
        "states/trunks.py",
        '{"reads": reads}',
        "{}",
        "a key of first tokens is that of all",
        TRUNKS,
    ),
    Fault(
        "states/trunks.py",
        "np.argsort(-self.tokens.lengths",
        "np.argsort(self.tokens.lengths",
        "a trunk is read in another order",
        TRUNKS,
    ),
    Fault(
        "states/trunks.py",
        "np.cumsum(kept[order]) - kept[order]",
        "np.cumsum(kept[order])",
        "states of the next text are read",
        TRUNKS,
    ),
    Fault(
        "states/trunks.py",
        "if number % group.size == group.own:",
        "if True or group.own:",
        "every process computes everything",
        TRUNKS,
    ),
    Fault(
        "states/fingerprints.py",
        "(tokens.offsets, tokens.ids, tokens.types)",
        "(tokens.offsets, tokens.ids)",
        "token types are not in the key",
        TRUNKS,
    ),
    Fault(
        "states/fingerprints.py",
        "tokens.ids, tokens.types, tokens.ordinary)",
        "tokens.ids, tokens.types)",
        "a mean of other tokens is found for one of a text's own",
        ("states/test_states.py",),
    ),
    Fault(
        "states/fingerprints.py",
        "_hash_parts(bounds, places, texts[owners])",
        "_hash_parts(bounds, places)",
        "a word is found in another sentence",
        ("states/test_states.py",),
    ),
    Fault(
        "states/fingerprints.py",
        '"precision": encoder.precision,',
        "",
        "precision is not in the key",
        TRUNKS,
    ),
    Fault(
        "states/fingerprints.py",
        "digest.update(flat.view(torch.uint8).numpy().data)",
        "pass",
        "weights are not in the key",
        TRUNKS,
    ),
    Fault(
        "states/store.py",
        'if about["sha256"] != sha256_of(path):',
        "if False:",
        "a harmed entry is taken",
        RUNTIME,
    ),
    Fault(
        "states/store.py",
        "if spared + size > limit:",
        "if False:",
        "the limit of the cache",
        RUNTIME,
    ),
    Fault(
        "states/store.py", "reverse=True", "reverse=False", "the newest entry goes first", RUNTIME
    ),
    Fault(
        "files.py",
        "<= STALE",
        "<= -STALE",
        "what another run is writing is removed",
        RUNTIME,
    ),
    Fault(
        "scores/solving.py",
        "said = head(H[own])",
        "said = solve(H, y)[number](H[own])",
        "a solved head is judged on the rows that it was solved with",
        ("scores/test_solving.py",),
    ),
    Fault(
        "scores/solving.py",
        "weights /= (1 - between",
        "weights /= (1 + between",
        "the covariance of a label holds what lies between its means",
        ("scores/test_solving.py",),
    ),
    Fault(
        "scores/solving.py",
        "LinearHead(self.weights * factor, self.bias * factor)",
        "LinearHead(self.weights * factor, self.bias)",
        "a calibrated head keeps its bias",
        ("scores/test_solving.py", "tuning/test_solved_heads.py"),
    ),
    Fault(
        "scores/calibration.py",
        "np.abs(sure - hits)",
        "(sure - hits)",
        "bins that are too sure make up for others that are not sure enough",
        ("scores/test_calibration.py",),
    ),
    Fault(
        "scores/calibration.py",
        "share = 1 / (len(y) + 1)",
        "share = 0.0",
        "a few rows that are all right make probabilities sure",
        ("scores/test_calibration.py",),
    ),
    Fault(
        "tuning/calibration.py",
        "calibrate(y[others], logits[others], TRAINED) if others.any() else 1.0",
        "calibrate(y, logits, TRAINED)",
        "probabilities are judged with a factor that has seen them",
        ("tuning/test_calibrated.py",),
    ),
    Fault(
        "tuning/baselines.py",
        "judged.split.take(np.flatnonzero(~own))",
        "judged.split",
        "words are counted in the rows that they are judged on",
        ("tuning/test_baselines.py",),
    ),
    Fault(
        "tuning/judging.py",
        "scale_logits(model, factor)",
        "pass",
        "the factor is reported, and not in the model",
        ("tuning/test_calibrated.py",),
    ),
    Fault(
        "tuning/forms.py",
        "return norm_means(state)",
        "return state",
        "a head is solved on other features than its block gives",
        ("tuning/test_solved_heads.py",),
    ),
    Fault(
        "data/intervals.py",
        "effective / (1 + folds / (folds - 1) if folds > 1 else 1)",
        "effective",
        "an interval does not count what the models of two folds share",
        ("data/test_intervals.py",),
    ),
    Fault(
        "data/sampling.py",
        "numbers.setdefault(text, len(numbers))",
        "numbers.setdefault((text, len(numbers)), len(numbers))",
        "a text is judged by a head that has seen it in another row",
        ("tuning/test_solved_heads.py", "scanning/test_rare_classes.py"),
    ),
    Fault(
        "tuning/free.py",
        "beyond or (difference >= 0 and losses[1] < losses[0])",
        "beyond or difference >= 0",
        "a training that is level with the free head counts as better",
        ("tuning/test_free.py",),
    ),
    Fault(
        "models/architecture.py",
        "_LARGE = 2.0**24",
        "_LARGE = 2.0**2",
        "the block that averages keeps the state that it was given",
        ("models/test_averaging.py",),
    ),
    Fault(
        "data/delimited.py",
        "most)\n            except _MisfitError as error:",
        "most)\n            except ZeroDivisionError as error:",
        "only the most usual way of writing a table is tried",
        ("data/test_tables.py", "data/test_exporters.py"),
    ),
    Fault(
        "predicting/run.py",
        "json.dumps([self.fingerprint, chunk.texts, chunk.pairs])",
        "json.dumps([self.fingerprint, len(chunk.texts)])",
        "a run goes on with what was kept of other texts",
        ("predicting/test_predicting.py",),
    ),
    Fault(
        "predicting/predictor.py",
        "np.cumsum([len(_split(text)) for text in texts])[:-1]",
        "np.cumsum([len(text) for text in texts])[:-1]",
        "the tags of a text that is no list are parted by its characters",
        ("predicting/test_predicting.py",),
    ),
    Fault(
        "models/joined_words.py",
        """sentence.rfind(" ", 0, piece["end"]) + 1""",
        """piece["start"]""",
        "the card's words begin where a token does",
        ("tuning/test_documented_use.py",),
    ),
    # --- Saving
    Fault(
        "models/exports.py",
        "cut_config(config, head)",
        "config",
        "a cut checkpoint keeps its depth",
        SAVING,
    ),
    Fault(
        "models/architecture.py",
        "positions -= config.pad_token_id + 1",
        "pass",
        "RoBERTa's texts are too long",
        ("models/test_encoder.py",),
    ),
    Fault(
        "models/exports.py",
        "tokenizer.backend_tokenizer.no_truncation()",
        "pass",
        "a tokenizer is saved as it was last used",
        SAVING,
    ),
    Fault(
        "models/classifiers.py",
        "parameter.requires_grad_(name in trained)",
        "parameter.requires_grad_(True)",
        "everything is trained",
        SAVING,
    ),
    Fault(
        "models/classifiers.py",
        "heads[name][list(rows or ours)]",
        "heads[name]",
        "a head is reused by the position of its classes",
        NAMES,
    ),
    Fault(
        "data/labels.py",
        "places = kinds[min(kinds, key=lambda kind: unread[kind])]",
        "places = {v: by_id[v] if n is None else n for v, n in by_name.items()}",
        "names and ids are mixed in a column",
        NAMES,
    ),
    Fault(
        "models/architecture.py",
        "parameter.requires_grad_(name in trained)",
        "parameter.requires_grad_(True)",
        "freeze freezes nothing",
        SAVING,
    ),
    # --- Resuming, snapshots, studies
    Fault(
        "tuning/snapshots.py",
        'stepper.order.bit_generator.state = content["order"]',
        "pass",
        "the order of examples starts anew",
        RESUME,
    ),
    Fault(
        "tuning/snapshots.py",
        'torch.set_rng_state(states["cpu"])',
        "pass",
        "dropout starts anew",
        RESUME,
    ),
    Fault(
        "tuning/snapshots.py",
        "p.copy_(parameters[name])",
        "pass",
        "weights are not restored",
        RESUME,
    ),
    Fault(
        "tuning/snapshots.py",
        'moments[f"{name}/{key}"].to(p.device)',
        'torch.zeros_like(moments[f"{name}/{key}"]).to(p.device)',
        "moments are not restored",
        RESUME,
    ),
    Fault(
        "tuning/snapshots.py",
        'content["epoch"], content["done"]',
        'content["epoch"], 0',
        "steps are counted from 0 again",
        RESUME,
    ),
    Fault(
        "tuning/snapshots.py",
        'if path.name not in (*files, f"parameters-{kept}.safetensors"):',
        "if path.name not in files:",
        "the parameters of the best epoch are removed",
        RESUME,
    ),
    Fault(
        "tuning/snapshots.py",
        "if before.get(name) != value:\n                rule",
        "if False:\n                rule",
        "another training is resumed",
        RESUME,
    ),
    Fault(
        "tuning/training.py",
        "stepper.kept = {name: p.detach().clone() for name, p in stepper.trained.items()}",
        "stepper.kept = stepper.trained",
        "kept parameters go on training",
        TRAINING,
    ),
    Fault(
        "tuning/training.py",
        "stepper.model.train()",
        "stepper.model.eval()",
        "training without dropout",
        TRAINING,
    ),
    Fault(
        "tuning/training.py",
        ">= (settings.patience or epochs)",
        "> (settings.patience or epochs)",
        "patience of an epoch more",
        TRAINING,
    ),
    Fault(
        "studies/trial.py",
        'record.get("key") != key',
        "False",
        "the record of another trial is taken",
        STUDIES,
    ),
    Fault(
        "studies/trial.py",
        "return record if kept.is_file() else None",
        "return record",
        "a model that was removed is not made again",
        STUDIES,
    ),
)


def place(fault: Fault, text: str) -> str:
    """Put a fault into the text of its file.

    Raises:
        SystemExit: if what it replaces does not stand there exactly once: the code has changed.
    """
    if (count := text.count(fault.old)) != 1:
        raise SystemExit(f"{fault.file} holds {fault.old!r} {count} times, not once")
    return text.replace(fault.old, fault.new)


def read_source(tree: Path, fault: Fault) -> str:
    """Read the file of a fault; "" where there is none."""
    path = tree / "src" / "layerscout" / fault.file
    return path.read_text(encoding="utf-8") if path.exists() else ""


def copy_tree(folder: str) -> Path:
    """Copy what the tests need."""
    tree = Path(folder) / "layerscout"
    for name in ("src", "tests", "docs", "bench"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tree)
    return tree


def run_tests(tests: tuple[str, ...], fault: Fault | None, marker: str) -> str:
    """Run tests, with a fault or without; give the first that failed, or ""."""
    with tempfile.TemporaryDirectory() as folder:
        tree = copy_tree(folder)
        if fault is not None:
            text = place(fault, read_source(tree, fault))
            (tree / "src" / "layerscout" / fault.file).write_text(text, encoding="utf-8")
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "-p",
            "no:cacheprovider",
            "-m",
            marker,
        ]
        done = subprocess.run(
            [*command, *(f"tests/{name}" for name in tests)],
            cwd=tree,
            env=os.environ | {"PYTHONPATH": str(tree / "src")},
            stdout=subprocess.PIPE,
            text=True,
        )
    if done.returncode not in (0, 1):
        raise SystemExit(f"{tests}: the tests could not run\n{done.stdout[-2000:]}")
    titles = [line.strip("_ ") for line in done.stdout.splitlines() if line.startswith("____")]
    return (titles[0] if titles else "?") if done.returncode else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--write", type=Path)
    parser.add_argument("--check", action="store_true", help="only see that each text is there")
    parser.add_argument("--only", default="", help="faults of files with this in their names")
    parser.add_argument("-m", dest="marker", default="not whole", help="as of pytest")
    given = parser.parse_args()
    faults = [fault for fault in FAULTS if given.only in fault.file]
    for fault in faults:  # an hour of runs follows
        place(fault, read_source(ROOT, fault))
    if given.check:
        return
    # Tests that fail by themselves would notice any fault.
    for tests in sorted({fault.tests for fault in faults}):
        if failed := run_tests(tests, None, given.marker):
            raise SystemExit(f"{failed} fails without a fault")
    rows, caught = [], 0
    for fault in faults:
        test = run_tests(fault.tests, fault, given.marker)
        caught += bool(test)
        print(f"{fault.file}: {fault.what}: {test or 'MISSED'}", file=sys.stderr, flush=True)
        cells = (f"`{fault.file}`", fault.what, f"`{test}`" if test else "**missed**")
        rows.append(f"| {' | '.join(cells)} |")
    page = f"""# Seeded faults

`make mutations` puts {len(faults)} faults into copies of the package, one at a time, and runs the
tests of `make test` that belong to the place. {caught} were noticed.

| file | fault | noticed by |
|---|---|---|
""" + "\n".join(rows)
    if given.write:
        given.write.write_text(page + "\n", encoding="utf-8")
    else:
        print(page)


if __name__ == "__main__":
    main()
