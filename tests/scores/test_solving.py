"""Heads in closed form against explicit solves, and what is said of them on rows left out."""

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge

from layerscout.data import Tags, evaluate
from layerscout.scores import deal_groups, find_losses, solve_head, solve_path, solve_regression
from layerscout.scores.solving import PENALTY, REGRESSED, SHRINKAGES


def make_rows(n, d, classes, apart=3.0, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % classes)
    centres = apart * rng.normal(size=(classes, d)) / np.sqrt(d)
    # A feature that is far from 0 and one that says nothing.
    H = rng.normal(size=(n, d)) * rng.uniform(0.1, 3, d) + centres[y] + 50
    H[:, 0] = 7.0
    return H, y


def scale(H):
    return (H - H.mean(axis=0)) / np.where(H.std(axis=0) > 0, H.std(axis=0), 1)


def shrink(S, shrinkage, scale):
    return (1 - shrinkage) * S + shrinkage * scale * np.eye(len(S))


@pytest.mark.parametrize(("n", "d"), [(40, 60), (300, 20)])
@pytest.mark.parametrize(("number", "shrinkage"), list(enumerate(SHRINKAGES)))
def test_logits_are_those_of_the_formulas(n, d, number, shrinkage):
    H, y = make_rows(n, d, 3)
    X = scale(H)
    means = np.stack([X[y == k].mean(axis=0) for k in range(3)])
    S = (X - means[y]).T @ (X - means[y]) / (n - 3)
    weights = np.linalg.solve(shrink(S, shrinkage, np.trace(S) / d), means.T).T
    expected = X @ weights.T - (weights * means).sum(axis=1) / 2 + np.log(np.bincount(y) / n)
    np.testing.assert_allclose(solve_path(H, y)[number](H), expected, atol=1e-7)
    # Rows of which one class has more: only the share of it is another.
    more = np.concatenate([np.arange(n), np.flatnonzero(y == 1)])
    counts = np.bincount(y[more])
    weighed, plain = (solve_path(H[more], y[more], balanced=each)[number] for each in (True, False))
    np.testing.assert_allclose(weighed.weights, plain.weights)
    shifts = weighed.bias - plain.bias
    np.testing.assert_allclose(shifts, np.log(counts.sum() / counts / 3), atol=1e-9)

    labels = np.stack([y == 0, y > 0, np.arange(n) % 5 == 0], axis=1)
    expected = np.empty((n, 3))
    for k, having in enumerate(labels.T):
        ends = X[having].mean(axis=0), X[~having].mean(axis=0)
        within = X - np.where(having[:, None], *ends)
        S = shrink(within.T @ within / n, shrinkage, (X.T @ X / n).trace() / d)
        weights = np.linalg.solve(S, ends[0] - ends[1])
        odds = np.log((having.sum() + 0.5) / ((~having).sum() + 0.5))
        expected[:, k] = (X - sum(ends) / 2) @ weights + odds
    np.testing.assert_allclose(solve_path(H, labels)[number](H), expected, atol=1e-7)

    numbers = H @ np.linspace(-1, 1, d)
    term = n * shrinkage / (1 - shrinkage) * (X.T @ X / n).trace() / d
    expected = Ridge(alpha=term).fit(X, numbers).predict(X)
    np.testing.assert_allclose(solve_path(H, numbers)[number](H)[:, 0], expected, atol=1e-6)


