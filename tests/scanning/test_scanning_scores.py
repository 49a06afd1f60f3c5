"""All scores in one scan: with what they need, each on its own feet, and what they say together."""

import dataclasses
import json

import numpy as np
import pytest
import torch

import layerscout as ls
from conftest import MODELS, real, whole_only
from inputs import expect_refused
from layerscout.models import Encoder, Gradients
from layerscout.plans import ScanRequest
from layerscout.scanning import GRADIENT_EXAMPLES, Scan
from layerscout.scores import arrays
from layerscout.scores.spectra import weight_snr
from layerscout.scores.table import SCORES
from reference import naive
from telling import numbers_task, telling_task, texts_of
from tiny import tiny_checkpoint

DEBIASED = "variability_ratio_debiased"

CLASSES_ONLY = {key for key, row in SCORES.items() if not row.numbers}
OF_BLOCKS = {key for key, row in SCORES.items() if row.of == "blocks"}
GRADIENTS = ("fisher", "gradient_norm", "saliency")
ARRAYS = (
    "cca", "ridge", "logme", "h_score", "numerical_rank", "knn", "mutual_information",
)  # fmt: skip
# Scores of every source that are quick to compute.
QUICK = "variability_ratio,logme,gradient_norm,weight_snr,cka_change"


@pytest.fixture(scope="module")
def encoder(tiny):
    return Encoder.load(tiny)


def scan(encoder, task, scores="all", **options):
    options |= {} if "request" in options else {"scores": scores}
    result = ls.scan(encoder, task, progress=False, **options)
    json.dumps(result.as_dict(), allow_nan=False)  # whatever was scanned
    for score in result.scores.values():
        assert len(score.values) == result.model["blocks"] + 1
    return result


