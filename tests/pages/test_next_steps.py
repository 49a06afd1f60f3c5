"""What is suggested after a verb: one command that runs as it stands."""

from typing import Any

import pytest

from layerscout.pages.commands import write_command
from layerscout.pages.heat_maps import LEAST_SPAN, draw_skips
from layerscout.pages.html import build_sections
from layerscout.pages.next_steps import suggest_step


def evaluated(curve: list[float] | None, skips: Any = None, **more: Any) -> dict[str, Any]:
    return {
        "verb": "evaluate",
        "model": {"name": "out/model", "blocks": 3, "family": "bert"},
        "original": None,
        "task": {"kind": "classification", "labels": ["a", "b"], "name": "x", "examples_used": 9},
        "metric": "accuracy",
        "metrics": {"accuracy": 0.9},
        "majority": 0.5,
        "truncation": {} if curve is None else {"untuned": curve},
        "skips": skips,
        "edits": [],
        "settings": {"data": "my reviews.csv"},
        "warnings": [],
        "seconds": {},
        "layerscout": "0",
        **more,
    }


@pytest.mark.parametrize(
    ("content", "command"),
    [
        (evaluated(None), "layerscout evaluate out/model 'my reviews.csv' --edit truncate"),
        (
            evaluated([0.5, 0.6, 0.9, 0.9]),
            "layerscout truncate out/model --head 2 -o out/model-head-2",
        ),
        (
            evaluated([0.5, 0.6, 0.7, 0.9]),
            "layerscout evaluate out/model 'my reviews.csv' --edit skip",
        ),
    ],
)
def test_an_evaluation_suggests_a_command(content, command):
    step = suggest_step(content, "evaluate")
    assert step is not None
    assert step[1] == command
    assert build_sections(content, "evaluate")[1][0].commands == [step]


def test_nothing_follows_where_all_is_known_or_nothing_was_learnt():
    assert suggest_step(evaluated([0.5, 0.6, 0.7, 0.9], [[0.1]]), "evaluate") is None
    assert suggest_step(evaluated([0.5, 0.5, 0.5, 0.4], metrics={"accuracy": 0.4}), "e") is None


@pytest.mark.parametrize("verb", ["scan", "tune", "evaluate", "compare"])
def test_numbers_stay_numbers_in_the_next_command(verb):
    content = evaluated(None, settings={"data": "scores.csv", "regression": True})
    assert "--regression" in write_command(verb, content)


def test_near_values_do_not_span_all_colours():
    content = evaluated(None, [[0.49, 0.51, 0.5], [None, 0.5, 0.5], [None, None, 0.5]])
    low, high = draw_skips(content).to_dict()["layer"][0]["encoding"]["color"]["scale"]["domain"]
    assert high - low == pytest.approx(LEAST_SPAN)
    assert low < 0.49 < 0.51 < high
