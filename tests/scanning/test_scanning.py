"""A scan against naive computations on the states of plain transformers, and its promises."""

import dataclasses
import json

import numpy as np
import pytest
import torch

import layerscout as ls
from conftest import MODELS, real
from inputs import expect_refused
from layerscout.models import Encoder, encoder as encoder_module
from layerscout.scanning import Scan
from reference import naive
from tiny import SENTENCES, tiny_checkpoint

KEYS = ("variability_ratio", "nc1")


def made_up_task(n=90, classes=3, seed=0, pairs=False, **options):
    rng = np.random.default_rng(seed)
    words = " ".join(SENTENCES).split()
    texts = [" ".join(rng.choice(words, rng.integers(1, 30))) for _ in range(n)]
    labels = [f"class {k}" for k in np.arange(n) % classes]
    seconds = texts[::-1] if pairs else None
    return ls.Task.from_lists(texts, labels, pairs=seconds, name="made up", **options)


def naive_scores(encoder, split, max_length=128):
    """Score the states of one text at a time, special tokens left out, in float64."""
    kept = []
    for row, text in enumerate(split.texts):
        batch = encoder.tokenizer(
            text,
            split.pairs[row] if split.pairs else None,
            truncation=True,
            max_length=max_length,
            return_special_tokens_mask=True,
            return_tensors="pt",
        )
        ordinary = ~batch.pop("special_tokens_mask")[0].bool()
        with torch.no_grad():
            states = encoder.model(**batch, output_hidden_states=True).hidden_states
        kept.append([s[0][ordinary].double().numpy().mean(axis=0) for s in states])
    H = np.array(kept)
    return {
        key: [getattr(naive, key)(H[:, s], split.labels) for s in range(H.shape[1])] for key in KEYS
    }


def assert_equals_naive(scan, encoder, split):
    expected = naive_scores(encoder, split)
    for key in KEYS:
        np.testing.assert_allclose(scan.scores[key].values, expected[key], rtol=1e-4)
        assert scan.best(key) == 1 + int(np.argmin(expected[key][1:]))


@pytest.fixture(scope="module")
def encoder(tiny):
    return Encoder.load(tiny)


@pytest.mark.parametrize("classes", [2, 3, 7])
@pytest.mark.parametrize("pairs", [False, True])
def test_equals_the_naive_scores(encoder, classes, pairs):
    task = made_up_task(classes=classes, pairs=pairs)
    assert_equals_naive(ls.scan(encoder, task, scores=KEYS), encoder, task.train)


def test_equals_the_naive_scores_on_imbalanced_classes(encoder):
    task = made_up_task(n=120)
    scan = ls.scan(encoder, task, scores=KEYS, per_class=[40, 5, 2])
    assert scan.task["examples_per_class"] == [40, 5, 2]
    from layerscout.data import sample

    rows = sample(task.train, 3, examples=None, balanced=False, per_class=[40, 5, 2], seed=0)
    assert_equals_naive(scan, encoder, task.train.take(rows))
    assert scan.scores["nc1"].values != scan.scores["variability_ratio"].values


def test_batches_do_not_matter_and_a_scan_repeats(encoder, monkeypatch):
    task = made_up_task()
    first, again = (ls.scan(encoder, task, scores=KEYS) for _ in range(2))
    assert first.scores == again.scores
    drawn = [ls.scan(encoder, task, scores=KEYS, examples=40, seed=seed) for seed in (0, 1)]
    assert drawn[0].scores != drawn[1].scores
    monkeypatch.setattr(encoder_module, "CPU_TOKENS", 40)
    monkeypatch.setattr("layerscout.scanning.extraction.CHUNK", 7)
    small = ls.scan(encoder, task, scores=KEYS)
    for key in KEYS:
        np.testing.assert_allclose(small.scores[key].values, first.scores[key].values, rtol=1e-4)


def test_the_work_is_one_pass(encoder, monkeypatch):
    monkeypatch.setattr(encoder_module, "CPU_TOKENS", 200)
    task = made_up_task(n=300)
    shapes = []
    handle = encoder.model.encoder.layer[0].register_forward_hook(
        lambda _module, arguments, _output: shapes.append(arguments[0].shape)
    )
    ls.scan(encoder, task, scores=KEYS)
    handle.remove()
    lengths = encoder.tokenize(task.train.texts).lengths
    assert sum(batch for batch, _, _ in shapes) == 300  # every text once
    padded = sum(batch * length for batch, length, _ in shapes)
    assert lengths.sum() <= padded <= 1.1 * lengths.sum()  # like lengths together: little padding


