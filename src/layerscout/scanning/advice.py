"""Where the head belongs by a score of a scan, in a sentence that gives the evidence."""

from __future__ import annotations

from typing import Any

from layerscout.pages import describe_tie
from layerscout.plans import Named, name_blindly, name_state
from layerscout.scores import SCORES, Score


def name_head(key: str, score: Score, blocks: int) -> Named:
    """Name the state that a head should read by a score of states, and say why.

    It is the one of `plans.name_state`, by the score's intervals if it has some, else by ℓ* alone.

    Args:
        key: of the score.
        score: its values and details.
        blocks: of the model.
    """
    best = score.best()
    if best is None:
        return name_blindly(blocks, f"{SCORES[key].title} has no value for any state")
    majority = score.details.get("majority")
    if majority is not None and not any(low is not None and low > majority for low in score.low):
        always = f"always giving the same answer ({majority:.2f})"
        because = f"no head is shown to do better than {always}"
        return _name_seen(score, blocks, because)
    state = score.details.get("named", name_state(blocks, best))
    state = best if score.values[state] is None else state
    if _is_tied(score, blocks):
        tied = [s for s in range(1, blocks + 1) if s != best and score.values[s] is not None]
        because = f"no state is clearly best by {SCORES[key].title} ({describe_tie(best, tied)})"
        because = because if tied else f"{SCORES[key].title} has a value for state {best} alone"
        return _name_seen(score, blocks, because)
    words = f"state {state}: {_describe_value(key, score, state)}"
    if state != blocks and score.values[blocks] is not None:
        words += f", against {_format(score.values[blocks])} at the top"
        words += _describe_gap(score, blocks)
    if state != best:
        value, apart = _format(score.values[best]), score.details.get("separable_from_best")
        if apart and not apart[state]:
            most = "highest" if score.better == "higher" else "lowest"
            words += (
                f"; state {best} has the {most} value, {value}, but the two are tied within noise"
            )
        else:
            words += (
                f"; state {best} is the best with {value}, but so far down few blocks are left "
            )
            words += "to tune"
    return Named(state, words)


def _name_seen(score: Score, blocks: int, because: str) -> Named:
    """Name a state blindly, but not one without a value, as above a block whose values overflow."""
    named = name_blindly(blocks, because)
    seen = [s for s in range(1, named.state + 1) if score.values[s] is not None]
    if not seen or seen[-1] == named.state:
        return named
    where = f"state {seen[-1]} is the highest one with a value up to two thirds of the depth"
    return Named(seen[-1], f"{because}: {where}")


def _is_tied(score: Score, blocks: int) -> bool:
    """Say whether every state that has a value may be the best one."""
    apart = score.details.get("separable_from_best")
    return apart is not None and not any(apart[1:]) and blocks > 1


def _describe_value(key: str, score: Score, state: int) -> str:
    value = _format(score.values[state])
    if "behind_named" in score.details:
        return f"a linear head there scores {value}"
    return f"{SCORES[key].title} is {value} there"


def _describe_gap(score: Score, top: int) -> str:
    gaps: Any = score.details.get("behind_named")
    if not gaps or gaps[top] is None:
        return ""
    difference, half_width = gaps[top]
    return f" (difference {difference:.2f} ± {half_width:.2f})"


def _format(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