@pytest.fixture(scope="module")
def whole(encoder, tmp_path_factory):
    """A scan with all scores, of a task without a validation split."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAYERSCOUT_CACHE", str(tmp_path_factory.mktemp("cache")))
        return scan(encoder, telling_task())


def forwards(encoder, run):
    """Count the texts that go through the encoder while `run` runs."""
    texts = []
    handle = encoder.model.encoder.layer[0].register_forward_hook(
        lambda _module, arguments, _output: texts.append(len(arguments[0]))
    )
    try:
        return run(), sum(texts)
    finally:
        handle.remove()


def undefined(score):
    return [value is None for value in score.values]


# --- All of them ---------------------------------------------------------------------------------


def test_all_scores_have_values(whole):
    assert tuple(whole.scores) == tuple(SCORES)
    assert whole.warnings == ()
    for key, score in whole.scores.items():
        assert (score.of, score.better) == (SCORES[key].of, SCORES[key].better)
        assert undefined(score) == [score.of == "blocks", *[False] * 4]
        assert "refused" not in score.details
    # The texts tell the classes apart by their words, and random blocks lose them again.
    assert whole.best() == 1
    for key in ("variability_ratio", "nc1", "cca", "ridge", "logme", "h_score", "knn", "probe"):
        assert whole.best(key) == 1


def test_a_tenth_is_set_aside_and_the_rest_is_read(whole):
    assert whole.settings["validation"] == 0.1
    assert whole.settings["validation_seed"] == 0
    task = whole.task
    assert (task["examples_used"], task["examples_available"]) == (270, 270)
    assert task["validation_examples"] == 30
    assert task["examples_per_class"] == [135, 135]
    assert whole.settings["examples_because"] == "state 1 differs from all others beyond noise"
    same = {"probe": "linear", "fisher_mode": "true", "head_seeds": 1, "as_released": False}
    assert same.items() <= whole.settings.items()
    assert set(whole.seconds) == {"tokenize", "forward", "scores", "probes", "gradients", "weights"}


def test_without_such_scores_nothing_is_set_aside(encoder):
    result = scan(encoder, telling_task(n=60), "variability_ratio,cca,cka_change,weight_snr")
    assert result.task["examples_used"] == 60
    assert "validation" not in result.settings


def test_a_validation_split_is_used_as_it_is(encoder, whole):
    task = telling_task()
    held_out = task.hold_out(0.1, 0)
    again = scan(encoder, held_out)
    assert again.scores == whole.scores  # the same tenth, drawn by hand
    other = dataclasses.replace(held_out, validation=telling_task(n=50, seed=9).train)
    result = scan(encoder, other)
    assert result.task["validation_examples"] == 50
    for key in SCORES:
        changed = result.scores[key].values != whole.scores[key].values
        assert changed == (key in ("probe", *GRADIENTS))


def test_values_are_those_of_plain_arrays(encoder, whole):
    split = telling_task().hold_out(0.1, 0).train
    H = encoder.states(split.texts, pooling="mean").numpy()
    for key in ("variability_ratio", "nc1"):
        expected = [getattr(naive, key)(state.astype(np.float64), split.labels) for state in H]
        assert whole.scores[key].values == pytest.approx(expected, rel=1e-4)
    for key in (DEBIASED, *ARRAYS):
        expected = [getattr(arrays, key)(state, split.labels) for state in H]
        tolerance = 0.05 if key in ("knn", "ridge", "mutual_information") else 1e-3
        assert whole.scores[key].values == pytest.approx(expected, rel=tolerance)


def test_scores_of_weights_and_gradients_are_those_of_their_modules(encoder, whole):
    matrices = [
        {
            name: parameter.detach().numpy()
            for name, parameter in block.named_parameters()
            if parameter.ndim == 2
        }
        for block in encoder.model.encoder.layer
    ]
    by_type = whole.scores["weight_snr"].details["by_type"]
    assert {f"{kind}.weight" for kind in by_type} == set(matrices[0])
    for kind, row in by_type.items():
        expected = [weight_snr(block[f"{kind}.weight"]) for block in matrices]
        assert row == pytest.approx([None, *expected])
    held_out = telling_task().hold_out(0.1, 0).validation
    expected = Gradients(encoder, held_out, ("class 0", "class 1")).score_fisher()
    assert whole.scores["fisher"].values == expected.values
    assert whole.scores["fisher"].details["rows"] == 30


def test_the_probe_tells_its_baseline_and_its_error(whole):
    score = whole.scores["probe"]
    details = score.details
    assert (details["kind"], details["metric"], details["majority"]) == ("linear", "accuracy", 0.5)
    for s, value in enumerate(score.values):
        error = details["standard_error"][s]
        assert value == pytest.approx(np.mean(details["by_seed"][s]))
        assert (score.low[s], score.high[s]) == (value - error, value + error)
    assert [len(seeds) for seeds in details["by_seed"]] == [8] * 5
    assert score.values[0] > 0.8


def test_diagnostics_tell_what_the_scores_say_together(whole):
    result = whole.as_dict()["diagnostics"]
    of_states = set(SCORES) - OF_BLOCKS
    assert set(result["smoothness"]) == of_states
    assert result["agreement_of_states"]["best"] == {k: whole.best(k) for k in of_states}
    assert result["agreement_of_blocks"]["best"] == {k: whole.best(k) for k in OF_BLOCKS}
    assert result["agreement_of_states"]["kendall"]["nc1"]["variability_ratio"] == 1
    assert set(result["against_probe"]) == of_states - {"probe"}
    fit = result["against_probe"]["logme"]
    assert fit["states"] == 4 and fit["pearson"] > 0.5
    assert result["against_probe"]["variability_ratio"]["pearson"] < -0.5


def test_a_saved_scan_loads_back_equal(encoder, whole, tmp_path):
    whole.save(tmp_path)
    loaded = Scan.load(tmp_path)
    assert loaded.scores.keys() == whole.scores.keys()
    assert json.dumps(loaded.as_dict()) == json.dumps(whole.as_dict())
    assert (tmp_path / "scan.html").stat().st_size > 10_000
    table = loaded.table()
    assert list(table.columns) == list(SCORES)
    assert table["fisher"].tolist()[1:] == list(whole.scores["fisher"].values[1:])
    # A file from before there were diagnostics.
    content = json.loads((tmp_path / "scan.json").read_text())
    del content["diagnostics"], content["stability"]
    (tmp_path / "scan.json").write_text(json.dumps(content))
    old = Scan.load(tmp_path)
    assert (old.diagnostics, old.stability) == ({}, None)
    assert json.dumps(old.as_dict()["scores"]) == json.dumps(whole.as_dict()["scores"])
    old.save(tmp_path / "again")


# --- Other poolings, kinds of task, options ------------------------------------------------------


def test_first_token_pooling_has_no_score_for_the_embeddings(encoder):
    result = scan(encoder, telling_task(), pooling="cls")
    for key, score in result.scores.items():
        blank = {0, 1} if key == "cka_change" else {0}
        assert {s for s, value in enumerate(score.values) if value is None} >= blank
        for ends in (score.low, score.high):
            assert not ends or ends[0] is None
        if key != DEBIASED:
            assert undefined(score) == [s in blank for s in range(5)]


def test_numbers_leave_the_class_scores_out(encoder):
    result = scan(encoder, numbers_task(), "all")
    assert set(result.scores) == set(SCORES) - CLASSES_ONLY
    assert result.warnings == ()
    for score in result.scores.values():
        assert undefined(score) == [score.of == "blocks", *[False] * 4]
    assert result.best("cca") == result.best("logme") == 1
    assert result.scores["probe"].details["metric"] == "pearson_spearman"
    for key in CLASSES_ONLY:
        line = expect_refused("compares classes", scan, encoder, numbers_task(), key)
        assert line.startswith(key) and "logme" in line and "probe" in line
    assert result.leading_score() == "head_quality"
    assert result.plan("best-down:1@top").notation == "(1, 1, 4)"
    assert list(ls.scan(encoder, numbers_task()).scores) == [
        "head_quality",
        "cca",
        "ridge",
        "logme",
    ]


def copa(n=60, seed=0):
    """Examples of two choices, of which the one with a word of the right class is right."""
    rng = np.random.default_rng(seed)
    right = rng.integers(0, 2, n)
    texts = [texts_of(np.array([1 - label, label]), 0.9, i) for i, label in enumerate(right)]
    for (first, second), label in zip(texts, right, strict=True):
        yield {"premise": "the cat", "question": "effect", "choice1": first, "choice2": second,
               "label": int(label)}  # fmt: skip


def test_choices_of_an_example_are_never_split(encoder, tmp_path, monkeypatch):
    from layerscout.scanning import run as scanning

    samples = []

    def watched(states, sample, *arguments, **options):
        samples.append(sample)
        return score_states(states, sample, *arguments, **options)

    score_states = scanning.score_states
    monkeypatch.setattr(scanning, "score_states", watched)
    path = tmp_path / "copa.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in copa(n=200)))
    result = scan(encoder, ls.Task.load(path, task="copa"))
    (sample,) = samples
    assert result.task["examples_used"] == len(sample.labels) == 360
    assert result.task["validation_examples"] == 40
    of_example = {}
    for example, group in zip(sample.examples, sample.groups, strict=True):
        of_example.setdefault(example, set()).add(group)
    assert len(of_example) == 180
    assert all(len(groups) == 1 for groups in of_example.values())
    for key, score in result.scores.items():
        assert "refused" not in score.details
        if key != DEBIASED:
            assert undefined(score) == [score.of == "blocks", *[False] * 4]
    # One of two choices is right: half of the examples by chance, all by the words.
    assert result.scores["probe"].values[0] > 0.8
    assert result.scores["fisher"].details["rows"] == 40
    assert result.model["parameters"]["head"] == encoder.shape(1).parameters.head, "one output"


def test_gradients_read_a_hundred_held_out_examples(encoder):
    task = dataclasses.replace(telling_task(n=60), validation=telling_task(n=300, seed=5).train)
    result = scan(encoder, task, "gradient_norm")
    assert result.scores["gradient_norm"].details["rows"] == GRADIENT_EXAMPLES == 100
    assert set(result.scores) == {"gradient_norm"}
    assert result.best("gradient_norm") in (1, 2, 3, 4)
    again = scan(encoder, task, "gradient_norm")
    assert again.scores == result.scores


def test_the_family_s_own_head_probes_the_first_token(encoder):
    task = telling_task(n=60)
    result, texts = forwards(
        encoder, lambda: scan(encoder, task, "probe,nc1", probe="family", probe_seeds=1)
    )
    assert result.settings["probe"] == result.scores["probe"].details["kind"] == "family"
    assert undefined(result.scores["probe"]) == [True, *[False] * 4]
    assert texts == 60  # both poolings from one pass
    assert result.scores["nc1"].values[0] is not None
    # The head is the one of the library: a pooler and an output, the best of 20 epochs.
    assert all(1 <= epoch <= 20 for at in result.scores["probe"].details["epochs"] for epoch in at)


def test_a_probe_is_trained_as_often_and_on_what_is_asked_for(encoder):
    # Xie et al. 2022, §4: several seeds; §3: the first token, while ν is of the mean.
    task = telling_task(n=60)
    chosen = [
        scan(encoder, task, "probe,nc1", probe=probe, probe_seeds=seeds, probe_pooling=pooling)
        for probe, seeds, pooling in (
            ("family", 2, None),
            ("family", 1, "mean"),
            ("linear", None, None),
            ("linear", 3, "cls"),
            ("plain", 3, "cls"),
        )
    ]
    probes = [result.scores["probe"] for result in chosen]
    assert [len(probe.details["by_seed"][1]) for probe in probes] == [2, 1, 8, 3, 3]
    # Only the first token's embedding is the same in all texts.
    assert [probe.values[0] is None for probe in probes] == [True, False, False, True, True]
    assert probes[3].details["epochs"] != probes[4].details["epochs"]
    assert len({tuple(result.scores["nc1"].values) for result in chosen}) == 1


def test_the_number_of_clusters_reaches_mutual_information(encoder):
    task, key = telling_task(n=120), "mutual_information"
    few, usual, all_ = (
        scan(encoder, task, key, clusters=clusters).scores[key].values for clusters in (2, None, 20)
    )
    assert few != usual == all_


def test_options_of_fisher_reach_it(encoder):
    task = telling_task(n=60)
    plain = scan(encoder, task, "fisher").scores["fisher"]
    split = task.hold_out(0.1, 0).validation
    names = ("class 0", "class 1")
    for chosen, expected in {
        ScanRequest("fisher", fisher_mode="empirical"): {"mode": "empirical"},
        ScanRequest("fisher", as_released=True): {"mode": "as_released"},
        ScanRequest("fisher", head_seeds=3): {"seeds": (0, 1, 2), "mode": "true"},
    }.items():
        score = scan(encoder, task, request=chosen).scores["fisher"]
        mode = expected.pop("mode")
        computed = Gradients(encoder, split, names, **expected).score_fisher(mode)
        assert score.values == computed.values
        assert score.values != plain.values
        assert score.details["spread"] == list(computed.spread)
        assert len(score.details["by_seed"]) == chosen.head_seeds
    seeded = scan(encoder, task, "fisher", seed=1)
    assert seeded.scores["fisher"].values != plain.values


def test_blocks_that_share_their_weights_have_one_value(tmp_path):
    folder = tiny_checkpoint(tmp_path / "albert", "albert")
    result = scan(folder, telling_task())
    for key in ("fisher", "gradient_norm", "saliency", "weight_snr"):
        values = result.scores[key].values
        assert values[0] is None and values[1] is not None
        assert len(set(values[1:])) == 1
        assert result.best(key) == 1
    for key in GRADIENTS:
        notes = "; ".join(result.scores[key].details["notes"])
        assert "blocks 1-4 share their weights and have one value" in notes
    # What goes through them differs all the same.
    assert len(set(result.scores["cka_change"].values[1:])) == 4


@pytest.mark.parametrize("family", ["deberta-v2", *whole_only("roberta", "modernbert", "mpnet")])
def test_other_families_have_all_scores(tmp_path, family):
    result = scan(tiny_checkpoint(tmp_path / family, family), telling_task(), "all")
    for key, score in result.scores.items():
        assert "refused" not in score.details
        if key != DEBIASED:
            assert undefined(score) == [score.of == "blocks", *[False] * 4]


# --- One pass, found again -----------------------------------------------------------------------


def test_sums_that_stream_give_the_same_as_kept_states(encoder):
    task = telling_task(n=300, classes=3)
    keys = ("variability_ratio", "nc1")
    streamed = scan(encoder, task, keys)
    kept = scan(encoder, task, (*keys, "numerical_rank"))
    for key in keys:
        assert kept.scores[key].values == pytest.approx(streamed.scores[key].values, rel=1e-9)
    assert streamed.task == kept.task


def test_a_second_scan_runs_nothing(encoder, whole):
    task = telling_task().hold_out(0.1, 0)
    keys = ("variability_ratio", "cca", "cka_change", "weight_snr", "probe")
    first, texts = forwards(encoder, lambda: scan(encoder, task, keys))
    assert texts == 300  # 270 to fit, 30 to judge the probes by
    again, texts = forwards(encoder, lambda: scan(encoder, task, keys))
    assert texts == 0
    assert again.scores == first.scores
    # Other scores of the same states need no pass either.
    _, texts = forwards(encoder, lambda: scan(encoder, task, "numerical_rank"))
    assert texts == 0
    off, texts = forwards(encoder, lambda: scan(encoder, task, keys, cache_limit=0))
    assert texts == 300
    for key in keys:
        assert off.scores[key].values == first.scores[key].values == whole.scores[key].values


def test_an_obvious_best_state_ends_the_reading(encoder):
    task = telling_task(n=2300, signal=1.0)
    result, texts = forwards(encoder, lambda: scan(encoder, task, f"{DEBIASED},cca,knn"))
    assert texts == result.task["examples_used"] == 500
    assert result.task["examples_available"] == 2300
    assert result.settings["examples"] == "auto"
    assert result.settings["examples_because"] == "state 1 differs from all others beyond noise"
    separable = result.scores[DEBIASED].details["separable_from_best"]
    assert separable[1:] == [False, True, True, True]
    # Without that score there is nothing to decide by.
    assert scan(encoder, task, "logme").task["examples_used"] == 2300


def test_noise_is_read_to_the_end(encoder, monkeypatch):
    monkeypatch.setattr("layerscout.scanning.sampling.FIRST_LOOK", 100)
    task = telling_task(n=700, signal=0.0)
    result, texts = forwards(encoder, lambda: scan(encoder, task, DEBIASED))
    assert texts == result.task["examples_used"] == 700
    assert result.settings["examples_because"] == "these are all there are"
    # Looks that were taken on the way make it harder to tell states apart: they are counted.
    seen = []
    from layerscout.scanning import run as scanning

    score_states = scanning.score_states
    monkeypatch.setattr(
        scanning, "score_states", lambda *a, **o: seen.append(o["looks"]) or score_states(*a, **o)
    )
    scan(encoder, task, DEBIASED)
    scan(encoder, task, DEBIASED, examples="all")
    assert seen == [7, 1]


# --- Bad input -----------------------------------------------------------------------------------


def test_states_that_are_not_finite_have_no_score_and_the_others_do(tiny):
    broken = Encoder.load(tiny)
    broken.model.encoder.layer[2].output.LayerNorm.weight.data[0] = float("nan")
    result = scan(broken, telling_task())
    for key, score in result.scores.items():
        if score.of == "states":
            assert undefined(score) == [False, False, False, True, True], key
    told = [w for w in result.warnings if "states [3, 4] hold values that are not finite" in w]
    assert len(told) >= 1
    assert set(result.scores["cka_change"].values) == {None}
    assert "refused" in result.scores["cka_change"].details
    for key in GRADIENTS:
        assert set(result.scores[key].values) == {None}
    assert result.best() == 1
    assert result.plan("best-down:1@top").tuned == (1,)


def test_a_score_that_refuses_is_left_out_and_alone_it_is_an_error(encoder):
    task = telling_task(n=12)
    result = scan(encoder, task, f"variability_ratio,{DEBIASED},cca,mutual_information")
    assert undefined(result.scores["variability_ratio"]) == [False] * 5
    for key in (DEBIASED, "cca", "mutual_information"):
        assert set(result.scores[key].values) == {None}
        reason = result.scores[key].details["refused"]
        assert f"{key} was left out: {reason}" in result.warnings
        assert expect_refused("", scan, encoder, task, key) == reason
    expect_refused("examples", scan, encoder, task, f"{DEBIASED},cca")


def few(labels, **options):
    """A task of two words a text, whose examples are of these classes."""
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(["cat", "old", "river", "warm", "on"], 3)) for _ in labels]
    return ls.Task.from_lists(texts, [f"class {label:04}" for label in labels], **options)


# What refuses, and what has no value for want of spread: the others have values.
MANY = "a thousand classes"
FEW = {
    MANY: (
        np.arange(2000) % 1000,
        {DEBIASED, "cca", "ridge", "mutual_information", "probe", *GRADIENTS},
    ),
    "3 and 2 of a class": (
        np.concatenate([np.zeros(60, int), [1] * 3, [2] * 2]),
        {DEBIASED, "cca", "ridge", "mutual_information"},
    ),
    "fewer examples than features": (
        np.arange(12) % 2,
        {DEBIASED, "cca", "ridge", "mutual_information"},
    ),
}


@pytest.mark.parametrize("case", [*whole_only(MANY), *(case for case in FEW if case != MANY)])
def test_too_few_examples_refuse_by_score(tiny_width_8, case):
    labels, refusing = FEW[case]
    result = scan(tiny_width_8, few(labels))
    got = {key for key, score in result.scores.items() if "refused" in score.details}
    assert got == refusing
    for key, score in result.scores.items():
        assert (set(score.values) == {None}) == (key in refusing), key


@pytest.fixture(scope="module")
def tiny_width_8(tmp_path_factory):
    folder = tiny_checkpoint(tmp_path_factory.mktemp("narrow") / "bert", "bert", width=8)
    return Encoder.load(folder)


def test_texts_that_are_all_one_have_no_variance(encoder):
    task = ls.Task.from_lists(["the cat"] * 200, ["a", "b"] * 100)
    result = scan(encoder, task)
    for key, score in result.scores.items():
        if score.of == "states" and key not in ("mutual_information", "probe"):
            assert set(score.values) == {None}, key
    assert set(result.scores["mutual_information"].values) == {0.0}
    assert set(result.scores["probe"].values) == {0.5}
    assert set(result.scores["cka_change"].values) == {None}
    assert result.best() is None
    assert None not in result.scores["fisher"].values[1:]
    assert any("class means are the same" in warning for warning in result.warnings)


def test_features_that_are_constant_or_the_same_are_no_trouble(tiny):
    odd = Encoder.load(tiny)
    for layer in odd.model.encoder.layer:
        norm = layer.output.LayerNorm
        norm.weight.data[3] = 0.0  # constant
        for module in (layer.output.dense, layer.attention.output.dense):
            module.weight.data[5], module.bias.data[5] = module.weight.data[6], module.bias.data[6]
        for norm in (layer.output.LayerNorm, layer.attention.output.LayerNorm):
            norm.weight.data[5], norm.bias.data[5] = norm.weight.data[6], norm.bias.data[6]
    embeddings = odd.model.embeddings
    for table in (embeddings.word_embeddings, embeddings.position_embeddings,
                  embeddings.token_type_embeddings, embeddings.LayerNorm):  # fmt: skip
        table.weight.data[..., 5] = table.weight.data[..., 6]
    embeddings.LayerNorm.bias.data[5] = embeddings.LayerNorm.bias.data[6]
    states = odd.states(["the old cat", "on the river"], pooling="mean")
    torch.testing.assert_close(states[..., 5], states[..., 6])
    assert states[1:, :, 3].var(dim=1).max() == 0
    result = scan(odd, telling_task())
    for key, score in result.scores.items():
        assert "refused" not in score.details
        if key != DEBIASED:
            assert undefined(score) == [score.of == "blocks", *[False] * 4], key


# --- Plans ---------------------------------------------------------------------------------------


def test_plans_rest_on_any_score(whole):
    assert whole.basis()[0] == 1
    assert whole.basis("numerical_rank")[0] == whole.best("numerical_rank")
    best, ranking = whole.basis("fisher")
    assert (best, ranking) == (1, whole.scores["fisher"].values)
    for key in OF_BLOCKS:
        values = whole.scores[key].values[1:]
        order = sorted(range(1, 5), key=lambda block: -values[block - 1])
        assert whole.plan("rank:2", score=key).tuned == tuple(sorted(order[:2]))
        assert whole.plan("rank-bottom:2", score=key).tuned == tuple(sorted(order[2:]))
        planned = whole.planning("best-down:1@top", score=key)
        assert planned.choice.plan.tuned == (1,)
        assert json.loads(json.dumps(planned.as_dict()))["score"] == key
    expect_refused("unknown score of this scan", whole.basis, "nothing")


def test_without_signal_plans_say_what_to_do(encoder):
    texts = list(telling_task(n=120).train.texts)
    task = ls.Task.from_lists([*texts, *texts], ["a"] * 120 + ["b"] * 120)
    result = scan(encoder, task, f"{DEBIASED},numerical_rank")
    assert result.best() is None
    expect_refused("--score variability_ratio", result.plan, "best-down:1@top")
    planned = result.planning("auto", score=DEBIASED)  # by which few rows are no reason
    assert planned.choice.plan.head == 3, "two thirds of the depth"
    assert f"{SCORES[DEBIASED].title} names no best state" in planned.choice.reason
    assert result.plan("best-down:1@top", score="numerical_rank").head == 4


# --- Several checkpoints -------------------------------------------------------------------------


def test_checkpoints_show_how_ranks_move(encoder, tmp_path):
    later = tiny_checkpoint(tmp_path / "later", "bert", seed=7)
    task = telling_task()
    result = scan(encoder, task, QUICK, checkpoints=[later, encoder])
    stability = result.as_dict()["stability"]
    assert stability["checkpoints"] == [encoder.name, str(later), encoder.name]
    assert set(stability["scores"]) == set(QUICK.split(","))
    other = scan(later, task, QUICK)
    for key, moved in stability["scores"].items():
        values = result.scores[key].values
        assert moved["values"][0] == moved["values"][2] == list(values)
        assert moved["values"][1] == list(other.scores[key].values)
        sign = 1 if SCORES[key].better == "lower" else -1
        defined = [sign * v for v in values[1:]]
        assert list(moved["ranks"][0][1:]) == [1 + sorted(defined).index(v) for v in defined]
        assert moved["deviation"][0] == moved["deviation"][2] == 0
        ranks = np.array([row[1:] for row in moved["ranks"]])
        assert moved["deviation"][1] == np.abs(ranks[1] - ranks[0]).mean()
        assert moved["kendall"][0] == moved["kendall"][2] == 1
    assert any(moved["deviation"][1] > 0 for moved in stability["scores"].values())
    result.save(tmp_path)
    assert json.dumps(Scan.load(tmp_path).as_dict()) == json.dumps(result.as_dict())
    assert scan(encoder, task, QUICK).stability is None


def test_checkpoints_read_the_same_examples(encoder):
    task = telling_task()
    for drawing in ({"examples": 60}, {"per_class": [20, 50]}, {"balanced": True, "examples": 50}):
        result = scan(encoder, task, "nc1", checkpoints=[encoder], **drawing)
        first, second = result.stability["scores"]["nc1"]["values"]
        assert first == second


def test_other_models_are_no_checkpoints(encoder, tmp_path):
    shorter = tiny_checkpoint(tmp_path / "short", "bert", blocks=3)
    other = tiny_checkpoint(tmp_path / "other", "electra")
    for checkpoint, words in ((shorter, "bert, 3 blocks"), (other, "electra, 4 blocks")):
        _, texts = forwards(
            encoder,
            lambda checkpoint=checkpoint, words=words: expect_refused(
                f"checkpoints must be of one model … bert, 4 blocks … {words}",
                scan, encoder, telling_task(n=60), "nc1", checkpoints=[checkpoint],
            ),
        )  # fmt: skip
        assert texts == 0  # before anything is computed


# --- Real models ---------------------------------------------------------------------------------


@pytest.mark.whole
@pytest.mark.real
@pytest.mark.parametrize("model", MODELS)
def test_real_models_have_all_scores(model):
    task = ls.Task.load(real("data", "rte"), task="rte")
    few = dataclasses.replace(task, validation=task.validation.take(np.arange(40)))
    result = scan(real("models", model), few, examples=300, max_length=48)
    assert tuple(result.scores) == tuple(SCORES) and len(SCORES) == 17
    for key, score in result.scores.items():
        assert "refused" not in score.details
        # Of so few examples the debiased ratio may not see any signal.
        if key != DEBIASED:
            assert undefined(score)[1:] == [False] * result.model["blocks"], key
        else:
            assert len(score.details["signal_fraction"]) == len(score.values)
    assert result.scores["fisher"].details["rows"] == 40
