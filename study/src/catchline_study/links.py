"""Which summary word comes from which document word: links, files of links, and the error rate of attention heads.

A link is a pair (summary word, document word), both counted from 0. **Sure** links are those nobody would
doubt, **possible** ones those an alignment may but need not have; every sure link is possible (Och and Ney 2003).

A file of links has one line a pair of the data, in its order: ``0-0 3-1 4?1`` (document-summary; ``-`` sure, ``?``
possible), an empty line where nobody aligned the pair; or JSON lines ``{"id": "...", "links": "0-0 3-1"}`` in any
order, as `write_sheet` makes them to be filled.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Regex, pre_tokenizers

from catchline.errors import DataError
from catchline.files import write_text
from catchline.text.tokenizer import word_pattern
from catchline.types import Record

Link = tuple[int, int]  # (target position, source position)
_SPLIT = pre_tokenizers.Split(Regex(word_pattern()), "removed", invert=True)
_LINK = re.compile(r"(\d{1,9})([-?])(\d{1,9})")


@dataclass(frozen=True, slots=True)
class Links:
    """The links of one pair; ``possible`` holds the sure ones too."""

    sure: frozenset[Link]
    possible: frozenset[Link]

    @property
    def targets(self) -> set[int]:
        """The summary words that somebody linked."""
        return {target for target, _ in self.possible}


@dataclass(frozen=True, slots=True)
class WordPair:
    """The words of a document and of its summary, as (start, end) in the texts; ``label`` names the pair."""

    label: str
    document: str
    summary: str
    source: tuple[tuple[int, int], ...]
    target: tuple[tuple[int, int], ...]

    @property
    def source_words(self) -> list[str]:
        return [self.document[start:end] for start, end in self.source]

    @property
    def target_words(self) -> list[str]:
        return [self.summary[start:end] for start, end in self.target]


def word_spans(text: str) -> tuple[tuple[int, int], ...]:
    """Where the words of ``text`` stand, cut as the word tokenizer does: punctuation apart, a Chinese character a
    word."""
    return tuple(span for _, span in _SPLIT.pre_tokenize_str(text))


def word_pairs(records: Sequence[Record]) -> list[WordPair]:
    """The words of each record. Its label is its id, or ``#3`` for the third record without its own id."""
    ids = Counter(_flat(record.id) for record in records)
    return [
        word_pair(record, record.id if ids[_flat(record.id)] == 1 else "", number)
        for number, record in enumerate(records, start=1)
    ]


def word_pair(record: Record, name: str, number: int) -> WordPair:
    """The words of one record; its label is ``name``, or its number where that is empty."""
    source, target = word_spans(record.document), word_spans(record.summary)
    return WordPair(_flat(name) or f"#{number}", record.document, record.summary, source, target)


def _flat(text: str) -> str:
    return " ".join(text.split())


# --------------------------------------------------------------------------------------------- links


def lexical_links(pair: WordPair) -> Links:
    """A link for each word that stands exactly once on either side, upper and lower case alike. Punctuation is no word
    here. Summaries that copy much are well served by it; paraphrases are not seen."""
    source = [word.casefold() for word in pair.source_words]
    target = [word.casefold() for word in pair.target_words]
    often = Counter(source), Counter(target)
    links = frozenset(
        (index, source.index(word))
        for index, word in enumerate(target)
        if often[0][word] == often[1][word] == 1 and any(map(str.isalnum, word))
    )
    return Links(links, links)


def parse_links(text: str, where: str, pair: WordPair) -> Links:
    """Read ``0-0 3-1 4?1``, links between words of ``pair``. ``none`` means that there is none. Raises DataError:
    something else stands there, or a word does not exist; the message begins with ``where``."""
    sure, possible = set(), set()
    for item in () if text.strip().casefold() == "none" else text.replace(",", " ").split():
        found = _LINK.fullmatch(item)
        if found is None:
            raise DataError(
                f"{where}: '{item}' is not a link; write i-j (sure) or i?j (possible) for document word i and "
                "summary word j, counted from 0."
            )
        source, target = int(found[1]), int(found[3])
        for side, number, words in (("document", source, pair.source), ("summary", target, pair.target)):
            if number >= len(words):
                raise DataError(f"{where}: '{item}' links {side} word {number}; the last one is {len(words) - 1}.")
        possible.add((target, source))
        if found[2] == "-":
            sure.add((target, source))
    return Links(frozenset(sure), frozenset(possible))


# --------------------------------------------------------------------------------------------- files


