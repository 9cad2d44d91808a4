"""What commands read: records of data sets, with a word on what was skipped; texts; the folders of splits."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from catchline.cli.options import DocumentOptions
from catchline.cli.output import note, say
from catchline.config.shipped import SHIPPED, default_model
from catchline.data.lines import bare_name, unreadable
from catchline.data.records import FORMAT_OF
from catchline.errors import ConfigError, DataError
from catchline.summarizer.extractive import is_method
from catchline.text.markup import MARKDOWN, READ_AS_BYTES, SUBTITLES, as_prose, read_bytes
from catchline.types import Record

if TYPE_CHECKING:
    from catchline.config.schema import DataConfig
    from catchline.data.records import ReadOptions

TEXT_SUFFIXES = {".txt", ".rst", *MARKDOWN, *SUBTITLES, *READ_AS_BYTES}
OnSkip = Callable[[Exception], object]


def check_output(option: str, path: Path | None, read: Iterable[str | Path]) -> None:
    """Refuse to write over what a command reads."""
    if path is not None and path.is_file() and any(path.samefile(name) for name in filter(os.path.exists, read)):
        raise ConfigError(f"{path} is what this command reads; {option} names another file.")


def read_once(names: Sequence[str]) -> None:
    """Refuse to read standard input twice."""
    if names.count("-") > 1:
        raise ConfigError("Standard input (-) can be read only once; save it, and name that file.")


def stream_records(
    path: str | Path,
    options: ReadOptions | DataConfig,
    advance: Callable[[], object] | None = None,
    *,
    most: int | None = None,
    silent: bool = False,
) -> Iterator[Record]:
    """The first records of a data set, all if ``most`` is not given, with notes on its columns and, at the end, on what
    was skipped.

    ``advance`` is called when a record has been dealt with.
    """
    from catchline.data.records import ReadOptions, SkipCounter, read_with

    how, skipped = options if isinstance(options, ReadOptions) else ReadOptions.of(options), SkipCounter()
    for record in islice(read_with(path, how, on_skip=skipped, on_choice=None if silent else note), most):
        yield record
        if advance is not None:
            advance()
    if skipped.total and not silent:
        note(skipped.describe())


def records_of(
    path: str | Path, options: ReadOptions | DataConfig, most: int | None = None, *, some: bool = False
) -> list[Record]:
    """The same as a list."""
    records = list(stream_records(path, options, most=most))
    if some and not records:
        raise DataError(f"{path} holds no records.")
    return records


def model_and_inputs(names: list[str]) -> tuple[str, list[str]]:
    """The first name is a model's unless it is that of an input; the others are inputs.

    Without a model it is the one in the box, or, with a word to stderr, an extractive method where there is none.
    """
    if "" in names:
        raise ConfigError("An argument is empty, as of a variable that is not set: name a file or model, or leave it.")
    model = "" if not names or "://" in names[0] or _is_input(names[0]) else f" {names[0]}"
    names = [_local(name, model) for name in names]
    for name in names[1:]:
        own = any(os.path.isfile(f"{name}/{file}") for file in ("config.json", "recipe.yaml"))
        if own or (not os.path.exists(name) and (is_method(name) or name in SHIPPED)):
            raise ConfigError(f"{name} is a model or run; the model stands before what it shall summarize.")
    if names and any(mark.isspace() for mark in names[0]) and not os.path.exists(names[0]):
        raise ConfigError(
            f"'{names[0][:60]}' is neither a model nor a file. A text comes from a file or through standard input: "
            "echo 'Your text.' | catchline summarize"
        )
    if names and not _is_input(names[0]):
        return names[0], names[1:]
    return default_model(say), names


def _local(name: str, model: str) -> str:
    """A file's own name, where it is given as an address; ``model`` is what shall summarize it, behind a blank."""
    if name.startswith(("http://", "https://")):
        raise ConfigError(f"catchline opens no web pages; save it first: curl -s {name} | catchline summarize{model}")
    return unquote(urlsplit(name).path) if name.startswith("file://") else name


