"""What is measured of summaries beside ROUGE: how much they copy, repeat, and how long they are.

Words are runs of letters and digits, lower-cased; each character of a script written without blanks is one.
All figures are means over documents.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from laconic.metrics.copying import correct_ngram_counts, over_copied_words
from laconic.metrics.ngrams import ngram_counts
from laconic.metrics.repetition import repeated_ngram_rate
from laconic.metrics.wordlists import smart_stop_words

REPEATED = {1: "repetition_1", 2: "repetition", 3: "repetition_3", 4: "repetition_4"}  # n -> name of the figure
CORRECT = {n: f"correct_{n}" for n in (1, 2, 3, 4)}  # micro averages; those of the summaries' rates end in _macro
OVER_COPIED, OVER_COPIED_CONTENT = "over_copied", "over_copied_content"
_BETWEEN = "\n"  # between two references: no word, so no n-gram with it stands in a document
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
    ``empty``: share of summaries without any word. Then those of `copying_measures`.
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
    plain = [text.replace(unk_text, " ") if unk_text else text for text in summaries]
    return {name: _mean(values) for name, values in rows.items()} | copying_measures(documents, plain, references)


def copying_measures(
    documents: Sequence[str], summaries: Sequence[str], references: Sequence[Sequence[str]]
) -> dict[str, float]:
    """What is copied rightly, and what without need (specification coconet f; Li et al. 2021, figure 4).

    ``correct_n``: of all n-grams of the summaries the share that the document and a reference hold, occurrences added
    up over the summaries; ``correct_n_macro``: the mean of the summaries' own shares. ``over_copied``: words of a
    summary that the document holds and no reference, a mean count over all summaries; ``over_copied_content``: the
    same without English stop words.
    """
    counts: dict[int, list[tuple[int, int]]] = {n: [] for n in CORRECT}
    over: list[int] = []
    content: list[int] = []
    for document, summary, models in zip(documents, summaries, references, strict=True):
        mine, source = words_of(summary), words_of(document)
        known = [word for model in models for word in (*words_of(model), _BETWEEN)]
        for n, pairs in counts.items():
            pairs.append(correct_ngram_counts(mine, source, known, n))
        copied = over_copied_words(mine, source, known)
        over.append(len(copied))
        content.append(sum(not is_stop_word(word) for word in copied))
    found: dict[str, float] = {}
    for n, pairs in counts.items():
        total = sum(size for _, size in pairs)
        found[CORRECT[n]] = sum(hits for hits, _ in pairs) / total if total else 0.0
        found[f"{CORRECT[n]}_macro"] = _mean(hits / size for hits, size in pairs if size)
    return found | {OVER_COPIED: _mean(over), OVER_COPIED_CONTENT: _mean(content)}


def is_stop_word(word: str) -> bool:
    """Is the lower-cased ``word`` an English function word? A contraction is one if its parts are ("they're")."""
    stops = smart_stop_words()
    plain = word.replace("’", "'")
    parts = plain.removesuffix("n't").split("'")
    return plain.replace("'", "") in stops or all(part in stops for part in parts)


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
