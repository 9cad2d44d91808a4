"""What every format reads with, and what it delivers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from laconic.data.columns import Columns, detect_columns


@dataclass(frozen=True, slots=True)
class Entry:
    """What a format delivers, before it is checked. ``references`` are all summaries; ``summary`` is given where what a
    model learns differs from the first of them in blanks and line breaks only."""

    document: str
    references: tuple[str, ...]
    id: str
    origin: str
    sentences: tuple[str, ...] = ()
    publication: str = ""
    human_score: int | None = None  # LCSTS parts II and III: how well people found the pair to match, 1 to 5
    summary: str = ""


@dataclass(frozen=True, slots=True)
class TableOptions:
    """The user's columns, and where to say what was chosen."""

    document_column: str | None = None
    summary_column: str | None = None
    need_summary: bool = True
    on_choice: Callable[[str], object] = lambda _: None

    def choose(self, names: Sequence[str], where: str) -> Columns:
        """Detect the columns and report the choice once."""
        columns = detect_columns(
            names,
            where=where,
            document=self.document_column,
            summary=self.summary_column,
            need_summary=self.need_summary,
        )
        self.on_choice(f"{where}: {columns.describe()}")
        return columns
