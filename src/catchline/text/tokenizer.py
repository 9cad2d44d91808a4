"""The tokenizers: words, subwords (byte-pair encoding) and characters, trained here, which keep the strings of what
their vocabulary lacks, so that a pointer can copy it; and those of hub checkpoints.

The patterns of tokens, in Oniguruma's syntax, run on normalised text, which may be lower-cased: no rule looks at case.
Every repetition that can fail after a long match starts at a word character and is bounded: time is linear in the text.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tokenizers
from pydantic import Field
from tokenizers import Regex, models, normalizers, pre_tokenizers, trainers

from catchline.config.base import ConfigBase
from catchline.errors import ConfigError, ModelError
from catchline.jobs import batches
from catchline.text.base import CONFIG_FILE, SPECIAL_TOKENS, TOKENIZER_FILE, UNK, Tokenizer, read_backend, read_json
from catchline.text.normalization import SPACE_MARK, encodable
from catchline.text.render import Detokenized, join_with, join_words
from catchline.text.sentences import Span, bounds

TEXTS = 5000  # whose chunks are counted at a time
MOST_CHUNKS = 1_000_000  # that are remembered
_BLANK = r"\s\p{Cc}\x{200B}\x{FEFF}"
# What the rules see across a blank: separators that are blanks to Python alone, signs that join to what follows them
# (Unicode's Prepend), and halves of characters.
_ACROSS_BLANKS = re.compile(
    "[\x1c-\x1f\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\u0d4e\U00011000-\U00011fff\ud800-\udfff]"
)
# Scripts written without spaces: Han, Hiragana, Thai, ... one grapheme a token; Katakana in runs.
_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}ー"
_LETTER = rf"[\p{{L}}\p{{M}}\x{{200C}}\x{{200D}}&&[^{_UNSPACED}]]"
_APOSTROPHE = "['’]"
_ABBREVIATION = (
    "mr|mrs|ms|dr|prof|vs|inc|ltd|corp|jr|sr|gov|sen|rep|gen|rev|lt|col|sgt|capt|st|cf|fig|eq|approx|dept|etc|al|vol"
)
# On text whose white space has become SPACE_MARK: a word or number or a run of signs with the mark before it.
SUBWORD_PATTERN = (
    rf"{SPACE_MARK}?[\p{{L}}\p{{M}}]+|{SPACE_MARK}?\p{{N}}{{1,4}}|{SPACE_MARK}?[^{SPACE_MARK}\p{{L}}\p{{M}}\p{{N}}]{{1,8}}"
    rf"|{SPACE_MARK}+"
)
# role -> what a checkpoint usually calls the token, where its files do not say
_USUAL = {"pad": ("<pad>", "[PAD]"), "unk": ("<unk>", "[UNK]"), "bos": ("<s>", "[CLS]"), "eos": ("</s>", "[SEP]")}


def across_blanks(text: str) -> bool:
    """Is the text more than its stretches between blanks, one by one?"""
    plain = text.isascii() and not ("\x1c" in text or "\x1d" in text or "\x1e" in text or "\x1f" in text)
    return not plain and bool(_ACROSS_BLANKS.search(text))  # the common case first, for speed


def build_normalizer(config: _OpenTokenizer.Config, marks: bool) -> normalizers.Normalizer:
    """Make the library's normalizer. With ``marks`` runs of white space become ``▁``, and one stands before the first
    word too, so that a word is the same token wherever it stands."""

    def replaced(pattern: str, content: str) -> normalizers.Normalizer:
        return normalizers.Replace(Regex(pattern), content)

    # soft hyphens and word joiners go
    steps = [normalizers.NFC(), replaced(r"[\x{00AD}\x{2060}]", ""), replaced("[‘’‛]", "'"), replaced("[“”„‟]", '"')]
    if config.unknown_marks:
        unknown = "|".join(map(re.escape, config.unknown_marks))
        steps.append(replaced(rf"(?<!\S)(?:{unknown})(?!\S)", "unk"))
    if config.lowercase:
        steps.append(normalizers.Lowercase())
    if config.digits_to_hash:
        steps.append(replaced(r"\p{Nd}", "#"))
    if marks:
        steps += [replaced(rf"[{_BLANK}{SPACE_MARK}]+", SPACE_MARK), replaced(rf"{SPACE_MARK}\z", "")]
        steps.append(replaced(rf"\A(?!{SPACE_MARK})", SPACE_MARK))
    return normalizers.Sequence(steps)


def whole_marks(text: str, offsets: list[tuple[int, int]], marks: Sequence[str]) -> None:
    """Widen, in place, the spans of unknown words' marks: the library traces a replaced one to its last character."""
    matches = (match for mark in marks for match in re.finditer(rf"(?<!\S){re.escape(mark)}(?!\S)", text))
    starts = {match.end(): match.start() for match in matches}
    for index, (start, end) in enumerate(offsets):
        offsets[index] = (min(start, starts.get(end, start)), end)


