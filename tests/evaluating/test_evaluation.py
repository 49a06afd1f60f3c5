"""A tuned model under edits: every figure against the plain way, and the work that is done."""

import json
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoModelForMultipleChoice, AutoModelForSequenceClassification

import layerscout as ls
from inputs import as_csv, expect_refused
from layerscout.data import evaluate as judge
from layerscout.evaluating import ablations, evaluate, evaluation
from layerscout.models import Encoder
from layerscout.reporting import describe_evaluation
from telling import numbers_task
from tiny import EACH_FAMILY, change_json, tiny_checkpoint
from tuned import NAMES, cheaply, choices_task, task_of

TASK = task_of(n=24, held=9)
BRIEF = {"head_epochs": 2, "head_learning_rate": 1e-3}


@pytest.fixture(scope="module", params=EACH_FAMILY)
def tuned(request, tmp_path_factory):
    return saved(tmp_path_factory.mktemp("tuned"), request.param, TASK)


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("tuned"), "bert", TASK)


def saved(folder, family, task, plan="top:1", epochs=1, **settings):
    """Save a checkpoint of a family with a head for a task; its base stays beside it."""
    base = tiny_checkpoint(folder / "base", family, **settings)
    cheaply(base, task, "full" if family == "albert" else plan, epochs=epochs).save(folder)
    return folder / "model"


def quietly(model, task, **options):
    return evaluate(model, task, progress=False, **options)


def plain_logits(folder, texts, head=4, skipped=(), auto=AutoModelForSequenceClassification):
    """Run texts one by one through a model that is loaded shorter, or whose blocks do nothing."""
    encoder, model = load_plain(folder, head, auto)
    blocks = model.base_model.get_submodule(encoder.family.blocks)
    calls = 0
    tuples = encoder.family.tuples

    def passing(module, args, output):
        nonlocal calls
        calls += 1
        if (calls - 1) % head + 1 in skipped:
            return (args[0], *output[1:]) if tuples else args[0]
        return output

    hooks = [block.register_forward_hook(passing) for block in blocks]
    conv = getattr(
        model.base_model.get_submodule(encoder.family.blocks.rpartition(".")[0]), "conv", None
    )
    if conv is not None and 1 in skipped:
        hooks.append(conv.register_forward_hook(lambda module, args, output: args[1]))
    found = []
    for text in texts:
        inputs = encoder.batch(encoder.tokenize([text]), np.arange(1))
        with torch.no_grad():
            found.append(model(**inputs).logits[0].numpy())
    for hook in hooks:
        hook.remove()
    return np.array(found)


@lru_cache(maxsize=5)
def load_plain(folder, head, auto):
    """Load the encoder of a folder, and its model of so many blocks; nobody changes them."""
    encoder = Encoder.load(folder)
    options = {"num_hidden_layers": head, "ignore_mismatched_sizes": True}
    if getattr(encoder.model.config, "layer_types", None):
        options["layer_types"] = encoder.model.config.layer_types[:head]
    return encoder, auto.from_pretrained(folder, **options).eval()


def value(logits):
    return judge("accuracy", TASK.validation.labels, logits)


def logits_of(found, name):
    table = pd.DataFrame(found.predictions)
    return np.array(table[table["edit"] == name]["logits"].tolist())


def test_truncation_is_the_model_loaded_shorter(tuned):
    found = quietly(tuned, TASK)
    texts = TASK.validation.texts
    for head in (1, 2, 3, 4):
        expected = plain_logits(tuned, texts, head)
        name = f"truncate:{head}" if head < 4 else ""
        np.testing.assert_allclose(logits_of(found, name), expected, atol=1e-4)
        assert found.content["truncation"]["untuned"][head] == pytest.approx(value(expected))
    assert found.metrics["accuracy"] == found.content["truncation"]["untuned"][4]


