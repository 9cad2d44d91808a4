"""What every tokenizer offers: text to ids with the way back to the user's characters, and ids to text."""

from __future__ import annotations

import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise, repeat
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import tokenizers

from catchline.config.base import ConfigBase
from catchline.config.names import TOKENIZERS, name_of, parse, refuse_code
from catchline.errors import ConfigError, ModelError
from catchline.jobs import batches
from catchline.text.normalization import SPACE_MARK, encodable, extend_over_marks
from catchline.text.render import Detokenized, join_marked
from catchline.text.sentences import Span, between
from catchline.text.truecase import Casing
from catchline.types import TokenizedText

PAD, UNK, BOS, EOS = "<pad>", "<unk>", "<s>", "</s>"
SPECIAL_TOKENS = (PAD, UNK, BOS, EOS)  # ids 0 to 3 of the tokenizers trained here
TOKENIZER_FILE = "tokenizer.json"
CONFIG_FILE = "tokenizer_config.json"
_CHUNK = 512  # texts a call of the library
MOST_UNUSED = 10_000  # ids without a token that a small vocabulary may have


class Tokenizer(ABC):
    """Base of the tokenizers. ``Class(config)``, then `train`; or `Tokenizer.load` from a folder. Yours writes `train`,
    which hands an object of the `tokenizers` library, whose first four ids are `SPECIAL_TOKENS`, to `_set_backend`;
    `_finish`; and `_starts_word`."""

    class Config(ConfigBase):
        """Options, as they stand below ``text.tokenizer`` in a recipe."""

    name: ClassVar[str]  # by which a recipe asks for the class, and folders name it
    whole_words: ClassVar[bool] = False  # is each token a word?
    guesses_spaces: ClassVar[bool] = False  # do blanks between tokens follow rules, rather than stand in the tokens?

    def __init_subclass__(cls) -> None:
        cls.name = name_of(TOKENIZERS, cls)

    def __init__(self, config: ConfigBase) -> None:
        self.config = config
        self._backend: tokenizers.Tokenizer | None = None
        self.vocabulary: list[str] = []  # the token of every id
        self._width = 0
        self.separator: str | None = None  # the word between sentences, if texts are read with one; `use_separator`
        self.casing = Casing()  # how the training texts write their words
        self._hub_config: dict[str, Any] = {"pad_token": PAD, "unk_token": UNK, "bos_token": BOS, "eos_token": EOS}

    pad_id: int = 0
    unk_id: int = 1
    bos_id: int = 2
    eos_id: int = 3
    decoder_start_id: int = 2  # what the decoder reads first
    prefix_ids: tuple[int, ...] = (2,)  # what ``specials=True`` puts in front, and behind
    suffix_ids: tuple[int, ...] = (3,)
    most_tokens: int | None = None  # that its checkpoint was trained to read, where its files say so
    target_prefix_ids: tuple[int, ...] = ()  # what the decoder must write before a summary (BART writes ``<s>``)

    @property
    def vocab_size(self) -> int:
        """V: ids below it are tokens of the vocabulary, ids from it on are an example's own words."""
        return max(len(self.vocabulary), self._width)

    def widen(self, size: int) -> None:
        """Leave the ids below ``size`` to a model whose vocabulary has more rows than there are tokens."""
        self._width = max(self._width, size)

    @property
    def ids(self) -> dict[str, int]:
        """The ids that every model knows, by the names of its arguments."""
        return {"pad_id": self.pad_id, "unk_id": self.unk_id, "bos_id": self.bos_id, "eos_id": self.eos_id}

    def search_ids(self, bos_id: int) -> dict[str, Any]:
        """What search knows of it, for a model whose decoder reads ``bos_id`` first."""
        more = {"separator_id": self.separator_id, "vocabulary": self.vocabulary, "whole_words": self.whole_words}
        return {**self.ids, **more, "bos_id": bos_id, "decode": self.decode}

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids that `decode` drops."""
        return frozenset((self.pad_id, self.bos_id, self.eos_id, self.decoder_start_id))

    @property
    def separator_id(self) -> int | None:
        """Its id; an ordinary one, which `special_ids` does not hold."""
        return None if self.separator is None else self.token_id(self.separator)

    @cached_property
    def lowercases(self) -> bool:
        """Does the vocabulary lack capitals, because the normalisation takes them away?"""
        normalizer = self.backend.normalizer
        return normalizer is not None and "A" not in normalizer.normalize_str("A")

    def use_separator(self, token: str | None) -> None:
        """Let ``token`` stand between sentences: before `train`, which makes it a word of the vocabulary."""
        if token is not None and self._backend is not None and self.token_id(token) is None:
            raise ConfigError(f"The vocabulary has no '{token}'; text.sentence_separator must be one of its tokens.")
        self.separator = token

    def use_prefix(self, prefix: str) -> None:
        """Put other words in front of every document. Raises ConfigError: only pretrained models have learnt that."""
        raise ConfigError(
            f"A prefix such as {prefix[:40]!r} is for checkpoints of transformers that were trained with one."
        )

    def token_id(self, token: str) -> int | None:
        return self.backend.token_to_id(token)

    def token(self, token_id: int, oov_words: Sequence[str] = ()) -> str:
        """The string of an id; ids from V on are ``oov_words[id - V]``, unknown ones are UNK."""
        if 0 <= token_id < len(self.vocabulary):
            return self.vocabulary[token_id]
        position = token_id - self.vocab_size
        return oov_words[position] if 0 <= position < len(oov_words) else self.vocabulary[self.unk_id]

    @abstractmethod
    def train(self, texts: Iterable[str]) -> None:
        """Learn the vocabulary, which does not depend on the order of the texts."""

    @property
    def backend(self) -> tokenizers.Tokenizer:
        """The object of the `tokenizers` library."""
        if self._backend is None:
            raise ConfigError("The tokenizer has no vocabulary yet; train it on texts or load it from a folder.")
        return self._backend

    def _set_backend(self, backend: tokenizers.Tokenizer) -> None:
        backend.no_truncation()
        backend.no_padding()
        backend.encode_special_tokens = True
        vocabulary = backend.get_vocab(with_added_tokens=True)
        size = max(vocabulary.values(), default=-1) + 1
        if size > 2 * len(vocabulary) + MOST_UNUSED:
            raise ModelError(f"The vocabulary has ids up to {size - 1} for {len(vocabulary)} tokens; it is damaged.")
        self._backend = backend
        self.vocabulary = [f"<unused{index}>" for index in range(size)]
        for token, index in vocabulary.items():
            self.vocabulary[index] = token

    def encode(self, text: str, **options: Any) -> TokenizedText:
        """Tokenize one text, with the options of `encode_stream`."""
        return next(self.encode_stream([text], **options))

    def encode_stream(
        self,
        texts: Iterable[str],
        *,
        max_tokens: int | None = None,
        specials: bool | Literal["end"] = False,
        gaps: Iterable[Sequence[Span]] | None = None,
    ) -> Iterator[TokenizedText]:
        """Tokenize texts on all cores, in order. ``max_tokens`` cuts at the end and counts the special tokens that
        ``specials`` adds: ``True`` on both sides, ``"end"`` behind. ``gaps`` are, for each text, the places of the
        separator (`catchline.text.sentences.sentence_gaps`)."""
        prefix = self.prefix_ids if specials is True else ()
        suffix = self.suffix_ids if specials else ()
        room = None if max_tokens is None else max_tokens - len(prefix) - len(suffix)
        if room is not None and room < 1:
            raise ConfigError(f"max_tokens {max_tokens} leaves no room for text beside the special tokens.")
        pairs = zip(map(encodable, texts), repeat(()) if gaps is None else gaps, strict=gaps is not None)
        for chunk in batches(pairs, _CHUNK):
            parts = [between(text, places) if places and self.separator else [(0, text)] for text, places in chunk]
            every = self.backend.encode_batch([part for own in parts for _, part in own], add_special_tokens=False)
            encodings = iter(every)
            for own in parts:
                yield self._encoded(own, encodings, room, prefix, suffix)

    def encode_ids(
        self, texts: Sequence[str], max_tokens: int, gaps: Iterable[Sequence[Span]] | None = None
    ) -> list[tuple[np.ndarray, list[str], int]]:
        """Of each text the ids, int32, the strings of those that are UNK, and the number of tokens before the cut."""
        stream = self.encode_stream(texts, max_tokens=max_tokens, gaps=gaps)
        return [(np.array(text.ids, np.int32), unknown_words(text, self.unk_id), text.total) for text in stream]

    def _encoded(
        self,
        parts: Sequence[tuple[int, str]],
        encodings: Iterator[tokenizers.Encoding],
        room: int | None,
        prefix: tuple[int, ...],
        suffix: tuple[int, ...],
    ) -> TokenizedText:
        """The tokens of the parts of a text, each with its position, and a separator between two parts with tokens."""
        ids, tokens, offsets, total = list[int](), list[str](), list[tuple[int, int]](), 0
        for position, text in parts:
            encoding = next(encodings)
            if total and len(encoding):
                total += 1
                ids.append(self.separator_id or 0)
                tokens.append(self.separator or "")
                offsets.append((offsets[-1][1],) * 2)
            end = None if room is None else max(0, room + 1 - total)  # the last needs the one behind it
            total += len(encoding)
            part_ids, spans = encoding.ids[:end], encoding.offsets[:end]
            part_tokens = [self.vocabulary[index] for index in part_ids]
            if not text.isascii():
                spans = extend_over_marks(text, spans)
            self._finish(text, part_ids, part_tokens, spans)
            ids += part_ids
            tokens += part_tokens
            offsets += [(position + start, position + end) for start, end in spans] if position else spans
        ids, tokens, offsets = ids[:room], tokens[:room], offsets[:room]
        if prefix or suffix:
            last = offsets[-1][1] if offsets else 0
            tokens = [*map(self.token, prefix), *tokens, *map(self.token, suffix)]
            offsets = [(0, 0)] * len(prefix) + offsets + [(last, last)] * len(suffix)
        cut = room is not None and room < total
        return TokenizedText((*prefix, *ids, *suffix), tuple(tokens), tuple(offsets), cut, total)

    @abstractmethod
    def _finish(self, text: str, ids: list[int], tokens: list[str], offsets: list[tuple[int, int]]) -> None:
        """Correct, in place, tokens and offsets of one encoding (the string of unknown words, for example)."""

    def decode(self, ids: Sequence[int], oov_words: Sequence[str] = ()) -> str:
        """Ids to text as people write it; ids from V on are ``oov_words[id - V]``, special ids are dropped."""
        special = self.special_ids
        return self.detokenize([self.token(index, oov_words) for index in ids if index not in special])[0]

    def detokenize(self, tokens: Sequence[str]) -> Detokenized:
        """Join tokens to a text; also the span of each token in it. Separators become line breaks with empty spans."""
        text, spans = "", list[tuple[int, int]]()
        ends = [at for at, token in enumerate(tokens) if token == self.separator]
        for before, end in pairwise([-1, *ends, len(tokens)]):
            joined, inner = self._join(tokens[before + 1 : end])
            spans += [(len(text), len(text))] if before >= 0 else []
            text += "\n" if text and joined else ""
            spans += [(len(text) + first, len(text) + last) for first, last in inner]
            text += joined
        return text, spans

    def _join(self, tokens: Sequence[str]) -> Detokenized:
        """`detokenize` for the tokens of one sentence."""
        return join_marked(tokens)

    def word_groups(self, tokens: Sequence[str]) -> list[list[int]]:
        """Which tokens form one word: lists of positions, in order, each position once."""
        starts = [at for at in range(1, len(tokens)) if self._starts_word(tokens[at - 1], tokens[at])]
        return [[*range(first, last)] for first, last in pairwise([0, *starts, len(tokens)]) if last > first]

    @abstractmethod
    def _starts_word(self, previous: str, token: str) -> bool:
        """Does ``token``, behind the token ``previous``, begin a word?"""

    def word_key(self, tokens: Sequence[str], written: str) -> str:
        """What a word is compared by: its normalised characters. ``written`` is the word in a text."""
        return "".join(tokens).replace(SPACE_MARK, "")

    def save(self, folder: str | Path) -> None:
        """Write what transformers' ``AutoTokenizer`` reads too, and what was learnt of case."""
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        (path / TOKENIZER_FILE).write_text(self.backend.to_str(pretty=True), encoding="utf-8")
        own = {"type": self.name, **self._described_config()}
        own |= {"sentence_separator": self.separator} if self.separator is not None else {}
        config = {"tokenizer_class": "PreTrainedTokenizerFast", **self._hub_config, "catchline": own}
        text = json.dumps(config, ensure_ascii=False, indent=2, sort_keys=True)
        (path / CONFIG_FILE).write_text(text + "\n", encoding="utf-8")
        self.casing.save(path)

    def _described_config(self) -> dict[str, Any]:
        return self.config.model_dump(mode="json")

    @staticmethod
    def load(folder: str | Path) -> Tokenizer:
        """Open the tokenizer of a folder; a folder that is not ours opens as a pretrained tokenizer."""
        path = Path(folder)
        spec = read_json(path / CONFIG_FILE, optional=True).get("catchline") or {"type": "pretrained"}
        refuse_code(spec, path / CONFIG_FILE)
        separator = spec.pop("sentence_separator", None)
        if spec.get("type") == "pretrained":
            spec = {"type": "pretrained", "path": str(path)} | {key: spec[key] for key in ("prefix",) if key in spec}
        cls, config = parse("tokenizer", TOKENIZERS, spec)
        tokenizer: Tokenizer = cls(config)
        if tokenizer._backend is None:
            tokenizer._set_backend(read_backend(path / TOKENIZER_FILE))
            if (first := tuple(tokenizer.vocabulary[:4])) != SPECIAL_TOKENS:
                raise ModelError(f"{path / TOKENIZER_FILE}: the first tokens are {first}, not {SPECIAL_TOKENS}.")
        if separator is not None:
            tokenizer.use_separator(separator)
        tokenizer.casing = Casing.load(path)
        return tokenizer