def word_pattern(hash_digits: bool = False) -> str:
    """The rules of words, in order; the first that matches at a position wins. With ``hash_digits`` the sign ``#`` is a
    digit (Gigaword writes 3.5 as ``#.#`` and 10-year-old as ``##-year-old``)."""
    mark = "#" if hash_digits else ""
    word = rf"[\p{{L}}\p{{M}}\p{{N}}_{mark}\x{{200C}}\x{{200D}}&&[^{_UNSPACED}]]"
    digit = r"[\p{Nd}#]" if hash_digits else r"\p{Nd}"
    clitic = rf"(?i:s|re|ve|ll|d|m)(?!{word})"
    rules = (
        # the common case first, for speed: no other rule would say otherwise
        r"(?>[a-zA-Z]+)(?=[ ,;)\n]|\z)",
        # addresses: never split, trailing sentence punctuation left out
        rf"(?:(?:https?|ftp)://|www\.)[^{_BLANK}<>\"]*[^{_BLANK}<>\"'.,;:!?)\]}}]",
        r"\w[\w.+\-]{0,63}@\w[\w\-]{0,63}(?:\.\w[\w\-]{0,63})+",
        # placeholders and tags: #Person1#, #topic, @user, -lrb-, c++, c#
        r"(?<!\w)#\w+#|(?<!\w)[#@](?=[\p{L}_])\w+",
        r"-(?i:[lr][rsc]b)-",
        r"(?<!\w)(?:[cC]\+\+|[cCfFjJ]\#)(?!\w)",
        # u.s., e.g.: the full stop belongs to the token; so it does in mr. and dr.
        r"(?<!\w)(?:\p{L}\.){2,}(?!\w)",
        rf"(?<!\w)(?i:{_ABBREVIATION})\.",
        # 1,234.5  10/12/2001  10:30am  3.5mm, but not the 10 of 10-year
        rf"(?<!{word})(?>{digit}+(?:[.,:/\-]{digit}+)*)(?:{_LETTER}{{1,3}})?(?![\-‐‑]?{word})",
        # do|n't, he|'ll, john|'s; also where the text comes already split (Gigaword, CNN/DailyMail)
        rf"{_LETTER}+?(?=(?i:n){_APOSTROPHE}(?i:t)(?!{word}))",
        rf"(?i:n){_APOSTROPHE}(?i:t)(?!{word})",
        rf"(?<={word}){_APOSTROPHE}{clitic}|(?<![^\s]){_APOSTROPHE}{clitic}(?=\s|\z)",
        # words with inner hyphens, apostrophes, full stops: state-of-the-art, o'clock, np.ndarray, snake_case, at&t
        rf"{word}+(?:(?:[\-‐‑.&]|{_APOSTROPHE}(?!{clitic})){word}+)*",
        r"[\p{Katakana}ー]+",
        # runs that mean one thing
        r"\.{2,}|-{2,}|={2,}|\*{2,}|#{2,}|~{2,}|!{2,}|\?{2,}|\+{2,}|<{2,}|>{2,}|`{2}|'{2}",
        # anything else a reader sees as one character, emoji sequences included
        rf"(?![{_BLANK}])\X",
    )
    return "|".join(rules)


