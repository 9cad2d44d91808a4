"""What is in a data set and what is wrong with it, before a training finds out; and which pairs are held out.

Everything is read once, as a stream; only numbers and sketches of the texts are kept.
"""

from __future__ import annotations

import hashlib
import importlib
import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from catchline.data.columns import ReadOptions
from catchline.data.records import NothingUsableError, SkipCounter, read_with
from catchline.errors import DataError, not_installed
from catchline.jobs import batches, parallel
from catchline.text.normalization import SCRIPT_WORD, TAGS, without_invisible
from catchline.text.sentences import language_of
from catchline.types import Record

WORD = re.compile(rf"{SCRIPT_WORD}|[^\w\s]")
_WORDS = re.compile(SCRIPT_WORD)
_ASCII_WORDS = bytes(ord(chr(code).lower()) if _WORDS.match(chr(code)) and code < 128 else 32 for code in range(256))
_EXAMPLES = 3
_SIDES = ("document", "summary")
_PIECE = 1000  # records, a piece of work of a process


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """Limits for the truncation figures, in words or, where ``count`` counts the two sides of a record, in these
    tokens. ``min_supported`` is a recipe's (`data.min_supported`)."""

    max_source: int = 400
    max_target: int = 100
    min_supported: float = 0.0
    max_records: int | None = None
    count: Callable[[Record], tuple[int, int]] | None = None


@dataclass(slots=True)
class Findings:
    """Something found: how often, and the first places."""

    count: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, example: str) -> None:
        self.extend(Findings(1, [example]))

    def extend(self, other: Findings) -> None:
        self.count += other.count
        self.examples += other.examples[: _EXAMPLES - len(self.examples)]


