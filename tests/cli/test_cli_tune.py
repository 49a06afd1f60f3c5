"""The verbs tune, truncate and cache, as a person uses them."""

import json
import os
import re
import shutil
import signal
import time
from unittest.mock import Mock

import pandas as pd
import pytest
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForSequenceClassification

from conftest import start
from layerscout.errors import InputError
from layerscout.reporting import list_uses
from layerscout.states import cache_path, clear_cache, write_entry

QUICK = ("--epochs", 2, "--learning-rate", "1e-3", "--batch-size", 24)


def content(folder):
    return json.loads((folder / "result.json").read_text())


def test_from_scan_to_plan_to_a_tuned_model(run, tiny, reviews, tmp_path, capsys):
    scanned, out = tmp_path / "scan", tmp_path / "out"
    assert run("scan", tiny, reviews, "-o", scanned, "-q")[0] == 0
    assert run("plan", scanned, "--strategy", "top:2", "-q")[0] == 0
    code, printed, errors = run(
        "tune", tiny, reviews, "--plan", scanned / "plan.json", "-o", out, *QUICK
    )
    assert (code, errors) == (0, "")
    found = content(out)
    assert found["plan"]["notation"] == "(3, 4, 4)"
    files = [".snapshots.lock", "model", "predictions.parquet", "result.json", "run.yaml"]
    assert sorted(os.listdir(out)) == files
    share = found["flops"]["train"] / found["flops"]["full_train"]
    value = found["best"]["value"]
    line = (
        f"tuned 2 of 4 blocks, {share:.0%} of the FLOPs of full fine-tuning, accuracy {value:.3f}"
    )
    assert line in printed
    assert "blocks 1 to 2 ran once" in printed and "◀ kept" in printed
    assert printed.index(line) < printed.index("Rows: the true class") < printed.index("◀ kept")
    learnt = found | {"majority": 0.0, "interval": None, "confusion": []}
    exec(list_uses(learnt, str(out))[1][1])
    assert capsys.readouterr().out in ("['bad']\n", "['good']\n")
    predictions = pd.read_parquet(out / "predictions.parquet")
    assert (predictions.label == predictions.prediction).mean() == pytest.approx(value)
    model = AutoModelForSequenceClassification.from_pretrained(out / "model")
    assert model.config.id2label == {0: "bad", 1: "good"}
    code, _, errors = run("scan", out, reviews)  # the folder around a model
    assert code == 2 and f"did you mean {out / 'model'}?" in errors


def test_faults_of_the_data_are_said_once_and_before_the_work(run, tiny, tmp_path, monkeypatch):
    data = tmp_path / "x.csv"
    data.write_text("text,label\n" + "good,a\nbad,b\n,b\n" * 20)
    command = ("tune", tiny, data, "--plan", "head:2", "-o", tmp_path / "out", *QUICK)
    assert run(*command)[2].count(f"20 of 60 rows of {data} have an empty text") == 1
    monkeypatch.setattr("layerscout.tuning.tune", Mock(side_effect=InputError("stopped")))
    assert re.search(r"have an empty text\n(.*\n)+layerscout: stopped", run(*command)[2])


def test_the_result_of_another_training_is_not_lost(run, tiny, reviews, tmp_path):
    out = tmp_path / "out"
    command = ("tune", tiny, reviews, "-q", "-o", out, *QUICK)
    assert run(*command, "--plan", "head:2")[0] == 0
    first = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    for resume in ((), ("--resume",)):
        code, _, errors = run(*command, "--plan", "head:3", *resume)
        assert code == 2 and "--overwrite replaces it" in errors
    code, printed, errors = run(*command, "--plan", "head:2", "--resume", "--json")
    assert code == 0 and "there is nothing to resume" in errors
    assert printed == (out / "result.json").read_text()
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == first
    assert run(*command, "--plan", "head:2")[0] == 0  # the same again
    (out / "result.json").write_text("{")
    assert run(*command, "--plan", "head:2")[0] == 2
    assert run(*command, "--plan", "head:3", "--overwrite")[0] == 0
    assert content(out)["plan"]["notation"] == "head:3"


def test_a_grid_shows_its_runs(run, tiny, reviews, tmp_path):
    options = ("--plan", "top:1", "--learning-rate", "1e30,1e-3", "--seed", "0,1", "--epochs", 1)
    code, printed, errors = run("tune", tiny, reviews, "-o", tmp_path / "out", *options)
    runs = [(r["learning_rate"], r["seed"]) for r in content(tmp_path / "out")["runs"]]
    assert code == 0 and runs == [(1e30, 0), (1e30, 1), (1e-3, 0), (1e-3, 1)]
    rows = [line.split() for line in printed.splitlines()]
    assert ["1e+30", "0", "–", "–", "–", "diverged"] in rows and "ended early" in errors
    assert printed.count("0.001 ") >= 2


