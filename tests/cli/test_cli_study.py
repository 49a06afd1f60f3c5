"""The verbs study and report, as a person uses them."""

import html
import json
import re
import shutil
from types import SimpleNamespace

import pytest

import layerscout as ls
from layerscout.cli.groups import Printing
from layerscout.cli.study import print_study
from layerscout.reporting import Table
from layerscout.studies import Reported, Store

RECIPE = """
title: Mine & <b>yours</b>
grids:
  tuned:
    axes:
      model: [%s]
      task: [{data: %s, name: reviews}]
      plan: [top:1, full]
      seed: [0, 1]
    settings: {epochs: 1, examples: 32, learning_rate: 1e-3}
baseline: full
tables:
  - title: Strategies
figures:
  - title: Metric by blocks
    kind: points
    x: blocks
small:
  seed: [0]
"""


@pytest.fixture
def mine(write, tiny, reviews):
    return write("mine.yaml", RECIPE % (tiny, reviews))


def test_what_ships_is_listed_and_shown(run):
    code, printed, errors = run("study", "--list")
    assert (code, errors) == (0, "")
    assert "xie2022-table6" in printed and "Tamkin et al. 2020, §2 and §3" in printed
    names = [one["name"] for one in json.loads(run("study", "--list", "--json")[1])]
    assert len(names) >= 20 and names == sorted(names)
    printed = run("study", "--show", "lodha2023-layers")[1]
    assert printed.startswith("title: The blocks that Fisher information ranks first\n")


def test_a_study_from_the_command_line(run, mine, tmp_path):
    out = tmp_path / "out"
    code, printed, errors = run("study", mine, "-o", out, "--figures", "svg")
    assert code == 0
    assert errors.count("tune reviews (4, 4, 4)") == 2 and "accuracy" in errors
    lines = printed.splitlines()
    assert lines[0].split() == ["plan", "reviews"] and lines[1].startswith("top:1")
    assert sorted(path.name for path in out.iterdir()) == [
        *("figures", "report.html", "study.json", "summary.csv", "tables", "trials"),
    ]
    assert (out / "figures" / "01-metric-by-blocks.svg").read_text().startswith("<svg")
    assert (out / "tables" / "01-strategies.tex").read_text().startswith("\\begin{tabular}{lr}")
    page = (out / "report.html").read_text()
    assert "Mine &amp; &lt;b&gt;yours&lt;/b&gt;" in page and "<b>yours</b>" not in page
    assert "Against full" in page
    # What it shows stands before the first chart, in the file too.
    found = json.loads((out / "study.json").read_text())
    assert (
        "top:1 takes " in found["conclusion"][0] or "No plan has learnt" in found["conclusion"][0]
    )
    assert 0 < page.index(html.escape(found["conclusion"][0])) < page.index("<figure")
    assert lines[-1].startswith("wrote ")
    # The same again runs nothing; a report can be made elsewhere.
    code, _, errors = run("study", mine, "-o", out)
    assert (code, errors) == (0, "")
    code, printed, _ = run("report", out, "-o", tmp_path / "elsewhere")
    assert code == 0 and "report.html" in printed
    assert (tmp_path / "elsewhere" / "report.html").read_text() == page
    found = json.loads(run("study", mine, "-o", out, "--json")[1])
    assert len(found["cells"]) == 4
    # What an earlier recipe left goes; figures stay, and so does what is somebody else's.
    gone = [out / "tables" / "07-old.md", out / "tables" / "07-old.tex"]
    half = out / "tables" / ".01-x-ab12cd34.layerscout-part.md"
    theirs = tmp_path / "paper" / "figures" / "01-method.pdf"
    theirs.parent.mkdir(parents=True)
    for path in (*gone, half, theirs):
        path.touch()
    code, _, errors = run("study", mine, "-o", out)
    assert (code, errors) == (0, "") and not any(path.exists() for path in gone)
    assert (out / "figures" / "01-metric-by-blocks.svg").exists()
    assert run("report", out, "-o", tmp_path / "paper", "--figures", "pdf")[0] == 0
    assert theirs.exists()
    # Several studies have a folder each, whatever they are called.
    (tmp_path / "again").mkdir()
    shutil.copytree(out, tmp_path / "again" / "out")
    both = tmp_path / "both"
    studies = (out / ".." / "out", tmp_path / "again" / "out")
    assert run("report", *studies, "-o", both, "--figures", "svg")[0] == 0
    names = sorted(path.name for path in both.iterdir())
    assert names == ["figures", "out", "out-2", "report.html"]
    assert len(list((both / "figures").glob("*.svg"))) == 2 * len(list((out / "figures").iterdir()))
    # None is written into the folder of another one, and none comes twice.
    again = tmp_path / "again" / "out"
    assert run("report", again, out, again / ".." / "out", "-o", tmp_path)[0] == 0
    assert (tmp_path / "out-2" / "summary.csv").exists()
    assert not (tmp_path / "out-3").exists() and not (tmp_path / "out" / "out").exists()
    tables = sorted((out / "tables").iterdir())
    assert run("report", *studies, "-o", out)[0] == 0
    assert sorted((out / "tables").iterdir()) == tables != []


