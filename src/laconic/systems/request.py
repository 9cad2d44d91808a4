"""What is to be done with each record of a job, and a summarizer that does it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from laconic.errors import DataError, LaconicError
from laconic.summarizer import WINDOW_BATCHES, Summarizer
from laconic.systems.extractive import Progress
from laconic.types import Record

Note = Callable[[Exception], object]


@dataclass(frozen=True)
class Request:
    """What is to be done with each record."""

    model: str
    device: str = "cpu"
    overrides: Mapping[str, Any] = field(default_factory=dict)
    explain: bool = False
    batch_size: int = 16
    skip_bad: bool = False
    always_write: bool = False
    trust_code: bool = False

    @property
    def window(self) -> int:
        """Records a window."""
        return WINDOW_BATCHES * self.batch_size


class SummaryJob:
    """A summarizer with a request. Opening it raises what `Summarizer.from_pretrained` raises."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.summarizer = Summarizer.from_pretrained(
            request.model, device=request.device, trust_code=request.trust_code
        )

    def run(
        self, records: Iterable[Record], advance: Progress | None = None, note: Note | None = None, first: int = 1
    ) -> Iterator[Any]:
        """Summaries in order; ``None`` for a record that was skipped. They are numbered from ``first``."""

        def skipped(record: Record, error: LaconicError) -> None:
            where = "" if not record.origin or record.origin in str(error) else f"{record.origin}: "
            if note is not None:
                note(DataError(f"{where}{error}"))

        return self.summarizer.stream(
            records,
            explain=self.request.explain,
            batch_size=self.request.batch_size,
            progress=advance,
            on_error="skip" if self.request.skip_bad else "raise",
            on_skip=skipped,
            always_write=self.request.always_write,
            first=first,
            **self.request.overrides,
        )
