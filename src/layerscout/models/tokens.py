"""Tokenised texts, laid end to end, and how batches of them are padded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import accumulate, chain, count
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int32, Int64, UInt8
from torch import Tensor

from layerscout.data import concatenate_ranges
from layerscout.models.architecture import usable_positions
from layerscout.plans import ReadToken

# What is advised for long inputs is a multiple of this.
STEP = 128


def overlap_windows(max_length: int) -> int:
    """Count the tokens that two neighbouring windows share, so that every word has context."""
    return max_length // 4


class Cut(NamedTuple):
    """What inputs lack that were longer than the maximal length.

    Attributes:
        inputs: how many were.
        tokens: that are left out of them; 0 of pairs, whose parts are not told apart.
        longest: tokens of the longest one, likewise.
    """

    inputs: int = 0
    tokens: int = 0
    longest: int = 0

    def join(self, other: Cut) -> Cut:
        """Return what these and other inputs lack."""
        longest = max(self.longest, other.longest)
        return Cut(self.inputs + other.inputs, self.tokens + other.tokens, longest)


@dataclass(frozen=True, eq=False)
class Tokens:
    """n tokenised texts (or pairs), laid end to end without padding; t tokens in all.

    A model gives an output for each text or, where words are labelled, for each of their w words.
    Sentences that are too long then come as several texts, windows, that overlap; a word belongs to
    one of them.

    Attributes:
        ids: (t,), the token ids.
        types: (t,), which text of a pair a token belongs to; all 0 where the model does not ask.
        ordinary: (t,), true for the tokens that mean-pooling averages: those that the tokenizer
            did not add itself. A text that has none counts all of its tokens.
        offsets: (n + 1,), where each text begins and the last one ends.
        cut: what is left out of texts that were longer than the maximal length.
        empty: how many texts have no ordinary token.
        words: (t,), the word that a token is part of, in ascending order; −1 for tokens of none,
            and for those of words that belong to another window. None where texts are labelled.
        begins: (t,), whether the library's pipeline begins a word at a token; see
            `_find_beginnings`. None where texts are labelled, as the next.
        blank: (t,), true for tokens of no character but a space: XLM-R and mDeBERTa make "▁" and
            "中文" of "中文".
        dropped: how many of the labelled words the tokenizer makes nothing of.
    """

    ids: Int32[np.ndarray, " t"]
    types: UInt8[np.ndarray, " t"]
    ordinary: Bool[np.ndarray, " t"]
    offsets: Int64[np.ndarray, " texts_and_end"]
    cut: Cut
    empty: int
    words: Int64[np.ndarray, " t"] | None = None
    begins: Bool[np.ndarray, " t"] | None = None
    blank: Bool[np.ndarray, " t"] | None = None
    dropped: int = 0

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Int64[np.ndarray, " n"]:
        """Tokens of each text, (n,)."""
        return np.diff(self.offsets)

    @property
    def outputs(self) -> int:
        """How many outputs a model gives: n, or w where words are labelled."""
        return len(self) if self.words is None else int(self.words.max()) + 1

    def find_outputs(self, rows: Int64[np.ndarray, " b"]) -> Int64[np.ndarray, " o"]:
        """Number the outputs of the texts at `rows`: the texts, or all of their words in order."""
        return rows if self.words is None else self.find_firsts(rows)[2]

    def take_outputs(
        self, rows: Int64[np.ndarray, " b"], values: Float[Tensor, "b *T K"]
    ) -> Float[Tensor, "o K"]:
        """Take from values of a batch of texts those of its outputs: of each word's first token.

        Args:
            rows: of the texts.
            values: of each text, (b, K), or of each of its tokens, (b, T, K), where words are
                labelled.
        """
        if self.words is None:
            return values
        texts, places, _ = self.find_firsts(rows)
        return values[torch.from_numpy(texts), torch.from_numpy(places)]

    def find_firsts(
        self, rows: Int64[np.ndarray, " b"]
    ) -> tuple[Int64[np.ndarray, " w"], Int64[np.ndarray, " w"], Int64[np.ndarray, " w"]]:
        """Find the first token of each word of the texts at `rows`; see `find_parts`.

        It is the first one that has a character of the word, where there is one.
        """
        texts, places, words = self.find_parts(rows)
        assert self.blank is not None, "words are labelled"
        order = np.lexsort((self.blank[self.offsets[rows][texts] + places], words))
        firsts = np.sort(order[np.diff(words[order], prepend=-1) != 0])
        return texts[firsts], places[firsts], words[firsts]

    def spread(self) -> tuple[Tokens, Int64[np.ndarray, " m"], Int64[np.ndarray, " m"]]:
        """Label every token at which the library's pipeline begins a word.

        Returns:
            The same texts, with each of m such tokens as a word of its own; the word of each; and
            its place there: 0 for the token that the word is judged by, 1 for those after it, −1
            for blank ones before it.
        """
        assert self.words is not None, "words are labelled"
        assert self.begins is not None and self.blank is not None, "so they are in every text"
        texts, places, _ = self.find_firsts(np.arange(len(self)))
        judged = self.offsets[texts] + places
        at, solid = np.arange(len(self.ids)), np.cumsum(~self.blank)
        following = np.searchsorted(judged, at).clip(max=len(judged) - 1)
        before = self.blank & (judged[following] > at) & (solid[judged[following]] - solid == 1)
        after = (self.words >= 0) & (at > judged[self.words])
        place = np.where(before, -1, 1)
        place[judged] = 0
        labelled = np.flatnonzero((place == 0) | (self.begins & (before | after)))
        words = np.full(len(at), -1)
        words[labelled] = np.arange(len(labelled))
        owners = np.where(before, following, self.words)
        return replace(self, words=words), owners[labelled], place[labelled]

    def select(self, words: Int64[np.ndarray, " m"]) -> Tokens:
        """Return the texts that some words belong to, with no other words labelled.

        Args:
            words: numbers, ascending; these words are then numbered from 0 on.
        """
        assert self.words is not None, "words are labelled"
        assert self.begins is not None and self.blank is not None, "so they are in every text"
        place = np.searchsorted(words, self.words).clip(max=len(words) - 1)
        kept = np.where(words[place] == self.words, place, -1)
        rows = np.flatnonzero(np.maximum.reduceat(kept, self.offsets[:-1]) >= 0)
        starts, ends = self.offsets[rows], self.offsets[rows + 1]
        at = concatenate_ranges(starts, ends)
        return replace(
            self,
            ids=self.ids[at],
            types=self.types[at],
            ordinary=self.ordinary[at],
            offsets=np.concatenate([[0], np.cumsum(ends - starts)]),
            words=kept[at],
            begins=self.begins[at],
            blank=self.blank[at],
        )

    def find_head_tokens(self, reads: ReadToken, padding: int) -> Int64[np.ndarray, " n"]:
        """Find the token of each text that a head reads: its place in the text, (n,).

        Args:
            reads: the first token, or the last one that is not the padding token.
            padding: the id of that token, which may also end texts, as a decoder's often does. A
                text of nothing else has its first token read.
        """
        if reads == "first" or not len(self):
            return np.zeros(len(self), dtype=np.int64)
        places = np.arange(len(self.ids)) - np.repeat(self.offsets[:-1], self.lengths)
        places[self.ids == padding] = 0
        return np.maximum.reduceat(places, self.offsets[:-1])

    def __add__(self, other: Tokens) -> Tokens:
        """Return these texts followed by the others, whose words have the numbers after these."""
        words = other.words
        if words is not None:
            words = np.where(words >= 0, words + self.outputs, -1)
        return _join([self, replace(other, words=words)])

    def keep(self, places: Int64[np.ndarray, " n"]) -> Tokens:
        """Return one token of each text, by its place there, as n texts of one token."""
        at = self.offsets[:-1] + places
        return replace(
            self,
            ids=self.ids[at],
            types=self.types[at],
            ordinary=np.ones(len(self), dtype=bool),
            offsets=np.arange(len(self) + 1),
        )

    def pad(
        self, rows: Int64[np.ndarray, " b"]
    ) -> tuple[Int64[np.ndarray, "b T"], Bool[np.ndarray, "b T"]]:
        """Lay out a padded batch: where each entry's token stands, and which are not padding."""
        lengths = self.lengths[rows]
        steps = np.arange(lengths.max())
        real = steps < lengths[:, None]
        return np.where(real, self.offsets[rows][:, None] + steps, 0), real

    def find_last(self, rows: Int64[np.ndarray, " b"]) -> Int64[np.ndarray, " b"]:
        """Find the last ordinary token of each text at `rows`: its place in the text."""
        at, real = self.pad(rows)
        used = real & self.ordinary[at]
        last: Int64[np.ndarray, " b"] = used.shape[1] - 1 - used[:, ::-1].argmax(axis=1)
        return last

    def find_parts(
        self, rows: Int64[np.ndarray, " b"]
    ) -> tuple[Int64[np.ndarray, " p"], Int64[np.ndarray, " p"], Int64[np.ndarray, " p"]]:
        """Find the tokens of the words of the texts at `rows`.

        Returns:
            For each token that is part of a word, in order: the text, counted from 0 within the
            batch, the place in the text, and the word.
        """
        assert self.words is not None, "words are labelled"
        texts = np.repeat(np.arange(len(rows)), self.lengths[rows])
        at = concatenate_ranges(self.offsets[rows], self.offsets[rows + 1])
        parts = self.words[at] >= 0
        texts, at = texts[parts], at[parts]
        return texts, at - self.offsets[rows][texts], self.words[at]


