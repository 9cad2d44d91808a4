"""What commands read and what a person sees: texts and records in; notes and progress on stderr, results on stdout."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from catchline.cli.main import note, quiet, say
from catchline.config.names import DEFAULT, SHIPPED
from catchline.data.lines import bare_name, decoded, document_text, unreadable
from catchline.data.records import FORMAT_OF, ReadOptions, SkipCounter, read_json_lines, read_with
from catchline.errors import ConfigError, DataError
from catchline.summarizer.extractive import is_method
from catchline.summarizer.summarize import LANGUAGE_MODEL
from catchline.text.control import json_line
from catchline.text.control import safe_print as print
from catchline.text.markup import MARKDOWN, READ_AS_BYTES, SUBTITLES
from catchline.types import Record

if TYPE_CHECKING:
    from catchline.cli.options import DocumentOptions
    from catchline.config.schema import DataConfig
    from catchline.types import Summary

LOG_EVERY_SECONDS = 15.0
TEXT_SUFFIXES = {".txt", ".rst", *MARKDOWN, *SUBTITLES, *READ_AS_BYTES}
# Endings whose readers would find something else than the lines that are written.
TABLES = {".csv": ",", ".tsv": "\t"}
NO_LINES = {".xlsx", ".ods", ".parquet", ".arrow", ".html", ".docx", ".gz", ".zst", ".db", ".sqlite"}
MODELS = {".onnx", ".pt", ".bin", ".safetensors", ".zip", ".tar"}
FILES = {*NO_LINES, *TEXT_SUFFIXES, *TABLES, *MODELS, ".json", ".jsonl", ".tex"}
OnSkip = Callable[[Exception], object]


def check_output(option: str, path: Path | None, read: Iterable[str | Path]) -> None:
    """Refuse to write over what a command reads, or where there is no folder."""
    if path is not None and not path.parent.is_dir():
        raise ConfigError(f"There is no folder {path.parent} for {path.name}.")
    if path is not None and path.is_file() and any(path.samefile(name) for name in filter(os.path.exists, read)):
        raise ConfigError(f"{path} is an input of this command; give {option} another file.")


def check_folder(path: Path | None) -> None:
    """Refuse a folder that has the name of a file."""
    if path is not None and path.suffix.lower() in FILES and not path.exists():
        raise ConfigError(f"{path}: a folder is written; name it {path.with_suffix('')}.")


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
    was skipped. ``advance`` is called after each record."""
    how, skipped = options if isinstance(options, ReadOptions) else ReadOptions.of(options), SkipCounter()
    for record in islice(read_with(path, how, on_skip=skipped, on_choice=None if silent else note), most):
        yield record
        if advance is not None:
            advance()
    if skipped.total and not silent:
        note(skipped.describe())


def records_of(path: str | Path, options: ReadOptions | DataConfig, most: int | None = None) -> list[Record]:
    """The same as a list, which is not empty."""
    records = list(stream_records(path, options, most=most))
    if not records:
        raise DataError(f"{path} holds no records.")
    return records


def model_and_inputs(names: list[str]) -> tuple[str, list[str]]:
    """The first name is a model's unless it is that of an input; the others are inputs. Without a model it is the
    bundled one."""
    if not names:
        return DEFAULT, []
    if "" in names:
        raise ConfigError("An argument is empty, perhaps an unset variable: name a file or model, or leave it out.")
    with_model = names[0].startswith(LANGUAGE_MODEL) or ("://" not in names[0] and not _is_input(names[0]))
    for number, name in enumerate(names):
        if name.startswith(("http://", "https://")):
            command = f"catchline summarize{f' {names[0]}' if with_model else ''}"
            raise ConfigError(f"catchline does not download pages; save it first: curl -s {name} | {command}")
        if name.startswith("file://"):
            names[number] = unquote(urlsplit(name).path)
    for name in names[1:]:
        is_folder = any(os.path.isfile(f"{name}/{file}") for file in ("config.json", "recipe.yaml"))
        if is_folder or (not os.path.exists(name) and (is_method(name) or name in SHIPPED)):
            raise ConfigError(f"{name} is a model or run; name the model before the files.")
    if any(mark.isspace() for mark in names[0]) and not os.path.exists(names[0]):
        raise ConfigError(
            f"'{names[0][:60]}' is neither a model nor a file. Give a text as a file or on standard input: "
            "echo 'Your text.' | catchline summarize"
        )
    return (names[0], names[1:]) if with_model else (DEFAULT, names)


