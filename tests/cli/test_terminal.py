"""What the terminal shows of a scan: that it fits, and that it says what the scan holds."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import pytest
from rich.console import Console

from layerscout.cli.scan import show_scan
from layerscout.reporting import describe_side_by_side
from scan_content import CURVE, full, scan, score, without_quality


def shown(given: Mapping[str, Any], encoding: str = "utf-8", width: int = 80) -> list[str]:
    """The lines of a scan as a terminal of this encoding and width gets them."""
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    show_scan(Console(file=file, width=width, highlight=False), given)
    file.seek(0)
    return [line.rstrip() for line in file.read().splitlines()]


def told(given: Mapping[str, Any]) -> str:
    """What a terminal shows of a scan, in one line."""
    return " ".join(" ".join(shown(given)).split())


def row(lines: list[str], start: str) -> list[str]:
    """The words of the one line that starts with this word."""
    [found] = [line.split() for line in lines if line.split()[:1] == [start]]
    return found


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("blocks", [1, 2, 6, 12, 18, 24, 48])
def test_all_scores_fit_80_columns(blocks: int, encoding: str):
    given = full(blocks)
    given["settings"]["examples_because"] = (
        "the states that are tied with state 8 lie within 2% of it"
    )
    lines = shown(given, encoding)
    assert max(map(len, lines)) <= 80
    for key in given["scores"]:
        assert sum(line.startswith(f"{key} ") for line in lines) == 1, "one row for each score"
    states = [line for line in lines if line[:5].strip().isdigit()]
    assert len(states) == blocks + 1, "no row of the curve is broken"


def test_long_numbers_fit_80_columns():
    given = full()
    for content in given["scores"].values():
        sizes = [
            None if v is None else -1.2345e-07 * (i + 1) for i, v in enumerate(content["values"])
        ]
        content["values"] = sizes
        content["low"] = content["high"] = sizes if content["low"] else []
    assert max(map(len, shown(given))) <= 80
    assert max(map(len, shown(given, "ascii"))) <= 80


def test_the_leading_score_is_drawn_with_its_interval():
    lines = shown(full())
    heading = next(line for line in lines if line.startswith("state"))
    assert heading.split() == ["state", "value", "95%", "interval", "head_quality"]
    at = {int(line[:5]): line for line in lines if line[:5].strip().isdigit()}
    assert at[8].split() == ["8", "0.8000", "0.7700", "–", "0.8300", "█" * 32, "◀", "best"]
    assert [state for state, line in at.items() if "≈ best" in line] == [5, 6, 7, 9, 10, 11]
    assert at[0].endswith("█" * 28)


def test_each_score_has_a_row_with_its_curve():
    lines = shown(full())
    table = lines[next(i for i, line in enumerate(lines) if line.startswith("score ")) :]
    assert row(table, "cca") == ["cca", "↑", "8", "0.66", "0.439", "▁▁▁▂▃▅▇███▇▅▃"]
    assert row(table, "nc1")[1:5] == ["↓", "8", "96", "136"]
    assert row(table, "nc1")[5].endswith("█▇▆"), "up is better, the ratio is best when low"
    assert row(table, "knn") == ["knn", "↑", "–", "–", "–", "undefined"]
    assert row(table, "probe")[-1] == "±0.006"
    assert row(table, "weight_snr") == ["weight_snr", "↑", "4", "7", "2.09", "▅▇███▇▅▃▂▁▁▁"]
    kinds = [line for line in table if line.startswith("of ")]
    assert kinds == ["of states", "of blocks"]


def test_a_terminal_without_the_characters_gets_others():
    lines = shown(full(), "ascii")
    assert row([li for li in lines if "best" not in li], "cca")[1:] == [
        "^", "8", "0.66", "0.439", "...:-+%###%+-",
    ]  # fmt: skip
    assert any("< best" in line for line in lines) and any("~ best" in line for line in lines)
    text = " ".join(" ".join(lines).split())
    assert "+-0.006" in text and "tied within noise (~)" in text


def test_the_verdict_says_how_sure_it_is():
    given = full()
    given["settings"]["examples_because"] = "these are all there are"
    text = told(given)
    for said in (
        "No state is clearly best by held-out quality of a head: states 5–11 are tied within "
        "noise (≈). State 8 of 12 has the highest value, 0.8000, 4% higher than the 0.7685 of the",
        "2,000 of 67,349 examples: these are all there are",
        "Best state: 8 by held-out quality of a head (tied), debiased variability ratio ν (tied), "
        "variability ratio ν, neural collapse NC1, canonical correlation, probe; 12 by numerical "
        "rank, online code length, LOES; 9 by ridge regression, LogME; 1 by entropy of the "
        "states; 4 by H-score.",
        "Best block: 1 by gradient norm, saliency, change of the states (1 − CKA); 4 by weight "
        "signal-to-noise; 12 by Fisher information.",
    ):
        assert said in text


@pytest.mark.parametrize(
    ("top", "said"),
    [(0.57, "State 3 of 3 has the highest value, 0.5700; it is the top state."),
     (0.52, "State 2 of 3 has the highest value, 0.5500; 0.5200 at the top state.")],
)  # fmt: skip
def test_where_all_are_tied_none_is_called_best(top: float, said: str):
    values = [0.46, 0.5, 0.55, top]
    apart = {"separable_from_best": [True, False, False, False]}
    best = 3 if top > 0.55 else 2
    given = scan({"head_quality": score(values, "higher", details=apart)}, {"head_quality": best})
    text = told(given)
    headline = "No state is clearly best by held-out quality of a head: states 1–3 are tied within"
    assert f"{headline} noise (≈). {said}" in text and "is best" not in text
    other = given | {"model": given["model"] | {"name": "another"}}
    lines = [describe_side_by_side([given, one], ["a", "b"], None) for one in (given, other)]
    assert lines[0][0].startswith(
        "a finds no state clearly best by held-out quality of a head (states 1–3 are tied within "
        "noise); b finds"
    )
    assert [len(some) for some in lines] == [1, 2] and "tune both" in lines[1][1]


def test_the_signal_of_a_ratio_is_said_where_it_leads():
    text = " ".join(" ".join(shown(without_quality())).split())
    for said in (
        "No state is clearly best by debiased variability ratio ν: states 7–9 are tied within "
        "noise (≈). State 8 of 12 has the lowest value, 0.8000, 29% lower than the 1.133 of the",
        "95% of the distance between the class means of state 8 is signal; the rest is noise",
    ):
        assert said in text


def test_the_advice_says_what_to_tune_and_why():
    because = "state 8: a linear head there scores 0.80"
    advice = {"head": 8, "because": because, "plan": None, "relative": None}
    text = " ".join(" ".join(shown(full() | {"advice": advice})).split())
    assert f"The head belongs on state 8 of 12. Why: {because}." in text
    plan = {"tuned": [6, 7, 8], "head": 8, "notation": "(6, 8, 8)"}
    lines = shown(full() | {"advice": advice | {"plan": plan, "relative": 0.274}}, width=200)
    assert lines[-2:] == [
        "Tune blocks 6–8 with the head on state 8 of 12: 27% of the training cost of full "
        "fine-tuning, and a model without the 4 blocks above.",
        f"Why: {because}.",
    ]
    halves = advice | {"plan": plan, "relative": 0.548, "stages": [0.5, 0.5, 1.0]}
    line = shown(full() | {"advice": halves}, width=200)[-2]
    assert "55% of the training cost of full fine-tuning (half of it for judging on two" in line
    whole = {"tuned": [], "head": 12, "notation": "head:12"}
    lines = shown(full() | {"advice": advice | {"plan": whole, "relative": 0.07}}, width=200)
    assert lines[-3].startswith("Tune no block with the head on state 12 of 12: 7% of")
    assert lines[-3].endswith("full fine-tuning.")
    assert lines[-1] == "No head nearer to state 8 fits the budget."


def test_a_head_that_reads_no_more_than_the_majority_is_said_first():
    given = full()
    given["scores"]["head_quality"]["details"]["majority"] = 0.78
    said = "better than always predicting the majority class (0.7800); --examples all"
    assert said in told(given)
    given["task"]["examples_available"] = 2000
    assert "--examples" not in " ".join(shown(given))


def test_no_signal_is_said_first_and_another_score_leads():
    given = without_quality()
    given["scores"]["variability_ratio_debiased"] |= {"values": [None] * 13, "low": [], "high": []}
    given["best"]["variability_ratio_debiased"] = None
    given["scores"]["variability_ratio_debiased"]["details"]["signal_fraction"] = [0.4] * 13
    lines = shown(given)
    text = " ".join(" ".join(lines).split())
    assert (
        "With 2,000 examples, no state separates the classes beyond noise; --score "
        "variability_ratio ranks the states anyway. State 8 of 12 is best by variability ratio ν"
        in text
    )
    assert row([li for li in lines if " – " in li], "variability_ratio_debiased")[-1] == "undefined"


@pytest.mark.parametrize(
    ("values", "note", "line"),
    [
        ([None] * 7, "undefined", "is undefined everywhere: too noisy."),
        (
            [1.0, 2.0, *[None] * 5],
            "mostly undefined",
            "is undefined at states 2–6: too noisy; so it names no best.",
        ),
    ],
)
def test_a_score_without_a_best_says_why(values, note, line):
    ratio = score(values, details={"undefined_because": "too noisy"})
    given = scan({"head_quality": score(CURVE), "nc1": ratio}, {"head_quality": 2, "nc1": None})
    lines = shown(given)
    assert " ".join(row(lines, "nc1")[-len(note.split()) :]) == note
    assert f"Neural collapse NC1 {line}" in " ".join(" ".join(lines).split())


def test_no_signal_and_no_other_score():
    content = score([None] * 7, details={"signal_fraction": [None] * 7, "level": 0.95})
    given = scan({"variability_ratio_debiased": content}, {"variability_ratio_debiased": None})
    text = told(given)
    assert "the classes beyond noise; --score variability_ratio" in text
    assert "undefined at" not in text and "No state could be scored" not in text


def test_the_leading_one_of_two_scores_is_drawn():
    given = scan(
        {"variability_ratio": score(CURVE), "nc1": score(CURVE[::-1])},
        {"variability_ratio": 2, "nc1": 4},
    )
    lines = shown(given)
    assert row(lines, "state") == ["state", "value", "variability_ratio"]
    assert row(lines, "2") == ["2", "5.380", "█" * 32, "◀", "best"]
    assert row(lines, "0")[2] == "█" * 12, "nearly three times the ratio, a third of the length"
    assert "longer bars are better (for variability_ratio: lower values)" in lines
    assert "a state is the output of its block, state 0 that of the embeddings" in lines
    assert row(lines, "nc1")[1:3] == ["↓", "4"]
    text = " ".join(" ".join(lines).split())
    assert "State 2 of 6 is best by variability ratio ν: 5.380, 50% lower than the 10.75" in text


def test_bars_of_negative_values_start_at_the_lowest():
    given = scan({"logme": score([-3.0, -2.0, -1.0], "higher")}, {"logme": 2})
    bars = [row(shown(given), str(state))[2] for state in range(3)]
    assert [len(bar) for bar in bars] == [1, 16, 32]
    given = scan({"loes": score([-3.0, -2.0, -1.0])}, {"loes": 1})
    assert [len(row(shown(given), str(state))[2]) for state in range(3)] == [32, 16, 1]


def test_undefined_values_have_no_bar():
    given = scan({"nc1": score([None, 0.0, 2.0])}, {"nc1": 1})
    lines = shown(given)
    assert row(lines, "0") == ["0", "–"]
    assert row(lines, "1") == ["1", "0.000", "█" * 32, "◀", "best"], "0 is the best of a ratio"


def test_scores_of_blocks_alone_speak_of_blocks():
    given = scan({"weight_snr": score([None, 1.0, 4.0], "higher", "blocks")}, {"weight_snr": 2})
    lines = shown(given)
    assert row(lines, "block") == ["block", "value", "weight_snr"]
    assert "Block 2 of 2 is best by weight signal-to-noise: 4.000. That is the top" in " ".join(
        lines
    )


@pytest.mark.parametrize(
    ("task", "line"),
    [
        ({"kind": "regression", "labels": []}, "2,000 of 67,349 examples, numbers as labels"),
        (
            {
                **{"kind": "token_classification", "labels": ["B-PER", "I-PER", "O"]},
                **{"examples_used": 1002, "examples_available": 3394},
                **{"words_used": 2000, "words_available": 62730},
            },
            "2,000 words of 1,002 of 3,394 sentences, 3 tags",
        ),
    ],
)
def test_what_was_read_is_counted_by_its_kind(task, line):
    given = full()
    given["task"] |= task
    assert shown(given)[1] == line