@pytest.mark.parametrize(
    "options",
    [
        {"method": "adapter"},
        {"method": "prefix-tuning"},
        {"method": "adapter", "classifier": "mean-linear", "edits": "skip:2"},
    ],
)
def test_what_was_trained_apart_from_its_base_is_judged(tmp_path, options):
    base = tiny_checkpoint(tmp_path / "base", "bert")
    result = cheaply(base, TASK, "(3, 3, 3)", epochs=2, **options)
    result.save(tmp_path)
    model = tmp_path / "model"
    assert not (model / "model.safetensors").exists()
    found = quietly(model, TASK, edits=["truncate", "skip:1"])
    assert found.metrics == pytest.approx(result.content["metrics"])
    expected = np.array(result.predictions["logits"])
    np.testing.assert_allclose(logits_of(found, ""), expected, atol=1e-5)
    loaded, encoder = ls.load(model).model, Encoder.load(base)
    tokens = encoder.batch(encoder.tokenize(TASK.validation.texts), np.arange(9))
    with torch.no_grad():
        np.testing.assert_allclose(expected, loaded(**tokens).logits.numpy(), atol=1e-5)
    assert found.content["model"]["name"] == str(model)
    assert len(found.content["truncation"]["untuned"]) == loaded.config.num_hidden_layers + 1
    expect_refused("only on whole checkpoints", quietly, model, TASK, tune_heads=True)
    other = numbers_task()
    expect_refused("is tuned for", quietly, model, other)


def test_skipping_is_blocks_that_do_nothing(tuned, monkeypatch):
    seen = {}
    whole = ablations.ablate

    def noted(*arguments):
        seen["ablated"] = whole(*arguments)
        return seen["ablated"]

    monkeypatch.setattr(ablations, "ablate", noted)
    found = quietly(tuned, TASK, edits=("skip",))
    assert found.content["truncation"] == {}
    matrix = found.content["skips"]
    for i, j in np.ndindex(4, 4):
        if i > j:
            assert matrix[i][j] is None
            continue
        expected = plain_logits(tuned, TASK.validation.texts, skipped=range(i + 1, j + 2))
        logits = seen["ablated"][1][i + 1, j + 1]
        np.testing.assert_allclose(logits, expected, atol=1e-4)
        assert matrix[i][j] == pytest.approx(value(expected))


def test_single_edits_are_judged_and_undone(tuned):
    edits = ["skip:2-3"] if "albert" in str(tuned) else ["skip:2-3", "truncate:2 + skip:2"]
    found = quietly(tuned, TASK, edits=[*edits, "truncate"])
    expected = plain_logits(tuned, TASK.validation.texts, skipped=(2, 3))
    np.testing.assert_allclose(logits_of(found, "skip:2-3"), expected, atol=1e-4)
    assert [one["edit"] for one in found.content["edits"]] == edits
    np.testing.assert_allclose(
        logits_of(found, ""), plain_logits(tuned, TASK.validation.texts), atol=1e-4
    )


@pytest.mark.parametrize(("edits", "passes"), [(("truncate",), 12), (("truncate", "skip"), 298)])
def test_block_passes_are_as_few_as_can_be(tmp_path, monkeypatch, edits, passes):
    model, entered = saved(tmp_path, "bert", TASK, num_hidden_layers=12), []
    load = evaluation.load_tuned

    def counted(*arguments, **options):
        loaded = load(*arguments, **options)
        for block in loaded[1].base_model.encoder.layer:
            block.attention.register_forward_hook(lambda *_: entered.append(1))
        return loaded

    monkeypatch.setattr(evaluation, "load_tuned", counted)
    monkeypatch.setattr(ablations, "make_batches", lambda encoder, data: [np.arange(len(data))])
    quietly(model, TASK, edits=edits)
    assert len(entered) == passes


def test_heads_tuned_again_tell_the_classes_from_what_the_states_hold(tmp_path, telling):
    task = ls.Task.load(telling, validation=0.3)
    model = saved(tmp_path, "bert", task, "full", epochs=3)
    heads = {"tune_heads": True, "original": tmp_path / "base"}
    asked = {"head_epochs": 4, "head_learning_rate": 1e-2, "examples": 120}
    found = quietly(model, task, **heads, **asked)
    curves = found.content["truncation"]
    assert set(curves) == {"untuned", "tuned", "tuned_original"}
    assert all(len(curve) == 5 for curve in curves.values())
    # The best of some epochs on the very state that the head was tuned on.
    assert curves["tuned"][4] >= curves["untuned"][4] - 0.05
    assert max(curves["tuned_original"][1:]) > 0.6
    brief = {"head_epochs": 1, "head_learning_rate": "1e-3,3e-3", "examples": 60}
    twice = [quietly(model, task, **heads, **brief) for _ in range(2)]
    assert twice[0].content["truncation"] == twice[1].content["truncation"]
    json.dumps(found.content, allow_nan=False)


