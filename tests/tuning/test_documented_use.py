"""The figure that is reported is that of the use which the model card shows, for every kind."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from layerscout.data import Split, Tags, Task, find_spans
from layerscout.reporting import write_card
from layerscout.tuning import tune
from tuned import choices_task, load, run_card, several_task, task_of, words_task

SHORT = ["a-b", "it's", "st.", "🙂", "中", "é", "e\u0301", "של", "«a»", '"', "'", "a\tb", "ß", "ﬁ"]
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
TEXTS = ["", " ", "\t", "two\nlines", "a  b", "[SEP] <s> [MASK]", "word " * 150, "e\u0301" * 80]


def harden(split: Split, rng: np.random.Generator) -> Split:
    """Put words of hard characters among those of a split, and texts that are hard as a whole."""

    def change(word: str) -> str:
        return str(rng.choice(LONG if len(word) > 5 else SHORT)) if rng.random() < 0.4 else word

    if split.words is not None:
        words = [tuple(map(change, row)) for row in split.words]
        return replace(split, words=words, texts=[" ".join(row) for row in words])
    changed = [" ".join(map(change, text.split(" "))) for text in split.texts]
    for row in range(0, len(changed), 5) if split.groups is None else []:
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


TASKS = {
    "classes": task_of,
    "several": several_task,
    "numbers": numbers_task,
    "choices": choices_task,
    "spans": words_task,
    # No I- of a type leaves no tag with which the library would join the pieces of a word.
    "single": lambda n, held: rename(words_task(n, held), {"I-long": "B-other"}),
    "ends": lambda n, held: rename(words_task(n, held), {"B-long": "S-long", "I-long": "B-long"}),
    "untyped": lambda n, held: rename(words_task(n, held), {"B-long": "B", "I-long": "I"}),
    "plain": plain_task,
}
TUNED = {"epochs": 5, "batch_size": 4, "learning_rate": 3e-3, "max_length": 160, "progress": False}


def tuned(encoder: Any, kind: str, rows: int, folder: Any) -> tuple[Any, Task, str]:
    """Tune for a task of hard characters; return the result, the task, and the card's code."""
    rng = np.random.default_rng(0)
    task = TASKS[kind](3 * rows, rows)
    parts = {"train": harden(task.train, rng), "validation": harden(task.validation, rng)}
    task = replace(task, **parts)
    options: dict[str, Any] = {"threshold": "tuned"} if kind == "several" else {}
    if task.train.words is not None:  # so that so small a model does not say "O" of every word
        options = {"class_weights": "balanced", "head_learning_rate": 0.5}
    result = tune(encoder, task, "full", **TUNED, **options)
    result.save(folder)
    return result, task, write_card(result.content)


def ask_texts(kind: str, card: str, folder: Any, split: Split, empty: str | None) -> list[Any]:
    """Return what the card's code says of each text, or example of choices.

    A decoder cannot read an empty text; the card names the token to give in its place.
    """
    texts, answers = [text or empty or "" for text in split.texts], []
    if kind == "several":  # a script of one text
        for text in texts:
            answers.append(run_card(card.replace('"some text"', repr(text)), folder)["labels"])
    elif kind == "choices":
        names = run_card(card, folder)
        for row in range(0, len(split), 2):
            inputs = names["tokenizer"](
                split.texts[row : row + 2],
                split.pairs[row : row + 2],
                padding=True,
                truncation=True,
                return_tensors="pt",
            )
            made = {name: tensor[None] for name, tensor in inputs.items()}
            answers.append(int(names["model"](**made).logits.argmax()))
    elif kind == "numbers":
        score = run_card(card, folder)["score"]
        answers = [score({"text": text}, truncation=True)["score"] for text in texts]
    else:
        classify = run_card(card, folder)["classify"]
        answers = [classify({"text": text}, truncation=True)["label"] for text in texts]
    return answers


CASES = [("classes", "bert", 20), ("spans", "xlm-roberta", 20)]
CASES += [("single", "bert", 20), ("plain", "bert", 20)]
ALL = [("classes", "bert", 200), ("spans", "bert", 200)]
OF_TEXTS = ("classes", "several", "numbers", "choices")


def select(whole: bool, texts: bool) -> list[Any]:
    """Choose cases of texts or words, those of the whole suite with its mark."""
    chosen = [case for case in (ALL if whole else CASES) if (case[0] in OF_TEXTS) == texts]
    return [pytest.param(*case, marks=pytest.mark.whole if whole else ()) for case in chosen]


@pytest.mark.parametrize("kind, family, rows", select(False, True) + select(True, True))
def test_texts_are_judged_as_the_card_asks(kind, family, rows, tmp_path):
    result, task, card = tuned(load(tmp_path / "base", family), kind, rows, tmp_path / "tuned")
    answers = ask_texts(
        kind,
        card,
        tmp_path / "tuned" / "model",
        task.validation,
        result.content["empty_text"],
    )
    predicted = list(result.predictions["prediction"])
    if kind == "numbers":
        np.testing.assert_allclose(answers, predicted, atol=1e-4)
    elif kind == "several":
        assert list(map(sorted, answers)) == list(map(sorted, predicted))
    else:
        assert answers == predicted


@pytest.mark.parametrize("kind, family, rows", select(False, False) + select(True, False))
def test_words_are_judged_as_the_card_asks(kind, family, rows, tmp_path):
    result, task, card = tuned(load(tmp_path / "base", family), kind, rows, tmp_path / "tuned")
    label, split = run_card(card, tmp_path / "tuned" / "model")["label"], task.validation
    tags = Tags(task.labels, split.sentences)
    right, found, true, types = 0, 0, 0, {name: name for name in tags.types}
    for row, text in enumerate(split.texts):
        assert text == " ".join(split.words[row])
        answers = label(text)
        ends = np.cumsum([len(word) + 1 for word in split.words[row]]) - 1
        starts = ends - list(map(len, split.words[row]))
        own = split.labels[split.bounds[row] : split.bounds[row + 1]]
        if kind == "plain":  # a tag for each word
            named = {int(np.searchsorted(ends, one["start"], "right")): one for one in answers}
            said = [named[n]["entity"] if n in named else "O" for n in range(len(own))]
            right += sum(tag == task.labels[k] for tag, k in zip(said, own, strict=True))
            true += len(own)
            continue
        spans = find_spans(Tags(tags.names, np.zeros(len(own), dtype=int)), own)
        expected = {(starts[a], ends[b], tags.types[n]) for n, a, b in zip(*spans, strict=True)}
        got = {(one["start"], one["end"], types.get(one["entity_group"], "_")) for one in answers}
        right, found, true = right + len(got & expected), found + len(got), true + len(expected)
    if kind == "plain":
        assert right / true == pytest.approx(result.metrics["accuracy"], abs=0.005)
        return
    reported, pipeline = result.metrics["entity_f1"], result.content["pipeline"]
    assert reported > 0.02
    reached = 2 * right / (found + true)
    if "pipeline_class" in card:
        assert pipeline["entity_f1"] != pipeline["by_words"]
        assert any("pipeline" in warning for warning in result.warnings)
    assert reached == pytest.approx(reported, abs=0.01)
