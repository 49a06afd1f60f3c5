"""When a scan has read enough, and what it says of its time beforehand."""

import numpy as np
import pytest
from scipy.stats import norm, t

from layerscout.plans import choose_head_state
from layerscout.scanning import ReadingForecast, extraction, find_rivals
from layerscout.scores import Estimate, decide_best, measure_gaps

FOLDS = 20


def judge(hits):
    """Return the accuracy of each state, with that of all folds but one."""
    fold = np.arange(len(hits)) % FOLDS
    return [
        Estimate(float(each.mean()), np.array([each[fold != f].mean() for f in range(FOLDS)]))
        for each in hits.T
    ]


def draw_hits(rng, truth, size):
    ease = rng.normal(size=(size, 1))  # what makes an example hard is in all states
    noise = 0.6 * ease + 0.8 * rng.normal(size=(size, len(truth)))
    return (noise < norm.ppf(truth)).astype(float)


def test_a_rival_is_a_state_above_that_all_rows_may_show_to_be_better():
    hits = draw_hits(np.random.default_rng(4), [0.5, 0.9, 0.72, 0.70, 0.74], 500)
    states = judge(hits)
    fold = np.arange(500) % FOLDS
    # Two states lie above state 2; state 1 below it does not matter, however good.
    limit = t.ppf(1 - 0.05 / (2 * 3) / 2, FOLDS - 1)
    bounds = {}
    for state in (3, 4):
        ahead = hits[:, state] - hits[:, 2]
        by_fold = np.array([ahead[fold == f].mean() for f in range(FOLDS)])
        half = limit * by_fold.std(ddof=1) / np.sqrt(FOLDS)
        bounds[state] = ahead.mean() + half * np.sqrt(1 - 0.25), half * np.sqrt(0.25)
    assert bounds[4][0] > bounds[4][1] > 0 and bounds[3][0] < bounds[4][0]
    for within in (0.99 * bounds[4][0], 1.01 * bounds[4][0]):
        rivals = [s for s, (most, seen) in bounds.items() if most > max(within, seen)]
        assert find_rivals(states, 2, 3, within, 0.25) == rivals
    assert find_rivals([*states[:4], None], 2, 3, 1.01 * bounds[3][0], 0.25) == []
    assert find_rivals(states, 4, 3, 0.0, 0.25) == []


@pytest.mark.parametrize("within", [0.0, 0.03])
def test_a_stop_hides_in_at_most_five_of_a_hundred_what_all_rows_show(within):
    """Misses of the rule over whole sequences of looks, states of equal and of near quality."""
    rng, sizes, misses, early = np.random.default_rng(0), (250, 500, 1000), 0, 0
    truth = np.array([0.5, 0.70, 0.72, 0.75, 0.66, 0.77, 0.75])
    for _ in range(300):
        hits = draw_hits(rng, truth, sizes[-1])
        for size in sizes[:-1]:
            states = judge(hits[:size])
            found = decide_best(states, "higher", len(sizes))
            head = choose_head_state(len(truth) - 1, found.best, found.rest)
            if not find_rivals(states, head, len(sizes), within, size / sizes[-1]):
                early += 1
                gaps = measure_gaps(judge(hits), head, len(sizes))[head + 1 :]
                misses += any(-gap.difference > max(within, gap.half_width) for gap in gaps)
                break
    assert early > 100  # the rule is of use at this size, so the next line can fail
    assert misses <= 0.05 * 300


@pytest.mark.parametrize(
    ("most", "passed", "line"),
    [
        (1.0, [(1.0, 10), (5.0, 35)], "reading takes about 16 s"),
        (9.0, [(1.0, 10), (4.0, 40)], "about 10 s, or 2 min if it has to read every row"),
        (90.0, [(0.5, 50), (1.0, 100)], "about 1 s, or 2 min if it has to read every row"),
        (1.0, [(2.0, 40), (5.0, 100)], None),
    ],
)
def test_a_scan_says_once_how_long_it_takes(monkeypatch, capsys, most, passed, line):
    shown, clock = [], [0.0]
    monkeypatch.setattr(extraction, "perf_counter", lambda: clock[0])
    forecast = ReadingForecast(lambda *what: shown.append(what), most)
    forecast("scoring", 1, 100)  # which says nothing of how fast rows are read
    for seconds, done in passed * 2:
        clock[0] = seconds
        forecast("scanning", done, 100)
    printed = capsys.readouterr().err
    assert len(shown) == 1 + 2 * len(passed)
    assert printed.count("\n") == (line is not None) and (line or "") in printed
