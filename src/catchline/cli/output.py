"""What a person sees: notes and progress on stderr, tables and JSON on stdout."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import TextIOWrapper
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from catchline.text.control import safe_print as print

if TYPE_CHECKING:
    from catchline.types import Summary

LOG_EVERY_SECONDS = 15.0
EXIT_INTERRUPTED = 130

# Endings whose readers would find something else than the lines that are written.
NO_LINES = {".csv", ".tsv", ".xlsx", ".ods", ".parquet", ".arrow", ".html", ".docx", ".gz", ".zst", ".db", ".sqlite"}


def as_lines(path: Path) -> Path:
    """The name that a file of JSON lines has in place of such a one."""
    from catchline.data.lines import bare_name

    return path.with_name(bare_name(path)).with_suffix(".jsonl")


def quiet() -> bool:
    """Was ``catchline --quiet`` (or ``CATCHLINE_QUIET``) given?"""
    return bool(os.environ.get("CATCHLINE_QUIET"))


def say(text: str) -> None:
    """Say on stderr what must be said, with ``--quiet`` too."""
    print(f"catchline: {text}", file=sys.stderr, flush=True)


def note(text: str) -> None:
    """Say something on stderr unless ``--quiet`` is given."""
    if not quiet():
        say(text)


def print_json(value: Any, indent: int | None = 2) -> None:
    """The result of a command for machines; ``indent=None`` for JSON lines."""
    print(json.dumps(value, ensure_ascii=not is_unicode(sys.stdout), indent=indent))


def is_unicode(stream: IO[str]) -> bool:
    """Can it be given every character?"""
    return "utf" in (getattr(stream, "encoding", None) or "utf-8").lower()


def print_result(as_json: bool, values: Any, text: str, indent: int | None = 2) -> None:
    """The result of a command: ``values`` as JSON for machines, or ``text`` for people."""
    print_json(values, indent) if as_json else print(text)


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1, width: int | None = None) -> str:
    """A table of plain characters, so that pipes, logs and tests read the same: columns two spaces apart below a header
    line; the first ``left`` columns flush left, the others right. What does not fit into ``width`` characters (those of
    the terminal, where there is one) stands below, beside the first columns again."""
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


def show_summaries(summaries: Iterable[Summary], *, words: bool = True, document: bool = False) -> None:
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
        show(summary, console, words=words, document=document)


@dataclass
class Skipped:
    """Counts the records that were skipped, and says it once at the end."""

    examples: list[str] = field(default_factory=list)
    total: int = 0

    def __call__(self, problem: Exception) -> None:
        self.total += 1
        if len(self.examples) < 5:
            self.examples.append(str(problem))

    def report(self) -> None:
        if self.total:
            more = [f"... and {self.total - len(self.examples)} more"] if self.total > len(self.examples) else []
            lines = [f"{self.total} record{'s' if self.total > 1 else ''} skipped:", *self.examples, *more]
            say("\n  ".join(lines))


class Progress:
    """Counts, and shows nothing. ``total`` may be unknown (None) and may change."""

    def __init__(self, description: str, total: float | None = None) -> None:
        self.description, self.total, self.completed, self.note = description, total, 0.0, ""

    def __call__(self, amount: float = 1) -> None:
        self.update(self.completed + amount)

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
        self._bar.update(
            self._task, completed=self.completed, total=self.total, description=self.description, note=self.note
        )

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