def test_only_the_training_split_is_read(encoder):
    task = made_up_task(n=100, validation=0.2)
    scan = ls.scan(encoder, task)
    assert scan.task["examples_used"] == scan.task["examples_available"] == 80
    alone = ls.scan(encoder, dataclasses.replace(task, validation=None))
    assert scan.scores == alone.scores


def test_what_was_cut_or_empty_is_told(encoder, caplog):
    task = ls.Task.from_lists(["", "the cat", " ", "a " * 50] * 3, ["x", "y", "y", "x"] * 3)
    result = ls.scan(encoder, task, max_length=20)
    logged = [(each.name, each.getMessage()) for each in caplog.records]
    assert logged == [("layerscout.scanning.run", warning) for warning in result.warnings]
    warnings = "\n".join(result.warnings)
    assert "3 of 12 inputs were longer than 20 tokens" in warnings
    assert "6 of 12 inputs have no ordinary token" in warnings


@pytest.mark.parametrize(("words", "said"), [(22, 0), (80, 1)])
def test_hardly_anything_that_was_cut_is_not_told(encoder, words, said):
    texts = ["a cat on a mat and a dog", "the dog"] * 50 + ["a " * words]
    found = ls.scan(encoder, ls.Task.from_lists(texts, ["x", "y"] * 50 + ["x"]), max_length=20)
    assert sum("1 of 101 inputs were longer" in line for line in found.warnings) == said


@pytest.mark.parametrize("texts", [["the cat", "the 雨 rain"], ["the cat", "雨 雨"]])
def test_texts_that_the_tokenizer_does_not_know_are_told(encoder, texts):
    task = ls.Task.from_lists([f"{text} {n}" for n in range(6) for text in texts], ["x", "y"] * 6)
    said = "over a third of the tokens are unknown to the tokenizer, and all read as '[UNK]'"
    expected = 1 if "雨 雨" in texts else 0
    result = ls.tune(encoder, task, "top:1", epochs=1, cache_limit=0)
    for warnings in (ls.scan(encoder, task).warnings, result.warnings):
        assert sum(line.startswith(said) for line in warnings) == expected


@pytest.mark.parametrize("keys", [KEYS, (*KEYS, "h_score")])  # from sums, and from states
def test_states_that_are_not_finite_have_no_score(tiny, keys):
    broken = Encoder.load(tiny)
    broken.model.encoder.layer[2].output.LayerNorm.weight.data[0] = float("nan")
    scan = ls.scan(broken, made_up_task(), scores=keys)
    for key in keys:
        assert [v is None for v in scan.scores[key].values] == [False, False, False, True, True]
        assert scan.best(key) in (1, 2)
    assert any("states [3, 4] hold values that are not finite" in w for w in scan.warnings)
    json.dumps(scan.as_dict(), allow_nan=False)


def test_the_same_texts_in_both_classes_have_no_score(encoder, monkeypatch):
    # Batched differently, the same text gives states that differ by rounding; that is no distance.
    monkeypatch.setattr(encoder_module, "CPU_TOKENS", 100)
    texts = list(made_up_task(n=60).train.texts)
    task = ls.Task.from_lists([*texts, *texts], ["a"] * 60 + ["b"] * 60)
    for pooling in ("mean", "cls"):
        scan = ls.scan(encoder, task, pooling=pooling)
        assert set(scan.scores["variability_ratio"].values) == {None}
        assert any("no state separates the classes" in warning for warning in scan.warnings)


