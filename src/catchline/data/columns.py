"""Which column is the document and which the summary: a published table, never a guess; and rows as records.

Within each side the strong names win over the weak ones; two names of the same strength are an error that lists the
columns, and so is none. Names are compared without case, spaces or dashes.

A list of strings in the document's column holds its sentences. In a summary's column called `JOINED` it holds one
summary's sentences, which are joined by line breaks; in any other it holds several reference summaries.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from catchline.config.schema import DataConfig
from catchline.data.lines import BadRecordError, check_text
from catchline.errors import DataError, did_you_mean
from catchline.types import Record

# The names seen in public corpora (cnn_dailymail, xsum, samsum, dialogsum, multi_news, gigaword, aeslc, all-the-news,
# big_patent, arxiv, scientific_papers, scitldr, billsum, amazon_reviews, orange_sum, xglue, thaisum, LCSTS, CSL).
NAMES = {  # side -> the names that come first, then and last
    "document": (
        "document",
        "article article_text dialogue dialog text body content source src email_body news_body review_body short_text",
        "input description report abstract abst transcript story email",
    ),
    "summary": (
        "summary",
        "highlights tldr target tgt subject_line abstract_text",
        "title headline subject abstract review_title news_title output label",
    ),
}
JOINED = ("highlights", "abstract_text", "abstract")
_ID_NAMES = ("id", "guid", "fname", "paper_id", "doc_id", "document_id", "article_id", "bill_id")
_ID_LIKE = re.compile(r"key|number|.*_id", re.DOTALL)  # if there is one only
_NUMBERED_SUMMARY = re.compile(r"summary_?\d+")
_SPLITS = frozenset(("split", "set", "fold", "partition"))  # columns that say which split a row is of
LONGEST = 60  # what is longer is hardly a column's name, and is not shown whole


class NoColumnError(DataError):
    """No column has a name of the table."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How to read (`catchline.data.records.read_records`), and where to say what was chosen.
    ``strip_publication_suffix`` cuts " - The New York Times" off summaries. ``min_human_score`` leaves out pairs that
    people rated lower (LCSTS); pairs without a rating stay."""

    document_column: str | None = None
    summary_column: str | None = None
    need_summary: bool = True
    format: str = "auto"
    skip_bad: bool = False
    strip_publication_suffix: bool = False
    min_human_score: int | None = None
    on_choice: Callable[[str], object] = lambda _: None

    @classmethod
    def of(cls, config: DataConfig) -> ReadOptions:
        """Those of a recipe's ``data`` section."""
        shared = cls.__dataclass_fields__.keys() & DataConfig.model_fields
        return cls(**{name: getattr(config, name) for name in shared})

    def choose(self, names: Sequence[str], where: str) -> tuple[str, str | None]:
        """The columns of the document and the summary among ``names``; reports the choice unless the names are ours.
        Raises DataError: a chosen column does not exist, none fits, or several fit equally well."""
        for name in filter(None, (self.document_column, self.summary_column)):
            if name not in names:
                suggestion = did_you_mean(name, names)
                raise DataError(f"{where}: there is no column '{name}'.{suggestion} Columns: {listed(names)}.")
        document = self.document_column or _named("document", names, where, self.summary_column)
        assert document is not None
        summary = self.summary_column or _named("summary", names, where, document, required=self.need_summary)
        split = next((name for name in names if _fold(name) in _SPLITS), None)
        id = _id_column(names, document, summary)
        choice = f"document: '{document}', summary: {(summary and repr(summary)) or 'none'}"
        choice += f", id: '{id}'" if id else ""
        choice += "" if self.document_column or self.summary_column else " (--document-column, --summary-column)"
        choice += f"; column '{split}' is not read: splits are files (train, validation, test)" if split else ""
        if split or (document, summary) != ("document", "summary"):
            self.on_choice(f"{where}: {choice}")
        return document, summary


def strip_publication_suffix(title: str, publication: str) -> str:
    """Cut the newspaper's name and the dash before it off the end of a headline; never the whole headline."""
    name = re.escape(publication.strip())
    return re.sub(rf"(?<=\S)\s+[-–—|]\s+(?:the )?{name}\s*\Z", "", title, flags=re.IGNORECASE) if name else title


def _fold(name: str) -> str:
    return re.sub(r"[\s\-]+", "_", name.strip().lower())


def _first(wanted: Iterable[str], names: Sequence[str]) -> str | None:
    folded = {_fold(name): name for name in names}
    return next((folded[name] for name in wanted if name in folded), None)


def _numbered(names: Sequence[str]) -> list[str]:
    return [name for name in names if _NUMBERED_SUMMARY.fullmatch(_fold(name))]


def _id_column(names: Sequence[str], document: str, summary: str | None) -> str | None:
    like = [name for name in names if _ID_LIKE.fullmatch(_fold(name))]
    only = like[0] if len(like) == 1 and like[0] not in (document, summary) else None
    return _first(_ID_NAMES, names) or only


