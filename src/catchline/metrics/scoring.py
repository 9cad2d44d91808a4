"""How a data set's papers score: profile of ROUGE, limits, references, and which figure of it is quoted."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from catchline.errors import ConfigError, unknown_choice
from catchline.metrics.rouge import RougeResult, make_options, parse_kind, rouge
from catchline.metrics.rouge_text import TEXTS
from catchline.text.normalization import split_lines
from catchline.text.sentences import ENGLISH, sentence_strings

Shown = Literal["f", "recall"]


@dataclass(frozen=True, slots=True)
class Scoring:
    """``rouge`` are options of `catchline.rouge`; ``shown`` is the figure that tables print (``f`` or ``recall``);
    ``flags`` says in words, or in flags of ROUGE-1.5.5, what was counted; ``by_sentence`` is of `score_as`; with
    ``hash_digits`` every digit is ``#``, as in what a model of such a vocabulary writes."""

    rouge: Mapping[str, Any] = field(default_factory=dict)
    shown: Shown = "f"
    flags: str = ""
    by_sentence: bool = False
    hash_digits: bool = False


ANOTHER_SCRIPT = "profile unicode, because most references are of another script than Latin"
_DIGIT = re.compile(r"\d")
_LETTERS, _LATIN = re.compile(r"[^\W\d_]+"), re.compile("[A-Za-z]")
_BEYOND = re.compile(r"[^\W\d_a-zA-Z]")
_TOOL = {"profile": "rouge155", "stem": True, "multi": "average"}
# Where each comes from: docs/evaluate.md.
PROFILES: dict[str, Scoring] = {
    "gigaword": Scoring(_TOOL, flags="ROUGE-1.5.5 -m -n 2 -w 1.2 -a -f A, full-length"),
    "duc2004": Scoring(
        {**_TOOL, "max_bytes": 75},
        shown="recall",
        flags="ROUGE-1.5.5 -m -b 75 -n 2 -w 1.2 -a -f A, recall at 75 bytes over all references",
    ),
    "lcsts": Scoring(
        {"profile": "characters", "multi": "average"},
        flags="ROUGE-1.5.5 -n 2 -w 1.2 -a -f A on numbered characters, every character one",
    ),
    "cnn-plain": Scoring(
        {"profile": "plain"}, flags="blank-separated words with their case and signs, LCS of whole summaries"
    ),
    "cnndm": Scoring(
        _TOOL,
        flags="ROUGE-1.5.5 -m -n 2 -w 1.2 -a -f A, F1; a highlight or sentence a line, ROUGE-L of whole summaries",
        by_sentence=True,
    ),
    "cnndm-first": Scoring(
        {**_TOOL, "multi": "best"},
        flags="ROUGE-1.5.5 -m -n 2 -a -f B, F1; every highlight a reference, the one with the best recall counts; "
        "digits are # on both sides, so they do not count",
        hash_digits=True,
    ),
    "samsum": Scoring(
        _TOOL,
        flags="ROUGE-1.5.5 -m -n 2 -w 1.2 -a -f A, F1; a sentence a line on both sides, ROUGE-L of whole summaries",
        by_sentence=True,
    ),
}


def scoring(profile: str | None = None, rouge: Mapping[str, Any] | None = None) -> Scoring:
    """The way of scoring called ``profile``: a data set's, or a profile of ROUGE; ``rouge`` changes single options."""
    changes = dict(rouge or {})
    if profile is None:
        return Scoring(changes)
    if profile in TEXTS:
        return Scoring({"profile": profile, **changes})
    if profile not in PROFILES:
        raise ConfigError(unknown_choice("ROUGE profile", profile, [*PROFILES, *TEXTS]))
    found = PROFILES[profile]
    options = {**found.rouge, **changes}
    changed = [f"{name}={value}" for name, value in changes.items() if found.rouge.get(name) != value]
    flags = f"{found.flags}; changed: {', '.join(changed)}" if changed else found.flags
    return replace(found, rouge=options, flags=flags)


def suited(way: Scoring, references: Iterable[Iterable[str]]) -> Scoring:
    """``way``; where it names no profile and most references are of another script than Latin, whose words the default
    does not count, with profile ``unicode``, which ``flags`` say. They say too where the default parts many words."""
    if "profile" in way.rouge:
        return way
    texts = [text for several in references for text in several if text.strip()]
    if 2 * sum(map(_of_another_script, texts)) <= len(texts):
        parted = sum(map(bool, map(_BEYOND.search, texts)))
        if 10 * parted <= len(texts):
            return way
        flags = f"rouge155 parts words at letters such as é and ü, which {parted:,} of {len(texts):,} references have; "
        return replace(way, flags=f"{flags}profile unicode (evaluation.profile) counts them whole")
    return replace(way, rouge={**way.rouge, "profile": "unicode"}, flags=ANOTHER_SCRIPT)


def _of_another_script(text: str) -> bool:
    """Have most of its words no Latin letter?"""
    found = [] if text.isascii() else _LETTERS.findall(text)
    return 2 * sum(map(bool, map(_LATIN.search, found))) < len(found)


def check_scoring(profile: str | None, rouge: Mapping[str, Any]) -> None:
    """Check what the ``evaluation`` section of a run says of ROUGE. Raises ConfigError: an unknown profile or option of
    ROUGE, or a value that does not fit."""
    options = dict(scoring(profile, rouge).rouge)
    make_options(options.pop("profile", "rouge155"), options)


def sentence_lines(text: str) -> str:
    """One sentence a line: the lines of a text that has several, else its sentences."""
    lines = [line.strip() for line in split_lines(text) if line.strip()]
    return "\n".join(lines if len(lines) > 1 else sentence_strings(" ".join(lines), ENGLISH))


def score_as(
    way: Scoring, hypotheses: Sequence[str], references: Sequence[Sequence[str]], kinds: Sequence[str], **options: Any
) -> RougeResult:
    """`catchline.rouge` as ``way`` says; ``options`` of ROUGE that it does not name are as given. By sentence all texts
    have one sentence a line, and ``L`` is what ROUGE-1.5.5 prints as ROUGE-L for such files: the union of the
    sentences' longest common subsequences (``Lsum``)."""
    changes = [partial(_DIGIT.sub, "#")] * way.hash_digits + [sentence_lines] * way.by_sentence
    for change in changes:
        hypotheses, references = list(map(change, hypotheses)), [tuple(map(change, texts)) for texts in references]
    names = {kind: "Lsum" if way.by_sentence and parse_kind(kind).name == "L" else kind for kind in kinds}
    found = rouge(hypotheses, references, kinds=names, **{**options, **way.rouge})
    return found if [*names.values()] == [*kinds] else replace(found, signature=f"{found.signature}|L:sum")
