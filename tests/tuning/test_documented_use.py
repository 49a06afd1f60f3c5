"""The figure that is reported is that of the use which the model card shows, for every kind."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import softmax
from transformers import AutoModel, AutoModelForTokenClassification, AutoTokenizer

from conftest import whole_only
from layerscout.data import Split, Tags, Task, find_spans
from layerscout.models import add_formats
from layerscout.plans import Adapter, LoRA
from layerscout.predicting import Predictor
from layerscout.reporting import write_card
from layerscout.tuning import tune
from tuned import card_code, choices_task, load, run_card, several_task, task_of, words_task

SHORT = ["a-b", "it's", "st.", "🙂", "中", "é", "e\u0301", "של", "«a»", '"', "'", "a\tb", "ß", "ﬁ"]
SHORT += ["▁", "a\nb", "3.5", "x2y", "..."]
NOTHING = ["\u200b", "\u200d", "\u00a0"]  # of no token, to some tokenizers
LONG = [
    "Mary-Jane",
    "O'Neil's",
    "中文中文中文",
    "👍🏽👍🏽👍🏽",
    "cafe\u0301-bar",
    "שלום-שלום",
    "مرحبا-بك",
]
LONG += [
    "a\u200bb-c\u200bd",
    '"quoted"',
    "x" * 40,
    "http://a.b/c?d=e",
    "ＦＵＬＬ１２",
    "U.S.A.-wide",
]
LONG += ["▁word", "👩\u200d👩\u200d👧", "١٢٣-٤", "ab12cd34", "\u202eabc\u202c", "नमस्ते"]
TEXTS = ["", " ", "\t", "two\nlines", "a  b", "[SEP] <s> [MASK]", "word " * 150, "e\u0301" * 80]
TEXTS += ["\u200b", "▁", "中文" * 60, "x" * 300, " a ", "\r\n", "👩\u200d👩\u200d👧", "\u3000"]


def harden(split: Split, rng: np.random.Generator, more: list[str]) -> Split:
    """Put words of hard characters among those of a split, and texts that are hard as a whole."""

    def change(word: str) -> str:
        hard = LONG if len(word) > 5 else SHORT + more
        return str(rng.choice(hard)) if rng.random() < 0.4 else word

    if split.words is not None:
        words = [tuple(map(change, row)) for row in split.words]
        return replace(split, words=words, texts=[" ".join(row) for row in words])
    changed = [" ".join(map(change, text.split(" "))) for text in split.texts]
    if split.groups is not None:  # the choices of an example share its text
        changed = [changed[row - row % 2] for row in range(len(changed))]
    else:
        for row in range(0, len(changed), 5):
            changed[row] = TEXTS[row // 5 % len(TEXTS)]
    pairs = split.pairs and [" ".join(map(change, text.split(" "))) for text in split.pairs]
    return replace(split, texts=changed, pairs=pairs)


def rename(task: Task, tags: dict[str, str]) -> Task:
    """Give the tags of a task other names."""
    return replace(task, labels=tuple(tags.get(tag, tag) for tag in task.labels))


def numbers_task(n: int, held: int) -> Task:
    """Make a task of numbers: how many words a text has."""
    task = task_of(n, held)
    parts = {
        name: replace(part, labels=np.array([len(t.split()) / 10 for t in part.texts]))
        for name, part in (("train", task.train), ("validation", task.validation))
    }
    return replace(task, kind="regression", labels=(), metric="pearson_spearman", **parts)


def plain_task(n: int, held: int) -> Task:
    """Make a task of words whose tags mark no spans, with names that the library would cut."""
    tags = {"O": "-LRB-", "B-long": "NN-HL", "I-long": "NN"}
    return replace(rename(words_task(n, held), tags), metric="accuracy")


def pairs_task(n: int, held: int) -> Task:
    """Make a task of pairs of texts."""
    task = task_of(n, held)
    parts = {
        name: replace(part, pairs=part.texts[::-1])
        for name, part in (("train", task.train), ("validation", task.validation))
    }
    return replace(task, columns={**task.columns, "text_pair": "second"}, **parts)


TASKS = {
    "classes": task_of,
    "pairs": pairs_task,
    "several": several_task,
    "numbers": numbers_task,
    "choices": choices_task,
    "spans": words_task,
    "dropped": words_task,
    # No I- of a type leaves no tag with which the library would join the pieces of a word.
    "single": lambda n, held: rename(words_task(n, held), {"I-long": "B-other"}),
    "ends": lambda n, held: rename(words_task(n, held), {"B-long": "S-long", "I-long": "B-long"}),
    "untyped": lambda n, held: rename(words_task(n, held), {"B-long": "B", "I-long": "I"}),
    "plain": plain_task,
}
OF_TEXTS = ("classes", "pairs", "several", "numbers", "choices")
FAMILIES = ("roberta", "xlm-roberta", "deberta-v2", "distilbert", "electra", "modernbert")
DECODERS = ("llama", "gpt2")
TUNED = {"batch_size": 4, "learning_rate": 3e-3, "max_length": 64, "progress": False}


def tuned(folder: Path, kind: str, family: str, rows: int, **options: Any) -> tuple[Any, Split]:
    """Tune for hard characters and save in `folder`; return the result and what was judged."""
    rng, task = np.random.default_rng(0), TASKS[kind](60, rows)
    more = NOTHING if kind == "dropped" else []
    parts = {name: harden(getattr(task, name), rng, more) for name in ("train", "validation")}
    options = {"epochs": 3, **TUNED, **options}
    if kind == "several":
        options["threshold"] = "tuned"
    if task.train.words is not None:  # so that so small a model does not say "O" of every word
        options |= {"class_weights": "balanced", "head_learning_rate": 0.5, "epochs": 10}
    encoder = load(folder / "base", family)
    result = tune(encoder, replace(task, **parts), "full", **options)
    result.save(folder)
    return result, parts["validation"]


def ask(result: Any, folder: Path, split: Split, choices: int = 1) -> list[dict[str, Any]]:
    """Run what the card shows on each text, or on the choices of an example; return what it named.

    A decoder cannot read an empty text; the card names the token to give in its place.
    """
    code = card_code(write_card(result.content), folder / "model")
    begins = re.search(r"^(\[scores\]|classify\(|score\(|label\(|choices =)", code, re.MULTILINE)
    names: dict[str, Any] = {"print": lambda _: None}
    exec(code[: begins.start()], names)
    once = re.sub(r"^(classify|score|label)\(", r"answer = \1(", code[begins.start() :], flags=re.M)
    said, pairs = [], split.pairs or [""] * len(split)
    for row in range(0, len(split), choices):
        own = once.replace('"some text"', repr(give(result, split.texts[row])))
        own = own.replace('"its second text"', repr(pairs[row]))
        for number in range(choices):
            own = own.replace(f'"choice {number + 1}"', repr(pairs[row + number]))
        exec(own, names)
        said.append({name: names.get(name) for name in ("answer", "labels", "logits")})
    return said


def give(result: Any, text: str) -> str:
    """Return what users give for a text: for an empty one, to a decoder, what the card says."""
    return text or result.content["empty_text"] or ""


def cases(*quick: Any, whole: list[Any]) -> list[Any]:
    """List cases: some of few rows, and those of the whole suite, most of 200."""
    many = [(*case, 64 if case[0] == "dropped" else 200) for case in whole]
    return [(*case, 20) for case in quick] + whole_only(*many)


MERGED = {"method": LoRA()}
OF_TEXTS = [(kind, "bert", {}) for kind in ("classes", "pairs", "several", "numbers", "choices")]
OF_TEXTS += [("classes", family, {}) for family in (*FAMILIES, *DECODERS)]
OF_TEXTS += [("several", "llama", {}), ("numbers", "gpt2", {}), ("classes", "bert", MERGED)]


@pytest.mark.parametrize(
    "kind, family, options, rows", cases(("classes", "bert", {}), whole=OF_TEXTS)
)
def test_texts_are_judged_as_the_card_asks(kind, family, options, rows, tmp_path):
    result, split = tuned(tmp_path, kind, family, rows, **options)
    said = ask(result, tmp_path, split, choices=2 if kind == "choices" else 1)
    answers = [one[0] if isinstance(one, list) else one for one in (it["answer"] for it in said)]
    predicted = list(result.predictions["prediction"])
    if kind == "numbers":
        np.testing.assert_allclose([one["score"] for one in answers], predicted, atol=1e-4)
    elif kind == "several":
        assert [sorted(one["labels"]) for one in said] == list(map(sorted, predicted))
    elif kind == "choices":
        assert [int(one["logits"].argmax()) for one in said] == predicted
    else:
        assert [one["label"] for one in answers] == predicted
        sure = softmax(np.stack(result.predictions["logits"]), axis=1).max(axis=1)
        np.testing.assert_allclose([one["score"] for one in answers], sure, atol=1e-4)


def read_words(answers: Any, ends: np.ndarray, tags: Tags) -> set[Any]:
    """Return what a pipeline said: places and types of spans, or words and their tags."""
    if not tags.are_spans:
        return {(int(np.searchsorted(ends, a["start"], "right")), a["entity"]) for a in answers}
    types = {name: name for name in tags.types}
    return {(a["start"], a["end"], types.get(a["entity_group"], "_")) for a in answers}


def place_words(ids: np.ndarray, starts: np.ndarray, ends: np.ndarray, tags: Tags) -> set[Any]:
    """Return the same of the tags of a sentence."""
    if not tags.are_spans:
        return {(number, tags.names[tag]) for number, tag in enumerate(ids)}
    found = zip(*find_spans(Tags(tags.names, np.zeros(len(ids), int)), ids), strict=True)
    return {(starts[first], ends[last], tags.types[number]) for number, first, last in found}


OF_WORDS = [(kind, "bert", {}) for kind in ("spans", "single", "ends", "untyped", "plain")]
OF_WORDS += [("spans", family, {}) for family in ("xlm-roberta", "deberta-v2", "modernbert")]
OF_WORDS += [("spans", family, {}) for family in DECODERS]
OF_WORDS += [("plain", "xlm-roberta", {}), ("spans", "roberta", MERGED), ("dropped", "bert", {})]


@pytest.mark.parametrize(
    "kind, family, options, rows",
    cases(("spans", "xlm-roberta", {}), whole=OF_WORDS),
)
def test_words_are_judged_as_the_card_asks(kind, family, options, rows, tmp_path):
    result, split = tuned(tmp_path, kind, family, rows, **options)
    labels = tuple(result.content["task"]["labels"])
    tags, numbers = Tags(labels, split.sentences), {tag: n for n, tag in enumerate(labels)}
    predicted = np.array([numbers[tag] for tag in result.predictions["prediction"]])
    tokenizer, counts = AutoTokenizer.from_pretrained(tmp_path / "model"), np.zeros(3)
    for row, said in enumerate(ask(result, tmp_path, split)):
        own = slice(*split.bounds[row : row + 2])
        ends = np.cumsum([len(word) + 1 for word in split.words[row]]) - 1
        starts = ends - list(map(len, split.words[row]))
        true, ours = (
            place_words(ids[own], starts, ends, tags) for ids in (split.labels, predicted)
        )
        got = read_words(said["answer"], ends, tags)
        counts += len(true & got), len(got), len(true)
        # Of a word in two windows the library takes the longer entity.
        if kind != "dropped" and len(tokenizer(split.texts[row])["input_ids"]) <= 64:
            assert got == ours, split.words[row]
    reached, reported = 2 * counts[0] / (counts[1] + counts[2]), next(iter(result.metrics.values()))
    if kind == "dropped":  # words of no token, of which no pipeline can say anything
        assert any("dropped by the tokenizer" in warning for warning in result.warnings)
    else:
        assert reached == pytest.approx(reported, abs=0.01) and reported > 0.02


@pytest.mark.whole
@pytest.mark.parametrize(
    "kind, family",
    [("classes", "bert"), ("pairs", "llama"), ("several", "llama"), ("numbers", "bert")],
)
@pytest.mark.parametrize(
    "options", [{"method": LoRA(), "keep_adapter": True}, {"method": Adapter()}]
)
def test_what_is_kept_apart_answers_as_reported(kind, family, options, tmp_path):
    result, split = tuned(tmp_path, kind, family, 200, **options)
    names = run_card(write_card(result.content), tmp_path / "model", tmp_path / "base")
    said = []
    for row, text in enumerate(split.texts):
        pair = None if split.pairs is None else split.pairs[row]
        given = text if pair is not None else give(result, text)
        if isinstance(names["model"], Predictor):
            pairs = None if pair is None else [pair]
            said.append(names["model"].find_logits([given], pairs)[0])
            continue
        inputs = names["tokenizer"](given, pair, truncation=True, return_tensors="pt")
        with torch.no_grad():
            said.append(names["model"](**inputs).logits[0].numpy())
    np.testing.assert_allclose(said, np.stack(result.predictions["logits"]), atol=1e-4)


@pytest.mark.whole
@pytest.mark.parametrize(
    "kind, family",
    [("classes", family) for family in ("bert", "modernbert", "gpt2")]
    + [("pairs", "bert"), ("spans", "xlm-roberta")],
)
def test_further_formats_answer_as_reported(kind, family, tmp_path):
    for library in ("onnxscript", "onnxruntime", "sentence_transformers"):
        pytest.importorskip(library)
    from onnxruntime import InferenceSession
    from sentence_transformers import SentenceTransformer

    result, split = tuned(tmp_path, kind, family, 200)
    folder, texts = tmp_path / "model", [give(result, text) for text in split.texts]
    add_formats(folder, ["sentence-transformers", "onnx"])
    tokenizer, encoder = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
    session = InferenceSession(str(folder / "onnx" / "model.onnx"))
    words = split.words and AutoModelForTokenClassification.from_pretrained(folder)
    vectors = SentenceTransformer(str(folder), device="cpu").encode(texts)
    for row, text in enumerate(texts):
        pair = split.pairs and split.pairs[row]
        inputs = tokenizer(text, pair, truncation=True, return_tensors="pt")
        given = {name: part.numpy() for name, part in inputs.items()}
        [logits] = session.run(None, given)
        expected = result.predictions["logits"][row]
        with torch.no_grad():
            if words:  # every token's; a word is judged by one of them
                expected = words(**inputs).logits[0].numpy()
            if not pair:
                states = encoder(**inputs)[0][0]
                pooled = states[-1] if family in DECODERS else states.mean(dim=0)
                np.testing.assert_allclose(vectors[row], pooled.numpy(), atol=1e-4)
        np.testing.assert_allclose(logits[0], expected, atol=1e-4)