@lru_cache
def _optional(names: tuple[str, ...], document: str, summary: str | None) -> tuple[Any, Any, Any, list[str]]:
    """The columns of the id, the publication, the sentences and further references."""
    numbered, several = _numbered(names), _first(("references", "summaries"), names)
    references = numbered if summary in numbered else [several] if several else []
    publication = _first(("publication", "publisher"), names)
    return _id_column(names, document, summary), publication, _first(("sentences",), names), references


def _named(side: str, names: Sequence[str], where: str, taken: str | None, *, required: bool = True) -> str | None:
    folded = [(_fold(name), name) for name in names if name != taken]
    option, columns = f"{side}_column (--{side}-column)", f"Columns: {listed(names) or 'none'}."
    for order, tier in enumerate(NAMES[side]):
        if order == 2 and side == "summary" and (numbered := _numbered(names)):
            return numbered[0]
        fitting = [name for known in tier.split() for key, name in folded if key == known]
        if len(fitting) == 1:
            return fitting[0]
        if fitting and required:
            raise DataError(f"{where}: the {side} could be any of {listed(fitting)}; choose with {option}. {columns}")
    if not required:
        return None
    if any(len(name) > LONGEST for name in names):
        columns += " Does the first line hold the names of the columns? If not, put one above it."
    raise NoColumnError(f"{where}: no column name is known for the {side}; choose one with {option}. {columns}")


def listed(names: Iterable[str]) -> str:
    """The first names, long ones shortened."""
    shown = [f"'{name[:LONGEST]}{'…' if len(name) > LONGEST else ''}'".replace("\n", " ") for name in names]
    return ", ".join(shown[:30]) + (f" and {len(shown) - 30} more" if len(shown) > 30 else "")


class Rows:
    """Rows as records. The first row chooses the columns; later rows may have other optional ones."""

    def __init__(self, options: ReadOptions, where: str) -> None:
        self._options, self._where = options, where
        self._chosen: tuple[str, str | None] | None = None

    def record(self, row: Any, origin: str, number: str) -> Record:
        """The record of a mapping of columns to values; ``number`` is its id if the row has none. Raises
        BadRecordError: a text is empty or cannot be used; DataError: the columns cannot be chosen."""
        if isinstance(row, BadRecordError):
            raise row
        if not isinstance(row, Mapping):
            raise BadRecordError(origin, f"{type(row).__name__} instead of an object")
        options, names = self._options, tuple(row)
        self._chosen = self._chosen or options.choose(names, self._where)
        document_column, summary_column = self._chosen
        id_column, publication_column, sentences_column, more_columns = _optional(names, *self._chosen)
        document, references = _strings(row, document_column, origin), list[str]()
        if summary_column and (options.need_summary or row.get(summary_column) is not None):
            references = _strings(row, summary_column, origin)
            if len(references) > 1 and _fold(summary_column) in JOINED:
                parts = (text.removeprefix("<S>").removesuffix("</S>").strip() for text in references)
                references = ["\n".join(parts)]
        more = [text for name in more_columns for text in _strings(row, name, origin)]
        summary, references = references[0] if references else "", _merged(references, more)
        id, publication = row.get(id_column), row.get(publication_column)
        id = number if id in (None, "") or isinstance(id, dict | list) or _is_nan(id) else str(id)
        for text in (*document, *references, id):
            check_text(origin, text)
        if options.strip_publication_suffix and isinstance(publication, str):
            summary, *references = (strip_publication_suffix(text, publication) for text in (summary, *references))
        references = list(filter(None, map(str.strip, references)))
        if not (whole := "\n".join(document).strip()):
            raise BadRecordError(origin, "empty document", "remove the record")
        if options.need_summary and not references:
            raise BadRecordError(origin, "empty summary", "remove the record")
        summary = summary.strip() or (references[0] if references else "")
        sentences = _strings(row, sentences_column, origin) if row.get(sentences_column) else []
        sentences = sentences or (document if len(document) > 1 else [])
        others = () if references == [summary] else tuple(references)
        return Record(whole, summary, id, others, tuple(sentences), origin)


def _merged(references: Sequence[str], more: list[str]) -> list[str]:
    """``references``, then the rest of ``more``. A list of all references holds the summary too, once, perhaps with
    other line breaks (a highlight a line); it stays first. Two people who wrote the same stay two references: ROUGE
    averages over them."""
    first = []
    for text in references:
        same = next((other for other in (text, *more) if other in more and other.split() == text.split()), None)
        if same is not None:
            more.remove(same)
        first.append(text if same is None else same)
    return first + more


def _strings(row: Mapping[str, Any], name: str, origin: str) -> list[str]:
    if name not in row:
        raise BadRecordError(origin, f"no field '{name}' (fields: {listed(map(str, row))})")
    value = row[name]
    if value is None or _is_nan(value):
        return []
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return [str(value)]
    values = value if isinstance(value, list | tuple) else [value]
    if (item := next((item for item in values if not isinstance(item, str)), "")) != "":
        holds = "holds" if values is value else "is"
        raise BadRecordError(origin, f"the field '{name}' {holds} {type(item).__name__} instead of text")
    return list(values)


def _is_nan(value: Any) -> bool:
    """NaN and Infinity are a cell without a value in JSON and Parquet."""
    return isinstance(value, float) and not math.isfinite(value)
