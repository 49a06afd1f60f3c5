"""Probes, neighbours and clusters against plain loops, scikit-learn and what must not matter."""

import copy
from math import log

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.linear_model import LinearRegression, LogisticRegression
from torch import nn

from conftest import whole_only
from layerscout.data import evaluate, pearson_spearman
from layerscout.errors import InputError
from layerscout.scores import (
    Probes,
    family_probes,
    grouping,
    linear_probes,
    majority,
    neighbours,
    probes,
    train_family_probes,
    train_linear_probes,
)
from layerscout.scores.neighbours import knn, mutual_information
from reference import probes as naive


def examples(seed, n=120, d=8, K=3, signal=1.5, numbers=False):
    """Return states (n, d) with labels of K classes, each present, or numbers."""
    rng = np.random.default_rng(seed)
    if numbers:
        H = rng.normal(size=(n, d))
        return H, H @ rng.normal(size=d) + rng.normal(size=n)
    y = np.concatenate([np.arange(K), rng.integers(0, K, n - K)])
    return signal * rng.normal(size=(K, d))[y] + rng.normal(size=(n, d)), y


def split_states(seed, S=3, n=300, m=150, signal=1.5, **settings):
    """Return training and validation states of S states that differ in how much they tell."""
    drawn = [examples(seed, n + m, signal=signal / (s + 1), **settings) for s in range(S)]
    states = np.stack([H for H, _ in drawn]).astype(np.float32)
    y = drawn[0][1]
    if y.dtype.kind == "f":
        noise = np.random.default_rng(seed + 1).normal(size=states[1:].shape)
        states = np.concatenate([states[:1], noise])
    return states[:, :n].astype(np.float32), y[:n], states[:, n:].astype(np.float32), y[n:]


def several_labels(y):
    """Return each row of three classes two labels, so that some rows have none or both."""
    return np.stack([y > 0, (y == 2) | (np.arange(len(y)) % 5 == 0)], axis=1)


def likelihood(labels, outputs):
    """Judge by the mean log likelihood, which shows the smallest change of the outputs."""
    if labels.ndim == 2:
        shares = naive.logistic(outputs)
        return float(np.log(np.where(labels, shares, 1 - shares)).sum(axis=1).mean())
    if outputs.ndim == 1:
        return -float(np.mean((outputs - labels) ** 2))
    return float(np.log(naive.softmax(outputs)[np.arange(len(labels)), labels]).mean())


# --- Neighbours --------------------------------------------------------------------------------


@given(
    seed=st.integers(0, 10**6),
    n=st.sampled_from([5, 40, 90]),
    d=st.sampled_from([2, 6, 60]),
    k=st.sampled_from([1, 4, 10, 200]),
    numbers=st.booleans(),
    each=st.sampled_from([1, 2]),
)
def test_knn_equals_a_plain_loop(seed, n, d, k, numbers, each):
    H, y = examples(seed, n, d, numbers=numbers)
    own = np.random.default_rng(seed).permutation(n) // each
    largest = np.bincount(own).max()
    expected = naive.knn(H, y, min(k, n - largest), own)
    assert knn(H, y, k, own) == pytest.approx(expected, abs=1e-6)
    if each == 1:
        assert knn(H, y, k) == pytest.approx(expected, abs=1e-6)


def test_knn_does_not_depend_on_how_many_rows_are_compared_at_a_time(monkeypatch):
    H, y = examples(0, n=100)
    expected = knn(H, y)
    monkeypatch.setattr(neighbours, "CHUNK", 7)
    assert knn(H, y) == expected


def test_knn_gives_a_tied_vote_to_the_nearer_class():
    # Row 0 lies at 0 degrees; of its 2 neighbours the one of class 1 is nearer.
    angles = np.radians([0, 10, 22, 170, 185])
    H = np.column_stack([np.cos(angles), np.sin(angles)])
    alone = np.array([1, 1, 0, 0, 0])
    assert knn(H, alone, k=2) == naive.knn(H, alone, 2, np.arange(5))
    assert knn(H, 1 - alone, k=2) == knn(H, alone, k=2)


