"""Which column is the document and which the summary: a published table, never a guess; and rows as records.

Within each side the strong names win over the weak ones; two names of the same strength are an error that lists the
columns, and so is none. Names are compared without case, spaces or dashes.

A list of strings in the document's column holds its sentences. In a summary's column called `JOINED` it holds one
summary's sentences, which are joined by line breaks; in any other it holds several reference summaries.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
_ID_LIKE = re.compile(r"key|number|.*_id|.*[a-z0-9]I[dD]", re.DOTALL)  # if there is one only
_NUMBERED_SUMMARY = re.compile(r"summary_?\d+")
_SPLITS = frozenset(("split", "set", "fold", "partition"))  # columns that say which split a row is of
LONGEST = 60  # what is longer is hardly a column's name, and is not shown whole
Records = Iterator[Record | BadRecordError]  # what a format delivers


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

    def record(
        self,
        origin: str,
        id: str,
        document: str,
        references: Sequence[str],
        *,
        sentences: Sequence[str] = (),
        summary: str = "",
        publication: str = "",
    ) -> Record:
        """A record of checked texts. ``summary`` is given where what a model learns differs from the first reference.
        Raises BadRecordError: a text that cannot be used, or an empty document or summary."""
        for text in (document, *references, id):
            check_text(origin, text)
        if self.strip_publication_suffix:
            references = [strip_publication_suffix(text, publication) for text in references]
            summary = strip_publication_suffix(summary, publication)
        document, references = document.strip(), tuple(filter(None, map(str.strip, references)))
        if not document:
            raise BadRecordError(origin, "empty document", "remove the record")
        if self.need_summary and not references:
            raise BadRecordError(origin, "empty summary", "remove the record")
        summary = summary.strip() or (references[0] if references else "")
        return Record(document, summary, id, () if references == (summary,) else references, tuple(sentences), origin)

    def choose(self, names: Sequence[str], where: str) -> tuple[str, str | None]:
        """The columns of the document and the summary among ``names``; reports the choice unless the names are ours.
        Raises DataError: a chosen column does not exist, none fits, or several fit equally well."""
        document = _given(self.document_column, names, where)
        document = document or _named("document", names, where, taken=self.summary_column)
        assert document is not None
        summary, numbered = _given(self.summary_column, names, where), _numbered(names)
        known = " ".join(NAMES["summary"][:2]).split()
        if summary is None and numbered and not set(known).intersection(map(_fold, names)):
            summary = numbered[0]
        elif summary is None:
            summary = _named("summary", names, where, taken=document, required=self.need_summary)
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


def column_table() -> list[tuple[str, str, list[str]]]:
    """The published table, as ``catchline data columns`` prints it: side, strength, names."""
    orders = ("first", "then", "last")
    return [(side, order, tier.split()) for side in NAMES for order, tier in zip(orders, NAMES[side], strict=True)]


def _fold(name: str) -> str:
    return re.sub(r"[\s\-]+", "_", name.strip().lower())


def _first(wanted: Iterable[str], names: Sequence[str]) -> str | None:
    folded = {_fold(name): name for name in names}
    return next((folded[name] for name in wanted if name in folded), None)


def _numbered(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in names if _NUMBERED_SUMMARY.fullmatch(_fold(name)))


def _id_column(names: Sequence[str], document: str, summary: str | None) -> str | None:
    like = [n for n in names if _ID_LIKE.fullmatch(_fold(n)) or _ID_LIKE.fullmatch(n.strip())]
    only = like[0] if len(like) == 1 and like[0] not in (document, summary) else None
    return _first(_ID_NAMES, names) or only


def _given(name: str | None, names: Sequence[str], where: str) -> str | None:
    if name is not None and name not in names:
        raise DataError(f"{where}: there is no column '{name}'.{did_you_mean(name, names)} Columns: {listed(names)}.")
    if name is not None and names.count(name) > 1:
        raise DataError(f"{where}: several columns are called '{name}'; rename all but one. Columns: {listed(names)}.")
    return name


def _named(side: str, names: Sequence[str], where: str, *, taken: str | None, required: bool = True) -> str | None:
    folded = [(_fold(name), name) for name in names if name != taken]
    option, columns = f"{side}_column (--{side}-column)", f"Columns: {listed(names) or 'none'}."
    for tier in NAMES[side]:
        fitting = [name for known in tier.split() for key, name in folded if key == known]
        if len(fitting) == 1:
            return fitting[0]
        if fitting and required:
            how = f"choose with {option}" if len(set(fitting)) > 1 else "rename all but one"
            raise DataError(f"{where}: the {side} could be any of {listed(fitting)}; {how}. {columns}")
    if not required:
        return None
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
        self._optional: dict[tuple[str, ...], tuple[Any, ...]] = {}
        self._lists_named = False

    def choose(self, names: Sequence[str]) -> tuple[str, str | None]:
        """The columns of document and summary, chosen at the first call."""
        self._chosen = self._chosen or self._options.choose(names, self._where)
        return self._chosen

    def record(self, row: Any, origin: str, number: str) -> Record | BadRecordError:
        """The record of a mapping of columns to values; ``number`` is its id if the row has none."""
        if not isinstance(row, Mapping):
            return BadRecordError(origin, f"{type(row).__name__} instead of an object")
        fields = tuple(row)
        if fields not in self._optional:
            document, summary = self.choose(fields)
            numbered = _numbered(fields)
            references = numbered if summary in numbered else [_first(("references", "summaries"), fields)]
            publication, sentences = _first(("publication", "publisher"), fields), _first(("sentences",), fields)
            self._optional[fields] = (_id_column(fields, document, summary), references, sentences, publication)
        try:
            return self._mapped(row, origin, number, *self._optional[fields])
        except BadRecordError as problem:
            return problem

    def _mapped(
        self, row: Mapping[str, Any], origin: str, number: str, id_: str, names: list[str], sentence: str, paper: str
    ) -> Record:
        document_column, summary_column = self.choose(())
        document = _strings(row, document_column, origin)
        references: list[str] = []
        if summary_column and (self._options.need_summary or row.get(summary_column) is not None):
            references = self._one_or_several(_strings(row, summary_column, origin), summary_column)
        more = [text for name in names if row.get(name) is not None for text in _strings(row, name, origin)]
        summary = references[0] if references else ""
        # A list of all references holds the summary too, once, perhaps with other line breaks (a highlight a line);
        # it stays first. Two people who wrote the same stay two references: ROUGE averages over them.
        for place, text in enumerate(references):
            same = next((other for other in (text, *more) if other in more and other.split() == text.split()), None)
            if same is not None:
                more.remove(same)
                references[place] = same
        sentences = _strings(row, sentence, origin) if row.get(sentence) else []
        id, publication = row.get(id_), row.get(paper)
        return self._options.record(
            origin,
            number if id in (None, "") or isinstance(id, dict | list) or _is_nan(id) else str(id),
            "\n".join(document),
            [*references, *more],
            sentences=sentences or (document if len(document) > 1 else ()),
            summary=summary,
            publication=publication if isinstance(publication, str) else "",
        )

    def _one_or_several(self, texts: list[str], name: str) -> list[str]:
        """The summaries that a list in the summary's column holds (`JOINED`); says so once."""
        if len(texts) < 2:
            return texts
        joined = _fold(name) in JOINED
        if not self._lists_named:
            self._lists_named = True
            read = "one summary, a sentence each" if joined else "several references, of which the first is learnt"
            self._options.on_choice(f"{self._where}: the lists in '{name}' are read as {read}.")
        return ["\n".join(text.removeprefix("<S>").removesuffix("</S>").strip() for text in texts)] if joined else texts


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