def test_json_alone_and_quiet(run, tiny, reviews, tmp_path):
    options = ("--plan", "top:1", "-o", tmp_path / "out", *QUICK)
    code, printed, errors = run("tune", tiny, reviews, *options, "--json")
    assert (code, errors) == (0, "")
    assert json.loads(printed) == content(tmp_path / "out")
    assert run("tune", tiny, reviews, *options, "--quiet") == (0, "", "")


def test_a_training_that_is_not_kept_took_time_too(run, tiny, reviews, tmp_path, monkeypatch):
    monkeypatch.setattr("layerscout.tuning.free.is_better", lambda *_: False)
    monkeypatch.setattr("layerscout.tuning.free.is_trusted", lambda *_: False)
    options = ("-o", tmp_path / "out", "--epochs", 1, "--learning-rate", "1e-9")
    code, printed, _ = run("tune", tiny, reviews, *options)
    assert code == 0 and content(tmp_path / "out")["free"]["kept"]
    took = content(tmp_path / "out")["seconds"]["training"]
    assert f"a training that was no better {took:.1f} s" in " ".join(printed.split())


def test_options_reach_the_training(run, tiny, reviews, tmp_path):
    options = ("--keep", "last", "--patience", 1, "--warmup", 0.2, "--weight-decay", 0.01)
    options += ("--max-grad-norm", 1, "--metric", "f1", "--examples", 40, "--max-length", 16)
    options += ("--trunk-dropout", "--fresh-head", "--validation", 0.25, "--precision", "bfloat16")
    options += ("--accumulation", 2, "--batching", "shuffled")
    out = tmp_path / "out"
    assert run("tune", tiny, reviews, "--plan", "top:1", "-o", out, *options, *QUICK)[0] == 0
    found = content(out)
    expected = {"keep": "last", "patience": 1, "warmup": 0.2, "weight_decay": 0.01}
    expected |= {"max_grad_norm": 1.0, "metric": "f1", "examples": 40, "max_length": 16}
    expected |= {"trunk_dropout": True, "fresh_head": True, "validation": 0.25}
    expected |= {"precision": "bfloat16", "validation_examples": 24, "batch_size": 24}
    expected |= {"epochs": 2}
    expected |= {"accumulation": 2, "batching": "shuffled"}
    assert {name: found["settings"][name] for name in expected} == expected
    assert found["metric"] == "f1" and found["trunk"]["kept"] is False


def test_the_epoch_of_the_lowest_loss_is_told_like_the_others(run, tiny, reviews, tmp_path):
    options = ("--keep", "lowest-loss", "--learning-rate", 3e-3, "--accumulation", 3)
    out = tmp_path / "out"
    assert run("tune", tiny, reviews, "--plan", "top:1", "-o", out, *QUICK, *options)[0] == 0
    found = content(out)
    (only,) = found["runs"]
    lowest = min(only["curve"], key=lambda epoch: epoch["loss"])
    expected = {"epoch": lowest["epoch"], "value": lowest["value"]}
    assert found["keep"] == "lowest-loss" and found["lowest-loss"] == expected
    assert next(iter(found["metrics"].values())) == pytest.approx(lowest["value"])
    card = (out / "model" / "README.md").read_text()
    assert "which were also used to choose the epoch" in card and "batches of 24, 3 a step" in card
    assert run("report", out, "-o", tmp_path / "page")[0] == 0
    assert "lowest loss" in (tmp_path / "page" / "report.html").read_text()


def test_strategies_of_the_data_go_by_a_scan(run, tiny, reviews, tmp_path):
    assert run("scan", tiny, reviews, "-o", tmp_path / "scan", "-q")[0] == 0
    path = tmp_path / "scan" / "scan.json"
    scanned = json.loads(path.read_text())
    scanned["scores"]["head_quality"]["values"] = [0.1, 0.5, 0.9, 0.6, 0.2]
    path.write_text(json.dumps(scanned))
    options = ("--scan", tmp_path / "scan", "--plan", "best-up:1@top", "-o", tmp_path / "out")
    assert run("tune", tiny, reviews, *options, *QUICK)[0] == 0
    assert content(tmp_path / "out")["plan"]["notation"] == "(3, 3, 4)"


def test_divergence_is_work_that_failed(run, tiny, reviews, tmp_path):
    overflowing = shutil.copytree(tiny, tmp_path / "big")
    weights = load_file(overflowing / "model.safetensors")
    weights["encoder.layer.2.output.dense.weight"].fill_(1e38)
    save_file(weights, overflowing / "model.safetensors", {"format": "pt"})
    for model, more, words in (
        (tiny, ("--learning-rate", "1e30"), "use a lower --learning-rate"),
        (overflowing, (), "it overflows before any update"),
    ):
        out = tmp_path / f"of {model.name}"
        code, _, errors = run("tune", model, reviews, "--plan", "top:1", *more, "-o", out)
        assert code == 1 and words in errors and errors.count("\n") == 1
        assert ("lower" in errors) == bool(more), "a lower rate would not help a broken model"
        assert os.listdir(out) == [".snapshots.lock"]