def tokenize_texts(
    tokenizer: Any, texts: Sequence[str], pairs: Sequence[str] | None, max_length: int
) -> Tokens:
    """Tokenise n texts, or n pairs of texts, cut to `max_length` tokens; see `Encoder.tokenize`."""
    parts, filler = [], _find_filler(tokenizer)
    for start in range(0, len(texts), 1000):  # what the library gives back is kept for few at once
        stop = start + 1000
        batch = tokenizer(
            list(texts[start:stop]),
            None if pairs is None else list(pairs[start:stop]),
            truncation=True,
            max_length=max_length,
            return_attention_mask=False,
        )
        parts.append(_concatenate(batch.encodings, filler))
    return _join(parts)


def _find_filler(tokenizer: Any) -> int:
    """Return the id that stands for a text of no token: a model needs one to run on."""
    known = (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id)
    return int(next(token for token in known if token is not None))


def name_empty_text(tokenizer: Any) -> str | None:
    """Return the token that an empty text is read as, if the tokenizer itself makes none of it."""
    if tokenizer("")["input_ids"]:
        return None
    return str(tokenizer.convert_ids_to_tokens(_find_filler(tokenizer)))


def tokenize_words(tokenizer: Any, sentences: Sequence[tuple[str, ...]], max_length: int) -> Tokens:
    """Tokenise n sentences of w words in all; see `Encoder.tokenize_words`.

    The words are joined by spaces, as they come when the model is used. A token is part of the word
    that its last character is in: those of GPT-2 begin with the space before.
    """
    parts, before = [], 0
    for start in range(0, len(sentences), 1000):
        words = [list(row) for row in sentences[start : start + 1000]]
        part, word_of, dropped = _tokenize_words(tokenizer, words, max_length)
        if dropped:
            numbers, stand_in = count(), tokenizer.unk_token or "?"
            words = [
                [stand_in if next(numbers) in dropped else word for word in row] for row in words
            ]
            part, word_of, _ = _tokenize_words(tokenizer, words, max_length)
        owned = _choose_windows(word_of, part, sum(map(len, words)))
        parts.append(
            replace(part, words=np.where(owned >= 0, owned + before, -1), dropped=len(dropped))
        )
        before += sum(map(len, words))
    return _join(parts)


