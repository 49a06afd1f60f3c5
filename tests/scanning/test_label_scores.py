"""Scores of examples with several labels: those taken label by label, and whole scans."""

import numpy as np
import pytest

import layerscout as ls
from layerscout.data import Split
from layerscout.errors import InputError
from layerscout.models import Encoder
from layerscout.scanning import Sample, score_states, warn_of_rare_classes
from layerscout.scores import deal_groups
from layerscout.scores.table import SCORES
from layerscout.states import States
from telling import WORDS

KIND = "multi_label_classification"
OF_STATES = tuple(key for key, row in SCORES.items() if row.source in ("moments", "state"))
BY_LABEL = tuple(key for key in OF_STATES if not SCORES[key].together)


def material(counts=(70, 50), n=150, S=3, d=6, seed=0):
    """Kept states of examples of which so many have each label, and the sample of them."""
    rng = np.random.default_rng(seed)
    Y = np.stack([rng.permutation(n) < count for count in counts], axis=1)
    signal = Y @ (3 * rng.normal(size=(len(counts), d)))
    H = np.stack([signal + (1 + s) * rng.normal(size=(n, d)) for s in range(S)])
    H = H.astype(np.float32)
    return H, States((H,), np.arange(n)), sample_of(Y, seed)


def sample_of(labels, seed=0, first=0):
    return Sample(labels, deal_groups(labels, seed), seed, None, first)


def of_label(states, sample, label, keys=BY_LABEL):
    """Score the task of the two classes that have a label and do not."""
    return score_states(states, sample_of(sample.labels[:, label].astype(np.int64)), keys)[0]


# --- Label by label ------------------------------------------------------------------------------


def test_which_scores_read_all_labels_at_once():
    together = {key for key, row in SCORES.items() if row.together}
    assert together == {"head_quality", "cca", "ridge", "logme", "h_score"}


def test_the_others_are_the_mean_of_the_tasks_of_two_classes():
    _, states, sample = material(S=2)
    result, broken = score_states(states, sample, OF_STATES)
    assert set(result) == set(OF_STATES) and not broken
    of_labels = [of_label(states, sample, label) for label in (0, 1)]
    for key in BY_LABEL:
        expected = np.mean([each[key].values for each in of_labels], axis=0)
        assert result[key].values == pytest.approx(expected, rel=1e-9), key
        assert result[key].details == {"labels": 2}
        assert (result[key].low, result[key].high) == ((), ())
    for key in set(OF_STATES) - set(BY_LABEL):
        assert None not in result[key].values and "labels" not in result[key].details
    assert None not in result["head_quality"].low
    assert result["head_quality"].details["majority"] is not None
    assert warn_of_rare_classes(result, ["a", "b"]) == []


def test_labels_with_too_few_of_either_are_left_out():
    _, states, sample = material((70, 7, 50, 143, 131, 1))
    result, _ = score_states(states, sample, OF_STATES)
    for key in BY_LABEL:
        rare = {"variability_ratio_debiased": [1, 3, 5], "mutual_information": [1, 3, 4, 5]}
        rare = rare.get(key, [5])
        assert result[key].details["left_out"] == rare, key
        counted = [label for label in range(6) if label not in rare]
        each = [of_label(states, sample, label, [key])[key].values for label in counted]
        assert result[key].details["labels"] == len(counted) - len(
            result[key].details.get("undefined", ())
        )
        if "undefined" not in result[key].details:
            assert result[key].values == pytest.approx(np.mean(each, axis=0), rel=1e-9)
    assert not any("left_out" in result[key].details for key in set(OF_STATES) - set(BY_LABEL))
    told = warn_of_rare_classes(result, [f"label {k}" for k in range(6)], "labels")
    assert told[0].startswith("labels with too few examples were left out: 'label 5' from ")
    assert (
        "; 'label 1', 'label 3', 'label 5' from variability_ratio_debiased (fewer than 8 with the "
        "label, or without); " in told[0]
    )
    assert told[0].endswith("; use more examples, or other scores, which need fewer")


