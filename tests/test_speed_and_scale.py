"""How fast phases are and how they grow is told from what was measured, and all of it runs."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))

import scale
import speed
from conftest import real, shell
from writing import write_rows

PHASES = [
    *("product", speed.PASS, "scan", "free head", "trunk", speed.STEPS, "contrastive stage"),
    *(speed.EVERY, "predict", f"{speed.PASS} in bfloat16"),
]


def test_a_share_is_of_the_product_of_the_same_turn():
    phases = {"product": [(1.0, 4e9), (1.0, 2e9)], speed.PASS: [(2.0, 4e9), (2.0, 3e9)]}
    record = speed.Record(speed.TINY[0], "(2, 2, 2)", {}, phases, {})
    [row] = [line for line in speed.list_phases(record).splitlines() if "bare" in line]
    # 2 of 4 and 1.5 of 2 GFLOP/s.
    assert row == "| bare pass | 2.00 | 2 (2–2) | 0.62 (0.50–0.75) |"


def test_exponents_are_slopes_of_logarithms(monkeypatch, tmp_path):
    rows = [
        ["n", f"{size}", "scan", f"{size**2} {9 * size**2} {size}", f"{size}", "here"]
        for size in (1, 10, 100)
    ]
    monkeypatch.setattr(scale, "GROWTH", tmp_path / "growth.csv")
    monkeypatch.setattr("writing.REPOSITORY", tmp_path)
    write_rows(scale.GROWTH, scale.COLUMNS, rows)
    assert scale.find_exponents("n", "scan", "seconds") == "2.00, 2.00"
    assert scale.find_exponents("n", "scan", "MB") == "1.00, 1.00"
    assert scale.find_exponents("n", "predict", "MB") == "–"


@pytest.mark.whole
def test_every_phase_of_tiny_models_is_measured(tmp_path, cache):
    script = Path(speed.__file__)
    page = tmp_path / "speed.md"
    shell(
        f"{sys.executable} {script} --tiny --minutes 600 --device cpu --write {page}",
        tmp_path,
        cache,
    )
    _, *parts = page.read_text(encoding="utf-8").split("\n## ")
    assert len(parts) == len(speed.TINY)
    for part in parts:
        rows = [line.split(" | ") for line in part.splitlines() if line.startswith("| ")]
        assert [row[0].removeprefix("| ") for row in rows[2:]] == PHASES
        assert all(float(row[1]) > 0 for row in rows[3:])


@pytest.mark.whole
@pytest.mark.parametrize("work", scale.WORKS)
def test_every_work_that_grows_runs_apart(work, tmp_path, monkeypatch):
    monkeypatch.setenv("LAYERSCOUT_CACHE", str(tmp_path / "cache"))
    tokenizer = real("models", "all-MiniLM-L6-v2")
    scale.prepare(tmp_path / "tiny", tokenizer, scale.TINY)
    seconds, peak = scale.run_one(work, tmp_path / "tiny", tmp_path / "tiny", scale.TINY)
    assert len(seconds) == scale.REPEATS and min(seconds) > 0 and peak > 50


def test_a_process_that_dies_is_an_error():
    assert scale.call_apart(abs, -2) == 2
    with pytest.raises(EOFError):
        scale.call_apart(sys.exit, 1)