def _is_input(name: str) -> bool:
    """Does a command's first name mean something to read? A file there is, or the name of one that is missing."""
    if is_method(name) or name in SHIPPED:
        return False
    if (
        name == "-" or name.startswith("hub:") or os.path.isfile(name)
    ):  # which unlike that of pathlib bears a whole text
        return True
    return not os.path.exists(name) and (_suffix(name) in {*TEXT_SUFFIXES, *FORMAT_OF} or bool(unreadable(name)))


def _suffix(name: str) -> str:
    """That of what may be compressed."""
    return Path(name.removesuffix(".gz").removesuffix(".zst")).suffix.lower()


def is_records(name: str, jsonl: bool = False) -> bool:
    """Is this input a file of records rather than one text? ``jsonl`` says so of standard input."""
    return jsonl or (name != "-" and (name.startswith("hub:") or Path(name).is_dir() or _suffix(name) in FORMAT_OF))


def documents_of(
    name: str, reading: DocumentOptions, *, jsonl: bool = False, on_skip: OnSkip | None = None
) -> Iterator[Record]:
    """The records of one input, whose summaries may be missing; a text file or standard input is one record. Bad
    ones go to ``on_skip``, if there is one."""
    kind = "jsonl" if jsonl and reading.format == "auto" else reading.format
    if not is_records(name, kind != "auto"):
        label, origin = ("stdin", "standard input") if name == "-" else (Path(name).name, name)
        try:
            yield Record(document_text(_bytes_of(name), origin)[1], id=label, origin=origin)
        except DataError as error:
            if on_skip is None or not reading.skip_bad:
                raise
            on_skip(error)
        return
    options = ReadOptions(reading.document_column, format=kind, skip_bad=reading.skip_bad, need_summary=False)
    if name != "-":
        yield from read_with(name, options, on_skip=on_skip)
    elif kind == "jsonl":
        yield from read_json_lines(sys.stdin.buffer, "standard input", options, on_skip=on_skip)
    else:
        raise ConfigError(f"Standard input is a text or JSON lines, not {kind}: save it, and name that file.")


def text_of(name: str) -> str:
    """The text of a file, or of standard input (``-``)."""
    return decoded(_bytes_of(name), "standard input" if name == "-" else name)


def _bytes_of(name: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except FileNotFoundError:
        raise DataError(f"There is no file {name}.") from None
    except IsADirectoryError:
        raise DataError(f"{name} is a folder; name a file.") from None


def count_lines(inputs: list[str]) -> int | None:
    """How many lines there are to do, when that is quick to know."""
    if not all(name.endswith((".jsonl", ".ndjson")) and Path(name).is_file() for name in inputs):
        return None
    return sum(sum(1 for _ in Path(name).open("rb")) for name in inputs)  # the last line may lack its end


class Skipped(SkipCounter):
    """Says once, at the end, which records were skipped."""

    def report(self) -> None:
        if self.total:
            more = [f"... and {self.total - len(self.examples)} more"] if self.total > len(self.examples) else []
            lines = [f"{self.total} record{'s' if self.total > 1 else ''} skipped:", *self.examples, *more]
            say("\n  ".join(lines))


def as_lines(path: Path) -> Path:
    """The name that a file of JSON lines has instead of such a one."""
    return path.with_name(bare_name(path)).with_suffix(".jsonl")


def print_json(value: Any, indent: int | None = 2) -> None:
    """The result of a command for machines; ``indent=None`` for JSON lines."""
    plain = not is_unicode(sys.stdout)
    print(json.dumps(value, ensure_ascii=plain, indent=indent) if plain or indent else json_line(value))


def is_unicode(stream: IO[str]) -> bool:
    """Can it be given every character?"""
    return "utf" in (getattr(stream, "encoding", None) or "utf-8").lower()


def print_result(as_json: bool, values: Any, text: str, indent: int | None = 2) -> None:
    """The result of a command: ``values`` as JSON for machines, or ``text`` for people."""
    print_json(values, indent) if as_json else print(text)


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1, width: int | None = None) -> str:
    """A table of plain characters: columns two spaces apart below a header line; the first ``left`` flush left. What
    does not fit into ``width`` characters (those of the terminal, where there is one) stands below, beside the first
    columns again."""
    from rich.cells import cell_len  # Han characters take two places

    lines = [list(header), *[list(row) for row in rows]]
    widths = [max(cell_len(line[column]) for line in lines) for column in range(len(header))]
    room = width or (shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize)
    blocks = [list(range(left))]
    for column in range(left, len(header)):
        if len(blocks[-1]) > left and sum(widths[one] + 2 for one in [*blocks[-1], column]) > room + 2:
            blocks.append(list(range(left)))
        blocks[-1].append(column)

    def render(line: Sequence[str], block: Sequence[int]) -> str:
        blanks = {one: " " * (widths[one] - cell_len(line[one])) for one in block}
        cells = (line[one] + blanks[one] if one < left else blanks[one] + line[one] for one in block)
        return "  ".join(cells).rstrip()

    lines.insert(1, ["-" * size for size in widths])
    return "\n\n".join("\n".join(render(line, block) for line in lines) for block in blocks)


