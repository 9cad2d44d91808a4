"""Pairs of documents and summaries as a stream of records, from the formats of docs/data.md; and where splits lie.

Files may be compressed (``.gz``, ``.zst``). A folder of numbered files of one format (``train-00000.jsonl``,
``train-00001.jsonl``, ...) is read as one file.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from catchline.config.schema import SPLITS
from catchline.data import formats
from catchline.data.columns import ReadOptions, Rows
from catchline.data.lines import BadRecordError, bare_name, raw_lines, unreadable
from catchline.errors import ConfigError, DataError, did_you_mean, unknown_choice
from catchline.files import part_of
from catchline.text.control import json_line
from catchline.types import Record

OnSkip = Callable[[BadRecordError], object]
FORMATS: dict[str, Callable[..., formats.RowsRead]] = {
    "jsonl": formats.read_jsonl,
    "json": formats.read_json,
    "csv": formats.read_csv,
    "pair": formats.read_aligned,
    "duc": formats.read_aligned,
    "story": formats.read_story,
    "lcsts": formats.read_lcsts,
    "parquet": formats.read_parquet,
    "hub": formats.read_hub,
}
FORMAT_OF = {".ndjson": "jsonl", ".tsv": "csv", ".tab": "csv"}  # suffixes of files of records
FORMAT_OF |= {f".{kind}": kind for kind in ("jsonl", "json", "csv", "story", "parquet")}
_PART = re.compile(r"(?P<name>.*?)[-_.]?(?P<number>\d+)(?:-of-(?P<total>\d+))?(?P<suffix>\.[^.\d]+)")
_SPLIT_OF = {  # the first word of a file's name
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "dev", "val"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
    **{"part i": "train", "part ii": "validation", "part iii": "test"},  # LCSTS
}


@dataclass(slots=True)
class SkipCounter:
    """A callable for ``on_skip``: counts reasons and keeps the first messages."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def __call__(self, problem: Exception) -> None:
        self.counts[getattr(problem, "reason", type(problem).__name__)] += 1
        self.examples += [str(problem)] if len(self.examples) < 5 else []

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def describe(self) -> str:
        """``12 records skipped: 7 empty summary, 5 not UTF-8``, or an empty string."""
        parts = ", ".join(f"{count:,} {reason}" for reason, count in self.counts.most_common())
        return f"{self.total:,} record{'s' if self.total > 1 else ''} skipped: {parts}" if parts else ""


class NothingUsableError(DataError):
    """A file was read, and none of its records is good."""


Pairs = str | Path | Iterable[Record | Mapping[str, Any]] | Any  # in a file, or in memory; a table of pandas


def read_records(
    path: Pairs,
    *,
    format: str = "auto",
    document_column: str | None = None,
    summary_column: str | None = None,
    skip_bad: bool = False,
    need_summary: bool = True,
    on_skip: OnSkip | None = None,
    on_choice: Callable[[str], object] | None = None,
) -> Iterator[Record]:
    """Stream the records of a file or folder, or of what is in memory.

    ``path`` is a file, one of two aligned files, a folder that is one data set, or ``hub:owner/name``; or a table of
    pandas or polars, a list of dictionaries or records, a data set of the library ``datasets``. ``format`` is a name of
    the table above, ``auto`` goes by the file's name and first bytes. Columns that are not given are detected
    (`catchline.data.columns`); ``on_choice`` receives a sentence on what was chosen. Bad records (with ``need_summary``
    those without a summary too) stop the reading or, with ``skip_bad``, go to ``on_skip``, such as a `SkipCounter`.
    Raises DataError: the file cannot be read, or a record is bad (one sentence with file and line).
    """
    options = ReadOptions(document_column, summary_column, need_summary, format=format, skip_bad=skip_bad)
    return read_with(path, options, on_skip=on_skip, on_choice=on_choice)


