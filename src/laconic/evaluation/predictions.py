"""The file of predictions: one JSON object a line, in the order of the records, complete or absent.

While a split is being decoded the lines go to ``NAME.partial``, whose first line says what they are the
predictions of. An interrupted evaluation of the same system on the same records goes on behind the last
complete line; anything else starts over. Only a finished file gets its name.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from laconic.files import write_text
from laconic.types import Record, Summary, references_of


def fingerprint(identity: str, records: Sequence[Record]) -> str:
    """A digest of what decides the predictions: the system with its settings, and the records."""
    digest = hashlib.sha256(identity.encode())
    for record in records:
        digest.update(json.dumps([record.id, record.document, *references_of(record)]).encode())
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


class PredictionFile:
    """Predictions on their way to ``path`` (None: kept in memory only).

    ``lines`` are those that exist already; `add` appends, `finish` gives the file its name.
    """

    def __init__(self, path: Path | None, digest: str) -> None:
        self.path = path
        self.lines: list[dict[str, Any]] = []
        self._digest = digest
        self._file: TextIO | None = None
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._open(path.with_name(path.name + ".partial"))

    def __enter__(self) -> PredictionFile:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Append predictions; they are on the disk when this returns."""
        new = [dict(line) for line in lines]
        self.lines += new
        if self._file is not None:
            self._file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in new)
            self._flush(self._file)

    def finish(self) -> None:
        """Give the complete file its name, replacing an older one."""
        if self.path is None or self._file is None:
            return
        self._file.close()
        self._file = None
        write_text(self.path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in self.lines))
        self.path.with_name(self.path.name + ".partial").unlink(missing_ok=True)

    def _open(self, partial: Path) -> None:
        header = json.dumps({"predictions_of": self._digest})
        kept = header.encode() + b"\n"
        if partial.is_file():
            old = partial.read_bytes().splitlines(keepends=True)
            if old and old[0] == kept:
                for raw in old[1:]:
                    line = _complete(raw)
                    if line is None:
                        break
                    self.lines.append(line)
                    kept += raw
        partial.write_bytes(kept)
        self._file = partial.open("a", encoding="utf-8")

    @staticmethod
    def _flush(file: TextIO) -> None:
        file.flush()
        os.fsync(file.fileno())


def _complete(raw: bytes) -> dict[str, Any] | None:
    """The object of a whole line; None for one that a crash cut short."""
    if not raw.endswith(b"\n"):
        return None
    try:
        line = json.loads(raw)
    except ValueError:
        return None
    return line if isinstance(line, dict) else None
