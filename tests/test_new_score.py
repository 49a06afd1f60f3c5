"""A new score is a new row of the table of scores, and nothing else."""

import json

import numpy as np
import pytest

import layerscout as ls
from layerscout.scores.table import SCORES, Definition
from layerscout.studies import make_recipe


def spread(state):
    """Return the standard deviation of a state's features, averaged."""
    return float(state.exact.std(axis=0).mean())


def lengths(matrices):
    """Return the number of weights of every block."""
    blocks = max(block for block, _ in matrices)
    sizes = [sum(w.size for (b, _), w in matrices.items() if b == at) for at in range(blocks + 1)]
    return [None, *map(float, sizes[1:])], {"notes": ["counted, not measured"]}


@pytest.fixture(autouse=True)
def rows(monkeypatch):
    words = {"title": "spread", "summary": "how far apart", "meaning": "Says how far apart."}
    row = Definition(**words, source="state", numbers=True, compute=spread)
    monkeypatch.setitem(SCORES, "spread", row)
    words = {"title": "size", "summary": "how many weights", "meaning": "Counts the weights."}
    row = Definition(**words, of="blocks", source="weights", compute=lengths)
    monkeypatch.setitem(SCORES, "size", row)
    words = {"title": "steepest", "summary": "largest slope", "meaning": "Finds the steepest."}
    steepest = {"compute": lambda weight, gradient: float(gradient.abs().max()), "combine": max}
    row = Definition(**words, of="blocks", source="gradients", numbers=True, **steepest)
    monkeypatch.setitem(SCORES, "steepest", row)


def test_a_scan_computes_it_and_its_file_page_and_table_show_it(tiny, telling, tmp_path, run):
    out = tmp_path / "out"
    code, printed, _ = run("scan", tiny, telling, "--score", "spread,size,nc1", "-o", out)
    assert code == 0 and "spread" in printed and "size" in printed
    content = json.loads((out / "scan.json").read_text())
    assert list(content["scores"]) == ["spread", "size", "nc1"]
    values, scan = content["scores"]["spread"]["values"], ls.Scan.load(out)
    encoder, task = ls.Encoder.load(tiny), ls.Task.load(telling)
    for value, state in zip(values, encoder.states(task.train.texts), strict=True):
        assert value == pytest.approx(state.numpy().std(axis=0).mean(), rel=1e-4)
    assert content["best"]["spread"] == 1 + int(np.argmax(values[1:]))
    assert scan.table()["size"].isna().tolist() == [True, *[False] * (len(values) - 1)]
    page = (out / "scan.html").read_text()
    assert all(words in page for words in ("Says how far apart.", "how many weights", "Spread"))


def test_plans_rest_on_it(tiny, telling, tmp_path, run):
    run("scan", tiny, telling, "--score", "all", "--examples", 100, "-o", tmp_path)
    assert {"spread", "size", "steepest"} <= ls.Scan.load(tmp_path).scores.keys()
    for score in ("spread", "size", "steepest"):
        code, printed, _ = run("plan", tmp_path, "--score", score, "--json")
        assert code == 0 and json.loads(printed)["score"] == score


def test_recipes_take_it():
    grids = {
        "seen": {
            "verb": "scan",
            "axes": {"model": ["demo"], "task": ["demo"]},
            "settings": {"scores": "spread,size"},
        },
        "tuned": {
            "axes": {"model": ["demo"], "task": ["demo"]},
            "settings": {"plan": "rank:1", "score": "size"},
        },
    }
    tables = [{"title": "t", "grid": "seen", "value": "best:spread", "rows": "model"}]
    recipe = make_recipe({"title": "t", "grids": grids, "tables": tables})
    assert recipe.grids["tuned"].settings["score"] == "size"


def test_the_shell_completes_it(monkeypatch, run):
    monkeypatch.setenv("_LAYERSCOUT_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "layerscout scan demo demo --score nc1,spr")
    monkeypatch.setenv("COMP_CWORD", "5")
    assert run()[1].split() == ["nc1,spread"]
