"""The plan verb, from a scan to plan.json and the next command; and `Scan.plan`."""

import json
import shlex

import pytest

from conftest import real
from layerscout.errors import InputError
from layerscout.plans import Adapter, Plan, make_method, make_plan
from layerscout.scanning import Scan, scan
from layerscout.scores import DEFAULT
from layerscout.tuning.choice import read_plan
from tiny import tiny_checkpoint

READS = {
    "values": [0.5, 0.6, 0.9, 0.8, 0.65],
    "low": [0.45, 0.55, 0.85, 0.75, 0.6],
    "high": [0.55, 0.65, 0.95, 0.85, 0.7],
    "details": {"separable_from_best": [True] * 5, "named": 3, "majority": 0.5},
}


@pytest.fixture(scope="module")
def scanned(tiny, tmp_path_factory):
    """Return the folder of a scan, the best state of which is made to be 2 of 4."""
    folder = tmp_path_factory.mktemp("scan")
    scan(str(tiny), "demo", examples=64, progress=False).save(folder)
    path = folder / "scan.json"
    content = json.loads(path.read_text())
    content["scores"][DEFAULT] |= READS
    path.write_text(json.dumps(content))
    return folder


@pytest.fixture
def changed(scanned, tmp_path):
    """Return a folder whose scan.json is the scan with changes made to it."""

    def changed(change):
        content = json.loads((scanned / "scan.json").read_text())
        change(content)
        (tmp_path / "scan.json").write_text(json.dumps(content))
        return tmp_path

    return changed


def test_a_plan_from_one_command(run, scanned, tiny):
    code, printed, errors = run("plan", scanned)
    assert (code, errors) == (0, "")
    content = json.loads((scanned / "plan.json").read_text())
    assert (content["verb"], content["best"], content["score"]) == ("plan", 2, DEFAULT)
    assert content["strategy"] == "(3, 3, 3)"
    assert content["plan"] == {"tuned": [3], "head": 3, "notation": "(3, 3, 3)"}
    assert (content["budget"], content["untie"]) == (0.5, False)
    assert f"plan (3, 3, 3): {content['reason']}" in printed
    assert content["work"]["examples"] == 2000
    lines = printed.splitlines()
    rows = {o["strategy"]: next(li for li in lines if li.startswith(o["strategy"] + " "))
            for o in content["options"]}  # fmt: skip
    for option in content["options"]:
        row = rows[option["strategy"]]
        assert option["plan"]["notation"] in row
        assert f"{option['relative']:.1%}" in row
        assert f"{option['value']:.3g} @ {option['state']}" in row
        assert ("◆" in row) == option["efficient"]
    assert all(len(line) <= 80 for line in [*rows.values(), lines[2]])
    assert f"next: layerscout tune {tiny} demo --plan '(3, 3, 3)'" in lines


def test_the_budget_and_the_strategy_decide(run, scanned, tmp_path):
    chosen = {}
    for name, options in {
        "large": ["--budget", 0.9],
        "small": ["--budget", 0.27],
        "asked": ["--strategy", "best-up:1@head"],
        "notation": ["--strategy", "blocks:1,3@4"],
        "long": ["--epochs", 50],
    }.items():
        assert run("plan", scanned, *options, "-o", tmp_path / name, "-q") == (0, "", "")
        chosen[name] = json.loads((tmp_path / name / "plan.json").read_text())
    notations = {name: content["plan"]["notation"] for name, content in chosen.items()}
    assert notations["large"] == "(1, 3, 3)"
    assert notations["small"] == "head:3"
    assert notations["asked"] == "(3, 3, 3)"
    assert notations["notation"] == "blocks:1,3@4"
    assert chosen["asked"]["reason"] == "best-up:1@head was asked for"
    assert "blocks:1,3@4" in [option["strategy"] for option in chosen["notation"]["options"]]
    # The trunk is paid once, so more epochs make plans that keep one relatively cheaper.
    assert chosen["long"]["work"]["epochs"] == 50
    cheapest = {n: c["options"][-1]["relative"] for n, c in chosen.items()}
    assert cheapest["long"] < cheapest["large"]


