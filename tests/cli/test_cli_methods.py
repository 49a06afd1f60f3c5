"""Tuning by every method, and runs that are stopped or shared, as a person uses them."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from conftest import whole_only
from layerscout.models import saved_adapters as deltas
from layerscout.tuning import stepping
from telling import texts_of
from tiny import tiny_checkpoint
from tuned import NO_DROPOUT

TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
QUICK = ("--epochs", 2, "--learning-rate", "1e-3", "--batch-size", 16)
# The options of each method, by which it is small enough for the tiny checkpoints.
OPTIONS = {
    "full": {},
    "adapter": {"bottleneck": 8, "adapter_init": "identity"},
    "lora": {"rank": 2, "lora_alpha": 4.0},
    "prefix-tuning": {"virtual_tokens": 3},
}


def asked(method):
    """Write a method and its options as arguments."""
    options = ((f"--{name.replace('_', '-')}", value) for name, value in OPTIONS[method].items())
    return ("--method", method, *(part for option in options for part in option))


def content(folder):
    return json.loads((folder / "result.json").read_text())


def weights(folder):
    return load_file(folder / "model" / "model.safetensors")


def logits_of(model, source, out, reviews):
    """Ask a model for the logits of the examples in predictions.parquet; and give those there."""
    predictions = pd.read_parquet(out / "predictions.parquet")
    texts = pd.read_csv(reviews).text[predictions.row].tolist()
    inputs = AutoTokenizer.from_pretrained(source)(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        found = model.eval()(**inputs).logits
    return found.numpy(), np.stack(predictions.logits)


# --- Methods -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plan", "method", "more"),
    [
        *(("(2, 3, 3)", method, ()) for method in OPTIONS),
        ("(2, 3, 3)", "adapter", ("--classifier", "mean-linear")),
        ("(2, 3, 3)", "lora", ("--keep-adapter",)),
        *whole_only(*(("top:1", method, ()) for method in OPTIONS)),
    ],
)
def test_every_method_by_one_command(plan, method, more, run, tiny, reviews, tmp_path):
    out, folder = tmp_path / "out", tmp_path / "out" / "model"
    options = ("--plan", plan, *asked(method), *more, "-o", out)
    code, printed, errors = run("tune", tiny, reviews, *options, *QUICK)
    assert code == 0 and f"wrote {folder}" in printed
    assert errors == "" or more, "a head that starts from random weights may learn too little"
    files = {"model", "predictions.parquet", "result.json", "run.yaml", ".snapshots.lock"}
    assert set(os.listdir(out)) == files
    found, files = content(out), set(os.listdir(folder))
    assert (found["method"], found["method_options"]) == (method, OPTIONS[method])
    card, source = (folder / "README.md").read_text(), tiny
    if "--keep-adapter" in more:
        from peft import PeftModel

        assert {"adapter_config.json", "adapter_model.safetensors"} <= files
        assert not (folder / "model.safetensors").exists()
        # A local base of this name would be fetched from the hub, where it is another model.
        assert f'"{tiny.name}"' not in card and "path/to/the/base/model" in card
        usage = (
            card.split("```python\n")[1].split("```")[0].replace("path/to/this/folder", str(folder))
        )
        exec(usage.replace("path/to/the/base/model", str(tiny)), names := {})
        model = names["model"]
        assert isinstance(model, PeftModel) and model.config.id2label == {0: "bad", 1: "good"}
    elif more or method in ("adapter", "prefix-tuning"):
        assert files == {"README.md", "config.json", "trained.safetensors", *TOKENIZER}
        model = deltas.load_tuned(folder)[1]
        stored = load_file(folder / "trained.safetensors").values()
        assert sum(t.numel() for t in stored) == found["parameters"]["trainable"]
        assert "layerscout.load(" in card and "pipeline(" not in card
        assert str(tiny.parent) not in card
    else:
        assert {"config.json", "model.safetensors", "tokenizer.json"} <= files
        model, source = AutoModelForSequenceClassification.from_pretrained(folder), folder
        assert not any("lora" in name for name, _ in model.named_parameters())
        assert model.config.id2label == {0: "bad", 1: "good"}
    if not more:
        assert model.config.num_hidden_layers == found["plan"]["head"]
    np.testing.assert_allclose(*logits_of(model, source, out, reviews), rtol=1e-4, atol=1e-5)


def test_a_plan_brings_its_method(run, tiny, reviews, tmp_path):
    scanned, out = tmp_path / "scan", tmp_path / "out"
    assert run("scan", tiny, reviews, "-o", scanned, "-q")[0] == 0
    options = ("--strategy", "top:2", "--method", "adapter", "--bottleneck", 8)
    code, printed, _ = run("plan", scanned, *options)
    assert code == 0 and "adapter" in printed
    planned = ("--plan", scanned / "plan.json", "-o", out, "--overwrite", *QUICK)
    expected = {"bottleneck": 8, "adapter_init": "bert"}
    for more, name, options in (
        ((), "adapter", expected),
        (("--bottleneck", 4), "adapter", expected | {"bottleneck": 4}),
        (("--method", "full"), "full", {}),
    ):
        assert run("tune", tiny, reviews, *planned, *more)[0] == 0
        found = content(out)
        assert (found["method"], found["method_options"]) == (name, options)
        assert found["plan"]["notation"] == "(3, 4, 4)"


def test_one_folder_takes_the_next_method(run, tiny, reviews, tmp_path):
    """A checkpoint makes way for a small folder, that for one of peft, and back again."""
    for method, *more in (("full",), ("adapter",), ("lora", "--keep-adapter"), ("full",)):
        options = ("--plan", "top:1", *asked(method), *more, "--epochs", 1)
        code, _, errors = run("tune", tiny, reviews, *options, "-o", tmp_path, "--overwrite")
        assert code == 0 and "layerscout:" not in errors, method
    assert not set(os.listdir(tmp_path / "model")) & {"trained.safetensors", "adapter_config.json"}


@pytest.mark.parametrize("method", ["lora", *whole_only("adapter", "prefix-tuning")])
def test_a_grid_against_full_fine_tuning(method, run, tiny, reviews, tmp_path):
    options = ("--plan", "top:1", *asked(method), "--learning-rate", "1e-3,1e-2", "--epochs", 1)
    out = tmp_path / "out"
    code, _, errors = run("tune", tiny, reviews, *options, "--against", "full", "-o", out)
    assert (code, errors) == (0, "")
    found = content(out)
    assert [r["learning_rate"] for r in found["runs"]] == [1e-3, 1e-2]
    assert [r["learning_rate"] for r in found["against"]["runs"]] == [1e-3, 1e-2]
    assert found["against"]["plan"]["tuned"] == [1, 2, 3, 4]
    # By the same method: the embeddings stay as they are.
    assert found["against"]["parameters"]["trainable"] < found["parameters"]["total"]


def test_albert_takes_adapters_once_untied(run, reviews, tmp_path, capsys):
    model, out = tiny_checkpoint(tmp_path / "albert", "albert"), tmp_path / "out"
    capsys.readouterr()
    options = ("--plan", "top:1", *asked("adapter"), "-o", out, *QUICK)
    code, printed, errors = run("tune", model, reviews, *options)
    assert (code, printed, errors.count("\n")) == (2, "", 1) and "--untie" in errors
    assert not out.exists()
    assert run("tune", model, reviews, *options, "--untie")[0] == 0
    found = logits_of(deltas.load_tuned(out / "model")[1], model, out, reviews)
    np.testing.assert_allclose(*found, rtol=1e-4, atol=1e-5)


# --- Runs that are stopped ----------------------------------------------------------------------

# Six steps an epoch; `last`, so that every one of them matters.
LONG = ("--plan", "top:1", "--keep", "last", *QUICK, "--epochs", 5, "-q")

# The command line, but for a rest in the middle of the fourth epoch.
RESTING = """
import time
from layerscout import cli
from layerscout.tuning import stepping