def read_json(path: Path, *, optional: bool = False) -> dict[str, Any]:
    """Read a JSON object; an ``optional`` one that is not there is empty. Raises ModelError: the file is missing or
    damaged."""
    if optional and not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        json.dumps(value, ensure_ascii=False).encode()  # half characters (lone surrogates) can be written nowhere
        return dict(value.items())
    except FileNotFoundError:
        raise ModelError(f"{path} does not exist; the folder holds no tokenizer.") from None
    except (OSError, ValueError, RecursionError, AttributeError) as error:
        raise ModelError(f"{path} is damaged ({error}): save or copy it again.") from None


def read_backend(path: Path) -> tokenizers.Tokenizer:
    """Read a ``tokenizer.json``. Raises ModelError when it is missing or damaged."""
    try:
        return tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise ModelError(f"{path} could not be read ({str(error)[:300]}); copy the model folder again.") from None


# The library warns when a process that used its threads forks, unless the child says that it uses none.
_PARALLELISM = "TOKENIZERS_PARALLELISM"
if hasattr(os, "register_at_fork") and _PARALLELISM not in os.environ:
    os.register_at_fork(
        before=lambda: os.environ.update({_PARALLELISM: "false"}),
        after_in_parent=lambda: os.environ.pop(_PARALLELISM, None),
    )