@pytest.mark.parametrize("balanced", [True, False])
def test_a_class_without_a_row_wins_nowhere(balanced):
    """Its logit is the mean one of the others, less what makes it as rare as half a row."""
    rng = np.random.default_rng(1)
    H, y = make_rows(60, 12, 2, apart=30.0)
    y = np.where(np.arange(60) % 9 > 0, 2 * y, 0)  # none is 1 or 3
    options = {"classes": 4, "balanced": balanced}
    far = rng.normal(size=(2000, 12)) * np.logspace(-3, 9, 2000)[:, None] + 50
    mix = np.bincount(y, minlength=4) / 60
    shares = np.full(2, 0.5) if balanced else mix[[0, 2]]
    below = mix[[0, 2]] @ np.log(shares) - np.log(0.5 / 60)
    alone = np.full(60, 2)
    for bias in (True, False):
        for head in solve_path(H, y, bias=bias, **options):
            assert np.isin(head(H).argmax(axis=1), [0, 2]).all()
        assert (solve_path(H, alone, bias=bias, **options)[0](H).argmax(axis=1) == 2).all()
    for head in solve_path(H, y, **options):
        assert np.isin(head(far).argmax(axis=1), [0, 2]).all()
        np.testing.assert_allclose(head(H)[:, 1], head(H) @ mix - below, atol=1e-9)
        np.testing.assert_allclose(head(H)[:, 3], head(H)[:, 1])
    for rows in (H, np.vstack([H[:-1], far[-1:]])):
        folds = deal_groups(y, 0, groups=5, least=0)[None]
        solved = solve_head([rows], y, folds, metric="accuracy", **options)
        assert 0 < solved.losses[0] < 1.4 and np.isfinite(solved.held_out).all()


@pytest.mark.parametrize(("n", "d"), [(40, 60), (300, 20)])
def test_without_a_bias_the_weights_regress_it(n, d):
    H, y = make_rows(n, d, 3)
    Z = H / np.where(H.std(axis=0) > 0, H.std(axis=0), np.inf)
    X = scale(H)
    for shrinkage, head, affine in zip(
        SHRINKAGES, solve_path(H, y, bias=False), solve_path(H, y), strict=True
    ):
        # The least mean of (1 - v'z)², with the ridge term that shrinks the covariance.
        moments = shrink(X.T @ X / n, shrinkage, (X.T @ X / n).trace() / d)
        moments += np.outer(Z.mean(axis=0), Z.mean(axis=0))
        ones = Z @ np.linalg.solve(moments, Z.mean(axis=0))
        expected = H @ affine.weights.T + ones[:, None] * affine.bias
        assert not head.bias.any()
        np.testing.assert_allclose(H @ head.weights.T, expected, rtol=1e-6, atol=1e-6)


def test_a_choice_is_solved_by_how_it_differs_from_those_beside_it():
    rng = np.random.default_rng(4)
    H, right = rng.normal(size=(200, 3, 10)), rng.integers(0, 3, 200)
    H[np.arange(200), right] += np.linspace(0, 1, 10)
    H += 9 * rng.normal(size=(200, 1, 10))
    flat = (H - H.mean(axis=1, keepdims=True)).reshape(600, 10)
    label = (np.arange(3) == right[:, None]).reshape(600, 1)
    for head, expected in zip(solve_path(H, right), solve_path(flat, label), strict=True):
        np.testing.assert_allclose(head.weights, expected.weights, rtol=1e-9)
        assert head.weights.shape == (1, 10) and not head.bias.any()
    folds = deal_groups(right, 0, groups=5, least=0)[None]
    solved = solve_head([H], right, folds, metric="accuracy")
    assert 0.6 < (solved.held_out.argmax(axis=1) == right).mean() < 0.99
    assert solved.held_out.shape == (200, 3) and solved.factor > 0


@pytest.mark.parametrize("solver", ["lsqr", "eigen"])
@pytest.mark.parametrize(("n", "d"), [(40, 60), (300, 20)])
def test_discriminants_are_those_of_scikit_learn(n, d, solver):
    """Its covariance is divided by n, ours by n − K; the logs of shares are in both as they are."""
    H, y = make_rows(n, d, 3)
    X, shares = scale(H), np.log(np.bincount(y) / n)
    for shrinkage, head in zip(SHRINKAGES, solve_path(H, y), strict=True):
        fitted = LinearDiscriminantAnalysis(solver=solver, shrinkage=shrinkage).fit(X, y)
        # Those of `eigen` are off by what is the same for all classes.
        theirs, ours = (
            each - each.mean(axis=1, keepdims=True)
            for each in (fitted.decision_function(X) - shares, (head(H) - shares) * n / (n - 3))
        )
        np.testing.assert_allclose(ours, theirs, atol=1e-6 * np.abs(theirs).max())


