"""The command line as a person uses it: output, files, exit codes, one line for each mistake."""

import io
import json
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import start
from layerscout import cli


def test_a_scan_from_one_command(run, tiny, telling, tmp_path):
    out = tmp_path / "new" / "out"
    code, printed, errors = run("scan", tiny, telling, "-o", out, "--plot", tmp_path / "c.png")
    assert (code, errors) == (0, "")
    assert sorted(os.listdir(out)) == ["scan.html", "scan.json"]
    assert (tmp_path / "c.png").read_bytes()[:4] == b"\x89PNG"
    content = json.loads((out / "scan.json").read_text())
    best = content["best"]["head_quality"]
    value = content["scores"]["head_quality"]["values"][best]
    assert "300 of 300 examples: these are all there are" in printed
    told = f"State {best} of 4 has the highest value, {value:#.4g}"
    assert told in " ".join(printed.split()), "another state is tied with it"
    rows = [line.split()[0] for line in printed.splitlines() if line.strip()[:1].isdigit()]
    assert [row for row in rows if row in "01234"] == list("01234")
    apart = content["scores"]["head_quality"]["details"]["separable_from_best"]
    for mark, states in {
        "█ ◀ best": [best],
        "█ ≈ best": [s for s in range(1, 5) if s != best and not apart[s]],
    }.items():
        marked = [line for line in printed.splitlines() if mark in line]
        assert [line.split()[0] for line in marked] == [str(s) for s in states]


def test_all_scores_stand_in_one_table(run, tiny, telling, tmp_path):
    code, printed, errors = run("scan", tiny, telling, "-o", tmp_path, "--score", "all")
    assert (code, errors) == (0, "")
    content = json.loads((tmp_path / "scan.json").read_text())
    assert len(content["scores"]) == 17
    lines = {line.split()[0]: line.split() for line in printed.splitlines() if "█" in line}
    for key, best in content["best"].items():
        assert lines[key][1] in ("↑", "↓")
        assert lines[key][2] == str(best)
    page = (tmp_path / "scan.html").read_text()
    assert all(key in page for key in content["scores"])
    file = (tmp_path / "scan.json").read_text()
    assert "NaN" not in file and "Infinity" not in file


def test_json_alone_or_nothing_on_standard_output(run, tiny, telling, tmp_path):
    code, printed, errors = run("scan", tiny, telling, "-o", tmp_path, "--json")
    assert (code, errors) == (0, "") and printed == (tmp_path / "scan.json").read_text()
    assert run("scan", tiny, telling, "-o", tmp_path, "--quiet") == (0, "", "")


def test_warnings_go_to_standard_error(run, tiny, reviews, tmp_path):
    code, _, errors = run("scan", tiny, reviews, "-o", tmp_path, "--max-length", 5, "-q")
    assert code == 0
    assert "warning: 96 of 96 inputs were longer than 5 tokens" in errors


def test_options_reach_the_scan(run, tiny, reviews, tmp_path):
    def scanned(*options):
        assert run("scan", tiny, reviews, "-o", tmp_path / "out", "-q", *options)[0] == 0
        return json.loads((tmp_path / "out" / "scan.json").read_text())

    found = scanned("--validation", 0.25, "--seed", 3, "--text", "text", "--label", "label")
    assert (found["task"]["examples_used"], found["settings"]["seed"]) == (72, 3)
    assert found["task"]["columns"] == {"text": "text", "label": "label"}
    found = scanned("--per-class", "5,20", "--pooling", "cls", "--device", "cpu")
    assert found["task"]["examples_per_class"] == [5, 20]
    assert found["settings"]["pooling"] == "cls"
    assert found["scores"]["variability_ratio"]["values"][0] is None
    found = scanned("--balanced", "--examples", 20, "--precision", "bfloat16")
    assert found["task"]["examples_per_class"] == [10, 10]
    assert found["settings"]["precision"] == "bfloat16"
    family = ("--probe", "family", "--fisher-mode", "empirical")
    found = scanned("--score", "probe,fisher", *family, "--head-seeds", 2, "--examples", 40)
    expected = {"probe": "family", "fisher_mode": "empirical", "head_seeds": 2}
    expected |= {"as_released": False}
    assert found["settings"].items() >= expected.items() and found["stability"] is None
    found = scanned("--score", "nc1", "--checkpoint", tiny, "--checkpoint", tiny)["stability"]
    assert len(found["checkpoints"]) == 3 and found["scores"]["nc1"]["deviation"] == [0, 0, 0]