def _tokenize_words(
    tokenizer: Any, words: Sequence[Sequence[str]], max_length: int
) -> tuple[Tokens, Int64[np.ndarray, " t"], set[int]]:
    """Tokenise sentences into windows.

    Returns:
        The windows, the word that each token is part of, −1 for none, and the words that have no
        token, such as a joiner of no width.
    """
    batch = tokenizer(
        [" ".join(row) for row in words],
        truncation=True,
        max_length=max_length,
        stride=overlap_windows(max_length),
        return_overflowing_tokens=True,
        return_attention_mask=False,
    )
    sentence = np.array(batch["overflow_to_sample_mapping"])
    part = replace(_concatenate(batch.encodings, 0), cut=Cut(), empty=0)
    word_of = _find_words(batch.encodings, sentence, words, part)
    begins, blank = _find_beginnings(tokenizer, batch.encodings, sentence, words, part)
    part = replace(part, begins=begins, blank=blank)
    return part, word_of, set(range(sum(map(len, words)))) - set(word_of.tolist())


def _find_words(
    encodings: Sequence[Any],
    sentence: Int64[np.ndarray, " n"],
    words: Sequence[Sequence[str]],
    tokens: Tokens,
) -> Int64[np.ndarray, " t"]:
    """Find the word that each token is part of, by its characters; −1 for special tokens."""
    # Where each word ends, in a text of all sentences with a space after every word.
    ends = np.fromiter(accumulate(len(word) + 1 for row in words for word in row), dtype=np.int64)
    last = np.fromiter((end for e in encodings for _, end in e.offsets), dtype=np.int64)
    characters = np.repeat(_find_starts(words)[sentence], tokens.lengths) + last - 1
    word_of = np.searchsorted(ends, characters, side="right")
    # Some tokenizers make a token of a space alone, and one of nothing before the first word.
    of_word = (
        tokens.ordinary & (last > 0) & (characters < ends[word_of.clip(max=len(ends) - 1)] - 1)
    )
    return np.where(of_word, word_of, -1)


