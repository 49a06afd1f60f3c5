"""The demo's grammar: the same on every machine, balanced, and with two faults in the faulty."""

import sys
from hashlib import sha256
from itertools import count, pairwise
from pathlib import Path
from random import Random

import pytest

from layerscout import Task

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

import demo_grammar as grammar
from demo_grammar import FAULTS, LABELS, sentences


def test_the_same_seed_gives_the_same_sentences_and_another_seed_others():
    assert sentences(300, seed=4) == sentences(300, seed=4)
    assert sentences(300, seed=4) != sentences(300, seed=5)


def test_the_shipped_task_does_not_change_unnoticed():
    text = "\n".join(f"{label} {sentence}" for sentence, label in sentences(2500))
    assert (
        sha256(text.encode()).hexdigest()
        == "065d7aa5789f10ebc5d512a3ad67de13b85fdf55ee13dd6a408ca94674633321"
    )


def test_the_package_ships_the_sentences_of_the_grammar():
    task = Task.load("demo")
    held_out = task.validation
    assert held_out is not None and task.labels == LABELS
    rows = zip(
        [*task.train.texts, *held_out.texts], [*task.train.labels, *held_out.labels], strict=True
    )
    assert [*rows] == sentences(2500)


def test_a_larger_count_continues_a_smaller_one():
    assert sentences(400)[:150] == sentences(150)
    assert sentences(0) == []


@pytest.mark.parametrize("seed", range(3))
def test_sentences_are_distinct_and_the_classes_balanced(seed: int):
    made = sentences(2500, seed)
    assert len({sentence for sentence, _ in made}) == len(made) == 2500
    acceptable = sum(label for _, label in made)
    assert abs(acceptable - 1250) < 100, "more than four standard deviations from a half"
    assert LABELS[1] == "acceptable"


def test_a_sentence_starts_with_a_capital_and_ends_with_one_stop():
    for sentence, _ in sentences(500):
        assert sentence[0].isupper() and sentence[1:].islower()
        assert sentence.endswith(".") and sentence.count(".") == 1
        assert "  " not in sentence


def test_an_unacceptable_sentence_is_no_acceptable_one_of_the_same_grammar():
    draw = Random(1).random
    right = {grammar.sentence(draw, acceptable=True) for _ in range(20_000)}
    wrong = {grammar.sentence(draw, acceptable=False) for _ in range(20_000)}
    assert not right & wrong


def test_agreement_holds_in_acceptable_sentences_and_fails_in_a_faulty_one():
    singular = {"a", "this", "every"}
    plural = {"these", "those", "several"}
    disagreeing = {0: 0, 1: 0}
    for sentence, label in sentences(1500):
        text = sentence.lower().rstrip(".").split()
        # Only subjects that nothing separates from "has" or "have": determiner, noun, helper.
        for determiner, _, helper in zip(text, text[1:], text[2:], strict=False):
            wrong = (determiner in singular and helper == "have") or (
                determiner in plural and helper == "has"
            )
            distant = "whom" in text or any(word in text for word in grammar.PREPOSITIONS)
            disagreeing[label] += wrong and not distant
    assert disagreeing[1] == 0
    assert disagreeing[0] > 0


def test_no_indefinite_article_stands_before_a_vowel_in_acceptable_sentences():
    for sentence, label in sentences(2500):
        if not label:
            continue
        text = sentence.lower().split()
        for article, following in pairwise(text):
            assert article != "a" or following[0] not in "aeiou", sentence


def test_two_phrases_are_wrong():
    phrases = [grammar.verb("sing", plural=False)] * 3 + [grammar.Phrase("here")]
    for seed in range(20):
        found = [phrase.right for phrase in grammar.faulty(Random(seed).random, phrases)]
        assert sorted(found) == ["here", "sing", "sing", "sings"]


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_occurs_and_changes_one_phrase_only(fault: str, monkeypatch):
    monkeypatch.setattr(grammar, "WRONG_PHRASES", 1)
    for other in FAULTS:
        monkeypatch.setitem(FAULTS, other, 999 if other == fault else 1)
    found = 0
    for seed in count():
        right = grammar.sentence(Random(seed).random, acceptable=True).rstrip(".").lower().split()
        wrong = grammar.sentence(Random(seed).random, acceptable=False).rstrip(".").lower().split()
        assert right != wrong
        if CHANGES[fault](right, wrong):
            found += 1
        if found == 25:
            break
        assert seed < 400, f"the fault {fault!r} hardly ever occurs"


def one_word_differs(right: list[str], wrong: list[str]) -> bool:
    return len(right) == len(wrong) and sum(map(str.__ne__, right, wrong)) == 1


def two_words_swapped(right: list[str], wrong: list[str]) -> bool:
    return right != wrong and sorted(right) == sorted(wrong)


def one_word_fewer(right: list[str], wrong: list[str]) -> bool:
    return any(right[:i] + right[i + 1 :] == wrong for i in range(len(right)))


CHANGES = {
    "agreement": one_word_differs,
    "determiner": one_word_differs,
    "reflexive": one_word_differs,
    "verb form": one_word_differs,
    "swapped": two_words_swapped,
    "missing": one_word_fewer,
    "doubled": lambda right, wrong: one_word_fewer(wrong, right),
}