rate = stepping.learning_rate_at

def resting(step, *arguments):
    if step == 20:
        time.sleep(600)
    return rate(step, *arguments)

stepping.learning_rate_at = resting
cli.main()
"""


def epoch_of(out):
    """Return the epoch of the last snapshot; 0 if there is none."""
    states = list(out.glob("snapshots/*/state.json"))
    return max((json.loads(state.read_text())["epoch"] for state in states), default=0)


def stopped(signal_, model, data, out, cache):
    """Start a training, and end it by a signal in its fourth epoch."""
    arguments = map(str, ("tune", model, data, *LONG, "-o", out))
    process = subprocess.Popen(
        [sys.executable, "-c", RESTING, *arguments],
        env=os.environ | {"LAYERSCOUT_CACHE": str(cache)},
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 300
    while epoch_of(out) < 3 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal_)
    _, errors = process.communicate(timeout=60)
    assert epoch_of(out) == 3 and not (out / "result.json").exists(), errors
    return process.returncode, errors


@pytest.mark.whole
def test_a_killed_run_goes_on_to_the_same_weights(run, tiny, reviews, tmp_path):
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    code, _ = stopped(signal.SIGKILL, tiny, reviews, resumed, tmp_path / "cache of one")
    assert code == -signal.SIGKILL
    assert run("tune", tiny, reviews, *LONG, "-o", whole)[0] == 0
    code, printed, errors = run("tune", tiny, reviews, *LONG, "--resume", "-o", resumed)
    assert (code, printed) == (0, "") and "layerscout:" not in errors
    expected, found = weights(whole), weights(resumed)
    assert expected.keys() == found.keys()
    assert [name for name in found if not torch.equal(found[name], expected[name])] == []
    curves = [content(folder)["runs"][0]["curve"] for folder in (whole, resumed)]
    assert curves[0] == curves[1] and len(curves[0]) == 5
    assert not (resumed / "snapshots").exists()


@pytest.mark.parametrize(
    "method",
    [
        "adapter",
        *(pytest.param(name, marks=pytest.mark.whole) for name in ("lora", "prefix-tuning")),
    ],
)
def test_so_does_every_method(method, run, tiny, reviews, tmp_path, monkeypatch):
    """Here Ctrl-C comes in the fourth epoch, at step 20 of 30."""
    true, steps = stepping.learning_rate_at, []

    def interrupted(*arguments):
        steps.append(arguments[0])
        if len(steps) == 20:
            raise KeyboardInterrupt
        return true(*arguments)

    out, whole = tmp_path / "out", tmp_path / "whole"
    options = (*LONG, *asked(method))
    monkeypatch.setattr(stepping, "learning_rate_at", interrupted)
    code, _, errors = run("tune", tiny, reviews, *options, "-o", out)
    assert code == 130 and errors.endswith("\n") and epoch_of(out) == 3
    assert run("tune", tiny, reviews, *options, "--resume", "-o", out)[0] == 0
    assert steps[20:] == list(range(18, 30))
    assert run("tune", tiny, reviews, *options, "-o", whole)[0] == 0
    name = "model.safetensors" if method == "lora" else "trained.safetensors"
    resumed, expected = (folder / "model" / name for folder in (out, whole))
    assert resumed.read_bytes() == expected.read_bytes()


def test_a_stopped_run_is_left_alone_by_all_but_its_resumption(
    run, tiny, reviews, tmp_path, monkeypatch
):
    out, rate = tmp_path / "out", stepping.learning_rate_at

    def press(step, *arguments):
        if step == 20:
            raise KeyboardInterrupt
        return rate(step, *arguments)

    monkeypatch.setattr(stepping, "learning_rate_at", press)
    assert run("tune", tiny, reviews, *LONG, "-o", out)[0] == 130 and epoch_of(out) == 3
    for more, words in (
        ((), ["--resume"]),
        (("--resume", "--plan", "top:2"), ["plan (4, 4, 4)", "(3, 4, 4)"]),
        (("--resume", "--method", "adapter"), ["method", "full", "adapter"]),
        (("--resume", "--classifier", "mean-linear"), ["classifier", "family", "mean-linear"]),
        (("--resume", "--learning-rate", "1e-2"), ["learning rates", "0.001", "0.01"]),
        (("--resume", "--examples", 40), ["training examples"]),
        (("--resume", "--epochs", 6), ["epochs 5", "6"]),
    ):
        code, printed, errors = run("tune", tiny, reviews, *LONG, *more, "-o", out)
        assert (code, printed, errors.count("\n")) == (2, "", 1)
        assert [word for word in words if word not in errors] == [], errors
        assert epoch_of(out) == 3


def test_nothing_to_resume_is_a_start(run, tiny, reviews, tmp_path):
    options = ("--plan", "top:1", "--resume", "-o", tmp_path / "out", *QUICK)
    assert run("tune", tiny, reviews, *options)[0] == 0
    assert not (tmp_path / "out" / "snapshots").exists()


@pytest.mark.whole
def test_control_c_leaves_a_snapshot(tiny, reviews, tmp_path):
    out = tmp_path / "out"
    code, errors = stopped(signal.SIGINT, tiny, reviews, out, tmp_path / "cache")
    assert code == 130 and errors.startswith("layerscout: stopped") and errors.count("\n") == 1


# --- Presets -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "expected", "rates", "epochs"),
    [
        (("phang2021", "--epochs", 1), {"warmup": 1000, "max_steps": None}, [1e-5], 1),
        (
            ("phang2021", "--max-steps", 25, "--warmup", 0.1, "--learning-rate", "1e-3"),
            {"max_steps": 25, "warmup": 0.1},
            [1e-3],
            2,  # of 22 steps
        ),
        *whole_only(
            (
                ("tamkin2020", "--as-released", "--epochs", 1),
                {"batch_size": 8, "schedule": "linear", "max_grad_norm": 1.0, "as_released": True},
                [2e-5],
                1,
            )
        ),
    ],
)
def test_presets_train_as_papers_did_but_for_what_is_given(
    more, expected, rates, epochs, run, tiny, reviews, tmp_path
):
    options = ("--plan", "top:1", "--preset", *more, "-o", tmp_path / "out")
    code, _, errors = run("tune", tiny, reviews, *options)
    assert code == 0
    # A warm-up of so many steps is longer than such a training, which is worth a warning.
    assert ("never reached its peak" in errors) == (expected.get("warmup", 0) >= 1)
    found = content(tmp_path / "out")
    expected = {"batch_size": 4, "keep": "last", "as_released": False} | expected
    expected |= {"preset": more[0]}
    assert {name: found["settings"][name] for name in expected} == expected
    assert [r["learning_rate"] for r in found["runs"]] == rates
    assert len(found["runs"][0]["curve"]) == epochs


# --- Several processes -------------------------------------------------------------------------


# Runs the command line, and notes how many texts of the trunk each process computes.
NOTING = """
import atexit, json, os
from layerscout.states import trunks
from layerscout.cli import main
from layerscout.models import encoder