def test_a_head_is_tuned_again_at_the_rate_that_suits_its_state(tmp_path, telling):
    task = ls.Task.load(telling, validation=0.3)
    model = saved(tmp_path, "bert", task, "full")
    rates, curves = (3e-4, 1e-3, 3e-3), {}  # Xie et al. 2022, Table 3
    for given in (*[(rate,) for rate in rates], rates):
        asked = {"examples": 60} | ({} if given == rates else {"head_learning_rate": given})
        found = quietly(model, task, tune_heads=True, head_epochs=1, **asked)
        assert found.content["settings"]["heads"]["learning_rates"] == list(given)
        curves[given] = found.content["truncation"]["tuned"]
    best = curves.pop(rates)
    assert best == [max(values) for values in zip(*curves.values(), strict=True)]
    assert len(set(map(tuple, curves.values()))) > 1  # or the rates would not matter


def test_classes_are_found_by_their_names(tmp_path):
    task = task_of(n=24, held=17, classes=3)
    whole = saved(tmp_path, "bert", task)
    model = AutoModelForSequenceClassification.from_pretrained(whole)
    order = [1, 2, 0]  # a cycle, which is not its own inverse
    model.config.id2label = {new: task.labels[old] for new, old in enumerate(order)}
    model.config.label2id = {name: new for new, name in model.config.id2label.items()}
    with torch.no_grad():
        for tensor in (model.classifier.weight, model.classifier.bias):
            tensor.copy_(tensor[order])
    model.save_pretrained(tmp_path / "turned")
    Encoder.load(whole).tokenizer.save_pretrained(tmp_path / "turned")
    found, turned = (
        quietly(folder, task, tune_heads=True, **BRIEF) for folder in (whole, tmp_path / "turned")
    )
    assert turned.metrics == found.metrics
    assert turned.content["truncation"] == found.content["truncation"]
    np.testing.assert_array_equal(logits_of(turned, ""), logits_of(found, ""))
    numbers = {name: number for number, name in enumerate(task.labels)}
    change_json(tmp_path / "turned" / "config.json", label2id=numbers)
    both = quietly(tmp_path / "turned", task)
    np.testing.assert_array_equal(logits_of(both, ""), logits_of(found, ""))
    [line] = [line for line in both.warnings if "contradicts" in line]
    assert "its id2label, which is followed (0 is fair, 1 is good, 2 is bad); if that" in line
    change_json(tmp_path / "turned" / "config.json", id2label=..., label2id=..., num_labels=3)
    unnamed = quietly(tmp_path / "turned", task)
    np.testing.assert_array_equal(logits_of(unnamed, "")[:, [2, 0, 1]], logits_of(found, ""))
    [line] = [line for line in unnamed.warnings if "taken by their order" in line]
    assert "LABEL_0 as bad, LABEL_1 as fair, LABEL_2 as good" in line


def test_logits_that_are_not_finite_have_no_value(bert, tmp_path):
    model = AutoModelForSequenceClassification.from_pretrained(bert)
    with torch.no_grad():  # of the head: weights of blocks are looked at when they are loaded
        model.classifier.weight.fill_(float("inf"))
    model.save_pretrained(tmp_path / "broken")
    Encoder.load(bert).tokenizer.save_pretrained(tmp_path / "broken")
    expect_refused("the logits of … are not finite", quietly, tmp_path / "broken", TASK)


def test_only_what_is_not_finite_has_no_value(bert, monkeypatch, tmp_path):
    whole = ablations.ablate

    def spoilt(*arguments):
        found = whole(*arguments)
        truncated, skipped = found
        truncated[2, 3] = np.nan
        skipped[1, 2][0] = np.inf
        return found

    monkeypatch.setattr(ablations, "ablate", spoilt)
    found = quietly(bert, TASK, edits=("truncate", "skip"))
    curve = found.content["truncation"]["untuned"]
    assert [value is None for value in curve] == [False, False, True, False, False]
    assert found.content["skips"][0][1] is None
    assert any("truncate:2, skip:1-2" in warning for warning in found.warnings)
    found.save(tmp_path)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_a_head_that_reads_all_tokens_is_cut_too(tmp_path, pooling):
    model = saved(tmp_path, "modernbert", TASK, classifier_pooling=pooling)
    found = quietly(model, TASK)
    expected = plain_logits(model, TASK.validation.texts, 2)
    np.testing.assert_allclose(logits_of(found, "truncate:2"), expected, atol=1e-4)
    if pooling == "mean":
        expect_refused("reads all tokens", quietly, model, TASK, tune_heads=True)


