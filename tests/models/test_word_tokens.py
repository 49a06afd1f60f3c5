"""Sentences of labelled words: their tokens, windows and states, whatever the tokenizer."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from tokenizers import Regex, normalizers
from transformers import TokenClassificationPipeline
from transformers.pipelines.token_classification import AggregationStrategy

from inputs import expect_refused
from layerscout.data import Tags, label_pieces
from layerscout.models import Cut, Tokens
from layerscout.models.tokens import tokenize_words
from layerscout.plans import Pooling
from tiny import SENTENCES
from tuned import load

# One of each kind of tokenizer: pieces of words, bytes with the space before, pieces with a mark.
TOKENIZERS = ("bert", "roberta", "gpt2", "xlm-roberta", "llama")
WORDS = [tuple(sentence.split()) for sentence in SENTENCES]
# Accents apart from their letters, ligatures, other scripts, marks, a space within a word.
HARD = [
    (
        "Mary-Jane",
        "O'Neil",
        "in",
        "St.",
        "(the)",
        "cafe\u0301",
        "\u00e9te\u0301",
        "🙂👍🏽",
        "中文",
        "北京",
    ),
    ("it's", "«the»", "the\u200bcat", "שלום", "مرحبا", "ﬁne", "▁", "Ġ", "the cat", "x" * 40),
    ("中文",),
    ("🙂",),
    ("-", "-"),
    ("a", "a\u0301"),
]


@pytest.fixture(scope="module", params=TOKENIZERS)
def encoder(request, tmp_path_factory):
    return load(tmp_path_factory.mktemp("words"), request.param)


def naive_words(encoder, sentences):
    """Find the word of every token of each sentence, character by character."""
    found, number = [], 0
    for words in sentences:
        owner = []
        for word in words:
            owner += [number] * len(word) + [-1]
            number += 1
        text = " ".join(words)
        made = encoder.tokenizer(text, return_offsets_mapping=True, return_special_tokens_mask=True)
        for (start, end), special in zip(
            made["offset_mapping"], made["special_tokens_mask"], strict=True
        ):
            seen = [word for word in owner[start:end] if word >= 0]
            found.append(-1 if special or not seen else seen[0])
    return found


def test_every_token_knows_its_word(encoder):
    tokens = encoder.tokenize_words(WORDS)
    assert tokens.words.tolist() == naive_words(encoder, WORDS)
    assert tokens.outputs == sum(map(len, WORDS))
    assert (tokens.cut.inputs, tokens.empty) == (0, 0)


def test_a_long_sentence_is_cut_into_windows_and_every_word_is_in_one(encoder):
    long = tuple(word for words in WORDS for word in words)
    whole = encoder.tokenize_words([long, WORDS[0]], max_length=160)
    tokens = encoder.tokenize_words([long, WORDS[0]], max_length=16)
    assert tokens.lengths.max() <= 16 and len(tokens) > len(whole)
    count = len(long) + len(WORDS[0])
    firsts, windows = np.unique(tokens.words, return_index=True)
    assert firsts[firsts >= 0].tolist() == list(range(count))
    window = np.searchsorted(tokens.offsets, windows[-count:], side="right") - 1
    assert (np.diff(window) >= 0).all()
    # A word in several windows belongs to the one with most room around its first token there.
    made = encoder.tokenizer(
        " ".join(long), truncation=True, max_length=16, stride=4, return_overflowing_tokens=True
    )
    ends = np.cumsum([len(word) + 1 for word in long])
    best: dict[int, tuple[int, int]] = {}
    for number, encoding in enumerate(made.encodings):
        seen: set[int] = set()
        for place, ((_, end), special) in enumerate(
            zip(encoding.offsets, encoding.special_tokens_mask, strict=True)
        ):
            word = int(np.searchsorted(ends, end - 1, side="right"))
            if special or not end or end == ends[word] or word in seen:
                continue
            seen.add(word)
            room = min(place, len(encoding) - 1 - place)
            if word not in best or room > best[word][0]:
                best[word] = (room, number)
    assert window[: len(long)].tolist() == [best[word][1] for word in range(len(long))]


def test_outputs_are_those_of_the_first_token_of_each_word(encoder):
    tokens = encoder.tokenize_words(WORDS)
    rows = np.array([5, 0, 9])
    values = torch.arange(3 * 64, dtype=torch.float32).reshape(3, 64)[:, :, None]
    found = tokens.take_outputs(rows, values)[:, 0].tolist()
    naive, bounds = naive_words(encoder, WORDS), np.cumsum([0, *map(len, WORDS)])
    expected = []
    for at, row in enumerate(rows):
        own = naive[tokens.offsets[row] : tokens.offsets[row + 1]]
        ids = tokens.ids[tokens.offsets[row] : tokens.offsets[row + 1]].tolist()
        pieces = encoder.tokenizer.convert_ids_to_tokens(ids)
        own = [-1 if piece == "▁" else word for piece, word in zip(pieces, own, strict=True)]
        expected += [64.0 * at + own.index(word) for word in range(bounds[row], bounds[row + 1])]
    assert found == expected
    outputs = tokens.find_outputs(rows).tolist()
    assert outputs == [word for row in rows for word in range(bounds[row], bounds[row + 1])]


@pytest.mark.filterwarnings("ignore:Tokenizer does not support real words")
@pytest.mark.parametrize("length", [160, 16])
def test_pieces_begin_words_where_the_librarys_pipeline_says(encoder, length):
    many = [tuple(row.split(" ")) for row in [*SENTENCES, *(" ".join(row) for row in HARD)]]
    tokens = encoder.tokenize_words(many, max_length=length)
    tokens = replace(tokens, words=np.zeros(len(tokens.ids), dtype=int))  # none belongs to another
    ask = object.__new__(TokenClassificationPipeline)
    ask.tokenizer = encoder.tokenizer
    made = encoder.tokenizer(
        [" ".join(row) for row in many],
        truncation=True,
        max_length=length,
        stride=length // 4,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        return_special_tokens_mask=True,
    )
    windows = {tuple(ids): number for number, ids in enumerate(made["input_ids"])}
    for start, end in itertools.pairwise(tokens.offsets):
        number = windows[tuple(tokens.ids[start:end].tolist())]
        text = " ".join(many[made["overflow_to_sample_mapping"][number]])
        pieces = ask.gather_pre_entities(
            text,
            np.array(made["input_ids"][number]),
            np.zeros((end - start, 2)),
            made["offset_mapping"][number],
            np.array(made["special_tokens_mask"][number]),
            AggregationStrategy.FIRST,
        )
        found = {piece["index"] for piece in pieces if not piece["is_subword"]}
        assert set(np.flatnonzero(tokens.begins[start:end])) == found
        written = ask.tokenizer.convert_ids_to_tokens(made["input_ids"][number])
        blank = {place for place, piece in enumerate(written) if piece in ("▁", "Ġ")}
        assert set(np.flatnonzero(tokens.blank[start:end])) == blank


def test_every_piece_that_begins_a_word_is_labelled():
    names = ("O", "B-x", "I-x", "B-y")
    tags = Tags(names, np.zeros(5, dtype=int))
    # ▁ Ann | ▁ Mary - Jane | ▁ von | ▁ Bonn | ▁ U .
    tokens = Tokens(
        ids=np.arange(13, dtype=np.int32),
        types=np.zeros(13, dtype=np.uint8),
        ordinary=np.ones(13, dtype=bool),
        offsets=np.array([0, 13]),
        cut=Cut(),
        empty=0,
        words=np.array([0, 0, -1, 1, 1, 1, -1, 2, -1, 3, 4, 4, 4]),
        begins=np.ones(13, dtype=bool),
        blank=np.array([1, 0, 1, 0, 0, 0, 1, 0, 1, 0, 1, 0, 0], dtype=bool),
    )
    spread, words, places = tokens.spread()
    assert spread.words.tolist() == list(range(13))
    assert words.tolist() == [0, 0, 1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 4]
    labels = np.array([0, 1, 2, 2, 3])
    written = [names[n] for n in label_pieces(tags, labels, words, places)]
    assert " ".join(written) == "O O O B-x I-x I-x I-x I-x I-x I-x O B-y B-y"
    ends = Tags(("O", "S-x", "E-x", "B-y"), np.zeros(5, dtype=int))
    written = [ends.names[n] for n in label_pieces(ends, labels, words, places)]
    assert " ".join(written[3:6]) == "S-x E-x E-x"
    plain = Tags(("a", "b-c"), np.zeros(5, dtype=int))
    same = label_pieces(plain, np.array([0, 1, 1, 0, 1]), words, places)
    assert same.tolist() == [0, 0, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("pooling", ["mean", "first", "last"])
def test_words_are_pooled_from_their_own_tokens(encoder, pooling: Pooling):
    tokens, rows = encoder.tokenize_words(WORDS), np.array([3, 1])
    found = encoder.pool(tokens, rows, pooling)
    states: list[torch.Tensor] = []
    encoder.visit(encoder.batch(tokens, rows), lambda _, state: states.append(state))
    naive, expected = naive_words(encoder, WORDS), []
    for at, row in enumerate(rows):
        own = np.array(naive[tokens.offsets[row] : tokens.offsets[row + 1]])
        for word in np.unique(own[own >= 0]):
            mine = np.flatnonzero(own == word)
            mine = {"mean": mine, "first": mine[:1], "last": mine[-1:]}[pooling]
            expected.append(torch.stack([state[at, mine].mean(dim=0) for state in states]))
    torch.testing.assert_close(found, torch.stack(expected, dim=1), atol=1e-5, rtol=1e-5)


def test_selected_words_are_numbered_anew_and_nothing_else_is_read(encoder):
    tokens = encoder.tokenize_words(WORDS)
    bounds = np.cumsum([0, *map(len, WORDS)])
    words = np.array([bounds[2] + 1, bounds[2] + 3, bounds[7]])
    some = tokens.select(words)
    assert (len(some), some.outputs) == (2, 3)
    every = encoder.pool(tokens, np.arange(len(tokens)))[:, words]
    torch.testing.assert_close(encoder.pool(some, np.arange(2)), every, atol=1e-5, rtol=1e-5)


def test_words_that_the_tokenizer_drops_are_read_as_unknown(encoder):
    sentence = [("the", "\u200b", "cat", "", " ", "sleeps")]
    tokens = encoder.tokenize_words(sentence)
    assert tokens.outputs == 6 and tokens.dropped >= 1 and tokens.empty == 0


def test_words_that_lose_their_token_in_context_are_found(tmp_path):
    encoder = load(tmp_path, "albert")
    spaces = normalizers.Sequence(
        [normalizers.Replace("\u200b", " "), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    encoder.tokenizer.backend_tokenizer.normalizer = spaces
    tokens = encoder.tokenize_words([("the", "\u200b", "cat"), ("old", "cat")])
    assert (tokens.outputs, tokens.dropped) == (5, 1)


def test_poolings_say_what_they_are_for(encoder):
    tokens, rows = encoder.tokenize_words(WORDS), np.arange(2)
    expect_refused("words … mean, first or last, got cls", encoder.pool, tokens, rows, "cls")
    texts = encoder.tokenize(SENTENCES)
    expect_refused(
        "texts … mean-all, mean-normed, last or cls, got first", encoder.pool, texts, rows, "first"
    )
    expect_refused("max_length", encoder.tokenize_words, WORDS, max_length=1000)


def test_sentences_are_tokenised_alike_in_parts_and_at_once(encoder, monkeypatch):
    many = WORDS * 80  # more than are given to the library at once
    tokens = tokenize_words(encoder.tokenizer, many, 128)
    one = tokenize_words(encoder.tokenizer, WORDS, 128)
    assert tokens.ids.tolist() == one.ids.tolist() * 80
    shifted = [np.where(one.words >= 0, one.words + part * one.outputs, -1) for part in range(80)]
    assert tokens.words.tolist() == np.concatenate(shifted).tolist()
    assert replace(tokens, words=None).outputs == len(many)