_HASHED = re.compile(r"(?<!\w)#(?:[\w#.,:/\-]*[\w#])?")
_NUMBER = re.compile(r"(?<!\w)\d(?:[\w.,:/\-]*\w)?")


def unknown_words(text: TokenizedText, unk_id: int) -> list[str]:
    """The strings of the tokens that are UNK, in order."""
    return [token for index, token in zip(text.ids, text.tokens, strict=True) if index == unk_id]


def extended(
    text: TokenizedText, vocab_size: int, unk_id: int, words: Sequence[str] | None = None
) -> tuple[np.ndarray, list[str]]:
    """`extend_ids` of a text's ids."""
    return extend_ids(np.array(text.ids, np.int32), unknown_words(text, unk_id), vocab_size, unk_id, words)


def extend_ids(
    ids: np.ndarray, unknown: Sequence[str], vocab_size: int, unk_id: int, words: Sequence[str] | None = None
) -> tuple[np.ndarray, list[str]]:
    """The ids (S,) int32 of a text with extended ids for its ``unknown`` words, and the strings of V, V + 1, ... . A
    source numbers its own words by first appearance, so that a longer truncation numbers them likewise; a summary is
    given the ``words`` of its source, and others stay UNK."""
    words = list(dict.fromkeys(unknown) if words is None else words)
    if unknown and words:
        numbers = {word: vocab_size + index for index, word in enumerate(words)}
        ids = ids.copy()
        ids[ids == unk_id] = [numbers.get(word, unk_id) for word in unknown]
    return ids, words


def restore_numbers(summary: str, document: str) -> str:
    """Replace each word of ``summary`` that starts with ``#`` by the last number of ``document`` of the same length, if
    there is one (Rush et al. 2015 do so before scoring DUC)."""
    numbers = {len(number): number for number in _NUMBER.findall(document)}
    return _HASHED.sub(lambda found: numbers.get(len(found[0]), found[0]), summary)