def _find_starts(words: Sequence[Sequence[str]]) -> Int64[np.ndarray, " n"]:
    """Find where each sentence begins in a text of all of them with a space after every word."""
    return np.cumsum([0, *(sum(map(len, row)) + len(row) for row in words)])[:-1]


def _find_beginnings(
    tokenizer: Any,
    encodings: Sequence[Any],
    sentence: Int64[np.ndarray, " n"],
    words: Sequence[Sequence[str]],
    tokens: Tokens,
) -> tuple[Bool[np.ndarray, " t"], Bool[np.ndarray, " t"]]:
    """Find the tokens at which the library's pipeline begins a word, and those that are blank.

    As `gather_pre_entities` of transformers 4 and 5 has it: where a tokenizer marks what continues
    a word, wherever that mark is not; else at spaces. So WordPiece's "Mary-Jane" is three words,
    each byte of a first character a word of BPE, and an unknown token always one.
    """
    numbers, at = np.unique(tokens.ids, return_inverse=True)
    written = tokenizer.convert_ids_to_tokens(numbers.tolist())
    model = getattr(getattr(tokenizer, "_tokenizer", None), "model", None)
    start, end = np.array([span for e in encodings for span in e.offsets]).T
    if getattr(model, "continuing_subword_prefix", None):
        begins = np.array(list(map(len, written)))[at] == end - start
    else:
        text = "".join(f"{word} " for row in words for word in row)
        spaces = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32) == ord(" ")
        place = np.repeat(_find_starts(words)[sentence], tokens.lengths) + start
        begins = (start == 0) | spaces[place - 1] | spaces[place]
    if tokenizer.unk_token_id is not None:
        begins |= tokens.ids == tokenizer.unk_token_id
    # "Ġ" is the space of bytes, and a letter of Maltese.
    blank = [
        not token.strip("▁Ġ") and not tokenizer.decode([number]).strip()
        for token, number in zip(written, numbers.tolist(), strict=True)
    ]
    return begins & tokens.ordinary, np.array(blank)[at] & tokens.ordinary


def _choose_windows(
    word_of: Int64[np.ndarray, " t"], tokens: Tokens, words: int
) -> Int64[np.ndarray, " t"]:
    """Leave every word to the window that has most of its context; −1 for tokens of no word here.

    A word counts in the window where its first token is furthest from both ends.
    """
    window = np.repeat(np.arange(len(tokens)), tokens.lengths)
    place = np.arange(len(word_of)) - tokens.offsets[window]
    room = np.minimum(place, tokens.lengths[window] - 1 - place)
    begins = (word_of >= 0) & ((np.diff(word_of, prepend=-1) != 0) | (place == 0))
    at = np.flatnonzero(begins)
    # The last of a word's entries, sorted by room, wins; of equal ones the first window.
    at = at[np.lexsort((-window[at], room[at]))]
    own = np.full(words, -1)
    own[word_of[at]] = window[at]
    return np.where((word_of >= 0) & (own[word_of] == window), word_of, -1)


def _join_arrays(parts: Sequence[Tokens], name: str) -> Any:
    arrays = [getattr(part, name) for part in parts]
    return None if any(array is None for array in arrays) else np.concatenate(arrays)


