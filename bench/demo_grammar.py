"""The rows of the demo task: a seeded grammar of English sentences, acceptable or with two faults.

    python bench/demo_grammar.py  # writes src/layerscout/data/demo.csv

A phrase knows its right form and, for each fault that it can have, a wrong one. An unacceptable
sentence is an acceptable one in which two phrases have a wrong form: the two classes use the same
words in the same places, and only the faults tell them apart.
"""

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TypeVar

LABELS = ("unacceptable", "acceptable")
SHIPPED = Path(__file__).parents[1] / "src" / "layerscout" / "data" / "demo.csv"

# How often a fault is chosen, relative to the others that the sentence at hand can have.
FAULTS = {
    "agreement": 8,  # The boys near the lady waits in the park.
    "determiner": 4,  # The boy has taken these coat.
    "reflexive": 4,  # The boys described himself in the park.
    "verb form": 8,  # The boy has take a coat.
    "swapped": 4,  # The boy taken has a coat.
    "missing": 2,  # The boy has taken coat.
    "doubled": 1,  # The boy has taken a a coat.
}

# Phrases of an unacceptable sentence that are wrong. With a single one, 2,000 sentences are too few
# to say how far apart the classes lie at each state.
WRONG_PHRASES = 2

WOMEN = ["girl", "lady", "woman", "waitress", "niece", "princess", "duchess"]
MEN = ["boy", "waiter", "nephew", "monk", "prince", "clown", "policeman"]
THINGS = ["key", "book", "table", "picture", "letter", "boat", "box", "chair", "coat", "lamp"]
PLACES = ["garden", "kitchen", "park", "market", "station", "shop", "museum", "cellar"]
PLURALS = {  # the nouns that take more than an s
    "lady": "ladies",
    "woman": "women",
    "waitress": "waitresses",
    "princess": "princesses",
    "duchess": "duchesses",
    "policeman": "policemen",
    "box": "boxes",
}
# By whether the noun is plural. No "that": it also opens clauses ("We think that girls sing").
DETERMINERS = {
    False: ["the", "the", "the", "a", "this", "every"],
    True: ["the", "the", "the", "these", "those", "several"],
}
ADJECTIVES = ["big", "new", "small", "tall", "quiet", "famous", "strange", "beautiful"]
INTRANSITIVE = ["sing", "sleep", "smile", "wait", "swim", "work", "dance", "laugh"]
RELATIONS = ["like", "know", "help", "admire", "visit", "thank"]
REFLEXIVE = ["praised", "blamed", "washed", "admired", "dressed", "described"]
# What people do to things: base, past, participle. The past must not be another verb's base
# ("found", "saw"), or "will saw" would be right.
ACTIONS = (
    ("take", "took", "taken"),
    ("choose", "chose", "chosen"),
    ("hide", "hid", "hidden"),
    ("draw", "drew", "drawn"),
    ("break", "broke", "broken"),
    ("forget", "forgot", "forgotten"),
    ("throw", "threw", "thrown"),
    ("paint", "painted", "painted"),
)
MODALS = ["will", "can", "must", "should"]
PREPOSITIONS = ["near", "behind", "beside", "with"]
OPENINGS = ("We think", "They say", "Anna knows", "Perhaps")

Draw = Callable[[], float]  # a number in [0, 1), as random.Random.random gives
T = TypeVar("T")


@dataclass(frozen=True)
class Phrase:
    """Some words of a sentence: the right form, and a wrong one for each fault it can have."""

    right: str
    wrong: Mapping[str, str] = field(default_factory=dict)


def pick(draw: Draw, options: Sequence[T]) -> T:
    """Choose one of `options`, all equally likely."""
    return options[int(draw() * len(options))]


def noun_phrase(draw: Draw, nouns: Sequence[str], plural: bool) -> Phrase:
    """Make a determiner, now and then an adjective, and a noun: "the keys", "a small box"."""
    determiner, noun = pick(draw, DETERMINERS[plural]), pick(draw, nouns)
    adjectives = [pick(draw, ADJECTIVES)] if draw() < 0.25 else []
    forms = [noun, PLURALS.get(noun, f"{noun}s")]
    first, *rest = [*adjectives, forms[plural]]
    wrong = {
        "swapped": [first, determiner, *rest],
        "doubled": [determiner, determiner, first, *rest],
    }
    if determiner != "the":
        wrong["determiner"] = [determiner, *adjectives, forms[not plural]]
    if not plural:
        wrong["missing"] = [first, *rest]
    right = " ".join([determiner, first, *rest])
    return Phrase(right, {fault: " ".join(words) for fault, words in wrong.items()})