def test_knn_puts_a_zero_vector_at_right_angles_to_all_others():
    H = np.random.default_rng(0).uniform(1, 2, (30, 4))
    H[7] = 0
    y = (np.arange(30) == 7).astype(np.int64)
    assert knn(H, y, k=1) == pytest.approx(29 / 30)
    assert knn(np.where(np.arange(30)[:, None] == 9, -1.0, H), y, k=29) == pytest.approx(29 / 30)


def test_knn_never_asks_the_choices_of_the_same_example():
    rng = np.random.default_rng(0)
    H = np.repeat(rng.normal(size=(30, 5)), 2, axis=0) + 1e-3 * rng.normal(size=(60, 5))
    y = np.repeat(rng.integers(0, 2, 30), 2)
    assert knn(H, y, k=1) == 1.0
    assert knn(H, y, k=1, examples=np.arange(60) // 2) < 0.8


def test_knn_is_undefined_where_all_states_or_all_targets_are_the_same():
    y = np.arange(20) % 2
    noise = np.random.default_rng(0).normal(size=(20, 3))
    for H in (np.ones((20, 3)), np.zeros((20, 3)), 1 + 1e-9 * noise):
        assert knn(H, y) is None
    assert knn(noise, np.full(20, 2.5)) is None
    assert knn(noise, np.arange(20)) == 0.0  # with a class for every row


@pytest.mark.parametrize("options", [{"examples": np.zeros(6, np.int64)}, {"k": 0}])
def test_knn_refuses_what_has_no_neighbours(options):
    with pytest.raises(InputError, match="got k = 0 in 6 rows"):
        knn(*examples(0, n=6), **options)


# --- Clusters ----------------------------------------------------------------------------------


@pytest.fixture
def clustering(monkeypatch):
    """Record how k-means is used."""
    used = {}

    class Recorded(KMeans):
        def fit(self, X, y=None, sample_weight=None):
            used.update(fitted=X, clusters=self.n_clusters, starts=self.n_init, init=self.init)
            return super().fit(X, y, sample_weight)

        def predict(self, X):
            used.update(held=X, found=super().predict(X))
            return used["found"]

    monkeypatch.setattr("sklearn.cluster.KMeans", Recorded)
    return used


@pytest.mark.parametrize("each", [1, 2])
def test_mutual_information_is_that_of_the_clusters_of_held_out_rows(clustering, each):
    H, y = examples(1, n=400, K=2)
    y[:100] = 0
    own = np.random.default_rng(0).permutation(400) // each
    value = mutual_information(H, y, 3, own if each > 1 else None)
    row_of = {h.tobytes(): row for row, h in enumerate(H)}
    held, fitted = ([row_of[h.tobytes()] for h in clustering[part]] for part in ("held", "fitted"))
    assert value == pytest.approx(naive.mutual_information(clustering["found"], y[held]))
    how = (clustering["clusters"], clustering["starts"], clustering["init"])
    assert how == (20, 3, "k-means++")
    assert not set(own[held]) & set(own[fitted])
    assert len(set(held)) == len(held)
    assert len(set(fitted)) == len(fitted)
    rarest = np.bincount(y).min()
    for part, share in ((held, 0.1), (fitted, 0.9)):
        counts = np.bincount(y[part])
        assert counts[0] == counts[1]
        assert counts[0] == pytest.approx(share * rarest, abs=1 if each == 1 else 0.06 * rarest)


def test_the_number_of_clusters_can_be_set(clustering):
    H, _ = examples(1, n=400, K=2)
    for clusters, used in ((7, 7), (1500, 360)):  # rows that they are found in
        mutual_information(H, np.arange(400) % 2, clusters=clusters)
        assert clustering["clusters"] == used


def test_mutual_information_of_separate_classes_is_that_of_the_labels_with_themselves():
    for K in (2, 5):
        y = np.arange(200) % K
        H = 100 * np.eye(K)[y] + np.random.default_rng(0).normal(size=(200, K))
        assert mutual_information(H, y) == pytest.approx(log(K))


def test_mutual_information_takes_small_batches_where_rows_and_clusters_are_many(monkeypatch):
    sizes = []

    class Recorded(MiniBatchKMeans):
        def fit(self, X, y=None, sample_weight=None):
            sizes.append(len(X))
            return super().fit(X, y, sample_weight)

    monkeypatch.setattr("sklearn.cluster.MiniBatchKMeans", Recorded)
    monkeypatch.setattr(neighbours, "MANY_DISTANCES", 270 * 30 - 1)
    y = np.arange(300) % 3
    H = 100 * np.eye(3)[y] + np.random.default_rng(0).normal(size=(300, 3))
    assert mutual_information(H, y) > 0.9 * log(3)
    monkeypatch.setattr(neighbours, "MANY_DISTANCES", 270 * 30)
    mutual_information(H, y)
    assert sizes == [270]


@pytest.mark.filterwarnings("error")
def test_mutual_information_with_fewer_different_rows_than_clusters():
    y = np.arange(80) % 2
    assert mutual_information(np.ones((80, 3)), y) == 0.0
    assert mutual_information(np.eye(2)[y], y) == pytest.approx(log(2))
    assert mutual_information(np.arange(80.0)[:, None], y) >= 0


@pytest.mark.parametrize(
    ("y", "clusters", "rule"),
    [
        (np.arange(80) % 5, None, "about 20 rows of every class.*got 16 of the smallest"),
        (np.arange(80), None, "about 20 rows of every class.*got 1 of the smallest"),
        (np.arange(1000), None, "at most 2000 clusters, .* of the 1000 classes, got 10000"),
        (np.arange(80) % 2, 2001, "at most 2000 clusters, .* got 2001"),
    ],
)
def test_mutual_information_refuses(y, clusters, rule):
    with pytest.raises(InputError, match=rule):
        mutual_information(np.eye(len(y)), y, clusters=clusters)


# --- Rows set aside ----------------------------------------------------------------------------


@given(seed=st.integers(0, 10**6), n=st.integers(12, 400), K=st.integers(2, 11))
def test_a_tenth_is_even_over_the_classes_and_never_takes_the_only_row(seed, n, K):
    _, y = examples(seed, n, K=K)
    drawn = grouping.tenth(y, None, np.random.default_rng(seed))
    counts = np.bincount(y)
    assert (np.bincount(y[drawn], minlength=K) <= np.ceil(counts / 10)).all()
    assert (np.bincount(y[drawn], minlength=K) >= counts // 10)[counts > 1].all()
    assert (np.bincount(y[~drawn], minlength=K) > 0).all()
    assert drawn.any()


@given(seed=st.integers(0, 10**6), n=st.integers(2, 300))
def test_a_tenth_of_the_examples_is_whole(seed, n):
    rng = np.random.default_rng(seed)
    own = rng.integers(0, n, 3 * n)
    drawn = grouping.tenth(rng.integers(0, 2, 3 * n), own, rng)
    assert not set(own[drawn]) & set(own[~drawn])
    assert len(set(own[drawn])) == pytest.approx(len(set(own)) / 10, abs=1)


@given(st.integers(0, 10**6), st.integers(30, 200))
def test_a_tenth_leaves_a_row_of_each_label(seed, n):
    rng = np.random.default_rng(seed)
    Y = rng.random((n, 6)) < np.array([0.5, 0.2, 0.1, 2 / n, 1 / n, 0.0])
    aside = grouping.tenth(Y, None, np.random.default_rng(seed))
    assert 0 < aside.sum() <= np.ceil(n / 10)
    assert (Y[~aside].any(axis=0) == Y.any(axis=0)).all()


def test_a_tenth_of_numbers_is_spread_over_their_range():
    y = np.random.default_rng(0).permutation(1000).astype(float)
    drawn = grouping.tenth(y, None, np.random.default_rng(1))
    assert np.histogram(y[drawn], bins=10)[0].tolist() == [10] * 10


# --- Linear probes -----------------------------------------------------------------------------


@pytest.mark.parametrize("paper", [False, True])
@pytest.mark.parametrize("kind", ["classes", "several", "numbers"])
def test_a_linear_probe_is_what_a_plain_loop_trains(kind, paper):
    train, y, _, _ = split_states(0, S=2, n=203, numbers=kind == "numbers")
    y = several_labels(y) if kind == "several" else y
    draws = [np.random.default_rng([0, number]) for number in range(2)]
    aside = np.stack([grouping.tenth(y, None, draw) for draw in draws], axis=1)
    problem = linear_probes._Problem.of(y, aside, paper)
    start = problem.start(train.shape[2])
    if kind == "numbers":
        shares, targets = np.zeros(1), (y - y.mean())[:, None] / y.std()
    elif kind == "several":
        shares, targets = np.log((y.sum(axis=0) + 0.5) / ((~y).sum(axis=0) + 0.5)), y * 1.0
    else:
        shares, targets = np.log(np.bincount(y) / len(y)), np.eye(3)[y]
    assert (start[:-1] == 0).all()
    np.testing.assert_allclose(start[-1].T.numpy(), [shares] * 2, atol=1e-6)
    places = problem.places.numpy()
    rows = np.argsort(places)
    x = torch.from_numpy(train[:, rows])
    weights, best = problem.fit(x, start, 30, 2, 7)
    rng = np.random.default_rng(7)
    # Tamkin et al. 2020, App. I.6: batches of 8 at the rate 2e-5.
    batch, rate = (8, 2e-5) if paper else (12, 2e-3)
    steps = -(-len(y) // batch)
    batches = [np.array_split(places[rng.permutation(len(y))], steps) for _ in range(30)]
    assert problem.batch == batch
    for s in range(2):
        for seed in range(2):
            expected, at = naive.linear_probe(
                x[s].double().numpy(),
                targets[rows],
                aside[rows, seed],
                start[:, :, seed].double().numpy(),
                batches,
                patience=2,
                several=kind == "several",
                rate=rate,
            )
            assert int(best[s, seed]) == at
            found = weights[s, :, :, seed].numpy()
            np.testing.assert_allclose(found, expected, atol=1e-4)


def test_a_plain_probe_reads_states_as_they_are():
    train, y, validation, yv = split_states(0, S=1, n=203)
    found, scaled = (
        [
            train_linear_probes(
                c * train, y, c * validation, yv, metric=likelihood, plain=plain, seeds=1, epochs=2
            ).values[0]
            for c in (1, 8)
        ]
        for plain in (True, False)
    )
    assert scaled[0] == pytest.approx(scaled[1], abs=1e-5)
    assert found[0] < found[1] - 1e-3  # with the same steps, larger states go further


@pytest.mark.parametrize("several", [False, True])
def test_a_linear_probe_comes_close_to_a_regularised_regression(several):
    train, y, validation, yv = split_states(3, S=1, n=1500, m=2000, d=20, signal=0.5)
    if several:
        y, yv, metric = several_labels(y), several_labels(yv), "micro_f1"
        each = [LogisticRegression(C=0.05).fit(train[0], has) for has in y.T]
        logits = np.stack([fit.decision_function(validation[0]) for fit in each], axis=1)
    else:
        metric = "accuracy"
        logits = LogisticRegression(C=0.05).fit(train[0], y).decision_function(validation[0])
    found = train_linear_probes(train, y, validation, yv, metric=likelihood)
    assert found.values[0] == pytest.approx(likelihood(yv, logits), abs=0.02)
    shares = train_linear_probes(train, y, validation, yv)
    close = 0.02 if several else 0.01
    assert shares.values[0] == pytest.approx(evaluate(metric, yv, logits), abs=close)


def test_rows_of_one_label_or_of_none_train_as_well():
    train, y, _, _ = split_states(3, S=1)
    rare = np.zeros((len(y), 3), bool)
    rare[5, 1] = rare[:, 2] = True
    assert train_linear_probes(train, rare, train, rare, epochs=2).values[0] > 0.9


def test_a_linear_probe_of_numbers_comes_close_to_least_squares():
    train, y, validation, yv = split_states(4, S=2, n=2000, m=1000, numbers=True)
    found = train_linear_probes(train, 50 + 9 * y, validation, 50 + 9 * yv)
    predicted = LinearRegression().fit(train[0], y).predict(validation[0])
    assert found.values[0] == pytest.approx(pearson_spearman(yv, predicted), abs=0.005)
    assert abs(found.values[1]) < 0.2
    errors = train_linear_probes(train, 50 + 9 * y, validation, 50 + 9 * yv, metric=likelihood)
    assert errors.values[0] == pytest.approx(-81 * np.mean((predicted - yv) ** 2), rel=0.03)


@pytest.mark.parametrize(
    ("name", "value"), [("SLAB_BYTES", 1), *whole_only(("LOSS_OUTPUTS", 1), ("CHUNK", 13))]
)
def test_states_do_not_see_each_other_nor_how_many_are_trained_at_once(monkeypatch, name, value):
    train, y, validation, yv = split_states(1)
    together = train_linear_probes(train, y, validation, yv, metric=likelihood, seeds=3)
    monkeypatch.setattr(probes if name == "CHUNK" else linear_probes, name, value)
    apart = train_linear_probes(train, y, validation, yv, metric=likelihood, seeds=3)
    one = train_linear_probes(train[1:2], y, validation[1:2], yv, metric=likelihood, seeds=3)
    few = train_linear_probes(train, y, validation, yv, metric=likelihood, seeds=2)
    assert apart.epochs == together.epochs
    assert one.epochs == together.epochs[1:2]
    assert few.epochs == tuple(epochs[:2] for epochs in together.epochs)
    for s in range(3):
        assert apart.by_seed[s] == pytest.approx(together.by_seed[s], abs=1e-5)
        assert few.by_seed[s] == pytest.approx(together.by_seed[s][:2], abs=1e-5)
    assert one.by_seed[0] == pytest.approx(together.by_seed[1], abs=1e-5)


def test_seeds_repeat_bit_for_bit_and_differ():
    train, y, validation, yv = split_states(2)
    found = train_linear_probes(train, y, validation, yv, metric=likelihood)
    assert train_linear_probes(train, y, validation, yv, metric=likelihood) == found
    assert all(len(set(values)) == 8 for values in found.by_seed)
    other = train_linear_probes(train, y, validation, yv, metric=likelihood, seed=1)
    assert not set(other.by_seed[0]) & set(found.by_seed[0])


def test_the_validation_split_is_reported_on_and_nothing_else():
    train, y, validation, yv = split_states(2)
    seen = []

    def metric(labels, outputs):
        seen.append((labels, outputs.shape))
        return likelihood(labels, outputs)

    found = train_linear_probes(train, y, validation, yv, metric=metric, seeds=2)
    assert [shape for _, shape in seen] == [(150, 3)] * 6
    assert all((labels == yv).all() for labels, _ in seen)
    # Other validation labels and states stop no training sooner or later.
    turned = train_linear_probes(train, y, -validation[:, ::-1], (yv + 1) % 3, seeds=2)
    assert turned.epochs == found.epochs


def test_a_probe_stops_before_it_has_learnt_noise():
    rng = np.random.default_rng(0)
    H = rng.normal(size=(1, 400, 200)).astype(np.float32)
    y = np.arange(400) % 2
    stopped = train_linear_probes(H[:, :200], y[:200], H[:, 200:], y[200:], metric=likelihood)
    on = train_linear_probes(
        H[:, :200], y[:200], H[:, :200], y[:200], metric=likelihood, patience=99, seeds=2
    )
    assert max(stopped.epochs[0]) < 20
    assert stopped.values[0] > -1.5
    assert all(1 <= epoch <= 40 for epoch in on.epochs[0])


def test_means_and_standard_errors():
    found = Probes.of([[0.5, 0.7, 0.9], [1.0], [], [0.2, np.nan]], [[1, 2, 3], [4], [], [5, 6]])
    assert found.values == (pytest.approx(0.7), 1.0, None, None)
    assert found.standard_errors == (pytest.approx(0.2 / 3**0.5), None, None, None)
    assert found.by_seed == ((0.5, 0.7, 0.9), (1.0,), (), ())
    assert found.epochs == ((1, 2, 3), (4,), (), ())


def test_a_state_that_is_not_finite_is_undefined_and_leaves_the_others_alone():
    train, y, validation, yv = split_states(5, S=4)
    expected = train_linear_probes(train, y, validation, yv, metric=likelihood, seeds=2)
    train[1, 4, 2], validation[2, 0, 0] = np.inf, np.nan
    found = train_linear_probes(train, y, validation, yv, metric=likelihood, seeds=2)
    assert [value is None for value in found.values] == [False, True, True, False]
    assert found.standard_errors[1] is None
    assert found.by_seed[2] == ()
    assert found.values[3] == pytest.approx(expected.values[3], abs=1e-5)
    assert train_linear_probes(train[1:3], y, validation[1:3], yv).values == (None, None)


def test_states_without_variance_predict_the_majority_class():
    _, y, _, yv = split_states(0, n=400)
    y = np.where(np.arange(400) < 150, y, 1)
    for state in (np.zeros(5), np.full(5, 1e6), np.array([1e-20, 0, 1, -1e4, 7])):
        H = np.tile(state.astype(np.float32), (1, 400, 1))
        # What sets them apart is less than a float32 can hold.
        H = H * (1 + 1e-8 * np.random.default_rng(0).normal(size=H.shape)).astype(np.float32)
        found = train_linear_probes(H, y, H[:, :150], yv, seeds=2)
        assert found.values == (majority(y, yv),)


@pytest.mark.parametrize("kind", ["one feature", "duplicates", "constants", "few rows", "scales"])
def test_awkward_states_get_an_answer(kind):
    train, y, validation, yv = split_states(6, S=1)
    pair = {
        "one feature": (train[..., :1], validation[..., :1]),
        "duplicates": (train[..., [0, 1, 0, 0, 1]], validation[..., [0, 1, 0, 0, 1]]),
        "constants": (train * [0, 1, 1, 1, 0, 1, 1, 1], validation * [3, 1, 1, 1, 0, 1, 1, 1]),
        "few rows": (np.tile(train, (1, 1, 99)), np.tile(validation, (1, 1, 99))),
        "scales": (train * np.logspace(-12, 12, 8) + 5, validation * np.logspace(-12, 12, 8) + 5),
    }[kind]
    found = train_linear_probes(pair[0], y, pair[1], yv, seeds=2)
    assert found.values[0] > majority(y, yv)


def test_features_of_any_scale_count_alike():
    train, y, validation, yv = split_states(6)
    found = train_linear_probes(train, y, validation, yv, metric=likelihood, seeds=2)
    scale, shift = np.logspace(-4, 4, 8), np.linspace(-3, 3, 8) * np.logspace(-4, 4, 8)
    moved = [states.astype(np.float64) * scale + shift for states in (train, validation)]
    other = train_linear_probes(moved[0], y, moved[1], yv, metric=likelihood, seeds=2)
    assert other.values == pytest.approx(found.values, abs=1e-4)


def test_a_thousand_classes_and_one_row_a_class():
    rng = np.random.default_rng(0)
    y = np.arange(2000) % 1000
    H = rng.normal(size=(1, 1000, 6))[:, y].astype(np.float32)
    found = train_linear_probes(H, y, H[:, :500], y[:500], epochs=3, seeds=2)
    assert 0 <= found.values[0] <= 1
    with pytest.raises(InputError, match="got 50 rows of 50 classes; use more examples"):
        train_linear_probes(H[:, :50], np.arange(50), H[:, :50], np.arange(50))
    y = np.minimum(np.arange(50), 48)
    one = train_linear_probes(H[:, :50], y, H[:, :50], y)
    assert one.values[0] is not None


def test_choices_of_an_example_are_set_aside_together_and_one_example_is_too_few():
    train, y, validation, yv = split_states(0)
    own = np.arange(300) // 3
    alone, together = (
        train_linear_probes(train, y, validation, yv, metric=likelihood, examples=rows, seeds=2)
        for rows in (np.arange(300), own)
    )
    assert alone.by_seed != together.by_seed
    with pytest.raises(InputError, match="set"):
        train_linear_probes(train, y, validation, yv, examples=np.zeros(300, np.int64))


def test_memory_mapped_states_of_any_precision_are_read_and_left_alone(tmp_path):
    train, y, validation, yv = split_states(0)
    expected = train_linear_probes(train, y, validation, yv, metric=likelihood, seeds=2)
    for dtype, close in ((np.float32, 0), (np.float64, 1e-5), (np.float16, 1e-2)):
        np.save(tmp_path / "train.npy", train.astype(dtype))
        mapped = np.load(tmp_path / "train.npy", mmap_mode="r")
        told = []
        options = {"seeds": 2, "progress": lambda *now, told=told: told.append(now)}
        found = train_linear_probes(mapped, y, validation, yv, metric=likelihood, **options)
        assert found.values == pytest.approx(expected.values, abs=close)
        assert told[-1] == (3, 3)
        assert (np.load(tmp_path / "train.npy") == train.astype(dtype)).all()


# --- The family's head -------------------------------------------------------------------------


def head_factory(dropout=0.0, d=8, outputs=3):
    """Return what builds a small head with two layers, from a seed."""

    def build(seed):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Dropout(dropout), nn.Linear(d, d), nn.Tanh(), nn.LayerNorm(d), nn.Linear(d, outputs)
        )

    return build


def as_choices(states, right, choices):
    """Return states of the choices of each example, (S, n C, d); its own help the right one."""
    S, n, d = states.shape
    found = np.random.default_rng(n).normal(size=(S, n * choices, d)).astype(np.float32)
    found[:, np.arange(n) * choices + right] += states
    return found


class Choosing(nn.Module):
    """A head that reads the states of all choices of an example, (b, C, d), for logits (b, C)."""

    def __init__(self, head):
        super().__init__()
        self.head = head

    def forward(self, states):
        return self.head(states).squeeze(2)


@pytest.mark.parametrize(
    ("kind", "outputs"), [("classes", 3), ("several", 2), ("numbers", 1), ("choices", 1)]
)
def test_heads_learn_what_a_plain_loop_over_one_learns(kind, outputs):
    numbers, choices = kind == "numbers", 3 if kind == "choices" else 1
    train, y, validation, yv = split_states(0, S=3, n=101, m=60, numbers=numbers)
    if kind == "several":
        y, yv = several_labels(y), several_labels(yv)
    build = head_factory(outputs=outputs)
    if choices > 1:
        train, validation = as_choices(train, y, choices), as_choices(validation, yv, choices)
    options = {"learning_rate": 3e-3, "epochs": 6, "seeds": (4, 5), "choices": choices}
    found = train_family_probes(train, y, validation, yv, build, metric=likelihood, **options)
    if choices > 1:
        train, validation = (states.reshape(3, -1, choices, 8) for states in (train, validation))
    for seed in range(2):
        rng = np.random.default_rng(4 + seed)
        orders = [rng.permutation(101) for _ in range(6)]
        for s in range(3):
            head = build(4 + seed)
            curve = naive.family_curve(
                Choosing(head) if choices > 1 else head,
                train[s],
                y,
                validation[s],
                lambda outputs: likelihood(yv, outputs[:, 0] if numbers else outputs),
                orders,
                8,
                3e-3,
            )
            assert found.by_seed[s][seed] == pytest.approx(max(curve), abs=1e-4)
            assert found.epochs[s][seed] == np.argmax(curve) + 1


def test_every_state_has_dropout_of_its_own_and_none_when_judged():
    train, y, validation, yv = split_states(0, S=1, n=64, m=40)
    twice = [np.repeat(states, 2, axis=0) for states in (train, validation)]
    outputs = {}

    def metric(labels, logits):
        seen.append(logits)
        return likelihood(labels, logits)

    for dropout in (0.0, 0.5):
        seen = outputs[dropout] = []
        build = head_factory(dropout)
        train_family_probes(twice[0], y, twice[1], yv, build, metric=metric, epochs=1)
    np.testing.assert_allclose(outputs[0.0][0], outputs[0.0][1], atol=1e-6)
    assert abs(outputs[0.5][0] - outputs[0.5][1]).max() > 1e-3
    heads = family_probes._Heads(head_factory(0.5)(0), 2, 1e-3, 10, 1)
    x = torch.from_numpy(twice[1])
    assert (heads(x) == heads(x)).all()
    assert (heads(x)[0] == heads(x)[1]).all()


def test_heads_repeat_by_seed_and_leave_the_random_state_and_the_head_alone():
    train, y, validation, yv = split_states(0, S=2, n=64, m=40)
    given_head = head_factory(0.1)(0)
    before = copy.deepcopy(given_head.state_dict())

    def run(seed):
        return train_family_probes(
            train,
            y,
            validation,
            yv,
            lambda _: given_head,
            metric=likelihood,
            epochs=2,
            seeds=(seed,),
        )

    torch.manual_seed(77)
    expected = torch.rand(3)
    torch.manual_seed(77)
    found = run(0)
    assert (torch.rand(3) == expected).all()
    assert run(0) == found
    assert run(1) != found
    assert all((given_head.state_dict()[name] == before[name]).all() for name in before)


def test_the_best_epoch_of_a_head_counts_and_the_earlier_of_two():
    train, y, validation, yv = split_states(0, S=2, n=40, m=20)
    values = iter([0.2, 0.1, 0.6, 0.3, 0.4, 0.3, 0.6, 0.2])
    told = []
    options = {"metric": lambda *_: next(values), "progress": lambda *now: told.append(now)}
    found = train_family_probes(train, y, validation, yv, head_factory(), epochs=4, **options)
    assert found.by_seed == ((0.6,), (0.3,))
    assert found.epochs == ((2,), (2,))
    assert found.standard_errors == (None, None)
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_heads_that_diverge_or_of_states_that_are_not_finite_have_no_value():
    # The majority class's share must not stand for them, which could beat another rate.
    train, y, validation, yv = split_states(0, S=3, n=40, m=20)
    data, options = (train, y, validation, yv, head_factory()), {"epochs": 1, "seeds": (0, 1)}
    assert train_family_probes(*data, learning_rate=1e30, **options).values == (None,) * 3
    train[1, 0, 0] = np.nan
    found = train_family_probes(*data, **options)
    assert [value is None for value in found.values] == [False, True, False]
    assert train_family_probes(train[1:2], y, validation[1:2], yv, head_factory()).values == (None,)


# --- Metrics -----------------------------------------------------------------------------------


def test_majority_predicts_the_majority_class_of_training_or_the_mean():
    y, yv = np.array([0, 1, 1, 2]), np.array([1, 0, 2, 1, 1])
    assert majority(y, yv) == 0.6
    # Of classes as frequent, the one that validation has more often.
    assert majority(np.array([0, 0, 1, 1]), yv) == 0.6
    assert majority(y, yv, likelihood) == pytest.approx(likelihood(yv, np.eye(3)[[1] * 5]))
    assert majority(y / 2, yv / 2) == 0.0
    assert majority(y / 2, yv / 2, likelihood) == pytest.approx(-np.mean((yv / 2 - 0.5) ** 2))
    assert majority(y, yv, lambda *_: np.nan) is None