@pytest.mark.parametrize("kind", ["classes", "labels", "numbers"])
def test_the_best_state_is_found_and_its_figure_is_that_of_new_rows(kind):
    """The figure is no flattery where nothing is to be found: states 0 and 2 are noise."""
    rng = np.random.default_rng(1)
    H, y = make_rows(4000, 30, 4, apart=2.0)
    states = np.stack([rng.normal(size=H.shape), H, rng.normal(size=H.shape)])
    if kind == "labels":
        y = np.stack([y == k for k in range(4)], axis=1)
    elif kind == "numbers":
        y = H @ rng.normal(size=30) + rng.normal(size=4000) * 9
    few = slice(0, 200)
    metric = {"classes": "accuracy", "labels": "micro_f1", "numbers": "pearson"}[kind]
    for s, noise in ((slice(None), False), ([0, 2], True)):
        folds = deal_groups(y[few], 0, groups=5, least=0)
        solved = solve_head(states[s][:, few], y[few], folds[None], metric=metric)
        read = states[s][solved.state]
        assert solved.state == 1 or noise
        reported = find_losses(y[few][solved.rows], solved.held_out).mean()
        true = find_losses(y[200:], solved.head(read[200:])).mean()
        assert 0.9 * true < reported < 1.3 * true  # folds have a fifth of the rows less
        assert (
            set(solved.losses) == {0, 1}
            if noise
            else solved.losses[1] == min(solved.losses.values())
        )


