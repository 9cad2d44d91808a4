"""Pairs of documents and summaries from the file formats of the field, as a stream of records.

==============  ==========================================================================================
format          what it reads
==============  ==========================================================================================
``jsonl``       one JSON object a line (SAMSum and DialogSum distributions too)
``json``        an array of objects, or an object with one array
``csv``         CSV and TSV with a header; quoted line breaks; the separator by extension or header
``pair``        two aligned text files: ``x.source``/``x.target``, ``x.article.txt``/``x.title.txt``, ...
``duc``         a folder with ``input.txt`` and ``task1_ref0.txt``, ``task1_ref1.txt``, ... (DUC-2003, DUC-2004)
``story``       CNN/DailyMail ``.story`` files, one or a folder of them
``lcsts``       LCSTS's ``<doc> <summary> <short_text>`` blocks
``sqlite``      one table of an SQLite file (All the news 1.0: ``longform``)
``parquet``     Parquet files (needs the extra ``hf``)
``hub``         a data set of the Hugging Face hub, ``hub:owner/name`` (needs the extra ``hf``)
==============  ==========================================================================================

All but the last two may be compressed (``.gz``, ``.zst``), SQLite excepted. A folder of numbered files of one format
(``train-00000.jsonl``, ``train-00001.jsonl``, ...) is read as one file.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Protocol

from catchline.config.schema import DataConfig
from catchline.data import formats, tables
from catchline.data.columns import RawRecord, RawRecords, TableOptions
from catchline.data.lines import FORMAT_OF, SKIP_BAD, BadRecordError, bare_name, open_bytes, raw_lines, what_it_is
from catchline.errors import DataError, unknown_choice
from catchline.types import Record

OnSkip = Callable[[BadRecordError], object]
OnChoice = Callable[[str], object]
FORMATS: dict[str, Callable[[Path, TableOptions], RawRecords]] = {
    "jsonl": tables.read_jsonl,
    "json": tables.read_json,
    "csv": tables.read_csv,
    "sqlite": tables.read_sqlite,
    "pair": formats.read_pair,
    "duc": formats.read_duc,
    "story": formats.read_story,
    "lcsts": formats.read_lcsts,
    "parquet": tables.read_parquet,
    "hub": tables.read_hub,
}
_FOLDER_FORMATS = {"story", "duc", "hub"}
_SHARD = re.compile(r"(?P<name>.*?)[-_.]?(?P<number>\d+)(?:-of-(?P<total>\d+))?\Z")
_SPLIT_NAMES = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "dev", "val"),
    "test": ("test", "testing"),
}
_LCSTS_PARTS = {"i": "train", "ii": "validation", "iii": "test"}  # PART_I.txt, PART_II.txt, PART_III.txt


@dataclass(frozen=True, slots=True)
class ReadOptions(TableOptions):
    """How to read: see `read_records`. ``strip_publication_suffix`` cuts " - The New York Times" off summaries.

    ``min_human_score`` leaves out pairs that people rated lower (LCSTS); pairs without a rating stay.
    """

    format: str = "auto"
    skip_bad: bool = False
    strip_publication_suffix: bool = False
    min_human_score: int | None = None

    @classmethod
    def of(cls, config: DataConfig) -> ReadOptions:
        """Those of a recipe's ``data`` section."""
        shared = {field.name for field in fields(cls)} & set(type(config).model_fields)
        return cls(spelled="data.{}_column", **{name: getattr(config, name) for name in shared})


