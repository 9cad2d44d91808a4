"""What is in a data set and what is wrong with it, before a training finds out.

Everything is read once, as a stream; only numbers and sketches of the texts are kept.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from operator import and_
from pathlib import Path
from typing import Any

import numpy as np

from catchline.data.pieces import read_in_pieces
from catchline.data.readers import NothingUsableError, ReadOptions, SkipCounter
from catchline.data.subset import WORD, supported_share
from catchline.types import Record

_EXAMPLES = 3
_SIDES = ("document", "summary")
_ORDERS = (1, 2, 3)  # of n-grams
_BAR = 40


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """Limits in words for the truncation figures; ``duplicates`` off makes reading much faster.

    ``count`` counts both sides of a record in other tokens besides (`catchline.data.subset.counter_of`), and with
    ``limits_in_tokens`` the limits are of these. ``min_supported`` is a recipe's (`data.min_supported`).
    """

    max_source: int = 400
    max_target: int = 100
    min_supported: float = 0.0
    duplicates: bool = True
    max_records: int | None = None
    count: Callable[[Record], tuple[int, int]] | None = None
    limits_in_tokens: bool = False


@dataclass(slots=True)
class Findings:
    """Something found: how often, and the first places."""

    count: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, example: str) -> None:
        self.count += 1
        if len(self.examples) < _EXAMPLES:
            self.examples.append(example)


@dataclass(slots=True)
class SplitReport:
    """One file. ``lengths`` of documents and summaries are in words and punctuation marks, Han characters one each
    (``document_words``), and in the tokens asked for, if any were (``document_tokens``); ``sums`` are over records."""

    name: str
    path: str
    choice: str = ""
    records: int = 0
    skipped: SkipCounter = field(default_factory=SkipCounter)
    lengths: defaultdict[str, array[int]] = field(default_factory=lambda: defaultdict(partial(array, "i")))
    sums: defaultdict[Any, Any] = field(default_factory=lambda: defaultdict(int))
    references: Counter[int] = field(default_factory=Counter)
    exact_duplicates: Findings = field(default_factory=Findings)
    near_duplicates: Findings = field(default_factory=Findings)
    suspicious: defaultdict[str, Findings] = field(default_factory=lambda: defaultdict(Findings))

    def extend(self, other: SplitReport) -> None:
        """Add what was measured of the records that come next."""
        self.records += other.records
        for name, values in other.lengths.items():
            self.lengths[name].extend(values)
        for name, value in other.sums.items():
            self.sums[name] += value
        self.references.update(other.references)
        for reason, found in other.suspicious.items():
            mine = self.suspicious[reason]
            mine.count += found.count
            mine.examples += found.examples[: _EXAMPLES - len(mine.examples)]

    def as_dict(self, options: CheckOptions) -> dict[str, Any]:
        words, tokens = ([self.lengths[f"{side}_{unit}"] for side in _SIDES] for unit in ("words", "tokens"))
        limited = tokens if options.limits_in_tokens else words
        bad, sums, summarized = self.skipped, self.sums, max(1, len(words[1]))
        return {
            "path": self.path,
            "records": self.records,
            "bad": {"count": bad.total, "reasons": dict(bad.counts), "examples": bad.examples},
            **{f"{side}_words": lengths(values) for side, values in zip(_SIDES, words, strict=True)},
            **{f"{side}_tokens": lengths(values) for side, values in zip(_SIDES, tokens, strict=True) if values},
            "compression": round(sum(words[0]) / sum(words[1]), 2) if any(words[1]) else None,
            "documents_over_limit": _share(limited[0], options.max_source),
            "summaries_over_limit": _share(limited[1], options.max_target),
            **({"hardly_supported": sums["hardly supported"]} if options.min_supported else {}),
            "summary_words_in_document": round(sums["covered"] / summarized, 4),
            "document_words_in_summary": round(sums["reappearing"] / summarized, 4),
            "novel_ngrams": {str(n): round(sums["novel", n] / max(1, sums["measured", n]), 4) for n in _ORDERS},
            "references": {str(number): count for number, count in sorted(self.references.items())},
            "exact_duplicates": asdict(self.exact_duplicates),
            "near_duplicates": asdict(self.near_duplicates),
            "suspicious": {reason: asdict(found) for reason, found in sorted(self.suspicious.items())},
        }


@dataclass(slots=True)
class DataReport:
    """All files, and what they share. ``leakage`` maps ``"train -> test"`` to what is in both."""

    options: CheckOptions
    splits: list[SplitReport] = field(default_factory=list)
    leakage: dict[str, dict[str, Findings]] = field(default_factory=dict)

    @property
    def refused(self) -> int:
        """Records that a training without ``--skip-bad`` would refuse."""
        return sum(split.skipped.total for split in self.splits)

    def as_dict(self) -> dict[str, Any]:
        return {
            "splits": {split.name: split.as_dict(self.options) for split in self.splits},
            "leakage": {
                pair: {kind: asdict(found) for kind, found in kinds.items()} for pair, kinds in self.leakage.items()
            },
            "refused": self.refused,
        }


def check(
    files: Mapping[str, Path | str],
    options: CheckOptions | None = None,
    reading: ReadOptions | None = None,
    progress: Callable[[int], object] = lambda _: None,
) -> DataReport:
    """Read every file once and report on it.

    ``files`` are those of the splits by name, for example from `find_splits`. Bad records are always counted, whatever
    ``reading`` says; ``progress`` is called with the number of records newly read.

    Raises:
        DataError: a file that cannot be read at all (missing, unknown format or columns, misaligned pairs).
    """
    options = options or CheckOptions()
    settings = replace(reading or ReadOptions(), skip_bad=True)
    report = DataReport(options)
    sketched: list[Sketches] = []
    homes: list[tuple[SplitReport, str]] = []  # of each text that was sketched, with its origin

    def measured(records: list[Record]) -> tuple[SplitReport, Sketches | None, list[str]]:
        part = SplitReport("", "")
        words = [_words(record.document) for record in records]
        for record, document in zip(records, words, strict=True):
            _measure(part, record, document, options)
        if not options.duplicates or not records:
            return part, None, []
        return part, sketches_of(words), [record.origin for record in records]

    for name, path in files.items():
        split = SplitReport(name, str(path))
        report.splits.append(split)
        choose = partial(setattr, split, "choice")
        try:
            for part, sketches, origins in read_in_pieces(
                path, settings, measured, most=options.max_records, on_skip=split.skipped, on_choice=choose
            ):
                split.extend(part)
                if sketches is not None:
                    sketched.append(sketches)
                    homes += [(split, origin) for origin in origins]
                progress(part.records)
        except NothingUsableError:
            if split.records or not split.skipped.total:
                raise  # otherwise "no usable record" is a finding, with its reasons, not the end of the check
    for later, earlier, kind in duplicates(sketched):
        (here, origin), (there, other) = homes[later], homes[earlier]
        example = f"{origin} and {other}"
        if here is there:
            (here.exact_duplicates if kind == "exact" else here.near_duplicates).add(example)
        else:
            report.leakage.setdefault(f"{there.name} -> {here.name}", {}).setdefault(kind, Findings()).add(example)
    return report


_ASCII_SIGNS = frozenset(sign for sign in map(chr, range(128)) if WORD.match(sign) and not re.match(r"\w", sign))


def _words(text: str) -> list[str]:
    lower = text.lower()
    if not lower.isascii():
        return WORD.findall(lower)
    for sign in _ASCII_SIGNS:  # the same, where all is ASCII, in a third of the time
        if sign in lower:
            lower = lower.replace(sign, f" {sign} ")
    return lower.split()


def _measure(split: SplitReport, record: Record, words: list[str], options: CheckOptions) -> None:
    split.records += 1
    split.lengths["document_words"].append(len(words))
    if options.min_supported:
        split.sums["hardly supported"] += supported_share(record, options.max_source) < options.min_supported
    if options.count is not None:
        document, summary = options.count(record)
        split.lengths["document_tokens"].append(document)
        if record.summary:
            split.lengths["summary_tokens"].append(summary)
    if not record.summary:
        return
    target = _words(record.summary)
    split.lengths["summary_words"].append(len(target))
    split.references[max(1, len(record.references))] += 1
    known, wanted = set(words), set(target)
    shared = known & wanted
    held = [word in shared for word in target]
    covered = held.count(True) / max(1, len(target))
    split.sums["covered"] += covered
    split.sums["reappearing"] += reappearing_share(known, wanted)
    text = f" {' '.join(words)} "  # no word has a blank in it
    for n in _ORDERS:
        if n > 1:  # an n-gram can only be there where both of its parts are
            held = [
                both and f" {' '.join(target[start : start + n])} " in text
                for start, both in enumerate(map(and_, held, held[1:]))
            ]
        if held:
            split.sums["novel", n] += held.count(False) / len(held)
            split.sums["measured", n] += 1
    suspicious, origin = split.suspicious, record.origin
    if len(target) >= len(words):
        suspicious["summary not shorter than the document"].add(f"{origin} ({len(target)} and {len(words)} words)")
    elif len(target) > 3 and words[: len(target)] == target:
        suspicious["summary is the beginning of the document"].add(origin)
    if not covered:
        suspicious["summary and document share no word"].add(origin)
    if len(words) < 5:
        suspicious["document of fewer than 5 words"].add(origin)


def reappearing_share(document: set[str], summary: set[str]) -> float:
    """The share of the document's distinct words that the summary has too; punctuation marks are no words."""
    if "".join(document).isascii():
        signs = document & _ASCII_SIGNS
    else:  # whatever has more than one letter is a word, by the pattern that found it
        signs = {word for word in document if len(word) == 1 and not (word.isalnum() or word == "_")}
    words = len(document) - len(signs)
    return len((document & summary) - signs) / words if words else 0.0