def _join(parts: Sequence[Tokens]) -> Tokens:
    join = partial(_join_arrays, parts)
    joined = Tokens(
        join("ids"),
        join("types"),
        join("ordinary"),
        np.cumsum(np.concatenate([[0], *(part.lengths for part in parts)])),
        reduce(Cut.join, (part.cut for part in parts)),
        sum(part.empty for part in parts),
        join("words"),
        join("begins"),
        join("blank"),
        sum(part.dropped for part in parts),
    )
    # A window that leaves all of its words to its neighbours teaches nothing.
    return joined if joined.words is None else joined.select(np.arange(joined.words.max() + 1))


def _concatenate(encodings: Sequence[Any], filler: int) -> Tokens:
    """Lay the tokenizer's encodings end to end; one without a token becomes `filler`."""
    cut = [e for e in encodings if e.overflowing]
    pairs = any(1 in e.sequence_ids for e in cut[:1])
    # Each part of the rest has the special tokens as well.
    lost = [
        sum(len(part) - sum(e.special_tokens_mask) for part in e.overflowing)
        for e in ([] if pairs else cut)
    ]
    longest = max((len(e) + more for e, more in zip(cut, lost, strict=False)), default=0)
    masks = [~np.array(e.special_tokens_mask or [1], dtype=bool) for e in encodings]
    return Tokens(
        np.fromiter(chain.from_iterable(e.ids or [filler] for e in encodings), dtype=np.int32),
        np.fromiter(chain.from_iterable(e.type_ids or [0] for e in encodings), dtype=np.uint8),
        np.concatenate([mask if mask.any() else ~mask for mask in masks]),
        np.cumsum([0, *map(len, masks)]),
        Cut(len(cut), sum(lost), longest),
        empty=sum(not mask.any() for mask in masks),
    )


def warn_of_tokens(tokens: Tokens, encoder: Any, max_length: int) -> list[str]:
    """Warn of what was cut, dropped or not known when texts became tokens."""
    return [
        *warn_of_cut_inputs(tokens.cut, tokens.lengths, encoder, max_length),
        *warn_of_dropped_words(tokens.dropped),
        *warn_of_unknown_tokens(tokens, encoder.tokenizer),
    ]


def warn_of_cut_inputs(
    cut: Cut, lengths: np.ndarray, encoder: Any, max_length: int, *, what: str = "inputs"
) -> list[str]:
    """Warn of inputs that were cut; nothing where none was, or hardly any of their tokens.

    Args:
        cut: of all inputs.
        lengths: tokens of each that are left, (n,).
        encoder: the `Encoder` that they are for.
        max_length: that they were cut to.
        what: they are, in words.
    """
    share = cut.tokens / (cut.tokens + lengths.sum()) if cut.tokens else 1.0
    if not cut.inputs or share < 0.005:
        return []
    line = f"{cut.inputs:,} of {len(lengths):,} {what} were longer than {max_length} tokens and cut"
    if cut.tokens:
        line += f": {share:.0%} of all tokens are beyond"
    limit = usable_positions(encoder.model.config, encoder.family)
    if max_length >= limit:
        return [f"{line}; the model reads no more"]
    enough = -(-cut.longest // STEP) * STEP or limit
    return [f"{line}; --max-length {min(limit, enough)} reads more of them"]


def warn_of_unknown_tokens(tokens: Tokens, tokenizer: Any) -> list[str]:
    """Warn where over a third of the tokens are what the tokenizer has no word for."""
    mark = -1 if tokenizer.unk_token_id is None else tokenizer.unk_token_id
    if 3 * np.count_nonzero(tokens.ordinary & (tokens.ids == mark)) <= tokens.ordinary.sum():
        return []
    return [
        f"over a third of the tokens are unknown to the tokenizer, and all read as "
        f"{tokenizer.unk_token!r}; use a model whose vocabulary has the characters of these texts"
    ]


def warn_of_dropped_words(dropped: int) -> list[str]:
    """Warn of labelled words that the tokenizer makes nothing of; nothing where there was none."""
    if not dropped:
        return []
    return [
        "words dropped by the tokenizer, such as empty ones, which are read as its unknown token: "
        f"{dropped:,}"
    ]