def show_summaries(summaries: Iterable[Summary], *, document: bool = False) -> None:
    """The terminal view of explained summaries, one below the other."""
    from rich.console import Console

    from catchline.explain.terminal import show

    class Printer(Console):
        def on_broken_pipe(self) -> None:  # of rich's own accord the process would end with 1
            raise BrokenPipeError

    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # the console knows of UTF-8 only whether it is
    console = Printer(highlight=False, soft_wrap=not sys.stdout.isatty())
    for number, summary in enumerate(summaries):
        if number:
            console.print()
        show(summary, console, words=True, document=document)


class Progress:
    """Counts, and shows nothing. ``total`` may be unknown (None) and may change."""

    def __init__(self, description: str, total: float | None = None) -> None:
        self.description, self.total, self.completed, self.note = description, total, 0.0, ""

    def __call__(self, amount: float = 1) -> None:
        self.completed += amount
        self.show()

    advance = __call__

    def update(
        self,
        completed: float | None = None,
        total: float | None = None,
        description: str | None = None,
        note: str | None = None,
    ) -> None:
        """Set what is given; ``note`` is a short text at the end of the line, such as the loss."""
        given = {"completed": completed, "total": total, "description": description, "note": note}
        vars(self).update({name: value for name, value in given.items() if value is not None})
        self.show()

    def show(self) -> None: ...
    def stop(self) -> None: ...  # called once, also after an error


class LineProgress(Progress):
    """For log files and pipes: a line at the start, one every 15 seconds, and one at the end."""

    def __init__(self, description: str, total: float | None = None) -> None:
        super().__init__(description, total)
        self._started_at, self._last = time.monotonic(), ""
        self.stop()

    def show(self) -> None:
        if time.monotonic() - self._shown_at >= LOG_EVERY_SECONDS:
            self.stop()

    def stop(self) -> None:
        self._shown_at = time.monotonic()
        count = f"{self.completed:,.0f}" + (f" of {self.total:,.0f}" if self.total else "")
        text = f"{self.description}: {count}{', ' + self.note if self.note else ''}"
        if text != self._last:
            print(f"{text} ({self._shown_at - self._started_at:.0f} s)", file=sys.stderr, flush=True)
        self._last = text


class BarProgress(Progress):
    """For terminals: rich's bar with the count, the time spent and the time left."""

    def __init__(self, description: str, total: float | None = None) -> None:
        from rich import progress as rich
        from rich.console import Console

        super().__init__(description, total)
        columns: list[Any] = ["{task.description}", rich.BarColumn(bar_width=30), rich.MofNCompleteColumn()]
        columns += [rich.TimeElapsedColumn(), rich.TimeRemainingColumn(), "{task.fields[note]}"]
        self._bar = rich.Progress(*columns, console=Console(stderr=True), redirect_stdout=False)
        self._task = self._bar.add_task(description, total=total, note="")
        self._bar.start()

    def show(self) -> None:
        shown = {name: vars(self)[name] for name in ("completed", "total", "description", "note")}
        self._bar.update(self._task, **shown)

    def stop(self) -> None:
        self._bar.stop()


@contextmanager
def progress(description: str, total: float | None = None, *, silent: bool = False) -> Iterator[Progress]:
    """Show the progress of something long on stderr: a bar on a terminal, else a line now and then, nothing if
    ``silent`` or with ``--quiet``. The value is also a callback, for functions that take one."""
    kind: type[Progress] = Progress if silent or quiet() else BarProgress if sys.stderr.isatty() else LineProgress
    shown = kind(description, total)
    try:
        yield shown
    finally:
        shown.stop()