class _OpenTokenizer(Tokenizer):
    """A tokenizer whose tokens are pieces of the normalised text, also those outside the vocabulary."""

    class Config(Tokenizer.Config):
        """The steps behind Unicode's NFC and straight quotes. ``unknown_marks`` are what the data writes for words it
        lost (``<unk>`` and ``UNK`` in copies of Gigaword); between blanks they become the word ``unk``, not in
        references. ``max_vocabulary`` counts the four special tokens. What occurs less than ``min_frequency`` times is
        left out: a token, or the pair of which one is made."""

        lowercase: bool = False
        unknown_marks: tuple[Annotated[str, Field(pattern=r"^\S+$")], ...] = ()
        digits_to_hash: bool = False
        max_vocabulary: int = Field(16_000, ge=5)
        min_frequency: int = Field(2, ge=1)

    pattern: str  # of a token
    marks: bool = False  # of blanks, see `build_normalizer`
    config: Config

    def _blank(self, model: models.Model) -> tokenizers.Tokenizer:
        backend = tokenizers.Tokenizer(model)
        backend.normalizer = build_normalizer(self.config, self.marks)
        backend.pre_tokenizer = pre_tokenizers.Split(Regex(self.pattern), "removed", invert=True)
        return backend

    def _pieces(self, text: str) -> list[str]:
        """The tokens of a text, whatever the vocabulary."""
        normalised = self._cutter.normalizer.normalize_str(encodable(text))
        return [piece for piece, _ in self._cutter.pre_tokenizer.pre_tokenize_str(normalised)]

    @cached_property
    def _cutter(self) -> tokenizers.Tokenizer:
        return self._blank(models.WordLevel({UNK: 0}, unk_token=UNK))

    def _reserved(self) -> list[str]:
        """The first entries of the vocabulary: special tokens and the sentence separator, which no text holds."""
        if self.separator is None:
            return [*SPECIAL_TOKENS]
        if len(self._pieces(self.separator)) < 2 or self.separator in SPECIAL_TOKENS:
            raise ConfigError(f"text.sentence_separator '{self.separator}' is an ordinary word; use one such as <EOS>.")
        return [*SPECIAL_TOKENS, self.separator]

    def count_words(self, texts: Iterable[str]) -> Counter[str]:
        """How often each token that a vocabulary could have stands in the texts."""
        return Counter(piece for text in texts for piece in self._pieces(text))

    def train(self, texts: Iterable[str]) -> None:
        """Keep the most frequent tokens; equal counts are ordered by the token itself."""
        size, min_frequency = self.config.max_vocabulary, self.config.min_frequency
        counts = self.count_words(texts)
        reserved = self._reserved()
        frequent = [(-n, token) for token, n in counts.items() if n >= min_frequency and token not in reserved]
        words = [token for _, token in sorted(frequent)[: max(0, size - len(reserved))]]
        if not words:
            raise ConfigError(
                f"No token occurs {min_frequency:,} times (text.tokenizer.min_frequency) in the texts, or none of "
                f"{size:,} (max_vocabulary) is left for them: change one of the two, or give more texts."
            )
        vocabulary = {token: index for index, token in enumerate([*reserved, *words])}
        self._set_backend(self._blank(models.WordLevel(vocabulary, unk_token=UNK)))

    def _finish(self, text: str, ids: list[int], tokens: list[str], offsets: list[tuple[int, int]]) -> None:
        if self.config.unknown_marks:
            whole_marks(text, offsets, self.config.unknown_marks)
        for index, (start, end) in enumerate(offsets):
            if ids[index] == self.unk_id:
                tokens[index] = self.backend.normalizer.normalize_str(text[start:end])


