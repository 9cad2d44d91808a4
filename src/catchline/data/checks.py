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
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from catchline.data.columns import ReadOptions
from catchline.data.records import NothingUsableError, SkipCounter, read_with
from catchline.errors import DataError, not_installed
from catchline.files import sha256
from catchline.jobs import batches, parallel
from catchline.text.normalization import SCRIPT_WORD, TAGS, without_invisible
from catchline.text.sentences import language_of
from catchline.types import Record

WORD = re.compile(rf"{SCRIPT_WORD}|[^\w\s]")
_WORDS = re.compile(SCRIPT_WORD)
_EXAMPLES = 3
_LANGUAGE = "documents in "
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
        self.count += 1
        self.examples += [example] if len(self.examples) < _EXAMPLES else []


@dataclass(slots=True)
class SplitReport:
    """One file. ``figures`` of its records by name (see `_measured`)."""

    name: str
    path: str
    choice: str = ""
    skipped: SkipCounter = field(default_factory=SkipCounter)
    figures: defaultdict[str, array[float]] = field(default_factory=lambda: defaultdict(lambda: array("d")))
    found: defaultdict[str, Findings] = field(default_factory=lambda: defaultdict(Findings))

    def problems(self) -> dict[str, Findings]:
        """What is suspicious, by a phrase. Of the languages the most frequent is that of the file."""
        languages = [reason for reason in self.found if reason.startswith(_LANGUAGE)]
        usual = max(languages, key=lambda reason: self.found[reason].count, default="")
        return {reason: findings for reason, findings in sorted(self.found.items()) if reason != usual}

    def as_dict(self, options: CheckOptions) -> dict[str, Any]:
        """The figures as JSON can hold them."""
        unit, figures, skipped = "tokens" if options.count else "words", self.figures, self.skipped
        known = [f"{side}_{each}" for each in ("words", "tokens") for side in ("document", "summary")]
        words, learnt = figures["document_words"], figures["summary_words"]
        references = Counter(map(int, figures["references"]))
        return {
            "path": self.path,
            "records": len(words),
            "bad": {"count": skipped.total, "reasons": dict(skipped.counts), "examples": skipped.examples},
            **{name: lengths(figures[name]) for name in known if figures[name] or name.endswith("words")},
            "compression": round(sum(words) / sum(learnt), 2) if any(learnt) else None,
            "documents_over_limit": _share(figures[f"document_{unit}"], options.max_source),
            "summaries_over_limit": _share(figures[f"summary_{unit}"], options.max_target),
            **({"hardly_supported": int(sum(figures["hardly_supported"]))} if options.min_supported else {}),
            "summary_words_in_document": round(sum(figures["covered"]) / max(1, len(learnt)), 4),
            "document_words_in_summary": round(sum(figures["reappearing"]) / max(1, len(learnt)), 4),
            "references": {str(number): references[number] for number in sorted(references)},
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
    """Read every file once and report on it. ``files`` are those of the splits by name. Bad records are always counted,
    whatever ``reading`` says; ``progress`` is called with the number of records newly read. Raises DataError: a file
    that cannot be read at all (missing, unknown format or columns, misaligned pairs)."""
    options = options or CheckOptions()
    settings = replace(reading or ReadOptions(), skip_bad=True)
    report = DataReport(options, near=sketcher() is not None)
    homes: list[tuple[SplitReport, str]] = []  # of each text, with its origin

    def measured(records: list[Record]) -> list[tuple[Any, ...]]:
        words = [words_of(record.document) for record in records]
        pieces = zip(records, words, strict=True)
        return [(*_measured(record, own, options), record.origin, sketch(own)) for record, own in pieces]

    def sketches(split: SplitReport) -> Iterator[Any]:
        records = read_with(split.path, settings, on_skip=split.skipped, on_choice=partial(setattr, split, "choice"))
        try:
            for piece in parallel(measured, batches(islice(records, options.max_records), _PIECE)):
                for figures, found, origin, own in piece:
                    homes.append((split, origin))
                    for figure, value in figures.items():
                        split.figures[figure].append(value)
                    for reason, remark in found:
                        split.found[reason].add(f"{origin}{remark}")
                    yield own
                progress(len(piece))
        except NothingUsableError:
            if not split.skipped.total:
                raise  # otherwise "no usable record" is a finding, with its reasons, not the end of the check

    report.splits += [SplitReport(name, str(path)) for name, path in files.items()]
    for later, earlier, kind in duplicates(chain.from_iterable(map(sketches, report.splits))):
        (here, origin), (there, other) = homes[later], homes[earlier]
        if here is there:
            reason = f"documents {'the same' if kind == 'exact' else 'nearly the same'} as an earlier one"
            findings = here.found[reason]
        else:
            findings = report.leakage.setdefault(f"{there.name} -> {here.name}", {}).setdefault(kind, Findings())
        findings.add(f"{origin} and {other}")
    return report


def _measured(
    record: Record, words: list[str], options: CheckOptions
) -> tuple[dict[str, float], list[tuple[str, str]]]:
    """The figures of a record, and what is suspicious: a phrase, and what to say behind the record's place. Lengths of
    document and summary are in words and punctuation marks, Han characters one each (``document_words``), and in
    tokens, if a recipe's are counted (``document_tokens``); ``covered`` is the share of the summary's words that are in
    the document, ``reappearing`` that of the document's distinct words that are in the summary."""
    figures: dict[str, float] = {"document_words": len(words)}
    found = [(f"{_LANGUAGE}{language_of(record.document)}", "")]
    if len(words) < 5:
        found.append(("documents of fewer than 5 words", ""))
    if match := TAGS.search(record.document) or TAGS.search(record.summary):
        found.append(("records with HTML entities or tags", f" ({match[0]})"))
    if options.min_supported:
        figures["hardly_supported"] = supported_share(record, options.max_source) < options.min_supported
    if options.count is not None:
        counted = zip(("document_tokens", "summary_tokens"), options.count(record), strict=True)
        figures |= dict(counted if record.summary else [next(counted)])
    if not record.summary:
        return figures, found
    target, known = words_of(record.summary), set(words)
    covered = sum([word in known for word in target]) / max(1, len(target))
    distinct = {word for word in known if len(word) > 1 or word.isalnum()}  # without signs
    reappearing = len(distinct.intersection(target)) / max(1, len(distinct))
    figures |= {"summary_words": len(target), "references": max(1, len(record.references))}
    figures |= {"covered": covered, "reappearing": reappearing}
    if len(target) >= len(words):
        remark = f" ({len(target)} and {len(words)} words)"
        found.append(("summaries not shorter than the document", remark))
    elif len(target) > 3 and words[: len(target)] == target:
        found.append(("summaries that are the beginning of the document", ""))
    if not covered:
        found.append(("summaries that share no word with the document", ""))
    return figures, found


def words_of(text: str) -> list[str]:
    """The words and signs of a text, lower-cased."""
    return WORD.findall(without_invisible(text).lower())


def lengths(values: Sequence[float]) -> dict[str, float]:
    """Mean, median, 90th percentile and extremes."""
    if not values:
        return {}
    least, median, p90, most = np.percentile(values, (0, 50, 90, 100)).tolist()
    return {"mean": round(float(np.mean(values)), 1), "min": int(least), "median": median, "p90": p90, "max": int(most)}


def _share(values: Sequence[float], limit: int) -> dict[str, float]:
    over = sum(value > limit for value in values)
    return {"limit": limit, "count": over, "share": round(over / max(1, len(values)), 4)}


def supported_share(record: Record, max_words: int | None = None) -> float:
    """The share of the summary's words that are among the document's first ``max_words``, letter case aside. A summary
    that its document does not support teaches invention. 1 for a summary without words."""
    words, offered = (_WORDS.findall(without_invisible(text).lower()) for text in (record.summary, record.document))
    known = set(offered[:max_words])
    return sum([word in known for word in words]) / len(words) if words else 1.0


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
    digest = hashlib.blake2b(" ".join(words).encode(), digest_size=16).digest()
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


def hold_out(records: Sequence[Record], seed: int = 1, *, test: bool = True) -> tuple[dict[str, list[Record]], int]:
    """Split ``records`` into ``train``, ``validation`` and, where there are enough and it is wanted, ``test``, each in
    the order of the file; also the number of documents that are (nearly) the same as an earlier one. These are one
    group, and a group is in one split. Which groups are held out depends on the seed and their texts only, not on the
    order of the file. Raises DataError: `rensa`, which finds near duplicates, is not installed."""
    if sketcher() is None:
        raise DataError(f"Pairs cannot be held out. {not_installed('rensa')} Or give validation pairs, or --all-pairs.")
    groups = list(range(len(records)))
    for number, earlier, _ in duplicates(sketch(words_of(record.document)) for record in records):
        groups[number] = groups[earlier]
    members = defaultdict[int, list[int]](list)
    for number, first in enumerate(groups):
        members[first].append(number)
    held = ["validation", "test"] if test and len(records) >= ENOUGH_FOR_TEST else ["validation"]
    room = 0 if len(records) < LEAST else max(2, min(MOST, len(records) // SHARE)) // len(held)
    order = [sha256(f"{seed} {record.document}".encode()) for record in records]
    splits: dict[str, list[int]] = {name: [] for name in ("train", *held)}
    for group in sorted(members.values(), key=lambda group: min(order[number] for number in group)):
        splits[next((name for name in held if len(splits[name]) + len(group) <= room), "train")] += group
    doubles = len(records) - len(members)
    return {name: [records[number] for number in sorted(own)] for name, own in splits.items() if own}, doubles