def test_the_tables_of_another_study_are_not_lost(run, mine, write, tmp_path):
    options = ("-o", tmp_path / "out", "--small", "-q")
    assert run("study", mine, *options)[0] == 0
    text = mine.read_text().replace("title: ", "title: another ")
    other = write("other.yaml", text.replace("another Strategies", "Another"))
    code, _, errors = run("study", other, *options)
    assert code == 2 and "holds another study" in errors and "--overwrite" in errors
    assert run("study", other, *options, "--overwrite")[0] == 0
    assert run("study", other, *options)[0] == 0
    tables = sorted(path.name for path in (tmp_path / "out" / "tables").iterdir())
    assert tables == ["01-another.md", "01-another.tex"]  # those of the other recipe are gone


def test_a_dry_run_lists_and_runs_nothing(run, mine, tmp_path, monkeypatch):
    monkeypatch.setattr("layerscout.studies.estimates._SECONDS", 0.0)  # of timing, each time

    def dry(*options):
        return run("study", mine, "-o", tmp_path / "out", "--dry-run", *options)

    code, printed, _ = dry()
    assert code == 0 and not (tmp_path / "out").exists()
    assert "4 trials, 0 of them done" in printed and "one block timed" in printed
    estimate = json.loads(dry("--small", "--json")[1])
    assert len(estimate["trials"]) == 2 and estimate["flops_left"] == estimate["flops"]
    seconds = estimate["flops"] / estimate["flops_per_second"]
    assert estimate["seconds_left"] == pytest.approx(seconds)
    changes = ("--set", "seed=[7]", "--set", "grids.tuned.axes.plan=[head:2]")
    (trial,) = json.loads(dry(*changes, "--json")[1])["trials"]
    assert (trial["values"]["seed"], trial["values"]["plan"]) == ("7", "head:2")
    code, _, errors = dry("--set", "grids.tuned.axes.plan=[top:9]")
    assert code == 2 and "nothing of 'Mine & <b>yours</b>' can be run: k must be in 1..4" in errors
    code, printed, _ = dry("--set", "grids.tuned.axes.plan=[top:9, top:1]")
    assert code == 0 and "2 cannot be run: k must be in 1..4" in printed


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        (None, "", "holds none of study.json, scan.json"),
        *(
            (name, text, "not what layerscout writes")
            for name, text in (
                ("study.json", '{"verb": "study", "cells": []}'),
                ("study.json", "[]"),
                ("scan.json", '{"verb": "scan"}'),
                ("scan.json", '{"verb": "dance"}'),
                ("scan.json", "[" * 100_000),
            )
        ),
    ],
)
def test_a_report_of_what_is_none_is_refused(run, tmp_path, name, text, words):
    (tmp_path / "loop").symlink_to("loop")
    if name is not None:
        (tmp_path / name).write_text(text)
    code, _, errors = run("report", tmp_path if name else tmp_path / "loop")
    assert code == 2 and words in errors and errors.count("\n") == 1


@pytest.fixture(scope="module")
def scanned(tiny, reviews, tmp_path_factory):
    """Return a folder with a scan, to be read or copied."""
    folder = tmp_path_factory.mktemp("scanned")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAYERSCOUT_CACHE", str(folder / "cache"))
        ls.scan(tiny, ls.Task.load(reviews), progress=False).save(folder / "bert")
    return folder / "bert"