def test_json_alone_on_standard_output(run, scanned, tmp_path):
    code, printed, _ = run("plan", scanned, "-o", tmp_path, "--json", "--method", "full")
    assert code == 0 and printed == (tmp_path / "plan.json").read_text()
    assert json.loads(printed)["method"] == "full" and "method_options" not in printed


def test_the_next_command_can_be_typed(run, changed):
    def change(content):
        content["model"]["name"] = "my models/bert; rm"
        content["settings"] |= {"data": "it's.csv", "validation": 0.2, "max_length": 64, "seed": 3}

    _, printed, _ = run("plan", changed(change), "--epochs", 4)
    line = next(li for li in printed.splitlines() if li.startswith("next: "))
    assert shlex.split(line.removeprefix("next: ")) == [
        "layerscout", "tune", "my models/bert; rm", "it's.csv", "--validation", "0.2",
        "--max-length", "64", "--seed", "3", "--epochs", "4", "--plan", "(3, 3, 3)",
    ]  # fmt: skip


@pytest.mark.parametrize(("given", "counted", "carried"), [(None, 50, None), (5, 5, "5")])
def test_few_examples_are_passed_over_as_often_as_by_tune(run, changed, given, counted, carried):
    """58 examples are 2 steps; the next command says how long only where tune would differ."""

    def few(content):
        content["task"] |= {"validation_examples": 6, "examples_available": 58}

    folder = changed(few)
    assert Scan.load(folder).planning(epochs=given).work.epochs == counted
    _, printed, _ = run("plan", folder, *([] if given is None else ["--epochs", given]))
    line = next(li for li in printed.splitlines() if li.startswith("next: "))
    words = shlex.split(line)
    assert (words[words.index("--epochs") + 1] if "--epochs" in words else None) == carried


def test_validation_examples_are_known_or_a_tenth(changed):
    def unknown(content):
        content["task"] |= {"validation_examples": None, "examples_available": 1000}

    def known(content):
        content["task"] |= {"validation_examples": 70, "examples_available": 1000}

    works = [Scan.load(changed(change)).planning().work for change in (unknown, known)]
    assert [(work.examples, work.validation) for work in works] == [(900, 100), (1000, 70)]


def test_the_state_named_decides_and_not_the_best(run, changed):
    def top(content):
        content["scores"][DEFAULT] |= {"values": [0.5, 0.6, 0.7, 0.8, 0.9]}
        content["scores"][DEFAULT]["details"]["named"] = 4

    reason = run("plan", changed(lambda content: None))[1].split("plan (")[1]
    assert reason.startswith("3, 3, 3): state 3: held-out quality of a head is 0.80 there, against")
    printed = run("plan", changed(top), "--strategy", "best-down:1@top")[1]
    assert "plan (4, 4, 4): best-down:1@top was asked for" in printed
    assert "plan (4, 4, 4): state 4: held-out" in run("plan", changed(top))[1]


def test_shared_weights_are_copied_when_asked_for(run, tmp_path):
    folder = tiny_checkpoint(tmp_path / "albert", "albert")
    scan(str(folder), "demo", examples=40, progress=False).save(tmp_path)
    _, printed, _ = run("plan", tmp_path, "--strategy", "top:1")
    assert "--untie gives each its own copy" in printed
    assert "--plan '(4, 4, 4)' --untie" in printed
    content = json.loads((tmp_path / "plan.json").read_text())
    assert content["untie"] is True
    counts = content["model"]["parameters"]
    assert content["cost"]["total"] == counts["total"] + 3 * counts["blocks"][0]
    assert content["cost"]["trainable"] == counts["blocks"][0] + counts["head"]