def read_with(
    path: Pairs,
    options: ReadOptions,
    *,
    on_skip: OnSkip | None = None,
    on_choice: Callable[[str], object] | None = None,
) -> Iterator[Record]:
    """Like `read_records`, with all options. What can be refused at once is refused before the first record."""
    first = replace(options, on_choice=on_choice or options.on_choice)
    if not isinstance(path, str | Path):
        return _usable(formats.read_rows(path), first, on_skip, "data")
    kind, parts = _locate(str(path), options.format)
    if len(parts) > 1:
        first.on_choice(f"{path}: {len(parts):,} {kind} files")
    read = (FORMATS[kind](*part, options=options if number else first) for number, part in enumerate(parts))
    return _usable(itertools.chain.from_iterable(read), first, on_skip, str(path))


def read_json_lines(
    lines: Iterable[bytes], name: str, options: ReadOptions, *, on_skip: OnSkip | None = None
) -> Iterator[Record]:
    """The records of a stream of JSON lines, such as standard input, as they come; ``name`` is what errors call it."""
    return _usable(formats.json_rows(name, enumerate(lines, start=1)), options, on_skip, name)


def _usable(read: formats.RowsRead, options: ReadOptions, on_skip: OnSkip | None, path: str) -> Iterator[Record]:
    rows, good, bad = Rows(options, path), 0, 0
    for origin, number, row in read:
        try:
            record = rows.record(row, origin, number)
        except BadRecordError as problem:
            bad += 1
            if not options.skip_bad:
                problem.args = (f"{problem} To leave such records out: --skip-bad (skip_bad=True).",)
                raise
            if on_skip is not None:
                on_skip(problem)
            continue
        good += 1
        yield record
    if not good:
        none = f"{path}: no usable record ({bad:,} bad ones were skipped)." if bad else f"{path} has no record."
        raise NothingUsableError(none)


def write_records(path: Path, records: Iterable[Record], progress: Callable[[int], object] = lambda _: None) -> int:
    """Write JSON lines beside ``path`` and rename when complete; returns how many."""
    count = 0
    with part_of(path) as file:
        for record in records:
            values: dict[str, object] = {"id": record.id, "document": record.document, "summary": record.summary}
            values |= {"references": record.references} if record.references not in ((), (record.summary,)) else {}
            values |= {"sentences": record.sentences} if record.sentences else {}
            file.write(json_line(values).encode() + b"\n")
            count += 1
            progress(1)
    return count


# --------------------------------------------------------------------------------------------------- finding files


def splits_in(data: str | Path) -> dict[str, str]:
    """The file of each split where ``data`` is a folder with one file a split; else nothing: it is one data set. Raises
    DataError: a folder without any such file, or with two for one split."""
    folder, splits = Path(data), dict[str, str]()
    if not folder.is_dir() or _one_data_set(folder):
        return {}
    for path in sorted(folder.iterdir()):
        words = re.split(r"[^a-z]+", bare_name(path).lower())
        split = _SPLIT_OF.get(words[0]) or _SPLIT_OF.get(" ".join(words[:2]))
        if split and path.name[0] != "." and _is_data(path) and splits.setdefault(split, str(path)) != str(path):
            names = f"{Path(splits[split]).name}, {path.name}"
            raise DataError(f"{folder} has several files for the {split} split ({names}); name the file to use.")
    if not splits:
        raise DataError(
            f"{folder} has no file named train, validation (valid, dev, val) or test. If each text is a file, write "
            "them into one first, such as a CSV with the columns text and summary."
        )
    return {split: splits[split] for split in SPLITS if split in splits}


def split_of(data: str | Path, split: str) -> str:
    """The file of ``split`` where ``data`` is a folder with one file a split; else ``data`` itself. Raises DataError:
    the folder has splits, but not this one."""
    splits = splits_in(data) or {split: str(data)}
    if split not in splits:
        raise DataError(f"{data} has no '{split}' split, only {', '.join(splits)}; choose one of them with --split.")
    return splits[split]


def data_changes(data: Path | None) -> dict[str, Any]:
    """A data set as changes of a recipe: the splits of a folder, or one file or folder of parts to train on. Raises
    ConfigError: the folder has no file to train on."""
    if data is None:
        return {}
    splits = splits_in(data) or {"train": str(data)}
    if "train" not in splits:
        raise ConfigError(f"{data} has no training file (only {', '.join(splits)}); name it train.jsonl, for example.")
    return {"data": {split: splits.get(split) for split in SPLITS}}


