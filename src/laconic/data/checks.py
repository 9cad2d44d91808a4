"""What is in a data set and what is wrong with it, before a training finds out.

Everything is read once, as a stream; only numbers and sketches of the texts are kept.
"""

from __future__ import annotations

import itertools
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from laconic.data.readers import ReadOptions, SkipCounter, read_with
from laconic.data.subset import WORD, supported_share
from laconic.errors import DataError
from laconic.types import Record

_EXAMPLES = 3
_BAR = 40


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """Limits in words for the truncation figures; ``duplicates`` off makes reading much faster.

    ``count`` counts both sides of a record in other tokens besides (`laconic.data.subset.counter_of`), and with
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
    """One file. Lengths are in words and punctuation marks, Han characters one each."""

    name: str
    path: str
    choice: str = ""
    records: int = 0
    skipped: SkipCounter = field(default_factory=SkipCounter)
    document_lengths: list[int] = field(default_factory=list)
    summary_lengths: list[int] = field(default_factory=list)
    document_tokens: list[int] = field(default_factory=list)  # in the tokens asked for, if any were
    summary_tokens: list[int] = field(default_factory=list)
    hardly_supported: int = 0
    coverage_sum: float = 0.0
    reappearing_sum: float = 0.0
    novel_sums: dict[int, float] = field(default_factory=lambda: dict.fromkeys((1, 2, 3), 0.0))
    novel_counts: dict[int, int] = field(default_factory=lambda: dict.fromkeys((1, 2, 3), 0))
    references: Counter[int] = field(default_factory=Counter)
    exact_duplicates: Findings = field(default_factory=Findings)
    near_duplicates: Findings = field(default_factory=Findings)
    suspicious: dict[str, Findings] = field(default_factory=dict)

    def suspect(self, reason: str, example: str) -> None:
        self.suspicious.setdefault(reason, Findings()).add(example)

    def as_dict(self, options: CheckOptions) -> dict[str, Any]:
        """For JSON and for the terminal view."""
        summarized = max(1, len(self.summary_lengths))
        return {
            "path": self.path,
            "records": self.records,
            "bad": {
                "count": self.skipped.total,
                "reasons": dict(self.skipped.counts),
                "examples": self.skipped.examples,
            },
            "document_words": lengths(self.document_lengths),
            "summary_words": lengths(self.summary_lengths),
            **({"document_tokens": lengths(self.document_tokens)} if self.document_tokens else {}),
            **({"summary_tokens": lengths(self.summary_tokens)} if self.summary_tokens else {}),
            "compression": _ratio(sum(self.document_lengths), sum(self.summary_lengths)),
            "documents_over_limit": _share(
                self.document_tokens if options.limits_in_tokens else self.document_lengths, options.max_source
            ),
            "summaries_over_limit": _share(
                self.summary_tokens if options.limits_in_tokens else self.summary_lengths, options.max_target
            ),
            **({"hardly_supported": self.hardly_supported} if options.min_supported else {}),
            "summary_words_in_document": round(self.coverage_sum / summarized, 4),
            "document_words_in_summary": round(self.reappearing_sum / summarized, 4),
            "novel_ngrams": {
                str(n): round(self.novel_sums[n] / max(1, self.novel_counts[n]), 4) for n in self.novel_sums
            },
            "references": {str(number): count for number, count in sorted(self.references.items())},
            "exact_duplicates": _findings(self.exact_duplicates),
            "near_duplicates": _findings(self.near_duplicates),
            "suspicious": {reason: _findings(found) for reason, found in sorted(self.suspicious.items())},
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
        """For JSON."""
        return {
            "splits": {split.name: split.as_dict(self.options) for split in self.splits},
            "leakage": {
                pair: {kind: _findings(found) for kind, found in kinds.items()} for pair, kinds in self.leakage.items()
            },
            "refused": self.refused,
        }


def check(
    files: Mapping[str, Path | str],
    options: CheckOptions | None = None,
    reading: ReadOptions | None = None,
    progress: Callable[[int], object] | None = None,
) -> DataReport:
    """Read every file once and report on it.

    Args:
        files: name of the split -> file, for example from `find_splits`.
        options: limits, and whether to look for duplicates.
        reading: format and columns; bad records are always counted rather than raised.
        progress: called with the number of records newly read.

    Raises:
        DataError: a file that cannot be read at all (missing, unknown format or columns, misaligned pairs).
    """
    options = options or CheckOptions()
    base = reading or ReadOptions()
    settings = replace(base, skip_bad=True)
    report = DataReport(options)
    finder = DuplicateFinder()
    homes: list[str] = []
    for name, path in files.items():
        split = SplitReport(name, str(path))
        report.splits.append(split)
        for record in _records(path, settings, split, options.max_records):
            words = _words(record.document)
            _measure(split, record, words)
            if options.min_supported:
                split.hardly_supported += supported_share(record, options.max_source) < options.min_supported
            if options.count is not None:
                document, summary = options.count(record)
                split.document_tokens.append(document)
                if record.summary:
                    split.summary_tokens.append(summary)
            if options.duplicates:
                _compare(report, split, finder, homes, record, words)
            if progress:
                progress(1)
    return report


def _records(path: Path | str, settings: ReadOptions, split: SplitReport, most: int | None) -> Iterator[Record]:
    def choose(message: str) -> None:
        split.choice = message

    records = read_with(path, settings, on_skip=split.skipped, on_choice=choose)
    try:
        yield from itertools.islice(records, most)
    except DataError:
        if split.records or not split.skipped.total:
            raise  # otherwise "no usable record" is a finding, with its reasons, not the end of the check


def _words(text: str) -> list[str]:
    return WORD.findall(text.lower())


def _measure(split: SplitReport, record: Record, words: list[str]) -> None:
    split.records += 1
    split.document_lengths.append(len(words))
    if not record.summary:
        return
    target = _words(record.summary)
    split.summary_lengths.append(len(target))
    split.references[max(1, len(record.references))] += 1
    known = set(words)
    covered = sum(word in known for word in target) / max(1, len(target))
    split.coverage_sum += covered
    split.reappearing_sum += reappearing_share(known, set(target))
    for n in split.novel_sums:
        grams = list(zip(*(target[start:] for start in range(n)), strict=False))
        if grams:
            source = known if n == 1 else set(zip(*(words[start:] for start in range(n)), strict=False))
            novel = sum((gram[0] if n == 1 else gram) not in source for gram in grams)
            split.novel_sums[n] += novel / len(grams)
            split.novel_counts[n] += 1
    if len(target) >= len(words):
        split.suspect(
            "summary not shorter than the document", f"{record.origin} ({len(target)} and {len(words)} words)"
        )
    elif len(target) > 3 and words[: len(target)] == target:
        split.suspect("summary is the beginning of the document", record.origin)
    if not covered:
        split.suspect("summary and document share no word", record.origin)
    if len(words) < 5:
        split.suspect("document of fewer than 5 words", record.origin)


def reappearing_share(document: set[str], summary: set[str]) -> float:
    """The share of the document's distinct words that the summary has too; punctuation marks are no words."""
    words = {word for word in document if word[0].isalnum() or word[0] == "_"}
    return len(words & summary) / len(words) if words else 0.0


