"""The plan verb, from a scan to plan.json and the next command; and `Scan.plan`."""

import json
import shlex

import pytest

from conftest import real
from layerscout.errors import InputError
from layerscout.plans import Adapter, Plan, make_method, make_plan
from layerscout.scanning import Scan, scan
from layerscout.scores import DEFAULT
from layerscout.tuning.plan_spec import read_plan
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


def merge(content, changes):
    """Change what JSON holds, deep inside as well; ... takes an entry away."""
    for name, value in changes.items():
        if value is ...:
            del content[name]
        elif isinstance(value, dict) and value:
            merge(content.setdefault(name, {}), value)
        else:
            content[name] = value


def leading(**values):
    """Return changes of the score that the plan goes by."""
    return {"scores": {DEFAULT: values}}


@pytest.fixture
def changed(scanned, tmp_path):
    """Return a folder whose scan.json is the scan with changes made to it."""

    def changed(**changes):
        content = json.loads((scanned / "scan.json").read_text())
        merge(content, changes)
        (tmp_path / "scan.json").write_text(json.dumps(content))
        return tmp_path

    return changed


@pytest.fixture(scope="module")
def albert(tmp_path_factory):
    """Return a folder with the scan of a model whose blocks share their weights."""
    folder = tmp_path_factory.mktemp("albert")
    scan(str(tiny_checkpoint(folder / "model", "albert")), "demo", examples=40).save(folder)
    return folder


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
    assert (
        f"next, tune this plan: layerscout tune {tiny} demo --plan '(3, 3, 3)' --head-end solved"
        in lines
    )


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


@pytest.mark.parametrize(
    "passed", [{"texts": 64, "seconds": 20.0}, {"texts": 0, "seconds": 0.0}, {}, {"texts": "a"}]
)
def test_times_follow_from_the_speed_of_the_scan(run, changed, passed):
    folder = changed(passed=passed)
    printed = run("plan", folder)[1]
    content = json.loads((folder / "plan.json").read_text())
    costs = [(one["cost"]["train"], one["seconds"]) for one in (content, *content["options"])]
    if passed.get("seconds"):
        model, T = content["model"], content["work"]["tokens"]
        d, f = model["hidden_size"], model["feed_forward"]
        flops = model["blocks"] * (T * 2 * (4 * d * d + 2 * d * f) + 4 * T * T * d)
        assert all(s == pytest.approx(cost / flops / 64 * 20) for cost, s in costs)
        assert f"; its training takes about {costs[0][1] / 60:.0f} min\n" in printed
        assert f" {costs[1][1] / 3600:.1f} h " in printed  # full fine-tuning
    else:
        assert all(seconds is None for _, seconds in costs)
    assert ("its training takes about" in printed) == bool(passed.get("seconds"))
    assert ("cheaper" in printed) != bool(passed.get("seconds"))


def test_json_alone_on_standard_output(run, scanned, tmp_path):
    code, printed, _ = run("plan", scanned, "-o", tmp_path, "--json", "--method", "full")
    assert code == 0 and printed == (tmp_path / "plan.json").read_text()
    assert json.loads(printed)["method"] == "full" and "method_options" not in printed


def test_the_next_command_can_be_typed(run, changed):
    settings = {"data": "it's.csv", "validation": 0.2, "max_length": 64, "seed": 3}
    folder = changed(model={"name": "my models/bert; rm"}, settings=settings)
    _, printed, _ = run("plan", folder, "--epochs", 4)
    line = next(li for li in printed.splitlines() if li.startswith("next, "))
    assert shlex.split(line.removeprefix("next, tune this plan: ")) == [
        "layerscout", "tune", "my models/bert; rm", "it's.csv", "--validation", "0.2",
        "--max-length", "64", "--seed", "3", "--epochs", "4", "--plan", "(3, 3, 3)",
        "--head-end", "solved",
    ]  # fmt: skip


@pytest.mark.parametrize(("given", "counted", "carried"), [(None, 50, None), (5, 5, "5")])
@pytest.mark.parametrize("rows", [58, 5800])
def test_few_examples_are_passed_over_as_often_as_by_tune(
    run, changed, rows, given, counted, carried
):
    """58 examples are 2 steps; the next command says how long where that was asked for."""
    folder = changed(task={"validation_examples": 6, "examples_available": rows})
    counted = 5 if rows > 58 else counted
    assert Scan.load(folder).planning(epochs=given).work.epochs == counted
    _, printed, _ = run("plan", folder, *([] if given is None else ["--epochs", given]))
    words = shlex.split(next(li for li in printed.splitlines() if li.startswith("next, ")))
    assert (words[words.index("--epochs") + 1] if "--epochs" in words else None) == carried


@pytest.mark.parametrize(("held_out", "counted"), [(None, (900, 100)), (70, (1000, 70))])
def test_validation_examples_are_known_or_a_tenth(changed, held_out, counted):
    folder = changed(task={"validation_examples": held_out, "examples_available": 1000})
    work = Scan.load(folder).planning().work
    assert (work.examples, work.validation) == counted


