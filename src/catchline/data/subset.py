"""Records as JSON lines, how long their sides are in the tokens of one's choice, and how far documents support their
summaries."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from catchline.config.schema import RunConfig
from catchline.config.shipped import place_of
from catchline.data.dataset import document_gaps
from catchline.errors import ConfigError
from catchline.files import part_of
from catchline.text.base import TOKENIZER_FILE
from catchline.text.normalization import SCRIPT_WORD, without_invisible
from catchline.text.sentences import between_gaps, sentence_gaps
from catchline.text.tokenizer import CharacterTokenizer, Tokenizer, WordTokenizer
from catchline.types import Record

TokenCounter = Callable[[Record], tuple[int, int]]  # tokens of the document and of the summary

WORD = re.compile(rf"{SCRIPT_WORD}|[^\w\s]")
RULES = ("words", "blanks", "word-tokenizer", "character-tokenizer")
_WORDS = re.compile(SCRIPT_WORD)
_ASCII_WORDS = bytes(ord(chr(code).lower()) if _WORDS.match(chr(code)) and code < 128 else 32 for code in range(256))


def record_line(record: Record) -> str:
    """A record as a JSON line that `catchline.data.readers` reads back as it is."""
    fields: dict[str, object] = {"id": record.id, "document": record.document, "summary": record.summary}
    if record.references and record.references != (record.summary,):
        fields["references"] = list(record.references)
    if record.sentences:
        fields["sentences"] = list(record.sentences)
    return json.dumps(fields, ensure_ascii=False) + "\n"


def write_records(path: Path, records: Iterable[Record], progress: Callable[[int], object] = lambda _: None) -> int:
    """Write JSON lines beside ``path`` and rename when complete; returns how many."""
    count = 0
    with part_of(path) as file:
        for record in records:
            file.write(record_line(record).encode("utf-8"))
            count += 1
            progress(1)
    return count


def supported_share(record: Record, max_words: int | None = None) -> float:
    """The share of the summary's words that stand among the document's first ``max_words``, letter case aside.

    A summary that its document does not support teaches invention. 1 for a summary without words.
    """
    if record.summary.isascii() and record.document.isascii():
        words: Sequence[Any] = record.summary.encode().translate(_ASCII_WORDS).split()
        first = -1 if max_words is None else max_words
        offered = set(record.document.encode().translate(_ASCII_WORDS).split(None, first)[:max_words])
    else:
        words = _WORDS.findall(without_invisible(record.summary).lower())
        offered = set(_WORDS.findall(without_invisible(record.document).lower())[:max_words])
    return sum([word in offered for word in words]) / len(words) if words else 1.0


# ------------------------------------------------------------------------------------- how long the sides of a pair are


def counter_of(spec: str = "words", separator: str | None = None) -> TokenCounter:
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


def counter_of_run(run: RunConfig) -> TokenCounter:
    """The tokens that a run's tokenizer will make, as far as they are known before it is trained."""
    if run.training.initial_weights is not None:
        return counter_of(run.training.initial_weights)
    rule = f"{run.text.tokenizer.get('type')}-tokenizer"
    return counter_of(rule if rule in RULES else "words", run.text.sentence_separator)


def _by_tokenizer(tokenizer: Tokenizer) -> TokenCounter:
    separator = tokenizer.separator

    def count(record: Record) -> tuple[int, int]:
        sides = [record.document, record.summary]
        document, summary = tokenizer.encode_stream(sides, max_tokens=1, gaps=_gaps(record, separator))
        return document.total, summary.total

    return count


def _by_rule(cut: Callable[[str], list[str]], separator: str | None) -> TokenCounter:
    def count(record: Record) -> tuple[int, int]:
        sides = (record.document, record.summary)
        both = zip(sides, _gaps(record, separator), strict=True)
        found = ([len(cut(part)) for part in between_gaps(text, gaps)] for text, gaps in both)
        # the sentences, each but the last that has any tokens with a separator behind it
        document, summary = (sum(sizes) + max(0, sum(size > 0 for size in sizes) - 1) for sizes in found)
        return document, summary

    return count


def _gaps(record: Record, separator: str | None) -> list[list[tuple[int, int]]]:
    if separator is None:
        return [[], []]
    return [document_gaps(record, separator), sentence_gaps(record.summary, separator, by_line=True)]