encoder.CPU_TOKENS = 64
counts, numbers = [], trunks.TrunkSource.numbers

def noting(self, rows):
    counts.append(len(rows))
    return numbers(self, rows)

def note():
    with open("{folder}/rows-" + os.environ["RANK"] + ".json", "w") as file:
        json.dump(counts, file)

trunks.TrunkSource.numbers = noting
atexit.register(note)
main()
"""


def launch(folder, program, arguments, cache):
    """Run a program in two processes, with a cache that nobody else has."""
    launched = "from accelerate.commands.launch import main; main()"
    several = ("--multi_gpu", "--num_processes", 2, "--num_machines", 1, "--main_process_port", 0)
    several += ("--mixed_precision", "no", "--dynamo_backend", "no", folder / "program.py")
    (folder / "program.py").write_text(program)
    return subprocess.run(
        [sys.executable, "-c", launched, *map(str, (*several, *arguments))],
        env=os.environ | {"ACCELERATE_USE_CPU": "true", "LAYERSCOUT_CACHE": str(cache / "of two")},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.whole
@pytest.mark.parametrize(
    "more", [(), ("--accumulation", 3, "--batching", "shuffled", "--max-grad-norm", 0.5)]
)
def test_two_processes_reach_the_same(run, reviews, tmp_path, cache, monkeypatch, more):
    calm = tiny_checkpoint(tmp_path / "calm", "bert", **NO_DROPOUT)
    monkeypatch.setattr("layerscout.models.encoder.CPU_TOKENS", 64)
    options = (
        "--plan",
        "top:2",
        *QUICK,
        *more,
        "--batch-size",
        5,
    )  # so that the last batch is uneven
    assert run("tune", calm, reviews, *options, "-q", "-o", tmp_path / "one")[0] == 0
    arguments = ("tune", calm, reviews, *options, "-o", tmp_path / "two")
    done = launch(tmp_path, NOTING.format(folder=tmp_path), arguments, cache)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("tuned 2 of 4 blocks") == done.stdout.count("wrote ") == 1
    rows = [json.loads((tmp_path / f"rows-{rank}.json").read_text()) for rank in "01"]
    assert sum(map(sum, rows)) == 96  # each text ran through the trunk once, in one of the two
    assert all(len(some) >= 3 for some in rows) and abs(sum(rows[0]) - sum(rows[1])) <= 24
    one, two = content(tmp_path / "one"), content(tmp_path / "two")
    assert (one["settings"]["processes"], two["settings"]["processes"]) == (1, 2)
    for mine, theirs in zip(one["runs"][0]["curve"], two["runs"][0]["curve"], strict=True):
        assert mine == pytest.approx(theirs, rel=1e-4)
    found = [
        np.stack(pd.read_parquet(tmp_path / name / "predictions.parquet").logits)
        for name in ("one", "two")
    ]
    np.testing.assert_allclose(*found, rtol=1e-3, atol=1e-4)
    assert sorted(os.listdir(tmp_path / "two")) == sorted(os.listdir(tmp_path / "one"))


# Runs the command line; the second process would settle for another head, and find it worse.
DOUBTING = """
import os
from layerscout import scores
from layerscout.cli import main
from layerscout.tuning import free