@pytest.mark.parametrize(
    ("pattern", "harm", "words"),
    [
        ('("forward": )[^,\n]+', r"\g<1>NaN", "is not what layerscout writes"),
        ('("forward": )[^,\n]+', r"\g<1>-Infinity", "is not what layerscout writes"),
        ('("forward": )[^,\n]+', r"\g<1>1e999", "is not what layerscout writes"),
        (r'"warnings": \[[^]]*\]', '"warnings": 3', "are not what layerscout writes"),
    ],
)
def test_a_report_of_numbers_that_are_not_finite_is_refused(
    scanned, run, tmp_path, pattern, harm, words
):
    harmed, times = re.subn(pattern, harm, (scanned / "scan.json").read_text())
    assert times == 1
    (tmp_path / "scan.json").write_text(harmed)
    code, _, errors = run("report", tmp_path)
    assert code == 2 and words in errors and errors.count("\n") == 1


def test_a_report_of_several_verbs_is_one_page(scanned, run, tiny, reviews, tmp_path):
    tuned = tmp_path / "tuned"
    options = ("--plan", "top:1", "--epochs", 1, "-o", tuned, "-q")
    assert run("tune", tiny, reviews, *options)[0] == 0
    code, _, _ = run("report", scanned, tuned, "-o", tmp_path / "both")
    page = (tmp_path / "both" / "report.html").read_text()
    assert code == 0 and "bert on reviews" in page and "bert tuned on reviews" in page


def test_a_study_whose_trials_failed_ends_with_1(run, mine, tmp_path, monkeypatch):
    from layerscout.studies import runners

    def broken(*_, **__):
        raise RuntimeError("it broke")

    monkeypatch.setattr(runners, "tune", broken)
    code, _, errors = run("study", mine, "-o", tmp_path)
    assert code == 1
    assert errors.count("failed: tune reviews (4, 4, 4)") == 2
    assert "layerscout: 4 trials failed, and the others are done; see the records in" in errors
    assert "4 failed: RuntimeError: it broke" in (tmp_path / "report.html").read_text()


def test_what_could_not_be_run_is_told_at_the_end(run, mine, tmp_path):
    plans = "grids.tuned.axes.plan=[head:9, top:1]"
    code, _, errors = run("study", mine, "-o", tmp_path, "--small", "--set", plans, "-q")
    assert code == 0 and "1 could not be run: `head` must be in 1..4" in errors
    code, _, errors = run("study", mine, "-o", tmp_path, "--small", "--set", "examples=97", "-q")
    assert code == 2 and "nothing of 'Mine & <b>yours</b>' can be run: --examples must" in errors


def test_a_baseline_that_is_not_there_is_told(run, tmp_path):
    grid = {"axes": {"model": ["m"], "task": ["t"], "plan": ["top:1"]}}
    recipe = {"title": "t", "grids": {"tuned": grid}, "baseline": "full"}
    for plans, absent in (((), True), (("top:1",), True), (("full",), False)):
        cells = [{"grid": "tuned", "values": {"plan": plan}, "trial": "0" * 64} for plan in plans]
        content = {"layerscout": "0", "verb": "study", "recipe": recipe, "cells": cells}
        (tmp_path / "study.json").write_text(json.dumps(content))
        assert run("report", tmp_path)[0] == 0
        page = (tmp_path / "report.html").read_text()
        assert ("Nothing is compared with the baseline full" in page) is absent


def test_empty_cells_of_a_table_keep_their_place(monkeypatch, capsys, tmp_path):
    """Tables were read from their Markdown, where the first and last empty cells are lost."""
    monkeypatch.setenv("COLUMNS", "80")
    table = Table("", ["plan", "a|b", "c"], [["", "1", "2"], ["full", "3", ""], ["top", "", "4"]])
    study = SimpleNamespace(store=Store(tmp_path), cells=())
    reported = Reported(lines=["It is so."], tables=[table])
    assert print_study(study, reported, Printing()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == ["plan  a|b  c", "        1  2", "full    3   ", "top        4"]
    assert lines[5] == "It is so."
