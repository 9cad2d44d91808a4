"""What was decoded, kept as JSON lines: one object a line, in a file that an interrupted job goes on with."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self, TextIO

from catchline.files import only_writer
from catchline.types import Record, Summary, references_of


def fingerprint(identity: str, records: Sequence[Record]) -> str:
    """A digest of what decides the predictions: the system with its settings, and the records."""
    digest = hashlib.sha256(identity.encode())
    for record in records:
        sentences = [list(record.sentences)] if record.sentences else []
        digest.update(json.dumps([record.id, record.document, *references_of(record), *sentences]).encode())
    return digest.hexdigest()


def prediction_of(summary: Summary, record: Record) -> dict[str, Any]:
    """What is kept of a decoded summary: enough to score, compare and read it again."""
    p_gens = [word.p_gen for word in summary.words if word.p_gen is not None]
    line: dict[str, Any] = {
        "id": record.id,
        "summary": summary.text,
        "references": list(references_of(record)),
        "score": summary.score,
        "log_prob": summary.log_prob,
        "finished": summary.finished,
        "tokens_read": summary.tokens_read,
        "tokens_given": summary.tokens_given,
    }
    if summary.reading:
        line["reading"] = summary.reading
    if p_gens:
        line["p_gen"] = sum(p_gens) / len(p_gens)
    return line


def file_name(system: str) -> str:
    """What the files of a system are called; those of others may look the same."""
    kept = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in system).strip("-.")
    return kept.encode()[-80:].decode(errors="ignore") or "system"


class Journal:
    """JSON lines that are on the disk when `add` returns; ``lines`` are those so far, an earlier process's first.

    A line that a crash cut short is dropped, and so is all of a file whose first line is not ``header``. Without
    ``path`` lines are kept in memory only.

    Raises:
        FolderInUseError: another process writes this file.
    """

    def __init__(self, path: Path | None, header: Mapping[str, Any] | None = None) -> None:
        self.lines: list[dict[str, Any]] = []
        self._file: TextIO | None = None
        self._open = ExitStack()
        if path is None:
            return
        self._open.enter_context(only_writer(path))
        first, *old = path.read_bytes().splitlines(keepends=True) if path.is_file() else [b""]
        with suppress(ValueError):  # a line that was cut short, which has no end either
            if first == as_lines([header or {}]).encode():
                self.lines.extend(json.loads(line) for line in old if line.endswith(b"\n"))
        path.write_text(as_lines([header or {}, *self.lines]), encoding="utf-8")
        self._file = self._open.enter_context(path.open("a", encoding="utf-8"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def add(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Append ``lines``."""
        new = [dict(line) for line in lines]
        self.lines += new
        if self._file is not None:
            self._file.write(as_lines(new))
            self._file.flush()
            os.fsync(self._file.fileno())


def as_lines(values: Iterable[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a file of JSON lines that is complete."""
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]
