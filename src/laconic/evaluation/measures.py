"""What is measured of summaries beside ROUGE: how much they copy, repeat, and how long they are.

Words are runs of letters and digits, lower-cased; each character of a script written without blanks is one.
All figures are means over documents.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from laconic.metrics.ngrams import ngram_counts
from laconic.metrics.repetition import repeated_ngram_rate

REPEATED = {1: "repetition_1", 2: "repetition", 3: "repetition_3", 4: "repetition_4"}  # n -> name of the figure
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]|[^\W_]+(?:['’][^\W_]+)*")


def measure(
    documents: Sequence[str],
    summaries: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    unk_text: str | None = None,
) -> dict[str, float]:
    """Means over documents; a document whose summary is too short for a figure does not count in it.

    ``copy_rate``: share of the summary's words that the document holds. ``novel_2``: share of its distinct
    bigrams that the document lacks. ``repetition``: share of its bigrams that occurred in it before
    (``repetition_1``, ``_3`` and ``_4``: of its words, 3- and 4-grams). ``unk_rate``: unknown-word marks per
    blank-separated word. ``words``: its length; ``length_ratio``: its length over the references' mean length.
    ``empty``: share of summaries without any word.
    """
    rows: dict[str, list[float]] = {
        name: [] for name in ("copy_rate", "novel_2", *REPEATED.values(), "unk_rate", "words", "length_ratio", "empty")
    }
    for document, summary, models in zip(documents, summaries, references, strict=True):
        marks = summary.split().count(unk_text) if unk_text else 0
        rows["unk_rate"].append(marks / max(1, len(summary.split())))
        words = words_of(summary.replace(unk_text, " ") if unk_text else summary)
        rows["words"].append(len(words))
        rows["empty"].append(float(not words))
        if expected := _mean(len(words_of(model)) for model in models):
            rows["length_ratio"].append(len(words) / expected)
        if not words:
            continue
        source = words_of(document)
        known = set(source)
        rows["copy_rate"].append(sum(word in known for word in words) / len(words))
        if len(words) > 1:
            pairs, there = ngram_counts(words, 2), ngram_counts(source, 2)
            rows["novel_2"].append(sum(pair not in there for pair in pairs) / len(pairs))
        for n, name in REPEATED.items():
            if len(words) >= n:
                rows[name].append(repeated_ngram_rate(words, n))
    return {name: _mean(values) for name, values in rows.items()}


def reading_measures(readings: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """How models that read in chunks read (see `laconic.types.Summary`); nothing where none of them did.

    Means over documents of ``chunks_read`` (by the encoder, for all hypotheses), ``chunks_chosen`` (for the summary)
    and ``words_read`` (a share of the document's words); of ``coarse_entropy`` (nats) the mean over generated tokens.
    """
    readings = [reading for reading in readings if reading]
    if not readings:
        return {}
    found = {
        "chunks_read": _mean(r["chunks_read"] for r in readings),
        "words_read": _mean(r["words_read"] / max(1.0, r["words"]) for r in readings),
    }
    if choosing := [r["chunks_chosen"] for r in readings if "chunks_chosen" in r]:
        found["chunks_chosen"] = _mean(choosing)
    if steps := sum(r.get("steps", 0) for r in readings):
        found["coarse_entropy"] = sum(r["coarse_entropy"] * r["steps"] for r in readings if "steps" in r) / steps
    return found


def words_of(text: str) -> list[str]:
    """The lower-cased words of ``text``, punctuation left out."""
    return _WORD.findall(text.lower())


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed) if listed else 0.0
