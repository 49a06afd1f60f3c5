"""Comparing models: the maps, their clusters, the files, and what is refused."""

import json

import numpy as np
import pytest

import layerscout as ls
from inputs import expect_refused
from layerscout.comparing import compare
from layerscout.models import Encoder
from layerscout.reporting import build_sections, describe_clusters
from layerscout.reporting.comparison import shorten_names
from reference import similarity as naive
from tiny import FAMILIES, tiny_checkpoint
from tuned import choices_task, lists, task_of, words_task


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    base = tmp_path_factory.mktemp("models")
    return {family: tiny_checkpoint(base / family, family) for family in FAMILIES}


def quietly(models, task, **options):
    return compare(models, task, progress=False, **options)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_the_maps_are_those_of_the_pooled_states(folders, pooling):
    task = task_of(n=12, held=30)
    names = ("bert", "roberta")
    result = quietly([folders[name] for name in names], task, pooling=pooling)
    states = [
        Encoder.load(folders[name]).states(task.validation.texts, pooling=pooling).double().numpy()
        for name in names
    ]
    assert [one["of"] for one in result.maps] == [[0, 0], [0, 1], [1, 1]]
    for one in result.maps:
        left, right = (states[number] for number in one["of"])
        assert one["rows"] == one["columns"] == [0, 1, 2, 3, 4]
        for key, estimate in (("cka", naive.hsic), ("cka_debiased", naive.hsic_unbiased)):
            for s, t in np.ndindex(5, 5):
                if pooling == "cls" and 0 in (s, t):
                    assert one[key][s][t] is None
                else:
                    expected = naive.cka(left[s], right[t], estimate)
                    assert one[key][s][t] == pytest.approx(expected, rel=1e-4, abs=1e-5)


@pytest.mark.whole
def test_every_family_can_be_compared_with_another(folders):
    task = task_of(n=12, held=8)
    result = quietly([folders[name] for name in FAMILIES], task, pooling="mean")
    assert len(result.maps) == len(FAMILIES) * (len(FAMILIES) + 1) // 2
    json.dumps(result.as_dict(), allow_nan=False)
    for model, family in zip(result.models, FAMILIES, strict=True):
        assert (model["family"], model["blocks"]) == (family.removesuffix("-conv"), 4)


def test_models_may_differ_in_depth_and_width(tmp_path, folders):
    small = tiny_checkpoint(tmp_path / "small", "bert", num_hidden_layers=2, hidden_size=8)
    result = quietly([folders["bert"], small], task_of(held=20))
    assert np.shape(result.maps[1]["cka"]) == (5, 3)
    assert result.clusters[1] == {"cka": None, "cka_debiased": None}  # two states that vary
    assert result.clusters[0]["cka"]["split"] == 2


def test_a_model_with_itself_has_ones_on_the_diagonal(folders):
    result = quietly(folders["bert"], task_of(held=20))
    (one,) = result.maps
    np.testing.assert_allclose(np.diagonal(one["cka"])[1:].astype(float), 1)


def test_few_examples_of_many_features_are_warned_of(folders):
    result = quietly(folders["bert"], task_of(held=20))
    assert any("CKA is biased upwards" in warning for warning in result.warnings)
    few = result.as_dict()
    many = few | {"examples": 160}
    for content, leading in ((few, "debiased CKA"), (many, "CKA")):
        key = "cka" if leading == "CKA" else "cka_debiased"
        clusters = content["clusters"][0][key]
        told = f"{leading} {clusters['lower']:.2f} and {clusters['upper']:.2f} within them"
        [line] = describe_clusters(content)
        assert f" {told}" in line
        sections = {section.title: section for section in build_sections(content)[1]}
        drawn = sections["Found"].charts[0].to_dict()["description"]
        assert f"{leading} of the states" in drawn.replace("Debiased", "debiased")
        assert ("Biased" in sections) == (leading != "CKA") != ("Debiased" in sections)
        assert sections["Values: bert"].table.rows[0][-1] == "1.00"


