"""Spans that tags of words mark, against seqeval, and by hand."""

import numpy as np
import pytest
from seqeval.metrics.sequence_labeling import get_entities, precision_recall_fscore_support

from layerscout.data import Tags, Task
from layerscout.data.words import count_orphans, count_spans, find_spans

TYPES = ("org", "person", "work-of-art")
IOB2 = ("O", *(f"{prefix}-{name}" for name in TYPES for prefix in "BI"))
BIOES = ("S-person", "O", *(f"{prefix}-{name}" for name in TYPES for prefix in "IBE"), "S-org")
BARE, MIXED = tuple("BIO"), (*"SOBEI", "B-person", "I-person")
TYPES_OF = {BARE: ("_",), MIXED: ("_", "person")}


def draw_tags(rng, names, sequences):
    """Draw tags at random, so that most sequences are ill-formed, a third of them outside."""
    sentences = np.repeat(np.arange(sequences), rng.integers(1, 9, sequences))
    ids = rng.integers(0, len(names), len(sentences))
    ids[rng.random(len(ids)) < 1 / 3] = names.index("O")
    return Tags(names, sentences), ids


def as_lists(tags, ids):
    """Write the tags as names, a list for each sentence."""
    ends = np.flatnonzero(np.diff(tags.sentences)) + 1
    return [[tags.names[tag] for tag in part] for part in np.split(ids, ends)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("names", [IOB2, BIOES, BARE, MIXED])
def test_spans_are_counted_as_by_seqeval(names):
    rng = np.random.default_rng(0)
    tags, labels = draw_tags(rng, names, 10_000)
    predicted = np.where(rng.random(len(labels)) < 0.7, labels, draw_like(rng, labels, names))
    right, found, true = count_spans(tags, labels, predicted)[0].T
    truth, answers = as_lists(tags, labels), as_lists(tags, predicted)
    by_type = precision_recall_fscore_support(truth, answers, average=None)
    assert tags.types == TYPES_OF.get(names, TYPES)
    assert (right > 500).all() and (right < true).all()
    expected = right / found, right / true, 2 * right / (found + true), true
    np.testing.assert_allclose(by_type, expected, rtol=1e-12)
    overall = precision_recall_fscore_support(truth, answers, average="micro")
    sums = right.sum(), found.sum(), true.sum()
    expected = sums[0] / sums[1], sums[0] / sums[2], 2 * sums[0] / (sums[1] + sums[2]), sums[2]
    np.testing.assert_allclose(overall, expected, rtol=1e-12)


def draw_like(rng, labels, names):
    return rng.integers(0, len(names), len(labels))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("names", [IOB2, BIOES, BARE, MIXED])
def test_spans_are_where_seqeval_finds_them(names):
    tags, ids = draw_tags(np.random.default_rng(1), names, 500)
    types, first_words, last_words = find_spans(tags, ids)
    starts = np.flatnonzero(np.diff(tags.sentences, prepend=-1))
    expected = [
        (number, name, starts[number] + first, starts[number] + last)
        for number, sentence in enumerate(as_lists(tags, ids))
        for name, first, last in get_entities(sentence)
    ]
    assert len(types) == len(expected) > 500
    names = [tags.types[number] for number in types]
    sentences = tags.sentences[first_words]
    assert list(zip(sentences, names, first_words, last_words, strict=True)) == expected


def test_ill_formed_spans_by_hand():
    names = ("O", "B-a", "I-a", "I-b", "E-a", "S-a")
    words = "I-a I-a O I-b I-a | I-a B-a I-a E-a E-a S-a I-a"
    sentences = [part.split() for part in words.split(" | ")]
    tags = Tags(names, np.repeat([4, 9], [len(part) for part in sentences]))
    ids = np.array([names.index(tag) for part in sentences for tag in part])
    _, first, last = find_spans(tags, ids)
    spans = list(zip(first.tolist(), last.tolist(), strict=True))
    assert spans == [(0, 1), (3, 3), (4, 4), (5, 5), (6, 8), (9, 9), (10, 10), (11, 11)]
    assert tags.sentences[first].tolist() == [4] * 3 + [9] * 5
    assert count_orphans(tags, ids) == 6  # all but B-a I-a E-a and S-a


def test_spans_of_groups_of_sentences():
    rng = np.random.default_rng(2)
    tags, labels = draw_tags(rng, IOB2, 60)
    predicted, groups = draw_like(rng, labels, IOB2), rng.integers(0, 4, 60)[tags.sentences]
    counts = count_spans(tags, labels, predicted, groups)
    for group in range(4):
        own = groups == group
        part = Tags(IOB2, tags.sentences[own])
        assert np.array_equal(count_spans(part, labels[own], predicted[own])[0], counts[group])


def test_no_words_and_no_spans():
    tags = Tags(IOB2, np.zeros(0, np.int64))
    assert len(find_spans(tags, np.zeros(0, np.int64))[0]) == 0
    tags, outside = Tags(IOB2, np.zeros(3, np.int64)), np.zeros(3, np.int64)
    assert not count_spans(tags, outside, outside).any() and count_orphans(tags, outside) == 0


@pytest.mark.parametrize(
    ("names", "are_spans"),
    [
        (IOB2, True),
        (("B-x", "I-x"), True),
        (("O",), False),
        (("NOUN", "VERB"), False),
        (("O", "B-x", "B-"), False),
        (("O", "B-x", "X-y"), False),
        (("O", "U-x"), False),
        (BARE, True),
        (("I", "O"), True),
        (tuple("BIESO"), True),
        (MIXED, True),
        (("S", "O"), False),  # subjects and objects
        (("S", "E", "A", "I"), False),  # nouns and others of Italian treebanks
    ],
)
def test_tags_that_mark_spans(names, are_spans):
    assert Tags(names, np.zeros(0, np.int64)).are_spans is are_spans


@pytest.mark.parametrize(
    ("names", "odd"),
    [
        ("O B-PER I-PER U-PER L-PER", "U-PER L-PER"),
        ("o B-PER I-PER", "o"),
        ("0 I-PER", "0"),
        ("o b-per i-per", "o b-per i-per"),
        ("O PER-B PER-I", "PER-B PER-I"),
        ("O B_PER I_PER X", "B_PER I_PER X"),
        ("O per_b", "per_b"),
        ("O B:PER", "B:PER"),
        ("O B–PER", "B–PER"),
        ("B I O X", "X"),
        ("b i o", "b i o"),
        ("B M E S", "M"),
        ("B I L U O", "L U"),
        ("O B-PER I-PER", ""),
        ("B I O", ""),
        ("NOUN VERB X", ""),
        ("NN -LRB- LS", ""),
        ("ADV ADV_I N_SING V_SUB", ""),  # of a Persian treebank
        ("S E A B I V RD", ""),  # of Italian ones
        ("0 1 2", ""),
    ],
)
def test_tags_of_other_schemes_are_named(names, odd):
    rows = [names.split()] * 2
    [*warnings] = Task.from_lists(rows, rows).warnings
    assert len(warnings) == bool(odd)
    if odd:
        listed = ", ".join(name for name in sorted(names.split()) if name in odd.split())
        assert f"mark them, not {listed}; so words are evaluated one by one" in warnings[0]
