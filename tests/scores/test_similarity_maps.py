"""CKA of all states with all, and the two clusters that it shows."""

import numpy as np
import pytest

from layerscout.cache import States
from layerscout.runtime import InputError
from layerscout.scores import similarity_maps as similarity
from layerscout.scores.clusters import find_clusters
from layerscout.scores.similarity_maps import cka_map
from reference import similarity as naive


def kept(states):
    return States((np.asarray(states, dtype=np.float32),), np.arange(states.shape[1]))


def drifting(seed, S, n, d):
    """States that share less and less with the first one."""
    rng = np.random.default_rng(seed)
    states = [rng.normal(size=(n, d))]
    for _ in range(S - 1):
        states.append(0.8 * states[-1] @ rng.normal(size=(d, d)) / d**0.5 + rng.normal(size=(n, d)))
    return np.array([state + rng.normal(size=d) for state in states], dtype=np.float32)


@pytest.fixture(params=["examples", "features", "small tiles"])
def way(request, monkeypatch):
    """Each of the two ways to add up, and both in small parts."""
    if request.param == "small tiles":
        monkeypatch.setattr(similarity, "TILE_BYTES", 8 * 30)
        monkeypatch.setattr(similarity, "CHUNK", 7)
        return
    chosen = getattr(similarity, f"_by_{request.param}")
    for name in ("_by_examples", "_by_features"):
        monkeypatch.setattr(similarity, name, chosen)


@pytest.mark.parametrize("n", [5, 23, 90])
def test_every_entry_equals_the_definition(way, n):
    X, Y = drifting(1, 4, n, 6), drifting(2, 3, n, 9)
    for rows, columns in ((X, Y), (X, None), (Y, X)):
        found = cka_map(kept(rows), None if columns is None else kept(columns))
        others = rows if columns is None else columns
        for s, one in enumerate(rows.astype(float)):
            for t, other in enumerate(others.astype(float)):
                assert found.biased[s][t] == pytest.approx(naive.cka(one, other), rel=1e-6)
                expected = naive.cka(one, other, naive.hsic_unbiased)
                assert found.debiased[s][t] == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_the_cheaper_way_is_taken(monkeypatch):
    taken = []
    for name in ("_by_examples", "_by_features"):
        whole = getattr(similarity, name)

        def noted(*arguments, name=name, whole=whole):
            taken.append(name)
            return whole(*arguments)

        monkeypatch.setattr(similarity, name, noted)
    cka_map(kept(drifting(0, 3, 12, 8)))
    cka_map(kept(drifting(0, 3, 400, 8)))
    assert taken == ["_by_examples", "_by_features"]


def test_a_map_of_one_model_is_symmetric_with_ones_on_the_diagonal(way):
    found = cka_map(kept(drifting(3, 5, 40, 7)))
    biased, debiased = np.array(found.biased), np.array(found.debiased)
    np.testing.assert_allclose(biased, biased.T)
    np.testing.assert_allclose(debiased, debiased.T, atol=1e-12)
    np.testing.assert_allclose(np.diagonal(biased), 1)
    np.testing.assert_allclose(np.diagonal(debiased), 1)


def test_states_that_do_not_vary_have_no_similarity(way):
    states = drifting(4, 4, 30, 5)
    states[0] = states[0][0]  # as the first token's embedding
    found = cka_map(kept(states), kept(states[1:]))
    assert found.biased[0] == found.debiased[0] == (None,) * 3
    assert all(value is not None for line in found.biased[1:] for value in line)


def test_unrelated_states_score_about_nothing_when_debiased(way):
    rng = np.random.default_rng(5)
    X, Y = rng.normal(size=(2, 2, 80, 40))
    found = cka_map(kept(X), kept(Y))
    assert np.min(found.biased) > 0.2
    assert np.abs(found.debiased).max() < 0.1


def test_the_order_of_the_examples_does_not_matter(way):
    states = drifting(6, 3, 50, 6)
    rows = np.random.default_rng(0).permutation(50)
    shuffled = States((states[:, rows],), np.argsort(rows))
    for one, other in (
        (cka_map(kept(states)), cka_map(shuffled)),
        (cka_map(kept(states)), cka_map(kept(states[:, rows]))),
    ):
        np.testing.assert_allclose(one.biased, other.biased, rtol=1e-9)
        np.testing.assert_allclose(one.debiased, other.debiased, rtol=1e-9, atol=1e-12)


def test_other_numbers_of_examples_are_refused():
    states = drifting(7, 3, 20, 5)
    with pytest.raises(InputError, match="the same examples, got 20 and 19"):
        cka_map(kept(states), kept(states[:, 1:]))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_state_that_is_not_finite_has_no_similarity(way, value):
    states = drifting(7, 3, 30, 5)
    expected = cka_map(kept(states[[0, 2]]))
    states[1, 3, 2] = value
    found = cka_map(kept(states))
    assert found.biased[1] == found.debiased[1] == (None,) * 3
    assert found.biased[0][2] == pytest.approx(expected.biased[0][1])


def test_progress_is_told_to_the_end(way):
    told = []
    cka_map(kept(drifting(8, 3, 40, 5)), progress=lambda done, total: told.append((done, total)))
    assert told
    assert [done for done, _ in told] == list(range(1, told[-1][1] + 1))


# --- Clusters ----------------------------------------------------------------------------------


def block_diagonal(lower, upper, within=0.9, between=0.2):
    S = np.full((lower + upper,) * 2, between)
    S[:lower, :lower] = S[lower:, lower:] = within
    np.fill_diagonal(S, 1)
    return S


@pytest.mark.parametrize(("lower", "upper"), [(2, 2), (5, 8), (9, 3)])
def test_two_blocks_are_found(lower, upper):
    found = find_clusters(block_diagonal(lower, upper).tolist())
    assert found is not None
    assert found.split == lower - 1  # states count from 0
    assert [found.lower, found.upper] == pytest.approx([0.9, 0.9])
    assert found.between == pytest.approx(0.2)
    assert found.contrast == pytest.approx(0.7)


def test_the_best_split_by_trying_all():
    rng = np.random.default_rng(9)
    S = rng.uniform(size=(9, 9))
    S = (S + S.T) / 2
    np.fill_diagonal(S, 1)
    contrasts = {}
    for k in range(2, 8):
        within = [S[i, j] for i in range(9) for j in range(i) if (i < k) == (j < k)]
        between = [S[i, j] for i in range(9) for j in range(i) if (i < k) != (j < k)]
        contrasts[k - 1] = np.mean(within) - np.mean(between)
    found = find_clusters(S.tolist())
    assert found is not None
    assert found.split == max(contrasts, key=contrasts.__getitem__)
    assert found.contrast == pytest.approx(max(contrasts.values()))


def test_states_that_do_not_vary_are_left_out():
    S = [[None] * 8] + [[None, *line] for line in block_diagonal(3, 4).tolist()]
    found = find_clusters(S)
    assert found is not None
    assert found.split == 3
    assert find_clusters([line[:4] for line in S[:4]]) is None


def test_equal_states_have_no_contrast():
    found = find_clusters(np.ones((5, 5)).tolist())
    assert found is not None
    assert found.contrast == pytest.approx(0)
    assert found.split == 1
