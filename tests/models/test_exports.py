"""Shortened and exported checkpoints: what others load, and what is never overwritten."""

import json
import os
import resource
import signal
import subprocess
import sys
import warnings
from inspect import signature

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from conftest import real
from inputs import expect_refused
from layerscout.errors import DiskError, InputError
from layerscout.files import replace_folder
from layerscout.models import Encoder, build, export, truncate
from tiny import FAMILIES, SENTENCES, change_json, inputs_of, logits_of, tiny_checkpoint

LABELS = ["bad", "très “good”"]


# truncate


def test_a_truncated_checkpoint_gives_the_state_of_its_head(folder, tmp_path, capfd):
    whole = Encoder.load(folder, device="cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        said = truncate(folder, 3, tmp_path / "short")
    assert capfd.readouterr() == ("", "")
    short = Encoder.load(tmp_path / "short", device="cpu")
    batch = inputs_of(whole)
    expected, found = whole.cut(batch, 3), short.cut(batch, 3)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert type(short.model) is type(whole.model)
    assert short.tokenizer.model_input_names == whole.tokenizer.model_input_names
    assert len(getattr(short.model.config, "layer_types", None) or [0] * 3) == 3
    names = " ".join(f" {name}" for name in whole.model.state_dict())
    known = [part for part in (whole.family.final_norm, "pooler") if part and f" {part}." in names]
    assert list(said) == [
        f"the head ({', '.join(known)}) was trained on state 4 and now reads state 3; tune it again"
    ] * bool(known)


@pytest.mark.parametrize("family", ["bert", "distilbert", "xlm-roberta", "modernbert"])
def test_a_head_is_kept(family, tmp_path):
    (said,) = truncate(
        tiny_checkpoint(tmp_path / "whole", family, classes=3), 2, tmp_path / "short"
    )
    assert "classifier" in said
    before, after = (load_file(tmp_path / n / "model.safetensors") for n in ("whole", "short"))
    assert all(torch.equal(before[name], tensor) for name, tensor in after.items())
    assert "classifier.bias" in after or "classifier.out_proj.bias" in after
    short = AutoModelForSequenceClassification.from_pretrained(tmp_path / "short")
    assert (short.config.num_labels, short.config.num_hidden_layers) == (3, 2)


def test_the_model_of_a_tuning_is_not_replaced(tmp_path):
    whole = tiny_checkpoint(tmp_path / "whole", "bert")
    truncate(whole, 2, tmp_path / "tuned" / "model")
    truncate(whole, 1, tmp_path / "tuned" / "model")
    (tmp_path / "tuned" / "result.json").write_text("{}")
    expect_refused("whose model/ would be replaced", truncate, whole, 2, tmp_path / "tuned/model")
    truncate(whole, 2, tmp_path / "tuned" / "shorter")


@pytest.mark.parametrize("kind", ["MaskedLM", "TokenClassification", "PreTraining"])
def test_the_architecture_is_kept(kind, tmp_path):
    whole = tiny_checkpoint(tmp_path / "whole", "bert")
    getattr(transformers, f"AutoModelFor{kind}").from_pretrained(whole).save_pretrained(whole)
    architecture = AutoConfig.from_pretrained(whole).architectures
    (said,) = truncate(whole, 1, tmp_path / "short")
    assert said.startswith("the head (")
    config = AutoConfig.from_pretrained(tmp_path / "short")
    assert (config.architectures, config.num_hidden_layers) == (architecture, 1)
    model, report = getattr(transformers, architecture[0]).from_pretrained(
        tmp_path / "short", output_loading_info=True
    )
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    theirs = getattr(transformers, architecture[0]).from_pretrained(whole, num_hidden_layers=1)
    mine = model.state_dict()
    assert all(torch.equal(mine[name], tensor) for name, tensor in theirs.state_dict().items())


@pytest.mark.parametrize(
    ("architectures", "said"),
    [
        (..., ()),
        ([], ()),
        (["BertForSentiment"], ("class BertForSentiment, which transformers does",)),
        (["RobertaModel"], ("class RobertaModel, which",)),
        (["AutoConfig"], ("class AutoConfig, which",)),
    ],
)
def test_classes_that_cannot_be_had(architectures, said, tmp_path):
    path = tiny_checkpoint(tmp_path / "whole", "bert") / "config.json"
    warned = truncate(change_json(path, architectures=architectures), 2, tmp_path / "short")
    assert AutoConfig.from_pretrained(tmp_path / "short").architectures == ["BertModel"]
    assert all(part in line for part, line in zip(said, warned, strict=False))
    assert len(warned) == len(said) + 1  # and the pooler


@pytest.mark.parametrize("named", ["float32", "float16", ...])
def test_the_dtypes_of_file_and_configuration_are_kept(named, tmp_path):
    whole = tiny_checkpoint(tmp_path / "whole", "bert")
    AutoModel.from_pretrained(whole, dtype=torch.float16).save_pretrained(whole)
    truncate(change_json(whole / "config.json", dtype=named), 2, tmp_path / "short")
    weights = load_file(tmp_path / "short" / "model.safetensors")
    assert {tensor.dtype for tensor in weights.values()} == {torch.float16}
    config = json.loads((tmp_path / "short" / "config.json").read_text())
    assert config.get("dtype") == (None if named is ... else named)


def test_what_the_class_does_not_have_is_left_out_and_said(tmp_path):
    whole = tiny_checkpoint(tmp_path / "whole", "bert")
    path = whole / "model.safetensors"
    weights = load_file(path)
    extra = {"cls.seq_relationship.weight": torch.ones(2, 16)}
    save_file(weights | extra, path, {"format": "pt"})
    said = truncate(whole, 2, tmp_path / "short")
    assert any("1 tensors" in line and "cls.seq_relationship.weight" in line for line in said)
    # A pooler that the file does not have is not made up.
    poor = {name: tensor for name, tensor in weights.items() if "pooler" not in name}
    save_file(poor, path, {"format": "pt"})
    assert truncate(whole, 2, tmp_path / "short") == ()
    short = load_file(tmp_path / "short" / "model.safetensors")
    assert set(short) == {n for n in poor if "layer.2." not in n and "layer.3." not in n}


def test_a_head_that_the_file_lacks_is_an_error(tmp_path):
    whole = tiny_checkpoint(tmp_path / "whole", "bert")
    change_json(whole / "config.json", architectures=["BertForMaskedLM"])
    words = "lack 6 tensors of a BertForMaskedLM, such as cls.pred"
    expect_refused(words, truncate, whole, 2, tmp_path / "short")
    assert not (tmp_path / "short").exists()


def test_shared_blocks(tmp_path):
    whole = tiny_checkpoint(tmp_path / "whole", "albert", num_hidden_groups=2, blocks=6)
    expect_refused("--untie", truncate, whole, 4, tmp_path / "short")
    encoder = Encoder.load(whole)
    for head, untie, groups in ((3, False, 1), (4, True, 4)):
        truncate(whole, head, tmp_path / "short", untie=untie)
        short = Encoder.load(tmp_path / "short")
        batch = inputs_of(encoder)
        assert torch.equal(short.cut(batch, head), encoder.cut(batch, head))
        assert short.model.config.num_hidden_groups == groups
    bert = tiny_checkpoint(tmp_path / "bert", "bert")
    expect_refused("share no weights", truncate, bert, 2, tmp_path / "other", untie=True)


@pytest.mark.real
def test_a_real_checkpoint_stays_small(tmp_path):
    source = real("models", "all-MiniLM-L6-v2")
    assert len(truncate(source, 3, tmp_path / "short")) == 1
    whole, short = Encoder.load(source), Encoder.load(tmp_path / "short")
    batch = inputs_of(whole)
    torch.testing.assert_close(short.cut(batch, 3), whole.cut(batch, 3), rtol=0, atol=0)
    halves = 3 * (12 * 384**2 + 13 * 384) * 2  # bytes of three blocks in float16
    files = [path / "model.safetensors" for path in (source, tmp_path / "short")]
    assert abs(files[0].stat().st_size - files[1].stat().st_size - halves) < 20_000


def test_heads_that_cut_nothing_and_folders_that_are_the_model(tmp_path):
    whole = tiny_checkpoint(tmp_path / "whole", "bert")
    for head in (0, 4, 5, -1, "3", True, 1.5):
        words = f"`head` must be a whole number in 1..3, got {head!r};"
        expect_refused(words, truncate, whole, head, tmp_path / "short")
    (tmp_path / "link").symlink_to(whole)
    for folder in (whole, tmp_path / "link"):
        expect_refused("choose another folder", truncate, whole, 2, folder)
    assert len(Encoder.load(whole).model.encoder.layer) == 4


# export


@pytest.fixture(scope="module")
def exported(folder, tmp_path_factory):
    encoder = Encoder.load(folder, device="cpu")
    encoder.tokenize(SENTENCES, max_length=8)  # which leaves its traces in the tokenizer
    encoder.tokenizer.model_max_length = 10**30
    del encoder.tokenizer.init_kwargs["model_input_names"]  # as in checkpoints on the hub
    target = tmp_path_factory.mktemp("exported") / "model"
    model = build(encoder, "head:2", labels=LABELS)
    export(model, encoder.tokenizer, target, "# Card ☃\n", max_length=160)
    return target, encoder


def test_an_export_is_whole(exported, tmp_path):
    target, encoder = exported
    assert (target / "README.md").read_text(encoding="utf-8") == "# Card ☃\n"
    config = json.loads((target / "config.json").read_text())
    assert (config["dtype"], config["id2label"]) == ("float32", {"0": LABELS[0], "1": LABELS[1]})
    os.umask(umask := os.umask(0))
    assert {p.stat().st_mode & 0o777 for p in target.iterdir()} == {0o666 & ~umask}
    assert target.stat().st_mode & 0o777 == 0o777 & ~umask
    assert [p.name for p in target.parent.iterdir()] == ["model"]
    tokenizer = AutoTokenizer.from_pretrained(target)
    assert tokenizer.model_max_length == 160
    assert tokenizer.model_input_names == encoder.tokenizer.model_input_names
    assert tokenizer.backend_tokenizer.truncation is tokenizer.backend_tokenizer.padding is None
    assert "local_files_only" not in (target / "tokenizer_config.json").read_text()
    assert encoder.tokenizer.model_max_length == 10**30
    encoder.tokenizer.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    model = build(encoder, "head:1")
    export(model, encoder.tokenizer, tmp_path / "model", "", max_length=128)
    taken = set(AutoTokenizer.from_pretrained(tmp_path / "model")("a text"))
    types = {"token_type_ids"} & set(signature(model.forward).parameters)
    assert taken == {"input_ids", "attention_mask"} | types


ANSWER = """
import sys
sys.modules["layerscout"] = None
import json
import torch
from transformers import pipeline
torch.set_num_threads(1)
found = []
for folder in sys.argv[2:]:
    classify = pipeline("text-classification", folder, top_k=None, function_to_apply="none")
    found.append(classify(json.loads(sys.argv[1])))
print(json.dumps(found))
"""


@pytest.mark.whole
def test_pipelines_answer_without_layerscout(tmp_path):
    expected = []
    for family in FAMILIES:
        encoder = Encoder.load(tiny_checkpoint(tmp_path / "whole" / family, family), device="cpu")
        model = build(encoder, "head:2", labels=LABELS)
        export(model, encoder.tokenizer, tmp_path / family, "", max_length=128)
        expected.append(logits_of(model, inputs_of(encoder)))
    command = [sys.executable, "-c", ANSWER, json.dumps(SENTENCES[:5]), *FAMILIES]
    answers = json.loads(subprocess.check_output(command, cwd=tmp_path, text=True))
    for found, logits in zip(answers, expected, strict=True):
        scores = [{one["label"]: one["score"] for one in answer} for answer in found]
        scores = torch.tensor([[by_label[label] for label in LABELS] for by_label in scores])
        torch.testing.assert_close(scores, logits, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("part", ["weights", "tokenizer", "card"])
def test_a_full_disk_leaves_the_earlier_export(part, tmp_path, tiny, monkeypatch):
    encoder = Encoder.load(tiny)
    model = build(encoder, "head:1")
    target = tmp_path / "model"
    export(model, encoder.tokenizer, target, "first", max_length=128)
    # Files may not grow beyond this, which fails as a full disk does.
    limit = {"weights": 2_000, "tokenizer": 2_000, "card": 100_000}[part]
    if part != "weights":
        monkeypatch.setattr(model, "save_pretrained", lambda folder, **_: None)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
        with pytest.raises(DiskError, match="cannot write .*model: .*File too large"):
            export(model, encoder.tokenizer, target, "x" * 200_000, max_length=128)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert (target / "README.md").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


# replace_folder


def fill(folder, content="new"):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(content)
    return folder


def tree(folder):
    return {str(p.relative_to(folder)): p.is_file() and p.read_text() for p in folder.rglob("*")}


def test_a_folder_is_made_with_those_above_it_or_replaced_with_all_it_held(tmp_path):
    (fill(tmp_path / "model", "old") / "old.txt").write_text("old")
    (tmp_path / "link").symlink_to(fill(tmp_path / "disk", "old"))
    for place in ("model", "link", "a/b"):
        before = tree(tmp_path / place)
        with replace_folder(tmp_path / place) as temporary:
            fill(temporary)
            assert tree(tmp_path / place) == before
        assert tree(tmp_path / place) == {"config.json": "new"}
    assert (tmp_path / "link").is_symlink() and tree(tmp_path / "disk") == {"config.json": "new"}
    assert {path.name for path in tmp_path.iterdir()} == {"model", "link", "disk", "a"}


@pytest.mark.parametrize("failing", [0, 1, 2])  # what is written, or one of the two moves
@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError, InputError])
def test_what_goes_wrong_leaves_everything(error, failing, tmp_path, monkeypatch):
    target = fill(fill(tmp_path, "outside") / "model", "old")
    before, rename, calls = tree(tmp_path), type(target).rename, []

    def fails(path, to):
        calls.append(path)
        if len(calls) == failing:
            raise error
        return rename(path, to)

    monkeypatch.setattr(type(target), "rename", fails)
    with pytest.raises(error), replace_folder(target) as temporary:
        fill(temporary)
        if not failing:
            raise error
    assert tree(tmp_path) == before


@pytest.mark.parametrize("held", [["letters/"], ["src/", "config.json"], ["notes.txt"]])
def test_folders_of_others_are_not_replaced(held, tmp_path):
    target = tmp_path / "mine"
    target.mkdir()
    for name in held:
        path = target / name
        path.mkdir() if name.endswith("/") else path.write_text("mine")
    before = tree(tmp_path)
    with (
        pytest.raises(InputError, match="more than a checkpoint, .*choose another folder"),
        replace_folder(target),
    ):
        raise AssertionError("nothing is begun")
    assert tree(tmp_path) == before


@pytest.mark.parametrize("where", ["file", "file/inside", "x" * 300])
def test_places_that_cannot_be_written(where, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write"), replace_folder(tmp_path / where):
        pass
    assert tree(tmp_path) == {"file": ""}


def test_an_error_of_the_system_in_words_of_another_library(tmp_path):
    full = Exception("No space left on device (os error 28)")
    with pytest.raises(DiskError, match="cannot write .*No space left"):  # noqa: SIM117
        with replace_folder(tmp_path / "model"):
            raise full
    assert list(tmp_path.iterdir()) == []