def _is_input(name: str) -> bool:
    """Does a command's first name mean something to read? A file there is, or the name of one that is missing."""
    if is_method(name) or name in SHIPPED:
        return False
    return (
        name == "-"
        or name.startswith("hub:")
        or os.path.isfile(name)  # which unlike that of pathlib bears a whole text
        or (not os.path.exists(name) and (_suffix(name) in {*TEXT_SUFFIXES, *FORMAT_OF} or bool(unreadable(name))))
    )


def _suffix(name: str) -> str:
    """That of what may be compressed."""
    return Path(bare_name(Path(name))).suffix.lower()


def is_records(name: str, jsonl: bool = False) -> bool:
    """Is this input a file of records rather than one text? ``jsonl`` says so of standard input."""
    if name == "-":
        return jsonl
    return jsonl or Path(name).is_dir() or name.startswith("hub:") or _suffix(name) in FORMAT_OF


def documents_of(
    name: str, reading: DocumentOptions | None = None, *, jsonl: bool = False, on_skip: OnSkip | None = None
) -> Iterator[Record]:
    """The records of one input, whose summaries may be missing; a text file or standard input is one record.

    Bad records go to ``on_skip``, if there is one.
    """
    reading = reading or DocumentOptions()
    kind = "jsonl" if jsonl and reading.format == "auto" else reading.format
    if not is_records(name, kind != "auto"):
        label, origin = ("stdin", "standard input") if name == "-" else (Path(name).name, name)
        yield Record(_without_markup(name), id=label, origin=origin)
        return
    from catchline.data.records import ReadOptions, read_json_lines, read_with

    options = ReadOptions(reading.document_column, format=kind, skip_bad=reading.skip_bad, need_summary=False)
    if name == "-":
        if kind != "jsonl":
            raise ConfigError(f"Standard input is a text or JSON lines, not {kind}: save it, and name that file.")
        yield from read_json_lines(sys.stdin.buffer, "standard input", options, on_skip=on_skip)
    else:
        yield from read_with(name, options, on_skip=on_skip)


def _without_markup(name: str) -> str:
    """The prose of an input, whatever its format."""
    raw, suffix, place = _bytes_of(name), Path(name).suffix.lower(), "standard input" if name == "-" else name
    if suffix in READ_AS_BYTES or raw.startswith(b"%PDF-"):
        return read_bytes(raw, suffix if suffix in READ_AS_BYTES else ".pdf", place)[1]
    kind, said = as_prose(_decoded(raw, place), suffix)
    if kind == "page" and not said:
        raise DataError(f"{place} is a web page without text; perhaps a script would write it: save the page as text.")
    return said


def text_of(name: str) -> str:
    """The text of a file, or of standard input (``-``)."""
    return _decoded(_bytes_of(name), "standard input" if name == "-" else name)


def _bytes_of(name: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except FileNotFoundError:
        raise DataError(f"There is no file {name}.") from None
    except IsADirectoryError:
        raise DataError(f"{name} is a folder; name a file.") from None


def _decoded(raw: bytes, place: str) -> str:
    if other := unreadable(place, raw[:8]):
        raise DataError(other)
    if b"\0" in raw[:1_000_000]:
        raise DataError(f"{place} is not text: it holds NUL bytes.")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        byte = f"byte 0x{raw[error.start]:02X}"
        raise DataError(f"{place}, line {line}: not UTF-8: {byte}; save the file as UTF-8.") from None


def count_lines(inputs: list[str]) -> int | None:
    """How many lines there are to do, when that is quick to know."""
    if not all(name.endswith((".jsonl", ".ndjson")) and Path(name).is_file() for name in inputs):
        return None
    total = 0
    for name in inputs:
        with Path(name).open("rb") as file:
            total += sum(1 for _ in file)  # the last line may lack its end
    return total
