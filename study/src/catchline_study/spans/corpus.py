"""The shards of a corpus and the documents in them, read as a stream."""

from __future__ import annotations

import glob
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from catchline.data.columns import ReadOptions, Rows
from catchline.data.formats import json_rows
from catchline.data.lines import BadRecordError, bare_name, check_text, raw_lines, text_lines
from catchline.errors import ConfigError, DataError
from catchline.text.normalization import encodable

_TEXT = {".txt", ".text"}
_JSONL = {".jsonl", ".ndjson"}
_WILD = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class Shard:
    """A file of the corpus. ``name`` is its path below the common folder of all."""

    name: str
    path: str
    size: int


def find_shards(inputs: Sequence[str], out: Path) -> list[Shard]:
    """The files that ``inputs`` (files, folders, patterns) name, each once, in the order of their names. A folder means
    all files of text and JSON lines below it, hidden ones excepted. Raises ConfigError: the output folder lies in an
    input folder; DataError: an input that does not exist or holds nothing to read."""
    expanded = [_expand(text, out) for text in inputs]
    base = os.path.commonpath([root for root, _ in expanded])
    shards = []
    for path in dict.fromkeys(path for _, paths in expanded for path in paths):
        if (suffix := _suffix(path)) not in _TEXT | _JSONL:
            raise DataError(f"{path}: '{suffix}' files are not read here; write the documents as .jsonl or .txt.")
        shards.append(Shard(path.relative_to(base).as_posix(), str(path), path.stat().st_size))
    return sorted(shards, key=lambda shard: shard.name)


def _expand(text: str, out: Path) -> tuple[Path, list[Path]]:
    """An input's own folder, and its files."""
    place = Path(os.path.abspath(text))
    if place.is_dir():
        if Path(os.path.abspath(out)).is_relative_to(place):
            raise ConfigError(f"--out {out} lies in the input folder {text}; choose a folder outside of it.")
        base, found = place, [path for path in place.rglob("*") if _suffix(path) in _TEXT | _JSONL]
    elif place.is_file():
        return place.parent, [place]
    else:
        base = Path(*takewhile(lambda part: not _WILD.search(part), place.parts))
        found = [Path(name) for name in glob.glob(str(place), recursive=True)]
    files = sorted(
        path for path in found if path.is_file() and not any(part[0] == "." for part in path.relative_to(base).parts)
    )
    if not files:
        raise DataError(
            f"{text} holds no file to read; files end in .txt or .jsonl, with .gz or .zst behind it or not."
        )
    return base, files


def _suffix(path: Path) -> str:
    return Path(bare_name(path)).suffix.lower()


def documents(path: Path, *, text: str, column: str | None, skipped: Counter[str] | None) -> Iterator[tuple[int, str]]:
    """The documents of a file with their numbers; those without text are left out. Numbers count JSON records or lines;
    0 is a file that is one document. Raises DataError: the file cannot be read, or a record is bad and there is no
    ``skipped`` to count it."""
    found = _usable(path, column, skipped)
    if text != "line" and _suffix(path) not in _JSONL:
        found = iter([(0, "\n".join(line for _, line in found))])
    for number, document in found:
        if document and not document.isspace():
            yield number, encodable(document)


def _usable(path: Path, column: str | None, skipped: Counter[str] | None) -> Iterator[tuple[int, str]]:
    rows, lines = Rows(ReadOptions(column, need_summary=False), str(path)), raw_lines(path)
    is_json = _suffix(path) in _JSONL
    numbered = ((f"{path}:{number}", "", line) for number, line in text_lines(lines))
    for number, (origin, _, entry) in enumerate(json_rows(str(path), lines) if is_json else numbered):
        try:
            if is_json:
                yield number, rows.record(entry, origin, "").document
            else:
                check_text(origin, entry)
                yield number, entry
        except BadRecordError as problem:
            if problem.reason != "empty document":
                if skipped is None:
                    raise
                skipped[problem.reason] += 1