class _ByChunks(_OpenTokenizer):
    """One that reads a text as its stretches between blanks, one by one: each is cut once and remembered."""

    @cached_property
    def _tokens_of(self) -> Any:
        return lru_cache(MOST_CHUNKS)(self._cut)

    def _cut(self, chunk: str) -> Sequence[str]:
        return self._pieces(chunk)

    def encode_ids(
        self, texts: Sequence[str], max_tokens: int, gaps: Iterable[Sequence[Span]] | None = None
    ) -> list[tuple[np.ndarray, list[str], int]]:
        if gaps is not None:
            return super().encode_ids(texts, max_tokens, gaps)
        id_of, encoded = self.backend.get_vocab(), []
        for text in texts:
            if across_blanks(text):
                encoded += super().encode_ids([text], max_tokens)
                continue
            tokens = list(chain.from_iterable(map(self._tokens_of, text.split())))
            ids = [id_of.get(token, self.unk_id) for token in tokens[:max_tokens]]
            unknown = [token for token, index in zip(tokens, ids, strict=False) if index == self.unk_id]
            encoded.append((np.array(ids, np.int32), unknown, len(tokens)))
        return encoded


class WordTokenizer(_ByChunks):
    """Words, numbers and punctuation by rule (`word_pattern`)."""

    class Config(_OpenTokenizer.Config):
        lowercase: bool = True

    whole_words = guesses_spaces = True

    @property
    def pattern(self) -> str:  # type: ignore[override]
        return word_pattern(self.config.digits_to_hash)

    def count_words(self, texts: Iterable[str]) -> Counter[str]:
        counts = Counter[str]()
        for some in batches(texts, TEXTS):
            chunks = Counter(chain.from_iterable(text.split() for text in some if not across_blanks(text)))
            counts.update(super().count_words(filter(across_blanks, some)))
            for chunk, count in chunks.items():
                for piece in self._tokens_of(chunk):
                    counts[piece] += count
        return counts

    _join = staticmethod(join_words)

    def _starts_word(self, previous: str, token: str) -> bool:
        return True


class CharacterTokenizer(_OpenTokenizer):
    """What a reader sees as one character is one token (a flag, an accented letter); blanks do not count, so Chinese
    text with and without blanks between its characters is equal."""

    pattern = rf"(?![{_BLANK}])\X"

    def _starts_word(self, previous: str, token: str) -> bool:
        together = (previous[:1].isalnum() and token[:1].isalnum()) and (previous + token).isascii()
        alphabetic = previous[:1].isalpha() and token[:1].isalpha() and max(previous[0], token[0]) < "\u0e00"
        return not (together or alphabetic)


class BpeTokenizer(_ByChunks):
    """Byte-pair encoding over words with the space in front written as ``▁``. Unseen characters are unknown tokens."""

    pattern = SUBWORD_PATTERN
    marks = True

    def train(self, texts: Iterable[str]) -> None:
        backend = self._blank(models.BPE(unk_token=UNK))
        reserved = self._reserved()
        size, least = self.config.max_vocabulary, self.config.min_frequency
        trainer = trainers.BpeTrainer(
            vocab_size=size, min_frequency=least, special_tokens=reserved, show_progress=False
        )
        backend.train_from_iterator((encodable(text) for text in texts), trainer)
        if backend.get_vocab_size() <= len(reserved):
            raise ConfigError("The tokenizer's training texts have no token.")
        # The trainer registers the special tokens as strings to look for in text; ours are ids only.
        described = json.loads(backend.to_str())
        described["added_tokens"] = []
        self._set_backend(tokenizers.Tokenizer.from_str(json.dumps(described)))
        self._tokens_of.cache_clear()  # of an earlier training

    def _cut(self, chunk: str) -> Sequence[str]:
        blank = self.backend.normalizer.normalize_str(encodable(chunk)) == SPACE_MARK
        return () if blank else self.encode(chunk).tokens

    def _finish(self, text: str, ids: list[int], tokens: list[str], offsets: list[tuple[int, int]]) -> None:
        if self.config.unknown_marks:
            whole_marks(text, offsets, self.config.unknown_marks)
        for index, token in enumerate(tokens):
            start, end = offsets[index]
            if token.startswith(SPACE_MARK):
                offsets[index] = (end - len(text[start:end].lstrip()), end)
            elif ids[index] == self.unk_id:
                tokens[index] = self.backend.normalizer.normalize_str(text[start:end]).lstrip(SPACE_MARK)

    def _starts_word(self, previous: str, token: str) -> bool:
        apart = previous != SPACE_MARK and not (previous[-1:].isalnum() and token[:1].isalnum())
        return token.startswith(SPACE_MARK) or apart