def verb(base: str, plural: bool) -> Phrase:
    """Make a verb that agrees with its subject: "sings", "sing"."""
    forms = [f"{base}s", base]
    return Phrase(forms[plural], {"agreement": forms[not plural]})


def verb_group(helpers: tuple[str, str], plural: bool, right: str, wrong: str) -> Phrase:
    """Make a helper (singular, plural) and the verb form it asks for: "has taken", "can take"."""
    helper, other = helpers[plural], helpers[not plural]
    faults = {"verb form": f"{helper} {wrong}", "swapped": f"{right} {helper}"}
    if helper != other:
        faults["agreement"] = f"{other} {right}"
    return Phrase(f"{helper} {right}", faults)


def modifier(draw: Draw) -> list[Phrase]:
    """Make what may stand between subject and verb: another noun, to distract from the subject."""
    kind, plural = draw(), draw() < 0.5
    distractor = noun_phrase(draw, WOMEN + MEN, plural)
    if kind < 0.3:
        return [Phrase(pick(draw, PREPOSITIONS)), distractor]
    if kind < 0.5:
        return [Phrase("whom"), distractor, verb(pick(draw, RELATIONS), plural)]
    return []


def predicate(draw: Draw, plural: bool, pronoun: str) -> list[Phrase]:
    """Make the verb and what follows it; `pronoun` is the subject's reflexive if it is singular."""
    kind, modal = draw(), pick(draw, MODALS)
    base, past, participle = pick(draw, ACTIONS)
    thing = noun_phrase(draw, THINGS, draw() < 0.5)
    place = [Phrase("in"), noun_phrase(draw, PLACES, plural=False)]
    if kind < 0.25:
        return [verb(pick(draw, INTRANSITIVE), plural), *place]
    if kind < 0.45:
        pronouns = [pronoun, "themselves"]
        reflexive = Phrase(pronouns[plural], {"reflexive": pronouns[not plural]})
        return [Phrase(pick(draw, REFLEXIVE)), reflexive, *place]
    if kind < 0.65:
        return [verb_group(("has", "have"), plural, participle, wrong=base), thing]
    if kind < 0.75:
        return [verb_group((modal, modal), plural, base, wrong=past), thing]
    if kind < 0.85:
        return [verb_group(("does not", "do not"), plural, base, wrong=f"{base}s"), thing]
    return [verb(base, plural), thing]


def faulty(draw: Draw, phrases: Sequence[Phrase]) -> list[Phrase]:
    """Put a wrong form in place of some of `phrases`, as many as `WRONG_PHRASES`."""
    found = list(phrases)
    for _ in range(WRONG_PHRASES):
        possible = {fault for phrase in found for fault in phrase.wrong}
        faults = [f for f, weight in FAULTS.items() if f in possible for _ in range(weight)]
        fault = pick(draw, faults)
        place = pick(draw, [i for i, phrase in enumerate(found) if fault in phrase.wrong])
        found[place] = Phrase(found[place].wrong[fault])  # which cannot go wrong once more
    return found


def sentence(draw: Draw, acceptable: bool) -> str:
    """Make one sentence; if not `acceptable`, with faults."""
    opening = [Phrase(pick(draw, OPENINGS))] if draw() < 0.3 else []
    plural = draw() < 0.5
    nouns, pronoun = pick(draw, ((WOMEN, "herself"), (MEN, "himself")))
    subject = noun_phrase(draw, nouns, plural)
    phrases = [*opening, subject, *modifier(draw), *predicate(draw, plural, pronoun)]
    if not acceptable:
        phrases = faulty(draw, phrases)
    text = " ".join(phrase.right for phrase in phrases)
    return f"{text[0].upper()}{text[1:]}."


def sentences(count: int, seed: int = 0) -> list[tuple[str, int]]:
    """Make `count` distinct sentences with their labels (see `LABELS`), about half acceptable.

    The same `seed` gives the same sentences on every machine and Python version, and a larger
    `count` continues a smaller one.
    """
    draw = Random(seed).random  # the one method whose stream Python promises to keep
    made: dict[str, int] = {}
    while len(made) < count:
        acceptable = draw() < 0.5
        made.setdefault(sentence(draw, acceptable), int(acceptable))
    return list(made.items())


def main() -> None:
    """Write the rows that ship with the package."""
    with SHIPPED.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([("text", "label"), *sentences(2500)])


if __name__ == "__main__":
    main()
