"""The demo's rows: they ship with the package, and its measured figures are about them."""

import sys
from hashlib import sha256
from pathlib import Path

from layerscout.data import Task

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from demo_grammar import LABELS, sentences


def test_the_shipped_rows_are_those_of_the_grammar_and_do_not_change_unnoticed():
    task = Task.load("demo")
    held_out = task.validation
    assert held_out is not None and task.labels == LABELS == ("unacceptable", "acceptable")
    assert (len(task.train), len(held_out)) == (2000, 500)
    labels = [*task.train.labels.tolist(), *held_out.labels.tolist()]
    rows = list(zip([*task.train.texts, *held_out.texts], labels, strict=True))
    text = "\n".join(f"{label} {sentence}" for sentence, label in rows)
    expected = "065d7aa5789f10ebc5d512a3ad67de13b85fdf55ee13dd6a408ca94674633321"
    assert sha256(text.encode()).hexdigest() == expected
    assert rows == sentences(2500)
    assert len({sentence for sentence, _ in rows}) == 2500 and abs(sum(labels) - 1250) < 100