@dataclass(slots=True)
class SkipCounter:
    """A callable for ``on_skip``: counts reasons and keeps the first messages."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def __call__(self, problem: BadRecordError) -> None:
        self.counts[problem.reason] += 1
        if len(self.examples) < 5:
            self.examples.append(str(problem))

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def describe(self) -> str:
        """``12 records skipped: 7 empty summary, 5 not UTF-8``, or an empty string."""
        if not self.counts:
            return ""
        parts = ", ".join(f"{count:,} {reason}" for reason, count in self.counts.most_common())
        return f"{self.total:,} record{'s' if self.total > 1 else ''} skipped: {parts}"


class Frame(Protocol):
    """As pandas and polars have them."""

    @property
    def columns(self) -> Any: ...


Pairs = str | Path | Iterable[Record | Mapping[str, Any]] | Frame  # in a file, or in memory


def read_records(
    path: Pairs,
    *,
    format: str = "auto",
    document_column: str | None = None,
    summary_column: str | None = None,
    skip_bad: bool = False,
    need_summary: bool = True,
    on_skip: OnSkip | None = None,
    on_choice: OnChoice | None = None,
) -> Iterator[Record]:
    """Stream the records of a file or folder, or of what is in memory.

    ``path`` is a file, a folder of ``.story`` files, the common part of two aligned files, or ``hub:owner/name``; or a
    table of pandas or polars, a list of dictionaries or records, a data set of the library ``datasets``. ``format`` is
    a name of the table above, ``auto`` goes by the file's name and first bytes. Columns that are not given are detected
    (`catchline.data.columns`); ``on_choice`` receives a sentence a file on what was chosen. Bad records (with
    ``need_summary`` those without a summary too) stop the reading or, with ``skip_bad``, are left out and go to
    ``on_skip``, such as a `SkipCounter`.

    Raises:
        DataError: the file cannot be read, or a record is bad (one sentence with file and line).
    """
    options = ReadOptions(document_column, summary_column, need_summary, format=format, skip_bad=skip_bad)
    return _with_the_keyword(read_with(path, options, on_skip=on_skip, on_choice=on_choice))


def _with_the_keyword(found: Iterator[Record]) -> Iterator[Record]:
    try:
        yield from found
    except BadRecordError as problem:
        if problem.option:
            name, value = problem.option
            problem.lead_on(f"catchline.read_records(..., {name}={value!r})")
        raise


def read_with(
    path: Pairs, options: ReadOptions, *, on_skip: OnSkip | None = None, on_choice: OnChoice | None = None
) -> Iterator[Record]:
    """Like `read_records`, with all options. What can be refused at once is refused before the first record."""
    telling = replace(options, on_choice=on_choice or options.on_choice)
    if not isinstance(path, str | Path):
        return _records(tables.read_rows(path, telling), options, on_skip or (lambda _: None), "data")
    kind, parts = places_of(str(path), options.format)
    found: RawRecords = itertools.chain.from_iterable(
        FORMATS[kind](part, telling if part == parts[0] else options) for part in parts
    )
    if options.min_human_score is not None:
        found = _rated(found, options.min_human_score, str(path), telling.on_choice)
    return _records(found, options, on_skip or (lambda _: None), str(path))


def places_of(path: str, format: str) -> tuple[str, list[Path]]:
    """The format, and what is read one after the other."""
    kind, place = _locate(path, format)
    return kind, _shards(_data_files(place)) if place.is_dir() and kind not in _FOLDER_FORMATS else [place]


def read_json_lines(
    lines: Iterable[bytes], name: str, options: ReadOptions, *, on_skip: OnSkip | None = None
) -> Iterator[Record]:
    """The records of a stream of JSON lines, such as standard input, as they come; ``name`` is what errors call it."""
    found = tables.read_jsonl(Path(name), options, enumerate(lines, start=1))
    return _records(found, options, on_skip or (lambda _: None), name)


def _rated(found: RawRecords, least: int, path: str, on_choice: OnChoice) -> RawRecords:
    """Without what people rated below ``least``, saying in the end how much that was."""
    low = rated = 0
    for raw in found:
        if isinstance(raw, BadRecordError) or raw.human_score is None:
            yield raw
            continue
        rated += 1
        if raw.human_score >= least:
            yield raw
        else:
            low += 1
    if rated:
        on_choice(f"{path}: {low:,} of {rated:,} rated pairs left out, because people rated them below {least}")


def _records(found: RawRecords, options: ReadOptions, on_skip: OnSkip, path: str) -> Iterator[Record]:
    good = bad = 0
    for record in judged(found, options):
        if isinstance(record, BadRecordError):
            bad += 1
            on_skip(record)
        else:
            good += 1
            yield record
    if not good:
        raise nothing_usable(path, bad)


def judged(found: RawRecords, options: ReadOptions) -> Iterator[Record | BadRecordError]:
    """What a format delivered, as the records they are; with ``skip_bad`` the problems of the others among them.

    Raises:
        BadRecordError: a record cannot be used.
    """
    for raw in found:
        try:
            yield _good_record(raw, options)
        except BadRecordError as problem:
            if not options.skip_bad:
                problem.option = problem.option or SKIP_BAD
                raise
            yield problem


class NothingUsableError(DataError):
    """A file was read, and none of its records is good."""


def nothing_usable(path: str, bad: int) -> NothingUsableError:
    """What there is to say where no record could be read."""
    return NothingUsableError(
        f"{path}: no usable record ({bad:,} bad ones were skipped)." if bad else f"{path} has no record."
    )


def _good_record(raw: RawRecord | BadRecordError, options: ReadOptions) -> Record:
    if isinstance(raw, BadRecordError):
        raise raw
    document = raw.document.strip()
    references = tuple(reference.strip() for reference in raw.references)
    summary = raw.summary.strip()
    if options.strip_publication_suffix:
        references = tuple(strip_publication_suffix(text, raw.publication) for text in references)
        summary = strip_publication_suffix(summary, raw.publication)
    references = tuple(filter(None, references))
    if not document:
        raise BadRecordError(raw.origin, "empty document", "remove the record")
    if options.need_summary and not references:
        raise BadRecordError(raw.origin, "empty summary", "remove the record")
    summary = summary or (references[0] if references else "")
    more = references if len(references) > 1 or references[:1] != (summary,) else ()
    return Record(document, summary, raw.id, more, raw.sentences, raw.origin)


_PUBLICATIONS = (
    "The New York Times|Breitbart|The Washington Post|Washington Post|New York Post|Los Angeles Times|The Guardian|"
    "The Atlantic|Business Insider|BuzzFeed News|BuzzFeed|CNN.com|CNN|Fox News|National Review|NPR|Reuters|"
    "Talking Points Memo|Vox|CNNPolitics.com|CNBC|TechCrunch|The Verge|WIRED|Axios|Politico|The Hill|Vice|People|"
    "Mashable|Economist|Hyperallergic|Gizmodo|TMZ|Refinery 29|New Republic|New Yorker"
)


def strip_publication_suffix(title: str, publication: str = "") -> str:
    """Cut the newspaper's name and the dash before it off the end of a headline; never the whole headline."""
    names = "|".join(filter(None, [re.escape(publication.strip()), _PUBLICATIONS.replace(".", r"\.")]))
    return re.sub(rf"(?<=\S)\s+[-–—|]\s+(?:{names})\s*\Z", "", title, flags=re.IGNORECASE)