@pytest.mark.parametrize(
    ("options", "name", "described"),
    [
        (["--bottleneck", "8"], "adapter", {"bottleneck": 8, "adapter_init": "bert"}),
        (["--rank", "2"], "lora", {"rank": 2, "lora_alpha": 16.0}),
        ([], "prefix-tuning", {"virtual_tokens": 16}),
    ],
)
def test_a_method(run, scanned, tmp_path, tiny, options, name, described):
    code, printed, errors = run("plan", scanned, "--method", name, *options, "-o", tmp_path)
    assert (code, errors) == (0, "")
    assert printed.splitlines()[1].startswith(f"method {name}: ")
    content = json.loads((tmp_path / "plan.json").read_text())
    assert (content["method"], content["method_options"]) == (name, described)
    made = make_method(name, **described)
    assert read_plan(tmp_path / "plan.json").method == made
    planned = Scan.load(scanned).planning(method=made)
    assert planned.choice.plan.notation == content["plan"]["notation"]
    assert planned.cost.trainable == content["cost"]["trainable"] < content["cost"]["total"] / 3
    assert [o["strategy"] for o in content["options"] if o["strategy"].startswith("head")] == []
    next_one = next(line for line in printed.splitlines() if line.startswith("next: "))
    chosen = ["--method", name, *options, "--plan", content["plan"]["notation"]]
    assert shlex.split(next_one)[1:] == ["layerscout", "tune", str(tiny), "demo", *chosen]


def test_a_method_in_python(scanned):
    found = Scan.load(scanned)
    assert found.plan("full", method="lora") == Plan(range(1, 5), 4, embeddings=False)
    full, adapted = (found.planning("top:2", method=method) for method in ("full", Adapter(4)))
    assert adapted.cost.train < full.cost.train
    assert adapted.full == full.full == full.options[0].cost
    with pytest.raises(InputError, match="unknown method 'adaptor'"):
        found.plan(method="adaptor")


def test_a_method_of_its_own_for_each_block_unties(run, tmp_path):
    folder = tiny_checkpoint(tmp_path / "albert", "albert")
    scan(str(folder), "demo", examples=40, progress=False).save(tmp_path)
    code, printed, _ = run("plan", tmp_path, "--method", "adapter", "--bottleneck", 4)
    assert code == 0
    assert (
        "this method separates blocks that share weights; --untie gives each its own copy"
        in printed
    )
    content = json.loads((tmp_path / "plan.json").read_text())
    assert content["untie"] is True
    assert "best-up" in [option["strategy"] for option in content["options"]] or not content["best"]
    assert run("plan", tmp_path, "--method", "lora", "--strategy", "full", "-q")[0] == 0
    assert json.loads((tmp_path / "plan.json").read_text())["untie"] is False


def drop(part, key):
    def change(content):
        del content[part][key]

    return change