def test_the_seconds_are_of_the_whole_command(run, tiny, telling, tmp_path, monkeypatch):
    monkeypatch.setattr("layerscout.cli.console.read_begin", lambda: time.perf_counter() - 1000)
    printed = run("scan", tiny, telling, "-o", tmp_path, "--score", "nc1")[1]
    assert re.search(r"^10\d\d\.\d s; wrote", printed, re.M)


def test_what_the_cache_may_take_is_given(run, tiny, telling, tmp_path, cache):
    def kept():
        return [path for path in cache.rglob("*.bin") if path.stat().st_size > 9000]

    for limit, files in (("0", 0), ("1KB", 0), ("1GB", 2)):  # one for each mean
        code, _, errors = run(
            "scan", tiny, telling, "-o", tmp_path, "-q", "--score", "logme", "--cache-limit", limit
        )
        assert (code, len(kept())) == (0, files)
        assert ("held in memory" in errors) == (limit == "1KB")


def test_usage_mistakes_exit_with_2_too(run):
    assert run("scan")[0] == 2
    assert run("scna")[0] == 2
    for wrong in (("--pooling", "max"), ("--probe", "deep"), ("--fisher-mode", "false")):
        code, printed, errors = run("scan", "a", "b", *wrong)
        assert (code, printed) == (2, "")
        assert wrong[1] in errors
    assert run("scan", "a", "b", "--head-seeds", "two")[0] == 2


def interrupted(process):
    """Press Ctrl-C until a process ends: what comes while a library loads may be lost in it."""
    for _ in range(6):
        process.send_signal(signal.SIGINT)
        try:
            return process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            continue
    process.kill()
    return process.communicate()


