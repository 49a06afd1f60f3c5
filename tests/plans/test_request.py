"""An option is declared once: every entrance has it, checks it and explains it alike."""

import inspect
import json
import runpy
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import layerscout as ls
from inputs import expect_refused
from layerscout.cli import app
from layerscout.cli.options import flatten
from layerscout.plans import (
    COUNT,
    METHODS,
    CompareRequest,
    EvaluateRequest,
    LoRA,
    PlanRequest,
    ScanRequest,
    TuneRequest,
    add_options,
    describe_given,
    explain_options,
    make_request,
    option,
    options_of,
    resolve_request,
)
from layerscout.studies.arguments import VERBS, Reading, add_arguments

ROOT = Path(__file__).parents[2]

REQUESTS = {
    "scan": ScanRequest,
    "plan": PlanRequest,
    "tune": TuneRequest,
    "compare": CompareRequest,
    "evaluate": EvaluateRequest,
}

# What a study has no use for: it has grids in place of a second plan, and reads whole models.
NOT_IN_STUDIES = {"tune": {"against", "budget", "keep_adapter"}}


def flags(verb):
    """Name the options of a verb of the command line by the names of their parameters."""
    return {parameter.name for parameter in get_command(app).get_command(None, verb).params}


@pytest.mark.parametrize("verb", REQUESTS)
def test_the_command_line_has_every_option(verb):
    wanted = set(options_of(REQUESTS[verb]))
    if "method_options" in wanted:
        wanted -= {"method_options"}
        wanted |= {name for kind in METHODS.values() for name in options_of(kind)}
    assert wanted <= flags(verb)


@pytest.mark.parametrize("verb", ["scan", "tune", "compare", "evaluate"])
def test_python_has_every_option(verb):
    parameters = inspect.signature(getattr(ls, verb)).parameters
    assert set(options_of(REQUESTS[verb])) <= set(parameters)
    assert parameters["max_length"].default == 128


@pytest.mark.parametrize("verb", VERBS)
def test_a_recipe_has_every_option(verb):
    missing = set(options_of(REQUESTS[verb])) - set(VERBS[verb].model_fields)
    assert missing == NOT_IN_STUDIES.get(verb, set())


@pytest.mark.parametrize("request_type", REQUESTS.values())
def test_every_option_is_explained(request_type):
    assert set(options_of(request_type)) <= set(explain_options(request_type))


def test_editors_know_every_option():
    write_page = runpy.run_path(ROOT / "bench" / "typed_options.py")["write_page"]
    page = (ROOT / "src" / "layerscout" / "plans" / "typed_options.pyi").read_text()
    assert page == write_page(), "run make docs"
    assert "class TuneOptions(TypedDict, total=False):" in page and "    epochs: int\n" in page


@dataclass(frozen=True)
class More(TuneRequest):
    """A tuning with one option more."""

    brightness: int = option(3, COUNT)
    """How bright the blocks are."""


def test_a_new_option_is_one_field():
    seen = []

    def verb(*, request: More) -> None:
        """Tune."""
        seen.append(request)

    import typer

    one = typer.Typer()
    one.command()(flatten(verb))
    helped = CliRunner().invoke(one, ["--help"], env={"COLUMNS": "200"})
    assert "--brightness" in helped.output and "How bright the blocks are." in helped.output
    assert CliRunner().invoke(one, ["--brightness", "5"]).exit_code == 0
    assert CliRunner().invoke(one, []).exit_code == 0
    assert [request.brightness for request in seen] == [5, 3]
    assert "`brightness` must be" in str(CliRunner().invoke(one, ["--brightness", "0"]).exception)

    @add_options(More)
    def tune(encoder, **options):
        return make_request(More, options)

    assert inspect.signature(tune).parameters["brightness"].default == 3
    assert tune(None, brightness=7).brightness == 7
    expect_refused("`brightness` must be … got 'x'", tune, None, brightness="x")
    arguments = add_arguments(Reading, More)
    assert arguments.model_validate({"brightness": 2}).brightness == 2
    with pytest.raises(ValueError, match="`brightness` must be"):
        arguments.model_validate({"brightness": 0})


def test_what_was_given_is_what_makes_the_request_again():
    request = make_request(
        TuneRequest,
        {"plan": "reinit:2 + top:1", "learning_rate": "1e-4,3e-4", "seed": 5, "batch_size": 32},
    )
    given = json.loads(json.dumps(describe_given(request)))
    assert given == {
        "plan": "top:1",
        "edits": "reinit:2",
        "learning_rate": [1e-4, 3e-4],
        "seed": [5],
        "batch_size": 32,
    }
    assert make_request(TuneRequest, given) == request


