"""Which column is the document and which the summary: a published table, never a guess; and what formats deliver.

A column called exactly "document" or "summary" is just that. Beyond these, within each side the strong names win over
the weak ones; two names of the same strength are an error that lists the columns, and so is none. Names are compared
without case, spaces or dashes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from catchline.data.lines import BadRecordError
from catchline.errors import DataError, did_you_mean

# The names seen in public corpora (cnn_dailymail, xsum, samsum, dialogsum, multi_news, gigaword, aeslc,
# all-the-news, big_patent, arxiv, scitldr, billsum, amazon_reviews, orange_sum, xglue, thaisum, LCSTS, CSL).
NAMES = {  # side -> the names that come first, then and last
    "document": (
        "document",
        "article dialogue dialog text body content source src email_body news_body review_body short_text",
        "input description report abstract abst transcript story email",
    ),
    "summary": (
        "summary",
        "highlights tldr target tgt subject_line",
        "title headline subject abstract review_title news_title output label",
    ),
}

ID_NAMES = ("id", "guid", "fname", "paper_id", "doc_id", "document_id", "article_id", "bill_id")
_ID_LIKE = re.compile(r"key\Z|number\Z|.*_id\Z", re.DOTALL)  # if there is one only
_ID_OF_CAMELS = re.compile(r".*[a-z0-9]I[dD]\Z", re.DOTALL)
REFERENCE_NAMES = ("references", "summaries")
SENTENCE_NAMES = ("sentences",)
EXCEL_SEPARATOR = re.compile(r"\Asep=([,;|\t])\r?\n?")  # the line above the names that Excel does not show
LONGEST = 60  # what is longer is hardly a column's name, and is not shown whole
PUBLICATION_NAMES = ("publication", "publisher")
_NUMBERED_SUMMARY = re.compile(r"summary_?\d+\Z")


@dataclass(frozen=True, slots=True)
class Columns:
    """The chosen columns, as they are spelled in the file; ``None`` where the file has none."""

    document: str
    summary: str | None
    id: str | None = None
    references: tuple[str, ...] = ()
    sentences: str | None = None
    publication: str | None = None
    note: str = ""
    need_summary: bool = True  # false: single records may lack it

    def adapted(self, names: Sequence[str]) -> Columns:
        """The same document and summary, with the optional columns of a record that has other fields."""
        folded = {_fold(name): name for name in names}
        numbered = _numbered(names)
        references = tuple(filter(None, [_first(REFERENCE_NAMES, folded)]))
        return replace(
            self,
            id=_first(ID_NAMES, folded) or self._id_like(folded),
            references=numbered if self.summary in numbered else references,
            sentences=_first(SENTENCE_NAMES, folded),
            publication=_first(PUBLICATION_NAMES, folded),
        )

    def _id_like(self, folded: dict[str, str]) -> str | None:
        found = [name for key, name in folded.items() if _ID_LIKE.match(key) or _ID_OF_CAMELS.match(name.strip())]
        return found[0] if len(found) == 1 and found[0] not in (self.document, self.summary) else None

    def describe(self) -> str:
        """One sentence for the user."""
        summary = f"'{self.summary}'" if self.summary else "none"
        id_ = f", id: '{self.id}'" if self.id else ""
        return f"document: '{self.document}', summary: {summary}{id_}{self.note}"


_PARTS = frozenset(("split", "set", "fold", "partition"))  # of a data set, as columns say


class NoColumnError(DataError):
    """No column has a name of the table."""


def column_table() -> list[tuple[str, str, list[str]]]:
    """The published table, as ``catchline data columns`` prints it: side, strength, names."""
    orders = ("first", "then", "last")
    return [(side, order, tier.split()) for side in NAMES for order, tier in zip(orders, NAMES[side], strict=True)]


def _fold(name: str) -> str:
    return re.sub(r"[\s\-]+", "_", name.strip().lower())


def _first(names: Iterable[str], folded: dict[str, str]) -> str | None:
    return next((folded[name] for name in names if name in folded), None)


def _numbered(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in names if _NUMBERED_SUMMARY.match(_fold(name)))


def _given(name: str | None, names: Sequence[str], where: str) -> str | None:
    if name is not None and name not in names:
        raise DataError(f"{where}: there is no column '{name}'.{did_you_mean(name, names)} Columns: {listed(names)}.")
    if name is not None and names.count(name) > 1:
        raise DataError(f"{where}: several columns are called '{name}'; rename all but one. Columns: {listed(names)}.")
    return name


def _choose(side: str, names: Sequence[str], where: str, *, taken: str | None, required: bool = True) -> str | None:
    folded = [(_fold(name), name) for name in names if name != taken]
    named = f"{side}_column (--{side}-column, data.{side}_column)"
    for tier in NAMES[side]:
        fitting = [name for known in tier.split() for key, name in folded if key == known]
        if len(fitting) == 1:
            return fitting[0]
        if fitting and required:
            how = f"choose with {named}" if len(set(fitting)) > 1 else "rename all but one"
            raise DataError(f"{where}: the {side} could be any of {listed(fitting)}; {how}. Columns: {listed(names)}.")
    if not required:
        return None
    columns = listed(names) or "none"
    raise NoColumnError(f"{where}: no column is known to hold the {side}; name it with {named}. Columns: {columns}.")


def listed(names: Iterable[str]) -> str:
    """The first names, long ones shortened."""
    shown = [f"'{name[:LONGEST]}{'…' if len(name) > LONGEST else ''}'".replace("\n", " ") for name in names]
    return ", ".join(shown[:30]) + (f" and {len(shown) - 30} more" if len(shown) > 30 else "")


# ----------------------------------------------------------------------------------- what formats read with and deliver


@dataclass(frozen=True, slots=True)
class RawRecord:
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


RawRecords = Iterator[RawRecord | BadRecordError]


@dataclass(frozen=True, slots=True)
class TableOptions:
    """The user's columns, and where to say what was chosen."""

    document_column: str | None = None
    summary_column: str | None = None
    need_summary: bool = True
    on_choice: Callable[[str], object] = lambda _: None
    spelled: str = "{}_column"  # how who reads this spells "document_column" and "summary_column"

    def choose(self, names: Sequence[str], where: str) -> Columns:
        """Choose the columns among ``names``, and report the choice.

        Raises:
            DataError: a chosen column does not exist, none fits, or several fit equally well.
        """
        document = _given(self.document_column, names, where)
        document = document or _choose("document", names, where, taken=self.summary_column)
        assert document is not None
        summary, numbered = _given(self.summary_column, names, where), _numbered(names)
        known = " ".join(NAMES["summary"][:2]).split()
        if summary is None and numbered and not set(known).intersection(map(_fold, names)):
            summary = numbered[0]
        elif summary is None:
            summary = _choose("summary", names, where, taken=document, required=self.need_summary)
        own = self.document_column or self.summary_column
        document_column, summary_column = map(self.spelled.format, ("document", "summary"))
        note = "" if own else f" (detected; {document_column} and {summary_column} choose others)"
        columns = Columns(document, summary, note=note, need_summary=self.need_summary).adapted(names)
        parts = next((name for name in names if _fold(name) in _PARTS), None)
        note = f"; column '{parts}' is not read: parts are a file each (train, validation, test)" if parts else ""
        self.on_choice(f"{where}: {columns.describe()}{note}")
        return columns