@pytest.mark.parametrize("blocks", [2, 6])
def test_the_untuned_model_may_have_another_depth(bert, tmp_path, blocks):
    other = tiny_checkpoint(tmp_path / "other", "bert", num_hidden_layers=blocks)
    found = quietly(bert, TASK, original=other)
    curves = found.content["truncation"]
    assert (len(curves["untuned"]), len(curves["tuned_original"])) == (5, blocks + 1)
    assert found.content["original"]["blocks"] == blocks
    found.save(tmp_path / "out")
    assert ls.plot(found).to_dict()["concat"]


@pytest.mark.parametrize(
    ("edits", "charts"), [(["truncate"], 1), (["skip"], 1), (["truncate", "skip"], 2)]
)
def test_what_was_swept_is_drawn(bert, edits, charts):
    drawn = ls.plot(quietly(bert, TASK, edits=edits)).to_dict()
    assert len(drawn["concat"]) == charts
    expect_refused("has neither; add one", ls.plot, quietly(bert, TASK, edits=["skip:2"]))


def test_what_is_found_in_words():
    content = {
        "metric": "accuracy",
        "metrics": {"accuracy": 0.9},
        "majority": 0.5,
        "task": {"kind": "classification"},
        "truncation": {"untuned": [0.5, 0.5, 0.7, 0.895, 0.9]},
        "skips": [[0.6] * 4, [None, 0.8, 0.8, 0.8], [None, None, 0.85, 0], [None] * 3 + [0.895]],
    }
    _, cut, single = describe_evaluation(content)
    assert cut.endswith("the top block can be removed, and the accuracy is still 0.8950.")
    assert single.endswith("lies between 0.6000 (block 1) and 0.8950 (block 4).")
    assert "has not learnt" in describe_evaluation(content | {"majority": 0.9})[1]
    content["truncation"] = {"untuned": [0.5, 0.5, 0.9, 0.6, 0.9]}
    cut = describe_evaluation(content)[1]
    assert "no top block can be removed: without block 4 the accuracy is 0.6" in cut


def test_rows_that_tuning_may_have_seen_are_warned_of(tmp_path, telling):
    base = tiny_checkpoint(tmp_path / "base", "bert")
    for seed, warned in ((0, False), (1, True)):
        cheaply(base, ls.Task.load(telling), "head:4", epochs=1, seed=seed).save(tmp_path)
        found = quietly(tmp_path / "model", ls.Task.load(telling))
        assert any("are also training rows of the tuning" in w for w in found.warnings) == warned
    result = tmp_path / "result.json"
    result.write_text(result.read_text().replace("telling.csv", "gone.csv"))
    found = quietly(tmp_path / "model", ls.Task.load(telling, validation=0.1, seed=2))
    assert any("it is not certain that none" in w for w in found.warnings)
    for others in ('{"settings": "mine"}', "[]", "[" * 100_000):  # a file that is not of tuning
        result.write_text(others)
        found = quietly(tmp_path / "model", ls.Task.load(telling))
        assert any("data of its tuning could not be read" in w for w in found.warnings)


def test_rows_that_tuning_had_are_counted(tmp_path, telling):
    base = tiny_checkpoint(tmp_path / "base", "bert")
    data = tmp_path / "data.csv"
    data.write_bytes(telling.read_bytes())
    cheaply(base, ls.Task.load(data), "head:4", epochs=1).save(tmp_path)
    found = quietly(tmp_path / "model", ls.Task.load(data))
    held = found.content["task"]["validation_examples"]
    assert found.content["seen"] == {"training": 0, "chosen": held}
    assert "tuning chose by these rows" in describe_evaluation(found.content)[0]
    renamed = tmp_path / "renamed.csv"
    renamed.write_bytes(data.read_bytes())
    found = quietly(tmp_path / "model", renamed)
    rows = found.content["task"]["validation_examples"]
    assert found.content["seen"] == {"training": rows - held, "chosen": held}
    told = f"{rows - held} of {rows} rows are also training rows of the tuning"
    assert any(told in line for line in found.warnings)
    expect_refused("whose predictions.parquet would be replaced", found.save, tmp_path)
    # The warning says worse.
    assert "tuning chose" not in describe_evaluation(found.content)[0]
    task = ls.Task.load(data)
    few = replace(task, train=task.train.take(np.arange(12)))  # as of one who draws rows
    cheaply(base, few, "head:4", epochs=1).save(tmp_path)
    assert quietly(tmp_path / "model", data).content["seen"] == {"training": 0, "chosen": held}
    lines = data.read_text().splitlines(keepends=True)
    data.write_text("".join(lines[:1] + lines[:0:-1]))
    for judged in (data, renamed):
        found = quietly(tmp_path / "model", judged)
        assert found.content["seen"] is None
        assert "tuning chose" not in describe_evaluation(found.content)[0]
        told = " ".join(found.warnings)
        assert f"{data} could not be read here as the model was tuned on it" in told
        assert ("are also training rows" in told) == (judged == renamed)
    data.unlink()
    found = quietly(tmp_path / "model", renamed)
    assert found.content["seen"] is None
    unread = f"{data} could not be read here as the model was tuned on it"
    assert any(line.startswith(unread) for line in found.warnings)