def test_labels_without_a_value_at_some_state_are_left_out_of_all(monkeypatch):
    H, states, sample = material((70, 50, 60), S=4)
    sample = sample_of(sample.labels, first=1)
    H[2, 0, 0] = np.nan
    plain, (broken, *_) = score_states(states, sample, ["knn"])
    assert broken == 2

    def undefine(labels):
        counts = [70, 50, 60]

        def knn(state):
            label = counts.index(int(state.labels.sum()))
            if label in labels and (state.states == H[3]).all():
                return None
            return float(label)

        monkeypatch.setattr(SCORES["knn"].__class__, "of_state", lambda _, state: knn(state))
        return score_states(states, sample, ["knn"])[0]

    assert None not in (plain["knn"].values[1], plain["knn"].values[3])
    result = undefine([0])
    assert result["knn"].values == (None, 1.5, None, 1.5)
    reason = {"undefined_because": SCORES["knn"].undefined}
    assert result["knn"].details == {"labels": 2, "undefined": [0], **reason}
    (told,) = warn_of_rare_classes(result, "abc")
    assert told == (
        "labels that have no value at some state were left out: 'a' from knn; use more examples"
    )
    result = undefine([0, 1, 2])
    assert result["knn"].values == (None,) * 4
    assert "no label has a value at every state" in result["knn"].details["refused"]


def test_a_score_without_any_label_says_why():
    _, states, sample = material((7, 1))
    result, _ = score_states(states, sample, ["variability_ratio_debiased", "knn", "logme"])
    score = result["variability_ratio_debiased"]
    assert score.values == (None,) * 3 and score.details == {
        "refused": "no label has 8 or more examples with it and as many without it; use more"
    }
    assert result["knn"].details == {"labels": 1, "left_out": [1]}
    assert None not in result["logme"].values


# --- Whole scans ---------------------------------------------------------------------------------


def task_of(n=120, m=40, seed=0):
    """Make a task whose labels each bring a word of their own."""
    rng = np.random.default_rng(seed)
    Y = rng.random((n + m, 3)) < [0.5, 0.3, 0.02]
    texts = [" ".join([*rng.choice(WORDS[3:], 4), *WORDS[:3][has]]) for has in Y]
    train, validation = (Split(texts[at], None, Y[at]) for at in (slice(n), slice(n, None)))
    names, columns = ("red", "green", "rare"), {"text": "text", "label": "labels"}
    return ls.Task("several", KIND, names, "macro_f1", train, validation, columns)


@pytest.fixture(scope="module")
def encoder(tiny):
    return Encoder.load(tiny)


def scan(encoder, task, **options):
    return ls.scan(encoder, task, progress=False, **options)


def test_a_scan_of_several_labels_has_every_score(encoder, tmp_path):
    task = task_of()
    result = scan(encoder, task, scores="all", head_seeds=1)
    assert not any("refused" in score.details for score in result.scores.values())
    assert set(result.scores) == set(SCORES)
    assert result.task["examples_per_class"] == task.train.labels.sum(axis=0).tolist()
    assert result.task["kind"] == KIND
    assert result.scores["head_quality"].low[1] is not None
    assert result.scores["probe"].details["metric"] == "macro_f1"
    assert result.scores["probe"].details["majority"] is not None
    assert all(value > 0 for value in result.scores["fisher"].values[1:])
    assert any("'rare' from " in line for line in result.warnings)
    result.save(tmp_path)
    assert ls.Scan.load(tmp_path).scores["nc1"].details == result.scores["nc1"].details


def test_the_usual_scores_are_those_of_classes(encoder):
    result = scan(encoder, task_of())
    assert tuple(result.scores) == tuple(
        key for key, row in SCORES.items() if row.usual in ("classes", "all")
    )
    assert isinstance(result.settings["examples_because"], str)  # the head's quality decided


@pytest.mark.parametrize("score", ["variability_ratio", "nc1", "variability_ratio_debiased"])
def test_scores_by_label_keep_the_states_and_decide_nothing(encoder, score):
    task = task_of()
    result = scan(encoder, task, scores=score)
    assert result.settings["examples_because"] is None
    assert result.task["examples_used"] == 120
    H = encoder.states(task.train.texts, pooling="mean").numpy()
    expected, _ = score_states(States((H,), np.arange(120)), sample_of(task.train.labels), [score])
    assert result.scores[score].details == expected[score].details
    assert result.scores[score].values == pytest.approx(expected[score].values, rel=1e-3)


def test_a_family_probe_has_an_output_for_each_label(encoder):
    result = scan(encoder, task_of(24, 8), scores="probe", probe="family", probe_seeds=1)
    assert result.scores["probe"].values[1] is not None


def test_balanced_drawing_is_refused(encoder):
    with pytest.raises(InputError, match="--balanced"):
        scan(encoder, task_of(), balanced=True)
