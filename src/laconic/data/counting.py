"""How long the sides of a pair are, in the tokens of one's choice."""

from __future__ import annotations

import re
from collections.abc import Callable

from laconic.config.shipped import place_of
from laconic.data.dataset import document_gaps
from laconic.errors import ConfigError
from laconic.text.base import TOKENIZER_FILE
from laconic.text.sentences import sentence_gaps
from laconic.text.tokenizer import CharacterTokenizer, Tokenizer, WordTokenizer
from laconic.types import Record

Counter = Callable[[Record], tuple[int, int]]  # tokens of the document and of the summary

WORD = re.compile(r"[\u4e00-\u9fff\u3040-\u30ff]|\w+|[^\w\s]")
RULES = ("words", "blanks", "word-tokenizer", "character-tokenizer")


def counter_of(spec: str = "words", separator: str | None = None) -> Counter:
    """What ``--tokens`` says: one of `RULES`, or the folder of a model, run or tokenizer.

    ``words`` are words and punctuation marks, Han characters one each; ``blanks`` what stands between blanks (text that
    is tokenized already); ``word-tokenizer`` and ``character-tokenizer`` cut as the tokenizers of those types.
    ``separator`` is a word between sentences, which counts (a folder's tokenizer knows its own).

    Raises:
        ConfigError: neither a rule nor such a folder.
    """
    if spec in ("words", "blanks"):
        return _by_rule(WORD.findall if spec == "words" else str.split, separator)
    if spec in RULES:
        cls = WordTokenizer if spec == "word-tokenizer" else CharacterTokenizer
        tokenizer: Tokenizer = cls(cls.Config(min_frequency=1))
        tokenizer.use_separator(separator)
        tokenizer.train(["x"])  # what is a token does not depend on the vocabulary
        return _by_tokenizer(tokenizer)
    place = place_of(spec)
    folders = [place, place / "tokenizer", place / "model"]
    found = next((folder for folder in folders if (folder / TOKENIZER_FILE).is_file()), None)
    if found is None:
        raise ConfigError(
            f"--tokens '{spec}' is neither {', '.join(RULES)} nor a folder with a {TOKENIZER_FILE} (a model or a run)."
        )
    tokenizer = Tokenizer.load(found)
    if separator is not None and separator != tokenizer.separator:
        raise ConfigError(
            f"{found}: the tokenizer's separator is {tokenizer.separator!r}; leave out --sentence-separator."
        )
    return _by_tokenizer(tokenizer)


def _by_tokenizer(tokenizer: Tokenizer) -> Counter:
    separator = tokenizer.separator

    def count(record: Record) -> tuple[int, int]:
        gaps = None if separator is None else _gaps(record, separator)
        document, summary = tokenizer.encode_stream([record.document, record.summary], max_tokens=1, gaps=gaps)
        return document.total, summary.total

    return count


def _by_rule(cut: Callable[[str], list[str]], separator: str | None) -> Counter:
    def count(record: Record) -> tuple[int, int]:
        sides = (record.document, record.summary)
        if separator is None:
            return len(cut(sides[0])), len(cut(sides[1]))
        document, summary = (
            _with_gaps(text, gaps, cut) for text, gaps in zip(sides, _gaps(record, separator), strict=True)
        )
        return document, summary

    return count


def _gaps(record: Record, separator: str) -> list[list[tuple[int, int]]]:
    return [document_gaps(record, separator), sentence_gaps(record.summary, separator, by_line=True)]


def _with_gaps(text: str, gaps: list[tuple[int, int]], cut: Callable[[str], list[str]]) -> int:
    """Sentence by sentence, each but the last with a separator behind it."""
    starts, ends = [0, *(end for _, end in gaps)], [*(start for start, _ in gaps), len(text)]
    counts = [len(cut(text[start:end])) for start, end in zip(starts, ends, strict=True)]
    return sum(counts) + max(0, sum(number > 0 for number in counts) - 1)
