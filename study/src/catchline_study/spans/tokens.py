"""What the lengths of spans are counted in: words, or the tokens of a tokenizer from a folder or the hub."""

from __future__ import annotations

import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import tokenizers
from huggingface_hub import hf_hub_download
from numpy.typing import NDArray

from catchline.data.checks import WORD
from catchline.errors import ConfigError
from catchline.files import digest_of, sha256
from catchline.text.base import TOKENIZER_FILE, read_backend
from catchline.text.normalization import extend_over_marks
from catchline_study.spans.settings import WORDS

_HUB_ID = re.compile(r"[\w.\-]+/[\w.\-]+")

Span = tuple[int, int]

BLANK, PART, SOLID = 0, 1, 2  # a token is white space, bytes of a character, or readable


@dataclass(frozen=True, slots=True)
class TokenizedDocument:
    """The tokens of a text, of which equal ones have equal numbers; a function from a token's place to the characters
    it came from; and one from tokens to bytes, the same for the same tokens in whichever document and process."""

    tokens: NDArray[np.int32]
    span: Callable[[int], Span]
    content: Callable[[NDArray[np.int32]], bytes]


class SpanTokenizer(ABC):
    """Texts to numbers, and numbers to the places they came from."""

    @abstractmethod
    def encode(self, texts: Sequence[str]) -> list[TokenizedDocument]:
        """The tokens of each text."""

    def ids(self, text: str) -> list[int]:
        """The numbers of a vocabulary for a whole text; words have none."""
        raise AssertionError("words have no vocabulary")

    def kinds(self, tokens: NDArray[np.int32]) -> NDArray[np.uint8] | None:
        """`BLANK`, `PART` or `SOLID` for each; ``None`` where all are solid."""
        return None

    def is_blank(self, tokens: NDArray[np.int32]) -> bool:
        """Is what the tokens stand for white space only?"""
        return False


class WordSpanTokenizer(SpanTokenizer):
    """Words and signs by rule, numbered within their document: spans are only compared there."""

    def __init__(self, lowercase: bool) -> None:
        self._lowercase = lowercase

    def encode(self, texts: Sequence[str]) -> list[TokenizedDocument]:
        found = []
        for text in texts:
            spans = [match.span() for match in WORD.finditer(text)]
            words = [text[start:end] for start, end in spans]
            if self._lowercase:
                words = [word.lower() for word in words]
            known = list(dict.fromkeys(words))
            numbers = {word: number for number, word in enumerate(known)}
            tokens = np.array([numbers[word] for word in words], dtype=np.int32)
            found.append(TokenizedDocument(tokens, spans.__getitem__, partial(_joined, known)))
        return found


def _joined(words: Sequence[str], tokens: NDArray[np.int32]) -> bytes:
    return "\n".join(words[token] for token in tokens).encode()


class VocabularySpanTokenizer(SpanTokenizer):
    """The tokens of a ``tokenizer.json``. Special tokens are not looked for in the text.

    What the vocabulary does not know matches nothing, not even itself: such tokens get numbers of their own.
    """

    def __init__(self, path: Path) -> None:
        self._backend = backend = read_backend(path)
        backend.no_truncation()
        backend.no_padding()
        backend.encode_special_tokens = True
        self._size = backend.get_vocab_size(with_added_tokens=True)
        unknown = getattr(backend.model, "unk_token", None)
        number = backend.token_to_id(unknown) if isinstance(unknown, str) else getattr(backend.model, "unk_id", None)
        self._unknown = number if isinstance(number, int) else -1  # which no token has
        shown = [self._shown([token]) for token in range(self._size)]
        kinds = [SOLID if text.replace("\ufffd", "").strip() else PART if text.strip() else BLANK for text in shown]
        self._kinds = np.array([*kinds, SOLID], dtype=np.uint8)

    def _shown(self, tokens: list[int]) -> str:
        return self._backend.decode(tokens, skip_special_tokens=False)

    def encode(self, texts: Sequence[str]) -> list[TokenizedDocument]:
        encodings = self._backend.encode_batch(list(texts), add_special_tokens=False)
        found = []
        for text, encoding in zip(texts, encodings, strict=True):
            tokens = np.array(encoding.ids, dtype=np.int32)
            places = np.flatnonzero(tokens == self._unknown)
            tokens[places] = self._size + places
            found.append(TokenizedDocument(tokens, partial(_span, text, encoding), _numbers))
        return found

    def ids(self, text: str) -> list[int]:
        """Unknown tokens have the vocabulary's number here."""
        return self._backend.encode(text, add_special_tokens=False).ids

    def kinds(self, tokens: NDArray[np.int32]) -> NDArray[np.uint8]:
        return self._kinds[np.minimum(tokens, self._size)]

    def is_blank(self, tokens: NDArray[np.int32]) -> bool:
        """Bytes of a character that was cut say nothing of it, so they do not count as text."""
        if (tokens >= self._size).any():
            return False
        return not self._shown(tokens.tolist()).replace("\ufffd", "").strip()


def _numbers(tokens: NDArray[np.int32]) -> bytes:
    return tokens.astype("<i4").tobytes()


def _span(text: str, encoding: tokenizers.Encoding, token: int) -> Span:
    """Asked for some tokens only: lists of all offsets are long."""
    here, *rest = (encoding.token_to_chars(number) or (0, 0) for number in range(token, min(token + 2, len(encoding))))
    return here if text.isascii() or not rest else extend_over_marks(text, [here, *rest])[0]


# -------------------------------------------------------------------------------------- finding one


def find_tokenizer(name: str) -> Path | None:
    """The ``tokenizer.json`` of a folder (a model, a run, a tokenizer), a file or a hub id; None for ``words``.

    Raises:
        ConfigError: there is none.
    """
    if name == WORDS:
        return None
    place = Path(name).expanduser()
    if place.is_file():
        return place
    for folder in (place, place / "tokenizer", place / "model"):
        if (folder / TOKENIZER_FILE).is_file():
            return folder / TOKENIZER_FILE
    if place.is_dir() or not _HUB_ID.fullmatch(name):
        raise ConfigError(
            f"--tokenizer '{name}' is neither words, nor a folder with a {TOKENIZER_FILE}, nor a hub id (owner/name)."
        )
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    with suppress(Exception):  # what is here already is used as it is
        return Path(hf_hub_download(name, TOKENIZER_FILE, local_files_only=True))
    try:
        return Path(hf_hub_download(name, TOKENIZER_FILE))
    except Exception as error:  # the hub client's errors, httpx's and OSError have no common base
        reason = str(error).strip().split("\n")[0].split(". ")[0]
        raise ConfigError(
            f"The tokenizer {name} could not be loaded from the hub ({reason}); give a folder that holds it, or use "
            "--tokenizer words."
        ) from None


def fingerprint(path: Path | None) -> str:
    """Of the file's content; of the rule for words."""
    return sha256(WORD.pattern.encode()) if path is None else digest_of(path)