def files_of(path: str | Path, format: str = "auto") -> list[Path]:
    """The files that reading ``path`` opens, in order; none for a data set of the hub. Raises DataError: there is no
    such place, or its format is not known."""
    kind, parts = _locate(str(path), format)
    return [] if kind == "hub" else [file for part in parts for file in part]


def _locate(path: str, kind: str) -> tuple[str, list[list[Path]]]:
    """The format, and the parts to read one after the other, each with all its files."""
    if kind != "auto" and kind not in FORMATS:
        raise DataError(unknown_choice("data format", kind, ["auto", *FORMATS]))
    if path.startswith("hub:") or kind == "hub":
        return "hub", [[Path(path.removeprefix("hub:"))]]
    place = Path(path)
    if not place.exists():
        names = [entry.name for entry in place.parent.iterdir()] if place.parent.is_dir() else []
        hint = f" A data set of the hub is written hub:{path}." if re.fullmatch(r"[\w.\-]+/[\w.\-]+", path) else ""
        raise DataError(f"{path} does not exist.{did_you_mean(place.name, names) or hint}")
    files = _files_in(place) if place.is_dir() else [place]
    format = kind if kind != "auto" else _format_of(files[0]) or ("pair" if formats.other_half(place)[0] else "")
    if not format:
        known = f"files of pairs end in .jsonl, .csv or .tsv; or choose with --format: {', '.join(FORMATS)}."
        raise DataError(unreadable(path) or f"{place}: unknown format: {known}")
    return format, [formats.with_others(file, format) for file in files]


def _files_in(folder: Path) -> list[Path]:
    files = _data_files(folder)
    if whole := _one_data_set(folder) or (files if len(files) == 1 else []):
        return whole
    if files:
        names = ", ".join(path.name for path in files[:8])
        raise DataError(f"{folder} is a folder with {len(files)} data files ({names}); name the one to read.")
    texts = f"; `catchline summarize` takes texts by name: {folder}/*.txt" if any(folder.glob("*.txt")) else ""
    raise DataError(f"{folder} is a folder without data files that can be read{texts}.")


def _one_data_set(folder: Path) -> list[Path]:
    """The files of a folder that is read as one: stories, the input of DUC, or numbered files; else none."""
    return formats.stories(folder) or formats.duc_files(folder)[:1] or _numbered_files(_data_files(folder))


def _data_files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.iterdir()) if path.name[0] != "." and path.is_file() and _is_data(path)]


def _is_data(path: Path) -> bool:
    """Is this a file, or a folder, that may hold records?"""
    return any(path.iterdir()) if path.is_dir() else not formats.other_half(path)[1] and bool(_format_of(path))


def _format_of(path: Path) -> str | None:
    """The format of a file by its name or its first bytes."""
    if known := FORMAT_OF.get(Path(bare_name(path)).suffix.lower()):
        return known
    if (other := formats.other_half(path)[0]) and other.is_file():
        return "pair"
    if formats.duc_files(path):
        return "duc"
    if path.is_file() and Path(bare_name(path)).suffix == ".txt":
        with suppress(DataError):  # of a damaged file
            first = b"".join(line for _, line in itertools.islice(raw_lines(path), 3))
            return "lcsts" if b"<doc" in first[:200] else None
    return None


def _numbered_files(files: list[Path]) -> list[Path]:
    """Several parts of one data set in the order of their numbers; none where the files are no such parts. Raises
    DataError: a part is missing."""
    matches = [match for path in files if (match := _PART.fullmatch(bare_name(path)))]
    numbered = {int(match["number"]): path for match, path in zip(matches, files, strict=False)}
    alike = len({(match["name"], match["suffix"]) for match in matches}) == 1
    if not 1 < len(files) == len(numbered) or not alike or (first := min(numbered)) > 1:  # large numbers are years
        return []
    last = max(max(numbered), *(int(match["total"] or 0) - 1 + first for match in matches))
    missing = next((number for number in range(first, last + 1) if number not in numbered), None)
    if missing is not None:
        raise DataError(
            f"{files[0].parent}: of the parts {files[0].name} to {files[-1].name}, number {missing} is "
            "missing; restore it, or name the file to read."
        )
    return [numbered[number] for number in sorted(numbered)]