@pytest.mark.whole
def test_ctrl_c_is_one_line_and_leaves_nothing_half_written(tiny, reviews, tmp_path):
    large = tmp_path / "large.csv"
    lines = reviews.read_text().splitlines()
    large.write_text("\n".join([lines[0], *(lines[1:] * 3000)]) + "\n")
    command = ["scan", tiny, large, "-o", tmp_path / "out", "--examples", "all"]
    process = start(*command)
    time.sleep(8)
    assert process.poll() is None
    printed, errors = interrupted(process)
    assert process.returncode == 130
    assert printed == ""
    again = shlex.join(map(str, ["layerscout", *command]))
    assert (
        errors == f"layerscout: stopped; no file was left incomplete; to continue, run: {again}\n"
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.whole
def test_a_full_disk_is_one_line_and_leaves_nothing_half_written(tiny, reviews, tmp_path):
    def small_files_only():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    process = start("scan", tiny, reviews, "-o", tmp_path / "out", preexec_fn=small_files_only)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 1
    assert errors.startswith("layerscout: cannot write") and "scan.html" in errors
    assert errors.count("\n") == 1
    assert os.listdir(tmp_path / "out") == []  # scan.json would fit, but belongs to scan.html


@pytest.mark.whole
def test_a_full_disk_behind_standard_output_is_one_line():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", "from layerscout.cli import main; main()", "study", "--list"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 1
    assert done.stderr == "layerscout: cannot write the output: No space left on device\n"


def test_a_name_that_no_file_can_hold_is_refused_before_any_work(run, tiny, reviews, tmp_path):
    data = tmp_path / os.fsdecode(b"caf\xe9.csv")
    data.write_bytes(reviews.read_bytes())
    code, printed, errors = run("scan", tiny, data, "-o", tmp_path / "out")
    assert (code, printed, errors.count("\n")) == (2, "", 1)
    assert "names of files must be UTF-8" in errors and r"caf\udce9.csv" in errors
    assert not (tmp_path / "out").exists()


def test_a_terminal_that_does_not_know_its_width(run, tiny, reviews, tmp_path):
    code, printed, errors = run("scan", tiny, reviews, "-o", tmp_path / "out", columns=0)
    assert (code, errors) == (0, "")
    _, wanted, _ = run("scan", tiny, reviews, "-o", tmp_path / "out")  # in 80 columns
    assert re.sub(r"[\d.]+ s; ", "", printed) == re.sub(r"[\d.]+ s; ", "", wanted)


def test_names_do_not_drive_the_terminal(run, tiny, reviews, tmp_path):
    data, out = tmp_path / "red\x1b[31m\nrow.csv", tmp_path / "two\nlines"
    data.write_bytes(reviews.read_bytes())
    for words in (("scan", tiny, data), ("plan", out)):
        code, printed, errors = run(*words, "-o", out)
        assert code == 0 and "\x1b" not in printed + errors
        assert r"red\x1b[31m\nrow" in printed and rf"wrote {tmp_path}/two\nlines/" in printed
    assert run("report", out)[1].splitlines()[0].startswith(rf"wrote {tmp_path}/two\nlines/")


def test_the_last_line_of_a_verb_is_what_comes_next(run, tiny, reviews, tmp_path, cache):
    scanned, model = tmp_path / "scan", tmp_path / "tune" / "model"
    for verb, *arguments in (
        ("scan", tiny, reviews),
        ("plan", scanned),
        ("tune", tiny, reviews, "--plan", "top:1", "--epochs", 1),
        ("evaluate", model, reviews),
        ("compare", tiny, reviews),
    ):
        code, printed, _ = run(verb, *arguments, "-o", tmp_path / verb)
        last = printed.splitlines()[-1]
        assert code == 0 and "wrote " in printed and last.startswith("next, ")
        assert printed.count("next, ") == 1 and ": layerscout " in last


def test_help_and_a_plan_load_nothing_heavy(run, tiny, reviews, tmp_path):
    assert run("scan", tiny, reviews, "-o", tmp_path)[0] == 0
    code = (
        "import sys; from layerscout.cli import main\n"
        "for sys.argv in [['layerscout', *words.split()] for words in sys.argv[1:]]:\n"
        "    try: main()\n"
        "    except SystemExit as ended: assert not ended.code\n"
        "    heavy = {'torch', 'transformers', 'pandas', 'altair', 'pyarrow', 'datasets'}\n"
        "    heavy |= set() if 'plan' == sys.argv[1] else {'numpy'}\n"
        "    assert not heavy & set(sys.modules), (sys.argv, heavy & set(sys.modules))\n"
    )
    verbs = ("scan", "plan", "tune", "truncate", "cache", "demo")
    commands = ["--help", *(f"{verb} --help" for verb in verbs), "--version", f"plan {tmp_path}"]
    output = subprocess.run([sys.executable, "-c", code, *commands], capture_output=True, text=True)
    assert output.returncode == 0, output.stderr
    assert output.stdout.count("Usage") == 7 and "\nlayerscout 0." in output.stdout
    assert "next, tune this plan: layerscout tune" in output.stdout


@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_an_output_that_knows_no_blocks(tiny, reviews, tmp_path, monkeypatch, encoding):
    output = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", output)
    monkeypatch.setattr(sys, "argv", ["layerscout", "scan", str(tiny), str(reviews)])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    output.flush()
    assert not ended.value.code
    assert b"####" in output.buffer.getvalue() and b"< best" in output.buffer.getvalue()


def test_the_package_is_lazy_and_its_names_stay_functions():
    code = (
        "import sys, layerscout as ls\n"
        "assert 'torch' not in sys.modules\n"
        "assert {'scan', 'Task', 'Encoder', 'plot', 'scores'} <= set(dir(ls))\n"
        "for _ in range(2): assert callable(ls.scan) and callable(ls.plot)\n"
        "assert ls.scores.variability_ratio([[0.], [1], [2], [3]], list('abab')) > 0\n"
        "try: ls.nothing\n"
        "except AttributeError as error: assert 'nothing' in str(error)\n"
        "else: raise SystemExit(1)\n"
        "try: ls.Encoder.load('x', precision='float8')\n"
        "except ls.InputError as error: assert 'float8' in str(error)\n"
        "else: raise SystemExit(2)\n"
        "try: ls.scan('x', 'demo', pooling='max')\n"
        "except ls.InputError as error: assert 'max' in str(error)\n"
        "else: raise SystemExit(3)\n"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert output.returncode == 0, output.stderr


@pytest.mark.whole
def test_the_scan_of_the_demo(run, tmp_path):
    code, printed, _ = run("scan", "demo", "demo", "-o", tmp_path)
    assert code == 0
    content = json.loads((tmp_path / "scan.json").read_text())
    values = content["scores"]["variability_ratio"]["values"]
    assert f"{content['task']['examples_used']:,} of 2,000 examples" in printed
    # The layers differ visibly, and neither end is the best.
    assert max(values) > 2 * min(values)
    assert 0 < content["best"]["variability_ratio"] < 6
