"""The tokenizers: words, subwords (byte-pair encoding) and characters, trained here, which keep the strings of what
their vocabulary lacks, so that a pointer can copy it; and those of hub checkpoints."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from pydantic import Field
from tokenizers import models, pre_tokenizers, trainers

from catchline.config.base import ConfigBase
from catchline.errors import ConfigError, ModelError
from catchline.jobs import batches
from catchline.text.base import (
    CONFIG_FILE,
    SPECIAL_TOKENS,
    TOKENIZER_FILE,
    UNK,
    Gaps,
    Tokenizer,
    read_backend,
    read_json,
)
from catchline.text.normalization import (
    SPACE_MARK,
    SUBWORD_PATTERN,
    VISIBLE_CHARACTER_PATTERN,
    NormalizationConfig,
    across_blanks,
    build_normalizer,
    encodable,
    whole_marks,
    word_pattern,
)
from catchline.text.render import Detokenized, join_with, join_words
from catchline.text.sentences import bounds

TEXTS = 5000  # whose chunks are counted at a time
MOST_CHUNKS = 1_000_000  # that are remembered
_PROBE = "a"
# role -> what a checkpoint usually calls the token, where its files do not say
_USUAL = {"pad": ("<pad>", "[PAD]"), "unk": ("<unk>", "[UNK]"), "bos": ("<s>", "[CLS]"), "eos": ("</s>", "[SEP]")}


class _OpenTokenizer(Tokenizer):
    """A tokenizer whose tokens are pieces of the normalised text, also those outside the vocabulary."""

    pattern: str  # of a token
    marks: bool = False  # of blanks, see `build_normalizer`
    config: Any  # a `NormalizationConfig` with the options of the class

    def _blank(self, model: models.Model) -> tokenizers.Tokenizer:
        backend = tokenizers.Tokenizer(model)
        backend.normalizer = build_normalizer(self.config, self.marks)
        backend.pre_tokenizer = pre_tokenizers.Split(tokenizers.Regex(self.pattern), "removed", invert=True)
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
        for special in reserved:
            counts.pop(special, None)
        frequent = [(-count, token) for token, count in counts.items() if count >= min_frequency]
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
        self, texts: Sequence[str], max_tokens: int, gaps: Iterable[Gaps] | None = None
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

    class Config(NormalizationConfig):
        """``max_vocabulary`` counts the four special tokens."""

        lowercase: bool = True
        max_vocabulary: int = Field(50_000, ge=5)
        min_frequency: int = Field(2, ge=1)

    whole_words = guesses_spaces = True
    config: Config

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

    class Config(NormalizationConfig):
        """``max_vocabulary`` counts the four special tokens."""

        max_vocabulary: int = Field(10_000, ge=5)
        min_frequency: int = Field(1, ge=1)

    pattern = VISIBLE_CHARACTER_PATTERN
    config: Config

    def _starts_word(self, previous: str, token: str) -> bool:
        together = (previous[:1].isalnum() and token[:1].isalnum()) and (previous + token).isascii()
        alphabetic = previous[:1].isalpha() and token[:1].isalpha() and max(previous[0], token[0]) < "\u0e00"
        return not (together or alphabetic)


class BpeTokenizer(_ByChunks):
    """Byte-pair encoding over words with the space in front written as ``▁``. Unseen characters are unknown tokens."""

    class Config(NormalizationConfig):
        """``vocab_size`` counts the four special tokens."""

        vocab_size: int = Field(16_000, ge=5)
        min_frequency: int = Field(2, ge=1)

    pattern = SUBWORD_PATTERN
    marks = True
    config: Config

    def train(self, texts: Iterable[str]) -> None:
        backend = self._blank(models.BPE(unk_token=UNK))
        reserved = self._reserved()
        size, least = self.config.vocab_size, self.config.min_frequency
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
        template = self.backend.encode(_PROBE)
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
        return token.startswith(("Ġ", "▁", "Ċ")) or not (_wordlike(previous[-1:]) and _wordlike(token[:1]))

    def word_key(self, tokens: Sequence[str], written: str) -> str:
        return written.strip().lower()

    def _described_config(self) -> dict[str, Any]:
        prefix = {"prefix": self.config.prefix} if self.config.prefix else {}
        return {"decoder_start_id": self.decoder_start_id, **prefix}


def _wordlike(character: str) -> bool:
    return character.isalnum() or character in "ĠĊ" or character >= "\x80"