class PretrainedTokenizer(Tokenizer):
    """A checkpoint's own, with our offsets and word groups. ``path`` is a folder with a ``tokenizer.json``, and the
    ``config.json`` or ``tokenizer_config.json`` that say which ids are special."""

    class Config(ConfigBase):
        """``prefix`` stands in front of every document (``summarize:`` of T5), behind the first special token."""

        path: str
        prefix: str = ""

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        folder = Path(config.path)
        self._set_backend(read_backend(folder / TOKENIZER_FILE))
        model = read_json(folder / "config.json", optional=True)
        described = read_json(folder / CONFIG_FILE, optional=True)
        special = read_json(folder / "special_tokens_map.json", optional=True)
        self._hub_config = {key: value for key, value in (special | described).items() if key != "catchline"}
        ids = {role: self._special_id(role, model) for role in _USUAL}
        if ids["eos"] is None:
            raise ModelError(f"{folder}: neither the files in it nor its vocabulary say which token ends a text.")
        self.eos_id = ids["eos"]
        self.bos_id = self.eos_id if ids["bos"] is None else ids["bos"]
        self.pad_id = self.eos_id if ids["pad"] is None else ids["pad"]
        self.unk_id = self.pad_id if ids["unk"] is None else ids["unk"]
        stored = (described.get("catchline") or {}).get("decoder_start_id")
        start = (stored, model.get("decoder_start_token_id"), self.bos_id)
        self.decoder_start_id = int(next(value for value in start if value is not None))
        template = self.backend.encode("a")
        first, last = template.special_tokens_mask.index(0), len(template) - template.special_tokens_mask[::-1].index(0)
        self.prefix_ids, self.suffix_ids = tuple(template.ids[:first]), tuple(template.ids[last:])
        self.target_prefix_ids = self.prefix_ids
        longest = described.get("model_max_length")
        self.most_tokens = int(longest) if isinstance(longest, int | float) and 0 < longest < 1e9 else None
        self._begins = self.prefix_ids
        self.use_prefix(config.prefix)
        self._marks_inner_pieces = any(token.startswith("##") for token in self.vocabulary)

    def use_prefix(self, prefix: str) -> None:
        """Put other words in front of every document, which are no part of it."""
        self.config = self.config.model_copy(update={"prefix": prefix})
        words = self.backend.encode(prefix.strip(), add_special_tokens=False).ids if prefix.strip() else []
        self.prefix_ids = (*self._begins, *words)

    def _special_id(self, role: str, model: dict[str, Any]) -> int | None:
        named = self._hub_config.get(f"{role}_token")
        named = named.get("content") if isinstance(named, dict) else named
        for token in (named, *_USUAL[role]):
            if isinstance(token, str) and (found := self.token_id(token)) is not None:
                return found
        value = model.get(f"{role}_token_id")
        return value if isinstance(value, int) else None

    def train(self, texts: Iterable[str]) -> None:
        raise ConfigError("A pretrained tokenizer is not trained; choose type word, bpe or character instead.")

    def _finish(self, text: str, ids: list[int], tokens: list[str], offsets: list[tuple[int, int]]) -> None:
        offsets[:] = [bounds(text, start, end) for start, end in offsets]

    def _join(self, tokens: Sequence[str]) -> Detokenized:
        decoder = self.backend.decoder
        return join_with(lambda some: decoder.decode(some).strip() if decoder else " ".join(some), tokens)

    def _starts_word(self, previous: str, token: str) -> bool:
        """``Ġ`` (byte-level) and ``▁`` (sentence-piece) mark where a word begins, ``##`` where it continues."""
        if self._marks_inner_pieces:
            return not token.startswith("##")
        return token.startswith(("Ġ", "▁", "Ċ")) or not all(
            one.isalnum() or one in "ĠĊ" or one >= "\x80" for one in (previous[-1:], token[:1])
        )

    def word_key(self, tokens: Sequence[str], written: str) -> str:
        return written.strip().lower()

    def _described_config(self) -> dict[str, Any]:
        prefix = {"prefix": self.config.prefix} if self.config.prefix else {}
        return {"decoder_start_id": self.decoder_start_id, **prefix}
