"""What the board's page says of records, and how a contender is run."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))

import board
import board_page
from layerscout.scores import measure_calibration

TRUTH = "AB" * 200


def record(contender, seconds, wrong, draw=0):
    """Return a record whose first predictions are wrong."""
    flipped = "".join("AB"[c == "A"] for c in TRUTH[:wrong])
    cell = {"model": board.MINILM, "task": "cr", "size": board.SIZES[0], "draw": draw}
    said = {"truth": TRUTH, "predictions": flipped + TRUTH[wrong:]}
    return cell | {"contender": contender, "seconds": seconds, "nll": 0.5, "ece": 0.1} | said


def read(monkeypatch, *records):
    whole = [{"value": 0.0} | one for one in records]
    monkeypatch.setattr(board_page, "read_records", lambda path: whole)
    return board_page.read()


def test_difference_pairs_rows_and_averages_draws(monkeypatch):
    runs = [record("auto", 20, 40), record("SetFit", 90, 60), record("auto", 20, 20, 1)]
    frame = read(monkeypatch, *runs, record("SetFit", 90, 100, 1))
    # Of 400 rows 20 are right in the first draw alone by which the first is ahead, and 80 in the
    # second: both are wrong on no row on which the other is right.
    gaps = np.zeros(400)
    gaps[40:60] += 1 / 2
    gaps[20:100] += 1 / 2
    half = 1.96 * gaps.std(ddof=1) / 20
    expected = [100 * gaps.mean(), 100 * (gaps.mean() - half), 100 * (gaps.mean() + half)]
    found = board_page.differ(board_page.pair(frame, "auto", "SetFit"))
    assert found == pytest.approx(expected)


def test_page_names_who_is_ahead_of_auto(monkeypatch):
    frame = read(monkeypatch, record("auto", 20, 100), record("SetFit", 90, 40))
    assert "| SetFit | 15.0 (11.5 to 18.5) | 4.5 |" in board_page.list_losses(frame)
    assert "+15.0 | 1 and 0 of 1 | 4.5 | 90 |" in board_page.tabulate(frame, "auto")
    # Within a minute SetFit has nothing, and in three it is beside `auto`, which took no longer.
    # Ten change nothing.
    [line] = board_page.tabulate_limits(frame).splitlines()[2:]
    assert line.split(" | ")[1] == "3 min" and "| 75.0 | 90.0 | -15.0 | 1 of 1 |" in line
    more = record("auto", 20, 100, 1), record("SetFit", 400, 40, 1)
    frame = read(monkeypatch, record("auto", 20, 100), record("SetFit", 90, 40), *more)
    lines = board_page.tabulate_limits(frame).splitlines()[2:]
    assert [line.split(" | ")[1] for line in lines] == ["3 min", "10 min"], "it has more cells"


def test_probabilities_are_judged_as_tune_judges_its_own():
    rng = np.random.default_rng(0)
    # Sure ones are right, others are not: bins of as many rows would give another error.
    logits = rng.normal(size=(300, 3)) * rng.choice([0.3, 5.0], size=(300, 1))
    y = np.where(np.ptp(logits, axis=1) > 3, logits.argmax(axis=1), rng.integers(3, size=300))
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    own = measure_calibration(y, logits)
    assert board.judge(shares, y) == pytest.approx({"nll": own["nll"], "ece": own["ece"]}, abs=1e-5)


def test_contender_runs_in_a_process_of_its_own(tmp_path):
    texts = [f"{['good', 'bad', 'dull'][i % 3]} film {i % 7}" for i in range(30)]
    frame = pd.DataFrame({"text": texts, "label": [i % 3 for i in range(30)]})
    run = board.Run(board.MINILM, "made up", board.SIZES[0], 0, board.WORDS)
    found = board.carry_out(run, (frame[:24], frame[24:]), tmp_path, tmp_path)
    words = TfidfVectorizer(token_pattern=r"\b\w+\b")
    X = words.fit_transform(texts[:24])
    fitted = LogisticRegression(max_iter=1000).fit(X, frame["label"][:24])
    said = fitted.predict(words.transform(texts[24:]))
    assert found["predictions"] == "".join("ABC"[k] for k in said)
    assert found["truth"] == "ABCABC"
    assert found["value"] == (said == frame["label"][24:]).mean()
    assert found["seconds"] > 0.1


def test_contender_names_its_environment(tmp_path):
    file = board.CONTENDERS / "setfit_pairs.py"
    made = tmp_path / "setfit_pairs"
    made.mkdir()
    (made / "installed").touch()  # so nothing is installed
    assert board.find_python(file, tmp_path) == str(made / "bin" / "python")
    assert board.find_python(board.CONTENDERS / "ours.py", tmp_path) == sys.executable