if os.environ["RANK"] == "1":
    solve_head = scores.solve_head
    scores.solve_head = lambda states, *rest, **named: solve_head([states[-1]], *rest, **named)
    free.is_better = lambda *_: True
main()
"""


@pytest.mark.whole
def test_the_first_process_decides_whether_the_free_head_is_kept(run, tmp_path, cache):
    calm, data = tiny_checkpoint(tmp_path / "calm", "bert", **NO_DROPOUT), tmp_path / "data.csv"
    labels = np.arange(80) % 2
    pd.DataFrame({"text": texts_of(labels, 0.7, 0), "label": labels}).to_csv(data)
    options = ("tune", calm, data, "--epochs", 1, "--learning-rate", "1e-9", "--test", data)
    options += ("--head-end", "trained")
    assert run(*options, "-q", "-o", tmp_path / "one")[0] == 0
    done = launch(tmp_path, DOUBTING, (*options, "-o", tmp_path / "two"), cache)
    assert done.returncode == 0, done.stderr
    one, two = content(tmp_path / "one"), content(tmp_path / "two")
    assert one["free"]["kept"] and two["free"]["kept"] and two["settings"]["processes"] == 2
    assert one["solved"] == two["solved"] and one["test"]["metrics"] == two["test"]["metrics"]
    found = [pd.read_parquet(tmp_path / name / "predictions.parquet") for name in ("one", "two")]
    np.testing.assert_allclose(*(np.stack(each.logits) for each in found), atol=1e-4)