def test_multiple_choice_reads_every_choice(folders):
    result = quietly(folders["bert"], choices_task(held=6, choices=3))
    assert result.examples == 18


def test_all_rows_are_read_where_none_are_held_out(folders):
    texts, labels = lists(30)
    result = quietly(folders["bert"], ls.Task.from_lists(texts, labels))
    assert result.examples == 30


def test_examples_are_drawn_by_the_seed(folders):
    task = task_of(n=12, held=30)
    few = [quietly(folders["bert"], task, examples=10, seed=seed) for seed in (0, 0, 1)]
    assert few[0].examples == 10
    assert few[0].maps == few[1].maps != few[2].maps


def test_the_files(folders, tmp_path):
    result = quietly([folders["bert"], folders["electra"]], task_of(held=20))
    result.save(tmp_path / "out")
    content = json.loads((tmp_path / "out" / "compare.json").read_text())
    assert content == json.loads(json.dumps(result.as_dict()))
    assert content["verb"] == "compare"
    page = (tmp_path / "out" / "compare.html").read_text()
    assert "two clusters" in page
    assert "http://" not in page.split("<script")[0]


def test_a_plot_has_all_maps_in_one_scale(folders, tmp_path):
    result = quietly([folders["bert"], folders["electra"]], task_of(held=20))
    chart = ls.plot([result, result], tmp_path / "maps.svg").to_dict()
    assert len(chart["concat"]) == 6
    scales = {str(each["layer"][0]["encoding"]["color"]["scale"]) for each in chart["concat"]}
    assert len(scales) == 1
    assert (tmp_path / "maps.svg").read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["a/model", "b/model"], ["a", "b"]),
        (["/x/one/bert", "/y/one/bert"], ["x/one/bert", "y/one/bert"]),
        (["tuned/model", "org/base"], ["tuned", "base"]),
        (["bert", "bert"], ["1. bert", "2. bert"]),
    ],
)
def test_models_are_told_apart_by_short_names(names, short):
    content = {"models": [{"name": name} for name in names]}
    assert shorten_names(content) == short


def test_what_cannot_be_compared_is_refused(folders):
    task = task_of(held=8)
    expect_refused("no model to compare", quietly, [], task)
    expect_refused("pooling", quietly, folders["bert"], task, pooling="max")
    expect_refused("`examples` … 1..8 … got 9", quietly, folders["bert"], task, examples=9)
    expect_refused("bytes, 0 or more, got -1", quietly, folders["bert"], task, cache_limit=-1)


def test_the_command(run, folders, reviews, tmp_path):
    out = tmp_path / "out"
    code, printed, told = run(
        "compare", folders["bert"], folders["roberta"], reviews, "-o", out, "--plot", out / "m.png"
    )
    assert code == 0, told
    assert "bert: " in printed and "roberta: " in printed
    assert "two clusters" in " ".join(printed.split())
    assert {path.name for path in out.iterdir()} == {"compare.json", "compare.html", "m.png"}
    code, printed, _ = run("compare", folders["bert"], reviews, "-o", out, "--json")
    assert (code, json.loads(printed)["verb"]) == (0, "compare")
    code, _, told = run("compare", reviews)
    assert code == 2
    assert "add a model" in told


def test_words_are_compared_word_by_word(folders):
    task, encoder = words_task(), Encoder.load(folders["bert"])
    result = quietly(encoder, task)
    tokens = encoder.tokenize_split(task.validation)
    states = encoder.pool(tokens, np.arange(len(tokens))).double().numpy()
    words = len(task.validation.labels)
    assert states.shape[1] == words
    assert (result.examples, result.task["words_used"]) == (len(task.validation), words)
    assert result.settings["pooling"] == "mean"
    expected = naive.cka(states[1], states[3], naive.hsic)
    assert result.maps[0]["cka"][1][3] == pytest.approx(expected, rel=1e-4)
    expect_refused("words are pooled by … got cls", quietly, encoder, task, pooling="cls")