# ------------------------------------------------------------------------------------ finding files


def find_splits(folder: str | Path) -> dict[str, Path]:
    """The ``train``, ``validation`` and ``test`` files (or sub-folders) of a folder, by their usual names.

    Raises:
        DataError: not a folder, nothing found, or two files for one split.
    """
    place = Path(folder)
    if not place.is_dir():
        raise DataError(f"{place} is not a folder.")
    found: dict[str, list[Path]] = {}
    for path in sorted(place.iterdir()):
        words = re.split(r"[^a-z]+", bare_name(path).lower())
        part = _LCSTS_PARTS.get(words[1]) if words[0] == "part" and len(words) > 1 else None
        for split, names in _SPLIT_NAMES.items():
            if (words[0] in names or split == part) and not path.name.startswith(".") and _usable(path):
                found.setdefault(split, []).append(path)
    for split, paths in found.items():
        if len(paths) > 1:
            raise DataError(
                f"{place} has several files for the {split} split ({', '.join(path.name for path in paths)}); "
                "name the file to use."
            )
    if not found:
        raise DataError(
            f"{place} has no file named train, validation (valid, dev, val) or test. Where each text is a file of its "
            "own, write them into one file first, such as a CSV with a line a pair under text,summary."
        )
    return {split: found[split][0] for split in _SPLIT_NAMES if split in found}


def is_one_data_set(folder: Path) -> bool:
    """Is the folder itself what is read (stories, an input with its references, numbered parts) rather than a place of
    splits?

    Raises:
        DataError: a part is missing.
    """
    if next(formats.stories(folder), None) is not None or formats.duc_files(folder) is not None:
        return True
    files: list[Path] = []
    with suppress(DataError):  # a file is damaged; who reads it says so
        files = _data_files(folder)
    return len(files) > 1 and bool(_shards(files))


def files_of(path: str | Path, format: str = "auto") -> list[Path]:
    """The files that reading ``path`` opens, in order; none for a data set of the hub.

    Raises:
        DataError: there is no such place, or its format is not known.
    """
    kind, place = _locate(str(path), format)
    if kind == "hub":
        return []
    if kind == "duc" and (found := formats.duc_files(place)):
        return [found[0], *found[1]]
    if place.is_dir():
        return sorted(entry for entry in place.rglob("*") if entry.is_file())
    partner = formats.pair_partner(place) if kind == "pair" else None
    return [place, partner] if partner else [place]


def _usable(path: Path) -> bool:
    if path.is_dir():
        return any(path.iterdir())
    if formats.is_pair_target(path):
        return False
    known = Path(bare_name(path)).suffix.lower() in FORMAT_OF
    return known or formats.pair_partner(path) is not None or _is_lcsts(path)