@pytest.mark.whole
def test_a_kill_leaves_the_earlier_result_and_the_trunk(tiny, reviews, tmp_path, run, cache):
    out = tmp_path / "out"
    assert run("tune", tiny, reviews, "--plan", "top:1", "-o", out, *QUICK)[0] == 0
    earlier = (out / "result.json").read_bytes(), sorted(os.listdir(out / "model"))
    options = ("--plan", "(4, 4, 4)", "--epochs", 10_000, "--max-length", 16, "--overwrite")
    clear_cache()
    process = start("tune", tiny, reviews, *options, "-o", out)
    deadline = time.monotonic() + 120
    # Whole ones: what is being written has a name that begins with a dot.
    while len(list(cache.glob("trunks/[!.]*.json"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert ((out / "result.json").read_bytes(), sorted(os.listdir(out / "model"))) == earlier
    other = tmp_path / "other"
    again = start("tune", tiny, reviews, "--plan", "top:1", "--max-length", 16, "-o", other, *QUICK)
    assert "found in the cache" in again.communicate(timeout=300)[0]


def test_the_cache_is_listed_and_cleared(run, tiny, reviews, tmp_path, cache):
    with write_entry(cache_path("kept", "b" * 64), 100, 10**6) as (data, about):
        data.write_bytes(bytes(100))
        about |= {"kind": "states", "model": "m", "pooling": "mean", "texts": 2000}
    assert "states  mean of all states, 2,000 texts" in run("cache", "list")[1]
    assert run("cache", "clear", "-q")[:2] == (0, "")
    code, printed, _ = run("cache", "list")
    assert code == 0 and "0 entries" in printed
    assert run("tune", tiny, reviews, "--plan", "top:1", "-o", tmp_path / "out", *QUICK)[0] == 0
    code, printed, _ = run("cache", "list")
    assert code == 0 and "4 entries" in printed and "state 3" in " ".join(printed.split())
    # The states of the free head of both splits are there, too.
    listed = [one for one in json.loads(run("cache", "list", "--json")[1]) if "cut" in one]
    assert [(entry["cut"], entry["model"]) for entry in listed] == [(3, str(tiny))] * 2
    first = next(cache.glob("trunks/*.bin"))
    first.with_suffix(".json").unlink()
    first.unlink()
    (cache / "trunks" / f".{'a' * 64}-x.layerscout-part.bin").write_bytes(bytes(2_000_000))
    printed = run("cache", "list")[1]
    assert "3 entries, " in printed and "and 1 unfinished file, 2.0 MB, in" in printed
    size = sum(path.stat().st_size for path in cache.rglob("*") if path.is_file())
    code, printed, _ = run("cache", "clear")
    assert code == 0 and f"removed {size / 1e6:,.1f} MB" in printed
    assert [path for path in cache.rglob("*") if path.is_file()] == []


def test_truncate(run, tiny, tmp_path):
    out = tmp_path / "short"
    code, printed, errors = run("truncate", tiny, "--head", 2, "-o", out)
    assert (code, printed) == (0, f"wrote {out}\n")
    assert "trained on state 4 and now reads state 2" in errors
    assert AutoModel.from_pretrained(out).config.num_hidden_layers == 2


def test_formats_are_added_to_what_was_written(run, tiny, reviews, tmp_path):
    out = tmp_path / "out"
    options = ("--plan", "top:1", "-o", out, *QUICK, "--export", "sentence-transformers")
    code, _, errors = run("tune", tiny, reviews, *options)
    assert (code, errors) == (0, f"added to {out / 'model'}: sentence-transformers\n")
    assert (out / "model" / "modules.json").is_file()
    # What a failed export or push lacks is added to the result that is there.
    (out / "model" / "modules.json").unlink()
    code, _, errors = run("tune", tiny, reviews, *options, "--resume")
    assert code == 0 and "nothing to resume" in errors
    assert (out / "model" / "modules.json").is_file()
    short = tmp_path / "short"
    assert run("truncate", tiny, "--head", 2, "-o", short, "--export", options[-1])[0] == 0
    assert (short / "1_Pooling" / "config.json").is_file()


def test_a_tuned_model_is_pushed(run, tiny, reviews, tmp_path, monkeypatch):
    pushed = []
    monkeypatch.setattr("layerscout.models.check_push", lambda name, overwrite: None)

    def push(folder, name, *, private):
        pushed.append((folder, name, private, (folder / "README.md").is_file()))
        return f"https://huggingface.co/{name}"

    monkeypatch.setattr("layerscout.models.push", push)
    out = tmp_path / "out"
    options = ("--plan", "top:1", "-o", out, *QUICK, "--push-to-hub", "me/reviews", "--private")
    code, _, errors = run("tune", tiny, reviews, *options)
    assert (code, errors) == (0, "pushed to https://huggingface.co/me/reviews\n")
    assert pushed == [(out / "model", "me/reviews", True, True)]