def write_sheet(path: Path, pairs: Iterable[WordPair]) -> int:
    """Write JSON lines to fill, a pair each with its words numbered and empty ``links``; returns how many."""
    lines = []
    for pair in pairs:
        sides = {"document": _numbered(pair.source_words), "summary": _numbered(pair.target_words)}
        lines.append(json.dumps({"id": pair.label, "links": "", **sides}, ensure_ascii=False) + "\n")
    write_text(path, "".join(lines))
    return len(lines)


def _numbered(words: Sequence[str]) -> str:
    return " ".join(f"{index}:{word}" for index, word in enumerate(words))


def read_links(path: Path, pairs: Sequence[WordPair]) -> dict[int, Links]:
    """The links of a file by the position of their pair in ``pairs``; pairs that nobody aligned are absent. Raises
    DataError: the file cannot be read, is of neither form, or does not fit the pairs."""
    try:
        lines = path.read_text(encoding="utf-8-sig").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as a file of links: {error}.") from None
    is_json = lines[0].lstrip().startswith("{")
    if not is_json and len(lines) > len(pairs):
        raise DataError(f"{path} has {len(lines)} lines, the data {len(pairs)} pairs; line by line they do not fit.")
    places = {pair.label: index for index, pair in enumerate(pairs)}
    found = {}
    for number, line in enumerate(lines):
        where, index, text = f"{path}:{number + 1}", number, line
        if is_json and line.strip():
            try:
                values = json.loads(line)
                index, text = places[_flat(str(values["id"]))], values["links"]
                assert values.get("document") in (None, _numbered(pairs[index].source_words))
            except (ValueError, KeyError, TypeError, RecursionError, AssertionError):
                form = '{"id": "...", "links": "0-0 3-1 4?1"}'
                raise DataError(f"{where} is not of the form {form} for a pair of the data.") from None
            text = " ".join(map(str, text)) if isinstance(text, list) else str(text)
        if text.strip():
            found[index] = parse_links(text, where, pairs[index])
    if not any(links.possible for links in found.values()):
        raise DataError(f"{path} holds no link; there is nothing to compare the attention with.")
    return found


# ------------------------------------------------------------------------------------------------- error rates of heads


def word_attention(
    weights: np.ndarray, rows: Sequence[int], columns: Sequence[int], shape: tuple[int, int]
) -> np.ndarray:
    """Attention between subwords as attention between words: the sum over source, the mean over target subwords.

    ``weights`` (..., T, S); ``rows[t]`` is the target word that row t writes, ``columns[s]`` the source word of
    position s, -1 for what belongs to no word (the end symbol, padding). Returns (..., target words, source
    words) for ``shape``; a target word without any row has a row of zeros.
    """
    target, source = np.asarray(rows, dtype=int), np.asarray(columns, dtype=int)
    gather = (source[:, None] == np.arange(shape[1])).astype(np.float64)  # (S, source words)
    average = (np.arange(shape[0])[:, None] == target).astype(np.float64)  # (target words, T)
    average /= np.maximum(average.sum(1, keepdims=True), 1.0)
    return average @ np.asarray(weights, dtype=np.float64) @ gather


def head_counts(maps: np.ndarray, sure: Collection[Link], possible: Collection[Link] = ()) -> np.ndarray:
    """What the error rate of each head needs from one pair: ``|A & S| + |A & P|`` and ``|A| + |S|``, (2, ...). ``maps``
    (..., target words, source words). A has for each target word that is in some link the source word with the largest
    weight (the leftmost of equals); target words in no link, and rows of zeros, are dropped."""
    wanted = sorted({target for target, _ in (*sure, *possible)})
    marks = np.zeros(maps.shape[-2:], dtype=np.int64)  # 2 at sure links, 1 at possible ones
    for link in possible:
        marks[link] = 1
    for link in sure:
        marks[link] = 2
    chosen = maps[..., wanted, :].argmax(-1)  # (..., wanted)
    there = maps[..., wanted, :].max(-1, initial=0.0) > 0
    hits = np.where(there, marks[np.array(wanted, dtype=int), chosen], 0).sum(-1)
    return np.stack([hits, there.sum(-1) + len(set(sure))])


def head_error_rates(counts: np.ndarray) -> np.ndarray:
    """AER of each head from the sum of `head_counts` over all pairs. Raises DataError: no head has a predicted or sure
    link."""
    hits, size = counts
    if not np.all(size):
        raise DataError("The alignment error rate is not defined: there is no predicted and no sure link.")
    return 1.0 - hits / size
