"""A `Summary` as plain JSON values and back, so that stored predictions can be shown again anywhere."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from laconic.errors import DataError
from laconic.explain.chunks import read_to
from laconic.metrics.support import SupportReport, check_support
from laconic.types import Chunk, SourceSpan, Summary, SummaryToken, SummaryWord

DIGITS = 5


def to_dict(summary: Summary, *, document: bool = True, attention: bool = True) -> dict[str, Any]:
    """The summary as JSON values; weights and probabilities are rounded to five digits.

    ``document=False`` and ``attention=False`` leave the two large parts out.
    """
    values: dict[str, Any] = {
        "id": summary.id,
        "summary": summary.text,
        "model": summary.model,
        "score": _number(summary.score),
        "log_prob": _number(summary.log_prob),
        "tokens_read": summary.tokens_read,
        "tokens_given": summary.tokens_given,
        "truncated": summary.truncated,
        "finished": summary.finished,
    }
    if summary.confidence is not None:
        values["confidence"] = _number(summary.confidence)
    if summary.facts and attention:
        values["facts"] = _plain(summary.facts)
    if summary.unlike:
        values["unlike"] = list(summary.unlike)
    if summary.declined:
        values["declined"] = summary.declined
    if summary.terms:
        values["terms"] = _plain(summary.terms)
    if summary.reading:
        values["reading"] = _plain(summary.reading)
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
    if summary.alternatives:
        values["alternatives"] = [to_dict(one, document=False, attention=False) for one in summary.alternatives]
    return values


def support_of(summary: Summary) -> SupportReport | None:
    """What of the summary its document supports; None without a document."""
    return check_support(summary.text, summary.document) if summary.document else None


def support_to_dict(report: SupportReport) -> dict[str, Any]:
    """The report as JSON values: numbers, dates and names that the document lacks, other words that it lacks, and what
    it has, with the places in both texts. ``rate`` is null where there was no number, date or name to compare."""
    values: dict[str, Any] = {"checked": report.checked, "unsupported": [], "new_words": [], "supported": []}
    for claim in report.claims:
        entry: dict[str, Any] = {"kind": claim.kind, "text": claim.text, "start": claim.start, "end": claim.end}
        if claim.source is not None:
            values["supported"].append(entry | {"source": list(claim.source)})
        else:
            values["new_words" if claim.kind == "word" else "unsupported"].append(entry)
    values["rate"] = None if report.rate is None else round(report.rate, 4)
    return values


def from_dict(values: Mapping[str, Any]) -> Summary:
    """The summary that `to_dict` described.

    Raises:
        DataError: not such a record.
    """
    try:
        found = Summary(
            text=_text(values["summary"]),
            score=_finite(values.get("score") or 0.0),
            log_prob=_finite(values.get("log_prob") or 0.0),
            id=str(values.get("id", "")),
            model=str(values.get("model", "")),
            document=_text(values.get("document", "")),
            words=tuple(_word_from_dict(word) for word in values.get("words") or ()),
            source_offsets=tuple((int(start), int(end)) for start, end in values.get("source_offsets") or ()),
            tokens_read=int(values.get("tokens_read", 0)),
            tokens_given=int(values.get("tokens_given", 0)),
            truncated=bool(values.get("truncated", False)),
            finished=bool(values.get("finished", True)),
            terms=_numbers(values.get("terms")),
            reading=_numbers(values.get("reading")),
            chunks=tuple(_chunk_from_dict(chunk) for chunk in values.get("chunks") or ()),
            confidence=None if values.get("confidence") is None else _finite(values["confidence"]),
            unlike=tuple(map(str, values.get("unlike") or ())),
            declined=str(values.get("declined") or ""),
            facts=_numbers(values.get("facts")),
            alternatives=tuple(from_dict(one) for one in values.get("alternatives") or ()),
        )
        length = len(found.text)
        if any(not 0 <= word.start <= word.end <= length for word in found.words):
            raise ValueError(f"a word outside of the summary's {length} characters")
        return found
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise DataError(
            f"This is not a stored summary ({type(error).__name__}: {error}); `laconic summarize --json` writes such."
        ) from None


def chunks_to_list(chunks: Iterable[Chunk]) -> list[dict[str, Any]]:
    """The chunks as JSON values; ``read`` is left out where every chunk was read for every word."""
    return [
        {"start": chunk.start, "end": chunk.end, "weights": [_number(weight) for weight in chunk.weights]}
        | ({} if chunk.read is None else {"read": list(chunk.read)})
        for chunk in chunks
    ]


def _chunk_from_dict(values: Mapping[str, Any]) -> Chunk:
    read = values.get("read")
    return Chunk(
        start=int(values["start"]),
        end=int(values["end"]),
        weights=tuple(_finite(weight or 0.0) for weight in values["weights"]),
        read=None if read is None else tuple(map(int, read)),
    )


def _word_to_dict(word: SummaryWord, attention: bool) -> dict[str, Any]:
    values: dict[str, Any] = _plain(word)
    for name in ("attention", "maps", "figures", "tokens"):
        if not values[name] or (name in ("attention", "maps") and not attention):
            del values[name]
    return values


def _plain(value: Any) -> Any:
    """JSON values for a record of ours: its fields by name, lists, and numbers in few digits."""
    if is_dataclass(value):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    return _number(value) if isinstance(value, float) else value


def _word_from_dict(values: Mapping[str, Any]) -> SummaryWord:
    p_gen = values.get("p_gen")
    return SummaryWord(
        text=_text(values["text"]),
        start=int(values["start"]),
        end=int(values["end"]),
        probability=_finite(values.get("probability", 0.0)),
        copied=bool(values.get("copied", False)),
        copy_share=_finite(values.get("copy_share", 0.0)),
        p_gen=None if p_gen is None else _finite(p_gen),
        sources=_spans(values.get("sources", ())),
        attention=tuple(_finite(weight) for weight in values.get("attention") or ()),
        maps={name: tuple(map(_finite, weights)) for name, weights in (values.get("maps") or {}).items()},
        figures=_numbers(values.get("figures")),
        tokens=tuple(_token_from_dict(token) for token in values.get("tokens") or ()),
    )


def _token_from_dict(values: Mapping[str, Any]) -> SummaryToken:
    p_gen = values.get("p_gen")
    return SummaryToken(
        text=_text(values["text"]),
        probability=_finite(values.get("probability", 0.0)),
        p_gen=None if p_gen is None else _finite(p_gen),
        copy_share=_finite(values.get("copy_share", 0.0)),
        figures=_numbers(values.get("figures")),
        sources={name: _spans(spans) for name, spans in (values.get("sources") or {}).items()},
    )


def _spans(values: Iterable[Mapping[str, Any]]) -> tuple[SourceSpan, ...]:
    return tuple(SourceSpan(int(s["start"]), int(s["end"]), _text(s["text"]), _finite(s["weight"])) for s in values)


def _number(value: float) -> float:
    """Five digits after the point, five significant ones for small numbers; what JSON cannot say becomes 0."""
    if value != value or value in (float("inf"), float("-inf")):
        return 0.0
    return round(value, DIGITS) if abs(value) >= 1e-3 or value == 0 else float(f"{value:.{DIGITS - 1}g}")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} where text was expected")
    return value


def _numbers(values: Mapping[str, Any] | None) -> dict[str, float]:
    return {name: _finite(value) for name, value in (values or {}).items()}


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{number} where a number was expected")
    return number
