"""Options in a file: what `--config` takes, and the `run.yaml` that repeats a run."""

import io
import json
import sys

import pandas as pd
import pytest

from layerscout.yaml import read_yaml


def settings(folder):
    return json.loads((folder / "result.json").read_text())["settings"]


def test_a_run_is_repeated_from_its_file_wherever_the_reader_is(
    run, tiny, reviews, tmp_path, monkeypatch
):
    first, again, other = (tmp_path / name for name in ("first", "again", "other"))
    monkeypatch.chdir(reviews.parent)
    options = ("--plan", "top:1", "--epochs", 2, "--learning-rate", "1e-3,3e-3", "--seed", 3)
    lora = ("--method", "lora", "--rank", 2, "--fresh-head", "--validation", 0.25)
    code, _, errors = run("tune", tiny, reviews.name, *options, *lora, "-o", first, "-q")
    assert (code, errors) == (0, "")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert run("tune", "--config", first / "run.yaml", "-o", again, "-q")[0] == 0
    found, repeated = (pd.read_parquet(at / "predictions.parquet") for at in (first, again))
    pd.testing.assert_frame_equal(found, repeated, check_exact=True)
    assert settings(first)["training"] == settings(again)["training"]
    assert (first / "run.yaml").read_bytes() == (again / "run.yaml").read_bytes()
    written = read_yaml((first / "run.yaml").read_text())
    assert written["data"] == str(reviews) and "output" not in written
    # What is given on the command line goes first.
    config = ("--config", first / "run.yaml", "--epochs", 1, "-o", other, "-q")
    assert run("tune", *config)[0] == 0
    assert settings(other)["epochs"] == 1 and settings(other)["fresh_head"]


def test_a_run_of_piped_data_is_repeated_with_a_pipe(run, tiny, reviews, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "-").touch()  # is not what - means
    piped = pd.read_csv(reviews).to_csv(index=False, sep="^").encode()
    for given in (
        ("tune", tiny, "-", "--sep", "^", "--plan", "top:1", "--epochs", 1, "-o", "a"),
        ("tune", "--config", "a/run.yaml", "-o", "b"),
    ):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(piped)))
        assert run(*given, "-q")[::2] == (0, "")
    written = read_yaml((tmp_path / "a" / "run.yaml").read_text())
    assert (written["data"], written["sep"]) == ("-", "^")
    found, repeated = (pd.read_parquet(tmp_path / at / "predictions.parquet") for at in "ab")
    pd.testing.assert_frame_equal(found, repeated, check_exact=True)


def test_a_file_is_written_by_hand(run, tiny, reviews, tmp_path, write):
    text = f"""
        model: {tiny}
        data: {reviews}
        plan: top:1
        method: adapter
        method_options: {{bottleneck: 4}}
        learning_rate: [1e-3, 1e-2]
        epochs: 1
        fresh_head: false
        metric:
    """
    config = write("mine.yaml", text)
    assert run("tune", "--config", config, "-o", tmp_path / "out", "-q")[0] == 0
    found = json.loads((tmp_path / "out" / "result.json").read_text())
    assert found["method_options"]["bottleneck"] == 4
    assert [one["learning_rate"] for one in found["runs"]] == [1e-3, 1e-2]


def test_scan_takes_a_file_too(run, tiny, reviews, tmp_path, write):
    config = write("mine.yaml", f"data: {reviews}\nscores: [nc1, ridge]\nbalanced: true")
    # The model stands first on the command line, the data come from the file.
    assert run("scan", tiny, "--config", config, "-o", tmp_path / "out", "-q")[0] == 0
    assert set(json.loads((tmp_path / "out" / "scan.json").read_text())["scores"]) == {
        "nc1",
        "ridge",
    }


BOMB = "\n".join(
    ["l0: &l0 [1]"]
    + [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 12)]
    + ["seed: *l11"]
)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("learning-rate: 1e-3", "unknown option 'learning-rate', did you mean 'learning_rate'?"),
        ("config: a.yaml", "unknown option 'config'"),
        ("epochs: {a: 1}", "`epochs` takes a value or a list, got {'a': 1}"),
        ("epochs: 0", "`epochs` must be a whole number from 1 on, got 0"),
        ("epochs: 2.5", "mine.yaml: `epochs` must be a whole number, got 2.5"),
        ("epochs: many", "mine.yaml: `epochs` must be a whole number, got 'many'"),
        ("epochs: [1, 2]", "mine.yaml: `epochs` must be a whole number, got [1, 2]"),
        ("weight_decay: few", "mine.yaml: `weight_decay` must be a number, got 'few'"),
        ("precision: half", "`precision` cannot be used ('half' is not one of 'float32', "),
        ("epochs: true", "`epochs` must not be true or false (unquoted), got True"),
        ("fresh_head: sometimes", "`fresh_head` must be true or false, got 'sometimes'"),
        ("model: demo", "Missing argument 'DATA'"),
        ("- epochs", "must have options with their values"),
        ("epochs: 1\nepochs: 2", 'not valid YAML, line 2: found duplicate key "epochs"'),
        ("text: !!python/object:os.system x", "not valid YAML"),
        (BOMB, "more than 100,000 values"),
    ],
)
def test_what_is_no_option_is_refused(run, write, text, line):
    told = () if "model" in text else ("demo", "demo")
    code, printed, errors = run("tune", *told, "--config", write("mine.yaml", text), columns=200)
    assert (code, printed) == (2, "") and line in errors
    assert "Traceback" not in errors


def test_a_file_that_is_not_there_is_refused(run, tmp_path):
    code, _, errors = run("tune", "--config", tmp_path / "none.yaml")
    assert code == 2 and errors.startswith(f"layerscout: cannot read {tmp_path / 'none.yaml'}: ")