@dataclass(slots=True)
class SplitReport:
    """One file. ``lengths`` of documents and summaries are in words and punctuation marks, Han characters one each
    (``document_words``), and in tokens, if a recipe's are counted (``document_tokens``)."""

    name: str
    path: str
    choice: str = ""
    records: int = 0
    hardly_supported: int = 0
    covered: float = 0.0  # shares of summaries' words that are in their documents, added up
    reappearing: float = 0.0  # shares of documents' distinct words that are in their summaries, added up
    skipped: SkipCounter = field(default_factory=SkipCounter)
    lengths: defaultdict[str, array[int]] = field(default_factory=lambda: defaultdict(partial(array, "i")))
    references: Counter[int] = field(default_factory=Counter)
    languages: Counter[str] = field(default_factory=Counter)
    found: defaultdict[str, Findings] = field(default_factory=lambda: defaultdict(Findings))

    def extend(self, other: SplitReport) -> None:
        """Add what was measured of the records that come next."""
        for name in ("records", "hardly_supported", "covered", "reappearing"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name, values in other.lengths.items():
            self.lengths[name].extend(values)
        self.references.update(other.references)
        self.languages.update(other.languages)
        for reason, findings in other.found.items():
            self.found[reason].extend(findings)

    def problems(self) -> dict[str, Findings]:
        """What is suspicious, by a phrase. Of the languages the most frequent is that of the file."""
        usual = {f"documents in {language}" for language, _ in self.languages.most_common(1)}
        return {reason: findings for reason, findings in sorted(self.found.items()) if reason not in usual}

    def as_dict(self, options: CheckOptions) -> dict[str, Any]:
        """The figures as JSON can hold them."""
        words, tokens = ([self.lengths[f"{side}_{unit}"] for side in _SIDES] for unit in ("words", "tokens"))
        limited = tokens if options.count else words
        return {
            "path": self.path,
            "records": self.records,
            "bad": {
                "count": self.skipped.total,
                "reasons": dict(self.skipped.counts),
                "examples": self.skipped.examples,
            },
            **{f"{side}_words": lengths(values) for side, values in zip(_SIDES, words, strict=True)},
            **{f"{side}_tokens": lengths(values) for side, values in zip(_SIDES, tokens, strict=True) if values},
            "compression": round(sum(words[0]) / sum(words[1]), 2) if any(words[1]) else None,
            "documents_over_limit": _share(limited[0], options.max_source),
            "summaries_over_limit": _share(limited[1], options.max_target),
            **({"hardly_supported": self.hardly_supported} if options.min_supported else {}),
            "summary_words_in_document": round(self.covered / max(1, len(words[1])), 4),
            "document_words_in_summary": round(self.reappearing / max(1, len(words[1])), 4),
            "references": {str(number): count for number, count in sorted(self.references.items())},
            "problems": {reason: asdict(findings) for reason, findings in self.problems().items()},
        }


@dataclass(slots=True)
class DataReport:
    """All files, and what they share. ``leakage`` maps ``"train -> test"`` to what is in both."""

    options: CheckOptions
    splits: list[SplitReport] = field(default_factory=list)
    leakage: dict[str, dict[str, Findings]] = field(default_factory=dict)
    near: bool = True  # were near duplicates looked for? `rensa` finds them

    @property
    def refused(self) -> int:
        """Records that a training without ``--skip-bad`` would refuse."""
        return sum(split.skipped.total for split in self.splits)

    def as_dict(self) -> dict[str, Any]:
        leakage = {pair: {kind: asdict(found) for kind, found in kinds.items()} for pair, kinds in self.leakage.items()}
        splits = {split.name: split.as_dict(self.options) for split in self.splits}
        return {"splits": splits, "leakage": leakage, "refused": self.refused}


def check(
    files: Mapping[str, Path | str],
    options: CheckOptions | None = None,
    reading: ReadOptions | None = None,
    progress: Callable[[int], object] = lambda _: None,
) -> DataReport:
    """Read every file once and report on it.

    ``files`` are those of the splits by name. Bad records are always counted, whatever ``reading`` says; ``progress``
    is called with the number of records newly read.

    Raises:
        DataError: a file that cannot be read at all (missing, unknown format or columns, misaligned pairs).
    """
    options = options or CheckOptions()
    settings = replace(reading or ReadOptions(), skip_bad=True)
    report = DataReport(options, near=sketcher() is not None)
    homes: list[tuple[SplitReport, str]] = []  # of each text, with its origin

    def measured(records: list[Record]) -> tuple[SplitReport, list[Any], list[str]]:
        part = SplitReport("", "")
        words = [words_of(record.document) for record in records]
        for record, document in zip(records, words, strict=True):
            _measure(part, record, document, options)
        return part, list(map(sketch, words)), [record.origin for record in records]

    def sketches() -> Iterator[Any]:
        for name, path in files.items():
            split = SplitReport(name, str(path))
            report.splits.append(split)
            choose = partial(setattr, split, "choice")
            records = read_with(path, settings, on_skip=split.skipped, on_choice=choose)
            pieces = batches(islice(records, options.max_records), _PIECE)
            try:
                for part, own, origins in parallel(measured, pieces):
                    split.extend(part)
                    homes.extend((split, origin) for origin in origins)
                    yield from own
                    progress(part.records)
            except NothingUsableError:
                if not split.skipped.total:
                    raise  # otherwise "no usable record" is a finding, with its reasons, not the end of the check

    for later, earlier, kind in duplicates(sketches()):
        (here, origin), (there, other) = homes[later], homes[earlier]
        if here is there:
            reason = f"documents {'the same' if kind == 'exact' else 'nearly the same'} as an earlier one"
            findings = here.found[reason]
        else:
            findings = report.leakage.setdefault(f"{there.name} -> {here.name}", {}).setdefault(kind, Findings())
        findings.add(f"{origin} and {other}")
    return report


def _measure(split: SplitReport, record: Record, words: list[str], options: CheckOptions) -> None:
    split.records += 1
    split.lengths["document_words"].append(len(words))
    language = language_of(record.document)
    split.languages[language] += 1
    found, origin = split.found, record.origin
    found[f"documents in {language}"].add(origin)
    if len(words) < 5:
        found["documents of fewer than 5 words"].add(origin)
    if match := TAGS.search(record.document) or TAGS.search(record.summary):
        found["records with HTML entities or tags"].add(f"{origin} ({match[0]})")
    if options.min_supported:
        split.hardly_supported += supported_share(record, options.max_source) < options.min_supported
    if options.count is not None:
        document, summary = options.count(record)
        split.lengths["document_tokens"].append(document)
        if record.summary:
            split.lengths["summary_tokens"].append(summary)
    if not record.summary:
        return
    target = words_of(record.summary)
    split.lengths["summary_words"].append(len(target))
    split.references[max(1, len(record.references))] += 1
    known = set(words)
    covered = sum([word in known for word in target]) / max(1, len(target))
    split.covered += covered
    distinct = {word for word in known if len(word) > 1 or word.isalnum()}  # without signs
    split.reappearing += len(distinct.intersection(target)) / max(1, len(distinct))
    if len(target) >= len(words):
        found["summaries not shorter than the document"].add(f"{origin} ({len(target)} and {len(words)} words)")
    elif len(target) > 3 and words[: len(target)] == target:
        found["summaries that are the beginning of the document"].add(origin)
    if not covered:
        found["summaries that share no word with the document"].add(origin)


def words_of(text: str) -> list[str]:
    """The words and signs of a text, lower-cased."""
    return WORD.findall(without_invisible(text).lower())


def lengths(values: Sequence[int]) -> dict[str, float]:
    """Mean, median, 90th percentile and extremes."""
    if not values:
        return {}
    least, median, p90, most = np.percentile(values, (0, 50, 90, 100)).tolist()
    return {"mean": round(float(np.mean(values)), 1), "min": int(least), "median": median, "p90": p90, "max": int(most)}


def _share(values: Sequence[int], limit: int) -> dict[str, float]:
    over = sum(value > limit for value in values)
    return {"limit": limit, "count": over, "share": round(over / max(1, len(values)), 4)}


def supported_share(record: Record, max_words: int | None = None) -> float:
    """The share of the summary's words that are among the document's first ``max_words``, letter case aside.

    A summary that its document does not support teaches invention. 1 for a summary without words.
    """
    if record.summary.isascii() and record.document.isascii():  # in a fifth of the time
        words: Sequence[Any] = record.summary.encode().translate(_ASCII_WORDS).split()
        first = record.document.encode().translate(_ASCII_WORDS).split(None, -1 if max_words is None else max_words)
        offered = set(first[:max_words])
    else:
        words = _WORDS.findall(without_invisible(record.summary).lower())
        offered = set(_WORDS.findall(without_invisible(record.document).lower())[:max_words])
    return sum([word in offered for word in words]) / len(words) if words else 1.0


# ----------------------------------------------------------------------------------------------------- duplicates

_SHINGLE, _PERMUTATIONS, _BANDS = 5, 128, 32  # words; MinHash
_THRESHOLD = 0.7  # estimated Jaccard similarity of the 5-grams


def sketcher() -> Any:
    """The library that finds near duplicates, or None."""
    try:
        return importlib.import_module("rensa")
    except ImportError:
        return None


def sketch(words: Sequence[str]) -> tuple[bytes, Any]:
    """What `duplicates` compares of a text, given as words: a digest, and a MinHash sketch of its 5-grams (None of a
    shorter text, or without `rensa`)."""
    digest = hashlib.blake2b(" ".join(words).encode("utf-8", "surrogatepass"), digest_size=16).digest()
    library = sketcher()
    if library is None or len(words) < _SHINGLE:
        return digest, None
    minhash = library.RMinHash(num_perm=_PERMUTATIONS, seed=1)
    minhash.update(list(map(" ".join, zip(*(words[start:] for start in range(_SHINGLE)), strict=False))))
    return digest, minhash


def duplicates(sketches: Iterable[tuple[bytes, Any]]) -> Iterator[tuple[int, int, str]]:
    """The texts that are ``exact``ly or ``near``ly the same as an earlier one, in order, with the first such."""
    library, first = sketcher(), dict[bytes, int]()
    options = {"use_lsh": True, "num_bands": _BANDS, "seed": 1}
    index = library and library.RMinHashDeduplicator(_THRESHOLD, _PERMUTATIONS, **options)
    for number, (digest, minhash) in enumerate(sketches):
        if (earlier := first.setdefault(digest, number)) < number:
            yield number, earlier, "exact"
        elif minhash is not None:
            if alike := index.get_duplicates(minhash):
                yield number, min(map(int, alike)), "near"
            index.add(str(number), minhash)


# ------------------------------------------------------------------------------------------------------- hold-out

SHARE, MOST = 10, 200  # a tenth of the pairs is held out, and never more than this many
LEAST, ENOUGH_FOR_TEST = 20, 200  # pairs of which some are held out; of which some are held out for a test


@dataclass(frozen=True, slots=True)
class HeldOut:
    """The splits by name, in the order of the file; ``doubles`` are documents (nearly) the same as an earlier one."""

    splits: dict[str, list[Record]]
    doubles: int


def hold_out(records: Sequence[Record], seed: int = 1, *, test: bool = True) -> HeldOut:
    """Split ``records`` into ``train``, ``validation`` and, where there are enough and it is wanted, ``test``.

    Documents that are nearly the same are one group, and a group is in one split. Which groups are held out depends on
    the seed and their texts only, not on the order of the file.

    Raises:
        DataError: `rensa`, which finds near duplicates, is not installed.
    """
    if sketcher() is None:
        raise DataError(f"Pairs cannot be held out. {not_installed('rensa')} Or give validation pairs, or --all-pairs.")
    groups = list(range(len(records)))
    for number, earlier, _ in duplicates(sketch(words_of(record.document)) for record in records):
        groups[number] = groups[earlier]
    members: dict[int, list[int]] = {}
    for number, group in enumerate(groups):
        members.setdefault(group, []).append(number)
    held = ["validation", "test"] if test and len(records) >= ENOUGH_FOR_TEST else ["validation"]
    room = 0 if len(records) < LEAST else max(2, min(MOST, len(records) // SHARE))
    left, split_of = dict.fromkeys(held, room // len(held)), ["train"] * len(records)
    for group in sorted(members, key=lambda group: min(_drawn(seed, records[number]) for number in members[group])):
        size = len(members[group])
        split = next((name for name in held if size <= left[name]), "train")
        if split != "train":
            left[split] -= size
            for number in members[group]:
                split_of[number] = split
    splits = {name: [r for r, own in zip(records, split_of, strict=True) if own == name] for name in ("train", *held)}
    return HeldOut({name: own for name, own in splits.items() if own}, len(records) - len(members))


def _drawn(seed: int, record: Record) -> bytes:
    return hashlib.sha256(f"{seed} {record.document}".encode("utf-8", "surrogatepass")).digest()