def _locate(path: str, kind: str) -> tuple[str, Path]:
    """The format and the place to read."""
    if kind != "auto" and kind not in FORMATS:
        raise DataError(unknown_choice("data format", kind, ["auto", *FORMATS]))
    if path.startswith("hub:") or kind == "hub":
        return "hub", Path(path.removeprefix("hub:"))
    place = Path(path)
    if place.is_dir():
        return _locate_folder(place, kind)
    if not place.exists():
        prefixed = formats.pair_of_prefix(place)
        if prefixed is not None:
            return "pair", prefixed
        raise DataError(_missing(path))
    if kind != "auto":
        return kind, place
    if formats.duc_files(place) is not None:
        return "duc", place
    suffix = Path(bare_name(place)).suffix.lower()
    if suffix in FORMAT_OF:
        return FORMAT_OF[suffix], place
    if formats.pair_partner(place) is not None:
        return "pair", place
    if other := formats.partner_name(place):
        raise DataError(f"{place}: its other half is missing; expected {other} beside it.")
    if _is_lcsts(place):
        return "lcsts", place
    if other := what_it_is(path):
        raise DataError(other)
    raise DataError(
        f"{place}: the name does not say what it holds: files of pairs end in .jsonl, .csv or .tsv; or choose with "
        f"format (--format, data.format): {', '.join(FORMATS)}."
    )


def _locate_folder(place: Path, kind: str) -> tuple[str, Path]:
    if kind == "story" or next(formats.stories(place), None) is not None:
        return "story", place
    if kind == "duc" or formats.duc_files(place) is not None:
        return "duc", place
    files = _data_files(place)
    if len(files) == 1:
        return _locate(str(files[0]), kind)
    if shards := _shards(files):
        return _locate(str(shards[0]), kind)[0], place
    names = ", ".join(path.name for path in files[:8])
    single = (
        f"; `catchline summarize` takes texts by their own names: {place}/*.txt" if any(place.glob("*.txt")) else ""
    )
    raise DataError(
        f"{place} is a folder with {len(files)} data files ({names}); name the one to read."
        if files
        else f"{place} is a folder without data files that can be read{single}."
    )


def _data_files(place: Path) -> list[Path]:
    return [path for path in sorted(place.iterdir()) if path.name[0] != "." and path.is_file() and _usable(path)]


def _shards(files: list[Path]) -> list[Path]:
    """The parts of one data set in the order of their numbers; none where the files are no such parts.

    Raises:
        DataError: a part is missing.
    """
    suffixes = {Path(bare_name(path)).suffix for path in files}
    found = [_SHARD.match(Path(bare_name(path)).stem) for path in files]
    if len(suffixes) > 1 or len({part and part["name"] for part in found}) > 1:
        return []
    numbered = {int(part["number"]): path for part, path in zip(found, files, strict=True) if part}
    if len(numbered) < len(files) or not files:
        return []
    first = min(numbered)
    if first > 1:  # years, rather
        return []
    last = max(max(numbered), *(int(part["total"]) - 1 + first for part in found if part and part["total"]), 0)
    missing = next((number for number in range(first, last + 1) if number not in numbered), None)
    if missing is not None:
        raise DataError(
            f"{files[0].parent}: of the parts {files[0].name} to {files[-1].name}, number {missing} is "
            "missing; put it back, or name the file to read."
        )
    return [numbered[number] for number in sorted(numbered)]


def _is_lcsts(path: Path) -> bool:
    if not path.is_file() or Path(bare_name(path)).suffix not in {".txt", ".xml", ""}:
        return False
    if path.suffix in {".gz", ".zst"}:  # perhaps damaged, which `raw_lines` tells
        return b"<doc" in b"".join(line for _, line in itertools.islice(raw_lines(path), 3))[:200]
    with open_bytes(path) as handle:
        return b"<doc" in handle.read(200)


def _missing(path: str) -> str:
    place = Path(path)
    if place.is_symlink():
        return f"{path} is a link that leads to no file."
    names = [entry.name for entry in place.parent.iterdir()] if place.parent.is_dir() else []
    close = difflib.get_close_matches(place.name, names, n=1, cutoff=0.75)
    if close:
        return f"{path} does not exist. Did you mean '{place.parent / close[0]}'?"
    hint = f" A data set of the hub is written hub:{path}." if re.fullmatch(r"[\w.\-]+/[\w.\-]+", path) else ""
    return f"{path} does not exist.{hint}"
