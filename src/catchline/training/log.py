"""What leaves the loop while it runs: the log, trackers, and the callbacks of whoever started it.

``log.jsonl`` holds only what training determines, so a resumed run's log equals an uninterrupted one's byte for byte.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from accelerate import Accelerator

from catchline.errors import DataError
from catchline.training.checkpoint import TrainState

LOG = "log.jsonl"
SHOW_EVERY_SECONDS = 0.2

# how far training is: ``update(completed, total=, description=, note=)`` of a progress bar (`catchline.cli.io`)
ShowProgress = Callable[..., None]


def ignore(*arguments: object, **options: object) -> None:
    """The callback of those who do not want to know."""


def _to_stderr(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Callbacks:
    """What a run calls: with its progress, with each entry of ``log.jsonl``, and with sentences for a person."""

    show: ShowProgress = ignore
    on_log: Callable[[dict[str, Any]], None] = ignore
    on_message: Callable[[str], None] = _to_stderr


def read_log(path: Path) -> list[dict[str, Any]]:
    """The entries of a ``log.jsonl``; a last line cut off by a crash is left out. DataError where one is damaged."""
    entries = []
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
        try:
            entries.append(dict(json.loads(line).items()))
        except (ValueError, RecursionError, AttributeError):
            raise DataError(f"{path}:{number} is not a line of a training log; the file is damaged.") from None
    return entries


class RunLog:
    """The file, the trackers and the callbacks. Only the first process writes; the others keep the window."""

    def __init__(self, out: Path, state: TrainState, accelerator: Accelerator, callbacks: Callbacks) -> None:
        self._state, self._accelerator, self._callbacks = state, accelerator, callbacks
        self._file: IO[bytes] | None = None
        if accelerator.is_main_process:
            self._file = open(out / LOG, "ab")  # noqa: SIM115 - closed by `close`
            self._file.truncate(state.log_bytes)  # to the length that the checkpoint noted
        self._window_at = self._shown_at = time.perf_counter()
        self._read_tokens = self._rate = 0.0

    def update(
        self, values: dict[str, float], place: dict[str, Any], log_every: int, details: dict[str, float] | None = None
    ) -> None:
        """Take in one update's figures. Every ``log_every`` updates they become a line: the means of ``values`` (loss,
        gradient norm, objectives) since the last one, the sum of ``tokens``, and ``details`` as they are. The sums live
        in the training state, so a resumed run closes the same window."""
        window = self._state.window
        for name, value in values.items():
            window[name] = window.get(name, 0.0) + value
        window["updates"] = window.get("updates", 0) + 1
        self._read_tokens += values["tokens"]
        if self._state.update % log_every == 0:
            self.close_window(place, details)
        self._show(values["loss"])

    def close_window(self, place: dict[str, Any], details: dict[str, float] | None = None) -> None:
        """Write the window's line, if any update is in it."""
        window, self._state.window = self._state.window, {}
        count = window.pop("updates", 0)
        if not count:
            return
        tokens = int(window.pop("tokens"))
        means = {name: total / count for name, total in window.items()}
        self._write({"kind": "train", **place, **(details or {}), **means, "tokens": tokens})
        now = time.perf_counter()
        self._rate = self._read_tokens / max(now - self._window_at, 1e-9)
        self._window_at, self._read_tokens = now, 0.0

    def validation(self, values: dict[str, float], place: dict[str, Any], *, best: bool) -> None:
        self._write({"kind": "validation", **place, **values, "best": best})

    def sync(self) -> None:
        """Force the file to the disk and note its length in the training state."""
        if self._file:
            os.fsync(self._file.fileno())
            self._state.log_bytes = os.fstat(self._file.fileno()).st_size

    def close(self) -> None:
        if self._file:
            self._file.close()
        for tracker in self._accelerator.trackers:
            tracker.finish()

    def _write(self, entry: dict[str, Any]) -> None:
        if self._file:
            self._file.write(json.dumps(entry, ensure_ascii=False).encode() + b"\n")
            self._file.flush()
            self._callbacks.on_log(entry)
        if self._accelerator.trackers:
            prefix = "" if entry["kind"] == "train" else "validation/"
            numbers = {prefix + k: v for k, v in entry.items() if isinstance(v, float) and not isinstance(v, bool)}
            self._accelerator.log(numbers, step=entry["update"])

    def _show(self, loss: float) -> None:
        now = time.perf_counter()
        if now - self._shown_at >= SHOW_EVERY_SECONDS:
            self._shown_at = now
            rate = self._rate or self._read_tokens / max(now - self._window_at, 1e-9)
            self._callbacks.show(self._state.update, note=f"loss {loss:.3f}, {rate:,.0f} tokens/s")