def _compare(
    report: DataReport, split: SplitReport, finder: DuplicateFinder, homes: list[str], record: Record, words: list[str]
) -> None:
    kind, earlier = finder.add(words, record.origin)
    homes.append(split.name)
    if not kind:
        return
    example = f"{record.origin} and {finder.names[earlier]}"
    if homes[earlier] == split.name:
        (split.exact_duplicates if kind == "exact" else split.near_duplicates).add(example)
    else:
        kinds = report.leakage.setdefault(f"{homes[earlier]} -> {split.name}", {})
        kinds.setdefault(kind, Findings()).add(example)


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


def _ratio(above: int, below: int) -> float | None:
    return round(above / below, 2) if below else None


def _findings(found: Findings) -> dict[str, Any]:
    return {"count": found.count, "examples": found.examples}


# ----------------------------------------------------------------------------------------------------------- duplicates


SHINGLE = 5  # words
BINS = 32
BAND = 4  # bins that must agree for two texts to be compared
THRESHOLD = 0.7  # estimated Jaccard similarity of the 5-grams
MAX_WORDS = 2000  # only so many words of a text are looked at for near duplicates

_PRIME = 0x9E3779B97F4A7C15
_EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)


@dataclass(slots=True)
class DuplicateFinder:
    """Exact and near duplicates among many texts, in one pass and a few hundred bytes a text.

    `add` texts one by one; each call tells which earlier text is the same or nearly the same.

    Near duplicates are found by one-permutation MinHash over word 5-grams: the hashes are spread over `BINS` bins,
    the least of each bin is kept, texts that agree in a band of `BAND` bins are compared, and the share of
    agreeing bins estimates the Jaccard similarity. Results do not change from run to run.
    """

    names: list[str] = field(default_factory=list)
    _exact: dict[int, int] = field(default_factory=dict)
    _bands: dict[tuple[int, bytes], int] = field(default_factory=dict)
    _sketches: list[np.ndarray | None] = field(default_factory=list)
    _words: dict[str, int] = field(default_factory=dict)

    def add(self, words: Sequence[str], name: str) -> tuple[str, int]:
        """Return ``("exact" or "near", number of the earlier text)``, or ``("", -1)`` for a new one."""
        number = len(self.names)
        self.names.append(name)
        codes = self._codes(words)
        key = hash(codes.tobytes())
        if key in self._exact:
            self._sketches.append(None)
            return "exact", self._exact[key]
        self._exact[key] = number
        sketch = _sketch(codes[:MAX_WORDS])
        self._sketches.append(sketch)
        if sketch is None:
            return "", -1
        bands = [(start, sketch[start : start + BAND].tobytes()) for start in range(0, BINS, BAND)]
        candidates = sorted({self._bands[band] for band in bands if band in self._bands})
        for band in bands:
            self._bands.setdefault(band, number)
        for candidate in candidates:
            other = self._sketches[candidate]
            if other is not None and _similarity(sketch, other) >= THRESHOLD:
                return "near", candidate
        return "", -1

    def _codes(self, words: Sequence[str]) -> np.ndarray:
        known = self._words
        codes = np.empty(len(words), dtype=np.uint64)
        for index, word in enumerate(words):
            code = known.get(word)
            if code is None:
                code = known[word] = zlib.crc32(word.encode("utf-8", "surrogatepass"))
            codes[index] = code
        return codes


def _sketch(codes: np.ndarray) -> np.ndarray | None:
    if len(codes) < SHINGLE:
        return None  # too short to be more than equal or not
    hashes = np.zeros(len(codes) - SHINGLE + 1, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for place in range(SHINGLE):
            hashes = hashes * np.uint64(1_000_003) + codes[place : place + len(hashes)]
        hashes ^= hashes >> np.uint64(29)
        hashes *= np.uint64(_PRIME)
        hashes ^= hashes >> np.uint64(32)
    sketch = np.full(BINS, _EMPTY, dtype=np.uint64)
    np.minimum.at(sketch, (hashes % np.uint64(BINS)).astype(np.int64), hashes)
    return sketch


def _similarity(one: np.ndarray, other: np.ndarray) -> float:
    used = (one != _EMPTY) | (other != _EMPTY)
    return float(((one == other) & used).sum() / used.sum())