# ----------------------------------------------------------------------------------------- figures


def lengths(values: Sequence[int]) -> dict[str, float]:
    """Mean, median, 90th percentile and extremes."""
    if not values:
        return {}
    array = np.asarray(values)
    return {
        "mean": round(float(array.mean()), 1),
        "min": int(array.min()),
        "median": float(np.median(array)),
        "p90": float(np.percentile(array, 90)),
        "max": int(array.max()),
    }


def histogram(values: Sequence[int], bins: int = 10) -> list[str]:
    """Lines of a histogram drawn with block characters; the last bin is open where the tail is long."""
    if not values:
        return []
    array = np.asarray(values)
    top = max(int(np.percentile(array, 98)), int(array.min()) + 1)
    step = max(1, -(-(top - int(array.min())) // bins))
    edges = [int(array.min()) + step * number for number in range(bins + 1)]
    counts = np.histogram(array, bins=[*edges[:-1], np.inf])[0]
    width = len(str(edges[-1]))
    lines = []
    for start, count in zip(edges, counts, strict=False):
        last = start == edges[-2]
        label = f"{start:>{width}} and more" if last else f"{start:>{width}} to {start + step - 1:>{width}}"
        bar = "█" * round(_BAR * int(count) / max(1, int(counts.max())))
        lines.append(f"{label:<{2 * width + 9}} {bar or ('▏' if count else '')} {int(count):,}")
    while len(lines) > 1 and lines[-1].endswith(" 0"):
        lines.pop()
    return lines


def _share(values: Sequence[int], limit: int) -> dict[str, float]:
    over = sum(value > limit for value in values)
    return {"limit": limit, "count": over, "share": round(over / max(1, len(values)), 4)}


# ----------------------------------------------------------------------------------------------------------- duplicates


SHINGLE = 5  # words
BINS = 32
BAND = 4  # bins that must agree for two texts to be compared
THRESHOLD = 0.7  # estimated Jaccard similarity of the 5-grams
MAX_WORDS = 2000  # only so many words of a text are looked at for near duplicates

_PRIME = 0x9E3779B97F4A7C15
_MOST_CODES = 1_000_000  # words whose codes are remembered
_EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)


@dataclass(frozen=True, slots=True)
class Sketches:
    """Of N texts ``keys`` (N,), equal for equal texts, and ``bins`` (N, `BINS`), both uint64. A text too short to be
    more than equal or not has `_EMPTY` in all its bins."""

    keys: np.ndarray
    bins: np.ndarray


def duplicates(parts: Sequence[Sketches]) -> Iterator[tuple[int, int, str]]:
    """The texts that are ``exact``ly or ``near``ly the same as an earlier one, in order, with the first such.

    Near duplicates are found by one-permutation MinHash over word 5-grams: the hashes are spread over `BINS` bins,
    the least of each bin is kept, texts that agree in a band of `BAND` bins are compared, and the share of
    agreeing bins estimates the Jaccard similarity. Results do not change from run to run. It takes one pass and about
    four hundred bytes a text.
    """
    if not parts:
        return
    keys, bins = np.concatenate([part.keys for part in parts]), np.concatenate([part.bins for part in parts])
    same = _first_equal(keys)
    alone = np.flatnonzero((same == np.arange(len(keys))) & (bins != _EMPTY).any(axis=1))
    near = np.full(len(keys), len(keys))
    for start in range(0, BINS, BAND):
        code = np.zeros(len(alone), dtype=np.uint64)
        for column in range(start, start + BAND):
            code = (code ^ bins[alone, column]) * np.uint64(_PRIME)
            code ^= code >> np.uint64(32)
        first = alone[_first_equal(code)]
        later = np.flatnonzero((first < alone) & (first < near[alone]))
        one, other = bins[alone[later]], bins[first[later]]
        used = (one != _EMPTY) | (other != _EMPTY)
        alike = ((one == other) & used).sum(axis=1) / used.sum(axis=1) >= THRESHOLD
        near[alone[later[alike]]] = first[later[alike]]
    for number in np.flatnonzero((same < np.arange(len(keys))) | (near < len(keys))).tolist():
        exact = same[number] < number
        yield number, int(same[number] if exact else near[number]), "exact" if exact else "near"


def _first_equal(values: np.ndarray) -> np.ndarray:
    """Of each value the place of the first that is equal to it."""
    _, first, group = np.unique(values, return_index=True, return_inverse=True)
    return first[group]


class _Codes(dict[str, int]):
    def __missing__(self, word: str) -> int:
        self[word] = code = zlib.crc32(word.encode("utf-8", "surrogatepass"))
        return code


_codes = _Codes()


def sketches_of(texts: Sequence[Sequence[str]]) -> Sketches:
    """What `duplicates` compares of texts, given as words."""
    if len(_codes) > _MOST_CODES:
        _codes.clear()
    coded = [np.fromiter(map(_codes.__getitem__, words), np.uint64, len(words)) for words in texts]
    digests = b"".join([hashlib.blake2b(codes.tobytes(), digest_size=8).digest() for codes in coded])
    flat = np.concatenate([codes[:MAX_WORDS] for codes in coded])
    lengths = np.array([min(len(codes), MAX_WORDS) for codes in coded])
    counts = np.maximum(lengths - SHINGLE + 1, 0)
    rows = np.repeat(np.arange(len(coded)), counts)
    # the places where a 5-gram begins that ends in the same text
    places = np.arange(len(rows)) + np.repeat(np.cumsum(lengths) - lengths - (np.cumsum(counts) - counts), counts)
    hashes = np.zeros(max(0, len(flat) - SHINGLE + 1), dtype=np.uint64)  # of 5-grams across two texts too
    for place in range(SHINGLE):
        hashes = hashes * np.uint64(1_000_003) + flat[place : place + len(hashes)]
    hashes = hashes[places]
    hashes ^= hashes >> np.uint64(29)
    hashes *= np.uint64(_PRIME)
    hashes ^= hashes >> np.uint64(32)
    bins = np.full(len(coded) * BINS, _EMPTY, dtype=np.uint64)
    np.minimum.at(bins, rows * BINS + (hashes % np.uint64(BINS)).astype(np.int64), hashes)
    return Sketches(np.frombuffer(digests, np.uint64), bins.reshape(-1, BINS))
