"""Refusals: what cannot be used is one line and exit code 2, before anything is written."""

import pytest

# By verb: the options, and what the line says. Where no option comes first, they name model and
# data themselves. Words in capitals stand for paths. What Python refuses as well is tested in the
# room that refuses it; here is a case of each kind.
REFUSALS = {
    "scan": {
        "no model": (["MISSING", "DATA"], "there is no model folder"),
        "no data": (["MODEL", "missing.csv"], "no such file"),
        "misspelt column": (["--text", "txt"], "did you mean 'text'"),
        "misspelt task": (["--task", "sst3"], "did you mean 'sst2'"),
        "no memory": (["--device", "meta"], "'meta' cannot be used"),
        "plot in a file": (["--plot", "FILE/c.png"], "is a file"),
        "two numbers": (["--examples", "10,20"], "'10,20'"),
        "empty model": (["", "DATA"], "name of the model is empty"),
        "empty plot": (["--plot", ""], ".png, .svg or .pdf"),
        "endless model": (["a" * 300, "DATA"], "a...: File name too long; give another"),
        "endless folder": (["-o", "a" * 300], "File name too long"),
        "not numbers": (["--per-class", "5;6"], "'5;6'"),
        "too long": (["--max-length", "9999"], "max_length must be in"),
        "folder in use": (["-o", "FILE"], "cannot write to"),
        "no such plot": (["--plot", "curve.gif"], ".png, .svg or .pdf"),
        "no checkpoint": (["--checkpoint", "MISSING"], "there is no model folder"),
        "no size": (["--cache-limit", "much"], "'much'"),
        "negative size": (["--cache-limit", "-1GB"], "-1GB"),
        "half known scores": (["--score", "nc1,lgme"], "did you mean 'logme'"),
        "numbers": (["MODEL", "NUMBERS"], "--regression"),
        "misspelt label": (["--label", "label,txt"], "did you mean 'text'"),
        "no separator": (["--label-separator", ""], "got an empty string"),
        "no thread": (["--threads", "0"], "`threads` must be a whole number from 1 on, got 0"),
        "no model for a cluster": (
            ["MISSING", "DATA", "--backend", "ray"],
            "there is no model folder",
        ),
    },
    "tune": {
        "misspelt strategy": (["--plan", "tops:2"], "did you mean"),
        "no plan file": (["--plan", "missing.json"], "cannot read the plan"),
        "no scan": (["--scan", "missing"], "there is no scan.json"),
        "rate of words": (["--learning-rate", "fast"], "`learning_rate` takes numbers, got 'fast'"),
        "examples of words": (["--examples", "some"], "`examples` must be a whole number or 'all'"),
        "fraction": (["--validation", "1.5"], "between 0 and 1"),
        "nothing to untie": (["--untie"], "share no weights"),
        "budget beside a plan": (["--budget", "5"], "up to 1, got 5"),
        "option of another": (["--method", "lora", "--bottleneck", "8"], "an option of adapter"),
        "misspelt tracker": (["--track", "tensorbord"], "did you mean 'tensorboard'"),
        "no label": (["--validation", "UNLABELLED"], "every row needs a label"),
        "unseen label": (["--validation", "UNSEEN"], "every class must occur in training"),
        "misspelt format": (["--export", "onx"], "unknown format 'onx'"),
        "format of an adapter": (
            ["--export", "sentence-transformers", "--method", "adapter"],
            "format sentence-transformers needs a whole model",
        ),
        "format of a mean": (
            ["--export", "sentence-transformers", "--classifier", "mean-linear"],
            "is one of sentence-transformers with its head",
        ),
        "format of a head on the mean": (
            ["--export", "sentence-transformers-classifier"],
            "needs a linear head on the mean of the tokens",
        ),
        "two formats in one place": (
            ["--export", "sentence-transformers,sentence-transformers-classifier"],
            "are the same files",
        ),
        "private": (["--private"], "--private needs --push-to-hub"),
    },
    "truncate": {"no block to remove": (["MODEL", "--head", "4"], "in 1..3")},
    "study": {
        "no recipe": ([], "name a recipe"),
        "misspelt recipe": (["xie2022-tabel6"], "did you mean 'xie2022-table6'?"),
        "nothing to show": (["--show", "none"], "unknown recipe 'none'"),
        "no change": (["lodha2023-layers", "--set", "seed"], "--set takes PATH=VALUE"),
        "misspelt place": (["lodha2023-layers", "--set", "seeed=3"], "did you mean 'seed'?"),
        "half a list": (["lodha2023-layers", "--set", "seed=[0"], "must be valid YAML"),
        "epochs of words": (
            ["lodha2023-layers", "--set", "epochs=many"],
            "settings.epochs: `epochs` must be a whole number",
        ),
        "no data": (["lodha2023-layers", "--data", "nowhere"], "`data` must be a folder"),
        "no model": (
            ["lodha2023-layers", "--set", "model=./none", "--set", "task=demo"],
            "can be run: there is",
        ),
        "no device": (["lodha2023-layers", "--device", "gpu9"], "gpu9"),
    },
}


@pytest.mark.parametrize(
    ("verb", "case"), [(verb, case) for verb, cases in REFUSALS.items() for case in cases]
)
def test_a_mistake_is_one_line_and_exit_code_2(
    verb, case, run, tiny, reviews, tmp_path, monkeypatch
):
    options, words = REFUSALS[verb][case]
    files = {
        "FILE": "",
        "NUMBERS": "text,label\na,0.5\nb,1.5\nc,2.5\n",
        "UNLABELLED": "text,label\nsome words,\n",
        "UNSEEN": "text,label\nsome words,superb\nothers,bad\n",
    }
    for name, text in files.items():
        (tmp_path / f"{name}.csv").write_text(text)
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    stands = {
        "MODEL": tiny,
        "DATA": reviews,
        "MISSING": "./missing",
        "FILE/c.png": "FILE.csv/c.png",
    }
    stands |= {name: f"{name}.csv" for name in files}
    if verb != "study" and (not options or options[0].startswith("-")):
        options = ["MODEL", "DATA", *options]
    if verb == "tune" and "--plan" not in options:
        options = [*options, "--plan", "top:1"]
    if "-o" not in options and verb != "study":
        options = [*options, "-o", "out"]
    code, printed, errors = run(verb, *(stands.get(option, option) for option in options))
    assert (code, printed) == (2, "")
    assert errors.startswith("layerscout: ") and errors.count("\n") == 1, errors
    assert words in errors
    assert sorted(tmp_path.rglob("*")) == before