MISTAKES = {
    "unknown": (None, ["--strategy", "best-dwon:1@top"], "unknown strategy 'best-dwon:1@top'"),
    "no ranking": (None, ["--strategy", "rank:1"], "needs a block score such as fisher"),
    "outside": (None, ["--strategy", "(1, 2, 5)"], "1..4"),
    "too cheap": (None, ["--budget", "0.01"], "the cheapest needs"),
    "per cent": (None, ["--budget", "50"], "above 0 and up to 1"),
    "budget beside a plan": (None, ["--strategy", "top:1", "--budget", "inf"], "up to 1, got inf"),
    "no budget": (None, ["--strategy", "top:1", "--budget", "nan"], "up to 1, got nan"),
    "negative model": (
        lambda content: content["model"].update(hidden_size=-16),
        [],
        "`hidden_size` must be a whole number from 1 on, got -16; scan again",
    ),
    "no such option": (None, ["--rank", "4"], "`rank` is an option of lora, not of the method"),
    "no bottleneck": (
        None,
        ["--method", "adapter", "--bottleneck", "0"],
        "`bottleneck` must be a whole number from 1 on, got 0",
    ),
    "no blocks": (
        None,
        ["--method", "lora", "--strategy", "head:2"],
        "lora tunes blocks, but head:2 tunes none; use --method full",
    ),
    "other attention": (
        lambda content: content["model"].update(family="modernbert"),
        ["--method", "prefix-tuning"],
        "prefix-tuning needs attention without relative positions and without windows",
    ),
    "no epochs": (None, ["--epochs", "0"], "`epochs` must be a whole number from 1 on"),
    "no such score": (None, ["--score", "nc1"], "unknown score of this scan"),
    "older model": (drop("model", "weights"), [], "lacks 'weights'; scan again"),
    "older task": (drop("task", "validation_examples"), [], "scan again"),
    "no best": (
        lambda content: content["scores"][DEFAULT].update(values=[None] * 5),
        ["--strategy", "best-up"],
        "the score found none",
    ),
    "file in the way": (None, ["-o", "SCAN/scan.json"], "scan.json"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_and_exit_code_2(run, changed, mistake):
    change, arguments, rule = MISTAKES[mistake]
    folder = changed(change or (lambda content: None))
    arguments = [a.replace("SCAN", str(folder)) for a in arguments]
    code, printed, errors = run("plan", folder, *arguments)
    assert (code, printed) == (2, "")
    assert errors.startswith("layerscout: ") and errors.count("\n") == 1
    assert rule in errors
    assert not (folder / "plan.json").exists()


def put(part, value):
    return lambda content: content.update({part: value})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda content: content.pop("model"), "it lacks 'model'"),
        (put("model", None), "its model is None"),
        (put("model", {}), "it lacks 'blocks'"),
        (put("task", "x"), "its task is 'x'"),
        (put("task", [1]), "its task is [1]"),
        (put("scores", 3), "its scores is 3"),
        (put("scores", {}), "it has no scores"),
        (put("diagnostics", [1]), "its diagnostics is [1]"),
        (put("stability", [1, 2]), "its stability is [1, 2]"),
        (lambda content: content["scores"][DEFAULT].update(values=[1.0]), "5 finite values"),
        (
            lambda content: content["scores"][DEFAULT].update(values=[float("nan")] * 5),
            "NaN is not finite",
        ),
        (lambda content: content["model"].update(blocks="4"), "`blocks` must be a whole number"),
    ],
)
def test_what_is_wrong_with_a_scan_is_said(run, changed, change, words):
    code, _, errors = run("plan", changed(change))
    assert code == 2 and errors.count("\n") == 1
    assert "scan.json is not a scan: " in errors and words in errors


def test_the_file_of_a_scan_will_do(run, changed):
    path = changed(lambda content: None) / "scan.json"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())  # as some editors put it
    assert run("plan", path, "-q") == (0, "", "")
    assert (path.parent / "plan.json").is_file()


def test_plans_in_python(scanned):
    found = Scan.load(scanned)
    assert found.plan("best-down:1@top") == make_plan("(2, 2, 4)", 4)
    assert found.plan(budget=0.1) == Plan((), 3).on(4)
    assert found.plan() == found.planning().choice.plan == Plan((3,), 3).on(4)
    with pytest.raises(InputError, match="unknown score of this scan"):
        found.plan(score="cca")
    with pytest.raises(InputError, match="a plan must be a Plan, or text"):
        found.plan(None)
    with pytest.raises(InputError, match="whole number from 1 on, got '5'"):
        found.plan(epochs="5")


def test_a_block_score_ranks(changed):
    def change(content):
        fisher = {"of": "blocks", "better": "higher", "values": [None, 1.0, 4.0, 2.0, 3.0]}
        content["scores"]["fisher"] = fisher

    found = Scan.load(changed(change))
    assert found.plan("rank:2").tuned == (2, 4)
    assert "rank:2" in [option.strategy for option in found.planning().options]


@pytest.mark.real
def test_a_real_plan_fits_a_terminal_of_80_columns(run, tmp_path):
    model, data = real("models", "stacked-minilm-12"), real("data", "rte")
    scan(model, data, examples=100, progress=False).save(tmp_path)
    code, printed, _ = run("plan", tmp_path)
    assert code == 0
    table = printed.split("train, infer")[0].splitlines()[2:]
    assert max(map(len, table)) <= 80
    assert sum("(" in line or "head:" in line for line in table) == len(table) - 1
