"""A `Summary` as plain JSON values and back, so that stored predictions can be shown again anywhere."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from catchline.errors import DataError
from catchline.explain.chunks import read_to
from catchline.metrics.faithfulness import CLAIMS, SupportReport, check_support
from catchline.types import Chunk, Summary, SummaryToken, SummaryWord

DIGITS = 5
ALWAYS = ("model", "score", "log_prob", "tokens_read", "tokens_given", "truncated", "finished")
_summaries = cache(lambda: TypeAdapter(Summary))  # made when the first is read
WHERE_KNOWN = ("confidence", "facts", "out_of_domain", "extracted", "terms", "reading")
READING = ("chunks_read", "chunks", "words_read", "words")  # what is always said of reading
ROUNDING = 1e-3  # by which a sum of probabilities may miss 1


def to_dict(summary: Summary, *, document: bool = True, attention: bool = True) -> dict[str, Any]:
    """The summary as JSON values, rounded to five digits; its two large parts can be left out."""
    values: dict[str, Any] = {"id": summary.id, "summary": summary.text}
    values |= {name: _plain(getattr(summary, name)) for name in ALWAYS}
    for name in WHERE_KNOWN:
        value = getattr(summary, name)
        if value not in (None, "", (), {}) and (attention or name != "facts"):
            values[name] = _plain(value)
    if summary.words:
        values["words"] = [_word_to_dict(word, attention) for word in summary.words]
        if attention:
            values["source_offsets"] = [list(span) for span in summary.source_offsets]
            if summary.chunks:
                values["chunks"] = chunks_to_list(summary.chunks)
        if summary.chunks and summary.truncated:  # the offsets may be those of the chunks read only
            values["read_to"] = read_to(summary)
    if document:
        values["document"] = summary.document
    for name in ("alternatives", "parts"):
        if others := getattr(summary, name):
            values[name] = [to_dict(one, document=False, attention=False) for one in others]
    return values


def support_of(summary: Summary) -> SupportReport | None:
    """What of the summary its document supports; None without a document."""
    return check_support(summary.text, summary.document) if summary.document else None


def support_to_dict(report: SupportReport) -> dict[str, Any]:
    """The report as JSON values; ``rate`` is null where there was no number, date or name to compare."""
    kinds = [claim.kind for claim in report.claims]
    checked = {kind: kinds.count(kind) for kind in (*CLAIMS, "word")}
    values: dict[str, Any] = {"checked": checked, "unsupported": [], "new_words": [], "supported": []}
    for claim in report.claims:
        entry: dict[str, Any] = {"kind": claim.kind, "text": claim.text, "start": claim.start, "end": claim.end}
        if claim.source is not None:
            values["supported"].append(entry | {"source": list(claim.source)})
        else:
            values["new_words" if claim.kind == "word" else "unsupported"].append(entry)
    compared = len(kinds) - checked["word"]
    values["rate"] = round(1 - len(values["unsupported"]) / compared, 4) if compared else None
    return values


def from_dict(values: Mapping[str, Any]) -> Summary:
    """The summary that `to_dict` described. Raises DataError: not such a record."""
    try:
        names = {n: str(values[n]) for n in ("id", "model", "extracted") if values.get(n) is not None}
        alternatives, parts = (tuple(map(from_dict, values.get(name) or ())) for name in ("alternatives", "parts"))
        own = _given({**values, **names, "text": values["summary"], "alternatives": (), "parts": ()})
        found = replace(_summaries().validate_python(own), alternatives=alternatives, parts=parts)
        if problem := next(_problems(found), ""):
            raise ValueError(problem)
        return found
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        said = f"{type(error).__name__}: {error}"
        if isinstance(error, ValidationError):
            first = error.errors()[0]
            said = f"{'.'.join(map(str, first['loc']))}: {first['msg'][:1].lower()}{first['msg'][1:]}"
        raise DataError(f"This is not a stored summary ({said}); `catchline summarize --json` writes them.") from None


def _problems(summary: Summary) -> Iterator[str]:
    """What does not fit together, though every part is of the right kind."""
    words, length = summary.words, len(summary.text)
    if any(not 0 <= word.start <= word.end <= length for word in words):
        yield f"a word outside of the summary's {length} characters"
    if lacking := [name for name in READING if summary.reading and name not in summary.reading]:
        yield f"reading lacks {', '.join(lacking)}"
    steps: list[SummaryWord | SummaryToken] = [*words, *(token for word in words for token in word.tokens)]
    shares = [share for step in steps for share in (step.probability, step.copy_share, step.p_gen or 0.0)]
    if any(not -ROUNDING <= share <= 1.0 + ROUNDING for share in (*shares, summary.confidence or 0.0)):
        yield "a probability that is not from 0 to 1"
    spans = [*summary.source_offsets, *((chunk.start, chunk.end) for chunk in summary.chunks)]
    sources = [word.sources for word in words]
    sources += [listed for word in words for token in word.tokens for listed in token.sources.values()]
    spans += [(source.start, source.end) for listed in sources for source in listed]
    length = len(summary.document)
    if summary.document and any(not 0 <= start <= end <= length for start, end in spans):
        yield f"a place outside of the document's {length} characters"
    if len({tuple(word.maps) for word in words}) > 1:
        yield "words with different maps"
    rows = [weights for word in words for weights in (word.attention, *word.maps.values())]
    lengths = {len(row) for row in rows}
    if lengths - {0} and lengths != {len(summary.source_offsets)}:  # extractive methods attend to nothing
        yield f"attention over other than the {len(summary.source_offsets)} source_offsets"
    if any(len(chunk.weights) != len(words) for chunk in summary.chunks):
        yield f"a chunk whose weights are not those of the {len(words)} words"


def chunks_to_list(chunks: Iterable[Chunk]) -> list[dict[str, Any]]:
    """The chunks as JSON values; ``read`` is left out where every chunk was read for every word."""
    return [{name: part for name, part in _plain(chunk).items() if part is not None} for chunk in chunks]


def _word_to_dict(word: SummaryWord, attention: bool) -> dict[str, Any]:
    values: dict[str, Any] = _plain(word)
    for name in ("attention", "maps", "figures", "tokens"):
        if not values[name] or (name in ("attention", "maps") and not attention):
            del values[name]
    return values


def _plain(value: Any) -> Any:
    """JSON values for a record of ours: its fields by name, lists, and numbers in few digits."""
    if isinstance(value, float):  # first, for there are many
        return _number(value)
    if is_dataclass(value):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, tuple | list) else value


def _given(value: Any) -> Any:
    """``value``, which JSON holds, without the parts that are null: these are what is left out. Raises ValueError: a
    number is not finite."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} instead of a number")
    if isinstance(value, Mapping):
        return {name: _given(part) for name, part in value.items() if part is not None}
    return list(map(_given, value)) if isinstance(value, list | tuple) else value


def _number(value: float) -> float:
    """Five digits after the point, five significant ones for small numbers; what JSON cannot say becomes 0."""
    if not math.isfinite(value):
        return 0.0
    return round(value, DIGITS) if abs(value) >= 1e-3 or value == 0 else float(f"{value:.{DIGITS - 1}g}")
