"""What more labelled texts would bring: the curve, where it leads, and what is said of it."""

import json

import numpy as np
import pytest
from scipy.stats import t as student

from layerscout.data import Targets
from layerscout.reporting import describe_more
from layerscout.reporting.figures import draw_more
from layerscout.scores import deal_groups, solve_path
from layerscout.tuning.learning_curve import WIDER, find_curve, round_down
from layerscout.tuning.solving import deal


def draw(n, noise=1.0, classes=2, d=6, seed=0):
    """Draw states around the mean of their class, and the classes."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    means = np.random.default_rng(1).normal(size=(classes, d))
    return means[y] + noise * rng.normal(size=(n, d)), y


def find(H, y, metric="accuracy", shrinkage=0.5, **options):
    """Find the curve of heads with one shrinkage."""
    own = np.arange(len(y))
    folds, parts = deal(y, own), deal(y, own, groups=4)

    def predict(H, y, others):
        return solve_path(H, y, shrinkages=(shrinkage,), **options)[0](others)

    return find_curve(H, Targets.of(y), folds, parts, predict, metric=metric)


def discriminate(H, y, others, shrinkage):
    """Return the logits of two classes by linear discriminant analysis, from its formula."""
    deviation = H.std(axis=0)
    H, others = H / deviation, others / deviation
    means = np.stack([H[y == k].mean(axis=0) for k in (0, 1)])
    within = (H - means[y]).T @ (H - means[y]) / (len(y) - 2)
    target = np.trace(within) / len(within) * np.eye(len(within))
    weights = np.linalg.solve((1 - shrinkage) * within + shrinkage * target, means.T)
    shares = np.bincount(y) / len(y)
    return others @ weights - 0.5 * np.einsum("kd,dk->k", means, weights) + np.log(shares)


def test_the_curve_is_that_of_heads_solved_again_and_a_root_fitted_to_it():
    H, y = draw(200, noise=3.0)
    curve = find(H, y)
    right = np.zeros((3, 200))
    sizes = np.zeros(3)
    for seed in range(3):  # so that 500 texts are left out
        folds, parts = (deal_groups(y, seed, groups=groups, least=0) for groups in (5, 4))
        for at, first in enumerate((1, 2, 4)):
            for fold in range(5):
                own, few = folds == fold, (folds != fold) & (parts < first)
                logits = discriminate(H[few], y[few], H[own], 0.5)
                right[at, own] += (logits.argmax(axis=1) == y[own]) / 3
                sizes[at] += few.sum() / 15
    np.testing.assert_allclose(curve.sizes, sizes)
    np.testing.assert_allclose(curve.values[:, 0], right.mean(axis=1))

    def gain(values, n, more):
        slope, _ = np.polyfit(sizes**-0.5, values, 1)
        return slope * ((n + more) ** -0.5 - n**-0.5)

    content = curve.as_dict()
    assert (content["examples"], content["more"]) == (200, 200)
    assert content["gain"] == pytest.approx(gain(right.mean(axis=1), 200, 200))
    groups = np.random.default_rng(0).permutation(200) % 20
    without = [gain(right[:, groups != g].mean(axis=1), 200, 200) for g in range(20)]
    error = np.sqrt(19 / 20 * ((without - np.mean(without)) ** 2).sum())
    half = WIDER * student.ppf(0.975, 19) * error
    assert content["interval"] == pytest.approx([content["gain"] - half, content["gain"] + half])
    last = content["ahead"][-1]
    assert last["examples"] == 400
    assert last["high"] - last["value"] == pytest.approx(half)
    assert last["value"] - content["ahead"][0]["value"] == pytest.approx(content["gain"])


def test_more_texts_bring_what_the_curve_says():
    (H, y), (twice, z), (others, truth) = (
        draw(n, noise=3.0, d=60, seed=seed) for n, seed in ((200, 2), (400, 3), (9000, 4))
    )
    content = find(H, y).as_dict()
    twice[:200], z[:200] = H, y
    before, after = (
        (discriminate(*rows, others, 0.5).argmax(axis=1) == truth).mean()
        for rows in ((H, y), (twice, z))
    )
    values = [point["value"] for point in content["curve"]]
    assert values == sorted(values) and content["more"] == 200
    low, high = content["interval"]
    assert content["gain"] > 0 and low < after - before < high


@pytest.mark.parametrize("kind", ["classes", "several", "numbers"])
def test_labels_of_chance_and_labels_that_are_plain_have_no_more_to_bring(kind):
    rng = np.random.default_rng(1)
    H = rng.normal(size=(120, 4))
    y = {
        "classes": rng.integers(0, 3, 120),
        "several": rng.random((120, 3)) < 0.5,
        "numbers": rng.normal(size=120),
    }[kind]
    metric = {"classes": "accuracy", "several": "micro_f1", "numbers": "pearson"}[kind]
    content = find(H, y, metric).as_dict()
    assert content["interval"][0] < 0 < content["interval"][1]
    H, y = draw(60, noise=0.01)
    content = find(H, y).as_dict()
    assert (content["gain"], *content["interval"]) == (0, 0, 0)
    assert content["ahead"][-1]["high"] == 1


def test_few_texts_and_rare_classes():
    H, y = draw(16)
    content = find(H, y).as_dict()
    assert (content["examples"], content["more"]) == (16, 10)
    assert np.isfinite([content["gain"], *content["interval"]]).all()
    assert find(H[:8], y[:8]) is None
    H, y = draw(40, classes=3)
    y[y == 2] = 0
    y[5] = 2  # whose only text every head has, and none is judged by
    content = find(H, y, classes=3).as_dict()
    assert content["curve"][2]["examples"] == pytest.approx(0.8 * 39 + 1)
    assert np.isfinite([content["gain"], *content["interval"]]).all()
    assert json.dumps(content) == json.dumps(find(H, y, classes=3).as_dict())
    assert list(map(round_down, (1, 9, 10, 49, 99, 3000))) == [1, 5, 10, 20, 50, 2000]


def test_many_rows_are_left_out_once():
    H, y = draw(30_000, d=2)
    heads = []

    def predict(H, y, others):
        heads.append(len(y))
        return np.zeros((len(others), 2))

    own = np.arange(len(y))
    folds, parts = deal(y, own), deal(y, own, groups=4)
    find_curve(H, Targets.of(y), folds, parts, predict, metric="accuracy")
    assert heads == [6_000, 12_000, 24_000]


@pytest.mark.parametrize(
    ("metric", "gain", "interval", "said"),
    [
        ("accuracy", 0.031, (0.012, 0.05), "about +3.1 points (+1.2 to +5.0) of accuracy"),
        ("pearson", 0.031, (0.01, 0.05), "about +0.031 (+0.010 to +0.050) of Pearson"),
        ("accuracy", 0.004, (-0.002, 0.01), "little: 100 more examples at most +1.0 points"),
        ("accuracy", 0.031, (-0.012, 0.05), "cannot be told: −1.2 to +5.0 points of accuracy"),
        ("accuracy", 0.0, (0.0, 0.0), "little: 100 more examples at most +0.0 points"),
    ],
)
def test_what_is_said_of_it(metric, gain, interval, said):
    texts = {"examples": 120, "more": 100, "gain": gain, "interval": interval}
    content = {"metric": metric, "task": {"kind": "classification"}, "more": {"texts": texts}}
    assert said in describe_more(content)
    for old in ({}, {"more": None}, {"more": {"texts": None}}):
        before = {name: value for name, value in content.items() if name != "more"} | old
        assert describe_more(before) is None and draw_more(before) == []
