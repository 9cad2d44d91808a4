"""What is measured of summaries beside ROUGE: faithfulness, copying, repetition, and length.

The measures of one summary are in `laconic.metrics`, with their definition of a word; here they become figures of a
data set.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from laconic.jobs import forked
from laconic.metrics.copying import (
    correct_ngram_counts,
    coverage_and_density,
    novel_ngram_rate,
    over_copied_words,
    repeated_ngram_rate,
    repeats,
)
from laconic.metrics.support import CLAIMS, Kind, SourceFacts, SupportReport, check_support
from laconic.metrics.words import is_stop_word, words

REVISION = 3  # raised when a figure is added or could change: scores that are kept are then made anew
REPEATED = {1: "repetition_1", 2: "repetition", 3: "repetition_3", 4: "repetition_4"}  # n -> name of the figure
REPEATING = "repeating"
CORRECT = {n: f"correct_{n}" for n in (1, 2, 3, 4)}  # micro averages; those of the summaries' rates end in _macro
OVER_COPIED, OVER_COPIED_CONTENT = "over_copied", "over_copied_content"
UNSUPPORTED: dict[Kind, str] = {kind: f"unsupported_{kind}" for kind in CLAIMS}  # kind of claim -> name of the figure
UNSUPPORTED_WORDS, UNFAITHFUL = "unsupported_word", "unfaithful"
_TEXTS = 500  # a piece of work of a process
_BETWEEN = "\n"  # between two references: no word, so no n-gram with it stands in a document


def measure(
    documents: Sequence[str],
    summaries: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    unk_text: str | None = None,
    processes: int = 1,
) -> dict[str, float]:
    """Means over documents; a document whose summary is too short for a figure does not count in it.

    ``copy_rate``: share of the summary's words that the document holds, which is Grusky et al.'s coverage; ``density``:
    theirs. ``novel_2``: share of its distinct bigrams that the document lacks. ``repetition``: share of its bigrams
    that occurred in it before (``repetition_1``, ``_3`` and ``_4``: of its words, 3- and 4-grams); ``repeating``: share
    of summaries that a reader would say repeat themselves. ``unk_rate``: unknown-word marks per blank-separated word.
    ``words``: its length; ``length_ratio``: its length over the references' mean length. ``empty``: share of summaries
    without any word. Then what is unsupported (`_Faithfulness`) and what is copied rightly (`_Copying`).
    """
    whole = _Figures()

    def part(start: int) -> _Figures:
        found = _Figures()
        chosen = slice(start, start + _TEXTS)
        for document, summary, group in zip(documents[chosen], summaries[chosen], references[chosen], strict=True):
            found.add(document, summary, group, unk_text)
        return found

    for figures in forked(part, range(0, len(documents), _TEXTS), processes, option="--processes"):
        whole.extend(figures)
    rows = {name: _mean(values) for name, values in whole.rows.items()}
    return rows | whole.faithfulness.figures() | whole.copying.figures()


class _Figures:
    """The figures of some summaries, in order: ``rows`` has those of single summaries."""

    def __init__(self) -> None:
        self.rows: dict[str, list[float]] = {
            name: []
            for name in (
                *("copy_rate", "density", "novel_2", *REPEATED.values(), REPEATING),
                *("unk_rate", "words", "length_ratio", "empty"),
            )
        }
        self.copying, self.faithfulness = _Copying(), _Faithfulness()

    def extend(self, other: _Figures) -> None:
        """Append those of the summaries that come next."""
        for name, values in other.rows.items():
            self.rows[name] += values
        self.copying.extend(other.copying)
        self.faithfulness.extend(other.faithfulness)

    def add(self, document: str, summary: str, group: Sequence[str], unk_text: str | None) -> None:
        """Measure one summary."""
        rows = self.rows
        marks = summary.split().count(unk_text) if unk_text else 0
        rows["unk_rate"].append(marks / max(1, len(summary.split())))
        plain = summary.replace(unk_text, " ") if unk_text else summary
        source, mine, models = SourceFacts(document), words(plain), [words(model) for model in group]
        rows["words"].append(len(mine))
        rows["empty"].append(float(not mine))
        if expected := _mean(len(model) for model in models):
            rows["length_ratio"].append(len(mine) / expected)
        if found := coverage_and_density(mine, source.words):
            rows["copy_rate"].append(found[0])
            rows["density"].append(found[1])
            rows[REPEATING].append(float(repeats(mine)))
        rates = {"novel_2": novel_ngram_rate(mine, source.words, 2)}
        rates |= {name: repeated_ngram_rate(mine, n) for n, name in REPEATED.items()}
        for name, rate in rates.items():
            if rate is not None:
                rows[name].append(rate)
        self.copying.add(mine, source.words, models)
        self.faithfulness.add(check_support(plain, source))


class _Faithfulness:
    """What summaries state that their documents lack (`laconic.metrics.support`).

    ``unsupported_name``, ``_number``, ``_date`` and ``_word``: of all such pieces of all summaries the share that the
    documents lack, missing where there is none. ``claims``: names, numbers and dates a summary, a mean; ``unfaithful``:
    share of summaries with one or more that the document lacks.
    """

    def __init__(self) -> None:
        self.checked: Counter[str] = Counter()
        self.missing: Counter[str] = Counter()
        self.summaries = self.unfaithful = 0

    def add(self, report: SupportReport) -> None:
        """Count one summary."""
        self.checked.update(report.checked)
        self.missing.update(claim.kind for claim in (*report.unsupported, *report.new_words))
        self.summaries += 1
        self.unfaithful += bool(report.unsupported)

    def extend(self, other: _Faithfulness) -> None:
        """Add what another one counted."""
        self.checked.update(other.checked)
        self.missing.update(other.missing)
        self.summaries += other.summaries
        self.unfaithful += other.unfaithful

    def figures(self) -> dict[str, float]:
        """Of the summaries so far."""
        kinds: dict[Kind, str] = {**UNSUPPORTED, "word": UNSUPPORTED_WORDS}
        found = {name: self.missing[kind] / self.checked[kind] for kind, name in kinds.items() if self.checked[kind]}
        count = max(1, self.summaries)
        claims = sum(self.checked[kind] for kind in CLAIMS)
        return found | {UNFAITHFUL: self.unfaithful / count, "claims": claims / count}


class _Copying:
    """What is copied rightly, and what without need (Li et al. 2021, figure 4).

    ``correct_n``: of all n-grams of the summaries the share that the document and a reference hold, occurrences added
    up over the summaries; ``correct_n_macro``: the mean of the summaries' own shares. ``over_copied``: words of a
    summary that the document holds and no reference, a mean count over all summaries; ``over_copied_content``: the
    same without English stop words.
    """

    def __init__(self) -> None:
        self.counts: dict[int, list[tuple[int, int]]] = {n: [] for n in CORRECT}
        self.over: list[int] = []
        self.content: list[int] = []

    def add(self, summary: list[str], source: list[str], references: Sequence[list[str]]) -> None:
        """Count one summary."""
        known = [word for model in references for word in (*model, _BETWEEN)]
        for n, pairs in self.counts.items():
            pairs.append(correct_ngram_counts(summary, source, known, n))
        copied = over_copied_words(summary, source, known)
        self.over.append(len(copied))
        self.content.append(sum(not is_stop_word(word) for word in copied))

    def extend(self, other: _Copying) -> None:
        """Append what another one counted."""
        for n, pairs in other.counts.items():
            self.counts[n] += pairs
        self.over += other.over
        self.content += other.content

    def figures(self) -> dict[str, float]:
        """Of the summaries so far."""
        found: dict[str, float] = {}
        for n, pairs in self.counts.items():
            total = sum(size for _, size in pairs)
            found[CORRECT[n]] = sum(hits for hits, _ in pairs) / total if total else 0.0
            found[f"{CORRECT[n]}_macro"] = _mean(hits / size for hits, size in pairs if size)
        return found | {OVER_COPIED: _mean(self.over), OVER_COPIED_CONTENT: _mean(self.content)}


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


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed) if listed else 0.0
