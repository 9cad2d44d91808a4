"""What the lengths of spans are counted in: words, or the tokens of a tokenizer from a folder or the hub."""

from __future__ import annotations

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
from catchline.text.base import TOKENIZER_FILE, read_backend
from catchline.text.normalization import extend_over_marks
from catchline_study.spans.settings import WORDS

Span = tuple[int, int]


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

    def readable(self, tokens: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Which tokens show something."""
        return np.ones(tokens.shape, dtype=bool)


class WordSpanTokenizer(SpanTokenizer):
    """Words and signs by rule, numbered within their document: spans are only compared there."""

    def __init__(self, lowercase: bool) -> None:
        self._lowercase = lowercase

    def encode(self, texts: Sequence[str]) -> list[TokenizedDocument]:
        found = []
        for text in texts:
            spans = [match.span() for match in WORD.finditer(text)]
            words = [text[start:end].lower() if self._lowercase else text[start:end] for start, end in spans]
            known = list(dict.fromkeys(words))
            numbers = {word: number for number, word in enumerate(known)}
            tokens = np.array([numbers[word] for word in words], dtype=np.int32)
            found.append(TokenizedDocument(tokens, spans.__getitem__, partial(_joined, known)))
        return found


def _joined(words: Sequence[str], tokens: NDArray[np.int32]) -> bytes:
    return "\n".join(words[token] for token in tokens).encode()


class VocabularySpanTokenizer(SpanTokenizer):
    """The tokens of a ``tokenizer.json``. Special tokens are not looked for in the text. What the vocabulary does not
    know matches nothing, not even itself: such tokens get numbers of their own."""

    def __init__(self, path: Path) -> None:
        self._backend = backend = read_backend(path)
        backend.no_truncation()
        backend.no_padding()
        backend.encode_special_tokens = True
        self._size = size = backend.get_vocab_size(with_added_tokens=True)
        unknown = getattr(backend.model, "unk_token", None)
        number = backend.token_to_id(unknown) if isinstance(unknown, str) else getattr(backend.model, "unk_id", None)
        self._unknown = number if isinstance(number, int) else -1  # which no token has
        shown = (backend.decode([token], skip_special_tokens=False) for token in range(size))
        self._readable = np.array([*(bool(text.strip()) for text in shown), True])

    def encode(self, texts: Sequence[str]) -> list[TokenizedDocument]:
        encodings = self._backend.encode_batch(list(texts), add_special_tokens=False)
        found = []
        for text, encoding in zip(texts, encodings, strict=True):
            tokens = np.array(encoding.ids, dtype=np.int32)
            places = np.flatnonzero(tokens == self._unknown)
            tokens[places] = self._size + places
            found.append(TokenizedDocument(tokens, partial(_span, text, encoding), _numbers))
        return found

    def readable(self, tokens: NDArray[np.int32]) -> NDArray[np.bool_]:
        """All but white space; bytes of a character too."""
        found: NDArray[np.bool_] = self._readable[np.minimum(tokens, self._size)]
        return found


def _numbers(tokens: NDArray[np.int32]) -> bytes:
    return tokens.astype("<i4").tobytes()


def _span(text: str, encoding: tokenizers.Encoding, token: int) -> Span:
    """Asked for some tokens only: lists of all offsets are long."""
    here, *rest = (encoding.token_to_chars(number) or (0, 0) for number in range(token, min(token + 2, len(encoding))))
    return here if text.isascii() or not rest else extend_over_marks(text, [here, *rest])[0]


def find_tokenizer(name: str) -> Path | None:
    """The ``tokenizer.json`` of a folder (a model, a run, a tokenizer), a file or a hub id; None for ``words``. Raises
    ConfigError: there is none."""
    if name == WORDS:
        return None
    place = Path(name).expanduser()
    for file in (place, *(place / part / TOKENIZER_FILE for part in ("", "tokenizer", "model"))):
        if file.is_file():
            return file
    if place.is_dir() or name.count("/") != 1 or place.is_absolute():
        raise ConfigError(
            f"--tokenizer '{name}' is neither words, nor a folder with a {TOKENIZER_FILE}, nor a hub id (owner/name)."
        )
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