def test_the_state_named_decides_and_not_the_best(run, scanned, changed):
    reason = run("plan", scanned)[1].split("plan (")[1]
    assert reason.startswith("3, 3, 3): state 3: held-out quality of a head is 0.80 there, against")
    folder = changed(**leading(values=[0.5, 0.6, 0.7, 0.8, 0.9], details={"named": 4}))
    printed = run("plan", folder, "--strategy", "best-down:1@top")[1]
    assert "plan (4, 4, 4): best-down:1@top was asked for" in printed
    assert "plan (4, 4, 4): state 4: held-out" in run("plan", folder)[1]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--strategy", "top:1"], "--untie gives each its own copy"),
        (
            ["--method", "adapter", "--bottleneck", 4],
            "this method separates blocks that share weights; --untie gives each its own copy",
        ),
        (["--method", "lora", "--strategy", "full"], None),
    ],
)
def test_shared_weights_are_copied_where_a_plan_needs_it(run, albert, tmp_path, options, why):
    code, printed, _ = run("plan", albert, *options, "-o", tmp_path)
    content = json.loads((tmp_path / "plan.json").read_text())
    assert code == 0 and content["untie"] is (why is not None)
    assert ("--untie" in printed) is content["untie"] and (why or "") in printed
    if "top:1" in options:
        assert "--plan '(4, 4, 4)' --untie" in printed
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
    next_one = next(line for line in printed.splitlines() if line.startswith("next, "))
    chosen = ["--method", name, *options, "--plan", content["plan"]["notation"]]
    chosen += ["--head-end", "solved"] if name == "lora" else []  # others save what they add
    assert shlex.split(next_one.partition(": ")[2]) == [
        "layerscout",
        "tune",
        str(tiny),
        "demo",
        *chosen,
    ]


def test_a_method_in_python(scanned):
    found = Scan.load(scanned)
    assert found.plan("full", method="lora") == Plan(range(1, 5), 4, embeddings=False)
    full, adapted = (found.planning("top:2", method=method) for method in ("full", Adapter(4)))
    assert adapted.cost.train < full.cost.train
    assert adapted.full == full.full == full.options[0].cost
    with pytest.raises(InputError, match="unknown method 'adaptor'"):
        found.plan(method="adaptor")


NOWHERE = leading(values=[None] * 5)
MISTAKES = [
    ("--strategy best-dwon:1@top", {}, "unknown strategy 'best-dwon:1@top'"),
    ("--strategy rank:1", {}, "needs a block score such as fisher"),
    ("--strategy '(1, 2, 5)'", {}, "1..4"),
    ("--budget 0.01", {}, "the cheapest needs"),
    ("--budget 50", {}, "above 0 and up to 1"),
    ("--strategy top:1 --budget inf", {}, "up to 1, got inf"),
    ("--strategy top:1 --budget nan", {}, "up to 1, got nan"),
    ("--rank 4", {}, "`rank` is an option of lora, not of the method"),
    ("--method adapter --bottleneck 0", {}, "`bottleneck` must be a whole number from 1 on, got 0"),
    ("--method lora --strategy head:2", {}, "lora tunes blocks, but head:2 tunes none; use --meth"),
    ("--method prefix-tuning", {"model": {"family": "modernbert"}}, "needs attention without rela"),
    ("--epochs 0", {}, "`epochs` must be a whole number from 1 on"),
    ("--score nc1", {}, "unknown score of this scan"),
    ("--strategy best-up", NOWHERE, "the score found none"),
    ("-o SCAN/scan.json", {}, "scan.json"),
    # What is wrong with a scan; where it is an older one, it is to be made again.
    ("", {"model": {"hidden_size": -16}}, "must be a whole number from 1 on, got -16; scan again"),
    ("", {"model": {"weights": ...}}, "lacks 'weights'; scan again"),
    ("", {"task": {"validation_examples": ...}}, "scan again"),
    ("", {"model": ...}, "it lacks 'model'"),
    ("", {"model": None}, "its model is None"),
    ("", {"model": {}}, "it lacks 'blocks'"),
    ("", {"model": {"blocks": "4"}}, "`blocks` must be a whole number"),
    ("", {"task": "x"}, "its task is 'x'"),
    ("", {"task": [1]}, "its task is [1]"),
    ("", {"scores": 3}, "its scores is 3"),
    ("", {"scores": {}}, "it has no scores"),
    ("", {"diagnostics": [1]}, "its diagnostics is [1]"),
    ("", {"stability": [1, 2]}, "its stability is [1, 2]"),
    ("", leading(values=[1.0]), "5 finite values"),
    ("", leading(values=[float("nan")] * 5), "NaN is not finite"),
]


@pytest.mark.parametrize(("options", "changes", "words"), MISTAKES)
def test_a_mistake_is_one_line_and_exit_code_2(run, changed, options, changes, words):
    folder = changed(**changes)
    options = options.replace("SCAN", str(folder))
    code, printed, errors = run("plan", folder, *shlex.split(options))
    assert (code, printed, errors.count("\n")) == (2, "", 1)
    assert errors.startswith("layerscout: ") and words in errors
    assert options or "scan again" in words or "scan.json is not a scan: " in errors
    assert not (folder / "plan.json").exists()


def test_the_file_of_a_scan_will_do(run, changed):
    path = changed() / "scan.json"
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
    fisher = {"of": "blocks", "better": "higher", "values": [None, 1.0, 4.0, 2.0, 3.0]}
    found = Scan.load(changed(scores={"fisher": fisher}))
    assert found.plan("rank:2").tuned == (2, 4)
    assert "rank:2" in [option.strategy for option in found.planning().options]


@pytest.mark.real
def test_a_real_plan_fits_a_terminal_of_80_columns(run, tmp_path):
    model, data = real("models", "stacked-minilm-12"), real("data", "rte")
    scan(model, data, examples=40, max_length=16, progress=False).save(tmp_path)
    code, printed, _ = run("plan", tmp_path)
    assert code == 0
    table = printed.split("train, infer")[0].splitlines()[2:]
    assert max(map(len, table)) <= 80
    assert sum("(" in line or "head:" in line for line in table) == len(table) - 1