def test_the_file_says_what_the_design_says(encoder, tiny, tmp_path):
    scan = ls.scan(encoder, made_up_task(), scores=KEYS)
    scan.save(tmp_path / "out")
    content = json.loads((tmp_path / "out" / "scan.json").read_text())
    assert content["verb"] == "scan"
    model = content["model"]
    assert (model["name"], model["family"], model["blocks"]) == (str(tiny), "bert", 4)
    assert (model["hidden_size"], model["feed_forward"]) == (16, 32)
    counts = model["parameters"]
    assert counts["embeddings"] + sum(counts["blocks"]) + counts["head"] == counts["total"]
    task = content["task"]
    assert task["labels"] == ["class 0", "class 1", "class 2"]
    assert (task["examples_used"], task["examples_available"]) == (90, 90)
    lengths = encoder.tokenize(made_up_task().train.texts).lengths
    assert task["tokens_per_example"] == lengths.mean()
    settings = content["settings"]
    assert (model["source"], model["revision"]) == (str(tiny), None)
    assert (settings["pooling"], settings["max_length"], settings["seed"]) == ("mean", 128, 0)
    assert settings["precision"] == "float32"
    score = content["scores"]["variability_ratio"]
    assert (score["of"], score["better"], len(score["values"])) == ("states", "lower", 5)
    assert tuple(score["values"]) == scan.scores["variability_ratio"].values  # full precision
    assert content["best"] == {key: scan.best(key) for key in KEYS}
    assert set(content["seconds"]) == {"tokenize", "forward", "scores"}
    assert min(content["seconds"].values()) >= 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"scores": ["nu"]}, "unknown score 'nu' … variability_ratio"),
        ({"examples": 91}, "at most 90"),
        ({"examples": 5}, "2 of every class"),
        ({"examples": 10.5}, "`examples` must be a whole number"),
        ({"examples": "many"}, "`examples` must be a whole number"),
        ({"per_class": [0, 5, 5]}, "must be"),
        ({"per_class": [5, 1, 5]}, "must be"),
        ({"per_class": [5, 5, 10**30]}, "must be"),
        ({"per_class": [5, 5, -1]}, "must be"),
        ({"seed": -1}, "`seed` must be a whole number in 0"),
        ({"probe": "linaer"}, "unknown `probe` 'linaer' … 'linear'"),
        ({"probe_seeds": 0}, "`probe_seeds` must be a whole number from 1 on, got 0"),
        ({"probe_pooling": "last_"}, "unknown `probe_pooling` 'last_'"),
        ({"fisher_mode": "tru"}, "unknown `fisher_mode` 'tru' … 'true'"),
        ({"head_seeds": 0}, "`head_seeds` must be a whole number from 1 on, got 0"),
        ({"cache_limit": -1}, "`cache_limit` must be a number of bytes, 0 or more, got -1"),
    ],
)
def test_bad_options_are_refused(encoder, options, words):
    expect_refused(words, ls.scan, encoder, made_up_task(), **options)


def test_scores_are_chosen_by_name(encoder):
    task = made_up_task()
    for scores in ("variability_ratio, nc1", "variability_ratio,nc1,nc1"):
        assert tuple(ls.scan(encoder, task, scores=scores).scores) == KEYS
    usual = ls.scan(encoder, task)
    default = ("head_quality", "variability_ratio")
    assert tuple(usual.scores) == default
    expect_refused("unknown score of this scan 'nc1'", usual.best, "nc1")
    numbers = ls.Task.from_lists(["a", "b", "c"], [0.5, 1.5, 2.5], regression=True)
    words = "compares classes, but the labels are numbers; use head_"
    expect_refused(words, ls.scan, encoder, numbers, scores="nc1")


def test_loading_what_is_no_scan(encoder, tmp_path):
    path = tmp_path / "scan.json"
    expect_refused("no scan.json", Scan.load, tmp_path)
    ls.scan(encoder, made_up_task(), scores=KEYS).save(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["scan.html", "scan.json"]
    # A fuzzer's: the name is quoted, as Python quotes it, but not all of it.
    odd = path.read_text().replace('"better"', f'"{"[" * 3000}"', 1)
    for content in ("", "{}", "[]", '{"scores": 3}', "\x00", odd):
        path.write_text(content)
        expect_refused("is not a scan", Scan.load, tmp_path)


def test_settings_say_where_the_rows_come_from(encoder, tmp_path):
    task = made_up_task()
    path = tmp_path / "rows.tsv"
    rows = zip(task.train.texts, task.train.labels, strict=True)
    path.write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows))
    settings = ls.scan(encoder, ls.Task.load(path, validation="0.2", seed=3)).settings
    assert settings["data"] == str(path)
    assert (settings["validation"], settings["validation_seed"]) == (0.2, 3)
    assert ls.scan(encoder, ls.Task.load(path)).settings["validation"] is None
    other = ls.scan(encoder, ls.Task.load(path, validation=path)).settings
    assert other["validation"] == str(path)


@pytest.mark.parametrize("family", ["modernbert", "deberta-v2-conv"])
def test_other_families_scan_end_to_end(tmp_path, family):
    folder = tiny_checkpoint(tmp_path / family, family)
    scan = ls.scan(str(folder), made_up_task(n=40))
    assert len(scan.scores["variability_ratio"].values) == 5
    assert None not in scan.scores["variability_ratio"].values


@pytest.mark.whole
@pytest.mark.real
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("data", "per_class"), [("sst2", None), ("mnli", None), ("cola", [15, 85])]
)
def test_real_scans_equal_the_naive_scores(model, data, per_class):
    encoder = Encoder.load(real("models", model))
    task = ls.Task.load(real("data", data))
    options = {"per_class": per_class} if per_class else {"examples": 100}
    scan = ls.scan(encoder, task, scores=KEYS, **options)
    from layerscout.data import sample

    rows = sample(
        task.train,
        len(task.labels),
        examples=options.get("examples"),
        balanced=False,
        per_class=per_class,
        seed=0,
    )
    assert_equals_naive(scan, encoder, task.train.take(rows))