def test_none_is_not_given_and_what_is_given_goes_before_a_preset():
    request = make_request(TuneRequest, {"preset": "xie2022", "epochs": None, "batch_size": 32})
    settings, classifier = request.settle(
        "cola", 1000, "matthews_correlation", "classification", "ab"
    )
    assert (settings.epochs, settings.batch_size, classifier) == (20, 32, "family")
    assert settings.metric == "matthews_correlation"
    assert request.given == {"preset", "batch_size"}


def test_a_negative_warmup_is_refused():
    expect_refused("`warmup` must be 0 or more, got -1", make_request, TuneRequest, {"warmup": -1})


def test_a_request_or_options():
    request = TuneRequest(epochs=3)
    assert resolve_request(TuneRequest, request, {}) is request
    expect_refused("or as arguments … epochs", resolve_request, TuneRequest, request, {"epochs": 3})
    expect_refused(
        "unknown option 'epoch', did you mean 'epochs'", make_request, TuneRequest, {"epoch": 1}
    )


def test_the_method_is_that_of_the_plan_unless_one_is_asked_for():
    asked = make_request(TuneRequest, {"method_options": {"rank": 3}})
    assert asked.with_method(LoRA(5, 4.0)).method == LoRA(3, 4.0)
    expect_refused("`rank` is an option of lora", asked.with_method, None)
    assert make_request(TuneRequest, {"method": "lora"}).with_method(None).method == LoRA()


def test_numbers_of_text_are_those_of_lists():
    text = make_request(TuneRequest, {"learning_rate": "1e-4,3e-4", "seed": "2,3", "examples": "9"})
    numbers = {"learning_rate": [1e-4, 3e-4], "seed": (2, 3), "examples": 9}
    assert asdict(text) == asdict(make_request(TuneRequest, numbers))


@pytest.mark.parametrize(
    ("examples", "classes", "expected"),
    [(5000, 2, 5), (1280, 2, 5), (230, 2, 25), (58, 2, 50), (900, 27, 38), (900, 1, 7), (8, 2, 50)],
)
def test_few_examples_are_passed_over_more_often(examples, classes, expected):
    """A binary task takes 200 steps of 32 examples, one of 27 classes 1,080; 50 epochs at most."""
    kind, labels = "classification" if classes > 1 else "regression", [""] * classes
    settings, _ = TuneRequest(plan="top:2").settle("mine", examples, "accuracy", kind, labels)
    assert settings.epochs == expected
    assert settings.steps(examples) >= min(max(200, 40 * classes), 50 * -(-examples // 32))


@pytest.mark.parametrize(
    ("loss", "examples", "classes", "expected"),
    [
        (None, 64, 2, 10),
        (None, 900, 6, 4),
        (None, 900, 60, 11),
        ("contrastive", 16, 2, 20),
        ("contrastive", 192, 6, 2),
        ("contrastive", 480, 60, 6),
    ],
)
def test_steps_before_a_solved_head_grow_with_the_classes(loss, examples, classes, expected):
    """Of 16 examples: 40, 10 for each class and 4 epochs; of contrasts 20, 3 and 2."""
    how = {"staged": True, "loss": loss}
    settle = TuneRequest(plan="top:2").settle
    labels = [""] * classes
    settings, _ = settle("mine", examples, "accuracy", "classification", labels, **how)
    assert settings.epochs == expected


@pytest.mark.parametrize("given", [{"epochs": 2}, {"max_steps": 7}, {"preset": "xie2022"}])
def test_what_is_asked_about_the_length_holds_with_few_examples_too(given):
    request = TuneRequest(plan="top:2", **given)
    many, few = (
        request.settle("mine", n, "accuracy", "classification", "ab")[0] for n in (5000, 58)
    )
    assert few == many


@pytest.mark.whole
def test_a_wrong_option_is_an_error_of_types(tmp_path):
    """As an editor would tell it, before anything runs."""
    calls = {
        'ls.tune("demo", "demo", "top:1", epochs="x")': "incompatible type",
        'ls.tune("demo", "demo", "top:1", epoch=3)': "Unexpected keyword",
        'ls.scan("demo", "demo", examples=1.5)': "incompatible type",
        'ls.compare("demo", "demo", examples="some")': "incompatible type",
        'ls.tune("demo", "demo", "top:1", epochs=3)': "",
    }
    (tmp_path / "calls.py").write_text("\n".join(["import layerscout as ls", *calls]))
    command = [sys.executable, "-m", "mypy", tmp_path / "calls.py"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    for line, words in enumerate(calls.values(), start=2):
        assert (f"calls.py:{line}: error: " in told) == bool(words) and words in told