@pytest.mark.parametrize(
    "spoil",
    {
        "constant": lambda H, y: (np.ones_like(H), y),
        "more classes than rows left": lambda H, y: (H, np.arange(len(y)) // 2),
        "a class of one row": lambda H, y: (H, np.where(np.arange(len(y)) == 3, 5, y % 2)),
        "alike but for rounding": lambda H, y: (
            np.random.default_rng(0).normal(size=(3, 40))[y] * (1 + 1e-7 * H[:, 1:2] / 50),
            y,
        ),
        "rows alike within a class": lambda H, y: (np.eye(3)[y].repeat(4, axis=1), y),
        "separated": lambda H, y: (H + 1e6 * y[:, None], y),
        "huge": lambda H, y: (H * 1e30, y),
        "one fold": lambda H, y: (H, y),
    }.items(),
    ids=lambda item: item[0],
)
@pytest.mark.parametrize("deals", [1, 2])
def test_odd_rows_give_finite_heads_or_none(spoil, deals):
    what, change = spoil
    H, y = change(*make_rows(24, 12, 3))
    counts = np.bincount(y)
    folds = np.where(counts[y] == 1, -1, np.arange(24) % (1 if what == "one fold" else 4))
    deals = np.stack([folds] * deals)
    solved = solve_head([H, np.full_like(H, np.nan)], y, deals, metric="accuracy")
    if what in ("constant", "one fold"):
        assert solved is None
        return
    assert solved.state == 0 and len(solved.rows) == (folds >= 0).sum()
    for values in (solved.head.weights, solved.head.bias, solved.held_out):
        assert np.isfinite(values).all()
    if what in ("rows alike within a class", "alike but for rounding", "separated"):
        assert solved.losses[0] < 1 and np.abs(solved.held_out).max() < 1e4
        assert (solved.head(H).argmax(axis=1) == y).all()


def test_balanced_classes_count_alike_in_every_choice():
    """A class of many rows twice is no class of twice the weight."""
    H, y = make_rows(240, 12, 2, apart=1.0)
    many = np.concatenate([np.arange(240), *[np.flatnonzero(y == 0)] * 3])
    rng = np.random.default_rng(2)
    folds = rng.integers(0, 4, 240)  # all rows of one text in one fold
    options = {"metric": "accuracy", "classes": 2}
    even = solve_head([H], y, folds[None], balanced=True, **options)
    odd = solve_head([H[many]], y[many], folds[many][None], balanced=True, **options)
    said = odd.held_out[np.unique(many, return_index=True)[1]]
    rates = [(each.argmax(axis=1) == 0).mean() for each in (even.held_out, said)]
    assert rates[1] == pytest.approx(rates[0], abs=0.03)
    plain = solve_head([H[many]], y[many], folds[many][None], **options)
    assert (plain.held_out.argmax(axis=1) == 0).mean() > 0.8
    weights = len(many) / (2 * np.bincount(y[many]))[y[many]]
    expected = (weights * find_losses(y[many], odd.held_out)).mean()
    assert expected == pytest.approx(odd.losses[0], rel=0.15)


def make_words(n):
    """Make words of three tags; half of those outside of spans are far from all others."""
    rng = np.random.default_rng(0)
    y = np.where(rng.random(n) < 0.8, 0, rng.integers(1, 3, n))
    H = rng.normal(size=(n, 6)) + 20
    H[:, [0, 2]] -= 6 * ((y == 0) & (rng.random(n) < 0.5))[:, None]
    for k in (1, 2):
        H[y == k, 2 * k - 2] += 2
    H[:, 1] = 7  # says nothing
    return H, y, Tags(("O", "B-place", "B-person"), np.arange(n) // 5)


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("absent", [0, 1])
def test_regression_is_at_the_least_of_its_objective(balanced, absent):
    H, y, _ = make_words(1500)
    [head] = solve_regression(H, y + absent, 3 + absent, balanced)
    assert np.isfinite(head.weights).all() and (head(H).argmax(axis=1) >= absent).all()
    X, own = scale(H), np.eye(3)[y]
    counts = own.sum(axis=0)
    R = X - own @ ((own.T @ X) / counts[:, None])
    S = R.T @ R / (1500 - 3)
    S = shrink(S, REGRESSED, np.trace(S) / 6)
    weighed = (1500 / 3 / counts)[y] if balanced else np.ones(1500)

    def differentiate(logits, weights):
        p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        rest = weighed[:, None] * (p - own)
        return np.linalg.norm(np.c_[rest.T @ X + PENALTY * weights @ S, rest.sum(axis=0)])

    found = head(H)[:, absent:], head.weights[absent:] * H.std(axis=0)
    assert differentiate(*found) < 3e-3 * differentiate(0 * found[0], 0 * found[1])


@pytest.mark.parametrize(("n", "penalty"), [(400, None), (6000, PENALTY)])
def test_words_are_chosen_by_what_is_reported_of_them(n, penalty):
    """With few discriminant analysis finds more of the spans, with many regression does."""
    H, y, tags = make_words(n)
    states = [np.random.default_rng(1).normal(size=H.shape), H]
    folds = deal_groups(y, 0, tags.sentences, groups=5, least=0)
    solved = solve_head(states, y, folds[None], metric="entity_f1", classes=3, tags=tags)
    ways = [(0, share, None) for share in SHRINKAGES] + [(1, share, None) for share in SHRINKAGES]
    logits = {way: np.empty((n, 3)) for way in (*ways, (1, REGRESSED, PENALTY))}
    for fold in range(5):
        own = folds == fold
        found = [head for rows in states for head in solve_path(rows[~own], y[~own])]
        found += solve_regression(H[~own], y[~own], 3)
        for (s, *_), head, said in zip(logits, found, logits.values(), strict=True):
            said[own] = head(states[s][own])

    def rank(way, rows):
        kept = Tags(tags.names, tags.sentences[rows])
        return evaluate("entity_f1", y[rows], logits[way][rows], tags=kept)

    best = max(logits, key=lambda way: rank(way, np.arange(n)))
    assert (solved.state, solved.shrinkage, solved.penalty) == best and best[2] == penalty
    for fold in range(5):
        own, others = folds == fold, np.flatnonzero(folds != fold)
        best = max(logits, key=lambda way: rank(way, others))
        expected = logits[best][own] * solved.factors[own, None]
        np.testing.assert_allclose(solved.held_out[own], expected, atol=1e-6)
    by_loss = solve_head(states, y, folds[None], metric="accuracy")
    scores = [evaluate("entity_f1", y, each.held_out, tags=tags) for each in (solved, by_loss)]
    assert scores[0] > scores[1] + 0.03
