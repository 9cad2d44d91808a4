"""What is measured of summaries beside ROUGE: faithfulness, copying, repetition, and length.

The measures of one summary are in `catchline.metrics`, with their definition of a word; here they become figures of a
data set.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

import numpy as np

from catchline.jobs import forked
from catchline.metrics import copying
from catchline.metrics.faithfulness import CLAIMS, Kind, SourceFacts, check_support
from catchline.metrics.words import is_stop_word, words

REVISION = 3  # raised when a figure is added or could change: scores that are kept are then made anew
REPEATED = {1: "repetition_1", 2: "repetition", 3: "repetition_3", 4: "repetition_4"}  # n -> name of the figure
REPEATING = "repeating"
CORRECT = {n: f"correct_{n}" for n in (1, 2, 3, 4)}  # micro averages; those of the summaries' rates end in _macro
OVER_COPIED, OVER_COPIED_CONTENT = "over_copied", "over_copied_content"
UNSUPPORTED: dict[Kind, str] = {kind: f"unsupported_{kind}" for kind in CLAIMS}  # kind of claim -> name of the figure
UNSUPPORTED_WORDS, UNFAITHFUL = "unsupported_word", "unfaithful"
_KINDS: dict[Kind, str] = {**UNSUPPORTED, "word": UNSUPPORTED_WORDS}
_MEANS = (
    *("copy_rate", "density", "novel_2", *REPEATED.values(), REPEATING, "unk_rate", "words", "length_ratio", "empty"),
    *(UNFAITHFUL, "claims", *(f"{name}_macro" for name in CORRECT.values()), OVER_COPIED, OVER_COPIED_CONTENT),
)
_SHARES = (*_KINDS.values(), *CORRECT.values())
_OF = " of"  # behind the name of a share: how many pieces there are
_COLUMNS = (*_MEANS, *_SHARES, *(name + _OF for name in _SHARES))
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
    without any word.

    What they state that their documents lack (`catchline.metrics.faithfulness`): ``unsupported_name``, ``_number``,
    ``_date``
    and ``_word``: of all such pieces of all summaries the share that the documents lack, missing where there is none;
    ``claims``: names, numbers and dates a summary; ``unfaithful``: share of summaries with one or more that the
    document lacks.

    What is copied rightly, and what without need (Li et al. 2021, figure 4): ``correct_n``: of all n-grams of the
    summaries the share that the document and a reference hold, occurrences added up over the summaries;
    ``correct_n_macro``: the mean of the summaries' own shares; ``over_copied``: words of a summary that the document
    holds and no reference; ``over_copied_content``: the same without English stop words.
    """

    def part(start: int) -> bytes:
        """As raw numbers, which travel between processes many times faster than objects."""
        chosen = slice(start, start + _TEXTS)
        pairs = zip(documents[chosen], summaries[chosen], references[chosen], strict=True)
        return array("d", chain.from_iterable([_figures(*pair, unk_text) for pair in pairs])).tobytes()

    parts = forked(part, range(0, len(documents), _TEXTS), processes, option="--processes")
    table = np.frombuffer(b"".join(parts)).reshape(-1, len(_COLUMNS))
    columns = {name: of[~np.isnan(of)].tolist() for name, of in zip(_COLUMNS, table.T, strict=True)}
    found = {name: _mean(columns[name]) for name in _MEANS}
    shares = {name: (sum(columns[name]), sum(columns[name + _OF])) for name in _SHARES}
    found |= {name: some / every for name, (some, every) in shares.items() if every}
    return dict.fromkeys(CORRECT.values(), 0.0) | found


def _figures(document: str, summary: str, group: Sequence[str], unk_text: str | None) -> list[float]:
    """Of one summary the `_COLUMNS`: what means are taken of, not a number where there is none; for shares of all
    pieces the number that counts, and how many there are."""
    marks = summary.split().count(unk_text) if unk_text else 0
    plain = summary.replace(unk_text, " ") if unk_text else summary
    facts, models, mine = SourceFacts(document), [words(model) for model in group], words(plain)
    source = facts.words
    known = models[0] if len(models) == 1 else [word for model in models for word in (*model, _BETWEEN)]
    expected = _mean(map(len, models))
    rates = copying.repeated_ngram_rates(mine, len(REPEATED))
    in_source, in_known = copying.shared_runs(mine, source), copying.shared_runs(mine, known)
    over = copying.over_copied(mine, in_source, in_known)
    claims = check_support(plain, facts).claims
    checked, missing = [claim.kind for claim in claims], [claim.kind for claim in claims if claim.source is None]
    correct = copying.correct_counts(in_source, in_known, len(CORRECT))
    figures = (
        *(copying.coverage_and_density(in_source) or (None, None)),
        copying.novel_rate(mine, in_source, 2),
        *rates,
        copying.repeats(mine, rates[-1]) if mine else None,
        marks / len(summary.split()) if marks else 0.0,
        len(mine),
        len(mine) / expected if expected else None,
        not mine,
        any([kind != "word" for kind in missing]),
        len(checked) - checked.count("word"),
        *[hits / size if size else None for hits, size in correct],
        len(over),
        len(over) - sum(map(is_stop_word, over)),
        *(*map(missing.count, _KINDS), *[hits for hits, _ in correct]),
        *(*map(checked.count, _KINDS), *[size for _, size in correct]),
    )
    return [math.nan if value is None else value for value in figures]


def reading_measures(readings: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """How models that read in chunks read (see `catchline.types.Summary`); nothing where none of them did.

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