def test_other_data_are_judged_whole_and_need_not_have_every_class(tmp_path, telling, write):
    base = tiny_checkpoint(tmp_path / "base", "bert")
    task = ls.Task.load(telling)
    cheaply(base, task, "head:4", epochs=1, metric="macro_f1").save(tmp_path)
    model, (one, other) = tmp_path / "model", task.labels
    held_out = quietly(model, telling).content["task"]["validation_examples"]
    assert held_out < len(task.train) / 5
    few = write("few.csv", as_csv({"text": ["a", "b", "c"], "label": [one, one, other]}))
    found = quietly(model, few)
    assert found.content["task"]["validation_examples"] == 3 and not found.warnings[1:]
    # Classes that are rare in one file need not be rare in the other: the metric stays the same.
    assert (found.content["task"]["metric"], found.content["metric"]) == ("accuracy", "macro_f1")
    assert quietly(model, few, metric="accuracy").content["metric"] == "accuracy"
    same = write("same.csv", as_csv({"text": ["a", "b"], "label": [one, one]}))
    assert (
        "All examples have the same label"
        in describe_evaluation({**quietly(model, same).content, "majority": 1.0})[1]
    )
    odd = write("odd.csv", as_csv({"text": ["a", "b"], "label": [one, "neither"]}))
    expect_refused("every label must be a class of the model", quietly, model, odd)
    joined = write("joined.csv", as_csv({"text": ["a", "b"], "label": [one, f"{one}|{other}"]}))
    expect_refused("a class of the model … --label-separator '|'", quietly, model, joined)


def test_numbers(tmp_path):
    task = numbers_task(n=80)
    model, edits = saved(tmp_path, "bert", task, "full", epochs=2), ("truncate", "skip")
    found = quietly(model, task, edits=edits, tune_heads=True, **BRIEF)
    assert found.content["metric"] == "pearson_spearman"
    assert set(found.metrics) == {"pearson_spearman", "pearson", "spearman", "mean_squared_error"}
    assert len(found.content["truncation"]["tuned"]) == 5
    found.save(tmp_path / "out")


def test_multiple_choice(tmp_path):
    task = choices_task(n=12, held=9, choices=3)
    saved(tmp_path, "bert", task, "full")
    found = quietly(tmp_path / "model", task, edits=("truncate", "skip", "skip:2"))
    encoder = Encoder.load(tmp_path / "model")
    model = AutoModelForMultipleChoice.from_pretrained(tmp_path / "model", num_hidden_layers=2)
    split, expected = task.validation, []
    for example in range(9):
        rows = range(3 * example, 3 * example + 3)
        tokens = encoder.tokenize([split.texts[r] for r in rows], [split.pairs[r] for r in rows])
        inputs = {k: v[None] for k, v in encoder.batch(tokens, np.arange(3)).items()}
        with torch.no_grad():
            expected.append(model.eval()(**inputs).logits[0].numpy())
    np.testing.assert_allclose(logits_of(found, "truncate:2"), expected, atol=1e-4)
    assert found.content["majority"] is None


