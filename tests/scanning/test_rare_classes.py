"""Classes with too few examples for a score are left out of it, and of no other score."""

import numpy as np
import pytest

import layerscout as ls
from layerscout.errors import InputError
from layerscout.models import Encoder
from layerscout.scanning import (
    Extractor,
    Sample,
    ScanContext,
    draw_sample,
    estimate_states,
    sampling as module,
    score_states,
    warn_of_rare_classes,
)
from layerscout.scores import arrays, folds
from layerscout.scores.grouping import deal_groups
from layerscout.scores.moments import Centred
from layerscout.scores.table import SCORES
from layerscout.states import States
from telling import texts_of

DEBIASED = "variability_ratio_debiased"

OF_STATES = tuple(key for key, row in SCORES.items() if row.source in ("moments", "state"))
EIGHT = (DEBIASED, "cca", "ridge")
PICKY = (*EIGHT, "mutual_information")
COUNTS = (60, 7, 50, 12, 40)


def material(counts=COUNTS, S=3, d=6, seed=0):
    """Kept states of classes of these sizes, and the sample that belongs to them."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    signal = 4 * rng.normal(size=(len(counts), d))[y]
    H = np.stack([signal + (1 + s) * rng.normal(size=(len(y), d)) for s in range(S)])
    H = H.astype(np.float32)
    return H, States((H,), np.arange(len(y))), Sample(y, deal_groups(y, seed), seed, None, 0)


def without(H, sample, classes):
    """Remove the rows of some classes by hand."""
    rows = np.flatnonzero(~np.isin(sample.labels, classes))
    y = np.unique(sample.labels[rows], return_inverse=True)[1]
    own = None if sample.examples is None else sample.examples[rows]
    states = States((H[:, rows],), np.arange(len(rows)))
    return states, Sample(y, deal_groups(y, sample.seed, own), sample.seed, own, 0)


def drop_note(score):
    return {k: v for k, v in score.details.items() if k != "left_out"}


def assert_same(result, expected):
    for part in ("values", "low", "high"):
        assert getattr(result, part) == getattr(expected, part)
    assert drop_note(result) == drop_note(expected)


# --- What is scored ------------------------------------------------------------------------------


def test_scores_leave_out_the_classes_that_are_too_rare_for_them_and_no_other():
    H, states, sample = material()
    result, _ = score_states(states, sample, OF_STATES)
    for keys, rare in ((EIGHT, [1]), (["mutual_information"], [1, 3])):
        expected, _ = score_states(*without(H, sample, rare), keys)
        kept = ~np.isin(sample.labels, rare)
        for key in keys:
            assert_same(result[key], expected[key])
            assert result[key].details["left_out"] == rare
            assert "left_out" not in expected[key].details
            direct = [getattr(arrays, key)(state[kept], sample.labels[kept]) for state in H]
            assert result[key].values == pytest.approx(direct, rel=1e-5)
            with pytest.raises(InputError, match="of every class"):  # as arrays still do
                getattr(arrays, key)(H[0], sample.labels)
    for key in set(OF_STATES) - set(PICKY):
        direct = [getattr(arrays, key)(state, sample.labels) for state in H]
        assert result[key].values == pytest.approx(direct, rel=1e-5)
        assert "left_out" not in result[key].details


def test_examples_count_where_rows_depend_on_each_other():
    H, states, sample = material((60, 48, 50))
    # All 48 rows of class 1 are of 6 examples.
    own = np.arange(len(sample.labels))
    own[sample.labels == 1] = np.arange(48) // 8
    together = Sample(sample.labels, deal_groups(sample.labels, 0, own), 0, own, 0)
    result, _ = score_states(states, together, OF_STATES)
    expected, _ = score_states(*without(H, together, [1]), PICKY)
    for key in PICKY:
        assert result[key].details["left_out"] == [1]
        assert_same(result[key], expected[key])
        assert None not in result[key].values or key == DEBIASED
    apart, _ = score_states(states, sample, OF_STATES)
    assert not any("left_out" in score.details for score in apart.values())


@pytest.mark.parametrize("counts", [(60, 7), (60, 7, 5), (7, 7, 7)])
def test_fewer_than_two_frequent_classes_refuse(counts):
    H, states, sample = material(counts)
    result, _ = score_states(states, sample, OF_STATES)
    for key in PICKY:
        with pytest.raises(InputError) as reason:
            getattr(arrays, key)(H[0], sample.labels)
        assert result[key].details == {"refused": str(reason.value)}
    assert not any("refused" in result[key].details for key in set(OF_STATES) - set(PICKY))
    assert warn_of_rare_classes(result, ["a", "b", "c"]) == []


def test_states_that_are_not_finite_have_no_value_whichever_class_they_are_of():
    H, _, sample = material()
    H[1, np.flatnonzero(sample.labels == 1)[0], 0] = np.nan
    result, broken = score_states(States((H,), np.arange(H.shape[1])), sample, OF_STATES)
    assert broken == [1]
    assert all(score.values[1] is None for score in result.values())
    assert result["cca"].values[2] is not None


def test_what_scores_share_is_computed_once(monkeypatch):
    seen = []

    def watch(name, function):
        def watched(*arguments):
            seen.append(name)
            return function(*arguments)

        return watched

    monkeypatch.setattr("layerscout.scores.folds.score_folds", watch("folds", folds.score_folds))
    monkeypatch.setattr(Centred, "of", watch("centred", Centred.of))
    monkeypatch.setattr(Sample, "leave_out", watch("parts", Sample.leave_out))
    for counts, parts in (((60, 50, 40), 1), ((60, 7, 40), 2), (COUNTS, 3)):
        _, states, sample = material(counts)
        seen.clear()
        score_states(states, sample, OF_STATES)
        assert (seen.count("folds"), seen.count("parts")) == (3, parts)
        assert seen.count("centred") == 3 * min(parts, 2)  # which clusters do without
    seen.clear()
    known = {DEBIASED: estimate_states(DEBIASED, states, sample, [1])}
    seen.clear()
    score_states(states, sample, [DEBIASED, "nc1"], known=known)
    assert (seen.count("centred"), seen.count("parts")) == (3, 1)


# --- When there are enough -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def encoder(tiny):
    return Encoder.load(tiny)


def skewed(counts):
    """Make a task whose texts tell classes of these sizes apart."""
    y = np.repeat(np.arange(len(counts)), counts)
    names = [f"class {k}" for k in y]
    return ls.Task.from_lists(texts_of(y, 1.0, 0), names, name="skewed")


def look(encoder, task, monkeypatch, decide):
    """Read as "auto" does; give also what was left out, and of how many rows, at each look."""
    seen = []
    estimate = module.estimate_states

    def watched(key, states, sample, left_out):
        seen.append((len(sample.labels), left_out))
        return estimate(key, states, sample, left_out)

    monkeypatch.setattr(module, "estimate_states", watched)
    extractor = Extractor(encoder, ("mean",), 128, 10**9, lambda *_: None)
    return draw_sample(ScanContext(task, [decide], ls.plans.ScanRequest(), extractor)), seen


def test_looks_leave_out_classes_that_are_rare_in_all_data(encoder, monkeypatch):
    result, seen = look(encoder, skewed((700, 7, 700)), monkeypatch, decide=DEBIASED)
    # Not to the end, as for want of class 1.
    assert seen == [(500, (1,)), (707, (1,)), (1000, (1,))]
    assert result.reason.endswith("lie within 2% of it")
    H = np.stack(list(result.extracted.states["mean"]))
    expected = estimate_states(DEBIASED, *without(H, result.sample, [1]))
    for one, other in zip(result.known[DEBIASED], expected, strict=True):
        assert one.value == other.value
        assert (one.replicates == other.replicates).all()


def test_looks_read_on_where_more_data_has_enough_of_a_class(encoder, monkeypatch):
    # At 500 rows class 1 has 7 of its 20, which refuses as it did.
    result, seen = look(encoder, skewed((700, 20, 700)), monkeypatch, decide=DEBIASED)
    assert seen[:3] == [(500, ()), (707, ()), (1000, ())]
    assert np.bincount(result.sample.labels)[1] >= 8 and result.known
    scores, _ = score_states(
        result.extracted.states["mean"], result.sample, [DEBIASED], known=result.known
    )
    assert "left_out" not in scores[DEBIASED].details


def test_two_classes_of_which_one_is_rare_are_read_to_the_end(encoder, monkeypatch):
    result, seen = look(encoder, skewed((700, 7)), monkeypatch, decide=DEBIASED)
    assert seen == [(500, ()), (707, ())] and not result.known
    assert result.reason == "these are all there are"


def test_scores_that_need_no_number_of_a_class_decide_with_all(encoder, monkeypatch):
    _, seen = look(encoder, skewed((700, 7, 700)), monkeypatch, decide="head_quality")
    assert seen[0] == (500, ())


# --- Scans ---------------------------------------------------------------------------------------


def scan(encoder, task, scores, **options):
    return ls.scan(encoder, task, scores=scores, progress=False, **options)


def test_a_scan_names_the_classes_in_one_warning(encoder, tmp_path):
    task = skewed(COUNTS)
    result = scan(encoder, task, OF_STATES)
    assert result.warnings == (
        "classes with too few examples were left out: 'class 1' from "
        "variability_ratio_debiased, cca, ridge (fewer than 8); 'class 1', 'class 3' from "
        "mutual_information (fewer than 20); use more examples, or other scores, which need "
        "fewer",
    )
    left_out = {key: score.details.get("left_out") for key, score in result.scores.items()}
    assert left_out == dict.fromkeys(OF_STATES) | {key: [1] for key in EIGHT} | {
        "mutual_information": [1, 3]
    }
    result.save(tmp_path)
    assert ls.Scan.load(tmp_path).scores["cca"].details["left_out"] == [1]
    rows = np.flatnonzero(task.train.labels != 1)
    texts = [task.train.texts[row] for row in rows]
    rest = ls.Task.from_lists(texts, [f"class {k}" for k in task.train.labels[rows]])
    expected = scan(encoder, rest, ("cca", "ridge"))
    assert expected.warnings == ()
    for key in ("cca", "ridge"):  # other batches, so other rounding
        assert result.scores[key].values == pytest.approx(expected.scores[key].values, rel=1e-3)


def test_a_warning_does_not_list_every_class():
    left_out = {"left_out": list(range(1, 9))}
    scores = {"cca": SCORES["cca"].score([None, 0.5], left_out)}
    (line,) = warn_of_rare_classes(scores, [f"intent {k}" for k in range(20)])
    assert "'intent 5' and 3 more from cca (fewer than 8)" in line
    assert "'intent 6'" not in line
    assert warn_of_rare_classes({"nc1": SCORES["nc1"].score([None, 0.5])}, []) == []


def test_classes_of_one_row_are_left_out_of_every_score(encoder):
    """Of sums too, which no score leaves a class out of."""
    task = skewed((30, 1, 30, 1))
    [single] = task.warnings
    assert single.startswith("2 of 4 classes of skewed have one row each")
    rows = np.flatnonzero(np.isin(task.train.labels, (0, 2)))
    texts = [task.train.texts[row] for row in rows]
    rest = ls.Task.from_lists(texts, [f"class {k}" for k in task.train.labels[rows]])
    for keys in (("head_quality", "nc1", "knn"), ("variability_ratio",)):
        result, expected = (scan(encoder, each, keys) for each in (task, rest))
        for key in keys:
            values = result.scores[key].values
            assert values == pytest.approx(expected.scores[key].values, rel=1e-3)
            assert result.scores[key].details["left_out"] == [1, 3]
        assert result.warnings[1] == (
            f"classes with too few examples were left out: 'class 1', 'class 3' from "
            f"{', '.join(keys)} (fewer than 2); use more examples"
        )


def test_rows_of_one_text_are_in_one_fold(encoder):
    """Labels are drawn at random, so that a head knows a text only if it has seen it."""
    rng = np.random.default_rng(0)
    texts = [f"{n} the cat sat {n * 7919 % 104729}" for n in range(60)]
    labels = rng.permutation(["p", "q"] * 30).tolist()
    once, four = (ls.Task.from_lists(texts * times, labels * times) for times in (1, 4))
    assert "180 of 240 rows of task have a text that is there before" in four.warnings[0]
    keys = ("head_quality", "knn", "ridge")
    known, again = (scan(encoder, each, keys).scores for each in (once, four))
    # Every row four times weighs as it did once.
    assert again["head_quality"].values == pytest.approx(known["head_quality"].values)
    for key in ("knn", "ridge"):
        assert max(again[key].values[1:]) < 0.75, key


def test_groups_hold_what_occurs_again():
    y = np.array([0, 0, 1, 1] * 30 + [0, 1])
    examples = np.array([*np.tile(np.arange(40), 3), 0, 38])
    examples[-2:] = 100  # a text with both labels
    groups = deal_groups(y, 0, examples)
    assert all(len(set(groups[examples == n])) == 1 for n in set(examples.tolist()))
    for label in (0, 1):  # of each class there are 20 texts and the one of both
        counts = [len(set(examples[(groups == g) & (y == label)])) for g in range(groups.max() + 1)]
        assert len(counts) == 10 and min(counts) == 2 and max(counts) <= 3