def test_heads_are_tuned_again_for_choices(tmp_path):
    # Phang et al. 2021, Figure 3, has HellaSwag and CosmosQA among its tasks.
    task = choices_task(n=40, held=24, choices=3)
    model = saved(tmp_path, "bert", task, "full")
    asked = {"head_epochs": 3, "head_learning_rate": 3e-3, "head_batch_size": 5}
    found = quietly(model, task, tune_heads=True, original=tmp_path / "base", **asked)
    curves = found.content["truncation"]
    assert all(0 <= value <= 1 for curve in curves.values() for value in curve[1:])
    assert curves["tuned"] != curves["tuned_original"]
    assert found.content["settings"]["heads"] == {
        "examples": 40,
        "epochs": 3,
        "batch_size": 5,
        "learning_rates": [3e-3],
    }


def test_the_files(bert, tmp_path):
    found = quietly(
        bert, TASK, edits=("truncate", "skip", "permute:1"), original=bert.parent / "base"
    )
    found.save(tmp_path / "out")
    content = json.loads((tmp_path / "out" / "evaluate.json").read_text())
    assert content == json.loads(json.dumps(found.content))
    page = (tmp_path / "out" / "evaluate.html").read_text()
    assert "Skipped spans of blocks" in page
    table = pd.read_parquet(tmp_path / "out" / "predictions.parquet")
    assert set(table["edit"]) == {"", "truncate:1", "truncate:2", "truncate:3", "permute:1"}
    assert len(table) == 5 * 9
    assert set(table["prediction"]) <= set(NAMES)
    whole = table[table["edit"] == ""]
    assert (whole["prediction"] == whole["label"]).mean() == found.metrics["accuracy"]


def test_what_cannot_be_judged_is_refused(bert, tmp_path):
    base = bert.parent / "base"
    expect_refused("is a BertModel … tune it first", quietly, base, TASK)
    expect_refused("must name blocks in 1..4", quietly, bert, TASK, edits=("skip:3-5",))
    expect_refused("unknown edit", quietly, bert, TASK, edits=("truncated",))
    expect_refused("an edit is empty", quietly, bert, TASK, edits=("",))
    expect_refused("add", quietly, bert, TASK, edits=("skip",), tune_heads=True)
    expect_refused("`metric`", quietly, bert, TASK, metric="pearson")
    three = task_of(n=24, held=9, classes=3)
    unknown = "the classes of … must be those of the task: it has bad, fair, and not 'good'; "
    expect_refused(unknown, quietly, bert, three)
    expect_refused(
        "classes … must be those of the task … not numbers", quietly, bert, numbers_task()
    )
    expect_refused("not tuned for multiple choice", quietly, bert, choices_task())
    expect_refused("`examples` … add --tune-heads", quietly, bert, TASK, examples=10)
    expect_refused("`head_epochs` … --original", quietly, bert, TASK, head_epochs=2)
    expect_refused("`head_learning_rate`", quietly, bert, TASK, head_learning_rate=1e-3)
    expect_refused("bytes, 0 or more, got -1", quietly, bert, TASK, cache_limit=-1)


def test_the_command(run, tmp_path, reviews):
    base, out, model = (
        tiny_checkpoint(tmp_path / "base", "bert"),
        tmp_path / "out",
        tmp_path / "model",
    )
    tuned = run("tune", base, reviews, "--plan", "top:1", "--epochs", 1, "-o", tmp_path, "-q")
    assert tuned[0] == 0
    edits = ("--edit", "truncate", "--edit", "skip", "--edit", "skip:2-3")
    code, printed, told = run(
        *("evaluate", model, reviews, *edits, "-o", out, "--plot", out / "curves.png")
    )
    assert code == 0, told
    for words in ("tuned head, unchanged", "skip:2-3", "The whole model: accuracy"):
        assert words in printed
    assert (out / "curves.png").exists()
    code, printed, _ = run("evaluate", model, reviews, "-o", out, "--json")
    assert (code, json.loads(printed)["verb"]) == (0, "evaluate")
    code, _, told = run("evaluate", model, reviews, "--edit", "skip:2", "--plot", out / "none.png")
    assert (code, "--plot draws" in told) == (2, True)


def test_text_from_the_data_stays_text(tmp_path, write):
    rows = {"text": [f"word {i}" for i in range(40)], "label": ["<script>x</script>", "b"] * 20}
    data = write("data.csv", as_csv(rows))
    task = ls.Task.load(data)
    quietly(saved(tmp_path, "bert", task), task).save(tmp_path / "out")
    assert "<script>x" not in (tmp_path / "out" / "evaluate.html").read_text()
